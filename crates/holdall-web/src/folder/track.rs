//! The way of a `sensor_msgs/msg/NavSatFix` topic: its positions, evenly thinned to what a page draws.

use super::{
    jobs::{Progress, Task},
    look::OpenBag,
};
use crate::http::{Refusal, Request, json_body};
use holdall::{MessageFilter, decode::Decoders};
use holdall_model::dynamic::expression::Formula;
use serde_json::{Value, json};
use std::sync::Arc;

/// Positions that are drawn, at most; twice as many are gathered before every second one is left out.
const POSITIONS_MAX: usize = 4000;

/// The task of a request.
pub(super) fn task(request: &Request) -> Result<Task, Refusal> {
    let body = json_body(&request.body)?;
    let topic = body["topic"].as_str();
    let topic = topic.ok_or_else(|| Refusal::new(400, "the request names no \"topic\""))?;
    Ok(Task::Track(topic.to_owned()))
}

/// Reads the positions of a topic: `[seconds after the bag's begin, latitude, longitude, altitude]`.
pub(super) fn track(open: &OpenBag, topic: &str, progress: &Progress) -> Result<Value, String> {
    let topics = open.bags.topics();
    let topic = topics.iter().find(|known| known.name == topic);
    let topic = topic.ok_or("the bag has no such topic")?;
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let mut decoders = Decoders::new(open.bags.clone());
    let fields = decoders.find(topic).map_err(|error| text(&error))?.fields()?;
    let formula = |field: &str| {
        Formula::compile(Arc::clone(fields.plan()), field)
            .map_err(|_| format!("{}: it has no field {field}", topic.name))
    };
    let formulas = [formula("latitude")?, formula("longitude")?, formula("altitude")?];
    let start = open.bags.log_times().map_or(0, |(first, _)| first.as_nanos());
    let filter = MessageFilter {
        topics: Some(Arc::new([topic.name.clone()].into())),
        ..MessageFilter::default()
    };
    let (mut positions, mut every, mut number) = (Vec::new(), 1_usize, 0_usize);
    let mut fault = None;
    for message in open.bags.messages(&filter) {
        let message = match message {
            Ok(message) => message,
            Err(error) => {
                fault.get_or_insert_with(|| error.to_string());
                continue;
            }
        };
        number += 1;
        progress.note_or_end(number as u64, 0);
        if !number.is_multiple_of(every) {
            continue;
        }
        let Ok(payload) = fields.payload(&message.payload) else {
            continue;
        };
        let values = formulas
            .each_ref()
            .map(|formula| formula.value(&payload).ok().flatten());
        let [Some(latitude), Some(longitude), altitude] = values else {
            continue;
        };
        if latitude.is_finite() && longitude.is_finite() {
            let at = message.log_time.as_nanos().saturating_sub(start) as f64 / 1e9;
            positions.push(json!([
                at,
                latitude,
                longitude,
                altitude.filter(|value| value.is_finite())
            ]));
        }
        if positions.len() >= 2 * POSITIONS_MAX {
            let mut place = 0;
            positions.retain(|_| {
                place += 1;
                place % 2 == 1
            });
            every *= 2;
        }
    }
    Ok(json!({"topic": topic.name, "messages": number, "positions": positions, "fault": fault}))
}
