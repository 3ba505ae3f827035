//! The state of a recording as ROS monitors read it: a `diagnostic_msgs/msg/DiagnosticArray` with a status each for recording, losses, silent
//! topics, disk and contract, at the levels of the recording's alarms.

use super::status::{AlarmWatchStatus, ContractStatus, RecordStatus};
use holdall_model::{
    alarm::AlarmKind,
    diagnostic::{DiagnosticStatus, Level, diagnostic_array},
    loss::LossSums,
    time::Timestamp,
    units::{counted, format_bytes},
};
use std::time::Duration;

/// The topic that monitors read, whatever the recorder's namespace.
pub(crate) const DIAGNOSTICS_TOPIC: &str = "/diagnostics";
pub(crate) const DIAGNOSTICS_TYPE: &str = "diagnostic_msgs/msg/DiagnosticArray";

/// Time between two of them.
pub(crate) const DIAGNOSTICS_INTERVAL: Duration = Duration::from_secs(1);

/// Topics that one status names.
const TOPICS_NAMED_MAX: usize = 50;

/// The serialized message.
pub(crate) fn diagnostics(node_name: &str, status: &RecordStatus, time: Timestamp) -> Vec<u8> {
    let mut all = vec![
        recording(status),
        losses(status),
        silent_topics(status),
        disk(status),
    ];
    all.extend(status.contract.as_ref().map(|of| contract(status, of)));
    diagnostic_array(node_name, &all, time)
}

fn value(key: &str, value: impl ToString) -> (String, String) {
    (key.to_owned(), value.to_string())
}

fn seconds(span: Option<Duration>) -> String {
    span.map_or_else(String::new, |span| format!("{:.1}", span.as_secs_f64()))
}

fn recording(status: &RecordStatus) -> DiagnosticStatus {
    let received: u64 = status.topics.iter().map(|topic| topic.received).sum();
    let (level, message) = if let Some(reason) = &status.must_end {
        (Level::Error, reason.clone())
    } else if status.waits_for_clock {
        (Level::Warn, "waiting for the first message on /clock".to_owned())
    } else if status.paused {
        (Level::Warn, "paused".to_owned())
    } else if received == 0 {
        (Level::Stale, "no message has come".to_owned())
    } else {
        (
            Level::Ok,
            format!("{} recorded", counted(status.recorded, "message")),
        )
    };
    DiagnosticStatus {
        name: "recording",
        level,
        message,
        values: vec![
            value("file", status.current_file.display()),
            value("elapsed_s", seconds(Some(status.elapsed))),
            value("topics", status.topics.len()),
            value("received", received),
            value("recorded", status.recorded),
            value("recorded_bytes", status.recorded_bytes),
            value("durable", status.durability.durable),
            value("cache_bytes", status.cache_bytes),
            value("cache_bytes_max", status.cache_bytes_max),
            value("not_heard", status.not_heard.len()),
        ],
    }
}

/// The first text of an active alarm of some kinds.
fn active(status: &RecordStatus, kinds: &[AlarmKind]) -> Option<String> {
    status
        .alarms
        .active_of(kinds)
        .next()
        .map(|alarm| alarm.text.clone())
}

fn losses(status: &RecordStatus) -> DiagnosticStatus {
    let sums = LossSums::of_all(status.topics.iter().map(|topic| &topic.lost));
    let ends = status.unknown_ends();
    let (level, message) = if let Some(text) = active(status, &[AlarmKind::Loss]) {
        (Level::Error, text)
    } else if sums.lost > 0 {
        (Level::Warn, format!("{} lost", counted(sums.lost, "message")))
    } else if ends.silent > 0 {
        let silent = || format!("{} silent, without a farewell", counted(ends.silent, "publisher"));
        let text = active(status, &[AlarmKind::EndUnknown]);
        (Level::Warn, text.unwrap_or_else(silent))
    } else {
        (Level::Ok, "none known".to_owned())
    };
    let mut values = vec![
        value("lost", sums.lost),
        value("silent_publishers", ends.silent),
        value("sent_before_match", sums.before_match),
    ];
    let by_stage = sums.by_stage.iter();
    values.extend(by_stage.map(|(stage, count)| value(&format!("lost_{}", stage.as_str()), count)));
    let lossy = status.topics.iter().filter_map(|topic| {
        let lost = LossSums::of(&topic.lost).lost;
        (lost > 0).then(|| value(&topic.name, lost))
    });
    values.extend(lossy.take(TOPICS_NAMED_MAX));
    DiagnosticStatus {
        name: "losses",
        level,
        message,
        values,
    }
}

fn silent_topics(status: &RecordStatus) -> DiagnosticStatus {
    let watched = &status.alarms.watched;
    let unheard: Vec<&AlarmWatchStatus> = watched.iter().filter(|one| one.age.is_none()).collect();
    let (level, message) = if let Some(text) = active(status, &[AlarmKind::Silent]) {
        (Level::Error, text)
    } else if let Some(text) = active(status, &[AlarmKind::Rate]) {
        (Level::Warn, text)
    } else if let Some(one) = unheard.first() {
        (Level::Stale, format!("{} was never heard", one.topic))
    } else if watched.is_empty() {
        (Level::Ok, "no topic is watched".to_owned())
    } else {
        (
            Level::Ok,
            format!("{} in order", counted(watched.len() as u64, "watched topic")),
        )
    };
    let kinds = [AlarmKind::Silent, AlarmKind::Rate];
    let mut values = vec![
        value("watched", watched.len()),
        value("active", status.alarms.active_of(&kinds).count()),
        value("never_heard", unheard.len()),
    ];
    let ages = watched.iter().take(TOPICS_NAMED_MAX);
    values.extend(ages.map(|one| (format!("{}: age_s", one.text), seconds(one.age))));
    DiagnosticStatus {
        name: "silent topics",
        level,
        message,
        values,
    }
}

