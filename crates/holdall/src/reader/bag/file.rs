//! One storage file of a bag.

use crate::{
    reader::{
        error::ReadError,
        file::{self, Payloads, SharedReader, UnpackedFiles},
    },
    rescue::RecordedFile,
};
use holdall_model::time::Timestamp;
use holdall_storage::{Storage, compression::is_packed_name, storage_by_magic};
use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

/// How ROS 1 messages are presented.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ros1View {
    /// Messages of ROS 1 bags as ROS 2 messages (types `pkg/msg/Type`, payloads in CDR, definitions in ROS
    /// 2's format); those in files of ROS 2's storages as stored.
    #[default]
    BagsConverted,
    /// All as ROS 2 messages, including those that an MCAP file stores in ROS 1 form.
    AllConverted,
    /// All as stored: types `pkg/Type`, serialization `ros1`.
    AsStored,
}

/// One storage file of a bag.
#[derive(Clone)]
pub struct BagFile {
    /// Its path.
    pub path: PathBuf,
    /// Its length in bytes.
    pub bytes: u64,
    /// Lower bound of its log times; `None` if unknown.
    pub(in crate::reader) earliest: Option<Timestamp>,
    /// True for a file that is known to have no messages.
    pub(in crate::reader) empty: bool,
    /// Whether each payload is compressed (rosbag2's message compression).
    pub(in crate::reader) payloads: Payloads,
    /// Kept from opening the bag.
    pub(in crate::reader) reader: Option<SharedReader>,
    /// The bag's packed files that are currently unpacked.
    pub(in crate::reader) unpacked: UnpackedFiles,
    pub(in crate::reader) view: Ros1View,
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
        let opened = match &self.reader {
            Some(reader) => return Ok(Arc::clone(reader)),
            None if self.is_packed() => self.unpacked.open(&self.path, self.payloads)?,
            None => file::open(&self.path, self.payloads)?,
        };
        Ok(file::in_view(opened, self.view).0)
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
        // A storage may be a directory, and what was found in a killed recorder's memory is no file.
        let is_file = self.path.is_file() || self.reader.is_none();
        if !is_file || self.path.is_dir() {
            return Ok(None);
        }
        Ok(storage_by_magic(&file::begins_with(&self.path)?))
    }

    /// True when each payload in the file is compressed (rosbag2's message compression).
    pub fn has_packed_payloads(&self) -> bool {
        self.payloads == Payloads::Packed
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
