//! The files that are finished: closed by the disk, packed, announced, and removed when the ring is full.

use super::{
    TopicCount, UploadedFiles, WriteError,
    channels::FileChannels,
    content::{FileContent, by_place, counts},
    current::TakenFile,
    expired::Expired,
    place::Place,
    topics::Topics,
};
use crate::writer::{
    folder::FileIdentity,
    metadata::FileFacts,
    pack_files::{FilePacker, PackedFile},
};
use holdall_io::{disk::FileId, queue::DiskQueue};
use holdall_model::{file_class::RingLimit, repeated::FileRepeats, time::Timestamp};
use holdall_storage::{
    compression::packed_name,
    writer::{FileSummary, StorageWriter},
};
use std::{
    collections::VecDeque,
    path::{Path, PathBuf},
};

/// A file that was finished.
pub(super) struct PastFile {
    pub name: String,
    pub number: u32,
    /// Which file it was while it was written.
    pub identity: FileIdentity,
    pub content: FileContent,
    /// `Some` until the disk has closed it.
    pub closing: Option<FileId>,
    pub packing: Packing,
    /// The disk failed while it was written: its contents must be read back.
    pub is_torn: bool,
    /// [`PastFiles::take_complete`] has returned it.
    is_announced: bool,
    /// It can be removed to make room for newer ones.
    is_in_ring: bool,
    /// Time of its last message on the clock that spans are measured by.
    pub until: Option<Timestamp>,
}

/// How far a file's compression is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Packing {
    /// The file stays unchanged.
    No,
    /// When it is closed.
    Wanted,
    /// A thread has it.
    AtWork,
    /// The packed file has replaced it.
    Done,
}

impl PastFile {
    /// A file that the disk is to close, and the parts of it that end now.
    pub fn of(taken: TakenFile, is_in_ring: bool) -> (Self, Box<dyn StorageWriter>, FileChannels) {
        let past = Self {
            name: taken.name,
            number: taken.number,
            identity: taken.identity,
            content: taken.content,
            closing: Some(taken.file),
            packing: Packing::No,
            is_torn: false,
            is_announced: false,
            is_in_ring,
            until: None,
        };
        (past, taken.writer, taken.channels)
    }

    /// Its present name in the directory.
    pub fn present_name(&self) -> PathBuf {
        match self.packing {
            Packing::Done => packed_name(Path::new(&self.name)),
            Packing::No | Packing::Wanted | Packing::AtWork => PathBuf::from(&self.name),
        }
    }

    /// As `metadata.yaml` lists it.
    pub fn facts(&self) -> FileFacts<'_> {
        FileFacts {
            name: &self.name,
            summary: &self.content.summary,
            is_packed: self.packing == Packing::Done,
        }
    }

    fn is_busy(&self) -> bool {
        self.closing.is_some() || self.packing == Packing::AtWork
    }
}

/// The finished files of a bag, oldest first.
pub(super) struct PastFiles {
    files: VecDeque<PastFile>,
    /// Bytes of all of them, removed ones included, before they were packed.
    bytes: u64,
    expired: Expired,
    /// Set for compression of whole files.
    packer: Option<FilePacker>,
    /// `None` unless a full disk costs uploaded files only.
    uploaded: Option<UploadedFiles>,
    /// The oldest file was being copied when that was asked last. It is asked again with the next file: an answer costs system calls.
    is_held: bool,
}

