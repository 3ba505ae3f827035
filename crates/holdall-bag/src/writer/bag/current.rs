//! The storage file that is being written.

use super::{
    BagTopic, PublisherSlot, ROSBAG2_RECORD, WriteError,
    channels::{FileChannels, Found},
    classes::TopicsOfClass,
    content::FileContent,
    latched::FileHead,
    place::{NextFile, Place},
    rosbag2_record,
    topics::Topics,
};
use crate::writer::{CompressionMode, folder::FileIdentity};
use holdall_io::{
    disk::{FileId, Operation},
    queue::{DiskQueue, SyncToken},
};
use holdall_model::{
    metadata::BagMetadata,
    repeated::{FileRepeats, REPEATED_RECORD},
    topic::PublisherInfo,
    topic_class::OpenFile,
};
use holdall_storage::{
    compression::FORMATS,
    writer::{ChannelIndex, ChannelInfo, MetadataEntries, StorageWriter, StoredMessage},
};

/// A file that takes messages.
pub(super) struct CurrentFile {
    writer: Box<dyn StorageWriter>,
    file: FileId,
    number: u32,
    name: String,
    channels: FileChannels,
    head: FileHead,
    /// The file with this name must be this one.
    identity: FileIdentity,
    /// Steps since its beginning without a known identity.
    unidentified_steps: u64,
}

/// Whether the disk has made a file.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Made {
    /// It may not have come to that yet.
    Perhaps,
    /// All that it was given is done.
    Surely,
}

/// A file that takes no more messages, in its parts.
pub(super) struct TakenFile {
    pub writer: Box<dyn StorageWriter>,
    pub file: FileId,
    pub number: u32,
    pub name: String,
    pub channels: FileChannels,
    pub identity: FileIdentity,
    pub content: FileContent,
}

