//! Rates of a topic over time, the rate that it usually has, and whether it has fallen below that.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    time::Duration,
};

/// Seconds of rates that are kept for the small graph.
const HISTORY_SECONDS: usize = 60;

/// Span that the present rate is measured over.
const SPAN: Duration = Duration::from_secs(2);

/// The same for a topic that sends less than [`SLOW_HZ`].
const SPAN_SLOW: Duration = Duration::from_secs(8);

const SLOW_HZ: f64 = 2.0;

/// Most samples that are kept: [`SPAN_SLOW`] at two each second, and one more.
const SAMPLES_MAX: usize = 20;

/// Seconds of steady messages before a rate counts as usual.
const LEARN_SECONDS: usize = 10;

/// How far a second may deviate from the mean of its neighbours while the rate still counts as steady.
const STEADY: f64 = 0.4;

/// Below this part of its usual rate a topic has fallen, and above the other it has recovered.
const FALLEN: f64 = 0.5;
const RECOVERED: f64 = 0.7;

#[derive(Clone, Copy, Debug)]
struct Sample {
    at: Duration,
    messages: u64,
    bytes: u64,
}

/// State learned about one topic from its counters.
#[derive(Debug, Default)]
pub struct TopicRates {
    samples: VecDeque<Sample>,
    /// Messages in each whole second, the newest last.
    history: VecDeque<u32>,
    second: Option<Sample>,
    /// When the counter was first seen to have its present value.
    changed: Option<Duration>,
    expected: Option<f64>,
    is_fallen: bool,
}

impl TopicRates {
    /// Notes the counters at `at`, which is monotonic; called about twice a second.
    pub fn note(&mut self, at: Duration, messages: u64, bytes: u64) {
        let sample = Sample { at, messages, bytes };
        let last = self.samples.back().map_or(0, |last| last.messages);
        if messages > last {
            self.changed = Some(at);
        }
        // Not twice as many.
        self.samples.reserve_exact(SAMPLES_MAX - self.samples.len());
        if self.samples.len() == SAMPLES_MAX {
            self.samples.pop_front();
        }
        self.samples.push_back(sample);
        let second = *self.second.get_or_insert(sample);
        let span = at.saturating_sub(second.at);
        if span >= Duration::from_secs(1) {
            self.second = Some(sample);
            let count = messages.saturating_sub(second.messages) as f64 / span.as_secs_f64();
            if self.history.len() == HISTORY_SECONDS {
                self.history.pop_front();
            }
            self.history.push_back(count.round() as u32);
            self.learn();
        }
        self.judge();
    }

    fn learn(&mut self) {
        let newest = self.history.len().checked_sub(LEARN_SECONDS);
        let Some(from) = newest else { return };
        let newest = || self.history.iter().skip(from).map(|count| f64::from(*count));
        let mean = newest().sum::<f64>() / LEARN_SECONDS as f64;
        // One message more or less means nothing.
        let slack = (mean * STEADY).max(1.0);
        let is_steady = mean >= 1.0 && newest().all(|count| (count - mean).abs() <= slack);
        if !is_steady {
            return;
        }
        self.expected = match self.expected {
            None => Some(mean),
            // Follows a slow drift; a lower level is a fall.
            Some(expected) if mean > expected * 0.9 => Some(expected * 0.9 + mean * 0.1),
            kept => kept,
        };
    }

    fn judge(&mut self) {
        let Some(expected) = self.expected else { return };
        let hertz = self.hertz();
        if hertz < expected * FALLEN {
            self.is_fallen = true;
        } else if hertz > expected * RECOVERED {
            self.is_fallen = false;
        }
    }

    /// Messages a second now.
    pub fn hertz(&self) -> f64 {
        let fast = self.per_second(SPAN, |sample| sample.messages);
        if fast < SLOW_HZ {
            self.per_second(SPAN_SLOW, |sample| sample.messages)
        } else {
            fast
        }
    }

    /// Bytes a second now.
    pub fn bytes_per_second(&self) -> f64 {
        self.per_second(SPAN, |sample| sample.bytes)
    }

    fn per_second(&self, span: Duration, of: impl Fn(&Sample) -> u64) -> f64 {
        let Some(last) = self.samples.back() else {
            return 0.0;
        };
        let first = self
            .samples
            .iter()
            .find(|sample| last.at - sample.at <= span)
            .unwrap_or(last);
        let seconds = (last.at - first.at).as_secs_f64();
        if seconds <= 0.0 {
            return 0.0;
        }
        of(last).saturating_sub(of(first)) as f64 / seconds
    }

