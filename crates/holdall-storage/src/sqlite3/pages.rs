//! The pages of a database on their way to the disk layer: neighbours are gathered in blocks, and read back from memory where they are.

use holdall_io::{
    block::Block,
    disk::{DiskError, FileId},
    queue::DiskQueue,
};
use std::ops::Range;

/// How many windows are open at a time: SQLite writes data pages in order, and now and then a page of a tree or an index.
const WINDOWS_MAX: usize = 3;

/// A part of the file as long as a block, whose pages are not on the disk yet.
struct Window {
    /// Its offset in the file, in bytes.
    base: u64,
    block: Block,
    /// The stretches of the block that have pages, in order and apart from each other.
    filled: Vec<Range<usize>>,
}

impl Window {
    /// The range in the block of the file's bytes from `offset` to `end`, if the window covers them.
    fn place(&self, offset: u64, end: u64) -> Option<Range<usize>> {
        let from = usize::try_from(offset.checked_sub(self.base)?).ok()?;
        let to = usize::try_from(end - self.base).ok()?;
        (to <= self.block.capacity()).then_some(from..to)
    }

    /// The pages from `offset` to `end` of the file, if it has all of them.
    fn read(&self, offset: u64, end: u64) -> Option<&[u8]> {
        let place = self.place(offset, end)?;
        let has = |filled: &Range<usize>| filled.start <= place.start && place.end <= filled.end;
        self.filled.iter().any(has).then(|| &self.block.as_slice()[place])
    }

    fn overlaps(&self, offset: u64, end: u64) -> bool {
        self.base < end && offset < self.base + self.block.capacity() as u64
    }

    fn is_full(&self) -> bool {
        self.filled
            .first()
            .is_some_and(|first| first.len() == self.block.capacity())
    }

    /// Marks a stretch as filled.
    fn fill(&mut self, place: Range<usize>) {
        if let Some(last) = self.filled.last_mut()
            && last.end == place.start
        {
            last.end = place.end;
            return;
        }
        let mut merged = place;
        self.filled.retain(|filled| {
            let apart = filled.end < merged.start || merged.end < filled.start;
            if !apart {
                merged = merged.start.min(filled.start)..merged.end.max(filled.end);
            }
            apart
        });
        let at = self.filled.partition_point(|filled| filled.start < merged.start);
        self.filled.insert(at, merged);
    }
}

/// The place of a page in a window, until the next call.
#[derive(Clone, Copy)]
pub(super) struct Place {
    window: usize,
    from: usize,
    bytes: usize,
}

/// The source of the bytes of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// The buffer has them.
    Memory,
    /// The file has the first `available` bytes; the rest is past the end of the database.
    File {
        /// Number of bytes.
        available: usize,
    },
}

/// One database file whose pages are written through a [`DiskQueue`].
pub(super) struct Pages {
    file: FileId,
    /// In the order in which they were begun; they do not overlap.
    windows: Vec<Window>,
    /// End of the last page, in bytes. The file itself is longer while space is reserved for it.
    length: u64,
    /// The first page as it was written last: SQLite reads its counters before each transaction.
    first: Vec<u8>,
    /// Writes may be in flight that the file does not show yet.
    in_flight: bool,
    /// Why a write failed.
    error: Option<DiskError>,
}

impl Pages {
    /// Takes over the empty file that a queue has made.
    pub(super) fn new(file: FileId) -> Self {
        Self {
            file,
            windows: Vec::new(),
            length: 0,
            first: Vec::new(),
            in_flight: false,
            error: None,
        }
    }

    /// The database's length in bytes.
    pub(super) fn length(&self) -> u64 {
        self.length
    }

    /// The error of the disk that made a call of SQLite fail.
    pub(super) fn take_error(&mut self) -> Option<DiskError> {
        self.error.take()
    }

    /// Keeps an error for [`Pages::take_error`] and returns whether all was well.
    fn keep<T>(&mut self, result: Result<T, DiskError>) -> Result<T, IsFull> {
        result.map_err(|error| {
            let full = IsFull(error.is_no_space());
            self.error.get_or_insert(error);
            full
        })
    }

    /// Accepts the page at `offset`.
    ///
    /// # Errors
    /// The error that the file has failed with is kept.
    pub(super) fn write(&mut self, q: &mut DiskQueue, offset: u64, page: &[u8]) -> Result<(), IsFull> {
        let accepted = self.put(q, offset, page);
        self.keep(accepted)
    }

    /// As [`Pages::write`].
    ///
    /// # Errors
    /// The error that the file has failed with.
    pub(super) fn put(&mut self, q: &mut DiskQueue, offset: u64, page: &[u8]) -> Result<(), DiskError> {
        let place = self.place(q, offset, page.len())?;
        q.copy_into_block(self.slice(place), page);
        self.fill(q, place)?;
        if offset == 0 {
            self.first.clear();
            self.first.extend_from_slice(page);
        }
        Ok(())
    }

