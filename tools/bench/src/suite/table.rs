//! The results of an experiment as a table for people: a row for each case and setting, with the published
//! figure next to the measured one.

use super::{
    config::{Experiment, PlayRate, RecorderKind, Setting},
    disk_sheet, ladders,
    noise::Noise,
    result::{ExperimentResult, PlaybackResult, RunResult, by_setting, recorder_label},
};
use crate::{
    engine::ratio_text,
    measure::{LatencySummary, ProcessUse},
    sheet::{Column, DASH, Sheet},
    statistics::{Estimate, median},
};
use holdall_model::units::{MIB, format_bytes, format_mebibyte_rate as rate};
use std::{collections::BTreeMap, fmt::Write};

/// Publishers that send at less than this part of their rate are named.
const LOAD_SHARE_MIN: f64 = 0.95;

/// One row: all repetitions of a case with a setting.
pub struct Row<'a> {
    /// The case's label.
    pub case: &'a str,
    /// The setting of all its runs.
    pub setting: &'a Setting,
    /// The recorder, with its transport.
    pub recorder: String,
    /// The repetitions.
    pub runs: Vec<&'a RunResult>,
    /// Messages recorded, in percent.
    pub recorded_percent: Estimate,
    /// The published figure, in percent.
    pub published_percent: Option<f64>,
    /// Whether the intervals distinguish this row from the first one of its case; absent for that row itself,
    /// without intervals, and where both recorded everything.
    pub is_carried: Option<bool>,
}

impl Row<'_> {
    /// The median of a figure over the repetitions.
    pub fn median(&self, figure: impl Fn(&RunResult) -> f64) -> f64 {
        let samples: Vec<f64> = self.runs.iter().map(|run| figure(run)).collect();
        median(&samples).unwrap_or(0.0)
    }

    /// Missing messages of all repetitions by stage.
    pub fn missing(&self) -> BTreeMap<&'static str, u64> {
        let mut all = BTreeMap::new();
        for (stage, count) in self.runs.iter().flat_map(|run| run.counts.missing()) {
            *all.entry(stage).or_insert(0) += count;
        }
        all
    }

    /// `cache 12, transport 3`, or nothing.
    pub(crate) fn missing_text(&self) -> String {
        let each: Vec<String> = self
            .missing()
            .iter()
            .map(|(stage, count)| format!("{stage} {count}"))
            .collect();
        each.join(", ")
    }

    /// Durable bytes a second divided by the disk's limit around the same run, run by run.
    pub fn ratio_to_limit(&self) -> Option<Estimate> {
        let rates: Vec<f64> = self
            .runs
            .iter()
            .map(|run| run.times.durable_bytes_per_s)
            .collect();
        let limits: Option<Vec<f64>> = self
            .runs
            .iter()
            .map(|run| run.around.limits.direct_around_bytes_per_s())
            .collect();
        Estimate::of_ratio(&rates, &limits?, 1)
    }

    /// "at 51 % of the load" where the publishers did not keep its rate.
    pub(crate) fn slower_text(&self) -> Option<String> {
        let shares: Vec<f64> = self.runs.iter().filter_map(|run| run.sent_share()).collect();
        let share = median(&shares).filter(|share| *share < LOAD_SHARE_MIN)?;
        Some(format!("at {:.0} % of the load", 100.0 * share))
    }

    /// How many publishers got subscriptions, and how late the last of them, the worst of all repetitions.
    pub(crate) fn discovery_text(&self) -> String {
        let each: Vec<_> = self.runs.iter().filter_map(|run| run.work.discovery).collect();
        if each.is_empty() {
            return DASH.to_owned();
        }
        let matched: u64 = each.iter().map(|one| one.matched).sum();
        let of: u64 = each.iter().map(|one| one.publishers).sum();
        let before: u64 = each.iter().map(|one| one.sent_before).sum();
        let last_s = each.iter().map(|one| one.last_s).fold(0.0, f64::max);
        let before = if before > 0 {
            format!(", {before} sent before")
        } else {
            String::new()
        };
        format!("{matched} of {of}, {last_s:.2} s{before}")
    }

    /// Storage, and its preset where it has one.
    pub fn storage(&self) -> String {
        match self.setting.recorder {
            RecorderKind::Rosbag => return "rosbag1".to_owned(),
            RecorderKind::Discard => return DASH.to_owned(),
            _ => {}
        }
        let setting = self.setting;
        let mut text = setting.storage_id.clone();
        for options in [&setting.storage_preset_profile, &setting.storage_config_file] {
            // A file by its name, a text unchanged.
            let name = options.as_deref().and_then(|path| path.rsplit('/').next());
            text.extend(name.into_iter().flat_map(|name| [" ", name]));
        }
        text
    }

    /// Recorded percent with its interval. `≈` where the interval does not distinguish it from the first row
    /// of the same case.
    pub(crate) fn recorded_text(&self) -> String {
        let doubt = match self.is_carried {
            Some(false) => "≈ ",
            _ => "",
        };
        format!("{doubt}{}", self.recorded_percent.text(2, " %"))
    }
}

