//! Watches a recording for what a machine should hear of: topics that fall silent or slow, losses, a disk that fills, ends that are unknown.

mod accounts;
mod list;
mod topics;

pub use list::{AlarmStatus, AlarmWatchStatus};

use crate::{options::Trigger, receive::session::Parts};
use accounts::WatchedAccounts;
use holdall_io::mutex::lock;
use holdall_model::{alarm::Alarm, marker::Marker, time::Timestamp};
use list::AlarmList;
use std::{sync::Mutex, time::Duration};
use topics::WatchedTopics;

/// Time between two looks at watched topics.
const TOPICS_INTERVAL: Duration = Duration::from_millis(100);

/// Time between two looks at accounts and disk: each visits all topics under the ledger's lock.
const ACCOUNTS_INTERVAL: Duration = Duration::from_secs(1);

/// The alarms of a recording. Stepped by its thread, read by all.
pub(crate) struct Alarms(Mutex<Watched>);

struct Watched {
    topics: WatchedTopics,
    accounts: WatchedAccounts,
    list: AlarmList,
    next_topics: Duration,
    next_accounts: Duration,
}

impl Alarms {
    /// Watches these topics, and everything that needs no wish.
    pub fn new(topics: &[Trigger]) -> Self {
        Self(Mutex::new(Watched {
            topics: WatchedTopics::new(topics),
            accounts: WatchedAccounts::default(),
            list: AlarmList::default(),
            next_topics: Duration::ZERO,
            next_accounts: Duration::ZERO,
        }))
    }

    /// Does what is due at `now` (monotonic), when the time of day is `time`.
    pub fn step(&self, parts: &Parts, now: Duration, time: Timestamp) {
        let mut watched = lock(&self.0);
        let Watched {
            topics,
            accounts,
            list,
            next_topics,
            next_accounts,
        } = &mut *watched;
        if now >= *next_topics {
            *next_topics = now + TOPICS_INTERVAL;
            topics.step(parts, list, now, time);
        }
        if now >= *next_accounts {
            *next_accounts = now + ACCOUNTS_INTERVAL;
            accounts.step(parts, list, now, time);
        }
        let names = list.take_marker_names();
        drop(watched);
        mark(parts, &names, time);
    }

    /// Looks at accounts and disk once more: at the end of the recording they are known.
    pub fn finish(&self, parts: &Parts, now: Duration, time: Timestamp) {
        lock(&self.0).next_accounts = now;
        self.step(parts, now, time);
    }

    /// The alarms until now.
    pub fn status(&self) -> AlarmStatus {
        let watched = lock(&self.0);
        watched.list.status(watched.topics.status())
    }

    /// The rate of each topic in Hz, and the age of its last message, in the order of subscription.
    pub fn rates(&self, now: Duration) -> Vec<(f64, Option<Duration>)> {
        lock(&self.0).topics.rates(now)
    }

    /// Alarms that began or ended since the last call, in order.
    pub fn take_changes(&self) -> Vec<Alarm> {
        lock(&self.0).list.take_changes()
    }
}

/// Marks the present in the bag. An alarm is no event: a recording that waits for events goes on waiting.
fn mark(parts: &Parts, names: &[String], time: Timestamp) {
    let Some(time) = parts.gate.time(time).filter(|_| !names.is_empty()) else {
        return;
    };
    for marker in names.iter().filter_map(|name| Marker::new(time, name).ok()) {
        parts.drain.mark(marker);
    }
    parts.cache.wake();
}
