//! Requests of a recording's control to its session, from other threads: whether new topics are recorded, and topics to subscribe to.

use super::step_wait::StepWait;
use holdall_io::mutex::lock;
use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    time::Duration,
};

/// Requests for topics that may wait; a client that repeats can never fill memory.
const WAITING_MAX: usize = 64;

/// Topics of one request.
const TOPICS_MAX: usize = 10_000;

/// How long an answer may take: the session waits for the disk when 1024 topics come at once.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// Outcome of a request to record topics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SubscribeAnswer {
    /// Topics of the request that are recorded now, also those that were before.
    pub subscribed: Vec<String>,
    /// Topics of the request that are not: no node has them, or not with the type that was asked for, or no transport accepts a
    /// subscription.
    pub unavailable: Vec<String>,
}

/// Why a request to record topics was not carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubscribeError {
    /// More topics than one request may have.
    #[error("a request has at most {TOPICS_MAX} topics, this one has {0}")]
    TooMany(usize),
    /// The number of types differs from the number of topics.
    #[error("{topics} topics have {types} types; give one for each topic, or none")]
    Types {
        /// Topics of the request.
        topics: usize,
        /// Types of the request.
        types: usize,
    },
    /// Others wait already, or the recording has ended or waits for the disk.
    #[error("the recording does not answer")]
    NoAnswer,
}

/// Topics that somebody wants recorded.
pub(crate) struct TopicRequest {
    /// Full ROS names, with the type if one was given.
    pub topics: Vec<(String, Option<String>)>,
    pub answer: SyncSender<SubscribeAnswer>,
}

/// Shared by the control and the session.
pub(crate) struct SessionRequests {
    discovers: AtomicBool,
    pending: Mutex<Vec<TopicRequest>>,
    wait: Arc<StepWait>,
}

impl SessionRequests {
    /// The session that `wait` wakes is asked.
    pub(crate) fn new(discovers: bool, wait: Arc<StepWait>) -> Self {
        Self {
            discovers: AtomicBool::new(discovers),
            pending: Mutex::default(),
            wait,
        }
    }

    /// Whether topics that appear are recorded.
    pub(crate) fn discovers(&self) -> bool {
        self.discovers.load(Ordering::Relaxed)
    }

    /// Returns the previous value.
    pub(crate) fn set_discovers(&self, discovers: bool) -> bool {
        self.discovers.swap(discovers, Ordering::Relaxed)
    }

    /// Asks for topics and waits for the answer.
    pub(crate) fn subscribe(
        &self,
        topics: &[String],
        types: &[String],
    ) -> Result<SubscribeAnswer, SubscribeError> {
        if topics.len() > TOPICS_MAX {
            return Err(SubscribeError::TooMany(topics.len()));
        }
        if !types.is_empty() && types.len() != topics.len() {
            return Err(SubscribeError::Types {
                topics: topics.len(),
                types: types.len(),
            });
        }
        let type_of = |index: usize| types.get(index).filter(|name| !name.is_empty()).cloned();
        let topics = topics.iter().enumerate();
        let topics = topics.map(|(index, name)| (absolute(name), type_of(index)));
        let answer = self
            .send_request(topics.collect())
            .ok_or(SubscribeError::NoAnswer)?;
        answer
            .recv_timeout(ANSWER_MAX)
            .map_err(|_| SubscribeError::NoAnswer)
    }

    fn send_request(&self, topics: Vec<(String, Option<String>)>) -> Option<Receiver<SubscribeAnswer>> {
        let (answer, receiver) = sync_channel(1);
        let mut pending = lock(&self.pending);
        (pending.len() < WAITING_MAX).then(|| {
            pending.push(TopicRequest { topics, answer });
            self.wait.wake();
            receiver
        })
    }

    pub(crate) fn take_pending(&self) -> Vec<TopicRequest> {
        std::mem::take(&mut *lock(&self.pending))
    }
}

/// A topic's full name; a relative one is below the root.
fn absolute(name: &str) -> String {
    if name.starts_with('/') {
        name.to_owned()
    } else {
        format!("/{name}")
    }
}
