//! Refuses choices of topics that make no sense before a recording begins.

use super::Selection;
use crate::names::NameError;
use regex::{Regex, RegexBuilder};

/// Largest compiled pattern in bytes; keeps hostile repetitions like `(a{1000}){1000}` small.
const PATTERN_BYTES_MAX: usize = 1024 * 1024;

/// A choice of topics that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SelectionError {
    /// Nothing chosen.
    #[error(
        "nothing to record: give at least one of --all, --all-topics, --all-services, --topics, --services, \
         --topic-types, --regex"
    )]
    Nothing,
    /// An exclusion without a broad selection.
    #[error("{option} excludes topics, so it needs one of {needed}")]
    ExcludeWithoutBroadSelector {
        /// The option that was given.
        option: &'static str,
        /// The options of which one is needed.
        needed: &'static str,
    },
    /// A name that no topic can have.
    #[error("{option}: {source}")]
    Name {
        /// The option that it was given to.
        option: &'static str,
        /// What is wrong with it.
        source: NameError,
    },
    /// A type that no topic can have.
    #[error("{option}: {type_name:?} is not a type; types look like std_msgs/msg/String")]
    Type {
        /// The option that it was given to.
        option: &'static str,
        /// The type as given.
        type_name: String,
    },
    /// A pattern that cannot be used as a regular expression.
    #[error("{option}: {pattern:?} cannot be used as a regular expression: {reason}")]
    Pattern {
        /// The option that it was given to.
        option: &'static str,
        /// The pattern as given.
        pattern: String,
        /// What is wrong with it, on one line.
        reason: String,
    },
}

/// Reads a search pattern that a user gave to `option`, for example `--regex`.
///
/// # Errors
/// When it is no regular expression, or one that would take too much memory.
pub fn parse_pattern(option: &'static str, pattern: &str) -> Result<Regex, SelectionError> {
    let error = |error: regex::Error| SelectionError::Pattern {
        option,
        pattern: pattern.to_owned(),
        reason: one_line(&error.to_string()),
    };
    RegexBuilder::new(pattern)
        .size_limit(PATTERN_BYTES_MAX)
        .build()
        .map_err(error)
}

/// The last line of a parser's message, which states the reason; the lines before it draw the position.
fn one_line(message: &str) -> String {
    let line = message.lines().last().unwrap_or_default().trim();
    line.strip_prefix("error: ").unwrap_or(line).to_owned()
}

impl Selection {
    /// True when nothing is selected. (Topics that are given with their types, to subscribe before discovery,
    /// are not part of the selection.)
    pub fn is_empty(&self) -> bool {
        !(self.all_topics || self.all_services || self.regex.is_some())
            && self.topics.is_empty()
            && self.services.is_empty()
            && self.topic_types.is_empty()
    }

    /// Checks that the options go together.
    ///
    /// # Errors
    /// The first combination that makes no sense.
    pub fn validate(&self) -> Result<(), SelectionError> {
        if self.is_empty() {
            return Err(SelectionError::Nothing);
        }
        let broad_topics = self.all_topics || self.regex.is_some() || !self.topic_types.is_empty();
        let broad_services = self.all_services || self.regex.is_some();
        let topics_needed = "--all, --all-topics, --topic-types or --regex";
        let services_needed = "--all, --all-services or --regex";
        let any_needed = "--all, --all-topics, --all-services, --topic-types or --regex";
        let checks = [
            (
                "--exclude-topics",
                !self.exclude_topics.is_empty(),
                broad_topics,
                topics_needed,
            ),
            (
                "--exclude-topic-types",
                !self.exclude_topic_types.is_empty(),
                broad_topics,
                topics_needed,
            ),
            (
                "--exclude-services",
                !self.exclude_services.is_empty(),
                broad_services,
                services_needed,
            ),
            (
                "--exclude-regex",
                self.exclude_regex.is_some(),
                broad_topics || broad_services,
                any_needed,
            ),
        ];
        match checks.into_iter().find(|&(_, given, broad, _)| given && !broad) {
            Some((option, _, _, needed)) => {
                Err(SelectionError::ExcludeWithoutBroadSelector { option, needed })
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_least_one_selector_is_needed() {
        assert_eq!(Selection::default().validate(), Err(SelectionError::Nothing));
        let hidden = Selection {
            include_hidden_topics: true,
            ..Selection::default()
        };
        assert_eq!(hidden.validate(), Err(SelectionError::Nothing));
        let one = Selection {
            services: vec!["/add".to_owned()],
            ..Selection::default()
        };
        assert_eq!(one.validate(), Ok(()));
    }

    #[test]
    fn an_exclusion_needs_a_broad_selection() {
        let listed = Selection {
            topics: vec!["/a".to_owned()],
            ..Selection::default()
        };
        let option = |selection: Selection| match selection.validate() {
            Err(SelectionError::ExcludeWithoutBroadSelector { option, .. }) => Some(option),
            _ => None,
        };
        let names = || vec!["/b".to_owned()];
        let pattern = || Some(Regex::new("b").unwrap());
        let topics = Selection {
            exclude_topics: names(),
            ..listed.clone()
        };
        assert_eq!(option(topics.clone()), Some("--exclude-topics"));
        assert_eq!(
            option(Selection {
                all_topics: true,
                ..topics.clone()
            }),
            None
        );
        assert_eq!(
            option(Selection {
                regex: pattern(),
                ..topics.clone()
            }),
            None
        );
        assert_eq!(
            option(Selection {
                all_services: true,
                ..topics
            }),
            Some("--exclude-topics")
        );
        let services = Selection {
            exclude_services: names(),
            ..listed.clone()
        };
        assert_eq!(option(services.clone()), Some("--exclude-services"));
        assert_eq!(
            option(Selection {
                all_topics: true,
                ..services.clone()
            }),
            Some("--exclude-services")
        );
        assert_eq!(
            option(Selection {
                all_services: true,
                ..services
            }),
            None
        );
        let types = Selection {
            exclude_topic_types: names(),
            ..listed.clone()
        };
        assert_eq!(option(types), Some("--exclude-topic-types"));
        let regex = Selection {
            exclude_regex: pattern(),
            ..listed
        };
        assert_eq!(option(regex.clone()), Some("--exclude-regex"));
        assert_eq!(
            option(Selection {
                all_services: true,
                ..regex
            }),
            None
        );
    }

    #[test]
    fn bad_patterns_are_refused_in_one_line() {
        let error = parse_pattern("--regex", "a(b").unwrap_err().to_string();
        assert_eq!(
            error,
            "--regex: \"a(b\" cannot be used as a regular expression: unclosed group"
        );
        let huge = parse_pattern("--regex", "(a{1000}){1000}").unwrap_err();
        assert!(huge.to_string().contains("size limit"), "{huge}");
        assert!(
            parse_pattern("--regex", r"\/.*_node\/.*")
                .unwrap()
                .is_match("/x/a_node/b")
        );
    }
}
