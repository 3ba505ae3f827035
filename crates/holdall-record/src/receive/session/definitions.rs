//! Definitions that publishers' nodes are asked for.

use super::Session;
use crate::{receive::subscriptions::RecordedTopic, write::drain::DrainCommand};
use holdall_model::topic::{MessageDefinition, TopicId};
use std::time::Duration;

/// How long a node that was asked for a definition shortly before the end is waited for.
const LAST_DEFINITION_WAIT: Duration = Duration::from_millis(300);

impl Session {
    pub(super) fn ask_for_definitions(&mut self, now: Duration) {
        for ask in self.definitions.asks(now) {
            for source in &mut self.sources {
                source
                    .transport
                    .request_type_description(&ask.node, &ask.type_name, &ask.type_hash);
            }
        }
        if self.replies.is_empty() {
            let mut replies = Vec::new();
            for source in &mut self.sources {
                source.transport.poll_type_descriptions(&mut replies);
            }
            self.replies.extend(replies);
        }
        while self.parts.drain.has_room()
            && let Some(reply) = self.replies.pop_front()
        {
            if let Some(definition) = self.definitions.answer(&reply) {
                self.define(definition);
            }
        }
    }

    /// Whether a node may still answer a request for a definition that was just made: worth a short wait at the end of a recording.
    pub(crate) fn awaits_definitions(&mut self, now: Duration) -> bool {
        self.ask_for_definitions(now);
        self.definitions.has_just_asked(now, LAST_DEFINITION_WAIT)
    }

    fn define(&self, definition: MessageDefinition) {
        let has_type =
            |topic: &&RecordedTopic| topic.records(&definition.type_name, &definition.type_description_hash);
        let topics = self.topics.values().filter(has_type);
        let topics: Vec<TopicId> = topics.map(|topic| topic.id).collect();
        self.parts
            .drain
            .command(DrainCommand::Define { topics, definition });
        self.parts.cache.wake();
    }
}
