//! Results of the kind `write`: every run, their medians, the table. The names of the fields are fixed.

use super::Write;
use crate::{
    engine::{
        BOOTSTRAP_SEED, Csv, Report, UNSUPPORTED, cpu_per_gib, frequency, limits_text, ratio_text, span,
    },
    measure::{LatencySummary, Usage},
    sheet::{Column, DASH, Sheet},
    statistics::{Estimate, Interval},
    verify::Verified,
};
use holdall_model::{loss::LossStage, units::format_mebibyte_rate as rate};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// One run of a candidate.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct WriteRun {
    /// The candidate.
    pub candidate: String,
    /// Its repetition, from 1.
    pub repetition: u32,
    /// Messages offered.
    pub offered: u64,
    /// Messages stored.
    pub messages: u64,
    /// Payload bytes stored.
    pub bytes: u64,
    /// Messages lost.
    pub lost: u64,
    /// Lost messages by stage.
    pub lost_by_stage: BTreeMap<LossStage, u64>,
    /// From the first offer to the end of close and sync, in seconds.
    pub elapsed_s: f64,
    /// Payload bytes a second, close and sync included.
    pub durable_bytes_per_s: f64,
    /// Messages a second, close and sync included.
    pub messages_per_s: f64,
    /// Processor seconds for each 10^9 bytes after the offer: all threads but the producers, kernel included.
    /// All threads for a candidate that stores within the offer.
    pub cpu_s_per_gb: f64,
    /// Mean cores in use after the offer.
    pub cores: f64,
    /// Processor time of the producers, offers included, in seconds.
    pub producer_cpu_s: f64,
    /// Resources that the process used.
    pub usage: Usage,
    /// Disk limit just before, in bytes a second; absent where nothing is written to a disk.
    pub limit_before_bytes_per_s: Option<f64>,
    /// Disk limit just after.
    pub limit_after_bytes_per_s: Option<f64>,
    /// `durable_bytes_per_s` divided by the mean of both.
    pub ratio_to_limit: Option<f64>,
    /// How long offers took; absent for candidates without a cache.
    pub offer_latency: Option<LatencySummary>,
    /// How late the machine woke a thread that did nothing else, in the same run.
    pub scheduling_latency: Option<LatencySummary>,
    /// How late a paced load was offered.
    pub send_lateness: Option<LatencySummary>,
    /// Files begun after the first.
    pub splits: u64,
    /// Data read back and found correct; absent when not requested, or done in another repetition.
    pub verified: Option<Verified>,
}

/// A candidate over all its runs: medians, and intervals where there are enough runs.
#[derive(Clone, Debug, Serialize)]
pub struct CandidateReport {
    /// The candidate.
    pub candidate: String,
    /// Messages stored.
    pub messages: u64,
    /// Payload bytes stored.
    pub bytes: u64,
    /// To the end of close and sync, in seconds.
    pub elapsed_s: f64,
    /// Payload bytes a second, close and sync included.
    pub durable_bytes_per_s: f64,
    /// Messages a second, close and sync included.
    pub messages_per_s: f64,
    /// Processor seconds after the offer for each 10^9 bytes.
    pub cpu_s_per_gb: f64,
    /// Mean cores in use after the offer.
    pub cores: f64,
    /// Messages lost in all runs.
    pub lost: u64,
    /// Highest resident memory of all runs in bytes, `generator_bytes` included.
    pub rss_max_bytes: u64,
    /// Durable rate divided by the disk limit measured around each run.
    pub ratio_to_limit: Option<f64>,
    /// Durable rate divided by that of a plain buffered loop.
    pub ratio_to_buffered: Option<f64>,
    /// Offers of the run with the longest offer.
    pub offer_latency: Option<LatencySummary>,
    /// The machine's own wake-up latency in that run.
    pub scheduling_latency: Option<LatencySummary>,
    /// Lateness of paced offers in that run.
    pub send_lateness: Option<LatencySummary>,
    /// Files begun after the first, in each run.
    pub splits: u64,
    /// 95 % intervals by field; absent with fewer than three repetitions.
    pub intervals: BTreeMap<&'static str, Interval>,
    /// Every run in order.
    pub runs: Vec<WriteRun>,
}

