//! Content of inputs that is not ROS 2 messages: schemas of other encodings, and attachments.

use super::{ToolError, in_place::replace_file};
use holdall_bag::reader::Bag;
use holdall_io::fs::{self, File};
use holdall_storage::{
    Storage,
    chunks::{AttachmentChange, AttachmentInfo, NewAttachment},
    storage_of_file,
};
use std::path::PathBuf;

/// Content of one input file that is not ROS 2 messages.
#[derive(Clone, Debug)]
pub(super) struct Beyond {
    path: PathBuf,
    schemas: Vec<String>,
    attachments: Vec<AttachmentInfo>,
}

/// Content of the bags' files that is not ROS 2 messages; files without such content are left out.
pub(super) fn gather(bags: &[Bag]) -> Result<Vec<Beyond>, ToolError> {
    let mut all = Vec::new();
    for bag in bags.iter().filter(|bag| bag.chunks().is_some()) {
        for file in bag.files().iter().filter(|file| !file.is_packed()) {
            let Some(chunks) = file.storage()?.and_then(Storage::chunks) else {
                continue;
            };
            let opened = chunks.open(&file.path)?;
            let beyond = Beyond {
                path: file.path.clone(),
                schemas: opened.foreign_schemas(),
                attachments: opened.attachments()?,
            };
            if !(beyond.schemas.is_empty() && beyond.attachments.is_empty()) {
                all.push(beyond);
            }
        }
    }
    Ok(all)
}

/// Refuses what would be lost if all messages were written anew to a storage that could store it; warns of what the
/// storage has no place for.
pub(super) fn check(all: &[Beyond], storage: &dyn Storage) -> Result<(), ToolError> {
    let is_kept = storage.chunks().is_some();
    if let Some(foreign) = all.iter().find(|beyond| is_kept && !beyond.schemas.is_empty()) {
        let reason = format!(
            "it holds {foreign}, which only copying, choosing by topic and time, dividing by size, span or times, and compressing chunks keep"
        );
        return Err(ToolError::Unsupported {
            path: foreign.path.clone(),
            reason,
        });
    }
    if let Some(first) = all.first().filter(|_| !is_kept) {
        tracing::warn!(
            "{}: it holds {first}, for which storage {} has no place",
            first.path.display(),
            storage.id()
        );
    }
    Ok(())
}

/// Copies the attachments of all inputs into the last file of a bag that was written anew; the length that the file
/// has then. `None` if nothing was copied.
pub(super) fn carry_attachments(all: &[Beyond], files: &[PathBuf]) -> Result<Option<u64>, ToolError> {
    let Some(last) = files.last() else {
        return Ok(None);
    };
    if all.iter().all(|beyond| beyond.attachments.is_empty()) {
        return Ok(None);
    }
    let Some(chunks) = storage_of_file(last).and_then(Storage::chunks) else {
        tracing::warn!(
            "{}: attachments were not copied: the file is compressed",
            last.display()
        );
        return Ok(None);
    };
    let sources = all.iter().map(|beyond| File::open(&beyond.path));
    let sources = sources.collect::<Result<Vec<_>, _>>()?;
    let mut added: Vec<NewAttachment<'_>> = Vec::new();
    for (beyond, file) in all.iter().zip(&sources) {
        added.extend(beyond.attachments.iter().map(|info| as_new(info, file)));
    }
    let input = chunks.open(last)?;
    let records = input.summary().metadata.clone();
    let change = AttachmentChange {
        removed: &[],
        added: &added,
    };
    replace_file(last, chunks, input, &records, change)?;
    Ok(Some(fs::file_len(last)?))
}

fn as_new<'a>(info: &'a AttachmentInfo, file: &'a File) -> NewAttachment<'a> {
    NewAttachment {
        name: &info.name,
        media_type: &info.media_type,
        log_time: info.log_time,
        create_time: info.create_time,
        file,
        offset: info.offset,
        bytes: info.bytes,
    }
}

impl std::fmt::Display for Beyond {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let count = self.attachments.len();
        match (self.schemas.is_empty(), count) {
            (true, _) => write!(f, "attachments ({count})"),
            (false, 0) => write!(f, "schemas in {}", self.schemas.join(", ")),
            (false, _) => write!(
                f,
                "schemas in {}, and attachments ({count})",
                self.schemas.join(", ")
            ),
        }
    }
}
