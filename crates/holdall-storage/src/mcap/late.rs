//! Puts definitions before messages whose own are lost, for readers that read a file from front to end.

use super::{
    format::{RECORD_PREFIX_BYTES, op},
    reader::source::Source,
    recover::{Late, Structure},
};
use crate::{
    error::{StorageError, StorageResult},
    repair::RepairStep,
};

/// Definitions over bytes that cannot be read.
pub(super) struct Placed {
    /// Where those bytes begin: a torn chunk or a gap.
    pub start: u64,
    pub steps: Vec<RepairStep>,
}

/// Plans the definitions that messages lack. At each moment the bytes they take the place of are either what they were, as far as a reader
/// is concerned, or whole records.
///
/// # Errors
/// [`StorageError::NotInPlace`] when none of the unreadable parts before the messages has room.
pub(super) fn place(source: &Source, structure: &Structure) -> StorageResult<Option<Placed>> {
    let Some(Late { before, definitions }) = &structure.late else {
        return Ok(None);
    };
    let mut records = Vec::new();
    definitions.encode_schemas(&mut records);
    definitions.encode_channels(&mut records);
    let chunks = structure.torn.iter().filter_map(|(_, start)| {
        let chunk = structure.chunks.get(start)?;
        Some((*start, start + chunk.chunk_length))
    });
    let gaps = structure.gaps.iter().map(|gap| (gap.start, gap.end));
    let room = chunks.chain(gaps).filter(|(start, _)| start < before);
    let prefix = RECORD_PREFIX_BYTES as u64;
    let has_room = |(start, end): &(u64, u64)| end - start >= records.len() as u64 + prefix;
    let Some((start, end)) = room.filter(has_room).min() else {
        return Err(StorageError::NotInPlace {
            path: source.path().to_owned(),
            reason: "the unreadable bytes before messages have no room for the definitions that these lack",
        });
    };
    let rest = end - start - records.len() as u64 - prefix;
    records.push(op::TORN);
    records.extend_from_slice(&rest.to_le_bytes());
    let body = records.split_off(RECORD_PREFIX_BYTES);
    let steps = vec![
        RepairStep::write(start + prefix, body),
        RepairStep::Sync,
        RepairStep::write(start, records),
        RepairStep::Sync,
    ];
    Ok(Some(Placed { start, steps }))
}
