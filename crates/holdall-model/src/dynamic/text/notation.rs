//! A message, or one field of it, in one of the notations for terminals and scripts.

use super::{CellsVisitor, FieldPath, FlowVisitor, JsonVisitor, TextError, TextOptions, YamlVisitor};
use crate::dynamic::{DecodeError, TypePlan, Visitor};

/// How a message is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notation {
    /// One JSON value on one line.
    Json,
    /// A YAML block that begins with an end of line, or with a space before a value.
    Yaml,
    /// YAML in flow style, on one line.
    Flow,
    /// Cells on one line.
    Cells,
}

impl TypePlan {
    /// Appends a message, or the field at a path. False when the message has no such field: nothing was appended then.
    ///
    /// # Errors
    /// As [`TypePlan::write_json`].
    pub fn write_as(
        &self,
        notation: Notation,
        field: Option<&FieldPath>,
        payload: &[u8],
        options: &TextOptions,
        out: &mut Vec<u8>,
    ) -> Result<bool, TextError> {
        macro_rules! written {
            ($visitor:expr) => {{
                let mut visitor = $visitor;
                let found = self.visit(field, payload, &mut visitor)?;
                (found, visitor.is_cut())
            }};
        }
        let (is_found, is_cut) = match notation {
            Notation::Json => written!(JsonVisitor::new(self, out, options)),
            Notation::Yaml => written!(YamlVisitor::new(self, out, 0, options)),
            Notation::Flow => written!(FlowVisitor::new(self, out, options)),
            Notation::Cells => written!(CellsVisitor::new(self, out, options)),
        };
        self.check(is_cut, options)?;
        Ok(is_found)
    }

    fn visit<'a, V: Visitor<'a>>(
        &self,
        field: Option<&FieldPath>,
        payload: &'a [u8],
        visitor: &mut V,
    ) -> Result<bool, DecodeError> {
        let Some(field) = field else {
            return self.walk(payload, visitor).map(|_| true);
        };
        let mut selected = field.select(visitor);
        self.walk(payload, &mut selected)?;
        Ok(selected.is_found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dynamic::reference;

    const TYPES: &[(&str, &str)] = &[
        (
            "a/msg/A",
            "bool on\nfloat32 f\nfloat64 d\nstring s\nB[] many\nint16[] list\nstring[] words\nE e\nfloat64[2] pair",
        ),
        ("a/msg/B", "int64 x\nP p"),
        ("a/msg/P", "int32[] y"),
        ("a/msg/E", ""),
    ];

    fn message() -> (TypePlan, Vec<u8>) {
        let plan = reference::plan(TYPES);
        let mut out = reference::Encoder::new(true, false, 2);
        out.u8(1);
        out.u32(0.1_f32.to_bits());
        out.u64(1e-7_f64.to_bits());
        out.text("a, \"b\"");
        out.u32(2);
        for x in [-1_i64, 5] {
            out.u64(x as u64);
            out.u32(1);
            out.u32(x as u32);
        }
        out.u32(0);
        out.u32(2);
        out.text("no");
        out.text("y: 1");
        out.u8(0);
        out.u64(f64::NAN.to_bits());
        out.u64(2.0_f64.to_bits());
        (plan, out.finish())
    }

    fn shown(notation: Notation, field: Option<&str>, options: &TextOptions) -> Option<String> {
        let (plan, payload) = message();
        let field = field.map(|field| FieldPath::parse(field).unwrap());
        let mut out = Vec::new();
        let is_found = plan
            .write_as(notation, field.as_ref(), &payload, options, &mut out)
            .unwrap();
        is_found.then(|| String::from_utf8(out).unwrap())
    }

    #[test]
    fn cells_are_all_values_on_one_line() {
        let all = TextOptions::default();
        let line = shown(Notation::Cells, None, &all).unwrap();
        assert_eq!(line, "True,0.1,1e-7,\"a, \"\"b\"\"\",-1,-1,5,5,,no,y: 1,,nan,2.0");
        let short = TextOptions {
            length_max: Some(1),
            ..all
        };
        let line = shown(Notation::Cells, None, &short).unwrap();
        assert_eq!(line, "True,0.1,1e-7,a...,-1,-1,...,,n...,...,,nan,...");
        let none = TextOptions { lists: false, ..all };
        let line = shown(Notation::Cells, Some("many"), &none).unwrap();
        assert_eq!(line, "\"<sequence type: a/msg/B, length: 2>\"");
    }

    #[test]
    fn flow_style_is_one_line_of_yaml() {
        let line = shown(Notation::Flow, None, &TextOptions::default()).unwrap();
        assert_eq!(
            line,
            "{\"on\": true, f: 0.1, d: 1.0e-7, s: \"a, \\\"b\\\"\", many: [{x: -1, p: {y: [-1]}}, {x: 5, p: {y: [5]}}], list: [], \
             words: [\"no\", \"y: 1\"], e: {}, pair: [.nan, 2.0]}"
        );
    }

    #[test]
    fn a_field_is_what_is_at_its_path_in_every_notation() {
        let all = TextOptions::default();
        for (notation, field, expected) in [
            (Notation::Json, "many[1].p", Some("{\"y\":[5]}")),
            (Notation::Json, "many[1]", Some("{\"x\":5,\"p\":{\"y\":[5]}}")),
            (Notation::Yaml, "many[1]", Some("\nx: 5\np:\n  y: [5]")),
            (Notation::Yaml, "many[0].p.y[0]", Some(" -1")),
            (
                Notation::Flow,
                "many",
                Some("[{x: -1, p: {y: [-1]}}, {x: 5, p: {y: [5]}}]"),
            ),
            (Notation::Flow, "words[1]", Some("\"y: 1\"")),
            (Notation::Cells, "pair", Some("nan,2.0")),
            (Notation::Cells, "pair[1]", Some("2.0")),
            (Notation::Cells, "s", Some("\"a, \"\"b\"\"\"")),
            (Notation::Json, "many[2]", None),
            (Notation::Json, "p.y", None),
            (Notation::Json, "pair[2]", None),
            (Notation::Json, "f.x", None),
            (Notation::Json, "many.x", None),
            (Notation::Json, "many.list", None),
            (Notation::Json, "list[0].words", None),
        ] {
            let found = shown(notation, Some(field), &all);
            assert_eq!(found.as_deref(), expected, "{field}");
        }
        for bad in ["", "a..b", "a[", "a[x]", "[0]", "a[-1]", "a b", "a]"] {
            assert!(FieldPath::parse(bad).is_err(), "{bad}");
        }
    }
}