/// The rows of a result in the order in which they were run.
pub fn rows<'a>(result: &'a ExperimentResult, experiment: Option<&Experiment>) -> Vec<Row<'a>> {
    let published = experiment.map_or(&[][..], |experiment| &experiment.published);
    let mut rows: Vec<Row<'a>> = by_setting(&result.runs)
        .into_iter()
        .filter_map(|runs| {
            let first = &runs[0].id;
            let percents: Vec<f64> = runs.iter().map(|run| run.counts.recorded_percent()).collect();
            let published = published
                .iter()
                .find(|published| published.is_of(&first.case, first.transport, &first.setting));
            Some(Row {
                case: &first.case,
                setting: &first.setting,
                recorder: recorder_label(first.transport, &first.setting),
                recorded_percent: Estimate::of(&percents, 1)?,
                published_percent: published.map(|published| published.recorded_percent),
                is_carried: None,
                runs,
            })
        })
        .collect();
    let carried: Vec<Option<bool>> = rows
        .iter()
        .map(|row| {
            let first = rows.iter().find(|first| first.case == row.case)?;
            let (a, b) = (first.recorded_percent.interval?, row.recorded_percent.interval?);
            let both_whole = a.low >= 100.0 && b.low >= 100.0;
            (!std::ptr::eq(first, row) && !both_whole).then_some(a.high < b.low || b.high < a.low)
        })
        .collect();
    for (row, carried) in rows.iter_mut().zip(carried) {
        row.is_carried = carried;
    }
    rows
}

/// The result as text.
pub fn table(result: &ExperimentResult, experiment: Option<&Experiment>) -> String {
    let rows = rows(result, experiment);
    let mut text = format!(
        "{}: {}; scale {}, {} runs\n",
        result.experiment,
        result.title,
        result.scale,
        result.runs.len()
    );
    for sheet in sheets(&rows) {
        let _never_fails = writeln!(text, "{}\n{}", sheet.title, sheet.text()).is_ok();
    }
    if let Some(experiment) = experiment {
        for line in ladders::sentences(&rows, experiment) {
            let _never_fails = writeln!(text, "{line}").is_ok();
        }
    }
    for skipped in &result.skipped {
        let _never_fails = writeln!(
            text,
            "not run: {}, {}: {}",
            skipped.case, skipped.setting, skipped.reason
        )
        .is_ok();
    }
    text + &machine(result) + "\n"
}

