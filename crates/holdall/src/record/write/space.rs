//! The sentence for too little free space for a recording.

use super::options::OnDiskFull;
use std::path::Path;

/// The sentence that ends a recording when less is free than must stay so.
pub(in crate::record) fn too_little_space(
    directory: &Path,
    available_bytes: u64,
    wanted_bytes: u64,
    on_disk_full: OnDiskFull,
) -> String {
    let what_to_do = match on_disk_full {
        OnDiskFull::Ring => {
            "no older file of this recording is left to remove; free some space or split into smaller files"
        }
        OnDiskFull::Stop => {
            "free some space, or record with --on-disk-full ring to give up the oldest files instead"
        }
    };
    format!(
        "only {} are free for {}, less than the {} that must stay free: the recording ends, with everything received until now; {what_to_do}",
        size(available_bytes),
        directory.display(),
        size(wanted_bytes),
    )
}

/// A size in powers of 1024 with one decimal: `1.5 GiB`.
fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut size = bytes as f64 / 1024.0;
    let mut units = UNITS.iter();
    let mut unit = units.next().unwrap_or(&"");
    for larger in units {
        if size < 1024.0 {
            break;
        }
        size /= 1024.0;
        unit = larger;
    }
    format!("{size:.1} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_the_unit_that_fits() {
        let said = too_little_space(Path::new("bag"), 3 << 20, 900_000_000_000_000, OnDiskFull::Stop);
        assert!(
            said.contains("only 3.0 MiB are free for bag, less than the 818.5 TiB that"),
            "{said}"
        );
        assert_eq!(
            [0, 1023 << 10, u64::MAX].map(size),
            ["0.0 KiB", "1023.0 KiB", "16384.0 PiB"]
        );
    }
}
