//! The same expressions on rows of named columns instead of messages: `topic = "/lidar" and lost > 0 and start > 2026-11-01`.
//!
//! Dates without a time zone are UTC. A comparison with a value that the row does not have is false. Differences of times are seconds.

use super::{
    ExpressionError,
    parse::{Kind, Parsed, PathStep, parse_with_dates},
};
use crate::time::Timestamp;
use regex::Regex;
use std::cmp::Ordering;

/// The kind of values in a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnType {
    /// Numbers.
    Number,
    /// Texts.
    Text,
    /// Points in time.
    Time,
    /// True or false.
    Bool,
}

impl ColumnType {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Number => "a number",
            Self::Text => "a text",
            Self::Time => "a time",
            Self::Bool => "true or false",
        }
    }
}

/// A value of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RowValue<'a> {
    /// A number.
    Number(f64),
    /// A text.
    Text(&'a str),
    /// A point in time.
    Time(i64),
    /// True or false.
    Bool(bool),
    /// The row does not have it.
    Missing,
}

/// A compiled condition on rows.
///
/// ```
/// use holdall_model::dynamic::expression::rows::{ColumnType, RowCondition, RowValue};
/// let columns = [("topic", ColumnType::Text), ("lost", ColumnType::Number)];
/// let condition = RowCondition::compile(r#"topic = "/lidar" and lost > 0"#, &columns)?;
/// let row = |column: usize| [RowValue::Text("/lidar"), RowValue::Number(3.0)][column];
/// assert!(condition.matches(&row));
/// # Ok::<(), holdall_model::dynamic::expression::ExpressionError>(())
/// ```
#[derive(Clone, Debug)]
pub struct RowCondition {
    root: Node,
    used: Vec<usize>,
}

#[derive(Clone, Debug)]
enum Node {
    Or(Box<Node>, Box<Node>),
    And(Box<Node>, Box<Node>),
    Not(Box<Node>),
    Negative(Box<Node>),
    Compare(fn(Ordering) -> bool, Box<Node>, Box<Node>),
    Calculate(&'static str, Box<Node>, Box<Node>),
    Matches(bool, Box<Node>, Regex),
    Length(Box<Node>),
    Absolute(Box<Node>),
    Column(usize),
    Number(f64),
    Text(String),
    Time(i64),
    Bool(bool),
}

impl RowCondition {
    /// Parses a condition and checks it against the columns that rows have.
    ///
    /// # Errors
    /// A text that cannot be parsed, an unknown column (with the known ones), or values that cannot be compared.
    pub fn compile(text: &str, columns: &[(&str, ColumnType)]) -> Result<Self, ExpressionError> {
        let parsed = parse_with_dates(text)?;
        let mut checker = Checker {
            columns,
            used: Vec::new(),
        };
        let (root, column_type) = checker.check(&parsed)?;
        expect(parsed.at, column_type, ColumnType::Bool)?;
        let mut used = checker.used;
        used.sort_unstable();
        used.dedup();
        Ok(Self { root, used })
    }

    /// The places of the columns that it needs, in order.
    pub fn used(&self) -> &[usize] {
        &self.used
    }

    /// Whether a row fulfils the condition; `row` returns the value of a column.
    pub fn matches<'a>(&'a self, row: &dyn Fn(usize) -> RowValue<'a>) -> bool {
        evaluate(&self.root, row) == RowValue::Bool(true)
    }
}

fn expect(at: usize, found: ColumnType, wanted: ColumnType) -> Result<(), ExpressionError> {
    if found == wanted {
        return Ok(());
    }
    let reason = format!("expected {}, found {}", wanted.as_str(), found.as_str());
    Err(ExpressionError::new(at, reason))
}

struct Checker<'a> {
    columns: &'a [(&'a str, ColumnType)],
    used: Vec<usize>,
}

