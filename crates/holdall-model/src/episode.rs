//! Episodes of a recording: spans that a person or a program starts, and stops with an outcome or discards. Each of these moments is a
//! [`Marker`](crate::marker::Marker) with an [`EpisodeEvent`]; the episodes are derived from them.
//!
//! An event names its episode by the time at which that started, and the last one repeats what is known of it: the events of several recorders, and of files
//! that lack some of them, stay apart.

use crate::{marker::MARKERS_MAX, time::Timestamp};
use serde::{Serialize, Serializer, ser::SerializeMap};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::{self, Write},
    time::Duration,
};

/// The longest value of a field, and its longest name, in bytes.
const VALUE_BYTES_MAX: usize = 1000;
const NAME_BYTES_MAX: usize = 64;

/// Fields of an episode, at most.
const FIELDS_MAX: usize = 32;

/// Keys of a marker's record.
const EVENT: &str = "episode";
const START: &str = "episode_start";
const FIELD: &str = "episode.";

/// What people say of an episode, by name: `task`, `operator`, `outcome`, and whatever else.
pub type EpisodeFields = BTreeMap<String, String>;

/// The field that training reads as the task.
pub const TASK: &str = "task";

/// How an episode ended: the field that a stop is asked for.
pub const OUTCOME: &str = "outcome";

/// What happens to an episode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EpisodeChange {
    /// It starts.
    Start,
    /// It is over.
    Stop,
    /// It is over, and of no use.
    Discard,
}

impl EpisodeChange {
    const WORDS: [(Self, &'static str); 3] = [
        (Self::Start, "start"),
        (Self::Stop, "stop"),
        (Self::Discard, "discard"),
    ];

    /// Its word in requests and records.
    pub fn word(self) -> &'static str {
        let words = Self::WORDS.iter();
        let found = words.clone().find(|(change, _)| *change == self);
        found.map_or("", |(_, word)| word)
    }

    /// The change of this word.
    pub fn from_word(word: &str) -> Option<Self> {
        let mut words = Self::WORDS.iter();
        words.find(|(_, known)| *known == word).map(|(change, _)| *change)
    }
}

/// A moment of an episode.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EpisodeEvent {
    /// What happens.
    pub change: EpisodeChange,
    /// When the episode started: its name among all events.
    pub start: Timestamp,
    /// All that is known of it then.
    pub fields: EpisodeFields,
}

impl EpisodeEvent {
    /// The name of its marker.
    pub fn text(&self) -> String {
        let mut text = match self.change {
            EpisodeChange::Start => "episode starts",
            EpisodeChange::Stop => "episode stops",
            EpisodeChange::Discard => "episode discarded",
        }
        .to_owned();
        let wanted = match self.change {
            EpisodeChange::Stop => self.fields.get(OUTCOME),
            _ => None,
        };
        for value in [self.fields.get(TASK), wanted].into_iter().flatten() {
            let _ = write!(text, ": {value}");
        }
        text
    }

    /// Adds it to the entries of its marker's record.
    pub fn add_to(&self, entries: &mut BTreeMap<String, String>) {
        entries.insert(EVENT.to_owned(), self.change.word().to_owned());
        entries.insert(START.to_owned(), self.start.as_nanos().to_string());
        let fields = self.fields.iter();
        entries.extend(fields.map(|(name, value)| (format!("{FIELD}{name}"), value.clone())));
    }

    /// The event in such entries.
    pub fn from_entries(entries: &BTreeMap<String, String>) -> Option<Self> {
        let fields = entries.iter().filter_map(|(key, value)| {
            let name = key.strip_prefix(FIELD)?;
            Some((name.to_owned(), value.clone()))
        });
        Some(Self {
            change: EpisodeChange::from_word(entries.get(EVENT)?)?,
            start: Timestamp::from_nanos(entries.get(START)?.parse().ok()?),
            fields: fields.collect(),
        })
    }
}

