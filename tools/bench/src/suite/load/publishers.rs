//! The publishers of a producer file with the bytes that they send.

use super::{
    NODE,
    frame::{Frame, FrameError},
};
use crate::{
    suite::config::{ProducerConfig, PublisherGroup},
    workload::{Content, Corpus},
};
use holdall_model::{
    message::Loan,
    topic::{MessageDefinition, TopicInfo},
};
use holdall_storage::writer::ChannelInfo;
use std::{ops::Range, sync::Arc};

/// Large payloads are cut from this many bytes, more than processors cache: a camera's frames are not in the
/// cache either.
const COLD_WINDOW_BYTES: usize = 64 << 20;

/// Small payloads stay in the cache, like those that come from a socket.
const HOT_WINDOW_BYTES: usize = 256 << 10;

/// Messages below this are encoded ahead of time.
const WHOLE_BYTES_MAX: usize = 64 << 10;

/// Bytes of those messages: they stay in a processor's cache.
const WHOLE_WINDOW_BYTES: usize = 512 << 10;

/// Fewest and most of those messages.
const WHOLE_COUNT_MIN: usize = 16;
const WHOLE_COUNT_MAX: usize = 1024;

/// Payloads start at multiples of a cache line.
const ALIGNMENT: usize = 64;

/// One publisher, with a separate topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Publisher {
    /// Full ROS name.
    pub topic: String,
    /// Index of its group in [`Publishers::groups`].
    pub group: usize,
    /// Its index within the group, from 0.
    pub place: u32,
}

/// The common properties of all publishers of a group.
pub struct Group {
    /// The group as configured.
    pub config: PublisherGroup,
    /// Bytes around the bulk.
    pub frame: Frame,
    /// The type's definition as bags store it.
    pub definition: MessageDefinition,
    head: Arc<[u8]>,
    tail: Arc<[u8]>,
    corpus: Corpus,
    /// Number of positions at which a bulk may start: a power of two.
    window_bytes: usize,
    /// Small messages in one piece, one after the other, so that sending one costs no copy; empty for large
    /// ones.
    whole: Arc<[u8]>,
}

/// All publishers of a case.
pub struct Publishers {
    /// One for each topic.
    pub publishers: Vec<Publisher>,
    /// Their groups.
    pub groups: Vec<Group>,
}

/// The channels of all topics that a load is published on, group by group.
///
/// # Errors
/// Messages that cannot be made.
pub(crate) fn channels(producers: &ProducerConfig) -> Result<Vec<ChannelInfo>, FrameError> {
    let mut channels = Vec::new();
    for group in &producers.groups {
        let definition = Frame::new(&group.msg_type, 0)?.definition.message_definition();
        channels.extend((1..=group.publishers_count).map(|place| ChannelInfo {
            topic: TopicInfo {
                name: format!("{NODE}/{}_{place}", group.topic_root),
                type_name: group.msg_type.clone(),
                serialization_format: "cdr".to_owned(),
                offered_qos_profiles: vec![group.qos],
                type_description_hash: definition.type_description_hash.clone(),
                ..TopicInfo::default()
            },
            definition: definition.clone(),
        }));
    }
    Ok(channels)
}

