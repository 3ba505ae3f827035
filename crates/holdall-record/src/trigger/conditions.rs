//! The triggers of a recording as its messages pass: which of them fire, and when.

use super::{Trigger, TriggerStatus};
use crate::clock_watch::ClockWatch;
use holdall_model::{
    dynamic::{TypePlan, expression::Predicate},
    interface::{Definition, bundle::Bundle},
    message::PayloadRef,
    time::Timestamp,
    topic::{DefinitionEncoding, MessageDefinition, TopicId, TopicInfo},
    trigger::{Condition, Edge, RateWatch, SilenceWatch},
};
use std::{collections::HashMap, sync::Arc, time::Duration};

/// The time of the messages, in time that does not jump.
pub(crate) struct MessageTime {
    /// The clock that stamps them.
    pub watch: Arc<ClockWatch>,
    /// The present; `None` while nothing is recorded.
    pub now: Box<dyn Fn() -> Option<Timestamp> + Send>,
}

/// The one format that can be decoded here; bags of the first versions name none.
const FORMATS: [&str; 2] = ["cdr", ""];

/// A trigger has a marker at most this often; the events between extend the recorded span.
const MARKER_INTERVAL: Duration = Duration::from_secs(1);

/// An event, in time that does not jump.
pub(crate) struct Fired {
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
    /// A message that cannot be decoded was logged.
    is_broken_known: bool,
    marked: Option<Timestamp>,
}

/// All triggers of a recording.
pub(crate) struct Conditions {
    watched: Vec<Watched>,
    by_topic: HashMap<TopicId, Vec<usize>>,
    /// The bytes of a payload that is in several pieces.
    gathered: Vec<u8>,
    fired: Vec<Fired>,
}

impl Conditions {
    pub fn new(triggers: &[Trigger]) -> Self {
        let watched = |trigger: &Trigger| Watched {
            trigger: trigger.clone(),
            watch: match &trigger.condition {
                Condition::Fields(_) => Watch::Fields(None, Edge::default()),
                Condition::Silent(span) => Watch::Silence(SilenceWatch::new(*span)),
                Condition::RateBelow(bound) => Watch::Rate(RateWatch::new(*bound)),
            },
            is_broken_known: false,
            marked: None,
        };
        Self {
            watched: triggers.iter().map(watched).collect(),
            by_topic: HashMap::new(),
            gathered: Vec::new(),
            fired: Vec::new(),
        }
    }

    /// A topic is recorded from now on.
    pub fn add_topic(&mut self, topic: TopicId, info: &TopicInfo, status: &mut TriggerStatus) {
        for (index, watched) in self.watched.iter().enumerate() {
            if watched.trigger.topic != info.name {
                continue;
            }
            self.by_topic.entry(topic).or_default().push(index);
            status.triggers[index].is_topic_known = true;
            let is_fields = matches!(watched.watch, Watch::Fields(..));
            if is_fields && !FORMATS.contains(&info.serialization_format.as_str()) {
                let format = &info.serialization_format;
                self.by_topic.entry(topic).or_default().pop();
                set_fault(
                    status,
                    index,
                    Some(format!("messages of {} are encoded as {format}", info.name)),
                );
            }
        }
    }

    /// The definition of a topic's type, or that there is none.
    pub fn define(&mut self, topic: TopicId, definition: &MessageDefinition, status: &mut TriggerStatus) {
        for &index in self.by_topic.get(&topic).map_or(&[][..], Vec::as_slice) {
            let Some(Watched {
                trigger:
                    Trigger {
                        condition: Condition::Fields(expression),
                        ..
                    },
                watch: Watch::Fields(predicate @ None, _),
                ..
            }) = self.watched.get_mut(index)
            else {
                continue;
            };
            match compile(definition, expression) {
                Ok(compiled) => {
                    *predicate = Some(compiled);
                    set_fault(status, index, None);
                }
                Err(reason) => set_fault(status, index, Some(reason)),
            }
        }
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
            ..
        } = self;
        for &index in by_topic.get(&topic).map_or(&[][..], Vec::as_slice) {
            let Some(Watched {
                trigger,
                watch,
                is_broken_known,
                marked,
            }) = watched.get_mut(index)
            else {
                continue;
            };
            let rose = match watch {
                Watch::Fields(None, _) => None,
                Watch::Fields(Some(predicate), edge) => {
                    let holds = matches(predicate, payload, gathered).unwrap_or_else(|error| {
                        if !std::mem::replace(is_broken_known, true) {
                            tracing::warn!("trigger {trigger}: a message cannot be decoded: {error}");
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

    /// The next event.
    pub fn take_fired(&mut self) -> Vec<Fired> {
        std::mem::take(&mut self.fired)
    }

    /// A trigger's text.
    pub fn text(&self, trigger: usize) -> &str {
        self.watched
            .get(trigger)
            .map_or("", |watched| &watched.trigger.text)
    }
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

fn set_fault(status: &mut TriggerStatus, index: usize, fault: Option<String>) {
    let count = &mut status.triggers[index];
    if let Some(reason) = fault.as_ref().filter(|_| fault != count.fault) {
        tracing::error!("trigger {}: {reason}; it cannot fire", count.text);
    }
    count.fault = fault;
}

fn compile(stored: &MessageDefinition, expression: &str) -> Result<Predicate, String> {
    let type_name = &stored.type_name;
    if stored.encoding == DefinitionEncoding::Unknown {
        return Err(format!("no definition of {type_name} is known"));
    }
    let bundle = Bundle::embedded();
    let definition = Definition::from_stored_as(stored, type_name, |name| bundle.get(name))
        .map_err(|error| error.to_string())?;
    let plan = TypePlan::compile(&definition).map_err(|error| error.to_string())?;
    Predicate::compile(Arc::new(plan), expression).map_err(|error| error.to_string())
}

fn matches(
    predicate: &Predicate,
    payload: PayloadRef<'_>,
    gathered: &mut Vec<u8>,
) -> Result<bool, holdall_model::dynamic::DecodeError> {
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
