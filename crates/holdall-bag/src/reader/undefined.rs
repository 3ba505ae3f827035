//! Topics of a bag that cannot be decoded, because the definition of their type is unknown.

use super::{bag::Bag, error::ReadError};
use crate::writer::UndefinedTopic;
use holdall_model::{interface::bundle::Bundle, topic::DefinitionEncoding};
use holdall_storage::writer::ChannelInfo;
use std::collections::{BTreeMap, BTreeSet};

impl Bag {
    /// Topics of the bag's first and last files whose type neither a channel nor this program defines, by
    /// name.
    ///
    /// # Errors
    /// One of these files cannot be read.
    pub fn undefined_topics(&self) -> Result<Vec<UndefinedTopic>, ReadError> {
        let mut topics = BTreeMap::new();
        let mut defined = BTreeSet::new();
        for file in self.outer_files() {
            for channel in &file.open()?.outline().channels {
                let topic = &channel.info.topic;
                if channel.info.definition.encoding != DefinitionEncoding::Unknown
                    || is_bundled(&channel.info)
                {
                    defined.insert(topic.type_name.clone());
                }
                topics.insert((topic.name.clone(), topic.type_name.clone()), ());
            }
        }
        let undefined = topics
            .into_keys()
            .filter(|(_, type_name)| !defined.contains(type_name));
        Ok(undefined
            .map(|(name, type_name)| UndefinedTopic { name, type_name })
            .collect())
    }
}

/// Whether the program's own definition of the type has the announced hash, or no hash was announced.
fn is_bundled(info: &ChannelInfo) -> bool {
    let announced = &info.topic.type_description_hash;
    let bundled = Bundle::embedded().define(&info.topic.type_name);
    bundled.is_ok_and(|definition| announced.is_empty() || definition.type_hash() == *announced)
}
