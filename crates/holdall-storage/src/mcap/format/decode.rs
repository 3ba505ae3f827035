//! Reads MCAP records from memory, never past its end.

use super::{
    Attachment, AttachmentIndex, Channel, ChunkHeader, ChunkIndex, Footer, FormatError, Header,
    INDEX_ENTRY_BYTES, MessageHeader, MessageIndex, Metadata, MetadataIndex, Record, Schema, Statistics,
    StringMap, SummaryOffset, op,
};

/// A cursor over the bytes of one body.
#[derive(Clone, Copy, Debug)]
pub struct Fields<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Fields<'a> {
    /// Starts at the first byte.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Offset of the next byte.
    pub const fn position(&self) -> usize {
        self.at
    }

    /// The next `count` bytes; `what` names them in errors.
    ///
    /// # Errors
    /// Fewer bytes are left.
    pub fn take(&mut self, count: usize, what: &str) -> Result<&'a [u8], FormatError> {
        let left = self.bytes.len() - self.at;
        if count > left {
            return Err(FormatError {
                offset: self.at,
                expected: format!("{count} bytes of {what}"),
                found: format!("{left} bytes"),
            });
        }
        let taken = &self.bytes[self.at..self.at + count];
        self.at += count;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N], FormatError> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N, what)?);
        Ok(array)
    }

    pub(super) fn u8(&mut self, what: &str) -> Result<u8, FormatError> {
        Ok(self.array::<1>(what)?[0])
    }

    fn u16(&mut self, what: &str) -> Result<u16, FormatError> {
        Ok(u16::from_le_bytes(self.array(what)?))
    }

    pub(super) fn u32(&mut self, what: &str) -> Result<u32, FormatError> {
        Ok(u32::from_le_bytes(self.array(what)?))
    }

    pub(super) fn u64(&mut self, what: &str) -> Result<u64, FormatError> {
        Ok(u64::from_le_bytes(self.array(what)?))
    }

    fn sized(&mut self, what: &str) -> Result<&'a [u8], FormatError> {
        let count = self.u32(what)?;
        self.take(usize::try_from(count).unwrap_or(usize::MAX), what)
    }

    fn sized64(&mut self, what: &str) -> Result<&'a [u8], FormatError> {
        let count = self.u64(what)?;
        self.take(usize::try_from(count).unwrap_or(usize::MAX), what)
    }

    fn str(&mut self, what: &str) -> Result<&'a str, FormatError> {
        let at = self.at;
        std::str::from_utf8(self.sized(what)?).map_err(|error| FormatError {
            offset: at,
            expected: format!("UTF-8 text as {what}"),
            found: error.to_string(),
        })
    }

    fn map(&mut self, what: &str) -> Result<StringMap, FormatError> {
        let mut inner = Fields::new(self.sized(what)?);
        let mut map = StringMap::new();
        while inner.at < inner.bytes.len() {
            let (key, value) = (inner.str(what)?, inner.str(what)?);
            map.insert(key.to_owned(), value.to_owned());
        }
        Ok(map)
    }

    /// The fields of an attachment record before its data, as an index entry without offset and length.
    pub(crate) fn attachment_head(fields: &mut Self) -> Result<AttachmentIndex, FormatError> {
        fields.take(9, "record")?;
        Ok(AttachmentIndex {
            log_time: fields.u64("log time")?,
            create_time: fields.u64("create time")?,
            name: fields.str("attachment name")?.into(),
            media_type: fields.str("media type")?.into(),
            data_size: fields.u64("data size")?,
            ..AttachmentIndex::default()
        })
    }

    /// Pairs of a number and a value.
    fn ids<C: Default + Extend<(u16, u64)>>(&mut self, what: &str) -> Result<C, FormatError> {
        const PAIR_BYTES: usize = 10;
        let bytes = self.sized(what)?;
        let mut pairs = C::default();
        let (whole, rest) = bytes.as_chunks::<PAIR_BYTES>();
        pairs.extend(
            whole
                .iter()
                .map(|[a, b, value @ ..]| (u16::from_le_bytes([*a, *b]), u64::from_le_bytes(*value))),
        );
        if !rest.is_empty() {
            let mut cut = Fields::new(rest);
            cut.u16(what)?;
            cut.u64(what)?;
        }
        Ok(pairs)
    }

    /// The bytes that are left.
    pub fn rest(self) -> &'a [u8] {
        &self.bytes[self.at..]
    }
}