/// The tables of a result: messages recorded, processor time, work on the disk, and playback; those without
/// rows are left out.
pub(crate) fn sheets(rows: &[Row<'_>]) -> Vec<Sheet> {
    let (played, recorded): (Vec<&Row<'_>>, Vec<&Row<'_>>) =
        rows.iter().partition(|row| row.setting.play_rate.is_some());
    let (has_processes, time) = (
        |row: &&&Row<'_>| row.runs.iter().any(|run| !run.work.processes.is_empty()),
        "Where the processor time goes, in percent of one processor",
    );
    let sheets = [
        Sheet::of("Recorded", 3, &recording(), &recorded).without_empty(),
        disk_sheet::sheet(&recorded),
        Sheet::of(time, 3, &times(), recorded.iter().filter(has_processes)),
        Sheet::of("Played back", 2, &playbacks(), &played),
    ];
    sheets
        .into_iter()
        .filter(|sheet| !sheet.rows.is_empty())
        .collect()
}

/// Words first; results before the figures that explain them.
fn recording<'a>() -> [Column<&'a Row<'a>>; 18] {
    [
        ("case", |row| row.case.to_owned()),
        ("recorder", |row| row.recorder.clone()),
        ("storage", |row| row.storage()),
        ("cache", |row| cache(row.setting)),
        ("split", |row| shown(row.setting.max_bag_size_bytes, format_bytes)),
        ("recorded", |row| row.recorded_text()),
        ("published", |row| {
            shown(row.published_percent, |percent| format!("{percent:.2} %"))
        }),
        ("lost by stage", |row| {
            let missing = row.missing_text();
            shown(Some(missing).filter(|text| !text.is_empty()), |text| text)
        }),
        ("offered", |row| {
            let planned = rate(row.median(|run| run.times.offered_bytes_per_s));
            let slower = row.slower_text().map(|text| format!(", sent {text}"));
            planned + &slower.unwrap_or_default()
        }),
        ("durable", |row| {
            rate(row.median(|run| run.times.durable_bytes_per_s))
        }),
        ("÷ limit", |row| ratio_text(row.ratio_to_limit().as_ref(), false)),
        ("CPU", |row| {
            let share = |run: &RunResult| run.cost.recorder_cpu_s / run.times.elapsed_s.max(1e-9);
            format!("{:.0} %", 100.0 * row.median(share))
        }),
        ("publishers' CPU", |row| {
            let share = |run: &RunResult| run.cost.producer_cpu_s / run.times.sending_s.max(1e-9);
            format!("{:.1} %", 100.0 * row.median(share))
        }),
        ("memory", |row| {
            let own =
                |run: &RunResult| run.cost.rss_max_bytes.saturating_sub(run.cost.generator_bytes) as f64;
            format!("{:.0} MiB", row.median(own) / MIB)
        }),
        ("page cache", |row| {
            format!(
                "{:.0} MiB",
                row.median(|run| run.around.dirty_max_bytes() as f64) / MIB
            )
        }),
        ("p99.99", |row| {
            milliseconds(row.median(|run| run.work.offer.map_or(0.0, |offer| offer.p99_99_ns as f64)))
        }),
        ("by bytes", |row| {
            format!("{:.2} %", row.median(|run| run.counts.recorded_bytes_percent()))
        }),
        ("subscribed", |row| row.discovery_text()),
    ]
}

/// Processes and their threads, of runs over a transport.
fn times<'a>() -> [Column<&'a Row<'a>>; 10] {
    fn of(row: &Row<'_>, name: &str, pick: fn(&ProcessUse) -> f64) -> String {
        let share = |run: &RunResult| {
            let process = run.work.processes.iter().find(|one| one.name == name);
            100.0 * process.map_or(0.0, pick) / run.times.elapsed_s.max(1e-9)
        };
        format!("{:.0} %", row.median(share))
    }
    [
        ("case", |row| row.case.to_owned()),
        ("recorder", |row| row.recorder.clone()),
        ("storage", |row| row.storage()),
        ("cache", |row| cache(row.setting)),
        ("recorder, own", |row| {
            of(row, "recorder", |one| one.cpu_s - one.cpu_system_s)
        }),
        ("kernel", |row| of(row, "recorder", |one| one.cpu_system_s)),
        ("publishers, own", |row| {
            of(row, "publishers", |one| one.cpu_s - one.cpu_system_s)
        }),
        ("kernel", |row| of(row, "publishers", |one| one.cpu_system_s)),
        ("they are late, p99", |row| {
            milliseconds(row.median(|run| run.around.lateness.map_or(0.0, |late| late.p99_ns as f64)))
        }),
        ("busiest threads of the recorder (first repetition)", |row| {
            let first = row.runs.iter().find(|run| !run.work.processes.is_empty());
            let busiest = first.and_then(|first| {
                let recorder = first.work.processes.iter().find(|one| one.name == "recorder")?;
                let share = |cpu_s: f64| 100.0 * cpu_s / first.times.elapsed_s.max(1e-9);
                let threads = recorder.threads.iter().take(5);
                let each = threads.map(|one| format!("{} {:.0} %", one.name, share(one.cpu_s)));
                Some(each.collect::<Vec<_>>().join(", "))
            });
            busiest.unwrap_or_default()
        }),
    ]
}

