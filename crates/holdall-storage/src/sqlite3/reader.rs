//! Reads SQLite3 databases of all versions of rosbag2: messages by time with bounded memory.

use super::{
    counting, failed,
    format::{
        Columns, MESSAGE_PUBLISHERS, PUBLISHERS, PUBLISHERS_BEFORE, ROSBAG2_KEY, ROSBAG2_RECORD, STORAGE_ID,
    },
    has_table,
    recover::{self, Place},
};
use crate::{
    error::{StorageError, StorageResult, reserve},
    reader::{
        ChannelSummary, FileCondition, Messages, ReadMessage, ReadOrder, ReadQuery, StorageReader,
        StorageSummary,
    },
    stored_qos::stored_profiles,
    writer::{ChannelIndex, ChannelInfo, MetadataEntries},
};
use bytes::Bytes;
use holdall_model::{
    metadata::BagMetadata,
    time::Timestamp,
    topic::{DefinitionEncoding, MessageDefinition, PublisherInfo, TopicInfo},
};
use rusqlite::{Connection, params, types::ValueRef};
use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    io::Read,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
};

/// Messages that one query locates; their bytes are read one by one.
const PAGE_MESSAGES: i64 = 4096;

/// Selects the bytes of a message, except a large one.
const SHORT_MESSAGE: &str = "SELECT CASE WHEN typeof(data) = 'blob' AND length(data) >= 8388608 THEN NULL ELSE data END, timestamp FROM messages WHERE id = ?1";

/// An open database.
pub struct SqliteReader {
    /// The outline, without counts: counting reads the whole database.
    outline: StorageSummary,
    summary: OnceLock<StorageSummary>,
    place: Place,
    /// Its readable part, once damage was found.
    salvaged: Arc<OnceLock<Option<Place>>>,
    /// The id of each channel: that of its topic, or of its publisher where that is not the topic's first one.
    topic_ids: Vec<i64>,
    /// The expression for the channel's id of a message.
    channel_column: &'static str,
    /// By topic id, the number of messages of publishers with their own channels, if the file stores it.
    publisher_counts: HashMap<i64, u64>,
}

impl SqliteReader {
    /// Opens a database.
    ///
    /// # Errors
    /// A file that cannot be read, or is not a database of rosbag2.
    pub fn open(path: &Path) -> StorageResult<Self> {
        let (place, connection, condition) = recover::open(path)?;
        match Self::read_outline(path, &place, &connection, condition) {
            Err(error) if error.is_damage_or_format() => {
                let Some(place) = place.salvage()? else {
                    return Err(error);
                };
                let condition = place.condition(&error);
                Self::read_outline(path, &place, &place.connect()?, condition)
            }
            opened => opened,
        }
    }

    fn read_outline(
        path: &Path,
        place: &Place,
        connection: &Connection,
        condition: FileCondition,
    ) -> StorageResult<Self> {
        let columns = recover::columns(connection, path)?;
        let open = Open {
            connection,
            path,
            columns,
        };
        let publishers = open.publishers()?;
        let (topic_ids, channels) = open.channels(&publishers)?.into_iter().unzip();
        let channel_column = if open.has_table(MESSAGE_PUBLISHERS)? {
            "coalesce((SELECT publisher_id FROM holdall_message_publishers WHERE message_id = messages.id), topic_id)"
        } else {
            "topic_id"
        };
        let counted = |publisher: &Publisher| Some((publisher.id, publisher.messages?.unsigned_abs()));
        let publisher_counts = publishers.iter().filter_map(counted).collect();
        // Counting reports the fault.
        let (starting_time, ending_time) = open.times().unwrap_or_default();
        let file_bytes = holdall_io::fs::file_len(path)?;
        let outline = StorageSummary {
            path: path.to_owned(),
            storage_id: STORAGE_ID,
            library: None,
            file_bytes,
            message_count: 0,
            starting_time,
            ending_time,
            channels,
            metadata: open.metadata()?,
            compression: None,
            condition,
        };
        Ok(Self {
            outline,
            summary: OnceLock::new(),
            place: place.clone(),
            salvaged: Arc::default(),
            topic_ids,
            channel_column,
            publisher_counts,
        })
    }

