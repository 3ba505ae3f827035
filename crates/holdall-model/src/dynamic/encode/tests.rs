//! Round trips of generated values, for every bundled type, and refused ones.

use super::*;
use crate::{
    dynamic::{
        ElementPlan, FieldPlan, Scalar, StructPlan, reference, text::TextOptions, value::size_of as bytes_of,
    },
    interface::{Arity, Definition, InterfaceSource, Primitive, SourceFormat, bundle::Bundle, parse_message},
};
use std::path::Path;

/// Every way in which a payload can be encoded.
pub(in crate::dynamic) fn representations() -> impl Iterator<Item = Representation> {
    (0..8).map(|bits| Representation {
        little_endian: bits & 1 == 0,
        second_version: bits & 2 != 0,
        wide_slots: if bits & 4 == 0 {
            WideSlots::Two
        } else {
            WideSlots::Four
        },
    })
}

/// Random values of any type, the same in every run.
pub(in crate::dynamic) struct Generator<'p> {
    plan: &'p TypePlan,
    state: u64,
    /// Only values that JSON and YAML can hold: finite numbers, texts.
    is_printable: bool,
}

impl<'p> Generator<'p> {
    pub fn new(plan: &'p TypePlan, seed: u64, is_printable: bool) -> Self {
        Self {
            plan,
            state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            is_printable,
        }
    }

    pub fn message(&mut self) -> Value {
        self.structure(self.plan.root())
    }

    fn next(&mut self) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, end: u64) -> u64 {
        (self.next() >> 33) % end
    }

    fn structure(&mut self, structure: &StructPlan) -> Value {
        if structure.is_empty {
            return Value::Struct(Vec::new());
        }
        Value::Struct(structure.fields.iter().map(|field| self.field(field)).collect())
    }

    fn field(&mut self, field: &FieldPlan) -> Value {
        let count = match field.arity {
            Arity::One => return self.element(field),
            Arity::Array(count) => count,
            Arity::BoundedSequence(most) => self.below(most.min(4) + 1),
            Arity::UnboundedSequence => self.below(4),
        };
        let ElementPlan::Primitive(kind) = field.element else {
            return Value::List((0..count).map(|_| self.element(field)).collect());
        };
        let mut plains = Plains::new(kind);
        for _ in 0..count {
            assert!(plains.push(self.plain(kind)));
        }
        Value::Plains(plains)
    }

    fn element(&mut self, field: &FieldPlan) -> Value {
        match field.element {
            ElementPlan::Struct(index) => self.structure(self.plan.structure(index)),
            ElementPlan::Primitive(kind) => Value::Plain(self.plain(kind)),
            ElementPlan::Text { length_max } => Value::Text(self.text(length_max).into_bytes()),
            // One that is not empty shows the width of characters.
            ElementPlan::WideText { length_max } => {
                let text = format!("w{}", self.text(length_max.map(|most| most - 1)));
                let most = length_max.unwrap_or(u64::MAX) as usize;
                Value::Wide(text.encode_utf16().take(most).collect())
            }
        }
    }

    fn text(&mut self, length_max: Option<u64>) -> String {
        let most = length_max.unwrap_or(20).min(20) as usize;
        let texts = [
            "",
            "a",
            "yes",
            "12",
            "null",
            "say \"hi\"\\\n",
            "é€",
            "/tf: [x]",
            "~",
            "0x1f",
            "long enough to align",
        ];
        let text = texts[self.below(texts.len() as u64) as usize];
        if text.len() > most {
            String::new()
        } else {
            text.to_owned()
        }
    }

    fn plain(&mut self, kind: Primitive) -> Plain {
        let mut bytes = [self.next().to_le_bytes(), self.next().to_le_bytes()].concat();
        match kind {
            Primitive::Boolean => bytes[0] &= 1,
            // Any bits, so also NaN with a content, or finite ones.
            Primitive::Float if self.is_printable => bytes[3] &= 0xbf,
            Primitive::Double if self.is_printable => bytes[7] &= 0xbf,
            _ => {}
        }
        if self.below(4) == 0 {
            bytes.fill(if kind == Primitive::Boolean || self.is_printable {
                0
            } else {
                0xff
            });
        }
        Plain::of_bytes(kind, &bytes[..bytes_of(kind)])
    }
}

