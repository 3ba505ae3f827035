//! A file from front to end with bounded memory: read ahead, with a checksum over all that was passed.

use holdall_io::{disk::DiskError, fs::File};
use std::io::{self, BufRead, Read};

/// Bytes that are read at once: large enough for the disk, small enough to be in the cache when they are looked at.
const WINDOW_BYTES: usize = 1 << 20;
/// How far ahead the system is told to read.
const READ_AHEAD_BYTES: u64 = 16 << 20;

/// The file.
pub(super) struct FileStream<'a> {
    file: &'a File,
    window: Vec<u8>,
    /// The part of the window that was read and not yet consumed.
    start: usize,
    end: usize,
    /// Where in the file the window ends.
    window_end: u64,
    crc: crc32fast::Hasher,
    /// Up to here the window is in the checksum.
    summed: usize,
    /// Why reading failed; errors that pass through decoders lose their type.
    failure: Option<DiskError>,
    progress: &'a mut dyn FnMut(u64),
}

impl<'a> FileStream<'a> {
    pub fn new(file: &'a File, progress: &'a mut dyn FnMut(u64)) -> Self {
        file.expect_sequential_reads();
        Self {
            file,
            // At least one byte, so that the end of an empty file is seen.
            window: vec![
                0;
                usize::try_from(file.len_bytes())
                    .map_or(WINDOW_BYTES, |len| len.clamp(1, WINDOW_BYTES))
            ],
            start: 0,
            end: 0,
            window_end: 0,
            crc: crc32fast::Hasher::new(),
            summed: 0,
            failure: None,
            progress,
        }
    }

    /// Where in the file the next byte is.
    pub fn position(&self) -> u64 {
        self.window_end - (self.end - self.start) as u64
    }

    /// Bytes up to the end of the file.
    pub fn left(&self) -> u64 {
        self.file.len_bytes().saturating_sub(self.position())
    }

    /// The checksum of everything before the next byte, since the start or the last restart.
    pub fn crc(&mut self) -> u32 {
        self.crc.update(&self.window[self.summed..self.start]);
        self.summed = self.start;
        self.crc.clone().finalize()
    }

    /// Begins a new checksum with the next byte.
    pub fn restart_crc(&mut self) {
        self.crc = crc32fast::Hasher::new();
        self.summed = self.start;
    }

    /// Why the file could not be read, when that was what went wrong.
    pub fn take_failure(&mut self) -> Option<DiskError> {
        self.failure.take()
    }

    fn refill(&mut self) -> io::Result<()> {
        self.crc.update(&self.window[self.summed..self.end]);
        (self.start, self.end, self.summed) = (0, 0, 0);
        (self.progress)(self.window_end);
        self.file
            .expect_read(self.window_end + WINDOW_BYTES as u64, READ_AHEAD_BYTES);
        match self.file.read_at(&mut self.window, self.window_end) {
            Ok(read) => {
                self.end = read;
                self.window_end += read as u64;
                Ok(())
            }
            Err(error) => {
                let told = io::Error::other(error.to_string());
                self.failure = Some(error);
                Err(told)
            }
        }
    }
}

impl Read for FileStream<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        read_buffered(self, into)
    }
}

impl BufRead for FileStream<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.start == self.end {
            self.refill()?;
        }
        Ok(&self.window[self.start..self.end])
    }

    fn consume(&mut self, count: usize) {
        self.start = (self.start + count).min(self.end);
    }
}

/// At most so many bytes of another reader.
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

/// Takes the checksum of all that is read, a whole buffer at a time.
pub(super) struct Summing<R> {
    pub inner: R,
    pub crc: crc32fast::Hasher,
    /// Bytes at the begin of the inner buffer that are in the checksum.
    ahead: usize,
    /// Bytes that were consumed.
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

/// Passes up to `count` bytes; how many there were.
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

/// Up to `count` bytes into `into`, which is emptied before; fewer at the end. The caller has bounded `count`.
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

/// The opcode and length of the next record; `Err` with the bytes that there were when there are too few, `None` at the end.
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
    let mut length = [0; 8];
    length.copy_from_slice(&bytes[1..]);
    Ok(match filled {
        0 => None,
        9 => Some(Ok((bytes[0], u64::from_le_bytes(length)))),
        fewer => Some(Err(fewer)),
    })
}
