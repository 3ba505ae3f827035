//! Checks one chunk: header, decompressed records and checksum, with only a window of it in memory.

use super::{
    BODY_BYTES_MAX, Checked, Checker, ChunkFacts, Head, Stop,
    content::EntrySum,
    kind,
    stream::{Limited, Summing, prefix, skip, take},
};
use crate::mcap::format::{ChunkHeader, Fields, MESSAGE_HEADER_BYTES, MessageHeader, op};
use std::io::{self, BufRead, BufReader, Read};

/// Longest chunk header: no codec has a longer name.
const HEADER_BYTES_MAX: u64 = 4096;
/// Decompressed bytes at a time.
const WINDOW_BYTES: usize = 256 << 10;

/// How the walk over a chunk's records ended.
enum Walked {
    /// All records are whole.
    Whole,
    /// They end in the middle of the record at this offset.
    Cut(u64),
    /// The codec produced more bytes than stated.
    TooMuch,
}

/// A chunk's header, owned.
struct Declared {
    times: (u64, u64),
    size: u64,
    crc: u32,
    compression: String,
    stored: u64,
}

impl Checker<'_> {
    /// A chunk record.
    pub(super) fn chunk(&mut self, head: Head) -> Checked {
        self.content.end_chunk();
        let Some((declared, header_bytes)) = self.chunk_header(head)? else {
            self.content.drop_chunk();
            return Ok(());
        };
        let records_start = head.start + 9 + header_bytes;
        let sizes = chunk_sizes(&declared.compression, declared.stored, declared.size);
        *self.chunks.open() = Some(ChunkFacts {
            start: head.start,
            length: head.body_bytes + 9,
            times: declared.times,
            indexes: EntrySum::default(),
            index_length: 0,
            is_read: false,
            sizes,
        });
        let left = head.body_bytes - header_bytes;
        if declared.stored != left {
            let (expected, found) = (
                format!("{} bytes, as stated", declared.stored),
                format!("{left} bytes"),
            );
            self.records
                .file
                .problem(head.start, "records of the chunk", expected, found);
        }
        let is_read = self.chunk_records(head, records_start, &declared, declared.stored.min(left))?;
        if let Some(chunk) = self.chunks.open() {
            chunk.is_read = is_read;
        }
        // One of the two lengths is wrong: the record's end is not to be trusted.
        if declared.stored != left {
            self.content.drop_chunk();
            if self.pass_gap(head.start)? {
                return Ok(());
            }
        }
        let passed = self.records.stream.position() - head.start - 9;
        skip(&mut self.records.stream, head.body_bytes.saturating_sub(passed))?;
        if is_read {
            let times = self.content.chunk_times.unwrap_or((0, 0));
            let what = "first log time of the chunk";
            self.records
                .file
                .same(head.start, what, times.0, declared.times.0);
            let what = "last log time of the chunk";
            self.records
                .file
                .same(head.start, what, times.1, declared.times.1);
        }
        Ok(())
    }

    fn chunk_header(&mut self, head: Head) -> Checked<Option<(Declared, u64)>> {
        let window = head.body_bytes.min(HEADER_BYTES_MAX);
        // The header's length follows from its codec's name: 8 + 8 + 8 + 4 bytes, the name with its length, 8
        // bytes.
        let mut bytes = self.records.begin_of_body(window.min(32))?;
        let name_bytes = bytes
            .get(28..32)
            .and_then(|length| <[u8; 4]>::try_from(length).ok())
            .map_or(0, |length| u64::from(u32::from_le_bytes(length)));
        let rest = window.saturating_sub(32).min(name_bytes + 8);
        let mut more = Vec::new();
        take(&mut self.records.stream, rest as usize, &mut more)?;
        bytes.extend_from_slice(&more);
        let mut fields = Fields::new(&bytes);
        let declared = match ChunkHeader::decode(&mut fields) {
            Ok(header) => Some(Declared {
                times: (header.message_start_time, header.message_end_time),
                size: header.uncompressed_size,
                crc: header.uncompressed_crc,
                compression: header.compression.into_owned(),
                stored: header.compressed_size,
            }),
            Err(error) => {
                self.records
                    .file
                    .problem(head.start, "chunk record", error.expected, error.found);
                None
            }
        };
        let header_bytes = bytes.len() as u64;
        self.records.recycle(bytes);
        if declared.is_none() {
            skip(&mut self.records.stream, head.body_bytes - header_bytes)?;
        }
        Ok(declared.map(|declared| (declared, header_bytes)))
    }

    /// Walks over the records; true when all of them were read.
    fn chunk_records(
        &mut self,
        head: Head,
        records_start: u64,
        declared: &Declared,
        stored: u64,
    ) -> Checked<bool> {
        // Moved out during the walk, which notes its findings in `self`.
        let (mut events, mut scratch) = (Vec::new(), Vec::new());
        let is_plain = declared.compression.is_empty();
        if is_plain {
            self.records.stream.pause_summing();
        }
        let limited = Limited {
            inner: &mut self.records.stream,
            left: stored,
        };
        let visit = Visit {
            content: &mut self.content,
            events: &mut events,
            scratch: &mut scratch,
            is_plain,
            records_start,
            chunk_start: head.start,
        };
        let walked = match declared.compression.as_str() {
            "" => {
                let mut records = Summing::new(limited);
                let walked = walk(&mut records, declared, visit);
                // The checksums cover all records, including those after a cut one.
                let rest = skip(&mut records, u64::MAX);
                let crc = records.crc;
                self.records.stream.resume_summing(&crc);
                walked.and_then(|(walked, size)| rest.map(|_| (walked, size, crc.finalize())))
            }
            "zstd" => match zstd::stream::read::Decoder::with_buffer(limited) {
                Ok(decoder) => walk_decoded(decoder, declared, visit),
                Err(error) => Err(error),
            },
            "lz4" => match lz4::Decoder::new(limited) {
                Ok(decoder) => walk_decoded(decoder, declared, visit),
                Err(error) => Err(error),
            },
            other => {
                let found = format!("{other:?}");
                self.records
                    .file
                    .problem(head.start, "codec of the chunk", "none, lz4 or zstd", found);
                self.content.drop_chunk();
                return Ok(false);
            }
        };
        self.take_events(head, events);
        self.judge_walk(head, declared, walked)
    }

    /// Applies the definitions and findings of the walk.
    fn take_events(&mut self, head: Head, events: Vec<Event>) {
        for event in events {
            match event {
                Event::UnknownChannel { at, id } => {
                    let what = format!("message of channel {id}");
                    self.records
                        .file
                        .problem(at, what, "a channel that is defined before", "none");
                }
                Event::Definition { opcode, at, body } => {
                    let head = Head {
                        opcode,
                        start: at,
                        body_bytes: body.len() as u64,
                    };
                    self.definition(head, &body);
                }
                Event::Misplaced { at, opcode } => {
                    let found = format!("a {} record", kind(opcode));
                    let expected = "schemas, channels and messages only";
                    self.records
                        .file
                        .problem(at, "records of the chunk", expected, found);
                }
                Event::Malformed { at, found } => {
                    let what = format!("message in the chunk at byte {}", head.start);
                    self.records.file.problem(at, what, "a header of 22 bytes", found);
                }
            }
        }
    }

    fn judge_walk(
        &mut self,
        head: Head,
        declared: &Declared,
        walked: io::Result<(Walked, u64, u32)>,
    ) -> Checked<bool> {
        let (walked, size, crc) = match walked {
            Ok(walked) => walked,
            Err(error) => {
                if let Some(failure) = self.records.stream.take_failure() {
                    return Err(Stop::Refused(Box::new(failure.into())));
                }
                let codec = if declared.compression.is_empty() {
                    "plain"
                } else {
                    declared.compression.as_str()
                };
                let expected = format!("{} bytes of {codec} records", declared.size);
                self.records
                    .file
                    .problem(head.start, "content of the chunk", expected, error);
                self.content.drop_chunk();
                return Ok(false);
            }
        };
        match walked {
            Walked::TooMuch => {
                let expected = format!("{} bytes, as stated", declared.size);
                self.records
                    .file
                    .problem(head.start, "decompressed size of the chunk", expected, "more");
                self.content.drop_chunk();
                return Ok(false);
            }
            Walked::Cut(at) => {
                let what = format!("record in the chunk at byte {}", head.start);
                let found = format!("its end after {size} bytes");
                self.records
                    .file
                    .problem(at, what, "whole records up to the chunk's end", found);
            }
            Walked::Whole => {}
        }
        self.records
            .file
            .same(head.start, "decompressed size of the chunk", declared.size, size);
        if declared.size != size {
            self.content.drop_chunk();
        }
        if declared.crc != 0 && declared.crc != crc {
            let (expected, found) = (format!("{:#010x}", declared.crc), format!("{crc:#010x}"));
            self.records
                .file
                .problem(head.start, "chunk checksum", expected, found);
            self.content.drop_chunk();
        }
        Ok(matches!(walked, Walked::Whole))
    }
}

