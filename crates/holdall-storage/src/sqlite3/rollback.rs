//! A database as it was before a transaction that did not end, read through its rollback journal: neither file is changed or copied.

use super::locks::ReaderLocks;
use crate::error::{StorageError, StorageResult};
use holdall_io::{disk::DiskError, fs::File};
use std::{
    collections::HashMap,
    path::Path,
    sync::atomic::{AtomicU64, Ordering},
};

/// First bytes of each header of a journal that has something to roll back.
pub(super) const JOURNAL_MAGIC: [u8; 8] = [0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7];
/// The part of a header that has fields, in bytes; the rest of its sector is unused.
const HEADER_BYTES: usize = 28;
/// The number of records in a header that was written without syncs: as many as the journal holds.
const ALL_RECORDS: u32 = u32::MAX;
/// A page's checksum sums every byte at this distance.
const CHECKSUM_STEP: usize = 200;
/// Page and sector sizes that SQLite has, in bytes.
const PAGE_BYTES: std::ops::RangeInclusive<u32> = 512..=65_536;
const SECTOR_BYTES: std::ops::RangeInclusive<u32> = 32..=65_536;

/// The checksum of a page in a journal that starts them at `start`.
pub(super) fn page_checksum(page: &[u8], start: u32) -> u32 {
    let counted = page.iter().rev().skip(CHECKSUM_STEP - 1).step_by(CHECKSUM_STEP);
    // The first byte of a page does not count.
    let steps = (page.len() - 1) / CHECKSUM_STEP;
    counted
        .take(steps)
        .fold(start, |sum, byte| sum.wrapping_add(u32::from(*byte)))
}

/// A header of the journal.
struct Header {
    records: u32,
    checksum_start: u32,
    /// The database's length before the transaction.
    pages: u32,
    sector_bytes: u32,
    page_bytes: u32,
}

impl Header {
    /// Reads the header at `offset`; `None` if none is found.
    fn read(journal: &File, offset: u64) -> Result<Option<Self>, DiskError> {
        let mut bytes = [0; HEADER_BYTES];
        let read = journal.read_at(&mut bytes, offset)?;
        let number = |at: usize| {
            let bytes = bytes[at..].first_chunk().copied();
            bytes.map_or(0, u32::from_be_bytes)
        };
        let header = Self {
            records: number(8),
            checksum_start: number(12),
            pages: number(16),
            sector_bytes: number(20),
            page_bytes: number(24),
        };
        let is_header = read == bytes.len() && bytes.starts_with(&JOURNAL_MAGIC);
        Ok(is_header.then_some(header))
    }

    fn is_sound(&self) -> bool {
        let sound = |bytes: u32, range: std::ops::RangeInclusive<u32>| {
            bytes.is_power_of_two() && range.contains(&bytes)
        };
        sound(self.page_bytes, PAGE_BYTES) && sound(self.sector_bytes, SECTOR_BYTES)
    }
}

/// A database with or without its rollback journal, which SQLite reads through an open file instead of a name.
#[derive(Debug)]
pub(super) struct RolledBack {
    database: File,
    journal: Option<File>,
    page_bytes: u64,
    /// The database's length before the transaction, in bytes; without a journal, its length now.
    length: AtomicU64,
    /// Offset in the journal of a page's earlier content, by the page's number.
    pages: HashMap<u64, u64>,
    /// Shared: no other program rolls the journal back, or changes pages that are not in it, while it is read.
    _locks: Option<ReaderLocks>,
}

impl RolledBack {
    /// A database that has nothing to roll back.
    ///
    /// # Errors
    /// It cannot be opened.
    pub(super) fn without_journal(path: &Path) -> StorageResult<Self> {
        let database = File::open(path)?;
        Ok(Self {
            length: AtomicU64::new(database.len_bytes()),
            // Any will do: no page is replaced.
            page_bytes: u64::from(*PAGE_BYTES.end()),
            journal: None,
            pages: HashMap::new(),
            database,
            _locks: None,
        })
    }

