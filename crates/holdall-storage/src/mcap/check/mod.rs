//! Checks a whole MCAP file: each record, checksum, index and count, in one pass with bounded memory.

mod chunk;
mod content;
mod data;
mod stream;
mod summary;

use super::{
    format::{FOOTER_AND_MAGIC_BYTES, Header, MAGIC, Record, Schema, kind, op},
    options::STORAGE_ID,
};
use crate::{
    check::{FileCheck, Progress},
    error::{StorageError, StorageResult},
    mcap::{
        reader::index::{Definitions, signed},
        recover::resync::Resync,
    },
    writer::MetadataEntries,
};
use content::{Content, EntrySum};
use holdall_io::fs::File;
use std::{io, path::Path, sync::Arc};
use stream::{FileStream, prefix, skip, take};

/// Longest body of a definition, chunk index or statistics record that is parsed.
const BODY_BYTES_MAX: u64 = 64 << 20;
/// Bytes of definitions and metadata records kept for comparison.
const KEPT_BYTES_MAX: u64 = 256 << 20;
/// Chunks whose facts are kept individually; with more, only the sum is compared.
const CHUNKS_MAX: usize = 2 << 20;

/// Facts that the summary must state about a chunk.
#[derive(Clone, Copy, Debug)]
struct ChunkFacts {
    start: u64,
    length: u64,
    times: (u64, u64),
    /// Channel and offset of its message indexes.
    indexes: EntrySum,
    index_length: u64,
    /// Sizes and codec.
    sizes: EntrySum,
}

/// A running check.
struct Checker<'a> {
    stream: FileStream<'a>,
    file: FileCheck,
    content: Content,
    chunks: Vec<ChunkFacts>,
    /// Chunks in the data section, including those that are not in the list.
    chunk_count: u64,
    /// The chunk whose message indexes follow.
    open_chunk: Option<ChunkFacts>,
    /// True when the open chunk was readable, so that its indexes can be checked.
    open_chunk_read: bool,
    unindexed_chunks: u64,
    attachments: EntrySum,
    /// Offset and length of each metadata record.
    metadata: EntrySum,
    kept_bytes: u64,
    body: Vec<u8>,
    is_ros2: bool,
    resync: Resync,
}

/// Checks a file from start to end.
///
/// # Errors
/// A file that cannot be read or is not an MCAP file. Damage in it is a finding.
pub fn check(path: &Path, progress: Progress<'_>) -> StorageResult<FileCheck> {
    let file = Arc::new(File::open(path)?);
    let mut checker = Checker {
        stream: FileStream::new(&file, progress),
        file: FileCheck {
            path: path.to_owned(),
            storage_id: STORAGE_ID,
            file_bytes: file.len_bytes(),
            ..FileCheck::default()
        },
        content: Content::default(),
        chunks: Vec::new(),
        chunk_count: 0,
        open_chunk: None,
        open_chunk_read: false,
        unindexed_chunks: 0,
        attachments: EntrySum::default(),
        metadata: EntrySum::default(),
        kept_bytes: 0,
        body: Vec::new(),
        is_ros2: false,
        resync: Resync::default(),
    };
    let run = checker.run();
    if let Some(failure) = checker.stream.take_failure() {
        return Err(failure.into());
    }
    match run {
        Ok(()) => Ok(checker.finish()),
        Err(Stop::Refused(error)) => Err(*error),
        // Without a disk failure, a read error is the end of the file, which was noted where it occurred.
        Err(Stop::Ended | Stop::Io) => Ok(checker.finish()),
    }
}

/// Why a check stops before the end of the file.
enum Stop {
    /// The file ends or cannot be followed any further; already noted.
    Ended,
    /// Reading failed; the stream has the cause.
    Io,
    /// Not a file that can be checked.
    Refused(Box<StorageError>),
}

impl From<io::Error> for Stop {
    fn from(_: io::Error) -> Self {
        Self::Io
    }
}

type Checked<T = ()> = Result<T, Stop>;

/// A record's prefix.
#[derive(Clone, Copy)]
struct Head {
    opcode: u8,
    start: u64,
    body_bytes: u64,
}

