//! One chunk: its header, its records as they come out of the codec, its checksum; never more of it in memory than a window.

use super::{
    BODY_BYTES_MAX, Checked, Checker, ChunkFacts, Head, Stop,
    content::EntrySum,
    kind,
    stream::{Limited, Summing, prefix, skip, take},
};
use crate::mcap::format::{ChunkHeader, Fields, MESSAGE_HEADER_BYTES, MessageHeader, op};
use std::io::{self, BufRead, BufReader, Read};

/// Longest chunk header: codec names that are longer belong to no codec.
const HEADER_BYTES_MAX: u64 = 4096;
/// Decompressed bytes at a time.
const WINDOW_BYTES: usize = 256 << 10;

/// What the walk over a chunk's records came to.
enum Walked {
    /// All records are whole.
    Whole,
    /// They end in the middle of a record at this place.
    Cut(u64),
    /// The codec gave more than was said.
    TooMuch,
}

/// A chunk's header, owned.
struct Said {
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
        let Some((said, header_bytes)) = self.chunk_header(head)? else {
            return Ok(());
        };
        let records_start = head.start + 9 + header_bytes;
        let sizes = chunk_sizes(&said.compression, said.stored, said.size);
        self.open_chunk = Some(ChunkFacts {
            start: head.start,
            length: head.body_bytes + 9,
            times: said.times,
            indexes: EntrySum::default(),
            index_length: 0,
            sizes,
        });
        let left = head.body_bytes - header_bytes;
        if said.stored != left {
            let (expected, found) = (
                format!("{} bytes, as it says", said.stored),
                format!("{left} bytes"),
            );
            self.file
                .problem(head.start, "records of the chunk", expected, found);
        }
        self.open_chunk_read = self.chunk_records(head, records_start, &said, said.stored.min(left))?;
        let passed = self.stream.position() - head.start - 9;
        skip(&mut self.stream, head.body_bytes.saturating_sub(passed))?;
        if self.open_chunk_read {
            let times = self.content.chunk_times.unwrap_or((0, 0));
            let what = "first log time of the chunk";
            self.file.same(head.start, what, times.0, said.times.0);
            let what = "last log time of the chunk";
            self.file.same(head.start, what, times.1, said.times.1);
        }
        Ok(())
    }

    fn chunk_header(&mut self, head: Head) -> Checked<Option<(Said, u64)>> {
        let window = head.body_bytes.min(HEADER_BYTES_MAX);
        // The header's length is known when its codec's name is: 8 + 8 + 8 + 4 bytes, the name with its length, 8 bytes.
        let mut bytes = std::mem::take(&mut self.body);
        take(&mut self.stream, window.min(32) as usize, &mut bytes)?;
        let name_bytes = bytes
            .get(28..32)
            .and_then(|length| <[u8; 4]>::try_from(length).ok())
            .map_or(0, |length| u64::from(u32::from_le_bytes(length)));
        let rest = window.saturating_sub(32).min(name_bytes + 8);
        let mut more = Vec::new();
        take(&mut self.stream, rest as usize, &mut more)?;
        bytes.extend_from_slice(&more);
        let mut fields = Fields::new(&bytes);
        let said = match ChunkHeader::decode(&mut fields) {
            Ok(header) => Some(Said {
                times: (header.message_start_time, header.message_end_time),
                size: header.uncompressed_size,
                crc: header.uncompressed_crc,
                compression: header.compression.into_owned(),
                stored: header.compressed_size,
            }),
            Err(error) => {
                self.file
                    .problem(head.start, "chunk record", error.expected, error.found);
                None
            }
        };
        let header_bytes = bytes.len() as u64;
        self.body = bytes;
        if said.is_none() {
            skip(&mut self.stream, head.body_bytes - header_bytes)?;
        }
        Ok(said.map(|said| (said, header_bytes)))
    }

    /// Walks over the records; true when all of them were read.
    fn chunk_records(&mut self, head: Head, records_start: u64, said: &Said, stored: u64) -> Checked<bool> {
        // Taken out for the time of the walk, which notes its findings in `self`.
        let mut events = Vec::new();
        let is_plain = said.compression.is_empty();
        if is_plain {
            self.stream.leave_summing();
        }
        let limited = Limited {
            inner: &mut self.stream,
            left: stored,
        };
        let visit = Visit {
            content: &mut self.content,
            events: &mut events,
            scratch: &mut self.body,
            is_plain,
            records_start,
            chunk_start: head.start,
        };
        let walked = match said.compression.as_str() {
            "" => {
                let mut records = Summing::new(limited);
                let walked = walk(&mut records, said, visit);
                // All of them are in the checksums, also those behind a record that is cut.
                let rest = skip(&mut records, u64::MAX);
                let crc = records.crc;
                self.stream.go_on_summing(&crc);
                walked.and_then(|(walked, size)| rest.map(|_| (walked, size, crc.finalize())))
            }
            "zstd" => match zstd::stream::read::Decoder::with_buffer(limited) {
                Ok(decoder) => walk_decoded(decoder, said, visit),
                Err(error) => Err(error),
            },
            "lz4" => match lz4::Decoder::new(limited) {
                Ok(decoder) => walk_decoded(decoder, said, visit),
                Err(error) => Err(error),
            },
            other => {
                let found = format!("{other:?}");
                self.file
                    .problem(head.start, "codec of the chunk", "none, lz4 or zstd", found);
                return Ok(false);
            }
        };
        self.take_events(head, events);
        self.judge_walk(head, said, walked)
    }

    /// Definitions and findings that were met in the chunk.
    fn take_events(&mut self, head: Head, events: Vec<Event>) {
        for event in events {
            match event {
                Event::UnknownChannel { at, id } => {
                    let what = format!("message of channel {id}");
                    self.file
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
                    self.file.problem(at, "records of the chunk", expected, found);
                }
                Event::Malformed { at, found } => {
                    let what = format!("message in the chunk at byte {}", head.start);
                    self.file.problem(at, what, "a header of 22 bytes", found);
                }
            }
        }
    }

    fn judge_walk(
        &mut self,
        head: Head,
        said: &Said,
        walked: io::Result<(Walked, u64, u32)>,
    ) -> Checked<bool> {
        let (walked, size, crc) = match walked {
            Ok(walked) => walked,
            Err(error) => {
                if let Some(failure) = self.stream.take_failure() {
                    return Err(Stop::Refused(Box::new(failure.into())));
                }
                let codec = if said.compression.is_empty() {
                    "plain"
                } else {
                    said.compression.as_str()
                };
                let expected = format!("{} bytes of {codec} records", said.size);
                self.file
                    .problem(head.start, "content of the chunk", expected, error);
                return Ok(false);
            }
        };
        match walked {
            Walked::TooMuch => {
                let expected = format!("{} bytes, as it says", said.size);
                self.file
                    .problem(head.start, "decompressed size of the chunk", expected, "more");
                return Ok(false);
            }
            Walked::Cut(at) => {
                let what = format!("record in the chunk at byte {}", head.start);
                let found = format!("its end after {size} bytes");
                self.file
                    .problem(at, what, "whole records up to the chunk's end", found);
            }
            Walked::Whole => {}
        }
        self.file
            .same(head.start, "decompressed size of the chunk", said.size, size);
        if said.crc != 0 && said.crc != crc {
            let (expected, found) = (format!("{:#010x}", said.crc), format!("{crc:#010x}"));
            self.file.problem(head.start, "chunk checksum", expected, found);
        }
        Ok(matches!(walked, Walked::Whole))
    }
}

