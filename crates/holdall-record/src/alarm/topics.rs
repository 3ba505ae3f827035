//! Topics as their counters grow: how fast they send, and which of the watched ones fall silent or below their rate.

use super::list::{AlarmList, AlarmWatchStatus, Subject};
use crate::{
    STOPPED_MIN,
    options::Trigger,
    receive::{intake::Intake, session::Parts},
};
use holdall_io::mutex::lock;
use holdall_model::{
    alarm::{AlarmKind, AlarmLatch},
    time::Timestamp,
    trigger::{Condition, RateWatch, SilenceWatch},
};
use std::{sync::Arc, time::Duration};

/// Time between two samples of the rates.
const RATES_INTERVAL: Duration = Duration::from_millis(500);

/// Span over which a rate is measured: the second one for a topic with fewer messages than this in it.
const PACE_SPAN: Duration = Duration::from_secs(2);
const PACE_SPAN_SLOW: Duration = Duration::from_secs(8);
const PACE_MESSAGES: u64 = 4;

/// An alarm of a topic is over when its condition has not held for this long, or for the silence that is watched for.
const TOPIC_CALM: Duration = Duration::from_secs(5);

/// Watched topics that have not appeared by then are named in the log.
const ABSENT_AFTER: Duration = Duration::from_secs(5);

/// Monotonic time as the watches have it.
fn steady(now: Duration) -> Timestamp {
    Timestamp::from_nanos(0).saturating_add(now)
}

#[derive(Debug)]
enum Watch {
    Silence(SilenceWatch),
    Rate(RateWatch),
}

impl Watch {
    fn check(&mut self, now: Timestamp) -> bool {
        match self {
            Self::Silence(watch) => watch.check(now).is_some(),
            Self::Rate(watch) => watch.check(now).is_some(),
        }
    }

    /// Takes note of messages that came between two looks, at times that nothing shows: evenly.
    fn messages(&mut self, count: u64, from: Duration, until: Duration) {
        match self {
            Self::Silence(watch) if count > 0 => watch.message(steady(until)),
            Self::Silence(_) => {}
            Self::Rate(watch) => {
                let span = until.saturating_sub(from);
                let first = count.saturating_sub(watch.messages_max() as u64);
                for number in first..count {
                    let part = (number + 1) as f64 / count as f64;
                    watch.message(steady(from + span.mul_f64(part)));
                }
            }
        }
    }

    /// This process did not run until now, so that what did not come shows nothing.
    fn excuse(&mut self, now: Duration) {
        match self {
            Self::Silence(watch) if watch.is_heard() => watch.message(steady(now)),
            Self::Silence(_) => {}
            Self::Rate(watch) => watch.reset(),
        }
    }

    fn is_kept(&self) -> bool {
        match self {
            Self::Silence(watch) => watch.is_heard(),
            Self::Rate(watch) => watch.is_reached(),
        }
    }

    fn kind(&self) -> AlarmKind {
        match self {
            Self::Silence(_) => AlarmKind::Silent,
            Self::Rate(_) => AlarmKind::Rate,
        }
    }
}

/// A topic that is watched on wish.
struct WatchedTopic {
    wish: Trigger,
    watch: Watch,
    /// The condition holds.
    is_wrong: bool,
    latch: AlarmLatch,
    intake: Option<Arc<Intake>>,
    received: u64,
    last_message: Option<Duration>,
}

impl WatchedTopic {
    /// `None` for a condition on fields, which is an event and no state.
    fn new(wish: &Trigger) -> Option<Self> {
        let (watch, calm) = match &wish.condition {
            Condition::Silent(span) => (Watch::Silence(SilenceWatch::new(*span)), *span),
            Condition::RateBelow(bound) => (Watch::Rate(RateWatch::new(*bound)), Duration::ZERO),
            Condition::Fields(_) => return None,
        };
        Some(Self {
            wish: wish.clone(),
            watch,
            is_wrong: false,
            latch: AlarmLatch::new(calm.max(TOPIC_CALM)),
            intake: None,
            received: 0,
            last_message: None,
        })
    }

