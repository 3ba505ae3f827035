//! Writes MCAP records into memory.

use super::{
    AttachmentIndex, Channel, ChunkHeader, ChunkIndex, Footer, Header, MESSAGE_HEADER_BYTES,
    MESSAGE_PREFIX_BYTES, MessageHeader, MetadataIndex, RECORD_PREFIX_BYTES, Schema, Statistics, StringMap,
    SummaryOffset, op,
};

fn put_u16(out: &mut Vec<u8>, value: u16) {
    out.extend_from_slice(&value.to_le_bytes());
}

fn put_u32(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_le_bytes());
}

fn put_u64(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&value.to_le_bytes());
}

/// A text or array with its 32-bit length, cut at 4 GiB: the format cannot express more.
fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    put_u32(out, len);
    out.extend_from_slice(&bytes[..len as usize]);
}

fn put_str(out: &mut Vec<u8>, text: &str) {
    put_bytes(out, text.as_bytes());
}

fn put_sized(out: &mut Vec<u8>, fill: impl FnOnce(&mut Vec<u8>)) {
    let at = out.len();
    put_u32(out, 0);
    fill(out);
    let len = u32::try_from(out.len() - at - 4).unwrap_or(u32::MAX);
    out[at..at + 4].copy_from_slice(&len.to_le_bytes());
}

fn put_map(out: &mut Vec<u8>, map: &StringMap) {
    put_sized(out, |out| {
        for (key, value) in map {
            put_str(out, key);
            put_str(out, value);
        }
    });
}

/// Appends a record: opcode, length, and the body that `fill` appends.
pub fn put_record(out: &mut Vec<u8>, opcode: u8, fill: impl FnOnce(&mut Vec<u8>)) {
    out.push(opcode);
    let at = out.len();
    put_u64(out, 0);
    fill(out);
    let len = (out.len() - at - 8) as u64;
    out[at..at + 8].copy_from_slice(&len.to_le_bytes());
}

/// The 31 bytes of a message record before its payload.
#[inline]
pub(crate) fn message_prefix(header: &MessageHeader, payload_bytes: usize) -> [u8; MESSAGE_PREFIX_BYTES] {
    let mut bytes = [0u8; MESSAGE_PREFIX_BYTES];
    bytes[0] = op::MESSAGE;
    bytes[1..9].copy_from_slice(&((MESSAGE_HEADER_BYTES + payload_bytes) as u64).to_le_bytes());
    bytes[9..11].copy_from_slice(&header.channel_id.to_le_bytes());
    bytes[11..15].copy_from_slice(&header.sequence.to_le_bytes());
    bytes[15..23].copy_from_slice(&header.log_time.to_le_bytes());
    bytes[23..31].copy_from_slice(&header.publish_time.to_le_bytes());
    bytes
}

impl Header {
    /// Appends the record.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_record(out, op::HEADER, |out| {
            put_str(out, &self.profile);
            put_str(out, &self.library);
        });
    }
}

impl Footer {
    /// Appends the record without its last field, the checksum that also covers these bytes.
    pub fn encode_without_crc(&self, out: &mut Vec<u8>) {
        out.push(op::FOOTER);
        put_u64(out, 20);
        put_u64(out, self.summary_start);
        put_u64(out, self.summary_offset_start);
    }
}

impl Schema<'_> {
    /// Appends the record.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_record(out, op::SCHEMA, |out| {
            put_u16(out, self.id);
            put_str(out, &self.name);
            put_str(out, &self.encoding);
            put_bytes(out, &self.data);
        });
    }
}

impl Channel {
    /// Appends the record.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_record(out, op::CHANNEL, |out| {
            put_u16(out, self.id);
            put_u16(out, self.schema_id);
            put_str(out, &self.topic);
            put_str(out, &self.message_encoding);
            put_map(out, &self.metadata);
        });
    }
}

impl ChunkIndex {
    /// Appends the record; the channels' offsets come from `offsets`, in channel order.
    pub fn encode(&self, out: &mut Vec<u8>, offsets: impl Iterator<Item = (u16, u64)>) {
        put_record(out, op::CHUNK_INDEX, |out| {
            put_u64(out, self.message_start_time);
            put_u64(out, self.message_end_time);
            put_u64(out, self.chunk_start_offset);
            put_u64(out, self.chunk_length);
            put_sized(out, |out| {
                // In one piece: there may be one for each message.
                for (channel_id, offset) in offsets {
                    let mut entry = [0; 10];
                    entry[..2].copy_from_slice(&channel_id.to_le_bytes());
                    entry[2..].copy_from_slice(&offset.to_le_bytes());
                    out.extend_from_slice(&entry);
                }
            });
            put_u64(out, self.message_index_length);
            put_str(out, &self.compression);
            put_u64(out, self.compressed_size);
            put_u64(out, self.uncompressed_size);
        });
    }
}

