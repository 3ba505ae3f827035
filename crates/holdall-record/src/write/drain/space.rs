//! Free space: reported, and kept free by ending the recording or removing its oldest files.

use super::{shared::DrainShared, writer::Writer};
use crate::{
    Setting,
    write::options::{DrainOptions, OnDiskFull, RING_FREE_SPACE_BYTES},
};
use holdall_bag::writer::{BagWriter, WriteError};
use holdall_model::free_space::too_little_space;
use std::{collections::VecDeque, time::Duration};

/// How often the disk's free space is reported.
const SPACE_INTERVAL: Duration = Duration::from_secs(1);

/// Seconds over which the rate of writing is measured, for the forecast.
const RATE_SAMPLES_MIN: usize = 5;
const RATE_SAMPLES_MAX: usize = 30;

/// How often it is checked when some space must stay free: a fast disk writes a third of a gigabyte in that time.
const SPACE_GUARD_INTERVAL: Duration = Duration::from_millis(100);

/// It is also checked each time that this part of the space that must stay free was written.
const SPACE_GUARD_PARTS: u64 = 4;

/// How fast the blocks of a removed file become free: ext4 takes 120 to 190 ms for 1 GB. Waiting longer than
/// that, a second for small files too, let a fast recording fill the disk in the meantime.
const FREED_BYTES_PER_NANO: u64 = 5;

/// When the free space is reported and checked, and what is about to become free.
pub(super) struct Space {
    on_disk_full: OnDiskFull,
    /// So many bytes must stay free.
    wanted: Option<u64>,
    next_report: Duration,
    /// It is checked at this time at the latest.
    next: Duration,
    /// Or when the bag has this length in bytes.
    next_length: u64,
    /// The bag's length in the last seconds, the oldest first.
    lengths: VecDeque<u64>,
    /// So many bytes of removed files are free from this time on at the latest.
    freeing: (Duration, u64),
}

impl Space {
    pub fn new(options: &DrainOptions) -> Self {
        let on_disk_full = options.on_disk_full;
        let default = (on_disk_full == OnDiskFull::Ring).then_some(RING_FREE_SPACE_BYTES);
        Self {
            on_disk_full,
            wanted: options.min_free_space_bytes.or(default),
            next_report: Duration::ZERO,
            next: Duration::ZERO,
            next_length: 0,
            lengths: VecDeque::new(),
            freeing: (Duration::ZERO, 0),
        }
    }

    /// How many bytes must stay free, and whether the oldest files make room.
    pub fn kept_free(&self) -> (u64, bool) {
        (self.wanted.unwrap_or(0), self.on_disk_full == OnDiskFull::Ring)
    }

    /// Takes note of the bag's length, each second. When `available` bytes are used up at the rate of the last ones, but for those that must
    /// stay free; `None` where the oldest files make room, or in the first seconds.
    fn full_in(&mut self, length: u64, available: Option<u64>) -> Option<Duration> {
        if self.on_disk_full == OnDiskFull::Ring {
            return None;
        }
        self.lengths.push_back(length);
        let newest = self.lengths.len() - 1;
        if newest < RATE_SAMPLES_MIN {
            return None;
        }
        let oldest = if newest > RATE_SAMPLES_MAX {
            self.lengths.pop_front()
        } else {
            self.lengths.front().copied()
        };
        let written = length.saturating_sub(oldest?);
        let room = available?.saturating_sub(self.wanted.unwrap_or(0));
        let seconds = SPACE_INTERVAL.as_secs_f64() * newest as f64;
        let full_in = room as f64 * seconds / written as f64;
        Duration::try_from_secs_f64(full_in).ok()
    }