/// Why an episode is not changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EpisodeError {
    /// One is open.
    #[error("an episode runs since {0}: stop or discard it first")]
    Running(String),
    /// None is open.
    #[error("no episode runs: start one first")]
    NotRunning,
    /// More would have no place in the bag.
    #[error("the recording has {MARKERS_MAX} episodes already, which is the most")]
    TooMany,
    /// A field that is not stored.
    #[error(
        "{0:?} is not a field of an episode: up to {FIELDS_MAX} names of letters, digits and _, with texts of up to {VALUE_BYTES_MAX} bytes"
    )]
    Field(String),
}

/// The episodes of a recording that runs.
#[derive(Clone, Debug, Default)]
pub struct EpisodeState {
    open: Option<(Timestamp, EpisodeFields)>,
    /// When episodes started: as many as a recording may have markers.
    starts: BTreeSet<Timestamp>,
    /// A condition has started the open one.
    is_switched: bool,
    /// When the recording ended.
    ended: Option<Timestamp>,
}

impl EpisodeState {
    /// Changes the episode at `now`; `fields` are added to those that are known.
    ///
    /// # Errors
    /// A start while one runs, an end while none does, and fields that are not stored.
    pub fn change(
        &mut self,
        change: EpisodeChange,
        now: Timestamp,
        fields: EpisodeFields,
    ) -> Result<EpisodeEvent, EpisodeError> {
        check(&fields)?;
        let event = match (change, self.open.take()) {
            (EpisodeChange::Start, Some(open)) => {
                let running = EpisodeError::Running(open.0.to_utc_text());
                self.open = Some(open);
                return Err(running);
            }
            (EpisodeChange::Start, None) if self.starts.len() >= MARKERS_MAX => {
                return Err(EpisodeError::TooMany);
            }
            (EpisodeChange::Start, None) => {
                // Two episodes of a recorder have different names, also on a clock that is set back.
                let mut start = now;
                while !self.starts.insert(start) && start < Timestamp::from_nanos(i64::MAX) {
                    start = start.saturating_add(Duration::from_nanos(1));
                }
                self.open = Some((start, fields.clone()));
                self.is_switched = false;
                EpisodeEvent {
                    change,
                    start,
                    fields,
                }
            }
            (_, None) => return Err(EpisodeError::NotRunning),
            (_, Some((start, mut known))) => {
                let before = (start, known.clone());
                known.extend(fields);
                if let Err(error) = check(&known) {
                    self.open = Some(before);
                    return Err(error);
                }
                EpisodeEvent {
                    change,
                    start,
                    fields: known,
                }
            }
        };
        Ok(event)
    }

    /// The open episode: when it started, and what is known of it.
    pub fn open(&self) -> Option<(Timestamp, &EpisodeFields)> {
        self.open.as_ref().map(|(start, fields)| (*start, fields))
    }

    /// Starts an episode that a condition stops.
    ///
    /// # Errors
    /// As [`Self::change`].
    pub fn switch_on(&mut self, now: Timestamp) -> Result<EpisodeEvent, EpisodeError> {
        let event = self.change(EpisodeChange::Start, now, EpisodeFields::new())?;
        self.is_switched = true;
        Ok(event)
    }

    /// Stops the open episode if a condition has started it.
    pub fn switch_off(&mut self, now: Timestamp) -> Option<EpisodeEvent> {
        self.stop_if(self.is_switched, now)
    }

    /// The recording has ended: stops the open episode, unless a condition has started it, which messages that still wait may end earlier.
    pub fn end(&mut self, now: Timestamp) -> Option<EpisodeEvent> {
        self.ended = Some(now);
        self.stop_if(!self.is_switched, now)
    }

    fn stop_if(&mut self, is_own: bool, now: Timestamp) -> Option<EpisodeEvent> {
        let stop = is_own.then(|| self.change(EpisodeChange::Stop, now, EpisodeFields::new()));
        stop?.ok()
    }

    /// When the recording ended.
    pub fn ended(&self) -> Option<Timestamp> {
        self.ended
    }
}

