//! A bag's time as lanes: how many messages each topic has when, where it pauses, and where messages were lost.

use super::jobs::{Progress, Task};
use crate::http::{Refusal, Request, json_body};
use holdall::{
    Bag, BagSet, Timestamp,
    look::is_picture,
    plot::{digits, runs},
    reader::{LossSpan, Strip},
    tools::contract,
};
use holdall_model::{
    loss::{
        LossStage, UnknownEnds,
        ledger::{Ledger, TopicAccount},
    },
    marker::Marker,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Cells of a lane.
const CELLS: usize = 1200;

/// Steps of a lane's height.
const STEPS: u32 = 60;

/// Lanes; further topics are counted.
const LANES_MAX: usize = 500;

/// The task of a request: all, or the part of `length_s` from `from_s` on.
pub(super) fn task(request: &Request) -> Result<Task, Refusal> {
    let body = json_body(&request.body)?;
    let part = ["from_s", "length_s"].map(|key| body[key].as_f64().filter(|number| *number >= 0.0));
    Ok(Task::Timeline(match part {
        [Some(from), Some(length)] if length > 0.0 => Some([from.to_string(), length.to_string()]),
        _ => None,
    }))
}

/// Draws the lanes of a bag, by its index where it has one; the reason when it cannot be read.
/// `part` has the seconds after its begin and the length of the part that is wanted, if not all.
pub(super) fn draw(bag: &Bag, part: Option<[f64; 2]>, progress: &Progress) -> Result<Value, String> {
    let text = |error: holdall::ReadError| error.to_string();
    let metadata = bag.metadata();
    let nanos = |seconds: f64| (seconds.clamp(0.0, 1e10) * 1e9) as u64;
    let start = metadata.starting_time.map_or(0, |start| start.as_nanos());
    let whole = u64::try_from(metadata.duration.as_nanos()).unwrap_or(u64::MAX);
    let (start, span) = match part {
        None => (start, whole.max(1)),
        Some([from, length]) => (start.saturating_add_unsigned(nanos(from)), nanos(length).max(1)),
    };
    let axis = Axis { start, span };
    let mut lanes: BTreeMap<String, Lane> = BTreeMap::new();
    for topic in &metadata.topics_with_message_count {
        let lane = lanes.entry(topic.topic_metadata.name.clone()).or_default();
        lane.type_name.clone_from(&topic.topic_metadata.type_name);
        lane.messages += topic.message_count;
    }
    let mut note = |read| progress.note(read, metadata.message_count);
    let bags = BagSet::from(vec![bag.clone()]);
    let times = [start, start.saturating_add_unsigned(span)].map(Timestamp::from_nanos);
    let counted = match part {
        None => bags.over_time(CELLS, u64::MAX, &mut note),
        Some(_) => bags.over_part((times[0], times[1]), CELLS, u64::MAX, &mut note),
    };
    if !counted.is_whole {
        return Err("it was cancelled".to_owned());
    }
    for (topic, counts) in counted.by_topic {
        lanes.entry(topic).or_default().counts = counts;
    }
    let ledger = bag.any_ledger().map_err(text)?;
    for account in ledger.iter().flat_map(|ledger| &ledger.topics) {
        lanes
            .entry(account.name.clone())
            .or_default()
            .add_losses(axis, account);
    }
    let markers = bag.markers().map_err(text)?;
    let violations = contract::violations(bag).map_err(text)?;
    let left_out = lanes.len().saturating_sub(LANES_MAX);
    Ok(json!({
        "start_ns": start.to_string(),
        "start_ms": start as f64 / 1e6,
        "span_ms": span as f64 / 1e6,
        "columns": CELLS,
        "steps": STEPS,
        "messages": metadata.message_count,
        "left_out": left_out,
        "lanes": lanes.iter().take(LANES_MAX).map(|(name, lane)| lane.json(name, axis)).collect::<Vec<_>>(),
        "lines": [],
        "markers": markers.iter().map(|marker| json!([axis.offset(marker.time.as_nanos()), marker.name])).collect::<Vec<_>>(),
        "episodes": Marker::episodes(&markers).iter().map(|episode| {
            json!([axis.offset(episode.start.as_nanos()), format!("{}: {episode}", episode.number)])
        }).collect::<Vec<_>>(),
        "violations": violations.iter().map(|violation| {
            let until = violation.until.map_or(span as f64 / 1e6, |until| axis.offset(until.as_nanos()));
            json!([axis.offset(violation.since.as_nanos()), until, violation.topic, violation.text])
        }).collect::<Vec<_>>(),
        "splits": splits(bag, axis),
        "restarts": restarts(ledger.as_ref(), axis),
        "fault": counted.damage,
        "notices": [],
    }))
}

/// The span that is drawn, in nanoseconds.
#[derive(Clone, Copy)]
struct Axis {
    start: i64,
    span: u64,
}

impl Axis {
    /// Milliseconds after the beginning.
    fn offset(self, time: i64) -> f64 {
        (i128::from(time) - i128::from(self.start)) as f64 / 1e6
    }
}

struct Lane {
    type_name: String,
    counts: Vec<u64>,
    messages: u64,
    losses: Vec<LossSpan>,
    lost_by_stage: BTreeMap<LossStage, u64>,
    /// The recorder kept an account of it.
    is_accounted: bool,
    /// Last signs of life of publishers whose end is not known, with their nodes.
    silent: Vec<(i64, String)>,
}

impl Default for Lane {
    fn default() -> Self {
        Self {
            type_name: String::new(),
            counts: vec![0; CELLS],
            messages: 0,
            losses: Vec::new(),
            lost_by_stage: BTreeMap::new(),
            is_accounted: false,
            silent: Vec::new(),
        }
    }
}

impl Lane {
    fn add_losses(&mut self, axis: Axis, account: &TopicAccount) {
        self.is_accounted = true;
        for (stage, count) in &account.missing {
            if stage.is_shortfall() {
                *self.lost_by_stage.entry(*stage).or_default() += count;
            }
        }
        self.losses.extend(LossSpan::of(account));
        let end = axis.start.saturating_add_unsigned(axis.span);
        let unknown = account.publishers.iter().filter(|one| one.end_unknown);
        self.silent.extend(unknown.map(|publisher| {
            let since = publisher.silent_since.map_or(end, |since| since.as_nanos());
            (since, publisher.node.clone().unwrap_or_default())
        }));
    }

    /// Why there is a pause, as far as the account shows it.
    fn cause(&self, axis: Axis, from: f64, until: f64) -> &'static str {
        let overlaps = |loss: &LossSpan| {
            axis.offset(loss.from.as_nanos()) <= until && axis.offset(loss.until.as_nanos()) >= from
        };
        let is_silent = |(since, _): &(i64, String)| axis.offset(*since) <= until;
        let cell = axis.offset(axis.start.saturating_add_unsigned(axis.span)) / CELLS as f64;
        if !self.is_accounted {
            "cause unknown"
        } else if self.losses.iter().any(overlaps) {
            "messages were lost"
        } else if until + cell >= axis.span as f64 / 1e6 && self.silent.iter().any(is_silent) {
            UnknownEnds::SILENT
        } else if from <= cell {
            "not yet published"
        } else {
            "none was sent"
        }
    }

    fn json(&self, name: &str, axis: Axis) -> Value {
        let strip = Strip::new(&self.counts);
        let each = axis.span as f64 / 1e6 / CELLS as f64;
        let gaps = strip.gaps.iter().map(|gap| {
            let (from, length) = (gap.start as f64 * each, gap.len() as f64 * each);
            json!([from, length, self.cause(axis, from, from + length)])
        });
        let hertz = strip.means.iter().map(|mean| digits(mean / each * 1e3, 3));
        let losses = self.losses.iter().map(|loss| {
            json!([
                axis.offset(loss.from.as_nanos()),
                axis.offset(loss.until.as_nanos()),
                loss.count,
                loss.stage.as_str()
            ])
        });
        let silent = self
            .silent
            .iter()
            .map(|(since, node)| json!([axis.offset(*since), node]));
        json!({
            "name": name,
            "type": self.type_name,
            "messages": self.messages,
            "lost": self.is_accounted.then(|| self.lost_by_stage.values().sum::<u64>()),
            "losses": losses.collect::<Vec<_>>(),
            "n": runs(self.counts.iter().map(|count| *count as f64)),
            "h": runs(strip.steps(STEPS).map(f64::from)),
            "r": runs(hertz),
            "gaps": gaps.collect::<Vec<_>>(),
            "silent": silent.collect::<Vec<_>>(),
            "is_picture": is_picture(&self.type_name),
        })
    }
}

