//! Figures of the published evaluation, read from its data when they are at hand.

use super::{EvaluatedLink, MiddlewareCase};
use crate::{
    error::{BenchError, BenchResult},
    link::spec::Bottleneck,
};
use holdall_model::units::MIB;
use serde::Deserialize;
use std::{collections::BTreeMap, path::Path};

/// Means of its runs over an emulated link.
const MEANS_FILE: &str = "d3_d4_d5_mininet.csv";
/// Its runs over 54 Mb/s second by second.
const SECONDS_FILE: &str = "d3_per_second_54mbit.csv";
/// Message types at 1000 Hz between two processes of one host.
const TYPES_FILE: &str = "d2_two_process_galactic.csv";
/// Its runs over Wi-Fi second by second.
const WIFI_FILE: &str = "d6_wifi_per_second.csv";
/// The rate of the link whose seconds were published.
const SECONDS_MBIT: f64 = 54.0;

/// One configuration of the published evaluation.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct PublishedFigures {
    pub sent_per_s: Option<f64>,
    pub received_per_s: Option<f64>,
    /// Of those sent.
    pub lost_percent: Option<f64>,
    pub effective_latency_ms: Option<f64>,
    pub publisher_rss_mib: Option<f64>,
    pub subscriber_rss_mib: Option<f64>,
}

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
}

#[derive(Deserialize)]
struct SecondRow {
    rmw: String,
    mode: String,
    loss_percent: f64,
    side: String,
    t_s: f64,
    received: f64,
}

#[derive(Deserialize)]
struct WifiRow {
    rmw: String,
    rate_hz: f64,
    side: String,
    t_s: f64,
    received: f64,
}

/// Mean messages received in each second, by middleware and a number: the loss in percent, or the rate in hertz.
type Seconds = BTreeMap<(&'static str, u32), Vec<(f64, f64)>>;

/// The published evaluation.
#[derive(Clone, Debug, Default)]
pub struct PublishedEvaluation {
    means: Vec<MeansRow>,
    types: Vec<TypeRow>,
    seconds: Seconds,
    wifi: Seconds,
}

/// Our name for a published pair of rmw and mode.
fn name_of(rmw: &str, mode: &str) -> Option<&'static str> {
    match (rmw, mode) {
        ("rmw_fastrtps_cpp" | "fastrtps", "sync") => Some("fastdds-sync"),
        ("rmw_fastrtps_cpp" | "fastrtps", "async") => Some("fastdds-async"),
        ("rmw_cyclonedds_cpp", "sync") | ("cyclonedds", "cpp_sync") => Some("cyclone"),
        _ => None,
    }
}

impl PublishedEvaluation {
    /// Reads the data of a folder.
    ///
    /// # Errors
    /// A file that is missing or has other columns.
    pub fn read(folder: &Path) -> BenchResult<Self> {
        let optional = |name: &str| Some(folder.join(name)).filter(|path| path.is_file());
        let types = optional(TYPES_FILE).map(|path| rows(&path)).transpose()?;
        let wifi: Option<Vec<WifiRow>> = optional(WIFI_FILE).map(|path| rows(&path)).transpose()?;
        let seconds = rows::<SecondRow>(&folder.join(SECONDS_FILE))?;
        Ok(Self {
            means: rows(&folder.join(MEANS_FILE))?,
            types: types.unwrap_or_default(),
            seconds: by_second(
                seconds
                    .into_iter()
                    .filter(|row| row.side == "sub")
                    .filter_map(|row| {
                        let key = (name_of(&row.rmw, &row.mode)?, row.loss_percent.round() as u32);
                        Some((key, row.t_s, row.received))
                    }),
            ),
            // Its mode was not published; the default of the time was synchronous.
            wifi: by_second(
                wifi.into_iter()
                    .flatten()
                    .filter(|row| row.side == "sub")
                    .filter_map(|row| {
                        let key = (name_of(&row.rmw, "sync")?, row.rate_hz.round() as u32);
                        Some((key, row.t_s, row.received))
                    }),
            ),
        })
    }

