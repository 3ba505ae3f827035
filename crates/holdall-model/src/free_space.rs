//! What a recording does where too little space is free, and what it says then.

use crate::{time::Timestamp, units::format_bytes};
use std::path::Path;

/// Policy for a nearly full disk: less than must stay free is left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnDiskFull {
    /// End the recording; messages received until then are in the bag.
    #[default]
    Stop,
    /// Remove this recording's own oldest files and continue; their messages are counted at stage `policy`.
    Ring,
}

/// What must stay free for [`OnDiskFull::Ring`] when the user sets nothing, in bytes: a second of a fast
/// disk, so that files are removed before a write fails.
pub const RING_FREE_SPACE_BYTES: u64 = 1 << 30;

/// What a copy of a part of a ring needs to know of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingState {
    /// So many bytes must stay free on its disk: with less, the recording ends.
    pub kept_free_bytes: u64,
    /// It removes its oldest files to keep them free, also those that are being copied.
    pub makes_room: bool,
    /// The last log time of messages that have expired. Where the clock is set back, it is too late until the clock has caught up.
    pub expired_until: Option<Timestamp>,
}

/// The sentence that ends a recording when less is free than must stay so.
pub fn too_little_space(
    directory: &Path,
    available_bytes: u64,
    wanted_bytes: u64,
    on_disk_full: OnDiskFull,
    is_oldest_uploaded: bool,
) -> String {
    let what_to_do = match on_disk_full {
        OnDiskFull::Ring if !is_oldest_uploaded => {
            "its oldest file is not uploaded, so it was not removed; free some space, or check the service and the line to it"
        }
        OnDiskFull::Ring => {
            "no older file of this recording is left to remove; free some space or split into smaller files"
        }
        OnDiskFull::Stop => "free some space, or have the oldest files of a recording removed instead",
    };
    format!(
        "only {} are free for {}, less than the {} that must stay free: the recording ends, with everything received until now; {what_to_do}",
        format_bytes(available_bytes),
        directory.display(),
        format_bytes(wanted_bytes),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_the_unit_that_fits() {
        let said = too_little_space(
            Path::new("bag"),
            3 << 20,
            900_000_000_000_000,
            OnDiskFull::Stop,
            true,
        );
        assert!(
            said.contains("only 3.0 MiB are free for bag, less than the 818.5 TiB that"),
            "{said}"
        );
    }

    #[test]
    fn a_ring_that_waits_for_its_upload_names_it() {
        let of = |is_uploaded| too_little_space(Path::new("bag"), 1, 2, OnDiskFull::Ring, is_uploaded);
        assert!(of(false).contains("its oldest file is not uploaded"));
        assert!(of(true).contains("no older file of this recording is left"));
    }
}
