//! Writes one SQLite3 database: topics, definitions and messages, a batch in one transaction. Pages are built here where that is possible,
//! else by SQLite's engine.

use super::{
    beside::Beside,
    build::{Builder, Output},
    engine::Engine,
    ffi_vfs::{BlockFile, Lent},
    format::{
        CREATE_MESSAGE_PUBLISHERS, CREATE_PUBLISHERS, CREATE_RECORDS, CREATE_TABLES, MESSAGE_PUBLISHERS,
        PUBLISHERS, RECORDS, ROSBAG2_KEY, ROSBAG2_RECORD, SCHEMA_VERSION, metadata_version,
    },
    open::open,
    options::SqliteOptions,
    topics::{Place, TopicRow, Topics},
};
use crate::{
    error::StorageResult,
    tally::Tally,
    writer::{ChannelIndex, ChannelInfo, FileSummary, MetadataEntries, StorageWriter, StoredMessage},
};
use holdall_io::{
    disk::FileId,
    fs,
    queue::{DiskQueue, SyncToken},
};
use holdall_model::{
    names::service_of_event_type,
    qos::profiles_to_text,
    topic::{DefinitionEncoding, MessageDefinition, TopicInfo},
};
use rusqlite::{params, types::Value};
use std::{
    collections::HashSet,
    path::{Path, PathBuf},
};

/// A transaction is ended by [`StorageWriter::step`] when it has grown to this, or spans [`COMMIT_NANOS`].
const COMMIT_BYTES: u64 = 16 << 20;
/// As above where pages are built and each commit is synced. The engine keeps the pages of a transaction in memory.
const SYNCED_COMMIT_BYTES: u64 = 48 << 20;
/// See [`COMMIT_BYTES`].
const COMMIT_NANOS: i64 = 1_000_000_000;
/// About how many bytes a message needs in table and index in addition to its own.
const MESSAGE_OVERHEAD_BYTES: u64 = 40;
/// Large messages are handed over when this much waits and the disk is idle, or when nothing more has come.
const HAND_OVER_BYTES: u64 = 4 << 20;

/// One database that is being written.
pub(crate) struct SqliteWriter {
    path: PathBuf,
    file: FileId,
    engine: Engine,
    /// `None` where the engine writes all rows.
    built: Option<Built>,
    tally: Tally,
    defined_types: HashSet<String>,
    topics: Topics,
    commit_bytes: u64,
    in_transaction: bool,
    /// Log time of the first message of the transaction.
    transaction_start: i64,
    uncommitted_bytes: u64,
    /// [`Self::uncommitted_bytes`] when large messages were asked for last.
    asked_at_bytes: u64,
    committed_bytes: u64,
    committed_messages: u64,
    records: i64,
}

/// Builds pages of the database.
struct Built {
    builder: Builder,
    /// To read pages that are not in memory.
    file: fs::File,
}

impl Built {
    /// Runs `action` with the pages and the disk.
    fn with<T>(
        &mut self,
        blocks: Option<&BlockFile>,
        q: &mut DiskQueue,
        action: impl FnOnce(&mut Builder, &mut Output<'_>) -> StorageResult<T>,
    ) -> Option<StorageResult<T>> {
        let mut pages = blocks?.pages();
        let mut out = Output {
            pages: &mut pages,
            q,
            file: &|offset, to| self.file.read_exact_at(to, offset),
        };
        Some(action(&mut self.builder, &mut out))
    }
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
        let engine = open(q, file, path, options)?;
        let mut writer = Self {
            path: path.to_owned(),
            file,
            engine,
            built: None,
            tally: Tally::new(path),
            defined_types: HashSet::new(),
            topics: Topics::default(),
            commit_bytes: COMMIT_BYTES,
            in_transaction: false,
            transaction_start: 0,
            uncommitted_bytes: 0,
            asked_at_bytes: 0,
            committed_bytes: 0,
            committed_messages: 0,
            records: 0,
        };
        let lent = writer.lend(q);
        for pragma in &options.write_pragmas {
            writer.engine.pragma("set a pragma of", pragma)?;
        }
        // All or nothing: a repair does not know tables without a version.
        writer.engine.begin()?;
        for statement in CREATE_TABLES {
            writer.engine.execute("make the tables of", statement, [])?;
        }
        let distro = Value::Text(ros_distro.unwrap_or_default().to_owned());
        writer.engine.insert("schema", Some(SCHEMA_VERSION), &[distro])?;
        writer.engine.commit()?;
        drop(lent);
        match options.unspoken() {
            Some(pragma) => tracing::info!(
                path = %path.display(),
                "SQLite's engine writes this database, at a lower rate, because of the pragma {pragma:?}"
            ),
            None => writer.begin_building(q, options.survives_power_cut())?,
        }
        Ok(writer)
    }

