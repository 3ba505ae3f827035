//! Brings messages into chunks and chunks into the file: from their lane or from the compressor, each followed by its message indexes.

use super::{
    McapWriter,
    catalog::WrittenChunk,
    lane::{ChunkContent, Place},
    lanes::ClosedChunk,
    output::{self, ChunkPlace},
    unsigned,
};
use crate::{
    error::{StorageError, StorageResult},
    mcap::{
        format::{ChunkHeader, MESSAGE_PREFIX_BYTES},
        options::{CHUNK_BYTES_MAX, Compression},
    },
    writer::StoredMessage,
};
use holdall_io::queue::DiskQueue;
use holdall_io::wait::Wait;
use holdall_model::message::PayloadRef;

impl McapWriter {
    pub(super) fn put_in_chunk(
        &mut self,
        q: &mut DiskQueue,
        lane_number: usize,
        channel: u16,
        prefix: &[u8; MESSAGE_PREFIX_BYTES],
        message: &StoredMessage<'_>,
    ) -> StorageResult<()> {
        let record_bytes = (MESSAGE_PREFIX_BYTES + message.payload.len()) as u64;
        let log_time = unsigned(message.log_time);
        if !self.lanes.at(lane_number).accepts(channel, record_bytes) {
            let needed = record_bytes + self.definitions_bytes(lane_number, channel);
            if !self.make_room(q, lane_number, log_time, needed)? {
                return self.write_alone(q, lane_number, channel, prefix, message);
            }
            self.introduce(q, lane_number, channel)?;
        }
        let lane = self.lanes.at(lane_number);
        lane.note(channel, log_time, record_bytes);
        let delivered = if lane.place == Place::Direct {
            self.output.put_message(q, prefix, message.payload)?
        } else {
            lane.put_message(prefix, message.payload)
        };
        if self.lanes.is_full(lane_number, log_time) {
            self.close_lane(q, lane_number)?;
            self.close_overdue(q)?;
        }
        self.check_delivered(message.payload, delivered)
    }

    /// Bytes that come before the channel's first message in this lane.
    fn definitions_bytes(&mut self, lane: usize, channel: u16) -> u64 {
        if self.lanes.at(lane).lacks_channel(channel) {
            self.catalog.definitions_bytes_of(channel)
        } else {
            0
        }
    }

    /// Makes sure that the lane has an open chunk with room; false when the message is too large for any.
    fn make_room(
        &mut self,
        q: &mut DiskQueue,
        lane_number: usize,
        log_time: u64,
        needed: u64,
    ) -> StorageResult<bool> {
        let lane = self.lanes.at(lane_number);
        if lane.should_close_before(needed) || lane.lacks_room(needed) {
            self.close_lane(q, lane_number)?;
        }
        if self.lanes.at(lane_number).place == Place::Closed {
            return self.open_lane(q, lane_number, log_time, needed);
        }
        Ok(true)
    }

    fn open_lane(
        &mut self,
        q: &mut DiskQueue,
        lane: usize,
        log_time: u64,
        needed: u64,
    ) -> StorageResult<bool> {
        if needed > CHUNK_BYTES_MAX {
            return Ok(false);
        }
        self.lanes.at(lane).grow(self.catalog.chunk_indexes_bytes());
        let first = self.messages();
        if !self.lanes.may_stream(lane) {
            self.lanes.open_buffered(lane, log_time, first);
            return Ok(true);
        }
        self.close_direct(q)?;
        let bytes_max = self.output.chunk_capacity(q);
        if needed > bytes_max {
            return Ok(false);
        }
        self.output.begin_chunk(q)?;
        self.lanes.open_direct(lane, bytes_max, log_time, first);
        Ok(true)
    }

