//! How an output is written.

use holdall_bag::writer::{CompressionOptions, SplitOptions};
use holdall_io::sealed::Seal;
use holdall_model::time::Timestamp;
use holdall_storage::StorageOptions;
use std::{collections::BTreeMap, path::PathBuf, time::Duration};

/// Where an output is split, in addition to size and span.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SplitAt {
    /// At this many bytes.
    pub bytes_max: Option<u64>,
    /// After this span of log time.
    pub duration_max: Option<Duration>,
    /// After this many messages.
    pub count_max: Option<u64>,
    /// Before the first message logged at or after each of these times.
    pub times: Vec<Timestamp>,
}

impl SplitAt {
    /// The limits that the bag writer applies itself.
    pub(super) fn by_writer(&self) -> SplitOptions {
        SplitOptions {
            bytes_max: self.bytes_max,
            duration_max: self.duration_max,
            ..SplitOptions::default()
        }
    }

    /// True if the output is one file.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

/// The beginning of an output file that does not begin with the first message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LatchedMode {
    /// The latched messages that were valid then, marked as repeated.
    Repeat,
    /// Its own first message, as in rosbag2.
    #[default]
    Leave,
}

/// How an output is written.
#[derive(Clone, Debug, Default)]
pub struct OutputOptions {
    /// The bag directory; must not exist.
    pub directory: PathBuf,
    /// The storage; `None` for the inputs' storage.
    pub storage_id: Option<String>,
    /// The storage's settings.
    pub storage_options: StorageOptions,
    /// Settings for storage files were given, so that no chunk is copied unchanged.
    pub is_rewritten: bool,
    /// When the output is split.
    pub split: SplitAt,
    /// Further times at which the output is split.
    pub split_moments: Vec<super::Moment>,
    /// The output is split where episodes start and end, too.
    pub splits_episodes: bool,
    /// rosbag2's own compression, of files or of messages.
    pub compression: CompressionOptions,
    /// New values for fields of messages.
    pub changes: Vec<super::FieldChange>,
    /// Definitions that the messages get instead of their own.
    pub migration: Option<super::migrate::NewDefinitions>,
    /// New names of coordinate frames by old: in each `frame_id` and `child_frame_id` of all messages.
    pub frames: BTreeMap<String, String>,
    /// New names of topics by old; those that services and actions derive are renamed with them.
    pub renames: BTreeMap<String, String>,
    /// How far the messages' stamps move; those within messages stay.
    pub shift: super::Shift,
    /// The beginning of a later file, or of one that begins later than the inputs.
    pub latched: LatchedMode,
    /// Additional entries for `custom_data`.
    pub custom_data: BTreeMap<String, String>,
    /// Leaves out storage files that cannot be read at all, and lists them; without it they are an error.
    pub leaves_out_files: bool,
    /// Encryption of all its files; `None` for a bag that everybody can read.
    pub seal: Option<Seal>,
}