pub(in crate::dynamic) fn encoded(plan: &TypePlan, value: &Value, representation: Representation) -> Vec<u8> {
    let mut payload = vec![9; 3];
    plan.encode(value, representation, &mut payload).unwrap();
    payload
}

/// Round trips of a type: values, payloads, JSON and YAML.
fn check_round_trips(plan: &TypePlan) {
    let name = plan.type_name();
    for (seed, representation) in (1..).zip(representations()) {
        let value = Generator::new(plan, seed, false).message();
        let payload = encoded(plan, &value, representation);
        let decoded = plan.decode(&payload).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(
            (&decoded.value, decoded.bytes_left),
            (&value, 0),
            "{name} {representation:?}"
        );
        let again = encoded(
            plan,
            &decoded.value,
            Representation {
                wide_slots: representation.wide_slots,
                ..decoded.representation
            },
        );
        assert_eq!(again, payload, "{name} {representation:?}");
        // The other decoder reads the same to the last byte.
        let mut text = Vec::new();
        assert_eq!(
            plan.write_json(&payload, &TextOptions::default(), &mut text)
                .unwrap()
                .bytes_left,
            0
        );
    }
    for seed in 1..=4 {
        let value = Generator::new(plan, seed, true).message();
        let payload = encoded(plan, &value, Representation::default());
        let base64 = TextOptions {
            base64: seed % 2 == 0,
            ..TextOptions::default()
        };
        let (mut json, mut yaml) = (Vec::new(), Vec::new());
        plan.write_json(&payload, &base64, &mut json).unwrap();
        plan.write_yaml(&payload, 0, &base64, &mut yaml).unwrap();
        let (json, yaml) = (String::from_utf8(json).unwrap(), String::from_utf8(yaml).unwrap());
        assert_eq!(
            plan.encode_json(&json)
                .unwrap_or_else(|error| panic!("{error}: {json}")),
            payload,
            "{name} {json}"
        );
        assert_eq!(
            plan.encode_yaml(&yaml)
                .unwrap_or_else(|error| panic!("{error}: {yaml}")),
            payload,
            "{name} {yaml}"
        );
    }
}

#[test]
fn every_bundled_type_comes_back_byte_for_byte() {
    let bundle = Bundle::embedded();
    let mut count = 0;
    for file in bundle.type_names() {
        let suffixes: &[&str] = match file.split('/').nth(1) {
            Some("msg") => &[""],
            Some("srv") => &["_Request", "_Response", "_Event"],
            _ => &[
                "_Goal",
                "_Result",
                "_Feedback",
                "_FeedbackMessage",
                "_SendGoal_Request",
                "_GetResult_Event",
            ],
        };
        for suffix in suffixes {
            let definition = bundle.define(&format!("{file}{suffix}")).unwrap();
            check_round_trips(&TypePlan::compile(&definition).unwrap());
            count += 1;
        }
    }
    assert!(count > 200, "{count}");
}

/// A type of `test_msgs`, whose definitions are in the tests' data in both formats.
fn test_type(name: &str, format: SourceFormat) -> TypePlan {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/interfaces");
    let definition = Definition::resolve(name, |wanted| {
        let text = std::fs::read_to_string(folder.join(format!("{wanted}.{}", format.as_str()))).ok()?;
        Some(InterfaceSource {
            format,
            text: text.into(),
        })
    });
    TypePlan::compile(&definition.unwrap()).unwrap()
}

const TEST_TYPES: [&str; 12] = [
    "Arrays",
    "BasicTypes",
    "BoundedPlainSequences",
    "BoundedSequences",
    "Builtins",
    "Constants",
    "Defaults",
    "Empty",
    "MultiNested",
    "Nested",
    "Strings",
    "UnboundedSequences",
];

#[test]
fn every_kind_of_field_comes_back_byte_for_byte() {
    for format in [SourceFormat::Msg, SourceFormat::Idl] {
        for name in TEST_TYPES.iter().chain(&["WStrings"]) {
            check_round_trips(&test_type(&format!("test_msgs/msg/{name}"), format));
        }
    }
}

