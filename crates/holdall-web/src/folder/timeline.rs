//! A bag's time as lanes: how many messages each topic has when, where it pauses, and where messages were lost.

use super::jobs::Progress;
use holdall::{Bag, BagSet, MessageFilter, reader::Strip};
use holdall_model::loss::{LossStage, ledger::Ledger};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Cells of a lane.
const CELLS: usize = 600;

/// Lanes; further topics are counted.
const LANES_MAX: usize = 500;

/// Pauses of one topic that are listed.
const GAPS_MAX: usize = 50;

/// A pause is longer than the topic's usual spacing by this factor, and than this many nanoseconds.
const GAP_FACTOR: u64 = 5;
const GAP_MIN: u64 = 100_000_000;

/// Messages of a topic before its spacing counts as usual.
const USUAL_MESSAGES: u64 = 10;

/// Reads the bag and draws its lanes; the reason when it cannot be read.
pub(super) fn draw(bag: &Bag, progress: &Progress) -> Result<Value, String> {
    let text = |error: holdall::ReadError| error.to_string();
    let metadata = bag.metadata();
    let start = metadata.starting_time.map_or(0, |start| start.as_nanos());
    let span = u64::try_from(metadata.duration.as_nanos())
        .unwrap_or(u64::MAX)
        .max(1);
    let axis = Axis { start, span };
    let mut lanes: BTreeMap<String, Lane> = BTreeMap::new();
    let bags = BagSet::from(vec![bag.clone()]);
    for topic in bags.topics() {
        let lane = lanes.entry(topic.name).or_default();
        lane.type_name = topic.type_name;
    }
    let (mut read, mut fault) = (0, None);
    for message in bags.messages(&MessageFilter::default()) {
        let message = match message {
            Ok(message) => message,
            // Messages before the damage are shown.
            Err(error) => {
                fault = Some(error.to_string());
                break;
            }
        };
        if let Some(lane) = lanes.get_mut(&message.topic.name) {
            lane.add(axis, message.log_time.as_nanos(), message.payload.len() as u64);
        }
        read += 1;
        if !progress.note(read, metadata.message_count) {
            return Err("it was cancelled".to_owned());
        }
    }
    let ledger = bag.any_ledger().map_err(text)?;
    for account in ledger.iter().flat_map(|ledger| &ledger.topics) {
        lanes
            .entry(account.name.clone())
            .or_default()
            .add_losses(axis, account);
    }
    let markers = bag.markers().map_err(text)?;
    let left_out = lanes.len().saturating_sub(LANES_MAX);
    Ok(json!({
        "start_ns": start.to_string(),
        "duration_s": seconds(span),
        "cells": CELLS,
        "topics": lanes.iter().take(LANES_MAX).map(|(name, lane)| lane.json(name, axis)).collect::<Vec<_>>(),
        "topics_left_out": left_out,
        "markers": markers.iter().map(|marker| json!({"name": marker.name, "at_s": axis.offset(marker.time.as_nanos())})).collect::<Vec<_>>(),
        "splits": splits(bag, axis),
        "restarts": restarts(ledger.as_ref(), axis),
        "fault": fault,
    }))
}

/// The span that is drawn, in nanoseconds.
#[derive(Clone, Copy)]
struct Axis {
    start: i64,
    span: u64,
}

impl Axis {
    fn cell(self, time: i64) -> usize {
        let offset = i128::from(time) - i128::from(self.start);
        let offset = offset.clamp(0, i128::from(self.span));
        ((offset * CELLS as i128 / i128::from(self.span)) as usize).min(CELLS - 1)
    }

    /// Seconds after the beginning.
    fn offset(self, time: i64) -> f64 {
        (i128::from(time) - i128::from(self.start)) as f64 / 1e9
    }
}

fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

struct Lane {
    type_name: String,
    counts: Vec<u64>,
    messages: u64,
    bytes: u64,
    last: Option<i64>,
    /// Spacings by the power of two that they are below.
    spacings: [u64; 64],
    /// The longest ones: the spacing, and when it began.
    longest: Vec<(u64, i64)>,
    /// Lost messages by cell.
    lost: BTreeMap<usize, u64>,
    lost_by_stage: BTreeMap<LossStage, u64>,
}

impl Default for Lane {
    fn default() -> Self {
        Self {
            type_name: String::new(),
            counts: vec![0; CELLS],
            messages: 0,
            bytes: 0,
            last: None,
            spacings: [0; 64],
            longest: Vec::new(),
            lost: BTreeMap::new(),
            lost_by_stage: BTreeMap::new(),
        }
    }
}

impl Lane {
    fn add(&mut self, axis: Axis, time: i64, bytes: u64) {
        self.counts[axis.cell(time)] += 1;
        self.messages += 1;
        self.bytes += bytes;
        if let Some(last) = self.last {
            let spacing = u64::try_from(time.saturating_sub(last)).unwrap_or(0);
            self.spacings[63_usize.saturating_sub(spacing.leading_zeros() as usize)] += 1;
            self.note_long(spacing, last);
        }
        self.last = Some(self.last.map_or(time, |last| last.max(time)));
    }

    fn note_long(&mut self, spacing: u64, since: i64) {
        if spacing < GAP_MIN {
            return;
        }
        if self.longest.len() == GAPS_MAX {
            let Some(shortest) = self.longest.iter_mut().min() else {
                return;
            };
            if shortest.0 < spacing {
                *shortest = (spacing, since);
            }
            return;
        }
        self.longest.push((spacing, since));
    }

