//! Messages received from one topic: counted on the transport's thread, kept on request.

use super::{ListenOptions, TopicReading};
use holdall_io::{clock::Clock, mutex::lock};
use holdall_model::{
    dynamic::expression::Predicate,
    message::{MessageHeader, Payload},
    time::Timestamp,
    topic::Gid,
};
use holdall_transport::Sink;
use std::{
    borrow::Cow,
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex},
    time::Duration,
};

/// Most bytes of messages that are kept until they are taken.
const KEPT_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Publishers whose numbers are followed.
const PUBLISHERS_MAX: usize = 1024;

/// Bytes of a message that begins with a header, up to the end of its stamp: encapsulation, `int32 sec`, `uint32 nanosec`.
const STAMP_END: usize = 12;

/// A message as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeardMessage {
    /// When it arrived.
    pub log_time: Timestamp,
    /// When it was sent, on the sender's clock, if known.
    pub publish_time: Option<Timestamp>,
    /// Its publisher's number for it, if it has one.
    pub sequence: Option<u64>,
    /// The serialized message.
    pub payload: Vec<u8>,
}

/// How values are spread; of none all are 0.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spread {
    /// Number of values.
    pub count: usize,
    /// Their mean.
    pub mean: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
    /// The standard deviation.
    pub deviation: f64,
}

impl Spread {
    fn of(values: &VecDeque<f64>) -> Self {
        if values.is_empty() {
            return Self::default();
        }
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        Self {
            count: values.len(),
            mean,
            min: values.iter().copied().fold(f64::INFINITY, f64::min),
            max: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            deviation: (squares / count).sqrt(),
        }
    }
}

#[derive(Default)]
struct Counts {
    messages: u64,
    bytes: u64,
    lost: u64,
    not_kept: u64,
    /// When the last message came: monotonic time.
    last: Option<Duration>,
    periods: VecDeque<f64>,
    sizes: VecDeque<f64>,
    delays: VecDeque<f64>,
    /// The last number of each publisher.
    sequences: HashMap<Gid, u64>,
    is_stamped: bool,
    condition: Option<Predicate>,
    untested: u64,
    kept: VecDeque<HeardMessage>,
    kept_bytes: usize,
}

/// The sink of a topic's subscriptions.
pub(super) struct Heard {
    window: usize,
    keeps: bool,
    is_conditional: bool,
    clock: Arc<dyn Clock>,
    counts: Mutex<Counts>,
}

impl Heard {
    /// With a condition messages are left out until it is known for their type.
    pub(super) fn new(options: &ListenOptions) -> Self {
        Self {
            is_conditional: options.condition.is_some(),
            window: options.window.max(1),
            keeps: options.keeps_messages,
            clock: Arc::clone(&options.clock),
            counts: Mutex::default(),
        }
    }

    /// Whether its messages begin with a stamp.
    pub(super) fn set_stamped(&self, is_stamped: bool) {
        lock(&self.counts).is_stamped = is_stamped;
    }

    /// Only messages that fulfil it count.
    pub(super) fn set_condition(&self, condition: Predicate) {
        lock(&self.counts).condition = Some(condition);
    }

    /// Its counters; name, type and publishers are the caller's.
    pub(super) fn reading(&self) -> TopicReading {
        let counts = lock(&self.counts);
        TopicReading {
            messages: counts.messages,
            bytes: counts.bytes,
            lost: counts.lost,
            not_kept: counts.not_kept,
            untested: counts.untested,
            periods: Spread::of(&counts.periods),
            sizes: Spread::of(&counts.sizes),
            delays: counts.is_stamped.then(|| Spread::of(&counts.delays)),
            ..TopicReading::default()
        }
    }

    /// The messages that are kept.
    pub(super) fn take(&self) -> Vec<HeardMessage> {
        let mut counts = lock(&self.counts);
        counts.kept_bytes = 0;
        std::mem::take(&mut counts.kept).into()
    }

    fn push(&self, values: &mut VecDeque<f64>, value: f64) {
        if values.len() >= self.window {
            values.pop_front();
        }
        values.push_back(value);
    }
}

impl Sink for Heard {
    fn offer(&self, header: MessageHeader, payload: Payload<'_>) {
        let mut guard = lock(&self.counts);
        let counts = &mut *guard;
        if let (Some(gid), Some(number)) = (header.publisher, header.sequence) {
            counts.note_number(gid, number);
        }
        if self.is_conditional && !counts.fulfils(&payload) {
            return;
        }
        counts.messages += 1;
        counts.bytes += payload.len() as u64;
        let now = self.clock.monotonic();
        if let Some(last) = counts.last.replace(now) {
            self.push(&mut counts.periods, now.saturating_sub(last).as_secs_f64());
        }
        self.push(&mut counts.sizes, payload.len() as f64);
        if counts.is_stamped
            && let Some(stamp) = stamp_of(&payload)
        {
            let delay = (header.log_time.as_nanos() - stamp) as f64 / 1e9;
            self.push(&mut counts.delays, delay);
        }
        if self.keeps {
            counts.keep(&header, payload);
        }
    }
}

