//! What the DDS tests share: transports on domains of their own, a sink that keeps everything, real rclpy nodes.
#![allow(
    dead_code,
    clippy::print_stderr,
    reason = "each test uses a part of it; a skipped test says so"
)]

use holdall_io::clock::{Clock, SystemClock};
use holdall_model::{
    message::{Loan, MessageHeader, Payload},
    qos::{Durability, History, QosProfile, Reliability},
    topic::Gid,
};
use holdall_transport::{
    EndpointInfo, GraphEvent, PublishRequest, Publisher, Sink, SubscribeRequest, Subscription, Transport,
    dds::{DdsEnvironment, DdsOptions, DdsTransport},
};
use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

/// How long a test waits for something that should happen; generous, because it only matters when it does not.
pub const DEADLINE: Duration = Duration::from_secs(90);

pub const STRING: &str = "std_msgs/msg/String";
pub const IMAGE: &str = "sensor_msgs/msg/Image";

/// A ROS domain for one test: different between the tests of a process, and mostly between processes.
pub fn domain() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    (std::process::id().wrapping_mul(13) + NEXT.fetch_add(1, Ordering::Relaxed)) % 100 + 1
}

/// A topic name that other processes, should they share the domain, do not use.
pub fn topic(name: &str) -> String {
    format!("/{name}_{}", std::process::id())
}

/// A transport that sees this machine only.
pub fn transport(domain: u32, node: &str) -> DdsTransport {
    let environment = DdsEnvironment {
        automatic_discovery_range: Some("LOCALHOST".to_owned()),
        cyclonedds_uri: DdsEnvironment::from_process().cyclonedds_uri,
        ..DdsEnvironment::default()
    };
    let options = DdsOptions {
        domain_id: Some(domain),
        environment,
        ..DdsOptions::for_node(node)
    };
    DdsTransport::new(&options, Arc::new(SystemClock)).unwrap()
}

/// Looks until `done`, or until the deadline; returns whether it came true.
pub fn wait_until(mut done: impl FnMut() -> bool) -> bool {
    let clock = SystemClock;
    let end = clock.monotonic() + DEADLINE;
    while clock.monotonic() < end {
        if done() {
            return true;
        }
        std::thread::park_timeout(Duration::from_millis(2));
    }
    done()
}

pub fn reliable(depth: u64) -> QosProfile {
    QosProfile {
        history: History::KeepLast,
        depth,
        reliability: Reliability::Reliable,
        durability: Durability::Volatile,
        ..QosProfile::default()
    }
}

pub fn latched(depth: u64) -> QosProfile {
    QosProfile {
        durability: Durability::TransientLocal,
        ..reliable(depth)
    }
}

/// A message as it arrived.
pub struct Kept {
    pub header: MessageHeader,
    pub bytes: Vec<u8>,
    pub slices: usize,
    pub loan: Option<Box<dyn Loan>>,
}

/// Keeps everything; loans are held until the sink goes.
#[derive(Default)]
pub struct Keeper {
    pub kept: Mutex<Vec<Kept>>,
}

impl Keeper {
    pub fn len(&self) -> usize {
        self.kept.lock().unwrap().len()
    }

    /// Sequence numbers of each publisher in the order of arrival.
    pub fn sequences(&self) -> BTreeMap<Gid, Vec<u64>> {
        let mut sequences = BTreeMap::<_, Vec<u64>>::new();
        for kept in self.kept.lock().unwrap().iter() {
            let (gid, sequence) = kept
                .header
                .publisher
                .zip(kept.header.sequence)
                .expect("DDS tells both");
            sequences.entry(gid).or_default().push(sequence);
        }
        sequences
    }

    pub fn payloads(&self) -> Vec<Vec<u8>> {
        self.kept
            .lock()
            .unwrap()
            .iter()
            .map(|kept| kept.bytes.clone())
            .collect()
    }
}

impl Sink for Keeper {
    fn offer(&self, header: MessageHeader, payload: Payload<'_>) {
        let mut kept = Kept {
            header,
            bytes: Vec::new(),
            slices: 0,
            loan: None,
        };
        match payload {
            Payload::Borrowed(bytes) => kept.bytes.extend_from_slice(bytes),
            Payload::Loaned(loan) => {
                loan.for_each_slice(&mut |slice| {
                    kept.bytes.extend_from_slice(slice);
                    kept.slices += 1;
                });
                assert_eq!(kept.bytes.len(), loan.len());
                kept.loan = Some(loan);
            }
        }
        self.kept.lock().unwrap().push(kept);
    }
}

/// Waits until `count` publishers of the topic are known, and returns them.
pub fn discover(transport: &mut DdsTransport, topic: &str, count: usize) -> Vec<EndpointInfo> {
    let mut found = BTreeMap::new();
    wait_until(|| {
        follow(transport, topic, &mut found);
        found.len() >= count
    });
    assert_eq!(found.len(), count, "publishers of {topic}");
    found.into_values().collect()
}

/// Applies what changed in the graph to the publishers of one topic.
pub fn follow(transport: &mut DdsTransport, topic: &str, found: &mut BTreeMap<Gid, EndpointInfo>) {
    let mut events = Vec::new();
    transport.poll_graph(&mut events).unwrap();
    for event in events {
        match event {
            GraphEvent::Publisher(info) if info.topic == topic => {
                found.insert(info.gid, info);
            }
            GraphEvent::PublisherGone(gid) => {
                found.remove(&gid);
            }
            _ => {}
        }
    }
}

pub fn subscribe(
    transport: &mut DdsTransport,
    topic: &str,
    type_name: &str,
    qos: QosProfile,
) -> (Arc<Keeper>, Box<dyn Subscription>) {
    let keeper = Arc::new(Keeper::default());
    let request = SubscribeRequest {
        topic: topic.to_owned(),
        type_name: type_name.to_owned(),
        qos,
    };
    let subscription = transport
        .subscribe(&request, Arc::clone(&keeper) as Arc<dyn Sink>)
        .unwrap();
    (keeper, subscription)
}

pub fn publish(
    transport: &mut DdsTransport,
    topic: &str,
    type_name: &str,
    qos: QosProfile,
) -> Box<dyn Publisher> {
    let request = PublishRequest {
        topic: topic.to_owned(),
        type_name: type_name.to_owned(),
        type_hash: Some(format!("RIHS01_{}", "ab".repeat(32))),
        qos,
    };
    transport.publish(&request).unwrap()
}

/// A `std_msgs/msg/String` as CDR.
pub fn string(text: &str) -> Vec<u8> {
    let mut cdr = vec![0, 1, 0, 0];
    cdr.extend_from_slice(&u32::try_from(text.len() + 1).unwrap().to_le_bytes());
    cdr.extend_from_slice(text.as_bytes());
    cdr.push(0);
    cdr
}

/// A real rclpy node that follows a plan (`tests/nodes`); ended when it goes.
pub struct Node {
    child: Child,
    output: BufReader<ChildStdout>,
}

/// The interpreter of the virtual environment with rclpy: `HOLDALL_VENV`, or `.venv` in the repository.
pub fn python() -> Option<PathBuf> {
    let venv = std::env::var_os("HOLDALL_VENV").map_or_else(|| repository().join(".venv"), PathBuf::from);
    let python = venv.join("bin/python");
    if !python.exists() {
        eprintln!("skipped: no rclpy, {} does not exist", python.display());
        return None;
    }
    Some(python)
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
