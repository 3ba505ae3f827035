//! A recording's counters as OpenMetrics text, for Prometheus and compatible programs.

use holdall_io::{disk::DiskError, fs::write_atomically_unsynced};
use holdall_model::{
    alarm::AlarmKind,
    contract::{Outcome, Severity},
    loss::LossSums,
};
use holdall_play::status::PlayStatus;
use holdall_record::status::{AlarmStatus, ContractStatus, RecordStatus, TriggerStatus};
use std::{
    collections::BTreeSet,
    fmt::{Display, Write},
    path::Path,
};

/// The counters as text, with the closing `# EOF`.
pub(crate) fn open_metrics(status: &RecordStatus, stalled: bool) -> String {
    let mut text = String::new();
    add_build(&mut text);
    let topics = || status.topics.iter();
    let by_topic = |value: fn(&holdall_record::status::TopicStatus) -> u64| {
        topics().map(move |topic| (vec![("topic", topic.name.as_str())], value(topic)))
    };
    counter(
        &mut text,
        "received_messages",
        "Messages received",
        by_topic(|topic| topic.received),
    );
    gauge(
        &mut text,
        "received_hertz",
        "Messages a second now",
        topics().map(|topic| (vec![("topic", topic.name.as_str())], topic.rate_hz)),
    );
    gauge(
        &mut text,
        "last_message_age_seconds",
        "Time since the last message",
        topics().filter_map(|topic| Some((vec![("topic", topic.name.as_str())], topic.age?.as_secs_f64()))),
    );
    counter(
        &mut text,
        "recorded_messages",
        "Messages given to the storage",
        by_topic(|topic| topic.recorded),
    );
    counter(
        &mut text,
        "durable_messages",
        "Messages that survive a power cut",
        by_topic(|topic| topic.durable),
    );
    counter(
        &mut text,
        "recorded_bytes",
        "Payload bytes given to the storage",
        by_topic(|topic| topic.recorded_bytes),
    );
    counter(
        &mut text,
        "expired_messages",
        "Recorded messages whose files a ring has removed",
        by_topic(|topic| topic.expired),
    );
    let lost = topics().flat_map(|topic| {
        let stages = LossSums::of(&topic.lost).by_stage.into_iter();
        stages.map(|(stage, count)| {
            (
                vec![("topic", topic.name.as_str()), ("stage", stage.as_str())],
                count,
            )
        })
    });
    counter(&mut text, "lost_messages", "Messages that were lost", lost);
    counter(
        &mut text,
        "sent_before_match_messages",
        "Messages that were sent before their publisher was matched; they are not lost",
        by_topic(|topic| LossSums::of(&topic.lost).before_match),
    );
    gauge(
        &mut text,
        "silent_publishers",
        "Publishers that went silent without a farewell: what they sent last is not known",
        by_topic(|topic| topic.ends.silent),
    );
    gauge(
        &mut text,
        "publishers",
        "Publishers seen",
        by_topic(|topic| topic.publishers as u64),
    );
    gauge(
        &mut text,
        "cache_bytes",
        "Bytes of waiting messages",
        one(status.cache_bytes),
    );
    gauge(
        &mut text,
        "cache_bytes_max",
        "Most bytes of waiting messages",
        one(status.cache_bytes_max),
    );
    let waiting: u64 = topics()
        .map(|topic| topic.received.saturating_sub(topic.recorded + topic.dropped()))
        .sum();
    gauge(
        &mut text,
        "waiting_messages",
        "Messages received and not yet written or lost",
        one(waiting),
    );
    if let Some(bytes) = status.disk_available_bytes {
        gauge(
            &mut text,
            "disk_available_bytes",
            "Free bytes on the bag's file system",
            one(bytes),
        );
    }
    if let Some(span) = status.disk_full_in {
        gauge(
            &mut text,
            "disk_full_in_seconds",
            "Time until the disk is full at the present rate",
            one(span.as_secs_f64()),
        );
    }
    add_alarms(&mut text, &status.alarms);
    if let Some(contract) = &status.contract {
        add_contract(&mut text, contract);
    }
    gauge(
        &mut text,
        "paused",
        "1 while the recording is paused",
        one(u8::from(status.paused)),
    );
    gauge(
        &mut text,
        "stalled",
        "1 while messages arrive but none becomes durable",
        one(u8::from(stalled)),
    );
    gauge(
        &mut text,
        "elapsed_seconds",
        "Time since the start",
        one(status.elapsed.as_secs_f64()),
    );
    if let Some(events) = &status.triggered {
        add_events(&mut text, events);
    }
    text.push_str("# EOF\n");
    text
}

