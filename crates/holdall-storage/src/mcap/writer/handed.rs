//! Which messages of a file the system has: those of chunks whose bytes were written, whatever happens to the process.

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

    /// Without chunks: `messages` are in the stream, which ends at `end` now.
    pub fn bare(&mut self, end: u64, messages: u64) {
        if self.bare < messages {
            self.placed(end, self.bare);
            self.bare = messages;
        }
    }

    /// No chunk is in the compressor.
    pub(crate) fn none_is_packing(&self) -> bool {
        self.packing.is_empty()
    }

    /// The system has the bytes before `written`.
    pub fn written(&mut self, written: u64) {
        while self.placed.front().is_some_and(|(end, _)| *end <= written) {
            self.placed.pop_front();
        }
    }

    /// The first message that the system may not have, when it has the bytes before `written`.
    pub fn first(&mut self, written: u64) -> Option<u64> {
        self.written(written);
        let placed = self.placed.iter().map(|(_, first)| *first);
        placed.chain(self.packing.iter().copied()).min()
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
