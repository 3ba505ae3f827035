//! The disk with its block pool and the state of each file: which bytes were accepted, written and made
//! durable, or why it failed for good.

pub use crate::file_state::FileProgress;
use crate::{
    block::{BLOCK_ALIGNMENT, Block, BlockPool, BlockPoolOptions},
    copy,
    disk::{Completion, Disk, DiskError, FileId, Operation, Wait, WritePath, invalid_input},
    file_state::{Deferred, FileState, Life, PendingWrite},
};
use std::{
    collections::BTreeMap,
    io,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

/// A sync that was requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SyncToken {
    file: FileId,
    number: u64,
}

/// Owns a disk, the blocks in flight to it and the state of its files. Failing is final: after a failed write or sync every later call on that
/// file returns the same error, because the state of the bytes in the kernel is not known any more.
pub struct DiskQueue {
    pub(crate) disk: Box<dyn Disk>,
    pool: BlockPool,
    options: BlockPoolOptions,
    /// How many streams share the pool.
    streams: usize,
    files: BTreeMap<FileId, FileState>,
    completions: Vec<Completion>,
    sync_number: u64,
    streaming_stores: bool,
    written_bytes: Arc<AtomicU64>,
}

fn pool_of(options: BlockPoolOptions, disk: &dyn Disk) -> Result<BlockPool, DiskError> {
    let pool = BlockPool::with_front(options, disk.front_bytes());
    pool.map_err(|source| DiskError::new("block pool", Operation::TakeBlock, source))
}

impl DiskQueue {
    /// A queue in front of `disk` with its own block pool.
    ///
    /// # Errors
    /// When the memory of the pool cannot be reserved.
    pub fn new(mut disk: Box<dyn Disk>, options: BlockPoolOptions) -> Result<Self, DiskError> {
        let pool = pool_of(options, &*disk)?;
        disk.register(&pool);
        let streaming_stores = disk.prefers_streaming_stores();
        Ok(Self {
            disk,
            pool,
            options,
            streams: 1,
            files: BTreeMap::new(),
            completions: Vec::new(),
            sync_number: 0,
            streaming_stores,
            written_bytes: Arc::default(),
        })
    }

    /// Divides the pool among several streams that are written at a time, before its first block is taken: none may hold back the blocks that
    /// another one waits for.
    ///
    /// # Errors
    /// When the memory of the new pool cannot be reserved.
    pub fn share_among(&mut self, streams: usize) -> Result<(), DiskError> {
        if streams > 1 {
            self.pool = pool_of(self.options.shared_by(streams), &*self.disk)?;
            self.disk.register(&self.pool);
            self.streams = streams;
        }
        Ok(())
    }

    /// How many blocks of the pool a stream may use.
    pub fn blocks_of_stream(&self) -> usize {
        self.pool.block_count() / self.streams
    }

    /// Makes a new file and waits until it exists.
    ///
    /// # Errors
    /// When the path exists or the file cannot be made.
    pub fn create_file(&mut self, path: &Path, reserve_bytes: u64) -> Result<FileId, DiskError> {
        let file = self.disk.create(path, reserve_bytes)?;
        self.files.insert(file, FileState::new(path, Life::Open));
        Ok(file)
    }

    /// Makes a new file without waiting. It can be written to at once; a failure to create it is returned by
    /// [`DiskQueue::check`] and every other call on it.
    pub fn create_file_ahead(&mut self, path: &Path, reserve_bytes: u64) -> FileId {
        let file = self.disk.submit_create(path, reserve_bytes);
        self.files.insert(file, FileState::new(path, Life::Creating));
        file
    }

    /// Whether a file of [`DiskQueue::create_file_ahead`] exists yet.
    ///
    /// # Errors
    /// The error that it has failed with.
    pub fn is_created(&mut self, file: FileId) -> Result<bool, DiskError> {
        self.poll();
        let state = self.open_state(file)?;
        state.check()?;
        Ok(state.life != Life::Creating)
    }

    /// A free block. Waits for the disk only when no block is free.
    ///
    /// # Errors
    /// When all blocks are held by callers, so that waiting would not end.
    pub fn take_block(&mut self) -> Result<Block, DiskError> {
        self.poll();
        loop {
            if let Some(block) = self.pool.take() {
                return Ok(block);
            }
            if self.disk.in_flight() == 0 {
                let what = "all blocks of the pool are held back, none can become free";
                let source = io::Error::new(io::ErrorKind::OutOfMemory, what);
                return Err(DiskError::new("block pool", Operation::TakeBlock, source));
            }
            self.reap(Wait::One);
        }
    }

