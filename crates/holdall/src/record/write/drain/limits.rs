//! The limits of the whole recording: what comes after one is reached is left out, and the recorder learns of it.

use super::Drain;
use crate::record::limits::ReachedLimit;
use holdall_model::time::Timestamp;

impl Drain {
    /// Whether the recording is over before this message.
    #[cold]
    pub(super) fn exceeds_limit(&mut self, log_time: Timestamp, payload_bytes: usize) -> bool {
        let bag = &self.bag;
        let limits = self.limits.as_mut();
        let reached =
            limits.and_then(|limits| limits.reached_before(log_time, payload_bytes, || bag.length()));
        reached.inspect(|limit| self.report_limit(*limit)).is_some()
    }

    /// Takes note of a message that was written.
    #[cold]
    pub(super) fn count_for_limit(&mut self, log_time: Timestamp, payload_bytes: usize) {
        let limits = self.limits.as_mut();
        if let Some(limit) = limits.and_then(|limits| limits.written(log_time, payload_bytes)) {
            self.report_limit(limit);
        }
    }

    fn report_limit(&self, limit: ReachedLimit) {
        self.shared.reach(limit);
    }
}
