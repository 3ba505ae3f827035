//! A transport, and the endpoints it has shown.

use crate::receive::{discovery::Discovery, intake::PublisherOrigin, services::Services};
use holdall_model::time::Timestamp;
use holdall_transport::{EndpointInfo, Transport};
use std::time::Duration;

/// Publishers that are discovered this soon after the start count as running before it, unless they state
/// that they were made later: answering a newcomer takes DDS nodes up to some announcement periods.
pub const INITIAL_DISCOVERY: Duration = Duration::from_secs(2);

/// How far the wall clock may move against the monotonic one before it counts as set: NTP slews by half a millisecond a second.
const CLOCK_DRIFT_MAX: Duration = Duration::from_millis(500);

/// When something of the graph was noticed, by two clocks that are read together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    /// Time since the session's beginning.
    pub(super) elapsed: Duration,
    /// The transport's time of day.
    pub(super) now: Timestamp,
}

/// A transport, and the endpoints it has shown.
pub(super) struct Source {
    pub(super) transport: Box<dyn Transport>,
    pub(super) discovery: Discovery,
    pub(super) services: Services,
    /// The time of day when the recording began.
    pub(super) started: Timestamp,
    /// Why it has ended before the recording: one sentence.
    pub(super) failure: Option<String>,
}

impl Source {
    /// Whether a publisher noticed at `moment` is older than the recording, by its own clock; a time in the future comes from another clock and proves nothing.
    /// Without a time the moment of its discovery decides: soon after the start older ones are still found. So it does when the wall clock
    /// was set since the start: times of before and after do not compare.
    ///
    /// However late an older publisher is found (the recorder was stopped, the network came late), messages that it sent before are not lost.
    pub(super) fn origin_of(&self, publisher: &EndpointInfo, moment: Moment) -> PublisherOrigin {
        let Moment { elapsed, now } = moment;
        let initial = elapsed < INITIAL_DISCOVERY;
        let by_wall_clock = i128::from(now.as_nanos()) - i128::from(self.started.as_nanos());
        let was_set = by_wall_clock.abs_diff(elapsed.as_nanos().cast_signed()) > CLOCK_DRIFT_MAX.as_nanos();
        let is_older = match publisher.created {
            Some(_) if was_set => initial,
            Some(created) if created < self.started => true,
            Some(created) if created <= now => false,
            _ => initial,
        };
        if is_older {
            PublisherOrigin::Before
        } else {
            PublisherOrigin::During
        }
    }
}
