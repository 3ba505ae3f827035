//! Definitions that publishers' nodes are asked for.

use super::sources::Sources;
use crate::{options::RecordOptions, receive::definitions::Definitions};
use holdall_model::{
    interface::bundle::Bundle,
    topic::{MessageDefinition, NodeName},
};
use holdall_transport::TypeDescriptionReply;
use std::{collections::VecDeque, time::Duration};

/// How long after its first question a node is waited for at the end: as long as messages are held back for their definition. Endpoints of Cyclone DDS
/// and Fast DDS match after 0.1 s or 1.1 s.
const LAST_DEFINITION_WAIT: Duration = Duration::from_secs(2);

/// What is known, and the answers that nodes have given.
pub(super) struct Asking {
    definitions: Definitions,
    /// Replies from one poll: the next poll waits until all are handled.
    replies: VecDeque<TypeDescriptionReply>,
}

impl Asking {
    pub fn new(options: &RecordOptions) -> Self {
        Self {
            definitions: Definitions::new(options.discovery.ament_prefixes.clone(), |name| {
                Bundle::embedded().get(name)
            }),
            replies: VecDeque::new(),
        }
    }

    /// As [`Definitions::find`].
    pub fn find(
        &mut self,
        type_name: &str,
        type_hash: &str,
        nodes: &[NodeName],
    ) -> Option<MessageDefinition> {
        self.definitions.find(type_name, type_hash, nodes)
    }

    /// As [`Definitions::add_node`].
    pub fn add_node(&mut self, type_name: &str, type_hash: &str, node: &NodeName) {
        self.definitions.add_node(type_name, type_hash, node);
    }

    /// Asks for what is due at `now` (monotonic time), and collects replies.
    pub fn ask(&mut self, sources: &mut Sources, now: Duration) {
        for ask in self.definitions.asks(now) {
            for source in sources.iter_mut() {
                source
                    .transport()
                    .request_type_description(&ask.node, &ask.type_name, &ask.type_hash);
            }
        }
        if self.replies.is_empty() {
            let mut replies = Vec::new();
            for source in sources.iter_mut() {
                source.transport().poll_type_descriptions(&mut replies);
            }
            self.replies.extend(replies);
        }
    }

    /// The next definition that a node has sent.
    pub fn take_answer(&mut self) -> Option<MessageDefinition> {
        while let Some(reply) = self.replies.pop_front() {
            if let Some(definition) = self.definitions.answer(&reply) {
                return Some(definition);
            }
        }
        None
    }

    /// Whether a node may answer soon.
    pub fn awaits_answer(&self, now: Duration) -> bool {
        self.definitions.awaits_answer(now)
    }

    /// Whether a node may still answer a request that was just made: worth a short wait at the end of a recording.
    pub fn has_just_asked(&self, now: Duration, transports: usize) -> bool {
        self.definitions
            .has_just_asked(now, LAST_DEFINITION_WAIT, transports)
    }
}
