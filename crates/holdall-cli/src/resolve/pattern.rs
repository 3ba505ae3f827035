//! Regular expressions given on the command line, with errors that fit in one sentence.

use super::UsageError;
use holdall_model::selection::parse_pattern;
use regex::Regex;

/// Compiles a pattern given to `flag`; `None` and the empty text mean "no pattern", as in rosbag2.
pub fn compile(flag: &'static str, args: Option<&str>) -> Result<Option<Regex>, UsageError> {
    let Some(pattern) = args.filter(|pattern| !pattern.is_empty()) else {
        return Ok(None);
    };
    parse_pattern(pattern)
        .map(Some)
        .map_err(|error| UsageError::BadValue {
            flag,
            value: error.pattern,
            reason: format!("no regular expression: {}", error.reason),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_pattern_is_one_sentence() {
        let error = compile("--regex", Some("/cam(")).unwrap_err().to_string();
        assert_eq!(error, "--regex \"/cam(\": no regular expression: unclosed group");
        let error = compile("--regex", Some("a{9999999}")).unwrap_err().to_string();
        assert!(!error.contains('\n'), "{error}");
    }

    #[test]
    fn the_empty_pattern_is_none() {
        assert!(compile("--regex", Some("")).unwrap().is_none());
        assert!(compile("--regex", None).unwrap().is_none());
    }
}
