//! Messages by the clock that a caller chooses: when they were received, when they were sent, or their `header.stamp`.

use super::{ChoiceError, Decoders, Fields};
use crate::reader::{BagMessage, MessageOrder, ReadError};
use bytes::Bytes;
use holdall_model::{
    dynamic::{ElementPlan, FieldPlan, Scalar, part::Part},
    interface::Arity,
    time::Timestamp,
    topic::TopicInfo,
};
use serde::{Deserialize, Serialize};
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap, HashMap, VecDeque},
    fmt,
    str::FromStr,
    sync::Arc,
};

/// Messages of a topic that wait for one with an earlier stamp.
const WINDOW_MESSAGES: usize = 64;
/// Bytes of them, of one topic and of all.
const WINDOW_BYTES: usize = 4 << 20;
const WINDOWS_BYTES: usize = 64 << 20;
/// Smaller payloads are copied, so that a waiting message does not keep a chunk of a file in memory.
const COPIED_BYTES: usize = 64 << 10;

/// The clock by which messages are ordered, bounded and compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum TimeBase {
    /// When they were received.
    #[default]
    #[serde(rename = "log_time")]
    LogTime,
    /// When they were sent.
    #[serde(rename = "publish_time")]
    PublishTime,
    /// The stamp in their header: when the data was measured.
    #[serde(rename = "header.stamp")]
    HeaderStamp,
}

impl TimeBase {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::LogTime, Self::PublishTime, Self::HeaderStamp];

    /// Its name in flags, mappings and Python.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::LogTime => "log_time",
            Self::PublishTime => "publish_time",
            Self::HeaderStamp => "header.stamp",
        }
    }

    /// The order in which a bag is read for it.
    pub(crate) const fn reader_order(self) -> MessageOrder {
        match self {
            Self::PublishTime => MessageOrder::Sent,
            Self::LogTime | Self::HeaderStamp => MessageOrder::Received,
        }
    }
}

impl fmt::Display for TimeBase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for TimeBase {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|base| base.as_str() == text);
        found.ok_or_else(|| format!("expected log_time, publish_time or header.stamp, found {text:?}"))
    }
}

/// Reads the `header.stamp` of the messages of a type.
#[derive(Clone, Debug)]
pub struct HeaderStamp {
    fields: Fields,
    header: usize,
    stamp: usize,
    seconds: usize,
    nanoseconds: usize,
}

impl HeaderStamp {
    /// `None` for a type without one.
    pub fn of(fields: &Fields) -> Option<Self> {
        let plan = fields.plan();
        let root = plan.root();
        let at = |fields: &[FieldPlan], name: &str| fields.iter().position(|field| field.name == name);
        let nested = |field: &FieldPlan| match (&field.element, field.arity) {
            (ElementPlan::Struct(index), Arity::One) => Some(*index),
            _ => None,
        };
        let header = at(&root.fields, "header")?;
        let of_header = plan.structure(nested(&root.fields[header])?);
        let stamp = at(&of_header.fields, "stamp")?;
        let of_stamp = plan.structure(nested(&of_header.fields[stamp])?);
        // Foxglove's schemas call them `nsec`.
        let nanoseconds = at(&of_stamp.fields, "nanosec").or_else(|| at(&of_stamp.fields, "nsec"))?;
        let seconds = at(&of_stamp.fields, "sec")?;
        Some(Self {
            fields: fields.clone(),
            header,
            stamp,
            seconds,
            nanoseconds,
        })
    }

    /// The stamp of a message, which must not be the zero that an unset one has.
    pub fn read(&self, payload: &[u8]) -> Result<Timestamp, String> {
        match self.nanos(payload)? {
            0 => Err("its header.stamp is 0: it was not set".to_owned()),
            nanos => Ok(Timestamp::from_nanos(nanos)),
        }
    }

