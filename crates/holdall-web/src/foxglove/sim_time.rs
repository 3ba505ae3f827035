//! The time of a simulation for viewers: `/clock`, received by a separate subscription.

use super::{hub::Hub, protocol};
use holdall::record::clock_nanos;
use holdall_io::clock::{Clock, SystemClock};
use holdall_model::{
    message::{MessageHeader, Payload},
    qos::{Durability, QosProfile, Reliability},
    time::Timestamp,
};
use holdall_transport::{Sink, SubscribeRequest, Subscription, Transport};
use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
    time::Duration,
};

/// Viewers get the time no more often than this.
const SENT_EVERY: Duration = Duration::from_millis(10);

/// Value of [`SimTime::now`] before the first message.
const UNKNOWN: i64 = i64::MIN;

/// The simulated time, which viewers get as the server's.
pub(super) struct SimTime {
    hub: Arc<Hub>,
    nanos: AtomicI64,
    /// Monotonic time of the last that was sent, in nanoseconds.
    sent: AtomicU64,
}

impl SimTime {
    /// Unknown until `/clock` has a message.
    pub(super) fn new(hub: &Arc<Hub>) -> Arc<Self> {
        Arc::new(Self {
            hub: Arc::clone(hub),
            nanos: AtomicI64::new(UNKNOWN),
            sent: AtomicU64::new(0),
        })
    }

    /// The last time that `/clock` had.
    pub(super) fn now(&self) -> Option<Timestamp> {
        Some(self.nanos.load(Ordering::Acquire))
            .filter(|nanos| *nanos != UNKNOWN)
            .map(Timestamp::from_nanos)
    }

    /// Subscribes to `/clock` over every transport; the time is followed as long as the subscriptions exist.
    pub(super) fn follow(
        self: &Arc<Self>,
        transports: &mut [Box<dyn Transport>],
    ) -> Vec<Box<dyn Subscription>> {
        let request = SubscribeRequest {
            topic: "/clock".to_owned(),
            type_name: "rosgraph_msgs/msg/Clock".to_owned(),
            // The weakest request is matched with every publisher.
            qos: QosProfile {
                reliability: Reliability::BestEffort,
                durability: Durability::Volatile,
                ..QosProfile::ROS_DEFAULT
            },
        };
        let mut subscriptions = Vec::new();
        for transport in transports {
            match transport.subscribe(&request, Arc::clone(self) as Arc<dyn Sink>) {
                Ok(subscription) => subscriptions.push(subscription),
                Err(error) => tracing::warn!("viewers get no time of /clock: {error}"),
            }
        }
        subscriptions
    }
}

impl Sink for SimTime {
    fn offer(&self, _: MessageHeader, payload: Payload<'_>) {
        let Some(nanos) = clock_nanos(&payload.to_vec()) else {
            return;
        };
        let before = self.nanos.swap(nanos, Ordering::AcqRel);
        // A clock that jumps back is sent at once.
        let now = u64::try_from(SystemClock.monotonic().as_nanos()).unwrap_or(u64::MAX);
        let is_due = now.saturating_sub(self.sent.load(Ordering::Relaxed)) >= SENT_EVERY.as_nanos() as u64;
        if is_due || nanos < before {
            self.sent.store(now, Ordering::Relaxed);
            self.hub
                .send_bytes(&protocol::time(u64::try_from(nanos).unwrap_or(0)));
        }
    }
}