#[test]
fn defaults_are_the_same_in_both_formats_of_a_definition() {
    for name in TEST_TYPES.iter().chain(&["WStrings"]) {
        let name = format!("test_msgs/msg/{name}");
        let of_msg = test_type(&name, SourceFormat::Msg).default_value().unwrap();
        let of_idl = test_type(&name, SourceFormat::Idl).default_value().unwrap();
        assert_eq!(of_msg, of_idl, "{name}");
    }
}

fn json_of(plan: &TypePlan, text: &str) -> String {
    let payload = plan.encode_yaml(text).unwrap_or_else(|error| panic!("{error}"));
    let mut json = Vec::new();
    plan.write_json(&payload, &TextOptions::default(), &mut json)
        .unwrap();
    String::from_utf8(json).unwrap()
}

#[test]
fn fields_that_a_text_leaves_out_have_their_defaults() {
    let plan = test_type("test_msgs/msg/Defaults", SourceFormat::Msg);
    assert_eq!(
        json_of(&plan, "uint8_value: 7"),
        "{\"bool_value\":true,\"byte_value\":50,\"char_value\":100,\"float32_value\":1.125,\"float64_value\":1.125,\
         \"int8_value\":-50,\"uint8_value\":7,\"int16_value\":-1000,\"uint16_value\":2000,\"int32_value\":-30000,\
         \"uint32_value\":60000,\"int64_value\":-40000000,\"uint64_value\":50000000}"
    );
    let plan = reference::plan(&[
        (
            "a/msg/A",
            "string a 'it''s # not this\nstring[3] b [\"x, y\", 'z', plain]\nint8[2] c [0x10, -3]\nB[2] d\nB[] e\n\
             bool f 1\nwstring g \"say \\\"€\\\"\"\nfloat32 h -1e-3\nE i\nstring[<=2] j []",
        ),
        ("a/msg/B", "uint16 n 258\nbool[2] many [true, 0]"),
        ("a/msg/E", ""),
    ]);
    assert_eq!(
        json_of(&plan, "a: b"),
        "{\"a\":\"b\",\"b\":[\"x, y\",\"z\",\"plain\"],\"c\":[16,-3],\"d\":[{\"n\":258,\"many\":[true,false]},\
         {\"n\":258,\"many\":[true,false]}],\"e\":[],\"f\":true,\"g\":\"say \\\"€\\\"\",\"h\":-0.001,\"i\":{},\"j\":[]}"
    );
    let spec = parse_message("a/msg/A", "uint8 x 300").unwrap();
    assert_eq!(spec.defaults, [Some("300".to_owned())]);
    let plan = reference::plan(&[("a/msg/A", "uint8 x 300")]);
    assert_eq!(
        plan.default_value().unwrap_err().to_string(),
        "a/msg/A x: expected a default of type uint8, found \"300\" in the definition"
    );
    assert!(
        plan.encode_json("{\"x\": 3}").is_ok(),
        "the default is not needed"
    );
}

