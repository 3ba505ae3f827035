//! Reads a file's summary: a short one whole, of a long one only the parts that describe the file.

use super::{
    index::Definitions,
    source::Source,
    walk::{Step, Walk},
};
use crate::{
    error::{StorageError, StorageResult},
    mcap::{
        format::{
            FOOTER_AND_MAGIC_BYTES, Footer, Header, MAGIC, MetadataIndex, RECORD_PREFIX_BYTES, Record,
            Statistics, SummaryOffset, op, take_record,
        },
        options::STORAGE_ID,
    },
    writer::MetadataEntries,
};
use bytes::Bytes;

/// A summary up to this length is read whole and its checksum verified; of a longer one only the needed parts
/// are read.
const SUMMARY_WHOLE_BYTES_MAX: u64 = 512 << 10;
/// Metadata records after the messages are usually within [`RECORDS_BEFORE_BYTES`] before the summary, and the first chunk index
/// within [`FIRST_INDEX_BYTES`].
const RECORDS_BEFORE_BYTES: u64 = 64 << 10;
const FIRST_INDEX_BYTES: u64 = 4 << 10;
/// Longest summary and longest metadata record that are read.
const SECTION_BYTES_MAX: u64 = 2 << 30;

/// A range of bytes of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Section {
    pub start: u64,
    pub length: u64,
}

/// Content of the summary.
#[derive(Default)]
pub(super) struct Parsed {
    pub definitions: Definitions,
    pub statistics: Option<Statistics>,
    pub metadata: Vec<MetadataIndex>,
    /// Offset and length of each attachment record.
    pub attachments: Vec<(u64, u64)>,
    pub chunk_indexes: Option<Section>,
    pub compression: Option<String>,
}

/// Checks the magic and reads the header record; empty for a file that is cut inside its header.
pub(crate) fn read_header(source: &Source) -> StorageResult<Header> {
    let begin = source.read_up_to(0, MAGIC.len() as u64)?;
    if begin[..] != MAGIC {
        let found = if begin.is_empty() {
            "an empty file".to_owned()
        } else {
            format!("{:02x?}", &begin[..])
        };
        return Err(StorageError::WrongFormat {
            path: source.path().to_owned(),
            storage: STORAGE_ID,
            expected: format!("{MAGIC:02x?}"),
            found,
        });
    }
    let mut walk = Walk::new(source, MAGIC.len() as u64, source.len()).sparse();
    if let Step::Record(place) = walk.step()?
        && place.opcode == op::HEADER
        && let Ok(Record::Header(header)) = Record::decode(op::HEADER, &walk.body(&place)?)
    {
        return Ok(header);
    }
    Ok(Header::default())
}

/// The bytes of the footer and the magic after it, and their offset; `None` when the file does not end with
/// them.
fn footer_bytes(source: &Source) -> StorageResult<Option<(Bytes, u64)>> {
    let footer_start = source
        .len()
        .saturating_sub(FOOTER_AND_MAGIC_BYTES as u64)
        .max(MAGIC.len() as u64);
    let end = source.read_up_to(footer_start, FOOTER_AND_MAGIC_BYTES as u64)?;
    let prefix: [u8; RECORD_PREFIX_BYTES] = [op::FOOTER, 20, 0, 0, 0, 0, 0, 0, 0];
    let is_one = end.len() == FOOTER_AND_MAGIC_BYTES && end.ends_with(&MAGIC) && end.starts_with(&prefix);
    Ok(is_one.then_some((end, footer_start)))
}

/// Whether the file ends with a footer, that is, was closed.
pub(crate) fn has_footer(source: &Source) -> StorageResult<bool> {
    Ok(footer_bytes(source)?.is_some())
}

/// The summary; `None` when the footer states that the file has none.
pub(super) fn read_summary(source: &Source) -> StorageResult<Option<Parsed>> {
    let Some((end, footer_start)) = footer_bytes(source)? else {
        return Err(source.malformed(
            source.len(),
            "the end of an MCAP file",
            "a file that was cut off or not closed",
        ));
    };
    let body = &end[RECORD_PREFIX_BYTES..];
    let Record::Footer(footer) =
        Record::decode(op::FOOTER, body).map_err(|error| source.unparsed(footer_start, error))?
    else {
        return Ok(None);
    };
    if footer.summary_start == 0 {
        return Ok(None);
    }
    let in_order = footer.summary_start >= MAGIC.len() as u64
        && footer.summary_start <= footer_start
        && (footer.summary_offset_start == 0
            || (footer.summary_start..=footer_start).contains(&footer.summary_offset_start));
    if !in_order {
        let found = format!(
            "a summary at byte {} with offsets at byte {}",
            footer.summary_start, footer.summary_offset_start
        );
        return Err(source.malformed(footer_start, "a summary before the footer", found));
    }
    let length = footer_start - footer.summary_start;
    if length > SUMMARY_WHOLE_BYTES_MAX && footer.summary_offset_start != 0 {
        return read_groups(source, footer, footer_start).map(Some);
    }
    read_whole_summary(source, footer, &end[..RECORD_PREFIX_BYTES + 16], length).map(Some)
}

