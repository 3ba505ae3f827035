//! The gate before all intakes: whether messages are wanted now, and which clock stamps them.

use crate::clock_watch::ClockWatch;
use holdall_model::{
    message::{MessageHeader, Payload},
    time::Timestamp,
};
use holdall_transport::Sink;
use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering},
};

/// Whether a message may pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Passage {
    /// It is wanted.
    Open,
    /// The recording is paused, or waits for the first `/clock`.
    Shut,
}

/// No `/clock` has come yet; simulation time is never this.
const NO_CLOCK_YET: i64 = i64::MIN;

/// Payload bytes of latched messages that are held while nothing is recorded, at most.
const HELD_BYTES_MAX: usize = 64 << 20;

/// Shared by all intakes; its switches take effect with the next message.
#[derive(Debug)]
pub struct Gate {
    paused: AtomicBool,
    /// `Some` when `/clock` stamps messages.
    sim_time_nanos: Option<AtomicI64>,
    /// Bytes of latched messages that are held until recording continues.
    held_bytes: AtomicUsize,
}

impl Gate {
    /// A gate that is open unless `paused`; with `use_sim_time` it also waits for the first `/clock`.
    pub fn new(paused: bool, use_sim_time: bool) -> Self {
        Self {
            paused: AtomicBool::new(paused),
            sim_time_nanos: use_sim_time.then(|| AtomicI64::new(NO_CLOCK_YET)),
            held_bytes: AtomicUsize::new(0),
        }
    }

    /// Whether a message may pass; replaces its stamp with simulation time if that is in use.
    #[inline]
    pub(crate) fn passage(&self, log_time: &mut Timestamp) -> Passage {
        if self.sim_time_nanos.is_some() {
            let Some(time) = self.time(*log_time) else {
                return Passage::Shut;
            };
            *log_time = time;
        }
        if self.is_paused() {
            Passage::Shut
        } else {
            Passage::Open
        }
    }

    /// The time that stamps messages, `now` unless simulation time is in use; `None` before the first `/clock`.
    pub(crate) fn time(&self, now: Timestamp) -> Option<Timestamp> {
        let Some(sim_time) = &self.sim_time_nanos else {
            return Some(now);
        };
        let nanos = sim_time.load(Ordering::Acquire);
        (nanos != NO_CLOCK_YET).then(|| Timestamp::from_nanos(nanos))
    }

    /// Whether simulation time stamps messages and has not begun.
    pub(crate) fn waits_for_clock(&self) -> bool {
        self.time(Timestamp::default()).is_none()
    }

    /// Arriving messages are not stored, because the user asked for it.
    pub(crate) fn is_paused(&self) -> bool {
        self.paused.load(Ordering::Relaxed)
    }

    /// Takes memory for a latched message that is held; false where all of them take enough.
    pub(super) fn reserve_held(&self, bytes: usize) -> bool {
        let before = self.held_bytes.fetch_add(bytes, Ordering::Relaxed);
        let has_room = before.saturating_add(bytes) <= HELD_BYTES_MAX;
        if !has_room {
            self.release_held(bytes);
        }
        has_room
    }

    /// Gives such memory back.
    pub(super) fn release_held(&self, bytes: usize) {
        self.held_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Pauses or resumes; returns the previous state.
    pub fn set_paused(&self, paused: bool) -> bool {
        self.paused.swap(paused, Ordering::Relaxed)
    }

    /// Pauses when running and resumes when paused; returns whether it is paused now.
    pub(crate) fn toggle_paused(&self) -> bool {
        !self.paused.fetch_xor(true, Ordering::Relaxed)
    }
}

/// A sink for `/clock` that sets a gate's simulation time.
pub(crate) struct ClockSink {
    pub gate: Arc<Gate>,
    pub watch: Arc<ClockWatch>,
}

impl Sink for ClockSink {
    fn offer(&self, _header: MessageHeader, payload: Payload<'_>) {
        if let (Some(nanos), Some(sim_time)) = (clock_nanos(&payload.to_vec()), &self.gate.sim_time_nanos) {
            // A jump is known before the first message after it.
            self.watch.see_simulated(Timestamp::from_nanos(nanos));
            sim_time.store(nanos, Ordering::Release);
        }
    }
}

/// Nanoseconds of a serialized `rosgraph_msgs/msg/Clock`: four bytes of encapsulation, int32 seconds, uint32 nanoseconds. `None` if it is
/// too short.
pub fn clock_nanos(cdr: &[u8]) -> Option<i64> {
    let little_endian = cdr.get(1)? & 1 == 1;
    let word = |at: usize| -> Option<[u8; 4]> { cdr.get(at..at + 4)?.try_into().ok() };
    let (sec, nanosec) = (word(4)?, word(8)?);
    let (sec, nanosec) = if little_endian {
        (i32::from_le_bytes(sec), u32::from_le_bytes(nanosec))
    } else {
        (i32::from_be_bytes(sec), u32::from_be_bytes(nanosec))
    };
    Some(i64::from(sec) * 1_000_000_000 + i64::from(nanosec))
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdall_io::sim::SimClock;

    fn clock_message(sec: i32, nanosec: u32) -> Vec<u8> {
        let mut cdr = vec![0, 1, 0, 0];
        cdr.extend(sec.to_le_bytes());
        cdr.extend(nanosec.to_le_bytes());
        cdr
    }

    #[test]
    fn messages_wait_for_the_first_clock_and_are_stamped_with_it() {
        let gate = Arc::new(Gate::new(false, true));
        let mut stamp = Timestamp::from_nanos(1);
        assert_eq!(gate.passage(&mut stamp), Passage::Shut);
        let header = MessageHeader {
            publisher: None,
            sequence: None,
            publish_time: None,
            log_time: stamp,
        };
        let watch = Arc::new(ClockWatch::new(
            Arc::new(SimClock::default()),
            true,
            Arc::default(),
        ));
        let sink = ClockSink {
            gate: Arc::clone(&gate),
            watch,
        };
        sink.offer(header, Payload::Borrowed(&clock_message(12, 5)));
        assert_eq!(gate.passage(&mut stamp), Passage::Open);
        assert_eq!(stamp, Timestamp::from_nanos(12_000_000_005));
    }

    #[test]
    fn a_broken_clock_message_changes_nothing() {
        for len in 0..12 {
            assert_eq!(clock_nanos(&clock_message(1, 2)[..len]), None);
        }
        let big_endian = [0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 4];
        assert_eq!(clock_nanos(&big_endian), Some(3_000_000_004));
    }

    #[test]
    fn toggling_pauses_and_resumes() {
        let gate = Gate::new(false, false);
        assert!(gate.toggle_paused());
        assert!(gate.is_paused());
        assert!(!gate.toggle_paused());
        assert!(!gate.is_paused());
    }
}
