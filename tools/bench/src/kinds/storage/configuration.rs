//! The configurations of the storage plugin comparison by name, for our storages and the rivals'.

use super::ComparisonConfig;
use crate::{
    candidate::{
        RawWriter,
        ours::{DiskChoice, OurWriter, Transactions},
        rival::Rival,
    },
    error::{BenchError, BenchResult},
};
use holdall_storage::{StorageOptions, storage_by_id, writer::ChannelInfo};
use std::{path::Path, str::FromStr};

/// The writer of a configuration.
#[derive(Clone, Debug)]
enum Writer {
    /// Our storage: id, options, and when a transaction ends.
    Ours(String, StorageOptions, Transactions),
    /// With the options of the storage that it is compared with.
    Rival(Rival, StorageOptions),
}

/// One way to write, by name.
#[derive(Clone, Debug)]
pub struct StorageConfiguration {
    /// Its name in the CSV.
    pub name: String,
    /// The configuration that it is compared with; absent for rivals.
    pub rival: Option<&'static str>,
    writer: Writer,
}

/// Our configurations: name, rival, storage, preset, text of the configuration file. `mcap_default` has the
/// index and all checksums; rosbag2's own default has no checksums and is `mcap_nocrc` here. A batch is a transaction of SQLite and a
/// write to LevelDB's log, as in the rivals' loops, but for names that end in `_own`: there the storage decides, as in a recording.
/// Each rival gives the same durability, and the `mcap` crate writes with the same options: a name of its own for each that differs.
const OURS: [(&str, &str, &str, &str, &str); 15] = [
    ("mcap_default", "mcap_crate", "mcap", "", ""),
    (
        "mcap_nochunking",
        "mcap_crate_nochunking",
        "mcap",
        "",
        "noChunking: true",
    ),
    (
        "mcap_uncompressed_crc",
        "mcap_crate",
        "mcap",
        "",
        "noChunkCRC: false\ncompression: None",
    ),
    (
        "mcap_compressed_nocrc",
        "mcap_crate_compressed_nocrc",
        "mcap",
        "",
        "noChunkCRC: true\ncompression: Zstd",
    ),
    (
        "mcap_nocrc",
        "mcap_crate_nocrc",
        "mcap",
        "",
        "noChunkCRC: true\nenableDataCRC: false",
    ),
    ("mcap_fastwrite", "mcap_crate_fastwrite", "mcap", "fastwrite", ""),
    ("mcap_zstd_fast", "mcap_crate_zstd_fast", "mcap", "zstd_fast", ""),
    (
        "mcap_zstd_small",
        "mcap_crate_zstd_small",
        "mcap",
        "zstd_small",
        "",
    ),
    ("sqlite_default", "sqlite_bare_default", "sqlite3", "", ""),
    ("sqlite_default_own", "sqlite_bare_default", "sqlite3", "", ""),
    (
        "sqlite_wal",
        "sqlite_bare_resilient",
        "sqlite3",
        "",
        "write:\n  pragmas: [\"journal_mode = WAL\", \"synchronous = NORMAL\"]",
    ),
    (
        "sqlite_resilient",
        "sqlite_bare_durable",
        "sqlite3",
        "resilient",
        "",
    ),
    (
        "sqlite_resilient_own",
        "sqlite_bare_durable",
        "sqlite3",
        "resilient",
        "",
    ),
    ("leveldb_default", LEVELDB_BARE, "leveldb", "", ""),
    ("leveldb_default_own", LEVELDB_BARE, "leveldb", "", ""),
];

/// Ends the names of configurations whose storage ends transactions by itself.
const OWN: &str = "_own";

/// When a configuration ends transactions. MCAP has none.
fn transactions_of(name: &str, storage_id: &str) -> Transactions {
    if storage_id == "mcap" || name.ends_with(OWN) {
        Transactions::Own
    } else {
        Transactions::EachBatch
    }
}

const LEVELDB_BARE: &str = "leveldb_bare";
const GENERATOR: &str = "generator";

/// Runs only when named: it takes far longer than all others together, or stores nothing.
const ON_REQUEST: [&str; 3] = ["mcap_zstd_small", "mcap_crate_zstd_small", GENERATOR];