    /// The outline with counts: those of the file's own metadata when their sum equals the number of rows;
    /// else counted row by row.
    fn counted(&self) -> StorageSummary {
        let mut summary = self.outline.clone();
        let count = |place: &Place| {
            let path = &self.outline.path;
            counting::count_rows(place, path, self.channel_column, &self.topic_ids)
        };
        let counts = self.counts_from_metadata().map_or_else(|| count(&self.place), Ok);
        let counts = counts.or_else(|error| match salvage(&self.place, &self.salvaged) {
            Some(place) if error.is_damage() => {
                summary.condition = place.condition(&error);
                if let Some((first, last)) = times(&place) {
                    summary.starting_time = Some(first);
                    summary.ending_time = Some(last);
                }
                count(&place)
            }
            _ => Err(error),
        });
        let counts = counts.unwrap_or_else(|error| {
            summary.condition = FileCondition::Damaged {
                offset: 0,
                reason: format!("its messages cannot be counted: {error}"),
            };
            vec![0; self.topic_ids.len()]
        });
        summary.message_count = counts.iter().sum();
        for (channel, count) in summary.channels.iter_mut().zip(counts) {
            channel.message_count = count;
        }
        summary
    }

    /// The counts in the metadata of a bag that consists of this file only, if the number of rows and their ids still agree with it: rows
    /// may have been removed.
    fn counts_from_metadata(&self) -> Option<Vec<u64>> {
        let metadata = BagMetadata::from_yaml(self.outline.rosbag2_metadata()?).ok()?;
        let connection = self.place.connect().ok()?;
        // The number of rows is read from the smallest index, page by page.
        let query = "SELECT (SELECT count(*) FROM messages), \
                     (SELECT max(id) FROM messages) - (SELECT min(id) FROM messages) + 1";
        let numbers = connection.query_row(query, [], |row| Ok((row.get(0)?, row.get(1)?)));
        let (rows, span): (i64, i64) = numbers.ok()?;
        if rows != span {
            return None;
        }
        let mut counts: HashMap<(&str, &str), u64> = HashMap::new();
        for topic in &metadata.topics_with_message_count {
            let about = &topic.topic_metadata;
            counts.insert((&about.name, &about.type_name), topic.message_count);
        }
        let counts: Option<Vec<u64>> = self
            .outline
            .channels
            .iter()
            .zip(&self.topic_ids)
            .map(|(channel, id)| {
                let about = &channel.info.topic;
                let of_publisher = self.publisher_counts.get(id).copied();
                if about.publisher.is_some() || of_publisher.is_some() {
                    return of_publisher;
                }
                counts
                    .get(&(about.name.as_str(), about.type_name.as_str()))
                    .copied()
            })
            .collect();
        counts.filter(|counts| {
            counts.iter().sum::<u64>() == rows.unsigned_abs() && metadata.message_count == rows.unsigned_abs()
        })
    }
}

/// The readable part of a damaged database, searched once.
fn salvage(place: &Place, salvaged: &OnceLock<Option<Place>>) -> Option<Place> {
    let search = || {
        place.salvage().unwrap_or_else(|error| {
            tracing::warn!(%error, "the pages of a damaged database cannot be searched");
            None
        })
    };
    salvaged.get_or_init(search).clone()
}

/// The first and the last time of the readable messages.
fn times(place: &Place) -> Option<(Timestamp, Timestamp)> {
    let query = "SELECT min(timestamp), max(timestamp) FROM messages";
    let connection = place.connect().ok()?;
    let times = connection.query_row(query, [], |row| Ok((row.get(0)?, row.get(1)?)));
    let (first, last): (Option<i64>, Option<i64>) = times.ok()?;
    Some((Timestamp::from_nanos(first?), Timestamp::from_nanos(last?)))
}

/// A publisher of one topic.
struct Publisher {
    /// The topic's id for the publisher of all messages that do not name another one.
    id: i64,
    topic_id: i64,
    /// `None` if its file was not closed.
    messages: Option<i64>,
    /// `None` for unknown publishers.
    info: Option<PublisherInfo>,
}

/// A database while it is opened.
struct Open<'a> {
    connection: &'a Connection,
    path: &'a Path,
    columns: Columns,
}

