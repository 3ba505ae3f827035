//! Episodes that a condition starts and stops while a recording runs.

use super::Trigger;
use holdall_io::mutex::lock;
use holdall_model::{
    episode::EpisodeState,
    marker::Marker,
    topic::{MessageDefinition, TopicId},
    trigger::EpisodeSwitch,
};
use std::sync::{Arc, Mutex};

/// The switch of a recording, and the episodes that requests change, too.
pub(crate) struct Episodes {
    pub switch: EpisodeSwitch,
    episodes: Arc<Mutex<EpisodeState>>,
}

impl Episodes {
    /// `None` without a condition over fields.
    pub fn new(trigger: Option<&Trigger>, episodes: Arc<Mutex<EpisodeState>>) -> Option<Self> {
        let switch = EpisodeSwitch::new(trigger?)?;
        Some(Self { switch, episodes })
    }

    /// The definition of a topic's type.
    pub fn define(&mut self, topic: TopicId, definition: &MessageDefinition) {
        if let Some(reason) = self.switch.define(topic, definition) {
            tracing::error!("{}: {reason}; it starts no episodes", self.switch.text());
        }
    }

    /// What has started and stopped since the last call; at the end also what is open.
    pub fn take_markers(&mut self, is_end: bool) -> Vec<Marker> {
        if let Some(reason) = self.switch.take_broken() {
            tracing::warn!(
                "{}: a message cannot be decoded: {reason}; such messages start and stop no episodes",
                self.switch.text()
            );
        }
        let episodes = &mut lock(&self.episodes);
        if !is_end {
            return self.switch.take_markers(episodes);
        }
        if !self.switch.state().is_topic_known {
            tracing::warn!("{}: its topic was not recorded", self.switch.text());
        }
        self.switch.end(episodes)
    }
}
