//! Reports of a playback while it runs and when it has ended.

use super::requests::ServiceCalls;
pub use super::{answers::AnswerReport, steps::StepReport};
use hdrhistogram::Histogram;
use holdall_model::{text::Outside, time::Timestamp, units::counted};
use std::{collections::BTreeMap, time::Duration};

/// The phase of a playback.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PlayPhase {
    /// Reading ahead and waiting for subscriptions to be found.
    #[default]
    Preparing,
    /// Playing, or paused.
    Playing,
    /// All was played, or it was stopped; the playback can be asked to play again.
    Waiting,
    /// All was played, or the playback was stopped.
    Ended,
}

/// How late the transport got the messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lateness {
    /// Messages measured; those played one by one while paused have no planned time and are left out.
    pub count: u64,
    /// Half of them were at most this late.
    pub p50: Duration,
    /// 99 of 100 were at most this late.
    pub p99: Duration,
    /// 999 of 1000 were at most this late.
    pub p99_9: Duration,
    /// 9999 of 10 000 were at most this late.
    pub p99_99: Duration,
    /// The worst.
    pub max: Duration,
}

/// A snapshot of a running playback.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlayStatus {
    /// Where it is.
    pub phase: PlayPhase,
    /// Bag time now.
    pub position: Timestamp,
    /// First stamp of the range that is played.
    pub start: Timestamp,
    /// Length of the range that is played, in bag time.
    pub duration: Duration,
    /// Speed.
    pub rate: f64,
    /// Bag time does not advance.
    pub paused: bool,
    /// Rounds begun; above 1 only with `repeat`.
    pub round: u64,
    /// Messages published, `/clock` not counted.
    pub published: u64,
    /// Messages that the transport refused.
    pub refused: u64,
    /// Times that a message was not read early enough.
    pub starved: u64,
    /// How late messages were.
    pub lateness: Lateness,
    /// How much longer or shorter than planned the spans between two messages of a topic were.
    pub spacing: Lateness,
    /// Payload bytes published.
    pub published_bytes: u64,
    /// Messages of latched topics from before a point where playback began, published first; not counted among the others.
    pub latched: u64,
}

impl PlayStatus {
    /// How far into the range that is played bag time is, at most its length.
    pub fn elapsed(&self) -> Duration {
        self.position.saturating_since(self.start).min(self.duration)
    }
}

/// Played messages of one topic.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopicReport {
    /// Name in the bag.
    pub name: String,
    /// Name that it was published under.
    pub published_as: String,
    /// ROS type.
    pub type_name: String,
    /// Messages published.
    pub published: u64,
    /// Messages that the transport refused.
    pub refused: u64,
    /// Why, for the first one.
    pub refusal: Option<String>,
    /// Published messages that not all matched reliable subscriptions have acknowledged: they may have missed them.
    pub unacknowledged: u64,
    /// Messages that were published while no subscription was matched.
    pub untaken: u64,
    /// Latched messages from before a point where playback began, published first; not counted among `published`.
    pub latched: u64,
    /// How late its messages were.
    pub lateness: Lateness,
    /// How much longer or shorter than planned the spans between its messages were.
    pub spacing: Lateness,
    /// The recorded publisher that it replays, if each has a separate publisher.
    pub publisher: Option<String>,
}

impl TopicReport {
    /// Counts a message that was not published; the first reason is logged and kept.
    pub(super) fn refuse(&mut self, reason: String) {
        self.refused += 1;
        if self.refusal.is_none() {
            tracing::warn!("{reason}");
            self.refusal = Some(reason);
        }
    }
}

impl PlayReport {
    /// Messages that were published while no subscription was matched, all topics.
    pub fn untaken(&self) -> u64 {
        self.topics.iter().map(|topic| topic.untaken).sum()
    }

    /// Messages that not all matched reliable subscriptions have acknowledged, all topics.
    pub fn unacknowledged(&self) -> u64 {
        self.topics.iter().map(|topic| topic.unacknowledged).sum()
    }