fn check(fields: &EpisodeFields) -> Result<(), EpisodeError> {
    let is_name = |name: &str| {
        !name.is_empty()
            && name.len() <= NAME_BYTES_MAX
            && name.chars().all(|c| c.is_alphanumeric() || c == '_')
    };
    let is_wrong = |(name, value): &(&String, &String)| {
        !is_name(name) || value.len() > VALUE_BYTES_MAX || value.chars().any(char::is_control)
    };
    let wrong = fields.iter().find(is_wrong).or(fields.iter().nth(FIELDS_MAX));
    wrong.map_or(Ok(()), |(name, _)| Err(EpisodeError::Field(name.clone())))
}

/// How an episode of a bag ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EpisodeEnd {
    /// It was stopped.
    Stopped,
    /// It was discarded.
    Discarded,
    /// Its end is in no file: the recorder was killed, or the bag is a part.
    Unknown,
}

impl EpisodeEnd {
    /// The word for it in documents and tables.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Stopped => "stopped",
            Self::Discarded => "discarded",
            Self::Unknown => "unknown",
        }
    }
}

/// An episode of a bag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Episode {
    /// Its number by start, from 1; those that were discarded count.
    pub number: u64,
    /// When it started.
    pub start: Timestamp,
    /// When it ended, if that is known.
    pub until: Option<Timestamp>,
    /// How it ended.
    pub end: EpisodeEnd,
    /// What is known of it.
    pub fields: EpisodeFields,
}

impl Episode {
    /// The episodes of a bag by start, from the events of its markers, in any order.
    pub fn list<'a>(events: impl IntoIterator<Item = (Timestamp, &'a EpisodeEvent)>) -> Vec<Self> {
        let mut found: BTreeMap<Timestamp, Self> = BTreeMap::new();
        for (time, event) in events {
            let episode = found.entry(event.start).or_insert_with(|| Self {
                number: 0,
                start: event.start,
                until: None,
                end: EpisodeEnd::Unknown,
                fields: EpisodeFields::new(),
            });
            let end = match event.change {
                EpisodeChange::Start if episode.end == EpisodeEnd::Unknown => EpisodeEnd::Unknown,
                EpisodeChange::Start => continue,
                EpisodeChange::Stop => EpisodeEnd::Stopped,
                EpisodeChange::Discard => EpisodeEnd::Discarded,
            };
            episode.end = end;
            episode.until = (end != EpisodeEnd::Unknown).then_some(time);
            episode.fields.clone_from(&event.fields);
        }
        let numbered = (1..).zip(found.into_values());
        numbered
            .map(|(number, episode)| Self { number, ..episode })
            .collect()
    }

    /// How long it took; `None` without an end, and where the clock was set back during it.
    pub fn duration(&self) -> Option<Duration> {
        let until = self.until.filter(|until| *until >= self.start)?;
        Some(until.saturating_since(self.start))
    }
}

impl Serialize for Episode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("number", &self.number)?;
        map.serialize_entry("start_ns", &self.start)?;
        map.serialize_entry("end_ns", &self.until)?;
        map.serialize_entry("end", &self.end)?;
        map.serialize_entry("duration_s", &self.duration().map(|span| span.as_secs_f64()))?;
        map.serialize_entry("fields", &self.fields)?;
        map.end()
    }
}