    /// Lets SQLite write through the queue as long as the result lives.
    fn lend<'queue>(&self, q: &'queue mut DiskQueue) -> Option<Lent<'queue>> {
        self.engine.blocks().map(|blocks| blocks.lend(q))
    }

    /// From now on pages are built here, if the database is one of those that are.
    fn begin_building(&mut self, q: &mut DiskQueue, survives_power_cut: bool) -> StorageResult<()> {
        let Some(blocks) = self.engine.blocks() else {
            return Ok(());
        };
        let lent = self.lend(q);
        let roots = self.engine.roots()?;
        drop(lent);
        let file = fs::File::open(&self.path)?;
        let surroundings = Box::new(Beside::new(&self.path, blocks.locks()));
        let mut pages = blocks.pages();
        let mut out = Output {
            pages: &mut pages,
            q,
            file: &|offset, to| file.read_exact_at(to, offset),
        };
        let builder = Builder::open(&mut out, &self.path, &roots, surroundings, survives_power_cut)?;
        drop(pages);
        match builder {
            Some(builder) => {
                // What SQLite itself changes from now on, it journals in a file, too, as what is built here.
                let lent = self.lend(q);
                self.engine.pragma("set a pragma of", "journal_mode = DELETE")?;
                drop(lent);
                self.built = Some(Built { builder, file });
                self.commit_bytes = match survives_power_cut {
                    true => SYNCED_COMMIT_BYTES,
                    false => COMMIT_BYTES,
                };
            }
            None => tracing::info!(
                path = %self.path.display(),
                "SQLite's engine writes this database, at a lower rate: it is not as expected"
            ),
        }
        Ok(())
    }

    /// Runs `action` with the pages and the disk; `None` where they are not built here.
    fn build<T>(
        &mut self,
        q: &mut DiskQueue,
        action: impl FnOnce(&mut Builder, &mut Output<'_>) -> StorageResult<T>,
    ) -> Option<StorageResult<T>> {
        self.built.as_mut()?.with(self.engine.blocks(), q, action)
    }

    /// Commits what was built, and lets the engine change the database.
    fn by_engine(
        &mut self,
        q: &mut DiskQueue,
        action: impl FnOnce(&mut Engine) -> StorageResult<()>,
    ) -> StorageResult<()> {
        let committed = self.build(q, |builder, out| {
            builder.commit(out)?;
            builder.give_away();
            Ok(())
        });
        committed.transpose()?;
        let lent = self.lend(q);
        action(&mut self.engine)?;
        let roots = match self.built {
            Some(_) => self.engine.roots()?,
            None => Vec::new(),
        };
        drop(lent);
        match self.build(q, |builder, out| builder.reopen(out, &roots)) {
            Some(Ok(false)) => (self.built, self.commit_bytes) = (None, COMMIT_BYTES),
            Some(reopened) => drop(reopened?),
            None => {}
        }
        Ok(())
    }

    /// Inserts a row whose first column is its id; without one it gets the next.
    fn insert(
        &mut self,
        q: &mut DiskQueue,
        table: &'static str,
        id: Option<i64>,
        values: &[Value],
    ) -> StorageResult<()> {
        match self.build(q, |builder, out| builder.row(out, table, id, values)) {
            Some(Ok(true)) => Ok(()),
            Some(Err(error)) => Err(error),
            Some(Ok(false)) | None => self.by_engine(q, |engine| engine.insert(table, id, values)),
        }
    }

    /// Makes a table that is not there.
    fn create_table(
        &mut self,
        q: &mut DiskQueue,
        table: &'static str,
        statement: &'static str,
    ) -> StorageResult<()> {
        let built = self.built.as_ref();
        if built.is_some_and(|built| built.builder.has_table(table)) {
            return Ok(());
        }
        self.by_engine(q, |engine| engine.execute("make the tables of", statement, []))
    }

    /// A row outside of a transaction is committed by itself.
    fn commit_alone(&mut self, q: &mut DiskQueue) -> StorageResult<()> {
        if self.in_transaction {
            return Ok(());
        }
        self.build(q, Builder::commit).unwrap_or(Ok(()))
    }

    fn insert_topic_row(
        &mut self,
        q: &mut DiskQueue,
        topic: &TopicInfo,
        row: &TopicRow,
    ) -> StorageResult<()> {
        let profiles = profiles_to_text(&topic.offered_qos_profiles);
        let hash = &topic.type_description_hash;
        let text = |text: &str| Value::Text(text.to_owned());
        match *row {
            TopicRow::New { topic_id } => {
                let values = [
                    text(&topic.name),
                    text(&topic.type_name),
                    text(&topic.serialization_format),
                    text(&profiles),
                    text(hash),
                ];
                self.insert(q, "topics", Some(topic_id), &values)
            }
            TopicRow::Again { topic_id } => {
                let update = "UPDATE topics SET offered_qos_profiles = CASE WHEN ?2 = '' THEN offered_qos_profiles ELSE ?2 END, \
                     type_description_hash = CASE WHEN ?3 = '' THEN type_description_hash ELSE ?3 END WHERE id = ?1";
                let is_known = !topic.offered_qos_profiles.is_empty();
                let values = params![topic_id, if is_known { &profiles } else { "" }, hash];
                self.by_engine(q, |engine| engine.execute("insert into", update, values))
            }
            TopicRow::Publisher { id, topic_id } => {
                self.create_table(q, PUBLISHERS, CREATE_PUBLISHERS)?;
                if id != topic_id {
                    self.create_table(q, MESSAGE_PUBLISHERS, CREATE_MESSAGE_PUBLISHERS)?;
                }
                let publisher = topic.publisher.as_deref();
                let known = |text: Option<&String>| text.cloned().map_or(Value::Null, Value::Text);
                let values = [
                    Value::Integer(topic_id),
                    text(publisher.map_or("", |publisher| &publisher.gid)),
                    known(publisher.and_then(|publisher| publisher.node.as_ref())),
                    known(publisher.and_then(|publisher| publisher.host.as_ref())),
                    known(publisher.and_then(|publisher| publisher.transport.as_ref())),
                    Value::Null,
                ];
                self.insert(q, PUBLISHERS, Some(id), &values)
            }
        }
    }

    /// Stores a type's definition once, as rosbag2 does: that of a service event under the name of the service. A type without one has no
    /// row: readers take an encoding that they do not know for a damaged bag.
    fn insert_definition(
        &mut self,
        q: &mut DiskQueue,
        topic: &TopicInfo,
        definition: &MessageDefinition,
    ) -> StorageResult<()> {
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
        let text = |text: &str| Value::Text(text.to_owned());
        let encoding = definition.encoding.as_str();
        let values = [
            text(type_name),
            text(encoding),
            text(&definition.text),
            text(hash),
        ];
        self.insert(q, "message_definitions", None, &values)
    }

    /// Stores how many messages each publisher has, so that a reader need not count rows.
    fn count_publishers(&mut self, q: &mut DiskQueue) -> StorageResult<()> {
        let mut counts = Vec::new();
        for (publisher_id, channel) in self.topics.publishers() {
            let count = self.tally.counts()[self.tally.place(channel)?];
            counts.push((publisher_id, i64::try_from(count).unwrap_or(i64::MAX)));
        }
        if counts.is_empty() {
            return Ok(());
        }
        let update = "UPDATE holdall_topic_publishers SET message_count = coalesce(message_count, 0) + ?2 WHERE id = ?1";
        self.by_engine(q, |engine| {
            engine.begin()?;
            for (publisher_id, count) in counts {
                engine.execute("insert into", update, params![publisher_id, count])?;
            }
            engine.commit()
        })
    }

    fn commit(&mut self, q: &mut DiskQueue) -> StorageResult<()> {
        self.committed_bytes = match self.build(q, |builder, out| {
            builder.commit(out)?;
            Ok(builder.committed_bytes())
        }) {
            Some(committed) => committed?,
            None => {
                let _lent = self.lend(q);
                self.engine.commit()?;
                self.engine.length_bytes()?
            }
        };
        self.in_transaction = false;
        self.uncommitted_bytes = 0;
        self.asked_at_bytes = 0;
        self.committed_messages = self.tally.messages();
        Ok(())
    }

    fn insert_message(
        &mut self,
        q: &mut DiskQueue,
        place: Place,
        message: &StoredMessage<'_>,
    ) -> StorageResult<()> {
        let timestamp = message.log_time.as_nanos();
        let built = self.build(q, |builder, out| {
            let row = builder.message(out, place.topic_id, timestamp, message.payload)?;
            Ok((row, builder.is_pressed()))
        });
        let Some((row, is_pressed)) = built.transpose()? else {
            let _lent = self.lend(q);
            return self.engine.message(timestamp, place, message.payload);
        };
        if let Some(publisher_id) = place.publisher_id {
            let publisher = [Value::Integer(publisher_id)];
            self.insert(q, MESSAGE_PUBLISHERS, Some(row), &publisher)?;
        }
        if is_pressed {
            self.commit(q)?;
        }
        Ok(())
    }
}

