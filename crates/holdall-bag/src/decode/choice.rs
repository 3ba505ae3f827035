//! Selects messages from several bags: by topic, time, number, and the values of their fields.

use super::{
    Decoder, Decoders, Fields,
    stamped::{ByHeader, HeaderStamps, Merged, Selected, Stream, TimeBase},
};
use crate::reader::{
    BagMessage, BagSet, MessageFilter, Messages, Moment, PlacementError, ReadError, WholePattern,
};
use holdall_model::{
    dynamic::{
        DecodeError,
        expression::{ExpressionError, Predicate, split_topic},
    },
    selection::parse_pattern,
    text::first_of,
    time::Timestamp,
};
use regex::Regex;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

/// A condition on the messages of one topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// The topic.
    pub topic: String,
    /// The expression.
    pub expression: String,
}

impl Question {
    /// Parses `/topic: expression`.
    ///
    /// # Errors
    /// Text of any other form.
    pub fn parse(text: &str) -> Result<Self, ExpressionError> {
        let (topic, expression) = split_topic(text)?;
        let slash = if topic.starts_with('/') { "" } else { "/" };
        Ok(Self {
            topic: format!("{slash}{topic}"),
            expression: expression.to_owned(),
        })
    }
}

/// The selected messages.
#[derive(Clone, Debug, Default)]
pub struct MessageChoice {
    /// Topics by name, in addition to those that `regex` matches.
    pub topics: Vec<String>,
    /// Topics whose name contains this pattern.
    pub regex: Option<Regex>,
    /// Excludes these topics.
    pub exclude_topics: Vec<String>,
    /// Excludes topics whose name contains this pattern.
    pub exclude_regex: Option<Regex>,
    /// Only topics of these types; empty for all.
    pub types: Vec<String>,
    /// Excludes messages stamped earlier.
    pub from: Option<Timestamp>,
    /// Excludes messages stamped later.
    pub until: Option<Timestamp>,
    /// Excludes this much from the start.
    pub start_offset: Duration,
    /// Excludes messages later than this after the first selected one.
    pub duration: Option<Duration>,
    /// The clock that orders and bounds the messages. With `HeaderStamp`, topics without one are left out, unless they are named.
    pub time: TimeBase,
    /// Topics that have another clock than `time`.
    pub time_of: BTreeMap<String, TimeBase>,
    /// Conditions: of a topic that has some, only messages that meet all of them; other topics are not affected.
    pub questions: Vec<Question>,
    /// As [`MessageFilter::verified`].
    pub verified: bool,
}

/// Why messages cannot be selected.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChoiceError {
    /// A bag cannot be read.
    #[error(transparent)]
    Bag(#[from] ReadError),
    /// A named topic is not in the bags.
    #[error("there is no topic {topic} in the bag; its topics are {known}")]
    UnknownTopic {
        /// The name that was given.
        topic: String,
        /// The bag's topics.
        known: String,
    },
    /// A time at which the bags have no messages.
    #[error(transparent)]
    Outside(#[from] PlacementError),
    /// No message is selected.
    #[error("nothing is selected: {reason}")]
    Nothing {
        /// The cause, and what to enter instead.
        reason: String,
    },
    /// A condition that does not fit its topic's type.
    #[error("{topic}: {source}")]
    Question {
        /// The topic.
        topic: String,
        /// The cause.
        source: ExpressionError,
    },
    /// A condition on a topic that cannot be decoded.
    #[error("{topic}: cannot query its fields: {reason}")]
    Opaque {
        /// The topic.
        topic: String,
        /// The cause.
        reason: String,
    },
    /// A topic whose messages would be ordered by `header.stamp`, but have none.
    #[error("{topic}: its messages cannot be ordered by header.stamp: {reason}")]
    NoStamp {
        /// The topic.
        topic: String,
        /// The cause.
        reason: String,
    },
    /// A message whose `header.stamp` cannot be read.
    #[error("{topic}, message of {log_time} ns: {reason}")]
    Stamp {
        /// The topic.
        topic: String,
        /// Reception time.
        log_time: i64,
        /// The cause.
        reason: String,
    },
    /// A message whose fields cannot be read.
    #[error("{topic}, message of {log_time} ns: {source}")]
    Decode {
        /// The topic.
        topic: String,
        /// Reception time.
        log_time: i64,
        /// The cause.
        source: DecodeError,
    },
}

/// Topics that a sentence lists; a bag may have thousands.
const LISTED_MAX: usize = 20;

/// Letters of a name for each one that differs.
const LETTERS_PER_FAULT: usize = 4;

/// Names for a sentence, each once, in alphabetical order.
pub fn listed<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let names: BTreeSet<&str> = names.into_iter().collect();
    first_of(names, LISTED_MAX)
}

