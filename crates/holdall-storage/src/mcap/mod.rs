//! MCAP: the default storage of ROS 2, one file of chunks followed by an index.

pub mod check;
mod checkpoints;
pub mod format;
mod late;
pub mod options;
mod packer;
pub mod reader;
mod recover;
mod repair;
mod splice;
pub mod writer;

pub use options::McapOptions;
pub use packer::RecordPacker;
pub use reader::{McapReader, McapReaderOptions};
pub use writer::McapWriter;

use crate::RepairTarget;
use crate::{
    check::{FileCheck, Progress},
    chunks::{ChunkFile, ChunkStorage, SpliceJob, Spliced},
    error::StorageResult,
    reader::StorageReader,
    repair::{RepairPlan, Repaired},
    storage::{Storage, StorageOptions},
    writer::{MetadataEntries, StorageWriter},
};
use holdall_io::{disk::FileId, queue::DiskQueue};
use splice::{ChunkCodec, SpliceInput};
use std::path::Path;

/// The MCAP backend.
#[derive(Clone, Copy, Debug, Default)]
pub struct McapStorage;

impl McapStorage {
    /// Plans the repair of a torn file; `None` for a complete one.
    ///
    /// # Errors
    /// A file that cannot be read, or cannot be repaired in place.
    pub fn plan_repair(
        &self,
        path: &Path,
        records: &[(&str, MetadataEntries)],
        target: RepairTarget,
    ) -> StorageResult<Option<RepairPlan>> {
        repair::plan(&reader::source::Source::open(path)?, records, target)
    }

    fn options(options: &StorageOptions) -> StorageResult<McapOptions> {
        let mut mcap = McapOptions::preset(options.preset.as_deref())?;
        if let Some(text) = &options.config {
            mcap = mcap.with_config(text)?;
        }
        mcap = mcap.with_topic_compression(&options.topic_compression)?;
        mcap.compression_threads = options.compression_threads;
        let between = mcap.checkpoint_bytes.unwrap_or(options::CHECKPOINT_BYTES);
        mcap.checkpoint_bytes = options.index_checkpoints.then_some(between);
        Ok(mcap)
    }
}

impl Storage for McapStorage {
    fn id(&self) -> &'static str {
        options::STORAGE_ID
    }

    fn title(&self) -> &'static str {
        "MCAP"
    }

    fn topic_compressions(&self) -> &'static [&'static str] {
        &options::Compression::NAMES
    }

    fn extensions(&self) -> &'static [&'static str] {
        &[options::STORAGE_ID]
    }

    fn magic(&self) -> Option<&'static [u8]> {
        Some(&format::MAGIC)
    }

    fn end_magic(&self) -> Option<&'static [u8]> {
        Some(&format::MAGIC)
    }

    fn beginning(&self) -> Option<Vec<u8>> {
        let mut bytes = format::MAGIC.to_vec();
        format::Header {
            profile: "ros2".into(),
            library: concat!("holdall ", env!("CARGO_PKG_VERSION")).into(),
        }
        .encode(&mut bytes);
        Some(bytes)
    }

    fn chunks(&self) -> Option<&dyn ChunkStorage> {
        Some(self)
    }

    fn check(&self, path: &Path, progress: Progress<'_>) -> StorageResult<FileCheck> {
        check::check(path, progress)
    }

    fn split_bytes_min(&self) -> u64 {
        1024
    }

    fn keeps_publishers(&self) -> bool {
        true
    }

    fn keeps_types(&self) -> bool {
        true
    }

    fn presets(&self) -> &'static [&'static str] {
        &options::PRESETS
    }

    fn check_options(&self, options: &StorageOptions) -> StorageResult<()> {
        Self::options(options).map(drop)
    }

    fn repair(
        &self,
        path: &Path,
        records: &[(&str, MetadataEntries)],
        target: RepairTarget,
    ) -> StorageResult<Option<Repaired>> {
        let Some(plan) = self.plan_repair(path, records, target)? else {
            return Ok(None);
        };
        plan.apply()?;
        Ok(Some(plan.outcome))
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

impl ChunkStorage for McapStorage {
    fn open(&self, path: &Path) -> StorageResult<Box<dyn ChunkFile>> {
        Ok(Box::new(SpliceInput::open(path)?))
    }

    fn check_codec(&self, options: &StorageOptions) -> StorageResult<()> {
        ChunkCodec::of(options).map(drop)
    }

    fn splice(&self, job: SpliceJob<'_>) -> StorageResult<Spliced> {
        splice::splice(job)
    }
}
