//! The configurations of the storage plugin comparison by name, ours and the rivals'.

use crate::{
    candidate::{
        RawMessage, RawWriter,
        leveldb_bare::{self, LeveldbBareWriter},
        mcap_crate::{McapCrateOptions, McapCrateWriter},
        naive::NaiveWriter,
        ours::{DiskChoice, OurWriter, channel_infos},
        sqlite_bare::{SqliteBareWriter, SqlitePreset},
    },
    error::{BenchError, BenchResult},
    workload::Plan,
};
use holdall_storage::{StorageOptions, storage_by_id};
use std::{path::Path, str::FromStr};

/// The writer of a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Writer {
    /// Our storage: id, preset, text of the configuration file.
    Ours(&'static str, &'static str, &'static str),
    McapCrate,
    Naive,
    SqliteBare(SqlitePreset),
    /// The real LevelDB.
    LeveldbBare,
    /// Accepts messages and discards them.
    Discarding,
}

/// One way to write, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StorageConfiguration {
    /// Its name in the CSV.
    pub name: &'static str,
    /// The configuration that it is compared with; absent for rivals.
    pub rival: Option<&'static str>,
    writer: Writer,
}

const fn ours(
    name: &'static str,
    rival: &'static str,
    id: &'static str,
    preset: &'static str,
    text: &'static str,
) -> StorageConfiguration {
    StorageConfiguration {
        name,
        rival: Some(rival),
        writer: Writer::Ours(id, preset, text),
    }
}

const fn rival(name: &'static str, writer: Writer) -> StorageConfiguration {
    StorageConfiguration {
        name,
        rival: None,
        writer,
    }
}

/// `mcap_default` is ours with index and all checksums; rosbag2's own default has no checksums and is
/// `mcap_nocrc` here.
const ALL: [StorageConfiguration; 17] = [
    ours("mcap_default", "mcap_crate", "mcap", "", ""),
    ours("mcap_nochunking", "mcap_crate", "mcap", "", "noChunking: true"),
    ours(
        "mcap_uncompressed_crc",
        "mcap_crate",
        "mcap",
        "",
        "noChunkCRC: false\ncompression: None",
    ),
    ours(
        "mcap_compressed_nocrc",
        "mcap_crate",
        "mcap",
        "",
        "noChunkCRC: true\ncompression: Zstd",
    ),
    ours(
        "mcap_nocrc",
        "mcap_crate",
        "mcap",
        "",
        "noChunkCRC: true\nenableDataCRC: false",
    ),
    ours("mcap_fastwrite", "mcap_crate", "mcap", "fastwrite", ""),
    ours("mcap_zstd_fast", "mcap_crate", "mcap", "zstd_fast", ""),
    ours("mcap_zstd_small", "mcap_crate", "mcap", "zstd_small", ""),
    ours("sqlite_default", "sqlite_bare_default", "sqlite3", "", ""),
    ours(
        "sqlite_resilient",
        "sqlite_bare_resilient",
        "sqlite3",
        "resilient",
        "",
    ),
    ours("leveldb_default", LEVELDB_BARE, "leveldb", "", ""),
    rival("mcap_crate", Writer::McapCrate),
    rival("naive", Writer::Naive),
    rival("sqlite_bare_default", Writer::SqliteBare(SqlitePreset::Default)),
    rival(
        "sqlite_bare_resilient",
        Writer::SqliteBare(SqlitePreset::Resilient),
    ),
    rival(LEVELDB_BARE, Writer::LeveldbBare),
    rival(GENERATOR, Writer::Discarding),
];

/// The real LevelDB, where it is installed.
const LEVELDB_BARE: &str = "leveldb_bare";

/// The cost of making the messages, which every other figure includes.
const GENERATOR: &str = "generator";

/// Slow by design, or not a storage at all, so measured only on request.
const ON_REQUEST: [&str; 2] = ["mcap_zstd_small", GENERATOR];

/// Configurations of the default that cannot run on this machine, each with the reason.
pub fn absent_configurations() -> Vec<(&'static str, &'static str)> {
    ALL.into_iter()
        .filter_map(|one| Some((one.name, one.absence()?)))
        .collect()
}

/// The default: every configuration that this build and this machine support.
pub fn default_configurations() -> Vec<StorageConfiguration> {
    ALL.into_iter()
        .filter(|one| one.is_available() && !ON_REQUEST.contains(&one.name))
        .collect()
}

