//! Tests of the cache: bounds, order and accounts under every policy.

use super::*;
use crate::cache::{CacheOptions, CachePolicy};
use holdall_model::loss::ledger::PublisherIndex;
use holdall_model::message::{Loan, Payload, PayloadRef};
use proptest::prelude::*;
use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

/// A loan that keeps account of pinned memory in the test's transport.
struct CountedLoan {
    bytes: Vec<u8>,
    pinned: usize,
    account: Arc<AtomicUsize>,
    loans: Arc<AtomicUsize>,
}

impl CountedLoan {
    fn new(bytes: Vec<u8>, pinned: usize, account: &Arc<AtomicUsize>, loans: &Arc<AtomicUsize>) -> Box<Self> {
        account.fetch_add(pinned, Ordering::SeqCst);
        loans.fetch_add(1, Ordering::SeqCst);
        Box::new(Self {
            bytes,
            pinned,
            account: Arc::clone(account),
            loans: Arc::clone(loans),
        })
    }
}

impl Drop for CountedLoan {
    fn drop(&mut self) {
        self.account.fetch_sub(self.pinned, Ordering::SeqCst);
        self.loans.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Loan for CountedLoan {
    fn len(&self) -> usize {
        self.bytes.len()
    }
    fn pinned_bytes(&self) -> usize {
        self.pinned
    }
    fn for_each_slice(&self, visit: &mut dyn FnMut(&[u8])) {
        let (head, tail) = self.bytes.split_at(self.bytes.len() / 2);
        visit(head);
        visit(tail);
    }
}

fn entry(topic: u32, sequence: u64, at_ms: i64) -> CacheEntry {
    CacheEntry {
        log_time: Timestamp::from_nanos(at_ms * 1_000_000),
        publish_time: None,
        sequence: Some(sequence),
        topic: TopicId(topic),
        publisher: PublisherIndex(0),
    }
}

/// Bytes that differ from those of every other message.
fn bytes_of(topic: u32, sequence: u64, len: usize) -> Vec<u8> {
    let seed = (u64::from(topic) << 32 | sequence)
        .wrapping_mul(0x9E37_79B9_7F4A_7C15)
        .to_le_bytes();
    seed.iter().copied().cycle().take(len).collect()
}

#[derive(Clone, Debug)]
enum Step {
    Copy {
        topic: u32,
        len: usize,
    },
    Loan {
        topic: u32,
        len: usize,
        extra_pinned: usize,
    },
    Take,
    GiveBackOldest,
    Dump,
    Advance {
        ms: i64,
    },
    Resize {
        bytes_max: usize,
    },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => (0..4u32, 0..3000usize).prop_map(|(topic, len)| Step::Copy { topic, len }),
        4 => (0..4u32, 0..40_000usize, 0..20_000usize)
            .prop_map(|(topic, len, extra_pinned)| Step::Loan { topic, len, extra_pinned }),
        2 => Just(Step::Take),
        2 => Just(Step::GiveBackOldest),
        1 => Just(Step::Dump),
        1 => (0..200i64).prop_map(|ms| Step::Advance { ms }),
        1 => (0..2_000_000usize).prop_map(|bytes_max| Step::Resize { bytes_max }),
    ];
    proptest::collection::vec(step, 1..400)
}

/// Drives a cache and checks the invariants after each step.
struct Bench {
    cache: SharedCache,
    bytes_max: usize,
    first_bytes_max: usize,
    /// After the last step, in bytes.
    memory: usize,
    account: Arc<AtomicUsize>,
    loans: Arc<AtomicUsize>,
    evicted: Arc<Mutex<Vec<(u32, u64)>>>,
    out: VecDeque<Segment>,
    next_sequence: BTreeMap<u32, u64>,
    stored: Vec<(u32, u64, usize)>,
    taken: Vec<(u32, u64, usize)>,
    now_ms: i64,
}

impl Bench {
    fn new(options: &CacheOptions) -> Self {
        let evicted = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&evicted);
        let count = move |stored: &Stored<'_>| {
            let entry = &stored.entry;
            log.lock().unwrap().push((entry.topic.0, entry.sequence.unwrap()));
        };
        let cache = SharedCache::new(options, Box::new(count));
        Self {
            memory: cache.memory_bytes(),
            cache,
            bytes_max: options.bytes_max.max(CACHE_BYTES_MIN),
            first_bytes_max: options.bytes_max.max(CACHE_BYTES_MIN),
            account: Arc::default(),
            loans: Arc::default(),
            evicted,
            out: VecDeque::new(),
            next_sequence: BTreeMap::new(),
            stored: Vec::new(),
            taken: Vec::new(),
            now_ms: 0,
        }
    }

    fn offer(&mut self, topic: u32, len: usize, loan_pinned: Option<usize>) -> Offered {
        let next = self.next_sequence.entry(topic).or_insert(0);
        *next += 1;
        let sequence = *next;
        let bytes = bytes_of(topic, sequence, len);
        let entry = entry(topic, sequence, self.now_ms);
        let offered = match loan_pinned {
            None => self.cache.offer(entry, Payload::Borrowed(&bytes)),
            Some(pinned) => self.cache.offer(
                entry,
                Payload::Loaned(CountedLoan::new(bytes, pinned, &self.account, &self.loans)),
            ),
        };
        if offered == Offered::Stored {
            self.stored.push((topic, sequence, len));
        }
        offered
    }

    fn take(&mut self) -> bool {
        let Some(segment) = self.cache.try_take() else {
            return false;
        };
        let mut place = Place::default();
        while let Some(Stored {
            entry, payload, next, ..
        }) = segment.message(place)
        {
            let mut bytes = Vec::new();
            payload.for_each_slice(|slice| bytes.extend_from_slice(slice));
            let (topic, sequence) = (entry.topic.0, entry.sequence.unwrap());
            assert_eq!(
                bytes,
                bytes_of(topic, sequence, payload.len()),
                "bytes of {topic}:{sequence}"
            );
            self.taken.push((topic, sequence, payload.len()));
            place = next;
        }
        self.out.push_back(segment);
        true
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Copy { topic, len } => {
                self.offer(topic, len, None);
            }
            Step::Loan {
                topic,
                len,
                extra_pinned,
            } => {
                self.offer(topic, len, Some(len + extra_pinned));
            }
            Step::Take => {
                self.take();
            }
            Step::GiveBackOldest => {
                if let Some(segment) = self.out.pop_front() {
                    self.cache.release(segment);
                }
            }
            Step::Dump => self.cache.dump(),
            Step::Advance { ms } => self.now_ms += ms,
            Step::Resize { bytes_max } => {
                self.cache.set_bytes_max(bytes_max);
                let limit = self.cache.bytes_max();
                let asked = bytes_max.max(CACHE_BYTES_MIN);
                assert!(
                    limit == asked || (asked..=self.first_bytes_max).contains(&limit),
                    "{limit} for {asked}"
                );
                self.bytes_max = limit;
            }
        }
        self.check_bound();
    }

    fn check_bound(&mut self) {
        let pinned = self.account.load(Ordering::SeqCst);
        let memory = self.cache.memory_bytes();
        let single = self.loans.load(Ordering::SeqCst) == 1;
        assert!(
            memory <= self.bytes_max.max(self.memory) || single,
            "{memory} held of {}, after {}",
            self.bytes_max,
            self.memory
        );
        self.memory = memory;
        assert!(pinned <= memory, "{pinned} pinned, {memory} accounted");
    }

    /// Takes the remaining messages and checks the accounts.
    fn finish(mut self) {
        self.cache.close();
        while self.take() || !self.out.is_empty() {
            if let Some(segment) = self.out.pop_front() {
                self.cache.release(segment);
            }
        }
        let evicted = self.evicted.lock().unwrap();
        let mut fate: Vec<(u32, u64)> = self.taken.iter().map(|&(topic, seq, _)| (topic, seq)).collect();
        fate.extend(evicted.iter());
        fate.sort_unstable();
        let mut stored: Vec<(u32, u64)> = self.stored.iter().map(|&(topic, seq, _)| (topic, seq)).collect();
        stored.sort_unstable();
        assert_eq!(fate, stored, "each stored message is taken once or evicted once");
        for topic in 0..4 {
            let order: Vec<u64> = self.taken.iter().filter(|t| t.0 == topic).map(|t| t.1).collect();
            assert!(order.is_sorted(), "order of topic {topic}: {order:?}");
        }
        assert_eq!(self.cache.held_bytes(), 0, "all accounts are empty at the end");
        assert_eq!(
            self.account.load(Ordering::SeqCst),
            0,
            "all loans were given back"
        );
    }
}

