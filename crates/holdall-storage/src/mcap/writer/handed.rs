//! Which messages of a file the system has: those of chunks whose bytes were written, whatever happens to the process.

use super::{
    McapWriter,
    lane::{LANE_COUNT, LARGE_LANE, Place},
};
use crate::error::StorageResult;
use holdall_io::queue::DiskQueue;
use holdall_io::wait::Wait;
use std::collections::VecDeque;

/// Chunks in flight, each by the number of its first message in the order of writing.
#[derive(Debug, Default)]
pub(super) struct ChunksOnTheirWay {
    /// Given to the compressor, in order.
    packing: VecDeque<u64>,
    /// Messages in the file's stream, with the position after them.
    placed: VecDeque<(u64, u64)>,
    /// Without chunks: messages before this number are in `placed` or written.
    bare: u64,
}

impl ChunksOnTheirWay {
    /// A chunk was given to the compressor.
    pub fn packing(&mut self, first: u64) {
        self.packing.push_back(first);
    }

    /// The oldest chunk came back from the compressor.
    pub fn packed(&mut self) {
        self.packing.pop_front();
    }

    /// A chunk is in the stream, which ends at `end` now.
    pub(crate) fn placed(&mut self, end: u64, first: u64) {
        self.placed.push_back((end, first));
    }

    /// The system has the bytes before `written`.
    pub fn written(&mut self, written: u64) {
        while self.placed.front().is_some_and(|(end, _)| *end <= written) {
            self.placed.pop_front();
        }
    }

    /// The first message that the system may not have, when it has the bytes before `written`.
    fn first(&mut self, written: u64) -> Option<u64> {
        self.written(written);
        let placed = self.placed.iter().map(|(_, first)| *first);
        placed.chain(self.packing.iter().copied()).min()
    }
}

impl McapWriter {
    /// See [`crate::writer::StorageWriter::hand_over_large`]. Not while a write is in flight: the next one
    /// covers a part of the same 4 KiB, would wait for it, and a fast recording writes its blocks soon
    /// anyway.
    pub(super) fn hand_over_large_lane(&mut self, q: &mut DiskQueue) -> StorageResult<bool> {
        q.poll();
        if q.in_flight() > 0 {
            return Ok(false);
        }
        for lane in LARGE_LANE..LANE_COUNT {
            self.close_lane(q, lane)?;
        }
        while self.take_compressed(q, Wait::No)? {}
        // A chunk of smaller messages may be open in the stream; those survive in another copy.
        if self.direct_lane.is_none() {
            self.output.hand_over(q)?;
        }
        Ok(self.chunks.packing.is_empty())
    }

    /// The system has the file's bytes before this.
    pub(super) fn bytes_handed(&self, q: &DiskQueue) -> u64 {
        let progress = q.progress(self.output.file());
        progress.map_or(u64::MAX, |progress| progress.written_bytes)
    }

    /// Messages that were given to this writer.
    pub(super) fn messages(&self) -> u64 {
        let open: u64 = self.lanes.iter().map(super::lane::Lane::message_count).sum();
        self.catalog.message_count + open
    }

    /// See [`crate::writer::StorageWriter::handed`].
    pub(super) fn messages_handed(&mut self, q: &DiskQueue) -> u64 {
        let messages = self.messages();
        if !self.options.chunking && self.chunks.bare < messages {
            self.chunks.placed(self.output.position(), self.chunks.bare);
            self.chunks.bare = messages;
        }
        let written = self.bytes_handed(q);
        let open = self.lanes.iter().filter(|lane| lane.place != Place::Closed);
        let open = open.map(|lane| lane.first_message).min();
        [self.chunks.first(written), open]
            .into_iter()
            .flatten()
            .fold(messages, u64::min)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_chunk_on_its_way_counts_wherever_it_is() {
        let mut chunks = ChunksOnTheirWay::default();
        assert_eq!(chunks.first(0), None);
        chunks.packing(7);
        chunks.placed(100, 5);
        chunks.placed(200, 3);
        assert_eq!(chunks.first(99), Some(3));
        assert_eq!(chunks.first(200), Some(7));
        chunks.packed();
        assert_eq!(chunks.first(200), None);
    }
}