impl MessageHeader {
    /// Reads the 22 bytes before a payload.
    ///
    /// # Errors
    /// Too few bytes.
    pub fn decode(fields: &mut Fields<'_>) -> Result<Self, FormatError> {
        Ok(Self {
            channel_id: fields.u16("channel id")?,
            sequence: fields.u32("sequence")?,
            log_time: fields.u64("log time")?,
            publish_time: fields.u64("publish time")?,
        })
    }
}

impl<'a> ChunkHeader<'a> {
    /// Reads all fields before the records; the cursor is at the records afterwards.
    ///
    /// # Errors
    /// Too few bytes, or a compression that is not UTF-8.
    pub fn decode(fields: &mut Fields<'a>) -> Result<Self, FormatError> {
        Ok(Self {
            message_start_time: fields.u64("message start time")?,
            message_end_time: fields.u64("message end time")?,
            uncompressed_size: fields.u64("uncompressed size")?,
            uncompressed_crc: fields.u32("uncompressed crc")?,
            compression: fields.str("compression")?.into(),
            compressed_size: fields.u64("records length")?,
        })
    }
}

impl<Offsets: Default + Extend<(u16, u64)>> ChunkIndex<Offsets> {
    /// Decodes a body.
    ///
    /// # Errors
    /// Too few bytes, or a compression that is not UTF-8.
    pub fn decode(body: &[u8]) -> Result<Self, FormatError> {
        Self::read(&mut Fields::new(body))
    }

    fn read(f: &mut Fields<'_>) -> Result<Self, FormatError> {
        Ok(Self {
            message_start_time: f.u64("message start time")?,
            message_end_time: f.u64("message end time")?,
            chunk_start_offset: f.u64("chunk start offset")?,
            chunk_length: f.u64("chunk length")?,
            message_index_offsets: f.ids("message index offsets")?,
            message_index_length: f.u64("message index length")?,
            compression: f.str("compression")?.into(),
            compressed_size: f.u64("compressed size")?,
            uncompressed_size: f.u64("uncompressed size")?,
        })
    }
}

impl<'a> Record<'a> {
    /// Decodes a body.
    ///
    /// # Errors
    /// Too few bytes for the kind, or text that is not UTF-8.
    pub fn decode(opcode: u8, body: &'a [u8]) -> Result<Self, FormatError> {
        let f = &mut Fields::new(body);
        Ok(match opcode {
            op::HEADER => Self::Header(Header {
                profile: f.str("profile")?.into(),
                library: f.str("library")?.into(),
            }),
            op::FOOTER => Self::Footer(Footer {
                summary_start: f.u64("summary start")?,
                summary_offset_start: f.u64("summary offset start")?,
                summary_crc: f.u32("summary crc")?,
            }),
            op::SCHEMA => Self::Schema(Schema {
                id: f.u16("schema id")?,
                name: f.str("schema name")?.into(),
                encoding: f.str("schema encoding")?.into(),
                data: f.sized("schema data")?.into(),
            }),
            op::CHANNEL => Self::Channel(Channel {
                id: f.u16("channel id")?,
                schema_id: f.u16("schema id")?,
                topic: f.str("topic")?.into(),
                message_encoding: f.str("message encoding")?.into(),
                metadata: f.map("channel metadata")?,
            }),
            op::MESSAGE => {
                let header = MessageHeader::decode(f)?;
                Self::Message(header, f.rest())
            }
            op::CHUNK => {
                let header = ChunkHeader::decode(f)?;
                let count = usize::try_from(header.compressed_size).unwrap_or(usize::MAX);
                Self::Chunk(header, f.take(count, "chunk records")?)
            }
            op::MESSAGE_INDEX => Self::MessageIndex(Self::message_index(f)?),
            op::CHUNK_INDEX => Self::ChunkIndex(ChunkIndex::read(f)?),
            op::ATTACHMENT => Self::Attachment(Self::attachment(f)?),
            op::ATTACHMENT_INDEX => Self::AttachmentIndex(AttachmentIndex {
                offset: f.u64("attachment offset")?,
                length: f.u64("attachment length")?,
                log_time: f.u64("log time")?,
                create_time: f.u64("create time")?,
                data_size: f.u64("data size")?,
                name: f.str("attachment name")?.into(),
                media_type: f.str("media type")?.into(),
            }),
            op::STATISTICS => Self::Statistics(Self::statistics(f)?),
            op::METADATA => Self::Metadata(Metadata {
                name: f.str("metadata name")?.into(),
                metadata: f.map("metadata")?,
            }),
            op::METADATA_INDEX => Self::MetadataIndex(MetadataIndex {
                offset: f.u64("metadata offset")?,
                length: f.u64("metadata length")?,
                name: f.str("metadata name")?.into(),
            }),
            op::SUMMARY_OFFSET => Self::SummaryOffset(SummaryOffset {
                group_opcode: f.u8("group opcode")?,
                group_start: f.u64("group start")?,
                group_length: f.u64("group length")?,
            }),
            op::DATA_END => Self::DataEnd(f.u32("data section crc")?),
            other => Self::Unknown(other),
        })
    }

