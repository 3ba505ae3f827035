//! Writes one SQLite3 database: topics, definitions and messages, a batch in one transaction.

use super::{
    failed,
    ffi_vfs::{BlockFile, Lent},
    format::{
        CREATE_MESSAGE_PUBLISHERS, CREATE_PUBLISHERS, CREATE_RECORDS, CREATE_TABLES, INSERT_MESSAGE,
        INSERT_MESSAGE_PUBLISHER, ROSBAG2_KEY, ROSBAG2_RECORD, SCHEMA_VERSION, metadata_version,
    },
    open::open,
    options::SqliteOptions,
    topics::{Place, TopicRow, Topics},
};
use crate::{
    error::{StorageError, StorageResult},
    tally::Tally,
    writer::{ChannelIndex, ChannelInfo, FileSummary, MetadataEntries, StorageWriter, StoredMessage},
};
use holdall_io::{
    disk::FileId,
    queue::{DiskQueue, SyncToken},
};
use holdall_model::{
    message::PayloadRef,
    names::service_of_event_type,
    qos::profiles_to_text,
    topic::{DefinitionEncoding, MessageDefinition, TopicInfo},
};
use rusqlite::{Connection, blob::ZeroBlob, params};
use std::{
    collections::HashSet,
    io::Write,
    path::{Path, PathBuf},
};

/// Small messages are gathered and inserted together, so that the prepared statement is looked up once for many.
const GATHERED_BYTES_MAX: usize = 256 << 10;
/// From this size on a message is inserted at once: another copy would cost more than the look-up.
const GATHER_PAYLOAD_BYTES_MAX: usize = 2 << 10;
/// From this size on a message is written into its row piece by piece, in pieces of the second size.
const LARGE_BYTES_MIN: usize = 8 << 20;
const PIECE_BYTES: usize = 1 << 20;
/// A transaction is ended by [`StorageWriter::step`] when it has grown to this, or spans [`COMMIT_NANOS`].
const COMMIT_BYTES: u64 = 16 << 20;
/// See [`COMMIT_BYTES`].
const COMMIT_NANOS: i64 = 1_000_000_000;
/// About how many bytes a message needs in table and index in addition to its own.
const MESSAGE_OVERHEAD_BYTES: u64 = 40;

/// A gathered message; its payload is the next part of the gathered bytes.
struct Gathered {
    timestamp: i64,
    place: Place,
    payload_bytes: usize,
}

/// One database that is being written.
pub(crate) struct SqliteWriter {
    path: PathBuf,
    file: FileId,
    connection: Connection,
    /// How pages get to the disk layer; `None` if SQLite writes everything itself.
    blocks: Option<BlockFile>,
    tally: Tally,
    defined_types: HashSet<String>,
    topics: Topics,
    gathered: Vec<Gathered>,
    gathered_bytes: Vec<u8>,
    in_transaction: bool,
    /// Log time of the first message of the transaction.
    transaction_start: i64,
    uncommitted_bytes: u64,
    committed_bytes: u64,
    committed_messages: u64,
    records: i64,
}

impl SqliteWriter {
    /// Makes the tables in the empty file that the queue has made at `path`.
    ///
    /// # Errors
    /// A file that could not be made; a pragma that SQLite refuses.
    pub fn create(
        q: &mut DiskQueue,
        file: FileId,
        path: &Path,
        options: &SqliteOptions,
        ros_distro: Option<&str>,
    ) -> StorageResult<Self> {
        while !q.is_created(file)? {
            q.wait_one();
        }
        let (connection, blocks) = open(q, file, path, options)?;
        let writer = Self {
            path: path.to_owned(),
            file,
            connection,
            blocks,
            tally: Tally::new(path),
            defined_types: HashSet::new(),
            topics: Topics::default(),
            gathered: Vec::new(),
            gathered_bytes: Vec::new(),
            in_transaction: false,
            transaction_start: 0,
            uncommitted_bytes: 0,
            committed_bytes: 0,
            committed_messages: 0,
            records: 0,
        };
        let lent = writer.lend(q);
        for pragma in &options.write_pragmas {
            run_pragma(&writer.connection, pragma).map_err(failed("set a pragma of", path))?;
        }
        for statement in CREATE_TABLES {
            writer.execute("make the tables of", statement, [])?;
        }
        let distro = ros_distro.unwrap_or_default();
        let insert = "INSERT INTO schema (schema_version, ros_distro) VALUES (?1, ?2)";
        writer.execute("insert into", insert, params![SCHEMA_VERSION, distro])?;
        drop(lent);
        Ok(writer)
    }

