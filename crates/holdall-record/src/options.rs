//! The options of a recording: every choice a user can make, checked and with its default.

use super::write::DrainOptions;
pub use super::{
    cache::{CacheOptions, CachePolicy, TopicPriority},
    limits::RecordingLimits,
    trigger::{Trigger, TriggerOptions},
    write::{OnDiskFull, RING_FREE_SPACE_BYTES, drain::PromoteOptions, latched::RepeatOptions},
};
use holdall_bag::writer::{CompressionOptions, SplitOptions, UploadedFiles};
pub use holdall_model::contract::Contract;
use holdall_model::{qos::QosProfile, recoding::live::LiveRecoding};
use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};

/// Everything about one recording.
///
/// ```
/// use holdall::{RecordOptions, Selection};
/// use std::time::Duration;
///
/// let mut options = RecordOptions::new("lab", Selection::of_topics(["/odom", "/tf"]));
/// options.safety.max_loss_window = Some(Duration::from_millis(500));
/// assert_eq!(options.files.storage_id, "mcap");
/// ```
#[derive(Clone, Debug)]
pub struct RecordOptions {
    /// Which topics.
    pub selection: holdall_model::selection::Selection,
    /// Most messages a second to record of a topic, by full name (`--topic-throttle-frequency`); the others are left
    /// out on request.
    pub throttles: BTreeMap<String, f64>,
    /// The bag directory to create (`-o`); must not exist.
    pub output: PathBuf,
    /// How topics are found and subscribed to.
    pub discovery: DiscoveryOptions,
    /// How the bag's files are written.
    pub files: FileOptions,
    /// What survives, and what is done when the disk is full.
    pub safety: SafetyOptions,
    /// How messages wait.
    pub cache: CacheOptions,
    /// Topics that may hold more or less of a full cache than others, by full name (`--topic-priority`).
    pub priorities: BTreeMap<String, TopicPriority>,
    /// When it ends by itself.
    pub limits: RecordingLimits,
    /// Events around which it records; `None` records all. A rescue is not possible then.
    pub triggers: Option<TriggerOptions>,
    /// Events of which a part of the ring is copied into a bag (`--promote-on`); [`RecordControl::take_ring_windows`](super::RecordControl::take_ring_windows)
    /// has them.
    pub promote: Option<PromoteOptions>,
    /// Topics that should not fall silent or below a rate (`--alarm`). A condition on fields is an event, and watches nothing here.
    pub alarms: Vec<Trigger>,
    /// An episode runs while this holds (`--episode-when`): an expression over fields.
    pub episode_when: Option<Trigger>,
    /// Rules that the recording is judged by while it runs (`--contract`).
    pub contract: Option<Arc<Contract>>,
    /// Begin paused (`--start-paused`).
    pub start_paused: bool,
    /// Stamp with `/clock` instead of system time (`--use-sim-time`).
    pub use_sim_time: bool,
    /// Events for other nodes, `None` for none.
    pub events: Option<super::events::EventOptions>,
}

/// How topics are found and subscribed to.
#[derive(Clone, Debug)]
pub struct DiscoveryOptions {
    /// Topics to subscribe before discovery: name and type (`--static-topics-path`).
    pub static_topics: Vec<(String, String)>,
    /// QoS to request instead of the adapted one, by topic.
    pub qos_overrides: BTreeMap<String, QosProfile>,
    /// Time between polls of the graph (`-p`).
    pub polling_interval: Duration,
    /// One poll at the start, then none (`--no-discovery`).
    pub no_discovery: bool,
    /// A message that several transports bring is recorded once (`--merge-duplicates`).
    pub merge_duplicates: bool,
    /// `share` prefixes to search for message definitions (`AMENT_PREFIX_PATH`, split).
    pub ament_prefixes: Vec<PathBuf>,
}

