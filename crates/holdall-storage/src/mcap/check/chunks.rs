//! The chunks of a data section, as far as the summary and the message indexes state facts about them.

use super::content::EntrySum;

/// Chunks whose facts are kept individually; with more, only the sum is compared.
const CHUNKS_MAX: usize = 2 << 20;

/// Facts that the summary must state about a chunk.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChunkFacts {
    pub start: u64,
    pub length: u64,
    pub times: (u64, u64),
    /// Channel and offset of its message indexes.
    pub indexes: EntrySum,
    pub index_length: u64,
    /// It was readable, so that its indexes can be checked.
    pub is_read: bool,
    /// Sizes and codec.
    pub sizes: EntrySum,
}

/// The chunks so far.
#[derive(Debug, Default)]
pub(super) struct Chunks {
    kept: Vec<ChunkFacts>,
    /// Chunks in the data section, including those that are not kept.
    count: u64,
    /// The chunk whose message indexes follow.
    open: Option<ChunkFacts>,
    unindexed: u64,
}

impl Chunks {
    /// The chunk whose message indexes follow.
    pub fn open(&mut self) -> &mut Option<ChunkFacts> {
        &mut self.open
    }

    /// Ends the open chunk, with or without the message indexes that it should have.
    pub fn close(&mut self, chunk: ChunkFacts, is_unindexed: bool) {
        self.unindexed += u64::from(is_unindexed);
        if self.kept.len() < CHUNKS_MAX {
            self.kept.push(chunk);
        }
        self.count += 1;
    }

    /// The chunk that starts there.
    pub fn at(&self, start: u64) -> Option<ChunkFacts> {
        let place = self.kept.binary_search_by_key(&start, |chunk| chunk.start);
        place.ok().map(|place| self.kept[place])
    }

    /// Chunks in the data section.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Chunks without the message indexes that they should have.
    pub fn unindexed(&self) -> u64 {
        self.unindexed
    }

    /// All chunks can be looked up.
    pub fn are_all_kept(&self) -> bool {
        self.count == self.kept.len() as u64
    }
}
