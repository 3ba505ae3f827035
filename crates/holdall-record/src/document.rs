//! A recording's counters for programs: [`RecordStatus`] while it runs, [`RecordReport`] at its end, both with the same sums.

use super::status::{
    AlarmStatus, ContractStatus, DurabilityStatus, RecordReport, RecordStatus, TopicStatus, TriggerStatus,
    UndefinedTopic,
};
use holdall_model::{
    loss::{LossStage, LossSums, UnknownEnds},
    network::Network,
    rates::rounded,
    time::Timestamp,
    time_line::ClockJump,
    unheard::NotHeard,
};
use serde::{Serialize, Serializer};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

/// What both documents have.
#[derive(Serialize)]
struct Sums<'a> {
    elapsed_s: f64,
    lost: u64,
    lost_by_stage: BTreeMap<LossStage, u64>,
    left_out: u64,
    expired: u64,
    waits_for_clock: bool,
    clock_jumps: &'a [ClockJump],
    clock_jump_count: u64,
    sent_before_match: u64,
    end_unknown: Ends,
    disk_mode: &'static str,
    disk_mode_reason: Option<&'a str>,
    services_without_introspection: &'a BTreeSet<String>,
    not_heard: &'a BTreeSet<NotHeard>,
    networks: &'a [Network],
    events: Option<&'a TriggerStatus>,
    alarms: &'a AlarmStatus,
    contract: Option<&'a ContractStatus>,
}

impl<'a> Sums<'a> {
    fn of(status: &'a RecordStatus) -> Self {
        let sums = LossSums::of_all(status.topics.iter().map(|topic| &topic.lost));
        Self {
            elapsed_s: status.elapsed.as_secs_f64(),
            lost: sums.lost,
            lost_by_stage: sums.by_stage,
            left_out: status.left_out(),
            expired: status.expired(),
            waits_for_clock: status.waits_for_clock,
            clock_jumps: &status.clock_jumps.named,
            clock_jump_count: status.clock_jumps.count,
            sent_before_match: sums.before_match,
            end_unknown: Ends::of(&status.unknown_ends()),
            disk_mode: status.write_path.as_str(),
            disk_mode_reason: status.write_path.reason(),
            services_without_introspection: &status.unheard_services,
            not_heard: &status.not_heard,
            networks: &status.networks,
            events: status.triggered.as_ref(),
            alarms: &status.alarms,
            contract: status.contract.as_ref(),
        }
    }
}

/// What both documents have of a topic.
#[derive(Serialize)]
struct TopicSums<'a> {
    r#type: &'a str,
    publishers: usize,
    received: u64,
    bytes: u64,
    left_out: u64,
    expired: u64,
    sent_before_match: u64,
    end_unknown: Ends,
}

impl<'a> TopicSums<'a> {
    fn of(topic: &'a TopicStatus, sums: &LossSums) -> Self {
        Self {
            r#type: &topic.type_name,
            publishers: topic.publishers,
            received: topic.received,
            bytes: topic.recorded_bytes,
            left_out: topic.left_out,
            expired: topic.expired,
            sent_before_match: sums.before_match,
            end_unknown: Ends::of(&topic.ends),
        }
    }
}

/// Publishers whose last messages are unknown.
#[derive(Serialize)]
struct Ends {
    publishers: u64,
    silent: u64,
    silent_reliable: u64,
    silent_since_ns: Option<Timestamp>,
}

impl Ends {
    fn of(ends: &UnknownEnds) -> Self {
        Self {
            publishers: ends.publishers,
            silent: ends.silent,
            silent_reliable: ends.silent_reliable,
            silent_since_ns: ends.silent_since,
        }
    }
}

