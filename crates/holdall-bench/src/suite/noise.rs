//! How much the machine's own speed varied while an experiment ran: without it no difference can be
//! interpreted.

use super::result::RunResult;
use crate::statistics;

/// Limits and their spread, wake-ups, and the load of other programs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Noise {
    /// Direct write limits of all runs: least, median, most, in bytes a second.
    pub direct: Option<[f64; 3]>,
    /// Buffered limit.
    pub buffered: Option<f64>,
    /// Memory copy limit.
    pub memcpy: Option<f64>,
    /// Median over runs of the 99.9th percentile of late wake-ups, in nanoseconds.
    pub wake_up_p99_9_ns: Option<f64>,
    /// The worst of all, in nanoseconds.
    pub wake_up_max_ns: Option<f64>,
    /// Load average when runs began: least and most.
    pub load: Option<[f64; 2]>,
}

impl Noise {
    /// Of these runs.
    pub fn of(runs: &[RunResult]) -> Self {
        let collect =
            |pick: &dyn Fn(&RunResult) -> Option<f64>| runs.iter().filter_map(pick).collect::<Vec<f64>>();
        let ends = |values: &[f64]| {
            let low = values.iter().copied().reduce(f64::min)?;
            Some([low, values.iter().copied().reduce(f64::max)?])
        };
        let mut direct = collect(&|run| run.limits.direct_write_bytes_per_s);
        direct.extend(collect(&|run| run.limits.direct_write_after_bytes_per_s));
        let load = collect(&|run| Some(run.load_average));
        let wake_up = |pick: &dyn Fn(&crate::measure::LatencySummary) -> u64| {
            collect(&|run| run.wake_up.as_ref().map(|late| pick(late) as f64))
        };
        Self {
            direct: ends(&direct)
                .zip(statistics::median(&direct))
                .map(|([low, high], middle)| [low, middle, high]),
            buffered: statistics::median(&collect(&|run| run.limits.buffered_write_bytes_per_s)),
            memcpy: statistics::median(&collect(&|run| run.limits.memcpy_bytes_per_s)),
            wake_up_p99_9_ns: statistics::median(&wake_up(&|late| late.p99_9_ns)),
            wake_up_max_ns: wake_up(&|late| late.max_ns).into_iter().reduce(f64::max),
            load: ends(&load),
        }
    }

    /// The limits in a sentence.
    pub fn limits_text(&self) -> String {
        let rate = |value: f64| format!("{:.0} MB/s", value / 1e6);
        let direct = self
            .direct
            .map_or("none".to_owned(), |[_, middle, _]| rate(middle));
        let or_dash = |value: Option<f64>| value.map_or("–".to_owned(), rate);
        format!(
            "direct write {direct} (median), buffered write with sync {}, memcpy {}",
            or_dash(self.buffered),
            or_dash(self.memcpy)
        )
    }

    /// The noise in a sentence.
    pub fn text(&self) -> String {
        let mut parts = Vec::new();
        if let Some([low, _, high]) = self.direct {
            parts.push(format!(
                "direct write went from {:.0} to {:.0} MB/s",
                low / 1e6,
                high / 1e6
            ));
        }
        if let (Some(often), Some(worst)) = (self.wake_up_p99_9_ns, self.wake_up_max_ns) {
            parts.push(format!(
                "a sleeping thread woke up to {:.2} ms late (p99.9), {:.1} ms at worst",
                often / 1e6,
                worst / 1e6
            ));
        }
        if let Some([low, high]) = self.load {
            parts.push(format!("load average {low:.1} to {high:.1}"));
        }
        if parts.is_empty() {
            "not known".to_owned()
        } else {
            parts.join("; ")
        }
    }
}