impl Checker<'_> {
    fn check(&mut self, parsed: &Parsed) -> Result<(Node, ColumnType), ExpressionError> {
        Ok(match &parsed.kind {
            Kind::Or(left, right) => (
                Node::Or(self.boolean(left)?, self.boolean(right)?),
                ColumnType::Bool,
            ),
            Kind::And(left, right) => (
                Node::And(self.boolean(left)?, self.boolean(right)?),
                ColumnType::Bool,
            ),
            Kind::Not(inner) => (Node::Not(self.boolean(inner)?), ColumnType::Bool),
            Kind::Negative(inner) => (
                Node::Negative(self.of(inner, ColumnType::Number)?),
                ColumnType::Number,
            ),
            Kind::Bool(value) => (Node::Bool(*value), ColumnType::Bool),
            // Exact up to 2^53, which no count of a bag exceeds.
            Kind::Integer(value) => (Node::Number(*value as f64), ColumnType::Number),
            Kind::Float(value) => (Node::Number(*value), ColumnType::Number),
            Kind::Text(text) => (Node::Text(text.clone()), ColumnType::Text),
            Kind::Time(nanos) => (Node::Time(*nanos), ColumnType::Time),
            Kind::Path(steps) => self.column(parsed.at, steps)?,
            Kind::Call(name, argument) => self.call(parsed.at, name, argument)?,
            Kind::Binary(sign @ ("=~" | "!~"), left, right) => self.matching(sign, left, right)?,
            Kind::Binary(sign, left, right) => match comparison(sign) {
                Some(comparison) => self.compare(parsed.at, comparison, left, right)?,
                None => self.calculate(parsed.at, sign, left, right)?,
            },
        })
    }

    fn of(&mut self, parsed: &Parsed, wanted: ColumnType) -> Result<Box<Node>, ExpressionError> {
        let (node, column_type) = self.check(parsed)?;
        expect(parsed.at, column_type, wanted)?;
        Ok(Box::new(node))
    }

    fn boolean(&mut self, parsed: &Parsed) -> Result<Box<Node>, ExpressionError> {
        self.of(parsed, ColumnType::Bool)
    }

    fn column(
        &mut self,
        at: usize,
        steps: &[(usize, PathStep)],
    ) -> Result<(Node, ColumnType), ExpressionError> {
        let name = match steps {
            [(_, PathStep::Field(name))] => name,
            _ => return Err(ExpressionError::new(at, "a column has no parts")),
        };
        let Some(place) = self.columns.iter().position(|(known, _)| known == name) else {
            let known: Vec<&str> = self.columns.iter().map(|(name, _)| *name).collect();
            let reason = format!(
                "there is no column {name:?}; the columns are {}",
                known.join(", ")
            );
            return Err(ExpressionError::new(at, reason));
        };
        self.used.push(place);
        Ok((Node::Column(place), self.columns[place].1))
    }

    fn call(
        &mut self,
        at: usize,
        name: &str,
        argument: &Parsed,
    ) -> Result<(Node, ColumnType), ExpressionError> {
        Ok(match name {
            "len" => (
                Node::Length(self.of(argument, ColumnType::Text)?),
                ColumnType::Number,
            ),
            "abs" => (
                Node::Absolute(self.of(argument, ColumnType::Number)?),
                ColumnType::Number,
            ),
            _ => {
                let reason = format!("there is no function {name}; the functions are len and abs");
                return Err(ExpressionError::new(at, reason));
            }
        })
    }

    fn matching(
        &mut self,
        sign: &str,
        left: &Parsed,
        right: &Parsed,
    ) -> Result<(Node, ColumnType), ExpressionError> {
        let text = self.of(left, ColumnType::Text)?;
        let Kind::Text(pattern) = &right.kind else {
            return Err(ExpressionError::new(
                right.at,
                "expected a regular expression in quotes",
            ));
        };
        let pattern = Regex::new(pattern)
            .map_err(|error| ExpressionError::new(right.at, format!("not a regular expression: {error}")))?;
        Ok((Node::Matches(sign == "=~", text, pattern), ColumnType::Bool))
    }

    fn compare(
        &mut self,
        at: usize,
        comparison: fn(Ordering) -> bool,
        left: &Parsed,
        right: &Parsed,
    ) -> Result<(Node, ColumnType), ExpressionError> {
        let (mut first, mut first_type) = self.check(left)?;
        let (mut second, mut second_type) = self.check(right)?;
        // A time in quotes.
        if first_type == ColumnType::Time {
            (second, second_type) = as_time(right.at, second, second_type)?;
        } else if second_type == ColumnType::Time {
            (first, first_type) = as_time(left.at, first, first_type)?;
        }
        if first_type != second_type {
            let reason = format!(
                "{} cannot be compared with {}",
                first_type.as_str(),
                second_type.as_str()
            );
            return Err(ExpressionError::new(at, reason));
        }
        Ok((
            Node::Compare(comparison, Box::new(first), Box::new(second)),
            ColumnType::Bool,
        ))
    }

    fn calculate(
        &mut self,
        at: usize,
        sign: &'static str,
        left: &Parsed,
        right: &Parsed,
    ) -> Result<(Node, ColumnType), ExpressionError> {
        let (first, first_type) = self.check(left)?;
        let (second, second_type) = self.check(right)?;
        let column_type = match (first_type, sign, second_type) {
            (ColumnType::Number, _, ColumnType::Number) | (ColumnType::Time, "-", ColumnType::Time) => {
                ColumnType::Number
            }
            (ColumnType::Time, "+" | "-", ColumnType::Number) => ColumnType::Time,
            _ => {
                let reason = format!(
                    "{} {sign} {} cannot be calculated",
                    first_type.as_str(),
                    second_type.as_str()
                );
                return Err(ExpressionError::new(at, reason));
            }
        };
        Ok((
            Node::Calculate(sign, Box::new(first), Box::new(second)),
            column_type,
        ))
    }
}

