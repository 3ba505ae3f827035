//! Messages as JSON, YAML and cells, written straight from their payloads.
//!
//! - Fields in the order of the definition; structs without fields are `{}`.
//! - Integers in full; floats with the fewest digits that identify them among floats of their width.
//! - JSON has no NaN and infinities: they are the texts `"NaN"`, `"Infinity"` and `"-Infinity"`; in YAML
//!   `.nan`, `.inf`, `-.inf`.
//! - Bytes of a `string` that are not UTF-8 become U+FFFD.

mod cells;
mod compiled;
#[cfg(test)]
mod compiled_tests;
mod field;
mod flow;
mod json;
mod notation;
mod number;
mod template;
mod yaml;

pub use cells::CellsVisitor;
pub use compiled::{CompiledText, quote};
pub use field::FieldPath;
pub use flow::FlowVisitor;
pub use json::{JsonVisitor, write_json_string};
pub use notation::Notation;
pub use yaml::{YamlVisitor, write_yaml_string};

use super::{DecodeError, FieldPlan, Scalar, TypePlan, Walked};
use crate::interface::Arity;
use std::fmt::Write;

/// How values are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextOptions {
    /// Longer lists and texts are cut to this length, with `...` after it; `None` for no limit.
    pub length_max: Option<usize>,
    /// Lists with their elements; otherwise their type and length.
    pub lists: bool,
    /// Texts with their characters; otherwise their length.
    pub strings: bool,
    /// Bytes (`uint8[]`, `byte[]`, `char[]`) as base64 text instead of numbers.
    pub base64: bool,
    /// Longest text of a message, in bytes; a longer one is an error.
    pub bytes_max: usize,
}

impl Default for TextOptions {
    fn default() -> Self {
        Self {
            length_max: None,
            lists: true,
            strings: true,
            base64: false,
            bytes_max: 1 << 30,
        }
    }
}

/// Why a message cannot be written as text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TextError {
    /// The payload does not fit its definition.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// The text would be too long to hold in memory.
    #[error(
        "the text of a {type_name} is longer than {bytes_max} bytes; cut long lists, or write bytes as base64"
    )]
    TooLong {
        /// The message's type.
        type_name: String,
        /// The bound.
        bytes_max: usize,
    },
}

impl TypePlan {
    /// Appends a message as one JSON object on one line.
    ///
    /// # Errors
    /// When the payload cannot be decoded or the text is too long; `out` then holds an incomplete text.
    pub fn write_json(
        &self,
        payload: &[u8],
        options: &TextOptions,
        out: &mut Vec<u8>,
    ) -> Result<Walked, TextError> {
        let mut visitor = JsonVisitor::new(self, out, options);
        let walked = self.walk(payload, &mut visitor)?;
        self.check(visitor.is_cut(), options)?;
        Ok(walked)
    }

    /// Appends a message as a YAML block after a key, indented by `indent` spaces: it begins with an end of
    /// line (or ` {}`).
    ///
    /// # Errors
    /// As [`TypePlan::write_json`].
    pub fn write_yaml(
        &self,
        payload: &[u8],
        indent: usize,
        options: &TextOptions,
        out: &mut Vec<u8>,
    ) -> Result<Walked, TextError> {
        let mut visitor = YamlVisitor::new(self, out, indent, options);
        let walked = self.walk(payload, &mut visitor)?;
        self.check(visitor.is_cut(), options)?;
        Ok(walked)
    }

    fn check(&self, is_cut: bool, options: &TextOptions) -> Result<(), TextError> {
        if is_cut {
            return Err(TextError::TooLong {
                type_name: self.type_name().to_owned(),
                bytes_max: options.bytes_max,
            });
        }
        Ok(())
    }
}

/// The replacement for a list that is not shown, as `ros2 topic echo --no-arr` writes it.
fn list_summary(plan: &TypePlan, field: &FieldPlan, count: u64) -> String {
    let element = field.element_text(plan);
    match field.arity {
        Arity::Array(count) => format!("<array type: {element}[{count}]>"),
        _ => format!("<sequence type: {element}, length: {count}>"),
    }
}

/// A text, cut or summarized as the options require.
fn shown_text<'t>(text: std::borrow::Cow<'t, str>, options: &TextOptions) -> std::borrow::Cow<'t, str> {
    if !options.strings {
        return format!("<string length: <{}>>", text.len()).into();
    }
    match options.length_max {
        Some(most) if text.len() > most && text.chars().count() > most => {
            let mut cut: String = text.chars().take(most).collect();
            // Writing to a String cannot fail.
            let _ = cut.write_str("...");
            cut.into()
        }
        _ => text,
    }
}

/// How many of `count` elements are shown.
fn shown_count(count: usize, options: &TextOptions) -> usize {
    options.length_max.map_or(count, |most| most.min(count))
}

