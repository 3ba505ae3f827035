//! A disk that seals the files of another: each block that is written becomes a frame of the sealed file, encrypted where it is.

use super::{
    format::{Cipher, FRAME_BYTES_MAX, FRAME_HEAD_BYTES, FileHead, Kind, Sealer},
    keys::Seal,
    log::{Entry, file_end},
};
use crate::{
    block::{BLOCK_ALIGNMENT, Block, BlockPool, BlockPoolOptions},
    disk::{Completion, Disk, DiskError, FileId, Operation, Wait, WritePath, check_write, invalid_input},
    queue::DiskQueue,
};
use std::{
    collections::{BTreeMap, HashMap},
    io,
    path::{Path, PathBuf},
};

/// The number of the sync before a file's end, which no caller has: callers count from 1.
const END_SYNC: u64 = u64::MAX;

/// A sealed file exceeds the plain one by one part in [`MORE_PART`] plus [`MORE_BYTES`]; for reservations.
const MORE_PART: u64 = 512;
const MORE_BYTES: u64 = 1 << 20;

/// The content of a write in flight.
#[derive(Debug)]
enum Written {
    /// The file's header.
    Head,
    /// A frame of the caller's bytes: their offset and length. A block without room for a head waits here while a copy of it is written.
    Frame(u64, usize, Option<Block>),
    /// The index and the end.
    End,
}

/// A file that is written.
#[derive(Debug)]
struct Sealing {
    path: PathBuf,
    sealer: Sealer,
    entries: Vec<Entry>,
    /// Offset of the next frame.
    end: u64,
    in_flight: HashMap<u64, Written>,
    /// The first frame that could not be written: the file is cut there.
    failed_from: Option<u64>,
    /// Why the file cannot be completed.
    failure: Option<DiskError>,
    /// The plain length with which it is being closed.
    closing: Option<u64>,
}

/// A disk whose files are sealed.
pub struct SealingDisk {
    inner: Box<dyn Disk>,
    seal: Seal,
    files: BTreeMap<FileId, Sealing>,
    ready: Vec<Completion>,
    done: Vec<Completion>,
    /// Operations that the caller has submitted and not reaped.
    in_flight: usize,
}

impl SealingDisk {
    /// Seals all writes to `inner` with `seal`.
    pub fn new(inner: Box<dyn Disk>, seal: Seal) -> Self {
        Self {
            inner,
            seal,
            files: BTreeMap::new(),
            ready: Vec::new(),
            done: Vec::new(),
            in_flight: 0,
        }
    }

    fn begin(&mut self, path: &Path) -> Result<(Sealer, Block, usize), DiskError> {
        let fail = |source| DiskError::new(path, Operation::Create, source);
        let head = FileHead::new(&self.seal).map_err(fail)?;
        let mut block = own_block(head.len_bytes()).map_err(fail)?;
        let len = head.len_bytes();
        head.encode(&mut block.as_mut_slice()[..len]);
        let sealer = Sealer::begin(&Cipher::new(self.seal.clone(), head)).map_err(fail)?;
        Ok((sealer, block, len))
    }

    fn add(&mut self, file: FileId, path: &Path, (sealer, block, len): (Sealer, Block, usize)) {
        let sealing = Sealing {
            path: path.to_owned(),
            sealer,
            entries: Vec::new(),
            end: len as u64,
            in_flight: HashMap::from([(0, Written::Head)]),
            failed_from: None,
            failure: None,
            closing: None,
        };
        self.files.insert(file, sealing);
        self.inner.submit_write(file, 0, block, len);
    }

    fn refuse_write(&mut self, file: FileId, offset: u64, block: Block, len: usize, error: DiskError) {
        self.ready.push(Completion::Written {
            file,
            offset,
            len,
            block,
            result: Err(error),
        });
    }

