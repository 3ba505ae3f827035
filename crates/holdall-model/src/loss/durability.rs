//! The loss window: decides when received messages must be synced so that a power cut never takes more than the promised span.

use super::DurabilityStatus;
use crate::text::Outside;
use std::{collections::VecDeque, time::Duration};

/// The window when the user sets none. Syncs come every 1.7 s then: often enough that a cut takes what a
/// person would call "the last moment", seldom enough that chunks reach their size on every topic that
/// matters. Its cost is less than the noise of a disk (docs/data-path.md).
pub const DEFAULT_LOSS_WINDOW: Duration = Duration::from_secs(2);

/// Syncs whose cost is remembered: some two minutes.
const COSTS_KEPT: usize = 64;

/// Assumed cost of a sync, as a part of the window, until one was measured.
const FIRST_COST_PART: u32 = 4;

/// How late a step may come: the drain sleeps at most this long while nothing arrives.
const STEP_MAX: Duration = Duration::from_millis(100);

/// However slow the disk is, syncs do not begin more often than this part of the window: chunks would become too small to compress.
const PARTS_MAX: u32 = 8;

/// How the clause about a span without this process begins.
pub(crate) const NOT_RUNNING: &str = "this program did not run for";

/// One clause about a span in which this process did not run.
pub fn not_running(span: Duration) -> String {
    let seconds = span.as_secs_f64();
    format!("{NOT_RUNNING} {seconds:.1} s: it was stopped (Ctrl-Z, SIGSTOP), or the machine slept")
}

/// Actions required after an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The promise holds.
    Kept,
    /// It was broken for the first time: the user must be warned.
    FirstMiss(Miss),
    /// It was broken again.
    Missed(Duration),
}

/// How the promise was broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Miss {
    /// The age of the oldest message without a sync.
    pub age: Duration,
    /// How late the sync began, or will begin.
    pub late: Duration,
    /// How long the sync has taken; `None` before it begins.
    pub sync: Option<Duration>,
}

/// A sync in flight.
#[derive(Clone, Copy, Debug)]
struct Flight {
    begun: Duration,
    /// When the oldest message that it covers was received.
    oldest: Duration,
    /// It has been counted as late already.
    late: bool,
    /// How much later than it was due it began.
    begun_late: Duration,
}

impl Flight {
    fn miss(&self, now: Duration) -> Miss {
        Miss {
            age: now.saturating_sub(self.oldest),
            late: self.begun_late,
            sync: Some(now.saturating_sub(self.begun)),
        }
    }
}

impl Miss {
    /// Why, one clause. `absence` is how long this process has just not run; `held`, how long writes waited until other programs released
    /// the file; `encoder`, a topic and how long the oldest of its messages has waited for its encoder.
    pub fn why(
        &self,
        absence: Option<Duration>,
        held: Duration,
        encoder: Option<(&str, Duration)>,
    ) -> String {
        let sync = self.sync.unwrap_or(Duration::ZERO);
        let encoder = encoder.filter(|(_, waited)| *waited + STEP_MAX >= self.age);
        match (absence, encoder) {
            (Some(span), _) => not_running(span),
            (None, Some((topic, waited))) => format!(
                "messages of {} have waited for their encoder for {:.1} s",
                Outside(topic),
                waited.as_secs_f64()
            ),
            // They hold up the thread that begins syncs, and the sync itself.
            _ if held > 2 * STEP_MAX && held >= self.late.max(sync) / 2 => format!(
                "another program had locked the storage file for {:.1} s",
                held.as_secs_f64()
            ),
            // The disk may hold up the thread that writes, too.
            _ if self.late > sync.max(2 * STEP_MAX) => format!(
                "a sync began {:.1} s late, because the processors are busy, or writes to the disk wait",
                self.late.as_secs_f64()
            ),
            _ => format!("the disk is slow: a sync has taken {:.1} s", sync.as_secs_f64()),
        }
    }
}

/// The scheduler. Uses neither clock nor disk: callers report what happened and when, in monotonic time, so
/// that steps of the wall clock move no deadline.
#[derive(Debug)]
pub struct LossWindow {
    window: Option<Duration>,
    costs: VecDeque<Duration>,
    /// When the oldest message was received that no sync covers.
    oldest: Option<Duration>,
    waiting_is_late: bool,
    flight: Option<Flight>,
    last_begin: Option<Duration>,
    status: DurabilityStatus,
}

