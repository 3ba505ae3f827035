//! Storages whose files are made of chunks: whole chunks are listed, and copied into other files without reading their messages.

use crate::{
    StorageOptions,
    error::StorageResult,
    reader::StorageSummary,
    writer::{ChannelIndex, ChannelInfo, MetadataEntries},
};
use holdall_io::{fs::File, output::OutputDisk};
use holdall_model::time::Timestamp;
use serde::Serialize;
use std::{any::Any, path::Path};

/// A storage whose files are made of chunks.
pub trait ChunkStorage: Send + Sync {
    /// Opens a file whose chunks are listed or copied.
    ///
    /// # Errors
    /// A file that cannot be read or is not of this storage.
    fn open(&self, path: &Path) -> StorageResult<Box<dyn ChunkFile>>;

    /// Checks that settings name a codec for chunks, as [`SpliceChoice::codec`] needs it.
    ///
    /// # Errors
    /// Settings that are not valid.
    fn check_codec(&self, options: &StorageOptions) -> StorageResult<()>;

    /// Makes a file from the selected messages of other files: parts in the order of their first log time, then of the
    /// inputs. Each part is read whole and compared with its checksum and its index before it is copied. The file is durable
    /// once the disk is finished.
    ///
    /// The inputs' metadata records are not copied. Attachments are, unless the job removes them.
    ///
    /// # Errors
    /// An input that belongs to another storage, cannot be read, or is damaged while damage must not be left out; a disk
    /// that fails or is full. The part written so far is not removed.
    fn splice(&self, job: SpliceJob<'_>) -> StorageResult<Spliced>;
}

/// A file that is made from chunks of others.
pub struct SpliceJob<'a> {
    /// The files that it is made from.
    pub inputs: &'a [Box<dyn ChunkFile>],
    /// The choice of their messages.
    pub choice: &'a SpliceChoice,
    /// The disk that it is written to.
    pub disk: &'a mut OutputDisk,
    /// Its path.
    pub path: &'a Path,
    /// Metadata records at its beginning.
    pub opening: &'a [(&'a str, MetadataEntries)],
    /// Metadata records at its end.
    pub closing: ClosingRecords<'a>,
    /// The attachments that are removed and added; the others are copied.
    pub attachments: AttachmentChange<'a>,
    /// Receives the number of bytes processed.
    pub progress: &'a mut dyn FnMut(u64),
}

/// Which attachments a file loses and gets while it is copied.
#[derive(Clone, Copy, Debug, Default)]
pub struct AttachmentChange<'a> {
    /// Names of those that are not copied.
    pub removed: &'a [String],
    /// New attachments.
    pub added: &'a [NewAttachment<'a>],
}

/// A file that becomes an attachment.
#[derive(Clone, Copy, Debug)]
pub struct NewAttachment<'a> {
    /// Name of the attachment.
    pub name: &'a str,
    /// Its media type, as `text/plain`.
    pub media_type: &'a str,
    /// When it is attached.
    pub log_time: Timestamp,
    /// When it was made; `None` when that is not known.
    pub create_time: Option<Timestamp>,
    /// The file with its content.
    pub file: &'a File,
    /// Offset of its content in this file.
    pub offset: u64,
    /// Length of its content.
    pub bytes: u64,
}

/// A file stored in another one along with the messages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AttachmentInfo {
    /// Name; several can have the same one.
    pub name: String,
    /// Its media type, as `text/plain`; may be empty.
    pub media_type: String,
    /// When it was attached.
    pub log_time: Timestamp,
    /// When it was made; `None` when that is not known.
    pub create_time: Option<Timestamp>,
    /// Offset of its content in the file.
    #[serde(skip)]
    pub offset: u64,
    /// Length of its content.
    pub bytes: u64,
}

/// A file that is made of chunks.
pub trait ChunkFile: Any + Send + Sync {
    /// The content of the file.
    fn summary(&self) -> &StorageSummary;

    /// True when the file has an index: its chunks and message indexes are found without reading all of it.
    ///
    /// # Errors
    /// A file that cannot be read.
    fn has_index(&self) -> StorageResult<bool>;

