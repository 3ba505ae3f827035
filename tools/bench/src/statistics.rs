//! Statistics over repetitions: medians, bootstrap intervals, paired ratios, and whether an interval supports
//! a claim.

use serde::{Deserialize, Serialize};

/// Resamples of one bootstrap; the ends of a 95 % interval then move by less than a hundredth of its width
/// between seeds.
const RESAMPLES: usize = 10_000;

/// Share of the resamples that every interval holds.
const CONFIDENCE: f64 = 0.95;

/// Fewer repetitions than this give no interval: two values do not show how they scatter.
pub(crate) const REPETITIONS_FOR_INTERVAL_MIN: usize = 3;

/// The ends of a 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Interval {
    /// Whether `value` is within it.
    pub fn contains(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }
}

/// A figure over repetitions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// Median of the repetitions.
    pub median: f64,
    /// Bootstrap 95 % interval of the median; absent below [`REPETITIONS_FOR_INTERVAL_MIN`] repetitions.
    pub interval: Option<Interval>,
    /// How many repetitions there were.
    pub repetitions: usize,
}

impl Estimate {
    /// The estimate of `samples`; `None` without samples.
    pub fn of(samples: &[f64], seed: u64) -> Option<Self> {
        Some(Self {
            median: median(samples)?,
            interval: bootstrap_interval(samples, seed),
            repetitions: samples.len(),
        })
    }

    /// A figure that did not come from repetitions.
    pub(crate) fn exactly(figure: f64) -> Self {
        Self {
            median: figure,
            interval: None,
            repetitions: 1,
        }
    }

    /// The estimate of `numerators[i] / denominators[i]`, pairs that were measured next to each other in
    /// time.
    ///
    /// Dividing first and taking the median afterwards lets a drift of the machine cancel within each pair.
    pub(crate) fn of_ratio(numerators: &[f64], denominators: &[f64], seed: u64) -> Option<Self> {
        let ratios: Vec<f64> = numerators
            .iter()
            .zip(denominators)
            .filter(|(_, d)| **d > 0.0)
            .map(|(n, d)| n / d)
            .collect();
        Self::of(&ratios, seed)
    }

    /// The median, this text, and the interval if there is one.
    pub(crate) fn text(&self, digits: usize, unit: &str) -> String {
        let ends = self.interval;
        let ends = ends.map(|ends| format!(" [{:.digits$}, {:.digits$}]", ends.low, ends.high));
        format!("{:.digits$}{unit}{}", self.median, ends.unwrap_or_default())
    }

    /// Both ends of the interval; the median without one.
    pub(crate) fn ends(&self) -> (f64, f64) {
        let ends = |ends: Interval| (ends.low, ends.high);
        self.interval.map_or((self.median, self.median), ends)
    }
}

/// The middle value, or the mean of the two in the middle; `None` without samples.
pub fn median(samples: &[f64]) -> Option<f64> {
    let mut sorted = samples.to_vec();
    median_in_place(&mut sorted)
}

fn median_in_place(samples: &mut [f64]) -> Option<f64> {
    samples.sort_unstable_by(f64::total_cmp);
    let middle = samples.len() / 2;
    let upper = *samples.get(middle)?;
    if samples.len() % 2 == 1 {
        Some(upper)
    } else {
        Some(f64::midpoint(samples[middle - 1], upper))
    }
}

/// Percentile bootstrap of the median with a fixed seed, so that the same samples give the same interval.
///
/// With very few samples it is the range between the smallest and the largest, all that they can show.
pub(crate) fn bootstrap_interval(samples: &[f64], seed: u64) -> Option<Interval> {
    if samples.len() < REPETITIONS_FOR_INTERVAL_MIN {
        return None;
    }
    let mut random = fastrand::Rng::with_seed(seed);
    let mut resample = vec![0.0; samples.len()];
    let mut medians = Vec::with_capacity(RESAMPLES);
    for _ in 0..RESAMPLES {
        resample.fill_with(|| samples[random.usize(..samples.len())]);
        medians.extend(median_in_place(&mut resample));
    }
    medians.sort_unstable_by(f64::total_cmp);
    let tail = (1.0 - CONFIDENCE) / 2.0;
    Some(Interval {
        low: quantile_sorted(&medians, tail)?,
        high: quantile_sorted(&medians, 1.0 - tail)?,
    })
}

/// The value at `share` (0 to 1) of sorted samples, linear between neighbours; `None` without samples.
pub(crate) fn quantile_sorted(sorted: &[f64], share: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let place = share.clamp(0.0, 1.0) * last as f64;
    // `place` is within 0..=last, so both conversions are exact enough to be indices.
    let below = place.floor() as usize;
    let above = (below + 1).min(last);
    Some(sorted[below] + (sorted[above] - sorted[below]) * (place - below as f64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn median_of_odd_and_even_counts() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), Some(2.5));
        assert_eq!(median(&[]), None);
    }

    #[test]
    fn quantiles_are_linear_between_neighbours() {
        let sorted = [10.0, 20.0, 30.0, 40.0, 50.0];
        assert_eq!(quantile_sorted(&sorted, 0.0), Some(10.0));
        assert_eq!(quantile_sorted(&sorted, 1.0), Some(50.0));
        assert_eq!(quantile_sorted(&sorted, 0.375), Some(25.0));
    }

    /// The number of n samples below their median is binomial. For n = 9 the exact 95 % bootstrap interval of
    /// the median is from the 3rd to the 7th smallest value (tails of 2.2 % beyond the 2nd and 8th).
    #[test]
    fn interval_of_nine_values_is_the_known_one() {
        let samples = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0];
        let interval = bootstrap_interval(&samples, 7).unwrap();
        assert!((2.0..=3.0).contains(&interval.low), "{interval:?}");
        assert!((7.0..=8.0).contains(&interval.high), "{interval:?}");
    }

    #[test]
    fn equal_values_have_an_interval_of_no_width() {
        assert_eq!(
            bootstrap_interval(&[2.5; 5], 1),
            Some(Interval { low: 2.5, high: 2.5 })
        );
    }

    #[test]
    fn two_repetitions_have_no_interval() {
        let estimate = Estimate::of(&[1.0, 2.0], 1).unwrap();
        assert_eq!((estimate.median, estimate.interval), (1.5, None));
    }

    #[test]
    fn drift_cancels_in_paired_ratios() {
        let candidate = [0.95, 1.9, 3.8];
        let limit = [1.0, 2.0, 4.0];
        let ratio = Estimate::of_ratio(&candidate, &limit, 1).unwrap();
        assert!((ratio.median - 0.95).abs() < 1e-12);
        let interval = ratio.interval.unwrap();
        assert!(interval.high - interval.low < 1e-12, "{interval:?}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn interval_holds_the_median_and_stays_in_the_range(samples in prop::collection::vec(-1e9..1e9f64, 3..12), seed: u64) {
            let interval = bootstrap_interval(&samples, seed).unwrap();
            let lowest = samples.iter().copied().fold(f64::INFINITY, f64::min);
            let highest = samples.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            prop_assert!(interval.contains(median(&samples).unwrap()));
            prop_assert!(lowest <= interval.low && interval.high <= highest);
            prop_assert_eq!(bootstrap_interval(&samples, seed), Some(interval));
        }
    }
}
