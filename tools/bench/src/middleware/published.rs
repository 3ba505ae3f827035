//! Figures of the published evaluation, read from its data when they are at hand.

use super::{CaseKind, EvaluatedLink, MiddlewareCase};
use crate::{
    engine::grouped,
    error::{BenchError, BenchResult},
    link::spec::Bottleneck,
    statistics::{Estimate, Interval},
};
use holdall_model::units::MIB;
use serde::Deserialize;
use std::{collections::BTreeMap, path::Path};

/// An idle node.
const IDLE_FILE: &str = "d1_node_galactic.csv";
/// Message types at 1000 Hz between two processes of one host.
const TYPES_FILE: &str = "d2_two_process_galactic.csv";
/// Means of its runs over an emulated link.
const MEANS_FILE: &str = "d3_d4_d5_mininet.csv";
/// Its runs over 54 Mb/s second by second.
const SECONDS_FILE: &str = "d3_per_second_54mbit.csv";
/// Its runs over Wi-Fi second by second.
const WIFI_FILE: &str = "d6_wifi_per_second.csv";
/// Pairs of middlewares.
const PAIRS_FILE: &str = "d7_sub_galactic.csv";
/// The rate of the link whose seconds were published.
const SECONDS_MBIT: f64 = 54.0;

/// Figures of one configuration of the published evaluation, by our names; an interval is from the least to the most.
pub(crate) type PublishedFigures = BTreeMap<&'static str, Estimate>;

#[derive(Clone, Debug, Deserialize)]
struct MeansRow {
    message_type: String,
    rate_mbit: f64,
    loss_percent: f64,
    rmw: String,
    mode: String,
    sent_per_s_mean: Option<f64>,
    received_per_s_mean: Option<f64>,
    lost_percent_mean: Option<f64>,
    /// Empty where nothing arrived.
    effective_latency_ms_mean: Option<f64>,
    effective_latency_ms_min: Option<f64>,
    effective_latency_ms_max: Option<f64>,
    pub_cpu_percent_of_machine_mean: Option<f64>,
    sub_cpu_percent_of_machine_mean: Option<f64>,
    pub_rss_mb_mean: Option<f64>,
    sub_rss_mb_mean: Option<f64>,
}

#[derive(Clone, Debug, Deserialize)]
struct TypeRow {
    data_type: String,
    flavor: String,
    vendor: String,
    #[serde(rename = "mean received")]
    received: f64,
    #[serde(rename = "mean latency_mean (ms)")]
    latency_ms: f64,
    #[serde(rename = "mean cpu_usage (%)")]
    cpu_percent: Option<f64>,
}

#[derive(Clone, Debug, Deserialize)]
struct IdleRow {
    vendor: String,
    config: String,
    /// The 95th percentile; the name of the column does not state that.
    #[serde(rename = "cpu_usage (%)")]
    cpu_p95: f64,
    #[serde(rename = "median cpu_usage (%)")]
    cpu_median: f64,
    #[serde(rename = "mean cpu_usage (%)")]
    cpu_mean: f64,
    #[serde(rename = "mean resident anonymous memory (Mb)")]
    anonymous_mb: f64,
    #[serde(rename = "mean physical memory (Mb)")]
    resident_mb: f64,
    #[serde(rename = "mean virtual memory (Mb)")]
    virtual_mb: f64,
}

#[derive(Clone, Debug, Deserialize)]
struct PairRow {
    to_rmw_flavor: String,
    to_rmw: String,
    from_rmw_flavor: String,
    from_rmw: String,
    #[serde(rename = "mean received")]
    received: f64,
}

#[derive(Deserialize)]
struct SecondRow {
    rmw: String,
    /// Not published for Wi-Fi; the default of the time was synchronous.
    #[serde(default = "synchronous")]
    mode: String,
    #[serde(alias = "rate_hz")]
    loss_percent: f64,
    run: String,
    side: String,
    t_s: f64,
    sent: f64,
    received: f64,
}

fn synchronous() -> String {
    "sync".to_owned()
}

/// Whose messages are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Side {
    Publisher,
    Subscriber,
}

