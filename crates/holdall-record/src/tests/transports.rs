//! Recordings of several transports, and how often a payload is touched in transit.

use super::*;
use holdall_model::{
    loss::LossStage,
    message::{Loan, MessageHeader, Payload},
    topic::Gid,
};
use holdall_transport::{EndpointInfo, GraphEvent, Sink, SubscribeRequest, Subscription, TransportError};
use std::sync::Mutex;

const LARGE: usize = 300_000;

/// Publishes the same messages on both networks, as a bridge does.
fn record_bridged(merge_duplicates: bool) -> (World, Recorded) {
    let mut world = World::new();
    world.options.discovery.merge_duplicates = merge_duplicates;
    let beyond = MemoryNetwork::new();
    let request = PublishRequest {
        topic: "/a".to_owned(),
        type_name: STRING.to_owned(),
        qos: RELIABLE,
        ..PublishRequest::default()
    };
    let here = world.publisher("/a", RELIABLE);
    // Networks number their publishers from 1; real ones never have the same identifier.
    for _ in 0..100 {
        drop(beyond.publisher(&node("gone"), &request, &world.clock()));
    }
    let bridge = beyond.publisher(&node("bridge"), &request, &world.clock());
    let join = |network: &MemoryNetwork| -> Box<dyn Transport> {
        Box::new(MemoryTransport::new(network, node("recorder"), world.clock()))
    };
    let transports = vec![join(&world.network), join(&beyond)];
    let recording = world
        .record_over(transports)
        .unwrap_or_else(|error| panic!("{error}"));
    recording.wait_matched(&here);
    recording.wait_matched(&bridge);
    for number in 0..10 {
        // The node itself sends each one twice; the bridge does not.
        for _ in 0..2 {
            here.send(&payload(number, LARGE * (number % 2)));
            bridge.send(&payload(number, LARGE * (number % 2)));
        }
    }
    recording.wait_recorded(if merge_duplicates { 20 } else { 40 });
    let recorded = recording.stop();
    (world, recorded)
}

#[test]
fn several_transports_make_one_bag() {
    let (_world, recorded) = record_bridged(false);
    assert_eq!(recorded.payloads("/a").len(), 40);
    assert_eq!(recorded.lost(), 0);
    let topics = recorded.metadata().topics_with_message_count;
    let [topic] = topics.as_slice() else {
        panic!("{topics:?}")
    };
    let origin = topic.topic_metadata.origin.as_ref();
    assert_eq!(origin.map(|origin| origin.transport.as_str()), Some("memory"));
}

#[test]
fn what_a_bridge_repeats_is_recorded_once_when_asked_and_counted() {
    let (_world, recorded) = record_bridged(true);
    let expected: Vec<_> = (0..10)
        .flat_map(|number| vec![payload(number, LARGE * (number % 2)); 2])
        .collect();
    assert_eq!(recorded.payloads("/a"), expected);
    assert_eq!(recorded.lost(), 0, "what was left out on request is no loss");
    let ledger = recorded.ledger();
    let publishers = ledger.topics.iter().flat_map(|topic| &topic.publishers);
    let left_out: u64 = publishers
        .map(|publisher| publisher.missing(LossStage::Policy))
        .sum();
    assert_eq!(left_out, 20);
}

/// How often a payload was read, and whether it was given back.
#[derive(Debug, Default)]
struct Touched {
    bytes_read: AtomicU64,
    given_back: AtomicU64,
}

/// A payload in foreign memory that is overwritten once it is returned, as a publisher does with its
/// pool.
struct TrackedLoan {
    bytes: Vec<u8>,
    touched: Arc<Touched>,
}

impl Loan for TrackedLoan {
    fn len(&self) -> usize {
        self.bytes.len()
    }

    fn pinned_bytes(&self) -> usize {
        self.bytes.len()
    }

    fn for_each_slice(&self, visit: &mut dyn FnMut(&[u8])) {
        self.touched
            .bytes_read
            .fetch_add(self.bytes.len() as u64, Ordering::SeqCst);
        self.bytes.chunks(65_000).for_each(visit);
    }
}

impl Drop for TrackedLoan {
    fn drop(&mut self) {
        self.bytes.fill(0xde);
        self.touched.given_back.fetch_add(1, Ordering::SeqCst);
    }
}

