//! Writes one MCAP file: messages into the open chunk of their lane, chunks into the file, and the summary after them.

mod catalog;
mod checkpoint;
mod chunks;
mod compress;
mod handed;
mod lane;
mod lanes;
mod output;

use crate::{
    error::{StorageError, StorageResult},
    mcap::{
        format::{
            Header, MAGIC, MESSAGE_PREFIX_BYTES, MessageHeader, checkpoint::append_anchor, message_prefix,
        },
        options::McapOptions,
    },
    writer::{ChannelIndex, ChannelInfo, FileSummary, MetadataEntries, StorageWriter, StoredMessage},
};
use catalog::Catalog;
use checkpoint::Checkpoints;
use compress::Compressor;
use handed::ChunksOnTheirWay;
use holdall_io::wait::Wait;
use holdall_io::{
    disk::{DiskError, FileId},
    queue::{DiskQueue, SyncToken},
};
use holdall_model::{message::PayloadRef, time::Timestamp};
use lane::{ChunkContent, LANE_COUNT, LARGE_LANE};
use lanes::Lanes;
use output::{Checksums, Output};
use std::path::{Path, PathBuf};

/// The library name that every file states as its writer.
const LIBRARY: &str = concat!("holdall ", env!("CARGO_PKG_VERSION"));
/// The profile of ROS 2 bags.
const PROFILE: &str = "ros2";

/// One MCAP file that is being written.
pub struct McapWriter {
    path: PathBuf,
    options: McapOptions,
    output: Output,
    lanes: Lanes,
    catalog: Catalog,
    compressor: Compressor<ChunkContent>,
    /// Chunks that the system may not have.
    chunks: ChunksOnTheirWay,
    /// Set for files that must open quickly after they are torn.
    checkpoints: Option<Checkpoints>,
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
            lanes: Lanes::new(&options, compressor.in_flight_max()),
            catalog: Catalog::default(),
            compressor,
            chunks: ChunksOnTheirWay::default(),
            checkpoints,
            options,
        })
    }

    fn known_channel(&self, channel: ChannelIndex) -> StorageResult<u16> {
        let count = self.catalog.channel_count();
        match u16::try_from(channel.0) {
            Ok(index) if usize::from(index) < count => Ok(index),
            _ => Err(StorageError::UnknownChannel {
                path: self.path.clone(),
                index: channel.0,
                count,
            }),
        }
    }

    fn write_bare(
        &mut self,
        q: &mut DiskQueue,
        channel: u16,
        prefix: &[u8; MESSAGE_PREFIX_BYTES],
        message: &StoredMessage<'_>,
    ) -> StorageResult<()> {
        self.write_definitions(q, channel)?;
        let delivered = self.output.put_message(q, prefix, message.payload)?;
        self.catalog.note_message(channel, unsigned(message.log_time));
        self.check_delivered(message.payload, delivered)
    }

    /// Writes the schema and channel record, if the data section (without chunks) does not have them yet.
    fn write_definitions(&mut self, q: &mut DiskQueue, channel: u16) -> Result<(), DiskError> {
        if self.catalog.is_introduced(channel) {
            return Ok(());
        }
        let mut records = self.catalog.introduce_once(channel);
        records.try_for_each(|record| self.output.put(q, record))
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

    /// Messages that were given to this writer.
    fn messages(&self) -> u64 {
        self.catalog.message_count() + self.lanes.message_count()
    }

    /// Closes chunks whose lane has become silent.
    fn close_overdue(&mut self, q: &mut DiskQueue) -> StorageResult<()> {
        for lane in 0..LANE_COUNT {
            if self.lanes.is_overdue(lane) {
                self.close_lane(q, lane)?;
            }
        }
        Ok(())
    }

    /// Writes what comes after the messages.
    fn write_end(
        &mut self,
        q: &mut DiskQueue,
        closing_metadata: &[(&str, MetadataEntries)],
    ) -> StorageResult<()> {
        self.close_chunks(q)?;
        // Topics without messages too: a reader that reads the file from front to end finds all of them.
        for channel in 0..u16::try_from(self.catalog.channel_count()).unwrap_or(u16::MAX) {
            self.write_definitions(q, channel)?;
        }
        for (name, entries) in closing_metadata {
            self.write_metadata(q, name, entries)?;
        }
        Ok(self.catalog.write_end(q, &self.options, &mut self.output)?)
    }
}

impl StorageWriter for McapWriter {
    fn add_channel(&mut self, _q: &mut DiskQueue, info: &ChannelInfo) -> StorageResult<ChannelIndex> {
        let index = self.catalog.add_channel(&self.path, info)?;
        let other = self.options.topic_compression.get(&info.topic.name);
        let other = other.filter(|other| **other != self.options.compression);
        self.lanes.add_channel(other.copied());
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
        let prefix = message_prefix(&header, message.payload.len());
        if !self.options.chunking {
            return self.write_bare(q, channel, &prefix, &message);
        }
        let lane = self.lanes.choose(channel, header.log_time, message.payload.len());
        self.put_in_chunk(q, lane, channel, &prefix, &message)
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
            .metadata
            .note(self.output.position(), record.len() as u64, name);
        self.output.put(q, &record)?;
        Ok(())
    }

    fn summary(&self) -> FileSummary {
        FileSummary {
            bytes: self.bytes_written(),
            ..self.catalog.file_summary(&self.path, self.lanes.each())
        }
    }

    fn bytes_written(&self) -> u64 {
        self.output.position()
            + self.lanes.bytes_to_come()
            + self.compressor.bytes_in_flight()
            + self.catalog.summary_bytes(&self.options)
    }

    fn step(&mut self, q: &mut DiskQueue) -> StorageResult<()> {
        while self.take_compressed(q, Wait::No)? {}
        if let Some(checkpoints) = &mut self.checkpoints {
            checkpoints.move_anchor(q, &mut self.output)?;
        }
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
        let messages = self.messages();
        if !self.options.chunking {
            self.chunks.bare(self.output.position(), messages);
        }
        let in_chunks = self.chunks.first(self.output.bytes_handed(q));
        let in_lanes = self.lanes.first_message();
        [in_chunks, in_lanes]
            .into_iter()
            .flatten()
            .fold(messages, u64::min)
    }

    fn hand_over(&mut self, q: &mut DiskQueue) -> StorageResult<()> {
        self.close_chunks(q)?;
        Ok(self.output.hand_over(q)?)
    }

    /// Not while a write is in flight: the next one covers a part of the same 4 KiB, would wait for it, and a fast recording writes its
    /// blocks soon anyway.
    fn hand_over_large(&mut self, q: &mut DiskQueue) -> StorageResult<bool> {
        q.poll();
        if q.in_flight() > 0 {
            return Ok(false);
        }
        for lane in LARGE_LANE..LANE_COUNT {
            self.close_lane(q, lane)?;
        }
        while self.take_compressed(q, Wait::No)? {}
        // A chunk of smaller messages may be open in the stream; those survive in another copy.
        if self.lanes.direct().is_none() {
            self.output.hand_over(q)?;
        }
        Ok(self.chunks.none_is_packing())
    }

    fn make_durable(&mut self, q: &mut DiskQueue) -> StorageResult<Option<SyncToken>> {
        self.close_chunks(q)?;
        let token = match &mut self.checkpoints {
            Some(checkpoints) => checkpoints.make_durable(q, &self.catalog, &mut self.output)?,
            None => self.output.make_durable(q)?,
        };
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
