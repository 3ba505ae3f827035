//! Bytes as a transport leaves them in its receive buffers: in pieces, each after the head of its packet.

use super::{
    Region,
    buffers::{BUFFER_BYTES, allocate_in, release},
};
use std::ptr::NonNull;

/// Bytes between two pieces, for the head of a packet.
const HEAD_BYTES: usize = 64;

/// Bytes in buffers of a region; the buffers are released on drop.
pub struct ReceivedBytes {
    buffers: Vec<NonNull<u8>>,
    pieces: Vec<(NonNull<u8>, usize)>,
}

// SAFETY: the buffers are this value's own, and are not written after they were filled.
unsafe impl Send for ReceivedBytes {}
// SAFETY: as above.
unsafe impl Sync for ReceivedBytes {}

impl ReceivedBytes {
    /// The pieces, in order.
    pub fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        self.pieces.iter().map(|(start, len)| {
            // SAFETY: the piece is inside a buffer that this value owns until it is dropped, and was filled.
            unsafe { std::slice::from_raw_parts(start.as_ptr(), *len) }
        })
    }

    /// Memory that cannot be used for anything else, in bytes.
    pub fn pinned_bytes(&self) -> usize {
        self.buffers.len() * BUFFER_BYTES
    }
}

impl Drop for ReceivedBytes {
    fn drop(&mut self) {
        for buffer in &self.buffers {
            release(*buffer);
        }
    }
}

impl Region {
    /// Copies `bytes` into buffers, in pieces of at most `piece_bytes`; `None` when there are not enough buffers.
    pub fn receive(&self, bytes: &[u8], piece_bytes: usize) -> Option<ReceivedBytes> {
        let piece_bytes = piece_bytes.clamp(1, BUFFER_BYTES - HEAD_BYTES);
        let mut received = ReceivedBytes {
            buffers: Vec::new(),
            pieces: Vec::new(),
        };
        let mut used = BUFFER_BYTES;
        for piece in bytes.chunks(piece_bytes) {
            if used + HEAD_BYTES + piece.len() > BUFFER_BYTES {
                received.buffers.push(allocate_in(self)?);
                used = 0;
            }
            used += HEAD_BYTES;
            let buffer = received.buffers.last()?;
            // SAFETY: the piece ends inside the buffer, as checked above, and this function owns the buffer.
            let start = unsafe {
                let start = buffer.add(used);
                std::ptr::copy_nonoverlapping(piece.as_ptr(), start.as_ptr(), piece.len());
                start
            };
            received.pieces.push((start, piece.len()));
            used += piece.len();
        }
        Some(received)
    }
}