/// The topics that there are, the one first that was meant instead of `wanted`.
pub fn known_topics<'a>(wanted: &str, names: impl IntoIterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.into_iter().collect();
    let all = listed(names.iter().copied());
    match meant(wanted, &names) {
        Some(meant) => format!("{all}; did you mean {meant}?"),
        None => all,
    }
}

/// The name that a wrong one is most likely meant for: one that begins or ends with it, else one that differs in few letters.
fn meant<'a>(wanted: &str, names: &[&'a str]) -> Option<&'a str> {
    let plain = wanted.trim_matches('/');
    let is_part = |name: &&&str| {
        let name = name.trim_matches('/');
        !plain.is_empty() && (name.starts_with(plain) || name.ends_with(plain) || plain.ends_with(name))
    };
    let distance = |name: &&str| strsim::osa_distance(name, wanted);
    let near = names
        .iter()
        .filter(|name| distance(name) * LETTERS_PER_FAULT <= wanted.len());
    let part = names.iter().filter(is_part).min_by_key(|name| name.len());
    near.min_by_key(|name| distance(name)).or(part).copied()
}

/// Why a choice has none of these topics, and what to enter instead: a pattern that must match the whole name
/// often matches a part of one.
pub fn why_no_topic(names: &[&str], pattern: Option<&str>) -> String {
    let is_part = |pattern: &&str| {
        let (part, whole) = (parse_pattern(pattern), WholePattern::new(pattern));
        // A topic that the pattern matches whole was excluded otherwise.
        part.is_ok_and(|part| names.iter().any(|name| part.is_match(name)))
            && whole.is_ok_and(|whole| !names.iter().any(|name| whole.matches(name)))
    };
    match pattern.filter(is_part) {
        Some(pattern) => {
            let part = if pattern.contains('|') {
                format!("({pattern})")
            } else {
                pattern.to_owned()
            };
            format!(
                "no topic is named {pattern:?}; the pattern must match the whole name, try {:?}",
                format!(".*{part}.*")
            )
        }
        None => format!(
            "none of the topics matches; there are {}",
            listed(names.iter().copied())
        ),
    }
}

impl MessageChoice {
    /// Bounds the choice by times as a user enters them. The stamps in headers may be any: only other clocks have a span.
    ///
    /// # Errors
    /// A time at which the bags have no messages, a name of no marker.
    pub fn bound(
        &mut self,
        bags: &BagSet,
        start: Option<Moment>,
        end: Option<Moment>,
    ) -> Result<(), PlacementError> {
        let span = bags.log_times();
        let by_header = self.time == TimeBase::HeaderStamp;
        let settle = |moment: Option<Moment>, what| match moment {
            Some(moment) if by_header => {
                let first = span.map(|(first, _)| first);
                moment.resolve(first, || bags.markers(), what).map(Some)
            }
            Some(moment) => moment.within(span, || bags.markers(), what).map(Some),
            None => Ok(None),
        };
        self.from = self.from.max(settle(start, "start")?);
        self.until = self.until.into_iter().chain(settle(end, "end")?).min();
        Ok(())
    }

    /// Whether messages of a topic are selected, before conditions.
    pub fn takes_topic(&self, name: &str, type_name: &str) -> bool {
        let matches = |regex: &Option<Regex>| regex.as_ref().is_some_and(|regex| regex.is_match(name));
        if self.exclude_topics.iter().any(|topic| topic == name) || matches(&self.exclude_regex) {
            return false;
        }
        if !self.types.is_empty() && !self.types.iter().any(|wanted| wanted == type_name) {
            return false;
        }
        let everything = self.topics.is_empty() && self.regex.is_none();
        everything || self.topics.iter().any(|topic| topic == name) || matches(&self.regex)
    }