    /// Upper bound of half of all spacings, within a factor of two; `None` for few messages.
    fn usual_spacing(&self) -> Option<u64> {
        let count: u64 = self.spacings.iter().sum();
        let mut seen = 0;
        let bucket = self.spacings.iter().position(|bucket| {
            seen += bucket;
            seen * 2 >= count
        })?;
        (count >= USUAL_MESSAGES).then(|| 2 << bucket.min(61))
    }

    fn add_losses(&mut self, axis: Axis, account: &holdall_model::loss::ledger::TopicAccount) {
        for (stage, count) in &account.missing {
            if stage.is_shortfall() {
                *self.lost_by_stage.entry(*stage).or_default() += count;
            }
        }
        let publishers = account.publishers.iter();
        for interval in publishers.flat_map(|publisher| &publisher.intervals) {
            let from = interval.first_time.or(interval.last_time);
            let (Some(from), true) = (from, interval.stage.is_shortfall()) else {
                continue;
            };
            let to = interval.last_time.unwrap_or(from);
            let (first, last) = (axis.cell(from.as_nanos()), axis.cell(to.as_nanos()));
            let cells = (last.max(first) - first + 1) as u64;
            for (number, cell) in (first..=last.max(first)).enumerate() {
                let share = interval.count / cells + u64::from((number as u64) < interval.count % cells);
                if share > 0 {
                    *self.lost.entry(cell).or_default() += share;
                }
            }
        }
    }

    fn json(&self, name: &str, axis: Axis) -> Value {
        let limit = self.usual_spacing().map(|usual| usual.saturating_mul(GAP_FACTOR));
        let mut gaps: Vec<(u64, i64)> = self
            .longest
            .iter()
            .copied()
            .filter(|(spacing, _)| limit.is_some_and(|limit| *spacing > limit))
            .collect();
        gaps.sort_by_key(|(_, since)| *since);
        let gaps = gaps
            .iter()
            .map(|(spacing, since)| json!([axis.offset(*since), seconds(*spacing)]));
        let lost_by_stage: BTreeMap<&str, u64> = self
            .lost_by_stage
            .iter()
            .map(|(stage, count)| (stage.as_str(), *count))
            .collect();
        let strip = Strip::new(&self.counts);
        json!({
            "name": name,
            "type": self.type_name,
            "messages": self.messages,
            "bytes": self.bytes,
            "heights": strip.steps(100).collect::<Vec<_>>(),
            "means": strip.means.iter().map(|mean| (mean * 1000.0).round() / 1000.0).collect::<Vec<_>>(),
            "gaps": gaps.collect::<Vec<_>>(),
            "lost": self.lost.iter().map(|(cell, count)| json!([cell, count])).collect::<Vec<_>>(),
            "lost_by_stage": lost_by_stage,
        })
    }
}

/// Where the files after the first one begin.
fn splits(bag: &Bag, axis: Axis) -> Vec<Value> {
    let files = bag.metadata().files.iter().skip(1);
    let split = |file: &holdall_model::metadata::FileInformation| {
        let at = file.starting_time?;
        Some(json!({"file": file.path, "at_s": axis.offset(at.as_nanos())}))
    };
    files.filter_map(split).collect()
}

fn restarts(ledger: Option<&Ledger>, axis: Axis) -> Vec<Value> {
    let restarts = ledger.into_iter().flat_map(|ledger| &ledger.restarts);
    restarts
        .map(|restart| json!({"reason": restart.reason, "at_s": axis.offset(restart.time.as_nanos())}))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdall::{Timestamp, Writer};

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
        let drawn = draw(&Bag::open(&path).unwrap(), &Progress::default()).unwrap();
        let (pausing, steady) = (&drawn["topics"][0], &drawn["topics"][1]);
        let heights = |lane: &Value| -> Vec<u64> { serde_json::from_value(lane["heights"].clone()).unwrap() };
        assert_eq!(heights(steady), [100; CELLS]);
        assert_eq!(heights(pausing)[250], 0);
        assert_eq!(
            (&steady["messages"], &pausing["messages"]),
            (&json!(600), &json!(399))
        );
        assert_eq!(steady["gaps"], json!([]));
        assert_eq!(pausing["gaps"], json!([[1.99, 2.02]]));
        assert_eq!(drawn["duration_s"], json!(5.99));
        assert_eq!(drawn["start_ns"], json!("1700000000000000000"));
    }

    #[test]
    fn losses_are_where_the_ledger_has_them() {
        use holdall_model::loss::ledger::{Interval, PublisherAccount, TopicAccount};
        let axis = Axis {
            start: 0,
            span: CELLS as u64,
        };
        let times = [Some(Timestamp::from_nanos(10)), Some(Timestamp::from_nanos(12))];
        let publisher = PublisherAccount {
            intervals: vec![Interval::of_sequences(LossStage::Cache, 1, 7, times)],
            ..PublisherAccount::default()
        };
        let mut account = TopicAccount::default();
        account.missing = [(LossStage::Cache, 7), (LossStage::Policy, 5)].into();
        account.publishers = vec![publisher];
        let mut lane = Lane::default();
        lane.add_losses(axis, &account);
        assert_eq!(lane.lost, [(10, 3), (11, 2), (12, 2)].into());
        assert_eq!(lane.lost_by_stage, [(LossStage::Cache, 7)].into());
    }
}
