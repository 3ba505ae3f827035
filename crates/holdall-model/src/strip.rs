//! Heights to draw from counts of messages by cell; they do not depend on how a topic's period falls into the cells.

use std::ops::Range;

/// Messages averaged for one height: one message more or fewer, depending on the borders of cells, then makes no visible step.
const MEAN_MESSAGES: f64 = 8.0;

/// Fewest cells with messages that show a topic's period.
const PERIODS_MIN: usize = 10;

/// A cell that usually has as many messages is never without them but in a pause.
const USUAL_COUNT_MIN: u64 = 3;

/// A topic over time, as pictures show it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Strip {
    /// The height of each cell, from 0 for no message to 1.
    pub heights: Vec<f64>,
    /// Messages in each cell, as the mean of several cells where they are regular.
    pub means: Vec<f64>,
    /// Runs of cells without messages, of topics that have messages regularly otherwise.
    pub gaps: Vec<Range<usize>>,
}

impl Strip {
    /// A strip of counts by cell. A topic that has messages regularly is drawn by their mean over some of them, without holes where cells are shorter
    /// than its period; other messages stay in their cells.
    ///
    /// ```
    /// use holdall_model::strip::Strip;
    ///
    /// let every_third_cell: Vec<u64> = (0..60).map(|cell| u64::from(cell % 3 == 0)).collect();
    /// assert!(Strip::new(&every_third_cell).heights.iter().all(|height| *height == 1.0));
    /// ```
    pub fn new(counts: &[u64]) -> Self {
        let filled: Vec<usize> = (0..counts.len()).filter(|cell| counts[*cell] > 0).collect();
        match usual_spacing(counts, &filled) {
            Some(usual) => Self::of_runs(counts, &runs(&filled, counts.len(), usual)),
            None => Self::of_cells(counts),
        }
    }

    /// The heights in steps from 0 to `steps`; a cell with messages has at least one step.
    pub fn steps(&self, steps: u32) -> impl Iterator<Item = u32> {
        let steps = f64::from(steps);
        // A height of 3 of 4 steps may have been computed as slightly more.
        let step = move |height: &f64| (height * steps - 1e-6).ceil().clamp(0.0, steps) as u32;
        self.heights.iter().map(step)
    }

    fn of_cells(counts: &[u64]) -> Self {
        let means: Vec<f64> = counts.iter().map(|count| *count as f64).collect();
        Self {
            heights: heights(means.iter().map(|mean| (*mean, 0.0))),
            means,
            gaps: Vec::new(),
        }
    }

    fn of_runs(counts: &[u64], runs: &[Range<usize>]) -> Self {
        let mut means = vec![(0.0, 0.0); counts.len()];
        let (mut gaps, mut end) = (Vec::new(), 0);
        for run in runs {
            average(&counts[run.clone()], &mut means[run.clone()]);
            gaps.push(end..run.start);
            end = run.end;
        }
        gaps.push(end..counts.len());
        gaps.retain(|gap| !gap.is_empty());
        Self {
            heights: heights(means.iter().copied()),
            means: means.into_iter().map(|(mean, _)| mean).collect(),
            gaps,
        }
    }
}

/// Heights from means; one message more or less makes no difference.
fn heights(means: impl Iterator<Item = (f64, f64)> + Clone) -> Vec<f64> {
    let full = means.clone().map(|(mean, _)| mean).fold(0.0, f64::max);
    let height = |(mean, one): (f64, f64)| {
        if full > 0.0 {
            ((mean + one) / full).min(1.0)
        } else {
            0.0
        }
    };
    means.map(height).collect()
}

/// The middle of values that are not empty.
fn median<T: Ord + Copy>(mut values: Vec<T>) -> Option<T> {
    values.sort_unstable();
    values.get(values.len() / 2).copied()
}

/// Cells from one with messages to the next, of a topic that has them regularly.
fn usual_spacing(counts: &[u64], filled: &[usize]) -> Option<usize> {
    if median(filled.iter().map(|cell| counts[*cell]).collect())? >= USUAL_COUNT_MIN {
        return Some(0);
    }
    let spacings: Vec<usize> = filled.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let usual = median(spacings.clone())?;
    let is_usual = |spacing: &&usize| **spacing * 2 >= usual && **spacing <= longest(usual);
    let regular = spacings.iter().filter(is_usual).count();
    // Of messages at random times, less than half have the usual spacing.
    (filled.len() >= PERIODS_MIN && regular * 6 >= spacings.len() * 5).then_some(usual)
}

/// The largest distance that does not count as a pause.
const fn longest(usual: usize) -> usize {
    2 * usual + 1
}

