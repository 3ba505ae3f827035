//! Publishes bag time on `/clock` (`rosgraph_msgs/msg/Clock`), so that nodes with `use_sim_time` follow the playback.

use super::options::ClockSource;
use holdall_model::{
    qos::{Durability, History, QosProfile, Reliability},
    time::Timestamp,
};
use holdall_transport::{PublishRequest, Publisher, Transport, TransportError};
use std::time::Duration;

/// The topic's name.
pub(super) const CLOCK_TOPIC: &str = "/clock";

/// RIHS01 hash of `rosgraph_msgs/msg/Clock` (Jazzy; the type has not changed since it was made).
const CLOCK_TYPE_HASH: &str = "RIHS01_692f7a66e93a3c83e71765d033b60349ba68023a8c689a79e48078bcb5c58564";

/// Serialized length: encapsulation header, `int32 sec`, `uint32 nanosec`.
const CLOCK_BYTES: usize = 12;

const NANOS_PER_SECOND: i64 = 1_000_000_000;

/// The offer of `rclcpp::ClockQoS`: best effort, the newest one only.
const CLOCK_QOS: QosProfile = QosProfile {
    history: History::KeepLast,
    depth: 1,
    reliability: Reliability::BestEffort,
    durability: Durability::Volatile,
    ..QosProfile::ROS_DEFAULT
};