fn run(options: &CacheOptions, steps: &[Step]) {
    let mut bench = Bench::new(options);
    steps.iter().for_each(|step| bench.step(step));
    bench.finish();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn every_policy_keeps_its_bound_its_order_and_its_accounts(
        steps in steps(),
        policy in prop_oneof![Just(CachePolicy::DropNew), Just(CachePolicy::DropOld), Just(CachePolicy::Fair)],
        snapshot in any::<bool>(),
        duration_ms in proptest::option::of(1..500u64),
        bytes_max in 60_000..400_000usize,
    ) {
        let duration_max = duration_ms.map(Duration::from_millis);
        run(&CacheOptions { bytes_max, grows_to: None, duration_max, policy, snapshot }, &steps);
    }
}

fn options(policy: CachePolicy, bytes_max: usize) -> CacheOptions {
    CacheOptions {
        bytes_max,
        grows_to: None,
        duration_max: None,
        policy,
        snapshot: false,
    }
}

#[test]
fn drop_new_refuses_and_keeps_the_oldest() {
    let mut bench = Bench::new(&options(CachePolicy::DropNew, 100_000));
    let fates: Vec<Offered> = (0..200).map(|_| bench.offer(0, 1000, None)).collect();
    let stored = fates.iter().take_while(|fate| **fate == Offered::Stored).count();
    assert!(
        (60..100).contains(&stored),
        "{stored} of 1000 bytes in a cache of 100000"
    );
    assert!(fates[stored..].iter().all(|fate| *fate == Offered::Full));
    assert!(bench.take());
    assert_eq!(bench.taken[0].1, 1, "the oldest message is kept");
    bench.finish();
}