#[test]
fn what_does_not_fit_is_refused_with_its_path() {
    let plan = reference::plan(&[
        (
            "a/msg/A",
            "B b\nB[] many\nuint8[3] bytes\nstring<=3 text\nstring[<=1] texts\nfloat32 f\nbool yes\nE e\nwstring<=2 w\n\
             uint64 huge",
        ),
        ("a/msg/B", "builtin_interfaces/Time stamp\nint8 small"),
        ("builtin_interfaces/msg/Time", "int32 sec\nuint32 nanosec"),
        ("a/msg/E", ""),
    ]);
    for (json, reason) in [
        (
            "{\"b\":{\"stamp\":{\"sec\":\"now\"}}}",
            "b.stamp.sec: expected a whole number in -2147483648..2147483647, found \"now\"",
        ),
        (
            "{\"b\":{\"small\":128}}",
            "b.small: expected a whole number in -128..127, found 128",
        ),
        (
            "{\"b\":{\"small\":1.0}}",
            "b.small: expected a whole number in -128..127, found 1.0",
        ),
        (
            "{\"b\":{\"small\":true}}",
            "b.small: expected a whole number in -128..127, found true",
        ),
        (
            "{\"many\":[{},{\"stamp\":{\"nanosec\":-1}}]}",
            "many[1].stamp.nanosec: expected a whole number in 0..4294967295, found -1",
        ),
        (
            "{\"bytes\":[1,2]}",
            "bytes: expected a list of 3, found a list of 2",
        ),
        (
            "{\"bytes\":[1,2,256]}",
            "bytes[2]: expected a whole number in 0..255, found 256",
        ),
        (
            "{\"bytes\":\"AAAAAA==\"}",
            "bytes: expected a list of 3, found a list of 4",
        ),
        (
            "{\"bytes\":\"no!\"}",
            "bytes: expected a list of 3 or base64, found \"no!\"",
        ),
        ("{\"bytes\":7}", "bytes: expected a list of 3, found 7"),
        (
            "{\"text\":\"four\"}",
            "text: expected a text of at most 3 bytes, found 4",
        ),
        ("{\"text\":12}", "text: expected a text, found 12"),
        (
            "{\"texts\":[\"\",\"\"]}",
            "texts: expected a list of at most 1, found a list of 2",
        ),
        (
            "{\"f\":1e39}",
            "f: expected a number in -3.4028235e38..3.4028235e38, found 1e39",
        ),
        ("{\"f\":\"1\"}", "f: expected a number, found \"1\""),
        ("{\"yes\":1}", "yes: expected true or false, found 1"),
        ("{\"yes\":null}", "yes: expected true or false, found nothing"),
        (
            "{\"e\":{\"x\":1}}",
            "e: expected no field, a/msg/E has none, found \"x\"",
        ),
        (
            "{\"e\":{\"structure_needs_at_least_one_member\":1}}",
            "e: expected no field, a/msg/E has none, found \"structure_needs_at_least_one_member\"",
        ),
        (
            "{\"b\":{\"stomp\":1}}",
            "b: expected a field of a/msg/B (stamp, small), found \"stomp\"",
        ),
        (
            "{\"b\":[]}",
            "b: expected a map with the fields of a/msg/B, found a list of 0",
        ),
        (
            "{\"w\":\"€uro\"}",
            "w: expected a text of at most 2 characters, found 4",
        ),
        (
            "{\"huge\":18446744073709551616}",
            "huge: expected a whole number in 0..18446744073709551615, found 18446744073709551616",
        ),
    ] {
        let error = plan.encode_json(json).unwrap_err().to_string();
        assert_eq!(error, format!("a/msg/A {reason}"), "{json}");
    }
    let error = plan.encode_json("[]").unwrap_err().to_string();
    assert_eq!(
        error,
        "a/msg/A: expected a map with the fields of a/msg/A, found a list of 0"
    );
    let error = plan.encode_json("{\"b\":{},\"b\":{}}").unwrap_err().to_string();
    assert!(error.starts_with("not JSON: the key b occurs twice"), "{error}");
    let error = plan
        .encode_yaml("b: {small: &a 1}\nmany: [*a]")
        .unwrap_err()
        .to_string();
    assert_eq!(error, "not YAML: line 2: aliases are not supported");
}

#[test]
fn numbers_of_yaml_are_what_their_field_requires() {
    let plan = reference::plan(&[(
        "a/msg/A",
        "float32[] f\nfloat64[] d\nstring[] s\nbool[] b\nint64[] i",
    )]);
    assert_eq!(
        json_of(
            &plan,
            "f: [.nan, -.INF, 1, 0.1, 1e3]\nd: [1.0e+16, .5, 0x10]\ns: [12, yes, 1.50, \"~\"]\nb: [on, No, true]\ni: [-0x10, +3]"
        ),
        "{\"f\":[\"NaN\",\"-Infinity\",1.0,0.1,1000.0],\"d\":[1e+16,0.5,16.0],\"s\":[\"12\",\"yes\",\"1.50\",\"~\"],\
         \"b\":[true,false,true],\"i\":[-16,3]}"
    );
    for (yaml, reason) in [
        ("d: [1e400]", "d[0]: expected a number, found \"1e400\""),
        ("d: [infinity]", "d[0]: expected a number, found \"infinity\""),
        (
            "f: [1e39]",
            "f[0]: expected a number in -3.4028235e38..3.4028235e38, found \"1e39\"",
        ),
        (
            "i: [1_000]",
            "i[0]: expected a whole number in -9223372036854775808..9223372036854775807, found \"1_000\"",
        ),
        ("s: [~]", "s[0]: expected a text, found nothing"),
    ] {
        assert_eq!(
            plan.encode_yaml(yaml).unwrap_err().to_string(),
            format!("a/msg/A {reason}")
        );
    }
}

