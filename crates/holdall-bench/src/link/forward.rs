//! The thread that carries packets from one end to the other, each when the model says.

use super::{
    counters::{DirectionCounters, Watch},
    model::{Fate, LinkModel},
    spec::LinkSpec,
};
use hdrhistogram::Histogram;
use holdall_io::{
    clock::{Clock, SystemClock},
    link::{self, LinkEnd},
    process::thread_cpu_time,
};
use std::{
    cmp::{Ordering, Reverse},
    collections::BinaryHeap,
    io,
    sync::atomic::{AtomicBool, Ordering as AtomicOrdering},
    time::Duration,
};

/// Packets read from one end before the other one has its turn.
const BATCH: usize = 64;
/// Packets delivered before the ends are read again.
const DELIVERED: usize = 64;
/// Longest sleep: the end of the link is noticed after this.
const SLEEP_MAX: Duration = Duration::from_millis(10);

/// A packet on its way.
struct Packet {
    at: Duration,
    number: u64,
    bytes: Vec<u8>,
}

impl PartialEq for Packet {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Packet {}

impl PartialOrd for Packet {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Packet {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

/// One direction.
struct Direction {
    model: LinkModel,
    watch: Watch,
    counters: DirectionCounters,
    under_way: BinaryHeap<Reverse<Packet>>,
}

/// What the forwarding thread found.
#[derive(Debug)]
pub struct Forwarded {
    /// From the first end to the second, and back.
    pub directions: [DirectionCounters; 2],
    /// How much later than planned packets were delivered, in nanoseconds.
    pub lateness: Histogram<u64>,
    /// Whether the thread ran before all ordinary ones.
    pub is_punctual: bool,
    /// From the start to the end.
    pub elapsed: Duration,
    /// Processor time of the thread.
    pub cpu: Duration,
}

impl Direction {
    fn new(spec: &LinkSpec, number: u64) -> Self {
        Self {
            model: LinkModel::new(spec, number),
            watch: Watch::default(),
            counters: DirectionCounters::default(),
            under_way: BinaryHeap::new(),
        }
    }

    /// A packet that enters, with its number; it is dropped, or under way from now on. Returns the memory of a dropped one.
    fn enter(&mut self, now: Duration, number: u64, bytes: Vec<u8>) -> Option<Vec<u8>> {
        self.watch.note(&bytes, &mut self.counters);
        match self.model.fate(now, bytes.len()) {
            Fate::Drop(reason) => {
                self.counters.dropped.add(reason, bytes.len());
                Some(bytes)
            }
            Fate::Deliver(at) => {
                self.under_way.push(Reverse(Packet { at, number, bytes }));
                None
            }
        }
    }

    /// The next packet whose time has come.
    fn due(&mut self, now: Duration) -> Option<Packet> {
        self.under_way.peek().filter(|Reverse(packet)| packet.at <= now)?;
        self.under_way.pop().map(|Reverse(packet)| packet)
    }
}

/// Both directions while packets are carried.
struct Forwarder<'a> {
    ends: &'a [LinkEnd; 2],
    mtu: usize,
    start: Duration,
    directions: [Direction; 2],
    lateness: Histogram<u64>,
    /// Memory of packets that have arrived or were dropped.
    spare: Vec<Vec<u8>>,
    next_number: u64,
}

impl Forwarder<'_> {
    fn now(&self) -> Duration {
        SystemClock.monotonic().saturating_sub(self.start)
    }

    /// Reads what the end has sent, up to a batch. True when there may be more.
    fn read(&mut self, from: usize) -> io::Result<bool> {
        for _ in 0..BATCH {
            let mut bytes = self.spare.pop().unwrap_or_default();
            bytes.resize(self.mtu, 0);
            let Some(length) = self.ends[from].read(&mut bytes)? else {
                self.spare.push(bytes);
                return Ok(false);
            };
            bytes.truncate(length);
            self.next_number += 1;
            let dropped = self.directions[from].enter(self.now(), self.next_number, bytes);
            self.spare.extend(dropped);
        }
        Ok(true)
    }

    /// Delivers what is due from this end to the other one.
    fn deliver(&mut self, from: usize) {
        for _ in 0..DELIVERED {
            let now = self.now();
            let Some(packet) = self.directions[from].due(now) else {
                return;
            };
            let late = (now - packet.at).as_nanos();
            self.lateness
                .saturating_record(u64::try_from(late).unwrap_or(u64::MAX));
            let counters = &mut self.directions[from].counters;
            if self.ends[1 - from].write(&packet.bytes) {
                counters.arrived.add(packet.bytes.len());
            } else {
                counters.dropped.refused.add(packet.bytes.len());
            }
            self.spare.push(packet.bytes);
        }
    }

    /// Waits for the first of a packet to read and the time of the next that is due, for whose last part, `spin`, it does not sleep: a sleeping
    /// thread wakes up late. Returns which ends have a packet.
    fn wait(&self, next: Option<Duration>, spin: Duration) -> [bool; 2] {
        let now = self.now();
        let sleep = next.map_or(SLEEP_MAX, |at| at.saturating_sub(now).saturating_sub(spin));
        link::wait_readable(self.ends, sleep.min(SLEEP_MAX))
    }

    /// When the next packet is due; `None` while none is under way.
    fn next_due(&self) -> Option<Duration> {
        let nexts = self
            .directions
            .iter()
            .filter_map(|direction| direction.under_way.peek());
        nexts.map(|Reverse(packet)| packet.at).min()
    }
}

/// Carries packets until `has_ended`, and then those that are still on their way, as long as `longest` of the specification. Meant for a
/// thread of its own: it asks for a priority.
///
/// # Errors
/// A device that fails.
pub fn forward(ends: &[LinkEnd; 2], spec: &LinkSpec, has_ended: &AtomicBool) -> io::Result<Forwarded> {
    let is_punctual = link::be_punctual();
    let cpu_before = thread_cpu_time().total();
    let mut forwarder = Forwarder {
        ends,
        mtu: usize::from(spec.mtu),
        start: SystemClock.monotonic(),
        directions: [Direction::new(spec, 0), Direction::new(spec, 1)],
        lateness: Histogram::new_with_bounds(1, 3_600_000_000_000, 3).map_err(io::Error::other)?,
        spare: Vec::new(),
        next_number: 0,
    };
    let mut ends_at = None;
    let mut ready = [true; 2];
    loop {
        for (from, is_ready) in ready.iter_mut().enumerate() {
            if *is_ready {
                *is_ready = forwarder.read(from)?;
            }
            forwarder.deliver(from);
        }
        let now = forwarder.now();
        if ends_at.is_none() && has_ended.load(AtomicOrdering::Acquire) {
            ends_at = Some(now + spec.longest());
        }
        let next = forwarder.next_due();
        if ends_at.is_some_and(|end| now >= end || (ready == [false; 2] && next.is_none())) {
            break;
        }
        // Where there is more to read that is known already; what is due is delivered either way.
        if ready == [false; 2] {
            ready = forwarder.wait(next, spec.spin);
        }
    }
    Ok(Forwarded {
        elapsed: forwarder.now(),
        directions: forwarder.directions.map(|mut direction| {
            direction.counters.under_way = direction.under_way.len() as u64;
            direction.counters
        }),
        lateness: forwarder.lateness,
        is_punctual,
        cpu: thread_cpu_time().total().saturating_sub(cpu_before),
    })
}
