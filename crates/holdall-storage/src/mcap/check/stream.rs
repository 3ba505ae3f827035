//! Reads a file from start to end with bounded memory, read-ahead, and a checksum over all bytes passed.

use crate::mcap::format::record_prefix;
use holdall_io::{disk::DiskError, fs::File, read_ahead::ReadAhead};
use std::{
    io::{self, BufRead, Read},
    sync::Arc,
};

/// The file.
pub(super) struct FileStream<'a> {
    file: Arc<File>,
    ahead: ReadAhead,
    window: Vec<u8>,
    /// The first byte of the window that is not consumed yet.
    start: usize,
    /// File offset of the window's end.
    window_end: u64,
    crc: crc32fast::Hasher,
    /// The window's bytes up to here are in the checksum; `None` while the caller sums consumed bytes itself.
    summed: Option<usize>,
    /// Why reading failed: errors that pass through decoders lose their type.
    failure: Option<DiskError>,
    progress: &'a mut dyn FnMut(u64),
}

impl<'a> FileStream<'a> {
    pub fn new(file: &Arc<File>, progress: &'a mut dyn FnMut(u64)) -> Self {
        Self {
            file: Arc::clone(file),
            ahead: ReadAhead::new(Arc::clone(file)),
            window: Vec::new(),
            start: 0,
            window_end: 0,
            crc: crc32fast::Hasher::new(),
            summed: Some(0),
            failure: None,
            progress,
        }
    }

    /// File offset of the next byte.
    pub fn position(&self) -> u64 {
        self.window_end - (self.window.len() - self.start) as u64
    }

    /// Bytes up to the end of the file.
    pub fn left(&self) -> u64 {
        self.file.len_bytes().saturating_sub(self.position())
    }

    /// Checksum of everything before the next byte, since the start or the last restart.
    pub fn crc(&mut self) -> u32 {
        self.sum_up_to(self.start);
        self.crc.clone().finalize()
    }

    /// Starts a new checksum at the next byte.
    pub(crate) fn restart_crc(&mut self) {
        self.crc = crc32fast::Hasher::new();
        self.summed = Some(self.start);
    }

    /// From here on the caller sums the bytes it consumes and passes the result to
    /// [`Self::resume_summing`]: no byte is summed twice.
    pub(crate) fn pause_summing(&mut self) {
        self.sum_up_to(self.start);
        self.summed = None;
    }

    /// Adds the checksum of exactly the bytes consumed since [`Self::pause_summing`].
    pub(crate) fn resume_summing(&mut self, passed: &crc32fast::Hasher) {
        self.crc.combine(passed);
        self.summed = Some(self.start);
    }

    fn sum_up_to(&mut self, end: usize) {
        if let Some(summed) = &mut self.summed {
            self.crc.update(&self.window[*summed..end]);
            *summed = end;
        }
    }

    /// The read error, if that is why the check failed.
    pub(crate) fn take_failure(&mut self) -> Option<DiskError> {
        self.failure.take()
    }

    fn refill(&mut self) -> io::Result<()> {
        self.sum_up_to(self.window.len());
        (self.progress)(self.window_end);
        self.start = 0;
        self.summed = self.summed.map(|_| 0);
        let read = self.ahead.next(&mut self.window);
        self.window_end += self.window.len() as u64;
        read.map_err(|error| {
            let passed_on = io::Error::other(error.to_string());
            self.failure = Some(error);
            passed_on
        })
    }
}

impl Read for FileStream<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        read_buffered(self, into)
    }
}

impl BufRead for FileStream<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.start == self.window.len() {
            self.refill()?;
        }
        Ok(&self.window[self.start..])
    }

    fn consume(&mut self, count: usize) {
        self.start = (self.start + count).min(self.window.len());
    }
}

/// At most the given number of bytes of another reader.
pub(super) struct Limited<'r, R> {
    pub inner: &'r mut R,
    pub left: u64,
}

impl<R: BufRead> Read for Limited<'_, R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        read_buffered(self, into)
    }
}

impl<R: BufRead> BufRead for Limited<'_, R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.left == 0 {
            return Ok(&[]);
        }
        let available = self.inner.fill_buf()?;
        let count = usize::try_from(self.left).map_or(available.len(), |left| left.min(available.len()));
        Ok(&available[..count])
    }

    fn consume(&mut self, count: usize) {
        self.left = self.left.saturating_sub(count as u64);
        self.inner.consume(count);
    }
}

/// Computes the checksum of everything read, a whole buffer at a time.
pub(super) struct Summing<R> {
    pub inner: R,
    pub crc: crc32fast::Hasher,
    /// Bytes at the start of the inner buffer that are already in the checksum.
    ahead: usize,
    /// Bytes consumed.
    pub count: u64,
}

impl<R> Summing<R> {
    pub fn new(inner: R) -> Self {
        Self {
            inner,
            crc: crc32fast::Hasher::new(),
            ahead: 0,
            count: 0,
        }
    }
}

impl<R: BufRead> Read for Summing<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        read_buffered(self, into)
    }
}

impl<R: BufRead> BufRead for Summing<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        let buffer = self.inner.fill_buf()?;
        if self.ahead == 0 {
            self.crc.update(buffer);
            self.ahead = buffer.len();
        }
        Ok(buffer)
    }

    fn consume(&mut self, count: usize) {
        self.ahead = self.ahead.saturating_sub(count);
        self.count += count as u64;
        self.inner.consume(count);
    }
}

fn read_buffered(reader: &mut impl BufRead, into: &mut [u8]) -> io::Result<usize> {
    let available = reader.fill_buf()?;
    let count = available.len().min(into.len());
    into[..count].copy_from_slice(&available[..count]);
    reader.consume(count);
    Ok(count)
}

/// Skips up to `count` bytes; returns how many there were.
pub(super) fn skip(reader: &mut impl BufRead, count: u64) -> io::Result<u64> {
    let mut left = count;
    while left > 0 {
        let available = reader.fill_buf()?.len();
        if available == 0 {
            break;
        }
        let step = usize::try_from(left).map_or(available, |left| left.min(available));
        reader.consume(step);
        left -= step as u64;
    }
    Ok(count - left)
}

/// Replaces the content of `into` with up to `count` bytes, fewer at the end. The caller has bounded `count`.
pub(super) fn take(reader: &mut impl BufRead, count: usize, into: &mut Vec<u8>) -> io::Result<()> {
    into.clear();
    while into.len() < count {
        let available = reader.fill_buf()?;
        if available.is_empty() {
            break;
        }
        let step = available.len().min(count - into.len());
        into.extend_from_slice(&available[..step]);
        reader.consume(step);
    }
    Ok(())
}

/// The opcode and length of the next record; `Err` with the number of bytes when there are too few, `None` at
/// the end.
pub(super) fn prefix(reader: &mut impl BufRead) -> io::Result<Option<Result<(u8, u64), usize>>> {
    let mut bytes = [0; 9];
    let mut filled = 0;
    while filled < bytes.len() {
        let available = reader.fill_buf()?;
        if available.is_empty() {
            break;
        }
        let step = available.len().min(bytes.len() - filled);
        bytes[filled..filled + step].copy_from_slice(&available[..step]);
        reader.consume(step);
        filled += step;
    }
    Ok((filled > 0).then(|| record_prefix(&bytes[..filled]).ok_or(filled)))
}