impl Publishers {
    /// Computes the publishers of a producer file and makes the payload bytes, which takes up to a second.
    ///
    /// # Errors
    /// A message type that cannot be made.
    pub fn new(config: &ProducerConfig, seed: u64) -> Result<Self, FrameError> {
        let largest_bytes = |content| {
            let sizes = config.groups.iter().filter(|group| group.content == content);
            sizes.map(|group| group.msg_size_bytes).max().unwrap_or(0)
        };
        let mut corpora: Vec<(Content, Corpus)> = Vec::new();
        let mut groups = Vec::new();
        for group in &config.groups {
            let corpus = match corpora.iter().find(|(content, _)| *content == group.content) {
                Some((_, corpus)) => corpus.clone(),
                None => {
                    let largest = largest_bytes(group.content);
                    let corpus = Corpus::new(group.content, window_bytes(largest) + largest, seed);
                    corpora.push((group.content, corpus.clone()));
                    corpus
                }
            };
            let frame = Frame::new(&group.msg_type, group.msg_size_bytes)?;
            let mut made = Group {
                whole: Arc::new([]),
                head: frame.head.clone().into(),
                tail: frame.tail.clone().into(),
                definition: frame.definition.message_definition(),
                window_bytes: window_bytes(frame.bulk_bytes),
                config: group.clone(),
                frame,
                corpus,
            };
            made.encode_ahead();
            groups.push(made);
        }
        let publishers = config
            .groups
            .iter()
            .enumerate()
            .flat_map(|(group, config)| {
                (0..config.publishers_count).map(move |place| Publisher {
                    topic: format!("{NODE}/{}_{}", config.topic_root, place + 1),
                    group,
                    place,
                })
            })
            .collect();
        Ok(Self { publishers, groups })
    }

    /// The group of a publisher.
    pub(crate) fn group_of(&self, publisher: usize) -> &Group {
        &self.groups[self.publishers[publisher].group]
    }

    /// Messages of all publishers.
    pub fn messages(&self) -> u64 {
        self.groups.iter().map(|group| group.config.messages()).sum()
    }

    /// Bytes of all messages, with their frames.
    pub fn bytes(&self) -> u64 {
        let of = |group: &Group| group.config.messages() * group.frame.message_bytes() as u64;
        self.groups.iter().map(of).sum()
    }

    /// Size of the payload bytes in memory.
    pub(crate) fn corpus_bytes(&self) -> u64 {
        let mut seen: Vec<(Content, u64)> = Vec::new();
        for group in &self.groups {
            if !seen.iter().any(|(content, _)| *content == group.config.content) {
                seen.push((group.config.content, group.corpus.bytes().len() as u64));
            }
        }
        let whole: usize = self.groups.iter().map(|group| group.whole.len()).sum();
        seen.iter().map(|(_, bytes)| bytes).sum::<u64>() + whole as u64
    }
}

/// Windows are powers of two, so that a position in them is one mask operation.
const fn window_bytes(bulk_bytes: usize) -> usize {
    if bulk_bytes < 64 << 10 {
        HOT_WINDOW_BYTES
    } else {
        COLD_WINDOW_BYTES
    }
}

impl Group {
    fn bulk(&self, place: u32, index: u64) -> Range<usize> {
        let mixed = (index ^ u64::from(place) << 40).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        // Below the window, which is a usize.
        let start = (mixed >> 20) as usize & (self.window_bytes - 1) & !(ALIGNMENT - 1);
        start..start + self.frame.bulk_bytes
    }

    /// Encodes small messages ahead of time.
    fn encode_ahead(&mut self) {
        let message_bytes = self.frame.message_bytes();
        if message_bytes == 0 || message_bytes >= WHOLE_BYTES_MAX {
            return;
        }
        let count = (WHOLE_WINDOW_BYTES / message_bytes).clamp(WHOLE_COUNT_MIN, WHOLE_COUNT_MAX);
        let (mut whole, mut one) = (Vec::with_capacity(count * message_bytes), Vec::new());
        for index in 0..count {
            self.assemble(0, index as u64, &mut one);
            whole.extend_from_slice(&one);
        }
        self.whole = whole.into();
    }

    /// Message `index` (from 0) of publisher `place` in one piece, if it is small enough to be encoded ahead.
    pub fn whole(&self, place: u32, index: u64) -> Option<&[u8]> {
        let message_bytes = self.frame.message_bytes();
        let count = self
            .whole
            .len()
            .checked_div(message_bytes)
            .filter(|count| *count > 0)?;
        // Consecutive messages, and those of neighbouring publishers, differ. Below `count`, which is a
        // usize.
        let which = (index.wrapping_mul(31).wrapping_add(u64::from(place)) % count as u64) as usize;
        self.whole.get(which * message_bytes..(which + 1) * message_bytes)
    }

