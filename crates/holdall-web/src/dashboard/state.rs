//! The state of a recording or playback for the page: its control socket's report, with rates.

use holdall_model::rates::{RatesByTopic, TopicRates, rounded};
use serde_json::{Map, Value, json};
use std::{collections::VecDeque, time::Duration};

/// Most bytes of one event to the page; topics that do not fit are left out and counted.
const EVENT_BYTES_MAX: usize = 20 * 1000;

/// Alarms, silent services, networks and nodes that are not heard that one event names, and letters of each.
const NAMED_MAX: usize = 20;
const NAMED_LETTERS_MAX: usize = 160;

/// Samples of the recorded bytes, for the age of those that are not durable: a minute.
const RECORDED_MAX: usize = 120;

/// Knowledge about the subject over time.
#[derive(Default)]
pub(super) struct State {
    topics: RatesByTopic,
    all: TopicRates,
    /// Messages that were recorded at these times.
    recorded: VecDeque<(Duration, u64)>,
}

/// One state of the subject.
#[derive(Default)]
pub(super) struct Snapshot {
    /// For `/api/status`.
    pub status: String,
    /// For `/api/events`, at most [`EVENT_BYTES_MAX`] bytes.
    pub event: String,
}

/// One row of the page's table.
struct Row {
    cells: Value,
    /// Rows of higher rank are shown if not all have a place.
    rank: (bool, bool, u64),
}

impl State {
    /// Notes the subject's report at `now`, which is monotonic: the reply to a request for its status, and the requests that it accepts.
    pub(super) fn note(&mut self, reply: &Value, kind: &str, actions: &[&str], now: Duration) -> Snapshot {
        let mut status = reply["status"].clone();
        let mut event = json!({"kind": kind, "actions": actions});
        for (key, value) in status
            .as_object()
            .into_iter()
            .flatten()
            .filter(|(key, _)| *key != "topics")
        {
            event[key] = shortened(key, value);
        }
        self.note_sums(&status, now);
        let (hertz, bytes) = (self.all.hertz(), self.all.bytes_per_second());
        let free = status["disk_available_bytes"].as_u64();
        let full_in = free
            .filter(|_| bytes >= 1.0)
            .map(|free| (free as f64 / bytes).round());
        add_standings(&mut status);
        let (rows, fallen) = self.note_topics(&mut status["topics"], now);
        let active = status["alarms"]["active"].as_array().into_iter().flatten();
        let active = active.filter_map(|alarm| alarm["text"].as_str().map(str::to_owned));
        let alarms: Vec<String> = active.chain(fallen).collect();
        let mut sums = json!({"hz": rounded(hertz), "bytes_per_s": bytes.round(), "full_in_s": full_in, "alarms": alarms});
        if let Some(waiting) = status["cache_bytes"].as_u64() {
            // Waiting messages are written at the rate at which they arrive.
            let wait = (bytes >= 1.0).then(|| rounded_span(waiting as f64 / bytes));
            sums["write_wait_s"] = json!(wait);
            sums["sync_age_s"] = json!(self.sync_age(&status, now).map(|age| rounded(age.as_secs_f64())));
        }
        for place in [&mut event, &mut status] {
            for (key, value) in sums.as_object().into_iter().flatten() {
                place[key] = value.clone();
            }
        }
        let named: Vec<String> = alarms.iter().take(NAMED_MAX).map(|text| cut(text)).collect();
        event["alarms"] = json!(named);
        Snapshot {
            event: with_rows(event, rows),
            status: json!({"ok": true, "kind": kind, "actions": actions, "status": status}).to_string(),
        }
    }

    fn note_sums(&mut self, status: &Value, now: Duration) {
        let of = |recorded: &str, played: &str| {
            let value = status.get(recorded).or_else(|| status.get(played));
            value.and_then(Value::as_u64).unwrap_or(0)
        };
        self.all.note(
            now,
            of("recorded", "published"),
            of("recorded_bytes", "published_bytes"),
        );
    }

    /// How long ago the oldest message was recorded that is not durable; known to half a second.
    fn sync_age(&mut self, status: &Value, now: Duration) -> Option<Duration> {
        let (recorded, durable) = (status["recorded"].as_u64()?, status["durable"].as_u64()?);
        if self.recorded.len() == RECORDED_MAX {
            self.recorded.pop_front();
        }
        self.recorded.push_back((now, recorded));
        let first = self.recorded.iter().find(|(_, recorded)| *recorded > durable);
        first.map(|(at, _)| now.saturating_sub(*at))
    }

