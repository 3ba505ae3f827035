//! A bag's time as lanes: how many messages each topic has when, where it pauses, and where messages were lost.

use super::jobs::Progress;
use holdall::{
    Bag, BagSet,
    reader::{LossSpan, Strip},
};
use holdall_model::loss::{LossStage, ledger::Ledger};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Cells of a lane.
const CELLS: usize = 600;

/// Lanes; further topics are counted.
const LANES_MAX: usize = 500;

/// Draws the lanes of a bag, by its index where it has one; the reason when it cannot be read.
pub(super) fn draw(bag: &Bag, progress: &Progress) -> Result<Value, String> {
    let text = |error: holdall::ReadError| error.to_string();
    let metadata = bag.metadata();
    let start = metadata.starting_time.map_or(0, |start| start.as_nanos());
    let span = u64::try_from(metadata.duration.as_nanos())
        .unwrap_or(u64::MAX)
        .max(1);
    let axis = Axis { start, span };
    let mut lanes: BTreeMap<String, Lane> = BTreeMap::new();
    for topic in &metadata.topics_with_message_count {
        let lane = lanes.entry(topic.topic_metadata.name.clone()).or_default();
        lane.type_name.clone_from(&topic.topic_metadata.type_name);
        lane.messages += topic.message_count;
    }
    let mut note = |read| progress.note(read, metadata.message_count);
    let bags = BagSet::from(vec![bag.clone()]);
    let counted = bags.over_time(CELLS, u64::MAX, &mut note);
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
        "fault": counted.damage,
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
            lost: BTreeMap::new(),
            lost_by_stage: BTreeMap::new(),
        }
    }
}

impl Lane {
    fn add_losses(&mut self, axis: Axis, account: &holdall_model::loss::ledger::TopicAccount) {
        for (stage, count) in &account.missing {
            if stage.is_shortfall() {
                *self.lost_by_stage.entry(*stage).or_default() += count;
            }
        }
        for span in LossSpan::of(account) {
            let (first, last) = (axis.cell(span.from.as_nanos()), axis.cell(span.until.as_nanos()));
            let cells = (last - first + 1) as u64;
            for (number, cell) in (first..=last).enumerate() {
                let share = span.count / cells + u64::from((number as u64) < span.count % cells);
                if share > 0 {
                    *self.lost.entry(cell).or_default() += share;
                }
            }
        }
    }

    fn json(&self, name: &str, axis: Axis) -> Value {
        let strip = Strip::new(&self.counts);
        let cells = |cells: usize| cells as f64 * seconds(axis.span) / CELLS as f64;
        let gaps = strip
            .gaps
            .iter()
            .map(|gap| json!([cells(gap.start), cells(gap.len())]));
        let lost_by_stage: BTreeMap<&str, u64> = self
            .lost_by_stage
            .iter()
            .map(|(stage, count)| (stage.as_str(), *count))
            .collect();
        json!({
            "name": name,
            "type": self.type_name,
            "messages": self.messages,
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
        let gap: Vec<f64> = serde_json::from_value(pausing["gaps"][0].clone()).unwrap();
        assert!(
            (gap[0] - 1.99).abs() < 0.02 && (gap[1] - 2.02).abs() < 0.03,
            "{gap:?}"
        );
        assert_eq!(pausing["gaps"].as_array().unwrap().len(), 1);
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
