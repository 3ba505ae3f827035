//! The programs that a run over a transport starts: which exist, and how each is called.

use super::{
    installed::{self, Installed, Named, SYSTEM_PYTHON},
    world::{Side, World},
};
use crate::{
    error::{BenchError, BenchResult},
    suite::config::{PublisherKind, RecorderKind, Setting, Transport},
};
use holdall_io::fs::write_atomically_unsynced;
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// Imported by both of them.
const PUBLISH_LOAD: &str = include_str!("../../../scripts/publish_load.py");
const PUBLISH_RCLPY: &str = include_str!("../../../scripts/publish_rclpy.py");
const PUBLISH_ROSPY: &str = include_str!("../../../scripts/publish_rospy.py");

/// Why something cannot run here: one sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Absent(pub String);

/// The programs of this machine.
#[derive(Clone, Debug)]
pub struct Programs {
    /// The recorder that is measured.
    pub holdall: PathBuf,
    /// This program, which publishes and has rivals' writers.
    bench: PathBuf,
    /// `ros2`, and the setup that must be sourced for it.
    ros2: Option<Installed>,
    /// ROS 1's recorder itself, if everything that a run with it needs is installed.
    ros1: Result<Installed, Absent>,
    /// A Python with `rclpy`.
    rclpy: Option<PathBuf>,
    /// Transports that this build cannot join, with its error.
    missing: Vec<(Transport, Absent)>,
    /// Nodes that our own publishers are dealt to.
    nodes: u32,
}

impl Programs {
    /// Searches for programs: those of `named`, or `ros2` on `PATH` or below `/opt/ros`, a Python with
    /// `rclpy` in the virtual environment or on `PATH`, ROS 1 where Debian puts it or below `/opt/ros`.
    /// `transports` are those that will be needed.
    pub fn find(holdall: PathBuf, bench: PathBuf, named: Named<'_>, transports: &[Transport]) -> Self {
        let missing = transports
            .iter()
            .filter_map(|transport| Some((*transport, missing(&bench, *transport)?)))
            .collect();
        Self {
            ros2: installed::find_ros2(named.ros2),
            ros1: installed::find_ros1(named.ros1),
            rclpy: installed::find_rclpy(named.python),
            missing,
            holdall,
            bench,
            nodes: 1,
        }
    }

    /// The same, with this number of nodes that publish.
    pub fn publishing_by(self, nodes: u32) -> Self {
        Self { nodes, ..self }
    }

    /// Why a setting cannot run here; `None` when it can.
    pub(crate) fn absence(&self, transport: Transport, setting: &Setting) -> Option<Absent> {
        let absent = |text: &str| Some(Absent(text.to_owned()));
        let needs_own_transport = setting.recorder != RecorderKind::Rosbag
            && !(setting.recorder == RecorderKind::Ros2Bag && setting.publishers == PublisherKind::Rclpy);
        if let Some((_, reason)) = self
            .missing
            .iter()
            .find(|(missing, _)| needs_own_transport && *missing == transport)
        {
            return Some(reason.clone());
        }
        match setting.recorder {
            RecorderKind::Ros2Bag if self.ros2.is_none() => {
                return absent(
                    "ros2 is not installed: not on PATH and not below /opt/ros; name it by --ros2 PATH",
                );
            }
            RecorderKind::Ros2Bag | RecorderKind::Rosbag if transport != Transport::Dds => {
                return absent("recorders of ROS are run over their own transport only");
            }
            RecorderKind::Rosbag => return self.ros1.as_ref().err().cloned(),
            _ => {}
        }
        if setting.publishers == PublisherKind::Rclpy {
            if transport != Transport::Dds {
                return absent("publishers of rclpy are run over DDS only");
            }
            if self.rclpy.is_none() {
                return absent("no Python with rclpy was found; name one by --python FILE");
            }
        }
        None
    }

    /// The master of ROS 1.
    pub(super) fn rosmaster(&self) -> Command {
        let name = Path::new("rosmaster");
        self.ros1
            .as_ref()
            .map_or_else(|_| Command::new(name), |ros1| ros1.command(name))
    }