/// The recording's state and its account so far.
impl Serialize for RecordStatus {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Document<'a> {
            #[serde(flatten)]
            sums: Sums<'a>,
            paused: bool,
            recorded: u64,
            recorded_bytes: u64,
            durable: u64,
            durability: &'a DurabilityStatus,
            cache_bytes: usize,
            cache_bytes_max: usize,
            disk_available_bytes: Option<u64>,
            disk_full_in_s: Option<f64>,
            file: String,
            topics: BTreeMap<&'a str, Topic<'a>>,
        }
        #[derive(Serialize)]
        struct Topic<'a> {
            #[serde(flatten)]
            sums: TopicSums<'a>,
            hz: f64,
            age_s: Option<f64>,
            recorded: u64,
            durable: u64,
            lost: BTreeMap<LossStage, u64>,
        }
        let document = Document {
            sums: Sums::of(self),
            paused: self.paused,
            recorded: self.recorded,
            recorded_bytes: self.recorded_bytes,
            durable: self.durability.durable,
            durability: &self.durability,
            cache_bytes: self.cache_bytes,
            cache_bytes_max: self.cache_bytes_max,
            disk_available_bytes: self.disk_available_bytes,
            disk_full_in_s: self.disk_full_in.map(|span| span.as_secs_f64()),
            file: text_of(&self.current_file),
            topics: by_name(&self.topics, |topic| {
                let sums = LossSums::of(&topic.lost);
                Topic {
                    sums: TopicSums::of(topic, &sums),
                    hz: rounded(topic.rate_hz),
                    age_s: topic.age.map(|age| age.as_secs_f64()),
                    recorded: topic.recorded,
                    durable: topic.durable,
                    lost: sums.by_stage,
                }
            }),
        };
        document.serialize(serializer)
    }
}

/// The report.
impl Serialize for RecordReport {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Document<'a> {
            #[serde(flatten)]
            sums: Sums<'a>,
            bag: String,
            files: Vec<String>,
            message_count: u64,
            bytes: u64,
            durability: Option<Durability<'a>>,
            topics: BTreeMap<&'a str, Topic<'a>>,
            failure: Option<&'a str>,
            ended_by: Option<&'static str>,
            audit_faults: &'a [String],
            undefined_topics: &'a [UndefinedTopic],
        }
        #[derive(Serialize)]
        struct Durability<'a> {
            #[serde(flatten)]
            status: &'a DurabilityStatus,
            max_loss_window_s: f64,
        }
        #[derive(Serialize)]
        struct Topic<'a> {
            #[serde(flatten)]
            sums: TopicSums<'a>,
            message_count: u64,
            lost: u64,
            lost_by_stage: BTreeMap<LossStage, u64>,
            loss_unknown: bool,
            ends_unknown: u64,
        }
        let status = &self.status;
        let document = Document {
            sums: Sums::of(status),
            bag: text_of(&self.bag),
            files: self.files.iter().map(|file| text_of(file)).collect(),
            message_count: status.recorded,
            bytes: status.recorded_bytes,
            durability: status.durability.window.map(|window| Durability {
                status: &status.durability,
                max_loss_window_s: window.as_secs_f64(),
            }),
            topics: by_name(&status.topics, |topic| {
                let sums = LossSums::of(&topic.lost);
                Topic {
                    sums: TopicSums::of(topic, &sums),
                    message_count: topic.recorded,
                    lost: sums.lost,
                    lost_by_stage: sums.by_stage,
                    loss_unknown: topic.loss_unknown,
                    ends_unknown: topic.ends.publishers,
                }
            }),
            failure: self.failure.as_deref(),
            ended_by: self.ended_by.map(super::limits::ReachedLimit::name),
            audit_faults: &self.audit_faults,
            undefined_topics: &self.undefined,
        };
        document.serialize(serializer)
    }
}

fn by_name<'a, T>(topics: &'a [TopicStatus], row: impl Fn(&'a TopicStatus) -> T) -> BTreeMap<&'a str, T> {
    topics
        .iter()
        .map(|topic| (topic.name.as_str(), row(topic)))
        .collect()
}

/// A path that is not UTF-8 is text with replacements.
fn text_of(path: &Path) -> String {
    path.display().to_string()
}