impl LossWindow {
    /// A window that nothing has happened in; `None` never syncs.
    pub fn new(window: Option<Duration>) -> Self {
        Self {
            window,
            costs: VecDeque::new(),
            oldest: None,
            waiting_is_late: false,
            flight: None,
            last_begin: None,
            status: DurabilityStatus {
                window,
                ..DurabilityStatus::default()
            },
        }
    }

    /// Notes messages not yet synced, the oldest received at `oldest`.
    pub fn received(&mut self, oldest: Duration) {
        if self.window.is_some() {
            self.oldest = Some(self.oldest.map_or(oldest, |known| known.min(oldest)));
        }
    }

    /// When the next sync should begin; `None` while nothing waits or one is in flight.
    pub fn next_begin(&self) -> Option<Duration> {
        let (Some(window), Some(oldest), None) = (self.window, self.oldest, self.flight) else {
            return None;
        };
        let due = oldest + window.saturating_sub(self.expected_cost(window) + STEP_MAX.min(window / 4));
        let earliest = self
            .last_begin
            .map_or(Duration::ZERO, |last| last + window / PARTS_MAX);
        Some(due.max(earliest))
    }

    /// Whether a sync should begin at `now`.
    pub fn is_due(&self, now: Duration) -> bool {
        self.next_begin().is_some_and(|begin| now >= begin)
    }

    /// A sync was requested that covers everything reported with [`Self::received`].
    pub fn begun(&mut self, now: Duration) {
        let begun_late = self.lateness(now);
        if let Some(oldest) = self.oldest.take() {
            self.flight = Some(Flight {
                begun: now,
                oldest,
                late: std::mem::take(&mut self.waiting_is_late),
                begun_late,
            });
            self.last_begin = Some(now);
        }
    }

    /// Whether a sync is in flight.
    pub fn is_in_flight(&self) -> bool {
        self.flight.is_some()
    }

    /// The sync in flight has ended well; `durable` messages are safe now.
    pub fn ended(&mut self, now: Duration, durable: u64) -> Verdict {
        let Some(flight) = self.flight.take() else {
            return Verdict::Kept;
        };
        if self.costs.len() == COSTS_KEPT {
            self.costs.pop_front();
        }
        self.costs.push_back(now.saturating_sub(flight.begun));
        self.status.syncs += 1;
        self.status.durable = durable;
        self.status.sync_cost = self.learned_cost();
        self.aged(flight.miss(now), flight.late)
    }

    /// How much later than it was due a sync would begin now.
    fn lateness(&self, now: Duration) -> Duration {
        self.next_begin()
            .map_or(Duration::ZERO, |due| now.saturating_sub(due))
    }

    /// Nothing is left to be synced: the bag was closed well at `now`, with `durable` messages in it.
    pub fn closed(&mut self, now: Duration, durable: u64) -> Verdict {
        let waiting = Miss {
            age: now.saturating_sub(self.oldest.unwrap_or(now)),
            late: self.lateness(now),
            sync: None,
        };
        let flight = self.flight.take();
        let has_any = self.oldest.take().is_some() || flight.is_some();
        let late = flight.is_some_and(|flight| flight.late) || self.waiting_is_late;
        self.status.durable = durable;
        let miss = flight
            .map(|flight| flight.miss(now))
            .filter(|miss| miss.age >= waiting.age);
        if has_any {
            self.aged(miss.unwrap_or(waiting), late)
        } else {
            Verdict::Kept
        }
    }

    /// Checks whether the promise is being broken while a sync takes long or cannot begin.
    pub fn check(&mut self, now: Duration) -> Verdict {
        let Some(window) = self.window else {
            return Verdict::Kept;
        };
        let is_late = |oldest: Duration| now.saturating_sub(oldest) > window;
        if let Some(flight) = &mut self.flight {
            if flight.late || !is_late(flight.oldest) {
                return Verdict::Kept;
            }
            flight.late = true;
            let miss = flight.miss(now);
            return self.missed(miss);
        }
        match self.oldest {
            Some(oldest) if !self.waiting_is_late && is_late(oldest) => {
                self.waiting_is_late = true;
                self.missed(Miss {
                    age: now.saturating_sub(oldest),
                    late: self.lateness(now),
                    sync: None,
                })
            }
            _ => Verdict::Kept,
        }
    }

