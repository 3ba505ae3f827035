//! The alarms of a recording: which are active, which are over, and what of them is not passed on yet.

use super::{Alarm, AlarmEdge, AlarmKind};
use crate::time::Timestamp;
use serde::{Serialize, Serializer};
use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

/// Alarms that are over and still named; further ones are counted.
const ENDED_MAX: usize = 100;

/// Alarms that are active at the same time; further ones are counted, and neither their beginning nor their end is passed on.
const ACTIVE_MAX: usize = 1000;

/// The alarms of a recording.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AlarmStatus {
    /// The active ones, in the order of their beginnings.
    pub active: Vec<Alarm>,
    /// The last ones that are over, at most 100.
    pub ended: Vec<Alarm>,
    /// How many have begun, by kind.
    pub begun: BTreeMap<AlarmKind, u64>,
    /// What is watched on request.
    pub watched: Vec<AlarmWatchStatus>,
}

impl AlarmStatus {
    /// How many have begun.
    pub fn count(&self) -> u64 {
        self.begun.values().sum()
    }

    /// The active ones of some kinds.
    pub fn active_of<'a>(&'a self, kinds: &'a [AlarmKind]) -> impl Iterator<Item = &'a Alarm> {
        self.active.iter().filter(|alarm| kinds.contains(&alarm.kind))
    }
}

/// A topic that is watched on request.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AlarmWatchStatus {
    /// As it was written.
    #[serde(rename = "alarm")]
    pub text: String,
    /// Full name of the topic.
    pub topic: String,
    /// The topic is recorded.
    #[serde(rename = "topic_recorded")]
    pub is_topic_known: bool,
    /// Time since its last message; `None` before the first.
    #[serde(rename = "age_s", serialize_with = "as_seconds")]
    pub age: Option<Duration>,
}

fn as_seconds<S: Serializer>(span: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    span.map(|span| span.as_secs_f64()).serialize(serializer)
}

/// What an alarm is about.
pub struct AlarmSubject<'a> {
    kind: AlarmKind,
    topic: Option<&'a str>,
    /// Its text, where a topic can have several alarms of a kind.
    expression: Option<&'a str>,
    /// Its beginning has another line in the log.
    is_logged: bool,
}

impl<'a> AlarmSubject<'a> {
    /// A topic.
    pub fn of_topic(kind: AlarmKind, topic: &'a str) -> Self {
        Self {
            topic: Some(topic),
            ..Self::of_recording(kind)
        }
    }

    /// The whole recording.
    pub fn of_recording(kind: AlarmKind) -> Self {
        Self {
            kind,
            topic: None,
            expression: None,
            is_logged: false,
        }
    }

    /// An expression about a topic.
    pub fn of_expression(kind: AlarmKind, topic: &'a str, expression: &'a str) -> Self {
        Self {
            expression: Some(expression),
            ..Self::of_topic(kind, topic)
        }
    }

    /// A rule of a contract, whose alarm has this text.
    pub fn of_rule(topic: Option<&'a str>, text: &'a str) -> Self {
        Self {
            topic,
            expression: Some(text),
            ..Self::of_recording(AlarmKind::Contract)
        }
    }

    /// The same, which has another line in the log.
    pub fn logged(self) -> Self {
        Self {
            is_logged: true,
            ..self
        }
    }
}

/// The alarms as they begin and end.
#[derive(Debug, Default)]
pub struct AlarmList {
    active: Vec<Alarm>,
    ended: VecDeque<Alarm>,
    begun: BTreeMap<AlarmKind, u64>,
    /// Each with whether the log has another line about it.
    news: Vec<(Alarm, bool)>,
}

impl AlarmList {
    /// Takes note of a beginning, or of an end, which needs no text.
    pub fn note(&mut self, edge: AlarmEdge, subject: &AlarmSubject<'_>, text: String, time: Timestamp) {
        match edge {
            AlarmEdge::Begin => self.begin(subject, text, time),
            AlarmEdge::End => self.end(subject, time),
        }
    }

    fn begin(&mut self, subject: &AlarmSubject<'_>, text: String, time: Timestamp) {
        let alarm = Alarm {
            kind: subject.kind,
            topic: subject.topic.map(str::to_owned),
            text,
            since: time,
            until: None,
        };
        *self.begun.entry(alarm.kind).or_default() += 1;
        // Those of the whole recording are few, and matter most.
        if self.active.len() < ACTIVE_MAX || subject.topic.is_none() {
            self.news.push((alarm.clone(), subject.is_logged));
            self.active.push(alarm);
        }
    }

    fn end(&mut self, subject: &AlarmSubject<'_>, time: Timestamp) {
        let is_it = |alarm: &Alarm| {
            let is_expression = subject.expression.is_none_or(|text| text == alarm.text);
            alarm.kind == subject.kind && alarm.topic.as_deref() == subject.topic && is_expression
        };
        let Some(index) = self.active.iter().position(is_it) else {
            return;
        };
        let mut alarm = self.active.remove(index);
        alarm.until = Some(time);
        self.news.push((alarm.clone(), false));
        if self.ended.len() == ENDED_MAX {
            self.ended.pop_front();
        }
        self.ended.push_back(alarm);
    }

    /// Alarms that began or ended since the last call, each with whether its beginning has another line in the log.
    pub fn take_news(&mut self) -> Vec<(Alarm, bool)> {
        std::mem::take(&mut self.news)
    }

    /// All of them.
    pub fn status(&self, watched: Vec<AlarmWatchStatus>) -> AlarmStatus {
        AlarmStatus {
            active: self.active.clone(),
            ended: self.ended.iter().cloned().collect(),
            begun: self.begun.clone(),
            watched,
        }
    }
}

/// With the number of all that have begun.
impl Serialize for AlarmStatus {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Document<'a> {
            count: u64,
            begun: &'a BTreeMap<AlarmKind, u64>,
            active: &'a [Alarm],
            ended: &'a [Alarm],
            watched: &'a [AlarmWatchStatus],
        }
        let document = Document {
            count: self.count(),
            begun: &self.begun,
            active: &self.active,
            ended: &self.ended,
            watched: &self.watched,
        };
        document.serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alarm_of_the_disk_has_a_place_beside_any_number_of_topics() {
        let mut list = AlarmList::default();
        let time = Timestamp::from_nanos(1);
        for number in 0..2 * ACTIVE_MAX {
            let topic = format!("/topic{number}");
            let subject = AlarmSubject::of_topic(AlarmKind::Loss, &topic);
            list.note(AlarmEdge::Begin, &subject, String::new(), time);
        }
        let disk = AlarmSubject::of_recording(AlarmKind::Disk);
        list.note(AlarmEdge::Begin, &disk, "full".to_owned(), time);
        let news = list.take_news();
        assert_eq!(news.len(), ACTIVE_MAX + 1);
        assert_eq!(news.last().map(|(alarm, _)| alarm.text.as_str()), Some("full"));
        list.note(AlarmEdge::End, &disk, String::new(), time);
        assert_eq!(list.take_news().len(), 1);
    }
}
