//! A storage alone, without cache and threads: batches of messages in, one durable file out.

use crate::error::{BenchError, BenchResult};
use std::{fs::File, path::Path};

/// One message in the form that a storage receives.
#[derive(Clone, Copy, Debug)]
pub struct RawMessage<'a> {
    /// Index into the topics of the plan.
    pub topic: u32,
    /// The publisher's sequence number on the topic, from 1.
    pub sequence: u64,
    /// When it was received, in nanoseconds since the Unix epoch.
    pub log_time_nanos: u64,
    /// The bytes.
    pub payload: &'a [u8],
}

/// A candidate's storage file while it is written.
pub trait RawWriter: Send {
    /// Stores messages that arrived together; the bare databases put them into one transaction.
    ///
    /// # Errors
    /// The error of the storage or the disk.
    fn write_batch(&mut self, batch: &[RawMessage<'_>]) -> BenchResult<()>;

    /// Writes the end of the file, closes it and returns when it is durable.
    ///
    /// # Errors
    /// The error of the storage or the disk.
    fn close(self: Box<Self>) -> BenchResult<()>;
}

/// Hands messages on in batches of at least `batch_bytes`; the last may be smaller.
pub(crate) fn in_batches<'m>(
    messages: impl Iterator<Item = RawMessage<'m>>,
    batch_bytes: u64,
    write: &mut impl FnMut(&[RawMessage<'m>], u64) -> BenchResult<()>,
) -> BenchResult<()> {
    let (mut batch, mut held_bytes) = (Vec::new(), 0);
    for message in messages {
        held_bytes += message.payload.len() as u64;
        batch.push(message);
        if held_bytes >= batch_bytes {
            write(&batch, held_bytes)?;
            batch.clear();
            held_bytes = 0;
        }
    }
    if batch.is_empty() {
        Ok(())
    } else {
        write(&batch, held_bytes)
    }
}

/// Makes the directory entry of `path` durable, as every candidate must.
///
/// # Errors
/// When the folder cannot be opened or synced.
pub fn sync_parent(path: &Path) -> BenchResult<()> {
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    File::open(parent)
        .and_then(|dir| dir.sync_all())
        .map_err(BenchError::io("sync", parent))
}
