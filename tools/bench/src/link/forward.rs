//! The thread that carries packets from one end to the other, each at the time that the model gives.

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
/// Packets are grouped from this many in flight on.
const BACKLOG: usize = 8;
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

/// The results of the forwarding thread.
#[derive(Debug)]
pub struct Forwarded {
    /// Counters from the first end to the second, and back.
    pub directions: [DirectionCounters; 2],
    /// How much later than planned packets were delivered, in nanoseconds.
    pub lateness: Histogram<u64>,
    /// Whether the thread ran before all ordinary ones.
    pub is_punctual: bool,
    /// Time from the start to the end.
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

/// How the thread waits for the next event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    /// Until a packet enters, or this time is over.
    Enter(Duration),
    /// All of this time; whatever enters until then is read at its end.
    Rest(Duration),
}

impl Wait {
    /// The wait after waking up at `woken`, with `under_way` packets; the next one is due at `next`. A queue whose packets are due soon after
    /// each other is emptied in groups: waking up costs more than a packet does. For the last `spin` before a packet it does not sleep: a
    /// sleeping thread wakes up late.
    fn after(
        now: Duration,
        woken: Duration,
        next: Option<Duration>,
        under_way: usize,
        spec: &LinkSpec,
    ) -> Self {
        let Some(next) = next else {
            return Self::Enter(SLEEP_MAX);
        };
        let group_ends = woken + spec.group;
        if spec.spin.is_zero() && under_way >= BACKLOG && next < group_ends && now < group_ends {
            return Self::Rest(group_ends - now);
        }
        Self::Enter(next.saturating_sub(now).saturating_sub(spec.spin).min(SLEEP_MAX))
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
    /// When the thread has waited the last time.
    woken: Duration,
}

impl Forwarder<'_> {
    fn now(&self) -> Duration {
        SystemClock.monotonic().saturating_sub(self.start)
    }

    /// Reads packets that the end has sent, up to a batch. True when more may be waiting.
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

    /// Delivers due packets from this end to the other one.
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

    /// Waits until there is something to do. Returns which ends may have a packet.
    fn wait(&mut self, next: Option<Duration>, spec: &LinkSpec) -> [bool; 2] {
        let under_way = self.directions.iter().map(|one| one.under_way.len()).sum();
        let ready = match Wait::after(self.now(), self.woken, next, under_way, spec) {
            Wait::Enter(at_most) => link::wait_readable(self.ends, at_most),
            Wait::Rest(time) => {
                SystemClock.sleep_until(SystemClock.monotonic() + time);
                [true; 2]
            }
        };
        self.woken = self.now();
        ready
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

/// Carries packets until `has_ended`, and then those still in flight, for at most `longest` of the specification. Meant for a separate
/// thread, because it requests a priority.
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
        woken: Duration::ZERO,
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
        // Waits only if both ends are read empty; due packets are delivered either way.
        if ready == [false; 2] {
            ready = forwarder.wait(next, spec);
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

#[cfg(test)]
mod tests {
    use super::*;

    const MICRO: Duration = Duration::from_micros(1);

    fn wait(next: Option<u32>, under_way: usize, text: &str) -> Wait {
        let spec = text.parse().unwrap();
        Wait::after(
            1010 * MICRO,
            1000 * MICRO,
            next.map(|at| at * MICRO),
            under_way,
            &spec,
        )
    }

    #[test]
    fn a_queue_is_emptied_in_groups() {
        assert_eq!(wait(Some(1022), 20, ""), Wait::Rest(90 * MICRO));
        assert_eq!(wait(Some(1022), 20, "group=500us"), Wait::Rest(490 * MICRO));
        // Too few packets, packets far apart, grouping off, and spinning.
        assert_eq!(wait(Some(1022), 2, ""), Wait::Enter(12 * MICRO));
        assert_eq!(wait(Some(1222), 20, ""), Wait::Enter(212 * MICRO));
        assert_eq!(wait(Some(1022), 20, "group=0s"), Wait::Enter(12 * MICRO));
        assert_eq!(wait(Some(1022), 20, "spin=5us"), Wait::Enter(7 * MICRO));
    }

    #[test]
    fn without_packets_it_waits_for_one() {
        assert_eq!(wait(None, 0, ""), Wait::Enter(SLEEP_MAX));
        assert_eq!(wait(Some(999), 20, ""), Wait::Rest(90 * MICRO));
        assert_eq!(wait(Some(900_000), 20, ""), Wait::Enter(SLEEP_MAX));
    }
}
