//! The triggers of a recording as its messages pass, live or in a bag: which of them fire, and when.

use super::{Condition, Edge, RateWatch, SilenceWatch, Trigger};
use crate::{
    dynamic::{DecodeError, TypePlan, expression::Predicate},
    interface::{Definition, bundle::Bundle},
    message::PayloadRef,
    time::Timestamp,
    topic::{DefinitionEncoding, MessageDefinition, TopicId, TopicInfo},
};
use serde_json::Value;
use std::{collections::HashMap, sync::Arc, time::Duration};

/// The one format that can be decoded here; bags of the first versions name none.
const FORMATS: [&str; 2] = ["cdr", ""];

/// A trigger has a marker at most this often; the events between extend the recorded span.
const MARKER_INTERVAL: Duration = Duration::from_secs(1);

/// An event, in time that does not jump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fired {
    /// When.
    pub time: Timestamp,
    /// Which trigger.
    pub trigger: usize,
    /// It gets a marker.
    pub is_marked: bool,
}

enum Watch {
    /// `None` until the topic's type is known.
    Fields(Option<Predicate>, Edge),
    Silence(SilenceWatch),
    Rate(RateWatch),
}

struct Watched {
    trigger: Trigger,
    watch: Watch,
    state: TriggerState,
    marked: Option<Timestamp>,
}

/// Whether a trigger can fire.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TriggerState {
    /// Its topic has appeared.
    pub is_topic_known: bool,
    /// Why it cannot fire: one clause.
    pub fault: Option<String>,
    /// Why the first message that cannot be decoded cannot.
    pub broken: Option<String>,
}

/// All triggers of a recording.
pub struct Conditions {
    watched: Vec<Watched>,
    by_topic: HashMap<TopicId, Vec<usize>>,
    /// The bytes of a payload that is in several pieces.
    gathered: Vec<u8>,
    fired: Vec<Fired>,
    /// Triggers whose first message that cannot be decoded has just come.
    broken: Vec<usize>,
}

impl Conditions {
    /// Nothing has come.
    pub fn new(triggers: &[Trigger]) -> Self {
        let watched = |trigger: &Trigger| Watched {
            trigger: trigger.clone(),
            watch: match &trigger.condition {
                Condition::Fields(_) => Watch::Fields(None, Edge::default()),
                Condition::Silent(span) => Watch::Silence(SilenceWatch::new(*span)),
                Condition::RateBelow(bound) => Watch::Rate(RateWatch::new(*bound)),
            },
            state: TriggerState::default(),
            marked: None,
        };
        Self {
            watched: triggers.iter().map(watched).collect(),
            by_topic: HashMap::new(),
            gathered: Vec::new(),
            fired: Vec::new(),
            broken: Vec::new(),
        }
    }

    /// A topic is recorded from now on.
    pub fn add_topic(&mut self, topic: TopicId, info: &TopicInfo) {
        for (index, watched) in self.watched.iter_mut().enumerate() {
            if watched.trigger.topic != info.name {
                continue;
            }
            watched.state.is_topic_known = true;
            let is_fields = matches!(watched.watch, Watch::Fields(..));
            if is_fields && !FORMATS.contains(&info.serialization_format.as_str()) {
                let format = &info.serialization_format;
                watched.state.fault = Some(format!("messages of {} are encoded as {format}", info.name));
                continue;
            }
            self.by_topic.entry(topic).or_default().push(index);
        }
    }

    /// The type of a topic, or why it is not known: one clause.
    pub fn define(&mut self, topic: TopicId, plan: &Result<Arc<TypePlan>, String>) {
        for &index in self.by_topic.get(&topic).map_or(&[][..], Vec::as_slice) {
            let Some(watched) = self.watched.get_mut(index) else {
                continue;
            };
            let (Condition::Fields(expression), Watch::Fields(predicate @ None, _)) =
                (&watched.trigger.condition, &mut watched.watch)
            else {
                continue;
            };
            let compiled = plan
                .clone()
                .and_then(|plan| Predicate::compile(plan, expression).map_err(|error| error.to_string()));
            match compiled {
                Ok(compiled) => {
                    *predicate = Some(compiled);
                    watched.state.fault = None;
                }
                Err(reason) => watched.state.fault = Some(reason),
            }
        }
    }

    /// As [`Self::define`], by the definition of the topic's type, if there is one.
    pub fn define_stored(&mut self, topic: TopicId, stored: &MessageDefinition) {
        self.define(topic, &compile(stored));
    }

    /// Whether triggers watch a topic.
    pub fn watches(&self, topic: TopicId) -> bool {
        self.by_topic.contains_key(&topic)
    }

