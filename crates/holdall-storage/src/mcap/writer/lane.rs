//! Lanes: topics of similar message size share an open chunk, so that reading a small topic does not read the cameras.

use super::output::visit_exactly;
use crate::mcap::{
    format::{INDEX_ENTRY_BYTES, INDEX_PREFIX_BYTES, MESSAGE_PREFIX_BYTES, op},
    options::{Compression, McapOptions},
};
use holdall_model::message::PayloadRef;

/// Payloads below the n-th limit belong to lane n; the last lane takes the rest. In bytes.
const LANE_LIMITS: [usize; 2] = [4 << 10, 64 << 10];
/// How many lanes there are for sizes.
const SIZE_LANE_COUNT: usize = LANE_LIMITS.len() + 1;
/// The first of the lanes that large messages are in.
pub(super) const LARGE_LANE: usize = SIZE_LANE_COUNT - 1;
/// How many lanes there are: those for sizes, and one for each compression that single topics have.
pub(super) const LANE_COUNT: usize = SIZE_LANE_COUNT + Compression::ALL.len();
/// A lane's chunk is closed at this many bytes, unless the user sets another size. Small messages in small
/// chunks: a reader of a small topic loads whole chunks. The last lane's are large, because the chunk's
/// header and index cost the most there.
const CHUNK_BYTES: [u64; SIZE_LANE_COUNT] = [1 << 20, 2 << 20, 4 << 20];
/// With many channels in a chunk its index would outweigh it: it continues until there are this many bytes
/// for each channel …
const CHUNK_BYTES_PER_CHANNEL: u64 = 512;
/// … but never beyond this.
const CHUNK_BYTES_STRETCHED_MAX: u64 = 16 << 20;

/// Each time the index of all chunks has grown by this, chunks are made twice as large: it stays in memory until the end.
const INDEX_BYTES_PER_DOUBLING: u64 = 8 << 20;

/// Which lane a message of this size belongs to.
#[inline]
pub(super) fn lane_for(payload_bytes: usize) -> u8 {
    u8::from(payload_bytes >= LANE_LIMITS[0]) + u8::from(payload_bytes >= LANE_LIMITS[1])
}

/// The lane of all topics that ask for this compression; it is above all lanes for sizes, so that a channel stays there.
pub(super) fn lane_of_compression(compression: Compression) -> u8 {
    SIZE_LANE_COUNT as u8 + compression as u8
}

/// One message of the open chunk.
#[derive(Clone, Copy)]
struct Entry {
    log_time: u64,
    /// Offset of the message record in the chunk's records; chunks are closed long before 4 GiB.
    offset: u32,
    channel: u16,
}

/// The state of one channel in a lane.
#[derive(Clone, Copy, Debug, Default)]
struct ChannelState {
    /// Messages in the open chunk; while it is being closed, the place of the channel's next index entry.
    count: u32,
    /// An earlier or the open chunk of this lane has its record: each lane can be read without the others.
    is_introduced: bool,
}

/// The destination of the open chunk's records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// No chunk is open.
    Closed,
    /// Straight into the file's blocks.
    Direct,
    /// Into the lane's buffer, which is appended when the chunk closes.
    Buffered,
}

/// The content of a chunk when it closes. The lane keeps and reuses the parts.
#[derive(Clone, Debug, Default)]
pub(super) struct ChunkContent {
    /// Smallest and largest log time; zeros without messages.
    pub times: (u64, u64),
    /// Messages.
    pub message_count: u64,
    /// Number of its first message in the order of writing.
    pub first_message: u64,
    /// Channels with messages, ascending: channel, number of messages, and offset of its index in `index`.
    pub channels: Vec<(u16, u32, u32)>,
    /// All message index records.
    pub index: Vec<u8>,
}

