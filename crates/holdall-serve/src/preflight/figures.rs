//! Measurements of a trial: the figures that a forecast is made of.

use holdall_model::unheard::NotHeard;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Everything that was measured; a forecast can be made again from its JSON.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Measured {
    /// Seconds that the figures are of.
    pub span_s: f64,
    /// All topics that were recorded in the trial, by name.
    pub topics: Vec<TopicFigures>,
    /// All topics together.
    pub total: TotalFigures,
    /// The recorder itself.
    pub recorder: RecorderFigures,
    /// The disk of the bag.
    pub disk: DiskFigures,
    /// The machine.
    pub machine: MachineFigures,
    /// Live nodes and publishers that cannot be received.
    pub not_heard: Vec<NotHeard>,
    /// Selected services whose calls cannot be recorded.
    pub services_without_introspection: Vec<String>,
    /// Topics whose messages the bag alone could not decode, with their types.
    pub undefined_topics: Vec<(String, String)>,
    /// Warnings of transports, for example a receive buffer that could not be raised.
    pub warnings: Vec<String>,
}

/// Figures of one topic.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TopicFigures {
    /// Full ROS name.
    pub name: String,
    /// ROS type.
    #[serde(rename = "type")]
    pub type_name: String,
    /// Publishers.
    pub publishers: usize,
    /// Messages.
    pub messages: u64,
    /// Payload bytes.
    pub bytes: u64,
    /// Messages that were lost although the recorder had nothing else to do.
    pub lost: u64,
    /// Losses cannot be known: its publishers send no sequence numbers.
    pub loss_unknown: bool,
    /// Messages a second.
    pub hz: f64,
    /// Payload bytes a second.
    pub bytes_per_s: f64,
    /// Largest message in bytes.
    pub bytes_max: u64,
    /// Standard deviation of the seconds between two messages.
    pub period_deviation_s: f64,
    /// Most seconds between two messages.
    pub period_max_s: f64,
    /// Most bytes that came within [`BURST_MS`].
    pub burst_bytes: u64,
    /// Whether all its publishers send lost messages again.
    pub is_reliable: bool,
    /// Messages that its publishers keep for that; the fewest, `None` if that is all or not announced (Fast DDS).
    pub depth: Option<u64>,
}

/// Milliseconds of a burst.
pub const BURST_MS: u64 = 10;

/// All topics together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TotalFigures {
    /// Messages a second.
    pub hz: f64,
    /// Payload bytes a second.
    pub bytes_per_s: f64,
    /// Most bytes that came within [`BURST_MS`].
    pub burst_bytes: u64,
    /// Messages lost before they arrived.
    pub lost_in_transit: u64,
    /// Messages that arrived and were not stored.
    pub lost_after_arrival: u64,
}

/// Use of the recorder, in shares of one processor.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RecorderFigures {
    /// All its threads together.
    pub processors: f64,
    /// The part of the time for which that of its threads that waited most for a processor ran, or could have run.
    pub ready: f64,
    /// The busiest thread that receives.
    pub receiving_thread: f64,
    /// How often a second that thread waited.
    pub receiving_waits_per_s: f64,
    /// The thread that writes.
    pub writing_thread: f64,
    /// How often a second that thread waited.
    pub writing_waits_per_s: f64,
    /// Bytes a second that were written to the disk.
    pub written_bytes_per_s: f64,
    /// Limit of the cache.
    pub cache_bytes_max: u64,
    /// The most that it held.
    pub cache_bytes_peak: u64,
}

/// The disk where the bag will be.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DiskFigures {
    /// The folder.
    pub folder: PathBuf,
    /// Free bytes.
    pub available_bytes: u64,
    /// Bytes a second that the disk can write in a row; every measurement in order. Empty if none was made.
    pub write_bytes_per_s: Vec<f64>,
    /// Bytes of each measurement.
    pub probe_bytes: u64,
    /// Why it writes through the page cache, if it does.
    pub direct_refused: Option<String>,
}

/// The machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct MachineFigures {
    /// Processors of the machine.
    pub processors: usize,
    /// Those that this program may use.
    pub own_processors: usize,
    /// How many of all processors were busy, with everything that runs; work of low priority, which makes room, is left out.
    pub busy_processors: f64,
    /// How often a second a processor went from one thread to another.
    pub switches_per_s: f64,
    /// Seconds of a processor that one of these took, measured in the trial.
    pub switch_cost_s: f64,
    /// Busy with work of low priority.
    pub yielding_processors: f64,
    /// Governors of the processors' speed; empty if it is not governed.
    pub governors: Vec<String>,
    /// Memory that programs can still have, before the trial.
    pub available_memory_bytes: u64,
    /// Largest receive buffer that a program can have.
    pub receive_buffer_bytes_max: Option<u64>,
    /// UDP packets that the kernel dropped during the trial because a receive buffer was full, of all programs.
    pub dropped_packets: u64,
    /// Latest wake-up of a sleeping thread in seconds.
    pub wake_late_max_s: f64,
    /// Whether a program keeps the clock; `None` if unknown.
    pub clock_is_synchronised: Option<bool>,
}