/// A text or a number of seconds that is compared with a time, as a time.
fn as_time(at: usize, node: Node, column_type: ColumnType) -> Result<(Node, ColumnType), ExpressionError> {
    match node {
        Node::Text(text) => match Timestamp::from_utc_text(&text) {
            Some(time) => Ok((Node::Time(time.as_nanos()), ColumnType::Time)),
            None => {
                let reason = format!("{text:?} is not a date; expected 2026-11-01 or 2026-11-01T12:30:05");
                Err(ExpressionError::new(at, reason))
            }
        },
        Node::Number(seconds) => Ok((Node::Time(nanos(seconds)), ColumnType::Time)),
        node => Ok((node, column_type)),
    }
}

/// Seconds as nanoseconds, at the largest number if there are more.
fn nanos(seconds: f64) -> i64 {
    (seconds * 1e9).round() as i64
}

fn comparison(sign: &str) -> Option<fn(Ordering) -> bool> {
    Some(match sign {
        "==" => Ordering::is_eq,
        "!=" => Ordering::is_ne,
        "<" => Ordering::is_lt,
        "<=" => Ordering::is_le,
        ">" => Ordering::is_gt,
        ">=" => Ordering::is_ge,
        _ => return None,
    })
}

fn evaluate<'a>(node: &'a Node, row: &dyn Fn(usize) -> RowValue<'a>) -> RowValue<'a> {
    let boolean = |node: &'a Node| evaluate(node, row) == RowValue::Bool(true);
    let number = |node: &'a Node| match evaluate(node, row) {
        RowValue::Number(value) => Some(value),
        _ => None,
    };
    let some = |value: Option<f64>| value.map_or(RowValue::Missing, RowValue::Number);
    match node {
        Node::Or(left, right) => RowValue::Bool(boolean(left) || boolean(right)),
        Node::And(left, right) => RowValue::Bool(boolean(left) && boolean(right)),
        Node::Not(inner) => RowValue::Bool(!boolean(inner)),
        Node::Negative(inner) => some(number(inner).map(|value| -value)),
        Node::Absolute(inner) => some(number(inner).map(f64::abs)),
        Node::Length(inner) => match evaluate(inner, row) {
            RowValue::Text(text) => RowValue::Number(text.chars().count() as f64),
            _ => RowValue::Missing,
        },
        Node::Compare(holds, left, right) => {
            let order = order(evaluate(left, row), evaluate(right, row));
            RowValue::Bool(order.is_some_and(holds))
        }
        Node::Calculate(sign, left, right) => calculate(sign, evaluate(left, row), evaluate(right, row)),
        Node::Matches(wanted, text, pattern) => match evaluate(text, row) {
            RowValue::Text(text) => RowValue::Bool(pattern.is_match(text) == *wanted),
            _ => RowValue::Bool(false),
        },
        Node::Column(place) => row(*place),
        Node::Number(value) => RowValue::Number(*value),
        Node::Text(text) => RowValue::Text(text),
        Node::Time(nanos) => RowValue::Time(*nanos),
        Node::Bool(value) => RowValue::Bool(*value),
    }
}

