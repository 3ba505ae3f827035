//! Reads a topic as rows in several threads, each of which decodes separate spans of time.

use super::{Pick, Rows, TableError, TableOptions, TableReader};
use crate::{
    decode::{ChoiceError, Decoders, MessageChoice, TimeBase},
    reader::{BagSet, BagSpans, MessageFilter},
};
use holdall_io::mutex::lock;
use holdall_model::time::Timestamp;
use std::{
    collections::{BTreeMap, VecDeque},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
    time::Duration,
};

/// Bytes of records of a span.
const SPAN_BYTES: u64 = 16 << 20;
/// Rows between two checks whether reading was ended.
const ROWS_AT_ONCE: usize = 8_192;
/// Spans that are begun before their turn, for each thread.
const SPANS_AHEAD: usize = 2;

/// The next of a [`ParallelTable`].
pub enum Next {
    /// Rows, or an error after the rows before it.
    Rows(Result<Rows, TableError>),
    /// Nothing is ready yet.
    Waiting,
    /// The end.
    End,
}

/// A topic that several threads read. Rows come in order.
pub struct ParallelTable {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    /// A process that was forked has no threads.
    process: u32,
    ready: VecDeque<Result<Rows, TableError>>,
    skipped: u64,
    first_skipped: Option<String>,
}

/// Input of the threads.
struct Shared {
    spans: BagSpans,
    decoders: Arc<Mutex<Decoders>>,
    topic: String,
    choice: MessageChoice,
    options: TableOptions,
    ahead: usize,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Spans that a thread has begun to read.
    begun: usize,
    /// Spans that were handed out.
    taken: usize,
    done: BTreeMap<usize, Part>,
    is_closed: bool,
}

/// Decoded rows of one span.
#[derive(Default)]
struct Part {
    rows: Vec<Result<Rows, TableError>>,
    skipped: u64,
    first_skipped: Option<String>,
    panic: Option<Box<dyn std::any::Any + Send>>,
}

