//! Older recorder designs in front of a storage: messages wait as copies, and one thread stores them.
//!
//! The double buffer is rosbag2's: one buffer is filled while the other is stored, messages that find it full are dropped,
//! and twice its size may be held. The queues are those of the recorder before it: one thread takes messages from short
//! queues of the subscriptions and stores each full cache itself, and while it writes the queues fill and lose messages.
//! The published comparison of synchronous and cached writing used these as its yardstick. Both write into the rivals' own
//! storages.

use super::raw::{RawMessage, RawWriter};
use crate::{
    error::{BenchError, BenchResult},
    measure::Latencies,
};
use holdall_io::{clock::Clock, mutex::lock};
use holdall_model::message::{MessageHeader, Payload, PayloadRef};
use holdall_transport::Sink;
use std::{
    collections::VecDeque,
    mem::{swap, take},
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
};

/// The place where messages wait before they are stored.
pub(crate) enum Waits {
    /// Two buffers of this size in bytes.
    DoubleBuffer(u64),
    /// A queue for each topic with this capacity in messages, emptied into a cache that is stored at this size in
    /// bytes.
    Queues(Vec<u64>, u64),
}

/// A message that waits, with its own copy of the payload.
struct Waiting {
    topic: u32,
    sequence: u64,
    log_time_nanos: u64,
    payload: Vec<u8>,
}

impl Waiting {
    fn new(topic: u32, header: &MessageHeader, payload: Payload<'_>) -> Self {
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

    fn as_raw(&self) -> RawMessage<'_> {
        RawMessage {
            topic: self.topic,
            sequence: self.sequence,
            log_time_nanos: self.log_time_nanos,
            payload: &self.payload,
        }
    }
}

/// Messages that such a recorder stored and lost, by topic.
#[derive(Clone, Debug, Default)]
pub(crate) struct StoredCounts {
    /// Messages in the file.
    pub stored: Vec<u64>,
    /// Messages that found their queue or buffer full.
    pub lost: Vec<u64>,
    /// How long its storage took for each batch.
    pub writes: Latencies,
}

#[derive(Default)]
struct State {
    /// In the order of arrival.
    waiting: VecDeque<Waiting>,
    bytes: u64,
    /// Messages in each topic's queue.
    held: Vec<u64>,
    lost: Vec<u64>,
    is_closed: bool,
}

struct Shared {
    waits: Waits,
    state: Mutex<State>,
    arrived: Condvar,
}

impl Shared {
    /// Whether a topic's queue has room, which is then taken.
    fn enter(&self, depth: u64, topic: usize) -> bool {
        let mut state = lock(&self.state);
        let is_full = state.held[topic] >= depth;
        let count = if is_full { &mut state.lost } else { &mut state.held };
        count[topic] += 1;
        !is_full
    }