    /// Lets SQLite write through the queue as long as the result lives.
    fn lend<'queue>(&self, q: &'queue mut DiskQueue) -> Option<Lent<'queue>> {
        self.blocks.as_ref().map(|blocks| blocks.lend(q))
    }

    fn execute(
        &self,
        action: &'static str,
        statement: &str,
        values: impl rusqlite::Params,
    ) -> StorageResult<()> {
        self.connection
            .execute(statement, values)
            .map(drop)
            .map_err(refused(action, self.blocks.as_ref(), &self.path))
    }

    fn begin(&mut self, timestamp: i64) -> StorageResult<()> {
        if !self.in_transaction {
            self.execute("begin a transaction in", "BEGIN IMMEDIATE", [])?;
            self.in_transaction = true;
            self.transaction_start = timestamp;
        }
        Ok(())
    }

    fn insert_gathered(&mut self) -> StorageResult<()> {
        if self.gathered.is_empty() {
            return Ok(());
        }
        let refused = refused("insert into", self.blocks.as_ref(), &self.path);
        let mut insert = self.connection.prepare_cached(INSERT_MESSAGE).map_err(&refused)?;
        let mut rest = &self.gathered_bytes[..];
        for message in &self.gathered {
            let (payload, next) = rest.split_at(message.payload_bytes);
            rest = next;
            insert
                .execute(params![message.timestamp, message.place.topic_id, payload])
                .map_err(&refused)?;
            if let Some(publisher_id) = message.place.publisher_id {
                self.insert_publisher_of_last(publisher_id).map_err(&refused)?;
            }
        }
        drop(insert);
        self.gathered.clear();
        self.gathered_bytes.clear();
        Ok(())
    }

    /// Notes the publisher of the message that was just inserted.
    fn insert_publisher_of_last(&self, publisher_id: i64) -> rusqlite::Result<()> {
        let row = self.connection.last_insert_rowid();
        let mut insert = self.connection.prepare_cached(INSERT_MESSAGE_PUBLISHER)?;
        insert.execute([row, publisher_id]).map(drop)
    }

    fn insert_one(&mut self, timestamp: i64, place: Place, payload: PayloadRef<'_>) -> StorageResult<()> {
        let topic_id = place.topic_id;
        self.insert_gathered()?;
        let refused = refused("insert into", self.blocks.as_ref(), &self.path);
        let mut insert = self.connection.prepare_cached(INSERT_MESSAGE).map_err(&refused)?;
        let length = payload.len();
        if length >= LARGE_BYTES_MIN {
            insert
                .execute(params![timestamp, topic_id, ZeroBlob(length as u64)])
                .map_err(&refused)?;
            self.fill_last(payload)?;
        }
        match payload {
            _ if length >= LARGE_BYTES_MIN => Ok(0),
            PayloadRef::Bytes(bytes) => insert.execute(params![timestamp, topic_id, bytes]),
            PayloadRef::Loan(_) => {
                // SQLite wants a payload in one piece.
                payload.for_each_slice(|slice| self.gathered_bytes.extend_from_slice(slice));
                insert.execute(params![timestamp, topic_id, &self.gathered_bytes[..]])
            }
        }
        .map_err(&refused)?;
        if let Some(publisher_id) = place.publisher_id {
            self.insert_publisher_of_last(publisher_id).map_err(&refused)?;
        }
        drop(insert);
        self.gathered_bytes.clear();
        Ok(())
    }

    /// Writes a large payload piece by piece over the zeros of the row that was just inserted: bound to the statement SQLite holds it twice.
    fn fill_last(&self, payload: PayloadRef<'_>) -> StorageResult<()> {
        let row = self.connection.last_insert_rowid();
        let blob = self.connection.blob_open("main", "messages", "data", row, false);
        let mut blob = blob.map_err(refused("insert into", self.blocks.as_ref(), &self.path))?;
        let mut written = Ok(());
        payload.for_each_slice(|slice| {
            for piece in slice.chunks(PIECE_BYTES) {
                if written.is_ok() {
                    written = blob.write_all(piece);
                }
            }
        });
        written.map_err(|source| StorageError::Io {
            action: "insert into",
            path: self.path.clone(),
            source,
        })
    }

    fn insert_topic_row(&self, topic: &TopicInfo, row: &TopicRow) -> StorageResult<()> {
        let profiles = profiles_to_text(&topic.offered_qos_profiles);
        let hash = &topic.type_description_hash;
        match *row {
            TopicRow::New { topic_id } => self.execute(
                "insert into",
                "INSERT INTO topics (id, name, type, serialization_format, offered_qos_profiles, type_description_hash) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
                params![topic_id, topic.name, topic.type_name, topic.serialization_format, profiles, hash],
            ),
            TopicRow::Again { topic_id } => self.execute(
                "insert into",
                "UPDATE topics SET offered_qos_profiles = CASE WHEN ?2 = '' THEN offered_qos_profiles ELSE ?2 END, \
                 type_description_hash = CASE WHEN ?3 = '' THEN type_description_hash ELSE ?3 END WHERE id = ?1",
                params![topic_id, profiles, hash],
            ),
            TopicRow::Publisher { id, topic_id } => {
                self.execute("make the tables of", CREATE_PUBLISHERS, [])?;
                if id != topic_id {
                    self.execute("make the tables of", CREATE_MESSAGE_PUBLISHERS, [])?;
                }
                let publisher = topic.publisher.as_deref();
                self.execute(
                    "insert into",
                    "INSERT INTO holdall_topic_publishers (id, topic_id, gid, node, host, transport) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
                    params![
                        id,
                        topic_id,
                        publisher.map_or("", |publisher| &publisher.gid),
                        publisher.and_then(|publisher| publisher.node.as_deref()),
                        publisher.and_then(|publisher| publisher.host.as_deref()),
                        publisher.and_then(|publisher| publisher.transport.as_deref()),
                    ],
                )
            }
        }
    }

    /// Stores a type's definition once, as rosbag2 does: that of a service event under the name of the service. A type without one has no
    /// row: readers take an encoding that they do not know for a damaged bag.
    fn insert_definition(&mut self, topic: &TopicInfo, definition: &MessageDefinition) -> StorageResult<()> {
        if matches!(
            definition.encoding,
            DefinitionEncoding::Unknown | DefinitionEncoding::JsonSchema
        ) {
            return Ok(());
        }
        let type_name = if definition.type_name.is_empty() {
            &topic.type_name
        } else {
            &definition.type_name
        };
        let type_name = service_of_event_type(type_name).unwrap_or(type_name);
        if !self.defined_types.insert(type_name.to_owned()) {
            return Ok(());
        }
        let hash = if definition.type_description_hash.is_empty() {
            &topic.type_description_hash
        } else {
            &definition.type_description_hash
        };
        self.execute(
            "insert into",
            "INSERT INTO message_definitions \
             (topic_type, encoding, encoded_message_definition, type_description_hash) VALUES (?1, ?2, ?3, ?4)",
            params![type_name, definition.encoding.as_str(), definition.text, hash],
        )
    }

    /// Stores how many messages each publisher has, so that a reader need not count rows.
    fn count_publishers(&self) -> StorageResult<()> {
        let update = "UPDATE holdall_topic_publishers SET message_count = coalesce(message_count, 0) + ?2 WHERE id = ?1";
        for (publisher_id, channel) in self.topics.publishers() {
            let count = self.tally.counts()[self.tally.place(channel)?];
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            self.execute("insert into", update, params![publisher_id, count])?;
        }
        Ok(())
    }

    fn commit(&mut self) -> StorageResult<()> {
        self.insert_gathered()?;
        if std::mem::take(&mut self.in_transaction) {
            self.execute("commit a transaction to", "COMMIT", [])?;
        }
        self.uncommitted_bytes = 0;
        self.committed_messages = self.tally.messages();
        self.committed_bytes = self.length_of_database()?;
        Ok(())
    }

    fn length_of_database(&self) -> StorageResult<u64> {
        let pragma = |name: &str| {
            let value = self
                .connection
                .pragma_query_value(None, name, |row| row.get::<_, i64>(0));
            value
                .map(i64::unsigned_abs)
                .map_err(failed("ask for the length of", &self.path))
        };
        Ok(pragma("page_count")? * pragma("page_size")?)
    }
}