impl ParallelTable {
    /// Begins to read a topic in `threads` threads. `None` if it cannot be divided: a short one, or one whose rows depend on those
    /// before.
    ///
    /// # Errors
    /// A file that cannot be read; a system without free threads.
    pub fn open(
        bags: &BagSet,
        decoders: &Arc<Mutex<Decoders>>,
        topic: &str,
        choice: &MessageChoice,
        options: &TableOptions,
        threads: usize,
    ) -> Result<Option<Self>, TableError> {
        let depends = options.pick != Pick::default()
            || !choice.start_offset.is_zero()
            || choice.duration.is_some()
            || choice.time == TimeBase::HeaderStamp;
        if threads < 2 || depends {
            return Ok(None);
        }
        let filter = MessageFilter {
            from: choice.from,
            until: choice.until,
            topics: Some(Arc::new([topic.to_owned()].into())),
            publishers: None,
            order: choice.time.reader_order(),
            verified: choice.verified,
        };
        let spans = bags.spans(&filter, SPAN_BYTES).map_err(ChoiceError::from)?;
        let threads = threads.min(spans.count());
        if threads < 2 {
            return Ok(None);
        }
        let shared = Arc::new(Shared {
            spans,
            decoders: Arc::clone(decoders),
            topic: topic.to_owned(),
            choice: choice.clone(),
            options: options.clone(),
            ahead: threads * SPANS_AHEAD,
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        let start = |number: usize| {
            let shared = Arc::clone(&shared);
            let named = std::thread::Builder::new().name(format!("decode-{number}"));
            named.spawn(move || shared.run())
        };
        // With fewer threads than wanted it only takes longer; without any it is read by the caller.
        let threads: Vec<JoinHandle<()>> = (0..threads).map_while(|number| start(number).ok()).collect();
        let is_started = !threads.is_empty();
        Ok(is_started.then_some(Self {
            shared,
            threads,
            process: std::process::id(),
            ready: VecDeque::new(),
            skipped: 0,
            first_skipped: None,
        }))
    }

    /// The next rows, when they are ready within `patience`; waits without a bound for `None`.
    pub fn next(&mut self, patience: Option<Duration>) -> Next {
        loop {
            if let Some(rows) = self.ready.pop_front() {
                return Next::Rows(rows);
            }
            if self.process != std::process::id() {
                return Next::End;
            }
            let mut state = lock(&self.shared.state);
            let turn = state.taken;
            if turn >= self.shared.spans.count() {
                return Next::End;
            }
            let Some(part) = state.done.remove(&turn) else {
                let state = match patience {
                    None => self.shared.wait(state),
                    Some(patience) => self.shared.wait_for(state, patience),
                };
                if patience.is_some() && !state.done.contains_key(&turn) {
                    return Next::Waiting;
                }
                continue;
            };
            state.taken += 1;
            drop(state);
            self.shared.changed.notify_all();
            if let Some(panic) = part.panic {
                std::panic::resume_unwind(panic);
            }
            self.skipped += part.skipped;
            if self.first_skipped.is_none() {
                self.first_skipped = part.first_skipped;
            }
            self.ready.extend(part.rows);
        }
    }

    /// Number of messages so far that were left out because they cannot be decoded, and why the first one cannot.
    pub fn skipped(&self) -> (u64, Option<&str>) {
        (self.skipped, self.first_skipped.as_deref())
    }
}

impl Drop for ParallelTable {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            return;
        }
        lock(&self.shared.state).is_closed = true;
        self.shared.changed.notify_all();
        for thread in self.threads.drain(..) {
            // A panic in it was caught.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_for<'a>(&self, state: MutexGuard<'a, State>, patience: Duration) -> MutexGuard<'a, State> {
        let waited = self.changed.wait_timeout(state, patience);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Reads spans until none is left.
    fn run(&self) {
        while let Some(turn) = self.begin() {
            let read = catch_unwind(AssertUnwindSafe(|| self.read(turn)));
            let part = read.unwrap_or_else(|panic| Part {
                panic: Some(panic),
                ..Part::default()
            });
            lock(&self.state).done.insert(turn, part);
            self.changed.notify_all();
        }
    }

    /// The next span, when it is not too far ahead of those that were handed out.
    fn begin(&self) -> Option<usize> {
        let mut state = lock(&self.state);
        loop {
            if state.is_closed || state.begun >= self.spans.count() {
                return None;
            }
            if state.begun < state.taken + self.ahead {
                state.begun += 1;
                return Some(state.begun - 1);
            }
            state = self.wait(state);
        }
    }

    fn read(&self, turn: usize) -> Part {
        let mut part = Part::default();
        let mut reader = match self.open(turn) {
            Ok(Some(reader)) => reader,
            Ok(None) => return part,
            Err(error) => {
                part.rows.push(Err(error));
                return part;
            }
        };
        let mut rows_max = 0;
        loop {
            rows_max += ROWS_AT_ONCE;
            match reader.fill(rows_max, usize::MAX) {
                Ok(true) if lock(&self.state).is_closed => return part,
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    push(&mut part, &mut reader);
                    part.rows.push(Err(error));
                    rows_max = 0;
                }
            }
        }
        push(&mut part, &mut reader);
        let (skipped, first) = reader.skipped();
        (part.skipped, part.first_skipped) = (skipped, first.map(str::to_owned));
        part
    }

    fn open(&self, turn: usize) -> Result<Option<TableReader>, TableError> {
        let Some(((from, until), bags)) = self.spans.get(turn).map_err(ChoiceError::from)? else {
            return Ok(None);
        };
        let latest = |a: Option<Timestamp>, b: Option<Timestamp>| a.max(b);
        let choice = MessageChoice {
            from: latest(self.choice.from, from),
            until: until.or(self.choice.until),
            ..self.choice.clone()
        };
        let decoders = &mut lock(&self.decoders);
        TableReader::open(&bags, decoders, &self.topic, choice, &self.options).map(Some)
    }
}

/// Moves the rows so far to the part.
fn push(part: &mut Part, reader: &mut TableReader) {
    let rows = reader.take();
    if !rows.log_times.is_empty() {
        part.rows.push(Ok(rows));
    }
}
