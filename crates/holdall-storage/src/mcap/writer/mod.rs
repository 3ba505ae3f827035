//! Writes one MCAP file: messages into the open chunk of their lane, chunks into the file, and the summary after them.

mod catalog;
mod checkpoint;
mod chunks;
mod compress;
mod handed;
mod lane;
mod output;
mod summary;

use crate::{
    error::{StorageError, StorageResult},
    mcap::{
        format::{
            Header, MAGIC, MESSAGE_PREFIX_BYTES, MessageHeader, checkpoint::append_anchor, message_prefix,
        },
        options::{CHUNK_BYTES_MAX, Compression, McapOptions},
    },
    writer::{ChannelIndex, ChannelInfo, FileSummary, MetadataEntries, StorageWriter, StoredMessage},
};
use catalog::Catalog;
use checkpoint::Checkpoints;
use compress::Compressor;
use handed::ChunksOnTheirWay;
use holdall_io::wait::Wait;
use holdall_io::{
    disk::FileId,
    queue::{DiskQueue, SyncToken},
};
use holdall_model::{message::PayloadRef, time::Timestamp};
use lane::{ChunkContent, LANE_COUNT, Lane, Place, compression_for, lane_for, lane_of_compression};
use output::{Checksums, Output};
use std::{
    path::{Path, PathBuf},
    time::Duration,
};

/// The library name that every file states as its writer.
const LIBRARY: &str = concat!("holdall ", env!("CARGO_PKG_VERSION"));
/// The profile of ROS 2 bags.
const PROFILE: &str = "ros2";

/// A buffer that has grown beyond this for one large message is not kept.
const BUFFER_KEPT_BYTES_MAX: u64 = 32 << 20;

/// One MCAP file that is being written.
pub struct McapWriter {
    path: PathBuf,
    options: McapOptions,
    output: Output,
    lanes: [Lane; LANE_COUNT],
    /// The lane whose chunk is open in the file itself.
    direct_lane: Option<usize>,
    /// The lane of each channel; a channel that once had a large message stays in the lane for large ones, and one with a separate
    /// compression in its lane.
    lane_of: Vec<u8>,
    catalog: Catalog,
    compressor: Compressor<ChunkContent>,
    /// Chunks that the system may not have.
    chunks: ChunksOnTheirWay,
    /// Used again for the next chunk.
    spare_content: Vec<ChunkContent>,
    spare_buffers: Vec<Vec<u8>>,
    latest_time: u64,
    /// Set for files that must open quickly after they are torn.
    checkpoints: Option<Checkpoints>,
    span_max: u64,
}

/// Nanoseconds as MCAP stores them; times before 1970 cannot be stored.
fn unsigned(time: Timestamp) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(0)
}

impl McapWriter {
    /// Begins the file: magic and header.
    ///
    /// # Errors
    /// A failed disk; threads for compression that cannot be started.
    pub fn create(q: &mut DiskQueue, file: FileId, path: &Path, options: McapOptions) -> StorageResult<Self> {
        let checksums = Checksums {
            chunk: options.chunk_crc,
            data: options.data_crc,
        };
        let mut output = Output::new(file, checksums);
        let mut start = MAGIC.to_vec();
        Header {
            profile: PROFILE.into(),
            library: LIBRARY.into(),
        }
        .encode(&mut start);
        let has_index = options.chunking && options.summary && options.chunk_index;
        let checkpoints = options
            .checkpoint_bytes
            .filter(|_| has_index)
            .map(Checkpoints::new);
        if checkpoints.is_some() {
            append_anchor(&mut start);
            output.put_head(q, start)?;
        } else {
            output.put(q, &start)?;
        }
        let compressor = Compressor::new(&options).map_err(|source| StorageError::Io {
            action: "start compression threads for",
            path: path.to_owned(),
            source,
        })?;
        Ok(Self {
            path: path.to_owned(),
            output,
            lanes: std::array::from_fn(|number| Lane::new(number, options.chunk_bytes)),
            direct_lane: None,
            lane_of: Vec::new(),
            catalog: Catalog::default(),
            compressor,
            chunks: ChunksOnTheirWay::default(),
            spare_content: Vec::new(),
            spare_buffers: Vec::new(),
            latest_time: 0,
            checkpoints,
            span_max: nanos(options.chunk_span_max),
            options,
        })
    }

    fn known_channel(&self, channel: ChannelIndex) -> StorageResult<u16> {
        let count = self.catalog.channels.len();
        match u16::try_from(channel.0) {
            Ok(index) if usize::from(index) < count => Ok(index),
            _ => Err(StorageError::UnknownChannel {
                path: self.path.clone(),
                index: channel.0,
                count,
            }),
        }
    }

    /// Writes the schema and channel record, if the data section (without chunks) does not have them yet.
    fn write_definitions(&mut self, q: &mut DiskQueue, channel: u16) -> StorageResult<()> {
        let entry = &mut self.catalog.channels[usize::from(channel)];
        if entry.is_written {
            return Ok(());
        }
        entry.is_written = true;
        let schema = &mut self.catalog.schemas[usize::from(entry.schema)];
        if !std::mem::replace(&mut schema.is_written, true) {
            self.output.put(q, &schema.record)?;
        }
        self.output.put(q, &entry.record)?;
        Ok(())
    }

