//! Finds the messages of one publisher that did not arrive, from the sequence numbers of those that did.

use crate::time::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How many intervals a tracker keeps before it merges old ones; an interval takes about 40 bytes.
const INTERVALS_MAX_DEFAULT: usize = 1024;

/// Highest number that the first message of a publisher can be believed to have: a million a second for two weeks.
const FIRST_MAX: u64 = 1 << 40;

/// Messages that a publisher can have sent between two that arrived, whatever the time between them: clocks step.
const GAP_MAX: u64 = 100_000;

/// More messages a second than any publisher sends.
const RATE_MAX: u64 = 2_000_000;

/// How many messages can be missing between one that arrived at `last` and one at `now`.
#[cold]
pub fn gap_max(last: Option<Timestamp>, now: Timestamp) -> u64 {
    let last = last.unwrap_or(now);
    let seconds = now
        .as_nanos()
        .saturating_sub(last.as_nanos())
        .max(0)
        .unsigned_abs()
        / 1_000_000_000;
    GAP_MAX.saturating_add(RATE_MAX.saturating_mul(seconds))
}

/// What a sequence number shows about its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Observation {
    /// The first of this publisher.
    First,
    /// The next one.
    InOrder,
    /// Messages `first` to `last` (both included) are now known to be missing: they are between this one and those seen.
    Gap {
        /// First missing sequence number.
        first: u64,
        /// Last missing sequence number.
        last: u64,
    },
    /// It was missing until now, and is no longer.
    Late,
    /// It comes right before the first that was seen, and was never counted as missing.
    Early,
    /// It has arrived before.
    Duplicate,
    /// It belongs to an interval that was merged with another: whether it was missing or has arrived before is no
    /// longer known. The count of missing messages stays, so that no loss is hidden.
    Unclear,
    /// Further from those seen than can be believed. Nothing else is concluded from it, and the next number is as if it had not come.
    NotBelievable,
}

/// A range of sequence numbers, some of which did not arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissingInterval {
    /// First missing sequence number.
    pub first: u64,
    /// Last missing sequence number.
    pub last: u64,
    /// How many between `first` and `last` are missing: all of them, unless the interval was merged.
    pub count: u64,
}

impl MissingInterval {
    const fn whole(first: u64, last: u64) -> Self {
        Self {
            first,
            last,
            count: (last - first).saturating_add(1),
        }
    }

    /// Whether everything between the ends is missing.
    pub const fn is_whole(&self) -> bool {
        self.count == (self.last - self.first).saturating_add(1)
    }
}

/// The sequence numbers of one publisher, as intervals of missing ones in bounded memory.
///
/// A publisher numbers its messages one by one. Each number that is skipped is a message that was sent and did not arrive.
/// [`SequenceTracker::missing_count`] is exact; when there are more intervals than the bound, neighbours among the older
/// half are merged, which keeps the count and loses only which numbers inside the merged interval are missing.
#[derive(Clone, Debug)]
// The fields that each message changes come first: with thousands of publishers they are fetched from memory.
#[repr(C)]
pub struct SequenceTracker {
    /// First and last number that arrived or is counted as missing.
    covered: Option<(u64, u64)>,
    received_count: u64,
    /// The number that the publisher had announced before its first message arrived.
    announced_before: Option<u64>,
    announced_last: Option<u64>,
    /// Missing intervals by first number; they do not overlap and are within `covered`.
    missing: BTreeMap<u64, MissingInterval>,
    missing_count: u64,
    intervals_max: usize,
}

impl Default for SequenceTracker {
    fn default() -> Self {
        Self::new()
    }
}

impl SequenceTracker {
    /// A tracker that has seen nothing, with the usual bound of 1024 intervals.
    pub const fn new() -> Self {
        Self::with_intervals_max(INTERVALS_MAX_DEFAULT)
    }

    /// A tracker that keeps at most `intervals_max` intervals (at least 2).
    pub(crate) const fn with_intervals_max(intervals_max: usize) -> Self {
        Self {
            covered: None,
            announced_before: None,
            announced_last: None,
            missing: BTreeMap::new(),
            missing_count: 0,
            received_count: 0,
            intervals_max: if intervals_max < 2 { 2 } else { intervals_max },
        }
    }

    /// Notes a message that arrived.
    #[inline]
    pub fn observe(&mut self, sequence: u64) -> Observation {
        // Nearly every message takes this short way, on the transport's receive thread.
        if let Some((_, end)) = &mut self.covered
            && end.checked_add(1) == Some(sequence)
        {
            *end = sequence;
            self.received_count = self.received_count.saturating_add(1);
            return Observation::InOrder;
        }
        self.observe_out_of_order(sequence)
    }

