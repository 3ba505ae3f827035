//! Selects messages from several bags: by topic, time, number, and the values of their fields.

use super::{Decoder, Decoders};
use crate::reader::{BagMessage, BagSet, MessageFilter, MessageOrder, Messages, ReadError, WholePattern};
use holdall_model::{
    dynamic::{
        DecodeError,
        expression::{ExpressionError, Predicate, split_topic},
    },
    selection::parse_pattern,
    time::Timestamp,
};
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
    /// Topics whose whole name matches.
    pub regex: Option<WholePattern>,
    /// Excludes these topics.
    pub exclude_topics: Vec<String>,
    /// Excludes topics whose whole name matches.
    pub exclude_regex: Option<WholePattern>,
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
    /// The stamp that orders and bounds the messages.
    pub order: MessageOrder,
    /// Of a topic with conditions, only messages that meet all of them; other topics are not affected.
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

/// Names for a sentence, each once, in alphabetical order.
pub(crate) fn listed<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let names: BTreeSet<&str> = names.into_iter().collect();
    let first: Vec<&str> = names.iter().take(LISTED_MAX).copied().collect();
    let more = match names.len().saturating_sub(LISTED_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("{}{more}", first.join(", "))
}

/// Why a choice has none of these topics, and what to enter instead: a pattern that must match the whole name
/// often matches a part of one.
pub(crate) fn why_no_topic(names: &[&str], pattern: Option<&str>) -> String {
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
    /// Whether messages of a topic are selected, before conditions.
    pub fn takes_topic(&self, name: &str, type_name: &str) -> bool {
        let matches = |regex: &Option<WholePattern>| regex.as_ref().is_some_and(|regex| regex.matches(name));
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
    /// Unknown topics, a choice without any topic, conditions that do not fit. The iterator returns read errors and continues after them
    /// if it can.
    pub fn messages(
        &self,
        bags: &BagSet,
        decoders: &mut Decoders,
    ) -> Result<impl Iterator<Item = Result<BagMessage, ChoiceError>> + use<>, ChoiceError> {
        let topics = bags.topics();
        let names: Vec<&str> = topics.iter().map(|topic| topic.name.as_str()).collect();
        let asked = self.questions.iter().map(|question| &question.topic);
        for named in self.topics.iter().chain(asked) {
            if !topics.iter().any(|topic| topic.name == *named) {
                return Err(ChoiceError::UnknownTopic {
                    topic: named.clone(),
                    known: listed(names.iter().copied()),
                });
            }
        }
        let mut predicates: BTreeMap<(String, String), Vec<Predicate>> = BTreeMap::new();
        for question in &self.questions {
            for topic in topics.iter().filter(|topic| topic.name == question.topic) {
                let key = (topic.name.clone(), topic.type_name.clone());
                let predicate = compile(question, decoders.find(topic)?)?;
                predicates.entry(key).or_default().push(predicate);
            }
        }
        let wanted: BTreeSet<String> = topics
            .iter()
            .filter(|topic| self.takes_topic(&topic.name, &topic.type_name))
            .map(|topic| topic.name.clone())
            .collect();
        if wanted.is_empty() && !names.is_empty() {
            let pattern = self.regex.as_ref().map(WholePattern::as_str);
            return Err(ChoiceError::Nothing {
                reason: why_no_topic(&names, pattern),
            });
        }
        let types = self.types.clone();
        let messages = self.in_time(bags, wanted);
        Ok(messages.filter_map(move |message| match message {
            Ok(message) => {
                let is_type = types.is_empty() || types.contains(&message.topic.type_name);
                match is_type.then(|| answer(&predicates, &message))? {
                    Ok(true) => Some(Ok(message)),
                    Ok(false) => None,
                    Err(error) => Some(Err(error)),
                }
            }
            Err(error) => Some(Err(error.into())),
        }))
    }

    fn in_time(&self, bags: &BagSet, topics: BTreeSet<String>) -> Messages {
        let first = bags.log_times().map(|(first, _)| first);
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
        bags.messages(&MessageFilter {
            from,
            until,
            topics: Some(Arc::new(topics)),
            publishers: None,
            order: self.order,
            verified: self.verified,
        })
    }
}

fn compile(question: &Question, decoder: Decoder) -> Result<Predicate, ChoiceError> {
    let topic = question.topic.clone();
    match decoder {
        Decoder::Cdr(plan) => Predicate::compile(plan, &question.expression)
            .map_err(|source| ChoiceError::Question { topic, source }),
        Decoder::Json => Err(ChoiceError::Opaque {
            topic,
            reason: "its messages are JSON texts".to_owned(),
        }),
        Decoder::Opaque { reason } => Err(ChoiceError::Opaque { topic, reason }),
    }
}

/// Whether a message meets all conditions on its topic.
fn answer(
    predicates: &BTreeMap<(String, String), Vec<Predicate>>,
    message: &BagMessage,
) -> Result<bool, ChoiceError> {
    if predicates.is_empty() {
        return Ok(true);
    }
    let topic = &message.topic;
    let key = (topic.name.clone(), topic.type_name.clone());
    for predicate in predicates.get(&key).into_iter().flatten() {
        let holds = predicate
            .matches(&message.payload)
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
        let pattern = |text: &str| Some(WholePattern::new(text).expect("valid"));
        let taking = MessageChoice {
            regex: pattern("/a|/ab"),
            ..MessageChoice::default()
        };
        assert!(taking.takes_topic("/a", "x/msg/Y") && taking.takes_topic("/ab", "x/msg/Y"));
        assert!(!taking.takes_topic("/abc", "x/msg/Y"));
        let leaving = MessageChoice {
            exclude_regex: pattern("/a|/ab"),
            ..MessageChoice::default()
        };
        assert!(!leaving.takes_topic("/ab", "x/msg/Y") && leaving.takes_topic("/abc", "x/msg/Y"));
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
