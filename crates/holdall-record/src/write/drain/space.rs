//! Free space: reported, and kept free by ending the recording or removing its oldest files.

use super::Drain;
use crate::{
    Setting,
    write::{
        options::{OnDiskFull, RING_FREE_SPACE_BYTES},
        space::too_little_space,
    },
};
use holdall_bag::writer::WriteError;
use holdall_io::mutex::lock;
use std::time::Duration;

/// How often the disk's free space is reported.
const SPACE_INTERVAL: Duration = Duration::from_secs(1);

/// How often it is checked when some space must stay free: a fast disk writes a third of a gigabyte in that time.
const SPACE_GUARD_INTERVAL: Duration = Duration::from_millis(100);

/// It is also checked each time that this part of the space that must stay free was written.
const SPACE_GUARD_PARTS: u64 = 4;

/// How fast the blocks of a removed file become free: ext4 takes 120 to 190 ms for 1 GB. Waiting longer than
/// that, a second for small files too, let a fast recording fill the disk in the meantime.
const FREED_BYTES_PER_NANO: u64 = 5;

/// When the free space is checked, and what is about to become free.
#[derive(Default)]
pub(super) struct SpaceGuard {
    /// At this time at the latest.
    next: Duration,
    /// Or when the bag has this length in bytes.
    next_length: u64,
    /// So many bytes of removed files are free from this time on at the latest.
    freeing: (Duration, u64),
}

impl Drain {
    /// Reports how much space is free, and carries out the option for too little.
    pub(super) fn maintain_space(&mut self, now: Duration) -> Result<(), WriteError> {
        if now >= self.next_space {
            self.next_space = now + SPACE_INTERVAL;
            self.update_status(|_| {});
        }
        let ring = self.options.on_disk_full == OnDiskFull::Ring;
        let wanted = self
            .options
            .min_free_space_bytes
            .or(ring.then_some(RING_FREE_SPACE_BYTES));
        let Some(wanted) = wanted else { return Ok(()) };
        let length = self.bag.length();
        let guard = &mut self.space_guard;
        if now < guard.next && length < guard.next_length {
            return Ok(());
        }
        guard.next = now + SPACE_GUARD_INTERVAL;
        guard.next_length = length + wanted / SPACE_GUARD_PARTS;
        // The system frees the blocks of a removed file in the background.
        let (until, bytes) = guard.freeing;
        let mut freeing = if now < until { bytes } else { 0 };
        let Some(available) = self.bag.available_bytes() else {
            return Ok(());
        };
        // Files may be smaller than what was written since the last check.
        while ring
            && available + freeing < wanted
            && let Some(bytes) = self.bag.remove_oldest_file()?
        {
            freeing += bytes;
            let span = Duration::from_nanos(freeing / FREED_BYTES_PER_NANO);
            self.space_guard.freeing = (now + SPACE_GUARD_INTERVAL + span, freeing);
        }
        // What was just removed may not suffice yet.
        if available + freeing >= wanted || self.space_guard.freeing.0 > until {
            return Ok(());
        }
        // An upload that is slower than the recording can catch up within half of the space that must stay free.
        let is_oldest_uploaded = self.bag.is_oldest_uploaded();
        let upload_has_time = is_oldest_uploaded || available > wanted / 2;
        let can_wait = ring && self.bag.has_removable_file() && upload_has_time;
        if !can_wait && lock(&self.shared.status).must_end.is_none() {
            let on_full = self.options.on_disk_full;
            let directory = self.bag.directory();
            let reason = too_little_space(directory, available, wanted, on_full, is_oldest_uploaded);
            match on_full {
                OnDiskFull::Stop => tracing::warn!(setting = Setting::RingOnDiskFull.name(), "{reason}"),
                OnDiskFull::Ring => tracing::warn!("{reason}"),
            }
            self.update_status(|status| status.must_end = Some(reason));
            self.shared.wake_recorder();
        }
        Ok(())
    }
}
