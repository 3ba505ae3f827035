//! Finds the next place with whole records after one where the records can no longer be followed.

use super::CHUNK_BYTES_MAX;
use crate::{
    error::{StorageError, StorageResult},
    mcap::{
        format::{
            ChunkHeader, Fields, INDEX_ENTRY_BYTES, MESSAGE_HEADER_BYTES, RECORD_PREFIX_BYTES, Record,
            encode_metadata, index_entries, op, record_prefix, take_record,
        },
        reader::{
            checksum::sum,
            codec::decompress,
            extent::little_endian,
            index::signed,
            source::Source,
            walk::{RecordPlace, Step, Walk},
        },
    },
};
use bytes::Bytes;
use holdall_model::units::counted;
use std::{collections::BTreeSet, fmt};

/// Bytes searched at once.
const WINDOW_BYTES: u64 = 1 << 20;
/// A chunk's opcode, length and header; no codec has a longer name.
const CHUNK_HEAD_BYTES: u64 = 64;
/// Places in one file that look like a chunk and are verified. Bounds the cost of a file that was crafted with many.
const TRIES_MAX: u32 = 256;
/// Messages outside of chunks have no checksum: this many records in a row count, or fewer up to the end of the data.
const CHAIN_MIN: usize = 4;
/// A longer metadata record is not looked for.
const METADATA_BYTES_MAX: u64 = 16 << 20;
/// An attachment with longer names is not looked for.
const ATTACHMENT_HEAD_BYTES: u64 = 8 << 10;
/// The message indexes before a chunk are looked for in this many bytes.
const INDEXES_BYTES_MAX: u64 = 4 << 20;

/// A part of the file in which the records cannot be followed, with good records after it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Gap {
    /// Where the records can no longer be followed.
    pub start: u64,
    /// Where good ones begin again.
    pub end: u64,
    /// Number, first and last log time of messages that were in it, by the message indexes at its end.
    pub indexed: Option<(u64, (u64, u64))>,
    /// The last log time before it and the first one after it.
    pub between: (Option<u64>, Option<u64>),
}

impl fmt::Display for Gap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.end - self.start;
        write!(f, "no record can be followed in the {bytes} bytes from here on")?;
        let text = |nanos: u64| signed(nanos).to_utc_text();
        match (self.indexed, self.between) {
            (Some((count, (first, last))), _) => {
                let messages = counted(count, "message");
                write!(
                    f,
                    ", which had at least {messages} of {} to {}",
                    text(first),
                    text(last)
                )
            }
            (None, (Some(before), Some(after))) => {
                write!(f, ", between messages of {} and of {}", text(before), text(after))
            }
            (None, (None, Some(after))) => write!(f, ", before a message of {}", text(after)),
            _ => Ok(()),
        }
    }
}

/// Good records after a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Resumed {
    /// Where they begin.
    pub start: u64,
    /// The first log time of the chunk there.
    pub first_time: Option<u64>,
}

/// The search in one file.
pub(crate) struct Resync {
    tries: u32,
    /// Nothing was found from here on.
    nothing_from: u64,
}

impl Default for Resync {
    fn default() -> Self {
        Self {
            tries: 0,
            nothing_from: u64::MAX,
        }
    }
}

/// The known facts about a file that is searched.
pub(crate) struct Known {
    /// Numbers of its channels.
    pub channels: BTreeSet<u16>,
    /// It was closed: its content was written for it.
    pub has_end: bool,
    /// It has messages outside of chunks only.
    pub is_bare: bool,
}

