//! A rollback journal as SQLite writes it: the pages that a commit changes, as they were, so that any SQLite brings them back
//! after a kill or a power cut.

use crate::sqlite3::rollback::{JOURNAL_MAGIC, page_checksum};

/// The header has a sector of its own, whatever the disk's is: its length is in it.
const SECTOR_BYTES: u32 = 512;
/// Where the header has the number of records.
pub(super) const RECORDS_AT: u64 = 8;

/// The content of a journal.
pub(super) struct Journal {
    bytes: Vec<u8>,
    checksum_start: u32,
    records: u32,
}

impl Journal {
    /// A journal of a database that has `pages` pages of `page_bytes` bytes. `checksum_start` differs from journal to journal.
    pub(super) fn new(pages: u32, page_bytes: usize, checksum_start: u32) -> Self {
        let mut bytes = JOURNAL_MAGIC.to_vec();
        let page_bytes = u32::try_from(page_bytes).unwrap_or(0);
        for field in [0, checksum_start, pages, SECTOR_BYTES, page_bytes] {
            bytes.extend_from_slice(&field.to_be_bytes());
        }
        bytes.resize(SECTOR_BYTES as usize, 0);
        Self {
            bytes,
            checksum_start,
            records: 0,
        }
    }

    /// Adds a page as it was before.
    pub(super) fn add(&mut self, number: u32, page: &[u8]) {
        self.bytes.extend_from_slice(&number.to_be_bytes());
        self.bytes.extend_from_slice(page);
        let sum = page_checksum(page, self.checksum_start);
        self.bytes.extend_from_slice(&sum.to_be_bytes());
        self.records += 1;
    }

    /// Its bytes, which state no record: what a power cut leaves of them brings no page back.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The number of records, for its place in the header once all of them are in the file.
    pub(super) fn records(&self) -> [u8; 4] {
        self.records.to_be_bytes()
    }
}
