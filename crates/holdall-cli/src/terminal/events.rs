//! What can happen to a running verb from outside: keys and signals, in one bounded queue.

use super::keyboard::Key;
use std::{
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    time::Duration,
};

/// More than anybody types between two looks; what comes on top is left out.
const QUEUE_LEN: usize = 64;

/// Something from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A key was pressed.
    Key(Key),
    /// A signal asks to end; its name.
    Stop(&'static str),
    /// A signal asks for a snapshot.
    Snapshot,
}

/// The queue's end for threads that see events.
#[derive(Clone)]
pub struct EventSender(SyncSender<Event>);

impl EventSender {
    /// Tells an event; false when nobody listens any more.
    pub fn send(&self, event: Event) -> bool {
        use std::sync::mpsc::TrySendError;
        !matches!(self.0.try_send(event), Err(TrySendError::Disconnected(_)))
    }
}

/// The queue's end for the verb.
pub struct Events {
    receiver: Receiver<Event>,
    /// Kept so that the queue never counts as abandoned while no thread sees events.
    _sender: EventSender,
}

impl Events {
    /// The next event; `None` when there was none for `wait`.
    pub fn next(&self, wait: Duration) -> Option<Event> {
        self.receiver.recv_timeout(wait).ok()
    }
}

/// A new queue.
pub fn queue() -> (EventSender, Events) {
    let (sender, receiver) = sync_channel(QUEUE_LEN);
    let sender = EventSender(sender);
    (
        sender.clone(),
        Events {
            receiver,
            _sender: sender,
        },
    )
}
