//! Replaces a file of a bag by a copy of itself with other metadata records or attachments, whole or not at all.

use super::ToolError;
use holdall_bag::writer::note_replaced;
use holdall_io::{
    disk::{DiskError, Operation},
    fs,
    output::OutputDisk,
    unfinished::Unfinished,
};
use holdall_storage::{
    StorageError,
    chunks::{AttachmentChange, ChunkFile, ChunkStorage, SpliceChoice, SpliceJob},
    writer::MetadataEntries,
};
use std::{
    io,
    path::{Path, PathBuf},
};

/// Copies the file at `path`, which `input` is, and replaces it when the copy is complete and durable. Chunks are
/// copied unchanged; the metadata records are `records`.
pub(super) fn replace_file(
    path: &Path,
    chunks: &dyn ChunkStorage,
    input: Box<dyn ChunkFile>,
    records: &[(String, MetadataEntries)],
    attachments: AttachmentChange<'_>,
) -> Result<(), ToolError> {
    let temporary = temporary_beside(path);
    fs::remove_regular_file(&temporary)?;
    let replaced_file = fs::file_numbers(path)?;
    let _unfinished = Unfinished::new(&temporary);
    let made = OutputDisk::to_replace(path)
        .map_err(StorageError::from)
        .and_then(|disk| write_copy(chunks, input, records, attachments, disk, &temporary));
    let replaced = made.map_err(ToolError::from).and_then(|()| {
        if fs::file_numbers(path)? != replaced_file {
            let what = io::Error::other("another file took its name; it was left unchanged");
            return Err(DiskError::new(path, Operation::Rename, what).into());
        }
        fs::rename_over(&temporary, path)?;
        Ok(note_replaced(path)?)
    });
    if replaced.is_err() {
        // Best effort: the error is what counts.
        drop(fs::remove_regular_file(&temporary));
    }
    replaced
}

/// Writes all messages of `input` to `path` on `disk`; durable on return.
fn write_copy(
    chunks: &dyn ChunkStorage,
    input: Box<dyn ChunkFile>,
    records: &[(String, MetadataEntries)],
    attachments: AttachmentChange<'_>,
    mut disk: OutputDisk,
    path: &Path,
) -> Result<(), StorageError> {
    let choice = SpliceChoice {
        channels: vec![vec![true; input.summary().channels.len()]],
        ..SpliceChoice::default()
    };
    chunks.splice(SpliceJob {
        inputs: &[input],
        choice: &choice,
        disk: &mut disk,
        path,
        opening: &[],
        closing: &mut |_| records.to_vec(),
        attachments,
        progress: &mut |_| (),
    })?;
    Ok(disk.finish()?)
}

fn temporary_beside(path: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(".partial");
    path.with_file_name(name)
}