    /// Waits for messages and takes those that may be stored together; true when no more will come.
    fn take(&self, cache: &mut VecDeque<Waiting>, cached_bytes: &mut u64) -> bool {
        let mut state = lock(&self.state);
        while state.waiting.is_empty() && !state.is_closed {
            state = self.arrived.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        match &self.waits {
            Waits::DoubleBuffer(_) => {
                swap(&mut state.waiting, cache);
                state.bytes = 0;
                *cached_bytes = u64::MAX;
            }
            Waits::Queues(_, bytes_max) => {
                while *cached_bytes < *bytes_max
                    && let Some(message) = state.waiting.pop_front()
                {
                    state.held[message.topic as usize] -= 1;
                    *cached_bytes += message.payload.len() as u64;
                    cache.push_back(message);
                }
            }
        }
        state.is_closed && state.waiting.is_empty()
    }

    /// The storing thread: each batch comes from the double buffer or is a full cache.
    fn store_all(&self, mut writer: Box<dyn RawWriter>, clock: &dyn Clock) -> BenchResult<StoredCounts> {
        let topics = lock(&self.state).lost.len();
        let mut counts = StoredCounts {
            stored: vec![0; topics],
            ..StoredCounts::default()
        };
        let (mut cache, mut cached_bytes) = (VecDeque::new(), 0);
        loop {
            let has_ended = self.take(&mut cache, &mut cached_bytes);
            let is_full = match &self.waits {
                Waits::DoubleBuffer(_) => true,
                Waits::Queues(_, bytes_max) => cached_bytes >= *bytes_max,
            };
            if (is_full || has_ended) && !cache.is_empty() {
                let batch: Vec<RawMessage<'_>> = cache.iter().map(Waiting::as_raw).collect();
                let began = clock.monotonic();
                writer.write_batch(&batch)?;
                counts.writes.record(clock.monotonic().saturating_sub(began));
                cache
                    .drain(..)
                    .for_each(|message| counts.stored[message.topic as usize] += 1);
                cached_bytes = 0;
            }
            if has_ended {
                writer.close()?;
                return Ok(counts);
            }
        }
    }
}

struct WaitingSink {
    shared: Arc<Shared>,
    topic: u32,
}

impl Sink for WaitingSink {
    fn offer(&self, header: MessageHeader, payload: Payload<'_>) {
        let (shared, topic) = (&self.shared, self.topic as usize);
        if let Waits::Queues(depths, _) = &shared.waits
            && !shared.enter(depths[topic], topic)
        {
            return;
        }
        // Copied outside of the lock, as a subscription takes a message before the writer gets it.
        let waiting = Waiting::new(self.topic, &header, payload);
        let bytes = waiting.payload.len() as u64;
        let mut state = lock(&shared.state);
        // One message always fits, or a small buffer would accept none at all.
        let is_full = matches!(shared.waits, Waits::DoubleBuffer(most) if state.bytes + bytes > most);
        if is_full && !state.waiting.is_empty() {
            state.lost[topic] += 1;
            return;
        }
        state.bytes += bytes;
        state.waiting.push_back(waiting);
        drop(state);
        shared.arrived.notify_one();
    }
}

/// Counts messages and drops them.
#[derive(Default)]
struct Counting(AtomicU64);

impl Sink for Counting {
    fn offer(&self, _: MessageHeader, _: Payload<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

enum Work {
    Storing(Arc<Shared>, JoinHandle<BenchResult<StoredCounts>>),
    /// Stores nothing: measures the costs of taking and counting.
    Counting(Vec<Arc<Counting>>),
}

/// A running recorder.
pub(crate) struct Buffered {
    sinks: Vec<Arc<dyn Sink>>,
    work: Work,
}

impl Buffered {
    /// Starts a recorder for this number of topics.
    ///
    /// # Errors
    /// When no thread can be started.
    pub(crate) fn start(
        writer: Box<dyn RawWriter>,
        topics: usize,
        waits: Waits,
        clock: Arc<dyn Clock>,
    ) -> BenchResult<Self> {
        let shared = Arc::new(Shared {
            waits,
            state: Mutex::new(State {
                held: vec![0; topics],
                lost: vec![0; topics],
                ..State::default()
            }),
            arrived: Condvar::new(),
        });
        let sink = |(_, topic)| {
            let shared = Arc::clone(&shared);
            Arc::new(WaitingSink { shared, topic }) as Arc<dyn Sink>
        };
        let storing = Arc::clone(&shared);
        Ok(Self {
            sinks: (0..topics).zip(0_u32..).map(sink).collect(),
            work: Work::Storing(
                shared,
                thread::Builder::new()
                    .name("buffered".to_owned())
                    .spawn(move || storing.store_all(writer, clock.as_ref()))
                    .map_err(|source| BenchError::Thread { source })?,
            ),
        })
    }

    /// A recorder that counts messages and drops them.
    pub(crate) fn counting(topics: usize) -> Self {
        let counting: Vec<Arc<Counting>> = (0..topics).map(|_| Arc::default()).collect();
        let sinks = counting.iter().map(|one| Arc::clone(one) as Arc<dyn Sink>);
        Self {
            sinks: sinks.collect(),
            work: Work::Counting(counting),
        }
    }

    /// The sinks of the topics.
    pub(crate) fn sinks(&self) -> &[Arc<dyn Sink>] {
        &self.sinks
    }

    /// Stores the waiting messages and closes the file; returns when it is durable.
    ///
    /// # Errors
    /// The storage's error.
    pub(crate) fn close(self) -> BenchResult<StoredCounts> {
        match self.work {
            Work::Storing(shared, thread) => {
                lock(&shared.state).is_closed = true;
                shared.arrived.notify_one();
                let counts = thread.join().map_err(|_| BenchError::panicked("buffered"))??;
                let lost = take(&mut lock(&shared.state).lost);
                Ok(StoredCounts { lost, ..counts })
            }
            Work::Counting(counting) => Ok(StoredCounts {
                stored: counting.iter().map(|one| one.0.load(Ordering::Relaxed)).collect(),
                lost: vec![0; counting.len()],
                ..StoredCounts::default()
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdall_io::clock::SystemClock;
    use holdall_model::time::Timestamp;
    use std::sync::mpsc;

    /// The storage's side.
    struct Gate {
        go: mpsc::Receiver<()>,
        entered: mpsc::SyncSender<()>,
    }

    /// The test's side.
    struct Keeper {
        go: mpsc::SyncSender<()>,
        inside: mpsc::Receiver<()>,
    }

    /// Both.
    fn gate() -> (Box<Gate>, Keeper) {
        let (open, go) = mpsc::sync_channel(16);
        let (entered, inside) = mpsc::sync_channel(16);
        (Box::new(Gate { go, entered }), Keeper { go: open, inside })
    }

    impl Keeper {
        /// Returns when a batch is being stored.
        fn await_batch(&self) {
            self.inside.recv().unwrap();
        }

        /// Lets this many batches through.
        fn open(&self, batches: usize) {
            (0..batches).for_each(|_| self.go.send(()).unwrap());
        }
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

    /// Offers a message of eight bytes.
    fn offer(sink: &dyn Sink, sequence: u64) {
        let header = MessageHeader {
            publisher: None,
            sequence: Some(sequence),
            publish_time: None,
            log_time: Timestamp::from_nanos(1),
        };
        sink.offer(header, Payload::Borrowed(b"12345678"));
    }

    #[test]
    fn a_full_buffer_drops_messages_while_the_other_is_stored() {
        let (writer, keeper) = gate();
        let recorder = Buffered::start(writer, 1, Waits::DoubleBuffer(24), Arc::new(SystemClock)).unwrap();
        offer(recorder.sinks()[0].as_ref(), 1);
        keeper.await_batch();
        // The first is being stored: three more of eight bytes fit into 24, two do not.
        (2..=6).for_each(|sequence| offer(recorder.sinks()[0].as_ref(), sequence));
        keeper.open(4);
        let counts = recorder.close().unwrap();
        assert_eq!((counts.stored, counts.lost), (vec![4], vec![2]));
        assert_eq!(counts.writes.summary().unwrap().count, 2);
    }

    #[test]
    fn queues_lose_messages_while_the_thread_writes() {
        let (writer, keeper) = gate();
        let recorder = Buffered::start(writer, 1, Waits::Queues(vec![10], 1), Arc::new(SystemClock)).unwrap();
        offer(recorder.sinks()[0].as_ref(), 1);
        keeper.await_batch();
        // The thread is held within its first batch: ten more find room, five do not.
        (2..=16).for_each(|sequence| offer(recorder.sinks()[0].as_ref(), sequence));
        keeper.open(12);
        let counts = recorder.close().unwrap();
        assert_eq!((counts.stored, counts.lost), (vec![11], vec![5]));
    }
}