    /// Gives the end of a file to the disk; all before it is durable.
    fn write_end(&mut self, file: FileId) {
        let Some(sealing) = self.files.get_mut(&file) else {
            return;
        };
        let length = sealing.closing.unwrap_or(0);
        let made = file_end(&mut sealing.sealer, sealing.end, &sealing.entries, length)
            .and_then(|bytes| Ok((own_block(bytes.len())?, bytes)));
        match made {
            Ok((mut block, bytes)) => {
                block.as_mut_slice()[..bytes.len()].copy_from_slice(&bytes);
                sealing.in_flight.insert(sealing.end, Written::End);
                self.inner.submit_write(file, sealing.end, block, bytes.len());
                sealing.end += bytes.len() as u64;
            }
            Err(source) => {
                let error = DiskError::new(&sealing.path, Operation::Close, source);
                self.close_as_it_is(file, error);
            }
        }
    }

    /// Closes a file without an end, which is reported.
    fn close_as_it_is(&mut self, file: FileId, error: DiskError) {
        let Some(sealing) = self.files.get_mut(&file) else {
            return;
        };
        sealing.failure.get_or_insert(error);
        let end = sealing
            .failed_from
            .map_or(sealing.end, |from| from.min(sealing.end));
        self.inner.submit_close(file, end);
    }

    fn apply(&mut self, completion: Completion) {
        match completion {
            Completion::Written {
                file,
                offset,
                block,
                result,
                ..
            } => self.written(file, offset, block, result),
            Completion::Synced { file, token, result } if token == END_SYNC => match result {
                Ok(()) => self.write_end(file),
                Err(error) => self.close_as_it_is(file, error),
            },
            Completion::Synced { file, token, result } => {
                let failure = self.files.get(&file).and_then(|sealing| sealing.failure.clone());
                let result = failure.map_or(result, Err);
                self.ready.push(Completion::Synced { file, token, result });
            }
            Completion::Closed { file, result } => {
                let failure = self.files.remove(&file).and_then(|sealing| sealing.failure);
                let result = failure.map_or(result, Err);
                self.ready.push(Completion::Closed { file, result });
            }
            created @ Completion::Created { .. } => self.ready.push(created),
        }
    }

    fn written(&mut self, file: FileId, at: u64, mut block: Block, result: Result<(), DiskError>) {
        let Some(sealing) = self.files.get_mut(&file) else {
            return;
        };
        if let Err(error) = &result {
            sealing.failure.get_or_insert_with(|| error.clone());
            sealing.failed_from = Some(sealing.failed_from.map_or(at, |from| from.min(at)));
        }
        match sealing.in_flight.remove(&at) {
            Some(Written::Frame(offset, len, original)) => {
                block.hide_front();
                self.ready.push(Completion::Written {
                    file,
                    offset,
                    len,
                    block: original.unwrap_or(block),
                    result: result.map_err(|error| error.at(offset)),
                });
            }
            Some(Written::End) => match (result, sealing.end) {
                (Ok(()), end) => self.inner.submit_close(file, end),
                (Err(error), _) => self.close_as_it_is(file, error),
            },
            Some(Written::Head) | None => {}
        }
    }
}

impl DiskQueue {
    /// Whether its files are sealed ([`Disk::seals`]).
    pub fn seals(&self) -> bool {
        self.disk.seals()
    }
}

/// A block outside the caller's pool, for bytes that the caller does not have.
fn own_block(bytes: usize) -> io::Result<Block> {
    let pool = BlockPool::new(BlockPoolOptions {
        block_bytes: bytes,
        block_count: 2,
        huge_pages: false,
    })?;
    pool.take()
        .ok_or_else(|| io::Error::new(io::ErrorKind::OutOfMemory, "a new pool has no block"))
}

fn more(reserve_bytes: u64) -> u64 {
    match reserve_bytes {
        0 => 0,
        bytes => bytes.saturating_add(bytes / MORE_PART + MORE_BYTES),
    }
}

impl Disk for SealingDisk {
    fn create(&mut self, path: &Path, reserve_bytes: u64) -> Result<FileId, DiskError> {
        let begun = self.begin(path)?;
        let file = self.inner.create(path, more(reserve_bytes))?;
        self.add(file, path, begun);
        Ok(file)
    }

    fn submit_create(&mut self, path: &Path, reserve_bytes: u64) -> FileId {
        self.in_flight += 1;
        let begun = self.begin(path);
        let file = self.inner.submit_create(path, more(reserve_bytes));
        // Without random numbers the file is not added, and writes to it fail because it is unknown.
        if let Ok(begun) = begun {
            self.add(file, path, begun);
        }
        file
    }

