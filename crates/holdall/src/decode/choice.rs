//! Which messages of several bags are wanted: by topic, time, number, and what their fields say.

use super::{Decoder, Decoders};
use crate::{
    play::options::MessageOrder,
    reader::{BagError, BagMessage, BagSet, MessageFilter, Messages},
};
use holdall_model::{
    dynamic::{
        DecodeError,
        expression::{ExpressionError, Predicate, split_topic},
    },
    time::Timestamp,
};
use regex::Regex;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

/// A question about the messages of one topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// The topic.
    pub topic: String,
    /// The expression.
    pub expression: String,
}

impl Question {
    /// Reads `/topic: expression`.
    ///
    /// # Errors
    /// When it has not this form.
    pub fn parse(text: &str) -> Result<Self, ExpressionError> {
        let (topic, expression) = split_topic(text)?;
        let slash = if topic.starts_with('/') { "" } else { "/" };
        Ok(Self {
            topic: format!("{slash}{topic}"),
            expression: expression.to_owned(),
        })
    }
}

/// Which messages are wanted.
#[derive(Clone, Debug, Default)]
pub struct MessageChoice {
    /// These topics; with `regex`, those that match too.
    pub topics: Vec<String>,
    /// Topics whose whole name matches.
    pub regex: Option<Regex>,
    /// Not these topics.
    pub exclude_topics: Vec<String>,
    /// Not topics whose whole name matches.
    pub exclude_regex: Option<Regex>,
    /// Topics of these types only; empty for all.
    pub types: Vec<String>,
    /// Not those stamped before.
    pub from: Option<Timestamp>,
    /// Not those stamped after.
    pub until: Option<Timestamp>,
    /// Not those of the beginning.
    pub start_offset: Duration,
    /// Not those later than this after the first that is wanted.
    pub duration: Option<Duration>,
    /// Which stamp orders and bounds.
    pub order: MessageOrder,
    /// Topics with a question give only those messages for which it holds; other topics give all theirs.
    pub questions: Vec<Question>,
}

/// Why messages cannot be chosen.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChoiceError {
    /// A bag cannot be read.
    #[error(transparent)]
    Bag(#[from] BagError),
    /// A named topic is not in the bags.
    #[error("there is no topic {topic} in the bag; there are {known}")]
    UnknownTopic {
        /// As it was named.
        topic: String,
        /// Those that there are.
        known: String,
    },
    /// A question that cannot be asked of its topic.
    #[error("{topic}: {source}")]
    Question {
        /// The topic.
        topic: String,
        /// Why not.
        source: ExpressionError,
    },
    /// A question about a topic that is not decoded.
    #[error("{topic}: its fields cannot be asked about: {reason}")]
    Opaque {
        /// The topic.
        topic: String,
        /// Why not.
        reason: String,
    },
    /// A message whose fields cannot be read.
    #[error("{topic}, message of {log_time} ns: {source}")]
    Decode {
        /// The topic.
        topic: String,
        /// When it was received.
        log_time: i64,
        /// What is wrong with it.
        source: DecodeError,
    },
}

impl MessageChoice {
    /// Whether a topic's messages are wanted at all.
    pub fn takes_topic(&self, name: &str, type_name: &str) -> bool {
        let matches = |regex: &Option<Regex>| {
            regex.as_ref().is_some_and(|regex| {
                regex
                    .find_iter(name)
                    .any(|found| found.start() == 0 && found.end() == name.len())
            })
        };
        if self.exclude_topics.iter().any(|topic| topic == name) || matches(&self.exclude_regex) {
            return false;
        }
        if !self.types.is_empty() && !self.types.iter().any(|wanted| wanted == type_name) {
            return false;
        }
        let everything = self.topics.is_empty() && self.regex.is_none();
        everything || self.topics.iter().any(|topic| topic == name) || matches(&self.regex)
    }

    /// The wanted messages in order. Questions are checked against the topics' types first.
    ///
    /// # Errors
    /// Unknown topics, questions that do not fit; the iterator tells what cannot be read and goes on behind it where it can.
    pub fn messages(
        &self,
        bags: &BagSet,
        decoders: &mut Decoders,
    ) -> Result<impl Iterator<Item = Result<BagMessage, ChoiceError>> + use<>, ChoiceError> {
        let topics = bags.topics();
        let names = || {
            let known: BTreeSet<&str> = topics.iter().map(|topic| topic.name.as_str()).collect();
            known.into_iter().collect::<Vec<_>>().join(", ")
        };
        let asked = self.questions.iter().map(|question| &question.topic);
        for named in self.topics.iter().chain(asked) {
            if !topics.iter().any(|topic| topic.name == *named) {
                return Err(ChoiceError::UnknownTopic {
                    topic: named.clone(),
                    known: names(),
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

/// Whether all questions about a message's topic hold for it.
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
