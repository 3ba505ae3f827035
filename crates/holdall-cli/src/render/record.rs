//! A recording on the screen: the live lines, the sentences at its end, the table of topics.

use super::{
    fit::{self, Column},
    hint::not_heard_hint,
    line::{Line, bar},
    paint::Paint,
    rate::Rates,
};
use crate::units::{format_byte_rate, format_bytes, format_count, format_elapsed, format_span, plural};
use holdall::record::status::{RecordReport, RecordStatus, TopicStatus};
use holdall_model::{
    loss::{LossStage, LossSums, UnknownEnds},
    rates::FallenTopic,
    text::{Outside, OutsidePath, first_of, one_line},
    time::Timestamp,
};
use std::collections::BTreeMap;

/// The longest cache bar in cells.
const BAR_CELLS_MAX: usize = 22;

/// The live lines, for a terminal of this width; alarms, and topics that have fallen below their usual rate, get separate ones.
pub fn live(
    status: &RecordStatus,
    rates: Rates,
    fallen: &[FallenTopic],
    hint: &str,
    paint: Paint,
    columns: usize,
) -> Vec<String> {
    let is_waiting = status
        .triggered
        .as_ref()
        .is_some_and(|events| !events.is_recording && !events.promotes);
    let state = match (status.paused, is_waiting) {
        (true, _) => paint.attention("paused   "),
        _ if status.waits_for_clock => paint.attention("no /clock"),
        (false, true) => paint.faint("waiting  "),
        (false, false) => paint.good("recording"),
    };
    let file = status
        .current_file
        .file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default();
    let messages_per_s = rates.messages_per_s.round() as u64;
    let head = Line::new(columns)
        .part(
            1,
            &format!("{state} {}", paint.strong(&format_elapsed(status.elapsed))),
        )
        .part(1, &plural(status.recorded, "message"))
        .part(3, &format!("{}/s", format_count(messages_per_s)))
        .part(2, &format_byte_rate(rates.bytes_per_s))
        .part(4, &one_line(&file))
        .text();
    let mut lines = vec![
        head,
        cache_line(status, paint, columns),
        lost_line(status, paint, columns),
    ];
    lines.extend(alarm_line(status, paint, columns));
    lines.extend(slow_line(fallen, paint, columns));
    lines.push(paint.faint(hint));
    lines
}

/// What a line names of several; it counts the others.
const LISTED_MAX: usize = 4;

/// `slow      /lidar: 20 → 3 Hz  /imu: 100 → 0 Hz  and 2 more`; absent if no topic has fallen below its usual rate.
fn slow_line(fallen: &[FallenTopic], paint: Paint, columns: usize) -> Option<String> {
    // A name of any length must not push the rates out of the line.
    let room = columns.saturating_sub("slow      : 1000 → 1000 Hz  and 999 more".len());
    let topics = fallen.iter().map(|one| {
        let name = fit::end_of(&Outside(&one.name).to_string(), room.max(8));
        FallenTopic { name, ..one.clone() }.to_string()
    });
    list_line("slow", topics, paint, columns)
}

/// `alarms    /scan silent 2s  /imu rate < 50  and 2 more`; absent if none is active.
fn alarm_line(status: &RecordStatus, paint: Paint, columns: usize) -> Option<String> {
    let room = columns.saturating_sub("alarms      and 999 more".len());
    let active = status.alarms.active.iter();
    let texts = active.map(|alarm| fit::end_of(&Outside(&alarm.text).to_string(), room.max(8)));
    list_line("alarms", texts, paint, columns)
}

