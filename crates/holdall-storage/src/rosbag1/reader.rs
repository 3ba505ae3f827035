//! Reads ROS 1 bags: the summary from the index at the end, messages in time order with bounded memory.

use super::{
    chunk::{Extent, ExtentKind, Wanted},
    connections::{Catalog, Connections},
    cursor::Cursor,
    format::{Head, MAGIC, MAGIC_ANY_VERSION, STORAGE_ID, number, op},
    recover::{self, RecordPlace},
};
use crate::{
    error::{StorageError, StorageResult},
    mcap::reader::source::Source,
    reader::{FileCondition, IndexedPart, Messages, ReadQuery, StorageReader, StorageSummary},
    writer::ChannelIndex,
};
use bytes::Bytes;
use holdall_model::time::Timestamp;
use std::{
    collections::{BTreeMap, HashMap},
    path::Path,
    sync::Arc,
};

/// A reader's bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rosbag1ReaderOptions {
    /// Bytes of decompressed chunks kept at a time when chunks overlap in time; a single chunk may be larger.
    pub loaded_bytes_max: u64,
    /// A chunk that is larger than this, stored or decompressed, is refused. At most 1 GiB.
    pub chunk_bytes_max: u64,
}

impl Default for Rosbag1ReaderOptions {
    fn default() -> Self {
        Self {
            loaded_bytes_max: 256 << 20,
            chunk_bytes_max: 1 << 30,
        }
    }
}

/// The result of opening a file.
pub(super) struct FileIndex {
    pub source: Source,
    pub summary: StorageSummary,
    pub channel_of_connection: HashMap<u32, ChannelIndex>,
    /// Extents in file order.
    pub extents: Vec<Extent>,
}

/// An open ROS 1 bag.
pub struct Rosbag1Reader {
    index: Arc<FileIndex>,
    options: Rosbag1ReaderOptions,
}

impl Rosbag1Reader {
    /// Opens a file.
    ///
    /// # Errors
    /// A file that cannot be read, is not a ROS 1 bag of version 2.0, or is encrypted. A damaged one opens,
    /// and its summary describes the damage.
    pub fn open(path: &Path) -> StorageResult<Self> {
        Self::from_source(Source::open(path)?, Rosbag1ReaderOptions::default())
    }

    /// Reads a file that is in memory; errors name it `path`.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn from_bytes(path: &Path, content: Bytes, options: Rosbag1ReaderOptions) -> StorageResult<Self> {
        Self::from_source(Source::memory(path, content), options)
    }

    fn from_source(source: Source, options: Rosbag1ReaderOptions) -> StorageResult<Self> {
        check_magic(&source)?;
        let records_start = MAGIC.len() as u64;
        let (start, trouble) = match RecordPlace::read(&source, records_start) {
            Ok(record) if record.head().op == op::BAG_HEADER => {
                let head = record.head();
                refuse_encrypted(&source, &head)?;
                let trouble = match read_index(&source, &head) {
                    Ok(Some(found)) => return Ok(Self::new(source, options, found)),
                    Ok(None) => None,
                    Err(error @ StorageError::Disk(_)) => return Err(error),
                    Err(error) => Some(recover::damage(&error)),
                };
                (record.end(), trouble)
            }
            Err(error @ StorageError::Disk(_)) => return Err(error),
            // The records may be readable even without a bag header.
            Ok(_) => (records_start, None),
            Err(error) => (records_start, Some(recover::damage(&error))),
        };
        let found = recover::scan(&source, options, start)?;
        let condition = match found.condition {
            FileCondition::Damaged { .. } => found.condition,
            condition => trouble.unwrap_or(condition),
        };
        let found = Found {
            connections: found.connections,
            extents: found.extents,
            compression: found.compression,
            condition,
        };
        Ok(Self::new(source, options, found))
    }

    /// The result of opening it.
    pub(super) fn index(&self) -> &FileIndex {
        &self.index
    }

    fn new(source: Source, options: Rosbag1ReaderOptions, found: Found) -> Self {
        let Catalog {
            channels,
            channel_of_connection,
            records,
        } = found.connections.finish();
        let with_messages = || {
            found
                .extents
                .iter()
                .filter(|extent| extent.times.0 <= extent.times.1)
        };
        let summary = StorageSummary {
            path: source.path().to_owned(),
            storage_id: STORAGE_ID,
            library: None,
            file_bytes: source.len(),
            message_count: channels.iter().map(|channel| channel.message_count).sum(),
            starting_time: with_messages()
                .map(|extent| Timestamp::from_nanos(extent.times.0))
                .min(),
            ending_time: with_messages()
                .map(|extent| Timestamp::from_nanos(extent.times.1))
                .max(),
            channels,
            metadata: records,
            compression: found.compression,
            condition: found.condition,
        };
        let index = FileIndex {
            source,
            summary,
            channel_of_connection,
            extents: found.extents,
        };
        Self {
            index: Arc::new(index),
            options,
        }
    }
}

