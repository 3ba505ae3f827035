//! Tables that the queue writes past the page cache: those of one large message, and those of many messages.

use super::{
    format::table::{BuiltTable, LoneTable, TableBuilder},
    gathered::Gathered,
};
use crate::error::StorageResult;
use holdall_io::{disk::FileId, fs, queue::DiskQueue, stream::BlockStream};
use holdall_model::message::PayloadRef;
use std::path::Path;

/// A large message's checksum is computed over steps that stay in the first-level cache until they are copied.
const STEP_BYTES: usize = 8 << 10;

/// Messages of this many bytes together become a table that the queue writes and makes durable. A smaller one, of which each of many topics may have one, waits in
/// the page cache for a sync of all.
const QUEUED_BYTES_MIN: usize = 1 << 20;
/// Such a table is handed over in pieces of about this length, which stay in the second-level cache until they are copied.
const PIECE_BYTES: usize = 256 << 10;

/// A table that was written.
pub(super) struct Written {
    /// Its whole length.
    pub bytes: u64,
    /// Its last bytes, and its keys.
    pub end: BuiltTable,
    /// The file, if the queue writes it.
    pub file: Option<FileId>,
}

/// Writes gathered messages as a table with blocks of about `block_bytes`.
pub(super) fn write_table(
    q: &mut DiskQueue,
    path: &Path,
    gathered: &Gathered,
    block_bytes: usize,
) -> StorageResult<Written> {
    let mut stream = match gathered.bytes() {
        QUEUED_BYTES_MIN.. => Some(BlockStream::new(q.create_file(path, gathered.bytes() as u64)?)),
        _ => None,
    };
    let (mut builder, mut appended, mut bytes) = (TableBuilder::new(block_bytes), Ok(()), 0);
    for (stamp, sequence, payload) in gathered.iter() {
        builder.add(&stamp.to_ne_bytes(), sequence, payload);
        let piece = builder.complete();
        if let Some(stream) = &mut stream
            && piece.len() >= PIECE_BYTES
        {
            bytes += piece.len() as u64;
            appended = appended.and_then(|()| stream.append(q, piece));
            builder.forget_complete();
        }
    }
    let end = builder.finish();
    bytes += end.bytes.len() as u64;
    let file = stream.as_ref().map(BlockStream::file);
    if let Some(mut stream) = stream {
        appended = appended.and_then(|()| stream.append(q, &end.bytes));
        // It is closed also when it could not be written.
        let closed = stream.finish(q);
        appended?;
        closed?;
    } else {
        fs::append(path, &end.bytes)?;
    }
    Ok(Written { bytes, end, file })
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
