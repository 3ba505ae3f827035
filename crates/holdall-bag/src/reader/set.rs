//! Reads several bags as one: their topics together, their messages merged by time.

use super::{
    MessageOrder,
    bag::Bag,
    bag_file::BagFile,
    error::ReadError,
    merge::{Merge, OpenStream, Stream},
    message::{self, BagMessage, MessageFilter, Messages, SENT_SLACK, before},
    repeated::hide_copies,
    ros1::Ros1View,
};
use crate::definitions::DefinitionFolders;
use holdall_model::{time::Timestamp, topic::TopicInfo};
use std::{collections::HashMap, path::Path, sync::Arc, time::Duration};

impl Bag {
    /// All messages in the order of their log times. For some topics, a range of time or several bags see [`BagSet`].
    pub fn messages(&self) -> Messages {
        BagSet::from(vec![self.clone()]).messages(&MessageFilter::default())
    }

    /// The topics, with all channels of a topic as one.
    pub fn topics(&self) -> Vec<TopicInfo> {
        BagSet::from(vec![self.clone()]).topics()
    }
}

/// Called with a bag's number and a storage file that begins to be read.
pub type FileHook = Arc<dyn Fn(usize, &Path) + Send + Sync>;

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

    /// The same bags, whose missing definitions are searched in these folders.
    #[must_use]
    pub fn with_definitions(&self, folders: &Arc<DefinitionFolders>) -> Self {
        let bags = self.0.iter().cloned();
        Self(
            bags.map(|bag| bag.with_definitions(Arc::clone(folders)))
                .collect(),
        )
    }

    /// The bags.
    pub fn bags(&self) -> &[Bag] {
        &self.0
    }

    /// Bags without some of their files, whose repeated messages were hidden before.
    pub(super) fn of_parts(bags: Vec<Bag>) -> Self {
        Self(bags.into())
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

    /// First and last log time of all bags; `None` if none has a message.
    pub fn log_times(&self) -> Option<(Timestamp, Timestamp)> {
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
    /// number. Where the clock jumped back while a bag was recorded, its messages come in the order in which they were recorded.
    ///
    /// In the order of publish times, messages of different files are ordered if less than ten seconds passed
    /// between sending and reception; a message that took longer is returned late.
    ///
    /// The iterator returns errors, and continues after them if it can.
    pub fn messages(&self, filter: &MessageFilter) -> Messages {
        let ignored: FileHook = Arc::new(|_, _| {});
        self.messages_noting_files(filter, &ignored)
    }

    /// As [`BagSet::messages`]; calls `opened` with a bag's number and a file when that file begins to be read.
    pub fn messages_noting_files(&self, filter: &MessageFilter, opened: &FileHook) -> Messages {
        let bags = self.0.iter().enumerate();
        let inputs = bags.flat_map(|(number, bag)| bag_streams(number, bag, filter, opened));
        Box::new(Merge::new(inputs).map(|item| item.map(|(_, message)| message)))
    }
}

impl From<Vec<Bag>> for BagSet {
    fn from(mut bags: Vec<Bag>) -> Self {
        if bags.len() > 1 {
            hide_copies(&mut bags);
        }
        Self(bags.into())
    }
}

type MessageStream = (Timestamp, OpenStream<BagMessage, ReadError>);

/// The streams of a bag: its files, or where the clock jumped back one stream, of one run after the other.
fn bag_streams(number: usize, bag: &Bag, filter: &MessageFilter, opened: &FileHook) -> Vec<MessageStream> {
    let runs = bag.runs();
    if runs.len() < 2 {
        return file_streams(number, bag, bag.files(), filter, opened).collect();
    }
    let mut of_runs = runs
        .into_iter()
        .map(|files| file_streams(number, bag, files, filter, opened).collect::<Vec<_>>());
    let first = of_runs.next().unwrap_or_default();
    let earliest = first.iter().map(|(earliest, _)| *earliest).min();
    let of_runs: Vec<Vec<MessageStream>> = std::iter::once(first).chain(of_runs).collect();
    let open: OpenStream<BagMessage, ReadError> =
        Box::new(|| Ok(Box::new(of_runs.into_iter().flat_map(Merge::new)) as Stream<BagMessage, ReadError>));
    vec![(earliest.unwrap_or(Timestamp::from_nanos(i64::MIN)), open)]
}

/// One stream per storage file of `files` that may have messages that `filter` selects.
fn file_streams<'f>(
    number: usize,
    bag: &Bag,
    files: impl IntoIterator<Item = &'f BagFile>,
    filter: &MessageFilter,
    opened: &FileHook,
) -> impl Iterator<Item = MessageStream> {
    let mut filter = filter.clone();
    let opened = Arc::clone(opened);
    let (start, end) = bag.bounds();
    filter.from = filter.from.max(start);
    filter.until = match (filter.until, end) {
        (Some(until), Some(end)) => Some(until.min(end)),
        (until, end) => until.or(end),
    };
    files
        .into_iter()
        .filter(|file| !file.empty)
        .cloned()
        .collect::<Vec<_>>()
        .into_iter()
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
            let (filter, opened) = (filter.clone(), Arc::clone(&opened));
            let open: OpenStream<BagMessage, ReadError> = Box::new(move || {
                opened(number, &file.path);
                let messages = message::messages(&file, &filter)?;
                Ok(
                    Box::new(messages.map(|message| message.map(|message| (message.stamp, message))))
                        as Stream<BagMessage, ReadError>,
                )
            });
            (earliest, open)
        })
}
