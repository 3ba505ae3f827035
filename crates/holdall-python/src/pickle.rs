//! Messages in the form that `pickle` keeps: a definition of their type, made from its plan, and their payload.

use crate::{bag::Types, message::Message};
use holdall::decode::{Decoder, JSON_WITHOUT_SCHEMA};
use holdall_model::{
    dynamic::{ElementPlan, FieldPlan, TypePlan},
    interface::Arity,
    topic::TopicInfo,
};
use pyo3::{exceptions::PyTypeError, prelude::*, types::PyBytes};
use std::{fmt::Write, sync::Arc};

/// Delimiter before each type but the first, as in MCAP files.
const DELIMITER: &str = "================================================================================";

/// The text of a type with those that it needs; `None` for types that only IDL has.
fn text_of(plan: &TypePlan, root: usize) -> Option<String> {
    let (mut text, mut types) = (String::new(), vec![root]);
    let mut at = 0;
    while let Some(structure) = types.get(at).map(|index| plan.structure(*index)) {
        if at > 0 {
            let _ = writeln!(
                text,
                "{DELIMITER}\nMSG: {}",
                structure.type_name.replace("/msg/", "/")
            );
        }
        for field in structure.fields.iter().filter(|_| !structure.is_empty) {
            if let ElementPlan::Struct(index) = field.element
                && !types.contains(&index)
            {
                types.push(index);
            }
            let _ = writeln!(text, "{} {}", type_text(plan, field)?, field.name);
        }
        at += 1;
    }
    Some(text)
}

fn type_text(plan: &TypePlan, field: &FieldPlan) -> Option<String> {
    let bounded =
        |name: &str, most: Option<u64>| most.map_or(name.to_owned(), |most| format!("{name}<={most}"));
    let element = match field.element {
        ElementPlan::Primitive(primitive) => primitive.msg_name()?.to_owned(),
        ElementPlan::Text { length_max } => bounded("string", length_max),
        ElementPlan::WideText { length_max } => bounded("wstring", length_max),
        ElementPlan::Struct(index) => plan.structure(index).type_name.replace("/msg/", "/"),
    };
    Some(match field.arity {
        Arity::One => element,
        Arity::Array(count) => format!("{element}[{count}]"),
        Arity::BoundedSequence(most) => format!("{element}[<={most}]"),
        Arity::UnboundedSequence => format!("{element}[]"),
    })
}

/// A message that was pickled: `facts` are its log time, publish time, stamp and sequence number.
#[pyfunction]
pub(crate) fn message(
    topic: (String, String, String),
    types: Option<PyRef<'_, Types>>,
    facts: (i64, i64, i64, u32),
    raw: &Bound<'_, PyBytes>,
    publisher: Option<&str>,
) -> PyResult<Message> {
    let py = raw.py();
    let (name, type_name, serialization_format) = topic;
    let publisher = publisher.map(serde_json::from_str).transpose();
    let publisher = publisher.map_err(|error| PyTypeError::new_err(error.to_string()))?;
    let decoder = match types {
        Some(types) => Decoder::Cdr(Arc::clone(types.plan())),
        None if serialization_format == "json" => Decoder::Json(Err(JSON_WITHOUT_SCHEMA.to_owned())),
        None => Decoder::Opaque {
            reason: "its type was not known when it was pickled".to_owned(),
        },
    };
    let info = TopicInfo {
        name,
        type_name,
        serialization_format,
        publisher,
        ..TopicInfo::default()
    };
    Ok(Message::alone(py, info, decoder, facts, raw.as_bytes()))
}

/// The pickled parts of a type: its name and its text.
pub(crate) fn parts(plan: &TypePlan, structure: usize) -> PyResult<(String, String)> {
    let type_name = &plan.structure(structure).type_name;
    let error = || {
        PyTypeError::new_err(format!(
            "a {type_name} cannot be pickled: its type has what only IDL has; pickle its to_dict()"
        ))
    };
    Ok((type_name.clone(), text_of(plan, structure).ok_or_else(error)?))
}
