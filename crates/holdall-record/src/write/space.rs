//! The sentence for too little free space for a recording.

use super::options::OnDiskFull;
use holdall_model::units::format_bytes;
use std::path::Path;

/// The sentence that ends a recording when less is free than must stay so.
pub(crate) fn too_little_space(
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
