//! Real ROS 2 nodes (rclpy on Fast DDS) against our DDS transport.
#![cfg(feature = "dds")]

mod dds;
mod support;

use dds::*;
use holdall_model::{
    qos::{Durability, History, Reliability},
    topic::NodeName,
};
use holdall_transport::Transport;
use md5::{Digest, Md5};
use serde_json::json;
use support::*;

fn md5_of(payloads: &[Vec<u8>]) -> String {
    let mut md5 = Md5::new();
    payloads.iter().for_each(|payload| md5.update(payload));
    md5.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A payload with the zeros that DDS adds up to a multiple of four.
fn padded(mut payload: Vec<u8>) -> Vec<u8> {
    payload.resize(payload.len().next_multiple_of(4), 0);
    payload
}

/// After the text of a String message there are only the zeros that DDS adds up to a multiple of four.
fn assert_only_padding_after_text(payload: &[u8]) {
    let len = 8 + u32::from_le_bytes(payload[4..8].try_into().unwrap()) as usize;
    assert_eq!(payload.len(), len.next_multiple_of(4));
    assert!(payload[len..].iter().all(|byte| *byte == 0));
}

#[test]
fn a_thousand_strings_arrive_byte_for_byte() {
    let python = python();
    let (domain, topic) = (domain(), topic("chatter"));
    let mut ours = transport(domain, "recorder");
    let plan = json!({
        "node": "talker", "wait_for_subscriptions": 1, "linger": true,
        "publishers": [{"topic": topic, "type": STRING, "count": 1000, "rate_hz": 500, "qos": {"depth": 1000}}],
    });
    let mut node = Node::start(&python, "talker.py", domain, &plan);
    let publisher = discover(&mut ours, &topic, 1).remove(0);
    assert_eq!(publisher.type_name, STRING);
    assert!(
        publisher
            .type_hash
            .as_deref()
            .is_some_and(|hash| hash.starts_with("RIHS01_df668c74")),
        "{publisher:?}"
    );
    assert_eq!(
        (publisher.qos.history, publisher.qos.depth),
        (History::Unknown, 0)
    );
    assert_eq!(publisher.qos.reliability, Reliability::Reliable);

    let (keeper, subscription) = subscribe(&mut ours, &topic, STRING, reliable(10));
    let done = node.wait_for("done");
    assert!(wait_until(|| keeper.len() >= 1000), "{} of 1000", keeper.len());
    assert_eq!(subscription.matched_publishers(), 1);
    assert_eq!(keeper.sequences(), [(publisher.gid, (1..=1000).collect())].into());
    let payloads = keeper.payloads();
    payloads
        .iter()
        .for_each(|payload| assert_only_padding_after_text(payload));
    assert_eq!(
        md5_of(&payloads),
        done["sent"][&topic][0]["md5"].as_str().unwrap()
    );
}

#[test]
fn images_arrive_exactly_as_loans_of_receive_buffers() {
    let python = python();
    let (domain, topic) = (domain(), topic("image"));
    let mut ours = transport(domain, "recorder");
    let plan = json!({
        "node": "camera", "wait_for_subscriptions": 1,
        // All are kept until they were received, however long a busy machine takes.
        "publishers": [{"topic": topic, "type": IMAGE, "count": 20, "rate_hz": 30, "qos": {"depth": 20}}],
    });
    let mut node = Node::start(&python, "talker.py", domain, &plan);
    discover(&mut ours, &topic, 1);
    let (keeper, subscription) = subscribe(&mut ours, &topic, IMAGE, reliable(10));
    let done = node.wait_for("done");
    assert!(wait_until(|| keeper.len() >= 20), "{} of 20", keeper.len());
    // Loans outlive the subscription and the transport.
    drop(subscription);
    drop(ours);
    let kept = std::mem::take(&mut *keeper.kept.lock().unwrap());
    for kept in &kept {
        let loan = kept.loan.as_ref().expect("6 MB are lent");
        assert!(kept.slices > 50, "{} slices", kept.slices);
        assert!(loan.pinned_bytes() >= loan.len());
        let mut again = Vec::new();
        loan.for_each_slice(&mut |slice| again.extend_from_slice(slice));
        assert!(again == kept.bytes, "a loan changed while it was held");
    }
    let pinned: usize = kept
        .iter()
        .filter_map(|kept| Some(kept.loan.as_ref()?.pinned_bytes()))
        .sum();
    let len: usize = kept.iter().map(|kept| kept.bytes.len()).sum();
    assert!(pinned < len * 2, "{pinned} pinned for {len}");
    // An image's serialized size is 6 220 854 bytes with this header; DDS fills up to a multiple of four.
    let sum = usize::try_from(done["sent"][&topic][0]["sizes_sum"].as_u64().unwrap()).unwrap();
    let exact = sum / 20;
    let payloads: Vec<_> = kept.iter().map(|kept| kept.bytes[..exact].to_vec()).collect();
    assert_eq!(
        md5_of(&payloads),
        done["sent"][&topic][0]["md5"].as_str().unwrap()
    );
}

#[test]
fn latched_messages_reach_a_late_subscription() {
    let python = python();
    let (domain, topic) = (domain(), topic("latched"));
    let plan = json!({
        "node": "map_server", "wait_for_subscriptions": 0, "linger": true,
        "publishers": [{"topic": topic, "type": STRING, "count": 3, "text": "map{n}",
                        "qos": {"depth": 5, "durability": "transient_local"}}],
    });
    let mut node = Node::start(&python, "talker.py", domain, &plan);
    node.wait_for("done");
    let mut ours = transport(domain, "recorder");
    let publisher = discover(&mut ours, &topic, 1).remove(0);
    assert_eq!(publisher.qos.durability, Durability::TransientLocal);
    let (keeper, _subscription) = subscribe(&mut ours, &topic, STRING, latched(10));
    assert!(wait_until(|| keeper.len() >= 3), "{} of 3", keeper.len());
    assert_eq!(
        keeper.payloads(),
        [string("map0"), string("map1"), string("map2")].map(padded)
    );
    assert_eq!(keeper.sequences(), [(publisher.gid, vec![1, 2, 3])].into());
    let kept = keeper.kept.lock().unwrap();
    assert!(kept.iter().all(|kept| {
        kept.header
            .publish_time
            .is_some_and(|sent| sent < kept.header.log_time)
    }));
}

#[test]
fn nodes_are_named_and_two_publishers_are_distinguished() {
    let python = python();
    let (domain, topic) = (domain(), topic("shared"));
    let mut ours = transport(domain, "recorder");
    let plan = |node: &str| {
        json!({
            "node": node, "wait_for_subscriptions": 1, "linger": true,
            // A node that has matched our subscription may begin before we have matched the node; messages
            // kept for late readers are requested.
            "publishers": [{"topic": topic, "type": STRING, "count": 100, "rate_hz": 200,
                            "qos": {"depth": 100, "durability": "transient_local"}}],
        })
    };
    let mut nodes = [
        Node::start(&python, "talker.py", domain, &plan("left")),
        Node::start(&python, "talker.py", domain, &plan("right")),
    ];
    let (keeper, subscription) = subscribe(&mut ours, &topic, STRING, latched(100));
    let mut found = std::collections::BTreeMap::new();
    assert!(
        wait_until(|| {
            follow(&mut ours, &topic, &mut found);
            found.len() == 2 && found.values().all(|publisher| publisher.node.is_some())
        }),
        "{found:?}"
    );
    let names: std::collections::BTreeSet<_> = found
        .values()
        .filter_map(|publisher| Some(publisher.node.as_ref()?.to_string()))
        .collect();
    assert_eq!(names, ["/left", "/right"].map(str::to_owned).into());
    nodes.iter_mut().for_each(|node| {
        node.wait_for("done");
    });
    assert!(wait_until(|| keeper.len() >= 200), "{} of 200", keeper.len());
    let expected: std::collections::BTreeMap<_, _> =
        found.keys().map(|gid| (*gid, (1..=100).collect())).collect();
    assert_eq!(keeper.sequences(), expected);
    drop(subscription);
}

#[test]
fn a_restarted_publisher_is_followed() {
    let python = python();
    let (domain, topic) = (domain(), topic("restarted"));
    let mut ours = transport(domain, "recorder");
    let (keeper, subscription) = subscribe(&mut ours, &topic, STRING, latched(50));
    let plan = json!({
        "node": "talker", "wait_for_subscriptions": 1, "linger": true,
        // It may begin before we have matched it, and has sent all within a millisecond.
        "publishers": [{"topic": topic, "type": STRING, "count": 50, "qos": {"depth": 50, "durability": "transient_local"}}],
    });
    let mut gids = Vec::new();
    let mut found = std::collections::BTreeMap::new();
    for round in 1..=2 {
        let mut node = Node::start(&python, "talker.py", domain, &plan);
        node.wait_for("done");
        let ended = || {
            keeper
                .sequences()
                .values()
                .filter(|sequences| sequences.contains(&50))
                .count()
        };
        assert!(wait_until(|| ended() == round), "{:?}", keeper.sequences());
        gids.extend(
            keeper
                .sequences()
                .into_keys()
                .filter(|gid| !gids.contains(gid))
                .collect::<Vec<_>>(),
        );
        assert_eq!(gids.len(), round);
        follow(&mut ours, &topic, &mut found);
        assert!(found.contains_key(&gids[round - 1]), "{found:?}");
        node.interrupt();
        assert!(wait_until(|| {
            follow(&mut ours, &topic, &mut found);
            found.is_empty() && subscription.matched_publishers() == 0
        }));
    }
    for sequences in keeper.sequences().into_values() {
        assert_eq!(sequences, (1..=50).collect::<Vec<u64>>());
    }
}

#[test]
fn a_node_reports_the_sources_of_its_types() {
    let python = python();
    let (domain, topic) = (domain(), topic("described"));
    let mut ours = transport(domain, "recorder");
    let plan = json!({
        "node": "camera", "wait_for_subscriptions": 0, "linger": true,
        "publishers": [{"topic": topic, "type": IMAGE, "count": 0}],
    });
    let _node = Node::start(&python, "talker.py", domain, &plan);
    let mut found = std::collections::BTreeMap::new();
    assert!(wait_until(|| {
        follow(&mut ours, &topic, &mut found);
        found.values().any(|publisher| publisher.node.is_some())
    }));
    let publisher = found.into_values().next().unwrap();
    let (node, hash) = (publisher.node.unwrap(), publisher.type_hash.unwrap());
    for _ in 0..2 {
        ours.request_type_description(&node, IMAGE, &hash);
    }
    let mut replies = Vec::new();
    assert!(wait_until(|| {
        ours.poll_type_descriptions(&mut replies);
        !replies.is_empty()
    }));
    assert_eq!(
        (replies[0].type_name.as_str(), &replies[0].type_hash),
        (IMAGE, &hash)
    );
    let sources = replies[0].sources.clone().unwrap();
    let names: Vec<_> = sources.iter().map(|source| source.type_name.as_str()).collect();
    assert_eq!(
        names,
        [IMAGE, "builtin_interfaces/msg/Time", "std_msgs/msg/Header"]
    );
    assert!(sources[0].text.contains("uint32 height") && sources[0].encoding == "msg");

    // An unknown type and an unknown node are both failures.
    replies.clear();
    ours.request_type_description(&node, "no_msgs/msg/Such", &format!("RIHS01_{}", "00".repeat(32)));
    ours.request_type_description(
        &NodeName {
            namespace: "/".into(),
            name: "nobody".into(),
        },
        IMAGE,
        &hash,
    );
    assert!(
        wait_until(|| {
            ours.poll_type_descriptions(&mut replies);
            replies.len() >= 2
        }),
        "{replies:?}"
    );
    assert!(replies.iter().all(|reply| reply.sources.is_err()), "{replies:?}");
}

#[test]
fn rclpy_receives_what_we_publish() {
    let python = python();
    let (domain, topic) = (domain(), topic("played"));
    let mut ours = transport(domain, "player");
    let plan = json!({"node": "listener", "expect": {&topic: 300},
                      "subscriptions": [{"topic": topic, "type": STRING, "qos": {"depth": 300}}]});
    let mut node = Node::start(&python, "listener.py", domain, &plan);
    node.wait_for("ready");
    let mut publisher = publish(&mut ours, &topic, STRING, reliable(300));
    assert!(wait_until(|| publisher.matched_subscriptions() == 1));
    // Multiples of four, so that no padding is added.
    let sent: Vec<_> = (0..300).map(|n| string(&format!("{n:07}"))).collect();
    sent.iter()
        .for_each(|payload| publisher.publish(payload).unwrap());
    assert!(publisher.wait_for_acked(DEADLINE));
    let done = node.wait_for("done");
    assert_eq!(done["received"][&topic]["count"], 300);
    assert_eq!(done["received"][&topic]["md5"].as_str().unwrap(), md5_of(&sent));
}

#[test]
fn rclpy_sees_our_node_and_its_endpoints() {
    let python = python();
    let (domain, topic) = (domain(), topic("graph"));
    let mut ours = transport(domain, "holdall_recorder");
    let _publisher = publish(&mut ours, &topic, STRING, latched(7));
    let _subscription = subscribe(&mut ours, &topic, STRING, reliable(1));
    let script = format!(
        "import rclpy, time, sys\n\
         rclpy.init(); node = rclpy.create_node('looker'); end = time.monotonic() + 60\n\
         def look():\n\
         \x20   return sorted((i.node_name, i.endpoint_type.name, i.topic_type) for i in\n\
         \x20       node.get_publishers_info_by_topic('{topic}') + node.get_subscriptions_info_by_topic('{topic}'))\n\
         want = [('holdall_recorder', 'PUBLISHER', '{STRING}'), ('holdall_recorder', 'SUBSCRIPTION', '{STRING}')]\n\
         while look() != want and time.monotonic() < end: rclpy.spin_once(node, timeout_sec=0.05)\n\
         print(look(), node.get_node_names())\n\
         sys.exit(look() != want or 'holdall_recorder' not in node.get_node_names())\n"
    );
    let output = std::process::Command::new(python)
        .args(["-c", &script])
        .env("ROS_DOMAIN_ID", domain.to_string())
        .env("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stdout)
    );
}
