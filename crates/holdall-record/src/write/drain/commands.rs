//! The commands of the drain: topics and their definitions, in order.

use crate::write::survival::SurvivalLog;
use holdall_bag::rescue::Event;
use holdall_model::{
    qos::QosProfile,
    topic::{MessageDefinition, TopicId, TopicInfo},
};

/// Facts that a drain must know before messages come, in order.
#[derive(Clone, Debug)]
pub enum DrainCommand {
    /// Messages of this topic will come.
    AddTopic {
        /// Its number in the recording.
        topic: TopicId,
        /// How the bag describes it.
        info: TopicInfo,
        /// Its definition; `None` while it is being asked for.
        definition: Option<MessageDefinition>,
    },
    /// Messages of this topic with another type will come.
    AddType {
        /// The topic's number in the recording.
        topic: TopicId,
        /// How the bag describes the topic of that type.
        info: TopicInfo,
        /// The type's definition; encoding `Unknown` while it is being asked for.
        definition: MessageDefinition,
    },
    /// A publisher offers what none did when its topic was added, or perhaps did not.
    Offer {
        /// The topic's number in the recording.
        topic: TopicId,
        /// The publisher's type.
        type_name: String,
        /// Its QoS.
        qos: QosProfile,
    },
    /// The definition that a node was asked for, or that there is none.
    Define {
        /// The topics with this type.
        topics: Vec<TopicId>,
        /// The definition; encoding `Unknown` when there is none.
        definition: MessageDefinition,
    },
}

impl DrainCommand {
    pub(super) fn log_to(&self, survival: &SurvivalLog) {
        match self {
            Self::AddTopic {
                topic,
                info,
                definition,
            } => survival.add(|| Event::Topic {
                topic: *topic,
                info: info.clone(),
                definition: definition.clone(),
            }),
            Self::AddType {
                topic,
                info,
                definition,
            } => survival.add(|| Event::Type {
                topic: *topic,
                info: info.clone(),
                definition: definition.clone(),
            }),
            Self::Offer {
                topic,
                type_name,
                qos,
            } => survival.add(|| Event::Offer {
                topic: *topic,
                type_name: type_name.clone(),
                qos: *qos,
            }),
            Self::Define { topics, definition } => {
                for topic in topics {
                    survival.add(|| Event::Define {
                        topic: *topic,
                        definition: definition.clone(),
                    });
                }
            }
        }
    }
}