    fn nanos(&self, payload: &[u8]) -> Result<i64, String> {
        let plan = self.fields.plan();
        let payload = &*self.fields.payload(payload).map_err(|error| error.to_string())?;
        let part = |place, index| {
            plan.part_of(payload, place, index)
                .map_err(|error| error.to_string())
        };
        let inner = |place, index| match part(place, index)? {
            Part::Struct(place) => Ok(place),
            _ => Err("its header is not a struct".to_owned()),
        };
        let root = plan.place(payload).map_err(|error| error.to_string())?;
        let stamp = inner(inner(root, self.header)?, self.stamp)?;
        let number = |index| match part(stamp, index)? {
            Part::Scalar(Scalar::I32(value)) => Ok(i64::from(value)),
            Part::Scalar(Scalar::U32(value)) => Ok(i64::from(value)),
            // JSON schemas have no shorter integers, and no integers without a value.
            Part::Scalar(Scalar::I64(value)) if i32::try_from(value).is_ok() => Ok(value),
            Part::Scalar(Scalar::F64(value)) if value.abs() < f64::from(i32::MAX) => Ok(value as i64),
            _ => Err("its header.stamp has other numbers than those of 32 bits".to_owned()),
        };
        Ok(number(self.seconds)? * 1_000_000_000 + number(self.nanoseconds)?)
    }
}

/// The header stamps of topics, by name and type.
#[derive(Clone, Debug, Default)]
pub(crate) struct HeaderStamps {
    by_topic: HashMap<(String, String), HeaderStamp>,
    /// By the address of the topic, which the entry keeps alive.
    known: HashMap<usize, (Arc<TopicInfo>, Option<HeaderStamp>)>,
}

impl HeaderStamps {
    /// Adds a topic; one clause when its messages have none.
    pub fn add(
        &mut self,
        topic: &TopicInfo,
        decoders: &mut Decoders,
    ) -> Result<Result<(), String>, ReadError> {
        let fields = match decoders.find(topic)?.fields() {
            Ok(fields) => fields,
            Err(reason) => return Ok(Err(reason)),
        };
        Ok(match HeaderStamp::of(&fields) {
            Some(stamp) => {
                let key = (topic.name.clone(), topic.type_name.clone());
                self.by_topic.insert(key, stamp);
                Ok(())
            }
            None => Err(format!("{} has no header.stamp", topic.type_name)),
        })
    }

    /// The header stamp of a message.
    pub fn read(&mut self, message: &BagMessage) -> Result<Timestamp, ChoiceError> {
        let topic = &message.topic;
        let (_, stamp) = self.known.entry(Arc::as_ptr(topic) as usize).or_insert_with(|| {
            let key = (topic.name.clone(), topic.type_name.clone());
            (Arc::clone(topic), self.by_topic.get(&key).cloned())
        });
        let read = match stamp {
            Some(stamp) => stamp.read(&message.payload),
            None => Err(format!("{} has no header.stamp", topic.type_name)),
        };
        read.map_err(|reason| ChoiceError::Stamp {
            topic: topic.name.clone(),
            log_time: message.log_time.as_nanos(),
            reason,
        })
    }
}

/// The result of reading a message that is selected.
pub(super) type Selected = Result<BagMessage, ChoiceError>;
/// Such messages one after another.
pub(super) type Stream = Box<dyn Iterator<Item = Selected> + Send>;

/// Messages by their header stamps: those of each topic in order, within the window.
pub(super) struct ByHeader<I> {
    messages: I,
    stamps: HeaderStamps,
    windows: BTreeMap<String, Window>,
    bytes: usize,
    count: u64,
    ready: VecDeque<Selected>,
    is_ended: bool,
}

/// The messages of a topic that wait.
#[derive(Default)]
struct Window {
    waiting: BinaryHeap<Reverse<Waiting>>,
    bytes: usize,
}

/// A message by its stamp, and by its number among those of the same stamp.
struct Waiting {
    key: (Timestamp, u64),
    message: BagMessage,
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl Eq for Waiting {}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Waiting {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key.cmp(&other.key)
    }
}

impl<I: Iterator<Item = Selected>> ByHeader<I> {
    /// Messages in the order in which they were received.
    pub fn new(messages: I, stamps: HeaderStamps) -> Self {
        Self {
            messages,
            stamps,
            windows: BTreeMap::new(),
            bytes: 0,
            count: 0,
            ready: VecDeque::new(),
            is_ended: false,
        }
    }

