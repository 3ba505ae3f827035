//! The yardstick: a plain loop that encodes MCAP chunks directly into aligned blocks, with index and chunk
//! checksums and nothing else.

use super::{
    ours::{TYPE_NAME, TYPE_TEXT},
    raw::{RawMessage, RawWriter},
};
use crate::error::BenchResult;
use holdall_io::{
    disk::{DiskError, FileId},
    queue::DiskQueue,
    stream::BlockStream,
};
use holdall_storage::{
    mcap::format::{
        Channel, ChunkHeader, ChunkIndex, Footer, Header, MAGIC, Schema, Statistics, encode_data_end,
    },
    writer::ChannelInfo,
};
use std::path::Path;

/// A chunk is closed at this size.
const CHUNK_BYTES: u64 = 1 << 20;

/// Opcode, length, two times, size, checksum, an empty compression name, length of the records.
const CHUNK_HEADER_BYTES: u64 = 9 + 8 + 8 + 8 + 4 + 4 + 8;

/// The yardstick's writer.
pub struct NaiveWriter {
    q: DiskQueue,
    file: FileId,
    stream: BlockStream,
    /// Offset of the open chunk, if one is open.
    chunk_start: Option<u64>,
    times: (u64, u64),
    /// Times and offsets of the open chunk's messages by channel, in order.
    indexes: Vec<Vec<u8>>,
    /// Channels with a message in the open chunk.
    used: Vec<u16>,
    counts: Vec<u64>,
    chunks: Vec<ChunkIndex>,
    /// Schema and channel records, for the beginning and the summary.
    catalog: Vec<u8>,
}

impl NaiveWriter {
    /// A file at `path` on the disk of `q`.
    ///
    /// # Errors
    /// When the file cannot be made.
    pub fn create(
        mut q: DiskQueue,
        path: &Path,
        reserve_bytes: u64,
        channels: &[ChannelInfo],
    ) -> BenchResult<Self> {
        let file = q.create_file(path, reserve_bytes)?;
        let mut stream = BlockStream::new(file);
        let catalog = catalog(channels);
        let mut head = MAGIC.to_vec();
        let header = Header {
            profile: "ros2".to_owned(),
            library: "holdall naive loop".to_owned(),
        };
        header.encode(&mut head);
        stream.append(&mut q, &head)?;
        stream.append(&mut q, &catalog)?;
        Ok(Self {
            q,
            file,
            stream,
            chunk_start: None,
            times: (u64::MAX, 0),
            indexes: vec![Vec::new(); channels.len()],
            used: Vec::new(),
            counts: vec![0; channels.len()],
            chunks: Vec::new(),
            catalog,
        })
    }

    fn write(&mut self, message: &RawMessage<'_>) -> Result<(), DiskError> {
        let start = match self.chunk_start {
            Some(start) => start,
            None => self.open_chunk()?,
        };
        let offset = self.stream.position() - start - CHUNK_HEADER_BYTES;
        // Low bits by intention: channel numbers were checked at creation, MCAP keeps 32 bits of the
        // sequence.
        let (channel, sequence) = (message.topic as u16, message.sequence as u32);
        let time = message.log_time_nanos.to_le_bytes();
        let mut header = [0_u8; 31];
        header[0] = 5;
        header[1..9].copy_from_slice(&(22 + message.payload.len() as u64).to_le_bytes());
        header[9..11].copy_from_slice(&channel.to_le_bytes());
        header[11..15].copy_from_slice(&sequence.to_le_bytes());
        header[15..23].copy_from_slice(&time);
        header[23..31].copy_from_slice(&time);
        self.stream.append(&mut self.q, &header)?;
        self.stream.append(&mut self.q, message.payload)?;
        let index = &mut self.indexes[usize::from(channel)];
        if index.is_empty() {
            self.used.push(channel);
        }
        index.extend_from_slice(&time);
        index.extend_from_slice(&offset.to_le_bytes());
        self.times.0 = self.times.0.min(message.log_time_nanos);
        self.times.1 = self.times.1.max(message.log_time_nanos);
        self.counts[usize::from(channel)] += 1;
        if self.stream.position() - start >= CHUNK_BYTES {
            self.close_chunk(start)
        } else {
            Ok(())
        }
    }

    fn open_chunk(&mut self) -> Result<u64, DiskError> {
        let start = self.stream.position();
        self.stream.hold();
        self.stream
            .append(&mut self.q, &[0; CHUNK_HEADER_BYTES as usize])?;
        self.chunk_start = Some(start);
        self.times = (u64::MAX, 0);
        Ok(start)
    }