impl Open<'_> {
    fn rows<T>(
        &self,
        query: &str,
        row: impl FnMut(&rusqlite::Row<'_>) -> rusqlite::Result<T>,
    ) -> StorageResult<Vec<T>> {
        let mut statement = self
            .connection
            .prepare(query)
            .map_err(failed("read", self.path))?;
        let rows = statement.query_map([], row).and_then(Iterator::collect);
        rows.map_err(failed("read", self.path))
    }

    /// The publishers that the file names, also in the table of earlier versions.
    fn publishers(&self) -> StorageResult<Vec<Publisher>> {
        let (table, id) = if self.has_table(PUBLISHERS)? {
            (PUBLISHERS, "id")
        } else if self.has_table(PUBLISHERS_BEFORE)? {
            (PUBLISHERS_BEFORE, "topic_id")
        } else {
            return Ok(Vec::new());
        };
        let query = format!("SELECT {id}, topic_id, message_count, gid, node, host, transport FROM {table}");
        self.rows(&query, |row| {
            let info = PublisherInfo {
                gid: row.get(3)?,
                node: row.get(4)?,
                host: row.get(5)?,
                transport: row.get(6)?,
            };
            Ok(Publisher {
                id: row.get(0)?,
                topic_id: row.get(1)?,
                messages: row.get(2)?,
                info: Some(info).filter(|info| !info.gid.is_empty()),
            })
        })
    }

    fn has_table(&self, name: &str) -> StorageResult<bool> {
        has_table(self.connection, self.path, name)
    }

    /// The channels with their ids, which are ascending.
    fn channels(&self, publishers: &[Publisher]) -> StorageResult<Vec<(i64, ChannelSummary)>> {
        let definitions = self.definitions()?;
        let optional = |there: bool, name: &'static str| if there { name } else { "''" };
        let query = format!(
            "SELECT id, name, type, {}, {}, {} FROM topics ORDER BY id",
            if self.columns.serialization_format {
                "serialization_format"
            } else {
                "'cdr'"
            },
            optional(self.columns.offered_qos_profiles, "offered_qos_profiles"),
            optional(self.columns.type_description_hash, "type_description_hash"),
        );
        let topics = self.rows(&query, |row| {
            // Other programs leave unknown fields empty.
            let text = |place| row.get::<_, Option<String>>(place).map(Option::unwrap_or_default);
            let qos = text(4)?;
            let info = TopicInfo {
                name: row.get(1)?,
                type_name: row.get(2)?,
                serialization_format: row.get(3)?,
                offered_qos_profiles: Vec::new(),
                type_description_hash: text(5)?,
                ..TopicInfo::default()
            };
            Ok((row.get::<_, i64>(0)?, qos, info))
        })?;
        let channels = topics.into_iter().map(|(id, qos, mut topic)| {
            topic.offered_qos_profiles = stored_profiles(&topic.name, &qos);
            // The definition of a service event is that of its service.
            let service = topic.type_name.strip_suffix("_Event").unwrap_or(&topic.type_name);
            let definition = definitions
                .get(&topic.type_name)
                .or_else(|| definitions.get(service))
                .cloned();
            let info = ChannelInfo {
                topic,
                definition: definition.unwrap_or_default(),
            };
            let channel = ChannelSummary {
                info,
                message_count: 0,
            };
            (id, channel)
        });
        let mut channels: BTreeMap<i64, ChannelSummary> = channels.collect();
        for publisher in publishers {
            let Some(mut channel) = channels.get(&publisher.topic_id).cloned() else {
                continue;
            };
            channel.info.topic.publisher = publisher.info.clone().map(Box::new);
            channels.insert(publisher.id, channel);
        }
        Ok(channels.into_iter().collect())
    }

    fn definitions(&self) -> StorageResult<HashMap<String, MessageDefinition>> {
        if !self.columns.message_definitions {
            return Ok(HashMap::new());
        }
        let query = "SELECT topic_type, encoding, encoded_message_definition, type_description_hash \
                     FROM message_definitions";
        let rows = self.rows(query, |row| {
            let encoding: String = row.get(1)?;
            let type_name: String = row.get(0)?;
            let definition = MessageDefinition {
                type_name: type_name.clone(),
                encoding: match encoding.as_str() {
                    "ros2msg" => DefinitionEncoding::Ros2Msg,
                    "ros2idl" => DefinitionEncoding::Ros2Idl,
                    _ => DefinitionEncoding::Unknown,
                },
                text: row.get::<_, Option<String>>(2)?.unwrap_or_default(),
                type_description_hash: row.get::<_, Option<String>>(3)?.unwrap_or_default(),
            };
            Ok((type_name, definition))
        })?;
        Ok(rows.into_iter().collect())
    }

    fn times(&self) -> StorageResult<(Option<Timestamp>, Option<Timestamp>)> {
        // Two queries: each is one step in the index; both in one would be a scan.
        let time = |query: &str| {
            let nanos = self
                .connection
                .query_row(query, [], |row| row.get::<_, Option<i64>>(0));
            nanos
                .map(|nanos| nanos.map(Timestamp::from_nanos))
                .map_err(failed("read", self.path))
        };
        Ok((
            time("SELECT min(timestamp) FROM messages")?,
            time("SELECT max(timestamp) FROM messages")?,
        ))
    }

    fn metadata(&self) -> StorageResult<Vec<(String, MetadataEntries)>> {
        let mut found = Vec::new();
        if self.columns.metadata {
            for text in self.rows("SELECT metadata FROM metadata ORDER BY id", |row| {
                row.get::<_, String>(0)
            })? {
                found.push((
                    ROSBAG2_RECORD.to_owned(),
                    MetadataEntries::from([(ROSBAG2_KEY.to_owned(), text)]),
                ));
            }
        }
        if !self.has_table("holdall_records")? {
            return Ok(found);
        }
        let query = "SELECT record, name, key, value FROM holdall_records ORDER BY id";
        let text = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?));
        let mut last: Option<i64> = None;
        for (record, name, key, value) in self.rows::<(i64, String, String, String)>(query, text)? {
            if last.replace(record) != Some(record) {
                found.push((name, MetadataEntries::new()));
            }
            if let Some((_, entries)) = found.last_mut() {
                entries.insert(key, value);
            }
        }
        Ok(found)
    }
}

