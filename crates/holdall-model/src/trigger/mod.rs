//! What a recorder waits for, and what it would have caught in a bag: conditions on the fields of a topic, a topic that falls silent, a rate below a bound.
//!
//! ```text
//! /battery: voltage < 11.5 && status.code == 3      becomes true; the language is that of `dynamic::expression`
//! /scan silent 2s                                   no message for so long, after one has come
//! /scan rate < 5                                    fewer messages a second, after there were as many
//! ```

mod conditions;
mod copies;
mod intervals;
mod options;
mod past;
mod status;
mod switch;
mod wanted;
mod watch;
mod window;

pub use conditions::{Conditions, Fired, TriggerState};
pub use copies::{CopyFault, EventCopies};
pub use intervals::Intervals;
pub use options::TriggerOptions;
pub use past::{EventLabel, EventScore, Found, PAST_EVENTS_MAX, PastEvent, PastEvents};
pub use status::{TriggerCount, TriggerStatus};
pub use switch::EpisodeSwitch;
pub use wanted::{Fate, Wanted};
pub use watch::{Edge, RateWatch, SilenceWatch};
pub use window::Window;

use crate::{
    dynamic::expression::{ExpressionError, check_syntax},
    quantity::{parse_hertz, parse_seconds},
};
use std::{fmt, time::Duration};

/// The longest silence that can be watched for.
const SILENCE_MAX: Duration = Duration::from_secs(86_400);

/// The rates that can be watched, in Hz.
const RATE_MIN: f64 = 0.001;
const RATE_MAX: f64 = 100_000.0;

/// What a trigger watches for on a topic.
#[derive(Clone, Debug, PartialEq)]
pub enum Condition {
    /// This expression over its fields becomes true.
    Fields(String),
    /// No message arrives for this long.
    Silent(Duration),
    /// Messages arrive at a lower rate than this, in Hz.
    RateBelow(f64),
}

/// A condition on a topic, as it was written.
#[derive(Clone, Debug, PartialEq)]
pub struct Trigger {
    /// The text as written.
    pub text: String,
    /// Full ROS name.
    pub topic: String,
    /// The condition on the topic.
    pub condition: Condition,
}

impl fmt::Display for Trigger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Trigger {
    /// Parses `/topic: expression`, `/topic silent 2s` or `/topic rate < 5`. Fields are checked once the topic's type is known.
    ///
    /// # Errors
    /// The first thing that is wrong, with its position in `text`.
    pub fn parse(text: &str) -> Result<Self, ExpressionError> {
        let begin = text.len() - text.trim_start().len();
        let is_end = |c: char| c == ':' || c.is_whitespace();
        let end = text[begin..].find(is_end).map_or(text.len(), |end| begin + end);
        let name = &text[begin..end];
        let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '/');
        if name.is_empty() || !name.chars().all(is_part) {
            let at = name.find(|c| !is_part(c)).unwrap_or(0);
            let reason = "expected a topic, for example /battery: voltage < 11.5";
            return Err(error_at(text, begin + at, reason));
        }
        let at = end + (text[end..].len() - text[end..].trim_start().len());
        let condition = match text[at..].strip_prefix(':') {
            Some(expression) => fields(text, at + 1, expression)?,
            None => behaviour(text, at)?,
        };
        Ok(Self {
            text: text.trim().to_owned(),
            topic: if name.starts_with('/') {
                name.to_owned()
            } else {
                format!("/{name}")
            },
            condition,
        })
    }
}

fn error_at(text: &str, byte: usize, reason: impl Into<String>) -> ExpressionError {
    ExpressionError {
        at: text[..byte].chars().count(),
        reason: reason.into(),
    }
}

fn fields(text: &str, begin: usize, expression: &str) -> Result<Condition, ExpressionError> {
    check_syntax(expression).map_err(|error| ExpressionError {
        at: text[..begin].chars().count() + error.at,
        ..error
    })?;
    Ok(Condition::Fields(expression.trim().to_owned()))
}

