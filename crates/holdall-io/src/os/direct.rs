//! Writes past the page cache: io_uring with registered buffers, several in flight.

use super::helper::{Done, Outbox, WriteJob};
use crate::{
    block::{BLOCK_ALIGNMENT, BlockPool},
    disk::{DiskError, Operation},
};
use io_uring::{IoUring, opcode, squeue, types};
use std::{io, os::fd::AsRawFd, sync::Arc};

/// Entries of the submission queue. More writes than that can be in flight; they are handed over in several calls.
const RING_ENTRIES: u32 = 128;

/// How often a write is tried again that the kernel refused for the moment.
const TRIES_MAX: u32 = 1000;

/// `user_data` of the poll on the helpers' eventfd.
const WAKE: u64 = u64::MAX;

/// A write that the kernel has.
struct InFlight {
    write: WriteJob,
    /// Bytes of it that are written already (short writes are resumed).
    done: usize,
    tries: u32,
}

/// Which blocks the kernel has pinned.
enum Registration {
    /// Not possible (old kernel, locked-memory limit), or no pool given.
    Off,
    /// Blocks are registered when they are first written.
    Sparse {
        pool: BlockPool,
        known: Vec<bool>,
        full: bool,
    },
}

/// A ring and the writes in it.
pub(super) struct Ring {
    ring: IoUring,
    slots: Vec<Option<InFlight>>,
    free_slots: Vec<usize>,
    registration: Registration,
    outbox: Arc<Outbox>,
    wake_armed: bool,
    /// Set when the ring itself has failed: nothing can be submitted any more.
    broken: Option<Arc<io::Error>>,
}

impl Ring {
    pub(super) fn new(outbox: Arc<Outbox>) -> io::Result<Self> {
        Ok(Self {
            ring: new_ring()?,
            slots: Vec::new(),
            free_slots: Vec::new(),
            registration: Registration::Off,
            outbox,
            wake_armed: false,
            broken: None,
        })
    }

    /// Prepares to register the blocks of `pool`, each when it is first used, so that unused blocks are never
    /// pinned.
    pub(super) fn register(&mut self, pool: &BlockPool) {
        let count = pool.block_count();
        match &self.registration {
            Registration::Off => {}
            Registration::Sparse { known, .. } if known.iter().all(|is_known| !is_known) => {
                if self.ring.submitter().unregister_buffers().is_err() {
                    return;
                }
            }
            Registration::Sparse { .. } => return,
        }
        let Ok(entries) = u32::try_from(count) else { return };
        if self.ring.submitter().register_buffers_sparse(entries).is_ok() {
            self.registration = Registration::Sparse {
                pool: pool.clone(),
                known: vec![false; count],
                full: false,
            };
        }
    }

    /// Gives a write to the kernel. Writes that fail at once are added to `done`.
    pub(super) fn start(&mut self, write: WriteJob, done: &mut Vec<Done>) {
        if let Some(broken) = &self.broken {
            let error = DiskError {
                path: write.path.to_path_buf(),
                operation: Operation::Write,
                offset: Some(write.offset),
                source: Arc::clone(broken),
            };
            done.push(Done::Written {
                write,
                result: Err(error),
            });
            return;
        }
        let slot = self.free_slots.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.slots[slot] = Some(InFlight {
            write,
            done: 0,
            tries: 0,
        });
        self.push_write(slot);
        self.submit(0, done);
    }

    /// Queues (the rest of) the write in `slot`.
    fn push_write(&mut self, slot: usize) {
        let Some(in_flight) = &self.slots[slot] else {
            return;
        };
        let write = &in_flight.write;
        let index = register_block(&mut self.registration, &self.ring, write);
        let bytes = &write.block.as_slice()[in_flight.done..write.len];
        let fd = types::Fd(write.handle.as_raw_fd());
        let offset = write.offset + in_flight.done as u64;
        let len = u32::try_from(bytes.len()).unwrap_or(1 << 30);
        let entry = match index {
            Some(index) => opcode::WriteFixed::new(fd, bytes.as_ptr(), len, index)
                .offset(offset)
                .build(),
            None => opcode::Write::new(fd, bytes.as_ptr(), len).offset(offset).build(),
        };
        self.push(&entry.user_data(slot as u64));
    }

    fn push(&mut self, entry: &squeue::Entry) {
        // SAFETY: the memory and the descriptor of a write live in `slots` until its completion was seen (or forever, when the
        // ring breaks); the poll refers to the eventfd of `outbox`, which lives as long as the ring.
        while unsafe { self.ring.submission().push(entry) }.is_err() {
            match self.ring.submit() {
                Ok(_) => {}
                Err(error) if is_transient(&error) => std::thread::yield_now(),
                Err(error) => {
                    self.broken = Some(Arc::new(error));
                    return;
                }
            }
        }
    }

    /// Submits the queued operations and waits until `want` completions have arrived.
    fn submit(&mut self, want: usize, done: &mut Vec<Done>) {
        match self.ring.submit_and_wait(want) {
            Ok(_) => {}
            Err(error) if is_transient(&error) => {}
            Err(error) => self.broken = Some(Arc::new(error)),
        }
        if self.broken.is_some() {
            self.fail_all(done);
        }
    }