fn contract(status: &RecordStatus, of: &ContractStatus) -> DiagnosticStatus {
    let (level, message) = match active(status, &[AlarmKind::Contract]) {
        Some(text) if of.has_failed() => (Level::Error, text),
        Some(text) => (Level::Warn, text),
        None if of.broken > 0 => (Level::Warn, of.line()),
        None => (Level::Ok, of.line()),
    };
    DiagnosticStatus {
        name: "contract",
        level,
        message,
        values: vec![
            value("broken_rules", of.broken),
            value("not_judged", of.not_judged),
        ],
    }
}

fn disk(status: &RecordStatus) -> DiagnosticStatus {
    let free = status.disk_available_bytes;
    let (level, message) = match (&status.must_end, active(status, &[AlarmKind::Disk]), free) {
        (Some(reason), _, _) => (Level::Error, reason.clone()),
        (None, Some(text), _) => (Level::Warn, text),
        (None, None, Some(bytes)) => (Level::Ok, format!("{} free", format_bytes(bytes))),
        (None, None, None) => (Level::Stale, "how much is free is not known".to_owned()),
    };
    DiagnosticStatus {
        name: "disk",
        level,
        message,
        values: vec![
            value(
                "available_bytes",
                free.map_or_else(String::new, |bytes| bytes.to_string()),
            ),
            value("full_in_s", seconds(status.disk_full_in)),
            value("write_path", status.write_path.as_str()),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::TopicStatus;
    use holdall_model::{alarm::Alarm, contract::Outcome, loss::LossStage};
    use std::collections::BTreeMap;

    fn alarm(kind: AlarmKind, text: &str) -> Alarm {
        Alarm {
            kind,
            topic: None,
            text: text.to_owned(),
            since: Timestamp::from_nanos(0),
            until: None,
        }
    }

    fn watched(age: Option<Duration>) -> AlarmWatchStatus {
        AlarmWatchStatus {
            text: "/scan silent 2s".to_owned(),
            topic: "/scan".to_owned(),
            is_topic_known: true,
            age,
        }
    }

    fn levels(status: &RecordStatus) -> [Level; 4] {
        [
            recording(status),
            losses(status),
            silent_topics(status),
            disk(status),
        ]
        .map(|one| one.level)
    }

    #[test]
    fn a_contract_has_the_level_of_its_rules() {
        let mut of = ContractStatus::default();
        let mut status = RecordStatus::default();
        let level = |status: &RecordStatus, of: &ContractStatus| contract(status, of).level;
        assert_eq!(level(&status, &of), Level::Ok);
        of.broken = 1;
        of.outcome = Outcome::Warned;
        assert_eq!(level(&status, &of), Level::Warn, "it was broken");
        status.alarms.active = vec![alarm(AlarmKind::Contract, "/scan: contract: gap")];
        assert_eq!(level(&status, &of), Level::Warn);
        of.outcome = Outcome::Failed;
        assert_eq!(level(&status, &of), Level::Error);
        assert_eq!(contract(&status, &of).message, "/scan: contract: gap");
    }

    #[test]
    fn levels_follow_the_alarms() {
        use Level::{Error, Ok, Stale, Warn};
        let mut status = RecordStatus::default();
        assert_eq!(levels(&status), [Stale, Ok, Ok, Stale]);
        status.topics = vec![TopicStatus {
            name: "/scan".to_owned(),
            received: 5,
            ..TopicStatus::default()
        }];
        status.disk_available_bytes = Some(1 << 40);
        assert_eq!(levels(&status), [Ok; 4]);
        status.alarms.watched = vec![watched(None)];
        assert_eq!(levels(&status), [Ok, Ok, Stale, Ok]);
        status.alarms.watched = vec![watched(Some(Duration::from_secs(1)))];
        assert_eq!(levels(&status), [Ok; 4]);
        status.alarms.active = vec![alarm(AlarmKind::Rate, "/scan rate < 5")];
        assert_eq!(levels(&status), [Ok, Ok, Warn, Ok]);
        status.alarms.active = vec![
            alarm(AlarmKind::Silent, "/scan silent 2s"),
            alarm(AlarmKind::Loss, "/scan: 3 messages lost (cache)"),
            alarm(AlarmKind::Disk, "the disk is full in 30 s"),
        ];
        status.topics[0].lost = BTreeMap::from([(LossStage::Cache, 3)]);
        assert_eq!(levels(&status), [Ok, Error, Error, Warn]);
        assert!(losses(&status).values.contains(&value("/scan", 3)));
        status.alarms.active.clear();
        assert_eq!(levels(&status), [Ok, Warn, Ok, Ok], "what is lost stays lost");
        status.topics[0].lost.clear();
        status.topics[0].ends.silent = 1;
        assert_eq!(levels(&status), [Ok, Warn, Ok, Ok]);
        status.paused = true;
        assert_eq!(levels(&status)[0], Warn);
        status.must_end = Some("only 3 MiB are free".to_owned());
        assert_eq!([levels(&status)[0], levels(&status)[3]], [Error; 2]);
    }
}
