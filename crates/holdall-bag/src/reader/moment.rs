//! Points in time as users enter them: absolute, or after the first message of the bags.

use holdall_model::time::Timestamp;
use std::{fmt, time::Duration};

/// A point in time as entered by a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// A log time.
    At(Timestamp),
    /// This long after the first message of the bags.
    AfterStart(Duration),
}

/// A point in time outside of the bags' messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the {what} {moment} is {place} message: the messages are from @{} to @{}, {:.3} s{}",
    seconds(first), seconds(last), last.saturating_since(*first).as_secs_f64(), absolute(moment)
)]
pub struct OutsideError {
    /// Purpose of the time: `start`, `end` or `split`.
    pub what: &'static str,
    /// The time as entered.
    pub moment: Moment,
    /// `before the first` or `after the last`.
    pub place: &'static str,
    /// Log time of the first message.
    pub first: Timestamp,
    /// Log time of the last message.
    pub last: Timestamp,
}

/// Spans of more than ten years are more likely times since 1970.
const ABSOLUTE_FROM: Duration = Duration::from_secs(315_360_000);

impl Moment {
    /// The log time; `start` is that of the first message.
    pub fn resolve(self, start: Option<Timestamp>) -> Timestamp {
        match self {
            Self::At(time) => time,
            Self::AfterStart(span) => start.unwrap_or_default().saturating_add(span),
        }
    }

    /// The log time, which must be from that of the first message to that of the last one; `span` is `None` for bags without messages. `what` names
    /// the purpose of the time in the error.
    ///
    /// # Errors
    /// A time outside of the span.
    pub fn within(
        self,
        span: Option<(Timestamp, Timestamp)>,
        what: &'static str,
    ) -> Result<Timestamp, OutsideError> {
        let time = self.resolve(span.map(|(first, _)| first));
        let Some((first, last)) = span else {
            return Ok(time);
        };
        let place = match time {
            time if time < first => "before the first",
            time if time > last => "after the last",
            _ => return Ok(time),
        };
        Err(OutsideError {
            what,
            moment: self,
            place,
            first,
            last,
        })
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::At(time) => write!(f, "@{}", seconds(time)),
            Self::AfterStart(span) => write!(f, "+{}", span.as_secs_f64()),
        }
    }
}

/// Seconds since 1970, exact to the nanosecond, without zeros at the end.
fn seconds(time: &Timestamp) -> String {
    let nanos = i128::from(time.as_nanos());
    let sign = if nanos < 0 { "-" } else { "" };
    let (whole, part) = (
        nanos.unsigned_abs() / 1_000_000_000,
        nanos.unsigned_abs() % 1_000_000_000,
    );
    let text = format!("{sign}{whole}.{part:09}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// What to enter for a time since 1970.
fn absolute(moment: &Moment) -> String {
    match moment {
        Moment::AfterStart(span) if *span >= ABSOLUTE_FROM => {
            format!("; seconds since 1970 are written @{}", span.as_secs_f64())
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_nanos(seconds * 1_000_000_000)
    }

    #[test]
    fn a_time_outside_of_the_bags_is_refused_with_their_span() {
        let span = Some((at(1_700_000_000), at(1_700_000_006)));
        let after = |seconds| Moment::AfterStart(Duration::from_secs(seconds));
        for inside in [0, 3, 6] {
            assert_eq!(
                after(inside).within(span, "start"),
                Ok(at(1_700_000_000 + inside as i64))
            );
        }
        let refused = |moment: Moment| moment.within(span, "end").unwrap_err().to_string();
        assert_eq!(
            refused(after(7)),
            "the end +7 is after the last message: the messages are from @1700000000 to @1700000006, 6.000 s"
        );
        assert!(refused(Moment::At(at(10))).starts_with("the end @10 is before the first message"));
        assert!(refused(after(1_700_000_003)).ends_with("; seconds since 1970 are written @1700000003"));
        assert_eq!(after(7).within(None, "start"), Ok(at(7)));
    }
}