    /// The place for a page, which is then written with [`Pages::slice`] and ended with [`Pages::fill`], before any other call.
    ///
    /// # Errors
    /// The error that the file has failed with.
    pub(super) fn place(
        &mut self,
        q: &mut DiskQueue,
        offset: u64,
        page_bytes: usize,
    ) -> Result<Place, DiskError> {
        q.check(self.file)?;
        let end = offset + page_bytes as u64;
        let within = |window: &Window| window.place(offset, end);
        // The last one was begun by the page before, most often.
        let found = self.windows.iter().rposition(|window| within(window).is_some());
        let window = match found {
            Some(window) => window,
            None => self.begin_window(q, offset, end)?,
        };
        let from = within(&self.windows[window]).map_or(0, |place| place.start);
        Ok(Place {
            window,
            from,
            bytes: page_bytes,
        })
    }

    /// The bytes of a page.
    pub(super) fn slice(&mut self, place: Place) -> &mut [u8] {
        let block = &mut self.windows[place.window].block;
        &mut block.as_mut_slice()[place.from..place.from + place.bytes]
    }

    /// Accepts the page whose bytes are in its place.
    ///
    /// # Errors
    /// The error that the file has failed with.
    pub(super) fn fill(&mut self, q: &mut DiskQueue, place: Place) -> Result<(), DiskError> {
        let window = &mut self.windows[place.window];
        window.fill(place.from..place.from + place.bytes);
        let end = window.base + (place.from + place.bytes) as u64;
        self.length = self.length.max(end);
        if self.windows[place.window].is_full() {
            let window = self.windows.remove(place.window);
            self.submit(q, window)?;
        }
        Ok(())
    }

    /// Begins the window around a page, and returns its number.
    fn begin_window(&mut self, q: &mut DiskQueue, offset: u64, end: u64) -> Result<usize, DiskError> {
        let bytes = q.pool().block_bytes() as u64;
        let aligned = offset - offset % bytes;
        // A window at the end begins with the page: its bytes need not be moved to the start of the block.
        let is_within = end <= aligned + bytes && offset < self.length;
        let base = if is_within { aligned } else { offset };
        let overlapping = |window: &Window| window.overlaps(base, base + bytes);
        while let Some(number) = self.windows.iter().position(overlapping) {
            let window = self.windows.remove(number);
            self.submit(q, window)?;
        }
        if self.windows.len() >= WINDOWS_MAX {
            let oldest = self.windows.remove(0);
            self.submit(q, oldest)?;
        }
        let block = q.take_block()?;
        self.windows.push(Window {
            base,
            block,
            filled: Vec::new(),
        });
        Ok(self.windows.len() - 1)
    }

    /// Gives the pages of a window to the disk: each stretch is one write, whose bytes begin a block.
    fn submit(&mut self, q: &mut DiskQueue, mut window: Window) -> Result<(), DiskError> {
        self.in_flight = true;
        let mut stretches = window.filled.into_iter();
        let first = stretches.next();
        for stretch in stretches {
            let mut block = q.take_block()?;
            q.copy_into_block(
                &mut block.as_mut_slice()[..stretch.len()],
                &window.block.as_slice()[stretch.clone()],
            );
            q.write(
                self.file,
                window.base + stretch.start as u64,
                block,
                stretch.len(),
            )?;
        }
        let Some(first) = first else {
            return Ok(());
        };
        if first.start > 0 {
            window.block.as_mut_slice().copy_within(first.clone(), 0);
        }
        q.write(
            self.file,
            window.base + first.start as u64,
            window.block,
            first.len(),
        )
    }

    fn submit_all(&mut self, q: &mut DiskQueue) -> Result<(), DiskError> {
        for window in std::mem::take(&mut self.windows) {
            self.submit(q, window)?;
        }
        Ok(())
    }

    /// Waits until every page is in the file: a process that is killed afterwards does not lose it.
    ///
    /// # Errors
    /// The error that the file has failed with is kept.
    pub(super) fn settle(&mut self, q: &mut DiskQueue) -> Result<(), IsFull> {
        let settled = self.try_settle(q);
        self.keep(settled)
    }

    /// As [`Pages::settle`].
    ///
    /// # Errors
    /// The error that the file has failed with.
    pub(super) fn try_settle(&mut self, q: &mut DiskQueue) -> Result<(), DiskError> {
        self.submit_all(q)?;
        q.wait_written(self.file)?;
        self.in_flight = false;
        Ok(())
    }

    /// Waits until every page survives a power cut.
    ///
    /// # Errors
    /// The error that the file has failed with is kept.
    pub(super) fn sync(&mut self, q: &mut DiskQueue) -> Result<(), IsFull> {
        let synced = self.try_sync(q);
        self.keep(synced)
    }

