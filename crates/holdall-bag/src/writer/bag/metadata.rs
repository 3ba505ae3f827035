//! A bag's description of itself: `metadata.yaml`, and rosbag2's record in each file.

use super::{
    content::by_place,
    current::CurrentFile,
    past::{PastFile, PastFiles},
    place::Place,
    room::Room,
    topics::Topics,
};
use crate::writer::{
    WriteError,
    metadata::{BagFacts, FileFacts, bag_metadata},
};
use holdall_model::{
    metadata::BagMetadata,
    repeated::{BagRepeats, repeats_to_custom_data},
};
use holdall_storage::writer::{ChannelInfo, FileSummary, MetadataEntries};
use std::collections::BTreeMap;

/// Name and key of the record that carries rosbag2's metadata in a storage file.
pub const ROSBAG2_RECORD: &str = "rosbag2";
const ROSBAG2_KEY: &str = "serialized_metadata";

/// In `custom_data` of `metadata.yaml` while the bag is being written: counts of its last file are not final, and it may have no end.
pub const STATE_KEY: &str = "holdall.state";

/// What a bag with these files states about itself, with more `custom_data`.
pub(super) fn metadata(
    place: &Place,
    topics: &Topics,
    past: &PastFiles,
    currents: &[&CurrentFile],
    more_custom_data: &BTreeMap<String, String>,
) -> BagMetadata {
    let currents: Vec<_> = currents
        .iter()
        .map(|current| (current.name(), current.content()))
        .collect();
    // What it has so far is not safe yet: when it is lost with its process and comes back from memory, in another file, none is missing here.
    let unknown = FileSummary::default();
    let mut files: Vec<FileFacts<'_>> = past.iter().map(PastFile::facts).collect();
    files.extend(currents.iter().map(|(name, _)| FileFacts {
        name,
        summary: &unknown,
        is_packed: false,
    }));
    let mut custom_data = place.options.custom_data.clone();
    custom_data.extend(more_custom_data.clone());
    let marks_of_currents = currents
        .iter()
        .map(|(name, content)| (*name, content.head.mark.as_deref()));
    let marks = past
        .marks()
        .chain(marks_of_currents)
        .filter_map(|(name, mark)| Some((name.to_owned(), mark?.clone())));
    custom_data.extend(repeats_to_custom_data(&marks.collect::<BagRepeats>()));
    let contents = past.iter().flat_map(|past| past.content.stored());
    let counts = by_place(topics.all().len(), contents);
    let topics = topics.all().iter().map(|topic| &topic.topic).zip(counts);
    bag_metadata(&facts(place, &custom_data), topics, &files)
}

/// The content of the metadata record of a finished file: this file alone. With all files in
/// each record, hundreds of short files contained little else.
pub(super) fn own_metadata(place: &Place, room: Room<'_>, past: &PastFile) -> BagMetadata {
    let topics: &[ChannelInfo] = if room.ending_topics_bytes() > 0 {
        room.topics.all()
    } else {
        &[]
    };
    let counts = by_place(topics.len(), past.content.stored());
    let file = FileFacts {
        name: &past.name,
        summary: &past.content.summary,
        is_packed: false,
    };
    let topics = topics.iter().map(|topic| &topic.topic).zip(counts);
    bag_metadata(&facts(place, &place.options.custom_data), topics, &[file])
}

fn facts<'a>(place: &'a Place, custom_data: &'a BTreeMap<String, String>) -> BagFacts<'a> {
    BagFacts {
        storage_id: place.options.storage.id(),
        compression: place.options.compression.mode,
        custom_data,
        ros_distro: place.options.ros_distro.as_deref(),
    }
}

/// Replaces `metadata.yaml`.
///
/// # Errors
/// A failed disk.
pub(super) fn replace(place: &Place, metadata: &BagMetadata, durable: bool) -> Result<(), WriteError> {
    let text = metadata.to_yaml();
    let path = place.path_of("metadata.yaml");
    Ok(place.folder.replace_text(&path, &text, durable)?)
}

/// The record that carries rosbag2's metadata.
pub fn rosbag2_record(metadata: &BagMetadata) -> MetadataEntries {
    MetadataEntries::from([(ROSBAG2_KEY.to_owned(), metadata.to_yaml_without_wrapper())])
}
