//! What a file says about itself: from its summary when it has one, else from reading it.

use super::{
    source::Source,
    walk::{Step, Walk},
};
use crate::{
    error::{StorageError, StorageResult},
    mcap::{
        format::{
            Channel, ChunkIndex, FOOTER_AND_MAGIC_BYTES, Fields, Footer, Header, MAGIC, MetadataIndex,
            RECORD_PREFIX_BYTES, Record, Schema, Statistics, SummaryOffset, op, split_record,
        },
        options::STORAGE_ID,
        recover,
    },
    reader::{ChannelSummary, FileCondition, StorageSummary},
    writer::{ChannelIndex, ChannelInfo, MetadataEntries},
};
use holdall_model::{
    qos::parse_profiles,
    time::Timestamp,
    topic::{DefinitionEncoding, MessageDefinition, TopicInfo},
};
use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock},
};

/// A summary up to this length is read as a whole and its checksum verified; of a longer one only the parts that are needed.
const SUMMARY_WHOLE_BYTES_MAX: u64 = 512 << 10;
/// Longest summary and longest metadata record that are read.
const SECTION_BYTES_MAX: u64 = 2 << 30;

/// A schema as it is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SchemaText {
    pub name: String,
    pub encoding: String,
    pub text: String,
}

/// Schemas and channels of a file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Definitions {
    pub schemas: BTreeMap<u16, SchemaText>,
    pub channels: BTreeMap<u16, Channel>,
}

impl Definitions {
    /// Takes in a schema; the first with a number stays.
    pub fn add_schema(&mut self, schema: &Schema<'_>) {
        self.schemas.entry(schema.id).or_insert_with(|| SchemaText {
            name: schema.name.clone().into_owned(),
            encoding: schema.encoding.clone().into_owned(),
            text: String::from_utf8_lossy(&schema.data).into_owned(),
        });
    }

    /// Takes in a channel; the first with a number stays.
    pub fn add_channel(&mut self, channel: Channel) {
        self.channels.entry(channel.id).or_insert(channel);
    }

    fn info(&self, channel: &Channel) -> ChannelInfo {
        let schema = self.schemas.get(&channel.schema_id).cloned().unwrap_or_default();
        let text = |key: &str| channel.metadata.get(key).cloned().unwrap_or_default();
        let hash = text("topic_type_hash");
        let encoding = match schema.encoding.as_str() {
            "ros2msg" => DefinitionEncoding::Ros2Msg,
            "ros2idl" => DefinitionEncoding::Ros2Idl,
            _ => DefinitionEncoding::Unknown,
        };
        let offered_qos_profiles = parse_profiles(&text("offered_qos_profiles")).unwrap_or_else(|error| {
            tracing::warn!(topic = channel.topic, %error, "the recorded QoS cannot be read and is left out");
            Vec::new()
        });
        ChannelInfo {
            topic: TopicInfo {
                name: channel.topic.clone(),
                type_name: schema.name.clone(),
                serialization_format: channel.message_encoding.clone(),
                offered_qos_profiles,
                type_description_hash: hash.clone(),
            },
            definition: MessageDefinition {
                type_name: schema.name,
                encoding,
                text: schema.text,
                type_description_hash: hash,
            },
        }
    }
}

/// A part of the file that holds messages and is read as one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Extent {
    /// Where it begins: a chunk record, or the first message record.
    pub start: u64,
    /// Its length in the file.
    pub length: u64,
    /// Smallest and largest log time.
    pub times: (u64, u64),
    /// What it is.
    pub kind: ExtentKind,
    /// Channels that it has messages of; `None` when not known.
    pub channels: Option<Box<[u16]>>,
}

/// Kinds of [`Extent`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum ExtentKind {
    /// A chunk record.
    Chunk {
        /// `lz4`, `zstd`, or empty.
        compression: Box<str>,
        /// Length of its records when decompressed.
        size: u64,
    },
    /// Records that lie open in the file.
    #[default]
    Records,
}