    /// The figures of a middleware for a load over a link.
    pub(crate) fn figures(
        &self,
        middleware: &str,
        case: &MiddlewareCase,
        link: &EvaluatedLink,
    ) -> Option<PublishedFigures> {
        let Some(spec) = &link.spec else {
            let is_one = |row: &&TypeRow| {
                name_of(&row.vendor, &row.flavor) == Some(middleware) && row.data_type == case.label
            };
            let row = self
                .types
                .iter()
                .find(is_one)
                .filter(|_| near(case.rate_hz, 1000.0))?;
            return Some(PublishedFigures {
                received_per_s: Some(row.received),
                effective_latency_ms: Some(row.latency_ms),
                ..PublishedFigures::default()
            });
        };
        let message_type = match case.bytes {
            524_288 => "PointCloud512k",
            1024 => "Array1k",
            _ => return None,
        };
        let rate_mbit = spec.rate_bits_per_s? as f64 / 1e6;
        let row = self.means.iter().find(|row| {
            name_of(&row.rmw, &row.mode) == Some(middleware)
                && row.message_type == message_type
                && near(row.rate_mbit, rate_mbit)
                && near(row.loss_percent, 100.0 * spec.loss.share)
        });
        // What else a link may do was not published.
        let is_plain = spec.loss.burst.is_none() && spec.delay.is_zero() && spec.outages.is_empty();
        let row = row.filter(|_| is_plain && near(case.rate_hz, 30.0))?;
        Some(PublishedFigures {
            sent_per_s: row.sent_per_s_mean,
            received_per_s: row.received_per_s_mean,
            lost_percent: row.lost_percent_mean,
            effective_latency_ms: row.effective_latency_ms_mean,
            publisher_rss_mib: row.pub_rss_mb_mean.map(mib),
            subscriber_rss_mib: row.sub_rss_mb_mean.map(mib),
        })
    }

    /// Mean messages received in each second of the published runs of a load over a link.
    pub(crate) fn seconds(
        &self,
        middleware: &str,
        case: &MiddlewareCase,
        link: &EvaluatedLink,
    ) -> Option<&[(f64, f64)]> {
        let spec = link.spec.as_ref()?;
        let find = |seconds: &'_ Seconds, number: f64| {
            let found = seconds
                .keys()
                .find(|(name, key)| *name == middleware && near(f64::from(*key), number));
            found.copied()
        };
        if case.bytes == 61_440 && spec.bottleneck == Bottleneck::Path {
            return self.wifi.get(&find(&self.wifi, case.rate_hz)?).map(Vec::as_slice);
        }
        self.figures(middleware, case, link)?;
        let key = find(&self.seconds, 100.0 * spec.loss.share)?;
        let is_published = case.bytes == 524_288 && near(spec.rate_bits_per_s? as f64 / 1e6, SECONDS_MBIT);
        self.seconds.get(&key).filter(|_| is_published).map(Vec::as_slice)
    }
}

/// From the decimal unit of the report.
fn mib(megabytes: f64) -> f64 {
    megabytes * 1e6 / MIB
}

fn near(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-6
}

/// The mean of all runs in each second.
fn by_second(rows: impl Iterator<Item = ((&'static str, u32), f64, f64)>) -> Seconds {
    // The sum of all runs and their number, by second.
    type Sums = BTreeMap<u32, (f64, u32)>;
    let mut sums: BTreeMap<(&'static str, u32), Sums> = BTreeMap::new();
    for (key, at_s, received) in rows {
        let second = sums
            .entry(key)
            .or_default()
            .entry(at_s.round() as u32)
            .or_default();
        second.0 += received;
        second.1 += 1;
    }
    let mean = |(second, (sum, runs)): (u32, (f64, u32))| (f64::from(second), sum / f64::from(runs));
    sums.into_iter()
        .map(|(key, seconds)| (key, seconds.into_iter().map(mean).collect()))
        .collect()
}

fn rows<T: for<'a> Deserialize<'a>>(path: &Path) -> BenchResult<Vec<T>> {
    let broken = |error: csv::Error| BenchError::Verify {
        path: path.to_owned(),
        reason: format!("is not the published data: {error}"),
    };
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
        assert_eq!(
            (figures.received_per_s, figures.effective_latency_ms),
            (Some(11.8), None)
        );
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
        assert_eq!(
            published.seconds("cyclone", &cloud, &good),
            Some([(1.0, 11.0)].as_slice())
        );
        let small = case("Array1k", 1024, 1000.0);
        assert_eq!(
            published
                .figures("cyclone", &small, &link(None))
                .unwrap()
                .received_per_s,
            Some(998.5)
        );
        let wifi = case("Array60k at 120 Hz", 61_440, 120.0);
        let radio = link(Some("rate=45Mb/s,bottleneck=path"));
        assert_eq!(
            published.seconds("fastdds-sync", &wifi, &radio),
            Some([(2.0, 66.0)].as_slice())
        );
        assert_eq!(published.seconds("cyclone", &wifi, &radio), None);
        put(SECONDS_FILE, "a,b\n1,2\n");
        let error = PublishedEvaluation::read(folder.path()).unwrap_err().to_string();
        assert!(error.contains("is not the published data"), "{error}");
    }
}
