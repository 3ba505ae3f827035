//! Producer threads: offer the messages of a plan to sinks, paced or as fast as possible, and measure each
//! offer.

use crate::{
    error::BenchResult,
    measure::{Latencies, side_by_side},
    workload::{MessagePlan, Plan, Schedule},
};
use holdall::internals::SharedCache;
use holdall_io::{
    clock::{Clock, wake_this_thread_exactly},
    process::thread_cpu_time,
};
use holdall_model::{
    message::{MessageHeader, Payload},
    time::Timestamp,
    topic::Gid,
};
use holdall_transport::Sink;
use std::{sync::Arc, time::Duration};

/// When small messages are offered as fast as possible, only one in this many is timed: reading the clock
/// twice would be a good part of the measured time.
const SMALL_TIMED_EVERY: u64 = 16;

/// Messages below this are small.
const SMALL_BYTES: usize = 4096;

/// How long a producer sleeps while it has no room: a disk of 4 GB/s writes a tenth of the waiting bytes in
/// that time, and a shorter period takes processor time from the measured code.
const ROOM_POLL: Duration = Duration::from_micros(500);

/// Producers that wait for room fill this part of the cache, …
const ROOM_SHARE: usize = 8;

/// … and never more than this: the amount that a disk of 4 GB/s writes in 5 ms, the longest time between
/// two polls of the drain, so that the drain never waits for producers; and small enough for the
/// processor's last cache, like the data of a recorder that keeps up.
const ROOM_BYTES_MAX: usize = 20 << 20;

/// This number of large messages may wait, or the drain would idle while the next one is accepted; …
const ROOM_MESSAGES_MIN: usize = 4;

/// … in this part of the cache, so that all producers that saw room at the same time find it.
const ROOM_SHARE_MAX: usize = 4;

/// Upper bound of a message's size in the cache in addition to its payload.
const OVERHEAD_BYTES: usize = 64;

/// How messages are offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OfferOptions {
    /// Wait for room in the cache before each offer, so that nothing is dropped and the throughput is
    /// measured.
    pub lossless: bool,
    /// Payloads of at least this many bytes are offered as loans, as transports do.
    pub loan_bytes_min: usize,
    /// Loans consist of slices of this many bytes, like DDS fragments.
    pub fragment_bytes: usize,
}

impl Default for OfferOptions {
    fn default() -> Self {
        Self {
            lossless: true,
            loan_bytes_min: 64 << 10,
            fragment_bytes: usize::MAX,
        }
    }
}

/// The producers' counts of one run.
#[derive(Clone, Debug, Default)]
pub struct Produced {
    /// Messages offered.
    pub offered: u64,
    /// How long each timed offer took.
    pub offers: Latencies,
    /// How much later than planned each message of a paced load was offered.
    pub lateness: Latencies,
    /// Processor time of the producers, offers included.
    pub cpu: Duration,
}

impl Produced {
    /// Adds the offers of another thread.
    pub(super) fn merge(&mut self, one: &Self) {
        self.offered += one.offered;
        self.offers.merge(&one.offers);
        self.lateness.merge(&one.lateness);
        self.cpu += one.cpu;
    }
}

/// Keeps a producer from offering more than the cache has room for.
struct Room<'a> {
    cache: &'a SharedCache,
    clock: &'a dyn Clock,
    /// The cache may be filled up to this.
    held_bytes_max: usize,
    /// Bytes allowed until the next check of the cache.
    step_bytes: usize,
    left_bytes: usize,
}

impl<'a> Room<'a> {
    fn new(cache: &'a SharedCache, clock: &'a dyn Clock, producers: u32) -> Self {
        let held_bytes_max = (cache.bytes_max() / ROOM_SHARE).min(ROOM_BYTES_MAX);
        Self {
            cache,
            clock,
            held_bytes_max,
            step_bytes: held_bytes_max / 4 / producers.max(1) as usize,
            left_bytes: 0,
        }
    }

    /// Returns when a message of `payload_bytes` has room.
    #[inline]
    fn wait_for(&mut self, payload_bytes: usize) {
        let bytes = payload_bytes + OVERHEAD_BYTES;
        match self.left_bytes.checked_sub(bytes) {
            Some(left) => self.left_bytes = left,
            None => self.check(bytes),
        }
    }

