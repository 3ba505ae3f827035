//! Selects which messages of the inputs are in an output: topics, times, rates.

use super::ToolError;
use holdall_bag::{
    decode::{ChoiceError, Question, known_topics, why_no_topic},
    reader::{BagSet, Moment, PublisherChoice},
};
use holdall_model::{
    selection::{Selection, TopicFilter},
    time::Timestamp,
    topic::{NodeName, TopicInfo},
};
use std::{
    collections::{BTreeMap, HashMap},
    path::Path,
    time::Duration,
};

/// The selected messages.
#[derive(Clone, Debug, Default)]
pub struct Choice {
    /// The topics; a selection without any topic selects all, including hidden ones, except those that it
    /// excludes.
    pub selection: Selection,
    /// Only messages with this log time or later; times outside of the inputs' messages are refused.
    pub start: Option<Moment>,
    /// Only messages with this log time or earlier; as `start`.
    pub end: Option<Moment>,
    /// At most this many messages per second of log time, by topic; the empty name applies to all others.
    pub rates: BTreeMap<String, f64>,
    /// Only messages of these publishers: nodes, prefixes of identifiers, hosts; empty for all.
    pub publishers: Vec<String>,
    /// Conditions on the fields of these topics' messages.
    pub questions: Vec<Question>,
    /// Allows a named topic that is not in the inputs, a time outside of them, and an output without messages, with a warning: rosbag2's files of
    /// outputs may list several, and some of these get nothing.
    pub is_lenient: bool,
}

impl Choice {
    /// Compiles the choice.
    pub(super) fn compile(&self) -> Result<Chooser, ToolError> {
        let mut selection = self.selection.clone();
        if selection.is_empty() {
            (selection.all_topics, selection.all_services) = (true, true);
            selection.include_hidden_topics = true;
        }
        // A hidden topic that is named is selected.
        let node = NodeName {
            namespace: "/".to_owned(),
            name: "holdall".to_owned(),
        };
        Ok(Chooser {
            topics: selection.compile(&node)?,
            periods: self
                .rates
                .iter()
                .filter(|(_, rate)| **rate > 0.0)
                .map(|(topic, rate)| (topic.clone(), Duration::from_secs_f64(1.0 / rate)))
                .collect(),
            last: HashMap::new(),
            publishers: None,
        })
    }

    /// True if whole chunks can be selected by their indexes.
    pub(super) fn is_by_index(&self) -> bool {
        self.rates.is_empty() && self.questions.is_empty()
    }
}

/// A compiled choice.
pub(super) struct Chooser {
    topics: TopicFilter,
    periods: BTreeMap<String, Duration>,
    /// `None` for all.
    publishers: Option<PublisherChoice>,
    /// Log time of the last selected message of each topic with a rate.
    last: HashMap<String, Timestamp>,
}

impl Chooser {
    /// Resolves the selected publishers among those of the inputs.
    pub fn among(mut self, inputs: &BagSet, choice: &Choice) -> Result<Self, ToolError> {
        if !choice.publishers.is_empty() {
            self.publishers = Some(PublisherChoice::resolve(inputs, &choice.publishers)?);
        }
        Ok(self)
    }

    /// The selected publishers; `None` for all.
    pub const fn publishers(&self) -> Option<&PublisherChoice> {
        self.publishers.as_ref()
    }

    /// Whether a topic is selected, at least in part.
    pub fn takes_topic(&self, name: &str, type_name: &str) -> bool {
        let is_theirs = self.publishers.as_ref().is_none_or(|it| it.takes_topic(name));
        is_theirs && self.topics.decide(name, type_name, true, true)
    }

    /// Whether the messages of a storage file's channel are selected.
    pub(crate) fn takes_channel(&self, topic: &TopicInfo) -> bool {
        let publishers = self.publishers.as_ref();
        publishers.is_none_or(|publishers| publishers.takes(topic.publisher.as_deref()))
            && self.takes_topic(&topic.name, &topic.type_name)
    }