    fn step(&mut self, list: &mut AlarmList, before: Duration, now: Duration, time: Timestamp) {
        let Some(intake) = &self.intake else { return };
        let received = intake.received();
        let count = received.saturating_sub(self.received);
        self.received = received;
        self.watch.messages(count, before, now);
        if count > 0 {
            self.last_message = Some(now);
        }
        if now.saturating_sub(before) >= STOPPED_MIN {
            self.watch.excuse(now);
        }
        self.is_wrong |= self.watch.check(steady(now));
        self.is_wrong &= !self.watch.is_kept();
        if let Some(edge) = self.latch.note(self.is_wrong, now) {
            let Trigger { topic, text, .. } = &self.wish;
            let subject = Subject::of_wish(self.watch.kind(), topic, text);
            list.note(edge, &subject, || text.clone(), time);
        }
    }
}

/// How fast a topic sends: a recording may have thousands, so that it is small.
struct Pace {
    intake: Arc<Intake>,
    received: u64,
    /// When a message came last, within [`RATES_INTERVAL`].
    last: Option<Duration>,
    /// When the span began that is measured now, and the messages until then.
    begin: Option<(Duration, u64)>,
    /// In the last whole span.
    hertz: f64,
}

impl Pace {
    fn new(intake: &Arc<Intake>) -> Self {
        Self {
            intake: Arc::clone(intake),
            received: 0,
            last: None,
            begin: None,
            hertz: 0.0,
        }
    }

    fn step(&mut self, now: Duration) {
        let received = self.intake.received();
        if std::mem::replace(&mut self.received, received) < received {
            self.last = Some(now);
        }
        let (begin, before) = *self.begin.get_or_insert((now, received));
        let (span, count) = (now.saturating_sub(begin), received - before);
        // Of a slow topic a longer span has few messages, too.
        let long = if count < PACE_MESSAGES { PACE_SPAN_SLOW } else { PACE_SPAN };
        if span >= long {
            self.hertz = count as f64 / span.as_secs_f64();
            self.begin = Some((now, received));
        }
    }
}

/// All topics of a recording.
pub(super) struct WatchedTopics {
    watched: Vec<WatchedTopic>,
    /// In the order of subscription.
    paces: Vec<Pace>,
    next_rates: Duration,
    last_step: Option<Duration>,
    /// When topics that have not appeared are named in the log, once.
    absent_due: Option<Duration>,
}

impl WatchedTopics {
    pub fn new(wishes: &[Trigger]) -> Self {
        Self {
            watched: wishes.iter().filter_map(WatchedTopic::new).collect(),
            paces: Vec::new(),
            next_rates: Duration::ZERO,
            last_step: None,
            absent_due: None,
        }
    }

    /// Looks at the counters at `now`, which is monotonic.
    pub fn step(&mut self, parts: &Parts, list: &mut AlarmList, now: Duration, time: Timestamp) {
        self.find_new(parts);
        let before = self.last_step.replace(now).unwrap_or(now);
        for watched in &mut self.watched {
            watched.step(list, before, now, time);
        }
        if now >= self.next_rates {
            self.next_rates = now + RATES_INTERVAL;
            self.paces.iter_mut().for_each(|pace| pace.step(now));
        }
        self.name_absent(now);
    }

    fn find_new(&mut self, parts: &Parts) {
        let topics = lock(&parts.topics);
        for topic in topics.iter().skip(self.paces.len()) {
            self.paces.push(Pace::new(&topic.intake));
            for watched in &mut self.watched {
                if watched.wish.topic == topic.name {
                    watched.intake = Some(Arc::clone(&topic.intake));
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
        for absent in self.watched.iter().filter(|watched| watched.intake.is_none()) {
            tracing::warn!(
                "alarm {}: its topic has not appeared among the recorded ones so far",
                absent.wish
            );
        }
    }

    /// The rate of each topic in Hz, and the age of its last message.
    pub fn rates(&self, now: Duration) -> Vec<(f64, Option<Duration>)> {
        let age = |pace: &Pace| pace.last.map(|last| now.saturating_sub(last));
        self.paces.iter().map(|pace| (pace.hertz, age(pace))).collect()
    }

    pub fn status(&self) -> Vec<AlarmWatchStatus> {
        let last = self.last_step.unwrap_or_default();
        let status = |watched: &WatchedTopic| AlarmWatchStatus {
            text: watched.wish.text.clone(),
            topic: watched.wish.topic.clone(),
            is_topic_known: watched.intake.is_some(),
            age: watched.last_message.map(|at| last.saturating_sub(at)),
        };
        self.watched.iter().map(status).collect()
    }
}
