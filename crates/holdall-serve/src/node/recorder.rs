//! The services of a recorder's node, with rosbag2's meaning.

use super::answer::{Answer, Handler, nanos_in, text_in, texts_in};
use holdall_model::time::Timestamp;
use holdall_record::SubscribeAnswer;
use serde_json::{Value, json};

/// Name below the node's, and type.
pub const SERVICES: [(&str, &str); 17] = [
    ("add_marker", "holdall_interfaces/srv/AddMarker"),
    ("change_episode", "holdall_interfaces/srv/ChangeEpisode"),
    ("get_statistics", "holdall_interfaces/srv/GetStatistics"),
    (
        "get_subscribed_topics",
        "rosbag2_interfaces/srv/GetSubscribedTopics",
    ),
    ("get_uri", "rosbag2_interfaces/srv/GetUri"),
    (
        "is_discovery_running",
        "rosbag2_interfaces/srv/IsDiscoveryRunning",
    ),
    ("is_paused", "rosbag2_interfaces/srv/IsPaused"),
    ("is_recording", "rosbag2_interfaces/srv/IsRecording"),
    ("pause", "rosbag2_interfaces/srv/Pause"),
    ("record", "rosbag2_interfaces/srv/Record"),
    ("resume", "rosbag2_interfaces/srv/Resume"),
    ("snapshot", "rosbag2_interfaces/srv/Snapshot"),
    ("split_bagfile", "rosbag2_interfaces/srv/SplitBagfile"),
    ("start_discovery", "rosbag2_interfaces/srv/StartDiscovery"),
    ("stop", "rosbag2_interfaces/srv/Stop"),
    ("stop_discovery", "rosbag2_interfaces/srv/StopDiscovery"),
    ("subscribe_to_topics", "rosbag2_interfaces/srv/SubscribeToTopics"),
];

/// Targets of the services.
pub trait RecorderCommands: Send {
    /// Whether a bag is being recorded.
    fn is_recording(&self) -> bool;
    /// Whether it is paused.
    fn is_paused(&self) -> bool;
    /// Stores nothing that arrives from now on.
    fn pause(&self);
    /// Stores messages that arrive from now on.
    fn resume(&self);
    /// Continues in a new file.
    ///
    /// # Errors
    /// Why it does not.
    fn split(&self) -> Result<(), String>;
    /// Writes the contents of the ring; false if there is none.
    fn snapshot(&self) -> bool;
    /// Begins a new bag; an empty `uri` is one that is named by the time.
    fn record(&self, uri: &str) -> Answer;
    /// Ends the bag; the node stays.
    fn stop(&self) -> Answer;
    /// Subscribes to new topics again.
    ///
    /// # Errors
    /// Why it does not.
    fn start_discovery(&self) -> Result<(), String>;
    /// Subscribes to no new topics from now on.
    ///
    /// # Errors
    /// Why it does not.
    fn stop_discovery(&self) -> Result<(), String>;
    /// Whether new topics are subscribed to.
    fn is_discovery_running(&self) -> bool;
    /// The bag's folder; empty while nothing is recorded.
    fn uri(&self) -> String;
    /// The topics that are recorded.
    fn subscribed_topics(&self) -> Vec<String>;
    /// Subscribes to topics by name, with types or none.
    ///
    /// # Errors
    /// Why no topic can be subscribed to.
    fn subscribe_to_topics(&self, topics: &[String], types: &[String]) -> Result<SubscribeAnswer, String>;
    /// The fields of `GetStatistics`.
    fn statistics(&self) -> Value;
    /// Puts a named mark into the bag.
    ///
    /// # Errors
    /// Why it does not.
    fn add_marker(&self, name: &str) -> Result<(), String>;
    /// Starts, stops or discards an episode; each of `fields` is NAME=VALUE.
    ///
    /// # Errors
    /// Why it does not.
    fn change_episode(&self, change: &str, fields: &[String]) -> Result<(), String>;
}

