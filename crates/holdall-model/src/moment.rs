//! Points in time as users enter them: absolute, after the first message of the bags, or at a marker.

use crate::{
    marker::Marker,
    quantity::{QuantityError, parse_seconds},
    text::first_of,
    time::Timestamp,
};
use std::{fmt, str::FromStr, time::Duration};

/// Begin of the text of a moment that names a marker.
const MARKER_PREFIX: &str = "marker:";

/// Most markers that an error names.
const NAMED_MAX: usize = 8;

/// A point in time as entered by a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Moment {
    /// A log time.
    At(Timestamp),
    /// This long after the first message of the bags.
    AfterStart(Duration),
    /// Time of the marker with this name, or of the only one whose name begins so.
    Marker(String),
}

/// Why a point in time is none of the bags'.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlacementError {
    /// Without messages there.
    #[error(transparent)]
    Outside(#[from] OutsideError),
    /// Without a marker of that name.
    #[error("the {what} marker:{name} names none of the bags' markers ({})", names(known))]
    NoMarker {
        /// Purpose of the time: `start`, `end` or `split`.
        what: &'static str,
        /// The name as entered.
        name: String,
        /// Names of the markers.
        known: Vec<String>,
    },
    /// With several such markers.
    #[error("the {what} marker:{name} names {} markers; give the time of one: {}", times.len(), listed(times))]
    SeveralMarkers {
        /// Purpose of the time: `start`, `end` or `split`.
        what: &'static str,
        /// The name as entered.
        name: String,
        /// Their times.
        times: Vec<Timestamp>,
    },
    /// The markers cannot be read.
    #[error("the bags' markers cannot be read: {0}")]
    Unreadable(String),
}

/// A point in time outside of the bags' messages.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
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

/// Why a text cannot be read as a point in time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MomentError {
    /// None of the forms.
    #[error(
        "expected seconds after the first message (10), a time (@1700000000.25, 2026-11-25T12:03:11, in UTC) or marker:NAME"
    )]
    Form,
    /// A marker without a name.
    #[error("expected a marker's name after marker:")]
    NoName,
    /// An `@` without seconds after it.
    #[error("expected seconds since 1970 after the @, for example @1700000000.25, found \"{0}\"")]
    Since1970(String),
    /// A span that cannot be read.
    #[error(transparent)]
    Span(QuantityError),
}

/// `10`, `+10` or `500ms` after the first message; `@1700000000.25`, seconds since 1970; nanoseconds since 1970 as rosbag2 has them;
/// `2026-11-25T12:03:11.5`, a date, also without a time of day or with an offset from UTC; `marker:NAME`.
impl FromStr for Moment {
    type Err = MomentError;

    fn from_str(text: &str) -> Result<Self, MomentError> {
        let text = text.trim();
        let at = |nanos| Ok(Self::At(Timestamp::from_nanos(nanos)));
        if let Some(name) = text.strip_prefix(MARKER_PREFIX) {
            return match name.trim() {
                "" => Err(MomentError::NoName),
                name => Ok(Self::Marker(name.to_owned())),
            };
        }
        if let Some(seconds) = text.strip_prefix('@') {
            return nanos_since_1970(seconds)
                .map_or_else(|| Err(MomentError::Since1970(seconds.to_owned())), at);
        }
        // No bag is 31 years long: long whole numbers are nanoseconds.
        if text.len() >= 16
            && text.bytes().all(|byte| byte.is_ascii_digit())
            && let Ok(nanos) = text.parse()
        {
            return at(nanos);
        }
        if let Some(time) = Timestamp::from_utc_text(text) {
            return Ok(Self::At(time));
        }
        parse_seconds(text)
            .map(Self::AfterStart)
            .map_err(|error| match error {
                QuantityError::NoNumber { .. } => MomentError::Form,
                // A date that does not exist.
                QuantityError::UnknownUnit { unit, .. } if unit.contains(['-', ':']) => MomentError::Form,
                error => MomentError::Span(error),
            })
    }
}

/// Seconds with a fraction, exact to the nanosecond.
fn nanos_since_1970(text: &str) -> Option<i64> {
    let (whole, fraction) = text.trim().split_once('.').unwrap_or((text.trim(), ""));
    let is_digits = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !is_digits(whole) || !is_digits(fraction) {
        return None;
    }
    let seconds: i64 = whole.parse().ok()?;
    // Digits after the ninth are ignored.
    let nanos: i64 = format!("{:0<9}", &fraction[..fraction.len().min(9)])
        .parse()
        .ok()?;
    seconds.checked_mul(1_000_000_000)?.checked_add(nanos)
}

