//! MCAP: the storage of ROS 2 by default, one file of chunks with an index behind them.

pub mod check;
pub mod format;
pub mod options;
pub mod reader;
mod recover;
pub mod splice;
pub mod writer;

pub use options::McapOptions;
pub use reader::{ChunkSummary, McapReader, McapReaderOptions};
pub use writer::McapWriter;

use crate::{
    error::StorageResult,
    reader::StorageReader,
    storage::{Storage, StorageOptions},
    writer::StorageWriter,
};
use holdall_io::{disk::FileId, queue::DiskQueue};
use std::path::Path;

/// The MCAP backend.
#[derive(Clone, Copy, Debug, Default)]
pub struct McapStorage;

impl McapStorage {
    fn options(options: &StorageOptions) -> StorageResult<McapOptions> {
        let mut mcap = McapOptions::preset(&options.preset)?;
        if let Some(text) = &options.config {
            mcap = mcap.with_config(text)?;
        }
        mcap.compression_threads = options.compression_threads;
        Ok(mcap)
    }
}

impl Storage for McapStorage {
    fn id(&self) -> &'static str {
        options::STORAGE_ID
    }

    fn file_extension(&self) -> &'static str {
        "mcap"
    }

    fn split_bytes_min(&self) -> u64 {
        1024
    }

    fn presets(&self) -> &'static [&'static str] {
        &options::PRESETS
    }

    fn check_options(&self, options: &StorageOptions) -> StorageResult<()> {
        Self::options(options).map(drop)
    }

    fn create_writer(
        &self,
        q: &mut DiskQueue,
        file: FileId,
        path: &Path,
        options: &StorageOptions,
    ) -> StorageResult<Box<dyn StorageWriter>> {
        Ok(Box::new(McapWriter::create(
            q,
            file,
            path,
            Self::options(options)?,
        )?))
    }

    fn open_reader(&self, path: &Path) -> StorageResult<Box<dyn StorageReader>> {
        Ok(Box::new(McapReader::open(path)?))
    }
}