impl StorageReader for Rosbag1Reader {
    fn summary(&self) -> &StorageSummary {
        &self.index.summary
    }

    fn messages(&self, query: &ReadQuery) -> StorageResult<Messages> {
        let count = self.index.summary.channels.len();
        for channel in query.channels.iter().flatten() {
            if channel.0 as usize >= count {
                return Err(StorageError::UnknownChannel {
                    path: self.index.summary.path.clone(),
                    index: channel.0,
                    count,
                });
            }
        }
        let wanted = Wanted::new(count, query);
        Ok(Box::new(Cursor::new(
            Arc::clone(&self.index),
            self.options,
            wanted,
            query.order,
        )))
    }

    fn part_at(&self, offset: u64) -> Option<IndexedPart> {
        let place = self
            .index
            .extents
            .binary_search_by_key(&offset, |extent| extent.start);
        let extent = self.index.extents.get(place.ok()?)?;
        let (first, last) = extent.times;
        Some(IndexedPart {
            offset,
            times: (Timestamp::from_nanos(first), Timestamp::from_nanos(last)),
            messages: extent.channels.as_ref().map(|channels| channels.to_vec()),
        })
    }
}

/// Content of a file.
struct Found {
    connections: Connections,
    extents: Vec<Extent>,
    compression: Option<String>,
    condition: FileCondition,
}

fn check_magic(source: &Source) -> StorageResult<()> {
    let begin = source.read_up_to(0, MAGIC.len() as u64)?;
    if begin == MAGIC {
        return Ok(());
    }
    if begin.starts_with(MAGIC_ANY_VERSION) {
        let version = String::from_utf8_lossy(&begin[MAGIC_ANY_VERSION.len()..]);
        return Err(StorageError::Unsupported {
            path: source.path().to_owned(),
            what: "reading a ROS 1 bag of this version",
            reason: format!(
                "it is of version {}, expected 2.0: bring it up to date with `rosbag fix` of ROS 1",
                version.trim_end()
            ),
        });
    }
    Err(StorageError::WrongFormat {
        path: source.path().to_owned(),
        storage: STORAGE_ID,
        expected: "\"#ROSBAG V2.0\"".into(),
        found: format!("{begin:02x?}"),
    })
}

fn refuse_encrypted(source: &Source, head: &Head<'_>) -> StorageResult<()> {
    match head.encryptor {
        Some(encryptor) if !encryptor.is_empty() => Err(StorageError::Unsupported {
            path: source.path().to_owned(),
            what: "reading an encrypted ROS 1 bag",
            reason: format!(
                "it is encrypted with {}: decrypt it with `rosbag decrypt` of ROS 1 first",
                String::from_utf8_lossy(encryptor)
            ),
        }),
        _ => Ok(()),
    }
}