/// How the bag's files are written.
#[derive(Clone, Debug)]
pub struct FileOptions {
    /// Storage backend (`-s`), for example `mcap`.
    pub storage_id: String,
    /// Backend preset (`--storage-preset-profile`); `None` for the defaults.
    pub storage_preset: Option<String>,
    /// Text of the backend's configuration file (`--storage-config-file`), laid over the preset.
    pub storage_config: Option<String>,
    /// How topics are compressed whose compression differs from that of the backend's settings, by full name (`--topic-compression`).
    pub topic_compression: BTreeMap<String, String>,
    /// rosbag2's own compression.
    pub compression: CompressionOptions,
    /// Topics whose messages get another form (`--video`).
    pub recoding: Option<LiveRecoding>,
    /// When to split.
    pub split: SplitOptions,
    /// Topics whose last messages each new file repeats.
    pub repeat: RepeatOptions,
    /// All messages of a topic go into one channel, as rosbag2 writes them (`--merge-publishers`); else each publisher has its own.
    pub merge_publishers: bool,
    /// Goes to `custom_data` of `metadata.yaml` (`--custom-data`).
    pub custom_data: BTreeMap<String, String>,
    /// Written to `ros_distro` of `metadata.yaml`; the environment's `ROS_DISTRO`, if it is set.
    pub ros_distro: Option<String>,
    /// `RecordControl::take_complete_files` returns each file once it is complete (`--on-file-closed`).
    pub lists_complete_files: bool,
    /// The files that an upload has sent: with [`OnDiskFull::Ring`] no others are removed (`--upload`).
    pub uploaded: Option<UploadedFiles>,
}

/// What survives, and what is done when the disk is full.
#[derive(Clone, Debug)]
pub struct SafetyOptions {
    /// After a power cut at most the messages received in this span are missing (`--max-loss-window`); `None` never syncs before the end.
    pub max_loss_window: Option<Duration>,
    /// Policy for a nearly full disk (`--on-disk-full`).
    pub on_disk_full: OnDiskFull,
    /// When less than this is free the disk counts as full (`--min-free-space`). `None`: when a write fails, or, with
    /// [`OnDiskFull::Ring`], at [`RING_FREE_SPACE_BYTES`].
    pub min_free_space_bytes: Option<u64>,
    /// A directory in memory for data that must survive the death of this process until the storage has it; `None` for nowhere.
    pub rescue_directory: Option<PathBuf>,
}

impl RecordOptions {
    /// Records the topics that `selection` selects into a new bag directory; everything else has its default.
    #[must_use]
    pub fn new(output: impl Into<PathBuf>, selection: holdall_model::selection::Selection) -> Self {
        Self {
            output: output.into(),
            selection,
            ..Self::default()
        }
    }
}

impl Default for RecordOptions {
    /// Selects nothing yet, into `rosbag2` in the current directory; everything else has the default that the
    /// user gets.
    fn default() -> Self {
        Self {
            selection: holdall_model::selection::Selection::default(),
            throttles: BTreeMap::new(),
            output: PathBuf::from("rosbag2"),
            discovery: DiscoveryOptions::default(),
            files: FileOptions::default(),
            safety: SafetyOptions::default(),
            cache: CacheOptions::default(),
            priorities: BTreeMap::new(),
            limits: RecordingLimits::default(),
            triggers: None,
            promote: None,
            alarms: Vec::new(),
            episode_when: None,
            contract: None,
            start_paused: false,
            use_sim_time: false,
            events: None,
        }
    }
}

impl Default for DiscoveryOptions {
    fn default() -> Self {
        Self {
            static_topics: Vec::new(),
            qos_overrides: BTreeMap::new(),
            polling_interval: Duration::from_millis(100),
            no_discovery: false,
            merge_duplicates: false,
            ament_prefixes: Vec::new(),
        }
    }
}

impl Default for FileOptions {
    fn default() -> Self {
        Self {
            storage_id: holdall_storage::DEFAULT_STORAGE_ID.to_owned(),
            storage_preset: None,
            storage_config: None,
            topic_compression: BTreeMap::new(),
            compression: CompressionOptions::default(),
            recoding: None,
            split: SplitOptions::default(),
            repeat: RepeatOptions::default(),
            merge_publishers: false,
            custom_data: BTreeMap::new(),
            ros_distro: None,
            lists_complete_files: false,
            uploaded: None,
        }
    }
}

impl Default for SafetyOptions {
    fn default() -> Self {
        Self {
            max_loss_window: Some(holdall_model::loss::durability::DEFAULT_LOSS_WINDOW),
            on_disk_full: OnDiskFull::default(),
            min_free_space_bytes: None,
            rescue_directory: None,
        }
    }
}

impl From<&RecordOptions> for DrainOptions {
    fn from(options: &RecordOptions) -> Self {
        Self {
            max_loss_window: options.safety.max_loss_window,
            on_disk_full: options.safety.on_disk_full,
            min_free_space_bytes: options.safety.min_free_space_bytes,
            snapshot: options.cache.snapshot,
            merge_publishers: options.files.merge_publishers,
            limits: options.limits,
            lists_complete_files: options.files.lists_complete_files,
        }
    }
}