/// The seconds of each run, by middleware, side and a number: the loss in percent, or the rate in hertz.
type Seconds = BTreeMap<(&'static str, Side, u32), Vec<Vec<(f64, f64)>>>;

/// The published evaluation.
#[derive(Clone, Debug, Default)]
pub struct PublishedEvaluation {
    means: Vec<MeansRow>,
    types: Vec<TypeRow>,
    idle: Vec<IdleRow>,
    pairs: Vec<PairRow>,
    seconds: Seconds,
    wifi: Seconds,
}

/// Our name for a published pair of rmw and mode.
fn name_of(rmw: &str, mode: &str) -> Option<&'static str> {
    match (rmw, mode) {
        ("rmw_fastrtps_cpp" | "fastrtps" | "ps", "sync" | "cpp_syn" | "cpp sync") => Some("fastdds-sync"),
        ("rmw_fastrtps_cpp" | "fastrtps" | "ps", "async" | "cpp_asyn" | "cpp async") => Some("fastdds-async"),
        ("rmw_cyclonedds_cpp" | "cyclonedds", "sync" | "cpp_sync" | "cpp_syn" | "cpp sync") => {
            Some("cyclone")
        }
        _ => None,
    }
}

impl PublishedEvaluation {
    /// Reads the data of a folder.
    ///
    /// # Errors
    /// A file that is missing or has other columns.
    pub fn read(folder: &Path) -> BenchResult<Self> {
        Ok(Self {
            means: rows(&folder.join(MEANS_FILE))?,
            types: optional(&folder.join(TYPES_FILE))?,
            idle: optional(&folder.join(IDLE_FILE))?,
            pairs: optional(&folder.join(PAIRS_FILE))?,
            seconds: by_second(rows(&folder.join(SECONDS_FILE))?),
            wifi: by_second(optional(&folder.join(WIFI_FILE))?),
        })
    }

    /// The figures of a middleware for a load over a link.
    pub(crate) fn figures(
        &self,
        middleware: &str,
        case: &MiddlewareCase,
        link: &EvaluatedLink,
    ) -> Option<PublishedFigures> {
        match &link.spec {
            None if case.kind == CaseKind::Idle => {
                let row = self
                    .idle
                    .iter()
                    .find(|row| name_of(&row.vendor, &row.config) == Some(middleware))?;
                Some(all([
                    ("cpu_p95", Some(row.cpu_p95)),
                    ("cpu_median", Some(row.cpu_median)),
                    ("cpu_mean", Some(row.cpu_mean)),
                    ("anonymous", Some(mib(row.anonymous_mb))),
                    ("resident", Some(mib(row.resident_mb))),
                    ("virtual", Some(mib(row.virtual_mb))),
                ]))
            }
            None => {
                let is_one = |row: &&TypeRow| {
                    name_of(&row.vendor, &row.flavor) == Some(middleware) && row.data_type == case.label
                };
                let row = self
                    .types
                    .iter()
                    .find(is_one)
                    .filter(|_| near(case.rate_hz, 1000.0))?;
                Some(all([
                    ("received", Some(row.received)),
                    ("latency", Some(row.latency_ms)),
                    ("subscriber_cpu", row.cpu_percent),
                ]))
            }
            Some(_) => self.means(middleware, case, link).map(|row| {
                let mut figures = all([
                    ("sent", row.sent_per_s_mean),
                    ("received", row.received_per_s_mean),
                    ("lost", row.lost_percent_mean),
                    ("latency", row.effective_latency_ms_mean),
                    ("publisher_cpu", row.pub_cpu_percent_of_machine_mean),
                    ("subscriber_cpu", row.sub_cpu_percent_of_machine_mean),
                    ("publisher_memory", row.pub_rss_mb_mean.map(mib)),
                    ("subscriber_memory", row.sub_rss_mb_mean.map(mib)),
                ]);
                if let Some(latency) = figures.get_mut("latency") {
                    let ends = row.effective_latency_ms_min.zip(row.effective_latency_ms_max);
                    latency.interval = ends.map(|(low, high)| Interval { low, high });
                }
                figures
            }),
        }
    }

    fn means(&self, middleware: &str, case: &MiddlewareCase, link: &EvaluatedLink) -> Option<&MeansRow> {
        let message_type = match case.bytes {
            524_288 => "PointCloud512k",
            1024 => "Array1k",
            _ => return None,
        };
        let spec = link.spec.as_ref()?;
        let rate_mbit = spec.rate_bits_per_s? as f64 / 1e6;
        let row = self.means.iter().find(|row| {
            name_of(&row.rmw, &row.mode) == Some(middleware)
                && row.message_type == message_type
                && near(row.rate_mbit, rate_mbit)
                && near(row.loss_percent, 100.0 * spec.loss.share)
        });
        // Links with other properties were not published.
        let is_plain = spec.loss.burst.is_none() && spec.delay.is_zero() && spec.outages.is_empty();
        row.filter(|_| is_plain && near(case.rate_hz, 30.0))
    }

