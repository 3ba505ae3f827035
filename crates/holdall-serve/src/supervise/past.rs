//! What a recording remembers of itself for pages that are opened later: figures over its whole time, in bounded memory, and events.

use holdall_io::{
    clock::{Clock, SystemClock},
    machine::{self, Idle},
    main_memory::used_memory,
    mutex::lock,
};
use holdall_model::{
    loss::LossSums,
    rates::{FallenTopic, RatesByTopic, TopicRates},
    time::Timestamp,
};
use holdall_record::status::RecordStatus;
use serde_json::{Value, json};
use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
    time::Duration,
};

/// Time between two rows of figures, at first.
const INTERVAL: Duration = Duration::from_millis(500);

/// Rows of figures; with more, pairs of rows become one, so that each then covers twice the time.
const ROWS_MAX: usize = 1200;

/// Events that are remembered; the oldest go first.
const EVENTS_MAX: usize = 500;

/// Samples without an answer in a row, at most: six days.
const MISSING_MAX: u64 = 1_000_000;

/// Letters of an event's text.
const LETTERS_MAX: usize = 300;

/// Figures that are remembered: by their names in a status, and the better of two when rows become one.
const FIGURES: [&str; 6] = [
    "bytes_per_s",
    "cache_bytes",
    "lost",
    "disk_available_bytes",
    "processors",
    "memory",
];

type Row = [Option<f64>; FIGURES.len()];

/// The past of a recording: noted by the thread that supervises it, read by those that answer requests.
#[derive(Clone, Default)]
pub struct RecordingPast(Arc<Mutex<Kept>>);

#[derive(Default)]
struct Kept {
    past: Past,
    machine: Machine,
    load: Value,
    topics: RatesByTopic,
    all: TopicRates,
    next: Duration,
}

impl RecordingPast {
    /// Notes the state, at most twice a second; `now` is monotonic.
    pub(super) fn note(&self, status: &RecordStatus, is_stalled: bool, now: Duration) {
        let mut kept = lock(&self.0);
        if now < kept.next {
            return;
        }
        kept.next = now + INTERVAL;
        kept.all.note(now, status.recorded, status.recorded_bytes);
        let counters = status.topics.iter();
        let counters = counters.map(|topic| (topic.name.as_str(), topic.received, topic.recorded_bytes));
        kept.topics.note(now, counters);
        kept.load = kept.machine.sample(now);
        let mut alarms = json!(&status.alarms)["active"].take();
        let mut alarms: Vec<Value> = alarms.as_array_mut().map(std::mem::take).unwrap_or_default();
        alarms.iter_mut().for_each(|alarm| *alarm = alarm["text"].take());
        alarms.extend(
            kept.topics
                .fallen()
                .iter()
                .map(|fallen| json!(fallen.to_string())),
        );
        let sums = LossSums::of_all(status.topics.iter().map(|topic| &topic.lost));
        let state = json!({
            "bytes_per_s": kept.all.bytes_per_second().round(),
            "cache_bytes": status.cache_bytes,
            "disk_available_bytes": status.disk_available_bytes,
            "processors": kept.load["processors"],
            "memory": kept.load["memory"],
            "lost": sums.lost,
            "lost_by_stage": sums.by_stage,
            "file": status.current_file.display().to_string(),
            "paused": status.paused,
            "stalled": is_stalled,
            "alarms": alarms,
            "events": status.triggered.as_ref().map_or(0, |events| events.events()),
            "clock_jumps": status.clock_jumps.named,
        });
        kept.past.note(state, now);
    }

    /// Notes what no state shows: a marker, a snapshot.
    pub fn note_event(&self, kind: &'static str, text: &str) {
        let now = SystemClock.monotonic();
        lock(&self.0).past.event(now, kind, text.to_owned());
    }

    /// Topics that have fallen below their usual rate.
    pub fn fallen(&self) -> Vec<FallenTopic> {
        lock(&self.0).topics.fallen()
    }

    /// Load of the machine.
    pub(super) fn load(&self) -> Value {
        lock(&self.0).load.clone()
    }

    /// For pages; see [`Past::json`].
    pub(super) fn json(&self) -> Value {
        lock(&self.0).past.json()
    }
}

/// Figures and events.
#[derive(Default)]
struct Past {
    /// By the clock, and monotonic: whatever jumps the clock makes, the axis is that of its first time.
    start: Option<(Timestamp, Duration)>,
    noted: Option<Duration>,
    /// Samples that a row covers, and those in the last one.
    each: u32,
    in_last: u32,
    /// Samples so far.
    samples: u64,
    rows: Vec<Row>,
    events: VecDeque<(Duration, &'static str, String)>,
    last: Value,
}

impl Past {
    /// Notes a state, which was sampled now (monotonic).
    fn note(&mut self, status: Value, now: Duration) {
        let row = FIGURES.map(|name| status[name].as_f64());
        let (_, start) = *self.start.get_or_insert_with(|| (SystemClock.now(), now));
        // Where it was long not sampled, as while the process was stopped, nothing is known.
        let before = self.noted.replace(now).unwrap_or(now);
        let is_gap = now.saturating_sub(before) > 3 * INTERVAL;
        let filler = if is_gap { [None; FIGURES.len()] } else { row };
        let due = now.saturating_sub(start).as_nanos() / INTERVAL.as_nanos();
        let missing = u64::try_from(due)
            .unwrap_or(u64::MAX)
            .saturating_sub(self.samples);
        for _ in 0..missing.min(MISSING_MAX) {
            self.add(filler);
        }
        self.add(row);
        self.note_changes(&status, now);
        self.last = status;
    }

