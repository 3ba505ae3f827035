//! When a session is stepped: at intervals, and when something has changed.

use super::Session;
use std::{sync::Arc, time::Duration};

/// Time between two steps while something is going to change, and the shortest one between two that were woken.
pub(crate) const STEP_INTERVAL: Duration = Duration::from_millis(10);

/// Longest time between two steps.
const IDLE_MAX: Duration = Duration::from_millis(100);

/// A graph that has changed will change again for this long: nodes create their publishers one by one.
const CHANGING: Duration = Duration::from_millis(100);

impl Session {
    /// Transports that notice changes of their graphs end the wait for the next step.
    pub(super) fn follow_graphs(&mut self) {
        for source in &mut self.sources {
            let wait = Arc::clone(&self.parts.wait);
            source.transport.wake_on_graph_news(Arc::new(move || wait.wake()));
        }
    }

    /// How long the next step may wait when nothing wakes it.
    pub(crate) fn until_next_step(&self, now: Duration) -> Duration {
        let is_changing = now.saturating_sub(self.last_change) < CHANGING;
        let is_busy = is_changing || !self.decided.is_empty() || self.definitions.awaits_answer(now);
        let longest = if is_busy { STEP_INTERVAL } else { IDLE_MAX };
        longest.min(self.next_poll.saturating_sub(now))
    }
}