impl Counts {
    fn note_number(&mut self, gid: Gid, number: u64) {
        let has_room = self.sequences.len() < PUBLISHERS_MAX;
        match self.sequences.get_mut(&gid) {
            Some(last) if number > *last => {
                self.lost += number - *last - 1;
                *last = number;
            }
            // It was counted as missing, and comes late.
            Some(last) if number < *last => self.lost = self.lost.saturating_sub(1),
            Some(_) => {}
            None if has_room => drop(self.sequences.insert(gid, number)),
            None => {}
        }
    }

    /// Whether a message fulfils the condition; one that cannot be decoded does, so that it is seen.
    fn fulfils(&mut self, payload: &Payload<'_>) -> bool {
        let Some(condition) = &self.condition else {
            self.untested += 1;
            return false;
        };
        condition.matches(&bytes_of(payload)).unwrap_or(true)
    }

    fn keep(&mut self, header: &MessageHeader, payload: Payload<'_>) {
        let bytes = bytes_of(&payload).into_owned();
        self.kept_bytes += bytes.len();
        self.kept.push_back(HeardMessage {
            log_time: header.log_time,
            publish_time: header.publish_time,
            sequence: header.sequence,
            payload: bytes,
        });
        while self.kept_bytes > KEPT_BYTES_MAX
            && let Some(oldest) = self.kept.pop_front()
        {
            self.kept_bytes -= oldest.payload.len();
            self.not_kept += 1;
        }
    }
}

/// A payload in one piece.
fn bytes_of<'p>(payload: &'p Payload<'_>) -> Cow<'p, [u8]> {
    match payload {
        Payload::Borrowed(all) => Cow::Borrowed(all),
        Payload::Loaned(loan) => {
            let mut bytes = Vec::with_capacity(payload.len());
            loan.for_each_slice(&mut |slice| bytes.extend_from_slice(slice));
            Cow::Owned(bytes)
        }
    }
}

/// The stamp that a message begins with, in nanoseconds since 1970.
fn stamp_of(payload: &Payload<'_>) -> Option<i64> {
    let mut head = [0; STAMP_END];
    let mut len = 0;
    let mut add = |slice: &[u8]| {
        let some = slice.len().min(STAMP_END - len);
        head[len..len + some].copy_from_slice(&slice[..some]);
        len += some;
    };
    match payload {
        Payload::Borrowed(bytes) => add(bytes),
        Payload::Loaned(loan) => loan.for_each_slice(&mut add),
    }
    if len < STAMP_END {
        return None;
    }
    let (seconds, nanos) = (
        [head[4], head[5], head[6], head[7]],
        [head[8], head[9], head[10], head[11]],
    );
    // The encapsulation's second byte is odd for little-endian.
    let (seconds, nanos) = if head[1] & 1 == 1 {
        (i32::from_le_bytes(seconds), u32::from_le_bytes(nanos))
    } else {
        (i32::from_be_bytes(seconds), u32::from_be_bytes(nanos))
    };
    Some(i64::from(seconds) * 1_000_000_000 + i64::from(nanos))
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdall_io::sim::SimClock;
    use holdall_model::{selection::Selection, topic::NodeName};

    fn heard(keeps_messages: bool) -> (Heard, Arc<SimClock>) {
        let clock = Arc::new(SimClock::new(Timestamp::from_nanos(0)));
        let node = NodeName::in_root("listener");
        let heard = Heard::new(&ListenOptions {
            filter: Selection::of_topics(["/a"]).compile(&node).unwrap(),
            ament_prefixes: Vec::new(),
            window: if keeps_messages { 1 } else { 100 },
            keeps_messages,
            condition: None,
            clock: Arc::<SimClock>::clone(&clock),
        });
        (heard, clock)
    }

    fn header(seconds: i64, sequence: u64) -> MessageHeader {
        MessageHeader {
            publisher: Some(Gid([1; 16])),
            sequence: Some(sequence),
            publish_time: None,
            log_time: Timestamp::from_nanos(seconds * 1_000_000_000),
        }
    }

    #[test]
    fn gaps_between_numbers_are_losses_until_what_is_late_comes() {
        let (heard, clock) = heard(false);
        // The time of day is set in between.
        for (second, number) in [(1, 5), (2, 6), (7203, 10), (4, 8)] {
            clock.advance(Duration::from_secs(1));
            heard.offer(header(second, number), Payload::Borrowed(&[0; 10]));
        }
        let reading = heard.reading();
        assert_eq!((reading.messages, reading.bytes, reading.lost), (4, 40, 2));
        assert_eq!(
            reading.periods,
            Spread {
                count: 3,
                mean: 1.0,
                min: 1.0,
                max: 1.0,
                deviation: 0.0
            }
        );
    }

    #[test]
    fn stamps_of_both_byte_orders_are_read_and_short_messages_have_none() {
        let (heard, _) = heard(false);
        heard.set_stamped(true);
        let little = [0, 1, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0];
        let big = [0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0];
        for payload in [&little[..], &big, &little[..8]] {
            heard.offer(header(10, 1), Payload::Borrowed(payload));
        }
        let delays = heard.reading().delays.unwrap();
        assert_eq!((delays.count, delays.min, delays.max), (2, 1.0, 2.0));
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let (heard, _) = heard(true);
        let payload = vec![0; KEPT_BYTES_MAX / 2 + 1];
        for number in 1..=3 {
            heard.offer(header(1, number), Payload::Borrowed(&payload));
        }
        assert_eq!(heard.take().len(), 1);
        assert_eq!(heard.reading().not_kept, 2);
    }
}
