//! Guarantees of the memory transport to the tests that use it.

use super::*;
use crate::TypeSource;
use holdall_io::clock::SystemClock;
use holdall_model::{
    message::{MessageHeader, Payload},
    qos::{Durability, History, QosProfile, Reliability},
    topic::Gid,
};
use std::sync::Mutex;

#[derive(Default)]
struct Keeper {
    messages: Mutex<Vec<(MessageHeader, Vec<u8>, usize)>>,
    announced: Mutex<Vec<(Gid, u64)>>,
}

impl Sink for Keeper {
    fn offer(&self, header: MessageHeader, payload: Payload<'_>) {
        let (mut bytes, mut slices) = (Vec::new(), 0);
        match payload {
            Payload::Borrowed(all) => bytes.extend_from_slice(all),
            Payload::Loaned(loan) => loan.for_each_slice(&mut |slice| {
                bytes.extend_from_slice(slice);
                slices += 1;
            }),
        }
        self.messages.lock().unwrap().push((header, bytes, slices));
    }

    fn announced(&self, publisher: Gid, last_sequence: u64) {
        self.announced.lock().unwrap().push((publisher, last_sequence));
    }
}

impl Keeper {
    fn sequences(&self) -> Vec<u64> {
        self.messages
            .lock()
            .unwrap()
            .iter()
            .filter_map(|message| message.0.sequence)
            .collect()
    }
}

fn node(name: &str) -> NodeName {
    NodeName {
        namespace: "/".to_owned(),
        name: name.to_owned(),
    }
}

fn clock() -> Arc<dyn Clock> {
    Arc::new(SystemClock)
}

fn profile(reliability: Reliability, durability: Durability, depth: u64) -> QosProfile {
    QosProfile {
        history: History::KeepLast,
        depth,
        reliability,
        durability,
        ..QosProfile::default()
    }
}

fn offer(qos: QosProfile) -> PublishRequest {
    PublishRequest {
        topic: "/a".to_owned(),
        type_name: "p/msg/T".to_owned(),
        type_hash: None,
        qos,
        ..PublishRequest::default()
    }
}

fn request(qos: QosProfile) -> SubscribeRequest {
    SubscribeRequest {
        topic: "/a".to_owned(),
        type_name: "p/msg/T".to_owned(),
        qos,
    }
}

#[test]
fn messages_arrive_with_sequence_numbers_and_gaps() {
    let network = MemoryNetwork::new();
    let mut transport = MemoryTransport::new(&network, node("recorder"), clock());
    let qos = profile(Reliability::Reliable, Durability::Volatile, 10);
    let publisher = network.publisher(&node("talker"), &offer(qos), &clock());
    publisher.send(b"before the subscription");
    let keeper = Arc::new(Keeper::default());
    let subscription = transport
        .subscribe(&request(qos), Arc::clone(&keeper) as Arc<dyn Sink>)
        .unwrap();
    publisher.send(b"one");
    publisher.lose(3);
    publisher.send(&[7; 100_000]);
    publisher.lose(1);
    publisher.announce();
    assert_eq!(keeper.sequences(), [2, 6]);
    assert_eq!(keeper.messages.lock().unwrap()[1].1, [7; 100_000]);
    assert_eq!(keeper.messages.lock().unwrap()[1].2, 7, "slices of the loan");
    assert_eq!(*keeper.announced.lock().unwrap(), [(publisher.gid(), 7)]);
    assert_eq!(subscription.announced_sequences(), [(publisher.gid(), 7)]);
    drop(subscription);
    publisher.send(b"after");
    assert_eq!(keeper.sequences().len(), 2);
}

#[test]
fn incompatible_qos_does_not_match() {
    let network = MemoryNetwork::new();
    let mut transport = MemoryTransport::new(&network, node("recorder"), clock());
    let weak = profile(Reliability::BestEffort, Durability::Volatile, 1);
    let strong = profile(Reliability::Reliable, Durability::TransientLocal, 1);
    let publisher = network.publisher(&node("talker"), &offer(weak), &clock());
    let keeper = Arc::new(Keeper::default());
    let subscription = transport
        .subscribe(&request(strong), Arc::clone(&keeper) as Arc<dyn Sink>)
        .unwrap();
    publisher.send(b"x");
    assert_eq!(
        (
            subscription.matched_publishers(),
            publisher.matched_subscriptions()
        ),
        (0, 0)
    );
    assert!(keeper.sequences().is_empty());
}

