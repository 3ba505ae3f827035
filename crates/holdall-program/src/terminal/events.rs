//! Events from outside for a running verb: keys and signals, in one bounded queue.

use super::keyboard::Key;
use holdall_io::{
    clock::{Clock, SystemClock},
    mutex::lock,
};
use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex,
        mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
    },
    time::Duration,
};

/// More than a person types between two polls; further keys are dropped.
const QUEUE_LEN: usize = 64;

/// With this many requests to end that the verb has not handled for [`HANG_MIN`], the program hangs.
const STOPS_WAITING_MAX: usize = 2;

/// A busy computer delays a program by less.
const HANG_MIN: Duration = Duration::from_secs(2);

/// An event from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A key was pressed.
    Key(Key),
    /// A signal requests the end; its name.
    Stop(&'static str),
    /// A signal requests a snapshot.
    Snapshot,
}

impl Event {
    const fn is_stop(self) -> bool {
        matches!(self, Self::Stop(_))
    }
}

/// The queue's end for threads that see events.
#[derive(Clone)]
pub struct EventSender {
    queue: SyncSender<Event>,
    /// When requests to end came that the verb has not handled yet, in monotonic time.
    stops_waiting: Arc<Mutex<VecDeque<Duration>>>,
}

impl EventSender {
    /// Reports an event; false if no verb listens any more.
    pub fn send(&self, event: Event) -> bool {
        // The verb notes what it takes under the same lock.
        let mut waiting = lock(&self.stops_waiting);
        let sent = self.queue.try_send(event);
        if sent.is_ok() && event.is_stop() {
            waiting.push_back(SystemClock.monotonic());
        }
        !matches!(sent, Err(TrySendError::Disconnected(_)))
    }

    /// Whether the verb hangs at `now` (monotonic): several requests to end have waited for long.
    pub fn hangs(&self, now: Duration) -> bool {
        let waiting = lock(&self.stops_waiting);
        let is_long = |since: &Duration| now.saturating_sub(*since) >= HANG_MIN;
        waiting.len() >= STOPS_WAITING_MAX && waiting.front().is_some_and(is_long)
    }
}

/// The queue's end for the verb.
pub struct Events {
    receiver: Receiver<Event>,
    /// Kept so that the queue never counts as abandoned while no thread produces events.
    sender: EventSender,
}

impl Events {
    /// The next event; `None` if there was none for `wait`.
    pub fn next(&self, wait: Duration) -> Option<Event> {
        let event = self.receiver.recv_timeout(wait).ok()?;
        if event.is_stop() {
            lock(&self.sender.stops_waiting).pop_front();
        }
        Some(event)
    }
}

/// A new queue.
pub fn queue() -> (EventSender, Events) {
    let (queue, receiver) = sync_channel(QUEUE_LEN);
    let sender = EventSender {
        queue,
        stops_waiting: Arc::default(),
    };
    (sender.clone(), Events { receiver, sender })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verb_hangs_when_it_leaves_requests_to_end_for_long() {
        let (sender, events) = queue();
        assert!(sender.send(Event::Stop("SIGINT")) && sender.send(Event::Key(Key::Space)));
        let later = SystemClock.monotonic() + HANG_MIN;
        assert!(!sender.hangs(later), "one may be handled late");
        assert!(sender.send(Event::Stop("SIGTERM")));
        assert!(sender.hangs(later));
        assert!(!sender.hangs(later - HANG_MIN), "the computer may be busy");
        assert_eq!(events.next(Duration::ZERO), Some(Event::Stop("SIGINT")));
        assert!(!sender.hangs(later));
        assert_eq!(events.next(Duration::ZERO), Some(Event::Key(Key::Space)));
        assert_eq!(events.next(Duration::ZERO), Some(Event::Stop("SIGTERM")));
        assert_eq!(events.next(Duration::ZERO), None);
    }

    #[test]
    fn a_full_queue_leaves_out_what_comes_on_top() {
        let (sender, events) = queue();
        for _ in 0..2 * QUEUE_LEN {
            assert!(sender.send(Event::Stop("SIGINT")));
        }
        assert_eq!(lock(&sender.stops_waiting).len(), QUEUE_LEN);
        drop(events);
        assert!(!sender.send(Event::Key(Key::Space)));
    }
}