impl CurrentFile {
    /// Begins a file that the disk makes: it states first how its payloads are stored, for the case that it is cut off before its end.
    pub fn begin(place: &mut Place, next: NextFile, channels: FileChannels) -> Result<Self, WriteError> {
        let path = place.path_of(&next.name);
        let options = &place.options;
        let mut writer =
            options
                .storage
                .create_writer(&mut place.queue, next.file, &path, &options.storage_options)?;
        let mut empty = BagMetadata {
            custom_data: options.custom_data.clone(),
            ..BagMetadata::default()
        };
        empty.storage_identifier = options.storage.id().to_owned();
        empty.ros_distro = options.ros_distro.clone();
        if options.compression.mode == CompressionMode::Message {
            CompressionMode::Message
                .as_metadata()
                .clone_into(&mut empty.compression_mode);
            FORMATS[0].clone_into(&mut empty.compression_format);
        }
        writer.write_metadata(&mut place.queue, ROSBAG2_RECORD, &rosbag2_record(&empty))?;
        Ok(Self {
            writer,
            file: next.file,
            number: next.number,
            name: next.name,
            channels,
            head: FileHead::default(),
            identity: place.folder.file_identity(&path).or_unknown(),
            unidentified_steps: 0,
        })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    #[inline]
    pub fn number(&self) -> u32 {
        self.number
    }

    pub fn file(&self) -> FileId {
        self.file
    }

    pub fn head(&self) -> &FileHead {
        &self.head
    }

    /// As a topic's rate is judged in it.
    pub fn open_file(&self, topic: BagTopic) -> OpenFile {
        let repeated = || self.head.bytes.get(&topic).copied().unwrap_or(0);
        OpenFile {
            number: self.number,
            repeated_bytes: self.head.mark.is_some().then(repeated),
        }
    }

    pub fn bytes_written(&self) -> u64 {
        self.writer.bytes_written()
    }

    /// Messages in it, without those that it repeats.
    pub fn new_messages(&self) -> u64 {
        let all = self.writer.summary().message_count;
        all.saturating_sub(self.head.messages())
    }

    /// What it holds so far.
    pub fn content(&self) -> FileContent {
        FileContent::new(self.writer.summary(), &self.channels, self.head.clone())
    }

    /// Where a message of a topic's publisher belongs.
    #[inline]
    pub fn find(&mut self, topic: BagTopic, publisher: Option<PublisherSlot>) -> Found {
        self.channels.find(topic, publisher)
    }

    #[inline]
    pub fn write(
        &mut self,
        queue: &mut DiskQueue,
        channel: ChannelIndex,
        message: StoredMessage<'_>,
    ) -> Result<(), WriteError> {
        Ok(self.writer.write(queue, channel, message)?)
    }

    pub fn write_record(
        &mut self,
        queue: &mut DiskQueue,
        name: &str,
        entries: &MetadataEntries,
    ) -> Result<(), WriteError> {
        Ok(self.writer.write_metadata(queue, name, entries)?)
    }

    /// Marks what it repeats, before those messages: a file that is cut off within them has the mark.
    pub fn begin_head(
        &mut self,
        queue: &mut DiskQueue,
        mark: FileRepeats,
        mut head: FileHead,
    ) -> Result<(), WriteError> {
        self.write_record(queue, REPEATED_RECORD, &mark.entries())?;
        head.mark = Some(Box::new(mark));
        self.head = head;
        Ok(())
    }

    pub fn step(&mut self, queue: &mut DiskQueue) -> Result<(), WriteError> {
        Ok(self.writer.step(queue)?)
    }

    pub fn make_durable(&mut self, queue: &mut DiskQueue) -> Result<Option<SyncToken>, WriteError> {
        Ok(self.writer.make_durable(queue)?)
    }

    pub fn hand_over(&mut self, queue: &mut DiskQueue) -> Result<(), WriteError> {
        Ok(self.writer.hand_over(queue)?)
    }

    pub fn hand_over_large(&mut self, queue: &mut DiskQueue) -> Result<bool, WriteError> {
        Ok(self.writer.hand_over_large(queue)?)
    }

    /// Its first messages that the system has; repeated messages come before them and do not count.
    pub fn handed(&mut self, queue: &DiskQueue) -> u64 {
        let handed = self.writer.handed(queue);
        handed.saturating_sub(self.head.messages())
    }

    pub fn add_topic(&mut self) {
        self.channels.add_topic();
    }

    /// The topic's next messages get a new channel.
    pub fn renew(&mut self, topic: BagTopic) {
        self.channels.renew(topic);
    }

    pub fn forget(&mut self, topic: BagTopic, slot: PublisherSlot) {
        self.channels.forget(topic, slot);
    }

    pub fn topics_with_channel(&self) -> Vec<BagTopic> {
        self.channels.with_channel()
    }

    /// The channel of a publisher that has no message in this file yet.
    #[cold]
    pub fn new_channel(
        &mut self,
        place: &mut Place,
        topics: &Topics,
        topic: BagTopic,
        slot: Option<PublisherSlot>,
        publisher: Option<PublisherInfo>,
    ) -> Result<ChannelIndex, WriteError> {
        let publisher = publisher.filter(|_| slot.is_some());
        let (channel, _) = self.make_channel(place, topics, topic, publisher)?;
        self.channels.assign(topic, slot, channel);
        Ok(channel)
    }

    /// The channel for a publisher's messages, or the topic's common one, and the identifier of the publisher that the file has for it.
    pub fn make_channel(
        &mut self,
        place: &mut Place,
        topics: &Topics,
        topic: BagTopic,
        publisher: Option<PublisherInfo>,
    ) -> Result<(ChannelIndex, Option<String>), WriteError> {
        let info = topics.get(topic)?;
        let channels = &mut self.channels;
        let can_tell = place.options.storage.keeps_publishers();
        let publisher = publisher.filter(|_| can_tell);
        let known = publisher.as_ref().and_then(|it| channels.publisher(topic, it));
        let publisher = publisher.filter(|_| known.is_some() || channels.has_room(topic));
        let known = known.or_else(|| channels.common(topic).filter(|_| publisher.is_none()));
        let gid = publisher.as_ref().map(|publisher| publisher.gid.clone());
        let channel = match known {
            Some(known) => known,
            None => {
                let info = channel_info(info, publisher.as_ref());
                let made = self.writer.add_channel(&mut place.queue, &info)?;
                channels.add(topic, publisher, made);
                made
            }
        };
        Ok((channel, gid))
    }

    /// Gives topics of its class without a message their channel, so that the file names them.
    pub fn add_empty_channels(
        &mut self,
        place: &mut Place,
        topics: &Topics,
        of_class: TopicsOfClass<'_>,
    ) -> Result<(), WriteError> {
        let empty = self.channels.without_channel().into_iter();
        // A topic that has left these files may have got its definition since.
        let renewed = self.channels.topics();
        for topic in empty.filter(|topic| of_class.has(*topic) || renewed.contains(topic)) {
            self.new_channel(place, topics, topic, None, None)?;
        }
        Ok(())
    }

    /// Whether it has messages and was never found under its name.
    pub fn is_unidentified(&self) -> bool {
        self.identity == FileIdentity::Unknown && self.writer.summary().message_count > 0
    }

    /// Whether the disk could not make it.
    pub fn was_never_made(&self, queue: &DiskQueue) -> bool {
        let state = queue.check(self.file);
        state.is_err_and(|error| error.operation == Operation::Create)
    }

    /// How it vanished, when the file of its name is another one or none.
    pub fn how_it_vanished(&mut self, place: &Place, made: Made) -> Option<&'static str> {
        let now = place.folder.file_identity(&place.path_of(&self.name));
        if self.identity == FileIdentity::Unknown && !(made == Made::Surely && now == FileIdentity::None) {
            // The file may have been made since; from now on it is known.
            if now != FileIdentity::None {
                self.identity = now;
            }
            return None;
        }
        if now == self.identity || now == FileIdentity::Unknown {
            return None;
        }
        Some(if now == FileIdentity::None {
            "deleted"
        } else {
            "replaced"
        })
    }

    /// Learns which file it is, when that was not made yet as it was begun: one that is deleted before the first check is noticed, too.
    pub fn learn_identity(&mut self, place: &Place) {
        if self.identity != FileIdentity::Unknown {
            return;
        }
        self.unidentified_steps += 1;
        // Ever more rarely: in a folder that knows no identities each lookup is in vain.
        if !self.unidentified_steps.is_power_of_two() {
            return;
        }
        let now = place.folder.file_identity(&place.path_of(&self.name));
        if now != FileIdentity::None {
            self.identity = now;
        }
    }

    /// Takes it apart.
    pub fn take_apart(self) -> TakenFile {
        TakenFile {
            content: self.content(),
            writer: self.writer,
            file: self.file,
            number: self.number,
            name: self.name,
            channels: self.channels,
            identity: self.identity,
        }
    }
}

/// The description of a publisher's channel: the topic, and whose messages of it.
fn channel_info(topic: &ChannelInfo, publisher: Option<&PublisherInfo>) -> ChannelInfo {
    let mut info = topic.clone();
    info.topic.publisher = publisher.cloned().map(Box::new);
    info
}
