//! Topics under other names and stamps at other times, in a bag that is made of others.

use super::{ToolError, choice::Chooser};
use holdall_bag::reader::BagSet;
use holdall_model::{
    episode::EpisodeEvent, loss::ledger::Ledger, marker::Marker, time::Timestamp, time_line::ClockJump,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// What services and actions add to their names for the topics that a bag has of them.
const DERIVED: [&str; 2] = ["/_service_event", "/_action/"];

/// A span of time with a direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shift {
    /// To later times.
    Later(Duration),
    /// To earlier times.
    Earlier(Duration),
}

impl Default for Shift {
    fn default() -> Self {
        Self::Later(Duration::ZERO)
    }
}

impl Shift {
    /// True if nothing moves.
    pub fn is_zero(self) -> bool {
        matches!(self, Self::Later(span) | Self::Earlier(span) if span.is_zero())
    }

    /// A time moved; `None` if that is before 1970 or after what 64 bits hold.
    fn checked(self, time: Timestamp) -> Option<Timestamp> {
        let span = |span: Duration| i64::try_from(span.as_nanos()).ok();
        let nanos = match self {
            Self::Later(later) => time.as_nanos().checked_add(span(later)?),
            Self::Earlier(earlier) => time.as_nanos().checked_sub(span(earlier)?),
        };
        nanos.filter(|nanos| *nanos >= 0).map(Timestamp::from_nanos)
    }

    /// A time moved, kept within bounds: publish times and those of an account may be outside of the messages' times.
    pub(super) fn apply(self, time: Timestamp) -> Timestamp {
        if self.is_zero() {
            return time;
        }
        self.checked(time).unwrap_or(match self {
            Self::Later(_) => Timestamp::from_nanos(i64::MAX),
            Self::Earlier(_) => Timestamp::from_nanos(0),
        })
    }
}

/// New names of topics, and how far stamps move: checked against the inputs.
#[derive(Clone, Debug, Default)]
pub(super) struct Relabel {
    names: BTreeMap<String, String>,
    pub shift: Shift,
}

impl Relabel {
    /// Checks the rules against the inputs.
    ///
    /// # Errors
    /// A rule that fits no topic of the choice, two topics that would get one name, stamps outside of what a bag can store.
    pub fn new(
        set: &BagSet,
        names: &BTreeMap<String, String>,
        shift: Shift,
        chooser: &Chooser,
    ) -> Result<Self, ToolError> {
        let relabel = Self {
            names: names.clone(),
            shift,
        };
        relabel.check_names(set, chooser)?;
        if let Some((first, last)) = set.log_times()
            && (shift.checked(first).is_none() || shift.checked(last).is_none())
        {
            return Err(ToolError::Shift {
                first: first.as_nanos(),
                last: last.as_nanos(),
            });
        }
        Ok(relabel)
    }

    fn check_names(&self, set: &BagSet, chooser: &Chooser) -> Result<(), ToolError> {
        if self.names.is_empty() {
            return Ok(());
        }
        let topics = set.topics();
        let chosen = topics
            .iter()
            .filter(|topic| chooser.takes_topic(&topic.name, &topic.type_name));
        let chosen: BTreeSet<&str> = chosen.map(|topic| topic.name.as_str()).collect();
        for (old, new) in &self.names {
            let refused = |reason: String| ToolError::Rename {
                old: old.clone(),
                new: new.clone(),
                reason,
            };
            if !chosen.iter().any(|topic| renamed(topic, old, new).is_some()) {
                return Err(refused("no topic of the choice has this name".to_owned()));
            }
            for topic in &chosen {
                let Some(name) = renamed(topic, old, new) else {
                    continue;
                };
                let other = chosen
                    .iter()
                    .find(|other| *other != topic && self.name(other) == name);
                if let Some(other) = other {
                    return Err(refused(format!("{other} would have this name, too")));
                }
            }
        }
        Ok(())
    }

    /// Whether the output differs from the inputs.
    pub fn is_idle(&self) -> bool {
        self.names.is_empty() && self.shift.is_zero()
    }

    /// A topic's name in the output.
    pub fn name(&self, topic: &str) -> String {
        let new = self.names.iter().find_map(|(old, new)| renamed(topic, old, new));
        new.unwrap_or_else(|| topic.to_owned())
    }

    /// An account with the names and times of the output.
    pub fn relabel_ledger(&self, ledger: &mut Ledger) {
        if self.is_idle() {
            return;
        }
        let shift = |time: &mut Option<Timestamp>| *time = time.map(|time| self.shift.apply(time));
        for topic in &mut ledger.topics {
            topic.name = self.name(&topic.name);
            for interval in topic.publishers.iter_mut().flat_map(|it| &mut it.intervals) {
                shift(&mut interval.first_time);
                shift(&mut interval.last_time);
                shift(&mut interval.sent_after);
                shift(&mut interval.sent_before);
            }
        }
        shift(&mut ledger.checkpoint);
        for restart in &mut ledger.restarts {
            restart.time = self.shift.apply(restart.time);
        }
    }

    /// A marker at its time in the output.
    pub fn relabel_marker(&self, marker: Marker) -> Marker {
        let shift = |jump: ClockJump| ClockJump {
            from: self.shift.apply(jump.from),
            to: self.shift.apply(jump.to),
            ..jump
        };
        Marker {
            time: self.shift.apply(marker.time),
            jump: marker.jump.map(shift),
            episode: marker.episode.map(|episode| EpisodeEvent {
                start: self.shift.apply(episode.start),
                ..episode
            }),
            ..marker
        }
    }
}

/// The new name of a topic by a rule: of the topic itself, or of one that a service or an action of the old name has.
fn renamed(topic: &str, old: &str, new: &str) -> Option<String> {
    let rest = topic.strip_prefix(old)?;
    let fits = rest.is_empty() || DERIVED.iter().any(|derived| rest.starts_with(derived));
    fits.then(|| format!("{new}{rest}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_services_and_actions_derive_is_renamed_with_them() {
        assert_eq!(renamed("/a", "/a", "/b").as_deref(), Some("/b"));
        assert_eq!(
            renamed("/a/_service_event", "/a", "/x/b").as_deref(),
            Some("/x/b/_service_event")
        );
        assert_eq!(
            renamed("/a/_action/feedback", "/a", "/b").as_deref(),
            Some("/b/_action/feedback")
        );
        assert_eq!(renamed("/ab", "/a", "/b"), None);
        assert_eq!(renamed("/a/b", "/a", "/b"), None);
    }

    #[test]
    fn times_stay_within_what_a_bag_can_store() {
        let (second, time) = (Duration::from_secs(1), Timestamp::from_nanos(5));
        assert_eq!(
            Shift::Later(second).checked(time).unwrap().as_nanos(),
            1_000_000_005
        );
        assert_eq!(Shift::Earlier(second).checked(time), None);
        assert_eq!(Shift::Earlier(second).apply(time).as_nanos(), 0);
        assert_eq!(Shift::Later(Duration::MAX).checked(time), None);
    }
}
