//! A forecast as a report that can be pasted, and for programs.

use super::{
    fit::{self, Column},
    hint::not_heard_hint,
    line::Line,
    paint::Paint,
};
use crate::units::{format_byte_rate, format_bytes, format_count, format_span, plural};
use console::measure_text_width;
use holdall::preflight::{
    Answer, Forecast, Limit, LimitKind, Measured, Problem, ProblemKind, Progress, TopicFigures, by_cost,
};
use holdall_model::text::{Outside, OutsidePath};
use serde_json::{Value, json};
use std::time::Duration;

/// Width in cells of a report outside of a terminal: it fits wherever it is pasted.
const COLUMNS_USUAL: usize = 80;

/// Topics in the table; JSON has all.
const TOPICS_MAX: usize = 20;

/// Problems in the report that nothing is lost by; JSON has all.
const PROBLEMS_MAX: usize = 12;

/// The line while a trial runs, for a terminal of this width.
pub fn progress(progress: &Progress, columns: usize) -> String {
    if progress.is_probing {
        return "measuring the disk".to_owned();
    }
    let (elapsed, span) = (progress.elapsed.as_secs_f64(), progress.span.as_secs_f64());
    Line::new(columns)
        .part(1, &format!("trial  {elapsed:.0} of {span:.0} s"))
        .part(3, &plural(progress.topics as u64, "topic"))
        .part(2, &plural(progress.messages, "message"))
        .text()
}

/// The report, for a terminal of this width.
pub fn report(
    measured: &Measured,
    forecast: &Forecast,
    planned: Option<Duration>,
    paint: Paint,
    columns: Option<usize>,
) -> String {
    let width = columns.unwrap_or(COLUMNS_USUAL);
    let mut parts = vec![topics(measured, forecast, width)];
    if !forecast.limits.is_empty() {
        parts.push(limits(forecast, width));
    }
    parts.push(facts(measured, forecast, width));
    let problems: Vec<String> = problems(forecast, paint, width);
    if !problems.is_empty() {
        parts.push(problems.join("\n"));
    }
    parts.push(answer(measured, forecast, planned, paint, width));
    parts.retain(|part| !part.is_empty());
    parts.join("\n\n")
}

fn topics(measured: &Measured, forecast: &Forecast, width: usize) -> String {
    let mut rows: Vec<&TopicFigures> = measured.topics.iter().collect();
    rows.sort_by(|a, b| by_cost(forecast, a, b));
    let left_out = rows.len().saturating_sub(TOPICS_MAX);
    rows.truncate(TOPICS_MAX);
    let cells = |of: &dyn Fn(&TopicFigures) -> String| rows.iter().map(|topic| of(topic)).collect::<Vec<_>>();
    let work = |topic: &TopicFigures| {
        let cost = forecast.topics.iter().find(|cost| cost.name == topic.name);
        cost.map_or("-".to_owned(), |cost| percent(cost.share_of_work))
    };
    let mean = |topic: &TopicFigures| {
        topic
            .bytes
            .checked_div(topic.messages)
            .map_or("-".to_owned(), format_bytes)
    };
    let lost = |topic: &TopicFigures| match topic.lost {
        0 if topic.loss_unknown => "unknown".to_owned(),
        count => count.to_string(),
    };
    let jitter = |topic: &TopicFigures| match topic.messages {
        0 | 1 => "-".to_owned(),
        _ => milliseconds(topic.period_deviation_s),
    };
    let longest = |topic: &TopicFigures| match topic.messages {
        0 | 1 => "-".to_owned(),
        _ => milliseconds(topic.period_max_s),
    };
    let table = fit::table(
        vec![
            Column::of_text(1, "Topic", cells(&|topic| Outside(&topic.name).to_string())),
            Column::of_numbers(1, "Hz", cells(&|topic| hertz(topic.hz))),
            Column::of_numbers(3, "Jitter", cells(&jitter)),
            Column::of_numbers(6, "Longest gap", cells(&longest)),
            Column::of_numbers(2, "Size", cells(&mean)),
            Column::of_numbers(
                2,
                "Bandwidth",
                cells(&|topic| format_byte_rate(topic.bytes_per_s)),
            ),
            Column::of_numbers(5, "10 ms burst", cells(&|topic| format_bytes(topic.burst_bytes))),
            Column::of_numbers(2, "Work", cells(&work)),
            Column::of_numbers(2, "Lost", cells(&lost)),
            Column::of_text(7, "Type", cells(&|topic| Outside(&topic.type_name).to_string())),
        ],
        Some(width),
    );
    match left_out {
        0 => table,
        more => format!("{table}\n  and {}", plural(more as u64, "cheaper topic")),
    }
}

