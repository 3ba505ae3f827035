//! Triggers over the past: what a recorder that waits for events would have caught in a bag, and how that fits what people know.

use super::{Conditions, Fired, Intervals, Trigger};
use crate::{
    dynamic::TypePlan,
    marker::{Marker, MarkerNameError},
    message::PayloadRef,
    moment::{Moment, MomentError},
    time::Timestamp,
    time_line::{ClockJump, JUMP_NANOS_MIN},
    topic::{TopicId, TopicInfo},
};
use regex::Regex;
use serde::{Serialize, Serializer};
use serde_json::Value;
use std::{collections::VecDeque, sync::Arc, time::Duration};

/// Events of one bag, at most; further ones are counted.
pub const PAST_EVENTS_MAX: usize = 100_000;

/// An event in a bag.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PastEvent {
    /// When, on the clock of the messages.
    #[serde(rename = "time_ns")]
    pub time: Timestamp,
    /// The trigger's text.
    pub trigger: String,
    /// What the trigger looked at in the message, by name.
    #[serde(serialize_with = "as_object")]
    pub values: Vec<(String, Value)>,
    /// A recorder makes a marker of it: the last one of this trigger was a second before.
    #[serde(rename = "marker")]
    pub is_marked: bool,
    /// The span that a recorder keeps for it.
    #[serde(rename = "from_ns")]
    pub start: Timestamp,
    /// Its end.
    #[serde(rename = "until_ns")]
    pub end: Timestamp,
}

fn as_object<S: Serializer>(values: &[(String, Value)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(values.iter().map(|(name, value)| (name, value)))
}

impl PastEvent {
    /// The marker that a recorder makes of it.
    ///
    /// # Errors
    /// None, for a trigger that was parsed.
    pub fn marker(&self) -> Result<Marker, MarkerNameError> {
        Marker::shortened(self.time, &self.trigger)
    }
}

/// The times of a bag's messages in the order of reading, without the jumps of its clock.
#[derive(Clone, Debug, Default)]
struct Steady {
    /// Those that have not come.
    jumps: VecDeque<ClockJump>,
    /// Since when in steady time the clock is so far ahead, in nanoseconds.
    eras: Vec<(i64, i64)>,
    last: Option<i64>,
}

impl Steady {
    fn offset(&self) -> i64 {
        self.eras.last().map_or(0, |(_, offset)| *offset)
    }

    /// The steady time of the next message.
    fn of(&mut self, stamp: Timestamp) -> Timestamp {
        let stamp = stamp.as_nanos();
        while let Some(jump) = self.jumps.front() {
            let half = jump.nanos() / 2;
            let has_come = match jump.is_back() {
                true => self
                    .last
                    .is_some_and(|last| last.saturating_sub(stamp) >= JUMP_NANOS_MIN),
                false => stamp >= jump.from.as_nanos().saturating_add(half),
            };
            if !has_come {
                break;
            }
            let since = jump.from.as_nanos().saturating_sub(self.offset());
            self.eras
                .push((since, self.offset().saturating_add(jump.nanos())));
            self.jumps.pop_front();
            self.last = None;
        }
        self.last = self.last.max(Some(stamp));
        Timestamp::from_nanos(stamp.saturating_sub(self.offset()))
    }

    /// The time of the clock at a steady time.
    fn stamp_of(&self, steady: Timestamp) -> Timestamp {
        let eras = self.eras.iter().rev();
        let mut before = eras.skip_while(|(since, _)| *since > steady.as_nanos());
        let offset = before.next().map_or(0, |(_, offset)| *offset);
        Timestamp::from_nanos(steady.as_nanos().saturating_add(offset))
    }
}

/// Finds the events of one bag, whose messages come in the order of reading.
pub struct PastEvents {
    conditions: Conditions,
    steady: Steady,
    before: Duration,
    after: Duration,
    now: Option<Timestamp>,
    kept: Intervals,
    found: Found,
}

/// What triggers find in a bag.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Found {
    /// By time.
    pub events: Vec<PastEvent>,
    /// Events besides these.
    pub more: u64,
    /// How long a recorder would have recorded.
    pub kept: Duration,
    /// Triggers that cannot fire, with one clause why.
    pub useless: Vec<(usize, String)>,
    /// The same, and what else is wrong with triggers, one sentence each.
    pub faults: Vec<String>,
}

