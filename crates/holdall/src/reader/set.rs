//! Reads several bags as one: their topics together, their messages merged by time.

use super::{
    bag::{Bag, Ros1View},
    error::ReadError,
    file,
    merge::{Merge, OpenStream, Stream},
    publishers::PublisherChoice,
};
use crate::reader::MessageOrder;
use bytes::Bytes;
use holdall_model::{time::Timestamp, topic::TopicInfo};
use std::{
    collections::{BTreeSet, HashMap},
    path::Path,
    sync::Arc,
    time::Duration,
};

/// Largest difference between publish time and log time at which a message is found by its publish time and
/// ordered across files.
const SENT_SLACK: Duration = Duration::from_secs(10);

/// The messages to read, and their order.
///
/// ```
/// use holdall::{BagSet, MessageFilter, Timestamp};
/// use std::sync::Arc;
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("lab");
/// # let mut writer = holdall::Writer::create(&path)?;
/// # for name in ["/odom", "/tf"] {
/// #     let topic = writer.add_topic(name, "std_msgs/msg/UInt8")?;
/// #     writer.write(topic, holdall::Timestamp::from_nanos(5), &[0, 1, 0, 0, 7])?;
/// # }
/// # writer.close()?;
/// let filter = MessageFilter {
///     from: Some(Timestamp::from_nanos(5)),
///     topics: Some(Arc::new(["/odom".to_owned()].into())),
///     ..MessageFilter::default()
/// };
/// assert_eq!(BagSet::open(&[path])?.messages(&filter).count(), 1);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct MessageFilter {
    /// Excludes messages stamped earlier.
    pub from: Option<Timestamp>,
    /// Excludes messages stamped later.
    pub until: Option<Timestamp>,
    /// Only these topics; `None` for all.
    pub topics: Option<Arc<BTreeSet<String>>>,
    /// Only messages of these publishers; `None` for all.
    pub publishers: Option<Arc<PublisherChoice>>,
    /// The stamp that orders and bounds the messages.
    pub order: MessageOrder,
}

impl MessageFilter {
    /// True for a topic whose messages are read.
    pub fn takes(&self, topic: &str) -> bool {
        self.topics.as_ref().is_none_or(|topics| topics.contains(topic))
    }

    /// True for a channel of a storage file whose messages are read.
    pub(super) fn takes_channel(&self, topic: &TopicInfo) -> bool {
        let publishers = self.publishers.as_ref();
        self.takes(&topic.name)
            && publishers.is_none_or(|publishers| publishers.takes(topic.publisher.as_deref()))
    }

    /// The bounds of the log times of all selected messages.
    pub(super) fn log_times(&self) -> (Option<Timestamp>, Option<Timestamp>) {
        match self.order {
            MessageOrder::Received => (self.from, self.until),
            MessageOrder::Sent => (
                self.from.map(|from| before(from, SENT_SLACK)),
                self.until.map(|until| until.saturating_add(SENT_SLACK)),
            ),
        }
    }

    /// True for a stamp within the bounds.
    pub(super) fn is_in_range(&self, stamp: Timestamp) -> bool {
        self.from.is_none_or(|from| stamp >= from) && self.until.is_none_or(|until| stamp <= until)
    }
}

/// A message of a bag.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("lab");
/// # let mut writer = holdall::Writer::create(&path)?;
/// # for name in ["/odom", "/tf"] {
/// #     let topic = writer.add_topic(name, "std_msgs/msg/UInt8")?;
/// #     writer.write(topic, holdall::Timestamp::from_nanos(5), &[0, 1, 0, 0, 7])?;
/// # }
/// # writer.close()?;
/// for message in holdall::Bag::open(&path)?.messages() {
///     let message = message?;
///     assert_eq!(message.topic.type_name, "std_msgs/msg/UInt8");
///     // CDR: four bytes of encapsulation header, then the field.
///     assert_eq!(message.payload[4], 7);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BagMessage {
    /// Its topic, and its publisher if the bag stores it.
    pub topic: Arc<TopicInfo>,
    /// The stamp that orders it: log time or publish time, depending on the filter.
    pub stamp: Timestamp,
    /// Reception time.
    pub log_time: Timestamp,
    /// Send time; equal to `log_time` if the bag does not store it.
    pub publish_time: Timestamp,
    /// Low 32 bits of the publisher's sequence number, 0 if the bag does not store it.
    pub sequence: u32,
    /// The serialized bytes; they may keep a whole chunk of the file in memory.
    pub payload: Bytes,
}

/// Messages of one or several bags in time order; equal stamps keep the order of bags, files and writing.
pub type Messages = Box<dyn Iterator<Item = Result<BagMessage, ReadError>> + Send>;

