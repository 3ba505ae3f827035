//! Tests of whole recordings over the memory transport: a world with publishers, a disk, and a bag that an independent reader opens.

mod alarms;
mod audits;
mod bags;
mod commands;
mod complete;
mod compression;
mod control;
mod disks;
mod faults;
mod holes;
mod latched;
mod limits;
mod live_bags;
mod lost_files;
mod moments;
mod panics;
mod promoting;
mod publishers;
pub(super) mod rescue;
mod ring;
mod services;
mod simulated;
mod topics;
mod transports;
mod triggers;
mod types;
mod waiting;

use super::{
    Platform, RecordControl, Recorder,
    options::{DiscoveryOptions, RecordOptions},
    status::RecordReport,
};
use crate::{RecordError, cache::CacheOptions, receive::session::INITIAL_DISCOVERY};
use holdall_bag::writer::{BagFolder, OpenDisk, os_disk};
use holdall_io::{
    block::BlockPoolOptions,
    clock::{Clock, SystemClock},
    os::DiskMode,
};
use holdall_model::{
    loss::{durability::DEFAULT_LOSS_WINDOW, ledger::Ledger},
    metadata::BagMetadata,
    qos::{Durability, QosProfile, Reliability},
    selection::Selection,
    time::Timestamp,
    topic::NodeName,
};
use holdall_transport::{
    PublishRequest, Publisher, Transport,
    memory::{MemoryNetwork, MemoryPublisher, MemoryTransport},
};
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

pub const STRING: &str = "std_msgs/msg/String";
pub const PATIENCE: Duration = Duration::from_secs(20);

pub const RELIABLE: QosProfile = QosProfile::ROS_DEFAULT;
pub const SENSOR: QosProfile = QosProfile {
    reliability: Reliability::BestEffort,
    ..RELIABLE
};
pub const LATCHED: QosProfile = QosProfile {
    durability: Durability::TransientLocal,
    depth: 3,
    ..RELIABLE
};

/// The system's clock, which a test can set forward.
#[derive(Default)]
pub struct TestClock(AtomicU64);

impl TestClock {
    pub fn advance(&self, by: Duration) {
        self.0.fetch_add(by.as_nanos() as u64, Ordering::SeqCst);
    }

    fn ahead(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::SeqCst))
    }
}

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        SystemClock.now().saturating_add(self.ahead())
    }
    fn monotonic(&self) -> Duration {
        SystemClock.monotonic() + self.ahead()
    }
    fn sleep_until(&self, deadline: Duration) {
        SystemClock.sleep_until(deadline.saturating_sub(self.ahead()));
    }
}

pub struct World {
    pub network: MemoryNetwork,
    pub clock: Arc<TestClock>,
    /// Removed with the world.
    _dir: tempfile::TempDir,
    pub options: RecordOptions,
    pub disk: Option<OpenDisk>,
    pub folder: Option<Box<dyn BagFolder>>,
    /// See [`Platform::available_memory`].
    pub available_memory: fn() -> Option<u64>,
}

impl World {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let options = RecordOptions {
            selection: Selection {
                all_topics: true,
                ..Selection::default()
            },
            output: dir.path().join("bag"),
            discovery: DiscoveryOptions {
                polling_interval: Duration::from_millis(1),
                ..DiscoveryOptions::default()
            },
            ..RecordOptions::default()
        };
        let clock = Arc::new(TestClock::default());
        Self {
            network: MemoryNetwork::new(),
            clock,
            _dir: dir,
            options,
            disk: None,
            folder: None,
            available_memory: || None,
        }
    }

    pub fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.clock) as Arc<dyn Clock>
    }

    pub fn publisher(&self, topic: &str, qos: QosProfile) -> MemoryPublisher {
        self.publisher_of(topic, STRING, None, qos)
    }

    pub fn publisher_of(
        &self,
        topic: &str,
        type_name: &str,
        type_hash: Option<&str>,
        qos: QosProfile,
    ) -> MemoryPublisher {
        let request = PublishRequest {
            topic: topic.to_owned(),
            type_name: type_name.to_owned(),
            type_hash: type_hash.map(str::to_owned),
            qos,
            ..PublishRequest::default()
        };
        self.network.publisher(&node("talker"), &request, &self.clock())
    }

    pub fn try_record(&mut self) -> Result<Recording, RecordError> {
        let transport = MemoryTransport::new(&self.network, node("recorder"), self.clock());
        self.record_over(vec![Box::new(transport)])
    }

    /// Records the messages of these transports.
    pub fn record_over(&mut self, transports: Vec<Box<dyn Transport>>) -> Result<Recording, RecordError> {
        let blocks = BlockPoolOptions {
            block_bytes: 1 << 20,
            block_count: 6,
            huge_pages: false,
        };
        let disk = self
            .disk
            .take()
            .unwrap_or_else(|| os_disk(DiskMode::Buffered, blocks));
        let platform = Platform {
            clock: self.clock(),
            open_disk: disk,
            folder: self.folder.take().unwrap_or_else(|| Platform::default().folder),
            available_memory: self.available_memory,
            ..Platform::default()
        };
        let recorder = Recorder::start_on(self.options.clone(), transports, platform)?;
        let control = recorder.control();
        Ok(Recording {
            recorder,
            control,
            output: self.options.output.clone(),
        })
    }

    pub fn record(&mut self) -> Recording {
        self.try_record().unwrap_or_else(|error| panic!("{error}"))
    }

    /// Lets publishers count as new from now on.
    pub fn end_initial_discovery(&self) {
        self.clock.advance(INITIAL_DISCOVERY);
    }
}

