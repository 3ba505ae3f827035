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

impl Standing {
    fn add(&mut self, kind: &str, outcome: Outcome) {
        self.outcome = self.outcome.max(outcome);
        match outcome {
            Outcome::Failed => self.failed.push(kind.to_owned()),
            Outcome::Warned => self.warned.push(kind.to_owned()),
            Outcome::Passed | Outcome::Unknown => {}
        }
    }
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
        let (mut all, mut last, mut standing) = (Self::default(), None, Standing::default());
        // The rules of a topic come one after the other, and this is asked with each batch: a topic is looked up once.
        for (topic, kind, outcome) in rules {
            if last != topic {
                all.add(last, std::mem::take(&mut standing));
                last = topic;
            }
            standing.add(kind, outcome);
        }
        all.add(last, standing);
        all
    }

    fn add(&mut self, topic: Option<&str>, more: Standing) {
        let has_room = self.topics.len() < TOPICS_MAX;
        let standing = match topic {
            None => &mut self.bag,
            Some(name) if has_room || self.topics.contains_key(name) => {
                self.topics.entry(name.to_owned()).or_default()
            }
            Some(_) => return,
        };
        standing.outcome = standing.outcome.max(more.outcome);
        standing.failed.extend(more.failed);
        standing.warned.extend(more.warned);
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