    fn take(&mut self, mut message: BagMessage) {
        match self.stamps.read(&message) {
            Ok(stamp) => message.stamp = stamp,
            Err(error) => return self.ready.push_back(Err(error)),
        }
        if message.payload.len() < COPIED_BYTES {
            message.payload = Bytes::copy_from_slice(&message.payload);
        }
        if !self.windows.contains_key(&message.topic.name) {
            self.windows.insert(message.topic.name.clone(), Window::default());
        }
        let Some(window) = self.windows.get_mut(&message.topic.name) else {
            return;
        };
        let bytes = message.payload.len();
        (window.bytes, self.bytes) = (window.bytes + bytes, self.bytes + bytes);
        self.count += 1;
        let key = (message.stamp, self.count);
        window.waiting.push(Reverse(Waiting { key, message }));
        while window.waiting.len() > WINDOW_MESSAGES
            || (window.waiting.len() > 1 && (window.bytes > WINDOW_BYTES || self.bytes > WINDOWS_BYTES))
        {
            let Some(first) = window.first() else { break };
            self.bytes -= first.payload.len();
            self.ready.push_back(Ok(first));
        }
    }
}

impl Window {
    fn first(&mut self) -> Option<BagMessage> {
        let Reverse(first) = self.waiting.pop()?;
        self.bytes -= first.message.payload.len();
        Some(first.message)
    }
}

impl<I: Iterator<Item = Selected>> Iterator for ByHeader<I> {
    type Item = Selected;

    fn next(&mut self) -> Option<Selected> {
        loop {
            if let Some(ready) = self.ready.pop_front() {
                return Some(ready);
            }
            if self.is_ended {
                let first = self.windows.values_mut().find_map(Window::first);
                return first.map(Ok);
            }
            match self.messages.next() {
                Some(Ok(message)) => self.take(message),
                Some(Err(error)) => return Some(Err(error)),
                None => self.is_ended = true,
            }
        }
    }
}

/// Several streams, each in order of its stamps, as one; equal stamps keep the order of the streams.
pub(super) struct Merged {
    streams: Vec<Stream>,
    /// The next message of each stream that has one, by stamp.
    heads: BinaryHeap<Reverse<(Timestamp, usize)>>,
    messages: Vec<Option<BagMessage>>,
    /// Streams whose next message was not read yet.
    unread: Vec<usize>,
}

impl Merged {
    pub fn new(streams: Vec<Stream>) -> Self {
        Self {
            messages: streams.iter().map(|_| None).collect(),
            unread: (0..streams.len()).rev().collect(),
            streams,
            heads: BinaryHeap::new(),
        }
    }
}

impl Iterator for Merged {
    type Item = Selected;

    fn next(&mut self) -> Option<Selected> {
        while let Some(stream) = self.unread.pop() {
            match self.streams[stream].next() {
                Some(Ok(message)) => {
                    self.heads.push(Reverse((message.stamp, stream)));
                    self.messages[stream] = Some(message);
                }
                Some(Err(error)) => {
                    self.unread.push(stream);
                    return Some(Err(error));
                }
                None => {}
            }
        }
        let Reverse((_, stream)) = self.heads.pop()?;
        self.unread.push(stream);
        self.messages[stream].take().map(Ok)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        BagSet, Writer,
        decode::{MessageChoice, Question},
    };
    use std::time::Duration;

    const START: i64 = 1_700_000_000_000_000_000;

    /// A `geometry_msgs/msg/PointStamped` of a time.
    fn point(nanos: i64, x: f64) -> Vec<u8> {
        let mut bytes = vec![0, 1, 0, 0];
        bytes.extend(i32::try_from(nanos / 1_000_000_000).unwrap().to_le_bytes());
        bytes.extend(u32::try_from(nanos % 1_000_000_000).unwrap().to_le_bytes());
        bytes.extend([1, 0, 0, 0, 0, 0, 0, 0]);
        for value in [x, 0.0, 0.0] {
            bytes.extend(value.to_le_bytes());
        }
        bytes
    }

