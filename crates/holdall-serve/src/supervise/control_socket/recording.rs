//! The requests to a recording.

use super::{Requests, refusal};
use crate::supervise::{
    RecordingPast, StallFlag,
    metrics::open_metrics,
    promotions::{Promotion, Promotions},
};
use holdall_model::{
    episode::{EpisodeChange, EpisodeFields},
    marker::Marker,
};
use holdall_record::{MarkError, RecordControl, RecordObserver, Setting};
use serde::Serialize;
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
    "episode",
    "promote",
    "is_recording",
    "get_uri",
    "history",
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
    /// Figures and events so far.
    pub past: RecordingPast,
    /// Parts of it that are copied.
    pub promotions: Promotions,
    /// It stores messages on request only.
    pub snapshot_mode: bool,
    /// Where it records.
    pub host: RecordingHost,
}

/// Where a recording runs and what it hears, for people who watch several.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RecordingHost {
    /// The computer's name.
    pub name: Option<String>,
    /// The ROS domain, if a transport has domains.
    pub domain: Option<String>,
    /// The transports.
    pub transports: Vec<String>,
    /// The file with its flags.
    pub profile: Option<String>,
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
            "snapshot" if control.snapshot() => {
                self.past.note_event("snapshot", "on request");
                json!({"ok": true, "success": true})
            }
            "snapshot" => {
                let mut reply = refusal("only a recording in snapshot mode takes snapshots");
                reply["setting"] = json!(Setting::Snapshot.name());
                reply
            }
            "add_marker" => match request.get("name").and_then(Value::as_str) {
                Some(name) => self.marked(control.add_marker(name)),
                None => refusal("add_marker needs a text \"name\""),
            },
            "trigger" => trigger(control, request),
            "episode" => self.episode(request),
            "promote" => self.promote(request),
            "is_recording" => json!({"ok": true, "recording": control.is_recording()}),
            "history" => json!({"ok": true, "past": self.past.json()}),
            "get_uri" => json!({"ok": true, "uri": control.directory().display().to_string()}),
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
        status["bag"] = json!(self.control.directory().display().to_string());
        status["host"] = json!(self.host);
        status["machine"] = self.past.load();
        status["promotions"] = json!(self.promotions.json());
        let episode = self.control.episode();
        status["episode"] =
            json!(episode.map(|(start, fields)| json!({"start_ns": start, "fields": fields})));
        status["snapshot_mode"] = json!(self.snapshot_mode);
        status["snapshots"] = json!(self.snapshot_mode || self.control.waits_for_events());
        status
    }

    /// `{"request": "episode", "change": "start", "task": "pick"}`: all else are fields of the episode.
    fn episode(&self, request: &Value) -> Value {
        let change = request.get("change").and_then(Value::as_str);
        let Some(change) = change.and_then(EpisodeChange::from_word) else {
            return refusal("episode needs start, stop or discard, under \"change\"");
        };
        let mut fields = EpisodeFields::new();
        for (name, value) in request.as_object().into_iter().flatten() {
            if !["request", "change"].contains(&name.as_str()) {
                let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                fields.insert(name.clone(), text);
            }
        }
        self.marked(self.control.change_episode(change, fields))
    }

    /// `{"request": "promote", "output": "event", "from": "@1700000000", "to": "@1700000060", "topics": ["/scan"]}`.
    fn promote(&self, request: &Value) -> Value {
        let (control, observer) = (self.control.clone(), self.observer.clone());
        let promotion = Promotion::of_request(control.directory(), request);
        let begun = promotion.and_then(|promotion| self.promotions.begin_live(promotion, control, observer));
        match begun {
            Ok(reply) => {
                self.past
                    .note_event("promote", reply["output"].as_str().unwrap_or_default());
                reply
            }
            Err(reason) => refusal(&reason),
        }
    }

    fn marked(&self, marked: Result<Marker, MarkError>) -> Value {
        match marked {
            Ok(marker) => {
                self.past.note_event("marker", &marker.name);
                json!({"ok": true, "name": marker.name, "time": marker.time.as_nanos()})
            }
            Err(error) => refusal(&error.to_string()),
        }
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

/// The recording's state and its account so far, with the nodes and QoS of each topic.
pub fn status_json(observer: &RecordObserver) -> Value {
    let (nodes, qos) = (observer.nodes(), observer.offered_qos());
    let mut status = json!(observer.status());
    for (name, topic) in status["topics"].as_object_mut().into_iter().flatten() {
        topic["nodes"] = json!(nodes.get(name));
        topic["qos"] = json!(qos.get(name));
    }
    status
}