impl PastEvents {
    /// Waits for the events of a bag whose clock jumped so. `before` and `after` an event is what a recorder keeps.
    pub fn new(triggers: &[Trigger], before: Duration, after: Duration, jumps: Vec<ClockJump>) -> Self {
        Self {
            conditions: Conditions::new(triggers),
            steady: Steady {
                jumps: jumps.into(),
                ..Steady::default()
            },
            before,
            after,
            now: None,
            kept: Intervals::default(),
            found: Found::default(),
        }
    }

    /// The bag has a topic, of this type or of one that is not known because of this clause.
    pub fn add_topic(&mut self, topic: TopicId, info: &TopicInfo, plan: &Result<Arc<TypePlan>, String>) {
        self.conditions.add_topic(topic, info);
        self.conditions.define(topic, plan);
    }

    /// The next message of a bag.
    pub fn message(&mut self, topic: TopicId, log_time: Timestamp, payload: &[u8]) {
        let time = self.steady.of(log_time);
        self.now = self.now.max(Some(time));
        if self.conditions.watches(topic) {
            self.conditions.message(topic, time, PayloadRef::Bytes(payload));
            self.note_fired(Some(payload));
        }
    }

    fn note_fired(&mut self, payload: Option<&[u8]>) {
        for fired in self.conditions.take_fired() {
            let Fired { time, trigger, .. } = fired;
            self.kept.add_around(time, self.before, self.after);
            if self.found.events.len() == PAST_EVENTS_MAX {
                self.found.more += 1;
                continue;
            }
            let before = i64::try_from(self.before.as_nanos()).unwrap_or(i64::MAX);
            let begin = Timestamp::from_nanos(time.as_nanos().saturating_sub(before));
            let values = payload.map(|payload| self.conditions.values(trigger, payload));
            self.found.events.push(PastEvent {
                time: self.steady.stamp_of(time),
                trigger: self.conditions.text(trigger).to_owned(),
                values: values.unwrap_or_default(),
                is_marked: fired.is_marked,
                start: self.steady.stamp_of(begin),
                end: self.steady.stamp_of(time.saturating_add(self.after)),
            });
        }
    }

    /// All that was found in a bag whose last message came then.
    pub fn end(mut self, last: Option<Timestamp>) -> Found {
        if let Some(last) = last {
            let time = self.steady.of(last);
            self.now = self.now.max(Some(time));
        }
        if let Some(now) = self.now {
            self.conditions.check(now);
            self.note_fired(None);
        }
        let mut found = self.found;
        found.events.sort_by_key(|event| event.time);
        found.kept = self.kept.total();
        for (number, state) in self.conditions.states().enumerate() {
            let text = self.conditions.text(number);
            let useless = match &state.fault {
                _ if !state.is_topic_known => Some("the bag does not have its topic".to_owned()),
                fault => fault.clone(),
            };
            if let Some(useless) = useless {
                found
                    .faults
                    .push(format!("trigger {text} cannot fire: {useless}"));
                found.useless.push((number, useless));
            } else if let Some(broken) = &state.broken {
                let fault = format!("trigger {text}: a message cannot be decoded: {broken}");
                found.faults.push(fault);
            }
        }
        found
    }
}

/// What people know of a bag: something happened then, or from then on until.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventLabel {
    /// The beginning.
    pub start: Timestamp,
    /// The end; the beginning for a moment.
    pub end: Timestamp,
    /// What it is.
    pub name: String,
}

