//! Options of `bench write`: candidates, load, and the recorder's settings.

use crate::{
    candidate::producers::OfferOptions,
    error::{BenchError, BenchResult},
    workload::Load,
};
use holdall::{record::options::CacheOptions, writer::SplitOptions};
use holdall_io::os::DiskMode;
use holdall_storage::StorageOptions;
use std::{fmt, path::PathBuf, str::FromStr, time::Duration};

/// What can be measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteCandidate {
    /// The recorder with this storage.
    Ours(String),
    /// The same without a loss window: synced at the end only.
    OursUnsynced(String),
    /// The writer of the `mcap` crate, buffered.
    McapCrate,
    /// The yardstick: a plain loop that encodes MCAP into aligned blocks.
    Naive,
    /// A prepared-insert loop on SQLite; `true` with the write-ahead log.
    SqliteBare(bool),
    /// The real LevelDB, where it is installed.
    LeveldbBare,
}

/// Suffix of one of our storages' ids: without a loss window.
const UNSYNCED: &str = "+off";

impl WriteCandidate {
    /// Every name that [`FromStr`] accepts.
    pub const NAMES: &'static str = "mcap, sqlite3, leveldb, each with +off, naive, mcap-crate, sqlite-bare, sqlite-bare-resilient, leveldb-bare";
}

impl FromStr for WriteCandidate {
    type Err = BenchError;

    fn from_str(text: &str) -> BenchResult<Self> {
        match text {
            "mcap-crate" => Ok(Self::McapCrate),
            "naive" => Ok(Self::Naive),
            "sqlite-bare" => Ok(Self::SqliteBare(false)),
            "sqlite-bare-resilient" => Ok(Self::SqliteBare(true)),
            "leveldb-bare" => Ok(Self::LeveldbBare),
            id if holdall_storage::storage_by_id(id).is_ok() => Ok(Self::Ours(id.to_owned())),
            other
                if other
                    .strip_suffix(UNSYNCED)
                    .is_some_and(|id| holdall_storage::storage_by_id(id).is_ok()) =>
            {
                Ok(Self::OursUnsynced(other.trim_end_matches(UNSYNCED).to_owned()))
            }
            _ => Err(BenchError::Option {
                option: "--storage",
                expected: format!("one of {}", Self::NAMES),
                found: text.to_owned(),
            }),
        }
    }
}

impl fmt::Display for WriteCandidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Self::OursUnsynced(id) = self {
            return write!(f, "{id}{UNSYNCED}");
        }
        f.write_str(match self {
            Self::Ours(id) | Self::OursUnsynced(id) => id,
            Self::McapCrate => "mcap-crate",
            Self::Naive => "naive",
            Self::SqliteBare(false) => "sqlite-bare",
            Self::SqliteBare(true) => "sqlite-bare-resilient",
            Self::LeveldbBare => "leveldb-bare",
        })
    }
}

/// Options of `bench write`.
#[derive(Clone, Debug)]
pub struct WriteOptions {
    /// What is offered.
    pub load: Load,
    /// The candidates, interleaved; the result is about the first, the others are compared with it.
    pub candidates: Vec<WriteCandidate>,
    /// Preset, configuration and threads of our storage.
    pub storage: StorageOptions,
    /// The cache of the recorder.
    pub cache: CacheOptions,
    /// When to begin a new file.
    pub split: SplitOptions,
    /// What a power cut may lose at most from the recorder; `None` syncs at the end only.
    pub max_loss_window: Option<Duration>,
    /// How files are written.
    pub disk_mode: DiskMode,
    /// Write to memory that discards: the speed of everything but the disk. Limits are then memory's.
    pub discard: bool,
    /// How messages are offered.
    pub offer: OfferOptions,
    /// How often each candidate runs.
    pub repeat: u32,
    /// The folder for files and results.
    pub out: PathBuf,
    /// Keep the bags.
    pub keep: bool,
    /// Read back the output, once for each candidate.
    pub verify: bool,
    /// Bytes of each measurement of the disk's limit; by default those of the load, at most 8 GB.
    pub limit_bytes: Option<u64>,
}

/// A disk that is fast at first and slow later needs a long measurement; beyond this, length adds nothing.
const LIMIT_BYTES_MAX: u64 = 8_000_000_000;

/// Shorter measurements would be dominated by opening and syncing.
const LIMIT_BYTES_MIN: u64 = 16 << 20;

impl WriteOptions {
    /// Bytes of each measurement of the disk's limit.
    pub fn limit_bytes(&self) -> u64 {
        self.limit_bytes
            .unwrap_or(self.load.total_bytes.clamp(LIMIT_BYTES_MIN, LIMIT_BYTES_MAX))
    }

    /// An upper bound for the size of the load's bag on the disk, with records, indexes and reserved space.
    pub(crate) fn bag_bytes_max(&self, message_count: u64) -> u64 {
        // A message record takes 31 bytes and an index entry 16; databases less than twice that.
        let whole = self.load.total_bytes + message_count * 100 + (256 << 20);
        match (self.split.bytes_max, self.split.files_max) {
            // Two more files may exist while one is opened ahead and one is being removed.
            (Some(file), Some(files)) => whole.min(file.saturating_mul(u64::from(files) + 3)),
            _ => whole,
        }
    }

    /// Bytes that must be free before anything is written.
    pub(crate) fn space_bytes(&self, message_count: u64) -> u64 {
        if self.discard {
            return 0;
        }
        let bag = self.bag_bytes_max(message_count);
        let bags = if self.keep {
            u64::from(self.repeat) * self.candidates.len() as u64
        } else {
            1
        };
        // Limits are measured while no bag exists, unless bags are kept.
        let kept = if self.keep { bag * bags } else { 0 };
        (kept + self.limit_bytes()).max(bag * bags)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn candidates_parse_what_they_display() {
        for name in [
            "mcap",
            "mcap+off",
            "naive",
            "mcap-crate",
            "sqlite-bare",
            "sqlite-bare-resilient",
            "leveldb-bare",
            "leveldb+off",
        ] {
            assert_eq!(name.parse::<WriteCandidate>().unwrap().to_string(), name);
        }
        let refused = "tape".parse::<WriteCandidate>().unwrap_err();
        assert!(
            refused.is_refusal() && refused.to_string().contains("tape"),
            "{refused}"
        );
    }
}
