//! What a recording should do: every choice a user can make, checked and with its default.

use super::write::drain::DrainOptions;
use holdall_model::qos::QosProfile;
pub use holdall_storage::compression::CompressionMode;
use std::{collections::BTreeMap, num::NonZeroU32, path::PathBuf, time::Duration};

/// What to do when the cache is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CachePolicy {
    /// Refuse the new message, from any topic (rosbag2).
    DropNew,
    /// Evict the oldest messages.
    DropOld,
    /// Refuse new messages of topics that hold more than their share, so that no topic starves another.
    #[default]
    Fair,
}

/// How messages wait between the transport and the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheOptions {
    /// Total memory that the cache may hold, pinned transport memory included (`--max-cache-size`).
    pub bytes_max: usize,
    /// Longest time a message may wait before it is evicted; snapshot mode keeps this much
    /// (`--max-cache-duration`).
    pub duration_max: Option<Duration>,
    /// What to do when the cache is full.
    pub policy: CachePolicy,
    /// Keep messages until a snapshot is requested (`--snapshot-mode`).
    pub snapshot: bool,
}

/// The smallest cache by default, rosbag2's, in bytes.
const CACHE_BYTES_DEFAULT_MIN: u64 = 100 << 20;

/// The largest cache by default, in bytes: a third of a second of eight cameras (1.49 GB/s).
const CACHE_BYTES_DEFAULT_MAX: u64 = 512 << 20;

impl CacheOptions {
    /// The cache's default size in bytes: a sixteenth of the memory, within bounds. Disks stall now and then
    /// (a virtual one at 1.5 GB/s: single writes of 400 ms, 1.2 s when others sync), and what cannot wait is
    /// lost. The memory is allocated only when it is needed. A snapshot ring is what the user gets to see, so
    /// it has the size that users of rosbag2 know.
    pub fn bytes_max_by_memory(memory_bytes: Option<u64>, snapshot: bool) -> u64 {
        match memory_bytes {
            Some(bytes) if !snapshot => (bytes / 16).clamp(CACHE_BYTES_DEFAULT_MIN, CACHE_BYTES_DEFAULT_MAX),
            _ => CACHE_BYTES_DEFAULT_MIN,
        }
    }
}

impl Default for CacheOptions {
    fn default() -> Self {
        Self {
            bytes_max: 100 * 1024 * 1024,
            duration_max: None,
            policy: CachePolicy::default(),
            snapshot: false,
        }
    }
}

/// When to continue in a new storage file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SplitOptions {
    /// At this many bytes (`-b`).
    pub bytes_max: Option<u64>,
    /// After this span of log time (`-d`).
    pub duration_max: Option<Duration>,
    /// Keep only this many newest files (`--max-bag-files`).
    pub files_max: Option<u32>,
}

/// rosbag2's own compression, around the storage. MCAP's compression of chunks is a setting of the storage.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CompressionOptions {
    /// What is packed (`--compression-mode`); the format is zstd.
    pub mode: CompressionMode,
    /// Messages that may wait for a thread, by message (`--compression-queue-size`): the oldest is dropped
    /// when more come. `None` drops nothing: the drain waits, and messages wait in the cache.
    pub queue_max: Option<NonZeroU32>,
    /// Threads (`--compression-threads`), also for the compression of chunks; `None` for as many as there are processors, 0 to compress
    /// chunks in the thread that writes (packing of files and messages has a thread at least).
    pub threads: Option<usize>,
    /// How nice these threads are to others, -20 to 19 (`--compression-threads-priority`).
    pub threads_nice: i32,
}

impl CompressionOptions {
    /// How many threads that is.
    pub fn thread_count(&self) -> usize {
        let processors = || std::thread::available_parallelism().map_or(1, usize::from);
        self.threads.unwrap_or_else(processors).min(THREADS_MAX)
    }
}

/// More compression threads than this bring no gain.
const THREADS_MAX: usize = 256;

/// What to do when the disk is nearly full: less than [`RecordOptions::min_free_space_bytes`] is left.
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

