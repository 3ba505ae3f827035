//! Detects when messages arrive but none becomes durable.

use holdall_record::status::{RecordStatus, TopicStatus};
use std::time::Duration;

/// Longest time without a durable message while messages arrive, unless the loss window allows more.
const STALL_MIN: Duration = Duration::from_secs(2);

/// The same while the disk takes messages: a sync of a slow one waits until all that was written before it is on it.
const SLOW_SYNC_MAX: Duration = Duration::from_secs(30);

/// A change that a check found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProgressChange {
    /// No progress for this long.
    Stalled(Duration),
    /// Progress resumed after this long.
    Resumed(Duration),
}

/// Compares arriving with durable messages.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProgressWatch {
    /// Time of the last progress, or when nothing was pending.
    since: Option<Duration>,
    received: u64,
    kept: u64,
    /// What the disk had taken when that was more than before, and when.
    written: (u64, Duration),
    stalled: bool,
    longest: Option<Duration>,
}

impl ProgressWatch {
    /// Compares the counters with those of the last call. `watched` is false while messages are, on request,
    /// not stored.
    pub fn check(&mut self, status: &RecordStatus, watched: bool, now: Duration) -> Option<ProgressChange> {
        let received = status.topics.iter().map(|topic| topic.received).sum();
        let kept = match status.durability.window {
            Some(_) => status.durability.durable,
            // Without syncs, messages given to the storage are the only measure.
            None => status.recorded,
        };
        let since = *self.since.get_or_insert(now);
        // An engine that writes by itself takes a message when it has room for it.
        let written = match status.written_bytes {
            0 => status.recorded,
            bytes => bytes,
        };
        if written != self.written.0 {
            self.written = (written, now);
        }
        let span = now.saturating_sub(since);
        // Dropped and excluded messages never become durable. Messages of a pause may be counted just after
        // it.
        let dropped: u64 = status.topics.iter().map(TopicStatus::dropped).sum();
        let nothing_waits = received <= self.received || received <= kept + dropped;
        if !watched || kept > self.kept || nothing_waits {
            (self.kept, self.received, self.since) = (kept, received, Some(now));
            return std::mem::take(&mut self.stalled).then_some(ProgressChange::Resumed(span));
        }
        let allowed = status
            .durability
            .window
            .map_or(STALL_MIN, |window| STALL_MIN.max(window * 2));
        let is_written = now.saturating_sub(self.written.1) < allowed;
        if span < allowed || (is_written && span < SLOW_SYNC_MAX) {
            return None;
        }
        self.longest = self.longest.max(Some(span));
        (!std::mem::replace(&mut self.stalled, true)).then_some(ProgressChange::Stalled(span))
    }

    /// Excludes a span in which this process did not run (it was stopped, or the machine was suspended): no
    /// message could become durable then.
    pub(crate) fn leave_out(&mut self, span: Duration) {
        self.since = self.since.map(|since| since + span);
        self.written.1 += span;
    }

    /// True while no progress is made.
    pub(crate) fn is_stalled(&self) -> bool {
        self.stalled
    }