    /// `/late` is received 100 ms after its stamps, `/now` at once, each 10 ms; `/none` has no header. One message of `/late` was overtaken, one
    /// of `/now` has no stamp.
    fn bag(folder: &std::path::Path) -> BagSet {
        let path = folder.join("lab");
        let mut writer = Writer::create(&path).unwrap();
        let late = writer
            .add_topic("/late", "geometry_msgs/msg/PointStamped")
            .unwrap();
        let now = writer
            .add_topic("/now", "geometry_msgs/msg/PointStamped")
            .unwrap();
        let none = writer.add_topic("/none", "std_msgs/msg/UInt8").unwrap();
        let at = |number: i64| START + number * 10_000_000;
        for number in 0..50 {
            let time = Timestamp::from_nanos(at(number));
            let taken = match number {
                20 => 21,
                21 => 20,
                other => other,
            };
            if number >= 10 {
                writer
                    .write(late, time, &point(at(taken - 10), taken as f64))
                    .unwrap();
            }
            let stamp = if number == 5 { 0 } else { at(number) };
            writer.write(now, time, &point(stamp, number as f64)).unwrap();
            writer.write(none, time, &[0, 1, 0, 0, 7]).unwrap();
        }
        writer.close().unwrap();
        BagSet::open(&[path]).unwrap()
    }

    fn choice() -> MessageChoice {
        MessageChoice {
            time: TimeBase::HeaderStamp,
            ..MessageChoice::default()
        }
    }

    fn stamps(stream: Stream) -> (Vec<(String, i64)>, Vec<String>) {
        let (mut found, mut errors) = (Vec::new(), Vec::new());
        for message in stream {
            match message {
                Ok(message) => found.push((
                    message.topic.name.clone(),
                    (message.stamp.as_nanos() - START) / 10_000_000,
                )),
                Err(error) => errors.push(error.to_string()),
            }
        }
        (found, errors)
    }

    #[test]
    fn messages_of_several_topics_are_merged_by_their_header_stamps() {
        let folder = tempfile::tempdir().unwrap();
        let bags = bag(folder.path());
        let mut decoders = Decoders::new(bags.clone());
        let (found, errors) = stamps(choice().messages(&bags, &mut decoders).unwrap());
        assert!(
            found.is_sorted_by_key(|(_, stamp)| *stamp) && found.len() == 89,
            "{found:?}"
        );
        assert_eq!(errors.len(), 1);
        assert!(
            errors[0].starts_with("/now, message of") && errors[0].contains("was not set"),
            "{errors:?}"
        );
        assert_eq!(
            decoders.take_notices(),
            ["/none: left out, since their messages have no header.stamp"]
        );
        let (each, _) = stamps(choice().messages_of_each(&bags, &mut decoders).unwrap());
        for topic in ["/late", "/now"] {
            let of_topic = |all: &[(String, i64)]| -> Vec<i64> {
                all.iter()
                    .filter(|(name, _)| name == topic)
                    .map(|(_, stamp)| *stamp)
                    .collect()
            };
            assert_eq!(of_topic(&each), of_topic(&found), "{topic}");
        }
    }

    #[test]
    fn bounds_and_conditions_are_by_header_stamps_too() {
        let folder = tempfile::tempdir().unwrap();
        let bags = bag(folder.path());
        let part = MessageChoice {
            topics: vec!["/late".to_owned()],
            start_offset: Duration::from_millis(100),
            duration: Some(Duration::from_millis(40)),
            questions: vec![Question {
                topic: "/late".to_owned(),
                expression: "point.x != 22".to_owned(),
            }],
            ..choice()
        };
        let (found, _) = stamps(part.messages(&bags, &mut Decoders::new(bags.clone())).unwrap());
        let found: Vec<i64> = found.into_iter().map(|(_, stamp)| stamp).collect();
        assert_eq!(found, [10, 11, 13, 14]);
    }

    #[test]
    fn a_named_topic_without_header_is_refused_unless_it_has_another_clock() {
        let folder = tempfile::tempdir().unwrap();
        let bags = bag(folder.path());
        let mut decoders = Decoders::new(bags.clone());
        let named = MessageChoice {
            topics: vec!["/none".to_owned(), "/late".to_owned()],
            ..choice()
        };
        let refusal = named.messages(&bags, &mut decoders).err().unwrap().to_string();
        assert_eq!(
            refusal,
            "/none: its messages cannot be ordered by header.stamp: std_msgs/msg/UInt8 has no header.stamp"
        );
        let mixed = MessageChoice {
            time_of: [("/none".to_owned(), TimeBase::LogTime)].into(),
            ..named
        };
        let (found, _) = stamps(mixed.messages(&bags, &mut decoders).unwrap());
        assert!(found.is_sorted_by_key(|(_, stamp)| *stamp));
        assert_eq!(found.iter().filter(|(name, _)| name == "/none").count(), 50);
    }
}
