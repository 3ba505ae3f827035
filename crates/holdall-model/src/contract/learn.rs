//! Learns a contract from good recordings: each bound with how much it was learned from.

use super::{
    content::Reader,
    judge::Arrival,
    learned::{Content, Transforms},
    sample::{Sample, Want},
};
use crate::{
    dynamic::TypePlan,
    episode::{Episode, EpisodeEnd},
    text::one_line,
    time::Timestamp,
    topic::TopicInfo,
    units::{counted, format_count},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
    sync::Arc,
};

/// Values that are kept of a topic; of further ones each second, then each fourth, and so on.
const VALUES_MAX: usize = 1 << 16;
/// The span over which rates are counted, in nanoseconds.
const WINDOW_NANOS: i64 = 5_000_000_000;
/// Messages and windows from which on a bound is learned.
const MESSAGES_MIN: u64 = 20;
const WINDOWS_MIN: usize = 3;
/// Frames and publishers that are listed.
const NAMES_MAX: usize = 4;
/// The highest windows of a regular rate have at most this times what the lowest ones have.
const REGULAR_MAX: f64 = 1.5;

/// Values of which quantiles are asked.
#[derive(Debug, Default)]
struct Values {
    kept: Vec<i64>,
    step: u64,
    count: u64,
}

impl Values {
    fn add(&mut self, value: i64) {
        let step = self.step.max(1);
        if self.count.is_multiple_of(step) {
            if self.kept.len() == VALUES_MAX {
                let mut is_kept = false;
                self.kept.retain(|_| {
                    is_kept = !is_kept;
                    is_kept
                });
                self.step = step * 2;
            }
            self.kept.push(value);
        }
        self.count += 1;
    }

    fn quantile(&self, share: f64) -> f64 {
        let mut sorted = self.kept.clone();
        sorted.sort_unstable();
        let place = (share * sorted.len().saturating_sub(1) as f64).round() as usize;
        sorted.get(place).copied().unwrap_or_default() as f64
    }
}

#[derive(Debug, Default)]
struct Topic {
    name: String,
    bags: usize,
    messages: u64,
    types: BTreeSet<String>,
    hashes: BTreeSet<String>,
    reliabilities: BTreeSet<&'static str>,
    frames: BTreeSet<String>,
    publishers: BTreeSet<String>,
    intervals: Values,
    latencies: Values,
    windows: Values,
    longest: i64,
    first: i64,
    goes_back: bool,
    stamped: u64,
    content: Content,
    // These are about the present bag.
    last: Option<(Timestamp, Option<i64>)>,
    window: (i64, i64),
    reader: Reader,
}

/// A topic of a learner.
pub type Learned = usize;

/// Learns from the messages of good bags.
#[derive(Debug, Default)]
pub struct Learner {
    topics: Vec<Topic>,
    by_name: BTreeMap<String, usize>,
    bags: usize,
    start: Timestamp,
    shortest: Option<f64>,
    /// Episodes of the bag that has the fewest which were not discarded.
    episodes: Option<u64>,
    transforms: Transforms,
}

impl Learner {
    /// The episodes of the bag.
    pub fn episodes(&mut self, all: &[Episode]) {
        let kept = all.iter().filter(|episode| episode.end != EpisodeEnd::Discarded);
        let kept = kept.count() as u64;
        self.episodes = Some(self.episodes.map_or(kept, |fewest| fewest.min(kept)));
    }

    /// The next bag begins, with the times of its first and last message.
    pub fn begin_bag(&mut self, start: Timestamp, end: Timestamp) {
        self.bags += 1;
        self.start = start;
        let seconds = end.saturating_since(start).as_secs_f64();
        self.shortest = Some(self.shortest.map_or(seconds, |shortest| shortest.min(seconds)));
        self.transforms.begin_bag();
        for topic in &mut self.topics {
            topic.last = None;
            topic.content.begin_bag();
        }
    }

