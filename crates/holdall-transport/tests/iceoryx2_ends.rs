//! Messages received from a publisher in shared memory when a subscription ends.
#![cfg(feature = "iceoryx2")]

mod support;

use holdall_io::clock::SystemClock;
use holdall_transport::iceoryx2::Iceoryx2Transport;
use std::sync::Arc;
use support::*;

#[test]
fn what_was_published_before_a_subscription_ends_is_received() {
    /// Often enough that the receive thread sleeps at the end of some rounds, and is at work at that of others.
    const ROUNDS: usize = 20;
    const COUNT: usize = 50;
    let join = |name: &str| Iceoryx2Transport::new(name, Arc::new(SystemClock)).unwrap();
    let (mut ours, mut theirs) = (join("recorder"), join("talker"));
    for round in 0..ROUNDS {
        let topic = topic("ends");
        let mut publisher = publish(&mut theirs, &topic, STRING, reliable(COUNT as u64));
        let (keeper, subscription) = subscribe(&mut ours, &topic, STRING, reliable(COUNT as u64));
        assert!(wait_until(|| subscription.matched_publishers() == 1));
        assert!(wait_until(|| publisher.matched_subscriptions() == 1));
        publisher.publish(&string("the first")).unwrap();
        assert!(wait_until(|| keeper.len() == 1));
        for number in 1..COUNT {
            publisher.publish(&string(&format!("{number:08}"))).unwrap();
        }
        drop(subscription);
        assert_eq!(keeper.len(), COUNT, "round {round}");
    }
}
