//! A bag's description of itself: `metadata.yaml`, and rosbag2's record in each file.

use super::{BagWriter, CurrentFile, Packing, by_place};
use crate::writer::{
    WriteError,
    metadata::{BagFacts, FileFacts, bag_metadata},
    note_sealed,
};
use holdall_model::metadata::{BagMetadata, MEMORY_KEY};
use holdall_storage::writer::MetadataEntries;
use std::collections::BTreeMap;

/// Name and key of the record that carries rosbag2's metadata in a storage file.
pub const ROSBAG2_RECORD: &str = "rosbag2";
const ROSBAG2_KEY: &str = "serialized_metadata";

/// In `custom_data` of `metadata.yaml` while the bag is being written: counts of its last file are not final, and it may have no end.
pub const STATE_KEY: &str = "holdall.state";

impl BagWriter {
    pub(super) fn write_last_metadata(
        &mut self,
        custom_data: &BTreeMap<String, String>,
    ) -> Result<(), WriteError> {
        let mut metadata = self.metadata(custom_data);
        if self.queue.seals() {
            note_sealed(&self.options.directory, &mut metadata);
        }
        Ok(self.folder.replace_text(
            &self.options.directory.join("metadata.yaml"),
            &metadata.to_yaml(),
            true,
        )?)
    }

    /// Writes `metadata.yaml` as known so far, so that a killed recording has one that names all files.
    pub(super) fn write_metadata(&mut self, durable: bool) -> Result<(), WriteError> {
        if self.is_unseen {
            return Ok(());
        }
        let mut state = BTreeMap::from([(STATE_KEY.to_owned(), "recording".to_owned())]);
        let memory = self.options.memory.clone();
        state.extend(memory.map(|id| (MEMORY_KEY.to_owned(), id)));
        state.extend(self.removed.entry());
        let text = self.metadata(&state).to_yaml();
        Ok(self
            .folder
            .replace_text(&self.options.directory.join("metadata.yaml"), &text, durable)?)
    }

    /// Identity that distinguishes its directory from copies of it; `None` if unknown.
    pub fn directory_identity(&self) -> Option<String> {
        self.folder.directory_identity(&self.options.directory)
    }

    pub(super) fn metadata(&self, more_custom_data: &BTreeMap<String, String>) -> BagMetadata {
        let content = self.current.as_ref().map(CurrentFile::content);
        let current = self.current.as_ref().map(|current| current.name.as_str());
        let mut files: Vec<FileFacts<'_>> = self
            .past
            .iter()
            .map(|past| FileFacts {
                name: &past.name,
                summary: &past.content.summary,
                is_packed: past.packing == Packing::Done,
            })
            .collect();
        if let (Some(name), Some(content)) = (current, &content) {
            files.push(FileFacts {
                name,
                summary: &content.summary,
                is_packed: false,
            });
        }
        let mut custom_data = self.options.custom_data.clone();
        custom_data.extend(more_custom_data.clone());
        custom_data.extend(self.marks());
        let facts = BagFacts {
            storage_id: self.options.storage.id(),
            compression: self.options.compression.mode,
            custom_data: &custom_data,
            ros_distro: self.options.ros_distro.as_deref(),
        };
        let past = self.past.iter().map(|past| &past.content);
        let messages = past.chain(&content).flat_map(|content| content.stored());
        let counts = by_place(self.topics.len(), messages);
        let topics = self.topics.iter().map(|topic| &topic.topic).zip(counts);
        bag_metadata(&facts, topics, &files)
    }
}

/// The record that carries rosbag2's metadata.
pub fn rosbag2_record(metadata: &BagMetadata) -> MetadataEntries {
    MetadataEntries::from([(ROSBAG2_KEY.to_owned(), metadata.to_yaml_without_wrapper())])
}
