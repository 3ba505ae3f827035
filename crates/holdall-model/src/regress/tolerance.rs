//! How much a field may differ: by its name, or that of a part of the message that it is in.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::{borrow::Cow, collections::BTreeMap, fmt};

/// How much a number may differ.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Tolerance {
    /// At most this much.
    Absolute(f64),
    /// At most this part of the larger one.
    Relative(f64),
    /// It is not compared.
    Any,
}

impl TryFrom<String> for Tolerance {
    type Error = String;

    /// `0.01`, `1%` or `any`.
    fn try_from(text: String) -> Result<Self, String> {
        let text = text.trim();
        let number = |text: &str| {
            let number = text.trim().parse::<f64>().ok();
            number.filter(|number| number.is_finite() && *number >= 0.0)
        };
        let found = match text.strip_suffix('%') {
            _ if text == "any" => Some(Self::Any),
            Some(percent) => number(percent).map(|percent| Self::Relative(percent / 100.0)),
            None => number(text).map(Self::Absolute),
        };
        found.ok_or_else(|| {
            format!("{text:?} is not a tolerance; expected a number of at least 0, a percentage (1%), or any")
        })
    }
}

impl fmt::Display for Tolerance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absolute(most) => write!(f, "{most}"),
            // 0.07 is not exactly 7 %.
            Self::Relative(part) => write!(f, "{}%", (part * 1e8).round() / 1e6),
            Self::Any => write!(f, "any"),
        }
    }
}

impl From<Tolerance> for String {
    fn from(tolerance: Tolerance) -> Self {
        tolerance.to_string()
    }
}

impl Tolerance {
    /// Whether two values of a field are near enough.
    pub fn takes(self, first: &Value, second: &Value) -> bool {
        let (Some(first), Some(second)) = (first.as_f64(), second.as_f64()) else {
            return self == Self::Any;
        };
        self.takes_numbers(first, second)
    }

    /// The same for numbers.
    pub fn takes_numbers(self, first: f64, second: f64) -> bool {
        let apart = (first - second).abs();
        match self {
            Self::Absolute(most) => apart <= most,
            Self::Relative(part) => apart <= part * first.abs().max(second.abs()),
            Self::Any => true,
        }
    }
}

/// The tolerances of a topic, by field: `pose.position`, `ranges`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(transparent)]
pub struct Tolerances(BTreeMap<String, Tolerance>);

impl Tolerances {
    /// The tolerance of a field: that of the longest name above it. Elements of sequences have that of the sequence.
    pub fn of(&self, field: &str) -> Option<Tolerance> {
        if self.0.is_empty() {
            return None;
        }
        let field = Self::name(field);
        let mut name: &str = &field;
        loop {
            if let Some(tolerance) = self.0.get(name) {
                return Some(*tolerance);
            }
            name = name.rsplit_once('.')?.0;
        }
    }

    /// The name of a field without indexes: `ranges[3]` is `ranges`.
    pub fn name(field: &str) -> Cow<'_, str> {
        if !field.contains('[') {
            return Cow::Borrowed(field);
        }
        let parts = field.split('[');
        Cow::Owned(
            parts
                .map(|part| part.split_once(']').map_or(part, |(_, after)| after))
                .collect(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn tolerance(text: &str) -> Result<Tolerance, String> {
        text.to_owned().try_into()
    }

    fn tolerances(pairs: &[(&str, &str)]) -> Tolerances {
        let pairs = pairs.iter();
        Tolerances(
            pairs
                .map(|(field, text)| ((*field).to_owned(), tolerance(text).unwrap()))
                .collect(),
        )
    }

    #[test]
    fn the_longest_name_above_a_field_counts() {
        let found = tolerances(&[("pose", "1"), ("pose.position", "0.5"), ("ranges", "1%")]);
        assert_eq!(found.of("pose.position.x"), Some(Tolerance::Absolute(0.5)));
        assert_eq!(found.of("pose.orientation.w"), Some(Tolerance::Absolute(1.0)));
        assert_eq!(found.of("ranges[7]"), Some(Tolerance::Relative(0.01)));
        assert_eq!(found.of("poses[1].pose"), None);
        assert_eq!(
            tolerances(&[("poses.pose", "any")]).of("poses[1].pose.x"),
            Some(Tolerance::Any)
        );
    }

    #[test]
    fn numbers_are_near_and_other_values_are_not() {
        let near = |text: &str, first, second| tolerance(text).unwrap().takes(&first, &second);
        assert!(near("0.1", json!(1.0), json!(1.1)) || near("0.11", json!(1.0), json!(1.1)));
        assert!(!near("0.1", json!(1), json!(2)) && near("1", json!(1), json!(2)));
        assert!(near("10%", json!(-100), json!(-91)) && !near("10%", json!(100), json!(-100)));
        assert!(!near("1", json!("a"), json!("b")) && near("any", json!("a"), json!("b")));
        assert!(!near("1", json!(null), json!(0.5)), "NaN has no number");
    }

    #[test]
    fn a_tolerance_is_written_as_it_is_read() {
        for text in ["0.01", "7%", "0.5%", "12", "any"] {
            assert_eq!(tolerance(text).unwrap().to_string(), text);
            let json = serde_json::to_string(&tolerance(text).unwrap()).unwrap();
            assert_eq!(
                serde_json::from_str::<Tolerance>(&json).unwrap(),
                tolerance(text).unwrap()
            );
        }
    }

    #[test]
    fn what_is_no_tolerance_is_refused() {
        for text in ["", "-1", "nan", "x%", "inf"] {
            let error = tolerance(text).unwrap_err();
            assert!(error.contains("expected a number"), "{text}: {error}");
        }
    }
}