    /// The selected messages in order. Conditions are first checked against the topics' types.
    ///
    /// # Errors
    /// Unknown topics, a choice without any topic, conditions that do not fit; named topics without the `header.stamp` that orders them, or more
    /// topics with one than are merged. The iterator returns read errors and continues after them if it can.
    pub fn messages(&self, bags: &BagSet, decoders: &mut Decoders) -> Result<Stream, ChoiceError> {
        let wanted = self.wanted(bags)?;
        if self.is_by_reader() {
            return self.of_reader(bags, decoders, wanted);
        }
        let (stamps, wanted) = self.stamped(bags, decoders, wanted)?;
        if wanted.len() > MERGED_MAX {
            return Err(ChoiceError::Nothing {
                reason: format!(
                    "{} topics are more than the {MERGED_MAX} that are ordered by header.stamp; name some",
                    wanted.len()
                ),
            });
        }
        let mut streams = Vec::new();
        for topic in wanted {
            let of_topic = self.of_topics(bags, decoders, [topic.clone()].into())?;
            streams.push(match self.time_of(&topic) {
                TimeBase::HeaderStamp => Box::new(ByHeader::new(of_topic, stamps.clone())) as Stream,
                _ => of_topic,
            });
        }
        Ok(Box::new(self.bounded(Merged::new(streams))))
    }

    /// As [`MessageChoice::messages`], but where messages are ordered by their `header.stamp`, those of different topics may come in any order:
    /// the bags are read once, whatever the number of topics.
    ///
    /// # Errors
    /// As [`MessageChoice::messages`].
    pub fn messages_of_each(&self, bags: &BagSet, decoders: &mut Decoders) -> Result<Stream, ChoiceError> {
        let is_single = self.time == TimeBase::HeaderStamp && self.time_of.is_empty();
        if !is_single || !self.start_offset.is_zero() || self.duration.is_some() {
            return self.messages(bags, decoders);
        }
        let wanted = self.wanted(bags)?;
        let (stamps, wanted) = self.stamped(bags, decoders, wanted)?;
        let received = self.of_topics(bags, decoders, wanted)?;
        Ok(Box::new(self.bounded(ByHeader::new(received, stamps))))
    }

    /// Whether the reader's own order is already the right one.
    fn is_by_reader(&self) -> bool {
        self.time != TimeBase::HeaderStamp && self.time_of.is_empty()
    }

    fn time_of(&self, topic: &str) -> TimeBase {
        self.time_of.get(topic).copied().unwrap_or(self.time)
    }

    /// The topics that are selected.
    fn wanted(&self, bags: &BagSet) -> Result<BTreeSet<String>, ChoiceError> {
        let topics = bags.topics();
        let names: Vec<&str> = topics.iter().map(|topic| topic.name.as_str()).collect();
        let asked = self.questions.iter().map(|question| &question.topic);
        for named in self.topics.iter().chain(asked) {
            if !topics.iter().any(|topic| topic.name == *named) {
                return Err(ChoiceError::UnknownTopic {
                    topic: named.clone(),
                    known: known_topics(named, names.iter().copied()),
                });
            }
        }
        let wanted: BTreeSet<String> = topics
            .iter()
            .filter(|topic| self.takes_topic(&topic.name, &topic.type_name))
            .map(|topic| topic.name.clone())
            .collect();
        if wanted.is_empty() && !names.is_empty() {
            return Err(ChoiceError::Nothing {
                reason: why_no_topic(&names, None),
            });
        }
        Ok(wanted)
    }