/// Spans of more than ten years are more likely times since 1970.
const ABSOLUTE_FROM: Duration = Duration::from_secs(315_360_000);

impl Moment {
    /// The log time; `start` is that of the first message, `markers` are those of the bags, `what` names the purpose of the time in the error.
    ///
    /// # Errors
    /// A name that is not that of one marker.
    pub fn resolve<E: fmt::Display>(
        &self,
        start: Option<Timestamp>,
        markers: impl FnOnce() -> Result<Vec<Marker>, E>,
        what: &'static str,
    ) -> Result<Timestamp, PlacementError> {
        match self {
            Self::At(time) => Ok(*time),
            Self::AfterStart(span) => Ok(start.unwrap_or_default().saturating_add(*span)),
            Self::Marker(name) => {
                let markers = markers().map_err(|error| PlacementError::Unreadable(error.to_string()))?;
                time_of_marker(name, &markers, what)
            }
        }
    }

    /// The log time, which must be from a second before that of the first message to that of the last one; `span` is `None` for bags without
    /// messages. The whole second of the first message means that message, since times are shown in whole seconds.
    ///
    /// # Errors
    /// As [`Moment::resolve`], and a time outside of the span.
    pub fn within<E: fmt::Display>(
        &self,
        span: Option<(Timestamp, Timestamp)>,
        markers: impl FnOnce() -> Result<Vec<Marker>, E>,
        what: &'static str,
    ) -> Result<Timestamp, PlacementError> {
        let time = self.resolve(span.map(|(first, _)| first), markers, what)?;
        let Some((first, last)) = span else {
            return Ok(time);
        };
        let place = match time {
            time if time < first && first.saturating_since(time) < Duration::from_secs(1) => {
                let is_whole = time.as_nanos() % 1_000_000_000 == 0;
                return Ok(if is_whole { first } else { time });
            }
            time if time < first => "before the first",
            time if time > last => "after the last",
            _ => return Ok(time),
        };
        let moment = self.clone();
        Err(OutsideError {
            what,
            moment,
            place,
            first,
            last,
        }
        .into())
    }
}

/// Time of the marker called `name`, else of the one whose name begins so. Markers of one name and time are one.
fn time_of_marker(name: &str, markers: &[Marker], what: &'static str) -> Result<Timestamp, PlacementError> {
    let times = |is_meant: &dyn Fn(&str) -> bool| {
        let meant = markers.iter().filter(|marker| is_meant(&marker.name));
        let mut times: Vec<Timestamp> = meant.map(|marker| marker.time).collect();
        times.dedup();
        times
    };
    let exact = times(&|other| other == name);
    let found = if exact.is_empty() {
        times(&|other| other.starts_with(name))
    } else {
        exact
    };
    let name = name.to_owned();
    match found.as_slice() {
        [time] => Ok(*time),
        [] => Err(PlacementError::NoMarker {
            what,
            name,
            known: markers.iter().map(|marker| marker.name.clone()).collect(),
        }),
        _ => Err(PlacementError::SeveralMarkers {
            what,
            name,
            times: found,
        }),
    }
}

/// Names of markers in an error.
fn names(known: &[String]) -> String {
    if known.is_empty() {
        return "they have none".to_owned();
    }
    first_of(known, NAMED_MAX)
}

