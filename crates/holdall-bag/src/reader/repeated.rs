//! Messages that a bag's files repeat: reading the whole bag yields each message once, reading one file alone yields all its messages.

use super::{Bag, ReadError, bag_file::BagFile, message::BagMessage, ros1::SharedReader};
use holdall_model::{
    metadata::BagMetadata,
    repeated::{BagRepeats, Copies, FileRepeats, elsewhere, repeats_to_custom_data},
};
use holdall_storage::{
    compression::unpacked_name,
    repeated::{repeated_messages, repeats_of, without_copies},
};
use std::{
    collections::{BTreeMap, HashSet},
    ffi::OsString,
    path::Path,
    slice,
    sync::Arc,
};

/// Copies of a file that are not read again.
#[derive(Clone, Debug)]
pub(in crate::reader) struct HiddenCopies {
    repeats: FileRepeats,
    copies: Copies,
}

impl HiddenCopies {
    /// The file without them.
    pub fn hide_in(&self, reader: SharedReader) -> SharedReader {
        without_copies(reader, self.repeats.clone(), self.copies.clone())
    }

    /// Their number by topic and type.
    fn counts(&self) -> impl Iterator<Item = (&str, &str, u64)> {
        let channels = self.repeats.channels.iter().enumerate();
        channels.map(|(place, channel)| {
            (
                channel.topic.as_str(),
                channel.type_name.as_str(),
                self.copies.of_channel(place),
            )
        })
    }
}

impl Bag {
    /// The marks of its files, by their names; without files that have none.
    pub fn repeats(&self) -> &BagRepeats {
        &self.repeats
    }

    /// Messages that files repeat, by topic: read or not.
    pub fn copies_by_topic(&self) -> BTreeMap<String, u64> {
        let mut topics = BTreeMap::new();
        for channel in self.repeats.values().flat_map(|file| &file.channels) {
            *topics.entry(channel.topic.clone()).or_insert(0) += channel.messages.len() as u64;
        }
        topics
    }

    /// Copies that are read, because the bag has their messages nowhere else: topic, identifier of the publisher, number.
    pub fn shown_copies(&self) -> Vec<(String, Option<String>, u64)> {
        let hidden = |name: &str| {
            let name = name_of(Path::new(name));
            let mut files = self.files.iter().filter(|file| name_of(&file.path) == name);
            files.next().and_then(|file| file.hidden.clone())
        };
        let mut shown = Vec::new();
        for (name, repeats) in &self.repeats {
            let hidden = hidden(name);
            for (place, channel) in repeats.channels.iter().enumerate() {
                let hidden = hidden
                    .as_ref()
                    .map_or(0, |hidden| hidden.copies.of_channel(place));
                let count = channel.messages.len() as u64 - hidden;
                shown.push((channel.topic.clone(), channel.publisher.clone(), count));
            }
        }
        shown.retain(|(.., count)| *count > 0);
        shown
    }

    /// Copies by topic that are not read, because the bag has their messages elsewhere. They are in no count.
    pub fn hidden_by_topic(&self) -> BTreeMap<String, u64> {
        let mut topics = BTreeMap::new();
        let hidden = self.files.iter().filter_map(|file| file.hidden.as_deref());
        for (topic, _, count) in hidden
            .flat_map(HiddenCopies::counts)
            .filter(|(.., count)| *count > 0)
        {
            *topics.entry(topic.to_owned()).or_insert(0) += count;
        }
        topics
    }

    /// The metadata as other readers see the files: with all copies, and with the marks.
    pub fn stored_metadata(&self) -> BagMetadata {
        let mut metadata = self.metadata.clone();
        change_counts(&mut metadata, &self.files, u64::saturating_add);
        metadata.custom_data.extend(repeats_to_custom_data(&self.repeats));
        metadata
    }

    /// The bag with each message once.
    pub(in crate::reader) fn with_copies_once(mut self) -> Self {
        // A missing file has no message that a copy could stand for.
        if !self.repeats.is_empty() {
            let names: HashSet<OsString> = self.files.iter().map(|file| name_of(&file.path)).collect();
            self.repeats
                .retain(|file, _| names.contains(&name_of(Path::new(file))));
        }
        hide_copies(slice::from_mut(&mut self));
        self
    }

