//! What the drain does in addition to writing.

use crate::limits::RecordingLimits;
use std::time::Duration;

/// What to do when the disk is nearly full: less than `RecordOptions::min_free_space_bytes` is left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnDiskFull {
    /// End the recording; what was received until then is in the bag.
    #[default]
    Stop,
    /// Remove this recording's own oldest files and continue; what was in them is counted at stage `policy`.
    Ring,
}

/// What must stay free for [`OnDiskFull::Ring`] when the user sets nothing, in bytes: a second of a fast
/// disk, so that files are removed before a write fails.
pub const RING_FREE_SPACE_BYTES: u64 = 1 << 30;

/// What the drain does in addition to writing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DrainOptions {
    /// After a power cut at most what was received in this span is missing.
    pub max_loss_window: Option<Duration>,
    /// What to do when less than `min_free_space_bytes` is left.
    pub on_disk_full: OnDiskFull,
    /// See [`crate::options::RecordOptions::min_free_space_bytes`].
    pub min_free_space_bytes: Option<u64>,
    /// The cache is a ring: what comes out of it is as old as the user likes, and nothing is promised about it before it is requested.
    pub snapshot: bool,
    /// See [`crate::options::RecordOptions::merge_publishers`].
    pub merge_publishers: bool,
    /// See [`crate::options::RecordOptions::limits`].
    pub limits: RecordingLimits,
    /// See [`crate::options::RecordOptions::lists_complete_files`].
    pub lists_complete_files: bool,
}
