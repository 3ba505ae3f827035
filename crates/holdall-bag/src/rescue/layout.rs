//! Messages in an arena: the layout of their headers, and the reader of an arena that has survived its process.

use super::ranges::{BufferRange, list_bytes, read_ranges};
use holdall_io::survivor::Arena;
pub use holdall_model::message::CacheEntry;
use holdall_model::{loss::ledger::PublisherIndex, time::Timestamp, topic::TopicId};

/// Slots of a region with this kind hold messages in the layout of segments.
pub const KIND_MESSAGES: u32 = 1;

/// Bytes of a message's header in the arena: see [`Header`].
pub const HEADER_BYTES: usize = 40;

const HAS_PUBLISH_TIME: u32 = 1;
const HAS_SEQUENCE: u32 = 2;
const IS_LOAN: u32 = 4;
/// Not a message but a run header: the messages that follow, this many bytes, are one segment's; it gives the segment's place among all.
const IS_RUN: u32 = 8;
/// A loan's header is followed by the places of its bytes.
const HAS_RANGES: u32 = 16;
/// These bytes are released: the ranges mean nothing now.
const IS_RELEASED: u32 = 32;

/// Bytes of the header before a run of gathered messages.
pub const RUN_HEADER_BYTES: usize = HEADER_BYTES;

/// The header before a segment's messages, `bytes` long, where several segments are gathered in one arena.
pub fn run_header(order: u64, bytes: usize) -> [u8; RUN_HEADER_BYTES] {
    let mut header = [0; RUN_HEADER_BYTES];
    header[0..8].copy_from_slice(&order.to_le_bytes());
    // An arena has at most 256 KiB.
    header[32..36].copy_from_slice(&(bytes as u32).to_le_bytes());
    header[36..40].copy_from_slice(&IS_RUN.to_le_bytes());
    header
}

/// A message as it was found in an arena.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SurvivedMessage {
    /// Its header.
    pub entry: CacheEntry,
    /// Where its payload is.
    pub payload: SurvivedPayload,
}

/// Where the payload of a message is that was found in an arena.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SurvivedPayload {
    /// In the arena.
    Arena(std::ops::Range<usize>),
    /// In the region's buffers, in pieces.
    Buffers(Vec<BufferRange>),
    /// It was in other memory of the transport.
    Lost,
}

/// Messages that follow each other in an arena.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SurvivedRun {
    /// The segment that they come from, if they were gathered.
    pub order: Option<u64>,
    /// The messages.
    pub messages: Vec<SurvivedMessage>,
}

/// Reads the arena of a segment, or one of gathered segments. Ends at the first invalid entry.
pub fn survived(bytes: &[u8]) -> Vec<SurvivedRun> {
    let mut runs: Vec<SurvivedRun> = Vec::new();
    let mut at = 0;
    while let Some(header) = bytes.get(at..).and_then(<[u8]>::first_chunk) {
        let flags = u32::from_le_bytes([header[36], header[37], header[38], header[39]]);
        at += HEADER_BYTES;
        if flags == IS_RUN {
            let order = header.first_chunk().map(|order| u64::from_le_bytes(*order));
            runs.push(SurvivedRun {
                order,
                messages: Vec::new(),
            });
            continue;
        }
        if flags & !(HAS_PUBLISH_TIME | HAS_SEQUENCE | IS_LOAN | HAS_RANGES | IS_RELEASED) != 0 {
            break;
        }
        let header = Header::from_bytes(header);
        let end = match (header.is_loan, flags & HAS_RANGES != 0) {
            (false, _) => Some(at + header.len_or_loan as usize),
            (true, false) => Some(at),
            (true, true) => list_bytes(&bytes[at..]).map(|list| at + list),
        };
        let Some(end) = end.filter(|end| *end <= bytes.len()) else {
            break;
        };
        let found = std::mem::replace(&mut at, end)..end;
        let payload = match (header.is_loan, flags & (HAS_RANGES | IS_RELEASED)) {
            (false, _) => SurvivedPayload::Arena(found),
            (true, HAS_RANGES) => SurvivedPayload::Buffers(read_ranges(&bytes[found])),
            (true, _) => SurvivedPayload::Lost,
        };
        if runs.is_empty() {
            runs.push(SurvivedRun::default());
        }
        if let Some(run) = runs.last_mut() {
            let entry = header.entry;
            run.messages.push(SurvivedMessage { entry, payload });
        }
    }
    runs
}

