//! Turns a load into messages: topics, sequence numbers and payloads in order. Each can be computed again to
//! verify a file.

use crate::candidate::RawMessage;

use super::{content::Content, content::Corpus, mix::SizeMix, schedule};
use holdall_model::message::Loan;
use std::ops::Range;

/// Payloads start at multiples of this within their corpus: a cache line.
const PAYLOAD_ALIGNMENT: u64 = 64;

/// A load to offer.
#[derive(Clone, Debug, PartialEq)]
pub struct Load {
    /// Message sizes.
    pub mix: SizeMix,
    /// The content of payloads.
    pub content: Content,
    /// Payload bytes of all producers together; as many whole messages as fit are sent.
    pub total_bytes: u64,
    /// Threads that offer messages.
    pub producers: u32,
    /// Topics; each belongs to one producer and one size.
    pub topics: u32,
    /// Messages a second of each producer; as fast as possible when absent.
    pub rate_hz: Option<f64>,
    /// The same seed gives the same messages.
    pub seed: u64,
}

/// A load that cannot be offered.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum LoadError {
    /// No producer.
    #[error("at least one producer is needed")]
    NoProducer,
    /// Too few topics to give each producer one for each size.
    #[error("{producers} producers with {sizes} message sizes need at least {needed} topics, found {found}")]
    TooFewTopics {
        /// Producers of the load.
        producers: u32,
        /// Sizes of the load.
        sizes: usize,
        /// Their product.
        needed: u64,
        /// The number in the load.
        found: u32,
    },
    /// A rate that no schedule can have.
    #[error("the rate must be at least 0.001 Hz and finite, found {found}")]
    Rate {
        /// The rate in the load.
        found: f64,
    },
    /// A size beyond the payload that a producer keeps ready.
    #[error("messages of {found} bytes are larger than the limit of {limit} bytes")]
    TooLarge {
        /// The size in the load.
        found: usize,
        /// The largest size accepted.
        limit: usize,
    },
    /// Less than one message for each producer.
    #[error(
        "a total of {total_bytes} bytes is less than one message of {message_bytes} bytes for each of {producers} producers"
    )]
    TooLittle {
        /// Total size of the load.
        total_bytes: u64,
        /// Size of the first message.
        message_bytes: usize,
        /// Number of producers of the load.
        producers: u32,
    },
}

/// The largest message accepted, in bytes.
pub(crate) const MESSAGE_BYTES_MAX: usize = 256 << 20;

impl Load {
    /// The smallest number of topics that this load can have.
    pub fn topics_min(mix: &SizeMix, producers: u32) -> u32 {
        u32::try_from(mix.classes().len())
            .unwrap_or(u32::MAX)
            .saturating_mul(producers)
    }

    fn check(&self) -> Result<(), LoadError> {
        let sizes = self.mix.classes().len();
        let needed = u64::from(self.producers) * sizes as u64;
        let first = self
            .mix
            .order()
            .first()
            .map_or(0, |class| self.mix.classes()[usize::from(*class)].bytes);
        if self.producers == 0 {
            return Err(LoadError::NoProducer);
        }
        if u64::from(self.topics) < needed {
            return Err(LoadError::TooFewTopics {
                producers: self.producers,
                sizes,
                needed,
                found: self.topics,
            });
        }
        if let Some(found) = self
            .rate_hz
            .filter(|rate| schedule::rate_millihz(*rate).is_none())
        {
            return Err(LoadError::Rate { found });
        }
        if self.mix.largest_bytes() > MESSAGE_BYTES_MAX {
            return Err(LoadError::TooLarge {
                found: self.mix.largest_bytes(),
                limit: MESSAGE_BYTES_MAX,
            });
        }
        if self.total_bytes / u64::from(self.producers) < first as u64 {
            let (total_bytes, producers) = (self.total_bytes, self.producers);
            return Err(LoadError::TooLittle {
                total_bytes,
                message_bytes: first,
                producers,
            });
        }
        Ok(())
    }
}

/// A topic of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicPlan {
    /// Full ROS name.
    pub name: String,
    /// Index into the classes of the mix.
    pub class: usize,
    /// Its producer.
    pub producer: u32,
    /// Its position among the topics of the same producer and class.
    place: u64,
}

