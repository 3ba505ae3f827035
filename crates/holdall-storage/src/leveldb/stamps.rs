//! Finds a free stamp near a used one, in few steps even if many messages share a stamp.

use std::collections::BTreeMap;

/// Runs that are remembered: 16 bytes and a tree entry each. Forgetting them only costs time.
const RUNS_MAX: usize = 1 << 16;

/// Runs of used stamps, by their first stamp; no two are adjacent.
#[derive(Debug, Default)]
pub(super) struct TakenRuns {
    /// First and last stamp of each run.
    runs: BTreeMap<i64, i64>,
}

impl TakenRuns {
    /// The free stamp nearest to `wanted`: the first one after it, or, if none is free up to the end of
    /// time, the last one before it. `None` when every stamp is used. A result other than `wanted` counts as
    /// used from now on.
    ///
    /// # Errors
    /// The errors of `is_taken`.
    pub fn free<E>(
        &mut self,
        wanted: i64,
        mut is_taken: impl FnMut(i64) -> Result<bool, E>,
    ) -> Result<Option<i64>, E> {
        if !self.contains(wanted) && !is_taken(wanted)? {
            return Ok(Some(wanted));
        }
        let found = match self.walk(wanted, &mut is_taken, true)? {
            Some(stamp) => Some(stamp),
            None => self.walk(wanted, &mut is_taken, false)?,
        };
        if let Some(stamp) = found {
            self.insert(wanted.min(stamp), wanted.max(stamp));
        }
        Ok(found)
    }

    /// Steps from `wanted` in one direction until a stamp is free; a known run is one step.
    fn walk<E>(
        &self,
        wanted: i64,
        is_taken: &mut impl FnMut(i64) -> Result<bool, E>,
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

    /// Adds a run and joins it with adjacent ones.
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

    /// Assigns a free stamp to each wanted one; returns the number of `is_taken` calls.
    fn assign(wanted: impl IntoIterator<Item = i64>) -> (Vec<i64>, u64) {
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
                assert!(taken.borrow_mut().insert(stamp), "{stamp} was assigned twice");
                stamp
            })
            .collect();
        (given, asked.get())
    }

    #[test]
    fn the_next_free_stamp_is_used_and_at_the_end_of_time_the_previous_one() {
        assert_eq!(assign([5, 5, 7, 5, 5]).0, [5, 6, 7, 8, 9]);
        let last = i64::MAX;
        assert_eq!(assign([last; 4]).0, [last, last - 1, last - 2, last - 3]);
        assert_eq!(
            assign([last - 1, last, last - 1, last]).0,
            [last - 1, last, last - 2, last - 3]
        );
        assert_eq!(assign([i64::MIN; 2]).0, [i64::MIN, i64::MIN + 1]);
    }

    #[test]
    fn many_messages_with_few_stamps_need_few_lookups() {
        for stamps in [
            [7, 7],
            [0, 1],
            [0, 1_000_000],
            [i64::MAX, i64::MAX - 1],
            [i64::MAX, 0],
        ] {
            let (_, asked) = assign((0..20_000).map(|number| stamps[number % 2]));
            assert!(asked < 3 * 20_000, "{stamps:?}: {asked} lookups");
        }
    }
}
