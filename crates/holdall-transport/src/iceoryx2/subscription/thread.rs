//! The receive thread: polls every subscriber, sleeps until a notification or until the next poll is due.

use super::{Slot, pace::Pace, receiver::TURN_MAX};
use holdall_io::mutex::lock;
use rustix::{
    event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll},
    fd::{AsFd, OwnedFd},
    io,
};
use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

/// The thread's name.
pub(in crate::iceoryx2) const RECEIVE_THREAD: &str = "iceoryx2";

/// Longest sleep while publishers notify: their notifications may stop without notice.
const NOTIFIED_REST: Duration = Duration::from_millis(50);

/// State that the receive thread shares with others.
pub(in crate::iceoryx2) struct Receiving {
    slots: Mutex<Vec<Arc<Slot>>>,
    /// Changes with every change of `slots` and of their contents.
    generation: AtomicU64,
    stopped: AtomicBool,
    wake: OwnedFd,
}

impl Receiving {
    /// Nothing is subscribed yet.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            slots: Mutex::default(),
            generation: AtomicU64::new(0),
            stopped: AtomicBool::new(false),
            wake: eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?,
        })
    }

    /// Starts the thread.
    pub fn start(self: &Arc<Self>) -> std::io::Result<JoinHandle<()>> {
        let receiving = Arc::clone(self);
        std::thread::Builder::new()
            .name(RECEIVE_THREAD.to_owned())
            .spawn(move || receiving.run())
    }

    /// Polls one more slot from now on.
    pub fn add(&self, slot: Arc<Slot>) {
        self.lock().push(slot);
        self.changed();
    }

    /// The slots that are not closed.
    pub(crate) fn open_slots(&self) -> Vec<Arc<Slot>> {
        let mut slots = self.lock();
        let before = slots.len();
        slots.retain(|slot| !slot.is_closed());
        if slots.len() != before {
            self.changed();
        }
        slots.clone()
    }

    /// Notes that a slot has another receiver now.
    pub fn changed(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
        self.wake();
    }

    /// Ends the thread.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        self.wake();
    }

    fn wake(&self) {
        // It fails only when the counter of pending wake-ups is full, and then the thread wakes up anyway.
        let _ = io::write(&self.wake, &1_u64.to_ne_bytes());
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Arc<Slot>>> {
        lock(&self.slots)
    }

    fn run(&self) {
        holdall_io::clock::wake_this_thread_exactly();
        let mut pace = Pace::new();
        let mut seen = None;
        let mut watched = Watched::default();
        while !self.stopped.load(Ordering::Acquire) {
            let generation = self.generation.load(Ordering::Acquire);
            if seen.replace(generation) != Some(generation) {
                watched = Watched::of(self.lock().clone());
            }
            let polled = watched.poll();
            let sleep = match polled.smallest_polled_buffer {
                Some(smallest) => {
                    let (fullest, buffer_size) = polled.fullest;
                    pace.after(fullest, buffer_size, smallest)
                }
                None => NOTIFIED_REST,
            };
            if !polled.has_more {
                self.sleep(&watched.descriptors, sleep);
            }
        }
    }

    fn sleep(&self, watched: &[OwnedFd], at_most: Duration) {
        let mut descriptors: Vec<PollFd<'_>> = Vec::with_capacity(watched.len() + 1);
        for descriptor in std::iter::once(&self.wake).chain(watched) {
            descriptors.push(PollFd::from_borrowed_fd(descriptor.as_fd(), PollFlags::IN));
        }
        let timeout = Timespec {
            tv_sec: i64::try_from(at_most.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: at_most.subsec_nanos().into(),
        };
        // A signal ends the sleep as a wake-up does.
        let _ = poll(&mut descriptors, Some(&timeout));
        let mut count = [0; 8];
        let _ = io::read(&self.wake, &mut count);
    }
}

/// The slots of one generation, with the descriptors that become readable when their publishers notify. The
/// descriptors are duplicates, so that they stay valid while a receiver is dropped.
#[derive(Default)]
struct Watched {
    slots: Vec<Arc<Slot>>,
    descriptors: Vec<OwnedFd>,
}

/// The result of polling all slots.
#[derive(Default)]
struct Polled {
    /// Samples of one publisher and the size of their buffer, for the fullest buffer; only of subscribers
    /// without notifications.
    fullest: (usize, usize),
    smallest_polled_buffer: Option<usize>,
    /// A slot's turn ended before its buffer was empty.
    has_more: bool,
}

impl Watched {
    fn of(slots: Vec<Arc<Slot>>) -> Self {
        let descriptors = slots
            .iter()
            .filter_map(|slot| {
                let receiver = slot.receiver();
                let descriptor = receiver.as_ref()?.wake_descriptor()?;
                descriptor.try_clone_to_owned().ok()
            })
            .collect();
        Self { slots, descriptors }
    }

    fn poll(&self) -> Polled {
        let mut polled = Polled {
            fullest: (0, 1),
            ..Polled::default()
        };
        for slot in &self.slots {
            let mut place = slot.receiver();
            let Some(receiver) = place.as_mut() else { continue };
            let taken = receiver.take(&*slot.sink);
            polled.has_more |= taken.samples >= TURN_MAX;
            if receiver.is_notified() {
                continue;
            }
            let size = receiver.buffer_size.max(1);
            let smallest = polled.smallest_polled_buffer.get_or_insert(size);
            *smallest = (*smallest).min(size);
            if taken.fullest * polled.fullest.1 > polled.fullest.0 * size {
                polled.fullest = (taken.fullest, size);
            }
        }
        polled
    }
}
