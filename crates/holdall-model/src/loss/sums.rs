//! The words and sums in which every report speaks of messages that are not in the bag.

use super::LossStage;
use std::collections::BTreeMap;

/// Missing messages, in the three parts that no report mixes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LossSums {
    /// Lost: messages that the recording should have had.
    pub lost: u64,
    /// Lost messages by stage; stages without a loss are absent.
    pub by_stage: BTreeMap<LossStage, u64>,
    /// Sent while not matched: publisher and recorder had not discovered each other yet, or not again. No loss.
    pub before_match: u64,
    /// Left out on the user's request. No loss.
    pub left_out: u64,
}

impl LossSums {
    /// The words for [`LossSums::before_match`], the same in every report.
    pub const BEFORE_MATCH: &str = "sent while not matched";
    /// The words for [`LossSums::left_out`].
    pub const LEFT_OUT: &str = "left out on request";

    /// Adds counts by stage; a sum that does not fit stays at the largest number, never at a small one.
    pub fn add<'a>(&mut self, counts: impl IntoIterator<Item = (&'a LossStage, &'a u64)>) {
        for (stage, count) in counts {
            let sum = match stage {
                LossStage::Head => &mut self.before_match,
                LossStage::Policy => &mut self.left_out,
                _ if *count == 0 => continue,
                stage => {
                    let of_stage = self.by_stage.entry(*stage).or_default();
                    *of_stage = of_stage.saturating_add(*count);
                    &mut self.lost
                }
            };
            *sum = sum.saturating_add(*count);
        }
    }

    /// The sums of one topic.
    pub fn of(counts: &BTreeMap<LossStage, u64>) -> Self {
        let mut sums = Self::default();
        sums.add(counts);
        sums
    }

    /// The sums of many topics.
    pub fn of_all<'a>(topics: impl IntoIterator<Item = &'a BTreeMap<LossStage, u64>>) -> Self {
        let mut sums = Self::default();
        topics.into_iter().for_each(|counts| sums.add(counts));
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lost_messages_are_in_the_sum_of_lost_messages() {
        let stages = LossStage::ALL.into_iter().zip(1..);
        let counts: BTreeMap<LossStage, u64> = stages.collect();
        let sums = LossSums::of_all([&counts, &BTreeMap::from([(LossStage::Cache, 10)])]);
        assert_eq!((sums.before_match, sums.left_out), (1, 9));
        // The stages from 2 to 8, those of numbers that are not believable (10) and of another type (11), and the cache's other topic.
        assert_eq!(sums.lost, (2..=8).sum::<u64>() + 10 + 11 + 10);
        assert_eq!(sums.by_stage.values().sum::<u64>(), sums.lost);
        assert!(sums.by_stage.keys().all(|stage| stage.is_shortfall()));
        assert_eq!(sums.by_stage[&LossStage::Cache], 13);
    }

    #[test]
    fn a_sum_does_not_wrap() {
        let far = BTreeMap::from([(LossStage::Tail, u64::MAX - 1)]);
        let sums = LossSums::of_all([&far, &far]);
        assert_eq!((sums.lost, sums.by_stage[&LossStage::Tail]), (u64::MAX, u64::MAX));
    }
}
