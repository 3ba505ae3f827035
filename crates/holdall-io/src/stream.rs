//! A stream of bytes into the blocks of one file, with the last part held back for as long as it may still be patched.

use crate::{
    block::{BLOCK_ALIGNMENT, Block},
    disk::{DiskError, FileId, Operation, invalid_input},
    queue::DiskQueue,
};
use std::{collections::VecDeque, ops::Range, path::Path};

/// Blocks of the pool that a hold leaves to writes in flight.
const BLOCKS_NEVER_HELD: usize = 2;

/// A full block that is not yet given to the queue.
struct HeldBlock {
    offset: u64,
    block: Block,
}

/// Bytes in order into one file.
///
/// A tail that was flushed early is crash-safe although its last 4096 bytes are written again when more
/// arrives: the second write repeats every byte of the first below the old end and only turns padding into
/// data, so that whichever sectors of it reach the disk, bytes that are durable do not change. [`DiskQueue`]
/// never has both writes in flight at once, so the older cannot overwrite the newer.
pub struct BlockStream {
    file: FileId,
    block: Option<Block>,
    /// File offset of the first byte of `block` (of the next block without one); a multiple of 4096.
    block_offset: u64,
    /// Bytes of `block` that are used.
    filled: usize,
    /// Everything below is submitted.
    submitted: u64,
    held: VecDeque<HeldBlock>,
    hold_from: Option<u64>,
}

impl BlockStream {
    /// A stream from byte 0 of `file`.
    pub fn new(file: FileId) -> Self {
        Self {
            file,
            block: None,
            block_offset: 0,
            filled: 0,
            submitted: 0,
            held: VecDeque::new(),
            hold_from: None,
        }
    }

    /// The file that it writes.
    pub fn file(&self) -> FileId {
        self.file
    }

    /// File offset of the next byte.
    #[inline]
    pub fn position(&self) -> u64 {
        self.block_offset + self.filled as u64
    }

    /// Appends bytes. On a direct disk long ones go past the processor's caches (see [`crate::copy`]): a
    /// caller that also needs their CRC computes it over `bytes`, in steps that fit the first-level cache,
    /// right before appending each step; not over the held blocks afterwards.
    ///
    /// # Errors
    /// The error that the file has failed with, or that the hold is larger than the pool.
    #[inline]
    pub fn append(&mut self, q: &mut DiskQueue, bytes: &[u8]) -> Result<(), DiskError> {
        if let Some(block) = &mut self.block
            && let Some(room) = block
                .as_mut_slice()
                .get_mut(self.filled..self.filled + bytes.len())
        {
            q.copy_into_block(room, bytes);
            self.filled += bytes.len();
            return Ok(());
        }
        self.append_across(q, bytes)
    }

    fn append_across(&mut self, q: &mut DiskQueue, mut bytes: &[u8]) -> Result<(), DiskError> {
        while !bytes.is_empty() {
            self.make_spare(q)?;
            // `make_spare` has left a block with room.
            let Some(block) = &mut self.block else {
                return Ok(());
            };
            let room = &mut block.as_mut_slice()[self.filled..];
            let count = room.len().min(bytes.len());
            q.copy_into_block(&mut room[..count], &bytes[..count]);
            self.filled += count;
            bytes = &bytes[count..];
        }
        Ok(())
    }

    /// The rest of the current block, never empty; a new block when the current one is full. Report with
    /// [`BlockStream::advance`] how much of it was used.
    ///
    /// # Errors
    /// The error that the file has failed with, or that the hold is larger than the pool.
    #[inline]
    pub fn spare(&mut self, q: &mut DiskQueue) -> Result<&mut [u8], DiskError> {
        self.make_spare(q)?;
        match &mut self.block {
            Some(block) => Ok(&mut block.as_mut_slice()[self.filled..]),
            None => Ok(&mut []),
        }
    }

    #[inline]
    fn make_spare(&mut self, q: &mut DiskQueue) -> Result<(), DiskError> {
        match &self.block {
            Some(block) if self.filled < block.capacity() => Ok(()),
            _ => self.change_block(q),
        }
    }

    /// Makes the first `n` bytes of [`BlockStream::spare`]'s result part of the stream.
    ///
    /// # Panics
    /// When `n` is larger than that: a defect of the caller.
    #[inline]
    pub fn advance(&mut self, n: usize) {
        let capacity = self.block.as_ref().map_or(0, Block::capacity);
        assert!(
            n <= capacity - self.filled,
            "advanced by more than the spare part of the block"
        );
        self.filled += n;
    }

    /// Passes the current block on when it is full (held back or to the queue) and takes another.
    #[cold]
    fn change_block(&mut self, q: &mut DiskQueue) -> Result<(), DiskError> {
        if let Some(block) = self.block.take() {
            let (offset, len) = (self.block_offset, self.filled);
            self.block_offset += len as u64;
            self.filled = 0;
            if self.hold_from.is_some() {
                self.held.push_back(HeldBlock { offset, block });
            } else {
                q.write(self.file, offset, block, len)?;
                self.submitted = self.block_offset;
            }
        }
        q.check(self.file)?;
        self.block = Some(q.take_block()?);
        Ok(())
    }

    /// Holds blocks back from here on, until [`BlockStream::release`]. Does nothing while a hold is on.
    pub fn hold(&mut self) {
        if self.hold_from.is_none() {
            self.hold_from = Some(self.position());
        }
    }

    /// Position where the hold began, if one is on.
    pub fn held_from(&self) -> Option<u64> {
        self.hold_from
    }

