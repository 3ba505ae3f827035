//! Foreign storages in the same run as holdall's: how each is opened, and its abilities.

use super::{
    leveldb_bare::{self, LeveldbBareWriter},
    mcap_crate::McapCrateWriter,
    naive::NaiveWriter,
    ours::DiskChoice,
    raw::{RawMessage, RawWriter},
    sqlite_bare::{SqliteBareWriter, SqlitePreset},
};
use crate::error::BenchResult;
use holdall_storage::{StorageOptions, writer::ChannelInfo};
use std::path::Path;

/// A foreign storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rival {
    /// The `mcap` crate, with the options of the storage that it is compared with.
    McapCrate,
    /// The naive MCAP loop.
    Naive,
    /// Bare SQLite inserts.
    SqliteBare(SqlitePreset),
    /// The real LevelDB as rosbag2's plugin uses it.
    LeveldbBare,
    /// Stores nothing: measures the costs of the generator and the batches by themselves.
    Discarding,
}

impl Rival {
    /// All, by the names that the storage plugin comparison has.
    pub(crate) const NAMES: [(&'static str, Self); 7] = [
        ("mcap_crate", Self::McapCrate),
        ("naive", Self::Naive),
        ("sqlite_bare_default", Self::SqliteBare(SqlitePreset::Default)),
        ("sqlite_bare_resilient", Self::SqliteBare(SqlitePreset::Resilient)),
        ("sqlite_bare_durable", Self::SqliteBare(SqlitePreset::Durable)),
        ("leveldb_bare", Self::LeveldbBare),
        ("generator", Self::Discarding),
    ];

    /// Its name.
    pub(crate) fn name(self) -> &'static str {
        let known = Self::NAMES.iter().find(|(_, known)| *known == self);
        known.map_or("", |(name, _)| name)
    }

    /// Why it cannot be run here; `None` when it can.
    pub(crate) fn absence(self) -> Option<&'static str> {
        (self == Self::LeveldbBare).then(leveldb_bare::absence).flatten()
    }

    /// Whether it can run without a disk.
    pub(crate) fn can_discard(self) -> bool {
        matches!(self, Self::Naive | Self::Discarding)
    }

    /// Extension of its files; empty for a directory.
    pub(crate) fn extension(self) -> &'static str {
        match self {
            Self::McapCrate | Self::Naive | Self::Discarding => "mcap",
            Self::SqliteBare(_) => "db3",
            Self::LeveldbBare => "",
        }
    }

    /// Opens it at `path`; `reserve_bytes` and `disk` are for those that write through our disk layer, `options` for the crate.
    ///
    /// # Errors
    /// Options that are not valid, a file that cannot be created.
    pub fn create(
        self,
        path: &Path,
        channels: &[ChannelInfo],
        options: &StorageOptions,
        reserve_bytes: u64,
        disk: DiskChoice,
    ) -> BenchResult<Box<dyn RawWriter>> {
        Ok(match self {
            Self::McapCrate => Box::new(McapCrateWriter::create(path, channels, options)?),
            Self::Naive => {
                let queue = disk.queue(path.parent().unwrap_or(Path::new(".")))?;
                Box::new(NaiveWriter::create(queue, path, reserve_bytes, channels)?)
            }
            Self::SqliteBare(preset) => Box::new(SqliteBareWriter::create(path, channels, preset)?),
            Self::LeveldbBare => Box::new(LeveldbBareWriter::create(path, channels)?),
            Self::Discarding => Box::new(Discarding),
        })
    }
}

/// Stores nothing.
struct Discarding;

impl RawWriter for Discarding {
    fn write_batch(&mut self, batch: &[RawMessage<'_>]) -> BenchResult<()> {
        std::hint::black_box(batch);
        Ok(())
    }

    fn close(self: Box<Self>) -> BenchResult<()> {
        Ok(())
    }
}