fn order(left: RowValue<'_>, right: RowValue<'_>) -> Option<Ordering> {
    match (left, right) {
        (RowValue::Number(left), RowValue::Number(right)) => left.partial_cmp(&right),
        (RowValue::Text(left), RowValue::Text(right)) => Some(left.cmp(right)),
        (RowValue::Time(left), RowValue::Time(right)) => Some(left.cmp(&right)),
        (RowValue::Bool(left), RowValue::Bool(right)) => Some(left.cmp(&right)),
        _ => None,
    }
}

fn calculate<'a>(sign: &str, left: RowValue<'_>, right: RowValue<'_>) -> RowValue<'a> {
    match (left, right) {
        (RowValue::Number(left), RowValue::Number(right)) => RowValue::Number(match sign {
            "+" => left + right,
            "-" => left - right,
            "*" => left * right,
            "/" => left / right,
            _ => left % right,
        }),
        // Exact in nanoseconds before it becomes seconds.
        (RowValue::Time(left), RowValue::Time(right)) => {
            RowValue::Number((i128::from(left) - i128::from(right)) as f64 / 1e9)
        }
        (RowValue::Time(time), RowValue::Number(seconds)) => RowValue::Time(if sign == "-" {
            time.saturating_sub(nanos(seconds))
        } else {
            time.saturating_add(nanos(seconds))
        }),
        _ => RowValue::Missing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [(&str, ColumnType); 6] = [
        ("topic", ColumnType::Text),
        ("lost", ColumnType::Number),
        ("start", ColumnType::Time),
        ("end", ColumnType::Time),
        ("sealed", ColumnType::Bool),
        ("gone", ColumnType::Number),
    ];

    fn holds(text: &str) -> Result<bool, String> {
        let condition = RowCondition::compile(text, &COLUMNS).map_err(|error| error.to_string())?;
        let start = 1_793_491_200_000_000_000;
        let row = |place: usize| {
            [
                RowValue::Text("/lidar"),
                RowValue::Number(3.0),
                RowValue::Time(start),
                RowValue::Time(start + 90_500_000_000),
                RowValue::Bool(false),
                RowValue::Missing,
            ][place]
        };
        Ok(condition.matches(&row))
    }

    #[test]
    fn conditions_on_rows_are_true_or_false() {
        for (text, wanted) in [
            (r#"topic = "/lidar" and lost > 0 and start > 2026-10-31"#, true),
            (r#"topic == '/lidar' && start = 2026-11-01"#, true),
            ("start > 2026-11-01", false),
            ("start >= 2026-11-01T00:00", true),
            (
                "end > 2026-11-01T00:01:30.4Z and end < '2026-11-01T00:01:31'",
                true,
            ),
            ("end - start > 90.4 and end - start < 90.6", true),
            ("start + 90.5 = end", true),
            ("topic =~ 'lid' and topic !~ 'camera'", true),
            ("not sealed", true),
            ("sealed or lost * 2 = 6", true),
            ("gone > 0 or gone <= 0 or gone = gone", false),
            ("start > 1793491199.5", true),
            ("len(topic) = 6", true),
        ] {
            assert_eq!(holds(text), Ok(wanted), "{text}");
        }
    }

    #[test]
    fn wrong_conditions_are_refused_with_the_place() {
        for (text, reason) in [
            (
                "lsot > 0",
                "there is no column \"lsot\"; the columns are topic, lost, start, end, sealed, gone",
            ),
            ("topic > 3", "a text cannot be compared with a number"),
            ("lost", "expected true or false, found a number"),
            ("start > 2026-13-01", "\"2026-13-01\" is not a date"),
            ("start > 'yesterday'", "\"yesterday\" is not a date"),
            ("topic + 1 = 2", "a text + a number cannot be calculated"),
            ("topic =~ '('", "not a regular expression"),
            ("topic.x = 1", "a column has no parts"),
            ("sum(lost) > 1", "there is no function sum"),
        ] {
            let error = holds(text).expect_err(text);
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