/// `SplitBagfile` and `Resume`: the codes differ by one.
struct Codes {
    invalid_mode: i64,
    invalid_topic: i64,
    failed: i64,
}

const RESUME: Codes = Codes {
    invalid_mode: 1,
    invalid_topic: 2,
    failed: 3,
};
const SPLIT: Codes = Codes {
    invalid_mode: 2,
    invalid_topic: 3,
    failed: 4,
};
const NOT_RECORDING: i64 = 1;

/// By the clock of the node, and by the stamps of publishers.
const MODE_NODE_TIME: i64 = 0;
const MODE_RECEIVE_TIME: i64 = 2;

/// Requests that wait for their time; a newer one replaces an older one of its kind.
#[derive(Default)]
struct Scheduled {
    resume: Option<Timestamp>,
    split: Option<Timestamp>,
    record: Option<(Timestamp, String)>,
}

/// Answers the requests to a recorder's services.
pub struct RecorderHandler<R> {
    recorder: R,
    scheduled: Scheduled,
}

impl<R: RecorderCommands> RecorderHandler<R> {
    /// Acts on this recorder.
    pub fn new(recorder: R) -> Self {
        Self {
            recorder,
            scheduled: Scheduled::default(),
        }
    }

    /// The time of a request to resume or split, `None` for now; or the code and the reason for not doing it.
    fn when(
        &self,
        request: &Value,
        time: &str,
        mode: &str,
        codes: &Codes,
        now: Timestamp,
    ) -> Result<Option<Timestamp>, (i64, String)> {
        let at = Timestamp::from_nanos(nanos_in(&request[time]));
        let topic = text_in(request, "tracking_topic_name");
        match request[mode].as_i64().unwrap_or(0) {
            _ if at <= now => return Ok(None),
            MODE_NODE_TIME => {}
            // A message is recorded when it is received.
            MODE_RECEIVE_TIME if topic.is_empty() => {}
            MODE_RECEIVE_TIME => {
                let is_known = self
                    .recorder
                    .subscribed_topics()
                    .iter()
                    .any(|known| known == topic);
                if !is_known {
                    return Err((codes.invalid_topic, format!("{topic} is not recorded")));
                }
            }
            other => {
                let reason =
                    format!("{mode} {other} is not offered: 0 is the node's time, 2 the time of reception");
                return Err((codes.invalid_mode, reason));
            }
        }
        Ok(Some(at))
    }

    fn resume(&mut self, request: &Value, now: Timestamp) -> Answer {
        if !self.recorder.is_recording() {
            return refused("resume", RESUME.failed, "nothing is being recorded");
        }
        match self.when(request, "resume_time", "resume_mode", &RESUME, now) {
            Err((code, reason)) => return refused("resume", code, reason),
            Ok(None) => {
                self.scheduled.resume = None;
                self.recorder.resume();
            }
            Ok(at) => self.scheduled.resume = at,
        }
        Answer::code(0, "")
    }

    fn split(&mut self, request: &Value, now: Timestamp) -> Answer {
        if !self.recorder.is_recording() {
            return refused("split_bagfile", NOT_RECORDING, "nothing is being recorded");
        }
        match self.when(request, "split_time", "split_mode", &SPLIT, now) {
            Err((code, reason)) => return refused("split_bagfile", code, reason),
            Ok(None) => {
                if let Err(reason) = self.recorder.split() {
                    return refused("split_bagfile", SPLIT.failed, reason);
                }
            }
            Ok(at) => self.scheduled.split = at,
        }
        Answer::code(0, "")
    }

