//! LevelDB's log format, used for write-ahead logs and manifests: blocks of 32 KiB, each piece with its CRC.

use super::{Malformed, masked_crc};

/// Length of a block.
const BLOCK_BYTES: usize = 32 << 10;
/// CRC, length and kind of a piece.
const HEADER_BYTES: usize = 7;

/// Kinds of pieces.
const FULL: u8 = 1;
const FIRST: u8 = 2;
const MIDDLE: u8 = 3;
const LAST: u8 = 4;

/// Encodes records of a log; tracks the log's length.
#[derive(Clone, Debug, Default)]
pub(crate) struct LogWriter {
    /// Offset in the current block.
    block_offset: usize,
}

impl LogWriter {
    /// Appends a record to `out`, in pieces that fit the blocks.
    pub fn append(&mut self, out: &mut Vec<u8>, record: &[u8]) {
        self.append_two(out, record, &[]);
    }

    /// Appends a record that consists of `head` and `body`.
    pub fn append_two(&mut self, out: &mut Vec<u8>, mut head: &[u8], mut body: &[u8]) {
        let mut is_first = true;
        loop {
            let left = BLOCK_BYTES - self.block_offset;
            if left < HEADER_BYTES {
                out.extend(std::iter::repeat_n(0, left));
                self.block_offset = 0;
            }
            let room = BLOCK_BYTES - self.block_offset - HEADER_BYTES;
            let (first, head_rest) = head.split_at(head.len().min(room));
            let (second, body_rest) = body.split_at(body.len().min(room - first.len()));
            let kind = match (is_first, head_rest.is_empty() && body_rest.is_empty()) {
                (true, true) => FULL,
                (true, false) => FIRST,
                (false, false) => MIDDLE,
                (false, true) => LAST,
            };
            out.extend(masked_crc(&[&[kind], first, second]).to_le_bytes());
            let piece_bytes = first.len() + second.len();
            // A piece is shorter than a block.
            out.extend((piece_bytes as u16).to_le_bytes());
            out.push(kind);
            out.extend_from_slice(first);
            out.extend_from_slice(second);
            self.block_offset += HEADER_BYTES + piece_bytes;
            if head_rest.is_empty() && body_rest.is_empty() {
                return;
            }
            (is_first, head, body) = (false, head_rest, body_rest);
        }
    }
}

/// A record and its offset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LogRecord {
    /// Offset from the start of the log.
    pub offset: u64,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// Reads a log block by block. A damaged piece is returned as an error and reading continues with the next
/// block, as in LevelDB. A log that ends within a record is not damaged: LevelDB leaves it like that when it
/// stops.
pub(crate) struct LogReader<R> {
    read: R,
    block: Vec<u8>,
    /// Offset of the block in the log.
    block_start: u64,
    /// Offset in the block.
    place: usize,
    /// The pieces of the current record.
    partial: Option<LogRecord>,
    is_done: bool,
    /// The log ends within a piece.
    is_cut: bool,
}

impl<E, R: FnMut(&mut [u8], u64) -> Result<usize, E>> LogReader<R> {
    /// Starts at the offset of a record (0, or [`LogRecord::offset`]). `read` fills a slice from an offset on
    /// and returns the number of bytes.
    pub fn new(read: R, offset: u64) -> Self {
        let in_block = offset % BLOCK_BYTES as u64;
        Self {
            read,
            block: Vec::new(),
            block_start: offset - in_block,
            place: in_block as usize,
            partial: None,
            is_done: false,
            is_cut: false,
        }
    }

    /// The next record; `None` at the end.
    ///
    /// # Errors
    /// The errors of `read`.
    pub(crate) fn next_record(&mut self) -> Result<Option<Result<LogRecord, Malformed>>, E> {
        while !self.is_done {
            if self.block.is_empty() {
                self.block.resize(BLOCK_BYTES, 0);
                let count = (self.read)(&mut self.block, self.block_start)?;
                self.block.truncate(count);
            }
            if self.block.len().saturating_sub(self.place) < HEADER_BYTES {
                let rest = self.block.get(self.place..).unwrap_or_default();
                self.is_cut |= self.block.len() < BLOCK_BYTES && rest.iter().any(|byte| *byte != 0);
                self.next_block();
                continue;
            }
            match self.take_piece() {
                Ok(Some(record)) => return Ok(Some(Ok(record))),
                Ok(None) => {}
                Err(malformed) => return Ok(Some(Err(malformed))),
            }
        }
        Ok(None)
    }

    /// Whether the log that was read to its end ends within a record.
    pub(crate) fn is_cut(&self) -> bool {
        self.is_cut || self.partial.is_some()
    }