#[test]
fn hostile_definitions_end_at_the_bound() {
    let plan = reference::plan(&[("a/msg/A", "float64[18446744073709551615] x")]);
    let error = plan.default_value().unwrap_err().to_string();
    assert!(
        error.starts_with("a/msg/A x: expected values of at most 1073741824 bytes"),
        "{error}"
    );
    // Ten levels of a thousand elements each.
    let texts: Vec<(String, String)> = (0..10)
        .map(|level| {
            let text = if level == 9 {
                "uint8 x".to_owned()
            } else {
                format!("T{}[1000] x", level + 1)
            };
            (format!("a/msg/T{level}"), text)
        })
        .collect();
    let texts: Vec<(&str, &str)> = texts
        .iter()
        .map(|(name, text)| (name.as_str(), text.as_str()))
        .collect();
    let error = reference::plan(&texts).default_value().unwrap_err();
    assert!(error.field().starts_with("x"), "{error}");
    let deep = "[".repeat(100_000);
    assert!(Literal::from_json(&deep).is_err() && Literal::from_yaml(&deep).is_err());
}

#[test]
fn values_of_another_type_are_refused() {
    let plan = reference::plan(&[
        ("a/msg/A", "uint8 x\nstring y\nint16[2] z\nstring[<=1] l"),
        ("a/msg/E", ""),
    ]);
    let list = |values: &[i16]| {
        let mut plains = Plains::new(Primitive::Int16);
        assert!(values.iter().all(|value| plains.push((*value).into())));
        assert!(!plains.push(1_u8.into()));
        Value::Plains(plains)
    };
    let good = vec![
        Value::from(1_u8),
        Value::from("a"),
        list(&[1, 2]),
        Value::List(vec![]),
    ];
    let refusal = |index: usize, value: Value| {
        let mut fields = good.clone();
        fields[index] = value;
        let encoded = plan.encode(&Value::Struct(fields), Representation::default(), &mut Vec::new());
        encoded.unwrap_err().to_string()
    };
    assert!(
        plan.encode(
            &Value::Struct(good.clone()),
            Representation::default(),
            &mut Vec::new()
        )
        .is_ok()
    );
    for (index, value, reason) in [
        (0, Value::from(1_u16), "x: expected uint8, found a uint16"),
        (0, Value::from("a"), "x: expected uint8, found a string"),
        (1, Value::Wide(vec![]), "y: expected string, found a wstring"),
        (2, list(&[1]), "z: expected a list of 2, found a list of 1"),
        (2, Value::List(vec![]), "z: expected int16[2], found a list of 0"),
        (
            3,
            Value::List(vec!["a".into(), "b".into()]),
            "l: expected a list of at most 1, found a list of 2",
        ),
        (3, list(&[1]), "l: expected string[<=1], found 1 values of int16"),
    ] {
        assert_eq!(refusal(index, value), format!("a/msg/A {reason}"));
    }
    let error = plan
        .encode(&Value::Struct(vec![]), Representation::default(), &mut Vec::new())
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "a/msg/A: expected the 4 fields of a/msg/A, found 0"
    );
    assert_eq!(Plain::from(1.5_f32).scalar(), Scalar::F32(1.5));
}