/// Something in a chunk that is to be looked at when the walk over it has ended.
enum Event {
    Definition { opcode: u8, at: u64, body: Vec<u8> },
    UnknownChannel { at: u64, id: u16 },
    Misplaced { at: u64, opcode: u8 },
    Malformed { at: u64, found: String },
}

/// Events of one chunk that are kept.
const EVENTS_MAX: usize = 2000;

/// What the walk needs of the check.
struct Visit<'v> {
    content: &'v mut super::content::Content,
    events: &'v mut Vec<Event>,
    scratch: &'v mut Vec<u8>,
    is_plain: bool,
    records_start: u64,
    chunk_start: u64,
}

impl Visit<'_> {
    /// Where in the file something of the chunk is: of a compressed one, where the chunk is.
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

    /// Whether the chunk itself has defined the channel; its definitions are taken in behind the walk.
    fn is_defined_here(&self, id: u16) -> bool {
        self.events.iter().any(|event| {
            matches!(event, Event::Definition { opcode: op::CHANNEL, body, .. } if body.get(..2) == Some(&id.to_le_bytes()))
        })
    }
}

/// Walks over the records that a decoder gives; as [`walk`], with their checksum.
fn walk_decoded(decoder: impl Read, said: &Said, visit: Visit<'_>) -> io::Result<(Walked, u64, u32)> {
    let mut records = Summing::new(BufReader::with_capacity(WINDOW_BYTES, decoder));
    let (walked, size) = walk(&mut records, said, visit)?;
    Ok((walked, size, records.crc.finalize()))
}

/// Walks over the records of a chunk; how it ended, and how many bytes there were.
fn walk<R: BufRead>(
    records: &mut Summing<R>,
    said: &Said,
    mut visit: Visit<'_>,
) -> io::Result<(Walked, u64)> {
    let walked = loop {
        let offset = records.count;
        if offset > said.size {
            break Walked::TooMuch;
        }
        let (opcode, body_bytes) = match prefix(records)? {
            None => break Walked::Whole,
            Some(Err(_)) => break Walked::Cut(visit.at(offset)),
            Some(Ok(head)) => head,
        };
        if body_bytes > said.size.saturating_sub(offset + 9) {
            let left = said.size.saturating_sub(records.count) + 1;
            skip(records, left)?;
            break if records.count > said.size {
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

/// A message; true when it was whole.
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

/// Sizes and codec of a chunk as one number, to be compared with what the chunk index says.
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
