//! Where a bag's clock jumped: its files in runs whose times only increase, and how long it took without the jumps.

use super::{bag::Bag, bag_file::BagFile, listing::class_and_number, set::BagSet};
use holdall_model::{
    time::Timestamp,
    time_line::{ClockJump, JUMP_NANOS_MIN},
};
use std::{collections::HashMap, time::Duration};

impl Bag {
    /// Jumps of the clock that stamped the messages, as far as the bag has markers of them, by the time after each.
    pub fn clock_jumps(&self) -> Vec<ClockJump> {
        let markers = self.markers().unwrap_or_default();
        markers.into_iter().filter_map(|marker| marker.jump).collect()
    }

    /// The bag's files in runs that are read one after the other, because the clock jumped back between them. One run for most bags. Files of
    /// several classes of topics are of the same time.
    pub(crate) fn runs(&self) -> Vec<Vec<&BagFile>> {
        let files = self.files();
        let is_one = files.len() < 2 || !self.clock_jumps().iter().any(|jump| jump.is_back());
        if is_one {
            return vec![files.iter().collect()];
        }
        let mut runs: Vec<Vec<&BagFile>> = vec![Vec::new()];
        let mut ends: HashMap<String, (usize, Option<Timestamp>)> = HashMap::new();
        for file in files.iter().filter(|file| !file.empty) {
            let is_back = |(earliest, last): (Timestamp, Timestamp)| {
                last.as_nanos().saturating_sub(earliest.as_nanos()) >= JUMP_NANOS_MIN
            };
            let (run, last) = ends.entry(class_and_number(&file.path).0).or_default();
            *run += usize::from(file.earliest.zip(*last).is_some_and(is_back));
            *last = file.latest;
            if runs.len() <= *run {
                runs.push(Vec::new());
            }
            runs[*run].push(file);
        }
        runs
    }

    /// From the first to the last message on a clock that does not jump; `None` if no jumps are known.
    pub fn duration_without_jumps(&self) -> Option<Duration> {
        let jumps = self.clock_jumps();
        if jumps.is_empty() {
            return None;
        }
        let span_of = |files: Vec<&BagFile>| {
            let first = files.iter().filter_map(|file| file.earliest).min();
            let last = files.iter().filter_map(|file| file.latest).max();
            let (Some(first), Some(last)) = (first, last) else {
                return Duration::ZERO;
            };
            let is_within = |jump: &&ClockJump| !jump.is_back() && jump.from >= first && jump.to <= last;
            let within = jumps.iter().filter(is_within);
            let jumped: Duration = within
                .map(|jump| Duration::from_nanos(jump.nanos().unsigned_abs()))
                .sum();
            last.saturating_since(first).saturating_sub(jumped)
        };
        Some(self.runs().into_iter().map(span_of).sum())
    }
}

impl BagSet {
    /// Whether the clock of a bag jumped back, so that its messages are not read in the order of their times.
    pub fn has_runs(&self) -> bool {
        self.bags().iter().any(|bag| bag.runs().len() > 1)
    }

    /// Jumps of the clocks of all bags, by the time after each.
    pub fn clock_jumps(&self) -> Vec<ClockJump> {
        let mut jumps: Vec<ClockJump> = self.bags().iter().flat_map(Bag::clock_jumps).collect();
        jumps.sort_by_key(|jump| jump.to);
        jumps
    }
}