    /// Whether a message of a selected topic is selected by its topic's rate.
    pub(crate) fn takes_now(&mut self, topic: &str, log_time: Timestamp) -> bool {
        let Some(period) = self.periods.get(topic).or_else(|| self.periods.get("")) else {
            return true;
        };
        match self.last.get_mut(topic) {
            Some(last) if log_time < last.saturating_add(*period) && log_time >= *last => false,
            Some(last) => {
                *last = log_time;
                true
            }
            None => {
                self.last.insert(topic.to_owned(), log_time);
                true
            }
        }
    }
}

/// Refuses a choice with a topic that the inputs do not have, and one without any of their topics.
pub(super) fn check_topics(set: &BagSet, choice: &Choice, chooser: &Chooser) -> Result<(), ToolError> {
    let topics = set.topics();
    let names: Vec<&str> = topics.iter().map(|topic| topic.name.as_str()).collect();
    for named in &choice.selection.topics {
        if names.contains(&named.as_str()) {
            continue;
        }
        if !choice.is_lenient {
            return Err(ToolError::Choice(ChoiceError::UnknownTopic {
                topic: named.clone(),
                known: known_topics(named, names),
            }));
        }
        tracing::warn!("there is no topic {named} in the inputs");
    }
    let is_taken = |topic: &TopicInfo| chooser.takes_topic(&topic.name, &topic.type_name);
    if choice.is_lenient || topics.is_empty() || topics.iter().any(is_taken) {
        return Ok(());
    }
    Err(ToolError::Choice(ChoiceError::Nothing {
        reason: why_no_topic(&names, None),
    }))
}

/// The log time that a moment names, inside the inputs' span unless the choice is lenient.
pub(super) fn settle(
    set: &BagSet,
    choice: &Choice,
    moment: &Moment,
    what: &'static str,
) -> Result<Timestamp, ToolError> {
    let span = set.log_times();
    if choice.is_lenient {
        let first = span.map(|(first, _)| first);
        return Ok(moment
            .resolve(first, || set.markers(), what)
            .map_err(ChoiceError::from)?);
    }
    Ok(moment
        .within(span, || set.markers(), what)
        .map_err(ChoiceError::from)?)
}

/// Refuses an output without messages when the inputs have some: a choice that leaves nothing is a mistake more
/// often than a request.
pub(super) fn check_result(
    set: &BagSet,
    choice: &Choice,
    directory: &Path,
    messages: u64,
) -> Result<(), ToolError> {
    let count: u64 = set.bags().iter().map(|bag| bag.metadata().message_count).sum();
    // With a choice of publishers the account alone is a result, for example of one that lost all its messages.
    if messages > 0 || count == 0 || !choice.publishers.is_empty() {
        return Ok(());
    }
    if choice.is_lenient {
        let place = directory.display();
        tracing::warn!("{place}: no message is selected for this bag");
        return Ok(());
    }
    Err(ToolError::Choice(ChoiceError::Nothing {
        reason: format!("none of {count} messages is selected; no bag was created"),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_keeps_the_first_message_of_each_period() {
        let choice = Choice {
            rates: [("/a".to_owned(), 10.0)].into(),
            ..Choice::default()
        };
        let mut chooser = choice.compile().unwrap();
        let taken: Vec<i64> = (0..50)
            .map(|n| n * 30)
            .filter(|ms| chooser.takes_now("/a", Timestamp::from_nanos(ms * 1_000_000)))
            .collect();
        assert_eq!(taken[..5], [0, 120, 240, 360, 480]);
        assert!((0..50).all(|n| chooser.takes_now("/b", Timestamp::from_nanos(n))));
    }

    #[test]
    fn an_empty_choice_selects_all_but_what_it_excludes() {
        let choice = Choice {
            selection: Selection {
                exclude_topics: vec!["/a".to_owned()],
                ..Selection::default()
            },
            ..Choice::default()
        };
        let chooser = choice.compile().unwrap();
        assert!(!chooser.takes_topic("/a", "std_msgs/msg/String"));
        assert!(chooser.takes_topic("/_hidden", "std_msgs/msg/String"));
        assert!(chooser.takes_topic("/add/_service_event", "x/srv/Add_Event"));
    }
}
