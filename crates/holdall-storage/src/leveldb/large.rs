//! Tables of one large message, which the queue writes past the page cache.

use super::format::table::LoneTable;
use crate::error::StorageResult;
use holdall_io::{disk::FileId, queue::DiskQueue, stream::BlockStream};
use holdall_model::message::PayloadRef;

/// A large message's checksum is computed over steps that stay in the first-level cache until they are copied.
const STEP_BYTES: usize = 8 << 10;

/// A large message's table on its way to the disk.
#[derive(Clone, Copy)]
pub(super) struct Large {
    pub file: FileId,
    /// The message's number in the storage.
    pub message: u64,
}

/// Appends a table of one message.
pub(super) fn append_lone(
    stream: &mut BlockStream,
    q: &mut DiskQueue,
    lone: &LoneTable,
    payload: PayloadRef<'_>,
) -> StorageResult<()> {
    stream.append(q, &lone.head)?;
    let mut appended = Ok(());
    let mut crc = crc32c::crc32c(&lone.head);
    payload.for_each_slice(|slice| {
        for step in slice.chunks(STEP_BYTES) {
            if appended.is_ok() {
                crc = crc32c::crc32c_append(crc, step);
                appended = stream.append(q, step);
            }
        }
    });
    appended?;
    Ok(stream.append(q, &lone.tail(crc))?)
}