/// Bytes of a hexadecimal text.
fn bytes(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

#[test]
fn what_rclpy_adds_after_the_last_field_is_no_fault() {
    // `serialize_message` of Jazzy: the length is estimated, and the bytes after the last field were never written.
    let cases = [
        (
            TypePlan::compile(&Bundle::embedded().define("sensor_msgs/msg/JointState").unwrap()).unwrap(),
            "00010000 00000000 00000000 02000000 6a007369 00000000 00000000 00000000 00000000 61737472 7470735f",
            8,
        ),
        (
            test_type("test_msgs/msg/WStrings", SourceFormat::Msg),
            "00010000 03000000 61000000 62000000 ac200000 01000000 78000000 00000000 00000000 00000000 00000000 \
             00000000 00000000 00000000 80e2a500 00000000 30a451dd 8d7f0000 a8daa500 00000000 0085a1e0",
            28,
        ),
    ];
    for (plan, text, left) in cases {
        let payload = bytes(text);
        let walked = plan
            .write_json(&payload, &TextOptions::default(), &mut Vec::new())
            .unwrap();
        assert_eq!(
            (walked.bytes_left, walked.is_longer),
            (left, false),
            "{}",
            plan.type_name()
        );
        let mut again = Vec::new();
        let decoded = plan.decode(&payload).unwrap();
        plan.encode(&decoded.value, decoded.representation, &mut again)
            .unwrap();
        let fields = payload.len() - left;
        assert_eq!(again.len(), fields);
        assert_eq!(plan.decode(&payload[..fields]).unwrap().value, decoded.value);
        let longer = [payload.as_slice(), &[0; 100]].concat();
        let walked = plan
            .write_json(&longer, &TextOptions::default(), &mut Vec::new())
            .unwrap();
        assert!(walked.is_longer);
    }
    let plan = test_type("test_msgs/msg/WStrings", SourceFormat::Msg);
    let Value::Struct(fields) = plan
        .decode(&bytes(
            "00010000 03000000 61000000 62000000 ac200000 01000000 78000000 \
        00000000 00000000 00000000 00000000 00000000 00000000 00000000",
        ))
        .unwrap()
        .value
    else {
        panic!("a message is a struct");
    };
    assert_eq!(fields[0], Value::Wide(vec![0x61, 0x62, 0x20ac]));
}

/// All definition files below a folder with packages, as `package/kind/Name` with their texts.
fn definition_files(folder: &Path, found: &mut std::collections::BTreeMap<String, InterfaceSource>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            definition_files(&path, found);
            continue;
        }
        let format = path
            .extension()
            .and_then(|extension| SourceFormat::from_name(extension.to_str()?));
        let names: Vec<_> = path
            .with_extension("")
            .iter()
            .rev()
            .take(3)
            .map(|name| name.to_string_lossy().into_owned())
            .collect();
        if let (Some(format), [name, kind, package]) = (format, names.as_slice()) {
            let text = std::fs::read_to_string(&path).unwrap().into();
            found.insert(
                format!("{package}/{kind}/{name}"),
                InterfaceSource { format, text },
            );
        }
    }
}

/// Covers the definitions of the tests, or of the packages in the folder that HOLDALL_DEFINITIONS names.
#[test]
fn every_definition_of_a_folder_comes_back_byte_for_byte() {
    let own = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/interfaces");
    let folder = std::env::var("HOLDALL_DEFINITIONS").unwrap_or_else(|_| own.to_owned());
    let mut files = std::collections::BTreeMap::new();
    definition_files(Path::new(&folder), &mut files);
    let mut count = 0;
    let mut without = Vec::new();
    for (name, source) in &files {
        let suffixes: &[&str] = match source.format {
            SourceFormat::Srv => &["_Request", "_Response", "_Event"],
            SourceFormat::Action => &["_Goal", "_Result", "_Feedback", "_SendGoal_Event"],
            _ => &[""],
        };
        for suffix in suffixes {
            let lookup = |wanted: &str| {
                files
                    .get(wanted)
                    .cloned()
                    .or_else(|| Bundle::embedded().get(wanted))
            };
            match Definition::resolve(&format!("{name}{suffix}"), lookup) {
                Ok(definition) => {
                    check_round_trips(&TypePlan::compile(&definition).unwrap());
                    count += 1;
                }
                Err(error) => without.push(error.to_string()),
            }
        }
    }
    assert!(
        count > 0 && without.is_empty(),
        "{count} types; {}",
        without.join("\n")
    );
}