/// A transport whose only publisher is the test.
#[derive(Clone, Default)]
struct Handmade {
    is_told: bool,
    sink: Arc<Mutex<Option<Arc<dyn Sink>>>>,
}

struct HandmadeSubscription(Handmade);

impl Subscription for HandmadeSubscription {
    fn matched_publishers(&self) -> usize {
        1
    }
}

impl Drop for HandmadeSubscription {
    fn drop(&mut self) {
        self.0.sink.lock().unwrap().take();
    }
}

const HANDMADE: Gid = Gid([3; 16]);

impl Transport for Handmade {
    fn name(&self) -> &'static str {
        "handmade"
    }

    fn poll_graph(&mut self, events: &mut Vec<GraphEvent>) -> Result<(), TransportError> {
        if !std::mem::replace(&mut self.is_told, true) {
            events.push(GraphEvent::Publisher(EndpointInfo {
                gid: HANDMADE,
                topic: "/camera".to_owned(),
                type_name: STRING.to_owned(),
                ..EndpointInfo::default()
            }));
        }
        Ok(())
    }

    fn subscribe(
        &mut self,
        _request: &SubscribeRequest,
        sink: Arc<dyn Sink>,
    ) -> Result<Box<dyn Subscription>, TransportError> {
        *self.sink.lock().unwrap() = Some(sink);
        Ok(Box::new(HandmadeSubscription(self.clone())))
    }

    fn publish(&mut self, request: &PublishRequest) -> Result<Box<dyn Publisher>, TransportError> {
        Err(TransportError::Topic {
            topic: request.topic.clone(),
            reason: "nothing is published here".to_owned(),
        })
    }

    fn now(&self) -> Timestamp {
        SystemClock.now()
    }
}

/// Whatever the transport, its loans are read once, into the block that is written: no copy before, none
/// after.
#[test]
fn a_loan_is_copied_once_between_its_publisher_and_the_disk() {
    const COUNT: u64 = 40;
    let mut world = World::new();
    let handmade = Handmade::default();
    let recording = world
        .record_over(vec![Box::new(handmade.clone())])
        .unwrap_or_else(|error| panic!("{error}"));
    recording.wait_until("the topic is subscribed", |_| {
        handmade.sink.lock().unwrap().is_some()
    });
    let sink = handmade.sink.lock().unwrap().clone().expect("subscribed");
    let touched = Arc::new(Touched::default());
    for number in 1..=COUNT {
        let loan = TrackedLoan {
            bytes: payload(number as usize, LARGE),
            touched: Arc::clone(&touched),
        };
        let header = MessageHeader {
            publisher: Some(HANDMADE),
            sequence: Some(number),
            publish_time: None,
            log_time: SystemClock.now(),
        };
        sink.offer(header, Payload::Loaned(Box::new(loan)));
    }
    recording.wait_recorded(COUNT);
    drop(sink);
    let recorded = recording.stop();
    let expected: Vec<_> = (1..=COUNT)
        .map(|number| payload(number as usize, LARGE))
        .collect();
    assert!(recorded.payloads("/camera") == expected, "not what was sent");
    assert_eq!(touched.bytes_read.load(Ordering::SeqCst), COUNT * LARGE as u64);
    assert_eq!(touched.given_back.load(Ordering::SeqCst), COUNT);
}

#[test]
fn a_transport_that_fails_ends_alone() {
    let mut world = World::new();
    let beyond = MemoryNetwork::new();
    let here = world.publisher("/a", RELIABLE);
    let join = |network: &MemoryNetwork| -> Box<dyn Transport> {
        Box::new(MemoryTransport::new(network, node("recorder"), world.clock()))
    };
    let transports = vec![join(&beyond), join(&world.network)];
    let recording = world
        .record_over(transports)
        .unwrap_or_else(|error| panic!("{error}"));
    recording.wait_matched(&here);
    beyond.fail("its shared memory is garbage");
    for number in 0..10 {
        here.send(&payload(number, 10));
    }
    recording.wait_recorded(10);
    let later = world.publisher("/later", RELIABLE);
    recording.wait_matched(&later);
    let recorded = recording.stop();
    assert_eq!(recorded.payloads("/a").len(), 10);
    assert_eq!(recorded.lost(), 0);
    let failure = recorded.report.failure.as_deref().unwrap_or_default();
    assert!(failure.contains("its shared memory is garbage"), "{failure:?}");
}