/// The counters of a playback as text.
pub(crate) fn play_metrics(status: &PlayStatus) -> String {
    let mut text = String::new();
    add_build(&mut text);
    for (name, help, value) in [
        ("published_messages", "Messages published", status.published),
        (
            "published_bytes",
            "Payload bytes published",
            status.published_bytes,
        ),
        (
            "refused_messages",
            "Messages that the transport refused",
            status.refused,
        ),
        (
            "read_too_late",
            "Times that a message was not read early enough",
            status.starved,
        ),
    ] {
        counter(&mut text, &format!("play_{name}"), help, one(value));
    }
    for (name, help, value) in [
        (
            "position_seconds",
            "How far into the bag it is",
            status.elapsed().as_secs_f64(),
        ),
        (
            "duration_seconds",
            "Length of what is played",
            status.duration.as_secs_f64(),
        ),
        ("rate", "Speed", status.rate),
        (
            "paused",
            "1 while the playback is paused",
            f64::from(u8::from(status.paused)),
        ),
    ] {
        gauge(&mut text, &format!("play_{name}"), help, one(value));
    }
    text.push_str("# EOF\n");
    text
}

/// The metrics of a program that neither records nor plays.
pub fn program_metrics(recordings: usize, playbacks: usize) -> String {
    let mut text = String::new();
    add_build(&mut text);
    let kinds = [("recording", recordings), ("playback", playbacks)];
    gauge(
        &mut text,
        "running",
        "Recordings and playbacks that run on this computer",
        kinds
            .into_iter()
            .map(|(kind, count)| (vec![("kind", kind)], count)),
    );
    text.push_str("# EOF\n");
    text
}

/// Adds which build this is.
fn add_build(text: &mut String) {
    gauge(
        text,
        "build_info",
        "The version of the program, as a label",
        std::iter::once((vec![("version", env!("CARGO_PKG_VERSION"))], 1)),
    );
}

/// Adds the alarms: every kind has a value, so that the first alarm of one is a change.
fn add_alarms(text: &mut String, status: &AlarmStatus) {
    let active = |kind: &AlarmKind| status.active.iter().filter(|alarm| alarm.kind == *kind).count();
    let of_kind = |kind: &AlarmKind| vec![("kind", kind.as_str())];
    gauge(
        text,
        "alarms_active",
        "Alarms that are active",
        AlarmKind::ALL.iter().map(|kind| (of_kind(kind), active(kind))),
    );
    counter(
        text,
        "alarms",
        "Alarms that have begun",
        AlarmKind::ALL
            .iter()
            .map(|kind| (of_kind(kind), status.begun.get(kind).copied().unwrap_or(0))),
    );
    gauge(
        text,
        "alarm_topic",
        "1 for each topic and kind with an active alarm",
        topics_with_alarms(status)
            .into_iter()
            .map(|(topic, kind)| (vec![("topic", topic), ("kind", kind.as_str())], 1)),
    );
}

/// A topic may have several alarms of a kind, and a metric has each set of labels once.
fn topics_with_alarms(status: &AlarmStatus) -> BTreeSet<(&str, AlarmKind)> {
    let active = status.active.iter();
    active
        .filter_map(|alarm| Some((alarm.topic.as_deref()?, alarm.kind)))
        .collect()
}

/// Adds what a contract says until now: every outcome and every topic has a value, so that the first broken rule of one is a change.
fn add_contract(text: &mut String, status: &ContractStatus) {
    let is_it = |outcome: &Outcome| u8::from(*outcome == status.outcome);
    gauge(
        text,
        "contract_outcome",
        "1 for what the contract says until now, or at the end",
        Outcome::ALL
            .iter()
            .map(|outcome| (vec![("outcome", outcome.as_str())], is_it(outcome))),
    );
    let standings = &status.standings;
    let topics = standings
        .topics
        .iter()
        .map(|(name, standing)| (name.as_str(), standing));
    let broken = topics
        .chain([("", &standings.bag)])
        .flat_map(|(topic, standing)| {
            [
                (Severity::Fail, standing.failed.len()),
                (Severity::Warn, standing.warned.len()),
            ]
            .map(|(severity, count)| (vec![("topic", topic), ("severity", severity.as_str())], count))
        });
    gauge(
        text,
        "contract_broken_rules",
        "Rules that are broken until now, by topic; without one those about the whole recording",
        broken,
    );
    counter(
        text,
        "contract_not_judged",
        "Messages and topics that the contract did not judge",
        one(status.not_judged),
    );
}

