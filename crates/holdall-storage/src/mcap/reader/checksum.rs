//! Checksums of chunks.

use super::source::Source;
use crate::error::{StorageError, StorageResult};

/// Bytes that are read at once for a checksum.
const PIECE_BYTES: u64 = 4 << 20;

/// The checksum of a part of the file, which is not kept in memory.
pub(crate) fn sum(source: &Source, (mut at, end): (u64, u64)) -> StorageResult<u32> {
    let mut crc = crc32fast::Hasher::new();
    while at < end {
        let piece = source.read_up_to(at, (end - at).min(PIECE_BYTES))?;
        crc.update(&piece);
        at += piece.len() as u64;
    }
    Ok(crc.finalize())
}

/// Compares a chunk's checksum with the stored one.
pub(super) fn compare(source: &Source, offset: u64, expected: u32, found: u32) -> StorageResult<()> {
    if found == expected {
        return Ok(());
    }
    Err(StorageError::Checksum {
        path: source.path().to_owned(),
        offset,
        what: "chunk",
        expected,
        found,
    })
}