    /// The longest stall.
    pub(crate) fn longest_stall(&self) -> Option<Duration> {
        self.longest
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdall_record::status::{DurabilityStatus, TopicStatus};

    const SECOND: Duration = Duration::from_secs(1);

    fn status(received: u64, durable: u64) -> RecordStatus {
        RecordStatus {
            durability: DurabilityStatus {
                window: Some(SECOND),
                durable,
                ..DurabilityStatus::default()
            },
            topics: vec![TopicStatus {
                received,
                ..TopicStatus::default()
            }],
            ..RecordStatus::default()
        }
    }

    #[test]
    fn messages_that_never_become_durable_are_a_stall_reported_once() {
        let mut watch = ProgressWatch::default();
        assert_eq!(watch.check(&status(10, 10), true, SECOND), None);
        assert_eq!(watch.check(&status(20, 10), true, 2 * SECOND), None);
        assert_eq!(
            watch.check(&status(30, 10), true, 3 * SECOND),
            Some(ProgressChange::Stalled(2 * SECOND))
        );
        assert_eq!(watch.check(&status(40, 10), true, 4 * SECOND), None);
        assert!(watch.is_stalled());
        assert_eq!(
            watch.check(&status(50, 40), true, 5 * SECOND),
            Some(ProgressChange::Resumed(4 * SECOND))
        );
        assert!(!watch.is_stalled());
        assert_eq!(watch.longest_stall(), Some(3 * SECOND));
    }

    #[test]
    fn silence_a_pause_and_steady_syncs_are_not_a_stall() {
        let mut watch = ProgressWatch::default();
        for second in 0..10 {
            assert_eq!(
                watch.check(&status(10, 10), true, second * SECOND),
                None,
                "silence"
            );
        }
        for second in 10..20 {
            let paused = status(u64::from(second) * 10, 10);
            assert_eq!(watch.check(&paused, false, second * SECOND), None, "paused");
        }
        for second in 20..30 {
            let steady = status(u64::from(second) * 10, u64::from(second) * 10 - 5);
            assert_eq!(watch.check(&steady, true, second * SECOND), None, "steady");
        }
        assert_eq!(watch.longest_stall(), None);
    }

    /// A pause ends between a check and the count of its last messages.
    #[test]
    fn messages_that_were_excluded_on_request_are_not_pending() {
        let mut watch = ProgressWatch::default();
        assert_eq!(watch.check(&status(95, 0), false, SECOND), None);
        let mut paused = status(100, 0);
        paused.topics[0].left_out = 100;
        for second in 2..20 {
            assert_eq!(watch.check(&paused, true, second * SECOND), None);
        }
        assert_eq!(watch.longest_stall(), None);
    }

    #[test]
    fn a_process_that_was_stopped_has_no_stalled_disk() {
        let mut watch = ProgressWatch::default();
        assert_eq!(watch.check(&status(10, 10), true, SECOND), None);
        assert_eq!(watch.check(&status(20, 10), true, 2 * SECOND), None);
        watch.leave_out(5 * SECOND);
        assert_eq!(watch.check(&status(30, 10), true, 7 * SECOND), None);
        assert_eq!(watch.longest_stall(), None);
        assert_eq!(
            watch.check(&status(30, 10), true, 8 * SECOND),
            Some(ProgressChange::Stalled(2 * SECOND)),
            "the time before and after it counts"
        );
    }

    #[test]
    fn a_slow_disk_that_takes_messages_is_not_a_stall_while_its_syncs_end_in_half_a_minute() {
        let mut watch = ProgressWatch::default();
        for second in 1..=60 {
            let mut slow = status(u64::from(second) * 10, 0);
            slow.recorded = u64::from(second.min(40)) * 4;
            let change = watch.check(&slow, true, second * SECOND);
            let expected = (second == 31).then_some(ProgressChange::Stalled(30 * SECOND));
            assert_eq!(change, expected, "{second}");
        }
        let mut watch = ProgressWatch::default();
        for second in 1..=20 {
            let mut stuck = status(u64::from(second) * 10, 0);
            stuck.recorded = u64::from(second.min(10));
            let change = watch.check(&stuck, true, second * SECOND);
            let expected = (second == 12).then_some(ProgressChange::Stalled(11 * SECOND));
            assert_eq!(change, expected, "{second}");
        }
        // Its blocks take messages for a while when the disk takes nothing.
        let mut watch = ProgressWatch::default();
        for second in 1..=20 {
            let mut stuck = status(u64::from(second) * 10, 0);
            stuck.recorded = u64::from(second) * 9;
            stuck.written_bytes = u64::from(second.min(10)) << 20;
            let change = watch.check(&stuck, true, second * SECOND);
            let expected = (second == 12).then_some(ProgressChange::Stalled(11 * SECOND));
            assert_eq!(change, expected, "{second}");
        }
    }

    #[test]
    fn a_wide_loss_window_is_not_a_stall() {
        let mut watch = ProgressWatch::default();
        let mut wide = status(10, 0);
        wide.durability.window = Some(10 * SECOND);
        for second in 0..19 {
            wide.topics[0].received += 1;
            assert_eq!(watch.check(&wide, true, second * SECOND), None);
        }
    }
}