impl CandidateReport {
    /// Combines the runs of one candidate; `None` without a run.
    pub fn of(runs: Vec<WriteRun>, buffered_bytes_per_s: Option<f64>) -> Option<Self> {
        let worst = runs
            .iter()
            .max_by_key(|run| run.offer_latency.map_or(0, |latency| latency.max_ns))?;
        let mut intervals = BTreeMap::new();
        let mut median = |name: &'static str, pick: &dyn Fn(&WriteRun) -> Option<f64>| {
            let samples: Vec<f64> = runs.iter().filter_map(pick).collect();
            let estimate = Estimate::of(&samples, BOOTSTRAP_SEED)?;
            estimate.interval.map(|interval| intervals.insert(name, interval));
            Some(estimate.median)
        };
        let durable_bytes_per_s = median("durable_bytes_per_s", &|run| Some(run.durable_bytes_per_s))?;
        Some(Self {
            candidate: worst.candidate.clone(),
            elapsed_s: median("elapsed_s", &|run| Some(run.elapsed_s))?,
            messages_per_s: median("messages_per_s", &|run| Some(run.messages_per_s))?,
            cpu_s_per_gb: median("cpu_s_per_gb", &|run| Some(run.cpu_s_per_gb))?,
            cores: median("cores", &|run| Some(run.cores))?,
            ratio_to_limit: median("ratio_to_limit", &|run| run.ratio_to_limit),
            ratio_to_buffered: buffered_bytes_per_s.map(|buffered| durable_bytes_per_s / buffered),
            durable_bytes_per_s,
            messages: median("messages", &|run| Some(run.messages as f64))? as u64,
            bytes: median("bytes", &|run| Some(run.bytes as f64))? as u64,
            lost: runs.iter().map(|run| run.lost).sum(),
            rss_max_bytes: runs.iter().map(|run| run.usage.rss_max_bytes).max()?,
            offer_latency: worst.offer_latency,
            scheduling_latency: worst.scheduling_latency,
            send_lateness: worst.send_lateness,
            splits: worst.splits,
            intervals,
            runs,
        })
    }
}

/// The first candidate compared with another, by neighbouring runs.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// The other one.
    pub with: String,
    /// The first one's durable rate divided by the other's.
    pub durable_ratio: Estimate,
    /// The first one's processor time for each byte divided by the other's.
    pub cpu_ratio: Option<Estimate>,
    /// False when the interval of `durable_ratio` contains 1 or is absent: neither is faster.
    pub carried: bool,
}

/// The whole result: the first candidate's fields at the top level, the others next to them.
#[derive(Clone, Debug, Serialize)]
pub struct WriteBody {
    /// The first candidate.
    #[serde(flatten)]
    pub first: CandidateReport,
    /// Memory that the payload generator holds, in bytes; part of `rss_max_bytes`.
    pub generator_bytes: u64,
    /// The other candidates.
    pub others: Vec<CandidateReport>,
    /// The first compared with each of them.
    pub comparisons: Vec<Comparison>,
    /// The options.
    pub options: Value,
}

impl Write<'_> {
    /// The part of the options that a result includes.
    pub(super) fn options_json(&self) -> Value {
        let (args, load, storage, offer) = (self.args, self.plan.load(), &self.storage, self.args.offer());
        json!({
            "size": load.mix.label(),
            "content": load.content.to_string(),
            "total_bytes": load.total_bytes,
            "producers": load.producers,
            "topics": load.topics,
            "rate_hz": load.rate_hz,
            "offered_bytes_per_s": self.plan.offered_bytes_per_s(),
            "preset": storage.preset.clone().unwrap_or_default(),
            "storage_config": storage.config,
            "compression_threads": storage.compression_threads,
            "cache_bytes_max": self.cache.bytes_max,
            "split_bytes_max": args.max_bag_size,
            "disk_mode": args.shared.disk_name(),
            "lossless": offer.lossless,
            "loan_bytes_min": offer.loan_bytes_min,
            "repeat": args.repeat,
        })
    }
}

impl Comparison {
    /// Compares two candidates run by run; `None` when there is nothing to compare.
    pub fn of(first: &CandidateReport, other: &CandidateReport) -> Option<Self> {
        let pick = |report: &CandidateReport, field: &dyn Fn(&WriteRun) -> f64| {
            report.runs.iter().map(field).collect::<Vec<_>>()
        };
        let ratio = |field: &dyn Fn(&WriteRun) -> f64| {
            Estimate::of_ratio(&pick(first, field), &pick(other, field), BOOTSTRAP_SEED)
        };
        let durable_ratio = ratio(&|run| run.durable_bytes_per_s)?;
        let carried = durable_ratio
            .interval
            .is_some_and(|interval| !interval.contains(1.0));
        Some(Self {
            with: other.candidate.clone(),
            durable_ratio,
            cpu_ratio: ratio(&|run| run.cpu_s_per_gb),
            carried,
        })
    }
}

impl WriteBody {
    /// All candidates, the subject first.
    pub fn candidates(&self) -> impl Iterator<Item = &CandidateReport> {
        std::iter::once(&self.first).chain(&self.others)
    }

    /// A row for each run.
    pub(super) fn csv(&self) -> String {
        const COLUMNS: &str = "candidate,repetition,size,messages,bytes,lost,elapsed_s,durable_bytes_per_s,messages_per_s,cpu_s_per_gb,\
            rss_max_bytes,limit_before_bytes_per_s,limit_after_bytes_per_s,ratio_to_limit,offer_p99_9_ns,offer_max_ns";
        let mut csv = Csv::of(COLUMNS.split(','));
        for run in self.candidates().flat_map(|one| &one.runs) {
            let all = serde_json::to_value(run).unwrap_or_default();
            let cell = |column| match match column {
                "size" => &self.options["size"],
                "rss_max_bytes" => &all["usage"]["rss_max_bytes"],
                "offer_p99_9_ns" => &all["offer_latency"]["p99_9_ns"],
                "offer_max_ns" => &all["offer_latency"]["max_ns"],
                other => &all[other],
            } {
                Value::Null => String::new(),
                Value::String(text) => text.clone(),
                number => number.to_string(),
            };
            csv.cells(COLUMNS.split(',').map(cell));
        }
        csv.text()
    }
}