    /// The ring is broken: every write in it has failed. The kernel may still read the blocks, so they are never used again.
    fn fail_all(&mut self, done: &mut Vec<Done>) {
        let Some(source) = &self.broken else { return };
        for in_flight in self.slots.iter_mut().filter_map(Option::take) {
            let write = in_flight.write;
            let error = DiskError {
                path: write.path.to_path_buf(),
                operation: Operation::Write,
                offset: Some(write.offset),
                source: Arc::clone(source),
            };
            let lost = write.block.abandon();
            done.push(Done::Written {
                write: WriteJob { block: lost, ..write },
                result: Err(error),
            });
        }
    }

    /// Applies completions.
    pub(super) fn collect(&mut self, done: &mut Vec<Done>) {
        if self.ring.submission().taskrun() {
            // Completions wait in the kernel until this thread enters it.
            self.submit(0, done);
        }
        loop {
            let Some((user_data, result)) = self
                .ring
                .completion()
                .next()
                .map(|entry| (entry.user_data(), entry.result()))
            else {
                break;
            };
            if user_data == WAKE {
                self.wake_armed = false;
            } else if let Ok(slot) = usize::try_from(user_data) {
                self.apply(slot, result, done);
            }
        }
        self.outbox.clear_event();
    }

    fn apply(&mut self, slot: usize, result: i32, done: &mut Vec<Done>) {
        let Some(in_flight) = self.slots.get_mut(slot).and_then(Option::as_mut) else {
            return;
        };
        let error = match usize::try_from(result) {
            Ok(0) => io::Error::new(io::ErrorKind::WriteZero, "the system wrote no bytes"),
            Ok(count) => {
                in_flight.done += count;
                if in_flight.done >= in_flight.write.len {
                    return self.end(slot, Ok(()), done);
                }
                // Direct writes continue at an aligned offset: the written part of the last page is written
                // again.
                in_flight.done -= in_flight.done % BLOCK_ALIGNMENT;
                in_flight.tries += u32::from(count < BLOCK_ALIGNMENT);
                if in_flight.tries <= TRIES_MAX {
                    self.push_write(slot);
                    return self.submit(0, done);
                }
                io::Error::new(
                    io::ErrorKind::WriteZero,
                    "the system wrote less than a page again and again",
                )
            }
            Err(_) => io::Error::from_raw_os_error(-result),
        };
        if is_transient(&error) && in_flight.tries < TRIES_MAX {
            in_flight.tries += 1;
            self.push_write(slot);
            return self.submit(0, done);
        }
        self.end(slot, Err(error), done);
    }

    fn end(&mut self, slot: usize, result: io::Result<()>, done: &mut Vec<Done>) {
        let Some(in_flight) = self.slots[slot].take() else {
            return;
        };
        self.free_slots.push(slot);
        let write = in_flight.write;
        let result = result.map_err(|source| {
            DiskError::new(&*write.path, Operation::Write, source).at(write.offset + in_flight.done as u64)
        });
        done.push(Done::Written { write, result });
    }

    /// Waits until a write has ended or a helper has put something into the outbox.
    pub(super) fn wait(&mut self, done: &mut Vec<Done>) {
        if self.broken.is_some() {
            // Only helpers can still end something.
            return self.outbox.wait();
        }
        if !self.wake_armed
            && let Some(fd) = self.outbox.event_fd()
        {
            let poll = opcode::PollAdd::new(types::Fd(fd), libc::POLLIN as u32)
                .build()
                .user_data(WAKE);
            self.push(&poll);
            self.wake_armed = true;
        }
        self.submit(1, done);
    }
}

impl Drop for Ring {
    /// Waits for the writes in flight: the kernel reads their blocks until then.
    fn drop(&mut self) {
        let mut done = Vec::new();
        while self.broken.is_none() && self.slots.iter().any(Option::is_some) {
            self.submit(1, &mut done);
            self.collect(&mut done);
        }
    }
}

fn is_transient(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EINTR | libc::EAGAIN | libc::EBUSY)
    )
}

/// The registered index of the block of `write`, which is registered when it is new. `None` if that is not
/// possible.
fn register_block(registration: &mut Registration, ring: &IoUring, write: &WriteJob) -> Option<u16> {
    let Registration::Sparse { pool, known, full } = registration else {
        return None;
    };
    if !write.block.is_of(pool) {
        return None;
    }
    let index = write.block.index();
    let place = index as usize;
    if !known[place] {
        if *full {
            return None;
        }
        let buffer = libc::iovec {
            iov_base: pool.block_address(place)?.cast(),
            iov_len: pool.whole_block_bytes(),
        };
        // SAFETY: the block's memory stays mapped while `registration` holds the pool, and the ring is dropped with it.
        if unsafe { ring.submitter().register_buffers_update(index, &[buffer], None) }.is_err() {
            // The locked-memory limit: registered blocks stay registered, the others are used without.
            *full = true;
            return None;
        }
        known[place] = true;
    }
    u16::try_from(index).ok()
}

fn new_ring() -> io::Result<IoUring> {
    // Completions are run when this thread enters the kernel anyway, not by interrupting it (kernel 5.19).
    let cooperative = IoUring::builder()
        .setup_coop_taskrun()
        .setup_taskrun_flag()
        .setup_clamp()
        .build(RING_ENTRIES);
    cooperative.or_else(|_| IoUring::builder().build(RING_ENTRIES))
}

/// Whether this kernel has io_uring and lets this process use it.
pub(super) fn is_ring_available() -> io::Result<()> {
    new_ring().map(drop)
}