/// One lane: its open chunk and the channels that its chunks have introduced.
pub(super) struct Lane {
    /// Destination of the records.
    pub place: Place,
    /// Records of a buffered chunk.
    pub buffer: Vec<u8>,
    /// How its chunks are compressed.
    pub compression: Compression,
    /// Length of the open chunk's records.
    pub bytes: u64,
    /// A lane of larger messages has wanted the stream since this lane's last chunk was opened.
    pub is_crowded: bool,
    /// Number of the open chunk's first message in the order of writing, as far as the file is concerned.
    pub first_message: u64,
    /// Largest length that the records of the open chunk may reach; zero without an open chunk.
    bytes_max: u64,
    /// Log time of the first message of the open chunk.
    first_time: u64,
    entries: Vec<Entry>,
    /// States by channel.
    channels: Vec<ChannelState>,
    /// Channels with messages in the open chunk, in order of appearance.
    touched: Vec<u16>,
    introduced_schemas: Vec<bool>,
    /// From here on the open chunk is closed.
    chunk_bytes: u64,
    /// The limit to begin with, and whether it may grow with the file.
    chunk_bytes_base: u64,
    may_grow: bool,
}

impl Lane {
    /// The lane with this number.
    pub fn new(number: usize, options: &McapOptions) -> Self {
        let own_compression = number.checked_sub(SIZE_LANE_COUNT);
        // A lane of a compression has messages of any size.
        let standard = CHUNK_BYTES[number.min(SIZE_LANE_COUNT - 1)];
        Self {
            place: Place::Closed,
            buffer: Vec::new(),
            compression: own_compression.map_or(options.compression, |own| Compression::ALL[own]),
            bytes: 0,
            is_crowded: false,
            first_message: 0,
            bytes_max: 0,
            first_time: 0,
            entries: Vec::new(),
            channels: Vec::new(),
            touched: Vec::new(),
            introduced_schemas: Vec::new(),
            chunk_bytes: options.chunk_bytes.unwrap_or(standard),
            chunk_bytes_base: options.chunk_bytes.unwrap_or(standard),
            may_grow: options.chunk_bytes.is_none(),
        }
    }

    /// Begins a chunk whose records may take up to `bytes_max`, with the log time and the number of its first message.
    pub fn open(&mut self, place: Place, bytes_max: u64, log_time: u64, first_message: u64) {
        self.first_message = first_message;
        self.place = place;
        self.bytes_max = bytes_max;
        self.first_time = log_time;
        self.is_crowded = false;
    }

    /// Allows larger chunks from now on, because the index of the written chunks (kept in memory until the end) has
    /// grown to this.
    pub fn grow(&mut self, chunk_indexes_bytes: u64) {
        if self.may_grow {
            let doublings = (chunk_indexes_bytes / INDEX_BYTES_PER_DOUBLING).min(8);
            let grown = self.chunk_bytes_base << doublings;
            self.chunk_bytes = grown.min(CHUNK_BYTES_STRETCHED_MAX).max(self.chunk_bytes_base);
        }
    }

    /// Whether the open chunk takes this channel's record of this length without further steps.
    #[inline]
    pub fn accepts(&self, channel: u16, record_bytes: u64) -> bool {
        record_bytes <= self.chunk_bytes && !self.lacks_room(record_bytes) && !self.lacks_channel(channel)
    }

    /// Whether the open chunk lacks room for this many more bytes; true when none is open.
    #[inline]
    pub(crate) fn lacks_room(&self, bytes: u64) -> bool {
        self.bytes + bytes > self.bytes_max
    }

    /// Whether the channel's record must still be written before its first message here.
    #[inline]
    pub(crate) fn lacks_channel(&self, channel: u16) -> bool {
        self.channels
            .get(usize::from(channel))
            .is_none_or(|state| !state.is_introduced)
    }

    /// Marks the channel as introduced; true when its schema must still be written before it.
    pub(crate) fn introduce(&mut self, channel: u16, schema: u16) -> bool {
        if self.channels.len() <= usize::from(channel) {
            self.channels
                .resize(usize::from(channel) + 1, ChannelState::default());
        }
        self.channels[usize::from(channel)].is_introduced = true;
        mark(&mut self.introduced_schemas, schema)
    }

    /// Notes a message of an introduced channel whose record of `record_bytes` is appended now.
    #[inline]
    pub fn note(&mut self, channel: u16, log_time: u64, record_bytes: u64) {
        let count = &mut self.channels[usize::from(channel)].count;
        if *count == 0 {
            self.touched.push(channel);
        }
        *count += 1;
        // `is_full` closes chunks below 4 GiB, and only the last message may reach beyond.
        self.entries.push(Entry {
            log_time,
            offset: self.bytes as u32,
            channel,
        });
        self.bytes += record_bytes;
    }