/// As many of these texts as there is room for, and the number of the others.
fn list_line(
    label: &str,
    mut texts: impl ExactSizeIterator<Item = String>,
    paint: Paint,
    columns: usize,
) -> Option<String> {
    let count = texts.len();
    let first = texts.next()?;
    let mut line = Line::new(columns).part(1, &format!("{label:<10}{}", paint.attention(&first)));
    let mut shown = 1;
    for (rank, text) in (3..).zip(texts.take(LISTED_MAX - 1)) {
        if line.width() + text.chars().count() + " and 999 more".len() + 4 > columns {
            break;
        }
        line = line.part(rank, &paint.attention(&text));
        shown += 1;
    }
    let more = count - shown;
    let more = (more > 0).then(|| paint.attention(&format!("and {more} more")));
    Some(line.part(2, more.as_deref().unwrap_or_default()).text())
}

/// `cache     ▕███░░░▏   12 %  12.0 MiB of 100.0 MiB  disk 80.0 GiB free`; the bar is red when it is nearly full.
fn cache_line(status: &RecordStatus, paint: Paint, columns: usize) -> String {
    let (held, max) = (status.cache_bytes as u64, status.cache_bytes_max as u64);
    let share = if max == 0 {
        0.0
    } else {
        (held as f64 / max as f64).clamp(0.0, 1.0)
    };
    let disk = status
        .disk_available_bytes
        .map(|bytes| format!("disk {} free", format_bytes(bytes)));
    Line::new(columns)
        .part(1, "cache   ")
        .stretch(BAR_CELLS_MAX, |cells| {
            let bar = bar(share, cells);
            match share {
                s if s >= 0.9 => paint.bad(&bar),
                s if s >= 0.5 => paint.attention(&bar),
                _ => bar,
            }
        })
        .part(1, &format!("{:.0} %", share * 100.0))
        .part(3, &format!("{} of {}", format_bytes(held), format_bytes(max)))
        .part(2, disk.as_deref().unwrap_or_default())
        .text()
}

fn sums(status: &RecordStatus) -> LossSums {
    LossSums::of_all(status.topics.iter().map(|topic| &topic.lost))
}

/// `lost      12 messages: cache 12  (30 sent while not matched)`.
fn lost_line(status: &RecordStatus, paint: Paint, columns: usize) -> String {
    let sums = sums(status);
    let lost = match sums.lost {
        0 if !status.unknown_ends().is_none() => paint.attention(UnknownEnds::NONE_KNOWN),
        0 => paint.good("none"),
        count => paint.bad(&plural(count, "message")),
    };
    let silent = match status.unknown_ends().silent {
        0 => String::new(),
        count => paint.bad(&format!(
            "{}: {} silent",
            UnknownEnds::SILENT,
            plural(count, "publisher")
        )),
    };
    let before = match sums.before_match {
        0 => String::new(),
        count => paint.faint(&format!("({} {})", format_count(count), LossSums::BEFORE_MATCH)),
    };
    Line::new(columns)
        .part(1, &format!("lost      {lost}"))
        .part(2, &silent)
        .part(2, &list_stages(&sums.by_stage))
        .part(3, &before)
        .text()
}

fn list_stages(stages: &BTreeMap<LossStage, u64>) -> String {
    let each: Vec<String> = stages
        .iter()
        .map(|(stage, count)| format!("{} {}", stage.as_str(), format_count(*count)))
        .collect();
    each.join(", ")
}

/// The sentences at the end: what was recorded, and what was lost.
pub fn summary(report: &RecordReport, paint: Paint) -> Vec<String> {
    let status = &report.status;
    let with_messages = status.topics.iter().filter(|topic| topic.recorded > 0).count() as u64;
    let recorded = format!(
        "recorded {} ({}) of {} in {} into {} ({})",
        plural(status.recorded, "message"),
        format_bytes(status.recorded_bytes),
        plural(with_messages, "topic"),
        format_span(status.elapsed),
        OutsidePath(&report.bag),
        plural(report.files.len() as u64, "file"),
    );
    let mut lines = vec![recorded];
    lines.extend(lost(status, paint));
    lines.extend(left_out(status, paint));
    lines.extend(clock_jumps(status, paint));
    lines.extend(window_missed(status).map(|line| paint.attention(&line)));
    lines.extend(
        status
            .triggered
            .iter()
            .flat_map(|events| super::events::summary(events, paint)),
    );
    lines.extend(super::events::alarms(&status.alarms).map(|line| paint.attention(&line)));
    lines.extend(not_heard(status, paint));
    lines.extend(undefined(report).map(|line| paint.attention(&line)));
    lines.extend(
        report
            .audit_faults
            .iter()
            .map(|fault| paint.bad(&format!("the account does not add up: {}", Outside(fault)))),
    );
    if let Some(limit) = &report.ended_by {
        lines.push(format!("ended by itself: {limit}"));
    }
    if let Some(failure) = &report.failure {
        lines.push(paint.bad(&format!("ended early: {}", Outside(failure))));
    }
    lines
}

