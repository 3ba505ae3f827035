//! The log that a sealed file is: which frame has which bytes of the plain file.

use super::format::{Cipher, FRAME_BYTES_MAX, FRAME_HEAD_BYTES, FileHead, Frame, Kind, Sealer};
use super::keys::Seal;
use crate::block::BLOCK_ALIGNMENT;
use std::{collections::BTreeMap, io};

/// Bytes of one entry of an index.
const ENTRY_BYTES: usize = 24;

/// The effect of one frame, as an index lists it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// Offset of its head in the sealed file.
    pub(super) at: u64,
    pub(super) kind: Kind,
    /// Offset in the plain file.
    pub(super) offset: u64,
    /// Length in the plain file, less than 2⁵⁶.
    pub(super) len: u64,
}

impl Entry {
    pub(super) fn of(frame: &Frame) -> Self {
        Self {
            at: frame.at,
            kind: frame.kind,
            offset: frame.offset,
            len: frame.len,
        }
    }
}

/// The entries as an index stores them; `None` when there are more than one frame can have.
pub(super) fn encode_index(entries: &[Entry]) -> Option<Vec<u8>> {
    if entries.len() * ENTRY_BYTES > FRAME_BYTES_MAX {
        return None;
    }
    let mut bytes = Vec::with_capacity(entries.len() * ENTRY_BYTES);
    for entry in entries {
        let kind_and_len = u64::from(entry.kind.code()) << 56 | entry.len & (u64::MAX >> 8);
        for number in [entry.at, entry.offset, kind_and_len] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
    }
    Some(bytes)
}

/// The entries of an index; `None` when it has others than this program writes.
pub(super) fn decode_index(bytes: &[u8]) -> Option<Vec<Entry>> {
    if !bytes.len().is_multiple_of(ENTRY_BYTES) {
        return None;
    }
    let number = |entry: &[u8], place: usize| {
        let eight = entry[8 * place..8 * place + 8].try_into().ok();
        eight.map(u64::from_le_bytes)
    };
    let entries = bytes.chunks_exact(ENTRY_BYTES).map(|entry| {
        let kind_and_len = number(entry, 2)?;
        let (offset, len) = (number(entry, 1)?, kind_and_len & (u64::MAX >> 8));
        let is_possible = offset.checked_add(len)? <= i64::MAX as u64;
        // The kind is one byte.
        is_possible.then_some(Entry {
            at: number(entry, 0)?,
            kind: Kind::of_code((kind_and_len >> 56) as u8)?,
            offset,
            len,
        })
    });
    entries.collect()
}

/// A run of bytes of the plain file that one frame has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) len: u64,
    /// Offset of the frame's head in the sealed file.
    pub(super) at: u64,
    /// Its first byte within the frame's bytes.
    pub(super) skip: u64,
}

/// The place of each byte of the plain file; bytes that no frame has read as zero.
#[derive(Debug, Default)]
pub(super) struct Map {
    extents: BTreeMap<u64, Extent>,
    pub(super) len: u64,
}

impl Map {
    /// Applies the effect of a frame after those applied before.
    pub(super) fn apply(&mut self, entry: &Entry) {
        let end = entry.offset.saturating_add(entry.len);
        match entry.kind {
            Kind::Write | Kind::Zeros => {
                self.clear(entry.offset, end);
                if entry.kind == Kind::Write && entry.len > 0 {
                    let extent = Extent {
                        len: entry.len,
                        at: entry.at,
                        skip: 0,
                    };
                    self.extents.insert(entry.offset, extent);
                }
                self.len = self.len.max(end);
            }
            Kind::Length | Kind::End => {
                self.clear(entry.len, u64::MAX);
                self.len = entry.len;
            }
            Kind::Index => {}
        }
    }

    /// Removes `start..end` from all extents.
    fn clear(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        if let Some((&first, extent)) = self.extents.range_mut(..start).next_back() {
            let whole = *extent;
            let extent_end = first + whole.len;
            if extent_end > start {
                extent.len = start - first;
            }
            if extent_end > end {
                self.extents.insert(end, from(first, whole, end));
            }
        }
        let inside: Vec<u64> = self.extents.range(start..end).map(|(first, _)| *first).collect();
        for first in inside {
            if let Some(extent) = self.extents.remove(&first)
                && first + extent.len > end
            {
                self.extents.insert(end, from(first, extent, end));
            }
        }
    }