impl EventLabel {
    /// The markers whose name a pattern matches, as labels.
    pub fn of_markers(markers: &[Marker], name: &Regex) -> Vec<Self> {
        let markers = markers.iter().filter(|marker| name.is_match(&marker.name));
        let labels = markers.map(|marker| Self {
            start: marker.time,
            end: marker.time,
            name: marker.name.clone(),
        });
        labels.collect()
    }

    /// Reads labels, one a line: a time or two with `..` between them, and a name. `start` is when the bag begins.
    ///
    /// # Errors
    /// The number of the first line that cannot be read, from 1, and why.
    pub fn parse_lines(text: &str, start: Timestamp) -> Result<Vec<Self>, (usize, MomentError)> {
        let mut labels = Vec::new();
        for (number, line) in text.lines().map(str::trim).enumerate() {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (times, name) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
            let (first, last) = times.split_once("..").unwrap_or((times, times));
            let time = |text: &str| {
                let moment: Moment = text.parse().map_err(|error| (number + 1, error))?;
                // Lines about markers have no use: --label-markers takes these.
                let no_markers = || Ok::<_, &str>(Vec::new());
                let time = moment.resolve(Some(start), no_markers, "start");
                time.map_err(|_| (number + 1, MomentError::Form))
            };
            labels.push(Self {
                start: time(first)?,
                end: time(last)?,
                name: name.trim().to_owned(),
            });
        }
        Ok(labels)
    }
}

/// How events fit labels. An event is right when the span that is kept for it has a label; a label is found when such a span has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventScore {
    /// Events with a label.
    pub right: u64,
    /// All events.
    pub events: u64,
    /// Labels with an event.
    pub found: u64,
    /// Labels without one.
    pub missed: Vec<EventLabel>,
}

impl EventScore {
    /// Compares events with labels.
    pub fn of(events: &[PastEvent], labels: &[EventLabel]) -> Self {
        let has =
            |event: &PastEvent, label: &EventLabel| event.start <= label.end && label.start <= event.end;
        let right = events
            .iter()
            .filter(|event| labels.iter().any(|label| has(event, label)))
            .count();
        let is_missed = |label: &&EventLabel| !events.iter().any(|event| has(event, label));
        let missed: Vec<EventLabel> = labels.iter().filter(is_missed).cloned().collect();
        Self {
            right: right as u64,
            events: events.len() as u64,
            found: (labels.len() - missed.len()) as u64,
            missed,
        }
    }

    /// Adds that of another bag.
    pub fn add(&mut self, other: Self) {
        self.right += other.right;
        self.events += other.events;
        self.found += other.found;
        self.missed.extend(other.missed);
    }

    /// The share of the events that are right; `None` without events.
    pub fn precision(&self) -> Option<f64> {
        (self.events > 0).then(|| self.right as f64 / self.events as f64)
    }