    /// A topic of the bag, with the plan of its type.
    pub fn topic(&mut self, info: &TopicInfo, plan: &Result<Arc<TypePlan>, String>) -> Learned {
        let place = *self.by_name.entry(info.name.clone()).or_insert_with(|| {
            self.topics.push(Topic::default());
            self.topics.len() - 1
        });
        let topic = &mut self.topics[place];
        topic.reader = Reader::learning(&info.name, plan);
        topic.name.clone_from(&info.name);
        topic.types.insert(info.type_name.clone());
        topic.hashes.insert(info.type_description_hash.clone());
        topic.reliabilities.extend(
            info.offered_qos_profiles
                .iter()
                .map(|qos| qos.reliability.as_str()),
        );
        let node = info
            .publisher
            .as_ref()
            .map(|publisher| publisher.node.clone().unwrap_or_default());
        topic.publishers.insert(node.unwrap_or_default());
        place
    }

    /// How much of a topic's payloads is needed.
    pub fn want(&self, topic: Learned) -> Want {
        self.topics
            .get(topic)
            .map_or(Want::Size, |topic| topic.reader.learns_from())
    }

    /// Takes a message, in the order of log times.
    pub fn message(&mut self, topic: Learned, arrival: Arrival, sample: &Sample) {
        let (start, time) = (self.start, arrival.log_time);
        let Some(topic) = self.topics.get_mut(topic) else {
            return;
        };
        let facts = topic
            .reader
            .facts(0, &"".into(), (time, arrival.publish_time), sample);
        topic.messages += 1;
        topic.content.message(&facts, topic.reader.learnable(sample));
        self.transforms.message(&topic.name, (start, time), &facts.edges);
        if topic.frames.len() <= NAMES_MAX {
            topic.frames.extend(topic.reader.frame_id(sample));
        }
        if let Some(stamp) = facts.stamp {
            topic.stamped += 1;
            topic.latencies.add(time.as_nanos().saturating_sub(stamp));
        }
        match topic.last.replace((time, facts.stamp)) {
            None => {
                topic.bags += 1;
                topic.first = topic.first.max(time.as_nanos().saturating_sub(start.as_nanos()));
                topic.window = (time.as_nanos(), 0);
            }
            Some((last, stamp)) => {
                let interval = time.as_nanos().saturating_sub(last.as_nanos());
                topic.intervals.add(interval);
                topic.longest = topic.longest.max(interval);
                topic.goes_back |= facts
                    .stamp
                    .is_some_and(|now| stamp.is_some_and(|before| now < before));
            }
        }
        let (begin, count) = &mut topic.window;
        while time.as_nanos().saturating_sub(*begin) >= WINDOW_NANOS {
            topic.windows.add(*count);
            (*begin, *count) = (*begin + WINDOW_NANOS, 0);
            if time.as_nanos().saturating_sub(*begin) >= 1000 * WINDOW_NANOS {
                *begin = time.as_nanos();
            }
        }
        *count += 1;
    }

    /// The contract as text.
    pub fn to_yaml(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = writeln!(text, "# Learned from {}.", counted(self.bags as u64, "bag"));
        text.push_str("version: 1\ntopics:\n");
        let heard = self
            .by_name
            .iter()
            .map(|(name, place)| (name, &self.topics[*place]));
        for (name, topic) in heard.filter(|(_, topic)| topic.messages > 0) {
            let _ = writeln!(
                text,
                "  {}: # {} in {}",
                quoted(name),
                plural_messages(topic.messages),
                counted(topic.bags as u64, "bag")
            );
            self.rules(topic, &mut text);
        }
        if self.topics.iter().all(|topic| topic.messages == 0) {
            text.push_str("  {}\n");
        }
        text.push_str("bag:\n  losses: 0\n");
        if let Some(shortest) = self.shortest.filter(|shortest| *shortest > 1.0) {
            let _ = writeln!(
                text,
                "  duration: {{min: {}s, severity: warn}} # half of the shortest bag",
                round(shortest / 2.0)
            );
        }
        if let Some(fewest) = self.episodes.filter(|fewest| *fewest > 0) {
            let _ = writeln!(
                text,
                "  episodes: {{min: {}, severity: warn}} # half of the fewest of a bag",
                fewest.div_ceil(2)
            );
        }
        let trees = self.transforms.rules();
        if !trees.is_empty() {
            text.push_str("  tf:\n");
        }
        for (rule, from) in trees {
            let _ = writeln!(text, "    - {rule} # {from}");
        }
        text
    }

