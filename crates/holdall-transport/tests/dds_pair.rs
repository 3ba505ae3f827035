//! Our DDS transport against itself: two domains in one process that talk over the loopback network like two processes.
#![cfg(feature = "dds")]

mod dds;
mod support;

use dds::*;
use holdall_model::time::Timestamp;
use holdall_transport::{GraphEvent, Transport, TransportError, dds::DdsTransport};
use support::*;

#[test]
fn a_publisher_of_the_same_participant_is_heard() {
    let (domain, topic) = (domain(), topic("own"));
    let mut ours = transport(domain, "both");
    let mut publisher = publish(&mut ours, &topic, IMAGE, reliable(10));
    let (keeper, _subscription) = subscribe(&mut ours, &topic, IMAGE, reliable(10));
    assert!(wait_until(|| publisher.matched_subscriptions() == 1));
    let sent = [patterned(1, 100), patterned(2, 200_000)];
    sent.iter()
        .for_each(|payload| publisher.publish(payload).unwrap());
    assert!(wait_until(|| keeper.len() == 2));
    assert!(keeper.payloads() == sent);
    assert!(
        keeper
            .kept
            .lock()
            .unwrap()
            .iter()
            .all(|kept| kept.header.sequence.is_none())
    );
}

#[test]
fn payloads_without_encapsulation_header_are_refused() {
    let mut ours = transport(domain(), "strict");
    let mut publisher = publish(&mut ours, &topic("short"), STRING, reliable(1));
    let error = publisher.publish(&[0, 1]).unwrap_err();
    assert!(
        matches!(&error, TransportError::Publish { reason, .. } if reason.contains("4 bytes")),
        "{error}"
    );
}

#[test]
fn a_publisher_tells_when_it_was_made_whoever_asks_and_however_late() {
    let (domain, topic) = (domain(), topic("made"));
    let mut there = transport(domain, "there");
    let mut early = transport(domain, "early");
    let before = there.now();
    let _publisher = publish(&mut there, &topic, STRING, reliable(1));
    let made = created(&mut early, &topic);
    let since = early.now();
    let mut late = transport(domain, "late");
    assert!(late.now() > since);
    assert_eq!(created(&mut late, &topic), made);
    assert!((before..=since).contains(&made), "{before:?} {made:?} {since:?}");
}

/// When the only publisher of a topic was created, according to discovery.
fn created(transport: &mut DdsTransport, topic: &str) -> Timestamp {
    let mut events = Vec::new();
    let mut told = None;
    assert!(wait_until(|| {
        transport.poll_graph(&mut events).unwrap();
        told = events.iter().find_map(|event| match event {
            GraphEvent::Publisher(info) if info.topic == topic => info.created,
            _ => None,
        });
        told.is_some()
    }));
    told.unwrap()
}