impl Resync {
    /// The first place at or after `from` where a verified chunk begins: its lengths agree and its checksum matches; without a
    /// checksum its records are whole, of known channels or its own. In a file that was closed also where a metadata record or an
    /// attachment does, and in one without chunks several messages. Memory is bounded by a chunk's; unwritten space is not read.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn next(&mut self, source: &Source, from: u64, known: &Known) -> StorageResult<Option<Resumed>> {
        let mut at = from;
        while at < self.nothing_from
            && let Some(data) = source.next_data(at)?
        {
            at = data;
            let window = source.read_up_to(at, WINDOW_BYTES + CHUNK_HEAD_BYTES)?;
            let searched = window.len().min(WINDOW_BYTES as usize);
            for (place, opcode) in window[..searched].iter().enumerate() {
                if !matches!(*opcode, op::MESSAGE | op::CHUNK | op::ATTACHMENT | op::METADATA) {
                    continue;
                }
                let found = self.verified(source, at + place as u64, &window[place..], known);
                if let Some(found) = unless_damaged(found)? {
                    return Ok(Some(found));
                }
            }
            at += searched.max(1) as u64;
        }
        self.nothing_from = self.nothing_from.min(from);
        Ok(None)
    }

    /// What is at `start`, where the file has the bytes `head`; `None` unless it is verified.
    fn verified(
        &mut self,
        source: &Source,
        start: u64,
        head: &[u8],
        known: &Known,
    ) -> StorageResult<Option<Resumed>> {
        let Some((opcode, body_bytes)) = record_prefix(head) else {
            return Ok(None);
        };
        let place = RecordPlace {
            opcode,
            start,
            body_bytes,
        };
        // Rules out nearly all bytes that are not a record.
        let left = source.len() - place.body_start();
        if place.body_bytes == 0 || place.body_bytes > left || self.tries >= TRIES_MAX {
            return Ok(None);
        }
        let mut first_time = None;
        let is_good = match place.opcode {
            op::CHUNK => {
                first_time = self.chunk(source, &place, head, known)?;
                first_time.is_some()
            }
            op::MESSAGE => known.is_bare && known.has_end && is_chain(source, start, &known.channels)?,
            _ if known.has_end => {
                self.tries += 1;
                is_exact(source, &place)?
            }
            _ => false,
        };
        Ok(is_good.then_some(Resumed { start, first_time }))
    }

    /// The first log time of a chunk; `None` unless it is one and its content is verified.
    fn chunk(
        &mut self,
        source: &Source,
        place: &RecordPlace,
        head: &[u8],
        known: &Known,
    ) -> StorageResult<Option<u64>> {
        let header = &head[RECORD_PREFIX_BYTES..head.len().min(CHUNK_HEAD_BYTES as usize)];
        let mut fields = Fields::new(header);
        let Ok(header) = ChunkHeader::decode(&mut fields) else {
            return Ok(None);
        };
        let header_bytes = fields.position() as u64;
        let is_plain = header.compression.is_empty();
        let agrees = header.compressed_size.checked_add(header_bytes) == Some(place.body_bytes)
            && (!is_plain || header.uncompressed_size == header.compressed_size)
            && header.message_start_time <= header.message_end_time
            && header.compressed_size > 0;
        if !agrees {
            return Ok(None);
        }
        self.tries += 1;
        let records_start = place.body_start() + header_bytes;
        let end = records_start + header.compressed_size;
        let is_good = if is_plain && header.uncompressed_crc != 0 {
            sum(source, (records_start, end))? == header.uncompressed_crc
        } else if is_plain {
            has_known_records(Walk::new(source, records_start, end), &known.channels)?
        } else if header.uncompressed_size > CHUNK_BYTES_MAX {
            false
        } else {
            let stored = source.read(records_start, header.compressed_size, "chunk")?;
            match decompress(&header.compression, &stored, header.uncompressed_size) {
                Ok(records) if header.uncompressed_crc != 0 => {
                    crc32fast::hash(&records) == header.uncompressed_crc
                }
                Ok(records) => {
                    let records = Source::memory(source.path(), Bytes::from(records));
                    has_known_records(Walk::new(&records, 0, records.len()), &known.channels)?
                }
                Err(_) => false,
            }
        };
        Ok(is_good.then_some(header.message_start_time))
    }
}

/// The result of looking at arbitrary bytes: a fault in them is not an error.
fn unless_damaged<T>(found: StorageResult<Option<T>>) -> StorageResult<Option<T>> {
    match found {
        Err(error @ StorageError::Disk(_)) => Err(error),
        Err(_) => Ok(None),
        found => found,
    }
}

/// Whether a chunk's records are whole, and are messages of known channels at least in part.
fn has_known_records(mut walk: Walk<'_>, channels: &BTreeSet<u16>) -> StorageResult<bool> {
    let (mut own, mut messages) = (BTreeSet::new(), 0u64);
    loop {
        match walk.step()? {
            Step::Record(place) if place.opcode == op::MESSAGE => match walk.message_header(&place)? {
                Some(header) if channels.contains(&header.channel_id) || own.contains(&header.channel_id) => {
                    messages += 1;
                }
                _ => return Ok(false),
            },
            Step::Record(place) if place.opcode == op::CHANNEL || place.opcode == op::SCHEMA => {
                match Record::decode(place.opcode, &walk.body(&place)?) {
                    Ok(Record::Channel(channel)) => _ = own.insert(channel.id),
                    Ok(_) => {}
                    Err(_) => return Ok(false),
                }
            }
            Step::End => return Ok(messages > 0),
            _ => return Ok(false),
        }
    }
}

/// Whether some records outside of chunks follow one another from `start` on, the first of them a message of a known channel.
fn is_chain(source: &Source, start: u64, channels: &BTreeSet<u16>) -> StorageResult<bool> {
    let mut walk = Walk::new(source, start, source.len()).sparse();
    for _ in 0..CHAIN_MIN {
        let Step::Record(place) = walk.step()? else {
            return Ok(false);
        };
        match place.opcode {
            op::MESSAGE => match walk.message_header(&place)? {
                Some(header) if channels.contains(&header.channel_id) => {}
                _ => return Ok(false),
            },
            op::DATA_END => return Ok(place.body_bytes == 4),
            op::SCHEMA | op::CHANNEL | op::METADATA | op::ATTACHMENT => {}
            _ => return Ok(false),
        }
    }
    Ok(true)
}

