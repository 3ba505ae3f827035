//! Brings chunks into the file: from their lane or from the compressor, each followed by its message indexes.

use super::{
    BUFFER_KEPT_BYTES_MAX, McapWriter,
    catalog::WrittenChunk,
    lane::{ChunkContent, LANE_COUNT, Place, compression_for},
    output::{self, ChunkPlace},
    unsigned,
};
use crate::{
    error::{StorageError, StorageResult},
    mcap::{
        format::{ChunkHeader, MESSAGE_PREFIX_BYTES},
        options::Compression,
    },
    writer::StoredMessage,
};
use holdall_io::queue::DiskQueue;
use holdall_io::wait::Wait;
use holdall_model::message::PayloadRef;

impl McapWriter {
    /// Appends bytes to the lane's open chunk.
    fn put_in_lane(&mut self, q: &mut DiskQueue, lane: usize, bytes: LaneBytes) -> StorageResult<()> {
        let record = match bytes {
            LaneBytes::Schema(index) => &self.catalog.schemas[usize::from(index)].record,
            LaneBytes::Channel(index) => &self.catalog.channels[usize::from(index)].record,
        };
        let lane = &mut self.lanes[lane];
        match lane.place {
            Place::Direct => self.output.put(q, record)?,
            Place::Buffered | Place::Closed => lane.buffer.extend_from_slice(record),
        }
        lane.bytes += record.len() as u64;
        Ok(())
    }

    /// Writes the channel's record, and its schema's, before its first message in the lane.
    pub(super) fn introduce(&mut self, q: &mut DiskQueue, lane: usize, channel: u16) -> StorageResult<()> {
        let entry = &mut self.catalog.channels[usize::from(channel)];
        entry.is_written = true;
        let schema = entry.schema;
        self.catalog.schemas[usize::from(schema)].is_written = true;
        if self.lanes[lane].introduce(channel, schema) {
            self.put_in_lane(q, lane, LaneBytes::Schema(schema))?;
        }
        self.put_in_lane(q, lane, LaneBytes::Channel(channel))
    }

    /// Closes the lane's chunk, if one is open, and brings it into the file or to the compressor.
    pub(super) fn close_lane(&mut self, q: &mut DiskQueue, lane: usize) -> StorageResult<()> {
        let place = self.lanes[lane].place;
        if place == Place::Closed {
            return Ok(());
        }
        let size = self.lanes[lane].bytes;
        let mut content = self.spare_content.pop().unwrap_or_default();
        self.lanes[lane].close(self.options.message_index, &mut content);
        self.catalog.note_content(&content);
        if place == Place::Direct {
            self.direct_lane = None;
            if let Some(place) = self.output.end_chunk(q, content.times)? {
                self.end_chunk(q, WrittenChunk::plain(place, size), content)?;
            }
            return Ok(());
        }
        let records = std::mem::take(&mut self.lanes[lane].buffer);
        let compression = compression_for(lane, &self.options);
        if compression == Compression::None {
            self.append_records(q, &records, content)?;
            self.recycle(records);
            return Ok(());
        }
        while self.compressor.is_full() {
            self.take_compressed(q, Wait::UntilReady)?;
        }
        self.chunks.packing(content.first_message);
        self.compressor.submit(compression, content, records);
        while self.take_compressed(q, Wait::No)? {}
        Ok(())
    }

    fn recycle(&mut self, mut buffer: Vec<u8>) {
        buffer.clear();
        let kept_max = LANE_COUNT + self.compressor.in_flight_max();
        if self.spare_buffers.len() < kept_max && buffer.capacity() as u64 <= BUFFER_KEPT_BYTES_MAX {
            self.spare_buffers.push(buffer);
        }
    }

    /// Appends a chunk that was assembled in a buffer, uncompressed.
    fn append_records(
        &mut self,
        q: &mut DiskQueue,
        records: &[u8],
        content: ChunkContent,
    ) -> StorageResult<()> {
        self.close_direct(q)?;
        let size = records.len() as u64;
        if size > self.output.chunk_capacity(q) {
            let crc = if self.options.chunk_crc {
                crc32fast::hash(records)
            } else {
                0
            };
            return self.append_stored(q, "", records, size, crc, content);
        }
        // One pass for copy and checksum, because the header is filled in afterwards.
        self.output.begin_chunk(q)?;
        self.output.put(q, records)?;
        if let Some(place) = self.output.end_chunk(q, content.times)? {
            self.end_chunk(q, WrittenChunk::plain(place, size), content)?;
        }
        Ok(())
    }