    /// What subscriptions did not get or may not have got, and answers that did not come in time, one clause each.
    pub fn losses(&self) -> Vec<String> {
        let mut losses = Vec::new();
        for topic in self.topics.iter().filter(|topic| topic.refused > 0) {
            losses.push(format!(
                "{} of {} were not published: {}",
                counted(topic.refused, "message"),
                Outside(&topic.published_as),
                Outside(topic.refusal.as_deref().unwrap_or("the transport gave no reason"))
            ));
        }
        for topic in self.topics.iter().filter(|topic| topic.unacknowledged > 0) {
            losses.push(format!(
                "{} of {} were not acknowledged by all reliable subscriptions",
                counted(topic.unacknowledged, "message"),
                Outside(&topic.published_as)
            ));
        }
        if !self.unacked.is_empty() {
            losses.push(format!(
                "not acknowledged in time by all subscriptions: {}",
                Outside(&self.unacked.join(", "))
            ));
        }
        if let Some(steps) = self.steps.as_ref().filter(|steps| steps.missing > 0) {
            losses.push(format!(
                "{} had no answer in time, the first: {}",
                counted(steps.missing, "message"),
                steps.first_missing.as_deref().unwrap_or_default()
            ));
        }
        losses
    }
}

/// Results of an ended playback.
#[derive(Clone, Debug, Default)]
pub struct PlayReport {
    /// The final counters.
    pub status: PlayStatus,
    /// Time since the first message was due, pauses included.
    pub elapsed: Duration,
    /// All topics that were played, in the order of the bag.
    pub topics: Vec<TopicReport>,
    /// `/clock` messages published.
    pub clock_published: u64,
    /// How the requests of each replayed service were answered, by its name.
    pub services: BTreeMap<String, ServiceCalls>,
    /// What was answered in lock-step, if it was used.
    pub steps: Option<StepReport>,
    /// Topics (as published) with messages that matched reliable subscriptions have not acknowledged in time;
    /// checked only when the options ask to wait for it.
    pub unacked: Vec<String>,
    /// True if the playback was stopped before its end.
    pub stopped: bool,
    /// Why the playback ended early, when it did: one sentence for the user.
    pub failure: Option<String>,
}

/// Collects how late messages are, within a fixed amount of memory.
#[derive(Clone, Debug)]
pub(super) struct LatenessMeter(Histogram<u64>);

impl LatenessMeter {
    /// The longest lateness that is distinguished; later messages count as this late.
    const MAX: Duration = Duration::from_secs(3600);

    pub fn new() -> Self {
        let max_nanos = Self::MAX.as_nanos() as u64;
        Self(Histogram::new_with_bounds(1, max_nanos, 3).expect("1 ns to 1 h with 3 digits are valid bounds"))
    }

    /// A meter that takes little memory while all values are small, to two digits.
    pub fn coarse() -> Self {
        Self(Histogram::new(2).expect("2 digits are valid"))
    }

    pub fn record(&mut self, lateness: Duration) {
        let nanos = u64::try_from(lateness.min(Self::MAX).as_nanos()).unwrap_or(u64::MAX);
        // Grows a coarse meter; what one with bounds cannot hold counts as its bound.
        if self.0.record(nanos).is_err() {
            self.0.saturating_record(nanos);
        }
    }

    pub fn summary(&self) -> Lateness {
        Lateness {
            count: self.0.len(),
            p50: Duration::from_nanos(self.0.value_at_quantile(0.5)),
            p99: Duration::from_nanos(self.0.value_at_quantile(0.99)),
            p99_9: Duration::from_nanos(self.0.value_at_quantile(0.999)),
            p99_99: Duration::from_nanos(self.0.value_at_quantile(0.9999)),
            max: Duration::from_nanos(self.0.max()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lateness_is_reported_to_three_digits() {
        let mut meter = LatenessMeter::new();
        for micros in 1..=1000 {
            meter.record(Duration::from_micros(micros));
        }
        let lateness = meter.summary();
        let near = |found: Duration, micros: f64| (found.as_secs_f64() * 1e6 - micros).abs() < micros / 500.0;
        assert_eq!(lateness.count, 1000);
        assert!(near(lateness.p50, 500.0), "{lateness:?}");
        assert!(near(lateness.p99, 990.0), "{lateness:?}");
        assert!(near(lateness.max, 1000.0), "{lateness:?}");
    }

    #[test]
    fn nothing_measured_is_no_lateness() {
        assert_eq!(LatenessMeter::new().summary(), Lateness::default());
    }

    #[test]
    fn absurd_lateness_is_held_at_the_bound() {
        let mut meter = LatenessMeter::new();
        meter.record(Duration::MAX);
        assert!(meter.summary().max >= LatenessMeter::MAX - Duration::from_secs(4));
    }
}
