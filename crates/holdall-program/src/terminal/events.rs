//! Events from outside for a running verb: keys and signals, in one bounded queue.

use super::keyboard::Key;
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
    },
    time::Duration,
};

/// More than a person types between two polls; further keys are dropped.
const QUEUE_LEN: usize = 64;

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
    /// Requests to end that the verb has not handled yet.
    stops_waiting: Arc<AtomicUsize>,
}

impl EventSender {
    /// Reports an event; false if no verb listens any more.
    pub fn send(&self, event: Event) -> bool {
        // Counted before it can be taken, so that the count never falls below zero.
        self.stops_waiting
            .fetch_add(usize::from(event.is_stop()), Ordering::SeqCst);
        let sent = self.queue.try_send(event);
        if sent.is_err() {
            self.stops_waiting
                .fetch_sub(usize::from(event.is_stop()), Ordering::SeqCst);
        }
        !matches!(sent, Err(TrySendError::Disconnected(_)))
    }

    /// Requests to end that the verb has not handled yet: it is busy with work that it cannot interrupt.
    pub fn stops_waiting(&self) -> usize {
        self.stops_waiting.load(Ordering::SeqCst)
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
        self.sender
            .stops_waiting
            .fetch_sub(usize::from(event.is_stop()), Ordering::SeqCst);
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
    fn requests_to_end_are_counted_until_they_are_taken() {
        let (sender, events) = queue();
        assert!(sender.send(Event::Stop("SIGINT")) && sender.send(Event::Key(Key::Space)));
        assert!(sender.send(Event::Stop("SIGTERM")));
        assert_eq!(sender.stops_waiting(), 2);
        assert_eq!(events.next(Duration::ZERO), Some(Event::Stop("SIGINT")));
        assert_eq!(events.next(Duration::ZERO), Some(Event::Key(Key::Space)));
        assert_eq!(sender.stops_waiting(), 1);
        assert_eq!(events.next(Duration::ZERO), Some(Event::Stop("SIGTERM")));
        assert_eq!((sender.stops_waiting(), events.next(Duration::ZERO)), (0, None));
    }

    #[test]
    fn a_full_queue_leaves_out_what_comes_on_top() {
        let (sender, events) = queue();
        for _ in 0..2 * QUEUE_LEN {
            assert!(sender.send(Event::Stop("SIGINT")));
        }
        assert_eq!(sender.stops_waiting(), QUEUE_LEN);
        drop(events);
        assert!(!sender.send(Event::Key(Key::Space)));
    }
}
