//! The channels of one storage file: which of them gets a topic's message, by its publisher.

use super::{BagTopic, BagWriter, WriteError};
use holdall_model::topic::PublisherInfo;
use holdall_storage::writer::{ChannelIndex, ChannelInfo, FileSummary};

/// The most channels that the publishers of one topic have in a file; further publishers share the topic's
/// common channel, so that publishers that come and go for ever do not fill the file's index.
const OF_TOPIC_MAX: usize = 1024;

/// The most channels that the publishers of all topics have in a file: MCAP numbers channels with 16 bits,
/// and every topic needs one.
const OF_FILE_MAX: usize = 1 << 15;

/// A publisher of a topic, as the caller numbers them: small numbers from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublisherSlot(pub u32);

/// Who sent a message, and where its channel was.
type Last = (Option<PublisherSlot>, ChannelIndex);

/// The channels of one topic.
#[derive(Default)]
struct TopicChannels {
    /// For messages whose publisher is not known.
    common: Option<ChannelIndex>,
    /// By slot.
    of_slot: Vec<Option<ChannelIndex>>,
    /// Publishers with a channel of their own: one that comes again, in another slot, finds its channel.
    of_publisher: Vec<(PublisherInfo, ChannelIndex)>,
}

/// The channels of a file that is being written.
#[derive(Default)]
pub(super) struct FileChannels {
    /// The last query for each topic: all that most messages touch.
    last: Vec<Option<Last>>,
    topics: Vec<TopicChannels>,
    /// The topic of each channel.
    topic_of: Vec<BagTopic>,
    of_publishers: usize,
    is_crowded: bool,
}

/// Where a message belongs.
pub(super) enum Found {
    /// In this channel.
    Channel(ChannelIndex),
    /// In a channel that must be made: see [`FileChannels::publisher`] and [`FileChannels::common`].
    New,
    /// Nowhere: the topic was never added.
    UnknownTopic,
}

impl FileChannels {
    /// Channels of so many topics.
    pub(super) fn new(topics: usize) -> Self {
        let mut channels = Self::default();
        (0..topics).for_each(|_| channels.add_topic());
        channels
    }

    /// One topic more.
    pub(super) fn add_topic(&mut self) {
        self.last.push(None);
        self.topics.push(TopicChannels::default());
    }

    /// The channel of a topic's publisher; without one, the common channel.
    #[inline]
    pub(super) fn find(&mut self, topic: BagTopic, slot: Option<PublisherSlot>) -> Found {
        let place = topic.0 as usize;
        match self.last.get(place) {
            Some(Some((last, channel))) if *last == slot => Found::Channel(*channel),
            Some(_) => self.find_other(place, slot),
            None => Found::UnknownTopic,
        }
    }

    fn find_other(&mut self, place: usize, slot: Option<PublisherSlot>) -> Found {
        let topic = &self.topics[place];
        let channel = match slot {
            Some(slot) => topic.of_slot.get(slot.0 as usize).copied().flatten(),
            None => topic.common,
        };
        let Some(channel) = channel else {
            return Found::New;
        };
        self.last[place] = Some((slot, channel));
        Found::Channel(channel)
    }

    /// The channel that a publisher has already, under another slot.
    pub(super) fn publisher(&self, topic: BagTopic, publisher: &PublisherInfo) -> Option<ChannelIndex> {
        let channels = &self.topics[topic.0 as usize];
        let mut known = channels.of_publisher.iter();
        known
            .find(|(known, _)| known == publisher)
            .map(|(_, channel)| *channel)
    }

    /// Whether one more publisher of a topic can have a channel; logs the first time that it cannot.
    pub(super) fn has_room(&mut self, topic: BagTopic) -> bool {
        let of_topic = self.topics[topic.0 as usize].of_publisher.len();
        let has_room = of_topic < OF_TOPIC_MAX && self.of_publishers < OF_FILE_MAX;
        if !has_room && !std::mem::replace(&mut self.is_crowded, true) {
            tracing::warn!(
                "a topic has {of_topic} publishers in this file, all topics {}: further ones are not told apart in it",
                self.of_publishers
            );
        }
        has_room
    }

    /// The topic's common channel, when there is one.
    pub(super) fn common(&self, topic: BagTopic) -> Option<ChannelIndex> {
        self.topics[topic.0 as usize].common
    }