    /// Writes the first `len` bytes of `block` at `offset` (a multiple of 4096). The rest of the last 4096 bytes is written as zeros.
    ///
    /// # Errors
    /// The error that the file has failed with; bytes accepted before may then be lost, see [`DiskQueue::progress`].
    pub fn write(
        &mut self,
        file: FileId,
        offset: u64,
        mut block: Block,
        len: usize,
    ) -> Result<(), DiskError> {
        let state = open_state_of(&mut self.files, file)?;
        state.check()?;
        if state.life == Life::Closing || state.life == Life::Closed {
            return Err(invalid_input(&state.path, Operation::Write, "the file is closed").at(offset));
        }
        if len == 0 {
            return Ok(());
        }
        if len > block.capacity() || !offset.is_multiple_of(BLOCK_ALIGNMENT as u64) {
            let what = "write does not fit its block or alignment";
            return Err(invalid_input(&state.path, Operation::Write, what).at(offset));
        }
        let padded_len = len.next_multiple_of(BLOCK_ALIGNMENT);
        block.as_mut_slice()[len..padded_len].fill(0);
        // The bytes may have been stored past the caches; from here on the kernel reads them, maybe on another processor.
        copy::fence();
        let end = offset + padded_len as u64;
        // A write over accepted bytes must repeat them.
        let fresh_from = offset.max(state.progress.accepted_bytes);
        state.progress.accepted_bytes = state.progress.accepted_bytes.max(offset + len as u64);
        if !state.deferred.is_empty() || state.overlaps_in_flight(offset, end) {
            state.deferred.push_back(Deferred::Write {
                offset,
                block,
                len: padded_len,
                fresh_from,
            });
        } else {
            state.in_flight.push(PendingWrite {
                offset,
                end,
                fresh_from,
            });
            self.disk.submit_write(file, offset, block, padded_len);
        }
        Ok(())
    }

    /// Requests that everything accepted so far become durable.
    ///
    /// # Errors
    /// The error that the file has failed with.
    pub fn sync(&mut self, file: FileId) -> Result<SyncToken, DiskError> {
        let number = self.sync_number + 1;
        let state = open_state_of(&mut self.files, file)?;
        state.check()?;
        if state.life == Life::Closing || state.life == Life::Closed {
            return Err(invalid_input(&state.path, Operation::Sync, "the file is closed"));
        }
        state.syncs.push_back((number, state.progress.accepted_bytes));
        if state.deferred.is_empty() {
            self.disk.submit_sync(file, number);
        } else {
            state.deferred.push_back(Deferred::Sync { number });
        }
        self.sync_number = number;
        Ok(SyncToken { file, number })
    }

    /// Requests that everything accepted so far is durable before the disk gets anything accepted later: the mark that a file is whole must
    /// never be on the disk before the rest, and a disk may change the order of writes. Does not wait.
    ///
    /// # Errors
    /// The error that the file has failed with.
    pub fn barrier(&mut self, file: FileId) -> Result<(), DiskError> {
        let SyncToken { number, .. } = self.sync(file)?;
        let state = open_state_of(&mut self.files, file)?;
        state.deferred.push_back(Deferred::Barrier { number });
        Ok(())
    }

    /// Whether the bytes that a sync covers are durable. Does not wait; call [`DiskQueue::poll`] to make progress.
    ///
    /// # Errors
    /// The error that the file has failed with.
    pub fn is_durable(&self, token: SyncToken) -> Result<bool, DiskError> {
        // A file that is gone from the map was closed well, and a close makes everything durable.
        let Some(state) = self.files.get(&token.file) else {
            return Ok(true);
        };
        if state.synced_number >= token.number || (state.life == Life::Closed && state.error.is_none()) {
            return Ok(true);
        }
        state.check()?;
        Ok(false)
    }

    /// Waits until the bytes that a sync covers are durable.
    ///
    /// # Errors
    /// The error that the file has failed with.
    pub fn wait_durable(&mut self, token: SyncToken) -> Result<(), DiskError> {
        self.poll();
        while !self.is_durable(token)? {
            self.reap_or_fail(token.file, Operation::Sync)?;
        }
        Ok(())
    }

