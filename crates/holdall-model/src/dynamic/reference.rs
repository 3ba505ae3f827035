//! A plain CDR encoder and random types for it: the reference for tests of the decoder.

use super::{DecodeError, ElementPlan, FieldPlan, Primitives, Scalar, StructPlan, TypePlan, Visitor};
use crate::interface::{Definition, InterfaceSource, SourceFormat};
use proptest::prelude::*;

/// A plan from `.msg` texts; the first one is the message.
pub(super) fn plan(texts: &[(&str, &str)]) -> TypePlan {
    let definition = Definition::resolve(texts[0].0, |name| {
        let (_, text) = texts.iter().find(|(known, _)| *known == name)?;
        Some(InterfaceSource {
            format: SourceFormat::Msg,
            text: (*text).to_owned().into(),
        })
    });
    TypePlan::compile(&definition.unwrap()).unwrap()
}

/// Writes values one after the other, aligned.
pub(super) struct Encoder {
    bytes: Vec<u8>,
    little: bool,
    second: bool,
    slot: usize,
}

impl Encoder {
    pub fn new(little: bool, second: bool, slot: usize) -> Self {
        let kind = u8::from(little) + if second { 6 } else { 0 };
        Self {
            bytes: vec![0, kind, 0, 0],
            little,
            second,
            slot,
        }
    }

    fn put(&mut self, little_endian: &[u8]) {
        let align = little_endian.len().min(if self.second { 4 } else { 8 });
        while !(self.bytes.len() - 4).is_multiple_of(align) {
            self.bytes.push(0);
        }
        if self.little {
            self.bytes.extend(little_endian);
        } else {
            self.bytes.extend(little_endian.iter().rev());
        }
    }

    pub fn u8(&mut self, value: u8) {
        self.put(&[value]);
    }

    pub fn u16(&mut self, value: u16) {
        self.put(&value.to_le_bytes());
    }

    pub fn u32(&mut self, value: u32) {
        self.put(&value.to_le_bytes());
    }

    pub fn u64(&mut self, value: u64) {
        self.put(&value.to_le_bytes());
    }

    pub fn text(&mut self, text: &str) {
        self.u32(text.len() as u32 + 1);
        self.bytes.extend(text.as_bytes());
        self.bytes.push(0);
    }

    pub fn wide(&mut self, text: &str) {
        let units: Vec<u16> = text.encode_utf16().collect();
        self.u32(units.len() as u32);
        for unit in units {
            match self.slot {
                2 => self.u16(unit),
                _ => self.u32(u32::from(unit)),
            }
        }
    }

    pub fn finish(self) -> Vec<u8> {
        self.bytes
    }

    fn value(&mut self, value: &Value) {
        match value {
            Value::U8(value) => self.u8(*value),
            Value::I16(value) => self.u16(*value as u16),
            Value::U32(value) => self.u32(*value),
            Value::F64(value) => self.u64(value.to_bits()),
            Value::Text(text) => self.text(text),
            Value::Wide(text) => self.wide(text),
            Value::Struct(fields) if fields.is_empty() => self.u8(0),
            Value::Struct(fields) => fields.iter().for_each(|field| self.value(field)),
            Value::List(counted, items) => self.list(*counted, items),
        }
    }

    fn list(&mut self, counted: bool, items: &[Value]) {
        let is_plain = |value: &Value| {
            matches!(
                value,
                Value::U8(_) | Value::I16(_) | Value::U32(_) | Value::F64(_)
            )
        };
        // An empty list does not show its element type; random lists of texts and structs are never empty in
        // XCDR2.
        if self.second && items.first().is_some_and(|item| !is_plain(item)) {
            self.u32(0);
        }
        if counted {
            self.u32(items.len() as u32);
        }
        items.iter().for_each(|item| self.value(item));
    }
}

/// A value tree, the input of the encoder and the output of the decoder.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    U8(u8),
    I16(i16),
    U32(u32),
    F64(f64),
    Text(String),
    Wide(String),
    Struct(Vec<Value>),
    /// A list: whether a count precedes its elements, and the elements.
    List(bool, Vec<Value>),
}

/// A visitor that builds a value tree.
#[derive(Default)]
struct Builder {
    stack: Vec<Value>,
    result: Option<Value>,
}

impl Builder {
    fn add(&mut self, value: Value) {
        match self.stack.last_mut() {
            Some(Value::Struct(items) | Value::List(_, items)) => items.push(value),
            _ => self.result = Some(value),
        }
    }

    fn close(&mut self) {
        let value = self.stack.pop().unwrap();
        self.add(value);
    }
}