impl StorageReader for SqliteReader {
    fn summary(&self) -> &StorageSummary {
        self.summary.get_or_init(|| self.counted())
    }

    fn outline(&self) -> &StorageSummary {
        &self.outline
    }

    fn messages(&self, query: &ReadQuery) -> StorageResult<Messages> {
        let count = self.topic_ids.len();
        let mut wanted = Vec::new();
        for channel in query.channels.iter().flatten() {
            let Some(id) = self.topic_ids.get(channel.0 as usize) else {
                let path = self.outline.path.clone();
                return Err(StorageError::UnknownChannel {
                    path,
                    index: channel.0,
                    count,
                });
            };
            wanted.push(id.to_string());
        }
        // No send time is stored: messages count as sent when they were received.
        let by_time = query.order != ReadOrder::File;
        let mut conditions = vec!["1".to_owned()];
        if let Some(start) = query.start {
            conditions.push(format!("timestamp >= {}", start.as_nanos()));
        }
        if let Some(end) = query.end {
            conditions.push(format!("timestamp <= {}", end.as_nanos()));
        }
        let (position, order) = if by_time {
            ("(timestamp, id) > (?1, ?2)", "timestamp, id")
        } else {
            ("?1 = ?1 AND id > ?2", "id")
        };
        let page = |table: &str, column: &str| {
            let mut conditions = conditions.clone();
            if query.channels.is_some() {
                conditions.push(format!("{column} IN ({})", wanted.join(",")));
            }
            format!(
                "SELECT id, {column}, timestamp FROM {table} WHERE {} AND {position} ORDER BY {order} LIMIT {PAGE_MESSAGES}",
                conditions.join(" AND "),
            )
        };
        let channel_of_topic = (0..)
            .map(ChannelIndex)
            .zip(&self.topic_ids)
            .map(|(channel, id)| (*id, channel))
            .collect();
        Ok(Box::new(Cursor {
            path: self.outline.path.clone(),
            connection: self.place.connect()?,
            found_damage: damage(&self.place, &self.outline.path, query),
            place: self.place.clone(),
            salvaged: Arc::clone(&self.salvaged),
            query: query.clone(),
            page: page("messages", self.channel_column),
            by_index: page("messages", self.channel_column),
            sorted: Some((page("temp.sorted", "topic_id"), self.channel_column)),
            by_time,
            channel_of_topic,
            places: VecDeque::new(),
            last: (i64::MIN, i64::MIN),
            given: (i64::MIN, i64::MIN),
            is_done: false,
        }))
    }
}

