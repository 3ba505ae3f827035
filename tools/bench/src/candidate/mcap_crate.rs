//! The rival from crates.io: the `mcap` crate's writer on a buffered file, synced at the end.

use super::raw::{RawMessage, RawWriter};
use crate::error::{BenchError, BenchResult};
use holdall_storage::writer::ChannelInfo;
use mcap::{Compression, WriteOptions, Writer, records::MessageHeader};
use std::{
    collections::BTreeMap,
    fs::File,
    io::BufWriter,
    path::{Path, PathBuf},
};

/// The buffer in front of the file; larger ones measured no faster.
const BUFFER_BYTES: usize = 1 << 20;

/// Settings of the crate.
#[derive(Clone, Copy, Debug, Default)]
pub struct McapCrateOptions {
    /// Chunk compression; `None` for none.
    pub compression: Option<Compression>,
    /// Codec level; 0 is the codec's own default.
    pub compression_level: u32,
    /// Threads within the codec; 0 compresses inside the call.
    pub compression_threads: u32,
}

/// The rival's writer.
pub struct McapCrateWriter {
    path: PathBuf,
    writer: Writer<BufWriter<File>>,
    channels: Vec<u16>,
}

impl McapCrateWriter {
    /// A file at `path` with rosbag2's chunk size and all checksums that the crate supports.
    ///
    /// # Errors
    /// When the file cannot be made.
    pub fn create(path: &Path, channels: &[ChannelInfo], options: McapCrateOptions) -> BenchResult<Self> {
        let file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(path)
            .map_err(BenchError::io("create", path))?;
        let mut writer = WriteOptions::new()
            .compression(options.compression)
            .compression_level(options.compression_level)
            .compression_threads(options.compression_threads)
            .chunk_size(Some(768 << 10))
            .profile("ros2")
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