fn read_whole_summary(
    source: &Source,
    footer: Footer,
    footer_bytes: &[u8],
    length: u64,
) -> StorageResult<Parsed> {
    let start = footer.summary_start;
    if length > SECTION_BYTES_MAX {
        let path = source.path().to_owned();
        return Err(StorageError::TooLarge {
            path,
            offset: start,
            what: "the summary",
            limit: SECTION_BYTES_MAX,
            found: length,
        });
    }
    let bytes = source.read(start, length, "summary")?;
    let mut crc = crc32fast::Hasher::new();
    crc.update(&bytes);
    crc.update(footer_bytes);
    let found = crc.finalize();
    if footer.summary_crc != 0 && found != footer.summary_crc {
        let (path, expected) = (source.path().to_owned(), footer.summary_crc);
        return Err(StorageError::Checksum {
            path,
            offset: start,
            what: "summary",
            expected,
            found,
        });
    }
    let mut parsed = Parsed::default();
    parse_section(source, &bytes, start, &mut parsed)?;
    if parsed.chunk_indexes.is_some() {
        parsed.chunk_indexes = Some(Section { start, length });
    }
    Ok(parsed)
}

/// Reads the parts of a long summary that describe the file; of the chunk indexes only their place is kept.
fn read_groups(source: &Source, footer: Footer, footer_start: u64) -> StorageResult<Parsed> {
    let offset_start = footer.summary_offset_start;
    let offsets = source.read(offset_start, footer_start - offset_start, "summary offsets")?;
    if source.is_remote() {
        expect_beginning(source, footer, &offsets);
    }
    let mut parsed = Parsed::default();
    let mut rest = &offsets[..];
    let mut covered = 0;
    while let Some((opcode, body)) =
        take_record(&mut rest).map_err(|error| source.unparsed(offset_start, error))?
    {
        let record = Record::decode(opcode, body).map_err(|error| source.unparsed(offset_start, error))?;
        let Record::SummaryOffset(SummaryOffset {
            group_opcode,
            group_start,
            group_length,
        }) = record
        else {
            continue;
        };
        let inside = group_start >= footer.summary_start
            && group_start
                .checked_add(group_length)
                .is_some_and(|end| end <= offset_start);
        if !inside {
            let found = format!("{group_length} bytes at byte {group_start}");
            return Err(source.malformed(offset_start, "summary offsets inside the summary", found));
        }
        covered += group_length;
        if group_opcode == op::CHUNK_INDEX {
            parsed.chunk_indexes = Some(Section {
                start: group_start,
                length: group_length,
            });
            parsed.compression = first_compression(source, group_start, group_length)?;
        } else {
            let bytes = source.read(group_start, group_length, "summary group")?;
            parse_section(source, &bytes, group_start, &mut parsed)?;
        }
    }
    if covered != offset_start - footer.summary_start {
        return Err(source.malformed(
            offset_start,
            "offsets of the whole summary",
            format!("offsets of {covered} bytes"),
        ));
    }
    Ok(parsed)
}

/// Announces the part of a long summary before its chunk indexes, and the metadata records that precede it, as one range.
fn expect_beginning(source: &Source, footer: Footer, mut offsets: &[u8]) {
    let mut index_start = footer.summary_offset_start;
    while let Ok(Some((opcode, body))) = take_record(&mut offsets) {
        if let Ok(Record::SummaryOffset(offset)) = Record::decode(opcode, body)
            && offset.group_opcode == op::CHUNK_INDEX
        {
            index_start = offset.group_start;
        }
    }
    let start = footer.summary_start.saturating_sub(RECORDS_BEFORE_BYTES);
    let end = index_start.saturating_add(FIRST_INDEX_BYTES);
    if end.saturating_sub(start) <= SUMMARY_WHOLE_BYTES_MAX {
        source.will_need(start, end.saturating_sub(start));
    }
}

fn first_compression(source: &Source, start: u64, length: u64) -> StorageResult<Option<String>> {
    let mut walk = Walk::new(source, start, start + length).sparse();
    if let Step::Record(place) = walk.step()?
        && let Ok(Record::ChunkIndex(index)) = Record::decode(place.opcode, &walk.body(&place)?)
    {
        return Ok(Some(index.compression).filter(|name| !name.is_empty()));
    }
    Ok(None)
}

fn parse_section(source: &Source, bytes: &[u8], start: u64, parsed: &mut Parsed) -> StorageResult<()> {
    let mut rest = bytes;
    loop {
        let at = start + (bytes.len() - rest.len()) as u64;
        let taken = take_record(&mut rest).map_err(|error| source.unparsed(at, error))?;
        let Some((opcode, body)) = taken else {
            return Ok(());
        };
        match Record::decode(opcode, body).map_err(|error| source.unparsed(at, error))? {
            Record::Schema(schema) => parsed.definitions.add_schema(&schema),
            Record::Channel(channel) => parsed.definitions.add_channel(channel),
            Record::Statistics(statistics) => parsed.statistics = Some(statistics),
            Record::MetadataIndex(index) => parsed.metadata.push(index),
            Record::AttachmentIndex(index) => parsed.attachments.push((index.offset, index.length)),
            Record::ChunkIndex(index) => {
                // The caller knows where exactly; this only notes that there are some.
                parsed.chunk_indexes = Some(Section { start, length: 0 });
                if !index.compression.is_empty() {
                    parsed.compression = Some(index.compression);
                }
            }
            _ => {}
        }
    }
}

pub(crate) fn read_metadata(
    source: &Source,
    index: &MetadataIndex,
) -> StorageResult<(String, MetadataEntries)> {
    let mut walk = Walk::new(source, index.offset, index.offset.saturating_add(index.length)).sparse();
    if let Step::Record(place) = walk.step()?
        && place.opcode == op::METADATA
    {
        let body = walk.body(&place)?;
        return match Record::decode(op::METADATA, &body)
            .map_err(|error| source.unparsed(place.body_start(), error))?
        {
            Record::Metadata(metadata) => Ok((metadata.name, metadata.metadata)),
            _ => Ok((index.name.clone(), MetadataEntries::new())),
        };
    }
    Err(source.malformed(index.offset, "a metadata record", "something else"))
}
