//! Shared parts of the tests: a sink that keeps everything, waiting for conditions, short ways to subscribe and
//! publish.
#![allow(dead_code, reason = "each test uses a part of it")]

use holdall_io::clock::{Clock, SystemClock};
use holdall_model::{
    message::{Loan, MessageHeader, Payload},
    qos::{Durability, History, QosProfile, Reliability},
    topic::Gid,
};
use holdall_transport::{
    EndpointInfo, GraphEvent, PublishRequest, Publisher, Sink, SubscribeRequest, Subscription, Transport,
};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

/// How long a test waits for something that should happen; generous, because it only matters when it does not.
pub const DEADLINE: Duration = Duration::from_secs(60);

pub const STRING: &str = "std_msgs/msg/String";
pub const IMAGE: &str = "sensor_msgs/msg/Image";

/// A topic name that other processes, should they share the domain, do not use.
pub fn topic(name: &str) -> String {
    format!("/{name}_{}", std::process::id())
}

/// Checks until `done`, or until the deadline; returns whether it became true.
pub fn wait_until(mut done: impl FnMut() -> bool) -> bool {
    let clock = SystemClock;
    let end = clock.monotonic() + DEADLINE;
    while clock.monotonic() < end {
        if done() {
            return true;
        }
        std::thread::park_timeout(Duration::from_millis(2));
    }
    done()
}

pub fn reliable(depth: u64) -> QosProfile {
    QosProfile {
        history: History::KeepLast,
        depth,
        reliability: Reliability::Reliable,
        durability: Durability::Volatile,
        ..QosProfile::default()
    }
}

pub fn latched(depth: u64) -> QosProfile {
    QosProfile {
        durability: Durability::TransientLocal,
        ..reliable(depth)
    }
}

/// A message as it arrived.
pub struct Kept {
    pub header: MessageHeader,
    pub bytes: Vec<u8>,
    pub slices: usize,
    pub loan: Option<Box<dyn Loan>>,
}

/// Keeps everything; loans are held until the sink is dropped.
#[derive(Default)]
pub struct Keeper {
    pub kept: Mutex<Vec<Kept>>,
}

impl Keeper {
    pub fn len(&self) -> usize {
        self.kept.lock().unwrap().len()
    }

    /// Sequence numbers of each publisher in the order of arrival.
    pub fn sequences(&self) -> BTreeMap<Gid, Vec<u64>> {
        let mut sequences = BTreeMap::<_, Vec<u64>>::new();
        for kept in self.kept.lock().unwrap().iter() {
            let (gid, sequence) = kept
                .header
                .publisher
                .zip(kept.header.sequence)
                .expect("DDS tells both");
            sequences.entry(gid).or_default().push(sequence);
        }
        sequences
    }

    pub fn payloads(&self) -> Vec<Vec<u8>> {
        self.kept
            .lock()
            .unwrap()
            .iter()
            .map(|kept| kept.bytes.clone())
            .collect()
    }
}

impl Sink for Keeper {
    fn offer(&self, header: MessageHeader, payload: Payload<'_>) {
        let mut kept = Kept {
            header,
            bytes: Vec::new(),
            slices: 0,
            loan: None,
        };
        match payload {
            Payload::Borrowed(bytes) => kept.bytes.extend_from_slice(bytes),
            Payload::Loaned(loan) => {
                loan.for_each_slice(&mut |slice| {
                    kept.bytes.extend_from_slice(slice);
                    kept.slices += 1;
                });
                assert_eq!(kept.bytes.len(), loan.len());
                kept.loan = Some(loan);
            }
        }
        self.kept.lock().unwrap().push(kept);
    }
}

/// Waits until `count` publishers of the topic are known, and returns them.
pub fn discover(transport: &mut dyn Transport, topic: &str, count: usize) -> Vec<EndpointInfo> {
    let mut found = BTreeMap::new();
    wait_until(|| {
        follow(transport, topic, &mut found);
        found.len() >= count
    });
    assert_eq!(found.len(), count, "publishers of {topic}");
    found.into_values().collect()
}

/// Applies changes of the graph to the publishers of one topic.
pub fn follow(transport: &mut dyn Transport, topic: &str, found: &mut BTreeMap<Gid, EndpointInfo>) {
    let mut events = Vec::new();
    transport.poll_graph(&mut events).unwrap();
    for event in events {
        match event {
            GraphEvent::Publisher(info) if info.topic == topic => {
                found.insert(info.gid, info);
            }
            GraphEvent::PublisherGone(gid)
            | GraphEvent::PublisherLeft { gid, .. }
            | GraphEvent::PublisherSilent { gid, .. } => {
                found.remove(&gid);
            }
            _ => {}
        }
    }
}

pub fn subscribe(
    transport: &mut dyn Transport,
    topic: &str,
    type_name: &str,
    qos: QosProfile,
) -> (Arc<Keeper>, Box<dyn Subscription>) {
    let keeper = Arc::new(Keeper::default());
    let request = SubscribeRequest {
        topic: topic.to_owned(),
        type_name: type_name.to_owned(),
        qos,
    };
    let subscription = transport
        .subscribe(&request, Arc::clone(&keeper) as Arc<dyn Sink>)
        .unwrap();
    (keeper, subscription)
}

pub fn publish(
    transport: &mut dyn Transport,
    topic: &str,
    type_name: &str,
    qos: QosProfile,
) -> Box<dyn Publisher> {
    let request = PublishRequest {
        topic: topic.to_owned(),
        type_name: type_name.to_owned(),
        type_hash: Some(format!("RIHS01_{}", "ab".repeat(32))),
        qos,
        ..PublishRequest::default()
    };
    transport.publish(&request).unwrap()
}

/// A `std_msgs/msg/String` as CDR.
pub fn string(text: &str) -> Vec<u8> {
    let mut cdr = vec![0, 1, 0, 0];
    cdr.extend_from_slice(&u32::try_from(text.len() + 1).unwrap().to_le_bytes());
    cdr.extend_from_slice(text.as_bytes());
    cdr.push(0);
    cdr
}

/// A payload that differs in every place and between numbers.
pub fn patterned(number: usize, len: usize) -> Vec<u8> {
    let mut payload = vec![0, 1, 0, 0];
    payload.extend((4..len).map(|at| (at.wrapping_mul(31) ^ (at >> 8) ^ number) as u8));
    payload
}
