//! Records of the data section other than chunks.

use super::{EXTENT_BYTES, Recent, Scan, Scanner, Tally};
use crate::{
    error::StorageResult,
    mcap::{
        format::{ChunkIndex, MetadataIndex, Record, op},
        reader::{
            index::{Definitions, Extent, ExtentKind},
            walk::{RecordPlace, Walk},
        },
    },
};

impl Scanner<'_> {
    /// A record of the data section other than a chunk.
    pub(super) fn bare(&mut self, walk: &mut Walk<'_>, place: RecordPlace) -> StorageResult<()> {
        match place.opcode {
            op::MESSAGE => self.bare_message(walk, &place)?,
            op::ATTACHMENT => self
                .found
                .attachments
                .push((place.start, place.end() - place.start)),
            op::METADATA => self.metadata(walk, &place)?,
            op::MESSAGE_INDEX => self.message_index(walk, place)?,
            op::CHECKPOINT => self.unidentified.add_checkpoint(self.blocks, walk, place)?,
            _ => self.bare_definition(walk, place)?,
        }
        Ok(())
    }

    pub(super) fn bare_message(&mut self, walk: &mut Walk<'_>, place: &RecordPlace) -> StorageResult<()> {
        let Some(header) = walk.message_header(place)? else {
            let reason = "expected a message, found fewer bytes than its header has";
            self.found.tear("message", place.start, reason);
            return Ok(());
        };
        // A message that may not be identifiable has its own extent, so that no other is dropped with it.
        let is_known = self.found.definitions.channels.contains_key(&header.channel_id);
        if !is_known {
            self.close_records();
        }
        let (extent, tally) = self.open.get_or_insert_with(|| {
            let extent = Extent {
                start: place.start,
                kind: ExtentKind::Records,
                ..Extent::default()
            };
            (extent, Tally::default())
        });
        tally.note(&header);
        extent.length = place.end() - extent.start;
        if extent.length >= EXTENT_BYTES || !is_known {
            self.close_records();
        }
        Ok(())
    }

    pub(super) fn metadata(&mut self, walk: &mut Walk<'_>, place: &RecordPlace) -> StorageResult<()> {
        if self.is_holed(place)? {
            return Ok(());
        }
        let body = walk.body(place)?;
        match Record::decode(place.opcode, &body) {
            Ok(Record::Metadata(metadata)) => {
                self.found.structure.metadata.push(MetadataIndex {
                    offset: place.start,
                    length: place.end() - place.start,
                    name: metadata.name.clone(),
                });
                self.found.metadata.push((metadata.name, metadata.metadata));
            }
            Ok(_) => {}
            Err(error) => self.found.tear("record", place.start, error.to_string()),
        }
        Ok(())
    }

    /// Whether a part of a record that describes messages never reached the disk. The record is dropped then.
    pub(super) fn is_holed(&mut self, place: &RecordPlace) -> StorageResult<bool> {
        let is_holed = self.blocks.lacks_part_of(place)?;
        if is_holed {
            let reason = "a part of this record never reached the disk";
            self.found.tear("record", place.start, reason);
        }
        Ok(is_holed)
    }

    /// Notes the place of a channel's index of the preceding chunk.
    pub(super) fn message_index(&mut self, walk: &mut Walk<'_>, place: RecordPlace) -> StorageResult<()> {
        if self.is_holed(&place)? {
            return Ok(());
        }
        let is_behind = |chunk: &ChunkIndex| {
            chunk.chunk_start_offset + chunk.chunk_length + chunk.message_index_length == place.start
        };
        let last = self.found.structure.chunks.last_entry();
        match (last, &walk.peek(place.body_start(), place.body_bytes.min(2))?[..]) {
            (Some(mut chunk), &[low, high]) if is_behind(chunk.get()) => {
                let (chunk, channel) = (chunk.get_mut(), u16::from_le_bytes([low, high]));
                chunk.message_index_offsets.insert(channel, place.start);
                chunk.message_index_length += place.end() - place.start;
            }
            // Its chunk is torn, or an index between.
            _ if !self.blocks.has_end() => {
                let reason = "expected a chunk before its message index, found none";
                self.found.tear("record", place.start, reason);
            }
            _ => self.found.structure.orphans.push(place.start),
        }
        Ok(())
    }

    pub(super) fn bare_definition(&mut self, walk: &mut Walk<'_>, place: RecordPlace) -> StorageResult<()> {
        let is_one = place.opcode == op::SCHEMA || place.opcode == op::CHANNEL;
        if !is_one || self.is_holed(&place)? {
            return Ok(());
        }
        let mut tally = Tally::default();
        self.found.definition(walk, place, &mut tally.definitions)?;
        let known = &self.found.definitions;
        if tally.definitions.channels.values().all(|it| known.has_schema(it)) {
            self.found.definitions.add(tally.definitions);
            return Ok(());
        }
        // Its schema may be in a chunk that is not yet applied.
        self.close_records();
        let extent = Extent {
            start: place.start,
            length: place.end() - place.start,
            ..Extent::default()
        };
        self.note_recent(Recent {
            extent,
            tally,
            unchecked: None,
        });
        Ok(())
    }
}

impl Scan {
    pub(super) fn definition(
        &mut self,
        walk: &mut Walk<'_>,
        place: RecordPlace,
        definitions: &mut Definitions,
    ) -> StorageResult<()> {
        if place.opcode != op::SCHEMA && place.opcode != op::CHANNEL {
            return Ok(());
        }
        let body = walk.body(&place)?;
        match Record::decode(place.opcode, &body) {
            Ok(Record::Schema(schema)) => definitions.add_schema(&schema),
            Ok(Record::Channel(channel)) => definitions.add_channel(channel),
            Ok(_) => {}
            Err(error) => self.damage(place.start, error.to_string()),
        }
        Ok(())
    }
}