    /// Messages sent or received in each second of each published run of a load over a link.
    pub(crate) fn seconds(
        &self,
        middleware: &str,
        case: &MiddlewareCase,
        link: &EvaluatedLink,
        side: Side,
    ) -> Vec<Vec<(f64, f64)>> {
        let Some(spec) = &link.spec else { return Vec::new() };
        let (seconds, number) = if case.bytes == 61_440 && spec.bottleneck == Bottleneck::Path {
            (&self.wifi, case.rate_hz)
        } else {
            let mbit = spec.rate_bits_per_s.unwrap_or(0) as f64 / 1e6;
            let is_published = case.bytes == 524_288 && near(mbit, SECONDS_MBIT);
            if !is_published || self.means(middleware, case, link).is_none() {
                return Vec::new();
            }
            (&self.seconds, 100.0 * spec.loss.share)
        };
        let is_one = |(name, of, key): &&(&str, Side, u32)| {
            *name == middleware && *of == side && near(f64::from(*key), number)
        };
        let found = seconds.iter().find(|(key, _)| is_one(key));
        found.map_or_else(Vec::new, |(_, runs)| runs.clone())
    }

    /// Messages of 5 each second that one middleware received from another one.
    pub(crate) fn pair(&self, publisher: &str, subscriber: &str) -> Option<f64> {
        let is_one = |row: &&PairRow| {
            let to = name_of(&row.to_rmw, "sync").filter(|_| row.to_rmw_flavor == "cpp");
            name_of(&row.from_rmw, &row.from_rmw_flavor) == Some(publisher) && to == Some(subscriber)
        };
        self.pairs.iter().find(is_one).map(|row| row.received)
    }
}

