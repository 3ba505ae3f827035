//! Changes of the accounts, one by one, for a log from which they can be rebuilt.

use super::Interval;
use crate::{time::Timestamp, topic::TopicId};
use serde::{Deserialize, Serialize};
use std::{fmt, sync::Arc};

/// A change of the accounts that a log needs to rebuild them. Recorded messages are not logged: the bag's files show them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AccountChange {
    /// A publisher has this number from here on.
    Publisher {
        /// Its topic.
        topic: TopicId,
        /// Its number.
        publisher: u32,
        /// Its identity, if its transport has one.
        gid: Option<String>,
    },
    /// The description of a publisher by discovery.
    Who {
        /// Its topic.
        topic: TopicId,
        /// Its number.
        publisher: u32,
        /// Its node.
        node: Option<String>,
        /// Its computer.
        host: Option<String>,
        /// The transport that found it.
        transport: Option<String>,
    },
    /// A publisher's messages have another type than its topic.
    PublisherType {
        /// Its topic.
        topic: TopicId,
        /// Its number.
        publisher: u32,
        /// The type.
        type_name: String,
    },
    /// The lowest sequence number that has come from a publisher.
    First {
        /// Its topic.
        topic: TopicId,
        /// Its number.
        publisher: u32,
        /// That number; `None` once it cannot be known which numbers its account covers.
        sequence: Option<u64>,
    },
    /// Messages are missing.
    Miss {
        /// Their topic.
        topic: TopicId,
        /// Their publisher's number.
        publisher: u32,
        /// Which.
        interval: Interval,
    },
    /// One that was missing has arrived.
    Late {
        /// Its topic.
        topic: TopicId,
        /// Its publisher's number.
        publisher: u32,
        /// Its sequence number.
        sequence: u64,
    },
    /// A publisher went silent without a farewell, or is back.
    Silent {
        /// Its topic.
        topic: TopicId,
        /// Its number.
        publisher: u32,
        /// Its last sign of life; `None` when it is back.
        since: Option<Timestamp>,
    },
    /// The topic's transport gives no sequence numbers.
    LossUnknown {
        /// The topic.
        topic: TopicId,
    },
    /// The ring of files has removed messages.
    #[serde(alias = "removed")]
    Expired {
        /// Their topic.
        topic: TopicId,
        /// How many.
        count: u64,
    },
}

/// Stores changes of the accounts in the order in which they are made.
pub trait AccountLog: Send + Sync {
    /// Stores one change.
    fn add(&self, change: AccountChange);
}

/// The log of a ledger, if it has one.
#[derive(Clone, Default)]
pub(super) struct Log(pub(super) Option<Arc<dyn AccountLog>>);

impl Log {
    /// Stores a change, which is made only where there is a log.
    pub(super) fn add(&self, change: impl FnOnce() -> AccountChange) {
        if let Some(log) = &self.0 {
            log.add(change());
        }
    }
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Log").field(&self.0.is_some()).finish()
    }
}

/// The destination of a log does not affect equality.
impl PartialEq for Log {
    fn eq(&self, _other: &Self) -> bool {
        true
    }
}

impl Eq for Log {}