    /// How well the promise was kept so far.
    pub fn status(&self) -> &DurabilityStatus {
        &self.status
    }

    fn aged(&mut self, miss: Miss, counted: bool) -> Verdict {
        self.status.achieved = self.status.achieved.max(Some(miss.age));
        match self.window {
            Some(window) if miss.age > window && !counted => self.missed(miss),
            _ => Verdict::Kept,
        }
    }

    fn missed(&mut self, miss: Miss) -> Verdict {
        self.status.achieved = self.status.achieved.max(Some(miss.age));
        self.status.missed += 1;
        if self.status.missed == 1 {
            Verdict::FirstMiss(miss)
        } else {
            Verdict::Missed(miss.age)
        }
    }

    fn expected_cost(&self, window: Duration) -> Duration {
        self.learned_cost().unwrap_or(window / FIRST_COST_PART)
    }

    /// The 99th percentile; of fewer than a hundred that is the largest.
    fn learned_cost(&self) -> Option<Duration> {
        self.costs.iter().max().copied()
    }
}

/// Computes when the oldest message of a segment can have been received at the earliest, from how many
/// segments there were at which time.
#[derive(Debug, Default)]
pub struct Arrivals {
    /// Time, and how many segments had been begun by then; both ascend.
    samples: VecDeque<(Duration, u64)>,
    taken: u64,
}

impl Arrivals {
    /// Samples kept; older ones are only needed while the cache is full for long, and then the oldest is kept.
    const SAMPLES_MAX: usize = 1024;

    /// Notes that at `now` there were `queued` segments (the one being filled included) in addition to those
    /// taken.
    pub fn sample(&mut self, now: Duration, queued: u64) {
        let begun = self.taken + queued;
        // A later time with the same number of segments is the better bound.
        while self.samples.back().is_some_and(|(_, last)| *last >= begun) {
            self.samples.pop_back();
        }
        if self.samples.len() < Self::SAMPLES_MAX {
            self.samples.push_back((now, begun));
        }
    }

