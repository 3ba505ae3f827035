//! Conditions on the fields of messages: `linear_acceleration.z > 12 && header.frame_id == "base"`.
//!
//! ```text
//! a || b, a or b          a && b, a and b          !a, not a          ( )
//! == != < <= > >=         (= is ==) numbers with numbers, texts with texts, booleans with booleans
//! =~ !~                   a text matches a regular expression somewhere, or does not
//! + - * / %               / divides without rounding; whole numbers stay exact
//! 12  -0.5  1e9  0x1f     "text"  'text'           true  false
//! pose.position.x         fields by name
//! covariance[0] poses[-1].position.z               elements; negative from the end
//! transforms[*].child_frame_id == "base"           true when it is for any element
//! len(ranges)  len(name)  abs(x)                   elements of a list, characters of a text
//! header.stamp > 1700000000.5                      times and durations are seconds
//! ```
//!
//! A comparison with an element beyond the end of a list is always false. NaN compares as in IEEE 754.

mod check;
mod evaluate;
mod lexer;
mod parse;
pub mod rows;

use super::{
    DecodeError, FieldPlan, TypePlan,
    encode::Literal,
    select::{Found, Selection, Step},
};
use serde_json::Value;
use std::sync::Arc;

/// Longest expression, in bytes.
pub(crate) const EXPRESSION_BYTES_MAX: usize = 16 * 1024;
/// Deepest nesting of an expression.
const DEPTH_MAX: usize = 64;

/// The fault in an expression: one clause, and its place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expression, character {}: {reason}", at + 1)]
pub struct ExpressionError {
    /// Position in the text, in characters from 0.
    pub at: usize,
    /// One clause.
    pub reason: String,
}

impl ExpressionError {
    fn new(at: usize, reason: impl Into<String>) -> Self {
        Self {
            at,
            reason: reason.into(),
        }
    }
}

/// A compiled condition on messages of one type.
#[derive(Clone, Debug)]
pub struct Predicate {
    plan: Arc<TypePlan>,
    selection: Selection,
    /// What is in each slot, as it was written.
    names: Vec<String>,
    question: evaluate::Node,
}

impl Predicate {
    /// Parses a question and checks it against a type.
    ///
    /// # Errors
    /// A text that cannot be parsed, an unknown field (with the known ones), or values that cannot be
    /// compared.
    pub fn compile(plan: Arc<TypePlan>, text: &str) -> Result<Self, ExpressionError> {
        let parsed = parse::parse(text)?;
        let checked = check::check(&plan, &parsed)?;
        Ok(Self {
            plan,
            selection: checked.selection,
            names: checked.names,
            question: checked.node,
        })
    }

    /// Whether a message fulfils the condition.
    ///
    /// # Errors
    /// When the payload cannot be decoded up to the fields that are needed.
    pub fn matches(&self, payload: &[u8]) -> Result<bool, DecodeError> {
        let mut few: [Found<'_>; 4] = Default::default();
        let mut many = Vec::new();
        let slots = slots(&mut few, &mut many, self.names.len());
        self.selection.find(&self.plan, payload, slots)?;
        Ok(evaluate::boolean(&self.question, slots))
    }

    /// The values of a message that the condition looks at, by their names in it; of many, the first ones.
    ///
    /// # Errors
    /// As [`Predicate::matches`].
    pub fn values(&self, payload: &[u8]) -> Result<Vec<(String, Value)>, DecodeError> {
        let mut slots = vec![Found::default(); self.names.len()];
        self.selection.find(&self.plan, payload, &mut slots)?;
        let names = self.names.iter().cloned();
        Ok(names.zip(slots.iter().map(Found::to_json)).collect())
    }

    /// The type of the messages.
    pub fn type_name(&self) -> &str {
        self.plan.type_name()
    }
}

/// So many slots: few of them need no allocation.
fn slots<'s, 'a>(
    few: &'s mut [Found<'a>],
    many: &'s mut Vec<Found<'a>>,
    count: usize,
) -> &'s mut [Found<'a>] {
    match few.get_mut(..count) {
        Some(slots) => slots,
        None => {
            many.resize_with(count, Found::default);
            many.as_mut_slice()
        }
    }
}

/// A compiled calculation on messages of one type: `linear.x`, `abs(pose.position.z) * 100`, `len(ranges)`. Conditions are 1 or 0.
///
/// ```
/// # use holdall_model::{dynamic::{TypePlan, expression::Formula}, interface::bundle::Bundle};
/// let plan = TypePlan::compile(&Bundle::embedded().define("std_msgs/msg/UInt8").unwrap()).unwrap();
/// let formula = Formula::compile(plan.into(), "data * 2 + 0.5").unwrap();
/// assert_eq!(formula.value(&[0, 1, 0, 0, 20]).unwrap(), Some(40.5));
/// ```
#[derive(Clone, Debug)]
pub struct Formula {
    plan: Arc<TypePlan>,
    selection: Selection,
    slots: usize,
    node: evaluate::Node,
}