    /// The share of the labels that are found; `None` without labels.
    pub fn recall(&self) -> Option<f64> {
        let labels = self.found + self.missed.len() as u64;
        (labels > 0).then(|| self.found as f64 / labels as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{interface::bundle::Bundle, time_line::StampClock};

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_nanos(millis * 1_000_000)
    }

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn float(value: f64) -> Vec<u8> {
        [&[0, 1, 0, 0][..], &value.to_le_bytes()].concat()
    }

    fn past(texts: &[&str], jumps: Vec<ClockJump>) -> PastEvents {
        let triggers: Vec<Trigger> = texts.iter().map(|text| Trigger::parse(text).unwrap()).collect();
        let mut past = PastEvents::new(&triggers, ms(1000), ms(500), jumps);
        let info = TopicInfo {
            name: "/value".to_owned(),
            type_name: "std_msgs/msg/Float64".to_owned(),
            serialization_format: "cdr".to_owned(),
            ..TopicInfo::default()
        };
        let definition = Bundle::embedded().define(&info.type_name).unwrap();
        past.add_topic(
            TopicId(0),
            &info,
            &Ok(Arc::new(TypePlan::compile(&definition).unwrap())),
        );
        past
    }

    #[test]
    fn events_have_their_time_values_and_span() {
        let mut past = past(
            &["/value: data < 11.5", "/value silent 2s", "/gone: x"],
            Vec::new(),
        );
        for step in 0..100 {
            let value = if [20, 21, 25, 60].contains(&step) {
                11.0
            } else {
                12.0
            };
            past.message(TopicId(0), at(100 * step), &float(value));
        }
        let found = past.end(Some(at(20_000)));
        let times: Vec<_> = found
            .events
            .iter()
            .map(|event| (event.time, event.is_marked))
            .collect();
        assert_eq!(
            times,
            [
                (at(2000), true),
                (at(2500), false),
                (at(6000), true),
                (at(11_900), true)
            ]
        );
        let first = &found.events[0];
        assert_eq!((first.start, first.end), (at(1000), at(2500)));
        assert_eq!(first.values, [("data".to_owned(), Value::from(11.0))]);
        assert_eq!(first.marker().unwrap().name, "/value: data < 11.5");
        assert_eq!(found.kept, ms(2000 + 1500 + 1500), "the first two overlap");
        assert_eq!(
            found.faults,
            ["trigger /gone: x cannot fire: the bag does not have its topic"]
        );
    }

    #[test]
    fn a_clock_that_jumps_makes_no_silence() {
        let jump = |from, to| ClockJump {
            clock: StampClock::Wall,
            from: at(from),
            to: at(to),
        };
        let jumps = vec![jump(5000, 3_605_000), jump(3_610_000, 8000)];
        let mut past = past(&["/value silent 2s"], jumps);
        let stamps = (0..5000).step_by(100).chain((3_605_000..3_610_000).step_by(100));
        for stamp in stamps.chain((8000..9000).step_by(100)) {
            past.message(TopicId(0), at(stamp), &float(1.0));
        }
        // The last message came at 8900, by a clock that was set back.
        let found = past.end(Some(at(30_000)));
        let times: Vec<_> = found.events.iter().map(|event| event.time).collect();
        assert_eq!(times, [at(10_900)]);
    }

    #[test]
    fn a_score_counts_events_with_labels_and_labels_with_events() {
        let event = |millis| PastEvent {
            time: at(millis),
            trigger: "t".to_owned(),
            values: Vec::new(),
            is_marked: true,
            start: at(millis - 100),
            end: at(millis + 100),
        };
        let label = |from, until| EventLabel {
            start: at(from),
            end: at(until),
            name: "crash".to_owned(),
        };
        let events = [event(1000), event(2000), event(9000)];
        let labels = [label(1100, 1100), label(1500, 2500), label(5000, 5000)];
        let score = EventScore::of(&events, &labels);
        assert_eq!((score.right, score.found), (2, 2));
        assert_eq!(score.missed, [labels[2].clone()]);
        assert_eq!(
            (score.precision(), score.recall()),
            (Some(2.0 / 3.0), Some(2.0 / 3.0))
        );
        assert_eq!(EventScore::default().precision(), None);
    }

    #[test]
    fn labels_are_moments_and_spans_with_names() {
        let text = "# by hand\n\n1.5 a crash\n 2..2500ms\n@10.25\tlate\n";
        let labels = EventLabel::parse_lines(text, at(1000)).unwrap();
        let found: Vec<_> = labels
            .iter()
            .map(|label| (label.start, label.end, &*label.name))
            .collect();
        let wanted = [
            (2500, 2500, "a crash"),
            (3000, 3500, ""),
            (10_250, 10_250, "late"),
        ];
        assert_eq!(found, wanted.map(|(start, end, name)| (at(start), at(end), name)));
        assert_eq!(EventLabel::parse_lines("1\nsoon", at(0)).unwrap_err().0, 2);
    }
}