fn all() -> impl Iterator<Item = StorageConfiguration> {
    let options = |preset: &str, config: &str| StorageOptions {
        preset: Some(preset.to_owned()).filter(|text| !text.is_empty()),
        config: Some(config.to_owned()).filter(|text| !text.is_empty()),
        ..StorageOptions::default()
    };
    let configuration = |name: &str, rival, writer| StorageConfiguration {
        name: name.to_owned(),
        rival,
        writer,
    };
    let ours = OURS.into_iter().map(move |(name, rival, id, preset, config)| {
        let transactions = transactions_of(name, id);
        let writer = Writer::Ours(id.to_owned(), options(preset, config), transactions);
        configuration(name, Some(rival), writer)
    });
    let crates = OURS
        .into_iter()
        .filter(|(_, rival, ..)| rival.starts_with("mcap_crate_"));
    let crates = crates.map(move |(_, rival, _, preset, config)| {
        let writer = Writer::Rival(Rival::McapCrate, options(preset, config));
        configuration(rival, None, writer)
    });
    let rivals = Rival::NAMES
        .into_iter()
        .map(move |(name, rival)| configuration(name, None, Writer::Rival(rival, StorageOptions::default())));
    ours.chain(crates).chain(rivals)
}

/// Configurations that cannot run on this machine, with the reason.
pub fn absent_configurations() -> Vec<(String, &'static str)> {
    all()
        .filter_map(|one| Some((one.name.clone(), one.absence()?)))
        .collect()
}

/// Everything that runs when no configuration is named.
pub fn default_configurations() -> Vec<StorageConfiguration> {
    all()
        .filter(|one| one.is_available() && !ON_REQUEST.contains(&one.name.as_str()))
        .collect()
}

impl FromStr for StorageConfiguration {
    type Err = BenchError;

    fn from_str(text: &str) -> BenchResult<Self> {
        let found = all().find(|one| one.name == text);
        if let Some(what_to_do) = found.as_ref().and_then(Self::absence) {
            return Err(BenchError::Absent {
                program: LEVELDB_BARE,
                what_to_do,
            });
        }
        found.filter(Self::is_available).ok_or_else(|| {
            let names: Vec<String> = all().map(|one| one.name).collect();
            BenchError::option("--configs", names.join(", "), text)
        })
    }
}

impl StorageConfiguration {
    /// The storage of a file of the storage plugin comparison, with its options.
    pub(super) fn of(config: &ComparisonConfig) -> Self {
        Self {
            name: config.storage_id.clone(),
            rival: None,
            writer: Writer::Ours(
                config.storage_id.clone(),
                config.options(),
                transactions_of("", &config.storage_id),
            ),
        }
    }

    fn is_available(&self) -> bool {
        let is_built = !matches!(&self.writer, Writer::Ours(id, ..) if storage_by_id(id).is_err());
        is_built && self.absence().is_none()
    }

    /// Why it cannot run on this machine.
    fn absence(&self) -> Option<&'static str> {
        match self.writer {
            Writer::Rival(rival, _) => rival.absence(),
            Writer::Ours(..) => None,
        }
    }

    /// Whether it can write to memory that discards.
    pub fn can_discard(&self) -> bool {
        match &self.writer {
            Writer::Ours(id, ..) => id == "mcap",
            Writer::Rival(rival, _) => rival.can_discard(),
        }
    }

    /// Whether anything is stored that can be read back.
    pub(super) fn is_stored(&self) -> bool {
        !matches!(self.writer, Writer::Rival(Rival::Discarding, _))
    }

    /// Extension of its files; empty for a directory.
    pub(super) fn extension(&self) -> &'static str {
        match &self.writer {
            Writer::Ours(id, ..) => {
                storage_by_id(id).map_or("mcap", |storage| storage.extension().unwrap_or_default())
            }
            Writer::Rival(rival, _) => rival.extension(),
        }
    }

    /// Begins a file at `path`; `reserve_bytes` is the reservation of a recorder with a split size.
    ///
    /// # Errors
    /// The error of the storage or the disk.
    pub(super) fn create(
        &self,
        path: &Path,
        channels: &[ChannelInfo],
        reserve_bytes: u64,
        disk: DiskChoice,
    ) -> BenchResult<Box<dyn RawWriter>> {
        match &self.writer {
            Writer::Rival(rival, options) => rival.create(path, channels, options, reserve_bytes, disk),
            Writer::Ours(id, options, transactions) => {
                let queue = disk.queue(path.parent().unwrap_or(Path::new(".")))?;
                let ours =
                    OurWriter::create(queue, path, reserve_bytes, channels, (id, options), *transactions)?;
                Ok(Box::new(ours))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rival_is_a_configuration() {
        for (name, rival, ..) in OURS {
            assert_eq!(all().filter(|one| one.name == rival).count(), 1, "{name}");
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
