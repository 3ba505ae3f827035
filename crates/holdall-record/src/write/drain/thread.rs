//! The drain's thread: waits for segments, and for due work without any.

use super::Drain;
use crate::{cache::Waited, step_wait::Absence};
use holdall_bag::writer::WriteError;
use holdall_io::clock::Clock;
use std::{
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    thread::JoinHandle,
    time::Duration,
};

/// How long messages may gather before the drain writes a segment that is not full: few wake-ups, little delay.
const GATHER_MAX: Duration = Duration::from_millis(5);

/// How long the drain sleeps while nothing comes.
const IDLE_MAX: Duration = Duration::from_millis(100);

/// How long it sleeps while a sync is in flight: the sync's end must be noticed soon.
const SYNC_LOOK: Duration = Duration::from_millis(10);

/// A drain that runs on its own thread.
pub struct DrainThread(JoinHandle<Drain>);

impl DrainThread {
    /// Starts it. It ends when the cache is closed and empty.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn spawn(drain: Drain, clock: Arc<dyn Clock>) -> io::Result<Self> {
        let run = move || run(drain, &*clock);
        Ok(Self(
            std::thread::Builder::new().name("drain".to_owned()).spawn(run)?,
        ))
    }

    /// Waits for its end; `None` if it panicked.
    pub fn join(self) -> Option<Drain> {
        self.0.join().ok()
    }
}

/// A bug is as bad as a failed disk, and no worse: the recording ends, and the bag is closed with its messages so far.
fn run(mut drain: Drain, clock: &dyn Clock) -> Drain {
    loop {
        match catch_unwind(AssertUnwindSafe(|| step(&mut drain, clock))) {
            Ok(true) => {}
            Ok(false) => return drain,
            Err(_) if drain.failure.is_none() => drain.fail(WriteError::Internal),
            Err(_) => return drain,
        }
    }
}

/// Waits for a segment and writes it; false if the recorder has closed the cache and it is empty.
fn step(drain: &mut Drain, clock: &dyn Clock) -> bool {
    if drain.has_due_messages() {
        let segment = drain.cache.try_take();
        drain.step(segment, clock.monotonic());
        return true;
    }
    let deadline = drain.next_deadline();
    let longest = if drain.window.is_in_flight() {
        SYNC_LOOK
    } else {
        IDLE_MAX
    };
    let idle = deadline.map_or(longest, |deadline| {
        // A deadline that has passed is met by the step that follows.
        deadline
            .saturating_sub(clock.monotonic())
            .clamp(GATHER_MAX, longest)
    });
    let began = clock.monotonic();
    let waited = drain.cache.wait(GATHER_MAX, idle);
    let now = clock.monotonic();
    let absence = Absence::of_wait(began, GATHER_MAX + idle, now);
    drain.absence = absence.or(drain.absence.filter(|absence| absence.explains(now)));
    match waited {
        Waited::Segment(segment) => drain.step(Some(segment), clock.monotonic()),
        Waited::Idle => drain.step(None, clock.monotonic()),
        Waited::Finished => {
            drain.finish();
            return false;
        }
    }
    true
}
