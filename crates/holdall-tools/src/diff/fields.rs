//! Finds the fields in which two versions of a message differ.

use holdall_bag::decode::Decoder;
use holdall_model::dynamic::text::TextOptions;
use serde::Serialize;
use serde_json::Value;

/// Most differing fields that are reported for one message.
const FIELDS_MAX: usize = 20;

/// A field that differs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FieldChange {
    /// Its path, for example `poses[3].position.x`.
    pub field: String,
    /// Its value in the first bag; `None` if the list is shorter.
    pub first: Option<Value>,
    /// Its value in the second bag.
    pub second: Option<Value>,
}

/// The first fields that differ; empty when a payload cannot be decoded, or only bytes between the fields
/// differ.
pub fn changed_fields(decoder: &Decoder, first: &[u8], second: &[u8]) -> Vec<FieldChange> {
    let (Some(first), Some(second)) = (value(decoder, first), value(decoder, second)) else {
        return Vec::new();
    };
    let mut changes = Vec::new();
    compare("", Some(&first), Some(&second), &mut |field, first, second| {
        if changes.len() < FIELDS_MAX {
            changes.push(FieldChange {
                field: field.to_owned(),
                first: first.cloned(),
                second: second.cloned(),
            });
        }
    });
    changes
}

/// A message as a value; `None` if it cannot be decoded.
pub(super) fn value(decoder: &Decoder, payload: &[u8]) -> Option<Value> {
    let Decoder::Cdr(plan) = decoder else {
        return None;
    };
    let mut text = Vec::new();
    // Long byte lists are compared as text, which is enough to detect a difference.
    let options = TextOptions {
        base64: true,
        bytes_max: 64 << 20,
        ..TextOptions::default()
    };
    plan.write_json(payload, &options, &mut text).ok()?;
    serde_json::from_slice(&text).ok()
}

/// Takes a field that differs, with its values.
type Differs<'a> = dyn FnMut(&str, Option<&Value>, Option<&Value>) + 'a;

/// Calls `differs` with each field that is not the same. Recursion is as deep as the definition, which is bounded.
pub(super) fn compare(path: &str, first: Option<&Value>, second: Option<&Value>, differs: &mut Differs<'_>) {
    if first == second {
        return;
    }
    match (first, second) {
        (Some(Value::Object(first)), Some(Value::Object(second))) => {
            for (name, value) in first {
                let dot = if path.is_empty() { "" } else { "." };
                compare(
                    &format!("{path}{dot}{name}"),
                    Some(value),
                    second.get(name),
                    differs,
                );
            }
        }
        (Some(Value::Array(first)), Some(Value::Array(second))) => {
            for index in 0..first.len().max(second.len()) {
                let path = format!("{path}[{index}]");
                compare(&path, first.get(index), second.get(index), differs);
            }
        }
        (first, second) => differs(path, first, second),
    }
}