    /// The header stamps of the topics that have them as their clock, and the topics without those that lack them.
    fn stamped(
        &self,
        bags: &BagSet,
        decoders: &mut Decoders,
        mut wanted: BTreeSet<String>,
    ) -> Result<(HeaderStamps, BTreeSet<String>), ChoiceError> {
        let mut stamps = HeaderStamps::default();
        let mut lacking = Vec::new();
        for topic in bags.topics() {
            let is_stamped = self.time_of(&topic.name) == TimeBase::HeaderStamp;
            if !is_stamped || !wanted.contains(&topic.name) {
                continue;
            }
            let Err(reason) = stamps.add(&topic, decoders)? else {
                continue;
            };
            if self.topics.contains(&topic.name) {
                let topic = topic.name;
                return Err(ChoiceError::NoStamp { topic, reason });
            }
            wanted.remove(&topic.name);
            lacking.push(topic.name);
        }
        if wanted.is_empty() && !lacking.is_empty() {
            return Err(ChoiceError::Nothing {
                reason: "no chosen topic has messages with a header.stamp".to_owned(),
            });
        }
        if !lacking.is_empty() {
            let names = listed(lacking.iter().map(String::as_str));
            decoders.note(format!(
                "{names}: left out, since their messages have no header.stamp"
            ));
        }
        Ok((stamps, wanted))
    }

    fn of_reader(
        &self,
        bags: &BagSet,
        decoders: &mut Decoders,
        wanted: BTreeSet<String>,
    ) -> Result<Stream, ChoiceError> {
        let predicates = self.predicates(bags, decoders)?;
        let messages = self.in_time(bags, wanted);
        Ok(Box::new(self.filtered(messages, predicates)))
    }

    /// The selected messages of some topics in the reader's order, without bounds of time.
    fn of_topics(
        &self,
        bags: &BagSet,
        decoders: &mut Decoders,
        topics: BTreeSet<String>,
    ) -> Result<Stream, ChoiceError> {
        let predicates = self.predicates(bags, decoders)?;
        let time = topics.first().map_or(self.time, |topic| self.time_of(topic));
        let messages = bags.messages(&MessageFilter {
            topics: Some(Arc::new(topics)),
            order: time.reader_order(),
            verified: self.verified,
            ..MessageFilter::default()
        });
        Ok(Box::new(self.filtered(messages, predicates)))
    }

    fn predicates(&self, bags: &BagSet, decoders: &mut Decoders) -> Result<Predicates, ChoiceError> {
        let topics = bags.topics();
        let mut predicates = Predicates::new();
        for question in &self.questions {
            for topic in topics.iter().filter(|topic| topic.name == question.topic) {
                let key = (topic.name.clone(), topic.type_name.clone());
                let predicate = compile(question, decoders.find(topic)?)?;
                predicates.entry(key).or_default().push(predicate);
            }
        }
        Ok(predicates)
    }

    /// Those of the messages that have a chosen type and meet all conditions.
    fn filtered(
        &self,
        messages: Messages,
        predicates: Predicates,
    ) -> impl Iterator<Item = Selected> + Send + use<> {
        let types = self.types.clone();
        messages.filter_map(move |message| match message {
            Ok(message) => {
                let is_type = types.is_empty() || types.contains(&message.topic.type_name);
                match is_type.then(|| answer(&predicates, &message))? {
                    Ok(true) => Some(Ok(message)),
                    Ok(false) => None,
                    Err(error) => Some(Err(error)),
                }
            }
            Err(error) => Some(Err(error.into())),
        })
    }

    /// Those of the messages whose stamps are within the bounds.
    fn bounded<I: Iterator<Item = Selected>>(&self, messages: I) -> impl Iterator<Item = Selected> + use<I> {
        let choice = Self {
            from: self.from,
            until: self.until,
            start_offset: self.start_offset,
            duration: self.duration,
            ..Self::default()
        };
        let mut bounds = None;
        messages.filter(move |message| {
            let Ok(message) = message else { return true };
            let (from, until) = *bounds.get_or_insert_with(|| choice.bounds(Some(message.stamp)));
            from.is_none_or(|from| message.stamp >= from) && until.is_none_or(|until| message.stamp <= until)
        })
    }

