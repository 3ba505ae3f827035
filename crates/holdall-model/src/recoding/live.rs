//! Messages that get another form while they are recorded: what the recorder gives away for it, and what comes back.

use super::Recoding;
use crate::{
    marker::Marker,
    message::{CacheEntry, Loan},
    topic::{MessageDefinition, TopicInfo},
};
use std::{fmt, sync::Arc, time::Duration};

/// A message that is given away.
pub struct Given {
    /// Its header.
    pub entry: CacheEntry,
    /// Its payload.
    pub payload: Box<dyn Loan>,
    /// What the cache is charged for it, in bytes.
    pub held_bytes: usize,
    /// When it was received at the earliest, on a clock that does not jump.
    pub received: Duration,
}

/// A message that comes back.
pub struct Recoded {
    /// Its header.
    pub entry: CacheEntry,
    /// Its payload, in the new form or as it was.
    pub payload: Box<dyn Loan>,
    /// The type of its new form; `None` for a message that keeps its form.
    pub into: Option<&'static str>,
    /// It is not to be recorded: its encoder does not follow, and that is the policy.
    pub is_left_out: bool,
    /// Length of its payload as it was sent.
    pub bytes: usize,
    /// What the cache is charged for it, in bytes.
    pub held_bytes: usize,
    /// Payload bytes of it and of the messages after it that depend on it: one file gets all of them. 0 for one that depends on those before.
    pub run_bytes: usize,
}

/// Gives messages another form, some of them later than they come; those of a topic come back in their order, and each comes back.
pub trait LiveRecoder: Send {
    /// Whether the messages of a topic are given to it.
    fn takes(&self, topic: &TopicInfo) -> bool;

    /// The definition of the type of a new form.
    fn definition(&self, into: &str) -> MessageDefinition;

    /// Takes a message of a topic.
    fn give(&mut self, topic: &TopicInfo, message: Given);

    /// The next message that is ready. Those that it has are held in at most `room_bytes`; others come back as they were. With `is_end` all are
    /// wanted now, and it waits a moment where none is ready: call it again until [`Self::back`] is [`Self::given`], some seconds later at most.
    fn take_back(&mut self, room_bytes: usize, is_end: bool) -> Option<Recoded>;

    /// The topic of the oldest message that it has, and when that was received.
    fn oldest(&self) -> Option<(&str, Duration)>;

    /// Markers of what it has changed by itself since the last call.
    fn take_markers(&mut self) -> Vec<Marker>;

    /// Messages that were given to it.
    fn given(&self) -> u64;

    /// Of these, in the order in which they were given, the number until the first that has not come back.
    fn back(&self) -> u64;

    /// What was done to each topic.
    fn account(&self) -> Vec<Recoding>;
}

/// Makes the recoder of a recording.
#[derive(Clone)]
pub struct LiveRecoding(Arc<Make>);

type Make = dyn Fn(Option<Duration>) -> Box<dyn LiveRecoder> + Send + Sync;

impl LiveRecoding {
    /// By this function.
    pub fn new(make: impl Fn(Option<Duration>) -> Box<dyn LiveRecoder> + Send + Sync + 'static) -> Self {
        Self(Arc::new(make))
    }

    /// A recoder that has no messages. They come back in time to be synced within a loss window, where that is possible.
    pub fn begin(&self, max_loss_window: Option<Duration>) -> Box<dyn LiveRecoder> {
        (self.0)(max_loss_window)
    }
}

impl fmt::Debug for LiveRecoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LiveRecoding").finish_non_exhaustive()
    }
}