/// Converts an error of the database library: where the disk has failed, its own error has the cause.
fn refused<'a>(
    action: &'static str,
    blocks: Option<&'a BlockFile>,
    path: &'a Path,
) -> impl Fn(rusqlite::Error) -> StorageError + 'a {
    move |source| match blocks.and_then(BlockFile::take_error) {
        Some(error) => error.into(),
        None => failed(action, path)(source),
    }
}

/// Runs a pragma and ignores its answer.
pub(super) fn run_pragma(connection: &Connection, pragma: &str) -> rusqlite::Result<()> {
    let mut statement = connection.prepare(&format!("PRAGMA {pragma}"))?;
    let mut rows = statement.query([])?;
    while rows.next()?.is_some() {}
    Ok(())
}

impl StorageWriter for SqliteWriter {
    fn add_channel(&mut self, q: &mut DiskQueue, info: &ChannelInfo) -> StorageResult<ChannelIndex> {
        let _lent = self.lend(q);
        let index = self.tally.next_channel()?;
        self.insert_gathered()?;
        for row in self.topics.add(index, &info.topic) {
            self.insert_topic_row(&info.topic, &row)?;
        }
        self.insert_definition(&info.topic, &info.definition)?;
        self.tally.add_channel();
        Ok(index)
    }

    fn write(
        &mut self,
        q: &mut DiskQueue,
        channel: ChannelIndex,
        message: StoredMessage<'_>,
    ) -> StorageResult<()> {
        let _lent = self.lend(q);
        let place = self.tally.place(channel)?;
        let timestamp = message.log_time.as_nanos();
        self.tally.count(place, timestamp);
        self.begin(timestamp)?;
        let payload_bytes = message.payload.len();
        self.uncommitted_bytes += payload_bytes as u64 + MESSAGE_OVERHEAD_BYTES;
        let place = self.topics.places[place];
        if payload_bytes >= GATHER_PAYLOAD_BYTES_MAX {
            return self.insert_one(timestamp, place, message.payload);
        }
        let before = self.gathered_bytes.len();
        message
            .payload
            .for_each_slice(|slice| self.gathered_bytes.extend_from_slice(slice));
        let payload_bytes = self.gathered_bytes.len() - before;
        self.gathered.push(Gathered {
            timestamp,
            place,
            payload_bytes,
        });
        if self.gathered_bytes.len() + self.gathered.len() * size_of::<Gathered>() >= GATHERED_BYTES_MAX {
            self.insert_gathered()?;
        }
        Ok(())
    }

