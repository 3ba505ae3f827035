//! Our zenoh transport with sessions that others could open as well: routers that come and go, late publishers, malformed messages.
#![cfg(feature = "zenoh")]

mod support;
mod zenoh;

use ::zenoh::Wait;
use std::collections::BTreeMap;
use support::*;
use zenoh::*;

const KEY: &str =
    "std_msgs::msg::dds_::String_/RIHS01_abababababababababababababababababababababababababababababababab";

/// A session of zenoh that knows nothing of ROS.
fn stranger(meeting: &Meeting) -> ::zenoh::Session {
    let mut config = ::zenoh::Config::default();
    for (key, value) in [
        ("mode", "\"peer\"".to_owned()),
        ("scouting/multicast/enabled", "false".to_owned()),
        ("timestamping/enabled", "true".to_owned()),
        ("connect/endpoints", format!("[\"{}\"]", meeting.endpoint)),
        ("listen/endpoints", "[]".to_owned()),
    ] {
        config.insert_json5(key, &value).unwrap();
    }
    ::zenoh::open(config).wait().unwrap()
}

fn attachment(sequence: i64) -> Vec<u8> {
    let mut bytes = sequence.to_le_bytes().to_vec();
    bytes.extend(1_700_000_000_000_000_000_i64.to_le_bytes());
    bytes.push(16);
    bytes.extend([9; 16]);
    bytes
}

#[test]
fn a_router_brings_clients_and_peers_together() {
    for mode in ["client", "peer"] {
        let meeting = Meeting::new();
        let _router = meeting.host("router", "router");
        let mut ours = meeting.guest("recorder", mode);
        let mut theirs = meeting.guest("talker", mode);
        let topic = topic("routed");
        let mut publisher = publish(&mut theirs, &topic, STRING, reliable(10));
        let (keeper, subscription) = subscribe(&mut ours, &topic, STRING, reliable(10));
        assert!(wait_until(
            || publisher.matched_subscriptions() == 1 && subscription.matched_publishers() == 1
        ));
        publisher.publish(&string("through the router")).unwrap();
        assert!(wait_until(|| keeper.len() == 1), "{mode}");
        let known = discover(&mut ours, &topic, 1).remove(0);
        assert_eq!(keeper.sequences(), [(known.gid, vec![1])].into());
    }
}

#[test]
fn a_router_that_goes_away_and_comes_back_leaves_a_gap_and_nothing_else() {
    let meeting = Meeting::new();
    let router = meeting.host("router", "router");
    let mut ours = meeting.guest("recorder", "client");
    let mut theirs = meeting.guest("talker", "client");
    let topic = topic("interrupted");
    let mut publisher = publish(&mut theirs, &topic, STRING, reliable(10));
    let (keeper, _subscription) = subscribe(&mut ours, &topic, STRING, reliable(10));
    assert!(wait_until(|| publisher.matched_subscriptions() == 1));
    publisher.publish(&string("before")).unwrap();
    assert!(wait_until(|| keeper.len() == 1));
    let mut found = BTreeMap::new();
    assert!(wait_until(|| {
        follow(&mut ours, &topic, &mut found);
        found.len() == 1
    }));
    let gid = *found.keys().next().unwrap();
    drop(router);
    assert!(wait_until(|| {
        follow(&mut ours, &topic, &mut found);
        found.is_empty() && publisher.matched_subscriptions() == 0
    }));
    publisher.publish(&string("meanwhile")).unwrap();
    let _router = meeting.host("router again", "router");
    assert!(wait_until(|| {
        follow(&mut ours, &topic, &mut found);
        found.len() == 1 && publisher.matched_subscriptions() == 1
    }));
    publisher.publish(&string("after")).unwrap();
    assert!(wait_until(|| keeper.len() == 2));
    assert_eq!(keeper.sequences(), [(gid, vec![1, 3])].into());
}

#[test]
fn what_a_late_publisher_sent_before_it_was_seen_is_asked_for() {
    let meeting = Meeting::new();
    let mut ours = meeting.host("recorder", "peer");
    let topic = topic("late");
    let (keeper, _subscription) = subscribe(&mut ours, &topic, STRING, latched(10));
    let mut theirs = meeting.guest("talker", "peer");
    let mut publisher = publish(&mut theirs, &topic, STRING, latched(10));
    for number in 0..5 {
        publisher.publish(&string(&format!("{number}"))).unwrap();
    }
    assert!(wait_until(|| {
        follow(&mut ours, &topic, &mut BTreeMap::new());
        keeper.len() == 5
    }));
    // Whatever came live and whatever from the cache: each once.
    let mut sequences = keeper.sequences().into_values().next().unwrap();
    sequences.sort_unstable();
    assert_eq!(sequences, [1, 2, 3, 4, 5]);
}

