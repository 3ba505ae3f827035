//! A topic that is watched on request, as its counter grows: it falls silent, or below a rate.

use super::{AlarmKind, AlarmLatch, AlarmList, AlarmSubject, AlarmWatchStatus};
use crate::{
    time::Timestamp,
    trigger::{Condition, RateWatch, SilenceWatch, Trigger},
};
use std::time::Duration;

/// An alarm of a topic is over when its condition has not held for this long, or for the silence that is watched for.
const TOPIC_CALM: Duration = Duration::from_secs(5);

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

    /// Takes note of messages that came between two reads of its counter, at times that nothing shows: evenly.
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

/// A topic that is watched on request.
#[derive(Debug)]
pub struct WatchedTopic {
    trigger: Trigger,
    watch: Watch,
    /// The condition holds.
    is_wrong: bool,
    latch: AlarmLatch,
    /// As counted at the last look; `None` until it is recorded.
    received: Option<u64>,
    last_message: Option<Duration>,
}

impl WatchedTopic {
    /// `None` for a condition on fields, which is an event and no state.
    pub fn new(trigger: &Trigger) -> Option<Self> {
        let (watch, calm) = match &trigger.condition {
            Condition::Silent(span) => (Watch::Silence(SilenceWatch::new(*span)), *span),
            Condition::RateBelow(bound) => (Watch::Rate(RateWatch::new(*bound)), Duration::ZERO),
            Condition::Fields(_) => return None,
        };
        Some(Self {
            trigger: trigger.clone(),
            watch,
            is_wrong: false,
            latch: AlarmLatch::new(calm.max(TOPIC_CALM)),
            received: None,
            last_message: None,
        })
    }

    /// The condition that is watched for.
    pub fn trigger(&self) -> &Trigger {
        &self.trigger
    }

    /// Whether its topic is recorded.
    pub fn is_topic_known(&self) -> bool {
        self.received.is_some()
    }

    /// Takes note that `received` messages have come until `now`, and that the last look was at `before`, both monotonic; `ran` is false when
    /// this process did not run in between. `time` is the time of day.
    pub fn note(
        &mut self,
        received: u64,
        (before, now): (Duration, Duration),
        ran: bool,
        list: &mut AlarmList,
        time: Timestamp,
    ) {
        let count = received.saturating_sub(self.received.replace(received).unwrap_or(0));
        self.watch.messages(count, before, now);
        if count > 0 {
            self.last_message = Some(now);
        }
        if !ran {
            self.watch.excuse(now);
        }
        self.is_wrong |= self.watch.check(steady(now));
        self.is_wrong &= !self.watch.is_kept();
        if let Some(edge) = self.latch.note(self.is_wrong, now) {
            let Trigger { topic, text, .. } = &self.trigger;
            let subject = AlarmSubject::of_expression(self.watch.kind(), topic, text);
            list.note(edge, &subject, text.clone(), time);
        }
    }

    /// What is known of it at `now`, which is monotonic.
    pub fn status(&self, now: Duration) -> AlarmWatchStatus {
        AlarmWatchStatus {
            text: self.trigger.text.clone(),
            topic: self.trigger.topic.clone(),
            is_topic_known: self.is_topic_known(),
            age: self.last_message.map(|at| now.saturating_sub(at)),
        }
    }
}
