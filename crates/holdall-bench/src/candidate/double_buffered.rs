//! A recorder with two buffers like rosbag2's: one is filled while the other is stored, and messages that
//! find the first full are dropped.
//!
//! Like rosbag2's it may hold twice its cache size. Its storage is the `mcap` crate or a bare SQLite loop:
//! the rivals' storages with the best queue that they have.

use super::{
    raw::RawWriter,
    storing::{Store, StoredCounts, StoringThread, Waiting},
};
use crate::error::BenchResult;
use holdall_io::clock::Clock;
use holdall_io::mutex::lock;
use holdall_model::message::{MessageHeader, Payload};
use holdall_transport::Sink;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// The buffer that is being filled.
#[derive(Default)]
struct Filling {
    messages: Vec<Waiting>,
    bytes: u64,
    lost: Vec<u64>,
    closed: bool,
}

#[derive(Default)]
struct Shared {
    filling: Mutex<Filling>,
    arrived: Condvar,
    bytes_max: u64,
}

struct BufferSink {
    shared: Arc<Shared>,
    topic: u32,
}

impl Sink for BufferSink {
    fn offer(&self, header: MessageHeader, payload: Payload<'_>) {
        // Copied before the lock is taken, as a subscription takes a message before the writer gets it.
        let waiting = Waiting::new(self.topic, &header, payload);
        let bytes = waiting.payload.len() as u64;
        let mut filling = lock(&self.shared.filling);
        // One message always fits, or a small cache would accept none at all.
        if filling.bytes + bytes > self.shared.bytes_max && !filling.messages.is_empty() {
            filling.lost[self.topic as usize] += 1;
            return;
        }
        filling.bytes += bytes;
        filling.messages.push(waiting);
        drop(filling);
        self.shared.arrived.notify_one();
    }
}

/// A running double-buffered recorder.
pub struct DoubleBuffered {
    shared: Arc<Shared>,
    sinks: Vec<Arc<dyn Sink>>,
    thread: StoringThread,
}

impl DoubleBuffered {
    /// Starts a recorder for this number of topics; each buffer holds `bytes_max`.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn start(
        writer: Box<dyn RawWriter>,
        topics: usize,
        bytes_max: u64,
        clock: Arc<dyn Clock>,
    ) -> BenchResult<Self> {
        let shared = Arc::new(Shared {
            filling: Mutex::new(Filling {
                lost: vec![0; topics],
                ..Filling::default()
            }),
            bytes_max,
            ..Shared::default()
        });
        let sinks = (0..topics)
            .zip(0_u32..)
            .map(|(_, topic)| {
                let shared = Arc::clone(&shared);
                Arc::new(BufferSink { shared, topic }) as Arc<dyn Sink>
            })
            .collect();
        let taken = Arc::clone(&shared);
        let store = Store::new(writer, topics, clock);
        let thread = StoringThread::spawn("double-buffered", move || store_all(&taken, store))?;
        Ok(Self {
            shared,
            sinks,
            thread,
        })
    }

    /// The sinks of the topics.
    pub fn sinks(&self) -> &[Arc<dyn Sink>] {
        &self.sinks
    }

    /// Stores the waiting messages and closes the file; returns when it is durable.
    ///
    /// # Errors
    /// The storage's error.
    pub fn close(self) -> BenchResult<StoredCounts> {
        lock(&self.shared.filling).closed = true;
        self.shared.arrived.notify_one();
        let counts = self.thread.join()?;
        let lost = std::mem::take(&mut lock(&self.shared.filling).lost);
        Ok(StoredCounts { lost, ..counts })
    }
}

/// The storing thread: swaps buffers and stores the full one.
fn store_all(shared: &Shared, mut store: Store) -> BenchResult<StoredCounts> {
    let mut taken = Vec::new();
    loop {
        let closed = take(shared, &mut taken);
        store.store(&mut taken)?;
        if closed {
            return store.close();
        }
    }
}

/// Waits for messages and takes all of them; true when no more will come.
fn take(shared: &Shared, taken: &mut Vec<Waiting>) -> bool {
    let mut filling = lock(&shared.filling);
    while filling.messages.is_empty() && !filling.closed {
        filling = shared
            .arrived
            .wait(filling)
            .unwrap_or_else(PoisonError::into_inner);
    }
    std::mem::swap(&mut filling.messages, taken);
    filling.bytes = 0;
    filling.closed
}

#[cfg(test)]
mod tests {
    use super::{
        super::storing::gate::{gate, offer},
        *,
    };
    use holdall_io::clock::SystemClock;

    #[test]
    fn a_full_buffer_drops_messages_while_the_other_is_stored() {
        let (writer, keeper) = gate();
        let recorder = DoubleBuffered::start(writer, 1, 24, Arc::new(SystemClock)).unwrap();
        offer(recorder.sinks()[0].as_ref(), 1);
        keeper.await_batch();
        // The first is being stored: three more of eight bytes fit into 24, two do not.
        (2..=6).for_each(|sequence| offer(recorder.sinks()[0].as_ref(), sequence));
        keeper.open(4);
        let counts = recorder.close().unwrap();
        assert_eq!((counts.stored, counts.lost), (vec![4], vec![2]));
        assert_eq!(counts.writes.summary().unwrap().count, 2);
    }
}