/// Something found in a chunk, handled when the walk over it has ended.
enum Event {
    Definition { opcode: u8, at: u64, body: Vec<u8> },
    UnknownChannel { at: u64, id: u16 },
    Misplaced { at: u64, opcode: u8 },
    Malformed { at: u64, found: String },
}

/// Most events that are kept for one chunk.
const EVENTS_MAX: usize = 2000;

/// The parts of the check that the walk needs.
struct Visit<'v> {
    content: &'v mut super::content::Content,
    events: &'v mut Vec<Event>,
    scratch: &'v mut Vec<u8>,
    is_plain: bool,
    records_start: u64,
    chunk_start: u64,
}

impl Visit<'_> {
    /// An offset of the chunk's records in the file; for a compressed chunk, the offset of the chunk.
    fn at(&self, offset: u64) -> u64 {
        if self.is_plain {
            self.records_start + offset
        } else {
            self.chunk_start
        }
    }

    fn event(&mut self, event: Event) {
        if self.events.len() < EVENTS_MAX {
            self.events.push(event);
        }
    }

    /// Whether this chunk has defined the channel: its definitions are applied after the walk.
    fn is_defined_here(&self, id: u16) -> bool {
        self.events.iter().any(|event| {
            matches!(event, Event::Definition { opcode: op::CHANNEL, body, .. } if body.get(..2) == Some(&id.to_le_bytes()))
        })
    }
}