/// Whether a record of a known kind may begin at `at`, by its first bytes, or the file ends there.
pub(crate) fn may_follow(walk: &mut Walk<'_>, source: &Source, at: u64) -> StorageResult<bool> {
    if at == source.len() {
        return Ok(true);
    }
    let prefix = match walk.holds(at, RECORD_PREFIX_BYTES as u64) {
        true => walk.peek(at, RECORD_PREFIX_BYTES as u64)?,
        // After a large record: the next step finds out, without one more request.
        false if source.is_remote() => return Ok(true),
        false => source.read_up_to(at, RECORD_PREFIX_BYTES as u64)?,
    };
    let Some((opcode, length)) = record_prefix(&prefix) else {
        return Ok(false);
    };
    let left = source.len() - at - RECORD_PREFIX_BYTES as u64;
    let least = match opcode {
        op::MESSAGE => MESSAGE_HEADER_BYTES as u64,
        op::CHUNK => 40,
        op::MESSAGE_INDEX => 6,
        op::DATA_END => 4,
        op::HEADER..=op::DATA_END | op::ANCHOR..=op::TORN => 0,
        _ => return Ok(false),
    };
    Ok((least..=left).contains(&length))
}

/// Number, first and last log time of the messages in the message indexes that end at `end`, none of which begins before `from`.
pub(crate) fn indexed_before(
    source: &Source,
    (from, end): (u64, u64),
) -> StorageResult<Option<(u64, (u64, u64))>> {
    let from = from.max(end.saturating_sub(INDEXES_BYTES_MAX));
    let bytes = source.read_up_to(from, end - from)?;
    let mut at = 0;
    while let Some(next) = bytes[at..].iter().position(|byte| *byte == op::MESSAGE_INDEX) {
        at += next;
        match entries(&bytes[at..]) {
            Ok(found) => return Ok(Some(found)),
            // No record is looked at twice.
            Err(passed) => at += passed.max(1),
        }
    }
    Ok(None)
}

/// What message indexes list that fill these bytes; an error with the length of those before any other bytes.
fn entries(bytes: &[u8]) -> Result<(u64, (u64, u64)), usize> {
    let (mut count, mut times) = (0, (u64::MAX, 0));
    let mut rest = bytes;
    while !rest.is_empty() {
        let at = bytes.len() - rest.len();
        let (_, entries) = match take_record(&mut rest) {
            Ok(Some((op::MESSAGE_INDEX, body))) => index_entries(body).ok_or(at)?,
            _ => return Err(at),
        };
        for entry in entries.chunks_exact(INDEX_ENTRY_BYTES) {
            let time = little_endian(&entry[..8]);
            times = (times.0.min(time), times.1.max(time));
            count += 1;
        }
    }
    Some((count, times)).filter(|_| count > 0).ok_or(bytes.len())
}

/// Whether a metadata record or an attachment is exactly as long as its fields, and its content.
fn is_exact(source: &Source, place: &RecordPlace) -> StorageResult<bool> {
    if place.opcode == op::METADATA {
        if place.body_bytes > METADATA_BYTES_MAX {
            return Ok(false);
        }
        let record = source.read(place.start, place.end() - place.start, "metadata")?;
        let mut again = Vec::new();
        if let Ok(Record::Metadata(found)) = Record::decode(op::METADATA, &record[RECORD_PREFIX_BYTES..]) {
            encode_metadata(&mut again, &found.name, &found.metadata);
        }
        return Ok(again == record);
    }
    let head = source.read_up_to(
        place.start,
        (place.end() - place.start).min(ATTACHMENT_HEAD_BYTES),
    )?;
    let mut fields = Fields::new(&head);
    let Ok(about) = Fields::attachment_head(&mut fields) else {
        return Ok(false);
    };
    let data_start = place.start + fields.position() as u64;
    let crc_start = data_start
        .checked_add(about.data_size)
        .filter(|crc| crc.checked_add(4) == Some(place.end()));
    let Some(crc_start) = crc_start else {
        return Ok(false);
    };
    let stored = little_endian(&source.read(crc_start, 4, "attachment")?);
    Ok(stored == 0 || u64::from(sum(source, (place.body_start(), crc_start))?) == stored)
}

/// Whether a record is a chunk whose header states another length than the record does.
pub(crate) fn is_chunk_of_other_length(walk: &mut Walk<'_>, place: &RecordPlace) -> StorageResult<bool> {
    if place.opcode != op::CHUNK {
        return Ok(false);
    }
    let bytes = walk.peek(place.body_start(), place.body_bytes.min(CHUNK_HEAD_BYTES))?;
    let mut fields = Fields::new(&bytes);
    let header = ChunkHeader::decode(&mut fields);
    let stated = header.map(|header| header.compressed_size.checked_add(fields.position() as u64));
    Ok(stated.ok().flatten() != Some(place.body_bytes))
}