fn owned(value: Scalar<'_>) -> Value {
    match value {
        Scalar::U8(value) => Value::U8(value),
        Scalar::I16(value) => Value::I16(value),
        Scalar::U32(value) => Value::U32(value),
        Scalar::F64(value) => Value::F64(value),
        Scalar::Text(text) => Value::Text(text.to_str().into_owned()),
        Scalar::Wide(text) => Value::Wide(text.to_text()),
        other => panic!("no random type holds {other:?}"),
    }
}

fn is_counted(field: &FieldPlan) -> bool {
    !matches!(field.arity, crate::interface::Arity::Array(_))
}

impl<'a> Visitor<'a> for Builder {
    fn scalar(&mut self, value: Scalar<'a>) {
        self.add(owned(value));
    }

    fn primitives(&mut self, field: &FieldPlan, values: Primitives<'a>) {
        self.add(Value::List(is_counted(field), values.iter().map(owned).collect()));
    }

    fn begin_struct(&mut self, _: &StructPlan) {
        self.stack.push(Value::Struct(Vec::new()));
    }

    fn end_struct(&mut self, _: &StructPlan) {
        self.close();
    }

    fn begin_list(&mut self, field: &FieldPlan, _: u64) {
        assert!(!matches!(field.element, ElementPlan::Primitive(_)));
        self.stack.push(Value::List(is_counted(field), Vec::new()));
    }

    fn end_list(&mut self, _: &FieldPlan, _: u64) {
        self.close();
    }
}

/// The value tree of a payload, and the number of bytes after it.
pub(super) fn decode(plan: &TypePlan, payload: &[u8]) -> Result<(Value, usize), DecodeError> {
    let mut builder = Builder::default();
    let walked = plan.walk(payload, &mut builder)?;
    Ok((builder.result.unwrap(), walked.bytes_left))
}

/// A random field: its type as written (`{}` is replaced by the numbers of nested types) and its value.
#[derive(Clone, Debug)]
struct Sample {
    type_text: String,
    value: Value,
    nested: Vec<(String, String)>,
}

fn plain_sample() -> impl Strategy<Value = Sample> {
    let sample = |type_text: &str, value| Sample {
        type_text: type_text.to_owned(),
        value,
        nested: Vec::new(),
    };
    prop_oneof![
        any::<u8>().prop_map(move |value| sample("uint8", Value::U8(value))),
        any::<i16>().prop_map(move |value| sample("int16", Value::I16(value))),
        any::<u32>().prop_map(move |value| sample("uint32", Value::U32(value))),
        (-1e9..1e9).prop_map(move |value| sample("float64", Value::F64(value))),
        "[a-zé ]{0,6}".prop_map(move |text| sample("string", Value::Text(text))),
        "[a-z€]{0,5}".prop_map(move |text| sample("wstring", Value::Wide(text))),
    ]
}

/// Lists repeat one value, because all their elements have one type.
fn listed(inner: Sample, form: u8, count: usize) -> Sample {
    let (suffix, counted, count) = match form {
        0 => return inner,
        1 => ("[]".to_owned(), true, count),
        2 => ("[<=9]".to_owned(), true, count),
        _ => (format!("[{}]", count.max(1)), false, count.max(1)),
    };
    Sample {
        type_text: format!("{}{suffix}", inner.type_text),
        value: Value::List(counted, vec![inner.value; count]),
        nested: inner.nested,
    }
}

fn struct_of(fields: Vec<Sample>) -> Sample {
    let text: String = fields
        .iter()
        .enumerate()
        .map(|(at, field)| format!("{} f{at}\n", field.type_text))
        .collect();
    // Named by its content, so that equal structs are one type.
    let name = format!("T{}", crc(&text));
    let mut nested: Vec<(String, String)> = fields.iter().flat_map(|field| field.nested.clone()).collect();
    nested.push((format!("a/msg/{name}"), text));
    Sample {
        type_text: name,
        value: Value::Struct(fields.into_iter().map(|field| field.value).collect()),
        nested,
    }
}

