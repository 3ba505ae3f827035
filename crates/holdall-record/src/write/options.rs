//! Options of the drain other than those of the writer.

use crate::limits::RecordingLimits;
pub use holdall_model::free_space::{OnDiskFull, RING_FREE_SPACE_BYTES};
use std::time::Duration;

/// Options of the drain other than those of the writer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DrainOptions {
    /// After a power cut at most the messages received in this span are missing.
    pub max_loss_window: Option<Duration>,
    /// Policy when less than `min_free_space_bytes` is left.
    pub on_disk_full: OnDiskFull,
    /// See [`crate::options::SafetyOptions::min_free_space_bytes`].
    pub min_free_space_bytes: Option<u64>,
    /// The cache is a ring: messages in it may be arbitrarily old, and have no guarantee until they are requested.
    pub snapshot: bool,
    /// See [`crate::options::FileOptions::merge_publishers`].
    pub merge_publishers: bool,
    /// See [`crate::options::RecordOptions::limits`].
    pub limits: RecordingLimits,
    /// See [`crate::options::FileOptions::lists_complete_files`].
    pub lists_complete_files: bool,
}
