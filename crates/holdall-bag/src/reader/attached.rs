//! What a bag stores in addition to its messages: attachments and metadata records.

use super::{Bag, ReadError};
use holdall_storage::{Storage, chunks::AttachmentInfo, storage_of_file, writer::MetadataEntries};
use serde::{Serialize, Serializer};
use std::path::{Path, PathBuf};

/// Names of the metadata records that recorders write; they are not to be changed by hand.
const RESERVED_NAMES: [&str; 2] = ["rosbag2", "ros1_connection"];

/// Beginning of the names of holdall's own records.
const RESERVED_PREFIX: &str = "holdall:";

/// An attachment and its place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Attachment {
    /// The bag's file that contains it.
    #[serde(serialize_with = "displayed")]
    pub file: PathBuf,
    /// Its place among the attachments of this file.
    #[serde(skip)]
    pub place: usize,
    /// Name, type, times and length.
    #[serde(flatten)]
    pub info: AttachmentInfo,
}

/// Everything that a bag stores in addition to its messages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attached {
    /// The attachments of all files.
    pub attachments: Vec<Attachment>,
    /// The metadata records of all files, without those that recorders write for themselves.
    pub metadata: Vec<(String, MetadataEntries)>,
}

impl Bag {
    /// Lists the attachments and metadata records; nothing for storages without them. A file without its end is read whole.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn attached(&self) -> Result<Attached, ReadError> {
        let mut found = Attached::default();
        for file in self.files().iter().map(|file| &file.path) {
            let Some(chunks) = storage_of_file(file).and_then(Storage::chunks) else {
                continue;
            };
            let opened = chunks.open(file)?;
            let attached = opened.attachments()?.into_iter().enumerate();
            found.attachments.extend(attached.map(|(place, info)| Attachment {
                file: file.clone(),
                place,
                info,
            }));
            let records = opened.summary().metadata.iter();
            found
                .metadata
                .extend(records.filter(|(name, _)| !is_reserved(name)).cloned());
        }
        Ok(found)
    }
}

/// True for the names of recorders' own records.
pub fn is_reserved(name: &str) -> bool {
    RESERVED_NAMES.contains(&name) || name.starts_with(RESERVED_PREFIX)
}

/// A path that is not UTF-8 is text with replacements.
fn displayed<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&path.display())
}