    /// The recorder's command, without the selection of topics.
    pub(super) fn recorder(
        &self,
        setting: &Setting,
        transport: Transport,
        bag: &Path,
        world: &World,
    ) -> Command {
        let mut command = match setting.recorder {
            RecorderKind::Holdall => self.holdall_record(setting, transport, bag),
            RecorderKind::Synchronous | RecorderKind::DoubleBuffered | RecorderKind::Discard => {
                let mut command = Command::new(&self.bench);
                command.args(["rival", "--transport", transport.flag().unwrap_or("dds")]);
                command
            }
            RecorderKind::Ros2Bag => self.ros2_record(setting, bag),
            RecorderKind::Rosbag => self.rosbag_record(setting, bag),
        };
        world.prepare(&mut command, Side::Recorder);
        command
    }

    fn holdall_record(&self, setting: &Setting, transport: Transport, bag: &Path) -> Command {
        let mut command = Command::new(&self.holdall);
        command.args(["record", "--json", "--disable-keyboard-controls", "--transport"]);
        command.arg(transport.flag().unwrap_or("dds"));
        record_flags(&mut command, setting, bag);
        command
    }

    fn ros2_record(&self, setting: &Setting, bag: &Path) -> Command {
        let mut command = match &self.ros2 {
            Some(ros2) => ros2.command(&ros2.program),
            None => Command::new("ros2"),
        };
        command.args(["bag", "record"]);
        record_flags(&mut command, setting, bag);
        command
    }

    /// The recorder of ROS 1, which makes no folder itself.
    fn rosbag_record(&self, setting: &Setting, bag: &Path) -> Command {
        /// ROS 1 counts in these.
        const MEBIBYTE: u64 = 1 << 20;
        let mut command = match &self.ros1 {
            Ok(ros1) => ros1.command(&ros1.program),
            Err(_) => Command::new("rosbag"),
        };
        // A folder is made here, because rosbag makes none.
        let _made_or_refused_by_rosbag = fs::create_dir_all(bag).is_ok();
        command.arg("-O").arg(bag.join("bag.bag"));
        let buffer = setting.max_cache_size_bytes.div_ceil(MEBIBYTE);
        command.args(["--buffsize", &buffer.to_string()]);
        if let Some(bytes) = setting.max_bag_size_bytes {
            command.args(["--split", "--size", &bytes.div_ceil(MEBIBYTE).to_string()]);
        }
        command
    }

    /// The command of the publishers.
    pub(super) fn publishers(
        &self,
        kind: PublisherKind,
        recorder: RecorderKind,
        transport: Transport,
        folder: &Path,
        world: &World,
    ) -> BenchResult<Command> {
        let script = |name: &str, text: &str| {
            let path = folder.join(name);
            for (path, text) in [(&path, text), (&folder.join("publish_load.py"), PUBLISH_LOAD)] {
                write_atomically_unsynced(path, text.as_bytes())?;
            }
            Ok::<_, BenchError>(path)
        };
        let is_ros1 = recorder == RecorderKind::Rosbag;
        let mut command = if is_ros1 {
            let python = Path::new(SYSTEM_PYTHON);
            let mut command = match &self.ros1 {
                Ok(ros1) => ros1.command(python),
                Err(_) => Command::new(python),
            };
            command.arg(script("publish_rospy.py", PUBLISH_ROSPY)?);
            command
        } else if kind == PublisherKind::Rclpy {
            let python = self.rclpy.clone().unwrap_or_else(|| PathBuf::from("python3"));
            let mut command = Command::new(python);
            command.arg(script("publish_rclpy.py", PUBLISH_RCLPY)?);
            command
        } else {
            let mut command = Command::new(&self.bench);
            command.args(["publish", "--transport", transport.flag().unwrap_or("dds")]);
            command.args(["--nodes", &self.nodes.to_string()]);
            command
        };
        // The folder is for results.
        command.env("PYTHONDONTWRITEBYTECODE", "1");
        world.prepare(&mut command, Side::Publishers);
        Ok(command)
    }
}