    /// Writes the channel's record, and its schema's, before its first message in the lane.
    fn introduce(&mut self, q: &mut DiskQueue, lane: usize, channel: u16) -> StorageResult<()> {
        let lane = self.lanes.at(lane);
        if !lane.lacks_channel(channel) {
            return Ok(());
        }
        let definitions = self.catalog.introduce(channel);
        let needs_schema = lane.introduce(channel, definitions.schema);
        let schema = needs_schema.then_some(definitions.schema_record);
        for record in schema.into_iter().chain([definitions.channel_record]) {
            match lane.place {
                Place::Direct => self.output.put(q, record)?,
                Place::Buffered | Place::Closed => lane.buffer.extend_from_slice(record),
            }
            lane.bytes += record.len() as u64;
        }
        Ok(())
    }

    /// Closes the lane's chunk, if one is open, and brings it into the file or to the compressor.
    pub(super) fn close_lane(&mut self, q: &mut DiskQueue, number: usize) -> StorageResult<()> {
        let lane = self.lanes.at(number);
        let (place, compression) = (lane.place, lane.compression);
        if place == Place::Closed {
            return Ok(());
        }
        let chunk = self.lanes.close(number);
        self.catalog.note_content(&chunk.content);
        if place == Place::Direct {
            return self.end_direct(q, chunk.bytes, chunk.content);
        }
        if compression == Compression::None {
            self.append_records(q, &chunk.records, chunk.content)?;
            self.lanes.recycle(chunk.records);
            return Ok(());
        }
        while self.compressor.is_full() {
            self.take_compressed(q, Wait::UntilReady)?;
        }
        self.chunks.packing(chunk.content.first_message);
        self.compressor.submit(compression, chunk.content, chunk.records);
        while self.take_compressed(q, Wait::No)? {}
        Ok(())
    }

    /// After the records of a chunk that is open in the file.
    fn end_direct(&mut self, q: &mut DiskQueue, size: u64, content: ChunkContent) -> StorageResult<()> {
        match self.output.end_chunk(q, content.times)? {
            Some(place) => self.end_chunk(q, WrittenChunk::plain(place, size), content),
            None => Ok(()),
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
        self.end_direct(q, size, content)
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
        self.chunks.written(self.output.bytes_handed(q));
        self.chunks.placed(self.output.position(), content.first_message);
        self.catalog.note_chunk(chunk, &content, &self.options);
        self.lanes.recycle_content(content);
        Ok(())
    }

    pub(super) fn close_direct(&mut self, q: &mut DiskQueue) -> StorageResult<()> {
        self.lanes
            .direct()
            .map_or(Ok(()), |lane| self.close_lane(q, lane))
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
        self.lanes.recycle(records);
        Ok(true)
    }

    /// A message too large to be held back: its checksum is taken first, so that the chunk's header can be written before it.
    fn write_alone(
        &mut self,
        q: &mut DiskQueue,
        lane: usize,
        channel: u16,
        prefix: &[u8; MESSAGE_PREFIX_BYTES],
        message: &StoredMessage<'_>,
    ) -> StorageResult<()> {
        self.close_lane(q, lane)?;
        while self.take_compressed(q, Wait::UntilReady)? {}
        self.close_direct(q)?;
        let log_time = unsigned(message.log_time);
        let first = self.messages();
        self.lanes
            .at(lane)
            .open(Place::Buffered, u64::MAX, log_time, first);
        self.introduce(q, lane, channel)?;
        let open = self.lanes.at(lane);
        let size = open.bytes + (MESSAGE_PREFIX_BYTES + message.payload.len()) as u64;
        open.note(channel, log_time, size);
        let ClosedChunk {
            content,
            records: definitions,
            ..
        } = self.lanes.close(lane);
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
        self.lanes.recycle(definitions);
        self.check_delivered(message.payload, delivered)
    }
}

fn checksum_alone(definitions: &[u8], prefix: &[u8], payload: PayloadRef<'_>) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(definitions);
    crc.update(prefix);
    output::visit_exactly(payload, |slice| crc.update(slice));
    crc.finalize()
}