impl Formula {
    /// Parses a calculation and checks it against a type.
    ///
    /// # Errors
    /// As [`Predicate::compile`]; a text, or every element of a list, which are not one number.
    pub fn compile(plan: Arc<TypePlan>, text: &str) -> Result<Self, ExpressionError> {
        let checked = check::check_number(&plan, &parse::parse(text)?)?;
        Ok(Self {
            plan,
            selection: checked.selection,
            slots: checked.names.len(),
            node: checked.node,
        })
    }

    /// Its value for a message; `None` if a list is too short.
    ///
    /// # Errors
    /// When the payload cannot be decoded up to the fields that are needed.
    pub fn value(&self, payload: &[u8]) -> Result<Option<f64>, DecodeError> {
        let mut few: [Found<'_>; 4] = Default::default();
        let mut many = Vec::new();
        let slots = slots(&mut few, &mut many, self.slots);
        self.selection.find(&self.plan, payload, slots)?;
        Ok(evaluate::number(&self.node, slots))
    }

    /// The type of the messages.
    pub fn type_name(&self) -> &str {
        self.plan.type_name()
    }
}

/// A compiled calculation that has values of any kind, exact where they are whole numbers: one for each message, or those of all elements of a
/// list.
#[derive(Clone, Debug)]
pub(super) struct Values {
    plan: Arc<TypePlan>,
    selection: Selection,
    /// The fields that it reads, as they were written.
    pub names: Vec<String>,
    node: evaluate::Node,
}

impl Values {
    /// Parses a calculation and checks it against a type.
    pub fn compile(plan: Arc<TypePlan>, text: &str) -> Result<Self, ExpressionError> {
        let checked = check::check_values(&plan, &parse::parse(text)?)?;
        Ok(Self {
            plan,
            selection: checked.selection,
            names: checked.names,
            node: checked.node,
        })
    }

