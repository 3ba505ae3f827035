//! Our DDS transport against itself, two domains in one process that talk over the loopback network like two processes, and against a
//! participant that a test plays.
#![cfg(feature = "dds")]

mod dds;
mod support;

use dds::*;
use holdall_model::time::Timestamp;
use holdall_transport::{GraphEvent, PublishRequest, Transport, TransportError, dds::DdsTransport};
use std::{
    collections::BTreeSet,
    net::{Ipv4Addr, UdpSocket},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};
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
fn a_stream_without_a_pause_is_acknowledged_while_it_lasts() {
    let (domain, topic) = (domain(), topic("stream"));
    let (mut here, mut there) = (transport(domain, "here"), transport(domain, "there"));
    let (_keeper, _subscription) = subscribe(&mut there, &topic, STRING, reliable(10));
    let request = PublishRequest {
        topic,
        type_name: STRING.to_owned(),
        qos: reliable(10),
        keep_unacknowledged: true,
        ..PublishRequest::default()
    };
    let mut publisher = here.publish(&request).unwrap();
    assert!(wait_until(|| publisher.matched_subscriptions() == 1));
    let payload = patterned(1, 100);
    // Cyclone by itself requests an acknowledgement only of a message that comes 8 ms after the one before, as the first one does.
    let mut seen = BTreeSet::new();
    let acknowledged = (0..300_000_u32).any(|_| {
        publisher.publish(&payload).unwrap();
        seen.insert(publisher.delivery().unwrap().acknowledged);
        seen.len() > 20
    });
    assert!(acknowledged);
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
fn a_publisher_reports_when_it_was_made_whoever_asks_and_however_late() {
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

#[test]
fn a_publisher_that_appears_wakes_who_follows_the_graph() {
    let (domain, topic) = (domain(), topic("appears"));
    let mut ours = transport(domain, "follower");
    let wakes = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&wakes);
    ours.wake_on_graph_news(Arc::new(move || {
        counted.fetch_add(1, Ordering::SeqCst);
    }));
    let mut theirs = transport(domain, "there");
    let publisher = publish(&mut theirs, &topic, STRING, reliable(1));
    assert!(wait_until(|| wakes.load(Ordering::SeqCst) > 0));
    assert!(ours.has_graph_news());
    created(&mut ours, &topic);
    drop(publisher);
    // Changes not yet polled wake only once, so each try polls and makes a change.
    let (before, mut events) = (wakes.load(Ordering::SeqCst), Vec::new());
    assert!(wait_until(|| {
        ours.poll_graph(&mut events).unwrap();
        drop(publish(&mut theirs, &topic, STRING, reliable(1)));
        wakes.load(Ordering::SeqCst) > before
    }));
}

/// When the only publisher of a topic was created, according to discovery.
fn created(transport: &mut DdsTransport, topic: &str) -> Timestamp {
    let mut events = Vec::new();
    let mut answer = None;
    assert!(wait_until(|| {
        transport.poll_graph(&mut events).unwrap();
        answer = events.iter().find_map(|event| match event {
            GraphEvent::Publisher(info) if info.topic == topic => info.created,
            _ => None,
        });
        answer.is_some()
    }));
    answer.unwrap()
}

/// The GUID prefix of a participant that a test plays; it begins like those of Fast DDS.
const PLAYED: [u8; 12] = [1, 0x0f, 9, 9, 1, 2, 3, 4, 5, 6, 7, 8];

/// The announcement of a participant that receives at this port of loopback.
fn announcement(port: u16) -> Vec<u8> {
    let parameter = |id: u16, value: &[u8]| {
        let len = u16::try_from(value.len()).unwrap();
        [&id.to_le_bytes()[..], &len.to_le_bytes(), value].concat()
    };
    let mut locator = [1u32.to_le_bytes(), u32::from(port).to_le_bytes()].concat();
    locator.extend([0; 12]);
    locator.extend(Ipv4Addr::LOCALHOST.octets());
    let payload = [
        vec![0, 3, 0, 0],
        parameter(0x15, &[2, 3, 0, 0]),
        parameter(0x16, &[1, 0x0f, 0, 0]),
        parameter(0x50, &[&PLAYED[..], &[0, 0, 1, 0xc1]].concat()),
        parameter(0x02, &[100, 0, 0, 0, 0, 0, 0, 0]),
        parameter(0x58, &0x3fu32.to_le_bytes()),
        parameter(0x32, &locator),
        parameter(0x31, &locator),
        vec![1, 0, 0, 0],
    ]
    .concat();
    let data = [
        &[0, 0, 16, 0, 0, 1, 0, 0xc7, 0, 1, 0, 0xc2, 0, 0, 0, 0, 1, 0, 0, 0][..],
        &payload,
    ]
    .concat();
    let len = u16::try_from(data.len()).unwrap().to_le_bytes();
    [&b"RTPS"[..], &[2, 3, 1, 0x0f], &PLAYED, &[0x15, 5], &len, &data].concat()
}

/// True when a packet announces a participant to the one that a test plays, and to no other.
fn is_announcement_to_it(packet: &[u8]) -> bool {
    let names_it = packet
        .windows(16)
        .any(|bytes| bytes == [&[0x0e, 1, 12, 0][..], &PLAYED].concat());
    names_it
        && packet
            .windows(8)
            .any(|bytes| bytes == [0, 1, 0, 0xc7, 0, 1, 0, 0xc2])
}

#[test]
fn a_new_participant_is_sent_the_announcement_more_often_than_cyclone_does() {
    let domain = domain();
    let _ours = transport(domain, "ours");
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    socket.set_read_timeout(Some(DEADLINE)).unwrap();
    let hello = announcement(socket.local_addr().unwrap().port());
    for index in 0..4 {
        let port = u16::try_from(7_410 + 250 * domain + 2 * index).unwrap();
        socket.send_to(&hello, (Ipv4Addr::LOCALHOST, port)).unwrap();
    }
    // Cyclone itself sends four, a second apart; the first one is lost if the participant does not listen yet.
    let mut bytes = vec![0; 1 << 16];
    let mut announcements = 0;
    while announcements < 8 {
        let len = socket
            .recv(&mut bytes)
            .expect("only Cyclone's own announcements arrive");
        announcements += usize::from(is_announcement_to_it(&bytes[..len]));
    }
}
