//! Shared parts of the DDS tests: transports on separate domains, real rclpy nodes.
#![allow(dead_code, reason = "each test uses a part of it")]

use holdall_io::clock::SystemClock;
use holdall_model::topic::NodeName;
use holdall_transport::dds::{DdsEnvironment, DdsOptions, DdsTransport};
use std::{
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

/// A ROS domain for one test: different between the tests of a process, and mostly between processes.
pub fn domain() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    (std::process::id().wrapping_mul(13) + NEXT.fetch_add(1, Ordering::Relaxed)) % 100 + 1
}

/// A transport that sees this machine only.
pub fn transport(domain: u32, node: &str) -> DdsTransport {
    let environment = DdsEnvironment {
        automatic_discovery_range: Some("LOCALHOST".to_owned()),
        cyclonedds_uri: std::env::var("CYCLONEDDS_URI").ok(),
        ..DdsEnvironment::default()
    };
    let options = DdsOptions {
        domain_id: Some(domain),
        environment,
        ..DdsOptions::for_node(&NodeName::in_root(node))
    };
    DdsTransport::new(&options, Arc::new(SystemClock)).unwrap()
}

/// A real rclpy node that follows a plan (`tests/nodes`); ended on drop.
pub struct Node {
    child: Child,
    output: BufReader<ChildStdout>,
}

/// The interpreter of the virtual environment with rclpy: `HOLDALL_VENV`, or `.venv` in the repository.
pub fn python() -> PathBuf {
    let venv = std::env::var_os("HOLDALL_VENV").map_or_else(|| repository().join(".venv"), PathBuf::from);
    let python = venv.join("bin/python");
    assert!(
        python.exists(),
        "{} does not exist: run `scripts/setup.sh nodes`, or set HOLDALL_VENV",
        python.display()
    );
    python
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

impl Node {
    pub fn start(python: &Path, script: &str, domain: u32, plan: &serde_json::Value) -> Self {
        let mut child = Command::new(python)
            .arg(repository().join("tests/nodes").join(script))
            .arg("-")
            .env("ROS_DOMAIN_ID", domain.to_string())
            .env("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
            .env_remove("ROS_LOCALHOST_ONLY")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        child
            .stdin
            .take()
            .unwrap()
            .write_all(plan.to_string().as_bytes())
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, output }
    }

    /// Reads lines until the event; the node's own deadline is the test's.
    pub fn wait_for(&mut self, event: &str) -> serde_json::Value {
        let mut line = String::new();
        while self.output.read_line(&mut line).unwrap() > 0 {
            if let Ok(value) = serde_json::from_str::<serde_json::Value>(&line)
                && value["event"] == event
            {
                return value;
            }
            line.clear();
        }
        panic!("the node ended without {event}");
    }

    pub fn interrupt(&self) {
        let pid = self.child.id().to_string();
        assert!(
            Command::new("kill")
                .args(["-INT", &pid])
                .status()
                .unwrap()
                .success()
        );
    }

    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
