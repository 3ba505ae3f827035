//! Finds the next whole chunk after a place where the records can no longer be followed.

use super::{
    Rosbag1ReaderOptions,
    chunk::{Extent, ExtentKind, Records},
    format::{decode_record, op},
    recover::RecordPlace,
};
use crate::{
    error::{StorageError, StorageResult},
    mcap::reader::source::Source,
};

/// A field of every chunk's header: its length, `op=`, and the opcode of a chunk.
const MARK: &[u8] = b"\x04\x00\x00\x00op=\x05";
/// Largest distance from the record's start to the mark: the record's length and one or two other fields
/// precede it.
const MARK_DISTANCE_MAX: u64 = 64;
/// Bytes searched at once.
const WINDOW_BYTES: u64 = 1 << 20;
/// Candidates in one file that are verified. Bounds the cost of a file that was crafted with many.
const TRIES_MAX: u32 = 256;

/// The search for chunks in one file.
#[derive(Default)]
pub(super) struct Resync {
    tries: u32,
}

impl Resync {
    /// Offset of the first chunk at or after `from` whose header, codec and records are all valid; bytes that
    /// only resemble a header, in a payload for example, are skipped. `None` when none is found.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub(crate) fn next_chunk(
        &mut self,
        source: &Source,
        options: Rosbag1ReaderOptions,
        from: u64,
    ) -> StorageResult<Option<u64>> {
        let mut at = from;
        while at < source.len() {
            let window = source.read_up_to(at, WINDOW_BYTES)?;
            let marks = window
                .windows(MARK.len())
                .enumerate()
                .filter(|(_, bytes)| *bytes == MARK);
            for (place, _) in marks {
                let mark = at + place as u64;
                for start in mark.saturating_sub(MARK_DISTANCE_MAX).max(from)..=mark.saturating_sub(4) {
                    match self.is_chunk(source, options, start, mark) {
                        Ok(true) => return Ok(Some(start)),
                        Ok(false) => {}
                        Err(error @ StorageError::Disk(_)) => return Err(error),
                        Err(_) => {}
                    }
                    if self.tries >= TRIES_MAX {
                        return Ok(None);
                    }
                }
            }
            // A mark may extend across the end of the window.
            at += (window.len() as u64).saturating_sub(MARK.len() as u64 - 1).max(1);
        }
        Ok(None)
    }

    fn is_chunk(
        &mut self,
        source: &Source,
        options: Rosbag1ReaderOptions,
        start: u64,
        mark: u64,
    ) -> StorageResult<bool> {
        // The header's length, which must end shortly after the mark, rules out most candidates.
        let first = source.read_up_to(start, 4)?;
        let Some(length) = first
            .first_chunk::<4>()
            .map(|bytes| u64::from(u32::from_le_bytes(*bytes)))
        else {
            return Ok(false);
        };
        let header_end = start + 4 + length;
        let mark_end = mark + MARK.len() as u64;
        if header_end < mark_end || header_end > mark_end + MARK_DISTANCE_MAX {
            return Ok(false);
        }
        let record = RecordPlace::read(source, start)?;
        let head = record.head();
        let is_closed = head.size.is_some_and(|size| size > 0) && record.data_bytes > 0;
        if head.op != op::CHUNK || !is_closed || record.end() > source.len() {
            return Ok(false);
        }
        self.tries += 1;
        let extent = Extent {
            start,
            length: 0,
            times: (0, 0),
            kind: ExtentKind::Chunk,
            channels: None,
        };
        let records = Records::load(source, options, &extent)?;
        let mut rest = &records.0[..];
        while !rest.is_empty() {
            let Ok(record) = decode_record(rest) else {
                return Ok(false);
            };
            rest = &rest[record.len()..];
        }
        Ok(true)
    }
}
