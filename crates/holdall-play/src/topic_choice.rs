//! Which topics of a bag are played, and under which names.

use super::{error::PlayError, options::PlayOptions};
use holdall_bag::reader::WholePattern;
use std::collections::{BTreeMap, BTreeSet};

/// The choice of topics, as `ros2 bag play` understands it: excluded topics never, then listed ones, then those that match.
#[derive(Clone, Debug)]
pub(crate) struct TopicChoice {
    topics: BTreeSet<String>,
    exclude_topics: BTreeSet<String>,
    regex: Option<WholePattern>,
    exclude_regex: Option<WholePattern>,
    remap: BTreeMap<String, String>,
}

impl TopicChoice {
    /// Compiles the choice that `options` make.
    ///
    /// # Errors
    /// When a regular expression cannot be compiled.
    pub fn new(options: &PlayOptions) -> Result<Self, PlayError> {
        Ok(Self {
            topics: options.topics.iter().map(|name| absolute(name)).collect(),
            exclude_topics: options.exclude_topics.iter().map(|name| absolute(name)).collect(),
            regex: options.regex.as_deref().map(whole_match).transpose()?,
            exclude_regex: options.exclude_regex.as_deref().map(whole_match).transpose()?,
            remap: options
                .remap
                .iter()
                .map(|(old, new)| (absolute(old), absolute(new)))
                .collect(),
        })
    }

    /// True if the topic of this recorded name is played.
    pub fn takes(&self, name: &str) -> bool {
        let matches = |regex: &Option<WholePattern>| regex.as_ref().is_some_and(|regex| regex.matches(name));
        if self.exclude_topics.contains(name) || matches(&self.exclude_regex) {
            return false;
        }
        let everything = self.topics.is_empty() && self.regex.is_none();
        everything || self.topics.contains(name) || matches(&self.regex)
    }

    /// The name that the topic of this recorded name is published under.
    pub fn published_as(&self, name: &str) -> String {
        self.remap.get(name).cloned().unwrap_or_else(|| name.to_owned())
    }

    /// Listed topics that none of `names` is; a user would want to know.
    pub fn missing<'a>(&self, names: impl Iterator<Item = &'a str>) -> Vec<String> {
        let present: BTreeSet<&str> = names.collect();
        let wanted = self.topics.iter().chain(self.remap.keys());
        let missing: BTreeSet<_> = wanted.filter(|name| !present.contains(name.as_str())).collect();
        missing.into_iter().cloned().collect()
    }
}

/// Names without a leading slash are resolved from the root: the player's node has no namespace.
fn absolute(name: &str) -> String {
    if name.starts_with('/') {
        name.to_owned()
    } else {
        format!("/{name}")
    }
}

/// A pattern that must match a whole name (rosbag2 uses `std::regex_match` here, and a search when recording).
fn whole_match(pattern: &str) -> Result<WholePattern, PlayError> {
    WholePattern::new(pattern).map_err(|error| PlayError::Regex {
        pattern: error.pattern,
        reason: error.reason,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choice(change: impl FnOnce(&mut PlayOptions)) -> TopicChoice {
        let mut options = PlayOptions::default();
        change(&mut options);
        TopicChoice::new(&options).expect("valid")
    }

    #[test]
    fn everything_is_played_unless_something_is_said() {
        assert!(choice(|_| {}).takes("/any/_hidden/topic"));
    }

    #[test]
    fn listed_topics_and_matching_topics_are_both_played() {
        let choice = choice(|options| {
            options.topics = vec!["/a".into(), "b".into()];
            options.regex = Some("/cam.*".into());
        });
        assert!(choice.takes("/a") && choice.takes("/b") && choice.takes("/camera/image"));
        assert!(!choice.takes("/c"));
    }

    #[test]
    fn patterns_match_whole_names_only() {
        let choice = choice(|options| options.regex = Some("/a|/b".into()));
        assert!(choice.takes("/a") && choice.takes("/b"));
        assert!(!choice.takes("/ab") && !choice.takes("/b/c"));
    }

    #[test]
    fn exclusion_wins() {
        let choice = choice(|options| {
            options.topics = vec!["/a".into(), "/b".into()];
            options.exclude_topics = vec!["/a".into()];
            options.exclude_regex = Some("/b".into());
        });
        assert!(!choice.takes("/a") && !choice.takes("/b"));
    }

    #[test]
    fn remapping_is_by_the_whole_recorded_name() {
        let choice = choice(|options| {
            options.remap = BTreeMap::from([("old".into(), "/new".into())]);
        });
        assert_eq!(choice.published_as("/old"), "/new");
        assert_eq!(choice.published_as("/old/a"), "/old/a");
    }

    #[test]
    fn a_broken_pattern_is_one_sentence() {
        let options = PlayOptions {
            exclude_regex: Some("(a".into()),
            ..PlayOptions::default()
        };
        let error = TopicChoice::new(&options).expect_err("unbalanced").to_string();
        assert!(error.contains("(a") && !error.contains('\n'), "{error}");
        let options = PlayOptions {
            regex: Some("a)(b".into()),
            ..PlayOptions::default()
        };
        assert!(TopicChoice::new(&options).is_err());
    }

    #[test]
    fn listed_topics_that_are_not_in_the_bag_are_named() {
        let choice = choice(|options| options.topics = vec!["/a".into(), "/nowhere".into()]);
        assert_eq!(choice.missing(["/a", "/b"].into_iter()), ["/nowhere"]);
    }
}