impl StorageWriter for SqliteWriter {
    fn add_channel(&mut self, q: &mut DiskQueue, info: &ChannelInfo) -> StorageResult<ChannelIndex> {
        let index = self.tally.next_channel()?;
        for row in self.topics.add(index, &info.topic) {
            self.insert_topic_row(q, &info.topic, &row)?;
        }
        self.insert_definition(q, &info.topic, &info.definition)?;
        self.commit_alone(q)?;
        self.tally.add_channel();
        Ok(index)
    }

    fn write(
        &mut self,
        q: &mut DiskQueue,
        channel: ChannelIndex,
        message: StoredMessage<'_>,
    ) -> StorageResult<()> {
        let place = self.tally.place(channel)?;
        let timestamp = message.log_time.as_nanos();
        self.tally.count(place, timestamp);
        if !self.in_transaction {
            self.in_transaction = true;
            self.transaction_start = timestamp;
        }
        self.uncommitted_bytes += message.payload.len() as u64 + MESSAGE_OVERHEAD_BYTES;
        self.insert_message(q, self.topics.places[place], &message)
    }

    fn write_metadata(
        &mut self,
        q: &mut DiskQueue,
        name: &str,
        entries: &MetadataEntries,
    ) -> StorageResult<()> {
        if let (ROSBAG2_RECORD, Some(text)) = (name, entries.get(ROSBAG2_KEY)) {
            let values = [Value::Integer(metadata_version(text)), Value::Text(text.clone())];
            self.insert(q, "metadata", None, &values)?;
            return self.commit_alone(q);
        }
        self.create_table(q, RECORDS, CREATE_RECORDS)?;
        self.records += 1;
        for (key, value) in entries {
            let texts = [name, key, value].map(|text| Value::Text(text.to_owned()));
            let values: Vec<Value> = std::iter::once(Value::Integer(self.records))
                .chain(texts)
                .collect();
            self.insert(q, RECORDS, None, &values)?;
        }
        self.commit_alone(q)
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
        if self.in_transaction && (self.uncommitted_bytes >= self.commit_bytes || spans >= COMMIT_NANOS) {
            self.commit(q)?;
        }
        Ok(())
    }

