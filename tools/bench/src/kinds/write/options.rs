//! Options of the kind `write`: candidates, load, and the recorder's settings.

use crate::{
    args::kinds::WriteArguments,
    candidate::{producers::OfferOptions, rival::Rival},
    error::{BenchError, BenchResult},
    kinds::size_mix,
    workload::{Load, Plan},
};
use holdall::{record::options::CacheOptions, writer::SplitOptions};
use holdall_io::{machine, main_memory::memory_bytes};
use holdall_program::settings::read_small_file;
use holdall_storage::{StorageOptions, storage_by_id};
use std::{fmt, str::FromStr};

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

/// A disk that is fast at first and slow later needs a long measurement; beyond this, length adds nothing.
const LIMIT_BYTES_MAX: u64 = 8_000_000_000;

/// Shorter measurements would be dominated by opening and syncing.
const LIMIT_BYTES_MIN: u64 = 16 << 20;

impl WriteArguments {
    pub(super) fn load(&self) -> BenchResult<Load> {
        let mix = size_mix("--size", &self.size)?;
        // Negative and endless rates are refused by the load itself; the conversion keeps within range.
        let paced = self.duration.zip(self.rate).map(|(duration, rate)| {
            let messages = (duration.as_secs_f64() * rate).round().max(0.0);
            ((messages * mix.mean_bytes()).ceil() as u64).saturating_mul(u64::from(self.producers))
        });
        let topics = self.topics;
        Ok(Load {
            content: self.shared.content()?,
            total_bytes: paced.unwrap_or(self.total),
            producers: self.producers,
            topics: topics.unwrap_or_else(|| Load::topics_min(&mix, self.producers)),
            rate_hz: self.rate,
            seed: self.shared.folder.seed,
            mix,
        })
    }

    /// Preset, configuration and compression threads of our storages.
    pub(super) fn storage_options(&self) -> BenchResult<StorageOptions> {
        let compression =
            |codec: &String| format!("compression: {}{}", codec[..1].to_uppercase(), &codec[1..]);
        let config = match &self.storage_config_file {
            None => self.compression.as_ref().map(compression),
            Some(path) => Some(read_small_file(path).map_err(|error| {
                let found = format!("{}: {error}", path.display());
                BenchError::option("--storage-config-file", "a file that can be read", found)
            })?),
        };
        Ok(StorageOptions {
            preset: Some(self.preset.clone()).filter(|preset| !preset.is_empty()),
            config,
            compression_threads: self.threads,
            ..StorageOptions::default()
        })
    }

    pub(super) fn cache(&self) -> CacheOptions {
        let by_memory = || CacheOptions::bytes_max_by_memory(memory_bytes(&machine::read), false);
        CacheOptions {
            bytes_max: in_memory(self.max_cache_size.unwrap_or_else(by_memory)),
            policy: self.cache_policy,
            ..CacheOptions::default()
        }
    }

    pub(super) fn split(&self) -> SplitOptions {
        SplitOptions {
            bytes_max: self.max_bag_size,
            files_max: self.max_bag_files,
            ..SplitOptions::default()
        }
    }

    pub(super) fn offer(&self) -> OfferOptions {
        OfferOptions {
            lossless: !self.drop && self.rate.is_none(),
            loan_bytes_min: in_memory(self.loan_from),
            fragment_bytes: self.fragment.map_or(usize::MAX, in_memory),
        }
    }

    /// Bytes of each measurement of the disk's limit.
    pub(super) fn limit_bytes(&self, plan: &Plan) -> u64 {
        let of_load = plan.load().total_bytes.clamp(LIMIT_BYTES_MIN, LIMIT_BYTES_MAX);
        self.shared.limit_total.unwrap_or(of_load)
    }

    /// An upper bound for the size of the load's bag on the disk, with records, indexes and reserved space.
    pub(super) fn bag_bytes_max(&self, plan: &Plan) -> u64 {
        // A message record takes 31 bytes and an index entry 16; databases less than twice that.
        let whole = plan.load().total_bytes + plan.message_count() * 100 + (256 << 20);
        match (self.max_bag_size, self.max_bag_files) {
            // Two more files may exist while one is opened ahead and one is being removed.
            (Some(file), Some(files)) => whole.min(file.saturating_mul(u64::from(files) + 3)),
            _ => whole,
        }
    }

    /// Bytes that must be free before anything is written.
    pub(super) fn space_bytes(&self, plan: &Plan) -> u64 {
        if self.shared.memory {
            return 0;
        }
        let (bag, limit) = (self.bag_bytes_max(plan), self.limit_bytes(plan));
        // Limits are measured while no bag exists, unless bags are kept.
        match self.shared.keep {
            true => limit + bag * u64::from(self.repeat) * self.storage.len() as u64,
            false => limit.max(bag),
        }
    }
}

/// Bytes of a flag as a length in memory.
fn in_memory(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{RunArguments, kinds::RunKind};

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

    fn arguments(line: &str) -> WriteArguments {
        let run = RunArguments::of(&format!("write --out DIR {line}")).unwrap();
        match run.kind {
            Some(RunKind::Write(write)) => *write,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_paced_run_is_as_long_as_it_should_be_and_may_drop() {
        let paced = arguments("--size 6220800 --producers 8 --rate 30 --duration 60");
        assert_eq!(paced.load().unwrap().total_bytes, 8 * 60 * 30 * 6_220_800);
        assert!(!paced.offer().lossless && arguments("").offer().lossless);
    }

    #[test]
    fn mixed_sizes_get_their_topics_and_codecs_their_configuration() {
        let mixed = arguments("--size mixed --producers 2 --compression zstd --threads 2");
        let storage = mixed.storage_options().unwrap();
        assert_eq!(
            (mixed.load().unwrap().topics, storage.compression_threads),
            (6, 2)
        );
        assert_eq!(storage.config.as_deref(), Some("compression: Zstd"));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (line, because) in [("--size tiny", "tiny"), ("--content noise", "noise")] {
            let refused = arguments(line).load().unwrap_err();
            assert!(
                refused.is_refusal() && refused.to_string().contains(because),
                "{refused}"
            );
        }
        assert!(RunArguments::of("write --duration 5 --out DIR").is_err());
        assert!(RunArguments::of("write").is_err());
    }
}