    fn message_index(f: &mut Fields<'a>) -> Result<MessageIndex, FormatError> {
        let channel_id = f.u16("channel id")?;
        let mut inner = Fields::new(f.sized("message index")?);
        let mut entries = Vec::with_capacity(inner.bytes.len() / INDEX_ENTRY_BYTES);
        while inner.at < inner.bytes.len() {
            entries.push((inner.u64("log time")?, inner.u64("message offset")?));
        }
        Ok(MessageIndex { channel_id, entries })
    }

    fn attachment(f: &mut Fields<'a>) -> Result<Attachment<'a>, FormatError> {
        Ok(Attachment {
            log_time: f.u64("log time")?,
            create_time: f.u64("create time")?,
            name: f.str("attachment name")?.into(),
            media_type: f.str("media type")?.into(),
            data: f.sized64("attachment data")?.into(),
            crc: f.u32("attachment crc")?,
        })
    }

    fn statistics(f: &mut Fields<'a>) -> Result<Statistics, FormatError> {
        Ok(Statistics {
            message_count: f.u64("message count")?,
            schema_count: f.u16("schema count")?,
            channel_count: f.u32("channel count")?,
            attachment_count: f.u32("attachment count")?,
            metadata_count: f.u32("metadata count")?,
            chunk_count: f.u32("chunk count")?,
            message_start_time: f.u64("message start time")?,
            message_end_time: f.u64("message end time")?,
            channel_message_counts: f.ids("channel message counts")?,
        })
    }
}

/// A record whose body is not parsed yet: opcode and body.
pub(crate) type RawRecord<'a> = (u8, &'a [u8]);

/// Opcode and length of the body of the record that begins with these bytes; `None` if they are too few.
#[inline]
pub(crate) fn record_prefix(bytes: &[u8]) -> Option<(u8, u64)> {
    let (opcode, rest) = bytes.split_first()?;
    Some((*opcode, u64::from_le_bytes(*rest.first_chunk()?)))
}

/// Channel and entries of a message index; `None` if they are not as long as it says.
pub(crate) fn index_entries(body: &[u8]) -> Option<(u16, &[u8])> {
    let (id, rest) = body.split_first_chunk()?;
    let (listed, entries) = rest.split_first_chunk()?;
    let is_whole = u32::from_le_bytes(*listed) as usize == entries.len()
        && entries.len().is_multiple_of(INDEX_ENTRY_BYTES);
    is_whole.then_some((u16::from_le_bytes(*id), entries))
}

/// Takes the next record from the front of `bytes`; `None` at the end.
///
/// # Errors
/// The record is cut off.
pub fn take_record<'a>(bytes: &mut &'a [u8]) -> Result<Option<RawRecord<'a>>, FormatError> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let fields = &mut Fields::new(bytes);
    let opcode = fields.u8("opcode")?;
    let body = fields.sized64("record")?;
    *bytes = fields.rest();
    Ok(Some((opcode, body)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn numbers_and_values_are_a_list_or_a_map_and_a_cut_pair_is_an_error() {
        let pairs = [(7_u16, 1_u64), (3, 2), (7, 3)];
        let mut bytes = 30_u32.to_le_bytes().to_vec();
        for (id, value) in pairs {
            bytes.extend(id.to_le_bytes());
            bytes.extend(value.to_le_bytes());
        }
        let list: Vec<(u16, u64)> = Fields::new(&bytes).ids("x").unwrap();
        assert_eq!(list, pairs);
        let map: BTreeMap<u16, u64> = Fields::new(&bytes).ids("x").unwrap();
        assert_eq!(map, BTreeMap::from([(3, 2), (7, 3)]));
        for cut in 1..10 {
            let mut bytes = bytes[..bytes.len() - cut].to_vec();
            bytes[0] = 30 - cut as u8;
            assert!(Fields::new(&bytes).ids::<Vec<_>>("x").is_err(), "{cut}");
        }
    }
}
