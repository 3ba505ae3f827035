//! `attach` and `get`: files and key-value pairs that a bag stores in addition to its messages.

use super::{ToolError, in_place::replace_file};
use holdall_bag::{
    live::lock_bag,
    reader::{Attached, Attachment, Bag, is_reserved},
};
use holdall_io::{fs::File, new_file::remove_left_over};
use holdall_model::time::Timestamp;
use holdall_storage::{
    Storage,
    chunks::{AttachmentChange, ChunkFile, ChunkStorage, NewAttachment},
    storage_of_file,
    writer::MetadataEntries,
};
use std::path::{Path, PathBuf};

/// Bytes read at once.
const BLOCK_BYTES: u64 = 1 << 20;

/// A file to attach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileToAttach {
    /// Where it is now.
    pub path: PathBuf,
    /// Name in the bag.
    pub name: String,
    /// Its media type, as `text/plain`.
    pub media_type: String,
}

/// Changes to a bag's attachments and metadata.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Names of attachments and metadata records that are removed first; each must exist.
    pub removed: Vec<String>,
    /// Files that are attached; one of the same name is replaced.
    pub files: Vec<FileToAttach>,
    /// A metadata record; one of the same name is replaced.
    pub metadata: Option<(String, MetadataEntries)>,
}

/// Passes the content of an attachment to `out`, block by block, after its checksum was compared. `out` returns
/// false to end early.
///
/// # Errors
/// A file that cannot be read, a checksum that does not match.
pub fn read_attachment(attachment: &Attachment, out: &mut dyn FnMut(&[u8]) -> bool) -> Result<(), ToolError> {
    let Some(chunks) = storage_of_file(&attachment.file).and_then(Storage::chunks) else {
        return Err(without_attachments(&attachment.file));
    };
    let opened = chunks.open(&attachment.file)?;
    if opened.attachment_is_intact(attachment.place)? == Some(false) {
        return Err(ToolError::DamagedAttachment {
            path: attachment.file.clone(),
            name: attachment.info.name.clone(),
        });
    }
    let file = File::open(&attachment.file)?;
    let mut at = 0;
    while at < attachment.info.bytes {
        let count = (attachment.info.bytes - at).min(BLOCK_BYTES);
        // At most a block.
        let block = file.read_bytes_at(attachment.info.offset + at, count as usize)?;
        if !out(&block) {
            return Ok(());
        }
        at += count;
    }
    Ok(())
}

/// Changes the attachments and metadata of a bag. New attachments and metadata are stamped `at` and get into its last file; each file
/// that changes is replaced by a copy that is complete and durable.
///
/// # Errors
/// A storage without attachments, a bag that is being recorded or was torn, a name that does not exist or belongs to
/// a recorder, a file that cannot be read or written. No file of the bag is changed then, or each one wholly or not.
pub fn attach(path: &Path, change: &Change, at: Timestamp) -> Result<Attached, ToolError> {
    let _lock = lock_bag(path)?;
    let bag = Bag::open_locked(path)?;
    let listed: Vec<&PathBuf> = bag.files().iter().map(|file| &file.path).collect();
    let Some(last) = listed.last() else {
        return Err(unsupported(path, "it has no storage files".to_owned()));
    };
    if let Some(name) = change.named().find(|name| is_reserved(name)) {
        return Err(unsupported(
            path,
            format!("{name:?} is a name of recorders' own metadata"),
        ));
    }
    remove_left_over(last.parent().unwrap_or(path));
    let before = bag.attached()?;
    if let Some(absent) = change.removed.iter().find(|name| !has(&before, name)) {
        return Err(unsupported(path, format!("nothing named {absent:?} is attached")));
    }
    // All are opened before any is changed.
    let opened = listed.iter().map(|file| Ok((*file, open_whole(file)?)));
    let opened = opened.collect::<Result<Vec<_>, ToolError>>()?;
    let sources = change.files.iter().map(|file| File::open(&file.path));
    let sources = sources.collect::<Result<Vec<_>, _>>()?;
    let attachment = |(file, content)| new_attachment(file, content, at);
    let added = Added {
        attachments: change.files.iter().zip(&sources).map(attachment).collect(),
        metadata: change.metadata.as_ref(),
    };
    let nothing = Added::default();
    for (file, input) in opened {
        change_file(file, input, change, if file == *last { &added } else { &nothing })?;
    }
    Ok(Bag::open_locked(path)?.attached()?)
}

/// A file that is open to be copied.
type Opened = (&'static dyn ChunkStorage, Box<dyn ChunkFile>);

/// Attachments and metadata that a file gets.
#[derive(Default)]
struct Added<'a> {
    attachments: Vec<NewAttachment<'a>>,
    metadata: Option<&'a (String, MetadataEntries)>,
}

fn new_attachment<'a>(file: &'a FileToAttach, content: &'a File, at: Timestamp) -> NewAttachment<'a> {
    NewAttachment {
        name: &file.name,
        media_type: &file.media_type,
        log_time: at,
        create_time: None,
        file: content,
        offset: 0,
        bytes: content.len_bytes(),
    }
}

impl Change {
    /// The names that it removes or stores.
    fn named(&self) -> impl Iterator<Item = &String> {
        let removed = self.removed.iter();
        removed.chain(self.metadata.as_ref().map(|(name, _)| name))
    }

    /// Names of attachments that disappear or are replaced.
    fn gone_attachments(&self) -> Vec<String> {
        let replaced = self.files.iter().map(|file| file.name.clone());
        self.removed.iter().cloned().chain(replaced).collect()
    }
}

fn has(contents: &Attached, name: &str) -> bool {
    contents.attachments.iter().any(|found| found.info.name == name)
        || contents.metadata.iter().any(|(found, _)| found == name)
}

/// Replaces a file when the change concerns it; new attachments and metadata are `added`.
fn change_file(
    path: &Path,
    (chunks, input): Opened,
    change: &Change,
    added: &Added<'_>,
) -> Result<(), ToolError> {
    let gone = change.gone_attachments();
    let before = &input.summary().metadata;
    let replaced = change.metadata.as_ref().map(|(name, _)| name);
    let mut records = before.clone();
    records.retain(|(name, _)| !change.removed.contains(name) && Some(name) != replaced);
    records.extend(added.metadata.cloned());
    let is_changed = !added.attachments.is_empty()
        || records != *before
        || input
            .attachments()?
            .iter()
            .any(|found| gone.contains(&found.name));
    if !is_changed {
        return Ok(());
    }
    let attachments = AttachmentChange {
        removed: &gone,
        added: &added.attachments,
    };
    replace_file(path, chunks, input, &records, attachments)
}

/// Opens a file that can be copied unread.
fn open_whole(path: &Path) -> Result<Opened, ToolError> {
    let Some(chunks) = storage_of_file(path).and_then(Storage::chunks) else {
        return Err(without_attachments(path));
    };
    let input = chunks.open(path)?;
    if !input.has_index()? {
        let reason =
            "it is torn or has no index; `holdall repair` completes it, `holdall reindex` adds the index";
        return Err(unsupported(path, reason.to_owned()));
    }
    Ok((chunks, input))
}

fn without_attachments(path: &Path) -> ToolError {
    let reason = "only MCAP files have attachments and metadata records";
    unsupported(path, reason.to_owned())
}

fn unsupported(path: &Path, reason: String) -> ToolError {
    ToolError::Unsupported {
        path: path.to_owned(),
        reason,
    }
}