fn playbacks<'a>() -> [Column<&'a Row<'a>>; 12] {
    fn of(row: &Row<'_>, figure: fn(&PlaybackResult) -> f64) -> f64 {
        row.median(|run| run.work.playback.as_ref().map_or(0.0, figure))
    }
    fn late(row: &Row<'_>, pick: fn(&LatencySummary) -> u64) -> String {
        if row.setting.play_rate == Some(PlayRate::Unlimited) {
            return DASH.to_owned();
        }
        milliseconds(row.median(|run| {
            let late = run.work.playback.and_then(|played| played.lateness);
            late.map_or(0.0, |late| pick(&late) as f64)
        }))
    }
    [
        ("case", |row| row.case.to_owned()),
        ("rate", |row| {
            row.setting
                .play_rate
                .map_or_else(String::new, |rate| rate.to_string())
        }),
        ("played", |row| {
            let share = |played: &PlaybackResult| played.published as f64 / played.messages.max(1) as f64;
            format!("{:.2} %", 100.0 * of(row, share))
        }),
        ("planned", |row| {
            format!("{:.2} s", of(row, |played| played.planned_s))
        }),
        ("took", |row| {
            format!("{:.2} s", of(row, |played| played.elapsed_s))
        }),
        ("MiB/s", |row| {
            format!("{:.0}", of(row, |played| played.bytes_per_s / MIB))
        }),
        ("starved", |row| {
            format!("{:.0}", of(row, |played| played.starved as f64))
        }),
        ("late p50", |row| late(row, |late| late.p50_ns)),
        ("p99", |row| late(row, |late| late.p99_ns)),
        ("p99.9", |row| late(row, |late| late.p99_9_ns)),
        ("p99.99", |row| late(row, |late| late.p99_99_ns)),
        ("worst", |row| late(row, |late| late.max_ns)),
    ]
}

/// The text of a figure, or a dash.
pub(super) fn shown<T>(value: Option<T>, text: impl FnOnce(T) -> String) -> String {
    value.map_or(DASH.to_owned(), text)
}

pub(super) fn milliseconds(nanos: f64) -> String {
    match nanos {
        nanos if nanos < 1e6 => format!("{:.0} µs", nanos / 1e3),
        nanos => format!("{:.1} ms", nanos / 1e6),
    }
}

/// The limit of waiting messages in the recorder's own memory.
pub fn cache(setting: &Setting) -> String {
    if setting.recorder == RecorderKind::Discard {
        return DASH.to_owned();
    }
    let size = format_bytes(setting.max_cache_size_bytes);
    match setting.recorder.buffers() {
        1 => size,
        buffers => format!("{buffers} × {size}"),
    }
}

fn machine(result: &ExperimentResult) -> String {
    let machine = &result.machine;
    let noise = Noise::of(&result.runs);
    let mut lines = vec![
        machine.to_string(),
        format!("limits of these runs: {}", noise.limits_text()),
        format!("noise: {}", noise.text()),
    ];
    lines.extend(noise.too_noisy(machine.cores));
    let words = EXPLANATIONS.iter().map(|(name, text)| format!("{name}: {text}"));
    lines.extend(words);
    lines.join("\n")
}

/// The columns that a name does not explain, for the terminal and for the page.
pub(crate) const EXPLANATIONS: [(&str, &str); 10] = [
    (
        "case",
        "named as in its file or publication, whose units are powers of 1000; whatever is measured is in KiB, MiB and GiB, powers of 1024",
    ),
    (
        "[a, b]",
        "95 % bootstrap interval of the median over the repetitions",
    ),
    (
        "≈",
        "the intervals do not distinguish this row from the first row of its case",
    ),
    (
        "published",
        "the figure in the publication that the experiment repeats, on its machine",
    ),
    (
        "offered, durable",
        "payload bytes a second; durable: to the end of close and sync",
    ),
    (
        "÷ limit",
        "durable divided by what the disk itself wrote, directly around the same run",
    ),
    (
        "CPU",
        "percent of one processor: without a transport after the offer, with one the recorder's process",
    ),
    (
        "publishers' CPU",
        "the same of the publishers, without a transport with the offers",
    ),
    (
        "memory, page cache",
        "the most that the recorder held, without the generator's payloads; the most that was not yet on the disk",
    ),
    ("p99.99", "of the time that an offer takes"),
];
