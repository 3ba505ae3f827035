//! The requests to a recording.

use super::{Requests, refusal};
use crate::supervise::{StallFlag, metrics::open_metrics};
use holdall_model::{
    loss::{LossSums, UnknownEnds},
    time::Timestamp,
    time_line::ClockJump,
};
use holdall_record::{
    MarkError, RecordControl, RecordObserver, Setting,
    status::{DurabilityStatus, TriggerCount, TriggerStatus},
};
use serde_json::{Value, json};
use std::time::Duration;

/// The requests to a recording, named like rosbag2's services where those exist.
pub const RECORD_REQUESTS: &[&str] = &[
    "status",
    "is_paused",
    "pause",
    "resume",
    "toggle_paused",
    "split_bagfile",
    "snapshot",
    "stop",
    "metrics",
    "add_marker",
    "trigger",
    "is_recording",
    "get_uri",
    "get_subscribed_topics",
    "subscribe_to_topics",
    "start_discovery",
    "stop_discovery",
    "is_discovery_running",
];

/// Carries out the requests to a recording.
pub struct RecordRequests {
    /// Steers it.
    pub control: RecordControl,
    /// Its counters.
    pub observer: RecordObserver,
    /// Whether it makes progress.
    pub stalled: StallFlag,
    /// It stores messages on request only.
    pub snapshot_mode: bool,
}

impl Requests for RecordRequests {
    fn names(&self) -> &'static [&'static str] {
        RECORD_REQUESTS
    }

    fn execute(&self, name: &str, request: &Value) -> Value {
        let control = &self.control;
        match name {
            "status" => json!({"ok": true, "status": self.status()}),
            "metrics" => {
                json!({"ok": true, "metrics": open_metrics(&self.observer.status(), self.stalled.is_set())})
            }
            "is_paused" => self.paused(),
            "pause" => {
                control.pause();
                self.paused()
            }
            "resume" => {
                control.resume();
                self.paused()
            }
            "toggle_paused" => {
                control.toggle_pause();
                self.paused()
            }
            // In snapshot mode each snapshot starts a new file.
            "split_bagfile" if self.snapshot_mode => {
                refusal("a recording in snapshot mode splits with each snapshot")
            }
            "split_bagfile" => {
                control.split();
                json!({"ok": true})
            }
            "snapshot" if control.snapshot() => json!({"ok": true, "success": true}),
            "snapshot" => {
                let mut reply = refusal("only a recording in snapshot mode takes snapshots");
                reply["setting"] = json!(Setting::Snapshot.name());
                reply
            }
            "add_marker" => {
                let Some(marker) = request.get("name").and_then(Value::as_str) else {
                    return refusal("add_marker needs a text \"name\"");
                };
                match control.add_marker(marker) {
                    Ok(marker) => json!({"ok": true, "name": marker.name, "time": marker.time.as_nanos()}),
                    Err(error) => refusal(&error.to_string()),
                }
            }
            "trigger" => trigger(control, request),
            "is_recording" => json!({"ok": true, "recording": control.is_recording()}),
            "get_uri" => json!({"ok": true, "uri": control.directory()}),
            "get_subscribed_topics" => json!({"ok": true, "topics": control.subscribed_topics()}),
            "subscribe_to_topics" => subscribe_to_topics(control, request),
            "start_discovery" => {
                control.start_discovery();
                json!({"ok": true})
            }
            "stop_discovery" => {
                control.stop_discovery();
                json!({"ok": true})
            }
            "is_discovery_running" => json!({"ok": true, "running": control.is_discovery_running()}),
            _ => {
                control.stop("asked for on the control socket");
                json!({"ok": true})
            }
        }
    }
}

impl RecordRequests {
    /// The recording's state, and the requests that it accepts.
    fn status(&self) -> Value {
        let mut status = status_json(&self.observer);
        status["recording"] = json!(self.control.is_recording());
        status["ended"] = json!(self.control.wait_finished(Duration::ZERO));
        status["stalled"] = json!(self.stalled.is_set());
        status["bag"] = json!(self.control.directory());
        status["snapshot_mode"] = json!(self.snapshot_mode);
        status["snapshots"] = json!(self.snapshot_mode || self.control.waits_for_events());
        status
    }

    fn paused(&self) -> Value {
        json!({"ok": true, "paused": self.control.is_paused()})
    }
}

/// Name of an event that was requested without one.
const EVENT_NAME: &str = "request";

fn trigger(control: &RecordControl, request: &Value) -> Value {
    let name = match request.get("name") {
        None => Some(EVENT_NAME),
        Some(name) => name.as_str(),
    };
    let Some(name) = name else {
        return refusal("\"name\" is a text");
    };
    match control.trigger(name) {
        Ok(marker) => json!({"ok": true, "name": marker.name, "time": marker.time.as_nanos()}),
        Err(error) => {
            let mut reply = refusal(&error.to_string());
            if error == MarkError::NoTriggers {
                reply["setting"] = json!(Setting::Triggers.name());
            }
            reply
        }
    }
}

