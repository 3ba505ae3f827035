//! Reads a file record by record, and collects what is found about them.

use super::{
    BODY_BYTES_MAX, Checked, Stop,
    stream::{FileStream, prefix, skip, take},
};
use crate::{
    check::{FileCheck, Progress},
    mcap::{
        format::{FOOTER_AND_MAGIC_BYTES, Record, kind},
        options::STORAGE_ID,
    },
};
use holdall_io::fs::File;
use std::{path::Path, sync::Arc};

/// A record's prefix.
#[derive(Clone, Copy)]
pub(super) struct Head {
    pub opcode: u8,
    pub start: u64,
    pub body_bytes: u64,
}

/// The records of a file, and the findings.
pub(super) struct Records<'a> {
    pub stream: FileStream<'a>,
    pub file: FileCheck,
    /// Used again for the next body.
    buffer: Vec<u8>,
}

impl<'a> Records<'a> {
    pub fn new(file: &Arc<File>, path: &Path, progress: Progress<'a>) -> Self {
        Self {
            stream: FileStream::new(file, progress),
            file: FileCheck {
                path: path.to_owned(),
                storage_id: STORAGE_ID,
                file_bytes: file.len_bytes(),
                ..FileCheck::default()
            },
            buffer: Vec::new(),
        }
    }

    /// Reads the prefix of the next record, which must be whole.
    pub fn next_head(&mut self, expected: &str) -> Checked<Head> {
        let start = self.stream.position();
        let (opcode, body_bytes) = match prefix(&mut self.stream)? {
            Some(Ok(read)) => read,
            Some(Err(count)) => {
                let found = format!("{count} bytes and the end of the file");
                self.file.problem(start, "record", expected, found);
                return Err(Stop::Ended);
            }
            None => {
                self.file.problem(
                    start,
                    "record",
                    expected,
                    "the end of the file: it was not closed",
                );
                return Err(Stop::Ended);
            }
        };
        let head = Head {
            opcode,
            start,
            body_bytes,
        };
        let left = self.stream.left();
        if opcode == 0 {
            self.file.problem(
                start,
                "record",
                expected,
                "opcode 0, which no record has: the file was not closed, or is damaged",
            );
            return Err(Stop::Ended);
        }
        if body_bytes > left {
            let (expected, found) = (
                format!("{body_bytes} bytes, as its length states"),
                format!("{left} bytes until the end of the file"),
            );
            self.file
                .problem(start, format!("{} record", kind(opcode)), expected, found);
            // The rest of a chunk could be recovered, but a check does not do that.
            return Err(Stop::Ended);
        }
        Ok(head)
    }

    /// The body of a record; skipped and `None` when it is too long to be parsed.
    pub(crate) fn body(&mut self, head: Head) -> Checked<Option<Vec<u8>>> {
        if head.body_bytes > BODY_BYTES_MAX {
            let found = format!("{} bytes", head.body_bytes);
            let expected = format!("at most {BODY_BYTES_MAX} bytes, longer ones are not parsed");
            self.file.notice(
                head.start,
                format!("{} record", kind(head.opcode)),
                expected,
                found,
            );
            skip(&mut self.stream, head.body_bytes)?;
            return Ok(None);
        }
        let mut body = std::mem::take(&mut self.buffer);
        // Below the limit, so it fits.
        take(&mut self.stream, head.body_bytes as usize, &mut body)?;
        Ok(Some(body))
    }

    /// Parses a body; a finding and `None` when that fails.
    pub fn parse<'b>(&mut self, head: Head, body: &'b [u8]) -> Option<Record<'b>> {
        Record::decode(head.opcode, body)
            .map_err(|error| {
                let offset = head.start + 9 + error.offset as u64;
                let what = format!("{} record", kind(head.opcode));
                self.file.problem(offset, what, error.expected, error.found);
            })
            .ok()
    }

    /// Takes a body back.
    pub(crate) fn recycle(&mut self, body: Vec<u8>) {
        self.buffer = body;
    }

    /// Reads the first bytes of a body.
    pub(crate) fn begin_of_body(&mut self, bytes: u64) -> Checked<Vec<u8>> {
        let mut body = std::mem::take(&mut self.buffer);
        take(&mut self.stream, bytes as usize, &mut body)?;
        Ok(body)
    }

    /// Offset of the footer, counted from the end of the file and so independent of the preceding bytes.
    pub(crate) fn footer_start(&self) -> u64 {
        self.file.file_bytes.saturating_sub(FOOTER_AND_MAGIC_BYTES as u64)
    }
}