/// The condition after a topic without a colon.
fn behaviour(text: &str, begin: usize) -> Result<Condition, ExpressionError> {
    let rest = &text[begin..];
    let end = rest.find(|c: char| !c.is_alphabetic()).unwrap_or(rest.len());
    let (word, rest) = rest.split_at(end);
    let at = text.len() - rest.trim_start().len();
    let rest = rest.trim();
    match word {
        "silent" => {
            let reason = "expected a span, for example 2s";
            let span = parse_seconds(rest)
                .ok()
                .filter(|span| !span.is_zero() && *span <= SILENCE_MAX);
            Ok(Condition::Silent(span.ok_or_else(|| error_at(text, at, reason))?))
        }
        "rate" => {
            let Some(bound) = rest.strip_prefix('<') else {
                return Err(error_at(text, at, "expected < and a rate, for example rate < 5"));
            };
            let rate = parse_hertz(bound).ok();
            let reason = format!("expected a rate from {RATE_MIN} to {RATE_MAX} Hz");
            let at = at + 1 + (bound.len() - bound.trim_start().len());
            let rate = rate.filter(|rate| (RATE_MIN..=RATE_MAX).contains(rate));
            Ok(Condition::RateBelow(
                rate.ok_or_else(|| error_at(text, at, reason))?,
            ))
        }
        _ => Err(error_at(
            text,
            begin,
            "expected a colon and an expression, silent 2s, or rate < 5, after the topic",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn condition(text: &str) -> (String, Condition) {
        let trigger = Trigger::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(trigger.text, text.trim());
        (trigger.topic, trigger.condition)
    }

    #[test]
    fn each_kind_is_parsed() {
        let seconds = Duration::from_secs_f64;
        let fields = |text: &str| Condition::Fields(text.to_owned());
        for (text, topic, wanted) in [
            (
                "/battery: voltage < 11.5 && status.code == 3",
                "/battery",
                fields("voltage < 11.5 && status.code == 3"),
            ),
            (" battery :rate < 5 ", "/battery", fields("rate < 5")),
            ("/a/b:x", "/a/b", fields("x")),
            ("/scan silent 2s", "/scan", Condition::Silent(seconds(2.0))),
            ("/scan silent 500 ms", "/scan", Condition::Silent(seconds(0.5))),
            ("/scan  silent 1.5", "/scan", Condition::Silent(seconds(1.5))),
            ("/scan silent 2m", "/scan", Condition::Silent(seconds(120.0))),
            ("/scan rate < 5", "/scan", Condition::RateBelow(5.0)),
            ("/scan rate<0.1Hz", "/scan", Condition::RateBelow(0.1)),
        ] {
            assert_eq!(condition(text), (topic.to_owned(), wanted), "{text}");
        }
    }

    #[test]
    fn what_is_wrong_is_named_with_its_position() {
        for (text, wanted) in [
            (
                "",
                "expression, character 1: expected a topic, for example /battery: voltage < 11.5",
            ),
            (
                "  /a-b: x > 1",
                "expression, character 5: expected a topic, for example /battery: voltage < 11.5",
            ),
            (
                "/battery: voltage <",
                "expression, character 20: expected a value, found the end",
            ),
            (
                "/é: v && ) > 1",
                "expression, character 10: expected a value, found )",
            ),
            (
                "/battery",
                "expression, character 9: expected a colon and an expression, silent 2s, or rate < 5, after the topic",
            ),
            (
                "/battery low",
                "expression, character 10: expected a colon and an expression, silent 2s, or rate < 5, after the topic",
            ),
            (
                "/scan silent",
                "expression, character 13: expected a span, for example 2s",
            ),
            (
                "/scan silent 0s",
                "expression, character 14: expected a span, for example 2s",
            ),
            (
                "/scan silent 2 years",
                "expression, character 14: expected a span, for example 2s",
            ),
            (
                "/scan silent 9999999999",
                "expression, character 14: expected a span, for example 2s",
            ),
            (
                "/scan rate > 5",
                "expression, character 12: expected < and a rate, for example rate < 5",
            ),
            (
                "/scan rate < -5",
                "expression, character 14: expected a rate from 0.001 to 100000 Hz",
            ),
            (
                "/scan rate < nan",
                "expression, character 14: expected a rate from 0.001 to 100000 Hz",
            ),
            (
                "/scan rate <",
                "expression, character 13: expected a rate from 0.001 to 100000 Hz",
            ),
        ] {
            let error = Trigger::parse(text).expect_err(text);
            assert_eq!(error.to_string(), wanted, "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(/a|:| |silent|rate|<|[0-9.]{1,3}|s|Hz|\\PC){0,8}") {
            if let Err(error) = Trigger::parse(&text) {
                prop_assert!(error.at <= text.chars().count());
            }
        }
    }
}
