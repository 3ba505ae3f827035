//! Writes rows as pages, without SQLite's engine: new pages go to the disk when they are full, a commit journals and changes the few
//! old ones at the right edge of each tree (docs/adr/0022-sqlite-pages-through-the-disk-layer.md).

mod cell;
mod index;
mod journal;
mod output;
mod table;

pub(super) use output::Output;

use crate::error::{StorageError, StorageResult};
pub(super) use cell::varint;
use cell::{Key, number, put_message_head, put_number, put_row, short};
use holdall_model::message::PayloadRef;
use index::Index;
use journal::{Journal, RECORDS_AT};
use output::Numbers;
use rusqlite::types::Value;
use std::{
    collections::{BTreeMap, HashMap},
    path::{Path, PathBuf},
};
use table::Table;

/// Fields of the database's header, on its first page.
const PAGE_BYTES_AT: usize = 16;
const VERSIONS_AT: usize = 18;
const RESERVED_AT: usize = 20;
const CHANGES_AT: usize = 24;
const PAGES_AT: usize = 28;
const AUTO_VACUUM_AT: usize = 52;
const ENCODING_AT: usize = 56;
const CHANGES_AGAIN_AT: usize = 92;
const UTF_8: u32 = 1;
const PAGE_BYTES_MIN: usize = 512;
/// Keys that may wait because they come before others in the index.
const LATE_MAX: usize = 2048;
/// Memory of the index's changed pages, in bytes, at which a commit is due: each late key may change another page.
const INDEX_BYTES_MAX: usize = 8 << 20;
/// The longest row that SQLite reads, 10^9 bytes, less what is not its last column.
const ROW_BYTES_MAX: usize = 1_000_000_000 - 64;
/// Pages of the last commit that are kept in memory for the journal of the next.
const IMAGES_BYTES_MAX: usize = 1 << 20;