    /// Waits until everything accepted so far is written: it survives a kill of the process, but perhaps not a power cut.
    ///
    /// # Errors
    /// The error that the file has failed with.
    pub fn wait_written(&mut self, file: FileId) -> Result<(), DiskError> {
        self.poll();
        while !self.open_state(file)?.is_written()? {
            self.reap_or_fail(file, Operation::Write)?;
        }
        Ok(())
    }

    /// Requests that the file be cut to `length`, made durable and closed after everything accepted. Does not
    /// wait. A file that has failed is cut before its first hole, at [`FileProgress::written_bytes`].
    ///
    /// # Errors
    /// The error that the file has failed with; it is closed anyway.
    pub fn close_file(&mut self, file: FileId, length: u64) -> Result<(), DiskError> {
        let state = open_state_of(&mut self.files, file)?;
        if state.life == Life::Closing || state.life == Life::Closed {
            return state.check();
        }
        state.life = Life::Closing;
        state.deferred.push_back(Deferred::Close { length });
        self.submit_deferred(file);
        self.check(file)
    }

    /// Keeps `lock` until the file is closed: while it is written, cut and synced.
    ///
    /// # Errors
    /// A file that is not open in this queue.
    pub fn keep_until_closed(&mut self, file: FileId, lock: Box<dyn Send>) -> Result<(), DiskError> {
        self.open_state(file)?.kept.push(lock);
        Ok(())
    }

    /// Waits until a file is closed and forgets it when it was closed well.
    ///
    /// # Errors
    /// The error that the file has failed with.
    pub fn wait_closed(&mut self, file: FileId) -> Result<(), DiskError> {
        self.poll();
        loop {
            match self.try_closed(file)? {
                true => return Ok(()),
                false => self.reap_or_fail(file, Operation::Close)?,
            }
        }
    }

    /// Whether a file is closed, without waiting; forgets it when it was closed well.
    ///
    /// # Errors
    /// The error that the file has failed with, once it is closed.
    pub fn try_closed(&mut self, file: FileId) -> Result<bool, DiskError> {
        let Some(state) = self.files.get(&file) else {
            return Ok(true);
        };
        match state.life {
            Life::Closed => {
                state.check()?;
                self.files.remove(&file);
                Ok(true)
            }
            Life::Closing => Ok(false),
            Life::Creating | Life::Open => {
                state.check()?;
                let what = "waiting for a close that was not asked for";
                Err(invalid_input(&state.path, Operation::Close, what))
            }
        }
    }

    /// Applies the disk's completions, without waiting. Errors stay with their files.
    pub fn poll(&mut self) {
        self.reap(Wait::No);
    }

    /// Waits until one operation in flight ends; returns at once when none is in flight.
    pub fn wait_one(&mut self) {
        self.reap(Wait::One);
    }

    /// Waits until nothing is in flight. Errors stay with their files.
    pub fn drain(&mut self) {
        self.poll();
        while self.disk.in_flight() > 0 {
            self.reap(Wait::One);
        }
    }

    /// Checks that the file has not failed.
    ///
    /// # Errors
    /// The error that the file has failed with.
    pub fn check(&self, file: FileId) -> Result<(), DiskError> {
        self.files.get(&file).map_or(Ok(()), FileState::check)
    }

    /// How far a file has been written; `None` when it is closed and forgotten, or not known.
    pub fn progress(&self, file: FileId) -> Option<FileProgress> {
        self.files.get(&file).map(|state| state.progress)
    }

