//! One message of a bag, which ones are read and in which order, and reading those of one file.

use super::{MessageOrder, bag_file::BagFile, error::ReadError};
use bytes::Bytes;
use holdall_model::{
    time::Timestamp,
    topic::{PublisherInfo, TopicInfo},
};
use holdall_storage::{
    reader::{ReadMessage, ReadOrder, ReadQuery},
    writer::ChannelIndex,
};
use std::{collections::BTreeSet, sync::Arc, time::Duration};

/// Largest difference between publish time and log time at which a message is found by its publish time and
/// ordered across files.
pub(super) const SENT_SLACK: Duration = Duration::from_secs(10);

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
    /// Compares what has a checksum with it, also where only a few messages are wanted: nothing that is damaged is returned.
    pub verified: bool,
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

/// A selection of publishers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PublisherChoice {
    pub(super) gids: BTreeSet<String>,
    pub(super) topics: BTreeSet<String>,
}

impl PublisherChoice {
    /// One publisher of a topic, by its identifier.
    pub fn one(topic: &str, gid: &str) -> Self {
        Self {
            gids: [gid.to_owned()].into(),
            topics: [topic.to_owned()].into(),
        }
    }

    /// Whether the messages of a channel with this publisher are selected.
    pub fn takes(&self, publisher: Option<&PublisherInfo>) -> bool {
        publisher.is_some_and(|publisher| self.gids.contains(&publisher.gid))
    }

    /// Whether a topic has a selected publisher.
    pub fn takes_topic(&self, topic: &str) -> bool {
        self.topics.contains(topic)
    }
}

/// The messages of one file that `filter` selects, in its order.
pub(super) fn messages(
    file: &BagFile,
    filter: &MessageFilter,
) -> Result<impl Iterator<Item = Result<BagMessage, ReadError>> + Send + use<>, ReadError> {
    let reader = file.open()?;
    let channels = &reader.outline().channels;
    let topics: Vec<Arc<TopicInfo>> = channels
        .iter()
        .map(|channel| Arc::new(channel.info.topic.clone()))
        .collect();
    let is_choice = filter.topics.is_some() || filter.publishers.is_some();
    let taken = is_choice.then(|| {
        let indexes = (0..).map(ChannelIndex).zip(&topics);
        indexes
            .filter(|(_, topic)| filter.takes_channel(topic))
            .map(|(index, _)| index)
            .collect()
    });
    let (start, end) = filter.log_times();
    let order = match filter.order {
        MessageOrder::Received => ReadOrder::LogTime,
        MessageOrder::Sent => ReadOrder::PublishTime,
    };
    let messages = reader.messages(&ReadQuery {
        channels: taken,
        start,
        end,
        order,
        verified: filter.verified,
    })?;
    let filter = filter.clone();
    let converted = messages.filter_map(move |message| match message {
        Ok(message) => bag_message(message, &topics, &filter).map(Ok),
        Err(error) => Some(Err(ReadError::Storage(error))),
    });
    Ok(converted)
}

/// `None` for a message outside the filter's bounds.
fn bag_message(
    message: ReadMessage,
    topics: &[Arc<TopicInfo>],
    filter: &MessageFilter,
) -> Option<BagMessage> {
    let stamp = match filter.order {
        MessageOrder::Received => message.log_time,
        MessageOrder::Sent => message.publish_time,
    };
    let topic = Arc::clone(topics.get(message.channel.0 as usize)?);
    filter.is_in_range(stamp).then_some(BagMessage {
        topic,
        stamp,
        log_time: message.log_time,
        publish_time: message.publish_time,
        sequence: message.sequence,
        payload: message.payload,
    })
}

/// A time minus a span.
pub(super) fn before(time: Timestamp, span: Duration) -> Timestamp {
    let nanos = i64::try_from(span.as_nanos()).unwrap_or(i64::MAX);
    Timestamp::from_nanos(time.as_nanos().saturating_sub(nanos))
}
