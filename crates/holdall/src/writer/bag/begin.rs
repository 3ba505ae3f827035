//! How a bag begins: its threads, its disk, and its first file.

use super::{
    BagFolder, BagOptions, BagWriter, FileChannels, Handed, NextFile, OpenDisk, SplitRule, WriteError,
};
use crate::writer::{CompressionMode, pack_files::FilePacker};
use holdall_io::queue::DiskQueue;
use std::collections::VecDeque;

impl BagWriter {
    /// What a bag needs besides its directory: threads that pack its files, and its disk.
    pub(super) fn open_parts(
        options: &BagOptions,
        open_disk: OpenDisk,
    ) -> Result<(Option<FilePacker>, DiskQueue), WriteError> {
        let packer = (options.compression.mode == CompressionMode::File)
            .then(|| FilePacker::start(&options.compression))
            .transpose()
            .map_err(WriteError::Threads)?;
        Ok((packer, open_disk(&options.directory)?))
    }

    pub(super) fn begin_first(&mut self) -> Result<(), WriteError> {
        let name = self.file_name(0);
        let path = self.queue_path(&name)?;
        let reserve_bytes = self.reserve_bytes();
        let file = self.queue.create_file(&path, reserve_bytes)?;
        self.begin_file(NextFile { file, name })?;
        self.write_metadata(false)
    }

    pub(super) fn begin(options: BagOptions, queue: DiskQueue, folder: Box<dyn BagFolder>) -> Self {
        let stem = options
            .directory
            .file_name()
            .map_or_else(|| "bag".to_owned(), |name| name.to_string_lossy().into_owned());
        let split = SplitRule::new(options.split.clone());
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
            removed: Vec::new(),
            vanished: Vec::new(),
            vanishing: Vec::new(),
            packer: None,
            end_records: None,
            latched: None,
            is_unseen: false,
        }
    }
}
