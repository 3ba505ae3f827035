//! rosbag2's message compression: threads pack payloads, which come back in the order of submission.

use super::pack_files::be_nice;
use crate::writer::CompressionOptions;
use holdall_io::mutex::lock;
use holdall_io::wait::Wait;
use holdall_model::message::Loan;
use holdall_storage::compression::PayloadPacker;
use std::{
    collections::VecDeque,
    io,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
};

/// Payloads in flight for each thread if the queue has no other bound: enough that no thread waits for
/// the submitting one.
const PAYLOADS_PER_THREAD: usize = 256;
/// The most bytes in flight if the queue has no other bound; a larger payload may be in flight alone.
const IN_FLIGHT_BYTES_MAX: usize = 32 << 20;

/// A payload in flight, and its tag.
struct Slot<T> {
    /// `None` if it was dropped.
    tag: Option<T>,
    bytes: usize,
    packed: Option<io::Result<Vec<u8>>>,
}

/// State that the threads share with the owner.
#[derive(Default)]
struct Queue {
    waiting: VecDeque<(u64, Box<dyn Loan>)>,
    done: Vec<(u64, io::Result<Vec<u8>>)>,
    closed: bool,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    /// A payload waits, or the packing ends.
    work: Condvar,
    /// A payload is done.
    done: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        lock(&self.queue)
    }
}

/// Packs payloads. `T` comes back with each.
pub struct PayloadPacking<T> {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    /// In order; the first one has number `first`.
    slots: VecDeque<Slot<T>>,
    first: u64,
    bytes: usize,
    queue_max: Option<usize>,
}

impl<T> PayloadPacking<T> {
    /// Starts the threads.
    ///
    /// # Errors
    /// When the system gives none, or the codec no memory.
    pub fn start(options: &CompressionOptions) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let mut packing = Self {
            shared: Arc::clone(&shared),
            threads: Vec::new(),
            slots: VecDeque::new(),
            first: 0,
            bytes: 0,
            queue_max: options.queue_max.map(|max| max.get() as usize),
        };
        for _ in 0..options.thread_count().max(1) {
            let shared = Arc::clone(&shared);
            let nice = options.threads_nice;
            let packer = PayloadPacker::new()?;
            let thread = std::thread::Builder::new().name("pack-payload".to_owned());
            packing.threads.push(thread.spawn(move || {
                be_nice(nice);
                work(&shared, packer);
            })?);
        }
        Ok(packing)
    }

    /// Whether one must be taken back, or dropped, before another can be submitted.
    pub fn is_full(&self) -> bool {
        match self.queue_max {
            Some(max) => self.shared.lock().waiting.len() >= max,
            None => {
                self.slots.len() >= self.threads.len() * PAYLOADS_PER_THREAD
                    || self.bytes >= IN_FLIGHT_BYTES_MAX
            }
        }
    }

    /// Whether a full queue drops its oldest payload instead of waiting.
    pub fn drops_oldest(&self) -> bool {
        self.queue_max.is_some()
    }

    /// Submits a payload; the thread that packs it copies it, and then returns it.
    pub fn submit(&mut self, tag: T, payload: Box<dyn Loan>) {
        let number = self.first + self.slots.len() as u64;
        let bytes = payload.len();
        self.bytes += bytes;
        self.slots.push_back(Slot {
            tag: Some(tag),
            bytes,
            packed: None,
        });
        self.shared.lock().waiting.push_back((number, payload));
        self.shared.work.notify_one();
    }

    /// Drops the oldest payload that no thread has begun.
    pub fn drop_oldest(&mut self) -> Option<T> {
        let (number, payload) = self.shared.lock().waiting.pop_front()?;
        drop(payload);
        let slot = self.slots.get_mut((number - self.first) as usize)?;
        self.bytes -= std::mem::take(&mut slot.bytes);
        slot.tag.take()
    }

    /// The next payload in order when it is packed, or once it is. `None` if none is in flight.
    pub fn take_ready(&mut self, wait: Wait) -> Option<(T, io::Result<Vec<u8>>)> {
        loop {
            let front = self.slots.front()?;
            if front.packed.is_none() && front.tag.is_some() {
                self.accept(wait);
            }
            let front = self.slots.front()?;
            if front.packed.is_none() && front.tag.is_some() {
                if wait == Wait::UntilReady {
                    continue;
                }
                return None;
            }
            let slot = self.slots.pop_front()?;
            self.first += 1;
            self.bytes -= slot.bytes;
            // A dropped payload leaves an empty slot.
            if let (Some(tag), Some(packed)) = (slot.tag, slot.packed) {
                return Some((tag, packed));
            }
        }
    }

    /// Collects finished payloads of the threads; if it waits, at least one.
    fn accept(&mut self, wait: Wait) {
        let mut queue = self.shared.lock();
        while wait == Wait::UntilReady && queue.done.is_empty() {
            queue = self
                .shared
                .done
                .wait(queue)
                .unwrap_or_else(PoisonError::into_inner);
        }
        let done = std::mem::take(&mut queue.done);
        drop(queue);
        for (number, packed) in done {
            if let Some(slot) = self.slots.get_mut((number - self.first) as usize) {
                slot.packed = Some(packed);
            }
        }
    }
}