/// The damage of a database that affects a query.
fn damage(place: &Place, path: &Path, query: &ReadQuery) -> VecDeque<StorageError> {
    let gaps = place.salvaged().into_iter().flat_map(|salvaged| &salvaged.gaps);
    let missed = gaps.filter(|gap| {
        let (first, last) = gap.times;
        let is_before = query
            .start
            .is_some_and(|start| last < start.as_nanos() && gap.count.is_some());
        !is_before && query.end.is_none_or(|end| first <= end.as_nanos())
    });
    missed.map(|gap| gap.error(path)).collect()
}

/// The place of a message.
#[derive(Clone, Copy)]
struct Row {
    id: i64,
    topic_id: i64,
    timestamp: i64,
}

/// The iteration: pages of places, and each message's bytes when it is due.
struct Cursor {
    path: PathBuf,
    connection: Connection,
    place: Place,
    salvaged: Arc<OnceLock<Option<Place>>>,
    query: ReadQuery,
    page: String,
    /// The query for the next page where the messages have an index by time.
    by_index: String,
    /// The query for a sorted copy of the list of messages, and the expression for the channel; `None` once it is used.
    sorted: Option<(String, &'static str)>,
    /// Whether the order is that of time, until that was prepared for.
    by_time: bool,
    /// Unreadable parts that are still to report.
    found_damage: VecDeque<StorageError>,
    channel_of_topic: HashMap<i64, ChannelIndex>,
    places: VecDeque<Row>,
    /// Time and id of the last place.
    last: (i64, i64),
    /// The time and id of the last message returned.
    given: (i64, i64),
    is_done: bool,
}

impl Cursor {
    fn load_page(&mut self) -> StorageResult<()> {
        match self.try_load_page().map_err(failed("read", &self.path)) {
            Err(error) if error.is_damage() => {
                self.read_around(error)?;
                self.try_load_page().map_err(failed("read", &self.path))
            }
            loaded => loaded,
        }
    }

    /// Continues with the readable part of a damaged database.
    ///
    /// # Errors
    /// `error`, if that is not possible or already happens.
    fn read_around(&mut self, error: StorageError) -> StorageResult<()> {
        let is_whole = self.place.salvaged().is_none();
        let Some(place) = is_whole.then(|| salvage(&self.place, &self.salvaged)).flatten() else {
            return Err(error);
        };
        self.connection = place.connect()?;
        self.found_damage = damage(&place, &self.path, &self.query);
        self.place = place;
        self.places.clear();
        (self.last, self.is_done) = (self.given, false);
        // The list has an index.
        self.page.clone_from(&self.by_index);
        Ok(())
    }

    /// Without an index by time each page would sort all rows: they are sorted once.
    fn sort_once(&mut self) -> rusqlite::Result<()> {
        let index = "SELECT count(*) FROM sqlite_master AS made, pragma_index_info(made.name) AS columns WHERE made.type = 'index' \
                     AND made.tbl_name = 'messages' AND columns.seqno = 0 AND columns.name = 'timestamp'";
        let indexes: i64 = self.connection.query_row(index, [], |row| row.get(0))?;
        if indexes == 0
            && let Some((page, column)) = self.sorted.clone()
        {
            let copy = format!(
                "CREATE TEMP TABLE sorted AS SELECT id, {column} AS topic_id, timestamp FROM messages; \
                 CREATE INDEX temp.sorted_time ON sorted (timestamp, id)"
            );
            self.connection.execute_batch(&copy)?;
            (self.page, self.sorted) = (page, None);
        }
        Ok(())
    }

    fn try_load_page(&mut self) -> rusqlite::Result<()> {
        if std::mem::take(&mut self.by_time) {
            self.sort_once()?;
        }
        let mut statement = self.connection.prepare_cached(&self.page)?;
        let place = |row: &rusqlite::Row<'_>| {
            Ok(Row {
                id: row.get(0)?,
                topic_id: row.get(1)?,
                timestamp: row.get(2)?,
            })
        };
        let rows = statement.query_map(params![self.last.0, self.last.1], place)?;
        for place in rows {
            self.places.push_back(place?);
        }
        drop(statement);
        match self.places.back() {
            Some(place) => self.last = (place.timestamp, place.id),
            None => self.is_done = true,
        }
        Ok(())
    }