/// Everything about one recording.
#[derive(Clone, Debug)]
pub struct RecordOptions {
    /// Which topics.
    pub selection: holdall_model::selection::Selection,
    /// Topics to subscribe before discovery: name and type (`--static-topics-path`).
    pub static_topics: Vec<(String, String)>,
    /// The bag directory to create (`-o`); must not exist.
    pub output: PathBuf,
    /// Storage backend (`-s`), for example `mcap`.
    pub storage_id: String,
    /// Backend preset (`--storage-preset-profile`), empty for none.
    pub storage_preset: String,
    /// Text of the backend's configuration file (`--storage-config-file`), laid over the preset.
    pub storage_config: Option<String>,
    /// QoS to request instead of the adapted one, by topic.
    pub qos_overrides: BTreeMap<String, QosProfile>,
    /// When to split.
    pub split: SplitOptions,
    /// rosbag2's own compression.
    pub compression: CompressionOptions,
    /// After a power cut at most what was received in this span is missing (`--max-loss-window`); `None` never syncs before the end.
    pub max_loss_window: Option<Duration>,
    /// What to do when the disk is nearly full (`--on-disk-full`).
    pub on_disk_full: OnDiskFull,
    /// When less than this is free the disk counts as full (`--min-free-space`). `None`: when a write fails, or, with
    /// [`OnDiskFull::Ring`], at [`RING_FREE_SPACE_BYTES`].
    pub min_free_space_bytes: Option<u64>,
    /// A directory in memory for what must survive the death of this process until the storage has it; `None` for nowhere.
    pub rescue_directory: Option<PathBuf>,
    /// How messages wait.
    pub cache: CacheOptions,
    /// Begin paused (`--start-paused`).
    pub start_paused: bool,
    /// Stamp with `/clock` instead of system time (`--use-sim-time`).
    pub use_sim_time: bool,
    /// Goes to `custom_data` of `metadata.yaml` (`--custom-data`).
    pub custom_data: BTreeMap<String, String>,
    /// Time between polls of the graph (`-p`).
    pub polling_interval: Duration,
    /// One poll at the start, then none (`--no-discovery`).
    pub no_discovery: bool,
    /// A message that several transports bring is recorded once (`--merge-duplicates`).
    pub merge_duplicates: bool,
    /// All messages of a topic go into one channel, as rosbag2 writes them (`--merge-publishers`); else each publisher has its own.
    pub merge_publishers: bool,
    /// Written to `ros_distro` of `metadata.yaml`; the environment's `ROS_DISTRO`, or empty.
    pub ros_distro: String,
    /// Events for other nodes, `None` for none.
    pub events: Option<super::events::EventOptions>,
    /// `share` prefixes to search for message definitions (`AMENT_PREFIX_PATH`, split).
    pub ament_prefixes: Vec<PathBuf>,
}

impl Default for RecordOptions {
    /// Selects nothing yet, into `rosbag2` in the current directory; everything else has the default that the
    /// user gets.
    fn default() -> Self {
        Self {
            selection: holdall_model::selection::Selection::default(),
            static_topics: Vec::new(),
            output: PathBuf::from("rosbag2"),
            storage_id: holdall_storage::DEFAULT_STORAGE_ID.to_owned(),
            storage_preset: String::new(),
            storage_config: None,
            qos_overrides: BTreeMap::new(),
            max_loss_window: Some(super::write::durability::DEFAULT_LOSS_WINDOW),
            on_disk_full: OnDiskFull::default(),
            min_free_space_bytes: None,
            split: SplitOptions::default(),
            compression: CompressionOptions::default(),
            rescue_directory: None,
            cache: CacheOptions::default(),
            start_paused: false,
            use_sim_time: false,
            custom_data: BTreeMap::new(),
            polling_interval: Duration::from_millis(100),
            no_discovery: false,
            merge_duplicates: false,
            merge_publishers: false,
            ros_distro: String::new(),
            events: None,
            ament_prefixes: Vec::new(),
        }
    }
}

impl From<&RecordOptions> for DrainOptions {
    fn from(options: &RecordOptions) -> Self {
        Self {
            max_loss_window: options.max_loss_window,
            on_disk_full: options.on_disk_full,
            min_free_space_bytes: options.min_free_space_bytes,
            snapshot: options.cache.snapshot,
            merge_publishers: options.merge_publishers,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_is_a_sixteenth_of_the_memory_within_bounds() {
        let mib = |memory_mib: u64, snapshot| {
            CacheOptions::bytes_max_by_memory(Some(memory_mib << 20), snapshot) >> 20
        };
        assert_eq!(
            [512, 4096, 65_536].map(|memory| mib(memory, false)),
            [100, 256, 512]
        );
        assert_eq!(
            (mib(65_536, true), CacheOptions::bytes_max_by_memory(None, false)),
            (100, 100 << 20)
        );
    }
}
