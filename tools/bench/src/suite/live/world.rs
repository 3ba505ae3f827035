//! The environment of a run's programs: a separate domain, port or master, so that they only find each
//! other.

use super::{
    child::Program,
    programs::{Programs, prepare},
};
use crate::{
    error::{BenchError, BenchResult},
    suite::config::{RecorderKind, Transport},
};
use holdall_io::clock::Clock;
use std::{
    env,
    net::{TcpListener, TcpStream},
    process::Command,
    sync::Arc,
    time::Duration,
};

/// A master that does not answer in this time is considered absent.
const MASTER_WAIT_MAX: Duration = Duration::from_secs(30);

/// Domains up to this are safe with Linux's ephemeral ports.
const DOMAINS: u32 = 100;

/// Variables that set the meeting place of zenoh's sessions.
const ZENOH_VARIABLES: [&str; 2] = ["ZENOH_CONFIG_OVERRIDE", "ZENOH_SESSION_CONFIG_URI"];

/// The side of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Recorder,
    Publishers,
}

/// The environment of one run.
pub(super) struct World {
    environment: Vec<(String, String)>,
    /// Port where zenoh's sessions meet, unless the environment sets it.
    zenoh_port: Option<u16>,
    is_ros1: bool,
    _master: Option<Program>,
}

impl World {
    /// Makes a separate domain on this host only, unless the environment sets one; a port for zenoh; a master
    /// for ROS 1.
    pub(super) fn new(
        programs: &Programs,
        recorder: RecorderKind,
        transport: Transport,
        clock: &Arc<dyn Clock>,
    ) -> BenchResult<Self> {
        let mut world = Self {
            environment: Vec::new(),
            zenoh_port: None,
            is_ros1: recorder == RecorderKind::Rosbag,
            _master: None,
        };
        world.unless_set("ROS_DOMAIN_ID", (1 + std::process::id() % DOMAINS).to_string());
        world.unless_set("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST".to_owned());
        if transport == Transport::Zenoh && ZENOH_VARIABLES.iter().all(|name| env::var_os(name).is_none()) {
            world.zenoh_port = Some(free_port()?);
            // Sessions then do not wait for a router.
            world.unless_set("ZENOH_ROUTER_CHECK_ATTEMPTS", "-1".to_owned());
        }
        if world.is_ros1 {
            world.start_master(programs.rosmaster(), clock)?;
        }
        Ok(world)
    }

    fn unless_set(&mut self, name: &str, value: String) {
        if env::var_os(name).is_none() {
            self.environment.push((name.to_owned(), value));
        }
    }

    fn start_master(&mut self, mut command: Command, clock: &Arc<dyn Clock>) -> BenchResult<()> {
        let port = free_port()?;
        let mut set = |name: &str, value: String| self.environment.push((name.to_owned(), value));
        set("ROS_MASTER_URI", format!("http://127.0.0.1:{port}"));
        set("ROS_IP", "127.0.0.1".to_owned());
        command.args(["--core", "-p", &port.to_string()]);
        self.prepare(&mut command, Side::Publishers);
        let master = Program::start("rosmaster", &mut command, clock)?;
        let deadline = clock.monotonic() + MASTER_WAIT_MAX;
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            if clock.monotonic() > deadline {
                return Err(BenchError::program("rosmaster", "does not answer"));
            }
            clock.sleep_until(clock.monotonic() + Duration::from_millis(20));
        }
        self._master = Some(master);
        Ok(())
    }

    /// Sets the environment of a program. The recorder listens where the publishers' zenoh calls, so that no
    /// router is needed.
    pub(super) fn prepare(&self, command: &mut Command, side: Side) {
        prepare(command, &self.environment, self.is_ros1);
        if let Some(port) = self.zenoh_port {
            let here = format!("[\"tcp/127.0.0.1:{port}\"]");
            let meet = match side {
                Side::Recorder => format!("listen/endpoints={here};connect/endpoints=[]"),
                Side::Publishers => format!("listen/endpoints=[];connect/endpoints={here}"),
            };
            command.env(ZENOH_VARIABLES[0], meet);
        }
    }
}

/// A free port. Another program may take it before its owner does; the owner then reports that.
fn free_port() -> BenchResult<u16> {
    TcpListener::bind(("127.0.0.1", 0))
        .and_then(|listener| listener.local_addr())
        .map(|address| address.port())
        .map_err(BenchError::io("listen on", "127.0.0.1"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn publishers_call_zenoh_where_the_recorder_listens() {
        let world = World {
            environment: vec![("ROS_DOMAIN_ID".to_owned(), "7".to_owned())],
            zenoh_port: Some(7),
            is_ros1: false,
            _master: None,
        };
        let of = |side| {
            let mut command = Command::new("x");
            world.prepare(&mut command, side);
            let set = |wanted: &str| {
                let (_, value) = command.get_envs().find(|(name, _)| *name == wanted)?;
                Some(value?.to_string_lossy().into_owned())
            };
            assert_eq!(set("ROS_DOMAIN_ID").as_deref(), Some("7"));
            set("ZENOH_CONFIG_OVERRIDE").unwrap()
        };
        assert_eq!(
            of(Side::Recorder),
            "listen/endpoints=[\"tcp/127.0.0.1:7\"];connect/endpoints=[]"
        );
        assert_eq!(
            of(Side::Publishers),
            "listen/endpoints=[];connect/endpoints=[\"tcp/127.0.0.1:7\"]"
        );
    }
}