    /// Appends a message record to the buffer. Returns how many bytes the payload delivered; always as many
    /// as it announced are written.
    #[inline]
    pub(crate) fn put_message(
        &mut self,
        prefix: &[u8; MESSAGE_PREFIX_BYTES],
        payload: PayloadRef<'_>,
    ) -> u64 {
        self.buffer.reserve(MESSAGE_PREFIX_BYTES + payload.len());
        self.buffer.extend_from_slice(prefix);
        match payload {
            PayloadRef::Bytes(bytes) => {
                self.buffer.extend_from_slice(bytes);
                bytes.len() as u64
            }
            PayloadRef::Loan(_) => visit_exactly(payload, |slice| self.buffer.extend_from_slice(slice)),
        }
    }

    /// Whether the chunk has reached its size or its span.
    #[inline]
    pub fn is_full(&self, log_time: u64, span_max: u64) -> bool {
        self.bytes >= self.chunk_bytes && self.bytes >= self.stretched()
            || self.is_overdue(log_time, span_max)
    }

    /// Whether the chunk, if one is open, spans more than `span_max` at `log_time`.
    #[inline]
    pub(crate) fn is_overdue(&self, log_time: u64, span_max: u64) -> bool {
        self.place != Place::Closed && log_time.saturating_sub(self.first_time) >= span_max
    }

    /// Whether a record of this length should rather begin a new chunk.
    pub(crate) fn should_close_before(&self, record_bytes: u64) -> bool {
        !self.entries.is_empty() && record_bytes > self.chunk_bytes
    }

    fn stretched(&self) -> u64 {
        (self.touched.len() as u64 * CHUNK_BYTES_PER_CHANNEL).min(CHUNK_BYTES_STRETCHED_MAX)
    }

    /// Messages in the open chunk.
    pub fn message_count(&self) -> u64 {
        self.entries.len() as u64
    }

    /// Smallest and largest log time of the open chunk, `None` when it has no message.
    pub fn times(&self) -> Option<(u64, u64)> {
        let first = self.entries.first()?.log_time;
        Some(self.entries.iter().fold((first, first), |(min, max), entry| {
            (min.min(entry.log_time), max.max(entry.log_time))
        }))
    }

    /// Messages of the open chunk by channel.
    pub fn counts(&self) -> impl Iterator<Item = (u16, u32)> {
        self.touched
            .iter()
            .map(|&channel| (channel, self.channels[usize::from(channel)].count))
    }

    /// Ends the chunk: sorts its entries into `content` and begins anew. The buffer stays unchanged.
    pub fn close(&mut self, with_index: bool, content: &mut ChunkContent) {
        content.times = self.times().unwrap_or((0, 0));
        content.message_count = self.message_count();
        content.first_message = self.first_message;
        content.channels.clear();
        let index_bytes = self.touched.len() * INDEX_PREFIX_BYTES + self.entries.len() * INDEX_ENTRY_BYTES;
        // Not cleared before: each of its bytes is written below.
        content.index.resize(if with_index { index_bytes } else { 0 }, 0);
        self.touched.sort_unstable();
        let mut begin = 0;
        for &channel in &self.touched {
            let next = &mut self.channels[usize::from(channel)].count;
            let (count, entries) = (*next, begin + INDEX_PREFIX_BYTES);
            content.channels.push((channel, count, begin as u32));
            // From here on: where the channel's next entry goes.
            *next = entries as u32;
            if with_index {
                content.index[begin..entries].copy_from_slice(&index_prefix(channel + 1, count));
                begin = entries + count as usize * INDEX_ENTRY_BYTES;
            }
        }
        if with_index {
            self.scatter(&mut content.index);
        }
        for channel in self.touched.drain(..) {
            self.channels[usize::from(channel)].count = 0;
        }
        self.entries.clear();
        self.bytes = 0;
        self.place = Place::Closed;
        self.bytes_max = 0;
    }