impl<T> Drop for PayloadPacking<T> {
    fn drop(&mut self) {
        let mut queue = self.shared.lock();
        queue.closed = true;
        queue.waiting.clear();
        drop(queue);
        self.shared.work.notify_all();
        for thread in self.threads.drain(..) {
            // A panic of the thread was printed when it happened.
            let _ = thread.join();
        }
    }
}

fn work(shared: &Shared, mut packer: PayloadPacker) {
    let mut raw = Vec::new();
    loop {
        let mut queue = shared.lock();
        let (number, payload) = loop {
            match queue.waiting.pop_front() {
                Some(job) => break job,
                None if queue.closed => return,
                None => queue = shared.work.wait(queue).unwrap_or_else(PoisonError::into_inner),
            }
        };
        drop(queue);
        raw.clear();
        payload.for_each_slice(&mut |slice| raw.extend_from_slice(slice));
        // The transport has its memory back before the work begins.
        drop(payload);
        let packed = packer.pack(&raw);
        shared.lock().done.push((number, packed));
        shared.done.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdall_storage::compression::unpack_payload;
    use std::num::NonZeroU32;

    fn options(queue_max: Option<u32>) -> CompressionOptions {
        CompressionOptions {
            queue_max: queue_max.and_then(NonZeroU32::new),
            threads: Some(3),
            threads_nice: 1,
            ..CompressionOptions::default()
        }
    }

    fn payload(n: usize) -> Vec<u8> {
        vec![n as u8; n * 997 % 5000]
    }

    #[test]
    fn payloads_come_back_packed_in_order() {
        let mut packing = PayloadPacking::start(&options(None)).unwrap();
        let mut next = 0;
        let mut check = |ready: Option<(usize, io::Result<Vec<u8>>)>| {
            let (n, packed) = ready?;
            assert_eq!(n, next);
            assert_eq!(unpack_payload(&packed.unwrap(), 5000).unwrap(), payload(n));
            next += 1;
            Some(())
        };
        for n in 0..5000 {
            while packing.is_full() {
                check(packing.take_ready(Wait::UntilReady)).unwrap();
            }
            packing.submit(n, Box::new(Box::<[u8]>::from(payload(n))));
            while check(packing.take_ready(Wait::No)).is_some() {}
        }
        while check(packing.take_ready(Wait::UntilReady)).is_some() {}
        assert_eq!(next, 5000);
    }

    #[test]
    fn what_is_dropped_and_what_comes_back_is_all_there_was() {
        let mut packing = PayloadPacking::start(&options(Some(2))).unwrap();
        let (mut dropped, mut back) = (Vec::new(), Vec::new());
        for n in 0..2000 {
            while packing.is_full() {
                dropped.extend(packing.drop_oldest());
            }
            packing.submit(n, Box::new(Box::<[u8]>::from(vec![1; 20_000])));
            back.extend(packing.take_ready(Wait::No).map(|(n, _)| n));
        }
        while let Some((n, packed)) = packing.take_ready(Wait::UntilReady) {
            packed.unwrap();
            back.push(n);
        }
        assert!(back.is_sorted());
        assert!(back.contains(&1999), "the newest is kept");
        back.extend(dropped);
        back.sort_unstable();
        assert_eq!(back, (0..2000).collect::<Vec<_>>());
        assert_eq!(packing.bytes, 0);
    }
}
