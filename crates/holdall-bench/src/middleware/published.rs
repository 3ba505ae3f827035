//! Figures of the published evaluation, read from its data when they are at hand.

use crate::error::{BenchError, BenchResult};
use serde::Deserialize;
use std::{collections::BTreeMap, path::Path};

/// Means of its runs over an emulated link.
const MEANS_FILE: &str = "d3_d4_d5_mininet.csv";
/// Its runs second by second.
const SECONDS_FILE: &str = "d3_per_second_54mbit.csv";

/// One configuration of the published evaluation.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct PublishedMeans {
    message_type: String,
    rate_mbit: f64,
    loss_percent: f64,
    rmw: String,
    mode: String,
    pub sent_per_s_mean: f64,
    pub received_per_s_mean: f64,
    pub lost_percent_mean: f64,
    /// Empty where nothing arrived.
    pub effective_latency_ms_mean: Option<f64>,
}

#[derive(Deserialize)]
struct Second {
    rmw: String,
    mode: String,
    loss_percent: f64,
    side: String,
    t_s: f64,
    received: f64,
}

/// The published evaluation.
#[derive(Clone, Debug, Default)]
pub struct PublishedEvaluation {
    means: Vec<PublishedMeans>,
    /// Mean messages received in each second, by middleware and loss in percent.
    seconds: BTreeMap<(String, u32), Vec<(f64, f64)>>,
}

/// Our name for a published pair of rmw and mode.
fn name_of(rmw: &str, mode: &str) -> Option<&'static str> {
    match (rmw, mode) {
        ("rmw_fastrtps_cpp", "sync") => Some("fastdds-sync"),
        ("rmw_fastrtps_cpp", "async") => Some("fastdds-async"),
        ("rmw_cyclonedds_cpp", "sync") => Some("cyclone"),
        _ => None,
    }
}

impl PublishedEvaluation {
    /// Reads the data of a folder.
    ///
    /// # Errors
    /// A file that is missing or has other columns.
    pub fn read(folder: &Path) -> BenchResult<Self> {
        let mut published = Self {
            means: rows(&folder.join(MEANS_FILE))?,
            ..Self::default()
        };
        // The sum of all runs and their number, by second.
        type Sums = BTreeMap<u32, (f64, u32)>;
        let mut sums: BTreeMap<(String, u32), Sums> = BTreeMap::new();
        for row in rows::<Second>(&folder.join(SECONDS_FILE))? {
            let Some(name) = name_of(&row.rmw, &row.mode).filter(|_| row.side == "sub") else {
                continue;
            };
            let of = sums
                .entry((name.to_owned(), row.loss_percent as u32))
                .or_default();
            let second = of.entry(row.t_s.round() as u32).or_default();
            second.0 += row.received;
            second.1 += 1;
        }
        let mean = |seconds: Sums| {
            let mean = |(second, (sum, runs)): (u32, (f64, u32))| (f64::from(second), sum / f64::from(runs));
            seconds.into_iter().map(mean).collect()
        };
        published.seconds = sums
            .into_iter()
            .map(|(key, seconds)| (key, mean(seconds)))
            .collect();
        Ok(published)
    }

    /// The means of a middleware over a link of this rate and loss, for messages of this size.
    pub(crate) fn means(
        &self,
        middleware: &str,
        rate_mbit: f64,
        loss_percent: f64,
        bytes: u64,
    ) -> Option<&PublishedMeans> {
        let message_type = match bytes {
            524_288 => "PointCloud512k",
            1024 => "Array1k",
            _ => return None,
        };
        let near = |a: f64, b: f64| (a - b).abs() < 1e-6;
        self.means.iter().find(|row| {
            name_of(&row.rmw, &row.mode) == Some(middleware)
                && row.message_type == message_type
                && near(row.rate_mbit, rate_mbit)
                && near(row.loss_percent, loss_percent)
        })
    }

    /// Mean messages received in each second of the published runs with this loss, over 54 Mb/s.
    pub(crate) fn seconds(&self, middleware: &str, loss_percent: f64) -> Option<&[(f64, f64)]> {
        let key = (middleware.to_owned(), loss_percent.round() as u32);
        self.seconds.get(&key).map(Vec::as_slice)
    }
}

fn rows<T: for<'a> Deserialize<'a>>(path: &Path) -> BenchResult<Vec<T>> {
    let broken = |error: csv::Error| BenchError::Verify {
        path: path.to_owned(),
        reason: format!("is not the published data: {error}"),
    };
    csv::Reader::from_path(path)
        .map_err(broken)?
        .deserialize()
        .map(|row| row.map_err(broken))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn means_and_seconds_are_found_by_our_names() {
        let folder = tempfile::tempdir().unwrap();
        let head = "message_type,rate_mbit,loss_percent,rmw,mode,sent_per_s_mean,received_per_s_mean,lost_percent_mean,effective_latency_ms_mean";
        let text = format!("{head}\nPointCloud512k,54,10,rmw_fastrtps_cpp,async,28,11.8,58,\n");
        fs::write(folder.path().join(MEANS_FILE), text).unwrap();
        let seconds = "rmw,mode,loss_percent,run,side,t_s,received,sent\n\
            rmw_cyclonedds_cpp,sync,0,run01,sub,1.0002,10,0\nrmw_cyclonedds_cpp,sync,0,run02,sub,1.0004,12,0\n\
            rmw_cyclonedds_cpp,sync,0,run02,pub,1.0004,0,11\n";
        fs::write(folder.path().join(SECONDS_FILE), seconds).unwrap();
        let published = PublishedEvaluation::read(folder.path()).unwrap();
        let means = published.means("fastdds-async", 54.0, 10.0, 524_288).unwrap();
        assert_eq!(
            (means.received_per_s_mean, means.effective_latency_ms_mean),
            (11.8, None)
        );
        assert!(published.means("fastdds-sync", 54.0, 10.0, 524_288).is_none());
        assert_eq!(published.seconds("cyclone", 0.0), Some([(1.0, 11.0)].as_slice()));
        fs::write(folder.path().join(SECONDS_FILE), "a,b\n1,2\n").unwrap();
        let error = PublishedEvaluation::read(folder.path()).unwrap_err().to_string();
        assert!(error.contains("is not the published data"), "{error}");
    }
}