/// One message to be offered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessagePlan {
    /// Index into the topics of the plan.
    pub topic: u32,
    /// Its publisher's sequence number on this topic, from 1.
    pub sequence: u64,
    /// Index into the classes of the mix.
    pub class: usize,
    /// Position of its payload in the corpus of the class.
    pub payload: Range<usize>,
}

/// Payloads of one size are cut from this.
struct ClassCorpus {
    corpus: Corpus,
    message_bytes: usize,
    /// Positions at which a payload may start: 0..=mask, a power of two minus one.
    mask: u64,
}

impl ClassCorpus {
    fn new(content: Content, message_bytes: usize, seed: u64) -> Self {
        let window = corpus_window_bytes(message_bytes);
        let corpus = Corpus::new(content, window + message_bytes, seed);
        Self {
            corpus,
            message_bytes,
            mask: window as u64 - 1,
        }
    }

    #[inline]
    fn payload(&self, producer: u32, ordinal: u64) -> Range<usize> {
        let mixed = (ordinal ^ u64::from(producer) << 40).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        // Below the window, which is a usize.
        let start = (mixed >> 20 & self.mask & !(PAYLOAD_ALIGNMENT - 1)) as usize;
        start..start + self.message_bytes
    }
}

/// How far payload starts are spread. Small messages come from the processor's cache, as they do from a
/// socket; large ones from memory, as they do from receive buffers or shared memory.
const fn corpus_window_bytes(message_bytes: usize) -> usize {
    match message_bytes {
        0..4096 => 256 << 10,
        4096..65_536 => 4 << 20,
        _ => 64 << 20,
    }
}

/// A computed load: its topics, and the messages of each producer.
pub struct Plan {
    load: Load,
    topics: Vec<TopicPlan>,
    /// Messages of each producer.
    messages: Vec<u64>,
    message_count: u64,
    byte_count: u64,
    corpora: Vec<ClassCorpus>,
}

impl Plan {
    /// Computes a load and makes the payload bytes, which takes up to a second.
    ///
    /// # Errors
    /// When the load contradicts itself.
    pub fn new(load: Load) -> Result<Self, LoadError> {
        load.check()?;
        let classes = load.mix.classes();
        let topics = (0..load.topics)
            .map(|topic| topic_plan(topic, classes.len(), load.producers))
            .collect();
        let share = load.total_bytes / u64::from(load.producers);
        let (messages, bytes) = load.mix.fill(share);
        let corpora = classes
            .iter()
            .zip(load.seed..)
            .map(|(class, seed)| ClassCorpus::new(load.content, class.bytes, seed))
            .collect();
        Ok(Self {
            topics,
            messages: vec![messages; load.producers as usize],
            message_count: messages * u64::from(load.producers),
            byte_count: bytes * u64::from(load.producers),
            corpora,
            load,
        })
    }

    /// The load that it was computed from.
    pub fn load(&self) -> &Load {
        &self.load
    }

    /// Its topics, by index.
    pub fn topics(&self) -> &[TopicPlan] {
        &self.topics
    }

    /// Messages of all producers.
    pub fn message_count(&self) -> u64 {
        self.message_count
    }

    /// Payload bytes of all producers.
    pub fn byte_count(&self) -> u64 {
        self.byte_count
    }

    /// Size of the payload bytes in memory.
    pub(crate) fn corpus_bytes(&self) -> u64 {
        self.corpora
            .iter()
            .map(|class| class.corpus.bytes().len() as u64)
            .sum()
    }

    /// Bytes that all producers offer each second when the load is paced.
    pub fn offered_bytes_per_s(&self) -> Option<f64> {
        self.load
            .rate_hz
            .map(|rate| rate * f64::from(self.load.producers) * self.load.mix.mean_bytes())
    }