/// Reads connections and chunk infos at the end of the file; `None` for a file that was not closed.
fn read_index(source: &Source, head: &Head<'_>) -> StorageResult<Option<Found>> {
    let start = head.index_position.unwrap_or(0);
    if start == 0 {
        return Ok(None);
    }
    // A short index is read in one piece and parsed in memory.
    let mut index = IndexSection {
        source,
        at: start,
        connections: Connections::default(),
        extents: Vec::new(),
    };
    if start > source.len() {
        let expected = format!("an index at byte {start}");
        return Err(source.malformed(
            MAGIC.len() as u64,
            expected,
            format!("a file of {} bytes", source.len()),
        ));
    }
    // Chunks refer to connections by number, and all connections come first.
    while index.at < source.len() {
        index.record()?;
    }
    let counts = (head.connection_count, head.chunk_count);
    let found = (index.connections.len() as u64, index.extents.len() as u64);
    let agrees = |stated: Option<u32>, found: u64| stated.is_none_or(|stated| u64::from(stated) == found);
    if !(agrees(counts.0, found.0) && agrees(counts.1, found.1)) {
        let expected = format!(
            "{} connections and {} chunks",
            counts.0.unwrap_or(0),
            counts.1.unwrap_or(0)
        );
        return Err(source.malformed(start, expected, format!("{} and {}", found.0, found.1)));
    }
    let compression = first_compression(source, &index.extents)?;
    index.extents.sort_by_key(|extent| extent.start);
    Ok(Some(Found {
        connections: index.connections,
        extents: index.extents,
        compression,
        condition: FileCondition::Complete,
    }))
}

/// The codec of the first chunk, which in bags written by ROS is that of all.
fn first_compression(source: &Source, extents: &[Extent]) -> StorageResult<Option<String>> {
    let Some(first) = extents.first() else {
        return Ok(None);
    };
    let record = RecordPlace::read(source, first.start)?;
    let name = record.head().compression.unwrap_or_default();
    Ok((!name.is_empty() && name != b"none").then(|| String::from_utf8_lossy(name).into_owned()))
}

struct IndexSection<'a> {
    source: &'a Source,
    at: u64,
    connections: Connections,
    extents: Vec<Extent>,
}

impl IndexSection<'_> {
    fn record(&mut self) -> StorageResult<()> {
        let (source, at) = (self.source, self.at);
        let record = RecordPlace::read(source, at)?;
        let data = source.read(record.data_start, record.data_bytes, "a record of the index")?;
        let head = record.head();
        let malformed = |expected: &str| {
            let found = format!("a record of kind {} without it", head.op);
            Err(source.malformed(at, expected, found))
        };
        match head.op {
            op::CONNECTION => {
                let (Some(id), Some(topic)) = (head.connection, head.topic) else {
                    return malformed("a connection with number and topic");
                };
                if !self.connections.add(id, topic, &data) {
                    return malformed("a connection with its header");
                }
            }
            op::CHUNK_INFO => {
                let (Some(start), Some(first), Some(last)) =
                    (head.chunk_position, head.start_time, head.end_time)
                else {
                    return malformed("a chunk's place and times");
                };
                if start >= source.len() {
                    return Err(source.malformed(at, "a chunk inside the file", format!("byte {start}")));
                }
                let channels = self.chunk_counts(&data)?;
                self.extents.push(Extent {
                    start,
                    length: 0,
                    // A chunk without messages has no times.
                    times: if channels.is_empty() {
                        (i64::MAX, i64::MIN)
                    } else {
                        (first, last)
                    },
                    kind: ExtentKind::Chunk,
                    channels: Some(channels),
                });
            }
            _ => {}
        }
        self.at = record.end();
        Ok(())
    }

    /// Adds the counts of a chunk: pairs of a connection's number and its number of messages there.
    fn chunk_counts(&mut self, data: &[u8]) -> StorageResult<Box<[(ChannelIndex, u64)]>> {
        let mut channels: BTreeMap<ChannelIndex, u64> = BTreeMap::new();
        for pair in data.chunks(8) {
            let (id, count) = pair.split_at_checked(4).unwrap_or_default();
            let channel = number(id)
                .zip(number(count))
                .and_then(|(id, count)| Some((self.connections.count(id, u64::from(count))?, count)));
            let Some((channel, count)) = channel else {
                let found = format!("{pair:02x?}");
                return Err(self
                    .source
                    .malformed(self.at, "counts of known connections", found));
            };
            *channels.entry(channel).or_default() += u64::from(count);
        }
        Ok(channels.into_iter().collect())
    }
}