    /// As [`SequenceTracker::observe`], for numbers that may be forged: one that implies more than `gap_max` missing messages is not
    /// believed.
    #[inline]
    pub fn observe_within(&mut self, sequence: u64, gap_max: impl FnOnce() -> u64) -> Observation {
        if let Some((_, end)) = &mut self.covered
            && end.checked_add(1) == Some(sequence)
        {
            *end = sequence;
            self.received_count = self.received_count.saturating_add(1);
            return Observation::InOrder;
        }
        let is_too_far = match self.classify(sequence) {
            Observation::Gap { first, last } => last - first >= gap_max(),
            Observation::First => sequence > FIRST_MAX,
            _ => false,
        };
        if is_too_far {
            return Observation::NotBelievable;
        }
        self.observe_out_of_order(sequence)
    }

    /// The number of the next message when none is lost: 1 before the first.
    pub fn next_expected(&self) -> u64 {
        self.covered.map_or(1, |(_, end)| end.saturating_add(1))
    }

    /// True when an announcement of `last` would claim that more than `gap_max` messages did not arrive.
    pub fn is_too_far(&self, last: u64, gap_max: u64) -> bool {
        match self.covered {
            Some((_, end)) => last.saturating_sub(end) > gap_max,
            None => last > FIRST_MAX,
        }
    }

    /// True when more than `gap_max` messages are announced and did not arrive.
    pub fn announces_beyond(&self, gap_max: u64) -> bool {
        self.tail().is_some_and(|tail| tail.count > gap_max)
            || (self.covered.is_none() && self.announced_last.is_some_and(|last| last > FIRST_MAX))
    }

    /// Forgets announced messages that did not arrive.
    pub fn drop_announcements(&mut self) {
        self.announced_last = None;
        self.announced_before = self.announced_before.filter(|&before| before <= FIRST_MAX);
    }

    fn observe_out_of_order(&mut self, sequence: u64) -> Observation {
        let observation = self.classify(sequence);
        match observation {
            Observation::Gap { first, last } => self.add_missing(first, last),
            Observation::Late => self.fill(sequence),
            _ => {}
        }
        if !matches!(observation, Observation::Duplicate | Observation::Unclear) {
            self.received_count = self.received_count.saturating_add(1);
        }
        self.cover(sequence, observation);
        observation
    }

    /// Notes the publisher's announcement that it has sent up to `last_sequence` (DDS HEARTBEAT).
    ///
    /// Messages announced before the first one arrived were sent before the recording, unless they still arrive; all
    /// messages sent after an announcement are expected.
    pub fn announced(&mut self, last_sequence: u64) {
        self.announced_last = self.announced_last.max(Some(last_sequence));
        if self.covered.is_none() {
            self.announced_before.get_or_insert(last_sequence);
        }
    }

    /// First and last number that arrived or is counted as missing; `None` before the first message.
    pub const fn covered(&self) -> Option<(u64, u64)> {
        self.covered
    }

    /// Distinct messages that arrived.
    pub const fn received_count(&self) -> u64 {
        self.received_count
    }

    /// Messages that did not arrive although a later one did.
    pub const fn missing_count(&self) -> u64 {
        self.missing_count
    }