/// Bag time as little-endian CDR. Times outside the message's range (1901 to 2038) are clamped to it.
fn clock_message(time: Timestamp) -> [u8; CLOCK_BYTES] {
    let seconds = time.as_nanos().div_euclid(NANOS_PER_SECOND);
    let nanos = time.as_nanos().rem_euclid(NANOS_PER_SECOND);
    let seconds = i32::try_from(seconds).unwrap_or(if seconds < 0 { i32::MIN } else { i32::MAX });
    let nanos = u32::try_from(nanos).expect("a remainder by 10^9 is below 2^32");
    let mut bytes = [0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    bytes[4..8].copy_from_slice(&seconds.to_le_bytes());
    bytes[8..].copy_from_slice(&nanos.to_le_bytes());
    bytes
}

/// Each `period` of monotonic time, also while paused.
struct Ticks {
    period: Duration,
    next: Duration,
}

impl Ticks {
    fn at(hertz: f64, now: Duration) -> Self {
        let period = Duration::try_from_secs_f64(1.0 / hertz).unwrap_or(Duration::MAX);
        Self {
            period: period.max(Duration::from_nanos(1)),
            next: now,
        }
    }
}

/// Each `period` of bag time, so that nothing but the messages decides what is published.
struct ClockSteps {
    period: Duration,
    next: Option<Timestamp>,
}

/// The most times that are published for a span without a message; more are left out at its beginning.
const STEPS_MAX: u64 = 1000;

impl ClockSteps {
    /// The times that are due up to `stamp`.
    fn until(&mut self, stamp: Timestamp) -> Vec<Timestamp> {
        let period = u64::try_from(self.period.as_nanos()).unwrap_or(u64::MAX);
        let next = self.next.unwrap_or(stamp);
        let back = next.saturating_since(stamp);
        // The playback was moved back.
        let mut next = if back > self.period { stamp } else { next };
        let due = u64::try_from(stamp.saturating_since(next).as_nanos()).unwrap_or(u64::MAX) / period;
        if let Some(left_out) = due.checked_sub(STEPS_MAX) {
            next = next.saturating_add(Duration::from_nanos(left_out * period));
        }
        let mut times = Vec::new();
        // Counted, because at the end of all times the next one is the same.
        let count = if next <= stamp { due.min(STEPS_MAX) + 1 } else { 0 };
        for _ in 0..count {
            times.push(next);
            next = next.saturating_add(self.period);
        }
        self.next = Some(next);
        times
    }
}

/// Before which messages bag time is published.
enum Before {
    /// Those of these publications.
    Some(Vec<usize>),
    /// All.
    All,
}

impl Before {
    fn topics(topics: &[String], recorded_topics: &[&str]) -> Self {
        let named = |name: &&str| topics.iter().any(|topic| topic == *name);
        let indexes = recorded_topics.iter().enumerate().filter(|(_, name)| named(name));
        Self::Some(indexes.map(|(index, _)| index).collect())
    }
}

/// The `/clock` publisher.
pub(super) struct ClockTopic {
    /// One per transport.
    publishers: Vec<Box<dyn Publisher>>,
    ticks: Option<Ticks>,
    /// In lock-step, once messages are played, instead of ticks.
    steps: Option<ClockSteps>,
    before: Before,
    published: u64,
    refusal: Option<String>,
}

impl ClockTopic {
    /// Creates the publisher; `None` if the options do not ask for it. `recorded_topics` are the publications' names in the bag.
    pub fn create(
        source: &ClockSource,
        recorded_topics: &[&str],
        now: Duration,
        transports: &mut [Box<dyn Transport>],
    ) -> Result<Option<Self>, TransportError> {
        let before = match source {
            ClockSource::Off => return Ok(None),
            ClockSource::Rate(_) => Before::Some(Vec::new()),
            ClockSource::Topics(topics)
            | ClockSource::Both {
                topics: Some(topics), ..
            } => Before::topics(topics, recorded_topics),
            ClockSource::AllTopics | ClockSource::Both { topics: None, .. } => Before::All,
        };
        let request = PublishRequest {
            topic: CLOCK_TOPIC.to_owned(),
            type_name: "rosgraph_msgs/msg/Clock".to_owned(),
            type_hash: Some(CLOCK_TYPE_HASH.to_owned()),
            qos: CLOCK_QOS,
            ..PublishRequest::default()
        };
        let publishers = transports
            .iter_mut()
            .map(|transport| transport.publish(&request))
            .collect::<Result<_, _>>()?;
        Ok(Some(Self {
            publishers,
            ticks: source.rate().map(|hertz| Ticks::at(hertz, now)),
            steps: None,
            before,
            published: 0,
            refusal: None,
        }))
    }

    /// Publishes `position` when it is due; returns when the next one is due.
    pub fn tick(&mut self, now: Duration, position: Timestamp) -> Option<Duration> {
        let Ticks { period, next } = self.ticks.as_mut()?;
        if now < *next {
            return Some(*next);
        }
        // Missed ticks are skipped: a burst of them would add nothing.
        *next = next.saturating_add(*period);
        if *next <= now {
            *next = now.saturating_add(*period);
        }
        let next = *next;
        self.publish(position);
        Some(next)
    }

    /// From now on bag time is published at its rate in the times of messages, whatever time passes.
    pub fn follow_messages(&mut self) {
        if let Some(Ticks { period, .. }) = self.ticks.take() {
            self.steps = Some(ClockSteps { period, next: None });
        }
    }

    /// Publishes the times before a message that is about to be published, and its stamp if messages drive the clock; calls `each` with them.
    pub fn before_message(&mut self, publication: usize, stamp: Timestamp, mut each: impl FnMut(Timestamp)) {
        let drives = match &self.before {
            Before::Some(publications) => publications.contains(&publication),
            Before::All => true,
        };
        let times = self
            .steps
            .as_mut()
            .map_or_else(Vec::new, |steps| steps.until(stamp));
        let own = (drives && times.last() != Some(&stamp)).then_some(stamp);
        for time in times.into_iter().chain(own) {
            self.publish(time);
            each(time);
        }
    }

    /// `/clock` messages published.
    pub fn published(&self) -> u64 {
        self.published
    }

    fn publish(&mut self, time: Timestamp) {
        let mut published = false;
        for publisher in &mut self.publishers {
            match publisher.publish(&clock_message(time)) {
                Ok(()) => published = true,
                Err(error) if self.refusal.is_none() => {
                    tracing::warn!("{error}");
                    self.refusal = Some(error.to_string());
                }
                Err(_) => {}
            }
        }
        self.published += u64::from(published);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_message_is_little_endian_cdr() {
        let time = Timestamp::from_nanos(1_700_000_000_000_000_003);
        let expected = [0, 1, 0, 0, 0x00, 0xf1, 0x53, 0x65, 3, 0, 0, 0];
        assert_eq!(clock_message(time), expected);
    }

    #[test]
    fn times_before_the_epoch_have_positive_nanoseconds() {
        let bytes = clock_message(Timestamp::from_nanos(-1));
        assert_eq!(bytes[4..8], (-1_i32).to_le_bytes());
        assert_eq!(bytes[8..], 999_999_999_u32.to_le_bytes());
    }

    #[test]
    fn in_lock_step_only_messages_move_time() {
        let at = |millis: i64| Timestamp::from_nanos(millis * 1_000_000);
        let mut steps = ClockSteps {
            period: Duration::from_millis(10),
            next: None,
        };
        let millis = |steps: &mut ClockSteps, to| -> Vec<i64> {
            let times = steps.until(at(to));
            times.iter().map(|time| time.as_nanos() / 1_000_000).collect()
        };
        assert_eq!(millis(&mut steps, 100), [100]);
        assert!(millis(&mut steps, 109).is_empty());
        assert_eq!(millis(&mut steps, 131), [110, 120, 130]);
        assert_eq!(millis(&mut steps, 5), [5], "it was moved back");
        let many = millis(&mut steps, 1_000_000_000);
        assert_eq!((many.len(), many.last()), (1001, Some(&999_999_995)));
        let end = Timestamp::from_nanos(i64::MAX);
        assert_eq!((steps.until(end).len(), steps.until(end).len()), (1001, 1));
    }

    #[test]
    fn times_beyond_the_message_are_held_at_its_end() {
        assert_eq!(
            clock_message(Timestamp::from_nanos(i64::MAX))[4..8],
            i32::MAX.to_le_bytes()
        );
    }
}