    /// Takes note of a message of a topic that is watched.
    pub fn message(&mut self, topic: TopicId, time: Timestamp, payload: PayloadRef<'_>) {
        let Self {
            watched,
            by_topic,
            gathered,
            fired,
            broken,
        } = self;
        for &index in by_topic.get(&topic).map_or(&[][..], Vec::as_slice) {
            let Some(Watched {
                watch, state, marked, ..
            }) = watched.get_mut(index)
            else {
                continue;
            };
            let rose = match watch {
                Watch::Fields(None, _) => None,
                Watch::Fields(Some(predicate), edge) => {
                    let holds = matches(predicate, payload, gathered).unwrap_or_else(|error| {
                        if state.broken.is_none() {
                            state.broken = Some(error.to_string());
                            broken.push(index);
                        }
                        false
                    });
                    edge.rises(holds).then_some(time)
                }
                Watch::Silence(watch) => {
                    let fell = watch.check(time);
                    watch.message(time);
                    fell
                }
                Watch::Rate(watch) => {
                    let fell = watch.check(time);
                    watch.message(time);
                    fell
                }
            };
            fired.extend(rose.map(|time| fire(index, time, marked)));
        }
    }

    /// Takes note of the time, when all messages until then were noted.
    pub fn check(&mut self, now: Timestamp) {
        for (index, watched) in self.watched.iter_mut().enumerate() {
            let fell = match &mut watched.watch {
                Watch::Fields(..) => None,
                Watch::Silence(watch) => watch.check(now),
                Watch::Rate(watch) => watch.check(now),
            };
            self.fired
                .extend(fell.map(|time| fire(index, time, &mut watched.marked)));
        }
    }

    /// Forgets when messages came: in a pause none do.
    pub fn reset(&mut self) {
        for watched in &mut self.watched {
            watched.marked = None;
            match &mut watched.watch {
                Watch::Fields(..) => {}
                Watch::Silence(watch) => watch.reset(),
                Watch::Rate(watch) => watch.reset(),
            }
        }
    }

    /// The events since the last call.
    pub fn take_fired(&mut self) -> Vec<Fired> {
        std::mem::take(&mut self.fired)
    }

    /// Triggers, each once, with why its first message that cannot be decoded cannot: those since the last call.
    pub fn take_broken(&mut self) -> Vec<(usize, String)> {
        let reason = |index: usize| {
            self.watched
                .get(index)
                .and_then(|watched| watched.state.broken.clone())
        };
        let broken = std::mem::take(&mut self.broken).into_iter();
        broken.filter_map(|index| Some((index, reason(index)?))).collect()
    }

    /// A trigger's text.
    pub fn text(&self, trigger: usize) -> &str {
        self.watched
            .get(trigger)
            .map_or("", |watched| &watched.trigger.text)
    }

    /// The states of the triggers, in the order in which they were given.
    pub fn states(&self) -> impl Iterator<Item = &TriggerState> {
        self.watched.iter().map(|watched| &watched.state)
    }

    /// The values in a message that a trigger looks at; none, unless it is one over fields.
    pub fn values(&self, trigger: usize, payload: &[u8]) -> Vec<(String, Value)> {
        match self.watched.get(trigger).map(|watched| &watched.watch) {
            Some(Watch::Fields(Some(predicate), _)) => predicate.values(payload).unwrap_or_default(),
            _ => Vec::new(),
        }
    }
}

fn compile(stored: &MessageDefinition) -> Result<Arc<TypePlan>, String> {
    let type_name = &stored.type_name;
    if stored.encoding == DefinitionEncoding::Unknown {
        return Err(format!("no definition of {type_name} is known"));
    }
    let bundle = Bundle::embedded();
    let definition = Definition::from_stored_as(stored, type_name, |name| bundle.get(name))
        .map_err(|error| error.to_string())?;
    TypePlan::compile(&definition)
        .map(Arc::new)
        .map_err(|error| error.to_string())
}

fn fire(trigger: usize, time: Timestamp, marked: &mut Option<Timestamp>) -> Fired {
    let is_marked = marked.is_none_or(|last| time.saturating_since(last) >= MARKER_INTERVAL);
    if is_marked {
        *marked = Some(time);
    }
    Fired {
        time,
        trigger,
        is_marked,
    }
}

fn matches(
    predicate: &Predicate,
    payload: PayloadRef<'_>,
    gathered: &mut Vec<u8>,
) -> Result<bool, DecodeError> {
    if let PayloadRef::Bytes(bytes) = payload {
        return predicate.matches(bytes);
    }
    let (whole, mut result) = (payload.len(), None);
    gathered.clear();
    payload.for_each_slice(|slice| {
        if slice.len() == whole {
            result = Some(predicate.matches(slice));
        } else {
            gathered.extend_from_slice(slice);
        }
    });
    result.unwrap_or_else(|| predicate.matches(gathered))
}