    fn rules(&self, topic: &Topic, text: &mut String) {
        let mut rule = |line: String, from: String| {
            let _ = writeln!(text, "    {line} # {from}");
        };
        let bags = format!("in {} of {}", topic.bags, counted(self.bags as u64, "bag"));
        rule(format!("required: {}", topic.bags == self.bags), bags);
        if let (1, Some(name)) = (topic.types.len(), topic.types.first()) {
            rule(format!("type: {}", quoted(name)), "all bags".to_owned());
        }
        if let (1, Some(hash)) = (
            topic.hashes.len(),
            topic.hashes.first().filter(|hash| !hash.is_empty()),
        ) {
            rule(format!("hash: {}", quoted(hash)), "all bags".to_owned());
        }
        if let (1, Some(word @ (&"reliable" | &"best_effort"))) =
            (topic.reliabilities.len(), topic.reliabilities.first())
        {
            rule(
                format!("qos: {{reliability: {word}}}"),
                "all publishers".to_owned(),
            );
        }
        let is_named = topic.publishers.len() <= NAMES_MAX && !topic.publishers.contains("");
        if is_named && !topic.publishers.is_empty() {
            let names: Vec<String> = topic.publishers.iter().map(|name| quoted(name)).collect();
            rule(
                format!("publishers: {{names: [{}], severity: warn}}", names.join(", ")),
                "all bags".to_owned(),
            );
        }
        if topic.messages >= MESSAGES_MIN {
            Self::bounds(topic, &mut rule);
        }
    }

    /// The rules with bounds.
    fn bounds(topic: &Topic, rule: &mut dyn FnMut(String, String)) {
        let messages = plural_messages(topic.messages);
        let windows = &topic.windows;
        let (low, high) = (windows.quantile(0.02) / 5.0, windows.quantile(0.98) / 5.0);
        let is_regular = windows.kept.len() >= WINDOWS_MIN && low > 0.0 && high <= low * REGULAR_MAX;
        if is_regular {
            let from = format!(
                "{} to {} Hz in {} of 5 s",
                round(low),
                round(high),
                counted(windows.count, "window")
            );
            rule(
                format!(
                    "rate: {{min: {}, max: {}, window: 5s}}",
                    round(low * 0.9),
                    round(high * 1.1)
                ),
                from,
            );
            let usual = topic.intervals.quantile(0.999) * 3.0;
            let longest = (topic.longest as f64 * 1.2).max(usual) / 1e6;
            let from = format!(
                "the longest of {messages}: {} ms",
                round(topic.longest as f64 / 1e6)
            );
            rule(format!("gap: {}ms", longest.ceil()), from);
            let from = format!(
                "the latest of {}: {} s",
                counted(topic.bags as u64, "bag"),
                round(topic.first as f64 / 1e9)
            );
            rule(
                format!("first: {}s", (topic.first as f64 / 1e9 * 2.0 + 1.0).ceil()),
                from,
            );
        }
        for (line, from) in topic.content.of_contents() {
            rule(line, from);
        }
        if topic.stamped < topic.messages {
            return;
        }
        for (line, from) in topic.content.of_stamps() {
            rule(line, from);
        }
        let (earliest, latest) = (topic.latencies.quantile(0.001), topic.latencies.quantile(0.999));
        if latest.abs() < 3.6e12 {
            let max = (latest * 2.0).max(0.0) / 1e6 + 10.0;
            let from = format!(
                "{} to {} ms for 99.8 % of {messages}",
                round(earliest / 1e6),
                round(latest / 1e6)
            );
            rule(format!("latency: {{max: {}ms, tolerance: 1%}}", max.ceil()), from);
        }
        if !topic.goes_back {
            rule("stamps: monotonic".to_owned(), messages.clone());
        }
        if (1..=NAMES_MAX).contains(&topic.frames.len()) {
            let names: Vec<String> = topic.frames.iter().map(|name| quoted(name)).collect();
            rule(format!("frame: [{}]", names.join(", ")), messages);
        }
    }
}

fn plural_messages(count: u64) -> String {
    match count {
        1 => "1 message".to_owned(),
        count => format!("{} messages", format_count(count)),
    }
}

/// A text in quotes: JSON's are YAML's.
pub(super) fn quoted(text: &str) -> String {
    serde_json::Value::from(one_line(text).as_ref()).to_string()
}

/// Three digits.
fn round(value: f64) -> f64 {
    if value == 0.0 {
        return 0.0;
    }
    let factor = 10_f64.powi(2 - value.abs().log10().floor() as i32);
    (value * factor).round() / factor
}