    /// Writes message `index` (from 0) of publisher `place` of this group into `out`, replacing its content.
    pub(crate) fn assemble(&self, place: u32, index: u64, out: &mut Vec<u8>) {
        out.clear();
        out.extend_from_slice(&self.head);
        out.extend_from_slice(&self.corpus.bytes()[self.bulk(place, index)]);
        out.extend_from_slice(&self.tail);
    }

    /// The same message as a loan, without copying it.
    pub fn loan(&self, place: u32, index: u64) -> Box<FramedLoan> {
        Box::new(FramedLoan {
            head: Arc::clone(&self.head),
            tail: Arc::clone(&self.tail),
            corpus: self.corpus.clone(),
            bulk: self.bulk(place, index),
        })
    }
}

/// A message in the generator's memory, as in a transport's receive buffers.
pub struct FramedLoan {
    head: Arc<[u8]>,
    tail: Arc<[u8]>,
    corpus: Corpus,
    bulk: Range<usize>,
}

impl Loan for FramedLoan {
    fn len(&self) -> usize {
        self.head.len() + self.bulk.len() + self.tail.len()
    }

    /// Counted as if each message had separate memory, as in a transport.
    fn pinned_bytes(&self) -> usize {
        self.len()
    }

    fn for_each_slice(&self, visit: &mut dyn FnMut(&[u8])) {
        visit(&self.head);
        visit(&self.corpus.bytes()[self.bulk.clone()]);
        if !self.tail.is_empty() {
            visit(&self.tail);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(size: usize, count: u32) -> ProducerConfig {
        let text = format!(
            "rosbag2_performance_benchmarking_node: {{ros__parameters: {{publishers: {{publisher_groups: [g], g: {{\
             publishers_count: {count}, topic_root: cam, msg_size_bytes: {size}, msg_count_each: 5, rate_hz: 10}}}}}}}}"
        );
        ProducerConfig::parse(&text).unwrap()
    }

    #[test]
    fn topics_are_numbered_from_one_below_the_node() {
        let publishers = Publishers::new(&config(100, 3), 1).unwrap();
        let names: Vec<_> = publishers
            .publishers
            .iter()
            .map(|one| one.topic.as_str())
            .collect();
        assert_eq!(names[0], "/rosbag2_performance_benchmarking_node/cam_1");
        assert_eq!(names[2], "/rosbag2_performance_benchmarking_node/cam_3");
        assert_eq!((publishers.messages(), publishers.bytes()), (15, 15 * 108));
    }

    #[test]
    fn a_loan_holds_the_bytes_that_are_assembled() {
        let publishers = Publishers::new(&config(200_001, 2), 7).unwrap();
        let group = &publishers.groups[0];
        let (mut whole, mut other) = (Vec::new(), Vec::new());
        group.assemble(1, 3, &mut whole);
        let mut lent = Vec::new();
        let loan = group.loan(1, 3);
        loan.for_each_slice(&mut |slice| lent.extend_from_slice(slice));
        assert_eq!((loan.len(), &lent), (whole.len(), &whole));
        group.assemble(1, 4, &mut other);
        assert_ne!(whole, other);
        assert!(group.whole(1, 3).is_none());
    }

    #[test]
    fn small_messages_are_encoded_in_one_piece() {
        let publishers = Publishers::new(&config(1000, 2), 7).unwrap();
        let group = &publishers.groups[0];
        let mut first = Vec::new();
        group.assemble(0, 0, &mut first);
        assert_eq!(group.whole(0, 0), Some(first.as_slice()));
        assert_ne!(group.whole(0, 1), group.whole(0, 0));
        assert_ne!(group.whole(1, 0), group.whole(0, 0));
        assert!((0..5000).all(|index| group.whole(1, index).is_some_and(|one| one.len() == 1008)));
    }
}