    /// Appends a chunk whose header is known: `stored` are its records as `compression` has made them, `size` and `crc` are those of the
    /// records before.
    fn append_stored(
        &mut self,
        q: &mut DiskQueue,
        compression: &str,
        stored: &[u8],
        size: u64,
        crc: u32,
        content: ChunkContent,
    ) -> StorageResult<()> {
        self.close_direct(q)?;
        let header = ChunkHeader {
            message_start_time: content.times.0,
            message_end_time: content.times.1,
            uncompressed_size: size,
            uncompressed_crc: crc,
            compression: compression.into(),
            compressed_size: stored.len() as u64,
        };
        let place = self.put_chunk_header(q, &header)?;
        self.output.put(q, stored)?;
        let chunk = WrittenChunk {
            place,
            compression,
            compressed_size: stored.len() as u64,
            uncompressed_size: size,
        };
        self.end_chunk(q, chunk, content)
    }

    fn put_chunk_header(&mut self, q: &mut DiskQueue, header: &ChunkHeader) -> StorageResult<ChunkPlace> {
        let mut prefix = Vec::with_capacity(64);
        header.encode_prefix(&mut prefix);
        let place = ChunkPlace {
            start: self.output.position(),
            length: prefix.len() as u64 + header.compressed_size,
        };
        self.output.put(q, &prefix)?;
        Ok(place)
    }

    /// After a chunk: its message indexes, and its note for the summary.
    fn end_chunk(
        &mut self,
        q: &mut DiskQueue,
        chunk: WrittenChunk<'_>,
        content: ChunkContent,
    ) -> StorageResult<()> {
        self.output.put(q, &content.index)?;
        // Here, too, so that the list stays short when no caller asks.
        self.chunks.written(self.bytes_handed(q));
        self.chunks.placed(self.output.position(), content.first_message);
        self.catalog.note_chunk(chunk, &content, &self.options);
        self.spare_content.push(content);
        Ok(())
    }

    pub(super) fn close_direct(&mut self, q: &mut DiskQueue) -> StorageResult<()> {
        self.direct_lane.map_or(Ok(()), |lane| self.close_lane(q, lane))
    }

    /// Appends the next compressed chunk, if it is ready, or once it is. False when none was appended.
    pub(super) fn take_compressed(&mut self, q: &mut DiskQueue, wait: Wait) -> StorageResult<bool> {
        let Some((wanted, result)) = self.compressor.take_ready(wait) else {
            return Ok(false);
        };
        self.chunks.packed();
        let mut done = result.map_err(|error| StorageError::Codec {
            path: self.path.clone(),
            action: "compress",
            offset: self.output.position(),
            codec: wanted.as_str().into(),
            reason: error.to_string(),
        })?;
        let content = std::mem::take(&mut done.tag);
        let (size, crc) = (done.raw.len() as u64, done.raw_crc);
        let (compression, stored) = done.stored();
        self.append_stored(q, compression.as_str(), stored, size, crc, content)?;
        let records = self.compressor.recycle(done);
        self.recycle(records);
        Ok(true)
    }

    /// A message too large to be held back: its checksum is taken first, so that the chunk's header can be written before it.
    pub(super) fn write_alone(
        &mut self,
        q: &mut DiskQueue,
        lane: usize,
        channel: u16,
        prefix: &[u8; MESSAGE_PREFIX_BYTES],
        message: StoredMessage<'_>,
    ) -> StorageResult<()> {
        self.close_lane(q, lane)?;
        while self.take_compressed(q, Wait::UntilReady)? {}
        self.close_direct(q)?;
        let log_time = unsigned(message.log_time);
        let first = self.messages();
        self.lanes[lane].open(Place::Buffered, u64::MAX, log_time, first);
        if self.lanes[lane].lacks_channel(channel) {
            self.introduce(q, lane, channel)?;
        }
        let definitions = std::mem::take(&mut self.lanes[lane].buffer);
        let size = definitions.len() as u64 + (MESSAGE_PREFIX_BYTES + message.payload.len()) as u64;
        self.lanes[lane].note(channel, log_time, size);
        let mut content = self.spare_content.pop().unwrap_or_default();
        self.lanes[lane].close(self.options.message_index, &mut content);
        self.catalog.note_content(&content);
        let crc = if self.options.chunk_crc {
            checksum_alone(&definitions, prefix, message.payload)
        } else {
            0
        };
        let header = ChunkHeader {
            message_start_time: content.times.0,
            message_end_time: content.times.1,
            uncompressed_size: size,
            uncompressed_crc: crc,
            compressed_size: size,
            ..ChunkHeader::default()
        };
        let place = self.put_chunk_header(q, &header)?;
        self.output.put(q, &definitions)?;
        self.output.put(q, prefix)?;
        let delivered = self.output.put_payload(q, message.payload)?;
        self.end_chunk(q, WrittenChunk::plain(place, size), content)?;
        self.recycle(definitions);
        self.check_delivered(message.payload, delivered)
    }
}

/// A definition record for a lane.
#[derive(Clone, Copy)]
enum LaneBytes {
    Schema(u16),
    Channel(u16),
}

fn checksum_alone(definitions: &[u8], prefix: &[u8], payload: PayloadRef<'_>) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(definitions);
    crc.update(prefix);
    output::visit_exactly(payload, |slice| crc.update(slice));
    crc.finalize()
}