/// `4.5 s, stopped, task: pick, outcome: success`.
impl fmt::Display for Episode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.duration() {
            Some(span) => write!(f, "{:.1} s, ", span.as_secs_f64())?,
            None if self.until.is_some() => f.write_str("the clock was set back in it, ")?,
            None => {}
        }
        f.write_str(match self.end {
            EpisodeEnd::Stopped => "stopped",
            EpisodeEnd::Discarded => "discarded",
            EpisodeEnd::Unknown => "end unknown: not in the bag",
        })?;
        let first = [TASK, OUTCOME];
        let rank = |name: &str| first.iter().position(|one| *one == name).unwrap_or(first.len());
        let mut fields: Vec<_> = self.fields.iter().collect();
        fields.sort_by_key(|(name, _)| rank(name));
        for (name, value) in fields {
            write!(f, ", {name}: {value}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_nanos(seconds * 1_000_000_000)
    }

    fn fields(pairs: &[(&str, &str)]) -> EpisodeFields {
        let pairs = pairs.iter();
        pairs
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn an_episode_starts_once_and_keeps_what_is_said_of_it() {
        let mut state = EpisodeState::default();
        let none = EpisodeFields::new;
        assert_eq!(
            state.change(EpisodeChange::Stop, at(1), none()),
            Err(EpisodeError::NotRunning)
        );
        let start = state
            .change(EpisodeChange::Start, at(2), fields(&[("task", "pick")]))
            .unwrap();
        assert_eq!(start.text(), "episode starts: pick");
        let running = state.change(EpisodeChange::Start, at(3), none()).unwrap_err();
        assert_eq!(
            running.to_string(),
            "an episode runs since 1970-01-01T00:00:02.000: stop or discard it first"
        );
        let wrong = state.change(EpisodeChange::Stop, at(3), fields(&[("a b", "")]));
        assert!(matches!(wrong, Err(EpisodeError::Field(_))));
        assert_eq!(state.open().map(|(start, _)| start), Some(at(2)), "it goes on");
        let stop = state
            .change(EpisodeChange::Stop, at(6), fields(&[("outcome", "success")]))
            .unwrap();
        assert_eq!(stop.text(), "episode stops: pick: success");
        let mut entries = BTreeMap::new();
        stop.add_to(&mut entries);
        assert_eq!(entries["episode.task"], "pick");
        assert_eq!(EpisodeEvent::from_entries(&entries).as_ref(), Some(&stop));

        let open = state.change(EpisodeChange::Start, at(7), none()).unwrap();
        let listed = Episode::list([(at(6), &stop), (at(7), &open), (at(2), &start)]);
        assert_eq!(
            listed.iter().map(ToString::to_string).collect::<Vec<_>>(),
            [
                "4.0 s, stopped, task: pick, outcome: success",
                "end unknown: not in the bag"
            ]
        );
        assert_eq!((listed[1].number, listed[1].until), (2, None));
        // A file that has only the end knows all of it.
        assert_eq!(Episode::list([(at(6), &stop)])[0], listed[0]);
    }

    proptest! {
        #[test]
        fn episodes_are_those_that_ran_in_any_order_of_events(
            steps in prop::collection::vec((0_usize..3, 0_i64..3), 0..40),
            turn in 0_usize..40,
            lost in 0_usize..40,
        ) {
            let (mut state, mut now, mut events) = (EpisodeState::default(), 0, Vec::new());
            let mut wanted: Vec<(Option<Timestamp>, EpisodeEnd)> = Vec::new();
            for (change, wait) in steps {
                now += wait;
                let change = EpisodeChange::WORDS[change].0;
                let Ok(event) = state.change(change, at(now), EpisodeFields::new()) else {
                    prop_assert_eq!(change == EpisodeChange::Start, state.open().is_some());
                    continue;
                };
                events.push((at(now), event));
                match change {
                    EpisodeChange::Start => wanted.push((None, EpisodeEnd::Unknown)),
                    EpisodeChange::Stop => *wanted.last_mut().unwrap() = (Some(at(now)), EpisodeEnd::Stopped),
                    EpisodeChange::Discard => *wanted.last_mut().unwrap() = (Some(at(now)), EpisodeEnd::Discarded),
                }
            }
            let list = |events: &[(Timestamp, EpisodeEvent)]| {
                Episode::list(events.iter().map(|(time, event)| (*time, event)))
            };
            let found = list(&events);
            let ends: Vec<_> = found.iter().map(|episode| (episode.until, episode.end)).collect();
            prop_assert_eq!(ends, wanted);
            let mut other = events.clone();
            if !other.is_empty() {
                let turn = turn % other.len();
                other.rotate_left(turn);
                prop_assert_eq!(&list(&other), &found);
                // Whatever is lost, no episode has an end that it did not have.
                let lost = lost % other.len();
                other.remove(lost);
                for episode in list(&other) {
                    let known = found.iter().find(|known| known.start == episode.start);
                    prop_assert!(known.is_some_and(|known| episode.until.is_none() || known.until == episode.until));
                }
            }
        }
    }
}
