//! Writes the two databases of one topic: messages ahead into a log, then sorted into tables.

use super::format::{
    BYTEWISE_COMPARATOR, KEY_BYTE_ORDER, KEY_NAME, KEY_QOS, KEY_SERIALIZATION_FORMAT, KEY_TYPE,
    MESSAGE_SUFFIX, METADATA_SUFFIX, TIMESTAMP_COMPARATOR, batch, begin_lone_batch,
    log::LogWriter,
    manifest::{TableInfo, first_edit, tables_edit},
    numbered,
    table::LoneTable,
};
use super::{
    gathered::Gathered,
    options::LeveldbOptions,
    queued::{append_lone, write_table},
    recover::Table,
    stamps::TakenRuns,
};
use crate::error::StorageResult;
use holdall_io::{disk::FileId, fs, queue::DiskQueue, stream::BlockStream};
use holdall_model::{message::PayloadRef, qos::profiles_to_text, topic::TopicInfo};
use std::path::{Path, PathBuf};

/// The log's bytes are handed to the system in pieces of this length.
const LOG_PIECE_BYTES: usize = 256 << 10;
/// Tables that may wait for their sync before those that are complete are named.
const UNSETTLED_MAX: usize = 8;
/// Tables that may wait at all.
const WAITING_MAX: usize = 32;
/// The manifest's only name here.
const MANIFEST: &str = "MANIFEST-000001";
/// Tables that do not overlap are on the last level, where LevelDB does not compact them.
const LEVEL_SORTED: u32 = 6;

/// A table that was written, with its stamps.
struct WrittenTable {
    info: TableInfo,
    first: i64,
    last: i64,
    /// The file that the queue writes it to, if it does: the table is complete and durable only once that is closed.
    file: Option<FileId>,
    /// The number of a large message, which no log has.
    message: Option<u64>,
}

/// The databases of one topic that are being written.
pub(super) struct TopicWriter {
    directory: PathBuf,
    /// Messages that the log holds as well.
    gathered: Gathered,
    log: LogWriter,
    log_piece: Vec<u8>,
    /// Memory for the beginning of a log's record.
    record_head: Vec<u8>,
    log_number: u64,
    log_bytes: u64,
    next_file: u64,
    last_sequence: u64,
    tables: Vec<WrittenTable>,
    /// The greatest stamp of all tables.
    tables_last: Option<i64>,
    /// Tables at the end of the list that the manifest does not name yet.
    unsettled: usize,
    /// How many of these, from the first, may be named: they are durable, or the next sync covers them.
    nameable: usize,
    table_bytes: u64,
    manifest: LogWriter,
    block_bytes: usize,
    /// Stamps known to be taken, so that many messages with one stamp are not counted up again and again.
    runs: TakenRuns,
    /// The file that describes the topic, until it is durable.
    description: Option<PathBuf>,
    dirty: bool,
}

/// Writes a database with only a few keys; returns the file to make durable.
fn write_description(directory: &Path, topic: &TopicInfo) -> StorageResult<PathBuf> {
    fs::create_dir_unsynced(directory)?;
    let qos = profiles_to_text(&topic.offered_qos_profiles);
    let byte_order: &[u8] = if cfg!(target_endian = "big") { b"B" } else { b"L" };
    let entries: [(&[u8], &[u8]); 5] = [
        (KEY_NAME, topic.name.as_bytes()),
        (KEY_TYPE, topic.type_name.as_bytes()),
        (KEY_SERIALIZATION_FORMAT, topic.serialization_format.as_bytes()),
        (KEY_QOS, qos.as_bytes()),
        (KEY_BYTE_ORDER, byte_order),
    ];
    let mut log = Vec::new();
    LogWriter::default().append(&mut log, &batch(1, entries.into_iter()));
    begin_database(directory, BYTEWISE_COMPARATOR)?;
    let path = numbered(directory, 2, "log");
    fs::append(&path, &log)?;
    Ok(path)
}

/// Writes the files that turn a new directory into a database whose log has number 2. Until the last one is written the directory is not a
/// database, so torn files do no harm: a temporary name and a rename of each file would cost as much as all the rest of a topic.
fn begin_database(directory: &Path, comparator: &str) -> StorageResult<LogWriter> {
    let (mut manifest, mut bytes) = (LogWriter::default(), Vec::new());
    manifest.append(&mut bytes, &first_edit(comparator, 2));
    fs::append(&directory.join(MANIFEST), &bytes)?;
    fs::append(&directory.join("CURRENT"), format!("{MANIFEST}\n").as_bytes())?;
    Ok(manifest)
}