/// Runs of cells without a pause. What is nearer to an end of the strip than a period belongs to a run.
fn runs(filled: &[usize], cells: usize, usual: usize) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for cell in filled {
        match runs.last_mut() {
            Some(run) if *cell + 1 - run.end <= longest(usual) => run.end = cell + 1,
            _ => runs.push(*cell..cell + 1),
        }
    }
    if let Some(first) = runs.first_mut().filter(|run| run.start <= usual) {
        first.start = 0;
    }
    if let Some(last) = runs.last_mut().filter(|run| run.end + usual >= cells) {
        last.end = cells;
    }
    runs
}

/// For each cell of a run, the mean over enough cells for [`MEAN_MESSAGES`], and the share of one message in it.
fn average(counts: &[u64], means: &mut [(f64, f64)]) {
    let mut sums = vec![0];
    for count in counts {
        sums.push(sums[sums.len() - 1] + count);
    }
    let all = sums[counts.len()] as f64;
    let wide = (MEAN_MESSAGES * counts.len() as f64 / all).ceil() as usize;
    let wide = (wide | 1).min(counts.len());
    for (cell, mean) in means.iter_mut().enumerate() {
        let from = cell.saturating_sub(wide / 2).min(counts.len() - wide);
        *mean = (
            (sums[from + wide] - sums[from]) as f64 / wide as f64,
            1.0 / wide as f64,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Counts of messages with this many cells between them.
    fn counts(cells: usize, period: f64, phase: f64, is_present: impl Fn(f64) -> bool) -> Vec<u64> {
        let mut counts = vec![0; cells];
        let mut at = phase * period;
        while at < cells as f64 {
            if is_present(at) {
                counts[at as usize] += 1;
            }
            at += period;
        }
        counts
    }

    proptest! {
        #[test]
        fn a_topic_of_constant_rate_is_a_bar_without_holes(cells in 24_usize..600, period in 0.02_f64..30.0, phase in 0.0_f64..1.0) {
            prop_assume!(cells as f64 / period > 12.0);
            let strip = Strip::new(&counts(cells, period, phase, |_| true));
            prop_assert!(strip.steps(8).all(|step| step == 8), "{strip:?}");
            for mean in &strip.means {
                prop_assert!((mean * period - 1.0).abs() < 0.2 + period, "{mean} for {}", 1.0 / period);
            }
            prop_assert!(strip.gaps.is_empty());
        }

        #[test]
        fn a_pause_of_several_periods_is_a_hole(cells in 100_usize..600, period in 0.05_f64..4.0, phase in 0.0_f64..1.0) {
            let pause = 40.0..40.0 + 4.0 * period.max(2.0) + 2.0;
            let strip = Strip::new(&counts(cells, period, phase, |at| !pause.contains(&at)));
            prop_assert_eq!(strip.gaps.len(), 1, "{:?}", strip);
            let gap = strip.gaps[0].clone();
            prop_assert!(gap.start as f64 <= pause.start + 1.0 && gap.end as f64 + 1.0 >= pause.end, "{gap:?}");
            for (cell, step) in strip.steps(4).enumerate() {
                prop_assert_eq!(step == 0, gap.contains(&cell), "{} of {:?}", cell, strip);
            }
        }

        #[test]
        fn any_counts_are_drawn_where_they_are(counts in prop::collection::vec(prop_oneof![Just(0), 0_u64..4, 0..u64::from(u32::MAX)], 0..200)) {
            let strip = Strip::new(&counts);
            prop_assert_eq!(strip.heights.len(), counts.len());
            for (height, count) in strip.heights.iter().zip(&counts) {
                prop_assert!((0.0..=1.0).contains(height) && (*count == 0 || *height > 0.0));
            }
        }
    }

    #[test]
    fn few_messages_and_irregular_ones_stay_in_their_cells() {
        let mut once = vec![0; 60];
        once[7] = 1;
        assert_eq!(
            Strip::new(&once).heights.iter().position(|height| *height > 0.0),
            Some(7)
        );
        let squares: Vec<u64> = (0..400_u64)
            .map(|cell| u64::from(cell.isqrt().pow(2) == cell))
            .collect();
        let strip = Strip::new(&squares);
        assert_eq!(strip.heights.iter().filter(|height| **height > 0.0).count(), 20);
        assert!(Strip::new(&[]).heights.is_empty());
    }

    #[test]
    fn twice_the_rate_is_twice_as_high() {
        let strip = Strip::new(&[vec![10; 30], vec![20; 30]].concat());
        assert_eq!(
            strip.steps(4).collect::<Vec<_>>(),
            [vec![3; 30], vec![4; 30]].concat()
        );
    }
}
