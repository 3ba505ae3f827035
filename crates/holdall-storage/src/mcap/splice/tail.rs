//! The records after the chunks of a spliced file, collected while they are written, and the data checksum.

use super::Numbers;
use crate::{
    chunks::NewAttachment,
    error::StorageResult,
    mcap::{
        format::{
            AttachmentIndex, ChunkIndex, FOOTER_AND_MAGIC_BYTES, Footer, MAGIC, MetadataIndexes,
            RECORD_PREFIX_BYTES, Statistics, SummaryOffset, encode_data_end, op,
        },
        reader::source::Source,
    },
};
use holdall_io::output::OutputFile;
use holdall_model::time::Timestamp;
use std::collections::BTreeMap;

/// Bytes of a new attachment read at once.
const BLOCK_BYTES: u64 = 1 << 20;

/// The end of the file while it is being collected.
#[derive(Default)]
pub(super) struct Tail {
    /// Number of messages by channel number.
    pub counts: BTreeMap<u16, u64>,
    /// Smallest and largest log time.
    pub times: Option<(u64, u64)>,
    /// Running checksum; `None` once bytes with an unknown checksum were copied.
    crc: Crc,
    chunk_indexes: Vec<u8>,
    chunk_count: u32,
    pub metadata: MetadataIndexes,
    attachments: Vec<u8>,
    attachment_count: u32,
}

/// A checksum that is lost when bytes are copied unread.
#[derive(Clone, Default)]
enum Crc {
    #[default]
    Empty,
    Known(crc32fast::Hasher),
    Lost,
}

impl Tail {
    /// Appends bytes of the data section.
    pub fn put(&mut self, out: &mut OutputFile<'_>, bytes: &[u8]) -> StorageResult<()> {
        self.sum(bytes);
        Ok(out.append(bytes)?)
    }

    /// Adds copied bytes to the checksum.
    pub fn sum(&mut self, bytes: &[u8]) {
        if matches!(self.crc, Crc::Empty) {
            self.crc = Crc::Known(crc32fast::Hasher::new());
        }
        if let Crc::Known(crc) = &mut self.crc {
            crc.update(bytes);
        }
    }

    /// Adds bytes by the checksum that their file states for them; `None` when it states none.
    ///
    /// If these bytes are damaged, the checksum of the whole does not match either: damage stays detectable.
    pub(crate) fn sum_known(&mut self, crc: Option<u32>, count: u64) {
        match (&mut self.crc, crc) {
            (Crc::Known(all), Some(crc)) => {
                all.combine(&crc32fast::Hasher::new_with_initial_len(crc, count));
            }
            _ => self.crc = Crc::Lost,
        }
    }

    /// Adds a chunk to the index.
    pub(crate) fn note_chunk(&mut self, index: &ChunkIndex, counts: impl Iterator<Item = (u16, u64)>) {
        index.encode(
            &mut self.chunk_indexes,
            index
                .message_index_offsets
                .iter()
                .map(|(id, offset)| (*id, *offset)),
        );
        self.chunk_count += 1;
        let mut messages = 0;
        for (id, count) in counts {
            *self.counts.entry(id).or_default() += count;
            messages += count;
        }
        if messages > 0 {
            let (start, end) = (index.message_start_time, index.message_end_time);
            let known = self.times.unwrap_or((start, end));
            self.times = Some((known.0.min(start), known.1.max(end)));
        }
    }

    /// Copies an attachment record.
    pub fn attachment(
        &mut self,
        out: &mut OutputFile<'_>,
        source: &Source,
        found: AttachmentIndex,
    ) -> StorageResult<()> {
        let (start, length) = (found.offset, found.length);
        self.note_attachment(AttachmentIndex {
            offset: out.len_bytes(),
            ..found
        });
        self.sum_known(None, length);
        match source.as_file() {
            Some(file) => Ok(out.append_from(file, start, length)?),
            None => Ok(out.append(&source.read(start, length, "attachment")?)?),
        }
    }