/// What was found out about a file when it was opened, and its extents as soon as they are needed.
pub(crate) struct FileIndex {
    pub source: Source,
    pub summary: StorageSummary,
    /// Place in `summary.channels` by channel number.
    pub channel_of_id: Vec<Option<ChannelIndex>>,
    /// Channel number by place.
    pub ids: Vec<u16>,
    extents: OnceLock<Arc<[Extent]>>,
    chunk_indexes: Option<Section>,
}

/// Some bytes of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Section {
    start: u64,
    length: u64,
}

/// What the summary said.
#[derive(Default)]
struct Parsed {
    definitions: Definitions,
    statistics: Option<Statistics>,
    metadata: Vec<MetadataIndex>,
    chunk_indexes: Option<Section>,
    compression: Option<String>,
}

impl FileIndex {
    /// Opens: magic, header, summary; reads the whole file when it has no summary that tells enough.
    pub fn open(source: Source) -> StorageResult<Self> {
        let header = read_header(&source)?;
        let trouble = match read_summary(&source) {
            Ok(Some(parsed)) => match Self::from_summary(&source, &header, parsed) {
                Ok(Some(index)) => return Ok(index),
                Ok(None) => FileCondition::Unindexed,
                Err(error @ StorageError::Io { .. }) => return Err(error),
                Err(error) => damaged(&error),
            },
            Ok(None) => FileCondition::Unindexed,
            Err(error @ StorageError::Io { .. }) => return Err(error),
            Err(error) => damaged(&error),
        };
        let found = recover::scan(&source)?;
        let condition = match (&found.condition, trouble) {
            (FileCondition::Complete, trouble) => trouble,
            (found, _) => found.clone(),
        };
        Self::from_scan(source, &header, found, condition)
    }

    fn from_summary(source: &Source, header: &Header, parsed: Parsed) -> StorageResult<Option<Self>> {
        let Some(statistics) = parsed.statistics else {
            return Ok(None);
        };
        let known = parsed.definitions.channels.len() as u64 >= u64::from(statistics.channel_count)
            && statistics
                .channel_message_counts
                .keys()
                .all(|id| parsed.definitions.channels.contains_key(id))
            && parsed.metadata.len() as u64 >= u64::from(statistics.metadata_count);
        if !known {
            return Ok(None);
        }
        let metadata = parsed
            .metadata
            .iter()
            .map(|index| read_metadata(source, index))
            .collect::<StorageResult<_>>()?;
        let mut index = Self::new(
            source.clone(),
            header,
            &parsed.definitions,
            &statistics.channel_message_counts,
        );
        index.summary.metadata = metadata;
        index.summary.message_count = statistics.message_count;
        index.set_times(
            (statistics.message_count > 0)
                .then_some((statistics.message_start_time, statistics.message_end_time)),
        );
        index.summary.compression = parsed.compression;
        if statistics.message_count == 0 {
            index.extents = OnceLock::from(Arc::from([]));
        } else if statistics.chunk_count > 0 {
            index.chunk_indexes = parsed.chunk_indexes;
        }
        Ok(Some(index))
    }

    fn from_scan(
        source: Source,
        header: &Header,
        found: recover::Scan,
        condition: FileCondition,
    ) -> StorageResult<Self> {
        let mut index = Self::new(source, header, &found.definitions, &found.counts);
        index.summary.message_count = found.counts.values().sum();
        index.summary.metadata = found.metadata;
        index.set_times(found.times);
        index.summary.compression = found.compression;
        index.summary.condition = condition;
        index.extents = OnceLock::from(Arc::from(found.extents));
        Ok(index)
    }

    fn new(source: Source, header: &Header, definitions: &Definitions, counts: &BTreeMap<u16, u64>) -> Self {
        let channels = definitions
            .channels
            .values()
            .map(|channel| ChannelSummary {
                info: definitions.info(channel),
                message_count: counts.get(&channel.id).copied().unwrap_or(0),
            })
            .collect();
        let ids: Vec<u16> = definitions.channels.keys().copied().collect();
        let mut channel_of_id = vec![None; ids.last().map_or(0, |last| usize::from(*last) + 1)];
        for (place, id) in (0u32..).zip(&ids) {
            channel_of_id[usize::from(*id)] = Some(ChannelIndex(place));
        }
        let summary = StorageSummary {
            path: source.path().to_owned(),
            storage_id: STORAGE_ID,
            library: Some(header.library.clone()).filter(|library| !library.is_empty()),
            file_bytes: source.len(),
            channels,
            ..StorageSummary::default()
        };
        Self {
            source,
            summary,
            channel_of_id,
            ids,
            extents: OnceLock::new(),
            chunk_indexes: None,
        }
    }

