//! Rules for the compression of a bag.

pub use holdall_model::split::SplitOptions;
pub use holdall_storage::compression::CompressionMode;
use std::num::NonZeroU32;

/// rosbag2's own compression, around the storage. MCAP's compression of chunks is a setting of the storage.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CompressionOptions {
    /// Unit of compression (`--compression-mode`); the format is zstd.
    pub mode: CompressionMode,
    /// Messages that may wait for a thread, by message (`--compression-queue-size`): the oldest is dropped
    /// when more come. `None` drops nothing: the drain waits, and messages wait in the cache.
    pub queue_max: Option<NonZeroU32>,
    /// Threads (`--compression-threads`), also for the compression of chunks; `None` for as many as there are processors, 0 to compress
    /// chunks in the thread that writes (packing of files and messages has a thread at least).
    pub threads: Option<usize>,
    /// Niceness of these threads, -20 to 19 (`--compression-threads-priority`).
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
