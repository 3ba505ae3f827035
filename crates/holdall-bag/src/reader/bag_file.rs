//! One storage file of a bag.

use crate::{
    reader::{
        error::ReadError,
        file::{self, Payloads, UnpackedFiles, damage},
        remote,
        repeated::HiddenCopies,
        ros1::{self, Ros1View, SharedReader},
    },
    rescue::RecordedFile,
};
use holdall_io::fs::{self, is_stored_sealed};
use holdall_model::time::Timestamp;
use holdall_storage::{
    Storage, compression::is_packed_name, reader::FileCondition, storage_by_magic, storage_of_file,
};
use std::{
    fmt,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
};

/// One storage file of a bag.
#[derive(Clone)]
pub struct BagFile {
    /// Its path.
    pub path: PathBuf,
    /// Its length in bytes.
    pub bytes: u64,
    /// Lower bound of its log times; `None` if unknown.
    pub(in crate::reader) earliest: Option<Timestamp>,
    /// Its last log time; `None` if unknown.
    pub(in crate::reader) latest: Option<Timestamp>,
    /// True for a file that is known to have no messages.
    pub(in crate::reader) empty: bool,
    /// Whether each payload is compressed (rosbag2's message compression).
    pub(in crate::reader) payloads: Payloads,
    /// Kept from opening the bag.
    pub(in crate::reader) reader: Option<SharedReader>,
    /// The bag's packed files that are currently unpacked.
    pub(in crate::reader) unpacked: UnpackedFiles,
    pub(in crate::reader) view: Ros1View,
    /// Copies of messages that are not read again.
    pub(in crate::reader) hidden: Option<Arc<HiddenCopies>>,
    /// Its reader from the first use on, for all clones of the file.
    pub(in crate::reader) kept: Option<Arc<OnceLock<SharedReader>>>,
}

impl BagFile {
    /// The file's reader, which returns payloads as they were sent: it undoes rosbag2's file and message
    /// compression.
    ///
    /// Messages of ROS 1 are presented in the view that the bag was opened with.
    ///
    /// A packed file is first unpacked into a temporary directory; its bag is not changed.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn open(&self) -> Result<SharedReader, ReadError> {
        let opened = self.open_whole()?;
        Ok(match &self.hidden {
            None => opened,
            Some(hidden) => hidden.hide_in(opened),
        })
    }

    /// As [`Self::open`], with all messages that the file repeats.
    pub fn open_whole(&self) -> Result<SharedReader, ReadError> {
        let kept = self.kept.as_deref();
        let opened = match self.reader.as_ref().or_else(|| kept?.get()) {
            Some(reader) => return Ok(Arc::clone(reader)),
            None if self.is_packed() || remote::is_copied(&self.path) => {
                self.unpacked.open(&self.path, self.payloads)?
            }
            None => file::open(&self.path, self.payloads)?,
        };
        let opened = ros1::in_view(opened, self.view).0;
        Ok(match kept {
            Some(kept) => Arc::clone(kept.get_or_init(|| opened)),
            None => opened,
        })
    }

    /// Whether it may have messages between two times, as far as is known without reading it.
    pub fn may_have(&self, from: Option<Timestamp>, until: Option<Timestamp>) -> bool {
        let is_before = self.latest.zip(from).is_some_and(|(latest, from)| latest < from);
        let is_after = self
            .earliest
            .zip(until)
            .is_some_and(|(earliest, until)| earliest > until);
        !self.empty && !is_before && !is_after
    }

    /// True for a file of rosbag2's file compression: opening it takes the time to unpack it.
    pub fn is_packed(&self) -> bool {
        is_packed_name(&self.path)
    }

    /// The file's storage, by its first bytes: a directory without metadata may have files of several
    /// storages. `None` for a directory, and for bytes that no storage knows.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn storage(&self) -> Result<Option<&'static dyn Storage>, ReadError> {
        // A storage may be a directory, and messages found in a killed recorder's memory are not in a file.
        if let Some(storage) = remote::storage_by_end(&self.path)? {
            return Ok(Some(storage));
        }
        let is_file = fs::is_file(&self.path) || self.reader.is_none();
        if !is_file || fs::is_dir(&self.path) {
            return Ok(None);
        }
        Ok(storage_by_magic(&file::begins_with(&self.path)?))
    }

    /// True for an encrypted file, which this process has a key for or not.
    pub fn is_sealed(&self) -> bool {
        is_stored_sealed(&self.path)
    }

    /// True if each payload in the file is compressed (rosbag2's message compression).
    pub fn has_packed_payloads(&self) -> bool {
        self.payloads == Payloads::Packed
    }

    /// One sentence for a file that does not end correctly; reads only its first or last bytes, so that a long bag opens
    /// at once. A directory without its last record counts if its recording has ended (`is_ended`).
    pub(super) fn cut_short(&self, is_ended: bool) -> Option<String> {
        let storage = storage_of_file(&self.path)?;
        // In an encrypted file, the end of its content counts.
        let has_end = matches!(storage.has_end(&self.path), Ok(None | Some(true)));
        if storage.is_directory() {
            let opened = file::open(&self.path, Payloads::Plain).ok();
            let is_damaged = |reader: &SharedReader| reader.outline().condition != FileCondition::Complete;
            let damaged = opened
                .filter(is_damaged)
                .and_then(|reader| damage(reader.summary()));
            return damaged.or_else(|| {
                let (path, bytes) = (self.path.display(), self.bytes);
                let found = "expected the record that closes it, found none: its records were cut off";
                (is_ended && !has_end).then(|| format!("{path} is damaged at byte {bytes}: {found}"))
            });
        }
        if has_end {
            return None;
        }
        match file::open(&self.path, Payloads::Plain) {
            Ok(reader) => damage(reader.summary()),
            Err(error) => Some(error.to_string()),
        }
    }
}

impl RecordedFile for BagFile {
    type Error = ReadError;

    fn path(&self) -> &Path {
        &self.path
    }

    fn open(&self) -> Result<SharedReader, ReadError> {
        Self::open(self)
    }
}

impl fmt::Debug for BagFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BagFile")
            .field("path", &self.path)
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}
