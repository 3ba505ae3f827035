//! Contracts: rules for what a recording has to be, as data, and the state machines that judge messages by them, live and afterwards alike.
//!
//! Each message becomes [`Facts`] by itself, in any order; the [`Judge`] puts the facts in the order of their times and steps the machines of the
//! rules. So a verdict depends on the messages alone, not on when they were seen.

mod cloud;
mod content;
mod drift;
mod feed;
mod image;
mod judge;
mod keys;
mod learn;
mod learned;
mod live;
mod machine;
mod meter;
mod parse;
mod picture;
mod rate;
mod record;
mod sample;
mod schema;
mod sentence;
mod skew;
mod standing;
#[cfg(test)]
mod tests;
mod topic;
mod tree;
mod verdict;
mod waiting;

pub use content::Facts;
pub use feed::{Feed, NewsQueue};
pub use judge::{Arrival, Judge, TopicSlot};
pub use learn::{Learned, Learner};
pub use live::{ContractStatus, LiveJudge, News, RuleAlarm};
pub use parse::{CONTRACT_BYTES_MAX, Contract, ContractError, Rule, RuleTopic, Severity, Tolerance};
pub use record::{CONTRACT_CUSTOM_KEY, CONTRACT_RECORD, ContractRecord};
pub use sample::{Sample, Want};
pub use schema::json_schema;
pub use sentence::sentence;
pub use standing::{Standing, Standings};
pub use topic::{plan_of, want_of};
pub use verdict::{Ending, Lost, Outcome, RuleVerdict, Verdict, Violation};