fn all<const N: usize>(figures: [(&'static str, Option<f64>); N]) -> PublishedFigures {
    let known = figures
        .into_iter()
        .filter_map(|(name, figure)| Some((name, Estimate::exactly(figure?))));
    known.collect()
}

/// Converts from the decimal unit of the report.
fn mib(megabytes: f64) -> f64 {
    megabytes * 1e6 / MIB
}

fn near(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-6
}

fn by_second(rows: Vec<SecondRow>) -> Seconds {
    let mut seconds = Seconds::new();
    let runs = grouped(rows, |row| {
        (
            row.rmw.clone(),
            row.mode.clone(),
            row.side.clone(),
            row.loss_percent.round() as u32,
            row.run.clone(),
        )
    });
    for ((rmw, mode, side, number, _), rows) in runs {
        let Some(name) = name_of(&rmw, &mode) else {
            continue;
        };
        let side = if side == "pub" {
            Side::Publisher
        } else {
            Side::Subscriber
        };
        let count = |row: &SecondRow| {
            if side == Side::Publisher {
                row.sent
            } else {
                row.received
            }
        };
        let points = rows.iter().map(|row| (row.t_s.round(), count(row))).collect();
        seconds.entry((name, side, number)).or_default().push(points);
    }
    seconds
}

fn optional<T: for<'a> Deserialize<'a>>(path: &Path) -> BenchResult<Vec<T>> {
    if path.is_file() {
        rows(path)
    } else {
        Ok(Vec::new())
    }
}

fn rows<T: for<'a> Deserialize<'a>>(path: &Path) -> BenchResult<Vec<T>> {
    let wrong = BenchError::verify(path);
    let broken = |error: csv::Error| wrong(format!("is not the published data: {error}"));
    let mut reader = csv::Reader::from_path(path).map_err(broken)?;
    reader.deserialize().map(|row| row.map_err(broken)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn case(label: &str, bytes: usize, rate_hz: f64) -> MiddlewareCase {
        MiddlewareCase {
            label: label.to_owned(),
            shape: crate::middleware::worker::Shape::Bytes,
            bytes,
            rate_hz,
            is_reliable: true,
            depth: 10,
            kind: crate::middleware::CaseKind::Load,
            beside: None,
            place: 0,
        }
    }

    fn link(spec: Option<&str>) -> EvaluatedLink {
        EvaluatedLink {
            label: String::new(),
            spec: spec.map(|spec| spec.parse().unwrap()),
            place: 0,
        }
    }

    #[test]
    fn figures_and_seconds_are_found_by_our_names() {
        let folder = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        put(
            MEANS_FILE,
            "message_type,rate_mbit,loss_percent,rmw,mode,sent_per_s_mean,received_per_s_mean,lost_percent_mean,effective_latency_ms_mean,pub_rss_mb_mean,sub_rss_mb_mean\n\
             PointCloud512k,54,10,rmw_fastrtps_cpp,async,28,11.8,58,,30,31\nPointCloud512k,54,0,rmw_cyclonedds_cpp,sync,11,11,0,99,,\n",
        );
        put(
            SECONDS_FILE,
            "rmw,mode,loss_percent,run,side,t_s,received,sent\nrmw_cyclonedds_cpp,sync,0,run01,sub,1.0002,10,0\n\
             rmw_cyclonedds_cpp,sync,0,run02,sub,1.0004,12,0\nrmw_cyclonedds_cpp,sync,0,run02,pub,1.0004,0,11\n",
        );
        put(
            TYPES_FILE,
            "data_type,flavor,vendor,mean received,mean latency_mean (ms)\nArray1k,cpp_sync,cyclonedds,998.5,0.04\n",
        );
        put(
            WIFI_FILE,
            "rmw,rate_hz,run,side,t_s,received,sent,lost\nrmw_fastrtps_cpp,120,1,sub,2.01,66,0,0\n",
        );
        let published = PublishedEvaluation::read(folder.path()).unwrap();
        let cloud = case("PointCloud512k at 30 Hz", 524_288, 30.0);
        let lossy = link(Some("rate=54Mb/s,loss=10%"));
        let figures = published.figures("fastdds-async", &cloud, &lossy).unwrap();
        assert_eq!(figures["received"].median, 11.8);
        assert!(!figures.contains_key("latency"));
        assert_eq!(published.figures("fastdds-sync", &cloud, &lossy), None);
        assert_eq!(
            published.figures(
                "fastdds-async",
                &cloud,
                &link(Some("rate=54Mb/s,loss=10%/burst=9"))
            ),
            None
        );
        let good = link(Some("rate=54Mb/s"));
        let runs = published.seconds("cyclone", &cloud, &good, Side::Subscriber);
        assert_eq!(runs, [vec![(1.0, 10.0)], vec![(1.0, 12.0)]]);
        let sent = published.seconds("cyclone", &cloud, &good, Side::Publisher);
        assert_eq!(sent, [vec![(1.0, 11.0)]]);
        let small = case("Array1k", 1024, 1000.0);
        let figures = published.figures("cyclone", &small, &link(None)).unwrap();
        assert_eq!(figures["received"].median, 998.5);
        let wifi = case("Array60k at 120 Hz", 61_440, 120.0);
        let radio = link(Some("rate=45Mb/s,bottleneck=path"));
        let seconds = |name| published.seconds(name, &wifi, &radio, Side::Subscriber);
        assert_eq!(seconds("fastdds-sync"), [vec![(2.0, 66.0)]]);
        assert!(seconds("cyclone").is_empty());
        put(
            IDLE_FILE,
            "vendor,config,cpu_usage (%),median cpu_usage (%),mean cpu_usage (%),mean resident anonymous memory (Mb),mean physical memory (Mb),\
             mean virtual memory (Mb)\nps,cpp_syn,0.19,0.03,0.06,4.2,16.7,50.4\n",
        );
        put(
            PAIRS_FILE,
            "to_rmw_flavor,to_rmw,from_rmw_flavor,from_rmw,mean received\ncpp,fastrtps,cpp sync,cyclonedds,4.5\n",
        );
        let published = PublishedEvaluation::read(folder.path()).unwrap();
        let idle = MiddlewareCase {
            kind: crate::middleware::CaseKind::Idle,
            ..small
        };
        let figures = published.figures("fastdds-sync", &idle, &link(None)).unwrap();
        assert_eq!(
            (figures["cpu_p95"].median, figures["cpu_mean"].median),
            (0.19, 0.06)
        );
        assert_eq!(published.pair("cyclone", "fastdds-sync"), Some(4.5));
        assert_eq!(published.pair("fastdds-sync", "cyclone"), None);
        put(SECONDS_FILE, "a,b\n1,2\n");
        let error = PublishedEvaluation::read(folder.path()).unwrap_err().to_string();
        assert!(error.contains("is not the published data"), "{error}");
    }
}
