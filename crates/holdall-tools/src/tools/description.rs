//! Writes the `metadata.yaml` of a bag whose storage files exist: encrypted where its storage files are.

use holdall_io::{
    disk::DiskError,
    fs::{self, is_stored_sealed},
    sealed::seal_of,
};
use std::path::{Path, PathBuf};

/// Replaces the file at `path`, or makes it, in a bag with these storage files.
pub(super) fn replace_metadata(path: &Path, storage_files: &[PathBuf], text: &str) -> Result<(), DiskError> {
    // An existing file stays encrypted by itself.
    let like = storage_files.iter().find(|file| is_stored_sealed(file));
    let seal = match like {
        Some(like) if !fs::exists(path)? => seal_of(like)?,
        _ => None,
    };
    let sealed = seal.map(|seal| seal.seal_bytes(text.as_bytes())).transpose();
    let sealed = sealed.map_err(|source| DiskError::new(path, holdall_io::disk::Operation::Write, source))?;
    fs::write_atomically(path, sealed.as_deref().unwrap_or(text.as_bytes()))
}