/// Flags that `holdall record` and `ros2 bag record` have in common.
fn record_flags(command: &mut Command, setting: &Setting, bag: &Path) {
    command.arg("-o").arg(bag).args(["-s", &setting.storage_id]);
    command.args(["--max-cache-size", &setting.max_cache_size_bytes.to_string()]);
    if let Some(bytes) = setting.max_bag_size_bytes {
        command.args(["-b", &bytes.to_string()]);
    }
    if let Some(format) = &setting.compression {
        command.args(["--compression-mode", "message", "--compression-format", format]);
        command.args([
            "--compression-queue-size",
            &setting.compression_queue_size.to_string(),
        ]);
        command.args(["--compression-threads", &setting.compression_threads.to_string()]);
    }
    if let Some(path) = &setting.storage_config_file {
        command.args(["--storage-config-file", path]);
    }
    if let Some(preset) = &setting.storage_preset_profile {
        command.args(["--storage-preset-profile", preset]);
    }
}

/// Sets the environment; ROS 1 must not find the messages of ROS 2, which have the same names.
pub(super) fn prepare(command: &mut Command, environment: &[(String, String)], is_ros1: bool) {
    command.envs(environment.iter().map(|(name, value)| (name, value)));
    if is_ros1 {
        for name in ["PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"] {
            command.env_remove(name);
        }
    }
}

/// Starts this program to join a transport and publish nothing.
fn missing(bench: &Path, transport: Transport) -> Option<Absent> {
    let flag = transport.flag()?;
    let output = Command::new(bench)
        .args(["publish", "--probe", "--transport", flag])
        .env("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
        .stdin(Stdio::null())
        .output();
    match output {
        Ok(output) if output.status.success() => None,
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stderr);
            let sentence = text.lines().last().unwrap_or("it printed nothing").to_owned();
            Some(Absent(format!("{flag} cannot be used: {sentence}")))
        }
        Err(error) => Some(Absent(format!(
            "{flag} cannot be used: {}: {error}",
            bench.display()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn no_programs() -> Programs {
        Programs {
            holdall: PathBuf::from("holdall"),
            bench: PathBuf::from("holdall-bench"),
            ros2: None,
            ros1: Err(Absent("ROS 1 is not installed".to_owned())),
            rclpy: None,
            missing: vec![(
                Transport::Zenoh,
                Absent("this build of holdall has no zenoh".to_owned()),
            )],
            nodes: 1,
        }
    }

    #[test]
    fn only_absent_programs_are_reported() {
        let programs = no_programs();
        let setting = Setting::default();
        let with = |recorder| Setting {
            recorder,
            ..setting.clone()
        };
        assert_eq!(programs.absence(Transport::Dds, &setting), None);
        let absence = |transport, setting: &Setting| programs.absence(transport, setting).unwrap().0;
        assert!(absence(Transport::Zenoh, &setting).contains("no zenoh"));
        assert!(absence(Transport::Dds, &with(RecorderKind::Ros2Bag)).contains("--ros2"));
        assert!(absence(Transport::Dds, &with(RecorderKind::Rosbag)).contains("ROS 1"));
        let rclpy = Setting {
            publishers: PublisherKind::Rclpy,
            ..setting.clone()
        };
        assert!(absence(Transport::Dds, &rclpy).contains("--python"));
    }

    #[test]
    fn flags_are_those_of_rosbag2() {
        let setting = Setting {
            max_bag_size_bytes: Some(7),
            compression: Some("zstd".to_owned()),
            storage_preset_profile: Some("fastwrite".to_owned()),
            ..Setting::default()
        };
        let mut command = Command::new("x");
        record_flags(&mut command, &setting, Path::new("/b"));
        let words: Vec<_> = command
            .get_args()
            .map(|word| word.to_string_lossy().into_owned())
            .collect();
        assert_eq!(
            words.join(" "),
            "-o /b -s mcap --max-cache-size 100000000 -b 7 --compression-mode message --compression-format zstd \
             --compression-queue-size 1 --compression-threads 0 --storage-preset-profile fastwrite"
        );
    }
}
