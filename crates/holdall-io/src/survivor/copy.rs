//! A copy of a region as a kill at this moment would leave it, for a simulator that ends a recorder anywhere in the middle of
//! its work.

use super::{
    HEADER_BYTES, PAGE_BYTES, Region, SLOT_ENTRY_BYTES, create_new,
    layout::{WORD_LEN, WORD_ORDER},
};
use std::{io, os::unix::fs::FileExt, path::Path};

impl Region {
    /// Calls `watch` before and after arenas begin, are cleared and are released, and at each [`Region::point`]: the moments between which
    /// a kill leaves something else. Only the first call of this function has an effect.
    pub fn watch(&self, watch: impl Fn() + Send + Sync + 'static) {
        drop(self.mapping.watch.set(Box::new(watch)));
    }

    /// Marks a moment at which a kill would leave something different than before. Does nothing unless the region is
    /// watched.
    pub fn point(&self) {
        self.mapping.point();
    }

    /// Writes the region as a later process would find it, if this one were killed now, to a new
    /// file.
    ///
    /// # Errors
    /// When it cannot be read, or `to` cannot be made or written.
    pub fn copy_to(&self, to: &Path) -> io::Result<()> {
        let mapping = &*self.mapping;
        let copy = create_new(to)?;
        copy.set_len(mapping.bytes as u64)?;
        // Through the file, not through the mapping: no reference to bytes that an arena may change.
        let mut head = vec![0; mapping.data_offset];
        mapping.file.read_exact_at(&mut head, 0)?;
        for (page, at) in head.chunks(PAGE_BYTES).zip((0u64..).step_by(PAGE_BYTES)) {
            if page != &[0; PAGE_BYTES][..page.len()] {
                copy.write_all_at(page, at)?;
                self.copy_slots(page, at, &copy)?;
            }
        }
        Ok(())
    }

    /// The bytes of those slots whose entries are in this page of the table; `at` is the page's place in the file.
    fn copy_slots(&self, page: &[u8], at: u64, copy: &std::fs::File) -> io::Result<()> {
        let mapping = &*self.mapping;
        let Some(first) = at.checked_sub(HEADER_BYTES as u64) else {
            return Ok(());
        };
        let first = first / SLOT_ENTRY_BYTES as u64;
        for (entry, slot) in page.chunks_exact(SLOT_ENTRY_BYTES).zip(first..) {
            let word = |word: usize| {
                let bytes = entry.get(word * 8..).and_then(<[u8]>::first_chunk);
                bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes))
            };
            let bytes = word(WORD_LEN).min(mapping.stride as u64);
            if word(WORD_ORDER) == 0 || bytes == 0 {
                continue;
            }
            let offset = mapping.data_offset as u64 + slot * mapping.stride as u64;
            // At most the length of a slot.
            let mut content = vec![0; bytes as usize];
            mapping.file.read_exact_at(&mut content, offset)?;
            copy.write_all_at(&content, offset)?;
        }
        Ok(())
    }
}
