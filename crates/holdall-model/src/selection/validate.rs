//! Refuses selections of topics that make no sense, before anything is subscribed.

use super::Selection;
use crate::names::NameError;
use regex::{Regex, RegexBuilder};
use std::fmt;

/// Largest compiled pattern in bytes; keeps hostile repetitions like `(a{1000}){1000}` small.
const PATTERN_BYTES_MAX: usize = 1024 * 1024;

/// A part of a [`Selection`], as errors name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SelectionPart {
    /// [`Selection::topics`].
    Topics,
    /// [`Selection::services`].
    Services,
    /// [`Selection::actions`].
    Actions,
    /// [`Selection::topic_types`].
    TopicTypes,
    /// [`Selection::exclude_topics`].
    ExcludedTopics,
    /// [`Selection::exclude_services`].
    ExcludedServices,
    /// [`Selection::exclude_actions`].
    ExcludedActions,
    /// [`Selection::exclude_topic_types`].
    ExcludedTopicTypes,
    /// [`Selection::exclude_regex`].
    ExcludedPattern,
}

impl fmt::Display for SelectionPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Topics => "selected topics",
            Self::Services => "selected services",
            Self::Actions => "selected actions",
            Self::TopicTypes => "selected types",
            Self::ExcludedTopics => "excluded topics",
            Self::ExcludedServices => "excluded services",
            Self::ExcludedActions => "excluded actions",
            Self::ExcludedTopicTypes => "excluded types",
            Self::ExcludedPattern => "excluded pattern",
        })
    }
}

/// A selection that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SelectionError {
    /// Nothing is selected.
    #[error("no topic is selected")]
    Nothing,
    /// An exclusion, and nothing that it could narrow.
    #[error("{part}: nothing is selected that could contain them")]
    NothingToExcludeFrom {
        /// The exclusion.
        part: SelectionPart,
    },
    /// A name that no topic can have.
    #[error("{part}: {source}")]
    Name {
        /// The part that contains it.
        part: SelectionPart,
        /// The fault in it.
        source: NameError,
    },
    /// A type that no topic can have.
    #[error("{part}: {type_name:?} is not a type; types look like std_msgs/msg/String")]
    Type {
        /// The part that contains it.
        part: SelectionPart,
        /// The type as given.
        type_name: String,
    },
}

/// A text that cannot be used as a regular expression.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{pattern:?} cannot be used as a regular expression: {reason}")]
pub struct PatternError {
    /// The pattern as given.
    pub pattern: String,
    /// The fault in it, on one line.
    pub reason: String,
}

/// Reads a search pattern of a user.
///
/// # Errors
/// When it is not a regular expression, or one that would take too much memory.
pub fn parse_pattern(pattern: &str) -> Result<Regex, PatternError> {
    let error = |error: regex::Error| PatternError {
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
    /// True when nothing is selected.
    pub fn is_empty(&self) -> bool {
        !(self.all_topics || self.all_services || self.all_actions || self.regex.is_some())
            && self.topics.is_empty()
            && self.services.is_empty()
            && self.actions.is_empty()
            && self.topic_types.is_empty()
    }

    /// Checks that every exclusion has something to exclude from, as `ros2 bag record` does. An empty selection
    /// without exclusions is not refused: a recording may have topics that need no discovery.
    ///
    /// # Errors
    /// The first exclusion that cannot have an effect.
    pub fn validate(&self) -> Result<(), SelectionError> {
        let topics = self.all_topics || self.regex.is_some() || !self.topic_types.is_empty();
        let services = self.all_services || self.regex.is_some();
        let actions = self.all_actions || self.regex.is_some();
        let exclusions = [
            (
                SelectionPart::ExcludedPattern,
                self.exclude_regex.is_some(),
                topics || services || actions,
            ),
            (
                SelectionPart::ExcludedTopics,
                !self.exclude_topics.is_empty(),
                topics,
            ),
            (
                SelectionPart::ExcludedTopicTypes,
                !self.exclude_topic_types.is_empty(),
                topics,
            ),
            (
                SelectionPart::ExcludedServices,
                !self.exclude_services.is_empty(),
                services,
            ),
            (
                SelectionPart::ExcludedActions,
                !self.exclude_actions.is_empty(),
                actions,
            ),
        ];
        let useless = exclusions.into_iter().find(|&(_, given, broad)| given && !broad);
        useless.map_or(Ok(()), |(part, ..)| {
            Err(SelectionError::NothingToExcludeFrom { part })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selection_is_empty_until_something_is_selected() {
        let hidden = Selection {
            include_hidden_topics: true,
            ..Selection::default()
        };
        assert!(Selection::default().is_empty() && hidden.is_empty());
        assert!(!Selection::all().is_empty() && !Selection::of_topics(["/a"]).is_empty());
        let service = Selection {
            services: vec!["/add".to_owned()],
            ..Selection::default()
        };
        assert!(!service.is_empty());
    }

    /// The exclusion that is refused, if one is.
    fn refused(selection: &Selection) -> Option<SelectionPart> {
        match selection.validate() {
            Err(SelectionError::NothingToExcludeFrom { part }) => Some(part),
            Err(error) => panic!("{error}"),
            Ok(()) => None,
        }
    }

    #[test]
    fn an_exclusion_needs_a_broad_selection() {
        let listed = Selection::of_topics(["/a"]);
        let names = || vec!["/b".to_owned()];
        let pattern = || Some(Regex::new("b").unwrap());
        let with = |part: SelectionPart| {
            let mut selection = listed.clone();
            match part {
                SelectionPart::ExcludedTopics => selection.exclude_topics = names(),
                SelectionPart::ExcludedServices => selection.exclude_services = names(),
                SelectionPart::ExcludedActions => selection.exclude_actions = names(),
                SelectionPart::ExcludedTopicTypes => selection.exclude_topic_types = names(),
                _ => selection.exclude_regex = pattern(),
            }
            selection
        };
        // The exclusion, and whether all topics, all services, all actions, and a pattern are enough for it.
        for (part, enough) in [
            (SelectionPart::ExcludedTopics, [true, false, false, true]),
            (SelectionPart::ExcludedTopicTypes, [true, false, false, true]),
            (SelectionPart::ExcludedServices, [false, true, false, true]),
            (SelectionPart::ExcludedActions, [false, false, true, true]),
            (SelectionPart::ExcludedPattern, [true, true, true, true]),
        ] {
            assert_eq!(refused(&with(part)), Some(part));
            let [mut topics, mut services, mut actions, mut regex] = [(); 4].map(|()| with(part));
            topics.all_topics = true;
            services.all_services = true;
            actions.all_actions = true;
            regex.regex = pattern();
            let allowed = [topics, services, actions, regex].map(|selection| refused(&selection).is_none());
            assert_eq!(allowed, enough, "{part}");
        }
    }

    #[test]
    fn bad_patterns_are_refused_in_one_line() {
        let error = parse_pattern("a(b").unwrap_err().to_string();
        assert_eq!(
            error,
            "\"a(b\" cannot be used as a regular expression: unclosed group"
        );
        let huge = parse_pattern("(a{1000}){1000}").unwrap_err();
        assert!(huge.to_string().contains("size limit"), "{huge}");
        assert!(parse_pattern(r"\/.*_node\/.*").unwrap().is_match("/x/a_node/b"));
    }
}
