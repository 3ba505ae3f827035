//! Publishers that went silent, each reported once.

use crate::receive::intake::PastTime;
use holdall_io::clock::Clock;
use holdall_model::{loss::UnknownEnds, text::Outside, units::counted};
use std::{collections::BTreeSet, sync::Arc, time::Duration};

/// Topics that a line of the log names.
const TOPICS_LISTED_MAX: usize = 8;

/// A publisher that went silent without a farewell.
struct SilentPublisher {
    topic: String,
    /// Since when, in monotonic time: the time of day may have been set since.
    since: Duration,
}

/// Publishers that went silent and were not reported yet.
pub(super) struct Silences {
    silent: Vec<SilentPublisher>,
    clock: Arc<dyn Clock>,
}

impl Silences {
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            silent: Vec::new(),
            clock,
        }
    }

    /// Notes that a publisher of a topic is silent.
    pub fn add(&mut self, topic: &str, since: PastTime) {
        self.silent.push(SilentPublisher {
            topic: topic.to_owned(),
            since: self.clock.monotonic().saturating_sub(since.ago),
        });
    }

    /// Logs which publishers went silent since the last call: one line, as a computer that leaves takes all of its publishers with it.
    pub fn report(&mut self, what: &str) {
        let silent = std::mem::take(&mut self.silent);
        let Some(since) = silent.iter().map(|one| one.since).min() else {
            return;
        };
        let topics: BTreeSet<&str> = silent.iter().map(|one| &*one.topic).collect();
        let named: Vec<String> = topics
            .iter()
            .take(TOPICS_LISTED_MAX)
            .map(|topic| Outside(topic).to_string())
            .collect();
        let more = match topics.len() - named.len() {
            0 => String::new(),
            more => format!(" and {more} more topics"),
        };
        let publishers = counted(silent.len() as u64, "publisher");
        let ago = self.clock.monotonic().saturating_sub(since);
        tracing::warn!(
            "{}: {publishers} ({}{more}) {what}; what was sent in the last {:.1} s is not known",
            UnknownEnds::SILENT,
            named.join(", "),
            ago.as_secs_f64()
        );
    }
}
