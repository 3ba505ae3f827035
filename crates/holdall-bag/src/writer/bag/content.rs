//! Contents of the files of a bag: counts by topic, of messages and of those that a file repeats.

use super::{BagTopic, channels::FileChannels, latched::FileHead};
use holdall_storage::writer::FileSummary;

/// Messages of a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopicCount {
    /// Which topic.
    pub topic: BagTopic,
    /// How many messages.
    pub messages: u64,
}

/// Contents of a file. Its size depends on the file only: a bag may have many more topics, and many files.
#[derive(Default)]
pub(super) struct FileContent {
    /// Without the counts by channel.
    pub summary: FileSummary,
    /// Counts of the topics that have messages in it, in their order; without repeated messages.
    pub messages: Vec<TopicCount>,
    pub head: FileHead,
}

impl FileContent {
    pub fn new(mut summary: FileSummary, channels: &FileChannels, head: FileHead) -> Self {
        let of_channels = std::mem::take(&mut summary.channel_message_counts);
        let mut messages = channels.by_topic(&of_channels);
        head.take_from(&mut messages);
        Self {
            summary,
            messages,
            head,
        }
    }

    /// Counts of all that is in the file, repeated messages too; a topic may be counted twice.
    pub fn stored(&self) -> impl Iterator<Item = &TopicCount> {
        self.messages.iter().chain(&self.head.topics)
    }
}

/// Topics that have at least one message.
pub(super) fn counts(by_topic: &[u64]) -> impl Iterator<Item = TopicCount> + '_ {
    let count = |(index, &messages)| TopicCount {
        topic: BagTopic(index as u32),
        messages,
    };
    by_topic
        .iter()
        .enumerate()
        .map(count)
        .filter(|count| count.messages > 0)
}

/// The counts of the first `topics` topics, by their place.
pub(super) fn by_place<'a>(topics: usize, counts: impl IntoIterator<Item = &'a TopicCount>) -> Vec<u64> {
    let mut by_place = vec![0; topics];
    for count in counts {
        if let Some(sum) = by_place.get_mut(count.topic.0 as usize) {
            *sum += count.messages;
        }
    }
    by_place
}