#[test]
fn late_subscriptions_get_the_last_messages_of_latched_publishers() {
    let network = MemoryNetwork::new();
    let mut transport = MemoryTransport::new(&network, node("recorder"), clock());
    let qos = profile(Reliability::Reliable, Durability::TransientLocal, 2);
    let publisher = network.publisher(&node("talker"), &offer(qos), &clock());
    (0..3).for_each(|_| publisher.send(b"x"));
    let (latched, plain) = (Arc::new(Keeper::default()), Arc::new(Keeper::default()));
    let volatile = profile(Reliability::Reliable, Durability::Volatile, 2);
    let _latched = transport
        .subscribe(&request(qos), Arc::clone(&latched) as Arc<dyn Sink>)
        .unwrap();
    let _plain = transport
        .subscribe(&request(volatile), Arc::clone(&plain) as Arc<dyn Sink>)
        .unwrap();
    assert_eq!((latched.sequences(), plain.sequences()), (vec![2, 3], vec![]));
}

#[test]
fn graph_shows_others_and_not_oneself() {
    let network = MemoryNetwork::new();
    let mut one = MemoryTransport::new(&network, node("one"), clock());
    let qos = profile(Reliability::Reliable, Durability::Volatile, 1);
    let publisher = one.publish(&offer(qos)).unwrap();
    let mut two = MemoryTransport::new(&network, node("two"), clock());
    let subscription = two.subscribe(&request(qos), Arc::new(Keeper::default())).unwrap();
    drop(publisher);
    let (mut seen_by_one, mut seen_by_two) = (Vec::new(), Vec::new());
    one.poll_graph(&mut seen_by_one).unwrap();
    two.poll_graph(&mut seen_by_two).unwrap();
    assert!(matches!(&seen_by_one[..], [GraphEvent::Subscription(info)] if info.node == Some(node("two"))));
    assert!(matches!(
        &seen_by_two[..],
        [GraphEvent::Publisher(_), GraphEvent::PublisherGone(_)]
    ));
    drop(subscription);
    seen_by_one.clear();
    one.poll_graph(&mut seen_by_one).unwrap();
    assert!(matches!(&seen_by_one[..], [GraphEvent::SubscriptionGone(_)]));
    network.fail("pulled the plug");
    assert!(
        one.poll_graph(&mut seen_by_one)
            .unwrap_err()
            .to_string()
            .contains("pulled the plug")
    );
}

#[test]
fn questions_are_answered_once_the_node_can() {
    let network = MemoryNetwork::new();
    let mut transport = MemoryTransport::new(&network, node("recorder"), clock());
    transport.request_type_description(&node("talker"), "p/msg/T", "RIHS01_0");
    transport.request_type_description(&node("talker"), "p/msg/T", "RIHS01_0");
    let mut replies = Vec::new();
    transport.poll_type_descriptions(&mut replies);
    assert_eq!(replies, []);
    let source = TypeSource {
        type_name: "p/msg/T".to_owned(),
        encoding: "msg".to_owned(),
        text: "int8 x".to_owned(),
    };
    network.describe(&node("talker"), "p/msg/T", Ok(vec![source.clone()]));
    transport.poll_type_descriptions(&mut replies);
    transport.poll_type_descriptions(&mut replies);
    assert_eq!(replies.len(), 1);
    assert_eq!(replies[0].sources, Ok(vec![source]));
}

#[test]
fn bad_names_are_refused() {
    let mut transport = MemoryTransport::new(&MemoryNetwork::new(), node("recorder"), clock());
    let mut bad = offer(QosProfile::default());
    bad.topic = "no slash".to_owned();
    assert!(matches!(
        transport.publish(&bad),
        Err(TransportError::Topic { .. })
    ));
}