/// The bounds and how much of each is used.
fn limits(forecast: &Forecast, width: usize) -> String {
    let amount = |kind: LimitKind, value: f64| match kind {
        LimitKind::Disk => format_byte_rate(value),
        LimitKind::Processors | LimitKind::OwnProcessors => format!("{value:.2}"),
        LimitKind::ReceivingThread | LimitKind::WritingThread => percent(value),
    };
    let cells = |of: &dyn Fn(&Limit) -> String| forecast.limits.iter().map(of).collect::<Vec<_>>();
    fit::table(
        vec![
            Column::of_text(1, "Limit", cells(&|limit| limit_name(limit.kind).to_owned())),
            Column::of_numbers(2, "Used", cells(&|limit| amount(limit.kind, limit.used))),
            Column::of_numbers(3, "Usable", cells(&|limit| amount(limit.kind, limit.available))),
            Column::of_numbers(1, "Carries", cells(&|limit| times(limit.margin))),
        ],
        Some(width),
    )
}

const fn limit_name(kind: LimitKind) -> &'static str {
    match kind {
        LimitKind::Disk => "disk",
        LimitKind::Processors => "processors",
        LimitKind::OwnProcessors => "processors of the recorder",
        LimitKind::ReceivingThread => "receiving thread",
        LimitKind::WritingThread => "writing thread",
    }
}

