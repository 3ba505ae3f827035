//! Regular expressions given on the command line, with errors that fit in one sentence.

use super::UsageError;
use holdall::reader::WholePattern;
use holdall_model::selection::{PatternError, parse_pattern};
use regex::Regex;

/// Compiles a search pattern given to `flag`; `None` and the empty text mean "no pattern", as in rosbag2.
pub fn compile(flag: &'static str, pattern: Option<&str>) -> Result<Option<Regex>, UsageError> {
    compile_by(parse_pattern, flag, pattern)
}

/// As [`compile`], of a pattern that must match a whole name.
pub fn compile_whole(flag: &'static str, pattern: Option<&str>) -> Result<Option<WholePattern>, UsageError> {
    compile_by(WholePattern::new, flag, pattern)
}

fn compile_by<T>(
    parse: fn(&str) -> Result<T, PatternError>,
    flag: &'static str,
    pattern: Option<&str>,
) -> Result<Option<T>, UsageError> {
    let pattern = pattern.filter(|pattern| !pattern.is_empty());
    pattern
        .map(parse)
        .transpose()
        .map_err(|error| UsageError::BadValue {
            flag,
            reason: match error.pattern.starts_with('*') || error.pattern.contains("/*") {
                true => format!(
                    "not a regular expression: {}; any text is written .*",
                    error.reason
                ),
                false => format!("not a regular expression: {}", error.reason),
            },
            value: error.pattern,
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_pattern_is_one_sentence() {
        let error = compile("--regex", Some("/cam(")).unwrap_err().to_string();
        assert_eq!(
            error,
            "--regex \"/cam(\": not a regular expression: unclosed group"
        );
        let error = compile("--regex", Some("a{9999999}")).unwrap_err().to_string();
        assert!(!error.contains('\n'), "{error}");
    }

    #[test]
    fn the_empty_pattern_is_none() {
        assert!(compile("--regex", Some("")).unwrap().is_none());
        assert!(compile("--regex", None).unwrap().is_none());
    }
}