#[test]
fn messages_without_or_with_a_malformed_attachment_are_kept_without_sequence() {
    let meeting = Meeting::new();
    let mut ours = meeting.host("recorder", "peer");
    let topic = topic("strange");
    let (keeper, _subscription) = subscribe(&mut ours, &topic, STRING, reliable(10));
    let session = stranger(&meeting);
    let key = format!("{DOMAIN}{topic}/{KEY}");
    let publisher = session.declare_publisher(key).wait().unwrap();
    assert!(wait_until(|| publisher
        .matching_status()
        .wait()
        .unwrap()
        .matching()));
    let mut negative = attachment(-5);
    publisher.put(string("bare")).wait().unwrap();
    for bytes in [attachment(7)[..20].to_vec(), negative.clone(), attachment(7)] {
        publisher
            .put(string("attached"))
            .attachment(bytes)
            .wait()
            .unwrap();
    }
    // Without the length, as later versions have it.
    negative = attachment(8);
    negative.remove(16);
    publisher
        .put(string("short"))
        .attachment(negative)
        .wait()
        .unwrap();
    assert!(wait_until(|| keeper.len() == 5));
    let headers: Vec<_> = keeper
        .kept
        .lock()
        .unwrap()
        .iter()
        .map(|kept| kept.header)
        .collect();
    let sequences: Vec<_> = headers.iter().map(|header| header.sequence).collect();
    assert_eq!(sequences, [None, None, None, Some(7), Some(8)]);
    let times: Vec<_> = headers
        .iter()
        .map(|header| header.publish_time.map(|time| time.as_nanos()))
        .collect();
    assert_eq!(times[3..], [Some(1_700_000_000_000_000_000); 2]);
    assert!(
        headers[..3]
            .iter()
            .all(|header| header.publisher.is_none() && header.publish_time.is_none())
    );
}

#[test]
fn malformed_tokens_are_left_out_and_the_others_are_seen() {
    let meeting = Meeting::new();
    let mut ours = meeting.host("recorder", "peer");
    let session = stranger(&meeting);
    let declare = |key: String| session.liveliness().declare_token(key).wait().unwrap();
    let topic = topic("beside");
    let good = format!(
        "@ros2_lv/{DOMAIN}/abc/0/1/MP/%/%/talker/%{}/{KEY}/::,10:,:,:,,",
        &topic[1..]
    );
    let _bad = [
        declare(format!("@ros2_lv/{DOMAIN}/abc/0/2/MP/%/%/talker")),
        declare(format!(
            "@ros2_lv/{DOMAIN}/abc/0/3/XX/%/%/talker/%a/b/c/::,10:,:,:,,"
        )),
        declare(good.replace("::,10", "9::,x").replace("/0/1/", "/0/4/")),
    ];
    let _good = declare(good);
    let found = discover(&mut ours, &topic, 1).remove(0);
    assert_eq!(
        (found.qos.depth, found.node.unwrap().to_string().as_str()),
        (10, "/talker")
    );
}

#[test]
fn shared_memory_is_referenced_and_released() {
    use ::zenoh::shm::{BlockOn, GarbageCollect, ShmProviderBuilder};
    let meeting = Meeting::new();
    let mut ours = meeting.host("recorder", "peer");
    let topic = topic("shared");
    let (keeper, _subscription) = subscribe(&mut ours, &topic, STRING, reliable(10));
    let session = stranger(&meeting);
    let publisher = session
        .declare_publisher(format!("{DOMAIN}{topic}/{KEY}"))
        .congestion_control(::zenoh::qos::CongestionControl::Block)
        .wait()
        .unwrap();
    assert!(wait_until(|| publisher
        .matching_status()
        .wait()
        .unwrap()
        .matching()));
    const LEN: usize = 6_220_800;
    // Room for five: messages held beyond the bound of 24 MiB are copied, so that the sixth finds room.
    let provider = ShmProviderBuilder::default_backend(5 * LEN + 65_536)
        .wait()
        .unwrap();
    for number in 0..12 {
        let mut buffer = provider
            .alloc(LEN)
            .with_policy::<BlockOn<GarbageCollect>>()
            .wait()
            .unwrap();
        buffer.fill(number);
        publisher
            .put(buffer)
            .attachment(attachment(i64::from(number) + 1))
            .wait()
            .unwrap();
        assert!(wait_until(|| keeper.len() == usize::from(number) + 1));
    }
    let kept = keeper.kept.lock().unwrap();
    for (number, kept) in kept.iter().enumerate() {
        assert!(kept.bytes.len() == LEN && kept.bytes.iter().all(|byte| usize::from(*byte) == number));
    }
    let lent: Vec<_> = kept.iter().filter_map(|kept| kept.loan.as_ref()).collect();
    assert_eq!(lent.len(), 4, "as many as the bound allows");
    assert!(lent.iter().all(|loan| loan.pinned_bytes() == LEN));
    assert!(
        kept.iter().all(|kept| kept.loan.is_none() || kept.slices == 1),
        "in one piece, where the publisher wrote it"
    );
}
