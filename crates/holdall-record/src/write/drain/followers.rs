//! What follows the messages of a bag when these are written: the switch of episodes, and the events that promote parts of a ring.

use super::promoting::Promoting;
use crate::{cache::CacheEntry, trigger::Episodes};
use holdall_model::{
    marker::Marker,
    message::PayloadRef,
    topic::{MessageDefinition, TopicId, TopicInfo},
};

/// What follows the messages of a recording.
pub(super) struct Followers {
    episodes: Option<Episodes>,
    promoting: Option<Promoting>,
}

impl Followers {
    /// `None` without any.
    pub fn new(episodes: Option<Episodes>, promoting: Option<Promoting>) -> Option<Box<Self>> {
        let is_any = episodes.is_some() || promoting.is_some();
        is_any.then(|| Box::new(Self { episodes, promoting }))
    }

    /// A topic is recorded from now on. `is_received`: its messages get another form before they are written, and come to [`Self::received`].
    pub fn add_topic(
        &mut self,
        topic: TopicId,
        info: &TopicInfo,
        definition: &MessageDefinition,
        is_received: bool,
    ) {
        if let Some(episodes) = &mut self.episodes {
            episodes.switch.add_topic(topic, info, is_received);
        }
        if let Some(promoting) = &mut self.promoting {
            promoting.add_topic(topic, info, is_received);
        }
        self.define(topic, definition);
    }

    /// The definition of a topic's own type.
    pub fn define(&mut self, topic: TopicId, definition: &MessageDefinition) {
        if let Some(episodes) = &mut self.episodes {
            episodes.define(topic, definition);
        }
        if let Some(promoting) = &mut self.promoting {
            promoting.define(topic, definition);
        }
    }

    /// A message that is written.
    #[inline]
    pub fn message(&mut self, entry: &CacheEntry, payload: PayloadRef<'_>) {
        if let Some(episodes) = &mut self.episodes {
            episodes.switch.message(entry.topic, entry.log_time, payload);
        }
        if let Some(promoting) = &mut self.promoting {
            promoting.message(entry.topic, entry.log_time, payload);
        }
    }

    /// A message that gets another form before it is written.
    pub fn received(&mut self, entry: &CacheEntry, payload: PayloadRef<'_>) {
        if let Some(episodes) = &mut self.episodes {
            episodes.switch.received(entry.topic, entry.log_time, payload);
        }
        if let Some(promoting) = &mut self.promoting {
            promoting.received(entry.topic, entry.log_time, payload);
        }
    }

    /// The markers of episodes since the last call; see [`Episodes::take_markers`].
    pub fn take_episode_markers(&mut self, is_end: bool) -> Vec<Marker> {
        let episodes = self.episodes.as_mut();
        episodes.map_or_else(Vec::new, |episodes| episodes.take_markers(is_end))
    }

    /// The events that promote parts of a ring.
    pub fn promoting(&mut self) -> Option<&mut Promoting> {
        self.promoting.as_mut()
    }
}
