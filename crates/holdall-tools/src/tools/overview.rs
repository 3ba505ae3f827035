//! What a person wants to know of a bag first: a row for each topic, and what to do next.

use holdall_bag::reader::{Bag, BagContents, BagSummary, Condition, REPAIRED_KEY, ReadError};
use holdall_io::remote;
use holdall_model::{
    loss::{LossStage, LossSums},
    marker::Marker,
    names::{service_of_event_topic, service_of_event_type},
};
use std::time::Duration;

/// Bags up to this size, and four times as much unpacked, are read whole for the shares of their topics: a fraction of a second.
const READ_BYTES_MAX: u64 = 64 << 20;

/// A topic in a table; of a service, its events.
#[derive(Clone, Debug, PartialEq)]
pub struct TopicRow {
    /// Name of the topic, or of the service.
    pub name: String,
    /// Its type.
    pub type_name: String,
    /// Messages in the bag.
    pub messages: u64,
    /// Mean messages a second over the bag; `None` below two messages.
    pub hertz: Option<f64>,
    /// Part of all payload bytes, from 0 to 1; `None` if messages were not read.
    pub share: Option<f64>,
    /// Lost messages; `None` if no loss can be known.
    pub lost: Option<u64>,
}

/// What to do about a bag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextStep {
    /// The recording runs: ask it.
    AskRecorder,
    /// Complete it with what the recorder could not write.
    Repair,
    /// Bring the files back; a repair counts their messages as lost.
    RestoreFiles,
    /// Find the damage, and save the rest in a copy.
    CheckAndSave,
    /// A publisher went silent: see which.
    SeeSilent,
    /// Messages were lost on the way.
    LostOnTheWay,
    /// Messages were lost on the way, and the recorder did not run for a while.
    LostWhileStopped,
    /// Messages were lost because the disk or the processor was too slow.
    LostInCache,
    /// Messages were lost otherwise.
    LostElsewhere,
    /// Types are not defined: name folders with definitions.
    Define,
}

/// The account of a bag for a person: messages are read for the shares of topics if that takes no time, and the bag is on this computer.
///
/// # Errors
/// As [`BagSummary::of`].
pub fn summary_for_people(bag: &Bag) -> Result<BagSummary, ReadError> {
    let summary = BagSummary::of(bag)?;
    let is_quick =
        summary.bytes <= READ_BYTES_MAX && !remote::is_remote(bag.path()) && bag.writer().is_none();
    // What a damaged part keeps from being read is in no share; the state says that it is damaged.
    let contents = is_quick
        .then(|| BagContents::read_up_to(bag, 4 * READ_BYTES_MAX).ok())
        .flatten()
        .flatten();
    Ok(BagSummary { contents, ..summary })
}

/// A row for each topic, by name.
pub fn rows(summary: &BagSummary) -> Vec<TopicRow> {
    let bytes = summary.contents.as_ref().map(|contents| &contents.bytes_by_topic);
    let all = bytes.map_or(0, |bytes| bytes.values().sum::<u64>());
    let span = summary
        .duration_without_jumps
        .unwrap_or(summary.metadata.duration);
    let topics = summary.metadata.topics_with_message_count.iter();
    let mut rows: Vec<TopicRow> = topics
        .map(|topic| {
            let (about, messages) = (&topic.topic_metadata, topic.message_count);
            let of_topic = bytes.map(|bytes| bytes.get(&about.name).copied().unwrap_or(0));
            let lost = summary.state.lost.as_ref().map(|lost| {
                let stages = lost.get(&about.name);
                stages.map_or(0, |stages| LossSums::of(stages).lost)
            });
            let service = service_of_event_topic(&about.name, &about.type_name);
            let service_type = service_of_event_type(&about.type_name).filter(|_| service.is_some());
            TopicRow {
                name: service.unwrap_or(&about.name).to_owned(),
                type_name: service_type.unwrap_or(&about.type_name).to_owned(),
                messages,
                hertz: hertz(messages, span),
                share: of_topic
                    .filter(|_| all > 0)
                    .map(|bytes| bytes as f64 / all as f64),
                lost,
            }
        })
        .collect();
    // A topic of which everything was lost is in no file.
    let is_listed = |name: &str| {
        summary
            .metadata
            .topics_with_message_count
            .iter()
            .any(|topic| topic.topic_metadata.name == name)
    };
    for (name, stages) in summary.state.lost.iter().flatten() {
        let lost = LossSums::of(stages).lost;
        if lost > 0 && !is_listed(name) {
            rows.push(TopicRow {
                name: name.clone(),
                type_name: String::new(),
                messages: 0,
                hertz: None,
                share: None,
                lost: Some(lost),
            });
        }
    }
    rows.sort_by(|a, b| a.name.cmp(&b.name));
    rows
}

/// What to do, the most urgent first; nothing for a whole bag.
pub fn next_steps(summary: &BagSummary) -> Vec<NextStep> {
    let mut steps = Vec::new();
    let is_repaired = summary.metadata.custom_data.contains_key(REPAIRED_KEY);
    match summary.state.condition {
        Condition::Recording => steps.push(NextStep::AskRecorder),
        Condition::Damaged | Condition::Unreadable => steps.push(NextStep::CheckAndSave),
        Condition::FilesMissing if !is_repaired => steps.push(NextStep::RestoreFiles),
        Condition::CutOff if !is_repaired => steps.push(NextStep::Repair),
        Condition::EndUnknown => steps.push(NextStep::SeeSilent),
        _ => {}
    }
    let by_stage = summary.state.sums().map(|sums| sums.by_stage).unwrap_or_default();
    let worst = by_stage.iter().max_by_key(|(_, count)| **count);
    steps.extend(worst.map(|(stage, _)| match stage {
        LossStage::Transport if summary.markers.iter().any(Marker::is_absence) => NextStep::LostWhileStopped,
        LossStage::Transport => NextStep::LostOnTheWay,
        LossStage::Cache | LossStage::Compression => NextStep::LostInCache,
        _ => NextStep::LostElsewhere,
    }));
    if !summary.undefined.is_empty() {
        steps.push(NextStep::Define);
    }
    steps
}

fn hertz(messages: u64, span: Duration) -> Option<f64> {
    let seconds = span.as_secs_f64();
    (messages > 1 && seconds > 0.0).then(|| (messages - 1) as f64 / seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_that_of_the_spaces_between_messages() {
        assert_eq!(hertz(11, Duration::from_secs(1)), Some(10.0));
        assert_eq!(hertz(1, Duration::from_secs(1)), None);
        assert_eq!(hertz(5, Duration::ZERO), None);
    }
}
