//! Finds the content of each chunk by walking over its records.

use super::{CHUNK_BYTES_MAX, Recent, Scan, Scanner, Tally};
use crate::{
    error::StorageResult,
    mcap::{
        format::{ChunkIndex, MESSAGE_PREFIX_BYTES, op},
        reader::{
            codec::decompress,
            index::{ChunkParts, Extent, ExtentKind, chunk_header_bytes},
            source::Source,
            walk::{RecordPlace, Step, Walk},
        },
    },
};
use bytes::Bytes;

impl Scanner<'_> {
    pub(super) fn chunk(&mut self, walk: &mut Walk<'_>, place: RecordPlace) -> StorageResult<()> {
        let Some((header_bytes, parts)) = chunk_header_bytes(walk, place.body_start(), place.body_bytes)?
        else {
            let reason = "expected a chunk, found fewer bytes than its header has";
            self.found.tear("chunk", place.start, reason);
            return Ok(());
        };
        let records_start = place.body_start() + header_bytes as u64;
        if parts.stored != place.end() - records_start {
            let reason = "expected a chunk, found another length than it says";
            self.found.tear("chunk", place.start, reason);
            return Ok(());
        }
        let index = ChunkIndex {
            message_start_time: parts.times.0,
            message_end_time: parts.times.1,
            chunk_start_offset: place.start,
            chunk_length: place.end() - place.start,
            compression: parts.compression.clone(),
            compressed_size: parts.stored,
            uncompressed_size: parts.size,
            ..ChunkIndex::default()
        };
        self.found.structure.chunks.insert(place.start, index);
        let extent = Extent {
            start: place.start,
            length: place.end() - place.start,
            kind: ExtentKind::Chunk {
                compression: parts.compression.as_str().into(),
                size: parts.size,
            },
            ..Extent::default()
        };
        if parts.compression.is_empty() {
            let mut inner = walk.within(records_start, records_start + parts.stored);
            let tally = self.found.records(&mut inner, place.start)?;
            self.note_recent(Recent {
                extent,
                tally,
                unchecked: Some((parts, records_start)),
            });
            return Ok(());
        }
        self.compressed(&parts, extent, records_start)
    }

    /// The chunk of this extent, whose records are compressed from `records_start` on.
    fn compressed(&mut self, parts: &ChunkParts, extent: Extent, records_start: u64) -> StorageResult<()> {
        let start = extent.start;
        self.found
            .compression
            .get_or_insert_with(|| parts.compression.clone());
        let stored = self.blocks.source().read(records_start, parts.stored, "chunk")?;
        let records = if parts.size > CHUNK_BYTES_MAX {
            Err(format!(
                "{} bytes are more than the limit of {CHUNK_BYTES_MAX}",
                parts.size
            ))
        } else {
            decompress(&parts.compression, &stored, parts.size)
        };
        match records {
            Ok(records) if parts.crc != 0 && crc32fast::hash(&records) != parts.crc => {
                self.found.tear("chunk", start, "chunk checksum does not match");
            }
            Ok(records) => {
                let records = Source::memory(self.blocks.source().path(), Bytes::from(records));
                let tally = self
                    .found
                    .records(&mut Walk::new(&records, 0, records.len()), start)?;
                self.note_recent(Recent {
                    extent,
                    tally,
                    unchecked: None,
                });
            }
            Err(reason) => {
                let reason = format!("chunk cannot be decompressed: {reason}");
                self.found.tear("chunk", start, reason);
            }
        }
        Ok(())
    }

    /// The last record, cut off: of an uncompressed chunk the whole messages are kept.
    pub(super) fn cut(&mut self, walk: &mut Walk<'_>, place: RecordPlace) -> StorageResult<()> {
        let missing = place
            .body_bytes
            .saturating_sub(self.blocks.source().len().saturating_sub(place.body_start()));
        self.found.structure.cut = Some(format!(
            "the last record, at byte {}, is cut off: {missing} bytes of it are missing",
            place.start
        ));
        self.found.damage(
            place.start,
            format!("the last record lacks {missing} bytes: the file was cut off"),
        );
        if place.opcode != op::CHUNK {
            return Ok(());
        }
        let Some((header_bytes, parts)) = chunk_header_bytes(walk, place.body_start(), place.body_bytes)?
        else {
            return Ok(());
        };
        if !parts.compression.is_empty() {
            return Ok(());
        }
        let start = place.body_start() + header_bytes as u64;
        // The records before it define which channels are known.
        self.close_recent()?;
        let mut inner = Walk::new(self.blocks.source(), start, self.blocks.source().len());
        let (tally, whole_until) = self.found.whole_records(self.blocks, &mut inner, place.start)?;
        if let Some(end) = whole_until.filter(|end| *end >= start + MESSAGE_PREFIX_BYTES as u64) {
            let extent = Extent {
                start,
                length: end - start,
                kind: ExtentKind::Records,
                ..Extent::default()
            };
            self.apply_extent(extent, tally);
            self.found.structure.cut_chunk = Some(place.start);
            self.found.structure.end = end;
        }
        Ok(())
    }
}

impl Scan {
    /// Walks over the records of a chunk.
    fn records(&mut self, walk: &mut Walk<'_>, chunk_start: u64) -> StorageResult<Tally> {
        let mut tally = Tally::default();
        loop {
            match walk.step()? {
                Step::Record(place) if place.opcode == op::MESSAGE => match walk.message_header(&place)? {
                    Some(header) => tally.note(&header),
                    None => self.damage(chunk_start, "the chunk has a message without header"),
                },
                Step::Record(place) => self.definition(walk, place, &mut tally.definitions)?,
                Step::End => return Ok(tally),
                Step::Cut(_) | Step::NoRecord(_) => {
                    self.damage(chunk_start, "the chunk ends in the middle of a record");
                    return Ok(tally);
                }
            }
        }
    }
}
