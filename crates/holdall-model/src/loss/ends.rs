//! Publishers whose last message is not known: sums, and the words that every report uses for them.

use super::ledger::is_zero;
use crate::time::Timestamp;
use crate::units::counted;
use serde::{Deserialize, Serialize};

/// Publishers whose end is not known, summed up.
///
/// A publisher's end is known when an announcement, a farewell or a later message shows what it sent last. Otherwise messages after the
/// last one that arrived may be missing, and no count includes them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnknownEnds {
    /// Number of such publishers.
    pub publishers: u64,
    /// Those of them that went silent: without a farewell (killed, link lost, lease expired), or without an answer at the end.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub silent: u64,
    /// Those silent ones that were received reliably.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub silent_reliable: u64,
    /// The last sign of life of the silent one that has been silent for longest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silent_since: Option<Timestamp>,
}

impl UnknownEnds {
    /// The words for publishers that went silent, the same in every report.
    pub const SILENT: &str = "end unknown";

    /// The words for the others: they are alive or announced their end, and nothing shows what they sent last.
    pub const UNCONFIRMED: &str = "end not confirmed";

    /// Instead of "none", where no loss is known and some end is not.
    pub const NONE_KNOWN: &str = "none known";

    /// True when every end is known.
    pub fn is_none(&self) -> bool {
        self.publishers == 0
    }

    /// Publishers that did not go silent, but whose last message is not known.
    pub fn unconfirmed(&self) -> u64 {
        self.publishers.saturating_sub(self.silent)
    }

    /// True if a publisher that was received reliably went silent: decides exit code 3, as a loss does.
    pub fn is_failure(&self) -> bool {
        self.silent_reliable > 0
    }

    /// Adds others.
    pub fn add(&mut self, other: &Self) {
        for (sum, count) in [
            (&mut self.publishers, other.publishers),
            (&mut self.silent, other.silent),
            (&mut self.silent_reliable, other.silent_reliable),
        ] {
            *sum = sum.saturating_add(count);
        }
        self.silent_since = match (self.silent_since, other.silent_since) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
    }

    /// The sum of many.
    pub fn of_all(all: impl IntoIterator<Item = Self>) -> Self {
        let mut sum = Self::default();
        all.into_iter().for_each(|one| sum.add(&one));
        sum
    }

    /// The unknown ends, as lines for people: publishers that went silent, then the others. `topics` has a topic's name with its
    /// publishers; `time` writes a time of day.
    pub fn lines<'a>(
        topics: impl IntoIterator<Item = (&'a str, Self)>,
        time: impl Fn(Timestamp) -> String,
    ) -> EndLines {
        let topics: Vec<(&str, Self)> = topics.into_iter().collect();
        let sum = Self::of_all(topics.iter().map(|(_, ends)| *ends));
        let since = sum.silent_since.map(|since| format!(" since {}", time(since)));
        let silent = (sum.silent > 0).then(|| {
            format!(
                "{}: {} ({}), silent{} without a farewell: what came after that is not known",
                Self::SILENT,
                publishers(sum.silent),
                names(topics.iter().filter(|(_, ends)| ends.silent > 0)),
                since.unwrap_or_default(),
            )
        });
        let unconfirmed = (sum.unconfirmed() > 0).then(|| {
            format!(
                "{}: {} ({}): nothing announces what they sent last, and nothing came after the stop",
                Self::UNCONFIRMED,
                publishers(sum.unconfirmed()),
                names(topics.iter().filter(|(_, ends)| ends.unconfirmed() > 0)),
            )
        });
        EndLines { silent, unconfirmed }
    }
}

/// The result of [`UnknownEnds::lines`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EndLines {
    /// Publishers that went silent: a warning.
    pub silent: Option<String>,
    /// The others.
    pub unconfirmed: Option<String>,
}

/// Topics that a line names; it counts the others.
const NAMED_MAX: usize = 4;

fn publishers(count: u64) -> String {
    counted(count, "publisher")
}

fn names<'a>(topics: impl Iterator<Item = &'a (&'a str, UnknownEnds)>) -> String {
    crate::text::first_of(topics.map(|(name, _)| *name), NAMED_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn silent(at: i64) -> UnknownEnds {
        UnknownEnds {
            publishers: 1,
            silent: 1,
            silent_reliable: 1,
            silent_since: Some(Timestamp::from_nanos(at)),
        }
    }

    const QUIET: UnknownEnds = UnknownEnds {
        publishers: 2,
        silent: 0,
        silent_reliable: 0,
        silent_since: None,
    };

    #[test]
    fn the_sum_has_the_earliest_silence() {
        let sum = UnknownEnds::of_all([silent(7), QUIET, silent(5)]);
        assert_eq!((sum.publishers, sum.silent, sum.unconfirmed()), (4, 2, 2));
        assert_eq!(sum.silent_since, Some(Timestamp::from_nanos(5)));
        assert!(sum.is_failure() && !QUIET.is_failure() && !QUIET.is_none());
    }

    #[test]
    fn each_kind_has_a_line_of_its_own() {
        let time = |at: Timestamp| format!("at {}", at.as_nanos());
        let none = UnknownEnds::lines([("/known", UnknownEnds::default())], time);
        assert_eq!(none, EndLines::default());
        let lines = UnknownEnds::lines(
            [("/lidar", silent(7)), ("/camera", QUIET), ("/tf", silent(5))],
            time,
        );
        assert_eq!(
            lines.silent.as_deref(),
            Some(
                "end unknown: 2 publishers (/lidar, /tf), silent since at 5 without a farewell: what came after that is not known"
            )
        );
        let unconfirmed = lines.unconfirmed.unwrap();
        assert!(
            unconfirmed.starts_with("end not confirmed: 2 publishers (/camera): "),
            "{unconfirmed}"
        );
        let many = ["/a", "/b", "/c", "/d", "/e", "/f"].map(|name| (name, QUIET));
        let lines = UnknownEnds::lines(many, time);
        assert!(lines.unconfirmed.unwrap().contains("(/a, /b, /c, /d and 2 more)"));
    }
}