impl FromStr for StorageConfiguration {
    type Err = BenchError;

    fn from_str(text: &str) -> BenchResult<Self> {
        let found = ALL.into_iter().find(|one| one.name == text);
        if let Some(what_to_do) = found.and_then(|one| one.absence()) {
            return Err(BenchError::Absent {
                program: LEVELDB_BARE,
                what_to_do,
            });
        }
        found
            .filter(Self::is_available)
            .ok_or_else(|| BenchError::Option {
                option: "--configs",
                expected: ALL.iter().map(|one| one.name).collect::<Vec<_>>().join(", "),
                found: text.to_owned(),
            })
    }
}

impl StorageConfiguration {
    fn is_available(&self) -> bool {
        let is_built = !matches!(self.writer, Writer::Ours(id, ..) if storage_by_id(id).is_err());
        is_built && self.absence().is_none()
    }

    /// Why it cannot run on this machine, if it needs a library that is not installed.
    fn absence(&self) -> Option<&'static str> {
        (self.writer == Writer::LeveldbBare)
            .then(leveldb_bare::absence)
            .flatten()
    }

    /// Whether it writes through our disk layer, so that it can write to memory.
    pub fn can_discard(&self) -> bool {
        match self.writer {
            Writer::Ours(id, ..) => id == "mcap",
            Writer::Naive | Writer::Discarding => true,
            Writer::McapCrate | Writer::SqliteBare(_) | Writer::LeveldbBare => false,
        }
    }

    /// Whether its file can be read back.
    pub fn is_stored(&self) -> bool {
        self.writer != Writer::Discarding
    }

    /// Extension of its files.
    pub fn extension(&self) -> &'static str {
        match self.writer {
            Writer::Ours(id, ..) => {
                storage_by_id(id).map_or("mcap", |storage| storage.extension().unwrap_or_default())
            }
            Writer::McapCrate | Writer::Naive | Writer::Discarding => "mcap",
            Writer::SqliteBare(_) => "db3",
            // A directory.
            Writer::LeveldbBare => "",
        }
    }

    /// Begins a file at `path`.
    ///
    /// # Errors
    /// The error of the storage or the disk.
    pub fn create(&self, plan: &Plan, path: &Path, disk: DiskChoice) -> BenchResult<Box<dyn RawWriter>> {
        let topics = plan.topics();
        let channels = channel_infos(topics);
        let dir = path.parent().unwrap_or(Path::new("."));
        // As much as a recorder with a split size reserves.
        let reserve_bytes = plan.byte_count();
        Ok(match self.writer {
            Writer::Ours(id, preset, text) => {
                let options = StorageOptions {
                    preset: (!preset.is_empty()).then(|| preset.to_owned()),
                    config: (!text.is_empty()).then(|| text.to_owned()),
                    ..StorageOptions::default()
                };
                Box::new(OurWriter::create(
                    disk.queue(dir)?,
                    path,
                    reserve_bytes,
                    &channels,
                    id,
                    &options,
                )?)
            }
            Writer::McapCrate => Box::new(McapCrateWriter::create(
                path,
                &channels,
                McapCrateOptions::default(),
            )?),
            Writer::Naive => Box::new(NaiveWriter::create(
                disk.queue(dir)?,
                path,
                reserve_bytes,
                topics,
            )?),
            Writer::SqliteBare(preset) => Box::new(SqliteBareWriter::create(path, &channels, preset)?),
            Writer::LeveldbBare => Box::new(LeveldbBareWriter::create(path, &channels)?),
            Writer::Discarding => Box::new(Discarding),
        })
    }
}

/// Storage that stores nothing.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rival_is_a_configuration() {
        for one in ALL {
            if let Some(rival) = one.rival {
                assert!(
                    ALL.iter()
                        .any(|other| other.name == rival && other.rival.is_none()),
                    "{}",
                    one.name
                );
            }
        }
    }

    #[test]
    fn the_published_configurations_exist() {
        for name in [
            "mcap_default",
            "mcap_nochunking",
            "mcap_uncompressed_crc",
            "mcap_compressed_nocrc",
        ] {
            assert_eq!(name.parse::<StorageConfiguration>().unwrap().name, name);
        }
        assert!(
            "mcap_magic"
                .parse::<StorageConfiguration>()
                .unwrap_err()
                .is_refusal()
        );
    }
}