    /// Reports how much space is free, and carries out the option for too little.
    ///
    /// # Errors
    /// An oldest file that cannot be removed.
    pub fn maintain(
        &mut self,
        now: Duration,
        writer: &mut Writer,
        shared: &DrainShared,
    ) -> Result<(), WriteError> {
        if now >= self.next_report {
            self.next_report = now + SPACE_INTERVAL;
            let (length, available) = (writer.bag().length(), writer.bag().available_bytes());
            let full_in = self.full_in(length, available);
            writer.update_status(|status| status.full_in = full_in);
        }
        let Some(wanted) = self.wanted else { return Ok(()) };
        let length = writer.bag().length();
        if now < self.next && length < self.next_length {
            return Ok(());
        }
        self.next = now + SPACE_GUARD_INTERVAL;
        self.next_length = length + wanted / SPACE_GUARD_PARTS;
        let Some(available) = writer.bag().available_bytes() else {
            return Ok(());
        };
        let removed_until = self.freeing.0;
        let freeing = self.make_room(now, wanted.saturating_sub(available), writer.bag())?;
        // What was just removed may not suffice yet.
        if available + freeing >= wanted || self.freeing.0 > removed_until {
            return Ok(());
        }
        // An upload that is slower than the recording can catch up within half of the space that must stay free.
        let is_oldest_uploaded = writer.bag().is_oldest_uploaded();
        let upload_has_time = is_oldest_uploaded || available > wanted / 2;
        let is_ring = self.on_disk_full == OnDiskFull::Ring;
        let can_wait = is_ring && writer.bag().has_removable_file() && upload_has_time;
        if !can_wait && !shared.must_end() {
            let on_full = self.on_disk_full;
            let directory = writer.bag().directory();
            let reason = too_little_space(directory, available, wanted, on_full, is_oldest_uploaded);
            match on_full {
                OnDiskFull::Stop => tracing::warn!(setting = Setting::RingOnDiskFull.name(), "{reason}"),
                OnDiskFull::Ring => tracing::warn!("{reason}"),
            }
            writer.update_status(|status| status.must_end = Some(reason));
            shared.wake_recorder();
        }
        Ok(())
    }

    /// Removes the oldest files until this many bytes are free or about to be. Returns how many are about to be: the system frees the blocks
    /// of a removed file in the background.
    fn make_room(&mut self, now: Duration, missing: u64, bag: &mut BagWriter) -> Result<u64, WriteError> {
        let (until, bytes) = self.freeing;
        let mut freeing = if now < until { bytes } else { 0 };
        // Files may be smaller than what was written since the last check.
        while self.on_disk_full == OnDiskFull::Ring
            && freeing < missing
            && let Some(bytes) = bag.remove_oldest_file()?
        {
            freeing += bytes;
            let span = Duration::from_nanos(freeing / FREED_BYTES_PER_NANO);
            self.freeing = (now + SPACE_GUARD_INTERVAL + span, freeing);
        }
        Ok(freeing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn space(on_disk_full: OnDiskFull, wanted: Option<u64>) -> Space {
        Space {
            on_disk_full,
            wanted,
            next_report: Duration::ZERO,
            next: Duration::ZERO,
            next_length: 0,
            lengths: VecDeque::new(),
            freeing: (Duration::ZERO, 0),
        }
    }

    #[test]
    fn the_forecast_follows_the_rate_of_the_last_half_minute() {
        let mut space = space(OnDiskFull::Stop, Some(1000));
        for second in 0..5 {
            assert_eq!(space.full_in(second * 100, Some(11_000)), None, "too early");
        }
        assert_eq!(space.full_in(500, Some(11_000)), Some(Duration::from_secs(100)));
        // Ten times as fast: known after half a minute.
        for second in 1..=31 {
            space.full_in(500 + second * 1000, Some(11_000));
        }
        assert_eq!(space.full_in(32_500, Some(21_000)), Some(Duration::from_secs(20)));
        assert_eq!(space.full_in(33_500, Some(500)), Some(Duration::ZERO));
        assert_eq!(space.full_in(34_500, None), None);
        for _ in 0..40 {
            space.full_in(34_500, Some(21_000));
        }
        assert_eq!(space.full_in(34_500, Some(21_000)), None, "nothing is written");
    }

    #[test]
    fn a_ring_makes_room() {
        let mut space = space(OnDiskFull::Ring, None);
        assert!((0..20).all(|second| space.full_in(second * 100, Some(1000)).is_none()));
    }
}