    /// The next segment was taken: nothing in it was received before the time that is returned; `None` if that is not known.
    pub fn take(&mut self) -> Option<Duration> {
        self.taken += 1;
        while let Some((_, begun)) = self.samples.get(1)
            && *begun < self.taken
        {
            self.samples.pop_front();
        }
        let first = self.samples.front().filter(|(_, begun)| *begun < self.taken);
        first.map(|(time, _)| *time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loss::KeptWindow;

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn a_sync_begins_early_enough_for_the_slowest_that_was_seen() {
        let mut window = LossWindow::new(Some(ms(2000)));
        assert_eq!(window.next_begin(), None);
        window.received(ms(10));
        assert_eq!(
            window.next_begin(),
            Some(ms(10 + 2000 - 500 - 100)),
            "nothing was learned yet"
        );
        window.received(ms(500));
        window.begun(ms(1410));
        assert!(!window.is_due(ms(9999)), "one at a time");
        window.received(ms(1420));
        assert_eq!(window.ended(ms(1450), 7), Verdict::Kept);
        assert_eq!(window.next_begin(), Some(ms(1420 + 2000 - 40 - 100)));
        let status = window.status();
        assert_eq!((status.durable, status.syncs, status.missed), (7, 1, 0));
        assert_eq!(status.achieved, Some(ms(1440)));
        let read = KeptWindow::from_custom_data(&status.custom_data());
        let expected = KeptWindow {
            max_s: 2.0,
            achieved_s: Some(1.44),
            missed: 0,
        };
        assert_eq!(read, Some(expected), "a bag tells the same");
    }

    #[test]
    fn a_sync_that_begins_late_is_no_fault_of_the_disk() {
        let mut window = LossWindow::new(Some(ms(1000)));
        window.received(ms(0));
        // Due after 650 ms.
        let Verdict::FirstMiss(miss) = window.check(ms(1500)) else {
            panic!("kept");
        };
        assert_eq!((miss.age, miss.late, miss.sync), (ms(1500), ms(850), None));
        assert!(
            miss.why(None, ms(300), None)
                .starts_with("a sync began 0.8 s late, because the processors are busy")
        );
        assert_eq!(
            miss.why(None, ms(800), Some(("/camera", ms(1000)))),
            "another program had locked the storage file for 0.8 s"
        );
        assert_eq!(
            miss.why(None, ms(0), Some(("/camera", ms(1450)))),
            "messages of /camera have waited for their encoder for 1.4 s"
        );
        let stopped = miss.why(Some(ms(27_000)), ms(800), None);
        assert!(
            stopped.starts_with("this program did not run for 27.0 s"),
            "{stopped}"
        );
    }

    #[test]
    fn a_stall_is_reported_once_and_makes_later_syncs_begin_earlier() {
        let mut window = LossWindow::new(Some(ms(1000)));
        window.received(ms(0));
        window.begun(ms(650));
        assert_eq!(window.check(ms(1000)), Verdict::Kept);
        let Verdict::FirstMiss(miss) = window.check(ms(1001)) else {
            panic!("kept");
        };
        assert_eq!((miss.age, miss.late, miss.sync), (ms(1001), ms(0), Some(ms(351))));
        assert_eq!(
            miss.why(None, Duration::ZERO, None),
            "the disk is slow: a sync has taken 0.4 s"
        );
        assert_eq!(window.check(ms(3000)), Verdict::Kept, "reported once");
        window.received(ms(700));
        assert_eq!(window.ended(ms(3650), 1), Verdict::Kept, "reported already");
        assert_eq!(window.status().achieved, Some(ms(3650)));
        assert!(window.is_due(ms(3650)), "what came meanwhile is late already");
        assert_eq!(window.check(ms(3650)), Verdict::Missed(ms(2950)));
        window.begun(ms(3650));
        window.ended(ms(3700), 2);
        window.received(ms(3700));
        assert_eq!(
            window.next_begin(),
            Some(ms(3775)),
            "at once, but not more often than an eighth of the window"
        );
        for _ in 0..COSTS_KEPT {
            window.received(ms(4000));
            window.begun(ms(4000));
            window.ended(ms(4010), 3);
        }
        window.received(ms(5000));
        assert_eq!(
            window.next_begin(),
            Some(ms(5000 + 1000 - 10 - 100)),
            "forgotten in time"
        );
        assert_eq!(window.status().missed, 2);
    }

    #[test]
    fn without_a_window_nothing_is_due() {
        let mut window = LossWindow::new(None);
        window.received(ms(0));
        assert_eq!(window.next_begin(), None);
        assert_eq!(window.check(ms(1_000_000)), Verdict::Kept);
        assert_eq!(window.closed(ms(1_000_000), 5), Verdict::Kept);
        assert_eq!(window.status().durable, 5);
    }

    #[test]
    fn the_age_of_a_segment_follows_from_how_many_there_were() {
        let mut arrivals = Arrivals::default();
        arrivals.sample(ms(100), 0);
        assert_eq!(
            arrivals.take(),
            Some(ms(100)),
            "begun after the cache was seen empty"
        );
        arrivals.sample(ms(150), 0);
        arrivals.sample(ms(200), 3);
        arrivals.sample(ms(300), 5);
        let taken = [(); 4].map(|()| arrivals.take());
        assert_eq!(taken, [150, 150, 150, 200].map(|at| Some(ms(at))));
        arrivals.sample(ms(400), 1);
        assert_eq!(arrivals.take(), Some(ms(200)), "it was there at 300");
        arrivals.sample(ms(450), 0);
        arrivals.sample(ms(500), 0);
        assert_eq!(arrivals.take(), Some(ms(500)));
    }

    #[test]
    fn segments_dropped_make_messages_seem_older_never_younger() {
        let mut arrivals = Arrivals::default();
        arrivals.sample(ms(0), 0);
        arrivals.sample(ms(100), 5);
        // Four of them are evicted; two later ones are taken.
        assert_eq!(arrivals.take(), Some(ms(0)));
        assert_eq!(arrivals.take(), Some(ms(0)));
    }
}
