//! The limits of the whole recording: what comes after one is reached is left out, and the recorder learns of it.

use super::Drain;
use crate::record::limits::ReachedLimit;
use holdall_model::time::Timestamp;

impl Drain {
    /// Whether the recording is over before this message.
    #[inline]
    pub(super) fn is_beyond_limit(&mut self, log_time: Timestamp, payload_bytes: usize) -> bool {
        let bag = &self.bag;
        let reached = self
            .limits
            .reached_before(log_time, payload_bytes, || bag.length());
        reached.inspect(|limit| self.report_limit(*limit)).is_some()
    }

    /// Takes note of a message that was written.
    #[inline]
    pub(super) fn note_written(&mut self, log_time: Timestamp, payload_bytes: usize) {
        if let Some(limit) = self.limits.written(log_time, payload_bytes) {
            self.report_limit(limit);
        }
    }

    #[cold]
    fn report_limit(&self, limit: ReachedLimit) {
        self.shared.reach(limit);
    }
}