    /// Its values for a message; refused if a list lacks an element that is named by its place.
    pub fn of(&self, payload: &[u8]) -> Result<Vec<Literal>, DecodeError> {
        let mut slots = vec![Found::default(); self.names.len()];
        self.selection.find(&self.plan, payload, &mut slots)?;
        let lacks = |(name, found): &(&String, &Found<'_>)| {
            // [*] of an empty list finds nothing, and that is complete.
            matches!(found, Found::Nothing) && !name.contains("[*]")
        };
        if let Some((name, _)) = self.names.iter().zip(&slots).find(lacks) {
            return Err(DecodeError::new(0, name, "a shorter list"));
        }
        Ok(evaluate::literals(&self.node, &slots))
    }
}

/// A field of a type, by its path.
#[derive(Clone, Debug)]
pub(super) struct FieldPath {
    pub steps: Vec<Step>,
    /// The field at the end of the path.
    pub field: FieldPlan,
    /// It ends at a list, not at an element.
    pub is_list: bool,
}

impl FieldPath {
    /// Parses a path and follows it through a type.
    pub fn parse(plan: &TypePlan, text: &str) -> Result<Self, ExpressionError> {
        let typed = check::typed_path(plan, &parse::parse_path(text)?)?;
        Ok(Self {
            steps: typed.steps,
            field: typed.field.clone(),
            is_list: typed.is_list,
        })
    }
}

/// Parses an expression without a type to check it against.
///
/// # Errors
/// A text that cannot be parsed.
pub fn check_syntax(text: &str) -> Result<(), ExpressionError> {
    parse::parse(text).map(drop)
}

/// Splits `/topic: expression`, the form on command lines.
///
/// # Errors
/// When there is no topic before a colon.
pub fn split_topic(text: &str) -> Result<(&str, &str), ExpressionError> {
    match text.split_once(':') {
        Some((topic, expression))
            if !topic.trim().is_empty()
                && topic
                    .trim()
                    .chars()
                    .all(|c| c.is_alphanumeric() || matches!(c, '_' | '/' | '~')) =>
        {
            Ok((topic.trim(), expression.trim()))
        }
        _ => Err(ExpressionError::new(
            0,
            "expected a topic and a colon before the expression, for example /imu: angular_velocity.z > 1",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::super::reference::{Encoder, plan};
    use super::*;
    use proptest::prelude::*;

    const TYPES: &[(&str, &str)] = &[
        (
            "a/msg/A",
            "builtin_interfaces/Time stamp\nstring frame_id\nV v\nint64 big\nuint64 huge\nbool ok\nfloat32[3] fixed\n\
             uint8[] bytes\nV[] path\nstring[] names\nwstring wide\nfloat64 last",
        ),
        ("a/msg/V", "float64 x\nstring name\nuint8 y"),
        ("builtin_interfaces/msg/Time", "int32 sec\nuint32 nanosec"),
    ];

    fn payload(little: bool, second: bool) -> Vec<u8> {
        let mut out = Encoder::new(little, second, 4);
        out.u32(1_700_000_000);
        out.u32(500_000_000);
        out.text("base");
        out.u64(12.5_f64.to_bits());
        out.text("vé");
        out.u8(7);
        out.u64((-5_i64) as u64);
        out.u64(u64::MAX);
        out.u8(1);
        for value in [1.0_f32, f32::NAN, -3.0] {
            out.u32(value.to_bits());
        }
        out.u32(3);
        [1, 2, 200].into_iter().for_each(|byte| out.u8(byte));
        if second {
            out.u32(0);
        }
        out.u32(2);
        for (x, name, y) in [(1.0_f64, "one", 1), (2.0, "two", 2)] {
            out.u64(x.to_bits());
            out.text(name);
            out.u8(y);
        }
        if second {
            out.u32(0);
        }
        out.u32(1);
        out.text("only");
        out.wide("€uro");
        out.u64(99.0_f64.to_bits());
        out.finish()
    }

    #[track_caller]
    fn holds(text: &str) -> bool {
        let plan = Arc::new(plan(TYPES));
        let predicate = Predicate::compile(plan, text).unwrap_or_else(|error| panic!("{text}: {error}"));
        let answers: Vec<bool> = [(true, false), (false, false), (true, true), (false, true)]
            .into_iter()
            .map(|(little, second)| predicate.matches(&payload(little, second)).unwrap())
            .collect();
        assert!(
            answers.iter().all(|answer| *answer == answers[0]),
            "{text}: {answers:?}"
        );
        answers[0]
    }

    fn refusal(text: &str) -> String {
        Predicate::compile(Arc::new(plan(TYPES)), text)
            .unwrap_err()
            .to_string()
    }

    #[test]
    fn true_conditions_are_true() {
        for text in [
            "v.x > 12 && frame_id == \"base\"",
            "v.x>12 and not (frame_id != 'base')",
            "last == 99",
            "big == -5 and huge == 18446744073709551615 and huge > big",
            "big + 10 == 5 and big * -2 == 10 and big % 3 == -2 and 7 / 2 == 3.5",
            "7 / 2 * 2 == 7 and 6 / 3 / 4 == 0.5 and big / 2 == -2.5 and big / 5 == -1.0 and 1 / (huge / huge) == 1",
            "ok",
            "ok == true and ok != false",
            "!(!ok)",
            "fixed[0] == 1 and fixed[-1] == -3 and abs(fixed[2]) == 3",
            "bytes[2] == 0xc8 and len(bytes) == 3",
            "bytes[*] > 100",
            "not bytes[*] == 3",
            "path[1].name == \"two\" and path[-2].x == 1.0",
            "path[*].name =~ '^t' and path[*].y == 1",
            "path[*].x == 2 and path[0].x == 1 and len(path) == 2",
            "len(names) == 1 and names[0] == 'only' and names[*] == 'only'",
            "len(frame_id) == 4 and len(v.name) == 2 and wide == '€uro' and wide =~ 'uro$'",
            "frame_id =~ \"^ba\" and frame_id !~ 'x'",
            "stamp > 1700000000.4 and stamp < 1700000000.6 and stamp.nanosec == 500000000",
            "frame_id < 'cat' and frame_id >= 'base'",
            "fixed[1] != fixed[1]",
            "1e3 == 1000 and -2 < -1",
            "v.x / 0 > 1e300",
            "big % 0 != 0",
        ] {
            assert!(holds(text), "{text}");
        }
    }

    #[test]
    fn false_conditions_are_false() {
        for text in [
            "v.x > 12.5",
            "fixed[1] == fixed[1]",
            "bytes[3] == 0",
            "bytes[3] != 0",
            "bytes[-4] == 1 or path[2].name =~ '.*'",
            "ok and false",
            "names[*] == 'other'",
        ] {
            assert!(!holds(text), "{text}");
        }
    }

    #[test]
    fn formulas_have_the_value_of_each_message() {
        let value = |text: &str| {
            let formula = Formula::compile(Arc::new(plan(TYPES)), text).unwrap();
            assert_eq!(formula.type_name(), "a/msg/A");
            formula.value(&payload(true, false)).unwrap()
        };
        for (text, expected) in [
            ("v.x", Some(12.5)),
            ("abs(big) * 2 + 1", Some(11.0)),
            ("-fixed[-1]", Some(3.0)),
            ("len(bytes) + len(frame_id)", Some(7.0)),
            ("stamp", Some(1_700_000_000.5)),
            ("ok", Some(1.0)),
            ("v.x > 100", Some(0.0)),
            ("bytes[3]", None),
            ("path[2].x + 1", None),
        ] {
            assert_eq!(value(text), expected, "{text}");
        }
        for (text, reason) in [
            ("frame_id", "character 1: a text is not a number"),
            ("bytes[*]", "character 1: it has many values; name one, as in [0]"),
            ("fixed", "character 1: fixed is a list"),
            ("", "character 1: expected a value"),
        ] {
            let error = Formula::compile(Arc::new(plan(TYPES)), text)
                .unwrap_err()
                .to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }

    #[test]
    fn an_error_names_its_position() {
        for (text, reason) in [
            (
                "v.z > 1",
                "expression, character 3: a/msg/V has no field z; its fields are x, name, y",
            ),
            (
                "speed > 1",
                "expression, character 1: a/msg/A has no field speed; its fields are stamp, frame_id, v, big, huge, ok, fixed, bytes, path, names, wide, last",
            ),
            (
                "v > 1",
                "expression, character 1: v is a a/msg/V; name one of its fields: x, name, y",
            ),
            (
                "fixed > 1",
                "expression, character 1: fixed is a list; use fixed[0], fixed[*] (any element) or len(fixed)",
            ),
            (
                "fixed[3] > 1",
                "expression, character 6: fixed has 3 elements, there is no element 3",
            ),
            (
                "fixed[-4] > 1",
                "expression, character 6: fixed has 3 elements, there is no element -4",
            ),
            ("v.x[0] > 1", "expression, character 4: v.x is not a list"),
            (
                "frame_id.x == 1",
                "expression, character 10: frame_id has no fields, it is a string",
            ),
            (
                "frame_id == 1",
                "expression, character 10: a text and a number cannot be compared",
            ),
            (
                "ok > true",
                "expression, character 4: true and false can only be compared by == and !=",
            ),
            (
                "big =~ 'a'",
                "expression, character 5: =~ needs a text and a regular expression in quotes",
            ),
            (
                "frame_id =~ 'a('",
                "expression, character 13: not a regular expression: unclosed group",
            ),
            (
                "big",
                "expression, character 1: a number is not a condition; compare it with something",
            ),
            ("big + ok > 1", "expression, character 5: + needs numbers"),
            (
                "ok and",
                "expression, character 7: expected a value, found the end",
            ),
            (
                "ok ok",
                "expression, character 4: expected the end or an operator, found ok",
            ),
            ("(ok", "expression, character 4: expected ), found the end"),
            ("ok @", "expression, character 4: unexpected '@'"),
            ("'abc", "expression, character 1: the text has no end"),
            ("12x > 1", "expression, character 1: \"12x\" is not a number"),
            (
                "len(big) == 1",
                "expression, character 5: len needs a list or a text",
            ),
            (
                "sin(big) == 1",
                "expression, character 1: unknown function sin; the functions are len and abs",
            ),
            (
                "path[*].x == path[*].y",
                "expression, character 11: only one side may name any element",
            ),
            ("", "expression, character 1: expected a value, found the end"),
            (
                "a < b < c",
                "expression, character 7: expected the end or an operator, found <",
            ),
        ] {
            assert_eq!(refusal(text), reason, "{text}");
        }
        assert!(refusal(&"(".repeat(10_000)).contains("nested deeper than 64"));
        assert!(refusal(&"!".repeat(10_000)).contains("nested deeper than 64"));
        assert!(refusal(&" ".repeat(EXPRESSION_BYTES_MAX + 1)).contains("longer than"));
    }

    #[test]
    fn topics_are_split_off() {
        assert_eq!(split_topic("/imu: a.b == 'x:y'"), Ok(("/imu", "a.b == 'x:y'")));
        assert!(split_topic("a > 1").is_err());
        assert!(split_topic("a == 'x: y'").is_err());
        assert!(split_topic(": a").is_err());
    }

    #[test]
    fn a_payload_is_read_no_further_than_needed() {
        let predicate = Predicate::compile(Arc::new(plan(TYPES)), "frame_id == 'base'").unwrap();
        let payload = payload(true, false);
        assert_eq!(predicate.matches(&payload[..21]), Ok(true));
        let error = predicate.matches(&payload[..18]).unwrap_err().to_string();
        assert!(
            error.starts_with("a/msg/A frame_id at byte 16: expected a text"),
            "{error}"
        );
    }

    proptest! {
        #[test]
        fn no_text_and_no_bytes_panic(text in "([a-z_]{1,3}|big|path|bytes|v|names|[0-9.]{1,3}|[-+*/%()\\[\\].=<>!&|'\" ]|len|\\PC){0,12}", bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            if let Ok(predicate) = Predicate::compile(Arc::new(plan(TYPES)), &text) {
                let mut payload = vec![0, 1, 0, 0];
                payload.extend(bytes);
                let _ = predicate.matches(&payload);
            }
        }
    }
}
