//! Real ROS 2 nodes (rclpy on Fast DDS) against our DDS transport.
#![cfg(feature = "dds")]

mod dds;

use dds::*;
use holdall_model::qos::{History, Reliability};
use md5::{Digest, Md5};
use serde_json::json;

fn md5_of(payloads: &[Vec<u8>]) -> String {
    let mut md5 = Md5::new();
    payloads.iter().for_each(|payload| md5.update(payload));
    md5.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A String message without the zeros that DDS adds up to a multiple of four; checks that there is nothing else behind it.
fn without_padding(payload: &[u8]) -> Vec<u8> {
    let len = 8 + u32::from_le_bytes(payload[4..8].try_into().unwrap()) as usize;
    assert_eq!(payload.len(), len.next_multiple_of(4));
    assert!(payload[len..].iter().all(|byte| *byte == 0));
    payload[..len].to_vec()
}

#[test]
fn a_thousand_strings_arrive_byte_for_byte() {
    let Some(python) = python() else { return };
    let (domain, topic) = (domain(), topic("chatter"));
    let mut ours = transport(domain, "recorder");
    let plan = json!({
        "node": "talker", "wait_for_subscriptions": 1, "linger_s": 1,
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
    let unpadded: Vec<_> = keeper
        .payloads()
        .into_iter()
        .map(|payload| without_padding(&payload))
        .collect();
    assert_eq!(
        md5_of(&unpadded),
        done["sent"][&topic][0]["md5"].as_str().unwrap()
    );
}