    /// The missing messages in order.
    pub fn missing(&self) -> impl ExactSizeIterator<Item = MissingInterval> + '_ {
        self.missing.values().copied()
    }

    /// Messages before the first that was expected, for publishers that number from 1 (DDS, rmw_zenoh): sent before our
    /// subscription was matched.
    pub fn head(&self) -> Option<MissingInterval> {
        let expected = match (self.covered, self.announced_before) {
            (Some((begin, _)), _) => begin,
            (None, Some(announced)) => announced.saturating_add(1),
            (None, None) => return None,
        };
        (expected > 1).then(|| MissingInterval::whole(1, expected - 1))
    }

    /// Messages after the last that arrived, which the publisher has announced as sent: lost at the tail once
    /// it is gone or the recording has ended.
    pub fn tail(&self) -> Option<MissingInterval> {
        let seen = self.covered.map(|(_, end)| end).or(self.announced_before)?;
        let announced = self.announced_last.filter(|&announced| announced > seen)?;
        Some(MissingInterval::whole(seen + 1, announced))
    }

    /// Counts the tail as missing, because no more is expected; a message of the tail that still comes is [`Observation::Late`].
    pub fn miss_tail(&mut self) -> Option<MissingInterval> {
        let tail = self.tail()?;
        self.add_missing(tail.first, tail.last);
        let begin = self.covered.map_or(tail.first, |(begin, _)| begin);
        self.covered = Some((begin, tail.last));
        Some(tail)
    }

    /// Classifies a number that is not the next one, given those seen.
    fn classify(&self, sequence: u64) -> Observation {
        let gap = |first, last| Observation::Gap { first, last };
        match (self.covered, self.announced_before) {
            (None, Some(announced)) if sequence > announced && sequence - announced > 1 => {
                gap(announced + 1, sequence - 1)
            }
            (None, _) => Observation::First,
            (Some((_, end)), _) if sequence > end => gap(end + 1, sequence - 1),
            (Some((begin, _)), _) if sequence < begin && begin - sequence > 1 => gap(sequence + 1, begin - 1),
            (Some((begin, _)), _) if sequence < begin => Observation::Early,
            (Some(_), _) => self.classify_covered(sequence),
        }
    }

    /// Classifies a number between numbers that have been seen.
    fn classify_covered(&self, sequence: u64) -> Observation {
        let nearest = self.missing.range(..=sequence).next_back();
        match nearest.filter(|(_, interval)| sequence <= interval.last) {
            Some((_, interval)) if interval.is_whole() => Observation::Late,
            Some(_) => Observation::Unclear,
            None => Observation::Duplicate,
        }
    }

    /// Widens the covered range to the number and the gap that it opened.
    fn cover(&mut self, sequence: u64, observation: Observation) {
        let (low, high) = match observation {
            Observation::Gap { first, last } => (sequence.min(first), sequence.max(last)),
            _ => (sequence, sequence),
        };
        let (begin, end) = self.covered.unwrap_or((low, high));
        self.covered = Some((begin.min(low), end.max(high)));
    }

    fn add_missing(&mut self, first: u64, last: u64) {
        let interval = MissingInterval::whole(first, last);
        self.missing_count = self.missing_count.saturating_add(interval.count);
        self.missing.insert(first, interval);
        self.merge_above_bound();
    }

    /// Takes a number out of the whole interval that holds it.
    fn fill(&mut self, sequence: u64) {
        let Some((&first, &interval)) = self.missing.range(..=sequence).next_back() else {
            return;
        };
        self.missing.remove(&first);
        self.missing_count = self.missing_count.saturating_sub(1);
        if first < sequence {
            self.missing
                .insert(first, MissingInterval::whole(first, sequence - 1));
        }
        if sequence < interval.last {
            self.missing
                .insert(sequence + 1, MissingInterval::whole(sequence + 1, interval.last));
        }
        self.merge_above_bound();
    }

    /// Merges neighbours among the older half, so that old losses become coarser and recent ones stay exact.
    fn merge_above_bound(&mut self) {
        if self.missing.len() <= self.intervals_max {
            return;
        }
        let older_half = (self.missing.len() / 2).max(2) & !1;
        let older: Vec<MissingInterval> = self.missing.values().take(older_half).copied().collect();
        for pair in older.chunks_exact(2) {
            let count = pair[0].count.saturating_add(pair[1].count);
            let merged = MissingInterval {
                first: pair[0].first,
                last: pair[1].last,
                count,
            };
            self.missing.remove(&pair[1].first);
            self.missing.insert(merged.first, merged);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_publisher_without_loss_is_in_order() {
        let mut tracker = SequenceTracker::new();
        assert_eq!(tracker.observe(1), Observation::First);
        assert_eq!(tracker.observe(2), Observation::InOrder);
        assert_eq!((tracker.missing_count(), tracker.received_count()), (0, 2));
        assert_eq!((tracker.head(), tracker.tail()), (None, None));
    }

    #[test]
    fn a_late_message_fills_its_gap() {
        let mut tracker = SequenceTracker::new();
        tracker.observe(1);
        assert_eq!(tracker.observe(5), Observation::Gap { first: 2, last: 4 });
        assert_eq!(tracker.observe(3), Observation::Late);
        assert_eq!(tracker.observe(3), Observation::Duplicate);
        assert_eq!(tracker.observe(5), Observation::Duplicate);
        assert_eq!(
            tracker.missing().map(|i| (i.first, i.last)).collect::<Vec<_>>(),
            [(2, 2), (4, 4)]
        );
        assert_eq!((tracker.missing_count(), tracker.received_count()), (2, 3));
    }

    #[test]
    fn head_is_what_was_sent_before_the_first() {
        let mut tracker = SequenceTracker::new();
        tracker.observe(41);
        assert_eq!(tracker.head(), Some(MissingInterval::whole(1, 40)));
        assert_eq!(tracker.missing_count(), 0);
    }

    #[test]
    fn tail_is_what_was_announced_and_did_not_come() {
        let mut tracker = SequenceTracker::new();
        tracker.observe(1);
        tracker.announced(4);
        assert_eq!(tracker.tail(), Some(MissingInterval::whole(2, 4)));
        tracker.announced(3);
        assert_eq!(tracker.tail(), Some(MissingInterval::whole(2, 4)));
        tracker.observe(4);
        assert_eq!((tracker.tail(), tracker.missing_count()), (None, 2));
    }

    #[test]
    fn a_tail_that_was_dropped_is_missing_until_it_comes() {
        let mut tracker = SequenceTracker::new();
        assert_eq!(tracker.miss_tail(), None);
        tracker.observe(2);
        tracker.announced(5);
        assert_eq!(tracker.miss_tail(), Some(MissingInterval::whole(3, 5)));
        assert_eq!((tracker.tail(), tracker.missing_count()), (None, 3));
        assert_eq!(tracker.observe(4), Observation::Late);
        assert_eq!(tracker.observe(6), Observation::InOrder);
        assert_eq!((tracker.covered(), tracker.missing_count()), (Some((2, 6)), 2));
    }

    #[test]
    fn an_announcement_before_the_first_message_distinguishes_head_from_loss() {
        let mut tracker = SequenceTracker::new();
        tracker.announced(10);
        assert_eq!(tracker.head(), Some(MissingInterval::whole(1, 10)));
        assert_eq!(tracker.tail(), None);
        tracker.announced(12);
        assert_eq!(tracker.tail(), Some(MissingInterval::whole(11, 12)));
        assert_eq!(tracker.observe(13), Observation::Gap { first: 11, last: 12 });
        assert_eq!(
            (tracker.head(), tracker.missing_count()),
            (Some(MissingInterval::whole(1, 10)), 2)
        );
    }

    #[test]
    fn a_late_joiners_history_is_no_loss() {
        let mut tracker = SequenceTracker::new();
        tracker.announced(3);
        assert_eq!(tracker.observe(2), Observation::First);
        assert_eq!(tracker.observe(3), Observation::InOrder);
        assert_eq!(tracker.observe(4), Observation::InOrder);
        assert_eq!(tracker.observe(1), Observation::Early);
        assert_eq!(
            (tracker.missing_count(), tracker.received_count(), tracker.head()),
            (0, 4, None)
        );
    }

    #[test]
    fn an_announcement_is_compared_with_what_arrived() {
        let mut tracker = SequenceTracker::new();
        assert_eq!(tracker.next_expected(), 1);
        assert!(tracker.is_too_far(FIRST_MAX + 1, 5) && !tracker.is_too_far(FIRST_MAX, 5));
        tracker.observe(10);
        assert_eq!(tracker.next_expected(), 11);
        assert!(tracker.is_too_far(16, 5) && !tracker.is_too_far(15, 5) && !tracker.is_too_far(3, 5));
        assert_eq!(tracker.missing_count(), 0, "nothing was concluded from them");
    }

    #[test]
    fn a_number_too_far_away_changes_nothing() {
        let mut tracker = SequenceTracker::new();
        assert_eq!(tracker.observe_within(u64::MAX, || 5), Observation::NotBelievable);
        assert_eq!(tracker.observe_within(7, || 5), Observation::First);
        assert_eq!(tracker.observe_within(14, || 5), Observation::NotBelievable);
        assert_eq!(tracker.observe_within(u64::MAX, || 5), Observation::NotBelievable);
        assert_eq!(tracker.observe_within(8, || 5), Observation::InOrder);
        assert_eq!(
            tracker.observe_within(14, || 5),
            Observation::Gap { first: 9, last: 13 }
        );
        tracker.announced(1 << 62);
        assert!(tracker.announces_beyond(100) && !tracker.announces_beyond(1 << 62));
        tracker.drop_announcements();
        assert_eq!((tracker.tail(), tracker.missing_count()), (None, 5));
    }

    #[test]
    fn the_largest_numbers_do_not_overflow() {
        let mut tracker = SequenceTracker::new();
        tracker.observe(0);
        assert_eq!(
            tracker.observe(u64::MAX),
            Observation::Gap {
                first: 1,
                last: u64::MAX - 1
            }
        );
        assert_eq!(tracker.missing_count(), u64::MAX - 1);
        assert_eq!(tracker.observe(u64::MAX), Observation::Duplicate);
        tracker.announced(u64::MAX);
        assert_eq!(tracker.tail(), None);
    }

    /// The same rules with sets of numbers: slow, unbounded, and plain to see that they are right.
    #[derive(Default)]
    struct NaiveModel {
        received: BTreeSet<u64>,
        begin: Option<u64>,
        announced_before: Option<u64>,
        announced_last: Option<u64>,
    }

    impl NaiveModel {
        fn observe(&mut self, sequence: u64) {
            let expected = self
                .announced_before
                .map_or(sequence, |announced| sequence.min(announced + 1));
            self.begin = Some(self.begin.unwrap_or(expected).min(sequence));
            self.received.insert(sequence);
        }

        fn announced(&mut self, last: u64) {
            if self.received.is_empty() && self.announced_before.is_none() {
                self.announced_before = Some(last);
            }
            self.announced_last = self.announced_last.max(Some(last));
        }

        fn missing(&self) -> BTreeSet<u64> {
            let (Some(begin), Some(&end)) = (self.begin, self.received.last()) else {
                return BTreeSet::new();
            };
            (begin..=end)
                .filter(|sequence| !self.received.contains(sequence))
                .collect()
        }

        fn tail(&self) -> Vec<u64> {
            let seen = self.received.last().copied().or(self.announced_before);
            match (seen, self.announced_last) {
                (Some(seen), Some(announced)) => (seen + 1..=announced).collect(),
                _ => Vec::new(),
            }
        }
    }

    #[derive(Clone, Debug)]
    enum Event {
        Observe(u64),
        Announced(u64),
    }

    fn events() -> impl Strategy<Value = Vec<Event>> {
        let event = prop_oneof![
            8 => (1..120u64).prop_map(Event::Observe),
            1 => (1..120u64).prop_map(Event::Announced),
        ];
        prop::collection::vec(event, 0..80)
    }

    fn run(tracker: &mut SequenceTracker, events: &[Event]) -> (NaiveModel, u64) {
        let (mut model, mut unclear) = (NaiveModel::default(), 0);
        for event in events {
            match *event {
                Event::Observe(sequence) => {
                    model.observe(sequence);
                    unclear += u64::from(tracker.observe(sequence) == Observation::Unclear);
                }
                Event::Announced(last) => {
                    model.announced(last);
                    tracker.announced(last);
                }
            }
        }
        (model, unclear)
    }

    proptest! {
        #[test]
        fn without_merging_the_tracker_equals_the_naive_model(events in events()) {
            let mut tracker = SequenceTracker::new();
            let (model, unclear) = run(&mut tracker, &events);
            let missing: BTreeSet<u64> = tracker.missing().flat_map(|i| i.first..=i.last).collect();
            prop_assert_eq!(unclear, 0);
            prop_assert_eq!(tracker.missing_count(), missing.len() as u64);
            prop_assert_eq!(missing, model.missing());
            prop_assert_eq!(tracker.received_count(), model.received.len() as u64);
            let tail: Vec<u64> = tracker.tail().into_iter().flat_map(|i| i.first..=i.last).collect();
            prop_assert_eq!(tail, model.tail());
        }

        #[test]
        fn merging_keeps_the_bound_and_hides_no_loss(events in events(), intervals_max in 2usize..6) {
            let mut tracker = SequenceTracker::with_intervals_max(intervals_max);
            let (model, unclear) = run(&mut tracker, &events);
            let truth = model.missing().len() as u64;
            prop_assert!(tracker.missing().len() <= intervals_max);
            prop_assert!(tracker.missing_count() >= truth && tracker.missing_count() <= truth + unclear);
            prop_assert_eq!(tracker.missing().map(|i| i.count).sum::<u64>(), tracker.missing_count());
            for sequence in model.missing() {
                prop_assert!(tracker.missing().any(|i| i.first <= sequence && sequence <= i.last));
            }
        }

        #[test]
        fn in_order_loss_is_counted_exactly_at_any_bound(gaps in prop::collection::vec(0..5u64, 1..200)) {
            let mut tracker = SequenceTracker::with_intervals_max(4);
            let mut sequence = 1;
            tracker.observe(sequence);
            for gap in &gaps {
                sequence += gap + 1;
                tracker.observe(sequence);
            }
            prop_assert_eq!(tracker.missing_count(), gaps.iter().sum::<u64>());
            prop_assert_eq!(tracker.received_count(), gaps.len() as u64 + 1);
        }
    }
}