impl Checker<'_> {
    fn run(&mut self) -> Checked {
        self.begin()?;
        let data_end = self.data_section()?;
        self.summary_section(data_end)
    }

    /// Magic and header.
    fn begin(&mut self) -> Checked {
        let mut magic = Vec::new();
        take(&mut self.stream, MAGIC.len(), &mut magic)?;
        if magic != MAGIC {
            let found = if magic.is_empty() {
                "an empty file".to_owned()
            } else {
                format!("{magic:02x?}")
            };
            return Err(Stop::Refused(Box::new(StorageError::WrongFormat {
                path: self.file.path.clone(),
                storage: STORAGE_ID,
                expected: format!("{MAGIC:02x?}"),
                found,
            })));
        }
        let head = self.next_head("the header record")?;
        if head.opcode != op::HEADER {
            let found = format!("a record of kind {:#04x}", head.opcode);
            self.file.problem(head.start, "first record", "a header", found);
            return Err(Stop::Ended);
        }
        if let Some(Record::Header(Header { profile, .. })) = self.body(head)?.and_then(|body| {
            let record = Record::decode(head.opcode, &body).ok();
            record.map(into_owned)
        }) {
            self.is_ros2 = profile == "ros2";
        }
        Ok(())
    }

    /// Reads the prefix of the next record, which must be whole.
    fn next_head(&mut self, expected: &str) -> Checked<Head> {
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
    fn body(&mut self, head: Head) -> Checked<Option<Vec<u8>>> {
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
        let mut body = std::mem::take(&mut self.body);
        // Below the limit, so it fits.
        take(&mut self.stream, head.body_bytes as usize, &mut body)?;
        Ok(Some(body))
    }

    /// Parses a body; a finding and `None` when that fails.
    fn parse<'b>(&mut self, head: Head, body: &'b [u8]) -> Option<Record<'b>> {
        Record::decode(head.opcode, body)
            .map_err(|error| {
                let offset = head.start + 9 + error.offset as u64;
                let what = format!("{} record", kind(head.opcode));
                self.file.problem(offset, what, error.expected, error.found);
            })
            .ok()
    }

    /// Whether this many more bytes may be kept.
    fn may_keep(&mut self, start: u64, bytes: u64) -> bool {
        if self.kept_bytes + bytes <= KEPT_BYTES_MAX {
            self.kept_bytes += bytes;
            return true;
        }
        let expected = format!("at most {KEPT_BYTES_MAX} bytes in all, more are not compared");
        self.file
            .notice(start, "definitions and metadata", expected, "more");
        false
    }

    /// Offset of the footer, counted from the end of the file and so independent of the preceding bytes.
    fn footer_start(&self) -> u64 {
        self.file.file_bytes.saturating_sub(FOOTER_AND_MAGIC_BYTES as u64)
    }

    /// The findings, completed by those about the file as a whole.
    fn finish(mut self) -> FileCheck {
        let times = self.content.times;
        self.file.message_count = self.content.message_count();
        self.file.starting_time = times.map(|(start, _)| signed(start));
        self.file.ending_time = times.map(|(_, end)| signed(end));
        self.file.out_of_order = self
            .content
            .channels
            .iter()
            .map(|channel| channel.out_of_order)
            .sum();
        if self.unindexed_chunks > 0 {
            let found = format!("{} chunks without any", self.unindexed_chunks);
            self.file
                .notice(None, "message indexes", "one for each channel of a chunk", found);
        }
        self.check_definitions();
        self.file
    }

    /// Checks the definitions of all channels, and reports the topics.
    fn check_definitions(&mut self) {
        let mut definitions = Definitions::default();
        for (id, (_, schema)) in &self.content.schemas {
            definitions.add_schema(&Schema {
                id: *id,
                name: schema.name.as_str().into(),
                encoding: schema.encoding.as_str().into(),
                data: schema.data.as_ref().into(),
            });
        }
        for channel in &self.content.channels {
            let Some(record) = &channel.record else { continue };
            let info = definitions.info(record);
            let is_ros = matches!(
                definitions
                    .schemas
                    .get(&record.schema_id)
                    .map(|schema| schema.encoding.as_str()),
                Some("ros2msg" | "ros2idl" | "unknown" | "")
            );
            if self.is_ros2 && is_ros && record.message_encoding == "cdr" {
                self.file.check_definition(Some(channel.defined_at), &info);
            }
            self.file.topics.push((info.topic, channel.messages));
        }
    }

    fn keep_metadata(&mut self, head: Head, name: String, entries: MetadataEntries) {
        self.metadata.add(head.start, head.body_bytes + 9);
        if self.may_keep(head.start, head.body_bytes) {
            self.file.metadata.push((name, entries));
        }
    }
}

fn into_owned(record: Record<'_>) -> Record<'static> {
    match record {
        Record::Header(header) => Record::Header(header),
        _ => Record::Unknown(0),
    }
}
