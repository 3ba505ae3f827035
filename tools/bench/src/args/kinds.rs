//! The arguments of the kinds of `holdall bench run` that have flags instead of an experiment file.

use crate::{
    candidate::ours::DiskChoice,
    error::{BenchError, BenchResult},
    workload::content::{CONTENTS, Content},
};
use clap::{Args, Subcommand};
use holdall::record::options::CachePolicy;
use holdall_io::os::DiskMode;
use holdall_program::{
    names::{CACHE_POLICIES, DISK_MODES, one_of},
    units::{parse_bytes, parse_seconds},
};
use std::{
    env,
    path::{Path, PathBuf},
    time::Duration,
};

const WRITE_EXAMPLES: &str = "\
Examples:
  holdall bench run write --size 1MiB --total 8GB --out /data/bench      the recorder against the disk's own limit
  holdall bench run write --size 6220800 --producers 8 --rate 30 --duration 60 --out /data/bench
                                                                         eight cameras at 30 Hz for a minute
  holdall bench run write --size mixed --storage mcap,mcap-crate,naive --repeat 5 --out /data/bench";

const STORAGE_EXAMPLES: &str = "\
Examples:
  holdall bench run storage --out /data/bench                            everything, one table for each size
  holdall bench run storage --config mixed.yaml --csv --out /data/bench  a file of the storage plugin comparison, unchanged";

/// Kinds of experiments that take flags.
#[derive(Clone, Debug, Subcommand)]
pub enum RunKind {
    /// Producers, cache, drain and storage, as fast as possible or paced, against the limits of this machine
    #[command(after_help = WRITE_EXAMPLES)]
    Write(Box<WriteArguments>),
    /// Storages alone: message sizes, batches and configurations of the storage plugin comparison, or one of its files
    #[command(after_help = STORAGE_EXAMPLES)]
    Storage(Box<StorageArguments>),
    /// Work on whole bags: merge, split, filter, convert, check and reindex, compared with cp, a plain read, the mcap crate and pip packages
    Tools(ToolsArguments),
}

impl RunKind {
    /// The folder for files and results.
    pub fn out(&self) -> &Path {
        match self {
            Self::Write(args) => &args.shared.folder.out,
            Self::Storage(args) => &args.shared.folder.out,
            Self::Tools(args) => &args.folder.out,
        }
    }
}

/// Flags of all kinds.
#[derive(Args, Clone, Debug)]
pub struct FolderArguments {
    /// Folder for files and results: empty, new, or with results of earlier runs only
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,

    /// Continue after the last finished round of an interrupted run
    #[arg(long)]
    pub resume: bool,

    /// Print one JSON object instead of a table (it is stored in the folder in any case)
    #[arg(long)]
    pub json: bool,

    /// Same seed, same payloads
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,

    #[arg(skip = command_line())]
    #[allow(missing_docs)]
    pub command: String,
}

/// The command line with another name for the folder, which is of no interest to others.
fn command_line() -> String {
    let mut words = vec!["holdall bench".to_owned()];
    for word in env::args().skip(1) {
        words.push(match words.last().map(String::as_str) {
            Some("--out") => "DIR".to_owned(),
            _ if word.starts_with("--out=") => "--out=DIR".to_owned(),
            _ => word,
        });
    }
    words.join(" ")
}

/// All flags of `holdall bench run tools`.
#[derive(Args, Clone, Debug)]
pub struct ToolsArguments {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub folder: FolderArguments,

    /// Length of each of the two inputs
    #[arg(long, value_name = "BYTES", default_value = "1GB", value_parser = parse_bytes)]
    pub size: u64,

    /// Rounds
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub repeat: u32,

    /// Leave the inputs in the page cache
    #[arg(long)]
    pub warm: bool,

    /// Python with pip mcap and rosbags
    #[arg(long, value_name = "FILE", default_value = "python3")]
    pub python: PathBuf,
}

/// Flags of both benchmarks.
#[derive(Args, Clone, Debug)]
pub struct SharedArguments {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub folder: FolderArguments,

    /// Keep what was written
    #[arg(long)]
    pub keep: bool,

    /// Do not read back what was written
    #[arg(long)]
    pub no_verify: bool,

    /// How files are written
    #[arg(long, value_name = "MODE", default_value = "auto", value_parser = one_of(DISK_MODES))]
    pub disk_mode: DiskMode,

    /// Write to memory that forgets: the speed of everything but the disk
    #[arg(long, conflicts_with_all = ["disk_mode", "keep"])]
    pub memory: bool,

    /// What payloads consist of: random, image, pointcloud, text, or an entropy from 0 to 8 bit per byte
    #[arg(long, value_name = "KIND", default_value = "random")]
    content: String,

    /// How much each measurement of the disk's own limit writes [default: what a run writes, at most 8 GB]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub limit_total: Option<u64>,
}

impl SharedArguments {
    /// The destination of the bytes.
    pub(crate) fn disk(&self) -> DiskChoice {
        match self.memory {
            true => DiskChoice::Discard,
            false => DiskChoice::Os(self.disk_mode),
        }
    }

    /// `auto`, `direct`, `buffered` or `memory`.
    pub(crate) fn disk_name(&self) -> String {
        match self.disk() {
            DiskChoice::Os(mode) => format!("{mode:?}").to_lowercase(),
            DiskChoice::Discard => "memory".to_owned(),
        }
    }