    fn add(&mut self, row: Row) {
        self.samples += 1;
        self.each = self.each.max(1);
        let is_new = self.rows.is_empty() || self.in_last >= self.each;
        if is_new {
            self.rows.push(row);
            self.in_last = 1;
        } else {
            if let Some(last) = self.rows.last_mut() {
                *last = merged(*last, row);
            }
            self.in_last += 1;
        }
        if self.rows.len() > ROWS_MAX {
            let pairs = self.rows.chunks(2);
            self.rows = pairs
                .map(|pair| pair.iter().copied().reduce(merged).unwrap_or_default())
                .collect();
            self.each *= 2;
            // The last row was single where their number was odd.
            self.in_last = self.each / 2;
        }
    }

    /// Events by what differs from the state before.
    fn note_changes(&mut self, status: &Value, now: Duration) {
        let before = std::mem::take(&mut self.last);
        let text = |of: &Value, key: &str| of[key].as_str().unwrap_or_default().to_owned();
        if before.is_null() {
            self.event(now, "begin", text(status, "file"));
            return;
        }
        let file = text(status, "file");
        if !file.is_empty() && file != text(&before, "file") {
            let name = file.rsplit('/').next().unwrap_or(&file).to_owned();
            self.event(now, "split", format!("{name} begins"));
        }
        let (lost, had) = (
            status["lost"].as_u64().unwrap_or(0),
            before["lost"].as_u64().unwrap_or(0),
        );
        if lost > had {
            let stages = status["lost_by_stage"].as_object().into_iter().flatten();
            let more = stages.filter_map(|(stage, count)| {
                let had = before["lost_by_stage"][stage].as_u64().unwrap_or(0);
                let more = count.as_u64()?.checked_sub(had).filter(|more| *more > 0)?;
                Some(format!("{more} {stage}"))
            });
            let more: Vec<String> = more.collect();
            self.event(now, "loss", format!("{} lost: {}", lost - had, more.join(", ")));
        }
        self.note_alarms(status, &before, now);
        for (key, on, off) in [
            ("paused", "paused", "resumed"),
            ("stalled", "stalled: nothing is written", "it writes again"),
        ] {
            if status[key] != before[key] && status[key].is_boolean() {
                let is_on = status[key] == json!(true);
                self.event(now, "state", if is_on { on } else { off }.to_owned());
            }
        }
        let count = |of: &Value| of["events"].as_u64().unwrap_or(0);
        if count(status) > count(&before) {
            self.event(now, "trigger", format!("event {} begins", count(status)));
        }
        let had = before["clock_jumps"].as_array().map_or(0, Vec::len);
        let jumps = status["clock_jumps"].as_array().into_iter().flatten();
        for jump in jumps.skip(had) {
            let text = jump["text"].as_str().unwrap_or("the clock jumped");
            self.event(now, "clock", text.to_owned());
        }
    }

    fn note_alarms(&mut self, status: &Value, before: &Value, now: Duration) {
        let texts = |of: &Value| -> Vec<String> {
            let list = of["alarms"].as_array().into_iter().flatten();
            list.filter_map(Value::as_str).map(str::to_owned).collect()
        };
        // The text of an alarm has figures that change.
        let key = |text: &String| text.split([':', ' ']).next().unwrap_or_default().to_owned();
        let (now_active, were_active) = (texts(status), texts(before));
        for alarm in &now_active {
            if !were_active.iter().any(|known| key(known) == key(alarm)) {
                self.event(now, "alarm", alarm.clone());
            }
        }
        for alarm in &were_active {
            if !now_active.iter().any(|known| key(known) == key(alarm)) {
                self.event(now, "alarm", format!("over: {alarm}"));
            }
        }
    }

    fn event(&mut self, at: Duration, kind: &'static str, text: String) {
        if self.events.len() >= EVENTS_MAX {
            self.events.pop_front();
        }
        let cut = text
            .char_indices()
            .nth(LETTERS_MAX)
            .map_or(text.len(), |(at, _)| at);
        self.events.push_back((at, kind, text[..cut].to_owned()));
    }

