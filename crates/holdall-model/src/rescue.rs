//! The log that a recorder keeps for a rescue, and the file that points to its memory.

use crate::{
    loss::ledger::AccountChange,
    qos::QosProfile,
    topic::{MessageDefinition, TopicId, TopicInfo},
};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Slots of a region with this kind hold parts of the log, in order.
pub const KIND_LOG: u32 = 2;

/// The file in a bag's directory with the location of its messages in memory; removed when the recording is ended.
pub const POINTER_FILE: &str = ".holdall-rescue.json";

/// Something that a rescue must know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// How the bag is written.
    Bag {
        /// Its storage.
        storage: String,
        /// All messages of a topic have one channel.
        merge_publishers: bool,
        /// Payloads are packed one by one.
        packed_payloads: bool,
        /// Where it is, by its whole path.
        directory: PathBuf,
    },
    /// Identity of the bag's directory: a copy, or another bag with the same name, does not need this memory.
    Place {
        /// Differs from that of every other directory.
        identity: String,
        /// As the recorder saw it; `None` if the system did not provide it.
        view: Option<String>,
    },
    /// Messages of this topic may come.
    Topic {
        /// Its number.
        topic: TopicId,
        /// How the bag describes it.
        info: TopicInfo,
        /// Its definition, if known.
        definition: Option<MessageDefinition>,
    },
    /// Some publishers of this topic have another type.
    Type {
        /// Its topic's number.
        topic: TopicId,
        /// How the bag describes the topic of that type.
        info: TopicInfo,
        /// The type's definition, if known.
        definition: MessageDefinition,
    },
    /// A publisher offers this QoS.
    Offer {
        /// Its topic's number.
        topic: TopicId,
        /// Its type.
        type_name: String,
        /// Its QoS.
        qos: QosProfile,
    },
    /// A topic's definition.
    Define {
        /// The topic.
        topic: TopicId,
        /// The definition.
        definition: MessageDefinition,
    },
    /// From here on the log has gaps.
    Incomplete,
    /// A change of the accounts.
    #[serde(untagged)]
    Account(AccountChange),
}

/// Where to find a region.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pointer {
    /// The file.
    pub path: PathBuf,
    /// Its identity.
    pub id: String,
}