    fn record(&mut self, request: &Value, now: Timestamp) -> Answer {
        if self.recorder.is_recording() {
            return Answer::Refusal("a bag is being recorded already".to_owned());
        }
        let nanos = nanos_in(&request["start_time"]);
        let uri = text_in(request, "uri");
        if nanos < 0 {
            return Answer::Refusal("the start time is negative".to_owned());
        }
        let at = Timestamp::from_nanos(nanos);
        if at <= now {
            self.scheduled.record = None;
            return self.recorder.record(uri);
        }
        self.scheduled.record = Some((at, uri.to_owned()));
        Answer::code(0, "")
    }

    fn subscribe(&self, request: &Value) -> Answer {
        let (topics, types) = (texts_in(request, "topics"), texts_in(request, "topic_types"));
        let done = match self.recorder.subscribe_to_topics(&topics, &types) {
            Ok(done) => done,
            Err(reason) => return Answer::Refusal(reason),
        };
        let none = done.subscribed.is_empty() && !topics.is_empty();
        Answer::Reply(json!({
            "return_code": i64::from(none),
            "error_string": if none { "none of the topics can be subscribed to" } else { "" },
            "subscribed_topics": done.subscribed,
            "unavailable_topics": done.unavailable,
        }))
    }
}

/// A code for a refusal, with a line in the log.
fn refused(service: &str, code: i64, reason: impl Into<String>) -> Answer {
    let reason: String = reason.into();
    tracing::warn!("{service}: {reason}");
    Answer::code(code, reason)
}

impl<R: RecorderCommands> Handler for RecorderHandler<R> {
    fn answer(&mut self, service: &str, request: &Value, now: Timestamp) -> Answer {
        let recorder = &self.recorder;
        match service {
            "is_paused" => Answer::Reply(json!({"paused": recorder.is_paused()})),
            "is_recording" => Answer::Reply(json!({"recording": recorder.is_recording()})),
            "is_discovery_running" => Answer::Reply(json!({"running": recorder.is_discovery_running()})),
            "get_uri" => Answer::Reply(json!({"uri": recorder.uri()})),
            "get_subscribed_topics" => Answer::Reply(json!({"topics": recorder.subscribed_topics()})),
            "get_statistics" => Answer::Reply(recorder.statistics()),
            "pause" => {
                recorder.pause();
                self.scheduled.resume = None;
                Answer::done()
            }
            "resume" => self.resume(request, now),
            "split_bagfile" => self.split(request, now),
            "snapshot" => Answer::success(recorder.snapshot()),
            "record" => self.record(request, now),
            "stop" => {
                self.scheduled = Scheduled::default();
                recorder.stop()
            }
            "start_discovery" => Answer::of(recorder.start_discovery()),
            "stop_discovery" => Answer::of(recorder.stop_discovery()),
            "subscribe_to_topics" => self.subscribe(request),
            "add_marker" => match recorder.add_marker(text_in(request, "name")) {
                Ok(()) => Answer::success(true),
                Err(reason) => Answer::Refusal(reason),
            },
            "change_episode" => {
                let (change, fields) = (text_in(request, "change"), texts_in(request, "fields"));
                match recorder.change_episode(change, &fields) {
                    Ok(()) => Answer::success(true),
                    Err(reason) => Answer::Refusal(reason),
                }
            }
            other => Answer::Refusal(format!("there is no service {other}")),
        }
    }

    fn step(&mut self, now: Timestamp) -> Option<Timestamp> {
        let Scheduled {
            resume,
            split,
            record,
        } = &mut self.scheduled;
        if resume.take_if(|at| *at <= now).is_some() {
            self.recorder.resume();
        }
        if split.take_if(|at| *at <= now).is_some()
            && let Err(reason) = self.recorder.split()
        {
            tracing::warn!("split_bagfile: {reason}");
        }
        if let Some((_, uri)) = record.take_if(|(at, _)| *at <= now)
            && let Answer::Refusal(reason) = self.recorder.record(&uri)
        {
            tracing::warn!("record: {reason}");
        }
        let times = [*resume, *split, record.as_ref().map(|(at, _)| *at)];
        times.into_iter().flatten().min()
    }
}
