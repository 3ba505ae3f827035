//! Messages of a publisher that are not acknowledged: when playback must wait for them, and how many it had to drop.

use super::options::Pace;
use holdall_transport::{Delivery, Publisher};
use std::{collections::VecDeque, time::Duration};

/// Payload bytes of one topic that wait for acknowledgement at most.
const BYTES_MAX: usize = 64 << 20;

/// How long playback waits for a subscription that acknowledges nothing, before the oldest message that it
/// lacks is dropped.
const STALL_MAX: Duration = Duration::from_secs(1);

/// The same where messages are so large that keeping more of them would fill memory: as long as DDS takes to notice that a subscription's
/// process is gone (20 s with Fast DDS).
const STALL_MAX_LARGE: Duration = Duration::from_secs(20);

/// Decision about a topic's next message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// Publish it.
    Publish,
    /// Ask again soon.
    Wait,
    /// Do not publish it: unacknowledged messages already take too much memory.
    Refuse,
}

/// The messages of one publisher that are not known to be acknowledged.
#[derive(Debug, Default)]
pub(super) struct Unacknowledged {
    /// Payload lengths, oldest first.
    sizes: VecDeque<usize>,
    bytes: usize,
    published: u64,
    /// Since when nothing more was acknowledged although something waits.
    stalled: Option<Duration>,
    /// Nothing was acknowledged for too long; no more waiting until something is.
    is_given_up: bool,
    /// Messages that were overwritten before all subscriptions had acknowledged them.
    pub dropped: u64,
}

impl Unacknowledged {
    /// Whether a message of `len` bytes can be published now.
    pub fn admit(&mut self, publisher: &dyn Publisher, len: usize, now: Duration, pace: Pace) -> Admission {
        if !self.is_nearly_full(len) {
            return Admission::Publish;
        }
        let Some(delivery) = publisher.delivery() else {
            // Nothing is acknowledged here, so there is nothing to wait for.
            (self.sizes, self.bytes) = (VecDeque::new(), 0);
            return Admission::Publish;
        };
        self.acknowledged(delivery);
        let has_bytes = self.has_bytes_for(len);
        let has_place = (self.sizes.len() as u64) < delivery.kept_max;
        if has_bytes && has_place {
            self.stalled = None;
            return Admission::Publish;
        }
        if pace == Pace::Listeners {
            // As long as it takes: a subscription that is gone no longer counts.
            return Admission::Wait;
        }
        let stalled = now.saturating_sub(*self.stalled.get_or_insert(now));
        let patience = if has_bytes { STALL_MAX } else { STALL_MAX_LARGE };
        self.is_given_up |= stalled >= patience;
        match (self.is_given_up, has_bytes) {
            (false, _) => Admission::Wait,
            (true, true) => Admission::Publish,
            (true, false) => Admission::Refuse,
        }
    }

    /// Notes a message that was published.
    pub fn published(&mut self, publisher: &dyn Publisher, len: usize) {
        self.published += 1;
        self.sizes.push_back(len);
        self.bytes += len;
        let kept_max = match self.sizes.len() {
            // Asked only when it may matter.
            count if count <= CHECK_FROM => return,
            _ => publisher.delivery().map_or(0, |delivery| delivery.kept_max),
        };
        while self.sizes.len() as u64 > kept_max {
            self.dropped += u64::from(kept_max > 0);
            self.forget_oldest();
        }
    }

    /// Messages that were published.
    pub fn published_count(&self) -> u64 {
        self.published
    }

    /// Messages that not all matched reliable subscriptions have acknowledged: those dropped, and those
    /// unacknowledged at the end.
    pub fn count(&mut self, publisher: &dyn Publisher) -> u64 {
        let Some(delivery) = publisher.delivery() else {
            return 0;
        };
        self.acknowledged(delivery);
        self.dropped + self.sizes.len() as u64
    }

    fn is_nearly_full(&self, len: usize) -> bool {
        self.sizes.len() >= CHECK_FROM || !self.has_bytes_for(len)
    }