    fn submit_write(&mut self, file: FileId, offset: u64, block: Block, len: usize) {
        self.in_flight += 1;
        let Some(sealing) = self.files.get_mut(&file) else {
            let error = invalid_input(Path::new("file"), Operation::Write, "the file is not open");
            return self.refuse_write(file, offset, block, len, error);
        };
        let mut checked = check_write(&sealing.path, offset, &block, len);
        if len > FRAME_BYTES_MAX {
            let what = "the block is larger than a frame of a sealed file";
            checked = Err(invalid_input(&sealing.path, Operation::Write, what));
        }
        if let Some(failure) = &sealing.failure {
            checked = Err(failure.clone());
        }
        if let Err(error) = checked {
            return self.refuse_write(file, offset, block, len, error);
        }
        let (at, whole) = (sealing.end, FRAME_HEAD_BYTES + len);
        let (mut frame, original) = if block.front_bytes() >= FRAME_HEAD_BYTES {
            let mut block = block;
            block.show_front();
            (block, None)
        } else {
            match own_block(whole) {
                Ok(mut copy) => {
                    copy.as_mut_slice()[FRAME_HEAD_BYTES..whole].copy_from_slice(&block.as_slice()[..len]);
                    (copy, Some(block))
                }
                Err(source) => {
                    let error = DiskError::new(&sealing.path, Operation::TakeBlock, source);
                    return self.refuse_write(file, offset, block, len, error);
                }
            }
        };
        let (head, payload) = frame.as_mut_slice()[..whole].split_at_mut(FRAME_HEAD_BYTES);
        let sealed = sealing
            .sealer
            .seal((at, Kind::Write), (offset, len as u64), head, payload);
        if let Err(source) = sealed {
            let error = DiskError::new(&sealing.path, Operation::Write, source).at(offset);
            frame.hide_front();
            return self.refuse_write(file, offset, original.unwrap_or(frame), len, error);
        }
        sealing.entries.push(Entry {
            at,
            kind: Kind::Write,
            offset,
            len: len as u64,
        });
        sealing
            .in_flight
            .insert(at, Written::Frame(offset, len, original));
        sealing.end = at + whole.next_multiple_of(BLOCK_ALIGNMENT) as u64;
        self.inner.submit_write(file, at, frame, whole);
    }

    fn submit_sync(&mut self, file: FileId, token: u64) {
        self.in_flight += 1;
        self.inner.submit_sync(file, token);
    }

    fn submit_close(&mut self, file: FileId, length: u64) {
        self.in_flight += 1;
        let Some(sealing) = self.files.get_mut(&file) else {
            return self.inner.submit_close(file, length);
        };
        sealing.closing = Some(length);
        match sealing.failure.clone() {
            Some(error) => self.close_as_it_is(file, error),
            // The end must not be on the disk before the rest of the file.
            None => self.inner.submit_sync(file, END_SYNC),
        }
    }

    fn reap(&mut self, wait: Wait, completions: &mut Vec<Completion>) {
        loop {
            let wait_now = if self.ready.is_empty() { wait } else { Wait::No };
            let mut done = std::mem::take(&mut self.done);
            self.inner.reap(wait_now, &mut done);
            for completion in done.drain(..) {
                self.apply(completion);
            }
            self.done = done;
            if !self.ready.is_empty() || wait == Wait::No || self.inner.in_flight() == 0 {
                break;
            }
        }
        self.in_flight -= self.ready.len();
        completions.append(&mut self.ready);
    }

    fn in_flight(&self) -> usize {
        self.in_flight
    }

    fn available_bytes(&self, dir: &Path) -> Result<u64, DiskError> {
        self.inner.available_bytes(dir)
    }

    fn write_path(&self) -> WritePath {
        self.inner.write_path()
    }

    fn makes_files(&self) -> bool {
        self.inner.makes_files()
    }

    fn seals(&self) -> bool {
        true
    }

    fn front_bytes(&self) -> usize {
        FRAME_HEAD_BYTES
    }

    fn register(&mut self, pool: &BlockPool) {
        self.inner.register(pool);
    }
}