    /// The messages of one producer in order.
    pub fn stream(&self, producer: u32) -> ProducerStream<'_> {
        let mut classes: Vec<ClassStream> = Vec::new();
        for class in 0..self.corpora.len() {
            let own = |topic: &&(u32, &TopicPlan)| topic.1.class == class && topic.1.producer == producer;
            let topics = (0_u32..)
                .zip(&self.topics)
                .filter(|topic| own(&topic))
                .map(|(index, _)| index)
                .collect();
            classes.push(ClassStream {
                topics,
                cursor: 0,
                sequence: 1,
                ordinal: 0,
            });
        }
        let left = self.messages.get(producer as usize).copied().unwrap_or(0);
        ProducerStream {
            plan: self,
            producer,
            order_at: 0,
            left,
            classes,
        }
    }

    /// The first producer's messages in the form that a storage receives, stamped at equal distances after
    /// `begin_nanos`.
    pub(crate) fn raw_messages(
        &self,
        begin_nanos: u64,
        period_nanos: u64,
    ) -> impl Iterator<Item = RawMessage<'_>> {
        self.stream(0).zip(1..).map(move |(message, number)| RawMessage {
            topic: message.topic,
            sequence: message.sequence,
            log_time_nanos: begin_nanos + number * period_nanos,
            payload: self.payload(&message),
        })
    }

    /// The bytes of a message.
    #[inline]
    pub fn payload(&self, message: &MessagePlan) -> &[u8] {
        &self.corpora[message.class].corpus.bytes()[message.payload.clone()]
    }

    /// The bytes of a message as a loan that outlives the plan's borrow.
    pub fn loan(&self, message: &MessagePlan, fragment_bytes: usize) -> Box<CorpusLoan> {
        let corpus = self.corpora[message.class].corpus.clone();
        Box::new(CorpusLoan {
            corpus,
            range: message.payload.clone(),
            fragment_bytes: fragment_bytes.max(1),
        })
    }

    /// The content of message `sequence` (from 1) of a topic; `None` when the topic has no such message.
    pub(crate) fn expected_payload(&self, topic: u32, sequence: u64) -> Option<&[u8]> {
        let plan = self.topics.get(topic as usize)?;
        let class = self.corpora.get(plan.class)?;
        let siblings = self.sibling_count(plan);
        let ordinal = sequence
            .checked_sub(1)?
            .checked_mul(siblings)?
            .checked_add(plan.place)?;
        Some(&class.corpus.bytes()[class.payload(plan.producer, ordinal)])
    }

    /// Number of topics of the same producer and class, counted without a loop: topic numbers run through
    /// classes, then producers.
    fn sibling_count(&self, topic: &TopicPlan) -> u64 {
        let stride = self.corpora.len() as u64 * u64::from(self.load.producers);
        let first = topic.class as u64 + self.corpora.len() as u64 * u64::from(topic.producer);
        (u64::from(self.load.topics) - first).div_ceil(stride)
    }
}

fn topic_plan(topic: u32, classes: usize, producers: u32) -> TopicPlan {
    let class = topic as usize % classes;
    let round = topic as usize / classes;
    TopicPlan {
        name: format!("/bench/topic_{topic}"),
        class,
        // Below `producers`, which is a u32.
        producer: (round % producers as usize) as u32,
        place: (round / producers as usize) as u64,
    }
}

/// Position of a producer among the messages of one size.
struct ClassStream {
    topics: Vec<u32>,
    cursor: usize,
    sequence: u64,
    ordinal: u64,
}

/// The messages of one producer in order. A message costs a few nanoseconds, so that the recorder is measured
/// and not the generator.
pub struct ProducerStream<'a> {
    plan: &'a Plan,
    producer: u32,
    order_at: usize,
    left: u64,
    classes: Vec<ClassStream>,
}

impl Iterator for ProducerStream<'_> {
    type Item = MessagePlan;

    #[inline]
    fn next(&mut self) -> Option<MessagePlan> {
        self.left = self.left.checked_sub(1)?;
        let order = self.plan.load.mix.order();
        let class_index = usize::from(order[self.order_at]);
        self.order_at = if self.order_at + 1 == order.len() {
            0
        } else {
            self.order_at + 1
        };
        let class = &mut self.classes[class_index];
        let message = MessagePlan {
            topic: class.topics[class.cursor],
            sequence: class.sequence,
            class: class_index,
            payload: self.plan.corpora[class_index].payload(self.producer, class.ordinal),
        };
        class.ordinal += 1;
        class.cursor += 1;
        if class.cursor == class.topics.len() {
            class.cursor = 0;
            class.sequence += 1;
        }
        Some(message)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = usize::try_from(self.left).unwrap_or(usize::MAX);
        (left, Some(left))
    }
}