    /// For the page: `start_ms`, `step_ms`, a list for each figure, and `events` as `[ms since 1970, kind, text]`.
    fn json(&self) -> Value {
        let ms = |at: Duration| {
            let (time, start) = self.start.unwrap_or_default();
            time.as_nanos() as f64 / 1e6 + (at.as_secs_f64() - start.as_secs_f64()) * 1e3
        };
        let figure = |place: usize| self.rows.iter().map(|row| row[place]).collect::<Vec<_>>();
        let figures: serde_json::Map<String, Value> = (FIGURES.iter().enumerate())
            .map(|(place, name)| ((*name).to_owned(), json!(figure(place))))
            .collect();
        let events = self
            .events
            .iter()
            .map(|(at, kind, text)| json!([ms(*at), kind, text]));
        json!({
            "start_ms": self.start.map(|(_, start)| ms(start)),
            "step_ms": INTERVAL.as_millis() as u64 * u64::from(self.each.max(1)),
            "figures": figures,
            "events": events.collect::<Vec<_>>(),
        })
    }
}

/// One row of two: the larger figures, but the smaller free space.
fn merged(one: Row, other: Row) -> Row {
    let mut row = one;
    for (place, name) in FIGURES.iter().enumerate() {
        row[place] = match (one[place], other[place]) {
            (Some(one), Some(other)) if *name == "disk_available_bytes" => Some(one.min(other)),
            (Some(one), Some(other)) => Some(one.max(other)),
            (one, other) => one.or(other),
        };
    }
    row
}

/// Load of the machine.
#[derive(Default)]
struct Machine {
    before: Option<(Duration, Idle)>,
}

impl Machine {
    /// Busy share of the processors since the last call, used share of the memory.
    fn sample(&mut self, now: Duration) -> Value {
        let idle = machine::idle();
        let busy = self
            .before
            .replace((now, idle))
            .map(|(at, before)| idle.busy_since(&before, now.saturating_sub(at)));
        let memory = used_memory(&machine::read);
        let share = |value: f64| (value * 1000.0).round() / 1000.0;
        json!({"processors": busy.map(share), "processor_count": idle.processors, "memory": memory.map(share)})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn figures_of_any_time_are_bounded_and_keep_their_peaks() {
        let mut past = Past::default();
        for second in 0..100_000 {
            let rate = if second == 70_000 { 99.0 } else { 1.0 };
            let free = if second == 30_000 { 5 } else { 100 };
            let status = json!({"bytes_per_s": rate, "disk_available_bytes": free, "lost": 0});
            past.note(status, second * INTERVAL);
        }
        let shown = past.json();
        let rates = shown["figures"]["bytes_per_s"].as_array().unwrap();
        assert!(
            rates.len() <= ROWS_MAX && rates.contains(&json!(99.0)),
            "{}",
            rates.len()
        );
        assert!(
            shown["figures"]["disk_available_bytes"]
                .as_array()
                .unwrap()
                .contains(&json!(5.0))
        );
        let covered = rates.len() as u64 * shown["step_ms"].as_u64().unwrap();
        assert!((50_000_000..51_000_000).contains(&covered), "{covered}");
        assert_eq!(shown["figures"]["cache_bytes"][0], json!(null));
    }

    #[test]
    fn what_was_not_answered_is_a_gap_of_its_length() {
        let mut past = Past::default();
        past.note(json!({"lost": 3}), at(100));
        past.note(json!({"lost": 3}), at(160));
        let shown = past.json();
        let lost = shown["figures"]["lost"].as_array().unwrap();
        assert_eq!(
            (lost.len(), &lost[1], &lost[119]),
            (121, &json!(null), &json!(null))
        );
        assert_eq!(lost[120], json!(3.0));
    }

    #[test]
    fn what_changes_is_an_event() {
        let mut past = Past::default();
        let states = [
            json!({"file": "/a/b_0.mcap", "lost": 0, "lost_by_stage": {}, "paused": false, "alarms": []}),
            json!({"file": "/a/b_1.mcap", "lost": 7, "lost_by_stage": {"cache": 7}, "paused": true, "alarms": ["/imu: 20 → 3 Hz"]}),
            json!({"file": "/a/b_1.mcap", "lost": 7, "lost_by_stage": {"cache": 7}, "paused": false, "alarms": ["/imu: 20 → 2 Hz"]}),
            json!({"file": "/a/b_1.mcap", "lost": 7, "lost_by_stage": {"cache": 7}, "paused": false, "alarms": []}),
        ];
        for (second, state) in (0..).zip(states) {
            past.note(state, at(second));
        }
        past.event(at(9), "marker", "door <b>".to_owned());
        let shown = past.json();
        let events: Vec<String> = (shown["events"].as_array().unwrap().iter())
            .map(|event| format!("{} {}", event[1].as_str().unwrap(), event[2].as_str().unwrap()))
            .collect();
        assert_eq!(
            events,
            [
                "begin /a/b_0.mcap",
                "split b_1.mcap begins",
                "loss 7 lost: 7 cache",
                "alarm /imu: 20 → 3 Hz",
                "state paused",
                "state resumed",
                "alarm over: /imu: 20 → 2 Hz",
                "marker door <b>"
            ]
        );
    }
}
