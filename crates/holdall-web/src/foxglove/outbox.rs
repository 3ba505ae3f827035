//! Queue of one client: small messages in their order, of large ones the newest of each topic, all within bounds.

use super::protocol::{MESSAGE_HEAD_BYTES, append_message_head};
use holdall_io::{
    clock::{Clock, SystemClock},
    mutex::lock,
};
use holdall_model::message::{Loan, Payload};
use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Condvar, Mutex, PoisonError},
    time::Duration,
};

/// From this size on only the newest message of a topic waits.
pub(super) const LARGE_BYTES: usize = 64 * 1024;

/// Most bytes of small messages that wait.
const SMALL_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Most bytes of large messages that wait.
const LARGE_BYTES_MAX: usize = 256 * 1024 * 1024;

/// Most bytes of lists of channels and the like that wait; a client that lets more pile up reads nothing.
const CONTROL_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Time between two looks whether a long frame can be queued.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A large message that takes longer than this holds back the small ones too long.
const HOLD_MAX: Duration = Duration::from_millis(120);

/// Such messages have one part in so many of the time of a connection that small ones use, too.
const HOLD_PARTS: u32 = 128;

/// A connection uses small messages when one was offered so short a time ago.
const SMALL_WITHIN: Duration = Duration::from_secs(3);

/// Before the first message that is longer than this the rate of the connection is measured.
const MEASURE_FROM: usize = 256 * 1024;

/// Bytes of the first measurement and of the longest; each has twice the bytes of the one before, because a connection starts slowly.
const MEASURE_BYTES_FIRST: usize = 64 * 1024;
const MEASURE_BYTES_LAST: usize = 512 * 1024;

/// A measurement that is not faster than the one before by this factor is the connection's rate.
const STILL_FASTER: f64 = 1.25;

/// Small messages are sent together up to this size.
const BATCH_BYTES: usize = 32 * 1024;

/// Payload of a frame that clients ignore: an unasked pong (RFC 6455, 5.5.3).
const PADDING_BYTES: usize = 125;

/// WebSocket opcodes.
pub(super) const TEXT: u8 = 1;
pub(super) const BINARY: u8 = 2;
pub(super) const PING: u8 = 9;
const PONG: u8 = 10;

/// A payload that several clients share.
#[derive(Clone)]
enum Body {
    Bytes(Arc<[u8]>),
    /// In the transport's memory, until the last client has copied or dropped it.
    Loan(Arc<Mutex<Box<dyn Loan>>>),
}

/// A message for clients.
#[derive(Clone)]
pub(super) struct Message {
    log_time: u64,
    len: usize,
    body: Body,
}

impl Message {
    /// Copies small payloads; keeps loans.
    pub(super) fn new(log_time: u64, payload: Payload<'_>) -> Self {
        let len = payload.len();
        let body = match payload {
            Payload::Borrowed(bytes) => Body::Bytes(bytes.into()),
            Payload::Loaned(loan) => Body::Loan(Arc::new(Mutex::new(loan))),
        };
        Self { log_time, len, body }
    }

    /// The same message in separate memory that may be kept for long.
    pub(super) fn into_owned(self) -> Self {
        let Body::Loan(loan) = &self.body else { return self };
        let mut bytes = Vec::with_capacity(self.len);
        lock(loan).for_each_slice(&mut |slice| bytes.extend_from_slice(slice));
        Self {
            body: Body::Bytes(bytes.into()),
            ..self
        }
    }

    /// When it was recorded, or received.
    pub(super) fn log_time(&self) -> u64 {
        self.log_time
    }

    /// Whether the other one has the same time and bytes, both in separate memory.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let bytes = |message: &Self| match &message.body {
            Body::Bytes(bytes) => Some(bytes.clone()),
            Body::Loan(_) => None,
        };
        self.log_time == other.log_time && bytes(self).is_some() && bytes(self) == bytes(other)
    }

    /// Payload bytes.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    fn append_frame(&self, to: &mut Vec<u8>, subscription: u32) {
        append_frame_head(to, BINARY, MESSAGE_HEAD_BYTES + self.len);
        append_message_head(to, subscription, self.log_time);
        match &self.body {
            Body::Bytes(bytes) => to.extend_from_slice(bytes),
            Body::Loan(loan) => lock(loan).for_each_slice(&mut |slice| to.extend_from_slice(slice)),
        }
    }
}

