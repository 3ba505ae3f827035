//! Verdicts: what a contract says of a recording, rule by rule.

use super::parse::Severity;
use crate::{
    episode::Episode,
    loss::{
        LossSums,
        ledger::{Ledger, TopicAccount},
    },
    time::Timestamp,
    units::counted,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Violations of a verdict that are listed; further ones are counted.
pub(super) const LISTED_MAX: usize = 1000;
/// Rules of a topic whose violations are passed on at once.
pub(super) const LIVE_MAX: usize = 1000;

/// The result of a contract or of a rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Nothing is wrong.
    #[default]
    Passed,
    /// Something that is worth a look.
    Warned,
    /// Some rule could not be decided.
    Unknown,
    /// A rule is broken.
    Failed,
}

impl Outcome {
    /// Every outcome.
    pub const ALL: [Self; 4] = [Self::Passed, Self::Warned, Self::Unknown, Self::Failed];

    /// Its name in reports and catalogs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Warned => "warned",
            Self::Unknown => "unknown",
            Self::Failed => "failed",
        }
    }
}

/// Something that is wrong, from when to when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Violation {
    /// The number of the rule in the contract.
    pub rule: usize,
    /// Full name of the topic; `None` for the whole bag.
    pub topic: Option<String>,
    /// When it began, in log time.
    #[serde(rename = "since_ns")]
    pub since: Timestamp,
    /// When it was over; `None` if it lasted to the end.
    #[serde(rename = "until_ns")]
    pub until: Option<Timestamp>,
    /// One clause for people.
    pub text: String,
}

/// The result of a rule on a topic.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RuleVerdict {
    /// The number of the rule in the contract.
    pub rule: usize,
    /// Its kind: `rate`.
    pub kind: String,
    /// Full name of the topic, or the pattern that no topic matched; `None` for the whole bag.
    pub topic: Option<String>,
    /// How bad a violation is.
    pub severity: Severity,
    /// The result.
    pub outcome: Outcome,
    /// What was checked: messages, windows.
    pub checked: u64,
    /// How many violations there were.
    pub violations: u64,
    /// Messages that could not be looked at.
    pub left_out: u64,
    /// Why it could not be decided, or why the rule is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// What a contract says of a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// The contract's name.
    pub contract: String,
    /// The worst of all rules.
    pub outcome: Outcome,
    /// Rules by topic.
    pub rules: Vec<RuleVerdict>,
    /// What is wrong, by time; at most 1000.
    pub violations: Vec<Violation>,
    /// How many more there were.
    pub more_violations: u64,
    /// Topics whose first messages have expired, with when those that are left begin: those before are not judged.
    #[serde(rename = "expired_before_ns", skip_serializing_if = "BTreeMap::is_empty")]
    pub expired: BTreeMap<String, Option<Timestamp>>,
    /// Messages that came after later ones had been judged, and topics that were too many: nothing was judged of these.
    pub not_judged: u64,
}

impl Verdict {
    /// Rules with a result.
    pub fn count(&self, outcome: Outcome) -> usize {
        self.rules.iter().filter(|rule| rule.outcome == outcome).count()
    }

    /// One clause: `failed (2 of 14 rules failed, 1 unknown)`.
    pub fn line(&self) -> String {
        let named = [Outcome::Failed, Outcome::Unknown, Outcome::Warned];
        let counts = named.map(|outcome| (self.count(outcome), outcome.as_str()));
        let mut parts: Vec<String> = counts
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, word)| format!("{count} {word}"))
            .collect();
        parts.insert(0, format!("{} rules", self.rules.len()));
        format!("{} ({})", self.outcome.as_str(), parts.join(", "))
    }
}

/// Lost messages of a topic.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// Those that are known.
    pub known: u64,
    /// Why there may be more, one clause; `None` if these are all.
    pub unknown: Option<String>,
}

impl Lost {
    fn of(topic: &TopicAccount, ledger: &Ledger) -> Self {
        let ends = topic.unknown_ends().publishers;
        Self {
            known: LossSums::of(&topic.missing).lost,
            unknown: match () {
                () if ledger.checkpoint.is_some() => {
                    Some("the account was cut off before the end of the recording".to_owned())
                }
                () if topic.loss_unknown => Some("losses in transit of the topic are not known".to_owned()),
                () if ends > 0 => Some(format!(
                    "what {} sent last is not known",
                    counted(ends, "publisher")
                )),
                () => None,
            },
        }
    }

    /// All topics together.
    pub(super) fn of_all<'a>(all: impl Iterator<Item = &'a Self>) -> Self {
        all.fold(Self::default(), |sum, lost| Self {
            known: sum.known.saturating_add(lost.known),
            unknown: sum.unknown.or_else(|| lost.unknown.clone()),
        })
    }
}

/// What only the recorder knows when a recording ends, or what a bag has of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ending {
    /// When the recording began, in log time.
    pub start: Timestamp,
    /// When it ended.
    pub end: Timestamp,
    /// Lost messages by topic; `None` without an account.
    pub losses: Option<BTreeMap<String, Lost>>,
    /// The nodes of the publishers of each topic where they are known; `None` without an account.
    pub publishers: Option<BTreeMap<String, Vec<Option<String>>>>,
    /// Free space of the disk, in bytes.
    pub disk_left: Option<u64>,
    /// The episodes of its markers.
    pub episodes: Vec<Episode>,
    /// Topics whose first messages a ring has removed, with when those that are left begin; `None` where none are.
    pub expired: BTreeMap<String, Option<Timestamp>>,
    /// When the recording began is not known: `start` is when what is left of it begins.
    pub is_start_unknown: bool,
}

impl Ending {
    /// With the losses and publishers of an account.
    #[must_use]
    pub fn with_account(mut self, ledger: &Ledger) -> Self {
        let lost = ledger.topics.iter();
        let lost = lost.map(|topic| (topic.name.clone(), Lost::of(topic, ledger)));
        self.losses = Some(lost.collect());
        if ledger.checkpoint.is_some() {
            // Publishers that came later are not in it.
            return self;
        }
        let publishers = ledger.topics.iter().map(|topic| {
            let listed = topic.publishers.iter().filter(|publisher| publisher.recorded > 0);
            let nodes: Vec<Option<String>> = listed.map(|publisher| publisher.node.clone()).collect();
            (topic.name.clone(), nodes)
        });
        self.publishers = Some(publishers.collect());
        self
    }
}