    /// Time since the last message, within half a second; `None` before the first.
    pub fn age(&self, now: Duration) -> Option<Duration> {
        Some(now.saturating_sub(self.changed?))
    }

    /// The rate that it usually has, once it was steady for some seconds.
    pub fn expected(&self) -> Option<f64> {
        self.expected
    }

    /// Whether it sends much less than usual.
    pub fn is_fallen(&self) -> bool {
        self.is_fallen
    }

    /// The topic, if its rate has fallen.
    pub fn fallen(&self, name: &str) -> Option<FallenTopic> {
        let usual_hz = self.expected.filter(|_| self.is_fallen)?;
        Some(FallenTopic {
            name: name.to_owned(),
            usual_hz,
            now_hz: self.hertz(),
        })
    }

    /// Messages in each of the last seconds, the newest last.
    pub fn history(&self) -> impl Iterator<Item = u32> {
        self.history.iter().copied()
    }
}

/// A topic that sends much less than usual.
#[derive(Clone, Debug, PartialEq)]
pub struct FallenTopic {
    /// Full ROS name.
    pub name: String,
    /// Messages a second that it usually sends.
    pub usual_hz: f64,
    /// Messages a second now.
    pub now_hz: f64,
}

impl fmt::Display for FallenTopic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {} → {} Hz",
            self.name,
            rounded(self.usual_hz),
            rounded(self.now_hz)
        )
    }
}

/// Span over which a [`Pace`] is measured: the second one for a topic with fewer messages than this in the first.
const PACE_SPAN: Duration = Duration::from_secs(2);
const PACE_SPAN_SLOW: Duration = Duration::from_secs(8);
const PACE_MESSAGES: u64 = 4;

/// How fast a topic sends, without what it did before: small, for programs that keep it of thousands of topics and show none.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pace {
    messages: u64,
    /// When the counter was first seen to have its present value.
    changed: Option<Duration>,
    /// When the present span began, with the counter then.
    begin: Option<(Duration, u64)>,
    hertz: f64,
}

impl Pace {
    /// Notes the counter at `at`, which is monotonic; called about twice a second.
    pub fn note(&mut self, at: Duration, messages: u64) {
        if std::mem::replace(&mut self.messages, messages) < messages {
            self.changed = Some(at);
        }
        let (begin, before) = *self.begin.get_or_insert((at, messages));
        let (span, count) = (at.saturating_sub(begin), messages.saturating_sub(before));
        let is_slow = count < PACE_MESSAGES;
        if span >= if is_slow { PACE_SPAN_SLOW } else { PACE_SPAN } {
            self.hertz = count as f64 / span.as_secs_f64();
            self.begin = Some((at, messages));
        }
    }

    /// Messages a second in the last whole span.
    pub fn hertz(&self) -> f64 {
        self.hertz
    }

    /// Time since the last message, within half a second; `None` before the first.
    pub fn age(&self, now: Duration) -> Option<Duration> {
        Some(now.saturating_sub(self.changed?))
    }
}

/// Three digits are read; more make lines longer.
pub fn rounded(value: f64) -> f64 {
    let digits = match value.abs() {
        below if below < 10.0 => 100.0,
        below if below < 100.0 => 10.0,
        _ => 1.0,
    };
    (value * digits).round() / digits
}

/// Time between two notes of [`RatesByTopic`].
const NOTE_INTERVAL: Duration = Duration::from_millis(500);

/// Topics whose rates are kept.
const TOPICS_MAX: usize = 5000;

/// The rates of all topics.
#[derive(Debug, Default)]
pub struct RatesByTopic {
    topics: BTreeMap<String, TopicRates>,
    noted: Option<Duration>,
}