    /// The extent that has the byte at `offset` with its first byte, or where the next one begins.
    pub(super) fn find(&self, offset: u64) -> Result<(u64, Extent), u64> {
        if let Some((first, extent)) = self.extents.range(..=offset).next_back()
            && first + extent.len > offset
        {
            return Ok((*first, *extent));
        }
        let next = self.extents.range(offset..).next();
        Err(next.map_or(self.len, |(first, _)| *first))
    }

    /// Parts of extents in `start..end`, with their first bytes.
    pub(super) fn within(&self, start: u64, end: u64) -> Vec<(u64, Extent)> {
        let before = self.extents.range(..start).next_back();
        let all = before.into_iter().chain(self.extents.range(start..end));
        let clipped = all.filter_map(|(&first, extent)| {
            let (from_byte, to_byte) = (first.max(start), (first + extent.len).min(end));
            let part = Extent {
                len: to_byte.checked_sub(from_byte).filter(|len| *len > 0)?,
                at: extent.at,
                skip: extent.skip + (from_byte - first),
            };
            Some((from_byte, part))
        });
        clipped.collect()
    }

    /// Gives the bytes from `first` on to an older extent again.
    pub(super) fn restore(&mut self, first: u64, extent: Extent) {
        self.clear(first, first + extent.len);
        self.extents.insert(first, extent);
    }

    /// All extents with their first bytes.
    pub(super) fn extents(&self) -> impl Iterator<Item = (u64, Extent)> + '_ {
        self.extents.iter().map(|(first, extent)| (*first, *extent))
    }
}

/// The part of an extent that begins at `start`, which is inside of it.
fn from(first: u64, extent: Extent, start: u64) -> Extent {
    Extent {
        len: first + extent.len - start,
        at: extent.at,
        skip: extent.skip + (start - first),
    }
}

/// The index and the end of a file of this plain length, stored from `at` on; both are padded.
pub(super) fn file_end(
    sealer: &mut Sealer,
    at: u64,
    entries: &[Entry],
    plain_bytes: u64,
) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut index_at = 0;
    if let Some(mut index) = encode_index(entries) {
        let len = index.len() as u64;
        let mut head = vec![0; FRAME_HEAD_BYTES];
        sealer.seal((at, Kind::Index), (0, len), &mut head, &mut index)?;
        index_at = at;
        bytes = head;
        bytes.extend_from_slice(&index);
        bytes.resize(bytes.len().next_multiple_of(BLOCK_ALIGNMENT), 0);
    }
    let mut head = vec![0; FRAME_HEAD_BYTES];
    let end_at = at + bytes.len() as u64;
    sealer.seal((end_at, Kind::End), (index_at, plain_bytes), &mut head, &mut [])?;
    bytes.extend_from_slice(&head);
    Ok(bytes)
}

/// A whole sealed file with these bytes.
pub(super) fn whole_file(seal: &Seal, content: &[u8]) -> io::Result<Vec<u8>> {
    let head = FileHead::new(seal)?;
    let mut file = vec![0; head.len_bytes()];
    head.encode(&mut file);
    let cipher = Cipher::new(seal.clone(), head);
    let mut sealer = Sealer::begin(&cipher)?;
    let mut entries = Vec::new();
    for (number, part) in content.chunks(FRAME_BYTES_MAX).enumerate() {
        let entry = Entry {
            at: file.len() as u64,
            kind: Kind::Write,
            offset: (number * FRAME_BYTES_MAX) as u64,
            len: part.len() as u64,
        };
        let mut frame = vec![0; FRAME_HEAD_BYTES];
        frame.extend_from_slice(part);
        let (head, payload) = frame.split_at_mut(FRAME_HEAD_BYTES);
        sealer.seal((entry.at, entry.kind), (entry.offset, entry.len), head, payload)?;
        file.extend_from_slice(&frame);
        file.resize(file.len().next_multiple_of(BLOCK_ALIGNMENT), 0);
        entries.push(entry);
    }
    let at = file.len() as u64;
    file.extend(file_end(&mut sealer, at, &entries, content.len() as u64)?);
    Ok(file)
}
