//! All lanes of a file: which one a message goes to, which one has its chunk open in the file itself, and the buffers that they use again.

use super::lane::{ChunkContent, LANE_COUNT, Lane, Place, lane_for, lane_of_compression};
use crate::mcap::options::{CHUNK_BYTES_MAX, Compression, McapOptions};

/// A buffer that has grown beyond this for one large message is not kept.
const BUFFER_KEPT_BYTES_MAX: u64 = 32 << 20;

/// A chunk that was closed.
pub(super) struct ClosedChunk {
    pub content: ChunkContent,
    /// Length of its records.
    pub bytes: u64,
    /// Records of a buffered chunk.
    pub records: Vec<u8>,
}

/// All lanes of a file.
pub(super) struct Lanes {
    each: [Lane; LANE_COUNT],
    /// The lane whose chunk is open in the file itself.
    direct: Option<usize>,
    /// The lane of each channel; a channel that once had a large message stays in the lane for large ones, and one with a separate
    /// compression in its lane.
    of_channel: Vec<u8>,
    latest_time: u64,
    span_max: u64,
    with_index: bool,
    /// Used again for the next chunk.
    spare_content: Vec<ChunkContent>,
    spare_buffers: Vec<Vec<u8>>,
    spare_buffers_max: usize,
}

impl Lanes {
    /// Lanes without a channel; up to `packing_max` of their chunks are in the compressor.
    pub fn new(options: &McapOptions, packing_max: usize) -> Self {
        Self {
            each: std::array::from_fn(|number| Lane::new(number, options)),
            direct: None,
            of_channel: Vec::new(),
            latest_time: 0,
            span_max: u64::try_from(options.chunk_span_max.as_nanos()).unwrap_or(u64::MAX),
            with_index: options.message_index,
            spare_content: Vec::new(),
            spare_buffers: Vec::new(),
            spare_buffers_max: LANE_COUNT + packing_max,
        }
    }

    /// Adds the next channel, with its own compression if it has one.
    pub fn add_channel(&mut self, own: Option<Compression>) {
        self.of_channel.push(own.map_or(0, lane_of_compression));
    }

    /// The lane of a channel's message of this length, which is the latest one.
    #[inline]
    pub fn choose(&mut self, channel: u16, log_time: u64, payload_bytes: usize) -> usize {
        self.latest_time = log_time;
        let lane = &mut self.of_channel[usize::from(channel)];
        *lane = lane_for(payload_bytes).max(*lane);
        usize::from(*lane)
    }

    #[inline]
    pub fn at(&mut self, lane: usize) -> &mut Lane {
        &mut self.each[lane]
    }

    pub fn each(&self) -> &[Lane] {
        &self.each
    }

    /// The lane whose chunk is open in the file itself.
    pub fn direct(&self) -> Option<usize> {
        self.direct
    }

    /// Whether the lane's next chunk goes straight to the file, once the one that is there is closed. The stream can hold one open
    /// chunk: the lane of the largest messages has the first claim, because a second copy of small messages costs little.
    pub fn may_stream(&mut self, lane: usize) -> bool {
        if self.each[lane].compression != Compression::None {
            return false;
        }
        for smaller in &mut self.each[..lane] {
            smaller.is_crowded = true;
        }
        self.direct
            .map_or(!self.each[lane].is_crowded, |other| other < lane)
    }

    /// Opens a chunk in the file itself, whose records may take up to `bytes_max`.
    pub fn open_direct(&mut self, lane: usize, bytes_max: u64, log_time: u64, first_message: u64) {
        self.direct = Some(lane);
        self.each[lane].open(Place::Direct, bytes_max, log_time, first_message);
    }

    /// Opens a chunk in a buffer.
    pub fn open_buffered(&mut self, lane: usize, log_time: u64, first_message: u64) {
        self.each[lane].open(Place::Buffered, CHUNK_BYTES_MAX, log_time, first_message);
        self.each[lane].buffer = self.spare_buffers.pop().unwrap_or_default();
    }

    /// Closes the lane's chunk, which is open.
    pub fn close(&mut self, number: usize) -> ClosedChunk {
        self.direct.take_if(|direct| *direct == number);
        let lane = &mut self.each[number];
        let mut content = self.spare_content.pop().unwrap_or_default();
        let bytes = lane.bytes;
        lane.close(self.with_index, &mut content);
        ClosedChunk {
            content,
            bytes,
            records: std::mem::take(&mut lane.buffer),
        }
    }

    /// Whether the chunk has reached its size or its span.
    #[inline]
    pub fn is_full(&self, lane: usize, log_time: u64) -> bool {
        self.each[lane].is_full(log_time, self.span_max)
    }

    /// Whether the lane has become silent with a chunk open.
    pub fn is_overdue(&self, lane: usize) -> bool {
        self.each[lane].is_overdue(self.latest_time, self.span_max)
    }

    /// Keeps the parts of a stored chunk for the next one.
    pub fn recycle_content(&mut self, content: ChunkContent) {
        self.spare_content.push(content);
    }

    /// Keeps a buffer for the next chunk.
    pub fn recycle(&mut self, mut buffer: Vec<u8>) {
        buffer.clear();
        if self.spare_buffers.len() < self.spare_buffers_max
            && buffer.capacity() as u64 <= BUFFER_KEPT_BYTES_MAX
        {
            self.spare_buffers.push(buffer);
        }
    }

    /// Messages in open chunks.
    pub fn message_count(&self) -> u64 {
        self.each.iter().map(Lane::message_count).sum()
    }

    /// The first message in an open chunk, by its number in the order of writing.
    pub fn first_message(&self) -> Option<u64> {
        let open = self.each.iter().filter(|lane| lane.place != Place::Closed);
        open.map(|lane| lane.first_message).min()
    }

    /// Bytes that the open chunks and their indexes will add to the file.
    pub fn bytes_to_come(&self) -> u64 {
        let open = self.each.iter().filter(|lane| lane.place == Place::Buffered);
        let open: u64 = open.map(|lane| lane.bytes).sum();
        open + self.message_count() * 16
    }
}