/// As [`walk`], over a decoder's output and with its checksum.
fn walk_decoded(decoder: impl Read, declared: &Declared, visit: Visit<'_>) -> io::Result<(Walked, u64, u32)> {
    let mut records = Summing::new(BufReader::with_capacity(WINDOW_BYTES, decoder));
    let (walked, size) = walk(&mut records, declared, visit)?;
    Ok((walked, size, records.crc.finalize()))
}

/// Walks over a chunk's records; how that ended, and the number of bytes read.
fn walk<R: BufRead>(
    records: &mut Summing<R>,
    declared: &Declared,
    mut visit: Visit<'_>,
) -> io::Result<(Walked, u64)> {
    let walked = loop {
        let offset = records.count;
        if offset > declared.size {
            break Walked::TooMuch;
        }
        let (opcode, body_bytes) = match prefix(records)? {
            None => break Walked::Whole,
            Some(Err(_)) => break Walked::Cut(visit.at(offset)),
            Some(Ok(head)) => head,
        };
        if body_bytes > declared.size.saturating_sub(offset + 9) {
            let left = declared.size.saturating_sub(records.count) + 1;
            skip(records, left)?;
            break if records.count > declared.size {
                Walked::TooMuch
            } else {
                Walked::Cut(visit.at(offset))
            };
        }
        let passed = match opcode {
            op::MESSAGE => message(records, offset, body_bytes, &mut visit)?,
            op::SCHEMA | op::CHANNEL if body_bytes <= BODY_BYTES_MAX => {
                let mut body = Vec::new();
                take(records, body_bytes as usize, &mut body)?;
                let at = visit.at(offset);
                let is_whole = body.len() as u64 == body_bytes;
                visit.event(Event::Definition { opcode, at, body });
                is_whole
            }
            opcode => {
                if opcode <= op::DATA_END {
                    let at = visit.at(offset);
                    visit.event(Event::Misplaced { at, opcode });
                }
                skip(records, body_bytes)? == body_bytes
            }
        };
        if !passed {
            break Walked::Cut(visit.at(offset));
        }
    };
    Ok((walked, records.count))
}

/// Reads a message; true when it was whole.
#[inline]
fn message<R: BufRead>(
    records: &mut Summing<R>,
    offset: u64,
    body_bytes: u64,
    visit: &mut Visit<'_>,
) -> io::Result<bool> {
    let header_bytes = body_bytes.min(MESSAGE_HEADER_BYTES as u64);
    take(records, header_bytes as usize, visit.scratch)?;
    match MessageHeader::decode(&mut Fields::new(visit.scratch)) {
        Ok(header) => {
            if visit.content.message(&header, Some(offset)) && !visit.is_defined_here(header.channel_id) {
                let at = visit.at(offset);
                visit.event(Event::UnknownChannel {
                    at,
                    id: header.channel_id,
                });
            }
        }
        Err(error) => {
            let at = visit.at(offset);
            visit.event(Event::Malformed {
                at,
                found: error.found,
            });
        }
    }
    let rest = body_bytes - header_bytes;
    Ok(skip(records, rest)? == rest)
}

/// Sizes and codec of a chunk as one number, to compare with the chunk index.
pub(super) fn chunk_sizes(compression: &str, stored: u64, size: u64) -> EntrySum {
    let mut sum = EntrySum::default();
    sum.add(stored, size);
    let name = compression.bytes().fold(0u64, |hash, byte| {
        hash.wrapping_mul(0x0100_0000_01b3)
            .wrapping_add(u64::from(byte) + 1)
    });
    sum.add(name, u64::MAX);
    sum
}
