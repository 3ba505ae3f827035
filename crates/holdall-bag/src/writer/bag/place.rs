//! Where and how the files of a bag are written: its options, the disk's queue, its folder, and the names of its files.

use super::{BagFolder, BagOptions, OpenDisk, WriteError, options::refuse_unsealed};
use holdall_io::{disk::FileId, queue::DiskQueue};
use std::path::{Path, PathBuf};

/// The surroundings of a bag's files.
pub(super) struct Place {
    pub options: BagOptions,
    pub queue: DiskQueue,
    pub folder: Box<dyn BagFolder>,
    /// The directory's name, with which the names of its files begin.
    stem: String,
    /// Files that were made, and those of them that were begun.
    made: u32,
    begun: u32,
}

/// A file that the disk makes or has made, without content.
pub(super) struct NextFile {
    pub file: FileId,
    pub name: String,
    pub number: u32,
}

impl Place {
    /// Opens the disk of a bag's directory.
    ///
    /// # Errors
    /// A disk that cannot be opened, or that seals its files where the storage writes past it.
    pub fn open_disk(options: &BagOptions, open_disk: OpenDisk) -> Result<DiskQueue, WriteError> {
        let mut queue = open_disk(&options.directory)?;
        queue.share_among(options.split.streams_max())?;
        if queue.seals() {
            refuse_unsealed(options)?;
        }
        Ok(queue)
    }

    pub fn new(mut options: BagOptions, queue: DiskQueue, folder: Box<dyn BagFolder>) -> Self {
        let stem = options
            .directory
            .file_name()
            .map_or_else(|| "bag".to_owned(), |name| name.to_string_lossy().into_owned());
        options.storage_options.ros_distro.clone_from(&options.ros_distro);
        Self {
            options,
            queue,
            folder,
            stem,
            made: 0,
            begun: 0,
        }
    }

    /// A file takes messages from now on.
    pub fn note_begun(&mut self) {
        self.begun += 1;
    }

    /// No file was begun after the first one.
    pub fn has_only_first(&self) -> bool {
        self.begun <= 1
    }

    /// The path of a file of the bag.
    pub fn path_of(&self, name: impl AsRef<Path>) -> PathBuf {
        self.options.directory.join(name)
    }

    /// The length at which a file ends, in bytes.
    pub fn bytes_max(&self) -> Option<u64> {
        self.options.split.bytes_max
    }

    /// Makes the first file, and waits until it exists.
    pub fn create_file(&mut self) -> Result<NextFile, WriteError> {
        let (name, number) = self.next_name("");
        let path = self.queue_path(&name)?;
        let file = self.queue.create_file(&path, self.reserve_bytes())?;
        Ok(NextFile { file, name, number })
    }

    /// Makes the next file, of the class with this name, without waiting.
    pub fn create_file_ahead(&mut self, class: &str) -> Result<NextFile, WriteError> {
        let (name, number) = self.next_name(class);
        let path = self.queue_path(&name)?;
        let file = self.queue.create_file_ahead(&path, self.reserve_bytes());
        Ok(NextFile { file, name, number })
    }

    /// Removes a file that was made ahead and never needed.
    pub fn remove_unused(&mut self, next: &NextFile) -> Result<(), WriteError> {
        let closed = self
            .queue
            .close_file(next.file, 0)
            .and_then(|()| self.queue.wait_closed(next.file));
        self.folder.remove_file(&self.path_of(&next.name))?;
        Ok(closed?)
    }

    /// All classes count together, so that a number is of one file.
    fn next_name(&mut self, class: &str) -> (String, u32) {
        let number = self.made;
        self.made += 1;
        let separator = if class.is_empty() { "" } else { "_" };
        let name = format!("{}{separator}{class}_{number}", self.stem);
        let name = match self.options.storage.extension() {
            None => name,
            Some(extension) => format!("{name}.{extension}"),
        };
        (name, number)
    }

    /// The file that the queue is to make for a storage file. Where that is a directory, it is made here.
    fn queue_path(&self, name: &str) -> Result<PathBuf, WriteError> {
        let path = self.path_of(name);
        let made = self.options.storage.queue_path(&path);
        if made != path {
            self.folder.create_new(&path)?;
        }
        Ok(made)
    }

    /// Bytes to reserve for a file; the disk reserves more as it grows. A database grows its file itself.
    fn reserve_bytes(&self) -> u64 {
        let grows_by_blocks = self.options.storage.writes_blocks();
        self.bytes_max().filter(|_| grows_by_blocks).unwrap_or(0)
    }
}