    fn write_metadata(
        &mut self,
        q: &mut DiskQueue,
        name: &str,
        entries: &MetadataEntries,
    ) -> StorageResult<()> {
        let _lent = self.lend(q);
        self.insert_gathered()?;
        if let (ROSBAG2_RECORD, Some(text)) = (name, entries.get(ROSBAG2_KEY)) {
            let insert = "INSERT INTO metadata (metadata_version, metadata) VALUES (?1, ?2)";
            return self.execute("insert into", insert, params![metadata_version(text), text]);
        }
        self.execute("make the tables of", CREATE_RECORDS, [])?;
        self.records += 1;
        let insert = "INSERT INTO holdall_records (record, name, key, value) VALUES (?1, ?2, ?3, ?4)";
        for (key, value) in entries {
            self.execute("insert into", insert, params![self.records, name, key, value])?;
        }
        Ok(())
    }

    fn summary(&self) -> FileSummary {
        self.tally.summary(self.bytes_written())
    }

    fn bytes_written(&self) -> u64 {
        self.committed_bytes + self.uncommitted_bytes
    }

    fn step(&mut self, q: &mut DiskQueue) -> StorageResult<()> {
        let spans = self
            .tally
            .times()
            .map_or(0, |(_, end)| end.saturating_sub(self.transaction_start));
        if self.in_transaction && (self.uncommitted_bytes >= COMMIT_BYTES || spans >= COMMIT_NANOS) {
            let _lent = self.lend(q);
            self.commit()?;
        }
        Ok(())
    }

    fn close_chunks(&mut self, q: &mut DiskQueue) -> StorageResult<()> {
        let _lent = self.lend(q);
        self.commit()
    }

    fn handed(&mut self, _q: &DiskQueue) -> u64 {
        self.committed_messages
    }

    fn make_durable(&mut self, q: &mut DiskQueue) -> StorageResult<Option<SyncToken>> {
        self.close_chunks(q)?;
        if self.blocks.is_none() {
            // Syncs a write-ahead log, and moves the pages that no reader needs to the database. Does nothing without a log.
            run_pragma(&self.connection, "wal_checkpoint(PASSIVE)").map_err(failed("sync", &self.path))?;
        }
        // Both have the file open: the kernel syncs what either has written.
        Ok(Some(q.sync(self.file)?))
    }

    fn finish(
        mut self: Box<Self>,
        q: &mut DiskQueue,
        closing_metadata: &[(&str, MetadataEntries)],
    ) -> StorageResult<FileSummary> {
        let ended = closing_metadata
            .iter()
            .try_for_each(|(name, entries)| self.write_metadata(q, name, entries));
        let lent = self.lend(q);
        let ended = ended
            .and_then(|()| self.count_publishers())
            .and_then(|()| self.commit());
        let mut summary = self.summary();
        let Self {
            path,
            file,
            connection,
            blocks,
            ..
        } = *self;
        // Closing moves a write-ahead log into the database and removes it.
        let closed = connection
            .close()
            .map_err(|(_, error)| failed("close", &path)(error));
        drop(lent);
        let length = match &blocks {
            Some(blocks) => Ok(blocks.length()),
            None => holdall_io::fs::file_len(&path),
        };
        summary.bytes = length.as_ref().copied().unwrap_or(summary.bytes);
        // The queue syncs and closes, also when the end could not be written.
        let synced = q.close_file(file, summary.bytes);
        ended.and(closed)?;
        length?;
        synced?;
        Ok(summary)
    }
}