    /// The first column of a query for a message; the second is its time, which an index that is damaged has otherwise.
    fn bytes(&self, query: &str, place: Row) -> StorageResult<Option<Vec<u8>>> {
        let refused = failed("read", &self.path);
        let mut statement = self.connection.prepare_cached(query).map_err(&refused)?;
        let mut rows = statement.query([place.id]).map_err(&refused)?;
        let Some(row) = rows.next().map_err(&refused)? else {
            return Ok(None);
        };
        let malformed = |expected: &str, found: String| StorageError::Malformed {
            path: self.path.clone(),
            offset: 0,
            expected: format!("{expected} in message {}", place.id),
            found,
        };
        let time: i64 = row.get(1).map_err(&refused)?;
        if time != place.timestamp {
            return Err(malformed("the time of the index", time.to_string()));
        }
        match row.get_ref(0).map_err(&refused)? {
            ValueRef::Blob(bytes) => {
                let mut payload = reserve(&self.path, "a message", bytes.len() as u64)?;
                payload.extend_from_slice(bytes);
                Ok(Some(payload))
            }
            ValueRef::Null => Ok(None),
            other => Err(malformed("bytes", format!("{:?}", other.data_type()))),
        }
    }

    /// The bytes of a message that [`SHORT_MESSAGE`] omits. As a query's result SQLite would keep a second
    /// copy of them; if `messages` is not a table, that is the only way.
    fn large_bytes(&self, place: Row) -> StorageResult<Option<Vec<u8>>> {
        let Ok(mut blob) = self
            .connection
            .blob_open("main", "messages", "data", place.id, true)
        else {
            return self.bytes("SELECT data, timestamp FROM messages WHERE id = ?1", place);
        };
        let mut payload = reserve(&self.path, "a message", blob.len() as u64)?;
        let read = blob.read_to_end(&mut payload);
        read.map_err(|source| StorageError::Io {
            action: "read",
            path: self.path.clone(),
            source,
        })?;
        Ok(Some(payload))
    }

    /// The bytes of a message.
    fn payload(&self, place: Row) -> StorageResult<Option<Vec<u8>>> {
        if let Some(salvaged) = self.place.salvaged() {
            return salvaged.payload(&self.connection, place.id);
        }
        match self.bytes(SHORT_MESSAGE, place)? {
            Some(payload) => Ok(Some(payload)),
            None => self.large_bytes(place),
        }
    }

    fn message(&self, place: Row) -> StorageResult<ReadMessage> {
        let malformed = |expected: &str, found: String| StorageError::Malformed {
            path: self.path.clone(),
            offset: 0,
            expected: format!("{expected} in message {}", place.id),
            found,
        };
        let payload = self.payload(place)?;
        let payload = Bytes::from(payload.ok_or_else(|| malformed("bytes", "nothing".to_owned()))?);
        let Some(channel) = self.channel_of_topic.get(&place.topic_id) else {
            return Err(malformed("a known topic", format!("topic {}", place.topic_id)));
        };
        let time = Timestamp::from_nanos(place.timestamp);
        Ok(ReadMessage {
            channel: *channel,
            log_time: time,
            publish_time: time,
            sequence: 0,
            payload,
        })
    }
}

impl Iterator for Cursor {
    type Item = StorageResult<ReadMessage>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if self.places.is_empty()
                && !self.is_done
                && let Err(error) = self.load_page()
            {
                self.is_done = true;
                return Some(Err(error));
            }
            if let Some(damage) = self.found_damage.pop_front() {
                return Some(Err(damage));
            }
            let place = self.places.pop_front()?;
            match self.message(place) {
                Err(error) if error.is_damage() && self.place.salvaged().is_none() => {
                    if let Err(error) = self.read_around(error) {
                        self.given = (place.timestamp, place.id);
                        return Some(Err(error));
                    }
                }
                message => {
                    self.given = (place.timestamp, place.id);
                    return Some(message);
                }
            }
        }
    }
}