    /// Bytes that the disk has taken, of all files: for threads that watch whether it takes any.
    pub fn written_bytes(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.written_bytes)
    }

    /// Operations given to the disk that have not ended.
    pub fn in_flight(&self) -> usize {
        self.disk.in_flight()
    }

    /// Copies `from` into a block in the way that suits the disk. Both have the same length.
    ///
    /// # Panics
    /// When the lengths differ: a bug in the caller.
    #[inline]
    pub fn copy_into_block(&self, to: &mut [u8], from: &[u8]) {
        if self.streaming_stores {
            copy::copy_streaming(to, from);
        } else {
            to.copy_from_slice(from);
        }
    }

    /// The blocks.
    pub fn pool(&self) -> &BlockPool {
        &self.pool
    }

    /// The way that writes take ([`Disk::write_path`]).
    pub fn write_path(&self) -> WritePath {
        self.disk.write_path()
    }

    /// Whether its files are in the file system ([`Disk::makes_files`]).
    pub fn makes_files(&self) -> bool {
        self.disk.makes_files()
    }

    /// Free bytes on the file system of `dir`.
    ///
    /// # Errors
    /// When `dir` cannot be inspected.
    pub fn available_bytes(&self, dir: &Path) -> Result<u64, DiskError> {
        self.disk.available_bytes(dir)
    }

    fn open_state(&mut self, file: FileId) -> Result<&mut FileState, DiskError> {
        open_state_of(&mut self.files, file)
    }

    fn reap_or_fail(&mut self, file: FileId, operation: Operation) -> Result<(), DiskError> {
        if self.disk.in_flight() == 0 {
            let path = self.files.get(&file).map_or(Path::new(""), |state| &state.path);
            let what = "nothing is in flight that could end the wait";
            return Err(invalid_input(path, operation, what));
        }
        self.reap(Wait::One);
        Ok(())
    }

    fn reap(&mut self, wait: Wait) {
        let mut completions = std::mem::take(&mut self.completions);
        self.disk.reap(wait, &mut completions);
        for completion in completions.drain(..) {
            self.apply(completion);
        }
        self.completions = completions;
    }

    fn apply(&mut self, completion: Completion) {
        match completion {
            Completion::Created { file, result } => {
                let Some(state) = self.files.get_mut(&file) else {
                    return;
                };
                state.created(result);
            }
            Completion::Written {
                file,
                offset,
                len,
                block,
                result,
            } => {
                drop(block);
                if result.is_ok() {
                    self.written_bytes.fetch_add(len as u64, Ordering::Relaxed);
                }
                let Some(state) = self.files.get_mut(&file) else {
                    return;
                };
                state.written(offset, len as u64, result);
                self.submit_deferred(file);
            }
            Completion::Synced { file, token, result } => {
                let Some(state) = self.files.get_mut(&file) else {
                    return;
                };
                state.synced(token, result);
                self.submit_deferred(file);
            }
            Completion::Closed { file, result } => {
                let Some(state) = self.files.get_mut(&file) else {
                    return;
                };
                state.closed(result);
            }
        }
    }

    /// Submits operations that waited for an overlapping write, as far as nothing blocks them any more.
    fn submit_deferred(&mut self, file: FileId) {
        let Some(state) = self.files.get_mut(&file) else {
            return;
        };
        while let Some(next) = state.deferred.pop_front() {
            match next {
                Deferred::Write {
                    offset,
                    block,
                    len,
                    fresh_from,
                } => {
                    if state.error.is_some() {
                        state.failed_from = state.failed_from.min(fresh_from);
                        continue;
                    }
                    let end = offset + len as u64;
                    if state.overlaps_in_flight(offset, end) {
                        state.deferred.push_front(Deferred::Write {
                            offset,
                            block,
                            len,
                            fresh_from,
                        });
                        return;
                    }
                    state.in_flight.push(PendingWrite {
                        offset,
                        end,
                        fresh_from,
                    });
                    self.disk.submit_write(file, offset, block, len);
                }
                Deferred::Sync { number } => self.disk.submit_sync(file, number),
                Deferred::Barrier { number } => {
                    if state.error.is_none() && state.synced_number < number {
                        state.deferred.push_front(Deferred::Barrier { number });
                        return;
                    }
                }
                Deferred::Close { length } => {
                    // Only now is it known how far the file is whole.
                    if !state.in_flight.is_empty() {
                        state.deferred.push_front(Deferred::Close { length });
                        return;
                    }
                    self.disk.submit_close(file, state.closing_length(length));
                }
            }
        }
    }
}

impl Drop for DiskQueue {
    /// Waits for operations in flight, so that no write outlives its owner. Files that were not closed are cut to the accepted length, because
    /// they would otherwise keep the space reserved for them; a failure is not reported. A file without writes through this queue is left
    /// unchanged: other code may have written it.
    fn drop(&mut self) {
        let open = |state: &FileState| {
            matches!(state.life, Life::Creating | Life::Open) && state.progress.accepted_bytes > 0
        };
        let left: Vec<_> = self
            .files
            .iter()
            .filter(|(_, state)| open(state))
            .map(|(file, state)| (*file, state.progress.accepted_bytes))
            .collect();
        for (file, length) in left {
            // An error stays with its file, and no caller is left to read it.
            let _ = self.close_file(file, length);
        }
        self.drain();
    }
}

fn open_state_of(files: &mut BTreeMap<FileId, FileState>, file: FileId) -> Result<&mut FileState, DiskError> {
    files.get_mut(&file).ok_or_else(|| {
        invalid_input(
            Path::new("file"),
            Operation::Write,
            "the file is not open in this queue",
        )
    })
}
