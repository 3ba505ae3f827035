//! The thread that waits for messages and takes them; and the memory that they are taken into.

use super::{
    ffi::{Context, Ready, Waiter},
    ffi_entity::{Buffer, Info, RawSubscription},
    ffi_service::Side,
    service::ServiceSlot,
    structures::Typed,
};
use crate::{GraphWake, Sink, graph_news::GraphNews};
use holdall_io::{clock::Clock, mutex::lock};
use holdall_model::{
    message::{Loan, MessageHeader, Payload},
    time::Timestamp,
    topic::Gid,
};
use std::{
    io,
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

/// Name of the thread.
pub(super) const RECEIVE_THREAD: &str = "rmw-receive";
/// Payloads of at least this size are lent, smaller ones offered for copying.
const LOAN_BYTES_MIN: usize = 64 << 10;
/// Buffers that a subscription keeps for its next messages.
const SPARE_MAX: usize = 4;
/// Messages taken from one subscription before the others have their turn.
const TAKE_MAX: usize = 64;
/// Most rounds of [`TAKE_MAX`] messages at the end of a subscription.
const LAST_TAKES_MAX: usize = 64;
/// Longest wait before the thread looks for changed requests.
const WAIT_MAX: Duration = Duration::from_millis(500);
/// Wait after a failure of the implementation, which may last.
const FAILURE_WAIT: Duration = Duration::from_millis(20);
/// Failures in a row after which the transport has failed for good.
const FAILURES_MAX: u32 = 250;

/// A subscription and the sink of its messages.
pub(super) struct Slot {
    pub subscription: RawSubscription,
    pub topic: String,
    pub sink: Arc<dyn Sink>,
    spare: Arc<Spare>,
    /// Set if messages are taken as structures; then only the beginning of each is offered.
    typed: Option<Mutex<Typed>>,
    /// A failure was logged.
    has_failed: AtomicBool,
}

/// Buffers between two messages.
#[derive(Default)]
struct Spare(Mutex<Vec<Buffer>>);

impl Spare {
    fn put(&self, buffer: Buffer) {
        let mut spare = lock(&self.0);
        if spare.len() < SPARE_MAX {
            spare.push(buffer);
        }
    }
}

/// A message in the memory that rmw has written it into.
struct BufferLoan {
    /// Taken out when the loan ends.
    buffer: Option<Buffer>,
    spare: Arc<Spare>,
}

impl Drop for BufferLoan {
    fn drop(&mut self) {
        if let Some(buffer) = self.buffer.take() {
            self.spare.put(buffer);
        }
    }
}

impl Loan for BufferLoan {
    fn len(&self) -> usize {
        self.buffer.as_ref().map_or(0, |buffer| buffer.bytes().len())
    }

    fn pinned_bytes(&self) -> usize {
        self.buffer.as_ref().map_or(0, Buffer::capacity)
    }

    fn for_each_slice(&self, visit: &mut dyn FnMut(&[u8])) {
        if let Some(buffer) = &self.buffer {
            visit(buffer.bytes());
        }
    }
}

impl Slot {
    /// A subscription that is not waited for yet.
    pub(super) fn new(
        subscription: RawSubscription,
        topic: &str,
        sink: Arc<dyn Sink>,
        typed: Option<Typed>,
    ) -> Self {
        Self {
            subscription,
            topic: topic.to_owned(),
            sink,
            spare: Arc::default(),
            typed: typed.map(Mutex::new),
            has_failed: AtomicBool::new(false),
        }
    }

    /// Takes and offers messages that have arrived; true when more may wait.
    fn drain(&self, clock: &dyn Clock) -> bool {
        for _ in 0..TAKE_MAX {
            let taken = match &self.typed {
                None => self.take(clock),
                Some(typed) => self.take_structure(&mut lock(typed), clock),
            };
            match taken {
                Ok(true) => {}
                Ok(false) => return false,
                Err(reason) => {
                    if !self.has_failed.swap(true, Ordering::Relaxed) {
                        tracing::warn!("{}: a message cannot be taken: {reason}", self.topic);
                    }
                    return false;
                }
            }
        }
        true
    }

    /// Takes a message and offers it; false when none is waiting.
    fn take(&self, clock: &dyn Clock) -> Result<bool, String> {
        let spare = lock(&self.spare.0).pop();
        let mut buffer = spare.unwrap_or_else(|| self.subscription.buffer());
        match self.subscription.take(&mut buffer) {
            Ok(Some(info)) => {
                self.offer(info, buffer, clock.now());
                Ok(true)
            }
            none => {
                self.spare.put(buffer);
                none.map(|_| false)
            }
        }
    }

    /// As `take`, but into a structure; its first bytes are offered as if it were serialized.
    fn take_structure(&self, typed: &mut Typed, clock: &dyn Clock) -> Result<bool, String> {
        let Some((number, info)) = typed.structure.take(&self.subscription)? else {
            return Ok(false);
        };
        let (beginning, end) = typed.beginning(number);
        let header = header_of(info, clock.now());
        self.sink.offer(header, Payload::Borrowed(&beginning[..end]));
        Ok(true)
    }

    fn offer(&self, info: Info, buffer: Buffer, log_time: Timestamp) {
        let header = header_of(info, log_time);
        if buffer.bytes().len() >= LOAN_BYTES_MIN {
            let loan = BufferLoan {
                buffer: Some(buffer),
                spare: Arc::clone(&self.spare),
            };
            self.sink.offer(header, Payload::Loaned(Box::new(loan)));
        } else {
            self.sink.offer(header, Payload::Borrowed(buffer.bytes()));
            self.spare.put(buffer);
        }
    }
}

fn header_of(info: Info, log_time: Timestamp) -> MessageHeader {
    MessageHeader {
        publisher: Some(Gid(info.gid)).filter(|gid| *gid != Gid::default()),
        sequence: info.sequence,
        publish_time: info.source_nanos.map(Timestamp::from_nanos),
        log_time,
    }
}

/// Requests of other threads to this one.
#[derive(Default)]
struct Wanted {
    slots: Vec<Arc<Slot>>,
    /// Clients first.
    services: Vec<Arc<ServiceSlot>>,
    /// Counts changes of both.
    change: u64,
    /// The last change that the thread knows: it uses nothing that was removed by then.
    known: u64,
    is_stopping: bool,
    has_ended: bool,
    failure: Option<String>,
}

/// The thread's side that others see.
pub(super) struct Receiving {
    context: Arc<Context>,
    wanted: Mutex<Wanted>,
    changed: Condvar,
    /// The graph has changed since the last look.
    graph_news: GraphNews,
}

impl Receiving {
    /// Waits for nothing yet; the graph is read first.
    pub(super) fn new(context: Arc<Context>) -> Arc<Self> {
        let graph_news = GraphNews::default();
        graph_news.set();
        Arc::new(Self {
            context,
            wanted: Mutex::default(),
            changed: Condvar::new(),
            graph_news,
        })
    }

    /// Starts the thread.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub(super) fn start(
        self: &Arc<Self>,
        waiter: Waiter,
        clock: Arc<dyn Clock>,
    ) -> io::Result<JoinHandle<()>> {
        let own = Arc::clone(self);
        let run = move || {
            // Also after a panic others must not wait for this thread.
            let _end = End(&own);
            own.run(waiter, &*clock);
        };
        std::thread::Builder::new()
            .name(RECEIVE_THREAD.to_owned())
            .spawn(run)
    }

    /// Waits for one more subscription from now on.
    pub(super) fn add(&self, slot: Arc<Slot>) {
        self.change(|wanted| wanted.slots.push(slot));
    }

    /// From now on also waits for requests or replies of one side of a service.
    pub(super) fn add_service(&self, slot: Arc<ServiceSlot>) {
        self.change(|wanted| match slot.raw.side {
            Side::Client => wanted.services.insert(0, slot),
            Side::Server => wanted.services.push(slot),
        });
    }

    /// Waits for a subscription no more; its sink is not called after this has returned.
    pub(super) fn remove(&self, slot: &Arc<Slot>) {
        let change = self.change(|wanted| wanted.slots.retain(|other| !Arc::ptr_eq(other, slot)));
        self.wait_for_thread(change);
    }

    /// Waits for a service no more; its wake is not called after this has returned.
    pub(super) fn remove_service(&self, slot: &Arc<ServiceSlot>) {
        let change = self.change(|wanted| wanted.services.retain(|other| !Arc::ptr_eq(other, slot)));
        self.wait_for_thread(change);
    }

    /// Changes the set of entities to wait for; returns the change's number.
    fn change(&self, change: impl FnOnce(&mut Wanted)) -> u64 {
        let mut wanted = lock(&self.wanted);
        change(&mut wanted);
        wanted.change += 1;
        let number = wanted.change;
        drop(wanted);
        self.context.wake();
        number
    }

    /// Returns when the thread knows of a change.
    fn wait_for_thread(&self, change: u64) {
        let mut wanted = lock(&self.wanted);
        while wanted.known < change && !wanted.has_ended {
            wanted = self.changed.wait(wanted).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Ends the thread.
    pub(super) fn stop(&self) {
        lock(&self.wanted).is_stopping = true;
        self.context.wake();
    }

    /// True once after the graph has changed.
    pub(super) fn take_graph_news(&self) -> bool {
        self.graph_news.take()
    }

    /// True when the graph has changed.
    pub(super) fn has_graph_news(&self) -> bool {
        self.graph_news.is_pending()
    }

    /// Calls `wake` whenever the graph has changed.
    pub(super) fn wake_on_graph_news(&self, wake: GraphWake) {
        self.graph_news.call(wake);
    }

    /// Why nothing arrives any more.
    pub(super) fn failure(&self) -> Option<String> {
        let wanted = lock(&self.wanted);
        let ended = || "its thread ended unexpectedly; see the log".to_owned();
        wanted
            .has_ended
            .then(|| wanted.failure.clone().unwrap_or_else(ended))
    }

    fn run(&self, mut waiter: Waiter, clock: &dyn Clock) {
        let (mut used, mut failures) = (Used::default(), 0);
        loop {
            let Some(before) = self.news(&mut used) else {
                return;
            };
            for slot in &before.slots {
                if !used.slots.iter().any(|other| Arc::ptr_eq(slot, other)) {
                    // Messages that arrived before the end count as received.
                    let _left = (0..LAST_TAKES_MAX).all(|_| slot.drain(clock));
                }
            }
            lock(&self.wanted).known = used.change;
            self.changed.notify_all();
            let mut ready = Vec::new();
            let subscriptions = used.slots.iter().map(|slot| &slot.subscription);
            let services = used.services.iter().map(|slot| &slot.raw);
            match waiter.wait(subscriptions, services, WAIT_MAX, |one| ready.push(one)) {
                Ok(is_changed) => {
                    failures = 0;
                    if is_changed {
                        self.graph_news.set();
                    }
                }
                Err(reason) => {
                    failures += 1;
                    if failures >= FAILURES_MAX {
                        lock(&self.wanted).failure = Some(reason);
                        return;
                    }
                    tracing::debug!("cannot wait for messages: {reason}");
                    clock.sleep_until(clock.monotonic() + FAILURE_WAIT);
                }
            }
            for one in ready {
                match one {
                    Ready::Subscription(place) => {
                        let _waits_for_its_turn = used.slots[place].drain(clock);
                    }
                    Ready::Service(place) => used.services[place].drain(),
                }
            }
        }
    }

    /// Applies the changes that others requested. Returns the previous entities if they changed, and `None` when the thread must
    /// end.
    fn news(&self, used: &mut Used) -> Option<Used> {
        let wanted = lock(&self.wanted);
        if wanted.is_stopping {
            return None;
        }
        if wanted.change == used.change {
            return Some(Used::default());
        }
        let now = Used {
            slots: wanted.slots.clone(),
            services: wanted.services.clone(),
            change: wanted.change,
        };
        Some(std::mem::replace(used, now))
    }
}

/// The entities that the thread waits for.
#[derive(Default)]
struct Used {
    slots: Vec<Arc<Slot>>,
    services: Vec<Arc<ServiceSlot>>,
    change: u64,
}

/// Reports the thread's end.
struct End<'a>(&'a Receiving);

impl Drop for End<'_> {
    fn drop(&mut self) {
        lock(&self.0.wanted).has_ended = true;
        self.0.changed.notify_all();
    }
}