    /// One message always has room.
    fn has_bytes_for(&self, len: usize) -> bool {
        self.sizes.is_empty() || self.bytes.saturating_add(len) <= BYTES_MAX
    }

    fn acknowledged(&mut self, delivery: Delivery) {
        let waiting = self.published.saturating_sub(delivery.acknowledged);
        let before = self.sizes.len();
        while self.sizes.len() as u64 > waiting {
            self.forget_oldest();
        }
        if self.sizes.len() < before {
            (self.stalled, self.is_given_up) = (None, false);
        }
    }

    fn forget_oldest(&mut self) {
        self.bytes -= self.sizes.pop_front().unwrap_or(0);
    }
}

/// When this many messages may be waiting, the transport is queried before each further one.
const CHECK_FROM: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use holdall_transport::TransportError;
    use std::cell::Cell;

    /// Acknowledges as the test sets it.
    struct Scripted(Cell<u64>);

    impl Publisher for Scripted {
        fn publish(&mut self, _payload: &[u8]) -> Result<(), TransportError> {
            Ok(())
        }
        fn matched_subscriptions(&self) -> usize {
            1
        }
        fn delivery(&self) -> Option<Delivery> {
            Some(Delivery {
                acknowledged: self.0.get(),
                subscriptions: 1,
                reliable_subscriptions: 1,
                kept_max: 2048,
            })
        }
        fn wait_for_acked(&mut self, _timeout: Duration) -> bool {
            false
        }
    }

    fn filled(count: u64, len: usize, publisher: &Scripted) -> Unacknowledged {
        let mut waiting = Unacknowledged::default();
        for _ in 0..count {
            assert_eq!(
                waiting.admit(publisher, len, Duration::ZERO, Pace::Time),
                Admission::Publish
            );
            waiting.published(publisher, len);
        }
        waiting
    }

    #[test]
    fn a_full_history_waits_and_is_overwritten_only_when_nothing_is_acknowledged_for_long() {
        let publisher = Scripted(Cell::new(0));
        let mut waiting = filled(2048, 100, &publisher);
        let at = |millis| Duration::from_millis(millis);
        assert_eq!(
            waiting.admit(&publisher, 100, at(10), Pace::Time),
            Admission::Wait
        );
        publisher.0.set(1);
        assert_eq!(
            waiting.admit(&publisher, 100, at(900), Pace::Time),
            Admission::Publish
        );
        waiting.published(&publisher, 100);
        assert_eq!(
            waiting.admit(&publisher, 100, at(1100), Pace::Time),
            Admission::Wait,
            "there was progress"
        );
        assert_eq!(
            waiting.admit(&publisher, 100, at(2100), Pace::Time),
            Admission::Publish
        );
        waiting.published(&publisher, 100);
        assert_eq!(waiting.dropped, 1);
        assert_eq!(
            waiting.admit(&publisher, 100, at(2101), Pace::Time),
            Admission::Publish,
            "no second wait"
        );
        waiting.published(&publisher, 100);
        assert_eq!(waiting.count(&publisher), 2 + 2048);
        publisher.0.set(2051);
        assert_eq!(waiting.count(&publisher), 2, "what was overwritten stays counted");
    }

    #[test]
    fn large_messages_wait_by_their_bytes_and_are_refused_at_last() {
        let publisher = Scripted(Cell::new(0));
        let len = 10 << 20;
        let mut waiting = filled(6, len, &publisher);
        assert_eq!(
            waiting.admit(&publisher, len, Duration::ZERO, Pace::Time),
            Admission::Wait
        );
        assert_eq!(
            waiting.admit(&publisher, len, Duration::from_secs(2), Pace::Time),
            Admission::Wait
        );
        assert_eq!(
            waiting.admit(&publisher, len, Duration::from_secs(20), Pace::Time),
            Admission::Refuse
        );
        publisher.0.set(6);
        assert_eq!(
            waiting.admit(&publisher, len, Duration::from_secs(21), Pace::Time),
            Admission::Publish
        );
        assert_eq!(waiting.count(&publisher), 0);
    }
}
