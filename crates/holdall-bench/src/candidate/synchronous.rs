//! The recorder from before double buffering: one thread takes messages from short queues and stores each
//! full cache itself.
//!
//! While it writes, the queues of the subscriptions fill and lose messages. It is the yardstick of the
//! published comparison of synchronous and cached writing, with a bare SQLite loop or the `mcap` crate as its
//! storage.

use super::{
    raw::RawWriter,
    storing::{Store, StoredCounts, StoringThread, Waiting},
};
use crate::error::BenchResult;
use holdall_io::clock::Clock;
use holdall_io::mutex::lock;
use holdall_model::message::{MessageHeader, Payload};
use holdall_transport::Sink;
use std::{
    collections::VecDeque,
    sync::{Arc, Condvar, Mutex, PoisonError},
};

/// Queues of all topics and the state that the writing thread reads.
#[derive(Default)]
struct Shared {
    state: Mutex<Queues>,
    arrived: Condvar,
}

#[derive(Default)]
struct Queues {
    /// Messages in the order of arrival.
    waiting: VecDeque<Waiting>,
    /// The number of waiting messages of each topic.
    held: Vec<u64>,
    lost: Vec<u64>,
    closed: bool,
}

/// A topic's queue: holds `depth` messages and loses those that arrive when it is full.
struct QueueSink {
    shared: Arc<Shared>,
    topic: u32,
    depth: u64,
}

impl Sink for QueueSink {
    fn offer(&self, header: MessageHeader, payload: Payload<'_>) {
        let index = self.topic as usize;
        let mut queues = lock(&self.shared.state);
        if queues.held[index] >= self.depth {
            queues.lost[index] += 1;
            return;
        }
        queues.held[index] += 1;
        drop(queues);
        // Copied outside of the lock, as a subscription deserializes before its callback is called.
        let waiting = Waiting::new(self.topic, &header, payload);
        lock(&self.shared.state).waiting.push_back(waiting);
        self.shared.arrived.notify_one();
    }
}

/// A running synchronous recorder.
pub struct Synchronous {
    shared: Arc<Shared>,
    sinks: Vec<Arc<dyn Sink>>,
    thread: StoringThread,
}

impl Synchronous {
    /// Starts a recorder for topics with queues of these depths; it stores each time `cache_bytes_max` have
    /// accumulated.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn start(
        writer: Box<dyn RawWriter>,
        depths: &[u64],
        cache_bytes_max: u64,
        clock: Arc<dyn Clock>,
    ) -> BenchResult<Self> {
        let shared = Arc::new(Shared {
            state: Mutex::new(Queues {
                held: vec![0; depths.len()],
                lost: vec![0; depths.len()],
                ..Queues::default()
            }),
            arrived: Condvar::new(),
        });
        let sinks = depths
            .iter()
            .zip(0_u32..)
            .map(|(&depth, topic)| {
                let shared = Arc::clone(&shared);
                Arc::new(QueueSink { shared, topic, depth }) as Arc<dyn Sink>
            })
            .collect();
        let taker = Taker {
            shared: Arc::clone(&shared),
            store: Store::new(writer, depths.len(), clock),
            cache_bytes_max,
            cache: Vec::new(),
            cached_bytes: 0,
        };
        let thread = StoringThread::spawn("synchronous", move || taker.run())?;
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
        lock(&self.shared.state).closed = true;
        self.shared.arrived.notify_one();
        let counts = self.thread.join()?;
        let lost = std::mem::take(&mut lock(&self.shared.state).lost);
        Ok(StoredCounts { lost, ..counts })
    }
}

/// The storing thread.
struct Taker {
    shared: Arc<Shared>,
    store: Store,
    cache_bytes_max: u64,
    cache: Vec<Waiting>,
    cached_bytes: u64,
}

impl Taker {
    fn run(mut self) -> BenchResult<StoredCounts> {
        while let Some(message) = self.next() {
            self.cached_bytes += message.payload.len() as u64;
            self.cache.push(message);
            if self.cached_bytes >= self.cache_bytes_max {
                self.store.store(&mut self.cache)?;
                self.cached_bytes = 0;
            }
        }
        self.store.store(&mut self.cache)?;
        self.store.close()
    }

    /// Waits for a message; `None` when closed and empty.
    fn next(&self) -> Option<Waiting> {
        let mut queues = lock(&self.shared.state);
        loop {
            if let Some(message) = queues.waiting.pop_front() {
                queues.held[message.topic as usize] -= 1;
                return Some(message);
            }
            if queues.closed {
                return None;
            }
            queues = self
                .shared
                .arrived
                .wait(queues)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::storing::gate::{gate, offer},
        *,
    };
    use holdall_io::clock::SystemClock;

    #[test]
    fn queues_lose_messages_while_the_thread_writes() {
        let (writer, keeper) = gate();
        let recorder = Synchronous::start(writer, &[10], 1, Arc::new(SystemClock)).unwrap();
        offer(recorder.sinks()[0].as_ref(), 1);
        keeper.await_batch();
        // The thread is held within its first batch: ten more find room, five do not.
        (2..=16).for_each(|sequence| offer(recorder.sinks()[0].as_ref(), sequence));
        keeper.open(12);
        let counts = recorder.close().unwrap();
        assert_eq!((counts.stored, counts.lost), (vec![11], vec![5]));
    }
}