/// The value as plain text, for a cell or a line.
pub fn plain(value: Scalar<'_>) -> String {
    let mut out = Vec::new();
    match value {
        Scalar::Text(text) => return text.to_str().into_owned(),
        Scalar::Wide(text) => return text.to_text(),
        value => number::write(&mut out, value, &number::PLAIN),
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Appends a number or a boolean without an allocation; nothing for texts. NaN and infinities are `nan`,
/// `inf`, `-inf`.
pub fn write_plain_number(out: &mut Vec<u8>, value: Scalar<'_>) {
    number::write(out, value, &number::PLAIN);
}

#[cfg(test)]
mod tests {
    use super::super::reference;
    use super::*;

    const TYPES: &[(&str, &str)] = &[
        (
            "a/msg/A",
            "bool yes\nfloat32 f\nfloat64 d\nstring s\nwstring w\nuint8[] bytes\nint16[3] fixed\nB[] many\nstring[] words\nE e\nB[] none",
        ),
        ("a/msg/B", "int64 x\nE e\nuint64 y"),
        ("a/msg/E", ""),
    ];

    fn message() -> (TypePlan, Vec<u8>) {
        let plan = reference::plan(TYPES);
        let mut out = reference::Encoder::new(true, false, 2);
        out.u8(1);
        out.u32(0.1_f32.to_bits());
        out.u64(f64::NEG_INFINITY.to_bits());
        out.text("say \"hi\"\n");
        out.wide("€");
        out.u32(4);
        (0..4).for_each(|byte| out.u8(byte));
        [1_u16, 2, 0xffff].into_iter().for_each(|value| out.u16(value));
        out.u32(2);
        for x in [-1_i64, 5] {
            out.u64(x as u64);
            out.u8(0);
            out.u64(u64::MAX);
        }
        out.u32(2);
        out.text("yes");
        out.text("plain");
        out.u8(0);
        out.u32(0);
        (plan, out.finish())
    }

    fn json(options: TextOptions) -> String {
        let (plan, payload) = message();
        let mut out = Vec::new();
        plan.write_json(&payload, &options, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn yaml(options: TextOptions) -> String {
        let (plan, payload) = message();
        let mut out = b"message:".to_vec();
        plan.write_yaml(&payload, 2, &options, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn json_holds_everything() {
        assert_eq!(
            json(TextOptions::default()),
            "{\"yes\":true,\"f\":0.1,\"d\":\"-Infinity\",\"s\":\"say \\\"hi\\\"\\n\",\"w\":\"€\",\"bytes\":[0,1,2,3],\
             \"fixed\":[1,2,-1],\"many\":[{\"x\":-1,\"e\":{},\"y\":18446744073709551615},\
             {\"x\":5,\"e\":{},\"y\":18446744073709551615}],\"words\":[\"yes\",\"plain\"],\"e\":{},\"none\":[]}"
        );
    }

    #[test]
    fn yaml_holds_everything() {
        assert_eq!(
            yaml(TextOptions::default()),
            "message:\n  \"yes\": true\n  f: 0.1\n  d: -.inf\n  s: \"say \\\"hi\\\"\\n\"\n  w: \"€\"\n  bytes: [0, 1, 2, 3]\n  \
             fixed: [1, 2, -1]\n  many:\n  - x: -1\n    e: {}\n    y: 18446744073709551615\n  - x: 5\n    e: {}\n    \
             y: 18446744073709551615\n  words: [\"yes\", plain]\n  e: {}\n  none: []"
        );
    }

    #[test]
    fn yaml_of_a_message_alone_is_that_after_a_key_without_its_indentation() {
        let (plan, payload) = message();
        let (mut alone, options) = (Vec::new(), TextOptions::default());
        plan.write_yaml(&payload, 0, &options, &mut alone).unwrap();
        let below = yaml(options).replace("\n  ", "\n");
        assert_eq!(
            Some(String::from_utf8(alone).unwrap().as_str()),
            below.strip_prefix("message:")
        );
    }

    #[test]
    fn lists_and_texts_are_cut() {
        let options = TextOptions {
            length_max: Some(1),
            ..TextOptions::default()
        };
        let text = json(options);
        for part in [
            "\"s\":\"s...\"",
            "\"bytes\":[0,\"...\"]",
            "\"y\":18446744073709551615},\"...\"]",
            "[\"y...\",\"...\"]",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["none"], serde_json::json!([]));
        let text = yaml(options);
        for part in [
            "fixed: [1, \"...\"]",
            "\n  - x: -1\n",
            "\n  - \"...\"\n",
            "[y..., \"...\"]",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn lists_and_texts_are_summarized() {
        let text = json(TextOptions {
            lists: false,
            strings: false,
            ..TextOptions::default()
        });
        for part in [
            "\"s\":\"<string length: <9>>\"",
            "\"bytes\":\"<sequence type: uint8, length: 4>\"",
            "\"fixed\":\"<array type: int16[3]>\"",
            "\"many\":\"<sequence type: a/msg/B, length: 2>\"",
            "\"e\":{}",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn bytes_are_written_as_base64() {
        let options = TextOptions {
            base64: true,
            ..TextOptions::default()
        };
        assert!(json(options).contains("\"bytes\":\"AAECAw==\""));
        assert!(yaml(options).contains("bytes: \"AAECAw==\""));
    }

    #[test]
    fn a_text_beyond_the_bound_is_an_error() {
        let (plan, payload) = message();
        let options = TextOptions {
            bytes_max: 20,
            ..TextOptions::default()
        };
        let error = plan.write_json(&payload, &options, &mut Vec::new()).unwrap_err();
        assert!(error.to_string().contains("longer than 20 bytes"), "{error}");
    }
}
