//! Report of a recording at its end: the events that it waited for, and its alarms.

use super::paint::Paint;
use crate::units::plural;
use holdall::record::status::{AlarmStatus, TriggerStatus};
use holdall_model::text::Outside;

/// Copies around events that are named at the end; JSON has more.
const COPIES_NAMED_MAX: usize = 8;

/// The copies that do not have all that was asked for.
fn copies(status: &TriggerStatus, paint: Paint) -> Vec<String> {
    let named = status.copies.faults.iter().take(COPIES_NAMED_MAX);
    let mut lines: Vec<String> = named
        .map(|fault| Outside(&fault.to_string()).to_string())
        .collect();
    let more = status.copies.not_whole() - lines.len() as u64;
    lines.extend((more > 0).then(|| format!("and {} of copies", plural(more, "more fault"))));
    lines.iter().map(|line| paint.bad(line)).collect()
}

/// How many events each trigger had, which copies around them are not whole, and which triggers could not fire.
pub fn summary(status: &TriggerStatus, paint: Paint) -> Vec<String> {
    let mut counts: Vec<String> = status
        .triggers
        .iter()
        .filter(|trigger| trigger.events > 0)
        .map(|trigger| format!("{} {}", Outside(&trigger.text), trigger.events))
        .collect();
    if status.requested > 0 {
        counts.push(format!("on request {}", status.requested));
    }
    let of = if counts.is_empty() {
        String::new()
    } else {
        format!(": {}", counts.join(", "))
    };
    let what = if status.promotes {
        " to copy from the ring"
    } else {
        ""
    };
    let mut lines = vec![format!("{}{what}{of}", plural(status.events(), "event"))];
    lines.extend(copies(status, paint));
    for trigger in &status.triggers {
        let text = Outside(&trigger.text);
        if let Some(fault) = &trigger.fault {
            lines.push(paint.attention(&format!("trigger {text} could not fire: {}", Outside(fault))));
        } else if !trigger.is_topic_known {
            lines.push(paint.attention(&format!(
                "trigger {text} could not fire: its topic was not recorded"
            )));
        }
    }
    if let Some(kept) = status.shortest_kept {
        lines.push(paint.attention(&format!(
            "memory held only {:.1} s before an event at times; --max-cache-size makes it larger",
            kept.as_secs_f64()
        )));
    }
    lines
}

/// Alarms that are named at the end; JSON has all that are active.
const ALARMS_NAMED_MAX: usize = 8;

/// How many alarms there were of each kind, and which were active at the end.
pub fn alarms(status: &AlarmStatus) -> Option<String> {
    let counts = status.begun.iter();
    let counts: Vec<String> = counts
        .map(|(kind, count)| format!("{} {count}", kind.as_str()))
        .collect();
    let named = status.active.iter().take(ALARMS_NAMED_MAX);
    let mut named: Vec<String> = named.map(|alarm| Outside(&alarm.text).to_string()).collect();
    let more = status.active.len() - named.len();
    if more > 0 {
        named.push(format!("and {more} more"));
    }
    let active = if named.is_empty() {
        String::new()
    } else {
        format!("; active at the end: {}", named.join(", "))
    };
    let sum = plural(status.count(), "alarm");
    (!counts.is_empty()).then(|| format!("{sum}: {}{active}", counts.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdall_model::{
        alarm::{Alarm, AlarmKind},
        time::Timestamp,
    };
    use std::collections::BTreeMap;

    #[test]
    fn alarms_are_counted_by_kind_and_the_active_ones_named() {
        assert_eq!(alarms(&AlarmStatus::default()), None);
        let alarm = |number: usize| Alarm {
            kind: AlarmKind::Silent,
            topic: None,
            text: format!("/t{number} silent 2s"),
            since: Timestamp::from_nanos(0),
            until: None,
        };
        let mut status = AlarmStatus {
            begun: BTreeMap::from([(AlarmKind::Loss, 1), (AlarmKind::Silent, 10)]),
            ..AlarmStatus::default()
        };
        assert_eq!(alarms(&status).unwrap(), "11 alarms: silent 10, loss 1");
        status.active = vec![alarm(1)];
        let wanted = "11 alarms: silent 10, loss 1; active at the end: /t1 silent 2s";
        assert_eq!(alarms(&status).unwrap(), wanted);
        status.active = (0..10).map(alarm).collect();
        assert!(alarms(&status).unwrap().ends_with("/t7 silent 2s, and 2 more"));
    }

    use holdall::record::status::{CopyFault, TriggerCount};
    use holdall_model::trigger::Window;
    use std::time::Duration;

    #[test]
    fn events_are_counted_by_trigger_and_faults_are_named() {
        let count = |text: &str, events, is_topic_known, fault: Option<&str>| TriggerCount {
            text: text.to_owned(),
            events,
            is_topic_known,
            fault: fault.map(str::to_owned),
        };
        let status = TriggerStatus {
            triggers: vec![
                count("/battery: v < 11", 2, true, None),
                count("/x: y > 1", 0, true, Some("a/msg/A has no field y")),
                count("/z\u{1b} silent 1s", 0, false, None),
            ],
            requested: 1,
            shortest_kept: Some(Duration::from_millis(2500)),
            ..TriggerStatus::default()
        };
        assert_eq!(
            summary(&status, Paint::Plain),
            [
                "3 events: /battery: v < 11 2, on request 1",
                "trigger /x: y > 1 could not fire: a/msg/A has no field y",
                "trigger /z\\u001b silent 1s could not fire: its topic was not recorded",
                "memory held only 2.5 s before an event at times; --max-cache-size makes it larger",
            ]
        );
        assert_eq!(summary(&TriggerStatus::default(), Paint::Plain), ["0 events"]);
        let mut promotes = TriggerStatus {
            promotes: true,
            ..TriggerStatus::default()
        };
        assert_eq!(
            summary(&promotes, Paint::Plain),
            ["0 events to copy from the ring"]
        );
        for number in 0..10 {
            promotes.copies.add(Some(CopyFault {
                output: Some(format!("ring_event_{number}")),
                event: "contract\u{1b}".to_owned(),
                span: Window {
                    start: Timestamp::from_nanos(0),
                    until: Timestamp::from_nanos(1),
                },
                is_made: number == 1,
                reason: "why".to_owned(),
            }));
        }
        let lines = summary(&promotes, Paint::Plain);
        assert_eq!(lines.len(), 1 + COPIES_NAMED_MAX + 1);
        assert_eq!(
            lines[1..3],
            [
                "no copy ring_event_0 (contract\\u001b): why",
                "incomplete copy ring_event_1 (contract\\u001b): why",
            ]
        );
        assert_eq!(lines[9], "and 2 more faults of copies");
    }
}
