//! Which messages `holdall echo` shows, and how.

use crate::{args::listen::EchoArguments, exit::Failure, output::visible};
use holdall::listen::HeardMessage;
use holdall_model::dynamic::{TypePlan, expression::Predicate, text::TextOptions};
use serde_json::{Value, json};
use std::{collections::BTreeMap, sync::Arc};

/// How messages are shown.
pub(super) struct EchoForm {
    options: TextOptions,
    is_json: bool,
    is_raw: bool,
    /// As a pointer into JSON, and as the user wrote it.
    field: Option<(String, String)>,
}

impl EchoForm {
    /// As the user wants it.
    pub(super) fn of(args: &EchoArguments) -> Self {
        let pointer =
            |field: &str| format!("/{}", field.replace('[', ".").replace(']', "").replace('.', "/"));
        Self {
            options: TextOptions {
                lists: !args.no_arr,
                strings: !args.no_str,
                length_max: args.truncate_length,
                ..TextOptions::default()
            },
            is_json: args.json,
            is_raw: args.raw,
            field: args.field.as_ref().map(|field| (pointer(field), field.clone())),
        }
    }

    /// A field of a message that is written as JSON; texts without quotes.
    fn field_in(&self, text: &[u8]) -> Result<Option<String>, Failure> {
        let Some((pointer, field)) = &self.field else {
            return Ok(None);
        };
        let message: Value =
            serde_json::from_slice(text).map_err(|error| Failure::failed(error.to_string()))?;
        let value = message
            .pointer(pointer)
            .ok_or_else(|| Failure::refused(format!("--field {field}: the message has no such field")))?;
        Ok(Some(match value {
            Value::String(text) if !self.is_json => text.clone(),
            value => value.to_string(),
        }))
    }
}

/// The condition on messages, for each type.
pub(super) struct Filters {
    text: Option<String>,
    by_type: BTreeMap<String, Predicate>,
}

impl Filters {
    /// A condition that fits some type.
    pub(super) fn new(text: Option<&str>) -> Result<Self, Failure> {
        // As ros2 topic echo has it: m is the message.
        let m = regex::Regex::new(r"\bm\.([A-Za-z_])").expect("the pattern is valid");
        let text = text.map(|text| m.replace_all(text, "$1").into_owned());
        if let Some(text) = &text {
            holdall_model::dynamic::expression::check_syntax(text)
                .map_err(|error| Failure::refused(format!("--filter: {error}")))?;
        }
        Ok(Self {
            text,
            by_type: BTreeMap::new(),
        })
    }

    /// Whether a message is to be shown; one that cannot be decoded is.
    pub(super) fn take(
        &mut self,
        plan: Option<&Arc<TypePlan>>,
        message: &HeardMessage,
    ) -> Result<bool, Failure> {
        let (Some(text), Some(plan)) = (&self.text, plan) else {
            return Ok(true);
        };
        if !self.by_type.contains_key(plan.type_name()) {
            let compiled = Predicate::compile(Arc::clone(plan), text)
                .map_err(|error| Failure::refused(format!("--filter: {error}")))?;
            self.by_type.insert(plan.type_name().to_owned(), compiled);
        }
        let predicate = self.by_type.get(plan.type_name());
        Ok(predicate.is_none_or(|predicate| predicate.matches(&message.payload).unwrap_or(true)))
    }
}

/// A message as YAML or as a line of JSON, or a field of it; its length where its type is not known, or does not fit.
pub(super) fn append(
    out: &mut Vec<u8>,
    (topic, with_name): (&str, bool),
    message: &HeardMessage,
    plan: Option<&TypePlan>,
    form: &EchoForm,
) -> Result<(), Failure> {
    if form.is_raw {
        out.extend_from_slice(&message.payload);
        return Ok(());
    }
    let is_json = form.is_json;
    let mut text = Vec::new();
    let written = plan.map(|plan| {
        if is_json || form.field.is_some() {
            plan.write_json(&message.payload, &form.options, &mut text)
        } else {
            plan.write_yaml(&message.payload, 0, &form.options, &mut text)
        }
    });
    if let Some(Ok(_)) = written
        && let Some(field) = form.field_in(&text)?
    {
        text = visible(&field).into_owned().into_bytes();
    }
    let reason = match written {
        Some(Ok(_)) => None,
        Some(Err(error)) => Some(error.to_string()),
        None => Some("its definition is not known".to_owned()),
    };
    let length = message.payload.len();
    match (is_json, reason) {
        (true, None) => {
            let head = json!({"topic": topic, "log_time": message.log_time.as_nanos()}).to_string();
            out.extend_from_slice(head.trim_end_matches('}').as_bytes());
            out.extend_from_slice(b",\"message\":");
            out.extend_from_slice(&text);
            out.extend_from_slice(b"}\n");
        }
        (true, Some(reason)) => {
            let line = json!({"topic": topic, "log_time": message.log_time.as_nanos(), "error": reason, "bytes": length});
            out.extend_from_slice(format!("{line}\n").as_bytes());
        }
        (false, reason) => {
            if with_name {
                out.extend_from_slice(format!("# {}\n", visible(topic)).as_bytes());
            }
            match reason {
                None => out.extend_from_slice(text.trim_ascii_start()),
                Some(reason) => {
                    out.extend_from_slice(format!("# {length} bytes: {}", visible(&reason)).as_bytes())
                }
            }
            out.extend_from_slice(b"\n---\n");
        }
    }
    Ok(())
}
