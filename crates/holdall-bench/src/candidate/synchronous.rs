//! The recorder from before double buffering: one thread takes messages from short queues and stores each full cache itself.
//!
//! While it writes, the queues of the subscriptions fill and lose messages. It is the yardstick of the published comparison of
//! synchronous and cached writing, with a bare SQLite loop or the `mcap` crate as its storage.

use super::raw::{RawMessage, RawWriter};
use crate::{
    error::{BenchError, BenchResult},
    measure::Latencies,
};
use holdall_io::clock::Clock;
use holdall_model::message::{MessageHeader, Payload, PayloadRef};
use holdall_transport::Sink;
use std::{
    collections::VecDeque,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
};

/// A message that waits, with its own copy of the payload.
pub(super) struct Waiting {
    topic: u32,
    sequence: u64,
    log_time_nanos: u64,
    pub(super) payload: Vec<u8>,
}

impl Waiting {
    pub(super) fn new(topic: u32, header: &MessageHeader, payload: Payload<'_>) -> Self {
        let mut bytes = Vec::with_capacity(payload.len());
        match payload {
            Payload::Borrowed(slice) => bytes.extend_from_slice(slice),
            Payload::Loaned(loan) => {
                PayloadRef::Loan(loan.as_ref()).for_each_slice(|slice| bytes.extend_from_slice(slice));
            }
        }
        Self {
            topic,
            sequence: header.sequence.unwrap_or(0),
            log_time_nanos: u64::try_from(header.log_time.as_nanos()).unwrap_or(0),
            payload: bytes,
        }
    }

    pub(super) fn as_raw(&self) -> RawMessage<'_> {
        RawMessage {
            topic: self.topic,
            sequence: self.sequence,
            log_time_nanos: self.log_time_nanos,
            payload: &self.payload,
        }
    }
}

/// Queues of all topics and what the writing thread should know.
#[derive(Default)]
struct Shared {
    state: Mutex<Queues>,
    arrived: Condvar,
}

#[derive(Default)]
struct Queues {
    /// Messages in the order of arrival.
    waiting: VecDeque<Waiting>,
    /// How many of them each topic has.
    held: Vec<u64>,
    lost: Vec<u64>,
    closed: bool,
}

/// A topic's queue: holds `depth` messages and loses what comes when it is full.
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

/// What a recorder of a rival's kind has stored and lost, by topic.
#[derive(Clone, Debug, Default)]
pub struct StoredCounts {
    /// Messages in the file.
    pub stored: Vec<u64>,
    /// Messages that found their queue or buffer full.
    pub lost: Vec<u64>,
    /// How long its storage took for each batch.
    pub writes: Latencies,
}

/// A synchronous recorder that is running.
pub struct Synchronous {
    shared: Arc<Shared>,
    sinks: Vec<Arc<dyn Sink>>,
    thread: JoinHandle<BenchResult<(Vec<u64>, Latencies)>>,
}

impl Synchronous {
    /// Starts one for topics with queues of these depths; it stores whenever `cache_bytes_max` have come together.
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
            writer,
            cache_bytes_max,
            cache: Vec::new(),
            cached_bytes: 0,
            stored: vec![0; depths.len()],
            writes: Latencies::default(),
            clock,
        };
        let thread = thread::Builder::new()
            .name("synchronous".to_owned())
            .spawn(move || taker.run())
            .map_err(|source| BenchError::Thread { source })?;
        Ok(Self {
            shared,
            sinks,
            thread,
        })
    }

    /// Where the messages of each topic go.
    pub fn sinks(&self) -> &[Arc<dyn Sink>] {
        &self.sinks
    }

    /// Stores what waits and closes the file; returns when it is durable.
    ///
    /// # Errors
    /// Whatever the storage said.
    pub fn close(self) -> BenchResult<StoredCounts> {
        lock(&self.shared.state).closed = true;
        self.shared.arrived.notify_one();
        let (stored, writes) = self.thread.join().map_err(|_| BenchError::Thread {
            source: std::io::Error::other("the synchronous recorder panicked"),
        })??;
        let lost = std::mem::take(&mut lock(&self.shared.state).lost);
        Ok(StoredCounts { stored, lost, writes })
    }
}

/// The thread's part.
struct Taker {
    shared: Arc<Shared>,
    writer: Box<dyn RawWriter>,
    cache_bytes_max: u64,
    cache: Vec<Waiting>,
    cached_bytes: u64,
    stored: Vec<u64>,
    writes: Latencies,
    clock: Arc<dyn Clock>,
}

impl Taker {
    fn run(mut self) -> BenchResult<(Vec<u64>, Latencies)> {
        while let Some(message) = self.next() {
            self.cached_bytes += message.payload.len() as u64;
            self.cache.push(message);
            if self.cached_bytes >= self.cache_bytes_max {
                self.store()?;
            }
        }
        self.store()?;
        self.writer.close()?;
        Ok((self.stored, self.writes))
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

    fn store(&mut self) -> BenchResult<()> {
        let batch: Vec<RawMessage<'_>> = self.cache.iter().map(Waiting::as_raw).collect();
        let began = self.clock.monotonic();
        self.writer.write_batch(&batch)?;
        self.writes.record(self.clock.monotonic().saturating_sub(began));
        for message in &self.cache {
            self.stored[message.topic as usize] += 1;
        }
        self.cache.clear();
        self.cached_bytes = 0;
        Ok(())
    }
}

/// A panic elsewhere leaves the queues as they were between two messages.
fn lock(mutex: &Mutex<Queues>) -> MutexGuard<'_, Queues> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdall_io::clock::SystemClock;
    use holdall_model::time::Timestamp;
    use std::sync::mpsc;

    /// Stores in memory and can be held up.
    struct Gate {
        go: mpsc::Receiver<()>,
        entered: mpsc::SyncSender<()>,
    }

    impl RawWriter for Gate {
        fn write_batch(&mut self, _: &[RawMessage<'_>]) -> BenchResult<()> {
            self.entered.send(()).unwrap();
            self.go.recv().unwrap();
            Ok(())
        }

        fn close(self: Box<Self>) -> BenchResult<()> {
            Ok(())
        }
    }

    #[test]
    fn queues_lose_messages_while_the_thread_writes() {
        let (release, go) = mpsc::sync_channel(16);
        let (entered, inside) = mpsc::sync_channel(16);
        let recorder =
            Synchronous::start(Box::new(Gate { go, entered }), &[10], 1, Arc::new(SystemClock)).unwrap();
        let offer = |sequence| {
            let header = MessageHeader {
                publisher: None,
                sequence: Some(sequence),
                publish_time: None,
                log_time: Timestamp::from_nanos(1),
            };
            recorder.sinks()[0].offer(header, Payload::Borrowed(b"12345678"));
        };
        offer(1);
        inside.recv().unwrap();
        // The thread is held within its first batch: ten more find room, five do not.
        (2..=16).for_each(offer);
        (0..12).for_each(|_| release.send(()).unwrap());
        let counts = recorder.close().unwrap();
        assert_eq!((counts.stored, counts.lost), (vec![11], vec![5]));
    }
}
