//! Which programs of ROS this machine has, and how each is started so that it works.

use super::programs::{Absent, prepare};
use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// Debian's own Python, which has its ROS 1.
pub(super) const SYSTEM_PYTHON: &str = "/usr/bin/python3";

/// `ros2` in a prefix.
const ROS2: &str = "bin/ros2";

/// The recorder that the script `rosbag` starts: the script's own processor time and memory would be measured
/// instead.
const ROSBAG_RECORD: &str = "lib/rosbag/record";

/// Paths that the user named.
#[derive(Clone, Copy, Debug, Default)]
pub struct Named<'a> {
    /// `ros2`, or the prefix that it is installed into.
    pub ros2: Option<&'a Path>,
    /// The prefix of a ROS 1.
    pub ros1: Option<&'a Path>,
    /// A Python with `rclpy`.
    pub python: Option<&'a Path>,
}

/// A program of ROS, and the file of its prefix that must be sourced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Installed {
    pub program: PathBuf,
    /// Absent where the system needs none.
    setup: Option<PathBuf>,
}

impl Installed {
    /// `program` below a prefix; `None` when it does not exist.
    fn below(prefix: &Path, program: &str) -> Option<Self> {
        let program = prefix.join(program);
        let setup = prefix.join("setup.bash");
        program.is_file().then(|| Self {
            program,
            setup: setup.is_file().then_some(setup),
        })
    }

    /// A program by its path, with its prefix's setup to source, unless the environment shows that this was
    /// done.
    fn at(program: PathBuf) -> Self {
        let prefix = program.parent().and_then(Path::parent);
        let is_sourced = |prefix: &Path| {
            let prefixes = env::var_os("AMENT_PREFIX_PATH").unwrap_or_default();
            env::split_paths(&prefixes).any(|one| one == prefix)
        };
        let setup = prefix
            .filter(|prefix| !is_sourced(prefix))
            .map(|prefix| prefix.join("setup.bash"))
            .filter(|setup| setup.is_file());
        Self { program, setup }
    }

    /// `program` in this environment, without a process between.
    pub fn command(&self, program: &Path) -> Command {
        let Some(setup) = &self.setup else {
            return Command::new(program);
        };
        let mut command = Command::new("bash");
        command.args(["-c", "setup=$1; shift; . \"$setup\" && exec \"$@\"", "setup"]);
        command.arg(setup).arg(program);
        command
    }

    /// Whether a program is found in this environment.
    fn has(&self, program: &str) -> bool {
        let mut command = self.command(Path::new("sh"));
        command.args(["-c", &format!("command -v {program}")]);
        imports(command)
    }
}

fn on_path(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}

/// Folders that ROS is installed into, the newest name last.
fn prefixes() -> Vec<PathBuf> {
    let entries = fs::read_dir("/opt/ros").into_iter().flatten().flatten();
    let mut prefixes: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    prefixes.sort();
    prefixes
}

/// Looks at the given path (the program or its prefix), on `PATH`, or below `/opt/ros`.
pub(super) fn find_ros2(named: Option<&Path>) -> Option<Installed> {
    match named {
        Some(prefix) if prefix.is_dir() => Installed::below(prefix, ROS2),
        Some(program) => Some(Installed::at(program.to_owned())),
        None => on_path("ros2").map(Installed::at).or_else(|| {
            prefixes()
                .iter()
                .rev()
                .find_map(|prefix| Installed::below(prefix, ROS2))
        }),
    }
}

/// Looks in the named prefix, in Debian's place, or below `/opt/ros`.
pub(super) fn find_ros1(named: Option<&Path>) -> Result<Installed, Absent> {
    let prefixes = match named {
        Some(prefix) => vec![prefix.to_owned()],
        None => [PathBuf::from("/usr")]
            .into_iter()
            .chain(prefixes().into_iter().rev())
            .collect(),
    };
    let found = prefixes
        .iter()
        .find_map(|prefix| Installed::below(prefix, ROSBAG_RECORD));
    let Some(ros1) = found.filter(|ros1| ros1.has("rosmaster")) else {
        return Err(Absent(
            "ROS 1 is not installed: there is no rosbag or no rosmaster (Debian: python3-rosbag, python3-rosmaster; elsewhere: --ros1 PREFIX)"
                .to_owned(),
        ));
    };
    let mut command = ros1.command(Path::new(SYSTEM_PYTHON));
    command.args(["-c", "import rospy, std_msgs.msg"]);
    prepare(&mut command, &[], true);
    if imports(command) {
        Ok(ros1)
    } else {
        Err(Absent(format!(
            "ROS 1 is not complete: {SYSTEM_PYTHON} has no rospy or no std_msgs"
        )))
    }
}

/// A ROS 1 with a master and `rospy`.
pub(crate) struct Ros1(Installed);

impl Ros1 {
    /// Finds it where Debian installs it, or below `/opt/ros`.
    ///
    /// # Errors
    /// Why it was not found: one sentence.
    pub(crate) fn find() -> Result<Self, String> {
        find_ros1(None).map(Self).map_err(|Absent(reason)| reason)
    }

    /// Its Python in its environment.
    pub(crate) fn python(&self) -> Command {
        let mut command = self.0.command(Path::new(SYSTEM_PYTHON));
        prepare(&mut command, &[], true);
        command
    }
}

pub(crate) fn find_rclpy(named: Option<&Path>) -> Option<PathBuf> {
    let in_venv = |name: &str| env::var_os(name).map(|folder| Path::new(&folder).join("bin/python"));
    let candidates = [
        named.map(Path::to_owned),
        in_venv("VIRTUAL_ENV"),
        in_venv("HOLDALL_VENV"),
        Some(PathBuf::from(".venv/bin/python")),
        on_path("python3"),
    ];
    candidates.into_iter().flatten().find(|python| {
        let mut command = Command::new(python);
        command.args(["-c", "import rclpy, std_msgs.msg"]);
        imports(command)
    })
}

/// Whether a program runs without error.
fn imports(mut command: Command) -> bool {
    let silent = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    silent.status().is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// A prefix with a program that prints the variables that its setup has set.
    fn prefix(program: &str) -> tempfile::TempDir {
        let prefix = tempfile::tempdir().unwrap();
        let path = prefix.path().join(program);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "#!/bin/sh\necho \"$TOLD_BY_SETUP $*\"\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(prefix.path().join("setup.bash"), "export TOLD_BY_SETUP=sourced\n").unwrap();
        prefix
    }

    fn output(mut command: Command) -> String {
        let output = command.args(["bag", "a b"]).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    #[test]
    fn a_prefix_and_a_program_in_it_are_both_called_with_their_setup() {
        let prefix = prefix(ROS2);
        for named in [prefix.path().to_owned(), prefix.path().join(ROS2)] {
            let found = find_ros2(Some(&named)).unwrap();
            assert_eq!(output(found.command(&found.program)), "sourced bag a b");
        }
        assert_eq!(find_ros2(Some(Path::new("/"))), None);
    }

    #[test]
    fn a_program_outside_of_any_prefix_is_called_without_setup() {
        let found = Installed::at(PathBuf::from("/bin/echo"));
        assert_eq!(output(found.command(&found.program)), "bag a b");
    }

    #[test]
    fn a_prefix_without_rosmaster_or_rospy_is_not_ros_1() {
        let prefix = prefix(ROSBAG_RECORD);
        let only = find_ros1(Some(&prefix.path().join("lib"))).unwrap_err().0;
        assert!(
            only.contains("not installed") && only.contains("--ros1"),
            "{only}"
        );
        assert!(Installed::below(prefix.path(), ROSBAG_RECORD).is_some());
    }
}