    /// Encodings of its schemas that ROS does not use; only splicing keeps them.
    fn foreign_schemas(&self) -> Vec<String>;

    /// First log time, last log time and bytes of each part of the file that holds messages, including its
    /// indexes.
    ///
    /// # Errors
    /// A file that cannot be read.
    fn parts(&self) -> StorageResult<Vec<(Timestamp, Timestamp, u64)>>;

    /// The parts of the file that hold messages, for tools that list them.
    ///
    /// # Errors
    /// A file that cannot be read.
    fn chunks(&self) -> StorageResult<Vec<ChunkSummary>>;

    /// The attachments of the file, in its order.
    ///
    /// # Errors
    /// A file that cannot be read.
    fn attachments(&self) -> StorageResult<Vec<AttachmentInfo>>;

    /// Whether the attachment at this place of [`ChunkFile::attachments`] has the checksum that is stored with it;
    /// `None` if none is stored.
    ///
    /// # Errors
    /// A file that cannot be read; an attachment that does not exist.
    fn attachment_is_intact(&self, place: usize) -> StorageResult<Option<bool>>;
}

/// A part of a file that holds messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkSummary {
    /// Its offset in the file.
    pub offset: u64,
    /// Its length in the file.
    pub length: u64,
    /// Length of its records before compression.
    pub uncompressed_bytes: u64,
    /// A chunk's codec, empty for none; `None` for messages outside of chunks.
    pub compression: Option<String>,
    /// Smallest log time.
    pub starting_time: Timestamp,
    /// Largest log time.
    pub ending_time: Timestamp,
    /// The channels that it has messages of; `None` when that is not known without reading it.
    pub channels: Option<Vec<ChannelIndex>>,
}

/// The messages of the inputs that are selected.
#[derive(Clone, Debug, Default)]
pub struct SpliceChoice {
    /// By input and channel: whether it is selected.
    pub channels: Vec<Vec<bool>>,
    /// Only messages of this log time or later.
    pub from: Option<Timestamp>,
    /// Only messages of this log time or earlier.
    pub until: Option<Timestamp>,
    /// Settings whose codec compresses all chunks; `None` leaves each unchanged. With a codec no chunk is copied unchanged.
    pub codec: Option<StorageOptions>,
    /// Leaves out and lists damaged parts; otherwise damage is an error.
    pub leaves_out_damage: bool,
}

/// The content of a spliced file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spliced {
    /// Its topics with their number of messages; a topic with several channels is listed once for each.
    pub channels: Vec<(ChannelInfo, u64)>,
    /// Smallest log time.
    pub starting_time: Option<Timestamp>,
    /// Largest log time.
    pub ending_time: Option<Timestamp>,
    /// Chunks that were copied unchanged.
    pub copied_chunks: u64,
    /// Bytes of the file that were copied unchanged.
    pub copied_bytes: u64,
    /// Parts that had to be unpacked.
    pub unpacked: u64,
    /// Its length.
    pub bytes: u64,
    /// Damaged parts of the inputs that were left out.
    pub left_out: Vec<LeftOutPart>,
}

/// A part of an input that was left out because it is damaged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOutPart {
    /// Place of the input among those of the job.
    pub input: usize,
    /// The file, the place and the damage, one clause.
    pub reason: String,
    /// Offset of the part in the file.
    pub offset: u64,
    /// Smallest and largest log time of the part's messages, by its index.
    pub times: (Timestamp, Timestamp),
    /// Number of selected messages by channel; `None` if it is not known.
    pub messages: Option<Vec<(ChannelIndex, u64)>>,
}

impl Spliced {
    /// Messages in the file.
    pub fn message_count(&self) -> u64 {
        self.channels.iter().map(|(_, count)| count).sum()
    }
}

/// Metadata records for the end of the file, made when its content is known.
pub type ClosingRecords<'a> = &'a mut dyn FnMut(&Spliced) -> Vec<(String, MetadataEntries)>;
