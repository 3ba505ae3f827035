//! How large the cache may be at present: a share of the memory that is available, so that a disk slower than the load costs no message
//! while memory is left, and other programs get theirs back.

use super::CacheOptions;
use std::time::Duration;

/// The part of the available memory that the cache may hold. Linux lets all files that are written together wait in a fifth of it.
const PART: u64 = 4;

/// Where less memory than the cache's usual size is available, it may hold this part of it.
const LEAST_PART: u64 = 2;

/// Time between two looks while little waits, and while much does.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
const LOOK_INTERVAL_BUSY: Duration = Duration::from_millis(100);

/// The limit of a cache that grows and shrinks with the memory that is available.
#[derive(Debug)]
pub struct CacheRoom {
    usual: usize,
    most: usize,
    next_look: Duration,
}

impl CacheRoom {
    /// For a cache with these options; `None` if its size is fixed.
    pub fn new(options: &CacheOptions) -> Option<Self> {
        options.grows_to?;
        Some(Self {
            usual: options.bytes_max,
            most: options.bytes_most(),
            next_look: Duration::ZERO,
        })
    }

    /// The limit in bytes from `now` (monotonic) on, when it is time for another one. The cache holds `held_bytes` of memory; `available`
    /// says how much programs can still have, `None` if the system does not show it.
    pub fn look(
        &mut self,
        now: Duration,
        held_bytes: usize,
        available: impl FnOnce() -> Option<u64>,
    ) -> Option<usize> {
        if now < self.next_look {
            return None;
        }
        let is_busy = held_bytes > self.usual / 4;
        let interval = if is_busy {
            LOOK_INTERVAL_BUSY
        } else {
            LOOK_INTERVAL
        };
        self.next_look = now + interval;
        // Without the cache, this would be available.
        let all = available()?.saturating_add(held_bytes as u64);
        let part = |parts| usize::try_from(all / parts).unwrap_or(usize::MAX);
        Some(part(PART).max(self.usual.min(part(LEAST_PART))).min(self.most))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    fn room(memory_mib: u64) -> CacheRoom {
        let memory = Some(memory_mib << 20);
        let bytes = |bytes| usize::try_from(bytes).unwrap();
        CacheRoom::new(&CacheOptions {
            bytes_max: bytes(CacheOptions::bytes_max_by_memory(memory, false)),
            grows_to: CacheOptions::grows_to_by_memory(memory, false).map(bytes),
            ..CacheOptions::default()
        })
        .unwrap()
    }

    #[test]
    fn a_quarter_of_what_is_available_may_wait_and_never_more_than_a_quarter_of_all() {
        for (memory, available, held, limit) in [
            (16_384, 8192, 0, 2048),
            // What the cache holds itself is available to it.
            (16_384, 6192, 2000, 2048),
            (16_384, 20_000, 0, 4096),
            // Others took theirs: the usual size stays, while it leaves as much to others.
            (16_384, 1400, 100, 512),
            (16_384, 600, 200, 400),
            (4096, 2400, 0, 600),
            (2048, 300, 0, 128),
            (1024, 500, 0, 125),
            (512, 120, 0, 60),
            (512, 0, 0, 0),
        ] {
            let found = room(memory).look(Duration::ZERO, held * MIB, || Some(available << 20));
            assert_eq!(
                found.map(|bytes| bytes / MIB),
                Some(limit),
                "{memory} {available} {held}"
            );
        }
    }

    #[test]
    fn memory_is_looked_at_more_often_while_much_waits() {
        let (mut room, second) = (room(16_384), Duration::from_secs(1));
        let mut look = |now, held| room.look(now, held, || Some(1 << 30)).is_some();
        assert!(look(second, 0));
        assert!(!look(second + LOOK_INTERVAL_BUSY, 400 * MIB));
        assert!(look(2 * second, 400 * MIB));
        assert!(look(2 * second + LOOK_INTERVAL_BUSY, 400 * MIB));
        assert!(
            CacheRoom::new(&CacheOptions::default()).is_none(),
            "a size that was asked for stays"
        );
    }

    #[test]
    fn what_the_system_does_not_show_changes_nothing() {
        assert_eq!(room(16_384).look(Duration::ZERO, 0, || None), None);
    }
}