/// Times of markers in an error.
fn listed(times: &[Timestamp]) -> String {
    first_of(times.iter().map(|time| format!("@{}", seconds(time))), NAMED_MAX)
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::At(time) => write!(f, "@{}", seconds(time)),
            Self::AfterStart(span) => write!(f, "+{}", span.as_secs_f64()),
            Self::Marker(name) => write!(f, "{MARKER_PREFIX}{name}"),
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

    fn none() -> Result<Vec<Marker>, String> {
        Ok(Vec::new())
    }

    #[test]
    fn a_marker_is_a_point_in_time() {
        let marker = |seconds, name| Marker::new(at(seconds), name).unwrap();
        let markers = || {
            Ok::<_, String>(vec![
                marker(3, "door"),
                marker(4, "door opens"),
                marker(5, "curb 1"),
                marker(6, "curb 2"),
            ])
        };
        let span = Some((at(0), at(9)));
        let placed = |text: &str| text.parse::<Moment>().unwrap().within(span, markers, "start");
        for (text, seconds) in [("marker:door", 3), ("marker: door o", 4), ("marker:curb 2", 6)] {
            assert_eq!(placed(text), Ok(at(seconds)), "{text}");
        }
        let refused = |text: &str| placed(text).unwrap_err().to_string();
        assert_eq!(
            refused("marker:curb"),
            "the start marker:curb names 2 markers; give the time of one: @5, @6"
        );
        assert_eq!(
            refused("marker:dor"),
            "the start marker:dor names none of the bags' markers (door, door opens, curb 1, curb 2)"
        );
        let late = Moment::Marker("curb 2".to_owned()).within(Some((at(0), at(5))), markers, "end");
        assert_eq!(
            late.unwrap_err().to_string(),
            "the end marker:curb 2 is after the last message: the messages are from @0 to @5, 5.000 s"
        );
        let empty = Moment::Marker("x".to_owned())
            .within(span, none, "end")
            .unwrap_err();
        assert!(empty.to_string().ends_with("(they have none)"));
        let unreadable = Moment::Marker("x".to_owned())
            .within(span, || Err("a reason"), "end")
            .unwrap_err();
        assert!(unreadable.to_string().ends_with("a reason"));
        assert_eq!("marker:".parse::<Moment>(), Err(MomentError::NoName));
    }

    #[test]
    fn a_time_outside_of_the_bags_is_refused_with_their_span() {
        let span = Some((at(1_700_000_000), at(1_700_000_006)));
        let after = |seconds| Moment::AfterStart(Duration::from_secs(seconds));
        for inside in [0, 3, 6] {
            assert_eq!(
                after(inside).within(span, none, "start"),
                Ok(at(1_700_000_000 + inside as i64))
            );
        }
        let refused = |moment: Moment| moment.within(span, none, "end").unwrap_err().to_string();
        assert_eq!(
            refused(after(7)),
            "the end +7 is after the last message: the messages are from @1700000000 to @1700000006, 6.000 s"
        );
        assert!(refused(Moment::At(at(10))).starts_with("the end @10 is before the first message"));
        assert!(refused(after(1_700_000_003)).ends_with("; seconds since 1970 are written @1700000003"));
        assert_eq!(after(7).within(None, none, "start"), Ok(at(7)));
        // The first message is shown as 5 s: that time means it, 5.1 s does not.
        let span = Some((Timestamp::from_nanos(5_900_000_000), at(9)));
        let exact = Timestamp::from_nanos(5_100_000_000);
        assert_eq!(
            Moment::At(at(5)).within(span, none, "end"),
            Ok(Timestamp::from_nanos(5_900_000_000))
        );
        assert_eq!(Moment::At(exact).within(span, none, "end"), Ok(exact));
        assert!(Moment::At(at(4)).within(span, none, "end").is_err());
    }

    #[test]
    fn every_form_of_a_point_in_time_is_read() {
        let at = |nanos| Ok(Moment::At(Timestamp::from_nanos(nanos)));
        let after = |millis| Ok(Moment::AfterStart(Duration::from_millis(millis)));
        for (text, moment) in [
            ("10", after(10_000)),
            ("+1.5", after(1500)),
            ("500ms", after(500)),
            ("2 min", after(120_000)),
            ("1700000000", after(1_700_000_000_000)),
            ("@1700000000.25", at(1_700_000_000_250_000_000)),
            ("@0", at(0)),
            ("1700000000000000003", at(1_700_000_000_000_000_003)),
            ("2023-11-14T22:13:20", at(1_700_000_000_000_000_000)),
            ("2023-11-14 22:13:20.5Z", at(1_700_000_000_500_000_000)),
            ("2023-11-14T23:13:20+01:00", at(1_700_000_000_000_000_000)),
            ("2023-11-14T19:43:20.5-02:30", at(1_700_000_000_500_000_000)),
            ("2023-11-14", at(1_699_920_000_000_000_000)),
        ] {
            assert_eq!(text.parse(), moment, "{text}");
        }
        for text in [
            "",
            "+",
            "+-1",
            "-5",
            "yesterday",
            "@",
            "@x",
            "@-1",
            "2023-13-01",
            "12:30",
            "10x",
        ] {
            assert!(text.parse::<Moment>().is_err(), "{text}");
        }
        assert_eq!("yesterday".parse::<Moment>(), Err(MomentError::Form));
    }

    #[test]
    fn points_in_time_are_exact() {
        assert_eq!(
            nanos_since_1970("1700000000.123456789"),
            Some(1_700_000_000_123_456_789)
        );
        assert_eq!(nanos_since_1970("1700000000"), Some(1_700_000_000_000_000_000));
        assert_eq!(nanos_since_1970("0.5"), Some(500_000_000));
        for bad in [
            "",
            "-1",
            "1e9",
            "x",
            "99999999999999999999",
            ".5",
            "1700000000000000000",
        ] {
            assert_eq!(nanos_since_1970(bad), None, "{bad}");
        }
    }
}
