//! Where built pages go: new ones to the end of the file at once, those of the last commit with the next.

use super::cell::NUMBER_BYTES;
use crate::{
    error::StorageResult,
    sqlite3::pages::{Pages, Place, Source},
};
use holdall_io::{disk::DiskError, queue::DiskQueue};
use std::collections::BTreeMap;

/// The page that begins with this byte of a file is never used: locks are taken there.
const LOCK_BYTE: u64 = 1 << 30;

/// What the pages of one database have in common, and those that wait.
#[derive(Debug)]
pub(super) struct Numbers {
    pub(super) page_bytes: usize,
    /// The last page in use.
    pub(super) last: u32,
    /// The last page of the last commit.
    pub(super) committed: u32,
    /// Pages of the last commit, by number, as the next will have them.
    pub(super) waiting: BTreeMap<u32, Vec<u8>>,
}

impl Numbers {
    pub(super) fn new(page_bytes: usize, pages: u32) -> Self {
        Self {
            page_bytes,
            last: pages,
            committed: pages,
            waiting: BTreeMap::new(),
        }
    }

    /// Offset of a page, in bytes from the start of the file.
    pub(super) fn offset(&self, number: u32) -> u64 {
        u64::from(number - 1) * self.page_bytes as u64
    }

    /// The number that the next new page has.
    pub(super) fn peek(&self) -> u32 {
        let next = self.last + 1;
        next + u32::from(self.offset(next) == LOCK_BYTE)
    }

    /// The number of a new page.
    pub(super) fn allocate(&mut self) -> u32 {
        self.last = self.peek();
        self.last
    }
}

/// Reads a stretch of a file.
type Read<'a> = dyn Fn(u64, &mut [u8]) -> Result<(), DiskError> + 'a;

/// The file's pages, and the disk.
pub(in crate::sqlite3) struct Output<'a> {
    pub(in crate::sqlite3) pages: &'a mut Pages,
    pub(in crate::sqlite3) q: &'a mut DiskQueue,
    /// For pages that are not in memory.
    pub(in crate::sqlite3) file: &'a Read<'a>,
}

impl Output<'_> {
    /// Accepts a page that does not change any more before the next commit.
    pub(super) fn put(&mut self, numbers: &mut Numbers, number: u32, page: &[u8]) -> StorageResult<()> {
        if number > numbers.committed {
            self.pages.put(self.q, numbers.offset(number), page)?;
        } else {
            numbers.waiting.insert(number, page.to_vec());
        }
        Ok(())
    }

    /// The content of a page as it was put last.
    pub(super) fn read(&mut self, numbers: &Numbers, number: u32) -> StorageResult<Vec<u8>> {
        match numbers.waiting.get(&number) {
            Some(page) => Ok(page.clone()),
            None => self.read_committed(numbers, number),
        }
    }

    /// The content of a page that the file has, or that was put since.
    pub(super) fn read_committed(&mut self, numbers: &Numbers, number: u32) -> StorageResult<Vec<u8>> {
        let (offset, mut page) = (numbers.offset(number), vec![0; numbers.page_bytes]);
        let source = self.pages.try_read(Some(&mut *self.q), offset, &mut page)?;
        if let Source::File { .. } = source {
            (self.file)(offset, &mut page)?;
        }
        Ok(page)
    }
}

/// Writes the part of a row that its leaf has no room for, as a chain of new pages that follow each other.
pub(super) struct Chain {
    /// Bytes of the row that are not written.
    rest: usize,
    /// The page that is being filled, and where its next byte goes.
    open: Option<(Place, usize)>,
}

impl Chain {
    pub(super) fn new(rest: usize) -> Self {
        Self { rest, open: None }
    }

    /// Writes the next bytes of the row.
    pub(super) fn write(
        &mut self,
        numbers: &mut Numbers,
        out: &mut Output<'_>,
        mut bytes: &[u8],
    ) -> Result<(), DiskError> {
        while !bytes.is_empty() {
            let (place, at) = match self.open.take() {
                Some(open) => open,
                None => self.begin_page(numbers, out)?,
            };
            let count = bytes.len().min(numbers.page_bytes - at);
            let (now, later) = bytes.split_at(count);
            let page = out.pages.slice(place);
            out.q.copy_into_block(&mut page[at..at + count], now);
            bytes = later;
            self.rest -= count;
            let end = at + count;
            if self.rest == 0 {
                page[end..].fill(0);
            }
            if self.rest == 0 || end == numbers.page_bytes {
                out.pages.fill(out.q, place)?;
            } else {
                self.open = Some((place, end));
            }
        }
        Ok(())
    }

    fn begin_page(&self, numbers: &mut Numbers, out: &mut Output<'_>) -> Result<(Place, usize), DiskError> {
        let number = numbers.allocate();
        let place = out
            .pages
            .place(out.q, numbers.offset(number), numbers.page_bytes)?;
        let is_last = self.rest <= numbers.page_bytes - NUMBER_BYTES;
        let next = if is_last { 0 } else { numbers.peek() };
        out.pages.slice(place)[..NUMBER_BYTES].copy_from_slice(&next.to_be_bytes());
        Ok((place, NUMBER_BYTES))
    }
}
