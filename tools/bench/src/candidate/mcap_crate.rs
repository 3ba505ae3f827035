//! The rival from crates.io: the `mcap` crate's writer with the options of our storage, on a buffered file, synced at the end.

use super::raw::{RawMessage, RawWriter};
use crate::error::{BenchError, BenchResult};
use holdall_storage::{
    StorageOptions,
    mcap::options::{Compression, McapOptions},
    writer::ChannelInfo,
};
use mcap::{WriteOptions, Writer, records::MessageHeader};
use std::{
    collections::BTreeMap,
    fs::File,
    io::BufWriter,
    path::{Path, PathBuf},
};

/// The buffer in front of the file; larger ones measured no faster.
const BUFFER_BYTES: usize = 1 << 20;

/// rosbag2's chunk size, where the options name none.
const CHUNK_BYTES: u64 = 768 << 10;

/// The rival's writer.
pub struct McapCrateWriter {
    path: PathBuf,
    writer: Writer<BufWriter<File>>,
    channels: Vec<u16>,
}

impl McapCrateWriter {
    /// A file at `path` with the chunks, checksums, indexes and compression that the same options give our storage.
    ///
    /// # Errors
    /// Options that are not valid, a file that cannot be made.
    pub fn create(path: &Path, channels: &[ChannelInfo], options: &StorageOptions) -> BenchResult<Self> {
        let options = write_options(options)?;
        let file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(path)
            .map_err(BenchError::io("create", path))?;
        let mut writer = options
            .create(BufWriter::with_capacity(BUFFER_BYTES, file))
            .map_err(failed(path))?;
        let channels = channels
            .iter()
            .map(|channel| add_channel(&mut writer, channel))
            .collect::<Result<_, _>>()
            .map_err(failed(path))?;
        Ok(Self {
            path: path.to_owned(),
            writer,
            channels,
        })
    }
}

fn write_options(options: &StorageOptions) -> BenchResult<WriteOptions> {
    let ours = McapOptions::preset(options.preset.as_deref())?;
    let ours = ours.with_config(options.config.as_deref().unwrap_or(""))?;
    let (compression, level) = codec(&ours);
    // The crate makes the data's checksum of those of its chunks: without them version 0.26 writes a wrong one.
    let data_crc = ours.data_crc && (ours.chunk_crc || !ours.chunking);
    Ok(WriteOptions::new()
        .compression(compression)
        .compression_level(level)
        .compression_threads(u32::try_from(options.compression_threads).unwrap_or(u32::MAX))
        .chunk_size(Some(ours.chunk_bytes.unwrap_or(CHUNK_BYTES)))
        .use_chunks(ours.chunking)
        .emit_message_indexes(ours.message_index)
        .calculate_chunk_crcs(ours.chunk_crc)
        .calculate_data_section_crc(data_crc)
        .calculate_summary_section_crc(ours.summary_crc)
        .profile("ros2"))
}

/// The same codec and level.
fn codec(ours: &McapOptions) -> (Option<mcap::Compression>, u32) {
    let level = ours.compression_level;
    match ours.compression {
        Compression::None => (None, 0),
        Compression::Lz4 => (Some(mcap::Compression::Lz4), level.lz4()),
        // The crate has no levels below 1.
        Compression::Zstd => (Some(mcap::Compression::Zstd), level.zstd().max(1).unsigned_abs()),
    }
}

/// Equal schemas get one number from the crate.
fn add_channel(writer: &mut Writer<BufWriter<File>>, channel: &ChannelInfo) -> mcap::McapResult<u16> {
    let (topic, definition) = (&channel.topic, &channel.definition);
    let schema = writer.add_schema(
        &topic.type_name,
        definition.encoding.as_str(),
        definition.text.as_bytes(),
    )?;
    writer.add_channel(schema, &topic.name, "cdr", &BTreeMap::new())
}

fn failed(path: &Path) -> impl Fn(mcap::McapError) -> BenchError {
    BenchError::rival("mcap crate", path)
}

impl RawWriter for McapCrateWriter {
    fn write_batch(&mut self, batch: &[RawMessage<'_>]) -> BenchResult<()> {
        for message in batch {
            let header = MessageHeader {
                channel_id: self.channels[message.topic as usize],
                // MCAP keeps the low 32 bits.
                sequence: message.sequence as u32,
                log_time: message.log_time_nanos,
                publish_time: message.log_time_nanos,
            };
            self.writer
                .write_to_known_channel(&header, message.payload)
                .map_err(failed(&self.path))?;
        }
        Ok(())
    }

    fn close(mut self: Box<Self>) -> BenchResult<()> {
        self.writer.finish().map_err(failed(&self.path))?;
        let file = self
            .writer
            .into_inner()
            .into_inner()
            .map_err(|error| BenchError::io("write", &self.path)(error.into_error()))?;
        file.sync_all().map_err(BenchError::io("sync", &self.path))?;
        super::raw::sync_parent(&self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rival_has_the_same_codec_and_level() {
        let rival = |config| codec(&McapOptions::default().with_config(config).unwrap());
        let (zstd, level) = rival("compression: Zstd\ncompressionLevel: Slow");
        assert!(matches!(zstd, Some(mcap::Compression::Zstd)) && level == 5);
        let (lz4, level) = rival("compression: Lz4");
        assert!(matches!(lz4, Some(mcap::Compression::Lz4)) && level == 0);
        assert!(rival("compression: None").0.is_none());
    }
}
