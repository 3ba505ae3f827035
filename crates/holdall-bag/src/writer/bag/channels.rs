//! The channels of one storage file: which of them gets a topic's message, by its publisher.

use super::{BagTopic, TopicCount};
use holdall_model::topic::PublisherInfo;
use holdall_storage::writer::ChannelIndex;
use std::collections::BTreeSet;

/// The most channels that the publishers of one topic have in a file; further publishers share the topic's
/// common channel, so that publishers that come and go for ever do not fill the file's index.
const OF_TOPIC_MAX: usize = 1024;

/// The most channels that the publishers of all topics have in a file: MCAP numbers channels with 16 bits,
/// and every topic needs one.
const OF_FILE_MAX: usize = 1 << 15;

/// A publisher of a topic, as the caller numbers them: small numbers from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublisherSlot(pub u32);

/// The publisher of a message, and the former place of its channel.
type Last = (Option<PublisherSlot>, ChannelIndex);

/// The channels of one topic.
#[derive(Default)]
struct TopicChannels {
    /// For messages whose publisher is not known.
    common: Option<ChannelIndex>,
    /// By slot.
    of_slot: Vec<Option<ChannelIndex>>,
    /// Publishers with a separate channel: one that comes again, in another slot, finds its channel.
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
    /// The channels of the next file, in the memory of this one's: only channels of this file are visited.
    pub(super) fn into_next(mut self) -> Self {
        for topic in std::mem::take(&mut self.topic_of) {
            self.renew(topic);
        }
        (self.of_publishers, self.is_crowded) = (0, false);
        self
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
                "a topic has {of_topic} publishers in this file, all topics {}: further ones are not distinguished in it",
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
                if channels.of_publisher.is_empty() {
                    // Most topics have one.
                    channels.of_publisher.reserve_exact(1);
                }
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

    /// The channels of a topic are closed: its next messages get new ones.
    pub(super) fn renew(&mut self, topic: BagTopic) {
        let place = topic.0 as usize;
        if let Some(channels) = self.topics.get_mut(place) {
            *channels = TopicChannels::default();
            self.last[place] = None;
        }
    }

    fn has_channel(&self, topic: BagTopic) -> bool {
        let channels = &self.topics[topic.0 as usize];
        channels.common.is_some() || !channels.of_publisher.is_empty()
    }

    /// Topics that have no channel yet. Looks at all topics: see [`Self::with_channel`].
    pub(super) fn without_channel(&self) -> Vec<BagTopic> {
        let all = (0..).map(BagTopic).take(self.topics.len());
        all.filter(|topic| !self.has_channel(*topic)).collect()
    }

    /// Topics that have or had a channel.
    pub(super) fn topics(&self) -> BTreeSet<BagTopic> {
        self.topic_of.iter().copied().collect()
    }

    /// Topics that have a channel, each once. Looks at the file's channels only.
    pub(super) fn with_channel(&self) -> Vec<BagTopic> {
        let mut topics = self.topic_of.clone();
        topics.sort_unstable();
        topics.dedup();
        topics.retain(|topic| self.has_channel(*topic));
        topics
    }

    /// Counts by topic from counts by channel, without topics that have no message.
    pub(super) fn by_topic(&self, of_channels: &[u64]) -> Vec<TopicCount> {
        let counts = self.topic_of.iter().zip(of_channels);
        let mut counts: Vec<TopicCount> = counts
            .filter(|(_, messages)| **messages > 0)
            .map(|(&topic, &messages)| TopicCount { topic, messages })
            .collect();
        counts.sort_unstable_by_key(|count| count.topic);
        counts.dedup_by(|next, kept| {
            let is_same = next.topic == kept.topic;
            if is_same {
                kept.messages += next.messages;
            }
            is_same
        });
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(topic: u32, messages: u64) -> TopicCount {
        let topic = BagTopic(topic);
        TopicCount { topic, messages }
    }

    #[test]
    fn a_file_is_as_large_as_what_is_in_it_and_the_next_one_begins_anew() {
        let mut channels = FileChannels::default();
        (0..100_000).for_each(|_| channels.add_topic());
        let (first, second, slot) = (BagTopic(77_000), BagTopic(3), Some(PublisherSlot(2)));
        let publisher = PublisherInfo::default();
        for file in 0..2 {
            assert!(channels.with_channel().is_empty() && channels.by_topic(&[]).is_empty());
            for (place, (topic, slot)) in [(first, None), (second, slot), (first, slot)]
                .into_iter()
                .enumerate()
            {
                assert!(matches!(channels.find(topic, slot), Found::New), "file {file}");
                assert_eq!(channels.publisher(topic, &publisher), None);
                let channel = ChannelIndex(place as u32);
                channels.add(topic, slot.map(|_| publisher.clone()), channel);
                channels.assign(topic, slot, channel);
                assert!(matches!(channels.find(topic, slot), Found::Channel(found) if found == channel));
            }
            assert_eq!(channels.with_channel(), [second, first]);
            assert_eq!(channels.without_channel().len(), 99_998);
            assert_eq!(channels.by_topic(&[5, 0, 2]), [count(77_000, 7)]);
            assert_eq!(channels.by_topic(&[0, 1, 2]), [count(3, 1), count(77_000, 2)]);
            channels.renew(first);
            assert_eq!(
                channels.with_channel(),
                [second],
                "its channels take no more messages"
            );
            channels = channels.into_next();
        }
        assert!(matches!(
            channels.find(BagTopic(100_000), None),
            Found::UnknownTopic
        ));
    }
}