/// Received messages that are not in the bag on request, and the reason if nothing could be recorded.
fn left_out(status: &RecordStatus, paint: Paint) -> Vec<String> {
    let mut lines = Vec::new();
    let count = status.left_out();
    if count > 0 {
        let topics = topics_with(status, |topic| Some(topic.left_out));
        lines.push(format!(
            "{}: {} ({topics})",
            LossSums::LEFT_OUT,
            plural(count, "message")
        ));
    }
    if status.waits_for_clock {
        lines.push(
            paint.bad(
                "no message came on /clock: with --use-sim-time nothing is recorded before the first one",
            ),
        );
    }
    lines
}

/// Jumps of the clock that are listed at the end; JSON has more.
const JUMPS_LISTED_MAX: usize = 8;

/// Where the clock that stamps messages jumped.
fn clock_jumps(status: &RecordStatus, paint: Paint) -> Vec<String> {
    let jumps = &status.clock_jumps;
    let listed = jumps.named.iter().take(JUMPS_LISTED_MAX);
    let mut lines: Vec<String> = listed.map(|jump| paint.attention(&jump.to_string())).collect();
    let more = jumps.count.saturating_sub(lines.len() as u64);
    if more > 0 {
        lines.push(paint.attention(&format!("and {} more of the clock", plural(more, "jump"))));
    }
    lines
}

/// Nodes and publishers without a message that are listed at the end; JSON has all.
const NOT_HEARD_LISTED_MAX: usize = 8;

/// Live nodes and publishers that could not be received.
fn not_heard(status: &RecordStatus, paint: Paint) -> Vec<String> {
    let all = &status.not_heard;
    if all.is_empty() {
        return Vec::new();
    }
    let head = format!("not heard: {}", plural(all.len() as u64, "source"));
    let listed = all.iter().take(NOT_HEARD_LISTED_MAX);
    let listed = listed.map(|one| format!("  {}", Outside(&one.to_string())));
    let more = all.len().saturating_sub(NOT_HEARD_LISTED_MAX);
    let more = (more > 0).then(|| format!("  and {more} more"));
    let hint = all.iter().find_map(|one| not_heard_hint(one.kind));
    let hint = hint.map(|hint| format!("  {hint}"));
    std::iter::once(paint.attention(&head))
        .chain(listed)
        .chain(more)
        .chain(hint)
        .collect()
}

/// Topics without a definition that are listed at the end; JSON has all.
const UNDEFINED_LISTED_MAX: usize = 8;

/// Topics whose messages the bag alone cannot decode.
fn undefined(report: &RecordReport) -> Option<String> {
    let topics = report.undefined.iter();
    let names = topics.map(|topic| format!("{} [{}]", topic.name, topic.type_name));
    let list = first_of(names, UNDEFINED_LISTED_MAX);
    (!list.is_empty()).then(|| format!("recorded without a message definition: {list}"))
}

/// A warning when a power cut could have taken more than was promised.
fn window_missed(status: &RecordStatus) -> Option<String> {
    let durability = &status.durability;
    let (window, achieved) = (durability.window?, durability.achieved?);
    (durability.missed > 0).then(|| {
        format!(
            "--max-loss-window {:.3} s was not kept, {}: at worst a power cut would have taken {:.3} s",
            window.as_secs_f64(),
            plural(durability.missed, "time"),
            achieved.as_secs_f64(),
        )
    })
}