pub fn node(name: &str) -> NodeName {
    NodeName {
        namespace: "/".to_owned(),
        name: name.to_owned(),
    }
}

/// A running recording.
pub struct Recording {
    pub recorder: Recorder,
    pub control: RecordControl,
    pub output: PathBuf,
}

impl Recording {
    /// Waits until a condition holds, while the recording continues.
    pub fn wait_until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        let deadline = SystemClock.monotonic() + PATIENCE;
        while !holds(self) {
            assert!(SystemClock.monotonic() < deadline, "waited in vain until {what}");
            self.recorder.wait_finished(Duration::from_millis(1));
        }
    }

    pub fn wait_matched(&self, publisher: &MemoryPublisher) {
        self.wait_until("the publisher is matched", |_| {
            publisher.matched_subscriptions() > 0
        });
    }

    pub fn wait_recorded(&self, count: u64) {
        self.wait_until("all messages are recorded", |recording| {
            recording.recorder.status().recorded >= count
        });
    }

    pub fn stop(self) -> Recorded {
        let report = self.recorder.stop();
        assert_eq!(report.audit_faults, Vec::<String>::new());
        Recorded {
            report,
            output: self.output,
        }
    }
}

/// A recording that has ended.
pub struct Recorded {
    pub report: RecordReport,
    pub output: PathBuf,
}

/// A message as the independent reader sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    pub topic: String,
    pub payload: Vec<u8>,
    pub log_time: u64,
    pub publish_time: u64,
    pub sequence: u32,
}

impl Recorded {
    pub fn metadata(&self) -> BagMetadata {
        BagMetadata::from_yaml(&fs::read_to_string(self.output.join("metadata.yaml")).unwrap()).unwrap()
    }

    /// All messages, file by file, in the order of each file.
    pub fn messages(&self) -> Vec<Read> {
        self.report
            .files
            .iter()
            .flat_map(|file| read_messages(file))
            .collect()
    }

    pub fn payloads(&self, topic: &str) -> Vec<Vec<u8>> {
        self.messages()
            .into_iter()
            .filter(|read| read.topic == topic)
            .map(|read| read.payload)
            .collect()
    }

    pub fn lost(&self) -> u64 {
        self.report.status.lost
    }

    pub fn ledger(&self) -> Ledger {
        let bytes = fs::read(self.report.files.last().unwrap()).unwrap();
        let summary = mcap::Summary::read(&bytes).unwrap().unwrap();
        let index = summary
            .metadata_indexes
            .iter()
            .find(|index| index.name == "holdall:loss")
            .unwrap();
        let record = mcap::read::metadata(&bytes, index).unwrap();
        Ledger::from_json(&record.metadata["ledger"]).unwrap()
    }
}

pub fn read_messages(file: &Path) -> Vec<Read> {
    let bytes = fs::read(file).unwrap();
    let read = |message: mcap::Message<'_>| Read {
        topic: message.channel.topic.clone(),
        payload: message.data.to_vec(),
        log_time: message.log_time,
        publish_time: message.publish_time,
        sequence: message.sequence,
    };
    let stream = mcap::MessageStream::new(&bytes).unwrap();
    stream
        .map(|message| read(message.unwrap_or_else(|error| panic!("{}: {error}", file.display()))))
        .collect()
}

/// A payload that differs from all others, of some length.
pub fn payload(number: usize, len: usize) -> Vec<u8> {
    let mut bytes = (number as u64).to_le_bytes().to_vec();
    bytes.resize(len.max(8), number as u8);
    bytes
}
