//! Walks over records by their lengths, without reading large bodies.

use super::source::Source;
use crate::{
    error::StorageResult,
    mcap::format::{Fields, MESSAGE_HEADER_BYTES, MessageHeader, RECORD_PREFIX_BYTES, kind, record_prefix},
};
use bytes::Bytes;
use std::fmt;

/// Bytes read at once; longer bodies are skipped unread.
const WINDOW_BYTES: u64 = 256 << 10;

/// Bytes read at once after a skipped body. When large bodies follow one another, only their headers are
/// wanted.
const SKIPPING_WINDOW_BYTES: u64 = 4 << 10;

/// Bodies below this are read through, not skipped: a disk delivers them in about the time that starting
/// another read takes.
const SKIPPED_BYTES_MIN: u64 = 128 << 10;

/// Bytes read at once for a single header.
const SPARSE_WINDOW_BYTES: u64 = 512;

/// The place of a record in the source; its body is not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordPlace {
    /// Its opcode.
    pub opcode: u8,
    /// Its offset.
    pub start: u64,
    /// Length of its body.
    pub body_bytes: u64,
}

impl RecordPlace {
    /// Offset of the body.
    pub(crate) fn body_start(&self) -> u64 {
        self.start + RECORD_PREFIX_BYTES as u64
    }

    /// Offset of the next record.
    pub fn end(&self) -> u64 {
        self.body_start() + self.body_bytes
    }
}

/// A step's result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A whole record.
    Record(RecordPlace),
    /// A record that exceeds the region.
    Cut(RecordPlace),
    /// Too few bytes for a record's prefix, or no record at all (opcode 0).
    NoRecord(u64),
    /// The end of the region.
    End,
}

/// A walk over the records of a region.
pub(crate) struct Walk<'a> {
    source: &'a Source,
    at: u64,
    end: u64,
    window: Bytes,
    window_start: u64,
    window_bytes: u64,
}

impl<'a> Walk<'a> {
    /// A walk over `start..end`, bounded by the source's end.
    pub fn new(source: &'a Source, start: u64, end: u64) -> Self {
        Self {
            source,
            at: start,
            end: end.min(source.len()),
            window: Bytes::new(),
            window_start: 0,
            window_bytes: WINDOW_BYTES,
        }
    }

    /// A walk over a part of the same source, which starts with the bytes that this one has read.
    pub fn within(&self, start: u64, end: u64) -> Self {
        Self {
            window: self.window.clone(),
            window_start: self.window_start,
            window_bytes: self.window_bytes,
            ..Self::new(self.source, start, end)
        }
    }

    /// The same walk for reading a single header: it reads little at once.
    pub fn sparse(mut self) -> Self {
        self.window_bytes = SPARSE_WINDOW_BYTES;
        self
    }

    /// Whether these bytes were read already.
    pub fn holds(&self, offset: u64, len: u64) -> bool {
        offset >= self.window_start && offset + len <= self.window_start + self.window.len() as u64
    }

    /// Up to `len` bytes from `offset` on, through the window.
    pub fn peek(&mut self, offset: u64, len: u64) -> StorageResult<Bytes> {
        let len = len.min(self.end.saturating_sub(offset));
        if len > self.window_bytes {
            return self.source.read(offset, len, "record");
        }
        if !self.holds(offset, len) {
            let window_end = self.window_start + self.window.len() as u64;
            let is_skip = offset.saturating_sub(window_end) >= SKIPPED_BYTES_MIN && !self.window.is_empty();
            let wanted = if is_skip {
                self.window_bytes.min(SKIPPING_WINDOW_BYTES).max(len)
            } else {
                self.window_bytes
            };
            self.window = self.source.read_up_to(offset, wanted)?;
            self.window_start = offset;
        }
        // Both are below the window's length.
        let start = (offset - self.window_start) as usize;
        Ok(self.window.slice(start..start + len as usize))
    }

    /// The body of a record.
    pub fn body(&mut self, place: &RecordPlace) -> StorageResult<Bytes> {
        self.peek(place.body_start(), place.body_bytes)
    }

    /// The header of a message record; `None` when its body is too short for one.
    pub(crate) fn message_header(&mut self, place: &RecordPlace) -> StorageResult<Option<MessageHeader>> {
        let bytes = self.peek(
            place.body_start(),
            place.body_bytes.min(MESSAGE_HEADER_BYTES as u64),
        )?;
        Ok(MessageHeader::decode(&mut Fields::new(&bytes)).ok())
    }

    /// The next record.
    pub fn step(&mut self) -> StorageResult<Step> {
        if self.at >= self.end {
            return Ok(Step::End);
        }
        let prefix = self.peek(self.at, RECORD_PREFIX_BYTES as u64)?;
        let Some((opcode, body_bytes)) = record_prefix(&prefix).filter(|(opcode, _)| *opcode != 0) else {
            return Ok(Step::NoRecord(self.at));
        };
        let place = RecordPlace {
            opcode,
            start: self.at,
            body_bytes,
        };
        if place.body_bytes > self.end - place.body_start() {
            return Ok(Step::Cut(place));
        }
        self.at = place.end();
        Ok(Step::Record(place))
    }
}

/// The kind of a record with its article.
fn a_kind(opcode: u8) -> String {
    let kind = kind(opcode);
    let article = if kind.starts_with(['a', 'u']) { "an" } else { "a" };
    format!("{article} {kind}")
}

impl fmt::Display for Step {
    /// Describes the bytes found, for sentences that name the expected ones.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Record(place) => write!(
                f,
                "{} record of {} bytes at byte {}",
                a_kind(place.opcode),
                place.end() - place.start,
                place.start
            ),
            Self::Cut(place) => write!(
                f,
                "{} record at byte {} that would reach beyond its end",
                a_kind(place.opcode),
                place.start
            ),
            Self::NoRecord(at) => write!(f, "no record at byte {at}"),
            Self::End => f.write_str("its end"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcap::format::op;

    #[test]
    fn what_is_found_in_place_of_a_record_is_a_clause_for_people() {
        let place = RecordPlace {
            opcode: 73,
            start: 0,
            body_bytes: 2_336_349_412_251_559_278,
        };
        let chunk = RecordPlace {
            opcode: op::CHUNK,
            start: 8,
            body_bytes: 91,
        };
        let said = [
            Step::Cut(place),
            Step::Record(chunk),
            Step::NoRecord(7),
            Step::End,
        ]
        .map(|step| step.to_string());
        assert_eq!(
            said,
            [
                "an unknown record at byte 0 that would reach beyond its end",
                "a chunk record of 100 bytes at byte 8",
                "no record at byte 7",
                "its end"
            ]
        );
    }
}
