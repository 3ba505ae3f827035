//! Compares cache policies and shares in simulated overload: which topics lose how much. Deterministic; nothing is timed.
//!
//! `cargo run --release -p holdall --example cache_policy`
#![allow(clippy::print_stdout)]

use holdall::{
    internals::{Admission, CacheEntry, Offered, Place, Segment, SharedCache, Stored},
    record::options::{CacheOptions, CachePolicy},
};
use holdall_model::{
    loss::ledger::PublisherIndex,
    message::{Loan, Payload},
    time::Timestamp,
    topic::TopicId,
};
use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
};

const CACHE_BYTES: usize = 100 << 20;
const MILLISECONDS: u64 = 5_000;

/// A kind of topic.
struct Kind {
    name: &'static str,
    topics: u32,
    bytes: usize,
    hz: u64,
}

/// Topics that run side by side: about 1.5 GB/s.
type Load = [Kind; 3];

const fn kind(name: &'static str, topics: u32, bytes: usize, hz: u64) -> Kind {
    Kind {
        name,
        topics,
        bytes,
        hz,
    }
}

const CAMERAS: Load = [
    kind("8 cameras 6.2 MB 30 Hz", 8, 6_220_800, 30),
    kind("20 scans 10 KiB 100 Hz", 20, 10 * 1024, 100),
    kind("200 small 100 B 100 Hz", 200, 100, 100),
];

const FLOOD: Load = [
    kind("2 floods 8 KiB 90 kHz", 2, 8 * 1024, 90_000),
    kind("4 cameras 300 KB 30 Hz", 4, 300_000, 30),
    kind("200 small 100 B 100 Hz", 200, 100, 100),
];

/// Bytes that are not there, for accounts only.
struct Phantom(usize);

impl Loan for Phantom {
    fn len(&self) -> usize {
        self.0
    }
    fn pinned_bytes(&self) -> usize {
        self.0
    }
    fn for_each_slice(&self, _: &mut dyn FnMut(&[u8])) {}
}

/// Bytes that the disk writes in one millisecond.
type DiskRate = fn(u64) -> u64;

/// A disk with half the speed of the arriving messages (1.51 GB/s).
fn half_speed(_: u64) -> u64 {
    760_000
}

/// A disk that is fast, and stalls for 60 ms every second.
fn stalling(millisecond: u64) -> u64 {
    if millisecond % 1000 < 60 { 0 } else { 3_000_000 }
}

/// The same with 100 ms, more than the cache can bridge.
fn stalling_long(millisecond: u64) -> u64 {
    if millisecond % 1000 < 100 { 0 } else { 3_000_000 }
}

struct Run {
    sent: [u64; 3],
    lost: [u64; 3],
}

/// The kinds of all topics in the order of their numbers.
fn kinds_of(load: &Load) -> Vec<usize> {
    (0..3)
        .flat_map(|index| std::iter::repeat_n(index, load[index].topics as usize))
        .collect()
}

fn run(load: &Load, policy: CachePolicy, share: usize, disk: DiskRate) -> Run {
    let kinds = kinds_of(load);
    let options = CacheOptions {
        bytes_max: CACHE_BYTES,
        policy,
        ..CacheOptions::default()
    };
    let evicted = Arc::new(Mutex::new([0u64; 3]));
    let count = Arc::clone(&evicted);
    let admission = Admission::new(policy, CACHE_BYTES).with_share_of_free(share);
    let cache = SharedCache::with_admission(
        &options,
        admission,
        Box::new(move |stored| count.lock().expect("one thread")[kinds[stored.entry.topic.0 as usize]] += 1),
    );
    let mut run = Run {
        sent: [0; 3],
        lost: [0; 3],
    };
    let (mut budget, mut writing) = (0i64, VecDeque::<(Segment, Place)>::new());
    for millisecond in 0..MILLISECONDS {
        let mut topic = 0;
        for (index, kind) in load.iter().enumerate() {
            for number in 0..kind.topics {
                let phase = u64::from(number) * 7;
                let due = |at: u64| (at + phase) * kind.hz / 1000;
                for _ in due(millisecond)..due(millisecond + 1) {
                    run.sent[index] += 1;
                    let lost = offer(&cache, TopicId(topic), kind.bytes, millisecond);
                    run.lost[index] += u64::from(lost);
                }
                topic += 1;
            }
        }
        budget = (budget + disk(millisecond) as i64).min(3_000_000);
        drain(&cache, &mut budget, &mut writing);
    }
    for (lost, evicted) in run.lost.iter_mut().zip(*evicted.lock().expect("one thread")) {
        *lost += evicted;
    }
    run
}

/// Offers a message; true if it is refused.
fn offer(cache: &SharedCache, topic: TopicId, bytes: usize, millisecond: u64) -> bool {
    let entry = CacheEntry {
        log_time: Timestamp::from_nanos(millisecond as i64 * 1_000_000),
        publish_time: None,
        sequence: None,
        topic,
        publisher: PublisherIndex(0),
    };
    let small = [0u8; 10 * 1024];
    let payload = match small.get(..bytes) {
        Some(payload) => Payload::Borrowed(payload),
        None => Payload::Loaned(Box::new(Phantom(bytes))),
    };
    cache.offer(entry, payload) != Offered::Stored
}

/// Writes as many messages as the budget has bytes.
fn drain(cache: &SharedCache, budget: &mut i64, writing: &mut VecDeque<(Segment, Place)>) {
    while *budget > 0 {
        if writing.is_empty() {
            let Some(segment) = cache.try_take() else { return };
            writing.push_back((segment, Place::default()));
        }
        let Some((segment, next)) = writing.front_mut() else {
            return;
        };
        match segment.message(*next) {
            Some(Stored {
                entry,
                payload,
                next: behind,
                ..
            }) => {
                *budget -= payload.len() as i64 + 40;
                if let Some((_, pinned)) = segment.take_loan(*next) {
                    cache.loan_returned(entry.topic, pinned);
                }
                *next = behind;
            }
            None => {
                if let Some((segment, _)) = writing.pop_front() {
                    cache.release(segment);
                }
            }
        }
    }
}

fn main() {
    let disks: [(&str, DiskRate); 3] = [
        ("disk takes half of what arrives", half_speed),
        ("disk stalls for 60 ms a second", stalling),
        ("disk stalls for 100 ms a second", stalling_long),
    ];
    for (load, (name, disk)) in [CAMERAS, FLOOD]
        .iter()
        .flat_map(|load| disks.map(|disk| (load, disk)))
    {
        println!(
            "\n{name}: lost of {}",
            load.each_ref().map(|kind| kind.name).join(" · ")
        );
        let shares = [1, 2, 4, 8, 16, 64].map(|share| (CachePolicy::Fair, share));
        for (policy, share) in [(CachePolicy::DropNew, 1), (CachePolicy::DropOld, 1)]
            .into_iter()
            .chain(shares)
        {
            let run = run(load, policy, share, disk);
            let percent = |(lost, sent): (&u64, u64)| format!("{:6.2} %", *lost as f64 * 100.0 / sent as f64);
            let lost: Vec<String> = run.lost.iter().zip(run.sent).map(percent).collect();
            println!("  {policy:?} {share:3}: {}", lost.join("  "));
        }
    }
}