    /// The first and the last time, for bags whose first message has this stamp.
    fn bounds(&self, first: Option<Timestamp>) -> (Option<Timestamp>, Option<Timestamp>) {
        let mut from = self.from;
        if !self.start_offset.is_zero()
            && let Some(first) = first
        {
            from = from.max(Some(first.saturating_add(self.start_offset)));
        }
        let mut until = self.until;
        if let (Some(duration), Some(begin)) = (self.duration, from.or(first)) {
            let end = begin.saturating_add(duration);
            until = Some(until.map_or(end, |until| until.min(end)));
        }
        (from, until)
    }

    fn in_time(&self, bags: &BagSet, topics: BTreeSet<String>) -> Messages {
        let (from, until) = self.bounds(bags.log_times().map(|(first, _)| first));
        bags.messages(&MessageFilter {
            from,
            until,
            topics: Some(Arc::new(topics)),
            publishers: None,
            order: self.time.reader_order(),
            verified: self.verified,
        })
    }
}

/// The conditions on topics, by name and type.
type Predicates = BTreeMap<(String, String), Vec<(Fields, Predicate)>>;

/// Topics that are merged by their stamps: each is read on its own.
const MERGED_MAX: usize = 64;

fn compile(question: &Question, decoder: Decoder) -> Result<(Fields, Predicate), ChoiceError> {
    let topic = question.topic.clone();
    let fields = match decoder.fields() {
        Ok(fields) => fields,
        Err(reason) => return Err(ChoiceError::Opaque { topic, reason }),
    };
    match Predicate::compile(Arc::clone(fields.plan()), &question.expression) {
        Ok(predicate) => Ok((fields, predicate)),
        Err(source) => Err(ChoiceError::Question { topic, source }),
    }
}

/// Whether a message meets all conditions on its topic.
fn answer(predicates: &Predicates, message: &BagMessage) -> Result<bool, ChoiceError> {
    if predicates.is_empty() {
        return Ok(true);
    }
    let topic = &message.topic;
    let key = (topic.name.clone(), topic.type_name.clone());
    for (fields, predicate) in predicates.get(&key).into_iter().flatten() {
        let holds = fields
            .payload(&message.payload)
            .and_then(|payload| predicate.matches(&payload))
            .map_err(|source| ChoiceError::Decode {
                topic: topic.name.clone(),
                log_time: message.log_time.as_nanos(),
                source,
            })?;
        if !holds {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_is_taken_by_any_alternative_of_a_pattern() {
        let pattern = |text: &str| Some(parse_pattern(text).expect("valid"));
        let taking = MessageChoice {
            regex: pattern("^/a$|/ab$"),
            ..MessageChoice::default()
        };
        assert!(taking.takes_topic("/a", "x/msg/Y") && taking.takes_topic("/ab", "x/msg/Y"));
        assert!(!taking.takes_topic("/abc", "x/msg/Y"));
        let leaving = MessageChoice {
            exclude_regex: pattern("b$"),
            ..MessageChoice::default()
        };
        assert!(!leaving.takes_topic("/ab", "x/msg/Y") && leaving.takes_topic("/abc", "x/msg/Y"));
    }

    #[test]
    fn a_wrong_name_gets_the_one_that_was_meant() {
        let names = ["/imu/data", "/camera/image_raw", "/tf"];
        for (wrong, right) in [
            ("/imu", "/imu/data"),
            ("/imu/dat", "/imu/data"),
            ("/image_raw", "/camera/image_raw"),
            ("/robot/tf", "/tf"),
        ] {
            assert_eq!(meant(wrong, &names), Some(right), "{wrong}");
        }
        assert_eq!(meant("/lidar", &names), None);
        assert!(known_topics("/imu", names).ends_with("; did you mean /imu/data?"));
    }

    #[test]
    fn only_a_pattern_that_matches_no_whole_name_is_blamed() {
        let names = ["/camera", "/imu"];
        assert!(why_no_topic(&names, Some("cam")).contains("try \".*cam.*\""));
        assert!(why_no_topic(&names, Some("cam|lidar")).contains("try \".*(cam|lidar).*\""));
        for excluded_otherwise in [Some("/cam.*"), Some("lidar"), None] {
            let text = why_no_topic(&names, excluded_otherwise);
            assert_eq!(text, "none of the topics matches; there are /camera, /imu");
        }
    }
}
