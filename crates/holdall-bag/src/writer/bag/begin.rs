//! How a bag begins: its threads, its disk, and its first file.

use super::{
    BagFolder, BagOptions, BagWriter, FileChannels, Handed, NextFile, OpenDisk, SplitRule, WriteError,
};
use crate::writer::{CompressionMode, pack_files::FilePacker};
use holdall_io::queue::DiskQueue;
use holdall_storage::{DEFAULT_STORAGE_ID, Storage, StorageError};
use std::collections::VecDeque;

impl BagWriter {
    /// Parts that a bag needs besides its directory: threads that pack its files, and its disk.
    pub(super) fn open_parts(
        options: &BagOptions,
        open_disk: OpenDisk,
    ) -> Result<(Option<FilePacker>, DiskQueue), WriteError> {
        let packer = (options.compression.mode == CompressionMode::File)
            .then(|| FilePacker::start(&options.compression))
            .transpose()
            .map_err(WriteError::Threads)?;
        let queue = open_disk(&options.directory)?;
        if queue.seals() {
            refuse_unsealed(options)?;
        }
        Ok((packer, queue))
    }

    pub(super) fn begin_first(&mut self) -> Result<(), WriteError> {
        let name = self.file_name(0);
        let path = self.queue_path(&name)?;
        let reserve_bytes = self.reserve_bytes();
        let file = self.queue.create_file(&path, reserve_bytes)?;
        self.begin_file(NextFile { file, name })?;
        self.write_metadata(false)
    }

    pub(super) fn begin(mut options: BagOptions, queue: DiskQueue, folder: Box<dyn BagFolder>) -> Self {
        let stem = options
            .directory
            .file_name()
            .map_or_else(|| "bag".to_owned(), |name| name.to_string_lossy().into_owned());
        let split = SplitRule::new(options.split.clone());
        options.storage_options.ros_distro.clone_from(&options.ros_distro);
        Self {
            options,
            queue,
            folder,
            stem,
            topics: Vec::new(),
            current: None,
            next_channels: FileChannels::default(),
            next: None,
            past: VecDeque::new(),
            split,
            files_begun: 0,
            topics_bytes: 0,
            channels_bytes: 0,
            past_bytes: 0,
            sync: None,
            handed: Handed::default(),
            removed: Default::default(),
            vanished: Vec::new(),
            vanishing: Vec::new(),
            packer: None,
            end_records: None,
            latched: None,
            is_unseen: false,
            uploaded: None,
        }
    }
}

/// Refuses options whose files would bypass the disk that seals them.
fn refuse_unsealed(options: &BagOptions) -> Result<(), StorageError> {
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