    /// Adds rates to the topics of a status; returns the page's rows, and the topics that have fallen below their usual rate.
    fn note_topics(&mut self, topics: &mut Value, now: Duration) -> (Vec<Row>, Vec<String>) {
        let (mut rows, mut alarms) = (Vec::new(), Vec::new());
        for (name, topic) in topics.as_object_mut().into_iter().flatten() {
            let Some(rates) = self.topics.of(name) else {
                continue;
            };
            let bytes = topic["bytes"].as_u64().unwrap_or(0);
            rates.note(now, topic["received"].as_u64().unwrap_or(0), bytes);
            let (hertz, expected) = (rounded(rates.hertz()), rates.expected().map(rounded));
            alarms.extend(rates.fallen(name).map(|fallen| fallen.to_string()));
            topic["hz"] = json!(hertz);
            topic["expected_hz"] = json!(expected);
            topic["bytes_per_s"] = json!(rates.bytes_per_second().round());
            topic["age_s"] = json!(rates.age(now).map(|age| rounded(age.as_secs_f64())));
            topic["fallen"] = json!(rates.is_fallen());
            rows.push(row(name, topic));
        }
        (rows, alarms)
    }

    /// The rates of the last seconds by topic, for pages that are opened later.
    pub(super) fn history(&self) -> Value {
        let topics: Map<String, Value> = self
            .topics
            .iter()
            .map(|(name, rates)| (name.to_owned(), json!(rates.history().collect::<Vec<_>>())))
            .collect();
        json!({"ok": true, "step_s": 1, "all": self.all.history().collect::<Vec<_>>(), "topics": topics})
    }
}

/// Adds to each topic what the contract says of it.
fn add_standings(status: &mut Value) {
    let standings = status
        .get_mut("contract")
        .and_then(|contract| contract.get_mut("topics"));
    let Some(Value::Object(standings)) = standings.map(Value::take) else {
        return;
    };
    for (name, standing) in &standings {
        if let Some(topic) = status["topics"].get_mut(name) {
            topic["contract"] = standing.clone();
        }
    }
    status["contract"]["topics"] = Value::Object(standings);
}

/// The outcome of a topic's rules with those that are broken: `failed: rate, gap`.
fn standing(topic: &Value) -> Option<String> {
    let standing = &topic["contract"];
    let outcome = standing["outcome"].as_str()?;
    let broken = ["failed", "warned"].map(|key| standing[key].as_array());
    let broken = broken.into_iter().flatten().flatten().filter_map(Value::as_str);
    let broken: Vec<&str> = broken.collect();
    Some(match broken.is_empty() {
        true => outcome.to_owned(),
        false => cut(&format!("{outcome}: {}", broken.join(", "))),
    })
}

/// Lists that grow with the system are cut for the page; their whole is in the status.
fn shortened(key: &str, value: &Value) -> Value {
    match value {
        Value::Array(list) if key == "viewers" => list.iter().map(viewer).collect(),
        Value::Array(list) if key == "networks" => list.iter().take(NAMED_MAX).map(network).collect(),
        // The newest ones, and of those that were made none.
        Value::Array(list) if key == "promotions" => {
            let open = list.iter().rev().filter(|copy| copy["state"] != json!("done"));
            open.take(NAMED_MAX).map(named).collect()
        }
        Value::Array(list) => list.iter().take(NAMED_MAX).map(named).collect(),
        // Topics are rows, and a verdict has all violations.
        Value::Object(contract) if key == "contract" => json!({
            "outcome": contract.get("outcome"),
            "broken": contract.get("broken"),
            "not_judged": contract.get("not_judged"),
            "ended": contract.contains_key("verdict"),
        }),
        // Their triggers are texts of any length.
        _ if key == "events" => json!({"count": value["count"], "recording": value["recording"]}),
        _ => value.clone(),
    }
}

