//! Changed payloads against payloads of changed values, for every bundled type.

use super::*;
use crate::{
    dynamic::{
        encode::{
            Representation, WideSlots,
            tests::{Generator, encoded, representations},
        },
        reference::{self, Encoder},
        text::TextOptions,
    },
    interface::bundle::Bundle,
};

/// The paths of a type's plain fields and lists of them, with lists on the way as `[*]`, `[0]` and `[-1]`.
fn paths(plan: &TypePlan, structure: &StructPlan, before: &str, out: &mut Vec<String>) {
    if structure.is_empty {
        return;
    }
    for field in &structure.fields {
        let path = format!("{before}{}", field.name);
        let elements: Vec<String> = match field.arity {
            Arity::One => vec![path.clone()],
            _ => ["[*]", "[0]", "[-1]"]
                .iter()
                .map(|step| format!("{path}{step}"))
                .collect(),
        };
        match field.element {
            ElementPlan::Struct(index) => {
                for element in elements {
                    paths(plan, plan.structure(index), &format!("{element}."), out);
                }
            }
            _ => out.extend(elements),
        }
        if field.arity != Arity::One {
            out.push(path);
        }
    }
}

/// Changes a value as JSON has it; the number of places that were changed.
fn assign(target: &mut Literal, path: &[String], value: &Literal) -> u64 {
    let Some((step, rest)) = path.split_first() else {
        *target = value.clone();
        return 1;
    };
    match target {
        Literal::Map(entries) => {
            let (_, inside) = entries.iter_mut().find(|(name, _)| name == step).unwrap();
            assign(inside, rest, value)
        }
        Literal::List(items) => match step.as_str() {
            "*" => items.iter_mut().map(|item| assign(item, rest, value)).sum(),
            "0" => items.first_mut().map_or(0, |item| assign(item, rest, value)),
            _ => items.last_mut().map_or(0, |item| assign(item, rest, value)),
        },
        other => panic!("{step} of {other:?}"),
    }
}

/// The first value at a path.
fn find<'v>(value: &'v Literal, path: &[String]) -> Option<&'v Literal> {
    let Some((step, rest)) = path.split_first() else {
        return Some(value);
    };
    match value {
        Literal::Map(entries) => find(&entries.iter().find(|(name, _)| name == step)?.1, rest),
        Literal::List(items) => items.iter().find_map(|item| find(item, rest)),
        _ => None,
    }
}

fn json(value: &Literal) -> String {
    match value {
        Literal::Bool(value) => value.to_string(),
        Literal::Integer(value) => value.to_string(),
        Literal::Decimal(text) => text.clone(),
        Literal::Text(text) => serde_json::to_string(text).unwrap(),
        Literal::List(items) => format!("[{}]", items.iter().map(json).collect::<Vec<_>>().join(",")),
        Literal::Map(entries) => {
            let entries = entries
                .iter()
                .map(|(name, value)| format!("\"{name}\":{}", json(value)));
            format!("{{{}}}", entries.collect::<Vec<_>>().join(","))
        }
        other => panic!("{other:?}"),
    }
}

fn as_literal(plan: &TypePlan, payload: &[u8]) -> Literal {
    let mut text = Vec::new();
    plan.write_json(payload, &TextOptions::default(), &mut text)
        .unwrap();
    Literal::from_json(std::str::from_utf8(&text).unwrap()).unwrap()
}

/// Changes random fields of random messages; returns the number of values that were written.
fn check_type(plan: &Arc<TypePlan>, seed: u64) -> u64 {
    let mut all = Vec::new();
    paths(plan, plan.root(), "", &mut all);
    let mut written = 0;
    // At most eight paths of a type, and other ones of the next.
    let every = all.len() / 8 + 1;
    for (at, path) in all
        .iter()
        .enumerate()
        .filter(|(at, _)| (at + seed as usize).is_multiple_of(every))
    {
        let steps: Vec<String> = path
            .split(['.', '[', ']'])
            .filter(|step| !step.is_empty())
            .map(str::to_owned)
            .collect();
        let new = Generator::new(plan, seed + 100 + at as u64, true).message();
        let new = as_literal(plan, &encoded(plan, &new, Representation::default()));
        let Some(new) = find(&new, &steps) else { continue };
        let editor = Editor::compile(Arc::clone(plan), &[&format!("{path} = {}", json(new))])
            .unwrap_or_else(|error| panic!("{}: {error}", plan.type_name()));
        for representation in representations() {
            let old = Generator::new(plan, seed + at as u64, true).message();
            let payload = encoded(plan, &old, representation);
            let mut expected = as_literal(plan, &payload);
            let count = assign(&mut expected, &steps, new);
            let expected = encoded(plan, &plan.value_of(&expected).unwrap(), representation);
            let mut out = vec![7];
            let context = format!("{} {path} = {} {representation:?}", plan.type_name(), json(new));
            let found = editor
                .apply(&payload, &mut out)
                .unwrap_or_else(|error| panic!("{context}: {error}"));
            // A list without elements has nothing to change.
            assert_eq!(found, [count], "{context}");
            if expected != out {
                // All wide texts became empty, or there were none before: their width is then unknown.
                assert_eq!(as_literal(plan, &out), as_literal(plan, &expected), "{context}");
                assert!(plan.has_wide_text(), "{context}");
            }
            written += found[0];
        }
    }
    written
}