/// Appends the message index of one channel of a chunk: log time and offset of each message.
pub(crate) fn encode_message_index(out: &mut Vec<u8>, channel_id: u16, entries: &[(u64, u64)]) {
    put_record(out, op::MESSAGE_INDEX, |out| {
        put_u16(out, channel_id);
        put_sized(out, |out| {
            for (time, offset) in entries {
                put_u64(out, *time);
                put_u64(out, *offset);
            }
        });
    });
}

impl AttachmentIndex {
    /// Appends the beginning of the attachment record itself; the caller appends its data and a checksum of four bytes.
    pub(crate) fn encode_head(&self, out: &mut Vec<u8>) {
        let at = out.len();
        put_record(out, op::ATTACHMENT, |out| {
            put_u64(out, self.log_time);
            put_u64(out, self.create_time);
            put_str(out, &self.name);
            put_str(out, &self.media_type);
            put_u64(out, self.data_size);
        });
        let body = (out.len() - at - RECORD_PREFIX_BYTES) as u64 + self.data_size + 4;
        out[at + 1..at + RECORD_PREFIX_BYTES].copy_from_slice(&body.to_le_bytes());
    }

    /// Appends the record.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_record(out, op::ATTACHMENT_INDEX, |out| {
            put_u64(out, self.offset);
            put_u64(out, self.length);
            put_u64(out, self.log_time);
            put_u64(out, self.create_time);
            put_u64(out, self.data_size);
            put_str(out, &self.name);
            put_str(out, &self.media_type);
        });
    }
}

impl Statistics {
    /// Appends the record.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_record(out, op::STATISTICS, |out| {
            put_u64(out, self.message_count);
            put_u16(out, self.schema_count);
            put_u32(out, self.channel_count);
            put_u32(out, self.attachment_count);
            put_u32(out, self.metadata_count);
            put_u32(out, self.chunk_count);
            put_u64(out, self.message_start_time);
            put_u64(out, self.message_end_time);
            put_sized(out, |out| {
                for (channel_id, count) in &self.channel_message_counts {
                    put_u16(out, *channel_id);
                    put_u64(out, *count);
                }
            });
        });
    }
}

/// Appends a metadata record.
pub fn encode_metadata(out: &mut Vec<u8>, name: &str, metadata: &StringMap) {
    put_record(out, op::METADATA, |out| {
        put_str(out, name);
        put_map(out, metadata);
    });
}

impl MetadataIndex {
    /// Appends the record.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_record(out, op::METADATA_INDEX, |out| {
            put_u64(out, self.offset);
            put_u64(out, self.length);
            put_str(out, &self.name);
        });
    }
}

/// The metadata indexes of a summary.
#[derive(Default)]
pub(crate) struct MetadataIndexes {
    /// As records.
    pub records: Vec<u8>,
    pub count: u32,
}

impl MetadataIndexes {
    /// Adds a metadata record.
    pub fn note(&mut self, offset: u64, length: u64, name: &str) {
        self.count += 1;
        MetadataIndex {
            offset,
            length,
            name: name.to_owned(),
        }
        .encode(&mut self.records);
    }
}

impl SummaryOffset {
    /// Appends the record of a group between two offsets of the file, unless it is empty.
    pub fn encode_group(group_opcode: u8, start: u64, end: u64, out: &mut Vec<u8>) {
        if end > start {
            Self {
                group_opcode,
                group_start: start,
                group_length: end - start,
            }
            .encode(out);
        }
    }

    /// Appends the record.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_record(out, op::SUMMARY_OFFSET, |out| {
            out.push(self.group_opcode);
            put_u64(out, self.group_start);
            put_u64(out, self.group_length);
        });
    }
}

/// Appends a data end record.
pub fn encode_data_end(out: &mut Vec<u8>, data_section_crc: u32) {
    put_record(out, op::DATA_END, |out| put_u32(out, data_section_crc));
}

impl ChunkHeader<'_> {
    /// Length of the record before the content of its records field.
    pub(crate) fn prefix_bytes(&self) -> usize {
        RECORD_PREFIX_BYTES + 8 + 8 + 8 + 4 + 4 + self.compression.len() + 8
    }

    /// Writes opcode, length and every field before the records.
    pub fn encode_prefix(&self, out: &mut Vec<u8>) {
        out.push(op::CHUNK);
        let body_bytes = (self.prefix_bytes() - RECORD_PREFIX_BYTES) as u64 + self.compressed_size;
        put_u64(out, body_bytes);
        put_u64(out, self.message_start_time);
        put_u64(out, self.message_end_time);
        put_u64(out, self.uncompressed_size);
        put_u32(out, self.uncompressed_crc);
        put_str(out, &self.compression);
        put_u64(out, self.compressed_size);
    }
}
