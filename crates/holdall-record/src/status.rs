//! Reports of a recording while it runs and when it has ended.

pub use super::{
    clock_watch::ClockJumps,
    limits::ReachedLimit,
    trigger::{CopyFault, EventCopies, TriggerCount, TriggerStatus},
};
pub use holdall_bag::writer::UndefinedTopic;
pub use holdall_io::disk::WritePath;
pub use holdall_model::{
    alarm::{AlarmStatus, AlarmWatchStatus},
    contract::ContractStatus,
    loss::DurabilityStatus,
};
use holdall_model::{
    loss::{LossStage, UnknownEnds},
    network::Network,
    unheard::NotHeard,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    time::Duration,
};

/// How much of what waits in memory survives the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Surviving {
    /// Ordinary memory ends with it.
    #[default]
    Nothing,
    /// The shared memory became full, or a transport's memory is not shared: so far, also where that is written by now.
    Part,
    /// All of it.
    All,
}

/// Counters of one topic.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TopicStatus {
    /// Full ROS name.
    pub name: String,
    /// ROS type.
    pub type_name: String,
    /// Publishers seen so far.
    pub publishers: usize,
    /// Messages received from the transport.
    pub received: u64,
    /// Messages a second now.
    pub rate_hz: f64,
    /// Time since the last message, within half a second; `None` before the first.
    pub age: Option<Duration>,
    /// Messages handed to the storage file.
    pub recorded: u64,
    /// Those of `recorded` that are reported durable: the first ones, in the order of the bag. A power cut leaves them in it.
    pub durable: u64,
    /// Payload bytes recorded.
    pub recorded_bytes: u64,
    /// Messages lost, by stage; stages without a loss are absent.
    pub lost: BTreeMap<LossStage, u64>,
    /// Messages received and left out on request, in a pause for example; no loss.
    pub left_out: u64,
    /// Those of `recorded` that were in files of a ring that are removed.
    pub expired: u64,
    /// True if losses cannot be known because the transport gives no sequence numbers.
    pub loss_unknown: bool,
    /// Publishers that may have sent more after the last message that arrived; until the recording is closed, only those that went
    /// silent.
    pub ends: UnknownEnds,
}

impl TopicStatus {
    /// Messages that were received and will never be in the bag: dropped in transit, or left out on request.
    pub fn dropped(&self) -> u64 {
        let after_arrival = self.lost.iter().filter(|(stage, _)| stage.is_after_arrival());
        after_arrival.map(|(_, count)| count).sum::<u64>() + self.left_out
    }
}

/// A snapshot of a running recording.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RecordStatus {
    /// Since the start.
    pub elapsed: Duration,
    /// Arriving messages are not stored.
    pub paused: bool,
    /// Messages recorded.
    pub recorded: u64,
    /// Payload bytes recorded.
    pub recorded_bytes: u64,
    /// Bytes that the disk has taken; 0 where the storage's engine writes.
    pub written_bytes: u64,
    /// Bytes held by the cache now.
    pub cache_bytes: usize,
    /// Its present limit.
    pub cache_bytes_max: usize,
    /// How much of what it holds survives this process, for `holdall repair`.
    pub cache_survives: Surviving,
    /// Messages that are missing, all topics and stages but `policy`.
    pub lost: u64,
    /// Free space where the bag is, in bytes.
    pub disk_available_bytes: Option<u64>,
    /// When the disk has no more space at the present rate; `None` while that is not known, or where the oldest files make room.
    pub disk_full_in: Option<Duration>,
    /// The way that files take to the disk.
    pub write_path: WritePath,
    /// The file being written.
    pub current_file: PathBuf,
    /// How much is durable, and how well the loss window was kept.
    pub durability: DurabilityStatus,
    /// Why the recording should be ended, if it should: its owner must stop it (less space is free than the
    /// user wants). One sentence.
    pub must_end: Option<String>,
    /// Selected services without introspection: their calls are not in the bag.
    pub unheard_services: BTreeSet<String>,
    /// Live nodes and publishers that could not be received.
    pub not_heard: BTreeSet<NotHeard>,
    /// The networks of this computer, and whether they are used; empty over transports that do not choose them.
    pub networks: Vec<Network>,
    /// `None` unless the recording waits for events, or copies what is around them.
    pub triggered: Option<TriggerStatus>,
    /// States that a machine should hear of.
    pub alarms: AlarmStatus,
    /// What the contract says until now, or at the end; `None` without one.
    pub contract: Option<ContractStatus>,
    /// Where the clock that stamps messages jumped.
    pub clock_jumps: ClockJumps,
    /// Simulated time stamps messages, but no message came on `/clock`: everything is left out.
    pub waits_for_clock: bool,
    /// All topics in the order of subscription.
    pub topics: Vec<TopicStatus>,
}

impl RecordStatus {
    /// Publishers of all topics whose last messages are unknown.
    pub fn unknown_ends(&self) -> UnknownEnds {
        UnknownEnds::of_all(self.topics.iter().map(|topic| topic.ends))
    }

    /// Messages received and left out on request, all topics.
    pub fn left_out(&self) -> u64 {
        holdall_model::loss::total(self.topics.iter().map(|topic| &topic.left_out))
    }

    /// Messages that expired in a ring, all topics.
    pub fn expired(&self) -> u64 {
        holdall_model::loss::total(self.topics.iter().map(|topic| &topic.expired))
    }

    /// Messages lost after their publishers were matched: these decide the exit code.
    pub fn shortfall(&self) -> u64 {
        let counts = self.topics.iter().flat_map(|topic| &topic.lost);
        let lost = counts.filter(|(stage, _)| stage.is_shortfall());
        holdall_model::loss::total(lost.map(|(_, count)| count))
    }
}

/// The report of an ended recording.
///
/// ```
/// /// What a program does after [`Recorder::stop`](holdall::Recorder::stop).
/// fn summary(report: &holdall::RecordReport) -> String {
///     match &report.failure {
///         Some(reason) => format!("ended early: {reason}"),
///         None if report.has_loss() => format!("{} messages lost", report.status.lost),
///         None => format!("{} messages in {}", report.status.recorded, report.bag.display()),
///     }
/// }
/// # assert_eq!(summary(&holdall::RecordReport::default()), "0 messages in ");
/// ```
#[derive(Clone, Debug, Default)]
pub struct RecordReport {
    /// The final counters.
    pub status: RecordStatus,
    /// The bag directory.
    pub bag: PathBuf,
    /// Storage files, in order.
    pub files: Vec<PathBuf>,
    /// Why the recording ended early, when it did: one sentence for the user.
    pub failure: Option<String>,
    /// The limit that has ended it, when one did; no failure.
    pub ended_by: Option<ReachedLimit>,
    /// Accounts that do not add up, one sentence each: messages known to be sent that are neither recorded nor counted as lost.
    pub audit_faults: Vec<String>,
    /// Topics whose messages cannot be decoded by the bag alone: no node sent a definition of their type, and none was found here.
    pub undefined: Vec<UndefinedTopic>,
}

impl RecordReport {
    /// True if the recording lost a message that it should have had, or may have lost some: a publisher that was received reliably went
    /// silent. Messages sent before their publisher
    /// was matched (`head`: almost every node that starts later sends some on `/parameter_events`) are
    /// reported, but do not count here.
    pub fn has_loss(&self) -> bool {
        self.status.shortfall() > 0 || self.status.unknown_ends().is_failure()
    }
}