    fn close_chunks(&mut self, q: &mut DiskQueue) -> StorageResult<()> {
        self.commit(q)
    }

    fn handed(&mut self, _q: &DiskQueue) -> u64 {
        self.committed_messages
    }

    fn hand_over_large(&mut self, q: &mut DiskQueue) -> StorageResult<bool> {
        let waits_for_more = (self.uncommitted_bytes < HAND_OVER_BYTES || q.in_flight() > 0)
            && self.uncommitted_bytes > self.asked_at_bytes;
        self.asked_at_bytes = self.uncommitted_bytes;
        if waits_for_more {
            return Ok(false);
        }
        self.commit(q)?;
        Ok(true)
    }

    fn make_durable(&mut self, q: &mut DiskQueue) -> StorageResult<Option<SyncToken>> {
        self.close_chunks(q)?;
        if self.engine.blocks().is_none() {
            // Syncs a write-ahead log, and moves the pages that no reader needs to the database. Does nothing without a log.
            self.engine.pragma("sync", "wal_checkpoint(PASSIVE)")?;
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
            .try_for_each(|(name, entries)| self.write_metadata(q, name, entries))
            .and_then(|()| self.count_publishers(q))
            .and_then(|()| self.commit(q));
        let mut summary = self.summary();
        let Self {
            path, file, engine, ..
        } = *self;
        let lent = engine.blocks().map(|blocks| blocks.lend(q));
        let (closed, blocks) = engine.close();
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
