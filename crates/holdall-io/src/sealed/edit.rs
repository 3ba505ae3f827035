//! Changes a sealed file in place: nothing is overwritten, each change is appended.

use super::{
    SealedFile,
    format::{FRAME_HEAD_BYTES, Kind, Sealer},
    log::{Entry, file_end},
};
use crate::block::BLOCK_ALIGNMENT;
use std::{fs, io, os::unix::fs::FileExt};

/// Bytes of one change that are encrypted at once.
const PART_BYTES: usize = 1 << 20;

/// A sealed file that is changed.
#[derive(Debug)]
pub(crate) struct SealedEdit {
    sealer: Sealer,
    entries: Vec<Entry>,
    /// Offset of the next frame.
    end: u64,
    plain_bytes: u64,
    is_closed: bool,
}

impl SealedEdit {
    /// Prepares to change the sealed file in `file`; parts that never reached the disk as a whole stay as they
    /// read now.
    ///
    /// # Errors
    /// When the file cannot be read or written.
    pub(crate) fn begin(sealed: SealedFile, file: &fs::File) -> io::Result<Self> {
        // As they read now: zeros, or older bytes that a torn frame repeats.
        let mut torn = Vec::new();
        for (offset, len) in sealed.torn_parts(file)? {
            // At most a page.
            let mut bytes = vec![0; len as usize];
            sealed
                .read_at(file, &mut bytes, offset)
                .map_err(|(_, error)| error)?;
            torn.push((offset, bytes));
        }
        let plain_bytes = sealed.len_bytes();
        let sealer = Sealer::begin(sealed.cipher())?;
        let (entries, end) = sealed.into_parts();
        let mut edit = Self {
            sealer,
            entries,
            end,
            plain_bytes,
            is_closed: false,
        };
        for (offset, mut bytes) in torn {
            let len = bytes.len() as u64;
            if bytes.iter().all(|byte| *byte == 0) {
                edit.append(file, Kind::Zeros, (offset, len), &mut [])?;
            } else {
                edit.append(file, Kind::Write, (offset, len), &mut bytes)?;
            }
        }
        Ok(edit)
    }

    fn append(
        &mut self,
        file: &fs::File,
        kind: Kind,
        (offset, len): (u64, u64),
        payload: &mut [u8],
    ) -> io::Result<()> {
        let entry = Entry {
            at: self.end,
            kind,
            offset,
            len,
        };
        let mut frame = vec![0; FRAME_HEAD_BYTES];
        self.sealer
            .seal((entry.at, kind), (offset, len), &mut frame, payload)?;
        frame.extend_from_slice(payload);
        frame.resize(frame.len().next_multiple_of(BLOCK_ALIGNMENT), 0);
        file.write_all_at(&frame, self.end)?;
        self.end += frame.len() as u64;
        self.entries.push(entry);
        self.is_closed = false;
        Ok(())
    }

    /// Overwrites bytes of the plain file.
    ///
    /// # Errors
    /// When they cannot all be written.
    pub(crate) fn write_all_at(&mut self, file: &fs::File, bytes: &[u8], offset: u64) -> io::Result<()> {
        for (number, part) in bytes.chunks(PART_BYTES).enumerate() {
            let at = offset + (number * PART_BYTES) as u64;
            let len = part.len() as u64;
            self.append(file, Kind::Write, (at, len), &mut part.to_vec())?;
            self.plain_bytes = self.plain_bytes.max(at + len);
        }
        Ok(())
    }

    /// Cuts or extends the plain file.
    ///
    /// # Errors
    /// When that cannot be written.
    pub(crate) fn set_len(&mut self, file: &fs::File, length_bytes: u64) -> io::Result<()> {
        self.plain_bytes = length_bytes;
        self.append(file, Kind::Length, (0, length_bytes), &mut [])
    }

    /// Closes the log, so that the file opens at once, and makes all of it durable.
    ///
    /// # Errors
    /// When that fails.
    pub(crate) fn sync(&mut self, file: &fs::File) -> io::Result<()> {
        if !self.is_closed {
            // The end must not be on the disk before the rest of the file.
            file.sync_all()?;
            let end = file_end(&mut self.sealer, self.end, &self.entries, self.plain_bytes)?;
            file.write_all_at(&end, self.end)?;
            self.end += end.len() as u64;
            file.set_len(self.end)?;
            self.is_closed = true;
        }
        file.sync_all()
    }
}
