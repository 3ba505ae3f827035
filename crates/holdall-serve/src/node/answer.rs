//! Answers to requests: handlers for the services of a role.

use holdall_model::{
    interface::{Definition, bundle::Bundle},
    time::Timestamp,
};
use serde_json::{Value, json};
use std::sync::mpsc::Receiver;

/// The answer to a request.
#[derive(Debug)]
pub enum Answer {
    /// The fields of the reply.
    Reply(Value),
    /// No, for this reason.
    Refusal(String),
    /// It takes a while; an end without an answer is a refusal.
    Later(Receiver<Answer>),
}

impl Answer {
    /// An empty reply.
    pub(super) fn done() -> Self {
        Self::Reply(json!({}))
    }

    /// A reply that has only whether it was done.
    pub(super) fn success(success: bool) -> Self {
        Self::Reply(json!({"success": success}))
    }

    /// A reply that has a code and a reason.
    pub(super) fn code(return_code: i64, error_string: impl Into<String>) -> Self {
        let error_string: String = error_string.into();
        Self::Reply(json!({"return_code": return_code, "error_string": error_string}))
    }

    /// A code of zero, or a refusal.
    pub(super) fn of(outcome: Result<(), String>) -> Self {
        match outcome {
            Ok(()) => Self::code(0, ""),
            Err(reason) => Self::Refusal(reason),
        }
    }
}

/// Answers the requests to the services of a node. Called on the node's own thread only.
pub trait Handler: Send {
    /// Answers a request to one of the services that were offered for it.
    fn answer(&mut self, service: &str, request: &Value, now: Timestamp) -> Answer;

    /// The definition of a type with this hash, or of any if it is empty.
    fn definition(&mut self, type_name: &str, type_hash: &str) -> Option<Definition> {
        bundled(type_name, type_hash)
    }

    /// Does the work due at this time of day; returns when something is due next.
    fn step(&mut self, _now: Timestamp) -> Option<Timestamp> {
        None
    }
}

/// The definition that holdall carries with it.
pub(super) fn bundled(type_name: &str, type_hash: &str) -> Option<Definition> {
    let found = Bundle::embedded().define(type_name).ok()?;
    (type_hash.is_empty() || found.type_hash() == type_hash).then_some(found)
}

/// Nanoseconds in a `builtin_interfaces/Time` or `Duration`.
pub(super) fn nanos_in(value: &Value) -> i64 {
    let seconds = value["sec"].as_i64().unwrap_or(0);
    let nanos = value["nanosec"].as_i64().unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(nanos)
}

/// The text of a field.
pub(super) fn text_in<'a>(request: &'a Value, field: &str) -> &'a str {
    request[field].as_str().unwrap_or_default()
}

/// The texts of a field.
pub(super) fn texts_in(request: &Value, field: &str) -> Vec<String> {
    let texts = request[field].as_array().into_iter().flatten();
    texts
        .filter_map(|text| text.as_str().map(str::to_owned))
        .collect()
}
