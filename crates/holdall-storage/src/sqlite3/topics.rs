//! The rows of topics and publishers that channels need: one for each topic, however many publish it.

use crate::writer::ChannelIndex;
use holdall_model::{qos::QosProfile, topic::TopicInfo};
use std::collections::HashMap;

/// The place of a channel's messages in the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) topic_id: i64,
    /// Stored for each message; `None` for the topic's first publisher.
    pub(super) publisher_id: Option<i64>,
}

/// A row that a new channel needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TopicRow {
    /// A row for a new topic.
    New { topic_id: i64 },
    /// An update of a topic's row, whose information is newer.
    Again { topic_id: i64 },
    /// A row for a publisher, or for all unknown ones.
    Publisher { id: i64, topic_id: i64 },
}

/// A topic of the file.
struct Topic {
    id: i64,
    name: String,
    type_name: String,
    serialization_format: String,
    offered_qos_profiles: Vec<QosProfile>,
    type_description_hash: String,
    /// The publishers with an id, by GID; `None` for unknown ones.
    publishers: Vec<(Option<String>, i64)>,
}

impl Topic {
    fn is(&self, topic: &TopicInfo) -> bool {
        let (ours, other) = (&self.type_description_hash, &topic.type_description_hash);
        self.name == topic.name
            && self.type_name == topic.type_name
            && self.serialization_format == topic.serialization_format
            && (ours == other || ours.is_empty() || other.is_empty())
    }
}

/// The topics of one file. The id of a topic or publisher is the number of its first channel, counted from 1: no id is used for
/// both.
#[derive(Default)]
pub(super) struct Topics {
    topics: Vec<Topic>,
    /// The topics of each name: one, unless their types differ.
    by_name: HashMap<String, Vec<usize>>,
    has_publishers: bool,
    /// Places by channel.
    pub(super) places: Vec<Place>,
}

impl Topics {
    /// The rows that the next channel needs.
    pub(super) fn add(&mut self, channel: ChannelIndex, info: &TopicInfo) -> Vec<TopicRow> {
        let new_id = i64::from(channel.0) + 1;
        let gid = info.publisher.as_ref().map(|publisher| publisher.gid.clone());
        let mut rows = Vec::new();
        let same_name = self.by_name.entry(info.name.clone()).or_default();
        let known = same_name.iter().find(|place| self.topics[**place].is(info));
        let topic = match known {
            Some(place) => {
                let topic = &mut self.topics[*place];
                let profiles = &info.offered_qos_profiles;
                let is_newer = !profiles.is_empty() && topic.offered_qos_profiles != *profiles
                    || topic.type_description_hash.is_empty() && !info.type_description_hash.is_empty();
                if is_newer {
                    rows.push(TopicRow::Again { topic_id: topic.id });
                    topic.offered_qos_profiles.clone_from(profiles);
                }
                if topic.type_description_hash.is_empty() {
                    topic
                        .type_description_hash
                        .clone_from(&info.type_description_hash);
                }
                topic
            }
            None => {
                rows.push(TopicRow::New { topic_id: new_id });
                same_name.push(self.topics.len());
                self.topics.push(Topic {
                    id: new_id,
                    name: info.name.clone(),
                    type_name: info.type_name.clone(),
                    serialization_format: info.serialization_format.clone(),
                    offered_qos_profiles: info.offered_qos_profiles.clone(),
                    type_description_hash: info.type_description_hash.clone(),
                    publishers: Vec::new(),
                });
                let last = self.topics.len() - 1;
                &mut self.topics[last]
            }
        };
        let topic_id = topic.id;
        let found = topic.publishers.iter().find(|(known, _)| *known == gid);
        let id = match found {
            Some((_, id)) => *id,
            None => {
                topic.publishers.push((gid.clone(), new_id));
                // Messages of a topic without publishers need no row.
                if gid.is_some() || new_id != topic_id {
                    rows.push(TopicRow::Publisher { id: new_id, topic_id });
                    self.has_publishers = true;
                }
                new_id
            }
        };
        self.places.push(Place {
            topic_id,
            publisher_id: (id != topic_id).then_some(id),
        });
        rows
    }

    /// The id of the publisher of each channel; empty if none is known.
    pub(super) fn publishers(&self) -> impl Iterator<Item = (i64, ChannelIndex)> {
        let id = |place: &Place| place.publisher_id.unwrap_or(place.topic_id);
        let places = self.places.iter().filter(|_| self.has_publishers);
        places.map(id).zip((0..).map(ChannelIndex))
    }
}
