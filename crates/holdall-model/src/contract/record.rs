//! The record of a bag that has the contract of its recording, and what that said at the end.

use super::verdict::{Ending, Outcome, Verdict, Violation};
use crate::time::Timestamp;
use serde::Deserialize;
use std::collections::BTreeMap;

/// Its name. One is written when the recording begins, and one with the verdict when it ends.
pub const CONTRACT_RECORD: &str = "holdall:contract";

/// Key of `custom_data` in `metadata.yaml` that holds the outcome.
pub const CONTRACT_CUSTOM_KEY: &str = "holdall.contract";

/// Violations in it; the contract and the bag give all of them.
const LISTED_MAX: usize = 100;

const CONTRACT: &str = "contract";
const START: &str = "start";
const END: &str = "end";
const DISK_LEFT: &str = "disk_left";
const OUTCOME: &str = "outcome";
const VERDICT: &str = "verdict";

/// A contract as a bag has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContractRecord {
    /// The contract as it was written.
    pub contract: String,
    /// When the recording began, in log time.
    pub start: Timestamp,
    /// When it ended; `None` of one that was cut off.
    pub end: Option<Timestamp>,
    /// Free space of the disk then, in bytes.
    pub disk_left: Option<u64>,
    /// The name of the outcome.
    pub outcome: Option<String>,
    /// The verdict as JSON, with the first 100 violations.
    pub verdict: Option<String>,
}

impl ContractRecord {
    /// The record at the end of a recording; it has no verdict if it was not judged to the end.
    pub fn of(contract: &str, ending: &Ending, outcome: Outcome, verdict: Option<&Verdict>) -> Self {
        let shown = verdict.cloned().map(|mut shown| {
            shown.more_violations += shown.violations.len().saturating_sub(LISTED_MAX) as u64;
            shown.violations.truncate(LISTED_MAX);
            shown
        });
        Self {
            contract: contract.to_owned(),
            start: ending.start,
            end: Some(ending.end),
            disk_left: ending.disk_left,
            outcome: Some(outcome.as_str().to_owned()),
            verdict: shown.and_then(|shown| serde_json::to_string(&shown).ok()),
        }
    }

    /// What was wrong, by time, as far as the record lists it.
    pub fn violations(&self) -> Vec<Violation> {
        #[derive(Deserialize)]
        struct Listed {
            violations: Vec<Violation>,
        }
        let listed = self.verdict.as_deref().map(serde_json::from_str);
        let mut violations = match listed {
            Some(Ok(Listed { violations })) => violations,
            _ => Vec::new(),
        };
        violations.truncate(LISTED_MAX);
        violations
    }

    /// Its entries; times are in nanoseconds since 1970.
    pub fn entries(&self) -> BTreeMap<String, String> {
        let known = [
            (CONTRACT, Some(self.contract.clone())),
            (START, Some(self.start.as_nanos().to_string())),
            (END, self.end.map(|end| end.as_nanos().to_string())),
            (DISK_LEFT, self.disk_left.map(|bytes| bytes.to_string())),
            (OUTCOME, self.outcome.clone()),
            (VERDICT, self.verdict.clone()),
        ];
        let known = known.into_iter();
        known
            .filter_map(|(name, text)| Some((name.to_owned(), text?)))
            .collect()
    }

    /// With the record's name.
    pub fn named(&self) -> (String, BTreeMap<String, String>) {
        (CONTRACT_RECORD.to_owned(), self.entries())
    }

    /// The entry for `metadata.yaml`: the outcome, so that it is found without opening a file. That of a recording that was cut off is unknown.
    pub fn custom_data(&self) -> (String, String) {
        let outcome = self.outcome.as_deref().unwrap_or(Outcome::Unknown.as_str());
        (CONTRACT_CUSTOM_KEY.to_owned(), outcome.to_owned())
    }

    /// Reads the entries; `None` if they are not those of a contract.
    pub fn from_entries(entries: &BTreeMap<String, String>) -> Option<Self> {
        let time = |name| Some(Timestamp::from_nanos(entries.get(name)?.parse().ok()?));
        Some(Self {
            contract: entries.get(CONTRACT)?.clone(),
            start: time(START)?,
            end: time(END),
            disk_left: entries.get(DISK_LEFT).and_then(|text| text.parse().ok()),
            outcome: entries.get(OUTCOME).cloned(),
            verdict: entries.get(VERDICT).cloned(),
        })
    }

    /// The beginning and the end of the recording; `times` are those of its first and its last message.
    pub fn span(&self, times: Option<(Timestamp, Timestamp)>) -> (Timestamp, Timestamp) {
        let end = self.end.unwrap_or(self.start);
        let (first, last) = times.unwrap_or((self.start, end));
        (self.start.min(first), end.max(last))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let violation = Violation {
            rule: 0,
            topic: Some("/scan".to_owned()),
            since: Timestamp::from_nanos(6),
            until: None,
            text: "no message for 2 s".to_owned(),
        };
        let verdict = Verdict {
            violations: vec![violation.clone(); LISTED_MAX + 1],
            ..Verdict::default()
        };
        let ending = Ending {
            start: Timestamp::from_nanos(5),
            end: Timestamp::from_nanos(9),
            disk_left: Some(7),
            ..Ending::default()
        };
        let record = ContractRecord::of("version: 1", &ending, Outcome::Passed, Some(&verdict));
        assert_eq!(
            ContractRecord::from_entries(&record.entries()),
            Some(record.clone())
        );
        assert_eq!(record.violations(), vec![violation; LISTED_MAX]);
        let begun = ContractRecord {
            contract: "version: 1".to_owned(),
            ..ContractRecord::default()
        };
        assert_eq!(begun.custom_data().1, "unknown");
        assert_eq!(ContractRecord::from_entries(&begun.entries()), Some(begun));
        let failed = ContractRecord::of("version: 1", &ending, Outcome::Unknown, None);
        assert_eq!(
            (failed.custom_data().1.as_str(), failed.verdict),
            ("unknown", None)
        );
        assert_eq!(ContractRecord::from_entries(&BTreeMap::new()), None);
        let [first, last] = [6, 12].map(Timestamp::from_nanos);
        assert_eq!(record.span(Some((first, last))), (record.start, last));
        assert_eq!(record.span(None), (record.start, Timestamp::from_nanos(9)));
    }
}
