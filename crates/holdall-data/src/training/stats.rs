//! Statistics of a feature, as LeRobot stores them for each episode and for the dataset.

use serde_json::{Map, Value, json};

/// The shares whose quantiles are stored.
const QUANTILES: [(&str, f64); 5] = [
    ("q01", 0.01),
    ("q10", 0.10),
    ("q50", 0.50),
    ("q90", 0.90),
    ("q99", 0.99),
];

/// Statistics of each number, or of each channel of images.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Stats {
    pub min: Vec<f64>,
    pub max: Vec<f64>,
    pub mean: Vec<f64>,
    pub std: Vec<f64>,
    /// Frames.
    pub count: u64,
    /// In the order of the shares.
    pub quantiles: [Vec<f64>; 5],
}

impl Stats {
    /// Statistics of numbers; `series` has those of all frames for each.
    pub fn of_numbers(mut series: Vec<Vec<f64>>) -> Self {
        let mut stats = Self {
            count: series.first().map_or(0, Vec::len) as u64,
            ..Self::default()
        };
        for values in &mut series {
            // Values that were not measured have no share in a mean.
            values.retain(|value| value.is_finite());
            values.sort_by(f64::total_cmp);
            let count = values.len().max(1) as f64;
            let mean = values.iter().sum::<f64>() / count;
            let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
            let at = |share: f64| quantile(values, share);
            stats.push([at(0.0), at(1.0), mean, (squares / count).sqrt()], at);
        }
        stats
    }

    /// Statistics of images whose channels have these histograms; values are divided by `divisor`.
    pub fn of_histograms(histograms: &[Vec<u64>], frames: u64, divisor: f64) -> Self {
        let mut stats = Self {
            count: frames,
            ..Self::default()
        };
        for counts in histograms {
            let total = counts.iter().sum::<u64>().max(1) as f64;
            let each = || {
                counts
                    .iter()
                    .enumerate()
                    .map(|(value, count)| (value as f64, *count as f64))
            };
            let mean = each().map(|(value, count)| value * count).sum::<f64>() / total;
            let squares: f64 = each().map(|(value, count)| count * (value - mean).powi(2)).sum();
            let at = |share: f64| {
                let mut left = share * (total - 1.0);
                let found = counts.iter().position(|count| {
                    left -= *count as f64;
                    left < 0.0
                });
                found.unwrap_or_default() as f64 / divisor
            };
            let std = (squares / total).sqrt() / divisor;
            stats.push([at(0.0), at(1.0), mean / divisor, std], at);
        }
        stats
    }

    fn push(&mut self, [min, max, mean, std]: [f64; 4], quantile: impl Fn(f64) -> f64) {
        self.min.push(min);
        self.max.push(max);
        self.mean.push(mean);
        self.std.push(std);
        for (place, (_, share)) in QUANTILES.iter().enumerate() {
            self.quantiles[place].push(quantile(*share));
        }
    }

    /// Of this and more episodes together. Quantiles cannot be combined exactly: as in LeRobot, those up to the median become the smallest,
    /// the others the greatest of any episode.
    pub fn add(&mut self, other: &Self) {
        if self.count == 0 || other.count == 0 {
            if self.count == 0 {
                self.clone_from(other);
            }
            return;
        }
        let (here, there) = (self.count as f64, other.count as f64);
        let total = here + there;
        for place in 0..self.mean.len() {
            let mean = (self.mean[place] * here + other.mean[place] * there) / total;
            let spread = |stats: &Self| stats.std[place].powi(2) + (stats.mean[place] - mean).powi(2);
            let variance = (spread(self) * here + spread(other) * there) / total;
            (self.mean[place], self.std[place]) = (mean, variance.sqrt());
            self.min[place] = self.min[place].min(other.min[place]);
            self.max[place] = self.max[place].max(other.max[place]);
            for (share, (mine, others)) in self.quantiles.iter_mut().zip(&other.quantiles).enumerate() {
                mine[place] = if QUANTILES[share].1 <= 0.5 {
                    mine[place].min(others[place])
                } else {
                    mine[place].max(others[place])
                };
            }
        }
        self.count += other.count;
    }

    /// Names and values of all but the count.
    pub fn named(&self) -> impl Iterator<Item = (&'static str, &[f64])> {
        let plain = [
            ("min", &self.min),
            ("max", &self.max),
            ("mean", &self.mean),
            ("std", &self.std),
        ];
        let names = QUANTILES.iter().map(|(name, _)| *name);
        let quantiles = names.zip(&self.quantiles);
        plain
            .into_iter()
            .chain(quantiles)
            .map(|(name, values)| (name, values.as_slice()))
    }

    /// As in `stats.json`; those of images have the shape `(channels, 1, 1)`.
    pub fn to_json(&self, is_image: bool) -> Value {
        let shaped = |values: &[f64]| -> Value {
            let each = values
                .iter()
                .map(|value| if is_image { json!([[value]]) } else { json!(value) });
            each.collect()
        };
        let mut all: Map<String, Value> = self
            .named()
            .map(|(name, values)| (name.to_owned(), shaped(values)))
            .collect();
        all.insert("count".to_owned(), json!([self.count]));
        Value::Object(all)
    }
}

/// The quantile of sorted values, between two of them in proportion, as numpy has it.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let place = share * sorted.len().saturating_sub(1) as f64;
    let (below, above) = (place.floor() as usize, place.ceil() as usize);
    match (sorted.get(below), sorted.get(above)) {
        (Some(low), Some(high)) if low == high => *low,
        (Some(low), Some(high)) => low + (high - low) * place.fract(),
        _ => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(found: &[f64], expected: &[f64]) {
        assert_eq!(found.len(), expected.len());
        for (found, expected) in found.iter().zip(expected) {
            assert!((found - expected).abs() < 1e-9, "{found} is not {expected}");
        }
    }

    #[test]
    fn episodes_together_have_the_statistics_of_all_frames() {
        let all: Vec<f64> = (0..100).map(|step| f64::from(step * step % 37)).collect();
        let whole = Stats::of_numbers(vec![all.clone()]);
        let mut parts = Stats::of_numbers(vec![all[..30].to_vec()]);
        parts.add(&Stats::of_numbers(vec![all[30..].to_vec()]));
        for ((_, found), (_, expected)) in parts.named().zip(whole.named()).take(4) {
            near(found, expected);
        }
        assert_eq!((parts.count, whole.count), (100, 100));
        near(
            &Stats::of_numbers(vec![vec![3.0, 1.0, 2.0, 4.0]]).quantiles[2],
            &[2.5],
        );
    }

    #[test]
    fn images_are_counted_by_value() {
        let mut counts = vec![0; 256];
        (counts[0], counts[255]) = (50, 50);
        let stats = Stats::of_histograms(&[counts], 2, 255.0);
        near(&stats.mean, &[0.5]);
        near(&stats.std, &[0.5]);
        near(&stats.max, &[1.0]);
        near(&stats.quantiles[0], &[0.0]);
        near(&stats.quantiles[4], &[1.0]);
        assert_eq!(stats.to_json(true)["mean"], json!([[[0.5]]]));
    }
}
