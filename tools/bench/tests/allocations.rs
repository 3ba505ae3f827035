//! Counts that no allocation is made for a message between the offer and the file, as `docs/data-path.md`
//! states, nor by the schedule and records of a middleware's measurement.

use holdall::{
    record::options::CacheOptions,
    writer::{CompressionOptions, SplitOptions},
};
use holdall_bench::{
    candidate::{
        ours::{DiskChoice, channel_infos},
        pipeline::{Pipeline, PipelineOptions},
        producers::OfferOptions,
    },
    middleware::worker::{Role, Shape, WorkerPlan, publish_into_memory},
    workload::{Content, Load, Plan, SizeMix},
};
use holdall_io::clock::{Clock, SystemClock};
use holdall_storage::StorageOptions;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use std::{
    alloc::System,
    sync::{Arc, Mutex},
};

/// Counts the allocations of all threads.
#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Only one test counts at a time.
static COUNTING: Mutex<()> = Mutex::new(());

/// Allocations, growing of existing ones included, while this many messages are recorded.
fn allocations(message_bytes: usize, messages: u64, topics: u32) -> u64 {
    let load = Load {
        mix: SizeMix::single(message_bytes),
        content: Content::Entropy(8.0),
        total_bytes: messages * message_bytes as u64,
        producers: 1,
        topics,
        rate_hz: None,
        seed: 1,
    };
    let plan = Plan::new(load).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let options = PipelineOptions {
        storage_id: "mcap".to_owned(),
        storage: StorageOptions::default(),
        cache: CacheOptions::default(),
        split: SplitOptions::default(),
        compression: CompressionOptions::default(),
        seal: None,
        meter: None,
        disk: DiskChoice::Discard,
        offer: OfferOptions::default(),
        max_loss_window: None,
    };
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let pipeline = Pipeline::new(
        &channel_infos(plan.topics()),
        &directory.path().join("bag"),
        &options,
        Arc::clone(&clock),
    )
    .unwrap();
    let region = Region::new(ALLOCATOR);
    let recorded = pipeline.run(&plan, clock.as_ref()).unwrap();
    let change = region.change();
    assert_eq!((recorded.stored, recorded.lost), (messages, 0));
    (change.allocations + change.reallocations) as u64
}

/// Allocations of each message beyond the first `messages`, so that a recording's one-time allocations do not
/// count.
fn allocations_per_message(message_bytes: usize, messages: u64, topics: u32) -> f64 {
    let _alone = COUNTING.lock().unwrap();
    let few = allocations(message_bytes, messages, topics);
    let many = allocations(message_bytes, 3 * messages, topics);
    many.saturating_sub(few) as f64 / (2 * messages) as f64
}

#[test]
fn small_messages_are_recorded_without_an_allocation() {
    // Segments of the cache and the chunks' index are the rest: one allocation for thousands of messages.
    let per_message = allocations_per_message(100, 200_000, 10);
    assert!(
        per_message < 0.02,
        "{per_message} allocations for each message of 100 bytes"
    );
    let per_message = allocations_per_message(10 << 10, 20_000, 10);
    assert!(
        per_message < 0.2,
        "{per_message} allocations for each message of 10 KiB"
    );
}

#[test]
fn a_loan_costs_its_own_box_and_little_else() {
    // One is the loan itself, which a transport makes; the rest is for a batch of loans.
    let per_message = allocations_per_message(1 << 20, 300, 1);
    assert!(
        (1.0..3.0).contains(&per_message),
        "{per_message} allocations for each message of 1 MiB"
    );
}

/// Allocations while this many messages are published into memory and all received.
fn allocations_of_the_null_middleware(count: u64) -> u64 {
    let plan = WorkerPlan {
        role: Role::Both,
        transport: None,
        udp: None,
        tcp: None,
        topic: "/null".to_owned(),
        others: None,
        shape: Shape::Bytes,
        bytes: 64 << 10,
        rate_hz: 5000.0,
        count,
        is_reliable: true,
        depth: 1,
        records: "not-written".into(),
    };
    let region = Region::new(ALLOCATOR);
    let (sent, received) = publish_into_memory(&plan, SystemClock.monotonic());
    let change = region.change();
    // Messages that are due at the end of the plan are not sent where a busy machine wakes this thread too late.
    assert!(sent.len() as u64 * 4 > count, "{} of {count} sent", sent.len());
    let numbers: Vec<u64> = received.iter().map(|received| received.number).collect();
    assert_eq!(numbers, (0..sent.len() as u64).collect::<Vec<_>>());
    (change.allocations + change.reallocations) as u64
}

#[test]
fn a_middleware_is_measured_without_an_allocation_per_message() {
    let _alone = COUNTING.lock().unwrap();
    let (few, many) = (
        allocations_of_the_null_middleware(100),
        allocations_of_the_null_middleware(2000),
    );
    // The threads of the tests also allocate a few times.
    assert!(
        many < few + 50,
        "{few} allocations for 100 and {many} for 2000 messages"
    );
}
