//! How much the machine's own speed varied while an experiment ran: without it no difference can be
//! interpreted.

use super::result::RunResult;
use crate::statistics;
use holdall_model::units::{MIB, format_mebibyte_rate as rate};

/// Limits and their spread, wake-ups, and the load of other programs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Noise {
    /// Direct write limits of all runs: least, median, most, in bytes a second.
    pub direct: Option<[f64; 3]>,
    /// The rate that the disk was limited to.
    pub disk_limit: Option<f64>,
    /// The direct limit in blocks of a message, where messages are large.
    pub messages: Option<f64>,
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

/// A machine whose direct write limits differ by more than this cannot show differences between recorders:
/// most of the published ones are smaller.
const SPREAD_MAX: f64 = 1.3;

/// The runs themselves keep every processor busy; a load above this comes from other programs.
const LOAD_OF_CORES_MAX: f64 = 2.0;

/// The highest load average of a quiet machine.
fn load_max(cores: usize) -> f64 {
    LOAD_OF_CORES_MAX * cores.max(1) as f64
}

impl Noise {
    /// The noise of these runs.
    pub fn of(runs: &[RunResult]) -> Self {
        let collect =
            |pick: &dyn Fn(&RunResult) -> Option<f64>| runs.iter().filter_map(pick).collect::<Vec<f64>>();
        let ends = |values: &[f64]| {
            let low = values.iter().copied().reduce(f64::min)?;
            Some([low, values.iter().copied().reduce(f64::max)?])
        };
        let mut direct = collect(&|run| run.around.limits.direct_write_bytes_per_s);
        direct.extend(collect(&|run| run.around.limits.direct_write_after_bytes_per_s));
        let load = collect(&|run| Some(run.around.load_average));
        let wake_up = |pick: &dyn Fn(&crate::measure::LatencySummary) -> u64| {
            collect(&|run| run.around.wake_up.as_ref().map(|late| pick(late) as f64))
        };
        Self {
            direct: ends(&direct)
                .zip(statistics::median(&direct))
                .map(|([low, high], middle)| [low, middle, high]),
            disk_limit: statistics::median(&collect(&|run| run.around.limits.disk_limit_bytes_per_s)),
            messages: statistics::median(&collect(&|run| run.around.limits.message_write_bytes_per_s)),
            buffered: statistics::median(&collect(&|run| run.around.limits.buffered_write_bytes_per_s)),
            memcpy: statistics::median(&collect(&|run| run.around.limits.memcpy_bytes_per_s)),
            wake_up_p99_9_ns: statistics::median(&wake_up(&|late| late.p99_9_ns)),
            wake_up_max_ns: wake_up(&|late| late.max_ns).into_iter().reduce(f64::max),
            load: ends(&load),
        }
    }

    /// Why the runs cannot be compared, in a sentence; `None` when the machine was quiet. It was not when the
    /// limits of the disk changed by more than [`SPREAD_MAX`] between runs, or when other programs kept it busy.
    pub(crate) fn too_noisy(&self, cores: usize) -> Option<String> {
        let mut causes = Vec::new();
        if let Some(factor) = self.spread() {
            causes.push(format!(
                "what the disk itself wrote changed by a factor of {factor:.1} between the runs (up to {SPREAD_MAX} is quiet)"
            ));
        }
        if let Some(high) = self.load_of_others(cores) {
            causes.push(format!(
                "the load average was {high:.1} when a run began, on {cores} processors (up to {:.0} is quiet)",
                load_max(cores)
            ));
        }
        (!causes.is_empty()).then(|| {
            format!(
                "The machine was too noisy to compare: {}. Rows that differ by less mean nothing; repeat on an idle machine.",
                causes.join("; ")
            )
        })
    }

    /// The same in a few words, for a page that explains them once.
    pub(crate) fn too_noisy_in_short(&self, cores: usize) -> Option<String> {
        let disk = self.spread().map(|factor| format!("disk × {factor:.1}"));
        let load = self.load_of_others(cores).map(|high| format!("load {high:.1}"));
        let causes: Vec<String> = disk.into_iter().chain(load).collect();
        (!causes.is_empty()).then(|| format!("Noise: {}.", causes.join(", ")))
    }

    /// The factor by which the disk's own rate changed, when it is too large.
    fn spread(&self) -> Option<f64> {
        let [low, _, high] = self.direct.filter(|[low, _, high]| *high > low * SPREAD_MAX)?;
        Some(high / low.max(1.0))
    }

    /// The highest load average when a run began, when that is too much.
    fn load_of_others(&self, cores: usize) -> Option<f64> {
        let [_, high] = self.load?;
        (high > load_max(cores)).then_some(high)
    }

    /// The limits in a sentence.
    pub(crate) fn limits_text(&self) -> String {
        let direct = self
            .direct
            .map_or("none".to_owned(), |[_, middle, _]| rate(middle));
        let or_dash = |value: Option<f64>| value.map_or("–".to_owned(), rate);
        let limited = self
            .disk_limit
            .map(|limit| format!("disk limited to {}, ", rate(limit)));
        let messages = self
            .messages
            .map(|messages| format!(", {} in blocks of a message", rate(messages)));
        format!(
            "{}direct write {direct} (median){}, buffered write with sync {}, memcpy {}",
            limited.unwrap_or_default(),
            messages.unwrap_or_default(),
            or_dash(self.buffered),
            or_dash(self.memcpy)
        )
    }

    /// The noise in a sentence.
    pub fn text(&self) -> String {
        let mut parts = Vec::new();
        if let Some([low, _, high]) = self.direct {
            parts.push(format!(
                "direct write went from {:.0} to {:.0} MiB/s",
                low / MIB,
                high / MIB
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_noisy_machine_is_named_with_its_causes() {
        let quiet = Noise {
            direct: Some([1.0e9, 1.1e9, 1.29e9]),
            load: Some([0.1, 3.9]),
            ..Noise::default()
        };
        assert_eq!(quiet.too_noisy(2), None);
        assert_eq!(Noise::default().too_noisy(2), None, "nothing is known");
        let uneven = Noise {
            direct: Some([1.0e9, 1.1e9, 2.0e9]),
            ..quiet.clone()
        };
        let text = uneven.too_noisy(2).unwrap();
        assert!(
            text.contains("a factor of 2.0") && !text.contains("load"),
            "{text}"
        );
        let busy = Noise {
            load: Some([0.1, 4.1]),
            ..quiet
        };
        let text = busy.too_noisy(2).unwrap();
        assert!(
            text.contains("load average was 4.1") && !text.contains("factor"),
            "{text}"
        );
    }
}
