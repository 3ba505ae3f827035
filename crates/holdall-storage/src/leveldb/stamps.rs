//! Finds a free stamp beside a taken one, in few steps also where many messages share a stamp or reach the end of time.

use std::collections::BTreeMap;

/// Runs that are remembered: 16 bytes and a place in the tree each. Forgetting them costs time, nothing else.
const RUNS_MAX: usize = 1 << 16;

/// Runs of stamps that are known to be taken, by their first stamp; no two of them touch.
#[derive(Debug, Default)]
pub(super) struct TakenRuns {
    /// First and last stamp of each run.
    runs: BTreeMap<i64, i64>,
}

impl TakenRuns {
    /// The free stamp next to `wanted`: the first one after it, and where there is none up to the end of time, the last one before it.
    /// `None` when every stamp is taken. The result counts as taken from now on when it is not `wanted` itself.
    ///
    /// # Errors
    /// What `is_taken` returns.
    pub fn free<E>(
        &mut self,
        wanted: i64,
        is_taken: impl Fn(i64) -> Result<bool, E>,
    ) -> Result<Option<i64>, E> {
        if !self.contains(wanted) && !is_taken(wanted)? {
            return Ok(Some(wanted));
        }
        let found = match self.walk(wanted, &is_taken, true)? {
            Some(stamp) => Some(stamp),
            None => self.walk(wanted, &is_taken, false)?,
        };
        if let Some(stamp) = found {
            self.insert(wanted.min(stamp), wanted.max(stamp));
        }
        Ok(found)
    }

    /// Steps from `wanted` in one direction until a stamp is free; known runs are one step.
    fn walk<E>(
        &self,
        wanted: i64,
        is_taken: &impl Fn(i64) -> Result<bool, E>,
        up: bool,
    ) -> Result<Option<i64>, E> {
        let mut stamp = wanted;
        loop {
            let end = self
                .run_of(stamp)
                .map(|(first, last)| if up { last } else { first });
            match end {
                Some(end) => stamp = end,
                None if is_taken(stamp)? => {}
                None => return Ok(Some(stamp)),
            }
            let next = if up {
                stamp.checked_add(1)
            } else {
                stamp.checked_sub(1)
            };
            match next {
                Some(next) => stamp = next,
                None => return Ok(None),
            }
        }
    }

    fn run_of(&self, stamp: i64) -> Option<(i64, i64)> {
        let (first, last) = self.runs.range(..=stamp).next_back()?;
        (*last >= stamp).then_some((*first, *last))
    }

    fn contains(&self, stamp: i64) -> bool {
        self.run_of(stamp).is_some()
    }

    /// Adds a run and joins it with those that it touches.
    fn insert(&mut self, mut first: i64, mut last: i64) {
        if self.runs.len() >= RUNS_MAX {
            self.runs.clear();
        }
        while let Some((other_first, other_last)) = self.runs.range(..=last.saturating_add(1)).next_back()
            && *other_last >= first.saturating_sub(1)
        {
            let (other_first, other_last) = (*other_first, *other_last);
            self.runs.remove(&other_first);
            (first, last) = (first.min(other_first), last.max(other_last));
        }
        self.runs.insert(first, last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        cell::{Cell, RefCell},
        collections::BTreeSet,
        convert::Infallible,
    };

    /// Gives each wanted stamp a free one; how often it was asked whether a stamp is taken.
    fn give(wanted: impl IntoIterator<Item = i64>) -> (Vec<i64>, u64) {
        let (taken, asked) = (RefCell::new(BTreeSet::new()), Cell::new(0));
        let mut runs = TakenRuns::default();
        let given = wanted
            .into_iter()
            .map(|wanted| {
                let is_taken = |stamp| {
                    asked.set(asked.get() + 1);
                    Ok::<_, Infallible>(taken.borrow().contains(&stamp))
                };
                let stamp = runs.free(wanted, is_taken).unwrap().unwrap();
                assert!(taken.borrow_mut().insert(stamp), "{stamp} was given twice");
                stamp
            })
            .collect();
        (given, asked.get())
    }

    #[test]
    fn the_next_free_stamp_is_given_and_at_the_end_of_time_the_one_before() {
        assert_eq!(give([5, 5, 7, 5, 5]).0, [5, 6, 7, 8, 9]);
        let last = i64::MAX;
        assert_eq!(give([last; 4]).0, [last, last - 1, last - 2, last - 3]);
        assert_eq!(
            give([last - 1, last, last - 1, last]).0,
            [last - 1, last, last - 2, last - 3]
        );
        assert_eq!(give([i64::MIN; 2]).0, [i64::MIN, i64::MIN + 1]);
    }

    #[test]
    fn many_messages_with_few_stamps_cost_few_questions() {
        for stamps in [
            [7, 7],
            [0, 1],
            [0, 1_000_000],
            [i64::MAX, i64::MAX - 1],
            [i64::MAX, 0],
        ] {
            let (_, asked) = give((0..20_000).map(|number| stamps[number % 2]));
            assert!(asked < 3 * 20_000, "{stamps:?}: {asked} questions");
        }
    }
}
