//! Values of a bag's messages over time, by fields or expressions, for a page's panels: as `holdall plot` collects them.

use super::{
    jobs::{Progress, Task},
    look::OpenBag,
};
use crate::http::{Refusal, Request, json_body};
use holdall::plot::{PlotOptions, Wanted, collect};
use serde_json::Value;
use std::time::Duration;

/// Values that are collected at once.
const WANTED_MAX: usize = 24;

/// The task of a request: its `wanted` texts, and `from_s` and `length_s` within the bag.
pub(super) fn task(request: &Request) -> Result<Task, Refusal> {
    let mut body = json_body(&request.body)?;
    let wanted = body["wanted"].as_array();
    let is_right = |wanted: &&Vec<Value>| {
        !wanted.is_empty() && wanted.len() <= WANTED_MAX && wanted.iter().all(Value::is_string)
    };
    if wanted.filter(is_right).is_none() {
        let sentence =
            format!("\"wanted\" must be a list of 1 to {WANTED_MAX} texts, as holdall plot -t takes them");
        return Err(Refusal::new(400, &sentence));
    }
    body["bag"].take();
    Ok(Task::Values(body.to_string()))
}

/// Collects the values of a task.
pub(super) fn values(open: &OpenBag, task: &str, progress: &Progress) -> Result<Value, String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let body: Value = serde_json::from_str(task).map_err(|error| text(&error))?;
    let wanted = body["wanted"].as_array().into_iter().flatten();
    let wanted = wanted.filter_map(Value::as_str).map(|one| {
        let parsed: Result<Wanted, _> = one.parse();
        parsed.map_err(|error| format!("{one}: {error}"))
    });
    let wanted = wanted.collect::<Result<Vec<_>, _>>()?;
    let seconds = |key: &str| {
        let seconds = body[key].as_f64().filter(|seconds| *seconds >= 0.0);
        seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
    };
    let options = PlotOptions {
        start_offset: seconds("from_s").unwrap_or_default(),
        duration: seconds("length_s"),
        wanted,
        ..PlotOptions::default()
    };
    let counts = open
        .bags
        .bags()
        .iter()
        .flat_map(|bag| &bag.metadata().topics_with_message_count);
    let is_wanted = |name: &str| options.wanted.iter().any(|one| one.topic == name);
    let total = counts
        .filter(|topic| is_wanted(&topic.topic_metadata.name))
        .map(|topic| topic.message_count)
        .sum();
    let note = |read| progress.note_or_end(read, total);
    let picture = collect(&open.bags, &options, &note).map_err(|error| text(&error))?;
    Ok(picture.data())
}
