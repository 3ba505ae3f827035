//! How messages wait between the transport and the disk: every choice about the cache.

mod admission;
mod backlog;
mod room;

pub use admission::Admission;
pub use backlog::{Backlog, Release};
pub use room::CacheRoom;

use std::time::Duration;

/// Policy for a full cache.
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

/// How much of a cache that fills up a topic may hold, in comparison with other topics, by [`CachePolicy::Fair`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TopicPriority {
    /// An eighth of a normal topic's share: half of a cache for one such topic alone.
    Low,
    /// As topics without a priority.
    #[default]
    Normal,
    /// Eight times a normal topic's share: these topics may use the space that normal topics leave free.
    High,
}

/// How messages wait between the transport and the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheOptions {
    /// Total memory that the cache may hold, pinned transport memory included (`--max-cache-size`).
    pub bytes_max: usize,
    /// Total memory that it may grow to while others leave it, as [`CacheRoom`] says; `None` keeps it at `bytes_max`.
    pub grows_to: Option<usize>,
    /// Longest time a message may wait before it is evicted; snapshot mode keeps this much
    /// (`--max-cache-duration`).
    pub duration_max: Option<Duration>,
    /// Policy for a full cache.
    pub policy: CachePolicy,
    /// Keep messages until a snapshot is requested (`--snapshot-mode`).
    pub snapshot: bool,
}

/// The smallest cache by default, rosbag2's, in bytes.
const CACHE_BYTES_DEFAULT_MIN: u64 = 100 << 20;

/// The largest cache by default, in bytes: a third of a second of eight cameras (1.49 GB/s).
const CACHE_BYTES_DEFAULT_MAX: u64 = 512 << 20;

/// The part of the machine's memory that the cache grows to by default at most.
const GROWN_PART: u64 = 4;

impl CacheOptions {
    /// The most memory in bytes that the cache ever holds.
    pub fn bytes_most(&self) -> usize {
        self.grows_to
            .map_or(self.bytes_max, |most| most.max(self.bytes_max))
    }

    /// What a cache of the default size grows to, in bytes: a quarter of the memory. A snapshot ring does not grow.
    pub fn grows_to_by_memory(memory_bytes: Option<u64>, snapshot: bool) -> Option<u64> {
        memory_bytes.filter(|_| !snapshot).map(|bytes| bytes / GROWN_PART)
    }

    /// The cache's default size in bytes while little memory is available: a sixteenth of all, within bounds. Disks stall now and then
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
            grows_to: None,
            duration_max: None,
            policy: CachePolicy::default(),
            snapshot: false,
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