#[test]
fn drop_old_accepts_and_drops_the_oldest() {
    let mut bench = Bench::new(&options(CachePolicy::DropOld, 100_000));
    assert!((0..200).all(|_| bench.offer(0, 1000, None) == Offered::Stored));
    let evicted = bench.evicted.lock().unwrap().clone();
    assert!(evicted.len() > 100, "{} given up", evicted.len());
    assert!(
        evicted.iter().map(|e| e.1).eq(1..=evicted.len() as u64),
        "the oldest go first"
    );
    bench.finish();
}

#[test]
fn fair_keeps_a_slow_topic_whole_while_a_busy_one_overflows() {
    let slow_drops = |policy| {
        let mut bench = Bench::new(&options(policy, 1 << 20));
        let mut drops = 0;
        for round in 0..400 {
            // The busy topic sends more than the drain takes.
            for _ in 0..16 {
                bench.offer(0, 1000, None);
            }
            drops += usize::from(bench.offer(1, 1000, None) != Offered::Stored);
            if round % 4 == 0 && bench.take() {
                let segment = bench.out.pop_front().unwrap();
                bench.cache.release(segment);
            }
        }
        bench.finish();
        drops
    };
    assert_eq!(slow_drops(CachePolicy::Fair), 0);
    assert!(
        slow_drops(CachePolicy::DropNew) > 0,
        "otherwise this test shows nothing"
    );
}

#[test]
fn a_message_larger_than_the_cache_is_taken_alone() {
    let mut bench = Bench::new(&options(CachePolicy::Fair, 100_000));
    assert_eq!(bench.offer(0, 300_000, None), Offered::Stored);
    assert_eq!(bench.offer(0, 300_000, None), Offered::Full);
    assert!(bench.take());
    let segment = bench.out.pop_front().unwrap();
    bench.cache.release(segment);
    assert_eq!(bench.offer(0, 300_000, None), Offered::Stored);
    bench.finish();
}