/// Appends the head of a frame from a server, which is never masked.
fn append_frame_head(to: &mut Vec<u8>, opcode: u8, len: usize) {
    const FINAL: u8 = 0x80;
    to.push(FINAL | opcode);
    match len {
        0..=125 => to.push(len as u8),
        126..=0xffff => {
            to.push(126);
            to.extend((len as u16).to_be_bytes());
        }
        _ => {
            to.push(127);
            to.extend((len as u64).to_be_bytes());
        }
    }
}

/// Appends frames that clients ignore, about `bytes` in total.
fn append_padding(to: &mut Vec<u8>, bytes: usize) {
    while to.len() < bytes {
        append_frame_head(to, PONG, PADDING_BYTES);
        to.resize(to.len() + PADDING_BYTES, b' ');
    }
}

impl Measured {
    /// Bytes of the next measurement.
    fn next_bytes(self) -> usize {
        match self {
            Self::Begun(bytes) => bytes * 2,
            Self::Not | Self::Done => MEASURE_BYTES_FIRST,
        }
    }
}

/// Messages of one subscription so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sums {
    /// Handed to the client's connection.
    pub sent: u64,
    /// Not sent because newer ones came first, or too much waited.
    pub left_out: u64,
}

#[derive(Default)]
struct Waiting {
    control: VecDeque<Vec<u8>>,
    control_bytes: usize,
    small: VecDeque<(u32, Message)>,
    small_bytes: usize,
    /// By subscription.
    large: BTreeMap<u32, Message>,
    large_bytes: usize,
    /// The subscription whose large message was sent last.
    last_large: u32,
    /// A slow connection gets no large message before, so that half of it is for small ones.
    large_after: Duration,
    /// It gets none before that would hold back small ones for long.
    long_after: Duration,
    /// Bytes a second that the connection drains, if known.
    rate: Option<f64>,
    measured: Measured,
    /// When a small message was last offered.
    last_small: Option<Duration>,
    /// How long a message of these subscriptions takes, if that is too long.
    held_back: BTreeMap<u32, Duration>,
    sums: BTreeMap<u32, Sums>,
    is_closed: bool,
}

/// How far the rate of a connection was measured before its first long message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Measured {
    #[default]
    Not,
    /// With this many bytes; the next measurement has more.
    Begun(usize),
    Done,
}

/// The queue of one client.
#[derive(Default)]
pub(super) struct Outbox {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

/// Frames taken for sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// Frames for the client, with a large message among them or not.
    Frames { large: bool },
    /// Small messages, and frames without meaning, because a message of `before` bytes waits and the rate of the connection is not known.
    Padding { before: usize },
    /// Nothing came in time.
    Nothing,
    /// The client is gone.
    Closed,
}

impl Outbox {
    /// Queues a frame about channels, states and the like; these precede messages.
    pub(super) fn push(&self, opcode: u8, payload: &[u8]) {
        let mut frame = Vec::with_capacity(payload.len() + 10);
        append_frame_head(&mut frame, opcode, payload.len());
        frame.extend_from_slice(payload);
        self.push_raw(frame);
    }