    /// Appends a file as an attachment record with a checksum. It is read block by block.
    pub fn new_attachment(&mut self, out: &mut OutputFile<'_>, new: &NewAttachment<'_>) -> StorageResult<()> {
        let mut head = Vec::new();
        let mut index = AttachmentIndex {
            offset: out.len_bytes(),
            log_time: unsigned(new.log_time),
            create_time: new.create_time.map_or(0, unsigned),
            data_size: new.bytes,
            name: new.name.to_owned(),
            media_type: new.media_type.to_owned(),
            ..AttachmentIndex::default()
        };
        index.encode_head(&mut head);
        self.put(out, &head)?;
        let mut crc = crc32fast::Hasher::new();
        crc.update(&head[RECORD_PREFIX_BYTES..]);
        let mut at = 0;
        while at < new.bytes {
            let count = (new.bytes - at).min(BLOCK_BYTES);
            // At most a block.
            let block = new.file.read_bytes_at(new.offset + at, count as usize)?;
            crc.update(&block);
            self.put(out, &block)?;
            at += count;
        }
        self.put(out, &crc.finalize().to_le_bytes())?;
        index.length = out.len_bytes() - index.offset;
        self.note_attachment(index);
        Ok(())
    }

    fn note_attachment(&mut self, index: AttachmentIndex) {
        index.encode(&mut self.attachments);
        self.attachment_count += 1;
    }

    /// Writes the data end record, the summary and the footer.
    pub fn finish(self, out: &mut OutputFile<'_>, numbers: &Numbers) -> StorageResult<()> {
        let crc = match &self.crc {
            Crc::Known(crc) => crc.clone().finalize(),
            Crc::Empty | Crc::Lost => 0,
        };
        let mut data_end = Vec::new();
        encode_data_end(&mut data_end, crc);
        out.append(&data_end)?;
        let start = out.len_bytes();
        let mut statistics = Vec::new();
        self.statistics(numbers).encode(&mut statistics);
        let groups: [(u8, &[u8]); 6] = [
            (op::SCHEMA, &numbers.schemas),
            (op::CHANNEL, &numbers.channels),
            (op::STATISTICS, &statistics),
            (op::CHUNK_INDEX, &self.chunk_indexes),
            (op::ATTACHMENT_INDEX, &self.attachments),
            (op::METADATA_INDEX, &self.metadata.records),
        ];
        let mut crc = crc32fast::Hasher::new();
        let mut offsets = Vec::new();
        for (group_opcode, records) in groups.into_iter().filter(|(_, records)| !records.is_empty()) {
            let group_start = out.len_bytes();
            let group_end = group_start + records.len() as u64;
            SummaryOffset::encode_group(group_opcode, group_start, group_end, &mut offsets);
            crc.update(records);
            out.append(records)?;
        }
        let footer = Footer {
            summary_start: start,
            summary_offset_start: out.len_bytes(),
            summary_crc: 0,
        };
        let mut end = Vec::with_capacity(offsets.len() + FOOTER_AND_MAGIC_BYTES);
        end.append(&mut offsets);
        footer.encode_without_crc(&mut end);
        crc.update(&end);
        end.extend_from_slice(&crc.finalize().to_le_bytes());
        end.extend_from_slice(&MAGIC);
        Ok(out.append(&end)?)
    }

    fn statistics(&self, numbers: &Numbers) -> Statistics {
        let times = self.times.unwrap_or((0, 0));
        Statistics {
            message_count: self.counts.values().sum(),
            schema_count: numbers.schema_count,
            channel_count: numbers.channel_count,
            attachment_count: self.attachment_count,
            metadata_count: self.metadata.count,
            chunk_count: self.chunk_count,
            message_start_time: times.0,
            message_end_time: times.1,
            channel_message_counts: self.counts.clone(),
        }
    }
}

fn unsigned(time: Timestamp) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or_default()
}