/// Bags that are read together; clones share them.
///
/// ```
/// use holdall::{BagSet, MessageFilter};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("lab");
/// # let mut writer = holdall::Writer::create(&path)?;
/// # for name in ["/odom", "/tf"] {
/// #     let topic = writer.add_topic(name, "std_msgs/msg/UInt8")?;
/// #     writer.write(topic, holdall::Timestamp::from_nanos(5), &[0, 1, 0, 0, 7])?;
/// # }
/// # writer.close()?;
/// let bags = BagSet::open(&[&path, &path])?;
/// assert_eq!(bags.topics().len(), 2, "each topic once");
/// assert_eq!(bags.messages(&MessageFilter::default()).count(), 4);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct BagSet(Arc<[Bag]>);

impl BagSet {
    /// Opens all of `paths`.
    ///
    /// # Errors
    /// The first bag that cannot be opened.
    pub fn open<P: AsRef<Path>>(paths: &[P]) -> Result<Self, ReadError> {
        Self::open_with(paths, Ros1View::default())
    }

    /// As [`BagSet::open`], with ROS 1 messages shown as `view` selects.
    ///
    /// # Errors
    /// The first bag that cannot be opened.
    pub fn open_with<P: AsRef<Path>>(paths: &[P], view: Ros1View) -> Result<Self, ReadError> {
        paths
            .iter()
            .map(|path| Bag::open_with(path.as_ref(), view))
            .collect::<Result<Vec<_>, _>>()
            .map(Self::from)
    }

    /// The bags.
    pub fn bags(&self) -> &[Bag] {
        &self.0
    }

    /// All topics in the order of the bags; a topic of several bags with the same type is listed once, with
    /// all offers.
    pub fn topics(&self) -> Vec<TopicInfo> {
        let mut topics: Vec<TopicInfo> = Vec::new();
        let mut known: HashMap<(String, String), usize> = HashMap::new();
        let all = self
            .0
            .iter()
            .flat_map(|bag| &bag.metadata().topics_with_message_count);
        for topic in all.map(|topic| &topic.topic_metadata) {
            match known.get(&(topic.name.clone(), topic.type_name.clone())) {
                Some(&index) => {
                    let offers = topic.offered_qos_profiles.iter().copied();
                    topics[index].offered_qos_profiles.extend(offers);
                }
                None => {
                    known.insert((topic.name.clone(), topic.type_name.clone()), topics.len());
                    topics.push(topic.clone());
                }
            }
        }
        topics
    }

    /// First and last log time of all bags; `None` when none has a message.
    pub(crate) fn log_times(&self) -> Option<(Timestamp, Timestamp)> {
        let starts = self.0.iter().filter_map(|bag| bag.metadata().starting_time);
        let ends = self.0.iter().filter_map(|bag| bag.metadata().ending_time());
        starts.min().zip(ends.max())
    }

    /// Notices for the user about the state of the bags, one sentence each.
    pub fn notices(&self) -> Vec<String> {
        self.0
            .iter()
            .flat_map(|bag| bag.notices().iter().cloned())
            .collect()
    }

    /// Reads messages in time order. Files are opened when they are due, so memory does not grow with their
    /// number.
    ///
    /// In the order of publish times, messages of different files are ordered if less than ten seconds passed
    /// between sending and reception; a message that took longer is returned late.
    ///
    /// The iterator returns errors, and continues after them if it can.
    pub fn messages(&self, filter: &MessageFilter) -> Messages {
        let inputs = self.0.iter().flat_map(|bag| file_streams(bag, filter));
        Box::new(Merge::new(inputs).map(|item| item.map(|(_, message)| message)))
    }
}

impl From<Vec<Bag>> for BagSet {
    fn from(bags: Vec<Bag>) -> Self {
        Self(bags.into())
    }
}

/// One stream per storage file that may have messages that `filter` selects.
fn file_streams(
    bag: &Bag,
    filter: &MessageFilter,
) -> impl Iterator<Item = (Timestamp, OpenStream<BagMessage, ReadError>)> {
    let mut filter = filter.clone();
    let (start, end) = bag.bounds();
    filter.from = filter.from.max(start);
    filter.until = match (filter.until, end) {
        (Some(until), Some(end)) => Some(until.min(end)),
        (until, end) => until.or(end),
    };
    bag.files()
        .iter()
        .filter(|file| !file.empty)
        .cloned()
        .map(move |file| {
            let slack = if filter.order == MessageOrder::Sent {
                SENT_SLACK
            } else {
                Duration::ZERO
            };
            let earliest = file
                .earliest
                .map_or(Timestamp::from_nanos(i64::MIN), |time| before(time, slack));
            let earliest = filter.from.map_or(earliest, |from| from.max(earliest));
            let filter = filter.clone();
            let open: OpenStream<BagMessage, ReadError> = Box::new(move || {
                let messages = file::messages(&file, &filter)?;
                Ok(
                    Box::new(messages.map(|message| message.map(|message| (message.stamp, message))))
                        as Stream<BagMessage, ReadError>,
                )
            });
            (earliest, open)
        })
}

/// A time minus a span.
fn before(time: Timestamp, span: Duration) -> Timestamp {
    let nanos = i64::try_from(span.as_nanos()).unwrap_or(i64::MAX);
    Timestamp::from_nanos(time.as_nanos().saturating_sub(nanos))
}