impl RatesByTopic {
    /// Notes messages and bytes of each topic at `at`, which is monotonic; may be called as often as the caller likes.
    pub fn note<'a>(&mut self, at: Duration, topics: impl Iterator<Item = (&'a str, u64, u64)>) {
        if self.noted.is_some_and(|noted| at < noted + NOTE_INTERVAL) {
            return;
        }
        self.noted = Some(at);
        for (name, messages, bytes) in topics {
            if let Some(rates) = self.of(name) {
                rates.note(at, messages, bytes);
            }
        }
    }

    /// The rates of a topic, which is added if it is unknown; `None` if there are too many.
    pub fn of(&mut self, name: &str) -> Option<&mut TopicRates> {
        if !self.topics.contains_key(name) {
            if self.topics.len() >= TOPICS_MAX {
                return None;
            }
            self.topics.insert(name.to_owned(), TopicRates::default());
        }
        self.topics.get_mut(name)
    }

    /// All topics with their rates, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &TopicRates)> {
        self.topics.iter().map(|(name, rates)| (name.as_str(), rates))
    }

    /// The topics that send much less than usual, by name.
    pub fn fallen(&self) -> Vec<FallenTopic> {
        let fallen = self.topics.iter().filter(|(_, rates)| rates.is_fallen());
        fallen.filter_map(|(name, rates)| rates.fallen(name)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: Duration = Duration::from_millis(500);

    /// Notes a topic that sends `each` messages in every tick.
    fn run(rates: &mut TopicRates, at: &mut Duration, count: &mut u64, ticks: usize, each: u64) {
        for _ in 0..ticks {
            *at += TICK;
            *count += each;
            rates.note(*at, *count, *count * 100);
        }
    }

    #[test]
    fn a_topic_that_falls_below_its_usual_rate_is_named_until_it_recovers() {
        let (mut rates, mut at, mut count) = (TopicRates::default(), Duration::ZERO, 0);
        run(&mut rates, &mut at, &mut count, 24, 10);
        assert_eq!((rates.expected(), rates.hertz()), (Some(20.0), 20.0));
        assert!(!rates.is_fallen());
        assert!((rates.bytes_per_second() - 2000.0).abs() < 1e-9);
        run(&mut rates, &mut at, &mut count, 200, 1);
        assert!(rates.is_fallen());
        assert_eq!(rates.expected(), Some(20.0), "a lower level is no new usual rate");
        run(&mut rates, &mut at, &mut count, 10, 10);
        assert!(!rates.is_fallen());
        assert_eq!(rates.history().count(), HISTORY_SECONDS);
    }

    #[test]
    fn a_dead_topic_has_fallen_and_ages() {
        let (mut rates, mut at, mut count) = (TopicRates::default(), Duration::ZERO, 0);
        run(&mut rates, &mut at, &mut count, 30, 5);
        run(&mut rates, &mut at, &mut count, 20, 0);
        assert!(rates.is_fallen());
        assert_eq!(rates.age(at), Some(TICK * 20));
        assert_eq!(rates.hertz(), 0.0);
    }

    #[test]
    fn an_irregular_topic_has_no_usual_rate() {
        let (mut rates, mut at, mut count) = (TopicRates::default(), Duration::ZERO, 0);
        for _ in 0..20 {
            run(&mut rates, &mut at, &mut count, 6, 0);
            run(&mut rates, &mut at, &mut count, 2, 30);
        }
        assert_eq!(rates.expected(), None);
        let mut silent = TopicRates::default();
        run(&mut silent, &mut at, &mut 0, 100, 0);
        assert_eq!((silent.expected(), silent.age(at)), (None, None));
    }

    #[test]
    fn counters_that_begin_anew_are_no_rate() {
        let mut rates = TopicRates::default();
        rates.note(Duration::from_secs(1), 100, 100);
        rates.note(Duration::from_secs(2), 5, 5);
        assert_eq!(rates.hertz(), 0.0);
    }

    #[test]
    fn fallen_topics_are_named_with_both_rates_however_often_they_are_noted() {
        let mut rates = RatesByTopic::default();
        for tick in 0..600_u64 {
            let at = Duration::from_millis(tick * 100);
            // `/lidar` sends 20 a second for 30 s, then 2.
            let lidar = if tick < 300 {
                tick * 2
            } else {
                600 + (tick - 300) / 5
            };
            rates.note(at, [("/lidar", lidar, 0), ("/imu", tick * 10, 0)].into_iter());
        }
        let fallen = rates.fallen();
        assert_eq!(fallen.len(), 1, "{fallen:?}");
        assert_eq!(fallen[0].to_string(), "/lidar: 20 → 2 Hz");
        assert_eq!(rates.iter().count(), 2);
    }

    #[test]
    fn further_topics_than_the_bound_are_left_out() {
        let mut rates = RatesByTopic::default();
        for number in 0..=TOPICS_MAX {
            rates.of(&format!("/t{number}"));
        }
        assert_eq!(rates.iter().count(), TOPICS_MAX);
    }
}
