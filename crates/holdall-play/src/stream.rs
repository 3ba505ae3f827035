//! Reads the played messages from the bags: the messages of a range, after the latched state from before it.

use super::{
    error::PlayError,
    files::FileLog,
    first_form::{FirstForms, restored_alone},
    options::PlayOptions,
    publications::Publications,
    range::PlayRange,
    read_ahead::{MessageStream, OpenStream, PlayMessage},
};
use bytes::Bytes;
use holdall_bag::reader::{
    BagMessage, BagSet, FileHook, LatestWanted, MessageFilter, MessageOrder, PublisherChoice,
};
use holdall_model::{dynamic::migrate::Migrations, time::Timestamp, topic::TopicInfo};
use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::Arc,
};

/// Payloads below this are copied out of their chunk.
const COPY_BYTES_MAX: usize = 1024 * 1024;

/// Where messages come from.
pub(super) struct StreamSource {
    pub bags: BagSet,
    /// Only messages of these publishers.
    pub publishers: Option<Arc<PublisherChoice>>,
    pub files: Arc<FileLog>,
    /// New definitions of messages.
    pub migrations: Migrations,
    /// The first forms of messages.
    pub forms: Option<Arc<dyn FirstForms>>,
}

/// Finds the publication of a message.
struct PublicationIndex(HashMap<String, Vec<Entry>>);

struct Entry {
    type_name: String,
    /// Only this publisher's messages; `None` for all.
    gid: Option<String>,
    publication: usize,
}

impl PublicationIndex {
    fn new(publications: &Publications, keep_publishers: bool) -> Self {
        let mut by_topic: HashMap<String, Vec<Entry>> = HashMap::new();
        let topics = publications
            .recorded_topics()
            .zip(publications.recorded_publishers());
        for (publication, ((name, type_name), gid)) in topics.enumerate() {
            by_topic.entry(name.to_owned()).or_default().push(Entry {
                type_name: type_name.to_owned(),
                gid: gid.filter(|_| keep_publishers).map(str::to_owned),
                publication,
            });
        }
        Self(by_topic)
    }

    fn topics(&self) -> BTreeSet<String> {
        self.0.keys().cloned().collect()
    }

    /// `None` for a topic that is not played.
    fn find(&self, topic: &TopicInfo, type_name: &str) -> Option<usize> {
        let gid = topic.publisher.as_ref().map(|publisher| publisher.gid.as_str());
        let is_its = |entry: &&Entry| {
            entry.type_name == type_name && (entry.gid.is_none() || entry.gid.as_deref() == gid)
        };
        let entries = self.0.get(&topic.name)?;
        entries.iter().find(is_its).map(|entry| entry.publication)
    }

    /// Finds the publisher of a message; `restore` gives it its first form, where it has another.
    fn play_message(
        &self,
        message: BagMessage,
        source: &StreamSource,
        restore: impl FnOnce(&dyn FirstForms, &BagMessage) -> Result<Bytes, String>,
    ) -> Option<Result<PlayMessage, String>> {
        let (topic, mut migrated) = (&message.topic, Vec::new());
        let form = source
            .forms
            .as_deref()
            .and_then(|forms| Some((forms, forms.form(topic)?)));
        if let Some((forms, form)) = form {
            let publication = self.find(topic, &form.type_name)?;
            let restored = restore(forms, &message).map(|payload| PlayMessage {
                stamp: message.stamp,
                publication,
                payload,
                latched: false,
            });
            return Some(restored.map_err(|reason| format!("{}: {reason}", topic.name)));
        }
        let migrations = &source.migrations;
        let new = match migrations.apply(topic, &message.payload, &mut migrated) {
            Ok(new) => new,
            Err(reason) => return Some(Err(format!("{}: {reason}", topic.name))),
        };
        let type_name = new.map_or(&topic.type_name, |new| &new.type_name);
        let publication = self.find(topic, type_name)?;
        let payload = match new {
            Some(_) => Bytes::from(migrated),
            // A payload keeps its whole chunk in memory, which the bound of the read-ahead does not see: small ones are copied out.
            None if message.payload.len() < COPY_BYTES_MAX => Bytes::copy_from_slice(&message.payload),
            None => message.payload,
        };
        Some(Ok(PlayMessage {
            stamp: message.stamp,
            publication,
            payload,
            latched: false,
        }))
    }
}

