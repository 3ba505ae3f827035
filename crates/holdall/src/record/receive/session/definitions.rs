//! Definitions that publishers' nodes are asked for.

use super::Session;
use crate::record::{receive::subscriptions::RecordedTopic, write::drain::DrainCommand};
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
        let mut replies = Vec::new();
        for source in &mut self.sources {
            source.transport.poll_type_descriptions(&mut replies);
        }
        for reply in replies {
            if let Some(definition) = self.definitions.answer(&reply) {
                self.define(&definition);
            }
        }
    }

    /// Whether a node may still answer a request for a definition that was just made: worth a short wait at the end of a recording.
    pub(in crate::record) fn awaits_definitions(&mut self, now: Duration) -> bool {
        self.ask_for_definitions(now);
        self.definitions.has_just_asked(now, LAST_DEFINITION_WAIT)
    }

    pub(super) fn define(&self, definition: &MessageDefinition) {
        let has_type =
            |topic: &&RecordedTopic| topic.records(&definition.type_name, &definition.type_description_hash);
        let ids: Vec<TopicId> = self
            .topics
            .values()
            .filter(has_type)
            .map(|topic| topic.id)
            .collect();
        for topic in ids {
            self.parts.drain.command(DrainCommand::Define {
                topic,
                definition: definition.clone(),
            });
        }
        self.parts.cache.wake();
    }
}