/// Adds the metrics of a recording that waits for events.
fn add_events(text: &mut String, status: &TriggerStatus) {
    let by_trigger = status.triggers.iter();
    let by_trigger = by_trigger.map(|trigger| (vec![("trigger", trigger.text.as_str())], trigger.events));
    let requested = std::iter::once((vec![("trigger", "")], status.requested));
    counter(
        text,
        "events",
        "Events recorded around, or copied from the ring, by trigger; without one on request",
        by_trigger.chain(requested),
    );
    if status.promotes {
        let copies = &status.copies;
        let by_state = [
            ("whole", copies.whole),
            ("incomplete", copies.incomplete),
            ("failed", copies.failed),
        ];
        counter(
            text,
            "event_copies",
            "Copies around events that have ended, by state: incomplete ones lack messages, failed ones were not made",
            by_state
                .into_iter()
                .map(|(state, count)| (vec![("state", state)], count)),
        );
    }
    gauge(
        text,
        "event_waiting_bytes",
        "Memory that messages take while they wait for an event",
        one(status.waiting_bytes),
    );
}

type Labels<'a> = Vec<(&'static str, &'a str)>;

fn one<V>(value: V) -> impl Iterator<Item = (Labels<'static>, V)> {
    std::iter::once((Vec::new(), value))
}

fn counter<'a, V: Display>(
    text: &mut String,
    name: &str,
    help: &str,
    values: impl Iterator<Item = (Labels<'a>, V)>,
) {
    family(text, name, "_total", "counter", help, values);
}

fn gauge<'a, V: Display>(
    text: &mut String,
    name: &str,
    help: &str,
    values: impl Iterator<Item = (Labels<'a>, V)>,
) {
    family(text, name, "", "gauge", help, values);
}

fn family<'a, V: Display>(
    text: &mut String,
    name: &str,
    suffix: &str,
    kind: &str,
    help: &str,
    values: impl Iterator<Item = (Labels<'a>, V)>,
) {
    // Writing to a string does not fail.
    let _ = write!(
        text,
        "# TYPE holdall_{name} {kind}\n# HELP holdall_{name} {help}.\n"
    );
    for (labels, value) in values {
        let labels: Vec<String> = labels
            .iter()
            .map(|(label, of)| format!("{label}=\"{}\"", escaped(of)))
            .collect();
        let labels = if labels.is_empty() {
            String::new()
        } else {
            format!("{{{}}}", labels.join(","))
        };
        let _ = writeln!(text, "holdall_{name}{suffix}{labels} {value}");
    }
}