/// `lost: none`, or how many, where, and on which topics; then messages sent while not matched.
fn lost(status: &RecordStatus, paint: Paint) -> Vec<String> {
    let sums = sums(status);
    let mut lines = vec![match sums.lost {
        0 if !status.unknown_ends().is_none() => format!("lost: {}", UnknownEnds::NONE_KNOWN),
        0 => format!("lost: {}", paint.good("none")),
        count => paint.bad(&format!("lost: {}", plural(count, "message"))),
    }];
    for (stage, total) in sums.by_stage {
        let topics = topics_with(status, |topic| topic.lost.get(&stage).copied());
        lines.push(format!("  {} {}: {topics}", stage.as_str(), format_count(total)));
    }
    if sums.before_match > 0 {
        let topics = topics_with(status, |topic| topic.lost.get(&LossStage::Head).copied());
        lines.push(format!(
            "{}: {} ({topics}), no loss",
            LossSums::BEFORE_MATCH,
            plural(sums.before_match, "message")
        ));
    }
    let unknown: Vec<&str> = status
        .topics
        .iter()
        .filter(|topic| topic.loss_unknown)
        .map(|topic| topic.name.as_str())
        .collect();
    if !unknown.is_empty() {
        lines.push(paint.attention(&format!(
            "losses cannot be known for {}, whose publishers send no sequence numbers",
            Outside(&unknown.join(", "))
        )));
    }
    let ends = UnknownEnds::lines(
        status.topics.iter().map(|topic| (&*topic.name, topic.ends)),
        time_of_day,
    );
    lines.extend(ends.silent.map(|line| paint.bad(&line)));
    lines.extend(ends.unconfirmed);
    lines
}

/// A time of this day or any other, on the user's clock.
fn time_of_day(time: Timestamp) -> String {
    let zoned = jiff::Timestamp::from_nanosecond(time.as_nanos().into());
    let local = zoned.map(|time| time.to_zoned(jiff::tz::TimeZone::system()));
    local.map_or_else(
        |_| format!("{:.3} s", time.as_nanos() as f64 / 1e9),
        |local| local.strftime("%H:%M:%S").to_string(),
    )
}

/// `/camera 12, /imu 3`, the topic with the most first.
fn topics_with(status: &RecordStatus, count: impl Fn(&TopicStatus) -> Option<u64>) -> String {
    let mut topics: Vec<(&str, u64)> = status
        .topics
        .iter()
        .filter_map(|topic| count(topic).map(|count| (topic.name.as_str(), count)))
        .filter(|(_, count)| *count > 0)
        .collect();
    topics.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    list_topics(&topics)
}

/// The topics with most losses by name, the others as a number.
fn list_topics(topics: &[(&str, u64)]) -> String {
    const SHOWN: usize = 8;
    let mut each: Vec<String> = topics
        .iter()
        .take(SHOWN)
        .map(|(name, count)| format!("{} {}", Outside(name), format_count(*count)))
        .collect();
    if topics.len() > SHOWN {
        let rest = holdall_model::loss::total(topics[SHOWN..].iter().map(|(_, count)| count));
        each.push(format!(
            "{} of {} more",
            format_count(rest),
            plural((topics.len() - SHOWN) as u64, "topic")
        ));
    }
    each.join(", ")
}

