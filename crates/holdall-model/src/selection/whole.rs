//! Patterns that must match a whole name, as those of `ros2 bag play`.

use super::{PatternError, parse_pattern};
use regex::Regex;

/// A regular expression that a whole name must match.
#[derive(Clone, Debug)]
pub struct WholePattern {
    given: String,
    anchored: Regex,
}

impl WholePattern {
    /// Compiles a pattern.
    ///
    /// # Errors
    /// As [`parse_pattern`].
    pub fn new(given: &str) -> Result<Self, PatternError> {
        // Compiled alone first, so that an unbalanced parenthesis cannot hide in the wrapping.
        parse_pattern(given)?;
        let anchored = parse_pattern(&format!("^(?:{given})$")).map_err(|error| PatternError {
            pattern: given.to_owned(),
            reason: error.reason,
        })?;
        Ok(Self {
            given: given.to_owned(),
            anchored,
        })
    }

    /// Whether the pattern matches all of `name`, by any of its alternatives.
    pub fn matches(&self, name: &str) -> bool {
        self.anchored.is_match(name)
    }

    /// The pattern as given.
    pub fn as_str(&self) -> &str {
        &self.given
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_alternative_is_tried_for_the_whole_name() {
        let matches = |pattern: &str, name: &str| WholePattern::new(pattern).unwrap().matches(name);
        assert!(matches("/a|/ab", "/ab") && matches("/a|/ab", "/a"));
        assert!(matches("/a|/b", "/b"));
        assert!(matches("/a.*?", "/abc"));
        assert!(!matches("/a|/b", "/ab") && !matches("/a", "/a/b") && !matches("b", "/b"));
    }

    #[test]
    fn what_only_the_wrapping_would_balance_is_refused() {
        assert_eq!(WholePattern::new("a)(b").unwrap_err().pattern, "a)(b");
        assert_eq!(WholePattern::new("/a|/ab").unwrap().as_str(), "/a|/ab");
    }
}