    fn next_block(&mut self) {
        self.is_done |= self.block.len() < BLOCK_BYTES;
        self.block_start += self.block.len() as u64;
        self.block.clear();
        self.place = 0;
    }

    /// Takes one piece; returns the record when it was its last one.
    fn take_piece(&mut self) -> Result<Option<LogRecord>, Malformed> {
        let offset = self.block_start + self.place as u64;
        let header = &self.block[self.place..self.place + HEADER_BYTES];
        let crc = u32::from_le_bytes([header[0], header[1], header[2], header[3]]);
        let len = usize::from(u16::from_le_bytes([header[4], header[5]]));
        let kind = header[6];
        let begin = self.place + HEADER_BYTES;
        if kind == 0 && len == 0 {
            // Space that was reserved and never written.
            self.partial = None;
            self.next_block();
            return Ok(None);
        }
        let Some(piece) = self.block.get(begin..begin + len) else {
            let at_end = self.block.len() < BLOCK_BYTES;
            self.partial = None;
            self.next_block();
            if at_end {
                self.is_cut = true;
                return Ok(None);
            }
            return Err(Malformed::at(
                offset,
                "a piece within its block",
                format!("{len} bytes"),
            ));
        };
        if masked_crc(&[&[kind], piece]) != crc {
            self.partial = None;
            self.next_block();
            return Err(Malformed::at(offset, "a piece of a record", "a wrong checksum"));
        }
        let (had_begun, piece) = (self.partial.is_some(), piece.to_vec());
        self.place = begin + len;
        match (kind, &mut self.partial) {
            (FULL, _) => {
                self.partial = None;
                Ok(Some(LogRecord { offset, bytes: piece }))
            }
            (FIRST, _) => {
                self.partial = Some(LogRecord { offset, bytes: piece });
                Ok(None)
            }
            (MIDDLE, Some(partial)) => {
                partial.bytes.extend(piece);
                Ok(None)
            }
            (LAST, Some(partial)) => {
                partial.bytes.extend(piece);
                Ok(self.partial.take())
            }
            _ => {
                let found = format!(
                    "kind {kind}, {}",
                    if had_begun {
                        "in a record"
                    } else {
                        "without a beginning"
                    }
                );
                Err(Malformed::at(offset, "the next piece of a record", found))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    fn reader(log: &[u8]) -> LogReader<impl FnMut(&mut [u8], u64) -> Result<usize, Infallible>> {
        reader_at(log, 0)
    }

    fn reader_at(
        log: &[u8],
        offset: u64,
    ) -> LogReader<impl FnMut(&mut [u8], u64) -> Result<usize, Infallible>> {
        let read = move |into: &mut [u8], at: u64| {
            let rest = log.get(at as usize..).unwrap_or_default();
            let count = rest.len().min(into.len());
            into[..count].copy_from_slice(&rest[..count]);
            Ok(count)
        };
        LogReader::new(read, offset)
    }

    fn records(log: &[u8]) -> Vec<Result<LogRecord, Malformed>> {
        let mut reader = reader(log);
        std::iter::from_fn(|| reader.next_record().unwrap_or_else(|never| match never {})).collect()
    }

    fn log(lens: &[usize]) -> Vec<u8> {
        let (mut writer, mut out) = (LogWriter::default(), Vec::new());
        for (n, len) in lens.iter().enumerate() {
            writer.append(&mut out, &vec![n as u8 + 1; *len]);
        }
        out
    }

    #[test]
    fn records_of_every_length_are_read_back() {
        let lens = [0, 1, 32_747, 5, 32_768, 0, 100_000, 32_754, 32_755, 3];
        let out = log(&lens);
        let found = records(&out);
        let found_lens: Vec<_> = found
            .iter()
            .map(|record| record.as_ref().unwrap().bytes.len())
            .collect();
        assert_eq!(found_lens, lens);
        for record in found {
            let record = record.unwrap();
            assert_eq!(reader_at(&out, record.offset).next_record(), Ok(Some(Ok(record))));
        }
    }

    #[test]
    fn a_cut_end_is_not_damage_and_a_changed_byte_costs_one_block() {
        let lens = [100, 40_000, 100, 100];
        let out = log(&lens);
        for cut in [out.len() - 1, out.len() - 107, 20_000, 3] {
            assert!(records(&out[..cut]).iter().all(Result::is_ok), "{cut}");
        }
        let mut changed = out.clone();
        changed[50] ^= 1;
        let found = records(&changed);
        assert!(found[0].is_err());
        assert_eq!(
            found.iter().filter(|record| record.is_ok()).count(),
            2,
            "{found:?}"
        );
    }
}