    /// The bag without any copies, by the marks in its files.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub(in crate::reader) fn originals(&self) -> Result<Self, ReadError> {
        let mut bag = self.clone();
        bag.repeats.clear();
        for file in &bag.files {
            let mark = repeats_of(&*file.open_whole()?);
            let name = name_of(&file.path).to_string_lossy().into_owned();
            bag.repeats.extend(mark.map(|mark| (name, mark)));
        }
        let all = bag.repeats.values().map(FileRepeats::all).collect();
        bag.hide(all);
        Ok(bag)
    }

    /// Reads all but these copies, which are in the order of the marks.
    fn hide(&mut self, copies: Vec<Copies>) {
        change_counts(&mut self.metadata, &self.files, u64::saturating_add);
        let mut hidden: BTreeMap<OsString, HiddenCopies> = BTreeMap::new();
        for ((name, repeats), copies) in self.repeats.iter().zip(copies) {
            let repeats = repeats.clone();
            if !copies.is_none() {
                hidden.insert(name_of(Path::new(name)), HiddenCopies { repeats, copies });
            }
        }
        for file in &mut self.files {
            file.hidden = hidden.remove(&name_of(&file.path)).map(Arc::new);
        }
        change_counts(&mut self.metadata, &self.files, u64::saturating_sub);
    }
}

/// For bags that are read together: hides the copies of messages that one of them has elsewhere.
pub(super) fn hide_copies(bags: &mut [Bag]) {
    let marks: Vec<&FileRepeats> = bags.iter().flat_map(|bag| bag.repeats.values()).collect();
    if marks.is_empty() {
        return;
    }
    let mut chosen = elsewhere(marks).into_iter();
    for bag in bags {
        let of_bag = chosen.by_ref().take(bag.repeats.len()).collect();
        bag.hide(of_bag);
    }
}

impl BagFile {
    /// The messages that the file repeats, read or not.
    pub(crate) fn repeated(&self) -> Result<Vec<BagMessage>, ReadError> {
        let reader = self.open_whole()?;
        let messages = repeated_messages(&*reader)?;
        let channels = &reader.outline().channels;
        let found = messages.into_iter().filter_map(|message| {
            let channel = channels.get(message.channel.0 as usize)?;
            Some(BagMessage {
                topic: Arc::new(channel.info.topic.clone()),
                stamp: message.log_time,
                log_time: message.log_time,
                publish_time: message.publish_time,
                sequence: message.sequence,
                payload: message.payload,
            })
        });
        Ok(found.collect())
    }
}

/// By which a file is known, packed or not.
fn name_of(path: &Path) -> OsString {
    let path = unpacked_name(path);
    path.file_name().unwrap_or(path.as_os_str()).to_owned()
}

/// Takes the hidden copies of files out of the counts of the metadata, or puts them in.
fn change_counts(metadata: &mut BagMetadata, files: &[BagFile], change: fn(u64, u64) -> u64) {
    for (file, hidden) in files
        .iter()
        .filter_map(|file| Some((file, file.hidden.as_ref()?)))
    {
        let count = hidden.counts().map(|(.., count)| count).sum();
        metadata.message_count = change(metadata.message_count, count);
        let name = name_of(&file.path);
        let is_match = |information: &str| name_of(Path::new(information)) == name;
        if let Some(file) = metadata.files.iter_mut().find(|file| is_match(&file.path)) {
            file.message_count = change(file.message_count, count);
        }
        for (name, type_name, count) in hidden.counts() {
            let mut topics = metadata.topics_with_message_count.iter_mut();
            let topic = topics.find(|topic| {
                let topic = &topic.topic_metadata;
                topic.name == name && topic.type_name == type_name
            });
            if let Some(topic) = topic {
                topic.message_count = change(topic.message_count, count);
            }
        }
    }
}
