//! Named marks in a bag: moments that somebody wants to find again.

use crate::{
    episode::{Episode, EpisodeEvent},
    loss::durability::NOT_RUNNING,
    time::Timestamp,
    time_line::{ClockJump, StampClock},
};
use serde::Serialize;
use std::collections::BTreeMap;

/// The record that carries a marker in a storage file.
pub const MARKER_RECORD: &str = "holdall:marker";

/// Key of `custom_data` in `metadata.yaml` that holds all markers as a JSON list of [`Marker::entries`], so that they
/// can be listed without opening every file.
pub const MARKERS_CUSTOM_KEY: &str = "holdall.markers";

/// The longest name, in bytes.
pub const MARKER_NAME_BYTES_MAX: usize = 256;

/// The most markers of one recording.
pub const MARKERS_MAX: usize = 1000;

const NAME: &str = "name";
const TIME: &str = "time";
const JUMP_FROM: &str = "clock_jump_from";
const CLOCK: &str = "clock";

/// A moment with a name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Marker {
    /// The moment, on the clock of the messages' log times.
    pub time: Timestamp,
    /// Its name.
    pub name: String,
    /// The jump of the clock that it marks; it is at the time after the jump.
    #[serde(skip)]
    pub jump: Option<ClockJump>,
    /// The moment of an episode that it marks.
    #[serde(skip)]
    pub episode: Option<EpisodeEvent>,
}

/// Why a text names no marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MarkerNameError {
    /// Nothing but white space.
    #[error("a marker needs a name")]
    Empty,
    /// Longer than [`MARKER_NAME_BYTES_MAX`].
    #[error("a marker's name has at most {MARKER_NAME_BYTES_MAX} bytes, this one has {0}")]
    TooLong(usize),
}

impl Marker {
    /// A marker at `time`; white space around the name is removed.
    ///
    /// # Errors
    /// A name that is empty or too long.
    pub fn new(time: Timestamp, name: &str) -> Result<Self, MarkerNameError> {
        let name = name.trim();
        match name.len() {
            0 => Err(MarkerNameError::Empty),
            bytes if bytes > MARKER_NAME_BYTES_MAX => Err(MarkerNameError::TooLong(bytes)),
            _ => Ok(Self {
                time,
                name: name.to_owned(),
                jump: None,
                episode: None,
            }),
        }
    }

    /// A marker with as much of a name as a name may have.
    ///
    /// # Errors
    /// A name that is empty.
    pub fn shortened(time: Timestamp, name: &str) -> Result<Self, MarkerNameError> {
        let mut end = name.len().min(MARKER_NAME_BYTES_MAX);
        while !name.is_char_boundary(end) {
            end -= 1;
        }
        Self::new(time, &name[..end])
    }

    /// Marks a jump of the clock that stamps messages.
    pub fn of_jump(jump: ClockJump) -> Self {
        Self {
            time: jump.to,
            name: jump.to_string(),
            jump: Some(jump),
            episode: None,
        }
    }

    /// Whether it says that the recorder did not run for a while.
    pub fn is_absence(&self) -> bool {
        self.name.starts_with(NOT_RUNNING)
    }

    /// Marks a moment of an episode.
    pub fn of_episode(time: Timestamp, event: EpisodeEvent) -> Self {
        let text = event.text();
        let name = Self::shortened(time, &text).map(|marker| marker.name);
        Self {
            time,
            name: name.unwrap_or(text),
            jump: None,
            episode: Some(event),
        }
    }

    /// The episodes that markers of a bag are moments of.
    pub fn episodes(markers: &[Self]) -> Vec<Episode> {
        let events = markers.iter();
        Episode::list(events.filter_map(|marker| Some((marker.time, marker.episode.as_ref()?))))
    }

    /// The entries of a [`MARKER_RECORD`]: the name, and the time in nanoseconds since 1970.
    pub fn entries(&self) -> BTreeMap<String, String> {
        let mut entries = BTreeMap::from([
            (NAME.to_owned(), self.name.clone()),
            (TIME.to_owned(), self.time.as_nanos().to_string()),
        ]);
        if let Some(jump) = self.jump {
            let clock = match jump.clock {
                StampClock::Wall => "wall",
                StampClock::Simulated => "simulated",
            };
            entries.insert(JUMP_FROM.to_owned(), jump.from.as_nanos().to_string());
            entries.insert(CLOCK.to_owned(), clock.to_owned());
        }
        if let Some(episode) = &self.episode {
            episode.add_to(&mut entries);
        }
        entries
    }

    /// The marker that a record describes; `None` when it describes none.
    pub fn from_entries(entries: &BTreeMap<String, String>) -> Option<Self> {
        let time = Timestamp::from_nanos(entries.get(TIME)?.parse().ok()?);
        let from = entries.get(JUMP_FROM).and_then(|from| from.parse().ok());
        let clock = match entries.get(CLOCK).map(String::as_str) {
            Some("simulated") => StampClock::Simulated,
            _ => StampClock::Wall,
        };
        let marker = Self::new(time, entries.get(NAME)?).ok()?;
        Some(Self {
            jump: from.map(|from| ClockJump {
                clock,
                from: Timestamp::from_nanos(from),
                to: time,
            }),
            episode: EpisodeEvent::from_entries(entries),
            ..marker
        })
    }

    /// All markers as one text, for [`MARKERS_CUSTOM_KEY`].
    pub fn list_to_json(markers: &[Self]) -> String {
        serde_json::json!(markers.iter().map(Self::entries).collect::<Vec<_>>()).to_string()
    }

    /// The markers in such a text; invalid ones are left out.
    pub fn list_from_json(text: &str) -> Vec<Self> {
        let entries: Vec<BTreeMap<String, String>> = serde_json::from_str(text).unwrap_or_default();
        entries.iter().filter_map(Self::from_entries).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_survive_their_text() {
        let first = Marker::new(Timestamp::from_nanos(7), " door \"opens\"\u{7} ").unwrap();
        let second = Marker::new(Timestamp::from_nanos(i64::MAX), "é").unwrap();
        assert_eq!(first.name, "door \"opens\"\u{7}");
        let both = [first, second];
        assert_eq!(Marker::list_from_json(&Marker::list_to_json(&both)), both);
        assert_eq!(Marker::from_entries(&both[0].entries()).as_ref(), Some(&both[0]));
        let jump = Marker::of_jump(ClockJump {
            clock: StampClock::Simulated,
            from: Timestamp::from_nanos(9_000_000_000),
            to: Timestamp::from_nanos(-1_500_000_000),
        });
        assert_eq!(jump.name, "simulated time was set back by 10.500 s");
        assert_eq!(Marker::from_entries(&jump.entries()), Some(jump));
    }

    #[test]
    fn what_is_no_marker_is_left_out() {
        assert_eq!(
            Marker::new(Timestamp::default(), " \n"),
            Err(MarkerNameError::Empty)
        );
        let long = "x".repeat(MARKER_NAME_BYTES_MAX + 1);
        assert_eq!(
            Marker::new(Timestamp::default(), &long),
            Err(MarkerNameError::TooLong(MARKER_NAME_BYTES_MAX + 1))
        );
        assert!(Marker::list_from_json("{").is_empty());
        let text = r#"[{"name":"a"},{"name":"","time":"1"},{"name":"b","time":"x"},{"name":"c","time":"3"}]"#;
        assert_eq!(Marker::list_from_json(text).len(), 1);
    }
}