fn subscribe_to_topics(control: &RecordControl, request: &Value) -> Value {
    let texts = |key: &str| match request.get(key) {
        None => Some(Vec::new()),
        Some(list) => serde_json::from_value::<Vec<String>>(list.clone()).ok(),
    };
    let (Some(topics), Some(types)) = (texts("topics"), texts("topic_types")) else {
        return refusal("\"topics\" and \"topic_types\" are lists of texts");
    };
    if topics.is_empty() {
        return refusal("subscribe_to_topics needs a list \"topics\"");
    }
    match control.subscribe_to_topics(&topics, &types) {
        Ok(answer) => json!({
            "ok": true,
            "subscribed_topics": answer.subscribed,
            "unavailable_topics": answer.unavailable,
        }),
        Err(error) => refusal(&error.to_string()),
    }
}

/// The recording's state and its account so far, as an object.
pub fn status_json(observer: &RecordObserver) -> Value {
    let (status, nodes, qos) = (observer.status(), observer.nodes(), observer.offered_qos());
    let topics: serde_json::Map<String, Value> = status
        .topics
        .iter()
        .map(|topic| {
            let sums = LossSums::of(&topic.lost);
            let row = json!({
                "type": topic.type_name,
                "publishers": topic.publishers,
                "nodes": nodes.get(&topic.name),
                "qos": qos.get(&topic.name),
                "received": topic.received,
                "recorded": topic.recorded,
                "durable": topic.durable,
                "bytes": topic.recorded_bytes,
                "lost": by_stage(&sums),
                "left_out": topic.left_out,
                "sent_before_match": sums.before_match,
                "end_unknown": ends_json(&topic.ends),
            });
            (topic.name.clone(), row)
        })
        .collect();
    let sums = LossSums::of_all(status.topics.iter().map(|topic| &topic.lost));
    json!({
        "elapsed_s": status.elapsed.as_secs_f64(),
        "paused": status.paused,
        "recorded": status.recorded,
        "recorded_bytes": status.recorded_bytes,
        "durable": status.durability.durable,
        "lost": sums.lost,
        "lost_by_stage": by_stage(&sums),
        "left_out": status.left_out(),
        "waits_for_clock": status.waits_for_clock,
        "clock_jumps": jumps_json(&status.clock_jumps.named),
        "clock_jump_count": status.clock_jumps.count,
        "sent_before_match": sums.before_match,
        "end_unknown": ends_json(&status.unknown_ends()),
        "durability": durability_json(&status.durability),
        "cache_bytes": status.cache_bytes,
        "cache_bytes_max": status.cache_bytes_max,
        "disk_available_bytes": status.disk_available_bytes,
        "disk_mode": status.write_path.as_str(),
        "disk_mode_reason": status.write_path.reason(),
        "file": status.current_file,
        "services_without_introspection": status.unheard_services,
        "not_heard": status.not_heard,
        "networks": status.networks,
        "events": status.triggered.as_ref().map(events_json),
        "topics": topics,
    })
}

/// Publishers whose last messages are unknown, as an object.
pub fn ends_json(ends: &UnknownEnds) -> Value {
    json!({
        "publishers": ends.publishers,
        "silent": ends.silent,
        "silent_reliable": ends.silent_reliable,
        "silent_since_ns": ends.silent_since.map(Timestamp::as_nanos),
    })
}

/// Where the clock that stamps messages jumped, as a list.
pub fn jumps_json(jumps: &[ClockJump]) -> Value {
    let object = |jump: &ClockJump| {
        json!({
            "text": jump.to_string(),
            "from_ns": jump.from.as_nanos(),
            "to_ns": jump.to.as_nanos(),
        })
    };
    jumps.iter().map(object).collect()
}

/// How many messages were lost at each stage; stages without a loss are absent.
fn by_stage(sums: &LossSums) -> Value {
    let stages = sums.by_stage.iter();
    stages
        .map(|(stage, count)| (stage.as_str().to_owned(), json!(count)))
        .collect::<serde_json::Map<String, Value>>()
        .into()
}

/// How much a power cut can cost, in seconds.
fn durability_json(status: &DurabilityStatus) -> Value {
    let seconds = |span: Option<Duration>| span.map(|span| span.as_secs_f64());
    json!({
        "window_s": seconds(status.window),
        "achieved_s": seconds(status.achieved),
        "missed": status.missed,
        "syncs": status.syncs,
        "sync_cost_s": seconds(status.sync_cost),
    })
}

/// Events seen by a recording that waits for them, as an object.
pub fn events_json(status: &TriggerStatus) -> Value {
    let trigger = |trigger: &TriggerCount| {
        json!({
            "trigger": trigger.text,
            "events": trigger.events,
            "topic_recorded": trigger.is_topic_known,
            "fault": trigger.fault,
        })
    };
    json!({
        "count": status.events(),
        "requested": status.requested,
        "recording": status.is_recording,
        "waiting_messages": status.waiting,
        "waiting_bytes": status.waiting_bytes,
        "shortest_kept_s": status.shortest_kept.map(|span| span.as_secs_f64()),
        "triggers": status.triggers.iter().map(trigger).collect::<Vec<_>>(),
    })
}
