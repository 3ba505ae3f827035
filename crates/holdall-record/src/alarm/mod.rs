//! Watches a recording for what a machine should hear of: topics that fall silent or slow, losses, a disk that fills, ends that are unknown.

mod accounts;
mod topics;

use crate::{options::Trigger, receive::session::Parts, write::drain::RequestedEvent};
use accounts::WatchedAccounts;
use holdall_io::mutex::lock;
use holdall_model::{
    alarm::{Alarm, AlarmEdge, AlarmList, AlarmStatus, AlarmSubject},
    marker::{MARKER_NAME_BYTES_MAX, MARKERS_MAX, Marker},
    text::Outside,
    time::Timestamp,
};
use std::{collections::VecDeque, sync::Mutex, time::Duration};
use topics::WatchedTopics;

/// Time between two reads of the counters of topics.
const TOPICS_INTERVAL: Duration = Duration::from_millis(100);

/// Time between two reads of accounts and disk: each visits all topics under the ledger's lock.
const ACCOUNTS_INTERVAL: Duration = Duration::from_secs(1);

/// Changes that wait for a command. In a recording without one nothing takes them.
const CHANGES_MAX: usize = 4096;

/// Markers of alarms: the other half is for those that are asked for.
const ALARM_MARKERS_MAX: usize = MARKERS_MAX / 2;

/// The alarms of a recording. Stepped by its thread, read by all.
pub(crate) struct Alarms(Mutex<Watched>);

struct Watched {
    topics: WatchedTopics,
    accounts: WatchedAccounts,
    list: AlarmList,
    changes: VecDeque<Alarm>,
    /// Something takes changes.
    is_heard: bool,
    /// Too many waited.
    has_dropped: bool,
    markers: usize,
    /// A broken rule is an event, too: it promotes a part of the ring.
    promotes_rules: bool,
    next_topics: Duration,
    next_accounts: Duration,
}

impl Alarms {
    /// Watches these topics, and accounts and disk in any case. `promotes_rules`: a broken rule of the contract is an event.
    pub fn new(topics: &[Trigger], promotes_rules: bool) -> Self {
        Self(Mutex::new(Watched {
            topics: WatchedTopics::new(topics),
            accounts: WatchedAccounts::default(),
            list: AlarmList::default(),
            changes: VecDeque::new(),
            is_heard: false,
            has_dropped: false,
            markers: 0,
            promotes_rules,
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
            promotes_rules,
            next_topics,
            next_accounts,
            ..
        } = &mut *watched;
        if now >= *next_topics {
            *next_topics = now + TOPICS_INTERVAL;
            topics.step(parts, list, now, time);
        }
        if now >= *next_accounts {
            *next_accounts = now + ACCOUNTS_INTERVAL;
            accounts.step(parts, list, now, time);
        }
        let of_rules = parts.judging.as_ref().map(|judging| judging.take_alarms());
        for alarm in of_rules.unwrap_or_default() {
            let subject = AlarmSubject::of_rule(alarm.topic.as_deref(), &alarm.text);
            list.note(alarm.edge, &subject, alarm.text.clone(), alarm.time);
            if *promotes_rules && alarm.edge == AlarmEdge::Begin {
                let (time, name) = (alarm.time, alarm.text);
                parts.drain.trigger(RequestedEvent { time, name });
                parts.cache.wake();
            }
        }
        let names = watched.pass_on();
        drop(watched);
        mark(parts, &names, time);
    }

    /// Reads accounts and disk once more: at the end of the recording they are known.
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
        let mut watched = lock(&self.0);
        watched.is_heard = true;
        watched.changes.drain(..).collect()
    }
}

impl Watched {
    /// Logs what began or ended, and keeps it for a command; returns the names of markers for the bag.
    fn pass_on(&mut self) -> Vec<String> {
        let mut names = Vec::new();
        for (alarm, has_line) in self.list.take_news() {
            let text = Outside(&alarm.text);
            let what = match (alarm.until, has_line) {
                (Some(_), _) => {
                    tracing::info!("alarm over: {text}");
                    "alarm over"
                }
                (None, false) => {
                    tracing::warn!("alarm: {text}");
                    "alarm"
                }
                (None, true) => "alarm",
            };
            if self.markers < ALARM_MARKERS_MAX {
                self.markers += 1;
                let mut name = format!("{what}: {}", alarm.text);
                name.truncate(name.floor_char_boundary(MARKER_NAME_BYTES_MAX));
                names.push(name);
            }
            if self.changes.len() < CHANGES_MAX {
                self.changes.push_back(alarm);
            } else if self.is_heard && !std::mem::replace(&mut self.has_dropped, true) {
                tracing::warn!("{CHANGES_MAX} alarms wait for their commands: further ones have none");
            }
        }
        names
    }
}

/// Marks the present in the bag. An alarm begins no event, also in a recording that waits for some.
fn mark(parts: &Parts, names: &[String], time: Timestamp) {
    let Some(time) = parts.gate.time(time).filter(|_| !names.is_empty()) else {
        return;
    };
    for marker in names.iter().filter_map(|name| Marker::new(time, name).ok()) {
        parts.drain.mark(marker);
    }
    parts.cache.wake();
}
