//! Reads a sealed file: any bytes of the plain file, also of one that is torn, cut or still written.

use super::{
    format::{
        Cipher, FILE_HEAD_BYTES_MAX, FRAME_HEAD_BYTES, FileHead, Frame, Kind, PAGE_BYTES, PAGE_ROOM_BYTES,
    },
    keys::{Seal, SealedError, unwrap},
    log::{Entry, Extent, Map, decode_index},
};
use crate::{block::BLOCK_ALIGNMENT, mutex::lock, remote::Object};
use std::{
    collections::VecDeque,
    fs, io,
    os::{fd::AsFd, unix::fs::FileExt},
    sync::{Arc, Mutex},
};

/// Pages and heads that are kept after they were read, 1 MiB: small reads come one after the other.
const PAGES_KEPT: usize = 16;

/// Frames in this many bytes before the end of a file that was not closed may be torn, because writes in flight reach the disk in
/// any order: their missing parts read as zeros, as in a file that is not sealed. A frame that fails elsewhere was changed.
const IN_FLIGHT_BYTES_MAX: u64 = 256 << 20;

/// A plain file is not longer than the sealed one, but for a hole that an edit made: a file of zeros that only claims to be long is refused.
const LONGER_BYTES_MAX: u64 = 64 << 20;

/// Bytes that are read at once where frames are looked for.
const SEARCH_BYTES: usize = 1 << 20;

const BLOCK: u64 = BLOCK_ALIGNMENT as u64;

/// A page of a frame: the frame's place, and which.
type PageId = (u64, u32);

/// A head that was checked, with its tags.
#[derive(Debug)]
struct Head {
    frame: Frame,
    bytes: Box<[u8]>,
}

#[derive(Debug, Default)]
struct Cache {
    heads: VecDeque<Arc<Head>>,
    pages: VecDeque<(PageId, Arc<[u8]>)>,
}

/// A sealed file.
#[derive(Debug)]
pub(crate) struct SealedFile {
    cipher: Cipher,
    map: Map,
    entries: Vec<Entry>,
    /// Offset at which the next frame can be appended.
    end: u64,
    /// Frames from here on may be torn.
    torn_from: u64,
    /// Offset and length of bytes taken from older frames, because a torn frame repeats them.
    restored: Vec<(u64, u64)>,
    cache: Mutex<Cache>,
}