    /// Queues a long frame when all about channels, states and the like was sent; waits for that. For the client's own thread.
    pub(super) fn push_long(&self, opcode: u8, payload: &[u8]) {
        let mut waiting = lock(&self.waiting);
        while waiting.control_bytes > 0 && !waiting.is_closed {
            let waited = self.changed.wait_timeout(waiting, LOOK_EVERY);
            waiting = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        drop(waiting);
        self.push(opcode, payload);
    }

    /// Queues bytes that are frames already.
    pub(super) fn push_raw(&self, frame: Vec<u8>) {
        let mut waiting = lock(&self.waiting);
        waiting.control_bytes += frame.len();
        waiting.is_closed |= waiting.control_bytes > CONTROL_BYTES_MAX;
        if !waiting.is_closed {
            waiting.control.push_back(frame);
        }
        drop(waiting);
        self.changed.notify_all();
    }

    /// Offers a message; never waits for the client.
    pub(super) fn offer(&self, subscription: u32, message: &Message) {
        let mut guard = lock(&self.waiting);
        let waiting = &mut *guard;
        if message.len < LARGE_BYTES {
            waiting.last_small = Some(SystemClock.monotonic());
            let has_room = waiting.small_bytes + message.len <= SMALL_BYTES_MAX;
            if has_room {
                // An empty one takes memory, too.
                waiting.small_bytes += message.len.max(64);
                waiting.small.push_back((subscription, message.clone()));
            } else {
                waiting.sums.entry(subscription).or_default().left_out += 1;
            }
        } else {
            let old = waiting.large.remove(&subscription);
            waiting.large_bytes -= old.as_ref().map_or(0, |old| old.len);
            let has_room = waiting.large_bytes + message.len <= LARGE_BYTES_MAX;
            let left_out = u64::from(old.is_some()) + u64::from(!has_room);
            waiting.sums.entry(subscription).or_default().left_out += left_out;
            if has_room {
                waiting.large_bytes += message.len;
                waiting.large.insert(subscription, message.clone());
            }
        }
        drop(guard);
        self.changed.notify_all();
    }

    /// Drops waiting messages of a subscription that has ended.
    pub(super) fn forget(&self, subscription: u32) {
        let mut waiting = lock(&self.waiting);
        if let Some(large) = waiting.large.remove(&subscription) {
            waiting.large_bytes -= large.len;
        }
        waiting.small.retain(|(of, _)| *of != subscription);
        waiting.small_bytes = waiting.small.iter().map(|(_, message)| message.len.max(64)).sum();
        waiting.sums.remove(&subscription);
        waiting.held_back.remove(&subscription);
    }

    /// Drops the messages that wait, of all subscriptions: the playback has jumped.
    pub(super) fn forget_messages(&self) {
        let mut waiting = lock(&self.waiting);
        waiting.large.clear();
        waiting.small.clear();
        (waiting.large_bytes, waiting.small_bytes) = (0, 0);
    }

    /// Replaces `frames` by the next ones to send; waits at most `at_most` for them.
    pub(super) fn take(&self, frames: &mut Vec<u8>, at_most: Duration) -> Taken {
        frames.clear();
        let deadline = SystemClock.monotonic() + at_most;
        let mut waiting = lock(&self.waiting);
        loop {
            let now = SystemClock.monotonic();
            if waiting.is_closed {
                return Taken::Closed;
            }
            if let Some(frame) = waiting.control.pop_front() {
                waiting.control_bytes -= frame.len();
                *frames = frame;
                return Taken::Frames { large: false };
            }
            waiting.take_small(frames);
            if let Some((before, bytes)) = waiting.to_measure(now) {
                append_padding(frames, frames.len() + bytes);
                return Taken::Padding { before };
            }
            // With the lock released, because a loan is copied.
            let large = waiting.next_large(now);
            if let Some((subscription, message)) = large {
                drop(waiting);
                message.append_frame(frames, subscription);
                return Taken::Frames { large: true };
            }
            if !frames.is_empty() {
                return Taken::Frames { large: false };
            }
            if now >= deadline {
                return Taken::Nothing;
            }
            let wait = waiting.due(now).map_or(deadline, |due| deadline.min(due));
            let wait = wait.saturating_sub(now);
            let woken = self.changed.wait_timeout(waiting, wait);
            waiting = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Notes how long a large message took to be sent, and how fast the connection drains.
    pub(super) fn sent_large(&self, took: Duration, rate: Option<f64>) {
        /// A fast connection needs no pause.
        const SLOW: Duration = Duration::from_millis(20);
        let now = SystemClock.monotonic();
        let mut waiting = lock(&self.waiting);
        waiting.rate = rate;
        if rate.is_some() {
            waiting.measured = Measured::Done;
        }
        if took >= SLOW {
            waiting.large_after = now + took;
        }
        if took > HOLD_MAX {
            waiting.long_after = now + took * (HOLD_PARTS - 1);
        }
    }

    /// Notes how fast the connection drained the padding before a message of `before` bytes; `None`: at once.
    pub(super) fn measured(&self, before: usize, rate: Option<f64>) {
        let now = SystemClock.monotonic();
        let mut waiting = lock(&self.waiting);
        let last = waiting.rate;
        waiting.rate = rate;
        let bytes = waiting.measured.next_bytes();
        let is_settled = rate.is_none_or(|rate| last.is_some_and(|last| rate < STILL_FASTER * last));
        if !is_settled && bytes < MEASURE_BYTES_LAST {
            waiting.measured = Measured::Begun(bytes);
            return;
        }
        waiting.measured = Measured::Done;
        if let Some(takes) = waiting.too_long(before) {
            waiting.long_after = now + takes * (HOLD_PARTS - 1);
        }
    }

    /// The subscriptions whose messages come seldom, because each would hold back all others for the given time.
    pub(super) fn held_back(&self) -> BTreeMap<u32, Duration> {
        lock(&self.waiting).held_back.clone()
    }

    /// Messages sent and dropped of each subscription.
    pub(super) fn sums(&self) -> BTreeMap<u32, Sums> {
        lock(&self.waiting).sums.clone()
    }

    /// The client is gone.
    pub(super) fn close(&self) {
        lock(&self.waiting).is_closed = true;
        self.changed.notify_all();
    }

    /// Whether the client is gone.
    pub(super) fn is_closed(&self) -> bool {
        lock(&self.waiting).is_closed
    }
}

impl Waiting {
    fn take_small(&mut self, frames: &mut Vec<u8>) {
        while frames.len() < BATCH_BYTES
            && let Some((subscription, message)) = self.small.pop_front()
        {
            self.small_bytes -= message.len.max(64);
            self.sums.entry(subscription).or_default().sent += 1;
            message.append_frame(frames, subscription);
        }
    }

    /// Whether small messages would be held back by large ones.
    fn uses_small(&self, now: Duration) -> bool {
        self.last_small
            .is_some_and(|last| now.saturating_sub(last) < SMALL_WITHIN)
    }

    /// How long a message takes, if that is too long for a connection that also has small ones.
    fn too_long(&self, len: usize) -> Option<Duration> {
        let takes = Duration::try_from_secs_f64(len as f64 / self.rate?).ok()?;
        (takes > HOLD_MAX).then_some(takes)
    }

    /// The longest message that waits and the bytes to measure the connection with before it is sent; `None` once that is done.
    fn to_measure(&self, now: Duration) -> Option<(usize, usize)> {
        if self.measured == Measured::Done || self.uses_small(now) && now < self.large_after {
            return None;
        }
        let longest = self.large.values().map(|message| message.len).max()?;
        let is_unknown = self.rate.is_none() || self.too_long(longest).is_some();
        (longest > MEASURE_FROM && is_unknown).then(|| (longest, self.measured.next_bytes()))
    }

    /// From when on a large message that waits may be sent; `None` if none waits.
    fn due(&self, now: Duration) -> Option<Duration> {
        let of = |message: &Message| match self.too_long(message.len) {
            _ if !self.uses_small(now) => now,
            Some(_) => self.large_after.max(self.long_after),
            None => self.large_after,
        };
        let due = self.large.values().map(of).min()?;
        // Small messages may have ceased by then.
        let ceased = self.last_small.map_or(now, |last| last + SMALL_WITHIN);
        Some(due.min(ceased.max(now)))
    }

    /// The large messages of all subscriptions have their turns; those that would hold back small ones for too long have few.
    fn next_large(&mut self, now: Duration) -> Option<(u32, Message)> {
        let uses_small = self.uses_small(now);
        if self.large.is_empty() || uses_small && now < self.large_after {
            return None;
        }
        let after = self.large.range(self.last_large.saturating_add(1)..);
        let turns: Vec<(u32, Option<Duration>)> = after
            .chain(self.large.range(..=self.last_large))
            .map(|(subscription, message)| (*subscription, self.too_long(message.len)))
            .collect();
        let mut chosen = None;
        for (subscription, too_long) in turns {
            match too_long.filter(|_| uses_small) {
                Some(takes) => drop(self.held_back.insert(subscription, takes)),
                None => drop(self.held_back.remove(&subscription)),
            }
            let is_due = too_long.is_none() || !uses_small || now >= self.long_after;
            if chosen.is_none() && is_due {
                chosen = Some(subscription);
            }
        }
        let subscription = chosen?;
        let message = self.large.remove(&subscription)?;
        self.last_large = subscription;
        self.large_bytes -= message.len;
        self.sums.entry(subscription).or_default().sent += 1;
        Some((subscription, message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(time: u64, len: usize) -> Message {
        Message::new(time, Payload::Borrowed(&vec![7; len]))
    }

    /// The subscription and time of each message in the frames that are taken.
    fn taken(outbox: &Outbox) -> Vec<(u32, u64)> {
        let mut frames = Vec::new();
        let mut found = Vec::new();
        while let Taken::Frames { .. } = outbox.take(&mut frames, Duration::ZERO) {
            let mut rest = frames.as_slice();
            while !rest.is_empty() {
                let (head, len) = match rest[1] {
                    126 => (4, usize::from(u16::from_be_bytes([rest[2], rest[3]]))),
                    127 => (10, u64::from_be_bytes(rest[2..10].try_into().unwrap()) as usize),
                    len => (2, usize::from(len)),
                };
                let body = &rest[head..head + len];
                if rest[0] == 0x80 | BINARY {
                    let subscription = u32::from_le_bytes(body[1..5].try_into().unwrap());
                    found.push((subscription, u64::from_le_bytes(body[5..13].try_into().unwrap())));
                }
                rest = &rest[head + len..];
            }
        }
        found
    }

    #[test]
    fn small_messages_keep_their_order_and_of_large_ones_the_newest_waits() {
        let outbox = Outbox::default();
        for time in 0..5 {
            outbox.offer(1, &message(time, 10));
            outbox.offer(2, &message(time, LARGE_BYTES));
            outbox.offer(3, &message(time, LARGE_BYTES * 2));
        }
        assert_eq!(
            taken(&outbox),
            [(1, 0), (1, 1), (1, 2), (1, 3), (1, 4), (2, 4), (3, 4)]
        );
        let sums = outbox.sums();
        assert_eq!(sums[&1], Sums { sent: 5, left_out: 0 });
        assert_eq!(sums[&2], Sums { sent: 1, left_out: 4 });
    }

    #[test]
    fn what_waits_is_bounded_and_what_is_left_out_is_counted() {
        let outbox = Outbox::default();
        let count = 2 * SMALL_BYTES_MAX / 1000;
        for time in 0..count as u64 {
            outbox.offer(1, &message(time, 1000));
        }
        let waits = taken(&outbox).len();
        assert!(waits * 1000 <= SMALL_BYTES_MAX && waits * 1000 > SMALL_BYTES_MAX / 2);
        assert_eq!(outbox.sums()[&1].left_out, (count - waits) as u64);
    }

    #[test]
    fn large_topics_have_turns_and_a_slow_connection_a_pause() {
        let outbox = Outbox::default();
        for round in 0..2 {
            outbox.offer(5, &message(round, LARGE_BYTES));
            outbox.offer(9, &message(round, LARGE_BYTES));
            let mut frames = Vec::new();
            assert_eq!(
                outbox.take(&mut frames, Duration::ZERO),
                Taken::Frames { large: true }
            );
        }
        // Each had its turn.
        assert_eq!((outbox.sums()[&5].sent, outbox.sums()[&9].sent), (1, 1));
        outbox.sent_large(Duration::from_secs(1000), None);
        outbox.offer(1, &message(1, 10));
        assert_eq!(taken(&outbox), [(1, 1)], "only what is small");
    }

    #[test]
    fn beside_small_topics_messages_that_take_long_come_seldom_and_others_as_before() {
        let outbox = Outbox::default();
        // One of the longer messages takes half a second, one of the shorter a tenth.
        let (long, short) = (10 * LARGE_BYTES, 2 * LARGE_BYTES);
        outbox.sent_large(Duration::from_millis(500), Some(20.0 * LARGE_BYTES as f64));
        lock(&outbox.waiting).large_after = Duration::ZERO;
        outbox.offer(1, &message(1, 10));
        outbox.offer(2, &message(1, long));
        outbox.offer(3, &message(1, short));
        assert_eq!(taken(&outbox), [(1, 1), (3, 1)], "the long one waits");
        assert_eq!(outbox.held_back(), [(2, Duration::from_millis(500))].into());
        // Without small topics nothing is held back.
        lock(&outbox.waiting).last_small = None;
        assert_eq!(taken(&outbox), [(2, 1)]);
        outbox.offer(2, &message(2, long));
        assert_eq!(taken(&outbox), [(2, 2)]);
        assert_eq!(outbox.held_back(), BTreeMap::new());
    }

    /// Takes the padding before a long message, and answers it with this rate.
    fn measure(outbox: &Outbox, rate: Option<f64>) -> usize {
        let mut frames = Vec::new();
        let Taken::Padding { before } = outbox.take(&mut frames, Duration::ZERO) else {
            panic!("nothing to measure")
        };
        outbox.measured(before, rate);
        frames.len()
    }

    #[test]
    fn before_the_first_long_message_the_connection_is_measured() {
        let long = 16 * LARGE_BYTES;
        // It drains at once: the message follows.
        let outbox = Outbox::default();
        outbox.offer(2, &message(1, long));
        measure(&outbox, None);
        assert_eq!(taken(&outbox), [(2, 1)]);

        // A slow one with small topics: after the rate is settled the message waits.
        let outbox = Outbox::default();
        let rate = long as f64 / 0.4;
        outbox.offer(1, &message(1, 10));
        outbox.offer(2, &message(1, long));
        let first = measure(&outbox, Some(rate / 2.0));
        let second = measure(&outbox, Some(rate * 0.9));
        let third = measure(&outbox, Some(rate));
        assert!(first < second && second < third, "{first} {second} {third}");
        outbox.offer(1, &message(2, 10));
        assert_eq!(taken(&outbox), [(1, 2)]);
        assert_eq!(outbox.held_back().keys().collect::<Vec<_>>(), [&2]);

        // One that only started slowly: it is sent as soon as that is known.
        let outbox = Outbox::default();
        outbox.offer(1, &message(1, 10));
        outbox.offer(2, &message(1, long));
        measure(&outbox, Some(rate));
        measure(&outbox, Some(rate * 4.0));
        assert_eq!(taken(&outbox), [(2, 1)]);
    }

    #[test]
    fn a_client_that_reads_no_lists_is_dropped() {
        let outbox = Outbox::default();
        for _ in 0..65 {
            outbox.push(TEXT, &vec![b' '; 1 << 20]);
        }
        assert!(outbox.is_closed());
        assert_eq!(outbox.take(&mut Vec::new(), Duration::ZERO), Taken::Closed);
    }

    #[test]
    fn frames_of_each_length_have_their_heads() {
        for (len, head) in [
            (125, &[0x82, 125][..]),
            (126, &[0x82, 126, 0, 126]),
            (65536, &[0x82, 127, 0, 0, 0, 0, 0, 1, 0, 0]),
        ] {
            let mut found = Vec::new();
            append_frame_head(&mut found, BINARY, len);
            assert_eq!(found, head);
        }
    }
}
