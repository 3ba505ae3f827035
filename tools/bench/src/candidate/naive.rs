//! The yardstick: a plain loop that encodes MCAP chunks directly into aligned blocks, with index and chunk
//! checksums and nothing else.

use super::raw::{RawMessage, RawWriter};
use crate::error::BenchResult;
use holdall_io::{
    disk::{DiskError, FileId},
    queue::DiskQueue,
    stream::BlockStream,
};
use holdall_storage::writer::ChannelInfo;
use std::path::Path;

/// A chunk is closed at this size.
const CHUNK_BYTES: u64 = 1 << 20;

/// Opcode, length, two times, size, checksum, an empty compression name, length of the records.
const CHUNK_HEADER_BYTES: u64 = 9 + 8 + 8 + 8 + 4 + 4 + 8;

const MAGIC: [u8; 8] = [0x89, b'M', b'C', b'A', b'P', 0x30, b'\r', b'\n'];

/// A chunk's entry in the summary.
struct ChunkEntry {
    times: (u64, u64),
    start: u64,
    records_bytes: u64,
    indexes: Vec<(u16, u64)>,
    indexes_bytes: u64,
}

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
    all_times: (u64, u64),
    chunks: Vec<ChunkEntry>,
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
        put_record(&mut head, 1, |body| {
            put_text(body, "ros2");
            put_text(body, "holdall naive loop");
        });
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
            all_times: (u64::MAX, 0),
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
        header.push(6);
        for value in [
            CHUNK_HEADER_BYTES - 9 + records_bytes,
            self.times.0,
            self.times.1,
            records_bytes,
        ] {
            header.extend_from_slice(&value.to_le_bytes());
        }
        header.extend_from_slice(&crc.finalize().to_le_bytes());
        header.extend_from_slice(&0_u32.to_le_bytes());
        header.extend_from_slice(&records_bytes.to_le_bytes());
        self.stream.patch(start, &header)?;
        self.stream.release(&mut self.q)?;
        self.write_indexes(ChunkEntry {
            times: self.times,
            start,
            records_bytes,
            indexes: Vec::new(),
            indexes_bytes: 0,
        })?;
        self.all_times = (
            self.all_times.0.min(self.times.0),
            self.all_times.1.max(self.times.1),
        );
        self.chunk_start = None;
        Ok(())
    }

    fn write_indexes(&mut self, mut entry: ChunkEntry) -> Result<(), DiskError> {
        let from = self.stream.position();
        for channel in self.used.drain(..) {
            let index = &mut self.indexes[usize::from(channel)];
            entry.indexes.push((channel, self.stream.position()));
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
        entry.indexes_bytes = self.stream.position() - from;
        self.chunks.push(entry);
        Ok(())
    }

    fn write_end(&mut self) -> Result<(), DiskError> {
        let mut end = Vec::new();
        put_record(&mut end, 0x0F, |body| body.extend_from_slice(&[0; 4]));
        let summary_start = self.stream.position() + end.len() as u64;
        end.extend_from_slice(&self.catalog);
        put_record(&mut end, 0x0B, |body| self.put_statistics(body));
        for chunk in &self.chunks {
            put_record(&mut end, 0x08, |body| put_chunk_index(body, chunk));
        }
        put_record(&mut end, 0x02, |body| {
            body.extend_from_slice(&summary_start.to_le_bytes());
            body.extend_from_slice(&[0; 8 + 4]);
        });
        end.extend_from_slice(&MAGIC);
        self.stream.append(&mut self.q, &end)
    }

    fn put_statistics(&self, body: &mut Vec<u8>) {
        let counted = self.counts.iter().zip(0_u16..).filter(|(count, _)| **count > 0);
        body.extend_from_slice(&self.counts.iter().sum::<u64>().to_le_bytes());
        body.extend_from_slice(&1_u16.to_le_bytes());
        body.extend_from_slice(&len32(&self.counts).to_le_bytes());
        body.extend_from_slice(&[0; 8]);
        body.extend_from_slice(&len32(&self.chunks).to_le_bytes());
        body.extend_from_slice(
            &if self.chunks.is_empty() {
                0
            } else {
                self.all_times.0
            }
            .to_le_bytes(),
        );
        body.extend_from_slice(&self.all_times.1.to_le_bytes());
        body.extend_from_slice(&(counted.clone().count() as u32 * 10).to_le_bytes());
        for (count, channel) in counted {
            body.extend_from_slice(&channel.to_le_bytes());
            body.extend_from_slice(&count.to_le_bytes());
        }
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

fn len32<T>(items: &[T]) -> u32 {
    u32::try_from(items.len()).unwrap_or(u32::MAX)
}

fn put_text(body: &mut Vec<u8>, text: &str) {
    body.extend_from_slice(&len32(text.as_bytes()).to_le_bytes());
    body.extend_from_slice(text.as_bytes());
}

fn put_record(out: &mut Vec<u8>, opcode: u8, fill: impl FnOnce(&mut Vec<u8>)) {
    out.push(opcode);
    let length_at = out.len();
    out.extend_from_slice(&[0; 8]);
    fill(out);
    let length = (out.len() - length_at - 8) as u64;
    out[length_at..length_at + 8].copy_from_slice(&length.to_le_bytes());
}

fn catalog(channels: &[ChannelInfo]) -> Vec<u8> {
    let mut out = Vec::new();
    put_record(&mut out, 3, |body| {
        body.extend_from_slice(&1_u16.to_le_bytes());
        put_text(body, super::ours::TYPE_NAME);
        put_text(body, "ros2msg");
        put_text(body, super::ours::TYPE_TEXT);
    });
    for (info, channel) in channels.iter().zip(0_u16..) {
        put_record(&mut out, 4, |body| {
            body.extend_from_slice(&channel.to_le_bytes());
            body.extend_from_slice(&1_u16.to_le_bytes());
            put_text(body, &info.topic.name);
            put_text(body, "cdr");
            body.extend_from_slice(&0_u32.to_le_bytes());
        });
    }
    out
}

fn put_chunk_index(body: &mut Vec<u8>, chunk: &ChunkEntry) {
    for value in [
        chunk.times.0,
        chunk.times.1,
        chunk.start,
        CHUNK_HEADER_BYTES + chunk.records_bytes,
    ] {
        body.extend_from_slice(&value.to_le_bytes());
    }
    body.extend_from_slice(&(len32(&chunk.indexes) * 10).to_le_bytes());
    for (channel, offset) in &chunk.indexes {
        body.extend_from_slice(&channel.to_le_bytes());
        body.extend_from_slice(&offset.to_le_bytes());
    }
    body.extend_from_slice(&chunk.indexes_bytes.to_le_bytes());
    put_text(body, "");
    for value in [chunk.records_bytes, chunk.records_bytes] {
        body.extend_from_slice(&value.to_le_bytes());
    }
}