impl SealedFile {
    /// The sealed file in `file`; `None` when it is not sealed.
    ///
    /// # Errors
    /// When it cannot be read, its header is damaged, or no key of this process opens it.
    pub(crate) fn open(file: &dyn Stored, stored_bytes: u64) -> io::Result<Option<Self>> {
        let mut magic = [0; 16];
        if stored_bytes < magic.len() as u64 {
            return Ok(None);
        }
        let count = file.read_some_at(&mut magic, 0)?;
        if count < magic.len() || !super::is_sealed(&magic) {
            return Ok(None);
        }
        let mut beginning = vec![0; FILE_HEAD_BYTES_MAX];
        let count = read_up_to(file, &mut beginning, 0)?;
        let head = FileHead::decode(&beginning[..count])
            .map_err(|what| io::Error::new(io::ErrorKind::InvalidData, what))?;
        let seal = unwrap(&head.wrapped)?;
        let mut sealed = Self {
            end: head.len_bytes() as u64,
            cipher: Cipher::new(seal, head),
            map: Map::default(),
            entries: Vec::new(),
            torn_from: u64::MAX,
            restored: Vec::new(),
            cache: Mutex::default(),
        };
        if !sealed.read_index(file, stored_bytes)? {
            sealed.search(file, stored_bytes)?;
        }
        if sealed.map.len > stored_bytes.saturating_add(LONGER_BYTES_MAX) {
            let what = format!(
                "its frames make {} bytes, more than the {stored_bytes} that it has",
                sealed.map.len
            );
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        Ok(Some(sealed))
    }

    /// Length of the plain file in bytes.
    pub(crate) fn len_bytes(&self) -> u64 {
        self.map.len
    }

    pub(crate) fn seal(&self) -> &Seal {
        self.cipher.seal()
    }

    pub(super) fn cipher(&self) -> &Cipher {
        &self.cipher
    }

    /// The parts needed to append to it: all entries, and the offset of the next frame.
    pub(super) fn into_parts(self) -> (Vec<Entry>, u64) {
        (self.entries, self.end)
    }

    /// Reads the index of a closed file; false when it was not closed.
    fn read_index(&mut self, file: &dyn Stored, stored_bytes: u64) -> io::Result<bool> {
        let Some(at) = stored_bytes
            .checked_sub(BLOCK)
            .filter(|at| at.is_multiple_of(BLOCK))
        else {
            return Ok(false);
        };
        let Some(end) = self
            .head_at(file, at)?
            .filter(|head| head.frame.kind == Kind::End)
        else {
            return Ok(false);
        };
        let index_at = end.frame.offset;
        if index_at == 0 {
            return Ok(false);
        }
        let index = self
            .head_at(file, index_at)?
            .filter(|head| head.frame.kind == Kind::Index);
        let Some(index) = index else { return Ok(false) };
        let mut bytes = Vec::new();
        for page in 0..index.frame.len.div_ceil(PAGE_BYTES as u64) {
            // A frame has less than 256 pages.
            match self.page(file, &index, page as u32)? {
                Some(part) => bytes.extend_from_slice(&part),
                None => return Ok(false),
            }
        }
        let Some(entries) = decode_index(&bytes) else {
            return Ok(false);
        };
        self.entries = entries;
        for entry in &self.entries {
            self.map.apply(entry);
        }
        self.apply(&end.frame);
        self.end = stored_bytes;
        Ok(true)
    }

    fn apply(&mut self, frame: &Frame) {
        let entry = Entry::of(frame);
        self.map.apply(&entry);
        if frame.kind != Kind::Index {
            self.entries.push(entry);
        }
    }

    /// Finds all frames, from the first on: where one is missing or damaged, the next.
    fn search(&mut self, file: &dyn Stored, stored_bytes: u64) -> io::Result<()> {
        self.map = Map::default();
        self.entries.clear();
        let mut at = self.end;
        let mut is_closed = false;
        while let Some(frame) = self.next_frame(file, &mut at, stored_bytes)? {
            is_closed = frame.kind == Kind::End;
            let older = self.hidden_by_torn(file, &frame)?;
            self.apply(&frame);
            for (first, extent) in older {
                self.map.restore(first, extent);
                self.restored.push((first, extent.len));
            }
            at = (at + frame.stored_bytes()).next_multiple_of(BLOCK);
            self.end = at;
        }
        if !is_closed {
            self.torn_from = self.end.saturating_sub(IN_FLIGHT_BYTES_MAX);
        }
        Ok(())
    }

    /// Bytes that a frame overwrites although it never reached the disk as a whole: a stream repeats the last bytes that it has made
    /// durable, and those must not be lost with the frame that repeats them.
    fn hidden_by_torn(&self, file: &dyn Stored, frame: &Frame) -> io::Result<Vec<(u64, Extent)>> {
        let mut older = Vec::new();
        if frame.kind != Kind::Write || frame.offset >= self.map.len {
            return Ok(older);
        }
        let end = (frame.offset + frame.len).min(self.map.len);
        let Some(head) = self.head_at(file, frame.at)? else {
            return Ok(older);
        };
        let starts = (frame.offset..end).step_by(PAGE_BYTES);
        for (page, start) in starts.enumerate() {
            // A frame has less than 256 pages.
            if self.page(file, &head, page as u32)?.is_none() {
                older.extend(self.map.within(start, end.min(start + PAGE_BYTES as u64)));
            }
        }
        Ok(older)
    }

    /// The first frame from `at` on, which is moved to it.
    fn next_frame(&self, file: &dyn Stored, at: &mut u64, stored_bytes: u64) -> io::Result<Option<Frame>> {
        if let Some(head) = self.head_at(file, *at)? {
            return Ok(Some(head.frame));
        }
        let mut window = Vec::new();
        let mut position = *at;
        while position < stored_bytes {
            // Space that was reserved and never written has no data.
            let Some(data) = file.next_data(position)? else {
                return Ok(None);
            };
            position = data - data % BLOCK;
            window.resize(SEARCH_BYTES, 0);
            let count = read_up_to(file, &mut window, position)?;
            for (number, block) in window[..count].chunks(BLOCK_ALIGNMENT).enumerate() {
                let place = position + number as u64 * BLOCK;
                if let Some(frame) = self.cipher.open_head(block, place) {
                    *at = place;
                    return Ok(Some(frame));
                }
            }
            if count < SEARCH_BYTES {
                return Ok(None);
            }
            position += SEARCH_BYTES as u64;
        }
        Ok(None)
    }

    /// The frame whose head is at `at`; `None` without a valid head.
    fn head_at(&self, file: &dyn Stored, at: u64) -> io::Result<Option<Arc<Head>>> {
        let known = |cache: &Cache| cache.heads.iter().find(|head| head.frame.at == at).cloned();
        if let Some(head) = known(&lock(&self.cache)) {
            return Ok(Some(head));
        }
        let mut bytes = vec![0; FRAME_HEAD_BYTES].into_boxed_slice();
        if read_up_to(file, &mut bytes, at)? < bytes.len() {
            return Ok(None);
        }
        let Some(frame) = self.cipher.open_head(&bytes, at) else {
            return Ok(None);
        };
        let head = Arc::new(Head { frame, bytes });
        let mut cache = lock(&self.cache);
        if cache.heads.len() == PAGES_KEPT {
            cache.heads.pop_front();
        }
        cache.heads.push_back(Arc::clone(&head));
        Ok(Some(head))
    }

    /// A page of a frame; `None` when it is not as it was written.
    fn page(&self, file: &dyn Stored, head: &Head, page: u32) -> io::Result<Option<Arc<[u8]>>> {
        let id = (head.frame.at, page);
        let known = |cache: &Cache| {
            cache
                .pages
                .iter()
                .find(|(known, _)| *known == id)
                .map(|(_, page)| Arc::clone(page))
        };
        if let Some(bytes) = known(&lock(&self.cache)) {
            return Ok(Some(bytes));
        }
        let start = u64::from(page) * PAGE_BYTES as u64;
        let Some(left) = head.frame.len.checked_sub(start) else {
            return Ok(None);
        };
        // Not more than a page.
        let count = left.min(PAGE_BYTES as u64) as usize;
        let mut stored = vec![0; count + PAGE_ROOM_BYTES];
        let at = head.frame.at + FRAME_HEAD_BYTES as u64 + start;
        if read_up_to(file, &mut stored[..count], at)? < count
            || !self.cipher.open_page(&head.frame, &head.bytes, page, &mut stored)
        {
            return Ok(None);
        }
        stored.truncate(count);
        let bytes: Arc<[u8]> = stored.into();
        let mut cache = lock(&self.cache);
        if cache.pages.len() == PAGES_KEPT {
            cache.pages.pop_front();
        }
        cache.pages.push_back((id, Arc::clone(&bytes)));
        Ok(Some(bytes))
    }

    /// Fills `into` with the bytes from `offset` on, which are all before the end.
    fn fill(&self, file: &dyn Stored, mut into: &mut [u8], mut offset: u64) -> Result<(), (u64, io::Error)> {
        while !into.is_empty() {
            let left = into.len() as u64;
            let (first, extent) = match self.map.find(offset) {
                Ok(found) => found,
                Err(next) => {
                    // At most the length of `into`. Bytes after the last frame are zeros, too.
                    let gap = next.saturating_sub(offset);
                    let count = if gap == 0 { left } else { gap.min(left) } as usize;
                    into[..count].fill(0);
                    into = &mut into[count..];
                    offset += count as u64;
                    continue;
                }
            };
            let within = extent.skip + (offset - first);
            let (page, skip) = (within / PAGE_BYTES as u64, (within % PAGE_BYTES as u64) as usize);
            let in_extent = first + extent.len - offset;
            let in_page = (PAGE_BYTES - skip) as u64;
            // Not more than `into` has.
            let count = left.min(in_extent).min(in_page) as usize;
            let (part, rest) = into.split_at_mut(count);
            // A frame has less than 256 pages.
            let page = self
                .page_of(file, &extent, page as u32)
                .map_err(|error| (offset, error))?;
            match page.as_deref().and_then(|page| page.get(skip..skip + count)) {
                Some(bytes) => part.copy_from_slice(bytes),
                None if extent.at >= self.torn_from => part.fill(0),
                None => return Err((offset, SealedError::Changed.into())),
            }
            into = rest;
            offset += count as u64;
        }
        Ok(())
    }

    fn page_of(&self, file: &dyn Stored, extent: &Extent, page: u32) -> io::Result<Option<Arc<[u8]>>> {
        match self.head_at(file, extent.at)? {
            Some(head) => self.page(file, &head, page),
            None => Ok(None),
        }
    }

    /// Reads up to `into.len()` bytes from `offset` on; fewer only at the end.
    ///
    /// # Errors
    /// The offset and the reason: the system's error, or bytes that differ from the written ones.
    pub(crate) fn read_at(
        &self,
        file: &dyn Stored,
        into: &mut [u8],
        offset: u64,
    ) -> Result<usize, (u64, io::Error)> {
        let left = self.map.len.saturating_sub(offset);
        let count = usize::try_from(left).map_or(into.len(), |left| left.min(into.len()));
        self.fill(file, &mut into[..count], offset)?;
        Ok(count)
    }

    /// The parts of the plain file, by offset and length, that never reached the disk as a whole: pages of frames that were in flight when the
    /// file was torn. None is longer than a page.
    pub(super) fn torn_parts(&self, file: &dyn Stored) -> io::Result<Vec<(u64, u64)>> {
        // Parts that a later frame has cut off do not count.
        let restored = self.restored.iter();
        let mut torn: Vec<(u64, u64)> = restored
            .map(|(first, len)| (*first, (*len).min(self.map.len.saturating_sub(*first))))
            .collect();
        for (first, extent) in self
            .map
            .extents()
            .filter(|(_, extent)| extent.at >= self.torn_from)
        {
            let mut offset = first;
            let end = first + extent.len;
            while offset < end {
                let within = extent.skip + (offset - first);
                let len = (PAGE_BYTES as u64 - within % PAGE_BYTES as u64).min(end - offset);
                // A frame has less than 256 pages.
                let page = (within / PAGE_BYTES as u64) as u32;
                if self.page_of(file, &extent, page)?.is_none() {
                    torn.push((offset, len));
                }
                offset += len;
            }
        }
        Ok(torn)
    }
}

fn read_up_to(file: &dyn Stored, into: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut count = 0;
    while count < into.len() {
        match file.read_some_at(&mut into[count..], offset.saturating_add(count as u64)) {
            Ok(0) => break,
            Ok(more) => count += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(count)
}

/// The storage of a sealed file's bytes.
pub(crate) trait Stored {
    /// Reads up to `into.len()` bytes from `offset` on, possibly fewer.
    fn read_some_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Offset of the next data from `position` on; `None` when only unwritten space follows.
    fn next_data(&self, position: u64) -> io::Result<Option<u64>>;
}

impl Stored for fs::File {
    fn read_some_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        self.read_at(into, offset)
    }

    fn next_data(&self, position: u64) -> io::Result<Option<u64>> {
        match rustix::fs::seek(self.as_fd(), rustix::fs::SeekFrom::Data(position)) {
            Ok(data) => Ok(Some(data)),
            Err(rustix::io::Errno::NXIO) => Ok(None),
            // A file system that does not know: all of it is data.
            Err(rustix::io::Errno::INVAL) => Ok(Some(position)),
            Err(error) => Err(error.into()),
        }
    }
}

impl Stored for Arc<dyn Object> {
    fn read_some_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        Object::read_at(&**self, into, offset)
    }

    fn next_data(&self, position: u64) -> io::Result<Option<u64>> {
        Ok(Some(position).filter(|position| *position < self.len_bytes()))
    }
}