/// Reads the played messages from the bags, from the start for each round and each seek.
pub(super) fn open_stream(
    source: StreamSource,
    publications: &Publications,
    range: &PlayRange,
    options: &PlayOptions,
) -> OpenStream {
    let index = Arc::new(PublicationIndex::new(publications, options.keep_publishers));
    let mut filter = MessageFilter {
        topics: Some(Arc::new(index.topics())),
        publishers: source.publishers.clone(),
        order: options.message_order,
        ..MessageFilter::default()
    };
    let latched = if options.latched_state {
        publications.latched()
    } else {
        LatestWanted::new()
    };
    let first = range.first;
    let log = Arc::clone(&source.files);
    let opened: FileHook = Arc::new(move |bag, file| log.opened(bag, file));
    let source = Arc::new(source);
    Box::new(move |from, until| {
        // The metadata may have a wrong first stamp: the whole bag means the whole bag.
        filter.from = (from > first).then_some(from);
        filter.until = until;
        let index = Arc::clone(&index);
        let state = match filter.from {
            Some(from) if !latched.is_empty() => latched_state(&source, from, filter.order, &latched, &index),
            _ => Vec::new(),
        };
        let messages = source.bags.messages_noting_files(&filter, &opened);
        let source = Arc::clone(&source);
        let mut restoring = source.forms.as_ref().map(|forms| forms.begin(&filter));
        let playable = messages.filter_map(move |message| match message {
            Ok(message) => index.play_message(message, &source, |forms, message| match &mut restoring {
                Some(restoring) => restoring.restore(message),
                None => restored_alone(forms, message),
            }),
            Err(error) => Some(Err(error.to_string())),
        });
        Box::new(state.into_iter().map(Ok).chain(playable)) as MessageStream
    })
}

/// The state of latched topics before `from`. Unreadable messages are logged and left out: the messages themselves are still played.
fn latched_state(
    source: &StreamSource,
    from: Timestamp,
    order: MessageOrder,
    wanted: &LatestWanted,
    index: &PublicationIndex,
) -> Vec<PlayMessage> {
    let found = source
        .bags
        .latest_before(from, wanted, source.publishers.as_deref());
    let found = found.unwrap_or_else(|error| {
        tracing::warn!("the state of latched topics before the beginning is not published: {error}");
        Vec::new()
    });
    // In the order of sending, a message may have been received before the point and be played after it.
    let is_before = |message: &BagMessage| order == MessageOrder::Received || message.publish_time < from;
    let playable = found
        .into_iter()
        .filter(is_before)
        .filter_map(|message| index.play_message(message, source, restored_alone));
    playable
        .filter_map(|message| {
            message
                .inspect_err(|error| tracing::warn!("a latched message is not published: {error}"))
                .ok()
        })
        .map(|message| PlayMessage {
            latched: true,
            ..message
        })
        .collect()
}

/// The topics that the bags list, and those that they contain without listing them; with `keep_publishers` one for each publisher that a
/// file distinguishes.
///
/// # Errors
/// A file that cannot be read.
pub(super) fn all_topics(bags: &BagSet, keep_publishers: bool) -> Result<Vec<TopicInfo>, PlayError> {
    if keep_publishers {
        return topics_by_publisher(bags);
    }
    let mut topics = bags.topics();
    let key = |topic: &TopicInfo| (topic.name.clone(), topic.type_name.clone());
    let mut known: HashSet<_> = topics.iter().map(key).collect();
    for bag in bags.bags() {
        for topic in bag.unlisted_topics()? {
            if known.insert(key(&topic)) {
                topics.push(topic);
            }
        }
    }
    topics.iter_mut().for_each(|topic| topic.publisher = None);
    Ok(topics)
}

/// The channels of all files, each topic's publishers side by side.
fn topics_by_publisher(bags: &BagSet) -> Result<Vec<TopicInfo>, PlayError> {
    let mut topics: Vec<TopicInfo> = Vec::new();
    let mut known = HashSet::new();
    for file in bags.bags().iter().flat_map(|bag| bag.files()) {
        let reader = file.open()?;
        for topic in reader
            .outline()
            .channels
            .iter()
            .map(|channel| &channel.info.topic)
        {
            let gid = topic.publisher.as_ref().map(|publisher| publisher.gid.clone());
            if known.insert((topic.name.clone(), topic.type_name.clone(), gid)) {
                topics.push(topic.clone());
            }
        }
    }
    topics.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(topics)
}