/// A payload that stays in the generator's memory until it is stored, as in a transport's receive buffers.
pub struct CorpusLoan {
    corpus: Corpus,
    range: Range<usize>,
    fragment_bytes: usize,
}

impl Loan for CorpusLoan {
    fn len(&self) -> usize {
        self.range.len()
    }

    /// Counted as if each loan had separate memory, as in a transport.
    fn pinned_bytes(&self) -> usize {
        self.range.len()
    }

    fn for_each_slice(&self, visit: &mut dyn FnMut(&[u8])) {
        self.corpus.bytes()[self.range.clone()]
            .chunks(self.fragment_bytes)
            .for_each(visit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    fn load(mix: SizeMix, producers: u32, topics: u32, total_bytes: u64) -> Load {
        Load {
            mix,
            content: Content::Entropy(8.0),
            total_bytes,
            producers,
            topics,
            rate_hz: None,
            seed: 3,
        }
    }

    /// Every message can be computed again from topic and sequence number, sequences have no gap, and the
    /// totals are kept.
    fn check_plan(load: Load) {
        let plan = Plan::new(load).unwrap();
        let (mut messages, mut bytes) = (0, 0);
        let mut last_sequence: HashMap<u32, u64> = HashMap::new();
        for producer in 0..plan.load().producers {
            for message in plan.stream(producer) {
                assert_eq!(plan.topics()[message.topic as usize].producer, producer);
                let expected = plan.expected_payload(message.topic, message.sequence).unwrap();
                assert!(std::ptr::eq(plan.payload(&message), expected), "{message:?}");
                let before = last_sequence.insert(message.topic, message.sequence).unwrap_or(0);
                assert_eq!(message.sequence, before + 1);
                messages += 1;
                bytes += expected.len() as u64;
            }
        }
        assert_eq!((messages, bytes), (plan.message_count(), plan.byte_count()));
        assert_eq!(
            last_sequence.len(),
            plan.topics().len(),
            "every topic has messages"
        );
    }

    #[test]
    fn messages_can_be_computed_from_topic_and_sequence() {
        check_plan(load(SizeMix::single(100), 1, 1, 100_000));
        check_plan(load(SizeMix::single(100), 3, 10, 100_000));
        check_plan(load(SizeMix::single(70_000), 2, 5, 1_000_000));
        check_plan(load(SizeMix::mixed(), 2, 9, 30_000_000));
    }

    #[test]
    fn contradictions_are_refused() {
        let refused = |load: Load| Plan::new(load).err().unwrap();
        assert_eq!(refused(load(SizeMix::single(1), 0, 1, 10)), LoadError::NoProducer);
        assert!(matches!(
            refused(load(SizeMix::mixed(), 2, 5, 1 << 30)),
            LoadError::TooFewTopics { needed: 6, .. }
        ));
        assert!(matches!(
            refused(load(SizeMix::single(1000), 2, 2, 1500)),
            LoadError::TooLittle { .. }
        ));
        let unpaced = Load {
            rate_hz: Some(0.0),
            ..load(SizeMix::single(1), 1, 1, 10)
        };
        assert_eq!(refused(unpaced), LoadError::Rate { found: 0.0 });
        let huge = load(SizeMix::single(MESSAGE_BYTES_MAX + 1), 1, 1, 1 << 40);
        assert!(matches!(refused(huge), LoadError::TooLarge { .. }));
    }

    #[test]
    fn a_loan_shows_the_payload_in_fragments() {
        let plan = Plan::new(load(SizeMix::single(100_000), 1, 1, 1_000_000)).unwrap();
        let message = plan.stream(0).nth(3).unwrap();
        let loan = plan.loan(&message, 1344);
        let (mut seen, mut slices) = (Vec::new(), 0);
        loan.for_each_slice(&mut |slice| {
            seen.extend_from_slice(slice);
            slices += 1;
        });
        assert_eq!(seen, plan.payload(&message));
        assert_eq!((slices, loan.pinned_bytes()), (75, 100_000));
    }

    #[test]
    fn a_paced_load_has_a_rate() {
        let camera = Load {
            rate_hz: Some(30.0),
            ..load(SizeMix::single(6_220_800), 8, 8, 1 << 30)
        };
        assert_eq!(
            Plan::new(camera).unwrap().offered_bytes_per_s(),
            Some(1_492_992_000.0)
        );
    }
}