#[test]
fn the_ring_is_written_only_when_asked() {
    let options = CacheOptions {
        snapshot: true,
        ..options(CachePolicy::Fair, 100_000)
    };
    let mut bench = Bench::new(&options);
    assert!((0..300).all(|_| bench.offer(0, 1000, None) == Offered::Stored));
    assert!(!bench.take(), "nothing is drained before a snapshot");
    bench.cache.dump();
    while bench.take() {
        let segment = bench.out.pop_front().unwrap();
        bench.cache.release(segment);
    }
    assert_eq!(
        bench.taken.last().unwrap().1,
        300,
        "the newest message is in the snapshot"
    );
    assert!(bench.taken.len() > 50);
    bench.offer(0, 1000, None);
    bench.finish();
}

#[test]
fn messages_older_than_the_limit_are_dropped() {
    let mut bench = Bench::new(&CacheOptions {
        duration_max: Some(Duration::from_millis(100)),
        ..options(CachePolicy::Fair, 1 << 20)
    });
    for _ in 0..50 {
        bench.offer(0, 10, None);
        bench.now_ms += 10;
    }
    let evicted = bench.evicted.lock().unwrap().len();
    assert!(
        (30..42).contains(&evicted),
        "{evicted} of 50 are older than 100 ms"
    );
    bench.finish();
}

#[test]
fn what_a_backlog_has_needed_is_freed_after_it() {
    let options = options(CachePolicy::DropNew, 64 << 20);
    let cache = SharedCache::new(&options, Box::new(|_| {}));
    let first = cache.memory_bytes();
    for sequence in 0..30_000 {
        let payload = bytes_of(1, sequence, 1_000);
        assert_eq!(
            cache.offer(entry(1, sequence, 0), Payload::Borrowed(&payload)),
            Offered::Stored
        );
    }
    assert!(cache.memory_bytes() > 30 << 20, "{}", cache.memory_bytes());
    while let Some(mut segment) = cache.try_take() {
        segment.clear();
        cache.release(segment);
    }
    assert!(cache.memory_bytes() > 30 << 20, "kept for the next burst");
    cache.free_idle();
    assert_eq!(cache.memory_bytes(), first);
    let payload = bytes_of(1, 30_000, 1_000);
    assert_eq!(
        cache.offer(entry(1, 30_000, 0), Payload::Borrowed(&payload)),
        Offered::Stored
    );
}

#[test]
fn a_closed_cache_refuses() {
    let mut bench = Bench::new(&options(CachePolicy::Fair, 100_000));
    assert_eq!(bench.offer(0, 10, None), Offered::Stored);
    bench.cache.close();
    assert_eq!(bench.offer(0, 10, None), Offered::Closed);
    bench.finish();
}

#[test]
fn a_waiting_drain_is_woken_by_the_first_message() {
    let cache = Arc::new(SharedCache::new(
        &options(CachePolicy::Fair, 16 << 20),
        Box::new(|_| {}),
    ));
    let drain = {
        let cache = Arc::clone(&cache);
        std::thread::spawn(move || {
            let mut taken = 0;
            loop {
                match cache.wait(Duration::from_millis(1), Duration::from_secs(60)) {
                    Waited::Segment(segment) => {
                        taken += segment.len();
                        cache.release(segment);
                    }
                    Waited::Idle => {}
                    Waited::Finished => return taken,
                }
            }
        })
    };
    for sequence in 0..10_000 {
        let offered = cache.offer(entry(0, sequence, 0), Payload::Borrowed(&[1, 2, 3]));
        assert_eq!(offered, Offered::Stored);
    }
    cache.close();
    assert_eq!(drain.join().unwrap(), 10_000);
}

#[test]
fn payloads_are_seen_whole_whatever_their_place() {
    let mut bench = Bench::new(&options(CachePolicy::Fair, 4 << 20));
    for len in [0, 1, 100, 65_536, 65_537, 1_000_000] {
        assert_eq!(bench.offer(0, len, None), Offered::Stored);
    }
    while bench.take() {}
    let lens: Vec<usize> = bench.taken.iter().map(|taken| taken.2).collect();
    assert_eq!(lens, [0, 1, 100, 65_536, 65_537, 1_000_000]);
    let first = bench.out[0].message(Place::default()).unwrap();
    assert!(matches!(first.payload, PayloadRef::Bytes(_)));
    bench.finish();
}
