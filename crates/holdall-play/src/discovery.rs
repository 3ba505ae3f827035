//! Waits before the first message until subscriptions have been found: for a while, or for the number that the user wants.

use super::{options::ListenerCount, publications::Publications, requests::SERVER_WAIT_MAX, steps::Steps};
use std::time::Duration;

/// Time between polls of matched subscriptions, before the first message.
pub(super) const SETTLE_POLL: Duration = Duration::from_millis(10);

/// Discovery counts as done when nothing more has matched for this long. A reader that we see matched may see us a round trip
/// later.
const SETTLE_QUIET: Duration = Duration::from_millis(300);

/// Discovery takes at least this long. Measured between Cyclone DDS and Fast DDS on one host: a reader matches after either
/// 0.1 s or 1.1 s (most often), when the first exchange of endpoints fails and Fast DDS repeats it a second later.
const SETTLE_MIN: Duration = Duration::from_millis(1250);

/// What is missing is named after this time.
const SAID_AFTER: Duration = Duration::from_secs(5);

/// How far discovery has come.
struct Settle {
    since: Duration,
    quiet_since: Duration,
    matched: usize,
    /// The sentence about what is missing that was logged last.
    said: Option<String>,
}

/// The wait for subscriptions.
#[derive(Default)]
pub(super) struct Discovery {
    /// Longest wait if nothing is required; zero for no wait.
    wait_max: Duration,
    required: Vec<ListenerCount>,
    /// Longest wait for required subscriptions; `None` waits for ever.
    timeout: Option<Duration>,
    settle: Option<Settle>,
}

impl Discovery {
    /// Waits for `required`, or if that is empty at most `wait_max`.
    pub fn new(wait_max: Duration, required: Vec<ListenerCount>, timeout: Option<Duration>) -> Self {
        Self {
            wait_max,
            required,
            timeout,
            settle: None,
        }
    }

    /// When discovery counts as settled if nothing more happens; or one clause about subscriptions that did not come in time.
    pub fn settled_at(
        &mut self,
        publications: &Publications,
        steps: &Steps,
        now: Duration,
    ) -> Result<Duration, String> {
        if self.required.is_empty() && self.wait_max.is_zero() && !steps.needs_servers() {
            return Ok(now);
        }
        let matched = publications.matched_subscriptions() + steps.matched();
        let settle = self.settle.get_or_insert(Settle {
            since: now,
            quiet_since: now,
            matched,
            said: None,
        });
        if matched != settle.matched {
            (settle.matched, settle.quiet_since) = (matched, now);
        }
        let waited = now.saturating_sub(settle.since);
        let missing = self
            .required
            .iter()
            .find_map(|required| required.missing(publications))
            .or_else(|| steps.absent(publications));
        if let Some(missing) = missing {
            if let Some(timeout) = self.timeout.filter(|timeout| waited >= *timeout) {
                return Err(format!("after {} s {missing}", timeout.as_secs_f64()));
            }
            if waited >= SAID_AFTER && settle.said.as_ref() != Some(&missing) {
                tracing::warn!("playback waits, because {missing}");
                settle.said = Some(missing);
            }
            return Ok(now.saturating_add(SETTLE_POLL));
        }
        if waited < SERVER_WAIT_MAX && !publications.servers_are_ready() {
            return Ok(now.saturating_add(SETTLE_POLL));
        }
        let quiet = settle.quiet_since.saturating_add(SETTLE_QUIET);
        if !self.required.is_empty() {
            return Ok(quiet);
        }
        let latest = settle.since.saturating_add(self.wait_max);
        let least = settle.since.saturating_add(SETTLE_MIN);
        Ok(match matched {
            0 => latest,
            // The server may have come late, and subscriptions with it.
            _ if steps.needs_servers() => quiet.max(least.min(latest)),
            _ => latest.min(quiet.max(least)),
        })
    }
}

impl ListenerCount {
    /// Missing subscriptions, one clause.
    fn missing(&self, publications: &Publications) -> Option<String> {
        let found = match &self.topic {
            Some(topic) => publications.matched_subscriptions_of(topic),
            None => publications.matched_subscriptions(),
        };
        let on = self.topic.as_deref().unwrap_or("the topics that are played");
        (found < self.count).then(|| format!("{found} of {} subscriptions to {on} exist", self.count))
    }
}
