//! Announcements to one participant that are sent again soon: a participant that has only just announced itself may not listen yet.
//!
//! Fast DDS announces itself before it opens its receivers, and drops what arrives in between. Cyclone answers an announcement at once and
//! then after a second, so a node that started while a recorder ran was discovered a second late in about half of all tries (traced with Fast DDS
//! 2.14.5: the answer came 1.1 ms after the announcement and was lost).
//!
//! Some packets are also sent a little later than Cyclone would: Fast DDS announces a message with each of its fragments, so Cyclone asks for those
//! that are in flight. Fast DDS ignores a request for what was acknowledged before it came.

use crate::dds::wire::locators::GuidPrefix;
use holdall_io::clock::{Clock, SystemClock};
use holdall_io::mutex::lock;
use std::{
    collections::VecDeque,
    net::{SocketAddrV4, UdpSocket},
    sync::{Arc, Condvar, Mutex, PoisonError},
    time::Duration,
};

/// When an announcement is sent again, counted from the first.
const AGAIN: [Duration; 6] = [
    Duration::from_millis(5),
    Duration::from_millis(15),
    Duration::from_millis(35),
    Duration::from_millis(75),
    Duration::from_millis(150),
    Duration::from_millis(300),
];

/// Cyclone itself sends four announcements to a new participant, a second apart; they are one.
const SAME_FOR: Duration = Duration::from_secs(5);

/// Participants that are followed at a time; more that come within [`SAME_FOR`] get Cyclone's own announcements only.
const FOLLOWED_MAX: usize = 1_024;

/// How much later a request for fragments leaves: four images of 6 MB that were sent at once took 5 to 30 ms.
const LATER: Duration = Duration::from_millis(20);

/// Packets that wait at a time.
const LATER_MAX: usize = 256;

/// An announcement to one address of a participant.
struct Followed {
    participant: GuidPrefix,
    to: SocketAddrV4,
    first: Duration,
    sent: usize,
    packet: Vec<u8>,
}

impl Followed {
    fn next(&self) -> Duration {
        self.first + AGAIN.get(self.sent).copied().unwrap_or(SAME_FOR)
    }
}

/// Packets to send again, with their times on one monotonic clock.
#[derive(Default)]
struct Queue {
    followed: Vec<Followed>,
    /// Packets to send once, the earliest first.
    later: VecDeque<(Duration, SocketAddrV4, Vec<u8>)>,
    is_stopped: bool,
}

impl Queue {
    /// Takes note of an announcement that has just been sent; false when it is one of a series.
    fn add(&mut self, participant: GuidPrefix, to: SocketAddrV4, packet: &[u8], now: Duration) -> bool {
        let is_known = |followed: &Followed| followed.participant == participant && followed.to == to;
        if self.is_stopped || self.followed.len() >= FOLLOWED_MAX || self.followed.iter().any(is_known) {
            return false;
        }
        self.followed.push(Followed {
            participant,
            to,
            first: now,
            sent: 0,
            packet: packet.to_vec(),
        });
        true
    }

    /// Keeps a packet until [`LATER`] has passed; false when there are too many.
    fn add_later(&mut self, to: SocketAddrV4, packet: Vec<u8>, now: Duration) -> bool {
        let has_room = !self.is_stopped && self.later.len() < LATER_MAX;
        if has_room {
            self.later.push_back((now + LATER, to, packet));
        }
        has_room
    }

    /// Sends what is due, and forgets what is old.
    fn send_due(&mut self, now: Duration, mut send: impl FnMut(&[u8], SocketAddrV4)) {
        while let Some((_, to, packet)) = self.later.pop_front_if(|(due, ..)| *due <= now) {
            send(&packet, to);
        }
        self.followed.retain_mut(|followed| {
            if now < followed.next() {
                return true;
            }
            if followed.sent == AGAIN.len() {
                return false;
            }
            send(&followed.packet, followed.to);
            followed.sent += 1;
            true
        });
    }

    /// Time until something is due.
    fn next(&self, now: Duration) -> Option<Duration> {
        let later = self.later.front().map(|(due, ..)| *due);
        let next = self.followed.iter().map(Followed::next).chain(later).min()?;
        Some(next.saturating_sub(now))
    }
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
}

/// Sends announcements again, on a separate thread, as long as this lives.
pub(in crate::dds) struct Repeats(Arc<Shared>);

impl Repeats {
    /// Starts the thread.
    ///
    /// # Errors
    /// When the system gives no thread or socket.
    pub(in crate::dds) fn start() -> std::io::Result<Self> {
        let socket = UdpSocket::bind((std::net::Ipv4Addr::UNSPECIFIED, 0))?;
        socket.set_nonblocking(true)?;
        let shared = Arc::new(Shared::default());
        let queue = Arc::clone(&shared);
        std::thread::Builder::new()
            .name("dds-announce".to_owned())
            .spawn(move || queue.run(&socket))?;
        Ok(Self(shared))
    }

