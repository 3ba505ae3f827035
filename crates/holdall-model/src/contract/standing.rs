//! What is known of each topic while a recording is judged: the worst of its rules, and which are broken.

use super::verdict::Outcome;
use serde::Serialize;
use std::collections::BTreeMap;

/// Topics that are listed.
const TOPICS_MAX: usize = 1000;

/// What is known until now of a topic that rules are about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Standing {
    /// The worst of its rules.
    pub outcome: Outcome,
    /// Kinds of the rules that have failed: `rate`.
    pub failed: Vec<String>,
    /// Kinds of the rules that have warned.
    pub warned: Vec<String>,
}

/// What is known of the topics, and of rules about more than one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Standings {
    /// By topic that rules are about; at most 1000.
    pub topics: BTreeMap<String, Standing>,
    /// What rules about the whole recording say.
    pub bag: Standing,
}

impl Standings {
    /// From each rule on each topic: the topic, the kind of the rule, and what is known.
    pub(super) fn of<'a>(rules: impl Iterator<Item = (Option<&'a str>, &'a str, Outcome)>) -> Self {
        let mut all = Self::default();
        for (topic, kind, outcome) in rules {
            let has_room = all.topics.len() < TOPICS_MAX;
            let standing = match topic {
                None => &mut all.bag,
                Some(name) if has_room || all.topics.contains_key(name) => {
                    all.topics.entry(name.to_owned()).or_default()
                }
                Some(_) => continue,
            };
            standing.outcome = standing.outcome.max(outcome);
            match outcome {
                Outcome::Failed => standing.failed.push(kind.to_owned()),
                Outcome::Warned => standing.warned.push(kind.to_owned()),
                Outcome::Passed | Outcome::Unknown => {}
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_has_the_worst_of_its_rules_and_topics_are_bounded() {
        let rules = [
            (Some("/scan"), "rate", Outcome::Failed),
            (Some("/scan"), "gap", Outcome::Warned),
            (Some("/imu"), "rate", Outcome::Passed),
            (None, "duration", Outcome::Unknown),
        ];
        let all = Standings::of(rules.into_iter());
        let scan = &all.topics["/scan"];
        assert_eq!(
            (scan.outcome, &*scan.failed, &*scan.warned),
            (Outcome::Failed, &["rate".to_owned()][..], &["gap".to_owned()][..])
        );
        assert_eq!(all.topics["/imu"], Standing::default());
        assert_eq!((all.bag.outcome, all.bag.failed.len()), (Outcome::Unknown, 0));
        let names: Vec<String> = (0..2 * TOPICS_MAX).map(|number| format!("/t{number}")).collect();
        let many = names.iter().map(|name| (Some(&**name), "gap", Outcome::Failed));
        assert_eq!(Standings::of(many).topics.len(), TOPICS_MAX);
    }
}