/// What a commit does outside of the database's pages.
pub(super) trait Surroundings: Send {
    /// Makes the journal of a commit with these bytes.
    ///
    /// # Errors
    /// It exists, or is not whole.
    fn create_journal(&mut self, out: &mut Output<'_>, bytes: &[u8]) -> StorageResult<()>;

    /// Writes into it.
    ///
    /// # Errors
    /// The disk has failed.
    fn write_journal(&mut self, out: &mut Output<'_>, at: u64, bytes: [u8; 4]) -> StorageResult<()>;

    /// Makes its content durable.
    ///
    /// # Errors
    /// It may not be.
    fn sync_journal(&mut self, out: &mut Output<'_>) -> StorageResult<()>;

    /// Removes it.
    ///
    /// # Errors
    /// It may be there.
    fn remove_journal(&mut self, out: &mut Output<'_>) -> StorageResult<()>;

    /// Makes its name, or its removal, durable.
    ///
    /// # Errors
    /// It may not be.
    fn sync_directory(&mut self) -> StorageResult<()>;

    /// Waits until no program reads the database, and keeps all from it.
    fn exclude_readers(&mut self);

    /// Lets them read again.
    fn admit_readers(&mut self);
}

/// The trees of one database, and its first page as the last commit has it.
struct Trees {
    numbers: Numbers,
    first: Vec<u8>,
    tables: HashMap<String, Table>,
    messages: Table,
    index: Index,
}

impl Trees {
    fn open(out: &mut Output<'_>, roots: &[(String, u32)]) -> StorageResult<Option<Self>> {
        let first = out.read_committed(&Numbers::new(PAGE_BYTES_MIN, 0), 1)?;
        let page_bytes = match short(&first, PAGE_BYTES_AT) {
            1 => 65_536,
            bytes => bytes,
        };
        let is_spoken = first[VERSIONS_AT..VERSIONS_AT + 2] == [1, 1]
            && first[RESERVED_AT] == 0
            && number(&first, AUTO_VACUUM_AT) == 0
            && number(&first, ENCODING_AT) == UTF_8
            && page_bytes >= PAGE_BYTES_MIN;
        if !is_spoken {
            return Ok(None);
        }
        let numbers = Numbers::new(page_bytes, number(&first, PAGES_AT));
        let first = out.read_committed(&numbers, 1)?;
        let (mut index, mut tables) = (None, HashMap::new());
        for (name, root) in roots {
            if name == "timestamp_idx" {
                index = Index::open(&numbers, out, *root)?;
            } else if let Some(table) = Table::open(&numbers, out, *root)? {
                tables.insert(name.clone(), table);
            }
        }
        let messages = tables.remove("messages").zip(index);
        Ok(messages.map(|(messages, index)| Self {
            numbers,
            first,
            tables,
            messages,
            index,
        }))
    }
}

/// The rows that are written into one database.
pub(super) struct Builder {
    path: PathBuf,
    trees: Trees,
    /// Keys of messages that the index does not have yet.
    keys: Vec<Key>,
    late: usize,
    is_changed: bool,
    /// Pages of the last commit as the file has them.
    images: HashMap<u32, Vec<u8>>,
    surroundings: Box<dyn Surroundings>,
    survives_power_cut: bool,
    /// A row or a commit is not whole.
    has_failed: bool,
    /// A row's record, up to its payload.
    record: Vec<u8>,
}

impl Builder {
    /// Takes over a database with these tables and indexes, by name with the number of the root page; `None` if it is not one that is
    /// built here.
    ///
    /// # Errors
    /// A page that cannot be read.
    pub(super) fn open(
        out: &mut Output<'_>,
        path: &Path,
        roots: &[(String, u32)],
        surroundings: Box<dyn Surroundings>,
        survives_power_cut: bool,
    ) -> StorageResult<Option<Self>> {
        let trees = Trees::open(out, roots)?;
        Ok(trees.map(|trees| Self {
            path: path.to_owned(),
            trees,
            keys: Vec::new(),
            late: 0,
            is_changed: false,
            images: HashMap::new(),
            surroundings,
            survives_power_cut,
            has_failed: false,
            record: Vec::new(),
        }))
    }

    /// SQLite changes the database: until it is opened again nothing can be written here.
    pub(super) fn give_away(&mut self) {
        self.has_failed = true;
    }

    /// Reads the trees again after SQLite has changed the database; false if they cannot be extended here any more.
    ///
    /// # Errors
    /// A page that cannot be read.
    pub(super) fn reopen(&mut self, out: &mut Output<'_>, roots: &[(String, u32)]) -> StorageResult<bool> {
        self.images.clear();
        let trees = Trees::open(out, roots)?;
        let is_open = trees.is_some();
        if let Some(trees) = trees {
            self.trees = trees;
            self.has_failed = false;
        }
        Ok(is_open)
    }

    /// Whether a row of this length can be written. What has failed keeps failing: a part of it may be in the pages.
    fn check(&self, row_bytes: usize) -> StorageResult<()> {
        match row_bytes {
            _ if self.has_failed => Err(self.failed("an earlier write failed")),
            0..=ROW_BYTES_MAX => Ok(()),
            _ => Err(self.failed("SQLite has no rows of 10^9 bytes and more")),
        }
    }

    fn failed(&self, why: &str) -> StorageError {
        StorageError::Io {
            action: "write",
            path: self.path.clone(),
            source: std::io::Error::other(why),
        }
    }

    /// Appends a message, and returns its row.
    ///
    /// # Errors
    /// The disk has failed.
    pub(super) fn message(
        &mut self,
        out: &mut Output<'_>,
        topic_id: i64,
        timestamp: i64,
        payload: PayloadRef<'_>,
    ) -> StorageResult<i64> {
        self.check(payload.len())?;
        self.record.clear();
        put_message_head(&mut self.record, topic_id, timestamp, payload.len());
        self.is_changed = true;
        let Trees {
            numbers,
            messages,
            index,
            ..
        } = &mut self.trees;
        let row = messages.last_row + 1;
        let appended = messages.append(numbers, out, row, &self.record, payload);
        self.has_failed = appended.is_err();
        appended?;
        self.late += usize::from(index.is_late(timestamp));
        self.keys.push(Key { timestamp, row });
        if self.late >= LATE_MAX {
            self.insert_keys(out)?;
        }
        Ok(row)
    }

    /// Whether a table can be appended to.
    pub(super) fn has_table(&self, table: &str) -> bool {
        self.trees.tables.contains_key(table)
    }

    /// Appends a row with this id, or the next; false if that is not possible here.
    ///
    /// # Errors
    /// The disk has failed.
    pub(super) fn row(
        &mut self,
        out: &mut Output<'_>,
        table: &str,
        id: Option<i64>,
        values: &[Value],
    ) -> StorageResult<bool> {
        self.record.clear();
        put_row(&mut self.record, values);
        self.check(self.record.len())?;
        let Some(table) = self.trees.tables.get_mut(table) else {
            return Ok(false);
        };
        let row = id.unwrap_or(table.last_row + 1);
        if row <= table.last_row {
            return Ok(false);
        }
        self.is_changed = true;
        let nothing = PayloadRef::Bytes(&[]);
        let appended = table.append(&mut self.trees.numbers, out, row, &self.record, nothing);
        self.has_failed = appended.is_err();
        appended.map(|()| true)
    }

    /// Whether a commit is due because of what waits for it.
    pub(super) fn is_pressed(&self) -> bool {
        self.trees.index.pages() * self.trees.numbers.page_bytes >= INDEX_BYTES_MAX
    }

    /// The database's length in bytes at the last commit.
    pub(super) fn committed_bytes(&self) -> u64 {
        let Numbers {
            committed,
            page_bytes,
            ..
        } = self.trees.numbers;
        u64::from(committed) * page_bytes as u64
    }

    /// Commits what was appended.
    ///
    /// # Errors
    /// The disk has failed: then the file stays locked against readers until it is closed, and they find the journal.
    pub(super) fn commit(&mut self, out: &mut Output<'_>) -> StorageResult<()> {
        self.check(0)?;
        if !self.is_changed {
            return Ok(());
        }
        self.has_failed = true;
        let changed = self.changed(out)?;
        let numbers = &self.trees.numbers;
        for (number, page) in changed.range(numbers.committed + 1..) {
            out.pages.put(out.q, numbers.offset(*number), page)?;
        }
        // Readers are kept out only while old pages change, and the sync of these.
        match self.survives_power_cut {
            true => out.pages.try_sync(out.q)?,
            false => out.pages.try_settle(out.q)?,
        }
        self.write_journal(out, &changed)?;
        self.surroundings.exclude_readers();
        let numbers = &mut self.trees.numbers;
        for (number, page) in changed.range(..=numbers.committed) {
            out.pages.put(out.q, numbers.offset(*number), page)?;
        }
        out.pages.try_settle(out.q)?;
        if self.survives_power_cut {
            out.pages.try_sync(out.q)?;
        }
        // From here on the commit holds.
        self.surroundings.remove_journal(out)?;
        if self.survives_power_cut {
            // A journal that a power cut brings back would undo the commit.
            self.surroundings.sync_directory()?;
        }
        self.surroundings.admit_readers();
        numbers.committed = numbers.last;
        self.has_failed = false;
        self.is_changed = false;
        self.trees.first.clone_from(&changed[&1]);
        let images_max = IMAGES_BYTES_MAX / self.trees.numbers.page_bytes;
        if self.images.len() + changed.len() > images_max {
            self.images.clear();
        }
        self.images.extend(changed.into_iter().take(images_max));
        Ok(())
    }

    /// Brings the keys that wait into the index.
    fn insert_keys(&mut self, out: &mut Output<'_>) -> StorageResult<()> {
        if !self.keys.is_sorted() {
            self.keys.sort_unstable();
        }
        let was_failed = std::mem::replace(&mut self.has_failed, true);
        let Trees { numbers, index, .. } = &mut self.trees;
        for key in &self.keys {
            if !index.insert(numbers, out, *key)? {
                return Err(self.failed("the index is not what was written"));
            }
        }
        self.keys.clear();
        self.late = 0;
        self.has_failed = was_failed;
        Ok(())
    }

    /// All pages that are not put yet, by number.
    fn changed(&mut self, out: &mut Output<'_>) -> StorageResult<BTreeMap<u32, Vec<u8>>> {
        self.insert_keys(out)?;
        let Trees {
            numbers,
            first,
            tables,
            messages,
            index,
        } = &mut self.trees;
        let mut changed = std::mem::take(&mut numbers.waiting);
        let mut put = |number, page| drop(changed.insert(number, page));
        messages.edge(numbers, &mut put);
        for table in tables.values_mut() {
            table.edge(numbers, &mut put);
        }
        index.changed(numbers, &mut put);
        let mut first = first.clone();
        let changes = number(&first, CHANGES_AT).wrapping_add(1);
        put_number(&mut first, CHANGES_AT, changes);
        put_number(&mut first, PAGES_AT, numbers.last);
        put_number(&mut first, CHANGES_AGAIN_AT, changes);
        put(1, first);
        Ok(changed)
    }

    /// Journals the pages of the last commit that are about to change.
    fn write_journal(&mut self, out: &mut Output<'_>, changed: &BTreeMap<u32, Vec<u8>>) -> StorageResult<()> {
        let numbers = &self.trees.numbers;
        // Two journals must not be taken for each other: they start at random.
        let random = holdall_io::random::random_bytes().unwrap_or_default();
        let mut journal = Journal::new(numbers.committed, numbers.page_bytes, number(&random, 0));
        for (number, _) in changed.range(..=numbers.committed) {
            match self.images.get(number) {
                Some(page) => journal.add(*number, page),
                None => journal.add(*number, &out.read_committed(numbers, *number)?),
            }
        }
        let surroundings = &mut self.surroundings;
        surroundings.create_journal(out, journal.bytes())?;
        if self.survives_power_cut {
            // It must not state records that a power cut takes.
            surroundings.sync_journal(out)?;
        }
        surroundings.write_journal(out, RECORDS_AT, journal.records())?;
        if self.survives_power_cut {
            surroundings.sync_journal(out)?;
            surroundings.sync_directory()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