    fn set_times(&mut self, times: Option<(u64, u64)>) {
        self.summary.starting_time = times.map(|(start, _)| signed(start));
        self.summary.ending_time = times.map(|(_, end)| signed(end));
    }

    /// The parts that hold messages, in the order of the file; found out at the first call.
    pub fn extents(&self) -> StorageResult<Arc<[Extent]>> {
        if let Some(extents) = self.extents.get() {
            return Ok(Arc::clone(extents));
        }
        let extents: Arc<[Extent]> = match self.chunk_indexes {
            Some(section) => Arc::from(self.read_chunk_indexes(section)?),
            None => Arc::from(recover::scan(&self.source)?.extents),
        };
        Ok(Arc::clone(self.extents.get_or_init(|| extents)))
    }

    fn read_chunk_indexes(&self, section: Section) -> StorageResult<Vec<Extent>> {
        let bytes = self.source.read(section.start, section.length, "chunk indexes")?;
        let mut extents = Vec::new();
        let mut rest = &bytes[..];
        while let Some((opcode, body, next)) = self.next_record(&bytes, rest, section.start)? {
            let at = section.start + (bytes.len() - rest.len()) as u64;
            rest = next;
            if opcode != op::CHUNK_INDEX {
                continue;
            }
            let record = Record::decode(opcode, body).map_err(|error| self.source.unparsed(at, error))?;
            if let Record::ChunkIndex(index) = record {
                extents.push(self.extent(at, index)?);
            }
        }
        extents.sort_by_key(|extent: &Extent| extent.start);
        Ok(extents)
    }

    fn next_record<'a>(
        &self,
        whole: &[u8],
        rest: &'a [u8],
        start: u64,
    ) -> StorageResult<Option<(u8, &'a [u8], &'a [u8])>> {
        let at = start + (whole.len() - rest.len()) as u64;
        split_record(rest).map_err(|error| self.source.unparsed(at, error))
    }

    fn extent(&self, at: u64, index: ChunkIndex) -> StorageResult<Extent> {
        let inside = index
            .chunk_start_offset
            .checked_add(index.chunk_length)
            .is_some_and(|end| end <= self.source.len());
        if !inside {
            let found = format!(
                "{} bytes at byte {}",
                index.chunk_length, index.chunk_start_offset
            );
            return Err(self
                .source
                .malformed(at, "an index of a chunk inside the file", found));
        }
        let channels: Box<[u16]> = index.message_index_offsets.keys().copied().collect();
        Ok(Extent {
            start: index.chunk_start_offset,
            length: index.chunk_length,
            times: (index.message_start_time, index.message_end_time),
            kind: ExtentKind::Chunk {
                compression: index.compression.into(),
                size: index.uncompressed_size,
            },
            channels: Some(channels).filter(|channels| !channels.is_empty()),
        })
    }
}

/// Nanoseconds as this program has them.
pub(crate) fn signed(nanos: u64) -> Timestamp {
    Timestamp::from_nanos(i64::try_from(nanos).unwrap_or(i64::MAX))
}

fn damaged(error: &StorageError) -> FileCondition {
    let offset = match error {
        StorageError::Malformed { offset, .. }
        | StorageError::Checksum { offset, .. }
        | StorageError::TooLarge { offset, .. } => *offset,
        _ => 0,
    };
    let reason = match error {
        StorageError::Malformed { expected, found, .. } => format!("expected {expected}, found {found}"),
        StorageError::Checksum {
            what,
            expected,
            found,
            ..
        } => {
            format!("{what} checksum is {found:#010x}, expected {expected:#010x}")
        }
        other => other.to_string(),
    };
    FileCondition::Damaged { offset, reason }
}