/// A name, and a text about it.
type Fact = (&'static str, String);

/// The measured figures, a line for each.
fn facts(measured: &Measured, forecast: &Forecast, width: usize) -> String {
    let line = |(name, text): Fact| wrapped(&text, &format!("{name:<11}"), "           ", width);
    let all = disk_facts(measured, forecast, width)
        .into_iter()
        .chain(machine_facts(measured, forecast));
    all.map(line).collect::<Vec<_>>().join("\n")
}

fn disk_facts(measured: &Measured, forecast: &Forecast, width: usize) -> Vec<Fact> {
    let disk = &measured.disk;
    let mut lines = Vec::new();
    let full = forecast.full_in_s.map_or(String::new(), |seconds| {
        format!(", full in {}", long_span(seconds))
    });
    lines.push((
        "disk",
        format!(
            "{}: {} free{full}",
            fit::end_of(
                &OutsidePath(&disk.folder).to_string(),
                width.saturating_sub(14).max(8)
            ),
            format_bytes(disk.available_bytes)
        ),
    ));
    if let (Some(least), Some(most)) = (least(&disk.write_bytes_per_s), most(&disk.write_bytes_per_s)) {
        let how = if disk.direct_refused.is_some() {
            "through the page cache"
        } else {
            "directly"
        };
        lines.push((
            "",
            format!(
                "writes {} to {} {how}",
                format_byte_rate(least),
                format_byte_rate(most)
            ),
        ));
    }
    lines
}

fn machine_facts(measured: &Measured, forecast: &Forecast) -> Vec<Fact> {
    let (machine, recorder) = (&measured.machine, &measured.recorder);
    let mut lines = Vec::new();
    let bridged = forecast.bridged_s.map_or(String::new(), |seconds| {
        format!(", bridges {} without the disk", long_span(seconds))
    });
    lines.push((
        "cache",
        format!("{}{bridged}", format_bytes(recorder.cache_bytes_max)),
    ));
    lines.push((
        "memory",
        format!("{} left", format_bytes(machine.available_memory_bytes)),
    ));
    let low = if machine.yielding_processors >= 0.05 {
        format!(", {:.2} with work of low priority", machine.yielding_processors)
    } else {
        String::new()
    };
    lines.push((
        "processors",
        format!(
            "{} of {} busy{low}; {:.2} by the recorder{}",
            format_args!("{:.2}", machine.busy_processors),
            machine.processors,
            recorder.processors,
            if machine.governors.is_empty() {
                String::new()
            } else {
                format!("; governor {}", machine.governors.join(", "))
            }
        ),
    ));
    let buffer = machine
        .receive_buffer_bytes_max
        .map_or("not shown here".to_owned(), |bytes| {
            format!("at most {}", format_bytes(bytes))
        });
    lines.push((
        "receiving",
        format!(
            "buffers {buffer}; {} dropped; threads woke up to {} late",
            plural(machine.dropped_packets, "packet"),
            milliseconds(machine.wake_late_max_s)
        ),
    ));
    let clock = match machine.clock_is_synchronised {
        Some(true) => "synchronised",
        Some(false) => "not synchronised",
        None => "not known whether it is synchronised",
    };
    lines.push(("clock", clock.to_owned()));
    lines
}

fn least(values: &[f64]) -> Option<f64> {
    values.iter().copied().min_by(f64::total_cmp)
}

fn most(values: &[f64]) -> Option<f64> {
    values.iter().copied().max_by(f64::total_cmp)
}

/// Things to know or to change, with the commands.
fn problems(forecast: &Forecast, paint: Paint, width: usize) -> Vec<String> {
    let (lossy, other): (Vec<&Problem>, Vec<&Problem>) =
        forecast.problems.iter().partition(|problem| problem.loses);
    let more = other.len().saturating_sub(PROBLEMS_MAX);
    let mut lines = Vec::new();
    for problem in lossy.into_iter().chain(other.into_iter().take(PROBLEMS_MAX)) {
        let mark = if problem.loses {
            paint.bad("✗ ")
        } else {
            paint.attention("! ")
        };
        lines.push(wrapped(&problem.sentence, &mark, "  ", width));
        // A command is pasted whole: it is not wrapped.
        let command = problem
            .command
            .as_ref()
            .filter(|command| !problem.sentence.contains(command.as_str()));
        lines.extend(command.map(|command| format!("    {}", Outside(command))));
        lines.extend(hint(problem.kind).map(|hint| wrapped(hint, "    ", "    ", width)));
    }
    if more > 0 {
        lines.push(format!("  and {more} more; --json has all"));
    }
    lines
}

/// The flag that helps.
fn hint(kind: ProblemKind) -> Option<&'static str> {
    match kind {
        ProblemKind::Memory => Some("--max-cache-size sets less"),
        ProblemKind::Cache => Some("--max-cache-size sets more"),
        ProblemKind::DiskFull => Some(
            "--storage-preset-profile zstd_fast compresses; -b 1GB --on-disk-full ring keeps the newest files; --exclude-topics leaves topics out",
        ),
        ProblemKind::NotHeard => not_heard_hint(holdall_model::unheard::NotHeardKind::NoUdp),
        _ => None,
    }
}

/// The answer, in a sentence or two.
fn answer(
    measured: &Measured,
    forecast: &Forecast,
    planned: Option<Duration>,
    paint: Paint,
    width: usize,
) -> String {
    let head = match forecast.answer {
        Answer::Fits => paint.good("It fits"),
        Answer::Tight => paint.attention("It fits, tightly"),
        Answer::Loses => paint.bad("Messages will be missing"),
    };
    let mut text = String::new();
    if let (Some(margin), Some(limit)) = (forecast.margin, forecast.limits.first()) {
        text.push_str(&format!(
            ": {} this load can be recorded ({})",
            times(margin),
            limit_name(limit.kind)
        ));
    }
    text.push('.');
    if let Some(cost) = forecast.topics.first().filter(|cost| cost.share_of_work > 0.0) {
        text.push_str(&format!(
            " {} costs most: {} of the work.",
            Outside(&cost.name),
            percent(cost.share_of_work)
        ));
    }
    if let (Some(planned), Some(needed)) = (planned, forecast.needed_bytes) {
        text.push_str(&format!(
            " {} need {} of {}.",
            long_span(planned.as_secs_f64()),
            format_bytes(needed),
            format_bytes(measured.disk.available_bytes)
        ));
    } else if let Some(seconds) = forecast.full_in_s {
        text.push_str(&format!(" The disk is full in {}.", long_span(seconds)));
    }
    wrapped(&text, &head, "  ", width)
}

