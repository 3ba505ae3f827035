//! Options of the kind `write`: candidates, load, and the recorder's settings.

use crate::{
    candidate::{ours::DiskChoice, producers::OfferOptions, rival::Rival},
    engine::Common,
    error::{BenchError, BenchResult},
    workload::Load,
};
use holdall::{record::options::CacheOptions, writer::SplitOptions};
use holdall_storage::{StorageOptions, storage_by_id};
use std::{fmt, str::FromStr, time::Duration};

/// The candidates that can be measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteCandidate {
    /// The recorder with one of our storages.
    Ours {
        /// The storage.
        id: String,
        /// Whether it runs with a loss window; otherwise it syncs at the end only.
        is_synced: bool,
        /// Its files are encrypted.
        is_encrypted: bool,
    },
    /// Another storage, to which producers hand batches without a cache.
    Rival(Rival),
}

/// Suffix of one of our storages' ids: without a loss window.
const UNSYNCED: &str = "+off";
/// Suffix of the id of a storage that is written through blocks: encrypted.
const ENCRYPTED: &str = "+encrypted";

/// The name of a rival in this kind.
fn name_of(rival: Rival) -> String {
    rival.name().replace('_', "-").replace("-default", "")
}

/// Rivals that store.
fn rivals() -> impl Iterator<Item = Rival> {
    let all = Rival::NAMES.into_iter().map(|(_, rival)| rival);
    all.filter(|rival| *rival != Rival::Discarding)
}

impl FromStr for WriteCandidate {
    type Err = BenchError;

    fn from_str(text: &str) -> BenchResult<Self> {
        if let Some(rival) = rivals().find(|rival| name_of(*rival) == text) {
            return Ok(Self::Rival(rival));
        }
        let (id, is_synced) = text.strip_suffix(UNSYNCED).map_or((text, true), |id| (id, false));
        let (id, is_encrypted) = id.strip_suffix(ENCRYPTED).map_or((id, false), |id| (id, true));
        if storage_by_id(id).is_ok_and(|storage| storage.writes_blocks() || !is_encrypted) {
            return Ok(Self::Ours {
                id: id.to_owned(),
                is_synced,
                is_encrypted,
            });
        }
        let rivals = rivals().map(name_of).collect::<Vec<_>>().join(", ");
        let expected =
            format!("one of mcap, sqlite3, leveldb, each with {UNSYNCED}, mcap{ENCRYPTED}, {rivals}");
        Err(BenchError::option("--storage", expected, text))
    }
}

impl fmt::Display for WriteCandidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ours {
                id,
                is_synced,
                is_encrypted,
            } => {
                f.write_str(id)?;
                f.write_str(if *is_encrypted { ENCRYPTED } else { "" })?;
                f.write_str(if *is_synced { "" } else { UNSYNCED })
            }
            Self::Rival(rival) => f.write_str(&name_of(*rival)),
        }
    }
}

/// Everything that the kind needs to know.
#[derive(Clone, Debug)]
pub struct WriteOptions {
    /// The options of every kind.
    pub common: Common,
    /// The load offered.
    pub load: Load,
    /// Candidates; the first is the subject, the others are compared with it.
    pub candidates: Vec<WriteCandidate>,
    /// Preset, configuration and compression threads of our storages.
    pub storage: StorageOptions,
    /// The cache of the recorder.
    pub cache: CacheOptions,
    /// When to begin a new file.
    pub split: SplitOptions,
    /// The longest time of messages that a power cut may lose from the recorder; `None` syncs at the end only.
    pub max_loss_window: Option<Duration>,
    /// How messages are offered.
    pub offer: OfferOptions,
}

/// A disk that is fast at first and slow later needs a long measurement; beyond this, length adds nothing.
const LIMIT_BYTES_MAX: u64 = 8_000_000_000;

/// Shorter measurements would be dominated by opening and syncing.
const LIMIT_BYTES_MIN: u64 = 16 << 20;

impl WriteOptions {
    /// Bytes of each measurement of the disk's limit.
    pub(crate) fn limit_bytes(&self) -> u64 {
        self.common
            .limit_bytes
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
        if self.common.disk == DiskChoice::Discard {
            return 0;
        }
        let bag = self.bag_bytes_max(message_count);
        let bags = if self.common.keep {
            u64::from(self.common.repeat) * self.candidates.len() as u64
        } else {
            1
        };
        // Limits are measured while no bag exists, unless bags are kept.
        let kept = if self.common.keep { bag * bags } else { 0 };
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
            "mcap+encrypted",
            "mcap+encrypted+off",
        ] {
            assert_eq!(name.parse::<WriteCandidate>().unwrap().to_string(), name);
        }
        assert!("sqlite3+encrypted".parse::<WriteCandidate>().is_err());
        let refused = "tape".parse::<WriteCandidate>().unwrap_err();
        assert!(
            refused.is_refusal() && refused.to_string().contains("tape"),
            "{refused}"
        );
    }
}