    /// Sends a packet again that a participant has just been sent.
    pub(in crate::dds) fn add(&self, participant: GuidPrefix, to: SocketAddrV4, packet: &[u8]) {
        let mut queue = lock(&self.0.queue);
        if queue.add(participant, to, packet, SystemClock.monotonic()) {
            self.0.changed.notify_all();
        }
    }

    /// Sends a packet a little later, once; false when it has to be sent now.
    pub(in crate::dds) fn send_later(&self, to: SocketAddrV4, packet: Vec<u8>) -> bool {
        let mut queue = lock(&self.0.queue);
        let is_kept = queue.add_later(to, packet, SystemClock.monotonic());
        self.0.changed.notify_all();
        is_kept
    }

    /// Sends nothing more: a packet after a farewell would be taken for a return.
    pub(in crate::dds) fn stop(&self) {
        let mut queue = lock(&self.0.queue);
        queue.is_stopped = true;
        queue.followed.clear();
        queue.later.clear();
        self.0.changed.notify_all();
    }
}

impl Drop for Repeats {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    fn run(&self, socket: &UdpSocket) {
        let mut queue = lock(&self.queue);
        while !queue.is_stopped {
            let now = SystemClock.monotonic();
            // Under the lock, so that nothing is sent once `stop` has returned; the socket never blocks.
            queue.send_due(now, |packet, to| {
                if let Err(error) = socket.send_to(packet, to) {
                    tracing::debug!("no second announcement to {to}: {error}");
                }
            });
            queue = match queue.next(now) {
                Some(wait) => {
                    let waited = self.changed.wait_timeout(queue, wait);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    const TO: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 7410);

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// When each packet was sent, by a queue that is driven to `end`.
    fn sent_until(queue: &mut Queue, mut now: Duration, end: Duration) -> Vec<(Duration, Vec<u8>)> {
        let mut sent = Vec::new();
        while now < end {
            queue.send_due(now, |packet, to| {
                assert_eq!(to, TO);
                sent.push((now, packet.to_vec()));
            });
            let Some(wait) = queue.next(now) else { break };
            now += wait;
        }
        sent
    }

    #[test]
    fn an_announcement_is_sent_again_with_growing_pauses_and_then_forgotten() {
        let mut queue = Queue::default();
        assert!(queue.add([1; 12], TO, b"hello", millis(100)));
        let sent = sent_until(&mut queue, millis(100), millis(60_000));
        let expected: Vec<_> = AGAIN
            .iter()
            .map(|after| (millis(100) + *after, b"hello".to_vec()))
            .collect();
        assert_eq!(sent, expected);
        assert!(queue.followed.is_empty());
        assert_eq!(queue.next(millis(60_000)), None);
    }

    #[test]
    fn a_series_of_announcements_is_one_and_a_later_return_another() {
        let mut queue = Queue::default();
        assert!(queue.add([1; 12], TO, b"first", millis(0)));
        sent_until(&mut queue, millis(0), millis(3_000));
        assert!(!queue.add([1; 12], TO, b"fourth", millis(3_000)));
        assert!(queue.add([2; 12], TO, b"other", millis(3_000)));
        let sent = sent_until(&mut queue, millis(3_000), millis(20_000));
        assert!(sent.iter().all(|(_, packet)| packet == b"other") && sent.len() == AGAIN.len());
        assert!(queue.add([1; 12], TO, b"again", millis(20_000)));
    }

    #[test]
    fn a_packet_for_later_is_sent_once_and_in_order() {
        let mut queue = Queue::default();
        assert!(queue.add_later(TO, b"first".to_vec(), millis(0)));
        assert!(queue.add_later(TO, b"second".to_vec(), millis(7)));
        let sent = sent_until(&mut queue, millis(7), millis(1_000));
        let expected = [
            (LATER, b"first".to_vec()),
            (LATER + millis(7), b"second".to_vec()),
        ];
        assert_eq!(sent, expected);
        for number in 0..2 * LATER_MAX {
            assert_eq!(queue.add_later(TO, Vec::new(), millis(0)), number < LATER_MAX);
        }
    }

    #[test]
    fn a_crowd_is_bounded() {
        let mut queue = Queue::default();
        for number in 0..2 * FOLLOWED_MAX {
            let mut prefix = [0; 12];
            prefix[..8].copy_from_slice(&number.to_le_bytes());
            assert_eq!(queue.add(prefix, TO, b"", millis(0)), number < FOLLOWED_MAX);
        }
    }

    #[test]
    fn nothing_is_sent_after_a_farewell() {
        let listener = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let std::net::SocketAddr::V4(to) = listener.local_addr().unwrap() else {
            unreachable!("bound to IPv4")
        };
        let repeats = Repeats::start().unwrap();
        repeats.add([1; 12], to, b"one");
        let mut bytes = [0; 10];
        assert_eq!(listener.recv(&mut bytes).unwrap(), 3);
        repeats.stop();
        repeats.add([2; 12], to, b"two");
        assert!(repeats.0.queue.lock().unwrap().followed.is_empty());
    }
}