/// For programs.
pub fn json(measured: &Measured, forecast: &Forecast, planned: Option<Duration>) -> Value {
    json!({
        "fits": forecast.answer != Answer::Loses,
        "answer": forecast.answer,
        "margin": forecast.margin,
        "full_in_s": forecast.full_in_s,
        "planned_s": planned.map(|span| span.as_secs_f64()),
        "needed_bytes": forecast.needed_bytes,
        "bridged_s": forecast.bridged_s,
        "limits": forecast.limits,
        "costs": forecast.topics,
        "problems": forecast.problems,
        "measured": measured,
    })
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

fn times(factor: f64) -> String {
    match factor {
        factor if factor >= 100.0 => "100 times and more".to_owned(),
        factor if factor >= 10.0 => format!("{factor:.0} times"),
        factor => format!("{factor:.1} times"),
    }
}

fn hertz(hertz: f64) -> String {
    match hertz {
        hertz if hertz >= 10_000.0 => format_count(hertz.round() as u64),
        hertz if hertz >= 100.0 => format!("{hertz:.0}"),
        hertz => format!("{hertz:.1}"),
    }
}

fn milliseconds(seconds: f64) -> String {
    match seconds {
        seconds if seconds >= 10.0 => format!("{seconds:.0} s"),
        seconds if seconds >= 0.1 => format!("{:.0} ms", seconds * 1e3),
        seconds => format!("{:.1} ms", seconds * 1e3),
    }
}

/// A span of seconds, hours or days.
fn long_span(seconds: f64) -> String {
    const DAY: f64 = 86_400.0;
    match seconds {
        seconds if seconds >= 1000.0 * DAY => "more than 1000 days".to_owned(),
        seconds if seconds >= 2.0 * DAY => format!("{:.1} days", seconds / DAY),
        seconds if seconds >= 7200.0 => format!("{:.1} h", seconds / 3600.0),
        seconds if seconds >= 180.0 => format!("{:.0} min", seconds / 60.0),
        seconds => format_span(Duration::from_secs_f64(seconds.max(0.0))),
    }
}

/// A text in lines of at most `width` cells; the first one begins with `head`, the others with `indent`. A longer word is broken.
pub fn wrapped(text: &str, head: &str, indent: &str, width: usize) -> String {
    let mut lines = Vec::new();
    let mut line = head.to_owned();
    let mut is_empty = true;
    let room = width.saturating_sub(indent.len() + 1).max(1);
    for word in text.split(' ').flat_map(|word| pieces(word, room)) {
        let gap = usize::from(!is_empty);
        let begins = !is_empty || line == head;
        if begins && measure_text_width(&line) + gap + measure_text_width(&word) >= width {
            lines.push(std::mem::replace(&mut line, indent.to_owned()));
            is_empty = true;
        }
        if !is_empty {
            line.push(' ');
        }
        line.push_str(&word);
        is_empty = false;
    }
    lines.push(line);
    lines.join("\n")
}

/// A word in pieces of at most this many letters.
fn pieces(word: &str, letters: usize) -> Vec<String> {
    let letters_of: Vec<char> = word.chars().collect();
    match letters_of.len() {
        0 => vec![String::new()],
        _ => letters_of
            .chunks(letters)
            .map(|piece| piece.iter().collect())
            .collect(),
    }
}

#[cfg(test)]
#[path = "preflight_tests.rs"]
mod tests;
