//! When a recorder's session is stepped, and what a step does: at intervals, and when something has changed.

use std::time::Duration;

/// Time between two steps while something is going to change, and the shortest one between two that were woken.
pub const STEP_INTERVAL: Duration = Duration::from_millis(10);

/// Longest time between two steps.
const IDLE_MAX: Duration = Duration::from_millis(100);

/// A graph that has changed will change again for this long: nodes create their publishers one by one.
const CHANGING: Duration = Duration::from_millis(100);

/// Time between two polls for announcements of publishers.
const ANNOUNCEMENT_INTERVAL: Duration = Duration::from_secs(1);

/// Time between two checks for losses that were not logged yet.
const LOSS_INTERVAL: Duration = Duration::from_secs(1);

/// The times of a session, all monotonic.
#[derive(Debug)]
pub struct Due {
    started: Duration,
    /// When the graph has changed last.
    last_change: Duration,
    next_poll: Duration,
    next_announcements: Duration,
    next_loss_check: Duration,
}

impl Due {
    /// A session that begins `now`, when everything is due.
    pub fn new(now: Duration) -> Self {
        Self {
            started: now,
            last_change: now,
            next_poll: now,
            next_announcements: now,
            next_loss_check: now,
        }
    }

    /// Time since the session's beginning.
    pub fn elapsed(&self, now: Duration) -> Duration {
        now.saturating_sub(self.started)
    }

    /// Whether the graph is polled now: after `interval`, or because there is something to look at.
    pub fn polls(&mut self, now: Duration, interval: Duration, is_wanted: bool) -> bool {
        let is_due = is_wanted || now >= self.next_poll;
        if is_due {
            self.next_poll = now + interval;
        }
        is_due
    }

    /// Whether publishers' announcements are polled now.
    pub fn polls_announcements(&mut self, now: Duration) -> bool {
        is_due(&mut self.next_announcements, now, ANNOUNCEMENT_INTERVAL)
    }

    /// Whether losses are looked for now.
    pub fn checks_losses(&mut self, now: Duration) -> bool {
        is_due(&mut self.next_loss_check, now, LOSS_INTERVAL)
    }

    /// The graph has changed now: it is polled often for a while.
    pub fn graph_changed(&mut self, now: Duration) {
        self.last_change = now;
    }

    /// How long the next step may wait when nothing wakes it. `is_busy`: something waits to be done.
    pub fn until_next_step(&self, now: Duration, is_busy: bool) -> Duration {
        let is_changing = now.saturating_sub(self.last_change) < CHANGING;
        let longest = if is_changing || is_busy {
            STEP_INTERVAL
        } else {
            IDLE_MAX
        };
        longest.min(self.next_poll.saturating_sub(now))
    }
}

fn is_due(next: &mut Duration, now: Duration, interval: Duration) -> bool {
    let is_due = now >= *next;
    if is_due {
        *next = now + interval;
    }
    is_due
}