/// Where the files after the first one begin.
fn splits(bag: &Bag, axis: Axis) -> Vec<Value> {
    let files = bag.metadata().files.iter().skip(1);
    let split = |file: &holdall_model::metadata::FileInformation| {
        let at = file.starting_time?;
        Some(json!([axis.offset(at.as_nanos()), file.path]))
    };
    files.filter_map(split).collect()
}

fn restarts(ledger: Option<&Ledger>, axis: Axis) -> Vec<Value> {
    let restarts = ledger.into_iter().flat_map(|ledger| &ledger.restarts);
    restarts
        .map(|restart| json!([axis.offset(restart.time.as_nanos()), restart.reason]))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdall::Writer;

    #[test]
    fn lanes_have_every_message_and_name_the_pause() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lab");
        let mut writer = Writer::create(&path).unwrap();
        let steady = writer.add_topic("/steady", "std_msgs/msg/UInt8").unwrap();
        let pausing = writer.add_topic("/pausing", "std_msgs/msg/UInt8").unwrap();
        for number in 0..600_i64 {
            let time = Timestamp::from_nanos(1_700_000_000_000_000_000 + number * 10_000_000);
            writer.write(steady, time, &[0, 1, 0, 0, 7]).unwrap();
            if !(200..=400).contains(&number) {
                writer.write(pausing, time, &[0, 1, 0, 0, 7]).unwrap();
            }
        }
        writer.close().unwrap();
        let drawn = draw(&Bag::open(&path).unwrap(), None, &Progress::default()).unwrap();
        let (pausing, steady) = (&drawn["lanes"][0], &drawn["lanes"][1]);
        assert_eq!(steady["h"], json!([[CELLS, STEPS]]));
        assert_eq!(
            (&steady["messages"], &pausing["messages"]),
            (&json!(600), &json!(399))
        );
        assert_eq!(steady["gaps"], json!([]));
        let gaps = pausing["gaps"].as_array().unwrap();
        let (from, length) = (gaps[0][0].as_f64().unwrap(), gaps[0][1].as_f64().unwrap());
        assert!(
            (from - 1990.0).abs() < 20.0 && (length - 2020.0).abs() < 30.0,
            "{gaps:?}"
        );
        assert_eq!((gaps.len(), &gaps[0][2]), (1, &json!("cause unknown")));
        assert_eq!(drawn["span_ms"], json!(5990.0));
        assert_eq!(drawn["start_ns"], json!("1700000000000000000"));
    }

    #[test]
    fn losses_and_unknown_ends_are_where_the_ledger_has_them() {
        use holdall_model::loss::ledger::{Interval, PublisherAccount};
        let axis = Axis {
            start: 0,
            span: 1_000_000_000,
        };
        let times = [10, 12].map(|ms| Some(Timestamp::from_nanos(ms * 1_000_000)));
        let publisher = PublisherAccount {
            intervals: vec![Interval::of_sequences(LossStage::Cache, 1, 7, times)],
            end_unknown: true,
            silent_since: Some(Timestamp::from_nanos(600_000_000)),
            ..PublisherAccount::default()
        };
        let mut account = TopicAccount::default();
        account.missing = [(LossStage::Cache, 7), (LossStage::Policy, 5)].into();
        account.publishers = vec![publisher];
        let mut lane = Lane::default();
        lane.add_losses(axis, &account);
        let drawn = lane.json("/a", axis);
        assert_eq!(drawn["losses"], json!([[10.0, 12.0, 7, "cache"]]));
        assert_eq!(
            (&drawn["lost"], &drawn["silent"]),
            (&json!(7), &json!([[600.0, ""]]))
        );
        assert_eq!(lane.cause(axis, 5.0, 20.0), "messages were lost");
        assert_eq!(lane.cause(axis, 700.0, 1000.0), "end unknown");
    }
}