/// A short text of an entry: a name, or a node that is not heard.
fn named(entry: &Value) -> Value {
    let text = match entry {
        Value::String(text) => cut(text),
        Value::Object(about) if about.contains_key("text") => cut(about["text"].as_str().unwrap_or_default()),
        _ => {
            let topics: Vec<&str> = entry["topics"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
                .collect();
            let on = if topics.is_empty() {
                String::new()
            } else {
                format!(" on {}", topics.join(", "))
            };
            let text = |key: &str| entry[key].as_str().unwrap_or_default();
            cut(&format!("{}{on}: {}", text("who"), text("reason")))
        }
    };
    json!(text)
}

/// A network in short: `eth0 (10.0.0.7)`, and why it is not used.
fn network(network: &Value) -> Value {
    let text = |key: &str| network[key].as_str().unwrap_or_default();
    let is_used = network["used"] == json!(true);
    let reason = match text("reason") {
        "" => String::new(),
        reason if is_used => format!(": {reason}"),
        reason => format!(" is not used: {reason}"),
    };
    json!(cut(&format!(
        "{} ({}){reason}",
        text("interface"),
        text("address")
    )))
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(NAMED_LETTERS_MAX) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

/// The sums of a viewer's topics.
fn viewer(viewer: &Value) -> Value {
    let topics = || viewer["topics"].as_array().into_iter().flatten();
    let sum = |key: &str| {
        topics()
            .filter_map(|topic| topic[key].as_u64())
            .fold(0, u64::saturating_add)
    };
    json!({"peer": viewer["peer"], "topics": topics().count(), "sent": sum("sent"), "left_out": sum("left_out")})
}

/// Name, rate, usual rate, bytes a second, age, lost, publishers, fallen, a node that publishes it, what the contract says of it.
fn row(name: &str, topic: &Value) -> Row {
    let stages = topic["lost"].as_object().into_iter().flatten();
    let lost: u64 = stages
        .filter_map(|(_, count)| count.as_u64())
        .fold(0, u64::saturating_add);
    let is_fallen = topic["fallen"] == json!(true);
    let is_broken = topic["contract"]["outcome"] == json!("failed");
    let bytes = topic["bytes_per_s"].as_f64().unwrap_or(0.0) as u64;
    Row {
        cells: json!([
            name,
            topic["hz"],
            topic["expected_hz"],
            topic["bytes_per_s"],
            topic["age_s"],
            lost,
            topic["publishers"],
            u8::from(is_fallen),
            topic["nodes"][0].as_str().map(cut),
            standing(topic),
        ]),
        rank: (is_fallen || is_broken, lost > 0, bytes),
    }
}

/// The event with as many rows as it has room for, those of interest first.
fn with_rows(mut event: Value, mut rows: Vec<Row>) -> String {
    let count = rows.len();
    let mut room = EVENT_BYTES_MAX.saturating_sub(event.to_string().len() + 100);
    rows.sort_by_key(|row| std::cmp::Reverse(row.rank));
    let fitting = rows.into_iter().map_while(|row| {
        room = room.checked_sub(row.cells.to_string().len() + 1)?;
        Some(row.cells)
    });
    let mut cells: Vec<Value> = fitting.collect();
    cells.sort_by(|a, b| a[0].as_str().cmp(&b[0].as_str()));
    event["topics_left_out"] = json!(count - cells.len());
    event["topics"] = Value::Array(cells);
    event.to_string()
}

/// Milliseconds are read.
fn rounded_span(seconds: f64) -> f64 {
    (seconds * 1000.0).round() / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(topics: usize, messages: u64) -> Value {
        let row = |number: usize| {
            let lost = if number == 7 {
                json!({"cache": 3})
            } else {
                json!({})
            };
            let name = format!("/a/topic/with/some/long/name/{number}");
            (
                name,
                json!({"received": messages, "bytes": messages * 10, "publishers": 1, "lost": lost, "type": "std_msgs/msg/String"}),
            )
        };
        let topics: Map<String, Value> = (0..topics).map(row).collect();
        json!({"ok": true, "status": {"recorded": messages, "recorded_bytes": messages * 10, "disk_available_bytes": 1000, "topics": topics}})
    }

    fn parsed(text: &str) -> Value {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn rates_and_the_time_until_the_disk_is_full_are_added() {
        let mut state = State::default();
        state.note(&reply(1, 0), "recording", &["stop"], Duration::from_secs(1));
        let snapshot = state.note(&reply(1, 10), "recording", &["stop"], Duration::from_secs(2));
        let (status, event) = (parsed(&snapshot.status), parsed(&snapshot.event));
        assert_eq!(status["status"]["full_in_s"], json!(10.0));
        assert_eq!(
            status["status"]["topics"]["/a/topic/with/some/long/name/0"]["hz"],
            json!(10.0)
        );
        assert_eq!(
            event["topics"][0],
            json!([
                "/a/topic/with/some/long/name/0",
                10.0,
                null,
                100.0,
                0.0,
                0,
                1,
                0,
                null,
                null
            ])
        );
        assert_eq!(
            (&event["hz"], &event["kind"]),
            (&json!(10.0), &json!("recording"))
        );
    }

    #[test]
    fn a_topic_has_what_the_contract_says_of_it() {
        let mut reply = reply(2, 5);
        let rules = json!({"outcome": "failed", "failed": ["rate"], "warned": ["gap"]});
        let others = json!({"outcome": "passed", "failed": [], "warned": []});
        reply["status"]["contract"] = json!({
            "outcome": "failed", "broken": 2, "not_judged": 0, "verdict": {"violations": vec!["x"; 5000]},
            "topics": {"/a/topic/with/some/long/name/0": rules, "/a/topic/with/some/long/name/1": others, "/absent": rules},
        });
        let snapshot = State::default().note(&reply, "recording", &[], Duration::from_secs(1));
        let (status, event) = (parsed(&snapshot.status), parsed(&snapshot.event));
        let of_rows: Vec<&Value> = event["topics"]
            .as_array()
            .unwrap()
            .iter()
            .map(|row| &row[9])
            .collect();
        assert_eq!(of_rows, [&json!("failed: rate, gap"), &json!("passed")]);
        let wanted = json!({"outcome": "failed", "broken": 2, "not_judged": 0, "ended": true});
        assert_eq!(event["contract"], wanted);
        assert_eq!(
            status["status"]["topics"]["/a/topic/with/some/long/name/0"]["contract"],
            rules
        );
        assert_eq!(status["status"]["contract"]["topics"]["/absent"], rules);
    }

    #[test]
    fn an_event_stays_small_and_keeps_what_matters() {
        let mut state = State::default();
        let snapshot = state.note(&reply(1000, 5), "recording", &[], Duration::from_secs(1));
        assert!(
            snapshot.event.len() <= EVENT_BYTES_MAX,
            "{}",
            snapshot.event.len()
        );
        let event = parsed(&snapshot.event);
        let rows = event["topics"].as_array().unwrap();
        assert_eq!(
            rows.len() as u64 + event["topics_left_out"].as_u64().unwrap(),
            1000
        );
        assert!(rows.len() > 50);
        assert!(
            rows.iter().any(|row| row[0] == "/a/topic/with/some/long/name/7"),
            "the topic with a loss"
        );
        assert_eq!(
            parsed(&snapshot.status)["status"]["topics"]
                .as_object()
                .unwrap()
                .len(),
            1000
        );
    }

    #[test]
    fn what_waits_to_be_written_and_to_be_synced_has_an_age() {
        let mut state = State::default();
        let mut event = Value::Null;
        for second in 1..=4_u64 {
            let mut reply = reply(1, second * 10);
            reply["status"]["cache_bytes"] = json!(50);
            reply["status"]["durable"] = json!(15);
            let snapshot = state.note(&reply, "recording", &[], Duration::from_secs(second));
            event = parsed(&snapshot.event);
        }
        // The messages after the fifteenth were recorded between the first and the second second.
        assert_eq!(event["sync_age_s"], json!(2.0));
        assert_eq!(event["write_wait_s"], json!(0.5));
    }

    #[test]
    fn nodes_that_are_not_heard_are_named_in_short() {
        let mut state = State::default();
        let mut reply = reply(500, 1);
        let topics: Vec<String> = (0..500).map(|number| format!("/a/topic/{number}")).collect();
        let node =
            json!({"who": "/camera", "kind": "no_udp", "reason": "shared memory only", "topics": ["/image"]});
        let many =
            json!({"who": "/many", "kind": "no_udp", "reason": "shared memory only", "topics": topics});
        reply["status"]["not_heard"] = json!(
            vec![node; 1]
                .into_iter()
                .chain(vec![many; 100])
                .collect::<Vec<_>>()
        );
        let snapshot = state.note(&reply, "recording", &[], Duration::from_secs(1));
        assert!(snapshot.event.len() <= EVENT_BYTES_MAX);
        let event = parsed(&snapshot.event);
        assert_eq!(
            event["not_heard"][0],
            json!("/camera on /image: shared memory only")
        );
        assert_eq!(event["not_heard"].as_array().unwrap().len(), NAMED_MAX);
    }

    #[test]
    fn networks_are_named_in_short() {
        let mut state = State::default();
        let mut reply = reply(500, 1);
        let network = |used: bool, reason: Option<&str>| json!({"interface": "eth0", "address": "10.0.0.7", "used": used, "reason": reason});
        let mut all = vec![
            network(true, None),
            network(true, Some("in part")),
            network(false, Some("it is down")),
        ];
        all.extend(vec![network(false, Some(&"long ".repeat(100))); 61]);
        reply["status"]["networks"] = json!(all);
        let snapshot = state.note(&reply, "recording", &[], Duration::from_secs(1));
        assert!(snapshot.event.len() <= EVENT_BYTES_MAX);
        let event = parsed(&snapshot.event);
        let named = event["networks"].as_array().unwrap();
        assert_eq!(
            named[..3],
            [
                "eth0 (10.0.0.7)",
                "eth0 (10.0.0.7): in part",
                "eth0 (10.0.0.7) is not used: it is down"
            ]
        );
        assert_eq!(named.len(), NAMED_MAX);
        assert_eq!(parsed(&snapshot.status)["status"]["networks"], json!(all));
    }

    #[test]
    fn a_fallen_topic_is_an_alarm() {
        let mut state = State::default();
        let mut alarm = String::new();
        for second in 0..40_u64 {
            let messages = (second * 20).min(400 + second);
            let snapshot = state.note(&reply(1, messages), "recording", &[], Duration::from_secs(second));
            alarm = parsed(&snapshot.event)["alarms"].to_string();
        }
        assert_eq!(alarm, "[\"/a/topic/with/some/long/name/0: 20 → 1 Hz\"]");
    }
}
