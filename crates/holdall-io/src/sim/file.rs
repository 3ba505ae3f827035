//! One simulated file: its visible and durable content, and what a power cut may leave of the rest.

use super::rng::SimRng;

/// Bytes that were written and not synced since.
#[derive(Clone, Debug)]
pub(super) struct Unsynced {
    /// Which submission it was.
    pub number: u64,
    pub offset: usize,
    pub bytes: Vec<u8>,
}

/// Content of a file on a disk with a volatile cache.
#[derive(Clone, Debug, Default)]
pub(super) struct SimFile {
    /// The content that a reader sees.
    visible: Vec<u8>,
    /// The content that surely survives a power cut.
    durable: Vec<u8>,
    /// Unsynced writes in the order in which they became visible.
    unsynced: Vec<Unsynced>,
    /// Whether the directory entry survives a power cut.
    entry_is_durable: bool,
    /// Space reserved, which a power cut may leave as the file's length, read as zeros.
    reserved: usize,
}

impl SimFile {
    pub(super) fn new(reserved: usize) -> Self {
        Self {
            reserved,
            ..Self::default()
        }
    }

    /// A file that existed before.
    pub(super) fn existing(content: Vec<u8>) -> Self {
        Self {
            visible: content.clone(),
            durable: content,
            entry_is_durable: true,
            ..Self::default()
        }
    }

    pub(super) fn visible(&self) -> &[u8] {
        &self.visible
    }

    /// How much longer the file would become by a write.
    pub(super) fn growth(&self, offset: usize, len: usize) -> usize {
        (offset + len).saturating_sub(self.visible.len())
    }

    pub(super) fn write(&mut self, number: u64, offset: usize, bytes: &[u8]) {
        put(&mut self.visible, offset, bytes);
        self.unsynced.push(Unsynced {
            number,
            offset,
            bytes: bytes.to_vec(),
        });
    }

    /// Makes writes submitted before `number` durable, and nothing else, though a real disk might make more
    /// durable.
    pub(super) fn sync(&mut self, number: u64, directory_too: bool) {
        for write in self.unsynced.extract_if(.., |write| write.number < number) {
            put(&mut self.durable, write.offset, &write.bytes);
        }
        self.entry_is_durable |= directory_too;
    }

    /// Makes the name durable, and nothing else.
    pub(super) fn sync_entry(&mut self) {
        self.entry_is_durable = true;
    }

    /// A sync that failed: the kernel forgets which bytes were dirty, so no later sync makes them durable.
    pub(super) fn fail_sync(&mut self) {
        self.unsynced.clear();
    }

    /// Cuts (or extends) the file and makes it durable.
    pub(super) fn close(&mut self, length: usize, directory_too: bool) {
        self.sync(u64::MAX, directory_too);
        self.visible.resize(length, 0);
        self.durable.resize(length, 0);
        self.reserved = 0;
    }

    /// Changes visible and durable bytes; false when they are beyond the end.
    pub(super) fn corrupt(&mut self, offset: usize, bytes: &[u8]) -> bool {
        let end = offset + bytes.len();
        if end > self.visible.len() {
            return false;
        }
        put(&mut self.visible, offset, bytes);
        put(&mut self.durable, offset, bytes);
        true
    }

    /// The content when the process is killed and the system continues: the end of the file may be zeros,
    /// reserved and never written.
    pub(super) fn outlive(&self, in_flight: &[Unsynced], rng: &mut SimRng) -> Vec<u8> {
        let mut content = self.visible.clone();
        for write in in_flight {
            if rng.coin() {
                put(&mut content, write.offset, &write.bytes);
            }
        }
        if self.reserved > content.len() && rng.coin() {
            content.resize(self.reserved, 0);
        }
        content
    }

    /// The content after a power cut: each sector of an unsynced write survives or not. `None` when the file itself is
    /// gone.
    pub(super) fn survive(
        &self,
        in_flight: &[Unsynced],
        sector_bytes: usize,
        rng: &mut SimRng,
    ) -> Option<Vec<u8>> {
        if !self.entry_is_durable && rng.coin() {
            return None;
        }
        let mut content = self.durable.clone();
        for write in self.unsynced.iter().chain(in_flight) {
            // Now and then a write survives as a whole or not at all, since random sectors rarely give these states.
            let whole = rng.below(4);
            for (number, sector) in write.bytes.chunks(sector_bytes).enumerate() {
                let survives = match whole {
                    0 => true,
                    1 => false,
                    _ => rng.coin(),
                };
                if survives {
                    put(&mut content, write.offset + number * sector_bytes, sector);
                }
            }
        }
        if self.reserved > content.len() && rng.coin() {
            content.resize(self.reserved, 0);
        }
        Some(content)
    }
}

fn put(content: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    let end = offset + bytes.len();
    if content.len() < end {
        content.resize(end, 0);
    }
    content[offset..end].copy_from_slice(bytes);
}