/// The table of `--verbose`: one row per topic, for a terminal of this width.
pub fn table(status: &RecordStatus, width: Option<usize>) -> String {
    let all = sums(status);
    let topics = &status.topics;
    let each = |cell: &dyn Fn(&TopicStatus) -> String| topics.iter().map(cell).collect::<Vec<_>>();
    let lost = |topic: &TopicStatus| match LossSums::of(&topic.lost).lost {
        0 if topic.loss_unknown => "unknown".to_owned(),
        count => count.to_string(),
    };
    let mut columns = vec![
        Column::of_text(1, "Topic", each(&|topic| Outside(&topic.name).to_string())),
        Column::of_text(6, "Type", each(&|topic| Outside(&topic.type_name).to_string())),
        Column::of_numbers(5, "Publishers", each(&|topic| topic.publishers.to_string())),
        Column::of_numbers(3, "Received", each(&|topic| topic.received.to_string())),
        Column::of_numbers(1, "Recorded", each(&|topic| topic.recorded.to_string())),
        Column::of_numbers(2, "Size", each(&|topic| format_bytes(topic.recorded_bytes))),
        Column::of_numbers(1, "Lost", each(&lost)),
    ];
    for stage in all.by_stage.keys() {
        let count = |topic: &TopicStatus| topic.lost.get(stage).copied().unwrap_or(0).to_string();
        columns.push(Column::of_numbers(
            4,
            &format!("{} loss", stage.as_str()),
            each(&count),
        ));
    }
    if all.before_match > 0 {
        let count = |topic: &TopicStatus| LossSums::of(&topic.lost).before_match.to_string();
        columns.push(Column::of_numbers(4, "Sent while not matched", each(&count)));
    }
    fit::table(columns, width)
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdall_model::alarm::{Alarm, AlarmKind};
    use std::time::Duration;

    fn topic(name: &str, recorded: u64, lost: &[(LossStage, u64)]) -> TopicStatus {
        TopicStatus {
            name: name.to_owned(),
            type_name: "std_msgs/msg/String".to_owned(),
            publishers: 1,
            received: recorded,
            rate_hz: 0.0,
            age: None,
            recorded,
            durable: recorded,
            recorded_bytes: recorded * 100,
            lost: lost.iter().copied().collect(),
            left_out: 0,
            expired: 0,
            loss_unknown: false,
            ends: UnknownEnds::default(),
        }
    }

    fn report(topics: Vec<TopicStatus>) -> RecordReport {
        RecordReport {
            status: RecordStatus {
                elapsed: Duration::from_millis(42_000),
                recorded: topics.iter().map(|t| t.recorded).sum(),
                recorded_bytes: topics.iter().map(|t| t.recorded_bytes).sum(),
                cache_bytes: 12 << 20,
                cache_bytes_max: 100 << 20,
                lost: holdall_model::loss::total(topics.iter().flat_map(|t| t.lost.values())),
                disk_available_bytes: Some(80 << 30),
                current_file: "lab/lab_0.mcap".into(),
                topics,
                ..RecordStatus::default()
            },
            bag: "lab".into(),
            files: vec!["lab/lab_0.mcap".into()],
            ..RecordReport::default()
        }
    }

    fn lossy() -> RecordReport {
        report(vec![
            topic(
                "/camera",
                1000,
                &[(LossStage::Transport, 60), (LossStage::Cache, 20)],
            ),
            topic("/imu", 4200, &[(LossStage::Transport, 40)]),
            topic("/tf", 7, &[]),
        ])
    }

    #[test]
    fn live_lines_show_time_rates_cache_and_losses() {
        let report = report(vec![topic("/a", 12_345, &[])]);
        let rates = Rates {
            messages_per_s: 1204.4,
            bytes_per_s: 48.2e6,
        };
        insta::assert_snapshot!(
            live(
                &report.status,
                rates,
                &[],
                "SPACE pause · Ctrl-C stop",
                Paint::Plain,
                100
            )
            .join("\n")
        );
    }

    #[test]
    fn live_lines_show_pause_and_a_full_cache_in_colours() {
        let mut status = lossy().status;
        status.paused = true;
        status.cache_bytes = status.cache_bytes_max;
        let text = live(&status, Rates::default(), &[], "", Paint::Colored, 100).join("\n");
        assert!(text.contains("\u{1b}[31m"), "{text:?}");
        insta::assert_snapshot!(console::strip_ansi_codes(&text));
    }

    #[test]
    fn topics_below_their_usual_rate_have_a_line_that_fits() {
        let fallen: Vec<FallenTopic> = [
            "/lidar",
            "/a/name/that/is/longer/than/a/narrow/terminal/has",
            "/imu",
        ]
        .into_iter()
        .map(|name| FallenTopic {
            name: name.to_owned(),
            usual_hz: 20.0,
            now_hz: 3.0,
        })
        .collect();
        let status = RecordStatus::default();
        for columns in [40, 80, 200] {
            let lines = live(&status, Rates::default(), &fallen, "", Paint::Plain, columns);
            let line = &lines[3];
            assert!(line.starts_with("slow      /lidar: 20 → 3 Hz"), "{line}");
            assert!(line.chars().count() < columns, "{line}");
            assert_eq!(line.contains("/imu"), columns == 200, "{line}");
            assert_eq!(line.ends_with("more"), columns < 200, "{line}");
        }
        assert_eq!(
            live(&status, Rates::default(), &[], "", Paint::Plain, 80).len(),
            4
        );
    }

    #[test]
    fn active_alarms_have_a_line_that_fits() {
        let alarm = |text: &str| Alarm {
            kind: AlarmKind::Silent,
            topic: None,
            text: text.to_owned(),
            since: Timestamp::from_nanos(1),
            until: None,
        };
        let mut status = RecordStatus::default();
        status.alarms.active = ["/scan silent 2s", "/a/name/that/is/long silent 2s", "/imu\x1b[2J"]
            .map(alarm)
            .into();
        for columns in [40, 80, 200] {
            let lines = live(&status, Rates::default(), &[], "", Paint::Plain, columns);
            let line = &lines[3];
            assert!(line.starts_with("alarms    /scan silent 2s"), "{line}");
            assert!(line.chars().count() < columns && !line.contains('\x1b'), "{line}");
            assert_eq!(line.contains("/imu"), columns == 200, "{line}");
            assert_eq!(line.ends_with("more"), columns < 200, "{line}");
        }
    }

    #[test]
    fn a_recording_without_loss_ends_with_two_lines() {
        insta::assert_snapshot!(summary(&report(vec![topic("/a", 1, &[])]), Paint::Plain).join("\n"));
    }

    #[test]
    fn losses_are_reported_by_stage_and_topic_the_worst_first() {
        insta::assert_snapshot!(summary(&lossy(), Paint::Plain).join("\n"));
    }

    #[test]
    fn many_lossy_topics_are_summed_up() {
        let topics = (0..20)
            .map(|n| topic(&format!("/t{n}"), 1, &[(LossStage::Cache, n + 1)]))
            .collect();
        let lines = summary(&report(topics), Paint::Plain);
        assert!(
            lines[2].starts_with("  cache 210: /t19 20, /t18 19,"),
            "{lines:?}"
        );
        assert!(lines[2].ends_with("78 of 12 topics more"), "{lines:?}");
    }

    #[test]
    fn unknown_losses_and_an_early_end_are_reported() {
        let mut report = lossy();
        report.status.topics[2].loss_unknown = true;
        report.failure = Some("lab/lab_0.mcap: no space left on device".to_owned());
        let text = summary(&report, Paint::Plain).join("\n");
        assert!(text.contains("losses cannot be known for /tf"), "{text}");
        assert!(
            text.ends_with("ended early: lab/lab_0.mcap: no space left on device"),
            "{text}"
        );
    }

    #[test]
    fn the_table_has_a_row_per_topic_and_a_column_per_stage_that_lost() {
        insta::assert_snapshot!(table(&lossy().status, None));
    }

    #[test]
    fn the_report_for_programs_is_one_object() {
        insta::assert_snapshot!(serde_json::to_string_pretty(&serde_json::json!(lossy())).unwrap());
    }
}
