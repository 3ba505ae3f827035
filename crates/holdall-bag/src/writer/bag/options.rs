//! What bag to write, and what is known of it when it has ended.

use crate::writer::{
    BagFolder, CompressionMode, CompressionOptions, OsFolder, SplitOptions, TopicCount, WriteError,
};
use holdall_io::{
    block::BlockPoolOptions,
    disk::DiskError,
    os::{DiskMode, OsDisk},
    queue::DiskQueue,
    sealed::{Seal, SealingDisk},
};
use holdall_storage::{
    DEFAULT_STORAGE_ID, Storage, StorageError, StorageOptions, reader::StorageReader, writer::MetadataEntries,
};
use serde::Serialize;
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

/// A topic of a bag: dense index from 0 in the order of [`BagWriter::add_topic`](super::BagWriter::add_topic).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BagTopic(pub u32);

/// Opens the disk for a directory that was just made.
pub type OpenDisk = Box<dyn FnOnce(&Path) -> Result<DiskQueue, DiskError> + Send>;

/// The operating system's disk.
pub fn os_disk(mode: DiskMode, blocks: BlockPoolOptions) -> OpenDisk {
    Box::new(move |directory| DiskQueue::new(Box::new(OsDisk::open(directory, mode)?), blocks))
}

/// The operating system's disk, whose files are sealed.
pub fn sealed_os_disk(mode: DiskMode, blocks: BlockPoolOptions, seal: Seal) -> OpenDisk {
    Box::new(move |directory| {
        let disk = Box::new(OsDisk::open(directory, mode)?);
        DiskQueue::new(Box::new(SealingDisk::new(disk, seal)), blocks)
    })
}

/// The disk and the folder of a bag on the operating system's disk, encrypted if there is a seal.
pub fn bag_places(
    mode: DiskMode,
    blocks: BlockPoolOptions,
    seal: Option<Seal>,
) -> (OpenDisk, Box<dyn BagFolder>) {
    match seal {
        Some(seal) => (
            sealed_os_disk(mode, blocks, seal.clone()),
            Box::new(OsFolder::sealed(seal)),
        ),
        None => (os_disk(mode, blocks), Box::<OsFolder>::default()),
    }
}

/// Options of a new bag.
#[derive(Clone)]
pub struct BagOptions {
    /// The directory to make; must not exist.
    pub directory: PathBuf,
    /// How its files are stored.
    pub storage: &'static dyn Storage,
    /// The backend's settings.
    pub storage_options: StorageOptions,
    /// When to split into a new file.
    pub split: SplitOptions,
    /// rosbag2's own compression: closed files are packed here, payloads by the caller that writes messages (`PayloadPacking`).
    pub compression: CompressionOptions,
    /// Goes to `custom_data`.
    pub custom_data: BTreeMap<String, String>,
    /// Goes to `ros_distro`.
    pub ros_distro: Option<String>,
    /// The id of the memory with the messages not stored yet; in `custom_data` while the bag is being written.
    pub memory: Option<String>,
}

/// A file that the disk has failed.
pub struct TornFile {
    /// Its number, see [`BagWriter::file_number`](super::BagWriter::file_number).
    pub number: u32,
    /// A reader of the part that the disk has kept, if any.
    pub reader: Option<Arc<dyn StorageReader>>,
    /// The bag's topic of each of the reader's channels.
    pub topics: Vec<Option<BagTopic>>,
}

/// How the files of a bag ended, for a caller that keeps an account of its messages.
pub struct BagEnd {
    /// Files that may have lost data, because the disk has failed.
    pub torn: Vec<TornFile>,
    /// Messages in files that the ring has removed and [`BagWriter::take_expired`](super::BagWriter::take_expired) has not returned.
    pub expired: Vec<TopicCount>,
    /// Messages that can be read, without repeated ones.
    pub messages: Vec<TopicCount>,
    /// Messages that files repeat.
    pub repeated: Vec<TopicCount>,
    /// Something has failed.
    pub failed: bool,
}

/// A topic whose type no file of the bag defines: its messages cannot be decoded by the bag alone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct UndefinedTopic {
    /// Full ROS name.
    pub name: String,
    /// ROS type.
    #[serde(rename = "type")]
    pub type_name: String,
}

/// A closed bag.
#[derive(Debug)]
pub struct ClosedBag {
    /// Its directory.
    pub directory: PathBuf,
    /// Its storage files, in order.
    pub files: Vec<PathBuf>,
    /// Those of them that are whole and durable and that [`BagWriter::take_complete`](super::BagWriter::take_complete) has not returned.
    pub complete: Vec<PathBuf>,
    /// Messages that can be read from these files, as the storage writers counted them (or, after a failure, as they were read back).
    pub messages: Vec<TopicCount>,
    /// Topics without a definition.
    pub undefined: Vec<UndefinedTopic>,
    /// Where the caller's account differs from that, one sentence each; the writer itself keeps no account.
    pub account_faults: Vec<String>,
    /// The first error, if any; everything that could be kept is in the files nevertheless.
    pub failure: Option<WriteError>,
}

/// Records that a file carries at its end in addition to what every bag has. Called when a file other than the last
/// is closed, with the bytes that the records may use: a short file must not be filled with what all files repeat.
pub type EndRecords = Box<dyn Fn(u64) -> Vec<(String, MetadataEntries)> + Send>;

/// Refuses options whose files would bypass the disk that seals them.
pub(super) fn refuse_unsealed(options: &BagOptions) -> Result<(), StorageError> {
    match why_not_encrypted(options.storage, options.compression.mode) {
        None => Ok(()),
        Some(reason) => Err(StorageError::Unsupported {
            path: options.directory.clone(),
            what: "encryption",
            reason,
        }),
    }
}

/// Why a bag with this storage and compression cannot be encrypted, and which can; `None` if it can.
pub fn why_not_encrypted(storage: &dyn Storage, compression: CompressionMode) -> Option<String> {
    if !storage.writes_blocks() {
        let id = storage.id();
        return Some(format!(
            "storage {id} writes its files itself, so that they cannot be encrypted; use {DEFAULT_STORAGE_ID}"
        ));
    }
    let reason = "compression of whole files reads them again, so that they cannot be encrypted; use message compression or a storage preset that \
                  compresses";
    (compression == CompressionMode::File).then(|| reason.to_owned())
}