    /// Reads which pages the journal has. The database must be locked against writers.
    ///
    /// # Errors
    /// An invalid journal, or one with sizes that SQLite does not have.
    pub(super) fn open(path: &Path, journal_path: &Path, locks: ReaderLocks) -> StorageResult<Self> {
        let journal = File::open(journal_path)?;
        let first = Header::read(&journal, 0)?.filter(Header::is_sound);
        let first = first.ok_or_else(|| StorageError::Malformed {
            path: journal_path.to_owned(),
            offset: 0,
            expected: "a rollback journal of SQLite".to_owned(),
            found: "something else".to_owned(),
        })?;
        let mut rolled_back = Self {
            database: File::open(path)?,
            page_bytes: u64::from(first.page_bytes),
            length: AtomicU64::new(u64::from(first.pages) * u64::from(first.page_bytes)),
            pages: HashMap::new(),
            journal: None,
            _locks: Some(locks),
        };
        rolled_back.read_records(&journal, &first)?;
        rolled_back.journal = Some(journal);
        Ok(rolled_back)
    }

    /// Follows the headers: each is followed by its records, the next begins a sector.
    fn read_records(&mut self, journal: &File, first: &Header) -> Result<(), DiskError> {
        let sector = u64::from(first.sector_bytes);
        let record_bytes = self.page_bytes + 8;
        let mut record = vec![0; usize::try_from(record_bytes).unwrap_or(0)];
        let mut at = 0;
        while let Some(header) = Header::read(journal, at)? {
            at += sector;
            let room = journal.len_bytes().saturating_sub(at) / record_bytes;
            let records = match header.records {
                ALL_RECORDS => room,
                records => room.min(u64::from(records)),
            };
            for _ in 0..records {
                journal.read_exact_at(&mut record, at)?;
                if !self.note(&record, at, &header) {
                    return Ok(());
                }
                at += record_bytes;
            }
            at = at.next_multiple_of(sector);
        }
        Ok(())
    }

    /// Notes a record; `false` when it was not written whole, and so ends the journal.
    fn note(&mut self, record: &[u8], at: u64, header: &Header) -> bool {
        let number = |bytes: &[u8]| bytes.first_chunk().copied().map_or(0, u32::from_be_bytes);
        let (page, stored) = (number(record), number(&record[record.len() - 4..]));
        let content = &record[4..record.len() - 4];
        if page == 0 || page_checksum(content, header.checksum_start) != stored {
            return false;
        }
        self.pages.entry(u64::from(page)).or_insert(at + 4);
        true
    }

    /// The database's length in bytes.
    pub(super) fn length(&self) -> u64 {
        self.length.load(Ordering::Relaxed)
    }

    /// Locks for one connection; `None` with a journal, which is locked for all of them.
    pub(super) fn locks(&self) -> Result<Option<ReaderLocks>, DiskError> {
        let is_alone = self.journal.is_none();
        is_alone
            .then(|| ReaderLocks::open(self.database.path()))
            .transpose()
    }

    /// Reads the length again: another program may have written the database.
    pub(super) fn refresh(&self) {
        if self.journal.is_none()
            && let Ok(length) = holdall_io::fs::file_len(self.database.path())
        {
            self.length.store(length, Ordering::Relaxed);
        }
    }

    /// Reads from `offset` on; returns how many bytes there are, the rest of `to` becomes zeros.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub(super) fn read(&self, offset: u64, to: &mut [u8]) -> Result<usize, DiskError> {
        let available = self.length().saturating_sub(offset).min(to.len() as u64);
        let available = usize::try_from(available).unwrap_or(to.len());
        let (present, after) = to.split_at_mut(available);
        after.fill(0);
        let mut at = offset;
        let mut rest = present;
        while !rest.is_empty() {
            let in_page = at % self.page_bytes;
            let count = usize::try_from(self.page_bytes - in_page).unwrap_or(rest.len());
            let (part, next) = rest.split_at_mut(count.min(rest.len()));
            let content = self.pages.get(&(at / self.page_bytes + 1));
            match self.journal.as_ref().zip(content) {
                Some((journal, content)) => journal.read_exact_at(part, content + in_page)?,
                None => {
                    let read = self.database.read_at(part, at)?;
                    part[read..].fill(0);
                }
            }
            at += part.len() as u64;
            rest = next;
        }
        Ok(available)
    }
}