    /// Adds a channel that was made; its number is the next one.
    pub(super) fn add(&mut self, topic: BagTopic, publisher: Option<PublisherInfo>, channel: ChannelIndex) {
        debug_assert_eq!(self.topic_of.len(), channel.0 as usize, "channels count from 0");
        self.topic_of.push(topic);
        let channels = &mut self.topics[topic.0 as usize];
        match publisher {
            Some(publisher) => {
                channels.of_publisher.push((publisher, channel));
                self.of_publishers += 1;
            }
            None => channels.common = Some(channel),
        }
    }

    /// Remembers where the messages of a slot go.
    pub(super) fn assign(&mut self, topic: BagTopic, slot: Option<PublisherSlot>, channel: ChannelIndex) {
        let place = topic.0 as usize;
        if let Some(PublisherSlot(slot)) = slot {
            let slots = &mut self.topics[place].of_slot;
            if slots.len() <= slot as usize {
                slots.resize(slot as usize + 1, None);
            }
            slots[slot as usize] = Some(channel);
        }
        self.last[place] = Some((slot, channel));
    }

    /// Another publisher takes a slot.
    pub(super) fn forget(&mut self, topic: BagTopic, slot: PublisherSlot) {
        let place = topic.0 as usize;
        if let Some(known) = self
            .topics
            .get_mut(place)
            .and_then(|it| it.of_slot.get_mut(slot.0 as usize))
        {
            *known = None;
            self.last[place] = None;
        }
    }

    /// The channels of a topic take no more messages: its next messages get new ones.
    pub(super) fn renew(&mut self, topic: BagTopic) {
        let place = topic.0 as usize;
        if let Some(channels) = self.topics.get_mut(place) {
            *channels = TopicChannels::default();
            self.last[place] = None;
        }
    }

    /// Topics that have no channel yet.
    pub(super) fn without_channel(&self) -> Vec<BagTopic> {
        let is_empty =
            |(_, topic): &(u32, &TopicChannels)| topic.common.is_none() && topic.of_publisher.is_empty();
        let empty = (0..).zip(&self.topics).filter(is_empty);
        empty.map(|(place, _)| BagTopic(place)).collect()
    }

    /// What a file holds, with counts by topic in place of counts by channel.
    pub(super) fn by_topic(&self, mut summary: FileSummary) -> FileSummary {
        let mut counts = vec![0; self.topics.len()];
        for (topic, count) in self.topic_of.iter().zip(&summary.channel_message_counts) {
            counts[topic.0 as usize] += count;
        }
        summary.channel_message_counts = counts;
        summary
    }
}

/// The description of a publisher's channel: the topic, and whose messages of it.
fn channel_info(topic: &ChannelInfo, publisher: Option<&PublisherInfo>) -> ChannelInfo {
    let mut info = topic.clone();
    info.topic.publisher = publisher.cloned().map(Box::new);
    info
}

impl BagWriter {
    /// The channel of a publisher of which this file has no message yet.
    #[cold]
    pub(super) fn new_channel(
        &mut self,
        topic: BagTopic,
        slot: Option<PublisherSlot>,
        publisher: Option<PublisherInfo>,
    ) -> Result<ChannelIndex, WriteError> {
        let Some(current) = &mut self.current else {
            return Err(WriteError::Failed);
        };
        let Some(info) = self.topics.get(topic.0 as usize) else {
            return Err(WriteError::UnknownTopic { index: topic.0 });
        };
        let channels = &mut current.channels;
        let can_tell = self.options.storage.keeps_publishers();
        let publisher = publisher.filter(|_| slot.is_some() && can_tell);
        let known = publisher.as_ref().and_then(|it| channels.publisher(topic, it));
        let publisher = publisher.filter(|_| known.is_some() || channels.has_room(topic));
        let known = known.or_else(|| channels.common(topic).filter(|_| publisher.is_none()));
        let channel = match known {
            Some(known) => known,
            None => {
                let info = channel_info(info, publisher.as_ref());
                let made = current.writer.add_channel(&mut self.queue, &info)?;
                channels.add(topic, publisher, made);
                made
            }
        };
        channels.assign(topic, slot, channel);
        Ok(channel)
    }

    /// From now on a slot is another publisher's.
    pub fn forget_publisher(&mut self, topic: BagTopic, slot: PublisherSlot) {
        if let Some(current) = &mut self.current {
            current.channels.forget(topic, slot);
        }
    }

    /// Gives topics without a message their channel, so that the file names them.
    pub(super) fn add_empty_channels(&mut self) -> Result<(), WriteError> {
        let empty = match &self.current {
            Some(current) => current.channels.without_channel(),
            None => return Ok(()),
        };
        for topic in empty {
            self.new_channel(topic, None, None)?;
        }
        Ok(())
    }
}
