//! The way from a recorder to its judge: what is taken of each message, in batches, and the bounded queue between the two.

use super::{
    judge::Arrival,
    live::News,
    parse::Contract,
    sample::{Sample, Want},
    topic::want_of,
};
use crate::{
    message::PayloadRef,
    qos::QosProfile,
    time::Timestamp,
    topic::{DefinitionEncoding, MessageDefinition, TopicInfo},
};
use std::{sync::Arc, time::Duration};

/// Time between two batches, and the most of one.
const INTERVAL: Duration = Duration::from_millis(100);
const BATCH_MAX: usize = 1024;

/// Payloads that are larger than what every rule sees are read as a whole up to this size, and as many bytes of them in each [`INTERVAL`].
const WHOLE_BYTES_MAX: usize = 8 << 20;

/// Memory of what waits for the judge, in bytes.
const WAITING_BYTES_MAX: usize = 16 << 20;

/// Takes from messages what the rules need.
#[derive(Debug)]
pub struct Feed {
    contract: Arc<Contract>,
    /// By the numbers of topics.
    wants: Vec<Want>,
    batch: Vec<News>,
    /// Bytes of large payloads that may be copied until the next batch.
    whole_left: usize,
    /// The first and the last time that was passed on.
    span: Option<(Timestamp, Timestamp)>,
    next: Duration,
}

impl Feed {
    /// Nothing has come.
    pub fn new(contract: Arc<Contract>) -> Self {
        Self {
            contract,
            wants: Vec::new(),
            batch: Vec::new(),
            whole_left: WHOLE_BYTES_MAX,
            span: None,
            next: Duration::ZERO,
        }
    }

    /// Messages of one more topic will come; returns its number here.
    pub fn topic(&mut self, info: TopicInfo, definition: MessageDefinition) -> u32 {
        let number = self.wants.len() as u32;
        self.wants.push(match want_of(&self.contract, &info.name) {
            Want::Stamp if !begins_with_header(&definition) => Want::Sparse,
            want => want,
        });
        let news = News::Topic(number, Box::new(info), Box::new(definition));
        self.batch.push(news);
        number
    }

    /// A publisher of a topic offers this QoS.
    pub fn offer(&mut self, number: u32, qos: QosProfile) {
        self.batch.push(News::Offer(number, qos));
    }

    /// The definition of a topic has come.
    pub fn define(&mut self, number: u32, definition: MessageDefinition) {
        self.batch.push(News::Define(number, Box::new(definition)));
    }

    /// A message was written.
    pub fn message(&mut self, number: u32, arrival: Arrival, payload: PayloadRef<'_>) {
        let want = self.wants.get(number as usize).copied().unwrap_or_default();
        let sample = Sample::take(payload, want, self.whole_left);
        if sample.is_large() {
            self.whole_left -= sample.len.min(self.whole_left);
        }
        self.note(arrival.log_time);
        self.batch.push(News::Message(number, arrival, sample));
    }

    fn note(&mut self, time: Timestamp) {
        let (first, last) = self.span.unwrap_or((time, time));
        self.span = Some((first, last.max(time)));
    }

    /// Whether a batch is due at `now`, which is monotonic.
    pub fn is_due(&self, now: Duration) -> bool {
        now >= self.next || self.batch.len() >= BATCH_MAX
    }

    /// The batch until `time`, if that is known: all messages before have come but those of the last half second.
    pub fn take(&mut self, time: Option<Timestamp>, now: Duration) -> Vec<News> {
        self.next = now.saturating_add(INTERVAL);
        self.whole_left = WHOLE_BYTES_MAX;
        if let Some(time) = time {
            self.note(time);
            self.batch.push(News::Time(time));
        }
        std::mem::take(&mut self.batch)
    }

    /// The first and the last time of the recording, in log time; `None` before it has begun.
    pub fn span(&self) -> Option<(Timestamp, Timestamp)> {
        self.span
    }
}

/// Whether a type begins with its header, as far as its text shows without being parsed.
fn begins_with_header(definition: &MessageDefinition) -> bool {
    let mut lines = definition.text.lines().map(str::trim);
    let first = lines.find(|line| !line.is_empty() && !line.starts_with('#'));
    let mut words = first.into_iter().flat_map(str::split_whitespace);
    let is_header = |name: &str| matches!(name, "std_msgs/Header" | "std_msgs/msg/Header");
    let is_named = words.next().is_some_and(is_header) && words.next() == Some("header");
    definition.encoding == DefinitionEncoding::Ros2Msg && is_named
}

/// What waits for the judge. From a message without room on, all are only counted until the judge has taken the others.
#[derive(Debug, Default)]
pub struct NewsQueue {
    news: Vec<News>,
    bytes: usize,
    missed: u64,
}

impl NewsQueue {
    /// Adds what comes next; true if the first message of several has no room.
    pub fn offer(&mut self, batch: Vec<News>) -> bool {
        let was_missing = self.missed > 0;
        for news in batch {
            let bytes = news.held_bytes();
            match news {
                News::Message(..) if self.missed > 0 || self.bytes + bytes > WAITING_BYTES_MAX => {
                    self.missed += 1
                }
                // Messages before it are missing.
                News::Time(_) if self.missed > 0 => {}
                news => {
                    self.bytes += bytes;
                    self.news.push(news);
                }
            }
        }
        self.missed > 0 && !was_missing
    }

    /// Takes everything.
    pub fn take(&mut self) -> Vec<News> {
        self.bytes = 0;
        let mut news = std::mem::take(&mut self.news);
        let missed = std::mem::take(&mut self.missed);
        if missed > 0 {
            news.push(News::Missed(missed));
        }
        news
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.news.is_empty() && self.missed == 0
    }
}