fn escaped(label: &str) -> String {
    label
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

/// Replaces a file so that readers see either the old text or the new one; a link is replaced, not followed.
///
/// # Errors
/// The file system's errors.
pub(crate) fn replace_file(path: &Path, text: &str) -> Result<(), DiskError> {
    write_atomically_unsynced(path, text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdall_model::{alarm::Alarm, contract::Standing, loss::LossStage, time::Timestamp};
    use holdall_record::status::{EventCopies, TopicStatus, TriggerCount};
    use std::{collections::BTreeMap, fs};

    #[test]
    fn each_topic_and_stage_has_its_line() {
        let status = RecordStatus {
            alarms: AlarmStatus {
                begun: BTreeMap::from([(AlarmKind::Silent, 4)]),
                active: vec![alarm("/a\"b"), alarm("/a\"b")],
                ..AlarmStatus::default()
            },
            topics: vec![TopicStatus {
                name: "/a\"b".to_owned(),
                rate_hz: 2.5,
                age: Some(std::time::Duration::from_millis(1500)),
                received: 10,
                recorded: 6,
                expired: 5,
                lost: BTreeMap::from([(LossStage::Cache, 3), (LossStage::Transport, 9)]),
                ..TopicStatus::default()
            }],
            ..RecordStatus::default()
        };
        let text = open_metrics(&status, true);
        for line in [
            "# TYPE holdall_lost_messages counter",
            "holdall_received_messages_total{topic=\"/a\\\"b\"} 10",
            "holdall_lost_messages_total{topic=\"/a\\\"b\",stage=\"cache\"} 3",
            "holdall_expired_messages_total{topic=\"/a\\\"b\"} 5",
            "holdall_waiting_messages 1",
            "holdall_received_hertz{topic=\"/a\\\"b\"} 2.5",
            "holdall_last_message_age_seconds{topic=\"/a\\\"b\"} 1.5",
            "holdall_alarms_active{kind=\"silent\"} 2",
            "holdall_alarms_active{kind=\"loss\"} 0",
            "holdall_alarms_total{kind=\"silent\"} 4",
            "holdall_alarm_topic{topic=\"/a\\\"b\",kind=\"silent\"} 1",
            concat!(
                "holdall_build_info{version=\"",
                env!("CARGO_PKG_VERSION"),
                "\"} 1"
            ),
            "holdall_stalled 1",
        ] {
            assert!(
                text.lines().any(|found| found == line),
                "{line} is not in\n{text}"
            );
        }
        assert!(text.ends_with("# EOF\n"));
        let lines: Vec<&str> = text.lines().collect();
        let once: BTreeSet<&&str> = lines.iter().collect();
        assert_eq!(lines.len(), once.len(), "{text}");
    }

    fn alarm(topic: &str) -> Alarm {
        Alarm {
            kind: AlarmKind::Silent,
            topic: Some(topic.to_owned()),
            text: String::new(),
            since: Timestamp::from_nanos(0),
            until: None,
        }
    }

    #[test]
    fn a_playback_and_a_program_have_metrics_too() {
        let status = PlayStatus {
            published: 7,
            rate: 0.5,
            ..PlayStatus::default()
        };
        let text = play_metrics(&status);
        for line in ["holdall_play_published_messages_total 7", "holdall_play_rate 0.5"] {
            assert!(text.lines().any(|found| found == line), "{text}");
        }
        let text = program_metrics(2, 0);
        assert!(text.contains("holdall_running{kind=\"recording\"} 2\n"), "{text}");
        assert!(text.contains("holdall_build_info{") && text.ends_with("# EOF\n"));
    }

    #[test]
    fn events_are_counted_by_trigger_where_they_are_waited_for() {
        assert!(!open_metrics(&RecordStatus::default(), false).contains("holdall_events"));
        let trigger = TriggerCount {
            text: "/v: x == \"a\"".to_owned(),
            events: 3,
            ..TriggerCount::default()
        };
        let status = RecordStatus {
            triggered: Some(TriggerStatus {
                triggers: vec![trigger],
                promotes: true,
                copies: EventCopies {
                    failed: 1,
                    ..EventCopies::default()
                },
                requested: 2,
                waiting_bytes: 5,
                ..TriggerStatus::default()
            }),
            ..RecordStatus::default()
        };
        let text = open_metrics(&status, false);
        for line in [
            "holdall_events_total{trigger=\"/v: x == \\\"a\\\"\"} 3",
            "holdall_events_total{trigger=\"\"} 2",
            "holdall_event_copies_total{state=\"whole\"} 0",
            "holdall_event_copies_total{state=\"failed\"} 1",
            "holdall_event_waiting_bytes 5",
        ] {
            assert!(
                text.lines().any(|found| found == line),
                "{line} is not in\n{text}"
            );
        }
    }

    #[test]
    fn a_contract_has_its_outcome_and_broken_rules_by_topic() {
        assert!(!open_metrics(&RecordStatus::default(), false).contains("holdall_contract"));
        let mut contract = ContractStatus {
            outcome: Outcome::Failed,
            not_judged: 3,
            ..ContractStatus::default()
        };
        let standing = Standing {
            outcome: Outcome::Failed,
            failed: vec!["gap".to_owned(), "rate".to_owned()],
            ..Standing::default()
        };
        contract.standings.topics.insert("/scan".to_owned(), standing);
        let status = RecordStatus {
            contract: Some(contract),
            ..RecordStatus::default()
        };
        let text = open_metrics(&status, false);
        for line in [
            "holdall_contract_outcome{outcome=\"failed\"} 1",
            "holdall_contract_outcome{outcome=\"passed\"} 0",
            "holdall_contract_broken_rules{topic=\"/scan\",severity=\"fail\"} 2",
            "holdall_contract_broken_rules{topic=\"/scan\",severity=\"warn\"} 0",
            "holdall_contract_broken_rules{topic=\"\",severity=\"fail\"} 0",
            "holdall_contract_not_judged_total 3",
        ] {
            assert!(
                text.lines().any(|found| found == line),
                "{line} is not in\n{text}"
            );
        }
    }

    #[test]
    fn a_replaced_file_leaves_nothing_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("metrics.txt");
        for text in ["one", "two"] {
            replace_file(&path, text).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