    /// How many more bytes can be appended before the hold must be released. Counts only this stream's blocks.
    pub fn hold_capacity_left(&self, q: &DiskQueue) -> u64 {
        let pool = q.pool();
        let usable = q.blocks_of_stream().saturating_sub(BLOCKS_NEVER_HELD).max(1);
        let capacity = (usable.saturating_sub(self.held.len()) * pool.block_bytes()) as u64;
        capacity.saturating_sub(self.filled as u64)
    }

    /// Rewrites held bytes from file offset `position` on.
    ///
    /// # Errors
    /// When some of them are not held (already given to the queue, or not yet appended).
    pub fn patch(&mut self, position: u64, bytes: &[u8]) -> Result<(), DiskError> {
        let end = position.saturating_add(bytes.len() as u64);
        self.check_held(position, end)?;
        let mut done = 0;
        let held = self
            .held
            .iter_mut()
            .map(|held| (held.offset, held.block.as_mut_slice()));
        let current = self
            .block
            .iter_mut()
            .map(|block| (self.block_offset, block.as_mut_slice()));
        for (offset, content) in held.chain(current) {
            let Some(part) = overlap(offset, content.len(), position, end) else {
                continue;
            };
            let count = part.len();
            content[part].copy_from_slice(&bytes[done..done + count]);
            done += count;
        }
        Ok(())
    }

    /// Passes held bytes to `visit` in order, in as few slices as possible.
    ///
    /// # Errors
    /// When some of them are not held.
    pub fn read_held(&self, range: Range<u64>, mut visit: impl FnMut(&[u8])) -> Result<(), DiskError> {
        self.check_held(range.start, range.end)?;
        let held = self.held.iter().map(|held| (held.offset, held.block.as_slice()));
        let current = self
            .block
            .iter()
            .map(|block| (self.block_offset, block.as_slice()));
        for (offset, content) in held.chain(current) {
            if let Some(part) = overlap(offset, content.len(), range.start, range.end) {
                visit(&content[part]);
            }
        }
        Ok(())
    }

    fn check_held(&self, start: u64, end: u64) -> Result<(), DiskError> {
        if self.hold_from.is_some_and(|from| from <= start) && start <= end && end <= self.position() {
            return Ok(());
        }
        Err(invalid_input(Path::new("stream"), Operation::Write, "bytes are not held back").at(start))
    }

    /// Ends the hold: gives the full held blocks to the queue. The current block stays until it is full or flushed.
    ///
    /// # Errors
    /// The error that the file has failed with.
    pub fn release(&mut self, q: &mut DiskQueue) -> Result<(), DiskError> {
        self.hold_from = None;
        while let Some(HeldBlock { offset, block }) = self.held.pop_front() {
            let len = block.capacity();
            q.write(self.file, offset, block, len)?;
            self.submitted = offset + len as u64;
        }
        Ok(())
    }

    /// Submits the content of the current block, so that a following [`DiskQueue::sync`] covers it; for durability deadlines.
    /// Submits nothing while a hold is on. Returns the position below which everything is submitted.
    ///
    /// # Errors
    /// The error that the file has failed with.
    pub fn flush_tail(&mut self, q: &mut DiskQueue) -> Result<u64, DiskError> {
        if self.hold_from.is_some() || self.submitted == self.position() {
            return Ok(self.submitted);
        }
        let whole = self.filled - self.filled % BLOCK_ALIGNMENT;
        let rest = self.filled - whole;
        let next = if rest == 0 {
            None
        } else {
            let mut next = q.take_block()?;
            let current = self.block.as_ref().map_or(&[][..], Block::as_slice);
            next.as_mut_slice()[..rest].copy_from_slice(&current[whole..self.filled]);
            Some(next)
        };
        if let Some(block) = std::mem::replace(&mut self.block, next) {
            let (offset, len) = (self.block_offset, self.filled);
            self.block_offset += whole as u64;
            self.filled = rest;
            q.write(self.file, offset, block, len)?;
        }
        self.submitted = self.position();
        Ok(self.submitted)
    }

    /// Makes sure that everything so far is durable before anything that follows reaches the disk; see [`DiskQueue::barrier`].
    ///
    /// # Errors
    /// The error that the file has failed with.
    pub fn barrier(&mut self, q: &mut DiskQueue) -> Result<(), DiskError> {
        self.flush_tail(q)?;
        q.barrier(self.file)
    }

    /// Submits the rest and closes the file at its length, which is returned. Does not wait: see [`DiskQueue::wait_closed`].
    ///
    /// # Errors
    /// The error that the file has failed with; it is closed anyway.
    pub fn finish(mut self, q: &mut DiskQueue) -> Result<u64, DiskError> {
        let length = self.position();
        let submitted = self.submit_rest(q);
        let closed = q.close_file(self.file, length);
        submitted.and(closed)?;
        Ok(length)
    }

    fn submit_rest(&mut self, q: &mut DiskQueue) -> Result<(), DiskError> {
        self.release(q)?;
        let (offset, len) = (self.block_offset, self.filled);
        match self.block.take() {
            Some(block) if self.submitted != self.position() => q.write(self.file, offset, block, len),
            _ => Ok(()),
        }
    }
}

/// The part of a block at `offset` that is in `start..end`.
fn overlap(offset: u64, len: usize, start: u64, end: u64) -> Option<Range<usize>> {
    let from = start.max(offset);
    let to = end.min(offset + len as u64);
    // Both differences are at most `len`.
    (from < to).then(|| (from - offset) as usize..(to - offset) as usize)
}