    fn write_bare(
        &mut self,
        q: &mut DiskQueue,
        channel: u16,
        prefix: &[u8; MESSAGE_PREFIX_BYTES],
        message: StoredMessage<'_>,
    ) -> StorageResult<()> {
        self.write_definitions(q, channel)?;
        let delivered = self.output.put_message(q, prefix, message.payload)?;
        self.catalog.note_message(channel, unsigned(message.log_time));
        self.check_delivered(message.payload, delivered)
    }

    fn check_delivered(&self, payload: PayloadRef<'_>, delivered: u64) -> StorageResult<()> {
        let expected = payload.len() as u64;
        if delivered == expected {
            return Ok(());
        }
        Err(StorageError::PayloadLength {
            path: self.path.clone(),
            expected,
            found: delivered,
        })
    }

    /// Bytes that come before the channel's first message in this lane.
    fn definitions_bytes(&self, lane: usize, channel: u16) -> u64 {
        if !self.lanes[lane].lacks_channel(channel) {
            return 0;
        }
        let entry = &self.catalog.channels[usize::from(channel)];
        (entry.record.len() + self.catalog.schemas[usize::from(entry.schema)].record.len()) as u64
    }

    /// Makes sure that the lane has an open chunk with room; false when the message is too large for any.
    fn make_room(
        &mut self,
        q: &mut DiskQueue,
        lane: usize,
        log_time: u64,
        needed: u64,
    ) -> StorageResult<bool> {
        let own_chunk = self.lanes[lane].should_close_before(needed);
        if own_chunk || self.lanes[lane].lacks_room(needed) {
            self.close_lane(q, lane)?;
        }
        if self.lanes[lane].place == Place::Closed {
            return self.open_lane(q, lane, log_time, needed);
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
        self.lanes[lane].grow(self.catalog.chunk_indexes_bytes);
        let first = self.messages();
        if self.wants_stream(q, lane)? {
            let bytes_max = self.output.chunk_capacity(q);
            if needed > bytes_max {
                return Ok(false);
            }
            self.output.begin_chunk(q)?;
            self.direct_lane = Some(lane);
            self.lanes[lane].open(Place::Direct, bytes_max, log_time, first);
        } else {
            self.lanes[lane].open(Place::Buffered, CHUNK_BYTES_MAX, log_time, first);
            if self.lanes[lane].buffer.capacity() == 0 {
                self.lanes[lane].buffer = self.spare_buffers.pop().unwrap_or_default();
            }
        }
        Ok(true)
    }

    /// Whether the lane's next chunk goes straight to the file. The stream can hold one open chunk: the lane of the largest
    /// messages has the first claim, because a second copy of small messages costs little.
    fn wants_stream(&mut self, q: &mut DiskQueue, lane: usize) -> StorageResult<bool> {
        if compression_for(lane, &self.options) != Compression::None {
            return Ok(false);
        }
        for smaller in &mut self.lanes[..lane] {
            smaller.is_crowded = true;
        }
        match self.direct_lane {
            Some(larger) if larger > lane => Ok(false),
            Some(smaller) => {
                self.close_lane(q, smaller)?;
                Ok(true)
            }
            None => Ok(!self.lanes[lane].is_crowded),
        }
    }

    fn put_in_chunk(
        &mut self,
        q: &mut DiskQueue,
        lane_number: usize,
        channel: u16,
        prefix: &[u8; MESSAGE_PREFIX_BYTES],
        message: StoredMessage<'_>,
    ) -> StorageResult<()> {
        let record_bytes = (MESSAGE_PREFIX_BYTES + message.payload.len()) as u64;
        let log_time = unsigned(message.log_time);
        if !self.lanes[lane_number].accepts(channel, record_bytes) {
            let needed = record_bytes + self.definitions_bytes(lane_number, channel);
            if !self.make_room(q, lane_number, log_time, needed)? {
                return self.write_alone(q, lane_number, channel, prefix, message);
            }
            if self.lanes[lane_number].lacks_channel(channel) {
                self.introduce(q, lane_number, channel)?;
            }
        }
        let lane = &mut self.lanes[lane_number];
        lane.note(channel, log_time, record_bytes);
        let delivered = if lane.place == Place::Direct {
            self.output.put_message(q, prefix, message.payload)?
        } else {
            lane.put_message(prefix, message.payload)
        };
        if lane.is_full(log_time, self.span_max) {
            self.close_lane(q, lane_number)?;
            self.close_overdue(q)?;
        }
        self.check_delivered(message.payload, delivered)
    }

    /// Closes chunks whose lane has become silent.
    fn close_overdue(&mut self, q: &mut DiskQueue) -> StorageResult<()> {
        for lane in 0..LANE_COUNT {
            if self.lanes[lane].is_overdue(self.latest_time, self.span_max) {
                self.close_lane(q, lane)?;
            }
        }
        Ok(())
    }
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

impl StorageWriter for McapWriter {
    fn add_channel(&mut self, _q: &mut DiskQueue, info: &ChannelInfo) -> StorageResult<ChannelIndex> {
        let index = self.catalog.add_channel(&self.path, info)?;
        let other = self.options.topic_compression.get(&info.topic.name);
        let other = other.filter(|other| **other != self.options.compression);
        self.lane_of
            .push(other.map_or(0, |other| lane_of_compression(*other)));
        Ok(ChannelIndex(u32::from(index)))
    }

    #[inline]
    fn write(
        &mut self,
        q: &mut DiskQueue,
        channel: ChannelIndex,
        message: StoredMessage<'_>,
    ) -> StorageResult<()> {
        let channel = self.known_channel(channel)?;
        let header = MessageHeader {
            channel_id: channel + 1,
            sequence: message.sequence,
            log_time: unsigned(message.log_time),
            publish_time: unsigned(message.publish_time),
        };
        self.latest_time = header.log_time;
        let prefix = message_prefix(&header, message.payload.len());
        if !self.options.chunking {
            return self.write_bare(q, channel, &prefix, message);
        }
        let lane = &mut self.lane_of[usize::from(channel)];
        *lane = lane_for(message.payload.len()).max(*lane);
        let lane = usize::from(*lane);
        self.put_in_chunk(q, lane, channel, &prefix, message)
    }

    fn write_metadata(
        &mut self,
        q: &mut DiskQueue,
        name: &str,
        entries: &MetadataEntries,
    ) -> StorageResult<()> {
        self.close_direct(q)?;
        let record = catalog::metadata_record(name, entries);
        self.catalog
            .note_metadata(self.output.position(), record.len() as u64, name);
        self.output.put(q, &record)?;
        Ok(())
    }

    fn summary(&self) -> FileSummary {
        let mut message_count = self.catalog.message_count;
        let mut times = self.catalog.times;
        let mut counts: Vec<u64> = self
            .catalog
            .channels
            .iter()
            .map(|channel| channel.message_count)
            .collect();
        for lane in &self.lanes {
            message_count += lane.message_count();
            if let Some((start, end)) = lane.times() {
                let (min, max) = times.unwrap_or((start, end));
                times = Some((min.min(start), max.max(end)));
            }
            for (channel, count) in lane.counts() {
                counts[usize::from(channel)] += u64::from(count);
            }
        }
        let time = |nanos| Timestamp::from_nanos(i64::try_from(nanos).unwrap_or(i64::MAX));
        FileSummary {
            path: self.path.clone(),
            message_count,
            starting_time: times.map(|(start, _)| time(start)),
            ending_time: times.map(|(_, end)| time(end)),
            channel_message_counts: counts,
            bytes: self.bytes_written(),
        }
    }

    fn bytes_written(&self) -> u64 {
        let open: u64 = self
            .lanes
            .iter()
            .filter(|lane| lane.place == Place::Buffered)
            .map(|lane| lane.bytes)
            .sum();
        let index: u64 = self.lanes.iter().map(|lane| lane.message_count() * 16).sum();
        self.output.position() + open + index + self.compressor.bytes_in_flight() + self.summary_bytes()
    }

    fn step(&mut self, q: &mut DiskQueue) -> StorageResult<()> {
        while self.take_compressed(q, Wait::No)? {}
        self.move_anchor(q)?;
        self.close_overdue(q)
    }

    fn close_chunks(&mut self, q: &mut DiskQueue) -> StorageResult<()> {
        for lane in 0..LANE_COUNT {
            self.close_lane(q, lane)?;
        }
        while self.take_compressed(q, Wait::UntilReady)? {}
        Ok(())
    }

    fn handed(&mut self, q: &DiskQueue) -> u64 {
        self.messages_handed(q)
    }

    fn hand_over(&mut self, q: &mut DiskQueue) -> StorageResult<()> {
        self.close_chunks(q)?;
        Ok(self.output.hand_over(q)?)
    }

    fn hand_over_large(&mut self, q: &mut DiskQueue) -> StorageResult<bool> {
        self.hand_over_large_lane(q)
    }

    fn make_durable(&mut self, q: &mut DiskQueue) -> StorageResult<Option<SyncToken>> {
        self.close_chunks(q)?;
        let checkpoint = self.checkpoint(q)?;
        let token = self.output.make_durable(q)?;
        self.await_checkpoint(checkpoint, token);
        Ok(Some(token))
    }

    fn finish(
        mut self: Box<Self>,
        q: &mut DiskQueue,
        closing_metadata: &[(&str, MetadataEntries)],
    ) -> StorageResult<FileSummary> {
        let ended = self.write_end(q, closing_metadata);
        let mut summary = self.summary();
        // The file is closed even when its end could not be written.
        let length = self.output.finish(q);
        ended?;
        summary.bytes = length?;
        Ok(summary)
    }
}