#[test]
fn changed_payloads_are_those_of_changed_values() {
    let bundle = Bundle::embedded();
    let mut written = 0;
    for (seed, name) in (1..).zip(bundle.type_names().filter(|name| name.contains("/msg/"))) {
        let plan = Arc::new(TypePlan::compile(&bundle.define(name).unwrap()).unwrap());
        written += check_type(&plan, seed);
    }
    assert!(written > 2000, "{written}");
}

const TYPES: &[(&str, &str)] = &[
    (
        "a/msg/A",
        "uint8 x\nstring name\nB[] many\nfloat64[3] fixed\nB one\nwstring w\nuint8 last",
    ),
    ("a/msg/B", "bool yes\nstring text 'by default'\nuint32 n 5"),
];

fn editor(assignments: &[&str]) -> Result<Editor, AssignmentError> {
    Editor::compile(Arc::new(reference::plan(TYPES)), assignments)
}

/// A message with everything that another writer may do: padding that is not zero, a boolean of 2, a text without
/// its zero.
fn foreign(wide: &str) -> Vec<u8> {
    let mut out = Encoder::new(true, false, 4);
    out.u8(1);
    out.u32(3);
    for byte in b"abc" {
        out.u8(*byte);
    }
    out.u32(1);
    out.u8(2);
    out.text("t");
    out.u32(9);
    for value in [1.0_f64, 2.0, 3.0] {
        out.u64(value.to_bits());
    }
    out.u8(0);
    out.text("");
    out.u32(8);
    out.wide(wide);
    out.u8(7);
    let mut bytes = out.finish();
    // Padding after x and after the text without a zero.
    (bytes[5], bytes[6], bytes[15]) = (0xaa, 0xbb, 0xcc);
    bytes
}

fn applied(assignments: &[&str], payload: &[u8]) -> (Vec<u64>, Vec<u8>) {
    let mut out = Vec::new();
    let written = editor(assignments).unwrap().apply(payload, &mut out).unwrap();
    (written, out)
}

#[test]
fn what_is_not_changed_keeps_its_bytes() {
    let payload = foreign("€");
    // Elements that are not there.
    assert_eq!(
        applied(&["many[1].n = 1", "many[-2].n = 1"], &payload),
        (vec![0, 0], payload.clone())
    );
    let (written, out) = applied(&["one.n = 77"], &payload);
    let differing: Vec<usize> = (0..payload.len()).filter(|at| payload[*at] != out[*at]).collect();
    assert_eq!((written, out.len(), differing.len()), (vec![1], payload.len(), 1));
    assert_eq!((payload[differing[0]], out[differing[0]]), (8, 77));
}

#[test]
fn several_fields_are_changed_at_once() {
    let plan = reference::plan(TYPES);
    let (written, out) = applied(
        &[
            "name = \"longer than before\"",
            "many[*].text=\"=\"",
            "fixed[-1] = -0.5",
            "one = {\"yes\": true}",
            "w = \"é\"",
        ],
        &foreign("€"),
    );
    assert_eq!(written, [1; 5]);
    let mut text = Vec::new();
    plan.write_json(&out, &TextOptions::default(), &mut text).unwrap();
    assert_eq!(
        String::from_utf8(text).unwrap(),
        "{\"x\":1,\"name\":\"longer than before\",\"many\":[{\"yes\":true,\"text\":\"=\",\"n\":9}],\"fixed\":[1.0,2.0,-0.5],\
         \"one\":{\"yes\":true,\"text\":\"by default\",\"n\":5},\"w\":\"é\",\"last\":7}"
    );
    let four = plan.decode(&out).unwrap().representation.wide_slots;
    assert_eq!(four, WideSlots::Four, "as the one before");
    // Without characters the width is not known: that of ROS 2 is used.
    let (_, out) = applied(&["w = \"é\""], &foreign(""));
    assert_eq!(
        plan.decode(&out).unwrap().representation.wide_slots,
        WideSlots::Four
    );
}