    /// Puts each entry after the earlier ones of its channel.
    fn scatter(&mut self, index: &mut [u8]) {
        for entry in &self.entries {
            let next = &mut self.channels[usize::from(entry.channel)].count;
            let at = *next as usize;
            let (time, offset) = index[at..at + INDEX_ENTRY_BYTES].split_at_mut(8);
            time.copy_from_slice(&entry.log_time.to_le_bytes());
            offset.copy_from_slice(&u64::from(entry.offset).to_le_bytes());
            *next += INDEX_ENTRY_BYTES as u32;
        }
    }
}

fn mark(marks: &mut Vec<bool>, number: u16) -> bool {
    let place = usize::from(number);
    if marks.len() <= place {
        marks.resize(place + 1, false);
    }
    !std::mem::replace(&mut marks[place], true)
}

/// A message index record before its entries.
fn index_prefix(channel_id: u16, count: u32) -> [u8; INDEX_PREFIX_BYTES] {
    let entries_bytes = count * INDEX_ENTRY_BYTES as u32;
    let mut bytes = [0; INDEX_PREFIX_BYTES];
    bytes[0] = op::MESSAGE_INDEX;
    bytes[1..9].copy_from_slice(&(2 + 4 + u64::from(entries_bytes)).to_le_bytes());
    bytes[9..11].copy_from_slice(&channel_id.to_le_bytes());
    bytes[11..15].copy_from_slice(&entries_bytes.to_le_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcap::format::{MessageIndex, Record, take_record};

    fn lane(chunk_bytes: Option<u64>) -> Lane {
        let options = McapOptions {
            chunk_bytes,
            ..McapOptions::default()
        };
        Lane::new(0, &options)
    }

    #[test]
    fn messages_go_to_the_lane_of_their_size() {
        assert_eq!(
            [0, 4095, 4096, 65_535, 65_536, 10_000_000].map(lane_for),
            [0, 0, 1, 1, 2, 2]
        );
    }

    #[test]
    fn index_holds_every_message_of_each_channel_in_order() {
        let mut lane = lane(Some(1000));
        lane.open(Place::Buffered, u64::MAX, 5, 0);
        for channel in [2, 0] {
            assert!(lane.lacks_channel(channel));
            lane.introduce(channel, 1);
        }
        lane.note(2, 5, 100);
        lane.note(0, 9, 50);
        lane.note(2, 3, 10);
        let mut content = ChunkContent::default();
        lane.close(true, &mut content);
        assert_eq!((content.times, content.message_count), ((3, 9), 3));
        let mut rest = &content.index[..];
        let (opcode, body) = take_record(&mut rest).unwrap().unwrap();
        let first = MessageIndex {
            channel_id: 1,
            entries: vec![(9, 100)],
        };
        assert_eq!(Record::decode(opcode, body).unwrap(), Record::MessageIndex(first));
        let (opcode, body) = take_record(&mut rest).unwrap().unwrap();
        let second = MessageIndex {
            channel_id: 3,
            entries: vec![(5, 0), (3, 150)],
        };
        assert_eq!(
            Record::decode(opcode, body).unwrap(),
            Record::MessageIndex(second)
        );
        assert!(rest.is_empty());
        assert_eq!(lane.counts().count(), 0);
        assert!(!lane.lacks_channel(2) && lane.lacks_channel(1));
    }

    #[test]
    fn chunks_grow_with_the_index_unless_the_user_has_said_how_large_they_are() {
        let (mut own, mut given) = (lane(None), lane(Some(1000)));
        let limits = [0, 8 << 20, 16 << 20, 1 << 30, u64::MAX].map(|index_bytes| {
            own.grow(index_bytes);
            given.grow(index_bytes);
            (own.chunk_bytes >> 20, given.chunk_bytes)
        });
        assert_eq!(limits, [(1, 1000), (2, 1000), (4, 1000), (16, 1000), (16, 1000)]);
    }

    #[test]
    fn many_channels_stretch_the_chunk() {
        let mut lane = lane(Some(1000));
        lane.open(Place::Buffered, u64::MAX, 0, 0);
        for channel in 0..100 {
            lane.introduce(channel, 1);
            lane.note(channel, 0, 50);
        }
        assert!(!lane.is_full(0, u64::MAX));
        lane.note(0, 0, 100 << 10);
        assert!(lane.is_full(0, u64::MAX));
    }
}