    /// As [`Pages::sync`].
    ///
    /// # Errors
    /// The error that the file has failed with.
    pub(super) fn try_sync(&mut self, q: &mut DiskQueue) -> Result<(), DiskError> {
        self.try_settle(q)?;
        q.sync(self.file).and_then(|token| q.wait_durable(token))
    }

    /// Fills `to` from memory, or returns how many of its bytes to read from the file, which has them
    /// then.
    ///
    /// # Errors
    /// The error that the file has failed with is kept.
    pub(super) fn read(
        &mut self,
        q: Option<&mut DiskQueue>,
        offset: u64,
        to: &mut [u8],
    ) -> Result<Source, IsFull> {
        let source = self.try_read(q, offset, to);
        self.keep(source)
    }

    /// As [`Pages::read`].
    ///
    /// # Errors
    /// The error that the file has failed with.
    pub(super) fn try_read(
        &mut self,
        q: Option<&mut DiskQueue>,
        offset: u64,
        to: &mut [u8],
    ) -> Result<Source, DiskError> {
        let end = offset + to.len() as u64;
        let first = (end <= self.first.len() as u64)
            .then(|| usize::try_from(offset).ok())
            .flatten()
            .map(|from| &self.first[from..from + to.len()]);
        let in_memory = first.or_else(|| self.windows.iter().find_map(|window| window.read(offset, end)));
        if let Some(bytes) = in_memory {
            to.copy_from_slice(bytes);
            return Ok(Source::Memory);
        }
        if let Some(q) = q
            && (self.in_flight || self.windows.iter().any(|window| window.overlaps(offset, end)))
        {
            self.try_settle(q)?;
        }
        let available = self.length.saturating_sub(offset).min(to.len() as u64);
        Ok(Source::File {
            available: usize::try_from(available).unwrap_or(to.len()),
        })
    }

    /// Cuts the database to `length` bytes; the caller cuts the file.
    ///
    /// # Errors
    /// The error that the file has failed with is kept.
    pub(super) fn truncate(&mut self, q: &mut DiskQueue, length: u64) -> Result<(), IsFull> {
        self.settle(q)?;
        self.length = self.length.min(length);
        if length == 0 {
            self.first.clear();
        }
        Ok(())
    }
}

/// A write that failed; whether because the disk is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct IsFull(pub(super) bool);

#[cfg(test)]
mod tests {
    use super::*;
    use holdall_io::{
        block::BlockPoolOptions,
        os::{DiskMode, OsDisk},
    };
    use proptest::prelude::*;
    use std::{fs, os::unix::fs::FileExt};

    const PAGE_BYTES: usize = 4096;

    fn queue(dir: &std::path::Path) -> DiskQueue {
        let pool = BlockPoolOptions {
            block_bytes: 3 * PAGE_BYTES,
            block_count: 6,
            huge_pages: false,
        };
        DiskQueue::new(Box::new(OsDisk::open(dir, DiskMode::Auto).unwrap()), pool).unwrap()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn pages_are_read_as_they_were_written_last(
            steps in prop::collection::vec((0_u64..9, any::<u8>(), 0_u8..6), 1..60)
        ) {
            let dir = tempfile::tempdir().unwrap();
            let mut q = queue(dir.path());
            let path = dir.path().join("pages");
            let file = q.create_file(&path, 0).unwrap();
            let reader = fs::File::open(&path).unwrap();
            let mut pages = Pages::new(file);
            let mut model: Vec<Option<u8>> = vec![None; 9];
            for (number, fill, action) in steps {
                let offset = number * PAGE_BYTES as u64;
                match action {
                    0 => {
                        let mut to = vec![0; PAGE_BYTES];
                        let source = pages.read(Some(&mut q), offset, &mut to).unwrap();
                        if let Source::File { available } = source {
                            prop_assert_eq!(available, if offset < pages.length() { PAGE_BYTES } else { 0 });
                            let filled = reader.read_at(&mut to[..available], offset).unwrap();
                            to[filled..].fill(0);
                        }
                        if offset < pages.length() {
                            let expected = model[usize::try_from(number).unwrap()].unwrap_or(0);
                            prop_assert!(to.iter().all(|&byte| byte == expected));
                        }
                    }
                    1 => pages.settle(&mut q).unwrap(),
                    _ => {
                        pages.write(&mut q, offset, &[fill; PAGE_BYTES]).unwrap();
                        model[usize::try_from(number).unwrap()] = Some(fill);
                    }
                }
            }
            pages.settle(&mut q).unwrap();
            let bytes = fs::read(&path).unwrap();
            for (number, fill) in model.iter().enumerate() {
                if let Some(fill) = fill {
                    prop_assert_eq!(bytes[number * PAGE_BYTES], *fill);
                }
            }
            q.close_file(file, pages.length()).unwrap();
            q.wait_closed(file).unwrap();
            prop_assert_eq!(fs::metadata(&path).unwrap().len(), pages.length());
        }
    }
}
