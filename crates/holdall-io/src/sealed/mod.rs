//! Sealed files: encrypted and authenticated frame by frame, so that they can be cut, torn, read at any place and appended to.
//!
//! A sealed file is a log of changes to the bytes of a plain file: frames that write bytes at an offset, and
//! frames that set its length (docs/formats/sealed.md). Code that reads a file through [`crate::fs`] sees the plain bytes when
//! the process has a key for it; nothing above this crate knows whether a file is sealed.

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

/// Whether a file that begins with these bytes is sealed.
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

/// The identifier of the sealed file at `path`, 64 hexadecimal digits that no other file has; `None` when it is not sealed. Needs no key.
///
/// # Errors
/// When it cannot be read.
pub fn identifier_of(path: &Path) -> Result<Option<String>, DiskError> {
    let file = crate::fs::File::open_stored(path)?;
    let mut head = [0; 64];
    let count = file.read_at(&mut head, 0)?;
    let is_whole = count == head.len() && is_sealed(&head);
    Ok(is_whole.then(|| head[32..].iter().map(|byte| format!("{byte:02x}")).collect()))
}

/// Whether the sealed file at `path` was closed: it ends with the frame that sets its length. Needs no key, so a forger could have written that.
///
/// # Errors
/// When it cannot be read.
pub fn was_closed(path: &Path) -> Result<bool, DiskError> {
    let file = crate::fs::File::open_stored(path)?;
    let mut head = [0; 128];
    let at = file.len_bytes().checked_sub(format::FRAME_HEAD_BYTES as u64);
    let Some(at) = at.filter(|at| *at > 0) else {
        return Ok(false);
    };
    file.read_exact_at(&mut head, at)?;
    Ok(format::is_end(&head, at))
}