/// The result as text.
pub fn write_table(report: &Report<WriteBody>) -> String {
    let body = &report.body;
    let candidates: Vec<&CandidateReport> = body.candidates().collect();
    let columns: [Column<&CandidateReport>; 9] = [
        ("storage", |one| one.candidate.clone()),
        ("durable", |one| rate(one.durable_bytes_per_s)),
        ("÷ disk limit", |one| {
            ratio(one, one.ratio_to_limit, "ratio_to_limit")
        }),
        ("÷ buffered", |one| ratio(one, one.ratio_to_buffered, "")),
        ("messages", |one| frequency(one.messages_per_s)),
        ("CPU s/GiB", |one| cpu_per_gib(one.cpu_s_per_gb)),
        ("lost", |one| one.lost.to_string()),
        ("memory", |one| format!("{} MiB", one.rss_max_bytes >> 20)),
        ("p99.9, worst", |one| {
            let found = one.offer_latency.as_ref();
            found.map_or(DASH.to_owned(), |found| {
                format!("{}, {}", span(found.p99_9_ns), span(found.max_ns))
            })
        }),
    ];
    let sheet = Sheet::of("", 1, &columns, &candidates);
    let mut text = format!(
        "{}\n{}\n{}",
        headline(body),
        sheet.text(),
        limits_text(&report.limit)
    );
    for comparison in &body.comparisons {
        let times = ratio_text(Some(&comparison.durable_ratio), true);
        let cpu = comparison.cpu_ratio.as_ref();
        let cpu = cpu.map_or(String::new(), |cpu| format!(", {:.2} × its CPU", cpu.median));
        let (first, with) = (&body.first.candidate, &comparison.with);
        text.push_str(&format!("{first} is {times} × as fast as {with}{cpu}\n"));
    }
    if body.comparisons.iter().any(|comparison| !comparison.carried) {
        text.push_str(&format!("{UNSUPPORTED} the interval holds 1, or there are fewer than 3 repetitions: the measurement does not support it\n"));
    }
    if let Some(woken) = &body.first.scheduling_latency {
        let (often, worst) = (span(woken.p99_9_ns), span(woken.max_ns));
        text.push_str(&format!(
            "p99.9, worst: how long an offer took; the machine itself woke threads late by {often} (p99.9) and {worst} (worst)\n"
        ));
    }
    text
}

fn ratio(one: &CandidateReport, median: Option<f64>, interval: &str) -> String {
    let estimate = median.map(|median| Estimate {
        median,
        interval: one.intervals.get(interval).copied(),
        repetitions: one.runs.len(),
    });
    ratio_text(estimate.as_ref(), false)
}

fn headline(body: &WriteBody) -> String {
    let option = |name: &str| match &body.options[name] {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let pace = match body.options["offered_bytes_per_s"].as_f64() {
        Some(offered) => format!("{} Hz each, {} offered", option("rate_hz"), rate(offered)),
        None => "as fast as possible".to_owned(),
    };
    format!(
        "{} × {} of {} bytes on {} topics, {pace}; {} repetitions",
        option("producers"),
        option("size"),
        option("content"),
        option("topics"),
        option("repeat")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(durable: f64, ratio: f64, worst_ns: u64) -> WriteRun {
        WriteRun {
            candidate: "mcap".into(),
            durable_bytes_per_s: durable,
            cpu_s_per_gb: 0.1,
            ratio_to_limit: Some(ratio),
            offer_latency: Some(LatencySummary {
                max_ns: worst_ns,
                ..LatencySummary::default()
            }),
            lost: 1,
            ..WriteRun::default()
        }
    }

    #[test]
    fn a_report_has_medians_intervals_and_the_worst_offer() {
        let report = CandidateReport::of(
            vec![run(1e9, 0.9, 5), run(3e9, 0.95, 9), run(2e9, 0.8, 7)],
            Some(1e9),
        )
        .unwrap();
        assert_eq!(
            (
                report.durable_bytes_per_s,
                report.ratio_to_limit,
                report.ratio_to_buffered
            ),
            (2e9, Some(0.9), Some(2.0))
        );
        assert_eq!((report.lost, report.offer_latency.unwrap().max_ns), (3, 9));
        assert!(report.intervals["durable_bytes_per_s"].contains(2e9));
        assert!(CandidateReport::of(Vec::new(), None).is_none());
    }

    #[test]
    fn an_interval_with_one_does_not_support_a_comparison() {
        let report = |rates: [f64; 3]| {
            CandidateReport::of(rates.map(|rate| run(rate, 1.0, 1)).to_vec(), None).unwrap()
        };
        let slow = report([1e9, 2e9, 4e9]);
        assert!(Comparison::of(&report([2e9, 4e9, 8.4e9]), &slow).unwrap().carried);
        assert!(
            !Comparison::of(&report([0.9e9, 2e9, 4.4e9]), &slow)
                .unwrap()
                .carried
        );
    }
}
