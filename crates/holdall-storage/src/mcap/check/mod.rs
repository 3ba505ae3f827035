//! Checks a whole MCAP file: each record, checksum, index and count, in one pass with bounded memory.

mod chunk;
mod chunks;
mod content;
mod data;
mod records;
mod stream;
mod summary;

use super::{
    format::{Header, MAGIC, Record, Schema, kind, op},
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
use chunks::{ChunkFacts, Chunks};
use content::{Content, EntrySum};
use holdall_io::fs::File;
use records::{Head, Records};
use std::{io, path::Path, sync::Arc};
use stream::take;
use summary::SummaryCheck;

/// Longest body of a definition, chunk index or statistics record that is parsed.
const BODY_BYTES_MAX: u64 = 64 << 20;
/// Bytes of definitions and metadata records kept for comparison.
const KEPT_BYTES_MAX: u64 = 256 << 20;

/// A running check.
struct Checker<'a> {
    records: Records<'a>,
    content: Content,
    chunks: Chunks,
    attachments: EntrySum,
    /// Offset and length of each metadata record.
    metadata: EntrySum,
    kept_bytes: u64,
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
        records: Records::new(&file, path, progress),
        content: Content::default(),
        chunks: Chunks::default(),
        attachments: EntrySum::default(),
        metadata: EntrySum::default(),
        kept_bytes: 0,
        is_ros2: false,
        resync: Resync::default(),
    };
    let run = checker.run();
    if let Some(failure) = checker.records.stream.take_failure() {
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

impl Checker<'_> {
    fn run(&mut self) -> Checked {
        self.begin()?;
        let data_end = self.data_section()?;
        SummaryCheck {
            records: &mut self.records,
            content: &self.content,
            chunks: &self.chunks,
            attachments: self.attachments,
            metadata: self.metadata,
        }
        .run(data_end)
    }

    /// Magic and header.
    fn begin(&mut self) -> Checked {
        let mut magic = Vec::new();
        take(&mut self.records.stream, MAGIC.len(), &mut magic)?;
        if magic != MAGIC {
            let found = if magic.is_empty() {
                "an empty file".to_owned()
            } else {
                format!("{magic:02x?}")
            };
            return Err(Stop::Refused(Box::new(StorageError::WrongFormat {
                path: self.records.file.path.clone(),
                storage: STORAGE_ID,
                expected: format!("{MAGIC:02x?}"),
                found,
            })));
        }
        let head = self.records.next_head("the header record")?;
        if head.opcode != op::HEADER {
            let found = format!("a record of kind {:#04x}", head.opcode);
            self.records
                .file
                .problem(head.start, "first record", "a header", found);
            return Err(Stop::Ended);
        }
        if let Some(Record::Header(Header { profile, .. })) = self.records.body(head)?.and_then(|body| {
            let record = Record::decode(head.opcode, &body).ok();
            record.map(into_owned)
        }) {
            self.is_ros2 = profile == "ros2";
        }
        Ok(())
    }

    /// Whether this many more bytes may be kept.
    fn may_keep(&mut self, start: u64, bytes: u64) -> bool {
        if self.kept_bytes + bytes <= KEPT_BYTES_MAX {
            self.kept_bytes += bytes;
            return true;
        }
        let expected = format!("at most {KEPT_BYTES_MAX} bytes in all, more are not compared");
        self.records
            .file
            .notice(start, "definitions and metadata", expected, "more");
        false
    }

    /// The findings, completed by those about the file as a whole.
    fn finish(mut self) -> FileCheck {
        let times = self.content.times;
        self.records.file.message_count = self.content.message_count();
        self.records.file.starting_time = times.map(|(start, _)| signed(start));
        self.records.file.ending_time = times.map(|(_, end)| signed(end));
        self.records.file.out_of_order = self
            .content
            .channels
            .iter()
            .map(|channel| channel.out_of_order)
            .sum();
        if self.chunks.unindexed() > 0 {
            let found = format!("{} chunks without any", self.chunks.unindexed());
            self.records
                .file
                .notice(None, "message indexes", "one for each channel of a chunk", found);
        }
        self.check_definitions();
        self.records.file
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
                self.records
                    .file
                    .check_definition(Some(channel.defined_at), &info);
            }
            self.records.file.topics.push((info.topic, channel.messages));
        }
    }

    fn keep_metadata(&mut self, head: Head, name: String, entries: MetadataEntries) {
        self.metadata.add(head.start, head.body_bytes + 9);
        if self.may_keep(head.start, head.body_bytes) {
            self.records.file.metadata.push((name, entries));
        }
    }
}

fn into_owned(record: Record<'_>) -> Record<'static> {
    match record {
        Record::Header(header) => Record::Header(header),
        _ => Record::Unknown(0),
    }
}
