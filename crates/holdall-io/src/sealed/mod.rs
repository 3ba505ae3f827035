//! Sealed files: encrypted and authenticated frame by frame, so that they can be cut, torn, read at any place and appended to.
//!
//! A sealed file is a log of what happened to the bytes of a plain file: frames that write bytes at an offset, and
//! frames that set its length (docs/formats/sealed.md). What reads a file through [`crate::fs`] sees the plain bytes when the
//! process has a key for it; nothing above this crate knows whether a file is sealed.

mod disk;
mod edit;
mod file;
mod format;
mod keys;
mod log;
#[cfg(test)]
mod tests;

pub use disk::SealingDisk;
pub(crate) use edit::SealedEdit;
pub(crate) use file::{SealedFile, Stored};
pub use keys::{FILE_KEY_BYTES, FileKey, Seal, SealedError, WRAPPED_BYTES_MAX, add_key_opener};

use crate::disk::DiskError;
use std::path::Path;

/// Whether a file's first bytes are those of a sealed file.
pub fn is_sealed(beginning: &[u8]) -> bool {
    beginning.starts_with(&format::MAGIC)
}

/// The seal of the file at `path`; `None` when it is not sealed.
///
/// # Errors
/// When it cannot be read, or no key of this process opens it.
pub fn seal_of(path: &Path) -> Result<Option<Seal>, DiskError> {
    Ok(crate::fs::File::open(path)?.seal())
}

/// Opens the sealed file of these bytes, as an attacker may have made them, and reads all of it; for fuzzing.
///
/// # Errors
/// What it is not.
#[doc(hidden)]
pub fn read_untrusted(path: &Path) -> Result<Vec<u8>, DiskError> {
    let file = crate::fs::File::open(path)?;
    let mut bytes = vec![0; usize::try_from(file.len_bytes().min(1 << 24)).unwrap_or(0)];
    let count = file.read_at(&mut bytes, 0)?;
    bytes.truncate(count);
    Ok(bytes)
}