#[test]
fn padding_at_the_end_stays_that_of_the_writer() {
    let plain = foreign("€");
    let unpadded = |text: &str| applied(&[&format!("name = \"{text}\"")], &plain).1;
    let ends = |options: u8, pad: usize| {
        let mut payload = plain.clone();
        payload[3] = options;
        payload.resize(payload.len() + pad, 0);
        payload
    };
    let to_four = 4 - (plain.len() - 4) % 4;
    assert!((1..4).contains(&to_four));
    for text in ["abc", "abcd", "abcdefgh", "abcdefghijk"] {
        let (_, out) = applied(&[&format!("name = \"{text}\"")], &ends(to_four as u8, to_four));
        let short = unpadded(text);
        assert_eq!(out.len() % 4, 0, "{text}");
        let padding = out.len() - short.len();
        assert!(padding < 4, "{text}: {padding}");
        assert_eq!(usize::from(out[3]), padding, "{text}");
        assert_eq!(out[4..short.len()], short[4..], "{text}");
    }
    let mut out = Vec::new();
    let mut longer = foreign("");
    longer.extend([0; 16]);
    let error = editor(&["x = 1"]).unwrap().apply(&longer, &mut out).unwrap_err();
    assert_eq!(
        error.to_string(),
        "a/msg/A: 16 bytes follow the last field; it may have been written with another definition"
    );
}

#[test]
fn an_assignment_that_does_not_fit_is_refused() {
    for (text, reason) in [
        (
            "name",
            "expected a field, = and its value as JSON, for example header.frame_id = \"base\"",
        ),
        (
            " = 1",
            "expected a field, = and its value as JSON, for example header.frame_id = \"base\"",
        ),
        (
            "name = base",
            "the value of name is not JSON: expected value at line 1 column 1",
        ),
        ("name = 7", "name: expected a text, found 7"),
        (
            "nam = 7",
            "expression, character 1: a/msg/A has no field nam; its fields are x, name, many, fixed, one, w, last",
        ),
        (
            "many.n = 7",
            "expression, character 6: many is a list; use many[0] or many[*] (any element)",
        ),
        (
            "many[*].n = -7",
            "many[*].n: expected a whole number in 0..4294967295, found -7",
        ),
        (
            "many[0] = {\"n\": 1.5}",
            "many[0].n: expected a whole number in 0..4294967295, found 1.5",
        ),
        (
            "fixed[3] = 1",
            "expression, character 6: fixed has 3 elements, there is no element 3",
        ),
        ("fixed = [1, 2]", "fixed: expected a list of 3, found a list of 2"),
        (
            "one.text.x = 1",
            "expression, character 10: one.text has no fields, it is a string",
        ),
        (
            "x + 1 = 1",
            "expression, character 3: expected the end of the path, found +",
        ),
        (
            "[0] = 1",
            "expression, character 1: expected the name of a field, found [",
        ),
    ] {
        assert_eq!(editor(&[text]).unwrap_err().to_string(), reason, "{text}");
    }
    for (first, second) in [
        ("one", "one.n"),
        ("many[*].n", "many[2]"),
        ("fixed", "fixed[0]"),
        ("x", "x"),
    ] {
        let value = |path: &str| match path {
            "one" | "many[2]" => format!("{path} = {{}}"),
            "fixed" => format!("{path} = [1,2,3]"),
            _ => format!("{path} = 1"),
        };
        let error = editor(&[&value(first), &value(second)]).unwrap_err().to_string();
        assert_eq!(error, format!("{first} and {second} change the same field"));
    }
    assert!(editor(&["fixed[0] = 1", "fixed[1] = 2", "many[0].n = 1", "many[1].n = 2"]).is_ok());
    assert_eq!(
        editor(&["x".repeat(ASSIGNMENT_BYTES_MAX + 1).as_str()]).unwrap_err(),
        AssignmentError::TooLong
    );
}

#[test]
fn a_payload_that_ends_early_is_refused_with_its_field() {
    let payload = foreign("");
    let editor = editor(&["one.n = 1"]).unwrap();
    let mut out = Vec::new();
    for end in 0..payload.len() {
        assert!(editor.apply(&payload[..end], &mut out).is_err(), "{end}");
    }
    let error = editor.apply(&payload[..30], &mut out).unwrap_err().to_string();
    assert!(error.starts_with("a/msg/A many"), "{error}");
}