/// Checks the magic and reads the header record; a file cut inside its header has an empty one.
fn read_header(source: &Source) -> StorageResult<Header> {
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
    let mut walk = Walk::new(source, MAGIC.len() as u64, source.len());
    if let Step::Record(place) = walk.step()?
        && place.opcode == op::HEADER
        && let Ok(Record::Header(header)) = Record::decode(op::HEADER, &walk.body(&place)?)
    {
        return Ok(header);
    }
    Ok(Header::default())
}

/// The summary; `None` when the file says that it has none.
fn read_summary(source: &Source) -> StorageResult<Option<Parsed>> {
    let footer_start = source
        .len()
        .saturating_sub(FOOTER_AND_MAGIC_BYTES as u64)
        .max(MAGIC.len() as u64);
    let end = source.read_up_to(footer_start, FOOTER_AND_MAGIC_BYTES as u64)?;
    let prefix: [u8; RECORD_PREFIX_BYTES] = [op::FOOTER, 20, 0, 0, 0, 0, 0, 0, 0];
    if end.len() < FOOTER_AND_MAGIC_BYTES || !end.ends_with(&MAGIC) || !end.starts_with(&prefix) {
        return Err(source.malformed(
            source.len(),
            "the end of an MCAP file",
            "a file that was cut off or not closed",
        ));
    }
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

/// Reads the parts of a long summary that are needed to describe the file; the chunk indexes are only noted.
fn read_groups(source: &Source, footer: Footer, footer_start: u64) -> StorageResult<Parsed> {
    let offset_start = footer.summary_offset_start;
    let offsets = source.read(offset_start, footer_start - offset_start, "summary offsets")?;
    let mut parsed = Parsed::default();
    let mut rest = &offsets[..];
    let mut covered = 0;
    while let Some((opcode, body, next)) =
        split_record(rest).map_err(|error| source.unparsed(offset_start, error))?
    {
        rest = next;
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

fn first_compression(source: &Source, start: u64, length: u64) -> StorageResult<Option<String>> {
    let mut walk = Walk::new(source, start, start + length);
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
        let Some((opcode, body, next)) = split_record(rest).map_err(|error| source.unparsed(at, error))?
        else {
            return Ok(());
        };
        rest = next;
        match Record::decode(opcode, body).map_err(|error| source.unparsed(at, error))? {
            Record::Schema(schema) => parsed.definitions.add_schema(&schema),
            Record::Channel(channel) => parsed.definitions.add_channel(channel),
            Record::Statistics(statistics) => parsed.statistics = Some(statistics),
            Record::MetadataIndex(index) => parsed.metadata.push(index),
            Record::ChunkIndex(index) => {
                // Where exactly is known by the caller; this notes that there are some.
                parsed.chunk_indexes = Some(Section { start, length: 0 });
                if !index.compression.is_empty() {
                    parsed.compression = Some(index.compression);
                }
            }
            _ => {}
        }
    }
}

fn read_metadata(source: &Source, index: &MetadataIndex) -> StorageResult<(String, MetadataEntries)> {
    let mut walk = Walk::new(source, index.offset, index.offset.saturating_add(index.length));
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

/// Reads a chunk's header where it lies.
pub(crate) fn chunk_header_bytes(
    walk: &mut Walk<'_>,
    start: u64,
    body_bytes: u64,
) -> StorageResult<Option<(usize, ChunkParts)>> {
    // Longer names of codecs than this are not known to any reader.
    let bytes = walk.peek(start, body_bytes.min(256))?;
    let mut fields = Fields::new(&bytes);
    let Ok(header) = crate::mcap::format::ChunkHeader::decode(&mut fields) else {
        return Ok(None);
    };
    let parts = ChunkParts {
        times: (header.message_start_time, header.message_end_time),
        size: header.uncompressed_size,
        crc: header.uncompressed_crc,
        compression: header.compression.into_owned(),
        stored: header.compressed_size,
    };
    Ok(Some((fields.position(), parts)))
}

/// What a chunk's header says, owned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ChunkParts {
    pub times: (u64, u64),
    pub size: u64,
    pub crc: u32,
    pub compression: String,
    pub stored: u64,
}