fn crc(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

fn sample() -> impl Strategy<Value = Sample> {
    let leaf =
        (plain_sample(), 0..4_u8, 1..4_usize).prop_map(|(inner, form, count)| listed(inner, form, count));
    let tree = leaf.prop_recursive(3, 24, 4, |inner| {
        (prop::collection::vec(inner, 0..4), 0..4_u8, 1..4_usize)
            .prop_map(|(fields, form, count)| listed(struct_of(fields), form, count))
    });
    prop::collection::vec(tree, 0..6).prop_map(struct_of)
}

/// A value as a payload: its byte order, XCDR2 or XCDR1, wide characters of four bytes or two.
fn encoded(value: &Value, little: bool, second: bool, four: bool) -> Vec<u8> {
    let mut encoder = Encoder::new(little, second, if four { 4 } else { 2 });
    encoder.value(value);
    encoder.finish()
}

/// A random type, a payload of it, and the payload's value.
pub(super) fn case() -> impl Strategy<Value = (TypePlan, Vec<u8>, Value)> {
    (sample(), any::<bool>(), any::<bool>(), any::<bool>()).prop_map(|(sample, little, second, four)| {
        let root = format!("a/msg/{}", sample.type_text);
        let mut texts: Vec<(&str, &str)> = sample
            .nested
            .iter()
            .map(|(name, text)| (name.as_str(), text.as_str()))
            .collect();
        texts.sort_by_key(|(name, _)| *name != root);
        let plan = plan(&texts);
        let payload = encoded(&sample.value, little, second, four);
        let value = if plan.has_wide_text() {
            // Some payloads are valid with wide characters of either width.
            decode(&plan, &payload).unwrap().0
        } else {
            sample.value
        };
        (plan, payload, value)
    })
}

proptest! {
    #[test]
    fn encoded_values_are_decoded(sample in sample(), little: bool, second: bool, four in any::<bool>()) {
        let root = format!("a/msg/{}", sample.type_text);
        let mut texts: Vec<(&str, &str)> = sample.nested.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
        texts.sort_by_key(|(name, _)| *name != root);
        let plan = plan(&texts);
        let payload = encoded(&sample.value, little, second, four);
        let (value, left) = decode(&plan, &payload).unwrap();
        prop_assert_eq!(left, 0);
        // With wide characters of the other width, or in the room that some writers reserve, the same bytes can hold another value.
        prop_assert!(value == sample.value || plan.has_wide_text());
        // Every cut is an error with an offset inside the payload, never a panic.
        for end in 0..payload.len() {
            if let Err(error) = decode(&plan, &payload[..end]) {
                prop_assert!(error.offset() <= payload.len() + 8, "{}", error);
            }
        }
    }

    #[test]
    fn no_bytes_panic(sample in sample(), bytes in prop::collection::vec(any::<u8>(), 0..80), kind in 0..8_u8) {
        let root = format!("a/msg/{}", sample.type_text);
        let mut texts: Vec<(&str, &str)> = sample.nested.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
        texts.sort_by_key(|(name, _)| *name != root);
        let plan = plan(&texts);
        let mut payload = vec![0, kind, 0, 0];
        payload.extend(bytes);
        let _ = decode(&plan, &payload);
    }
}

#[test]
fn wrong_counts_are_refused_before_memory_is_allocated() {
    let plan = plan(&[
        ("a/msg/A", "uint8 x\nB[] many"),
        ("a/msg/B", "string a\nfloat64[4] b"),
    ]);
    let mut encoder = Encoder::new(true, false, 2);
    encoder.u8(1);
    encoder.u32(u32::MAX);
    let error = decode(&plan, &encoder.finish()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "a/msg/A many at byte 12: expected 4294967295 elements of at least 36 bytes, found the end of the message"
    );
}

#[test]
fn faults_are_named_with_offset_and_field() {
    let plan = plan(&[
        ("a/msg/A", "B[<=2] many\nstring<=3 text"),
        ("a/msg/B", "uint32 x"),
    ]);
    let fault = |build: &dyn Fn(&mut Encoder)| {
        let mut encoder = Encoder::new(true, false, 2);
        build(&mut encoder);
        decode(&plan, &encoder.finish()).unwrap_err().to_string()
    };
    assert_eq!(
        fault(&|out| out.u32(3)),
        "a/msg/A many at byte 4: expected at most 2 elements, found 3"
    );
    assert_eq!(
        fault(&|out| {
            out.u32(0);
            out.text("four");
        }),
        "a/msg/A text at byte 12: expected a text of at most 3 characters, found 4"
    );
    assert_eq!(
        fault(&|out| {
            out.u32(0);
            out.u32(9);
            out.u16(0);
        }),
        "a/msg/A text at byte 12: expected a text of 9 bytes, found 2 bytes before the end of the message"
    );
    let error = decode(&plan, &[0, 3, 0, 0]).unwrap_err().to_string();
    assert_eq!(
        error,
        "a/msg/A at byte 0: expected plain CDR: 00 00, 00 01, 00 06 or 00 07, found 00 03 (parameter list, PL_CDR)"
    );
    let error = decode(&plan, &[0]).unwrap_err().to_string();
    assert_eq!(
        error,
        "a/msg/A at byte 0: expected a CDR head of 4 bytes, found 1 bytes"
    );
}

#[test]
fn hostile_array_sizes_end_at_the_end_of_the_payload() {
    let plan = plan(&[
        ("a/msg/A", "B[18446744073709551615] b"),
        ("a/msg/B", "float64[18446744073709551615] x"),
    ]);
    assert!(decode(&plan, &[0, 1, 0, 0, 1, 2, 3, 4]).is_err());
}
