//! Topics as their counters grow: how fast they send, and which of the watched ones fall silent or below their rate.

use crate::{
    STOPPED_MIN,
    options::Trigger,
    receive::{intake::Intake, session::Parts},
};
use holdall_io::mutex::lock;
use holdall_model::{
    alarm::{AlarmList, AlarmWatchStatus, WatchedTopic},
    rates::Pace,
    time::Timestamp,
};
use std::{sync::Arc, time::Duration};

/// Time between two samples of the rates.
const RATES_INTERVAL: Duration = Duration::from_millis(500);

/// Watched topics that have not appeared by then are named in the log.
const ABSENT_AFTER: Duration = Duration::from_secs(5);

/// All topics of a recording.
pub(super) struct WatchedTopics {
    /// Each with the counter of its topic, once that is recorded.
    watched: Vec<(WatchedTopic, Option<Arc<Intake>>)>,
    /// In the order of subscription.
    paces: Vec<(Arc<Intake>, Pace)>,
    next_rates: Duration,
    last_step: Option<Duration>,
    /// When topics that have not appeared are named in the log, once.
    absent_due: Option<Duration>,
}

impl WatchedTopics {
    pub fn new(triggers: &[Trigger]) -> Self {
        Self {
            watched: triggers
                .iter()
                .filter_map(|trigger| Some((WatchedTopic::new(trigger)?, None)))
                .collect(),
            paces: Vec::new(),
            next_rates: Duration::ZERO,
            last_step: None,
            absent_due: None,
        }
    }

    /// Reads the counters at `now`, which is monotonic.
    pub fn step(&mut self, parts: &Parts, list: &mut AlarmList, now: Duration, time: Timestamp) {
        self.find_new(parts);
        let before = self.last_step.replace(now).unwrap_or(now);
        let ran = now.saturating_sub(before) < STOPPED_MIN;
        for (watched, intake) in &mut self.watched {
            if let Some(intake) = intake {
                watched.note(intake.messages(), (before, now), ran, list, time);
            }
        }
        if now >= self.next_rates {
            self.next_rates = now + RATES_INTERVAL;
            for (intake, pace) in &mut self.paces {
                pace.note(now, intake.messages());
            }
        }
        self.name_absent(now);
    }

    fn find_new(&mut self, parts: &Parts) {
        let topics = lock(&parts.topics);
        for topic in topics.iter().skip(self.paces.len()) {
            self.paces.push((Arc::clone(&topic.intake), Pace::default()));
            for (watched, intake) in &mut self.watched {
                if watched.trigger().topic == topic.name {
                    *intake = Some(Arc::clone(&topic.intake));
                }
            }
        }
    }

    /// A name that was mistyped never appears.
    fn name_absent(&mut self, now: Duration) {
        let due = *self.absent_due.get_or_insert(now.saturating_add(ABSENT_AFTER));
        if now < due {
            return;
        }
        self.absent_due = Some(Duration::MAX);
        for (absent, _) in self.watched.iter().filter(|(_, intake)| intake.is_none()) {
            tracing::warn!(
                "alarm {}: its topic has not appeared among the recorded ones so far",
                absent.trigger()
            );
        }
    }

    /// The rate of each topic in Hz, and the age of its last message.
    pub fn rates(&self, now: Duration) -> Vec<(f64, Option<Duration>)> {
        let paces = self.paces.iter();
        paces.map(|(_, pace)| (pace.hertz(), pace.age(now))).collect()
    }

    pub fn status(&self) -> Vec<AlarmWatchStatus> {
        let last = self.last_step.unwrap_or_default();
        let watched = self.watched.iter();
        watched.map(|(watched, _)| watched.status(last)).collect()
    }
}