    #[cold]
    fn check(&mut self, bytes: usize) {
        let wanted = self.step_bytes.max(bytes);
        loop {
            // A message that is too large for the rest of the room is accepted when it is alone.
            let held = self.cache.held_bytes();
            let for_large = (bytes * ROOM_MESSAGES_MIN).min(self.cache.bytes_max() / ROOM_SHARE_MAX);
            if held + wanted <= self.held_bytes_max.max(for_large) || held == 0 {
                self.left_bytes = wanted - bytes;
                return;
            }
            self.clock.sleep_until(self.clock.monotonic() + ROOM_POLL);
        }
    }
}

/// Offers everything in `plan`, one thread for each producer; `sinks` are by topic.
///
/// # Errors
/// When a thread cannot be started.
pub fn produce(
    plan: &Plan,
    sinks: &[Arc<dyn Sink>],
    cache: &SharedCache,
    clock: &dyn Clock,
    options: OfferOptions,
) -> BenchResult<Produced> {
    // Late enough that every thread is ready.
    let start = clock.monotonic() + Duration::from_millis(5);
    let producers = plan.load().producers;
    let run = |producer| {
        let one = Producer {
            plan,
            producer,
            sinks,
            clock,
            options,
            room: options.lossless.then(|| Room::new(cache, clock, producers)),
        };
        one.run(start)
    };
    let mut all = Produced::default();
    for one in side_by_side("producer", producers, run)? {
        all.merge(&one);
    }
    Ok(all)
}

struct Producer<'a> {
    plan: &'a Plan,
    producer: u32,
    sinks: &'a [Arc<dyn Sink>],
    clock: &'a dyn Clock,
    options: OfferOptions,
    room: Option<Room<'a>>,
}

impl Producer<'_> {
    fn run(mut self, start: Duration) -> Produced {
        wake_this_thread_exactly();
        let load = self.plan.load();
        let schedule = load
            .rate_hz
            .and_then(|rate| Schedule::new(start, rate, self.producer, load.producers));
        let small = load.mix.mean_bytes() < SMALL_BYTES as f64;
        let timed_every = if small && schedule.is_none() {
            SMALL_TIMED_EVERY
        } else {
            1
        };
        let mut produced = Produced::default();
        let mut stamp = self.clock.now();
        for message in self.plan.stream(self.producer) {
            let timed = produced.offered.is_multiple_of(timed_every);
            if let Some(schedule) = &schedule {
                let due = schedule.due(produced.offered);
                self.clock.sleep_until(due);
                produced
                    .lateness
                    .record(self.clock.monotonic().saturating_sub(due));
            }
            if let Some(room) = &mut self.room {
                room.wait_for(message.payload.len());
            }
            // Between two readings of the clock stamps increase by a nanosecond, so that they stay in order.
            stamp = if timed {
                self.clock.now().max(stamp)
            } else {
                stamp.saturating_add(Duration::from_nanos(1))
            };
            self.offer(&message, stamp, timed.then_some(&mut produced.offers));
            produced.offered += 1;
        }
        produced.cpu = thread_cpu_time().total();
        produced
    }

    #[inline]
    fn offer(&self, message: &MessagePlan, stamp: Timestamp, timed: Option<&mut Latencies>) {
        let header = MessageHeader {
            publisher: Some(gid(u64::from(message.topic))),
            sequence: Some(message.sequence),
            publish_time: Some(stamp),
            log_time: stamp,
        };
        let payload = if message.payload.len() >= self.options.loan_bytes_min {
            Payload::Loaned(self.plan.loan(message, self.options.fragment_bytes))
        } else {
            Payload::Borrowed(self.plan.payload(message))
        };
        let sink = &self.sinks[message.topic as usize];
        match timed {
            Some(offers) => {
                let before = self.clock.monotonic();
                sink.offer(header, payload);
                offers.record(self.clock.monotonic().saturating_sub(before));
            }
            None => sink.offer(header, payload),
        }
    }
}

/// Each publisher has a different identifier.
pub(crate) fn gid(publisher: u64) -> Gid {
    let mut gid = [0xBE; 16];
    gid[..8].copy_from_slice(&publisher.to_le_bytes());
    Gid(gid)
}