impl TopicWriter {
    /// Makes both databases in `parent`; their names begin with `base`.
    pub fn create(
        parent: &Path,
        base: &str,
        topic: &TopicInfo,
        options: &LeveldbOptions,
    ) -> StorageResult<Self> {
        let description = write_description(&parent.join(format!("{base}{METADATA_SUFFIX}")), topic)?;
        let directory = parent.join(format!("{base}{MESSAGE_SUFFIX}"));
        fs::create_dir_unsynced(&directory)?;
        let manifest = begin_database(&directory, TIMESTAMP_COMPARATOR)?;
        Ok(Self {
            directory,
            gathered: Gathered::default(),
            log: LogWriter::default(),
            log_piece: Vec::new(),
            record_head: Vec::new(),
            log_number: 2,
            log_bytes: 0,
            next_file: 3,
            last_sequence: 0,
            tables: Vec::new(),
            tables_last: None,
            unsettled: 0,
            nameable: 0,
            table_bytes: 0,
            manifest,
            block_bytes: options.block_bytes,
            runs: TakenRuns::default(),
            description: Some(description),
            dirty: true,
        })
    }

    /// Memory that waits to be sorted into a table, in bytes.
    pub(crate) fn gathered_bytes(&self) -> usize {
        self.gathered.bytes()
    }

    /// Length of its files in bytes, including data in flight.
    pub fn bytes(&self) -> u64 {
        self.table_bytes + self.log_bytes + self.log_piece.len() as u64
    }

    /// Adds a message. One of the same stamp would take the place of another: it is moved to the next free nanosecond. The stamp that
    /// it got.
    pub fn write(&mut self, q: &mut DiskQueue, wanted: i64, payload: PayloadRef<'_>) -> StorageResult<i64> {
        let stamp = self.free_stamp(q, wanted)?;
        self.last_sequence += 1;
        let head = &mut self.record_head;
        head.clear();
        begin_lone_batch(head, self.last_sequence, &stamp.to_ne_bytes(), payload.len());
        let payload = self.gathered.insert(stamp, self.last_sequence, payload);
        let before = self.log_piece.len();
        self.log.append_two(&mut self.log_piece, head, payload);
        self.log_bytes += (self.log_piece.len() - before) as u64;
        self.dirty = true;
        if self.log_piece.len() >= LOG_PIECE_BYTES {
            self.flush_log()?;
        }
        Ok(stamp)
    }

    /// Adds a large message as a separate table, written from its place in memory past the page cache: log and sorting would copy it three
    /// more times. `message` is its number in the storage.
    pub(crate) fn write_large(
        &mut self,
        q: &mut DiskQueue,
        message: u64,
        wanted: i64,
        payload: PayloadRef<'_>,
    ) -> StorageResult<i64> {
        let stamp = self.free_stamp(q, wanted)?;
        self.last_sequence += 1;
        let lone = LoneTable::new(&stamp.to_ne_bytes(), self.last_sequence, payload.len() as u64);
        // The log before it holds nothing then.
        self.rotate(q)?;
        let number = self.next_file;
        let path = numbered(&self.directory, number, "ldb");
        let reserve_bytes = (lone.head.len() + payload.len()) as u64;
        let mut stream = BlockStream::new(q.create_file(&path, reserve_bytes)?);
        let file = stream.file();
        let appended = append_lone(&mut stream, q, &lone, payload);
        let closed = stream.finish(q);
        appended?;
        let bytes = closed?;
        self.begin_log(number);
        self.add_table(
            q,
            WrittenTable {
                info: TableInfo {
                    number,
                    level: self.level_of(stamp),
                    bytes,
                    smallest: lone.key.clone(),
                    largest: lone.key,
                },
                first: stamp,
                last: stamp,
                file: Some(file),
                message: Some(message),
            },
        )?;
        self.dirty = true;
        Ok(stamp)
    }

    /// Begins the log after the table of this number.
    fn begin_log(&mut self, table: u64) {
        self.log_number = table + 1;
        self.next_file = table + 2;
        self.log = LogWriter::default();
        self.log_bytes = 0;
    }