    /// The content of payloads.
    ///
    /// # Errors
    /// A text that names none.
    pub(crate) fn content(&self) -> BenchResult<Content> {
        let parsed = self.content.parse();
        parsed.map_err(|_: String| BenchError::option("--content", CONTENTS, &*self.content))
    }
}

/// All flags of `holdall bench run write`.
#[derive(Args, Clone, Debug)]
pub struct WriteArguments {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub shared: SharedArguments,

    /// Size of each message, or `mixed`: 70 % of the bytes in messages of 1 MB, 20 % in 10 kB, 10 % in 100 B
    #[arg(long, value_name = "SIZE", default_value = "1MiB")]
    pub size: String,

    /// Payload bytes of one run, all producers together
    #[arg(long, value_name = "BYTES", default_value = "8GB", value_parser = parse_bytes)]
    pub total: u64,

    /// Length of a paced run instead of its bytes, in seconds
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds, requires = "rate", conflicts_with = "total")]
    pub duration: Option<Duration>,

    /// Messages a second of each producer [default: as fast as there is room]
    #[arg(long, value_name = "HZ")]
    pub rate: Option<f64>,

    /// Drop when the cache is full instead of waiting for room; a paced run always does
    #[arg(long)]
    pub drop: bool,

    /// Threads that offer messages
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub producers: u32,

    /// Topics [default: one for each producer and size]
    #[arg(long, value_name = "N")]
    pub topics: Option<u32>,

    /// The storages, which take turns: mcap, sqlite3, leveldb, each with +off for no loss window, naive, mcap-crate,
    /// sqlite-bare, sqlite-bare-resilient, leveldb-bare (the real LevelDB, where libleveldb is installed)
    #[arg(
        long,
        short = 's',
        value_name = "NAME,...",
        value_delimiter = ',',
        default_value = holdall_storage::DEFAULT_STORAGE_ID
    )]
    pub storage: Vec<String>,

    /// Preset of the storage (mcap: fastwrite, zstd_fast, zstd_small; sqlite3: resilient)
    #[arg(long, value_name = "NAME", default_value = "")]
    pub preset: String,

    /// Configuration file of the storage
    #[arg(long, value_name = "FILE")]
    pub storage_config_file: Option<PathBuf>,

    /// Compress chunks with this codec: lz4 or zstd
    #[arg(long, value_name = "CODEC", value_parser = ["lz4", "zstd"], conflicts_with = "storage_config_file")]
    pub compression: Option<String>,

    /// Worker threads for compression
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub threads: usize,

    /// What the cache may hold [default: as `holdall record`, by the memory of this machine]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub max_cache_size: Option<u64>,

    /// Policy for a full cache
    #[arg(long, value_name = "POLICY", default_value = "fair", value_parser = one_of(CACHE_POLICIES))]
    pub cache_policy: CachePolicy,

    /// Continue in a new file at this many bytes
    #[arg(short = 'b', long, value_name = "BYTES", value_parser = parse_bytes)]
    pub max_bag_size: Option<u64>,

    /// Keep only this many newest files
    #[arg(long, value_name = "N", requires = "max_bag_size")]
    pub max_bag_files: Option<u32>,

    /// Sync so often that a power cut loses at most the last S seconds; 0 syncs at the end only
    #[arg(long, value_name = "S", default_value = "2", value_parser = parse_seconds)]
    pub max_loss_window: Duration,

    /// Offer payloads of this size or more as loans, as transports do
    #[arg(long, value_name = "BYTES", default_value = "64KiB", value_parser = parse_bytes)]
    pub loan_from: u64,

    /// Loans come in pieces of this many bytes, as DDS fragments do [default: in one piece]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub fragment: Option<u64>,

    /// Runs of each candidate; 3 or more give intervals
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub repeat: u32,
}

/// All flags of `holdall bench run storage`.
#[derive(Args, Clone, Debug)]
pub struct StorageArguments {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub shared: SharedArguments,

    /// A configuration of the storage plugin comparison (storage_id, min_batch_size_bytes, write_total_bytes, topics,
    /// storage_options): what its program `single_benchmark` does, CSV included, with close and sync in the rate
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["sizes", "batches", "configs", "total", "memory"]
    )]
    pub config: Option<PathBuf>,

    /// With --config: print the CSV of the first run (sqc, num_bytes, num_msgs, write_ns, close_ns) instead of a table
    #[arg(long, requires = "config", conflicts_with = "json")]
    pub csv: bool,

    /// Message sizes
    #[arg(
        long,
        value_name = "SIZE,...",
        value_delimiter = ',',
        default_value = "1MiB,10KiB,100B,mixed"
    )]
    pub sizes: Vec<String>,

    /// Bytes to collect for one call
    #[arg(long, value_name = "BYTES,...", value_delimiter = ',', default_value = "1KiB,10MiB", value_parser = parse_bytes)]
    pub batches: Vec<u64>,

    /// Configurations by name [default: all but mcap_zstd_small and generator]
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    pub configs: Vec<String>,

    /// Payload bytes of one run
    #[arg(long, value_name = "BYTES", default_value = "250MiB", value_parser = parse_bytes)]
    pub total: u64,

    /// Rounds
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub repeat: u32,
}