/// Marks that the bytes to which an arena's headers refer are about to be released: their messages survive without payload.
pub fn forget_ranges(arena: &mut Arena) {
    let mut at = 0;
    while let Some(header) = arena
        .as_slice()
        .get(at..)
        .and_then(<[u8]>::first_chunk::<HEADER_BYTES>)
    {
        let flags = u32::from_le_bytes([header[36], header[37], header[38], header[39]]);
        let length = u32::from_le_bytes([header[32], header[33], header[34], header[35]]) as usize;
        let flags_at = at + HEADER_BYTES - size_of::<u32>();
        at += HEADER_BYTES;
        if flags & HAS_RANGES != 0 {
            at += list_bytes(&arena.as_slice()[at..]).unwrap_or(0);
            arena.overwrite(flags_at, &(flags | IS_RELEASED).to_le_bytes());
        } else if flags & (IS_LOAN | IS_RUN) == 0 {
            at += length;
        }
    }
}

/// A header in the arena's layout, little-endian: log time, publish time, sequence, topic, publisher, length
/// of the payload (or number of the loan), flags.
pub struct Header {
    pub entry: CacheEntry,
    pub len_or_loan: u32,
    pub is_loan: bool,
    pub has_ranges: bool,
}

impl Header {
    #[inline]
    pub fn to_bytes(&self) -> [u8; HEADER_BYTES] {
        let entry = &self.entry;
        let mut flags = if self.is_loan { IS_LOAN } else { 0 };
        flags |= if entry.publish_time.is_some() {
            HAS_PUBLISH_TIME
        } else {
            0
        };
        flags |= if entry.sequence.is_some() { HAS_SEQUENCE } else { 0 };
        flags |= if self.has_ranges { HAS_RANGES } else { 0 };
        let publish_time = entry.publish_time.map_or(0, Timestamp::as_nanos);
        let mut bytes = [0; HEADER_BYTES];
        bytes[0..8].copy_from_slice(&entry.log_time.as_nanos().to_le_bytes());
        bytes[8..16].copy_from_slice(&publish_time.to_le_bytes());
        bytes[16..24].copy_from_slice(&entry.sequence.unwrap_or(0).to_le_bytes());
        bytes[24..28].copy_from_slice(&entry.topic.0.to_le_bytes());
        bytes[28..32].copy_from_slice(&entry.publisher.0.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.len_or_loan.to_le_bytes());
        bytes[36..40].copy_from_slice(&flags.to_le_bytes());
        bytes
    }

    #[inline]
    pub fn from_bytes(bytes: &[u8; HEADER_BYTES]) -> Self {
        let word = |at: usize| {
            u64::from_le_bytes([
                bytes[at],
                bytes[at + 1],
                bytes[at + 2],
                bytes[at + 3],
                bytes[at + 4],
                bytes[at + 5],
                bytes[at + 6],
                bytes[at + 7],
            ])
        };
        let half = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let flags = half(36);
        let time = |at: usize| Timestamp::from_nanos(word(at).cast_signed());
        Self {
            entry: CacheEntry {
                log_time: time(0),
                publish_time: (flags & HAS_PUBLISH_TIME != 0).then(|| time(8)),
                sequence: (flags & HAS_SEQUENCE != 0).then(|| word(16)),
                topic: TopicId(half(24)),
                publisher: PublisherIndex(half(28)),
            },
            len_or_loan: half(32),
            is_loan: flags & IS_LOAN != 0,
            has_ranges: flags & HAS_RANGES != 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_header_reads_back_as_it_was_written(
            log_time in any::<i64>(),
            publish_time in any::<Option<i64>>(),
            sequence in any::<Option<u64>>(),
            numbers in any::<[u32; 3]>(),
            is_loan in any::<bool>(),
            has_ranges in any::<bool>(),
        ) {
            let entry = CacheEntry {
                log_time: Timestamp::from_nanos(log_time),
                publish_time: publish_time.map(Timestamp::from_nanos),
                sequence,
                topic: TopicId(numbers[0]),
                publisher: PublisherIndex(numbers[1]),
            };
            let read = Header::from_bytes(&Header { entry, len_or_loan: numbers[2], is_loan, has_ranges }.to_bytes());
            prop_assert_eq!(
                (read.entry, read.len_or_loan, read.is_loan, read.has_ranges),
                (entry, numbers[2], is_loan, has_ranges)
            );
        }
    }
}
