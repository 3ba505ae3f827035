//! Connections of a ROS 1 bag, and their channels: all publishers of one type on one topic are one channel.

use super::format::Fields;
use crate::{
    reader::ChannelSummary,
    writer::{ChannelIndex, ChannelInfo, MetadataEntries},
};
use holdall_model::{
    qos::{Durability, History, QosProfile},
    ros1::ROS1_SERIALIZATION,
    topic::{DefinitionEncoding, MessageDefinition, TopicInfo},
};
use std::collections::HashMap;

/// Name of the text record that describes a connection.
pub const CONNECTION_RECORD: &str = "ros1_connection";

/// A publisher on a topic.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Connection {
    topic: String,
    type_name: String,
    md5sum: String,
    definition: String,
    caller: String,
    is_latched: bool,
}

impl Connection {
    /// Reads the data of a connection record; `topic` is that of the record's header, under which it was
    /// recorded.
    fn decode(topic: &[u8], data: &[u8]) -> Option<Self> {
        let mut connection = Self {
            topic: text(topic),
            ..Self::default()
        };
        for field in Fields(data) {
            let (name, value) = field?;
            match name {
                b"type" => connection.type_name = text(value),
                b"md5sum" => connection.md5sum = text(value),
                b"message_definition" => connection.definition = text(value),
                b"callerid" => connection.caller = text(value),
                b"latching" => connection.is_latched = value == b"1",
                _ => {}
            }
        }
        Some(connection)
    }

    fn record(&self, id: u32, channel: usize) -> MetadataEntries {
        let mut entries = MetadataEntries::from([
            ("conn".to_owned(), id.to_string()),
            ("channel".to_owned(), channel.to_string()),
            ("topic".to_owned(), self.topic.clone()),
            ("type".to_owned(), self.type_name.clone()),
            ("md5sum".to_owned(), self.md5sum.clone()),
            ("latching".to_owned(), u8::from(self.is_latched).to_string()),
        ]);
        if !self.caller.is_empty() {
            entries.insert("callerid".to_owned(), self.caller.clone());
        }
        entries
    }
}

/// Names and definitions are shown, not compared: foreign bytes must not make a bag unreadable.
fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// All connections of a file.
#[derive(Clone, Debug, Default)]
pub(super) struct Connections {
    channels: Vec<ChannelSummary>,
    /// By the fields that the connections of a channel share.
    place_of: HashMap<Connection, usize>,
    channel_of_connection: HashMap<u32, ChannelIndex>,
    /// Number of latched connections by channel.
    latched: Vec<u64>,
    records: Vec<(String, MetadataEntries)>,
}

/// The channels of all connections of a file.
pub(super) struct Catalog {
    pub channels: Vec<ChannelSummary>,
    pub channel_of_connection: HashMap<u32, ChannelIndex>,
    /// One text record for each connection.
    pub records: Vec<(String, MetadataEntries)>,
}

impl Connections {
    /// Adds a connection record; the first with a number is kept. `false` for invalid data.
    pub fn add(&mut self, id: u32, topic: &[u8], data: &[u8]) -> bool {
        if self.channel_of_connection.contains_key(&id) {
            return true;
        }
        let Some(connection) = Connection::decode(topic, data) else {
            return false;
        };
        let common = Connection {
            caller: String::new(),
            is_latched: false,
            ..connection.clone()
        };
        let place = *self.place_of.entry(common).or_insert_with(|| {
            self.channels.push(channel(&connection));
            self.latched.push(0);
            self.channels.len() - 1
        });
        let record = connection.record(id, place);
        self.records.push((CONNECTION_RECORD.to_owned(), record));
        self.latched[place] += u64::from(connection.is_latched);
        if !connection.is_latched {
            let offers = &mut self.channels[place].info.topic.offered_qos_profiles;
            if !offers.contains(&QosProfile::ROS_DEFAULT) {
                offers.push(QosProfile::ROS_DEFAULT);
            }
        }
        // A file has fewer than 2^32 connections, because their numbers differ.
        self.channel_of_connection.insert(id, ChannelIndex(place as u32));
        true
    }

    /// Number of connections.
    pub fn len(&self) -> usize {
        self.channel_of_connection.len()
    }

    /// Adds to the count of a connection's channel, and returns the channel; `None` for an unknown
    /// connection.
    pub fn count(&mut self, id: u32, messages: u64) -> Option<ChannelIndex> {
        let channel = *self.channel_of_connection.get(&id)?;
        let count = &mut self.channels[channel.0 as usize].message_count;
        *count = count.saturating_add(messages);
        Some(channel)
    }

    /// The channels, when all connections are added.
    pub fn finish(self) -> Catalog {
        let channels = self.channels.into_iter().zip(self.latched);
        let channels = channels.map(|(mut channel, latched)| {
            if latched > 0 {
                // A late subscription receives the last message of each, as in ROS 1.
                channel.info.topic.offered_qos_profiles.push(QosProfile {
                    history: History::KeepLast,
                    depth: latched,
                    durability: Durability::TransientLocal,
                    ..QosProfile::ROS_DEFAULT
                });
            }
            channel
        });
        Catalog {
            channels: channels.collect(),
            channel_of_connection: self.channel_of_connection,
            records: self.records,
        }
    }
}

fn channel(connection: &Connection) -> ChannelSummary {
    let topic = TopicInfo {
        name: connection.topic.clone(),
        type_name: connection.type_name.clone(),
        serialization_format: ROS1_SERIALIZATION.to_owned(),
        ..TopicInfo::default()
    };
    let definition = MessageDefinition {
        type_name: connection.type_name.clone(),
        encoding: DefinitionEncoding::Ros1Msg,
        text: connection.definition.clone(),
        type_description_hash: String::new(),
    };
    ChannelSummary {
        info: ChannelInfo { topic, definition },
        message_count: 0,
    }
}