    fn close_chunk(&mut self, start: u64) -> Result<(), DiskError> {
        let end = self.stream.position();
        let records_bytes = end - start - CHUNK_HEADER_BYTES;
        let mut crc = crc32fast::Hasher::new();
        self.stream
            .read_held(start + CHUNK_HEADER_BYTES..end, |part| crc.update(part))?;
        let mut header = Vec::with_capacity(CHUNK_HEADER_BYTES as usize);
        let chunk = ChunkHeader {
            message_start_time: self.times.0,
            message_end_time: self.times.1,
            uncompressed_size: records_bytes,
            uncompressed_crc: crc.finalize(),
            compressed_size: records_bytes,
            ..ChunkHeader::default()
        };
        chunk.encode_prefix(&mut header);
        self.stream.patch(start, &header)?;
        self.stream.release(&mut self.q)?;
        let mut entry: ChunkIndex = ChunkIndex {
            message_start_time: self.times.0,
            message_end_time: self.times.1,
            chunk_start_offset: start,
            chunk_length: end - start,
            compressed_size: records_bytes,
            uncompressed_size: records_bytes,
            ..ChunkIndex::default()
        };
        for channel in self.used.drain(..) {
            let index = &mut self.indexes[usize::from(channel)];
            let offset = self.stream.position();
            entry.message_index_offsets.insert(channel, offset);
            let mut header = [0_u8; 15];
            header[0] = 7;
            header[1..9].copy_from_slice(&(6 + index.len() as u64).to_le_bytes());
            header[9..11].copy_from_slice(&channel.to_le_bytes());
            // A chunk has fewer than 2^28 messages: each takes 31 bytes and chunks are closed after 1 MiB.
            header[11..15].copy_from_slice(&(index.len() as u32).to_le_bytes());
            self.stream.append(&mut self.q, &header)?;
            self.stream.append(&mut self.q, index)?;
            index.clear();
        }
        entry.message_index_length = self.stream.position() - end;
        self.chunks.push(entry);
        self.chunk_start = None;
        Ok(())
    }

    fn write_end(&mut self) -> Result<(), DiskError> {
        let mut out = Vec::new();
        encode_data_end(&mut out, 0);
        let footer = Footer {
            summary_start: self.stream.position() + out.len() as u64,
            ..Footer::default()
        };
        out.extend_from_slice(&self.catalog);
        let counted = (0..).zip(self.counts.iter().copied());
        let times = || self.chunks.iter();
        // Both are far below 2^32.
        let [channel_count, chunk_count] = [self.counts.len(), self.chunks.len()].map(|count| count as u32);
        let statistics = Statistics {
            message_count: self.counts.iter().sum(),
            schema_count: 1,
            channel_count,
            chunk_count,
            message_start_time: times().map(|chunk| chunk.message_start_time).min().unwrap_or(0),
            message_end_time: times().map(|chunk| chunk.message_end_time).max().unwrap_or(0),
            channel_message_counts: counted.filter(|(_, count)| *count > 0).collect(),
            ..Statistics::default()
        };
        statistics.encode(&mut out);
        for chunk in &self.chunks {
            let offsets = chunk.message_index_offsets.iter();
            chunk.encode(&mut out, offsets.map(|(channel, offset)| (*channel, *offset)));
        }
        footer.encode_without_crc(&mut out);
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&MAGIC);
        self.stream.append(&mut self.q, &out)
    }
}

impl RawWriter for NaiveWriter {
    fn write_batch(&mut self, batch: &[RawMessage<'_>]) -> BenchResult<()> {
        for message in batch {
            self.write(message)?;
        }
        Ok(())
    }

    fn close(mut self: Box<Self>) -> BenchResult<()> {
        if let Some(start) = self.chunk_start {
            self.close_chunk(start)?;
        }
        self.write_end()?;
        let Self {
            mut q, file, stream, ..
        } = *self;
        stream.finish(&mut q)?;
        Ok(q.wait_closed(file)?)
    }
}

fn catalog(channels: &[ChannelInfo]) -> Vec<u8> {
    let mut out = Vec::new();
    let schema = Schema {
        id: 1,
        name: TYPE_NAME.into(),
        encoding: "ros2msg".into(),
        data: TYPE_TEXT.as_bytes().into(),
    };
    schema.encode(&mut out);
    for (info, id) in channels.iter().zip(0..) {
        let channel = Channel {
            id,
            schema_id: 1,
            topic: info.topic.name.clone(),
            message_encoding: "cdr".to_owned(),
            metadata: Default::default(),
        };
        channel.encode(&mut out);
    }
    out
}
