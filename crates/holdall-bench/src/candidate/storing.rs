//! What the rivals' recorders have in common: messages that wait as copies, a thread that stores them, and
//! their result.

use super::raw::{RawMessage, RawWriter};
use crate::{
    error::{BenchError, BenchResult},
    measure::Latencies,
};
use holdall_io::clock::Clock;
use holdall_model::message::{MessageHeader, Payload, PayloadRef};
use std::{
    sync::Arc,
    thread::{self, JoinHandle},
};

/// A message that waits, with its own copy of the payload.
pub(super) struct Waiting {
    pub(super) topic: u32,
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

    fn as_raw(&self) -> RawMessage<'_> {
        RawMessage {
            topic: self.topic,
            sequence: self.sequence,
            log_time_nanos: self.log_time_nanos,
            payload: &self.payload,
        }
    }
}

/// What such a recorder stored and lost, by topic.
#[derive(Clone, Debug, Default)]
pub struct StoredCounts {
    /// Messages in the file.
    pub stored: Vec<u64>,
    /// Messages that found their queue or buffer full.
    pub lost: Vec<u64>,
    /// How long its storage took for each batch.
    pub writes: Latencies,
}

/// A storage file with the counts of its content.
pub(super) struct Store {
    writer: Box<dyn RawWriter>,
    stored: Vec<u64>,
    writes: Latencies,
    clock: Arc<dyn Clock>,
}

impl Store {
    pub(super) fn new(writer: Box<dyn RawWriter>, topics: usize, clock: Arc<dyn Clock>) -> Self {
        Self {
            writer,
            stored: vec![0; topics],
            writes: Latencies::default(),
            clock,
        }
    }

    /// Stores these messages as one batch and frees their memory.
    pub(super) fn store(&mut self, messages: &mut Vec<Waiting>) -> BenchResult<()> {
        if messages.is_empty() {
            return Ok(());
        }
        let batch: Vec<RawMessage<'_>> = messages.iter().map(Waiting::as_raw).collect();
        let began = self.clock.monotonic();
        self.writer.write_batch(&batch)?;
        self.writes.record(self.clock.monotonic().saturating_sub(began));
        for message in messages.drain(..) {
            self.stored[message.topic as usize] += 1;
        }
        Ok(())
    }

    /// Closes the file; the owner of the queue counts the losses.
    pub(super) fn close(self) -> BenchResult<StoredCounts> {
        self.writer.close()?;
        Ok(StoredCounts {
            stored: self.stored,
            lost: Vec::new(),
            writes: self.writes,
        })
    }
}

/// The thread that stores.
pub(super) struct StoringThread {
    name: &'static str,
    thread: JoinHandle<BenchResult<StoredCounts>>,
}

impl StoringThread {
    /// Starts `run` under this name.
    ///
    /// # Errors
    /// When no thread can be started.
    pub(super) fn spawn(
        name: &'static str,
        run: impl FnOnce() -> BenchResult<StoredCounts> + Send + 'static,
    ) -> BenchResult<Self> {
        let thread = thread::Builder::new()
            .name(name.to_owned())
            .spawn(run)
            .map_err(|source| BenchError::Thread { source })?;
        Ok(Self { name, thread })
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// The storage's error.
    pub(super) fn join(self) -> BenchResult<StoredCounts> {
        self.thread.join().map_err(|_| BenchError::panicked(self.name))?
    }
}

#[cfg(test)]
pub(super) mod gate {
    //! A storage that stores nothing and can be held up.

    use super::*;
    use holdall_model::time::Timestamp;
    use holdall_transport::Sink;
    use std::sync::mpsc;

    /// The storage's side.
    pub(in super::super) struct Gate {
        go: mpsc::Receiver<()>,
        entered: mpsc::SyncSender<()>,
    }

    /// The test's side.
    pub(in super::super) struct Keeper {
        go: mpsc::SyncSender<()>,
        inside: mpsc::Receiver<()>,
    }

    /// Both.
    pub(in super::super) fn gate() -> (Box<Gate>, Keeper) {
        let (open, go) = mpsc::sync_channel(16);
        let (entered, inside) = mpsc::sync_channel(16);
        (Box::new(Gate { go, entered }), Keeper { go: open, inside })
    }

    impl Keeper {
        /// Returns when a batch is being stored.
        pub(in super::super) fn await_batch(&self) {
            self.inside.recv().unwrap();
        }

        /// Lets this many batches through.
        pub(in super::super) fn open(&self, batches: usize) {
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
    pub(in super::super) fn offer(sink: &dyn Sink, sequence: u64) {
        let header = MessageHeader {
            publisher: None,
            sequence: Some(sequence),
            publish_time: None,
            log_time: Timestamp::from_nanos(1),
        };
        sink.offer(header, Payload::Borrowed(b"12345678"));
    }
}