impl PastFiles {
    pub fn new(packer: Option<FilePacker>) -> Self {
        Self {
            files: VecDeque::new(),
            bytes: 0,
            expired: Expired::default(),
            packer,
            uploaded: None,
            is_held: false,
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = &PastFile> {
        self.files.iter()
    }

    pub fn len(&self) -> usize {
        self.files.len()
    }

    /// Bytes of all files so far, removed ones included, before they were packed.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Adds a file, with which all files have `bytes` bytes.
    pub fn push(&mut self, mut past: PastFile, bytes: u64) {
        if self.packer.is_some() && !past.is_torn {
            past.packing = Packing::Wanted;
        }
        self.bytes = bytes;
        self.is_held = false;
        self.files.push_back(past);
    }

    /// Notes how the storage's end of the newest file was written.
    pub fn ended(&mut self, finished: Option<&FileSummary>, channels: &FileChannels) {
        let Some(past) = self.files.back_mut() else {
            return;
        };
        match finished {
            Some(summary) => {
                let head = std::mem::take(&mut past.content.head);
                past.content = FileContent::new(summary.clone(), channels, head);
            }
            None => past.is_torn = true,
        }
    }

    /// Messages by topic, without those that files repeat.
    pub fn messages(&self, topics: &Topics) -> Vec<TopicCount> {
        let past = self.files.iter().flat_map(|past| &past.content.messages);
        counts(&by_place(topics.all().len(), past)).collect()
    }

    /// The marks of what they repeat.
    pub fn marks(&self) -> impl Iterator<Item = (&str, Option<&FileRepeats>)> {
        self.files
            .iter()
            .map(|past| (past.name.as_str(), past.content.head.mark.as_deref()))
    }

    /// Files that the disk has not closed.
    pub fn closing(&self) -> Vec<FileId> {
        self.files.iter().filter_map(|past| past.closing).collect()
    }

    pub fn is_closing(&self, file: FileId) -> bool {
        self.files.iter().any(|past| past.closing == Some(file))
    }

    /// Records which files are closed.
    ///
    /// # Errors
    /// A close that failed.
    pub fn settle(&mut self, queue: &mut DiskQueue) -> Result<(), WriteError> {
        for past in &mut self.files {
            if let Some(file) = past.closing
                && queue.try_closed(file)?
            {
                past.closing = None;
            }
        }
        Ok(())
    }

    /// As [`Self::settle`], and waits until all are closed.
    ///
    /// # Errors
    /// As [`Self::settle`].
    pub fn wait_closed(&mut self, queue: &mut DiskQueue) -> Result<(), WriteError> {
        for past in &mut self.files {
            if let Some(file) = past.closing {
                queue.wait_closed(file)?;
                past.closing = None;
            }
        }
        Ok(())
    }

    /// Gives closed files to the packer, and removes the plain files of those that are packed. True when a name has
    /// changed. With `wait`, waits until all are done. A file that cannot be packed stays unchanged: nothing is lost.
    ///
    /// # Errors
    /// A plain file that cannot be removed.
    pub fn pack(&mut self, place: &Place, wait: bool) -> Result<bool, WriteError> {
        let Some(packer) = &self.packer else {
            return Ok(false);
        };
        for past in &mut self.files {
            if past.packing == Packing::Wanted && past.closing.is_none() {
                packer.submit(place.path_of(&past.name));
                past.packing = Packing::AtWork;
            }
        }
        let mut changed = false;
        loop {
            let wait = wait && self.files.iter().any(|past| past.packing == Packing::AtWork);
            let Some(PackedFile { plain, result }) = packer.take_done(wait) else {
                return Ok(changed);
            };
            let is_match = |past: &&mut PastFile| place.path_of(&past.name) == plain;
            let Some(past) = self.files.iter_mut().find(is_match) else {
                continue;
            };
            match result {
                Ok(()) => {
                    past.packing = Packing::Done;
                    changed = true;
                    let packed = place.path_of(past.present_name());
                    let unpacked = std::mem::replace(
                        &mut past.identity,
                        place.folder.file_identity(&packed).or_unknown(),
                    );
                    place.folder.remove_that(&plain, unpacked)?;
                }
                Err(error) => {
                    past.packing = Packing::No;
                    tracing::warn!("{} was not compressed: {error}", plain.display());
                }
            }
        }
    }

    /// Files that are whole, durable and under their last name since the last call, in order.
    pub fn take_complete(&mut self, place: &Place) -> Vec<PathBuf> {
        let is_new = |past: &&mut PastFile| {
            let is_packed = matches!(past.packing, Packing::No | Packing::Done);
            is_packed && past.closing.is_none() && !past.is_torn && !past.is_announced
        };
        let new = self.files.iter_mut().filter(is_new);
        new.map(|past| {
            past.is_announced = true;
            place.path_of(past.present_name())
        })
        .collect()
    }

    /// Those that can be removed, oldest first.
    pub fn in_ring(&self) -> impl Iterator<Item = &PastFile> {
        self.files.iter().filter(|past| past.is_in_ring)
    }

    /// Whether a file can be removed once the disk has closed it.
    pub fn has_removable(&self) -> bool {
        self.in_ring().next().is_some()
    }

    /// Whether the oldest file is beyond the ring, when those that take messages may come to `open_bytes`.
    pub fn is_ring_passed(&self, ring: RingLimit, open_bytes: u64) -> bool {
        let Some(oldest) = self.in_ring().next() else {
            return false;
        };
        let bytes = self.in_ring().map(|past| past.content.summary.bytes).sum();
        let newest = self.in_ring().filter_map(|past| past.until).max();
        ring.is_passed((bytes, open_bytes), oldest.until, newest)
    }

    /// The length of the oldest file in bytes.
    pub fn oldest_bytes(&self) -> Option<u64> {
        self.in_ring().next().map(|oldest| oldest.content.summary.bytes)
    }

    /// From now on a full disk costs only files that are uploaded.
    pub fn keep_until_uploaded(&mut self, uploaded: UploadedFiles) {
        self.uploaded = Some(uploaded);
    }

    /// Whether the oldest file may be removed as far as an upload is concerned.
    pub fn is_oldest_uploaded(&self, place: &Place) -> bool {
        let (Some(uploaded), Some(oldest)) = (&self.uploaded, self.in_ring().next()) else {
            return true;
        };
        uploaded.has(&place.path_of(oldest.present_name()))
    }

    /// Whether the oldest file is being copied, or was when the newest one was finished.
    pub fn is_oldest_held(&mut self, place: &Place) -> bool {
        if !self.is_held {
            let times = self.in_ring().next().and_then(|oldest| {
                let summary = &oldest.content.summary;
                summary.starting_time.zip(summary.ending_time)
            });
            self.is_held = times
                .is_some_and(|(first, last)| place.folder.is_held(&place.options.directory, first, last));
        }
        self.is_held
    }

    /// Takes the oldest file out, to be removed, if the disk has closed it.
    pub fn take_oldest(&mut self) -> Option<PastFile> {
        let place = self.files.iter().position(|past| past.is_in_ring)?;
        if self.files[place].is_busy() {
            return None;
        }
        self.files.remove(place)
    }

    /// Returns a file that could not be removed: it stays in the bag and in the account.
    pub fn put_back(&mut self, oldest: PastFile) {
        self.files.push_front(oldest);
    }

    /// The files that the ring removed.
    pub fn expired(&mut self) -> &mut Expired {
        &mut self.expired
    }

    /// For the metadata of a bag that is being written: the files that the ring removed.
    pub fn expired_entry(&self) -> Option<(String, String)> {
        self.expired.entry()
    }

    /// Every file, to be ended one by one.
    pub fn all_mut(&mut self) -> impl Iterator<Item = &mut PastFile> {
        self.files.iter_mut()
    }

    /// Drops files by name that are not part of the bag.
    pub fn drop_absent(&mut self, absent: &[String]) {
        self.files.retain(|past| !absent.contains(&past.name));
    }
}