    /// The level of a table whose stamps begin with this one.
    fn level_of(&self, first: i64) -> u32 {
        if self.is_after_tables(first) {
            LEVEL_SORTED
        } else {
            0
        }
    }

    /// Notes a table that was written.
    fn add_table(&mut self, q: &mut DiskQueue, table: WrittenTable) -> StorageResult<()> {
        self.table_bytes += table.info.bytes;
        self.tables_last = self.tables_last.max(Some(table.last));
        self.tables.push(table);
        self.unsettled += 1;
        if self.unsettled > UNSETTLED_MAX {
            self.settle(q, self.unsettled > WAITING_MAX)?;
        }
        Ok(())
    }

    fn free_stamp(&mut self, q: &mut DiskQueue, wanted: i64) -> StorageResult<i64> {
        let mut runs = std::mem::take(&mut self.runs);
        let found = runs.free(wanted, |stamp| self.is_taken(q, stamp));
        self.runs = runs;
        // A topic does not have 2^64 messages.
        Ok(found?.unwrap_or(wanted))
    }

    /// Whether a stamp is greater than all in tables; so it is for nearly every message.
    fn is_after_tables(&self, stamp: i64) -> bool {
        self.tables_last.is_none_or(|last| last < stamp)
    }

    fn is_taken(&self, q: &mut DiskQueue, stamp: i64) -> StorageResult<bool> {
        if self.gathered.contains(stamp) {
            return Ok(true);
        }
        if self.is_after_tables(stamp) {
            return Ok(false);
        }
        for written in &self.tables {
            if !(written.first..=written.last).contains(&stamp) {
                continue;
            }
            // A table of one message need not be read.
            if written.first == written.last {
                return Ok(true);
            }
            if let Some(file) = written.file {
                q.wait_closed(file)?;
            }
            if self.has(&written.info, stamp)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Looks up a stamp in a table that this writer wrote; only for messages that come out of order.
    fn has(&self, info: &TableInfo, stamp: i64) -> StorageResult<bool> {
        let table = Table::open(&numbered(&self.directory, info.number, "ldb"))?;
        let stamp_of = |key: &[u8]| key.first_chunk::<8>().copied().map(i64::from_ne_bytes);
        let Some(block) = table
            .blocks
            .iter()
            .position(|(last, _)| stamp_of(last) >= Some(stamp))
        else {
            return Ok(false);
        };
        let mut entries = table.entries(block)?;
        while let Some(Some((key, _))) = entries.next_entry() {
            if stamp_of(key) == Some(stamp) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether the system has all messages of the log.
    pub(crate) fn is_handed(&self) -> bool {
        self.log_piece.is_empty()
    }

    /// The number of the first large message that the queue has not written yet.
    pub(crate) fn first_in_flight(&self, q: &DiskQueue) -> Option<u64> {
        let new = self
            .new_tables()
            .filter_map(|table| Some((table.message?, table.file?, table.info.bytes)));
        let is_written = |file, bytes| {
            // A file that was closed well is forgotten.
            q.progress(file)
                .is_none_or(|progress| progress.written_bytes >= bytes)
        };
        new.filter(|(_, file, bytes)| !is_written(*file, *bytes))
            .map(|(message, ..)| message)
            .next()
    }

    /// Passes the log's buffer to the system.
    pub(crate) fn flush_log(&mut self) -> StorageResult<()> {
        if !self.log_piece.is_empty() {
            fs::append(
                &numbered(&self.directory, self.log_number, "log"),
                &self.log_piece,
            )?;
            self.log_piece.clear();
        }
        Ok(())
    }

    /// Sorts the gathered messages into a table and begins a new log.
    pub fn rotate(&mut self, q: &mut DiskQueue) -> StorageResult<()> {
        let Some((first, last)) = self.gathered.range() else {
            return Ok(());
        };
        self.flush_log()?;
        let number = self.next_file;
        let path = numbered(&self.directory, number, "ldb");
        let gathered = std::mem::take(&mut self.gathered);
        let written = write_table(q, &path, &gathered, self.block_bytes)?;
        self.begin_log(number);
        let info = TableInfo {
            number,
            level: self.level_of(first),
            bytes: written.bytes,
            smallest: written.end.smallest,
            largest: written.end.largest,
        };
        self.add_table(
            q,
            WrittenTable {
                info,
                first,
                last,
                file: written.file,
                message: None,
            },
        )
    }

    /// Makes new tables durable, names them in the manifest, and removes the logs that they came from. With `waits`, all of them; else those
    /// before the first that is on its way to the disk.
    fn settle(&mut self, q: &mut DiskQueue, waits: bool) -> StorageResult<()> {
        self.find_nameable(q, waits)?;
        if self.nameable == 0 {
            return Ok(());
        }
        for table in self.nameable_tables().filter(|table| table.file.is_none()) {
            fs::make_durable(&numbered(&self.directory, table.info.number, "ldb"))?;
        }
        self.name_tables()?;
        fs::make_durable(&self.directory.join(MANIFEST))?;
        self.remove_logs()
    }

    /// Counts the tables before the first that is on its way to the disk; with `waits`, this waits until none is.
    fn find_nameable(&mut self, q: &mut DiskQueue, waits: bool) -> StorageResult<()> {
        self.nameable = 0;
        let first = self.tables.len() - self.unsettled;
        for table in &self.tables[first..] {
            if let Some(file) = table.file {
                if waits {
                    q.wait_closed(file)?;
                } else if !q.try_closed(file)? {
                    break;
                }
            }
            self.nameable += 1;
        }
        Ok(())
    }

    fn new_tables(&self) -> impl Iterator<Item = &WrittenTable> {
        self.tables[self.tables.len() - self.unsettled..].iter()
    }

    fn nameable_tables(&self) -> impl Iterator<Item = &WrittenTable> {
        self.new_tables().take(self.nameable)
    }

    /// Names new tables in the manifest. They must be durable.
    pub(crate) fn name_tables(&mut self) -> StorageResult<()> {
        if self.nameable == 0 {
            return Ok(());
        }
        let new: Vec<TableInfo> = self.nameable_tables().map(|table| table.info.clone()).collect();
        // The logs of tables that are not named yet are still needed; each has the number before its table's.
        let next = self.new_tables().nth(self.nameable);
        let log_number = next.map_or(self.log_number, |table| table.info.number - 1);
        let mut edit = Vec::new();
        let change = tables_edit(&new, log_number, self.next_file, self.last_sequence);
        self.manifest.append(&mut edit, &change);
        Ok(fs::append(&self.directory.join(MANIFEST), &edit)?)
    }

    /// Removes the logs of tables that the manifest names. It must be durable.
    pub(crate) fn remove_logs(&mut self) -> StorageResult<()> {
        for table in self.nameable_tables() {
            // The log of a table has the number before it.
            let log = numbered(&self.directory, table.info.number - 1, "log");
            match fs::remove_file(&log) {
                Err(error) if error.is_not_found() => {}
                other => other?,
            }
        }
        self.unsettled -= std::mem::take(&mut self.nameable);
        Ok(())
    }

    /// Whether something of it is not durable.
    pub(crate) const fn is_dirty(&self) -> bool {
        self.dirty
    }

    /// Whether there are tables that the manifest does not name.
    pub(crate) const fn has_new_tables(&self) -> bool {
        self.unsettled > 0
    }

    /// Hands everything to the system that a sync is to make durable; all new tables may be named after it.
    pub(crate) fn write_out(&mut self, q: &mut DiskQueue) -> StorageResult<()> {
        self.flush_log()?;
        self.find_nameable(q, true)?;
        // A log without messages is not there yet.
        Ok(fs::append(
            &numbered(&self.directory, self.log_number, "log"),
            &[],
        )?)
    }

    /// Notes that all of it is durable.
    pub(crate) fn set_durable(&mut self) {
        self.description = None;
        self.dirty = false;
    }

    /// Makes all messages so far durable, file by file.
    pub fn make_durable(&mut self, q: &mut DiskQueue) -> StorageResult<()> {
        if !self.dirty {
            return Ok(());
        }
        if let Some(path) = &self.description {
            fs::make_durable(path)?;
            // The names of its two directories.
            if let Some(parent) = self.directory.parent() {
                fs::sync_dir(parent)?;
            }
        }
        self.write_out(q)?;
        self.settle(q, true)?;
        fs::make_durable(&numbered(&self.directory, self.log_number, "log"))?;
        self.set_durable();
        Ok(())
    }

    /// Ends both databases: every message in a table. Not durable yet.
    pub fn finish(&mut self, q: &mut DiskQueue) -> StorageResult<()> {
        self.rotate(q)?;
        self.dirty = true;
        Ok(())
    }
}
