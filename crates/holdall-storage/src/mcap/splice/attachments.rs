//! The attachments of a file: found by their records, read block by block.

use crate::{
    chunks::AttachmentInfo,
    error::{StorageError, StorageResult},
    mcap::{
        format::{AttachmentIndex, Fields, RECORD_PREFIX_BYTES},
        reader::index::{FileIndex, signed},
    },
};

/// Longest head of an attachment: its times, names and lengths.
const HEAD_BYTES: u64 = 1 << 20;

/// Bytes read at once.
const BLOCK_BYTES: u64 = 1 << 20;

/// Bytes of the checksum after the content.
const CRC_BYTES: u64 = 4;

/// Each attachment, as its own record has it, which is checked to be as long as its content needs.
pub(super) fn find(index: &FileIndex) -> StorageResult<Vec<AttachmentIndex>> {
    let read = |&(start, length): &(u64, u64)| {
        let left = index.source.len().saturating_sub(start);
        if length > left {
            return Err(index.source.malformed(
                start,
                format!("an attachment of {length} bytes"),
                format!("{left} bytes until the end of the file"),
            ));
        }
        let head = index.source.read(start, length.min(HEAD_BYTES), "attachment")?;
        let found = Fields::attachment_head(&mut Fields::new(&head))
            .map_err(|error| index.source.unparsed(start, error))?;
        let least = (RECORD_PREFIX_BYTES as u64 + CRC_BYTES).saturating_add(found.data_size);
        if least > length {
            return Err(index.source.malformed(
                start,
                format!("an attachment of at most {length} bytes"),
                format!("{} bytes of content", found.data_size),
            ));
        }
        Ok(AttachmentIndex {
            offset: start,
            length,
            ..found
        })
    };
    index.attachments.iter().map(read).collect()
}

/// As [`crate::chunks::ChunkFile::attachments`].
pub(super) fn list(index: &FileIndex) -> StorageResult<Vec<AttachmentInfo>> {
    let about = |found: AttachmentIndex| AttachmentInfo {
        name: found.name,
        media_type: found.media_type,
        log_time: signed(found.log_time),
        create_time: (found.create_time != 0).then(|| signed(found.create_time)),
        offset: found.offset + found.length - CRC_BYTES - found.data_size,
        bytes: found.data_size,
    };
    Ok(find(index)?.into_iter().map(about).collect())
}

fn one(index: &FileIndex, place: usize) -> StorageResult<AttachmentIndex> {
    find(index)?
        .into_iter()
        .nth(place)
        .ok_or_else(|| StorageError::Unsupported {
            path: index.source.path().to_owned(),
            what: "reading an attachment",
            reason: format!("it has no attachment number {place}"),
        })
}

/// As [`crate::chunks::ChunkFile::attachment_is_intact`].
pub(super) fn is_intact(index: &FileIndex, place: usize) -> StorageResult<Option<bool>> {
    let found = one(index, place)?;
    let end = found.offset + found.length - CRC_BYTES;
    let stored = index.source.read(end, CRC_BYTES, "attachment crc")?;
    // Zero is the format's "none".
    if stored.iter().all(|byte| *byte == 0) {
        return Ok(None);
    }
    let mut crc = crc32fast::Hasher::new();
    let mut at = found.offset + RECORD_PREFIX_BYTES as u64;
    while at < end {
        let block = index.source.read(at, (end - at).min(BLOCK_BYTES), "attachment")?;
        crc.update(&block);
        at += block.len() as u64;
    }
    Ok(Some(crc.finalize().to_le_bytes()[..] == stored[..]))
}
