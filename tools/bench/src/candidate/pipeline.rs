//! The recorder without a transport: producers, intakes, cache, drain, bag writer and disk, as a recording
//! puts them together.

use super::{
    metered::SharedDiskCounts,
    ours::DiskChoice,
    producers::{OfferOptions, Produced, produce},
};
use crate::{
    error::{BenchError, BenchResult},
    workload::Plan,
};
use holdall::{
    internals::{
        BagOptions, BagWriter, Drain, DrainCommand, DrainOptions, DrainShared, DrainThread, Gate, Intake,
        SharedCache,
    },
    record::options::CacheOptions,
    writer::{CompressionOptions, OsFolder, SplitOptions},
};
use holdall_io::{clock::Clock, mutex::lock, sealed::Seal};
use holdall_model::loss::{
    LossStage,
    ledger::{Ledger, TopicAccount},
};
use holdall_storage::{StorageOptions, storage_by_id, writer::ChannelInfo};
use holdall_transport::Sink;
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Duration,
};

/// Settings of the recorder.
#[derive(Clone, Debug)]
pub struct PipelineOptions {
    /// Storage backend.
    pub storage_id: String,
    /// Its preset, configuration and threads.
    pub storage: StorageOptions,
    /// The cache of messages.
    pub cache: CacheOptions,
    /// When to begin a new file.
    pub split: SplitOptions,
    /// The longest time of messages that a power cut may lose; `None` syncs at the end only.
    pub max_loss_window: Option<Duration>,
    /// rosbag2's own compression.
    pub compression: CompressionOptions,
    /// The destination of the bytes.
    pub disk: DiskChoice,
    /// Encrypts the bag.
    pub seal: Option<Seal>,
    /// Counts the disk's operations.
    pub meter: Option<SharedDiskCounts>,
    /// How messages are offered.
    pub offer: OfferOptions,
}

/// The result of a run through the recorder.
#[derive(Clone, Debug, Default)]
pub struct Recorded {
    /// The producers' counts.
    pub produced: Produced,
    /// Messages in the bag.
    pub stored: u64,
    /// Messages lost.
    pub lost: u64,
    /// The account of each topic, in the order of the channels; empty for candidates without accounts.
    pub topics: Vec<TopicAccount>,
    /// Lost messages by stage.
    pub lost_by_stage: BTreeMap<LossStage, u64>,
    /// Storage files in order.
    pub files: Vec<PathBuf>,
    /// Files begun after the first.
    pub splits: u64,
}

/// A recorder that is ready.
pub struct Pipeline {
    cache: Arc<SharedCache>,
    ledger: Arc<Mutex<Ledger>>,
    intakes: Vec<Arc<Intake>>,
    sinks: Vec<Arc<dyn Sink>>,
    shared: Arc<DrainShared>,
    drain: DrainThread,
    offer: OfferOptions,
    /// False on a disk that discards: the bag then has no files to list.
    keeps_files: bool,
}

impl Pipeline {
    /// Makes the bag directory and everything that these topics need.
    ///
    /// # Errors
    /// A directory that exists, options that are not valid, a failed disk, no thread.
    pub fn new(
        channels: &[ChannelInfo],
        directory: &Path,
        options: &PipelineOptions,
        clock: Arc<dyn Clock>,
    ) -> BenchResult<Self> {
        let disk = options.disk;
        let meter = options
            .meter
            .as_ref()
            .map(|counts| (Arc::clone(counts), Arc::clone(&clock)));
        let mut storage_options = options.storage.clone();
        storage_options.index_checkpoints = options.max_loss_window.is_some();
        let bag = BagOptions {
            directory: directory.to_owned(),
            storage: storage_by_id(&options.storage_id)?,
            storage_options,
            split: options.split.clone(),
            compression: options.compression.clone(),
            custom_data: BTreeMap::new(),
            ros_distro: None,
            memory: None,
        };
        let seal = options.seal.clone();
        let folder = seal.clone().map_or_else(OsFolder::default, OsFolder::sealed);
        let bag = BagWriter::create(
            bag,
            Box::new(move |folder| match (&meter, seal) {
                (Some((counts, clock)), _) => disk.metered_queue(folder, counts, clock),
                (None, Some(seal)) => disk.sealed_queue(folder, seal),
                (None, None) => disk.queue(folder),
            }),
            Box::new(folder),
        )
        .map_err(recorder_failed)?;
        let ledger = Arc::new(Mutex::new(Ledger::new()));
        // Messages dropped after they were accepted are counted by the code that evicts them; no policy here
        // evicts.
        let cache = Arc::new(SharedCache::new(&options.cache, Box::new(|_| {})));
        let gate = Arc::new(Gate::new(false, false));
        let shared = Arc::new(DrainShared::default());
        let drain_options = DrainOptions {
            max_loss_window: options.max_loss_window,
            ..DrainOptions::default()
        };
        let mut drain = Drain::new(
            bag,
            Arc::clone(&cache),
            Arc::clone(&ledger),
            Arc::clone(&shared),
            drain_options,
        );
        let (mut intakes, mut sinks) = (Vec::new(), Vec::new());
        for channel in channels {
            let id = lock(&ledger).add_topic(&channel.topic.name);
            if !shared.has_room() {
                drain.step(None, clock.monotonic());
            }
            shared.command(DrainCommand::AddTopic {
                topic: id,
                info: channel.topic.clone(),
                definition: Some(channel.definition.clone()),
            });
            let intake = Arc::new(Intake::new(
                id,
                Arc::clone(&cache),
                Arc::clone(&ledger),
                Arc::clone(&gate),
            ));
            sinks.push(intake.sink(0));
            intakes.push(intake);
        }
        let drain = DrainThread::spawn(drain, clock).map_err(|source| BenchError::Thread { source })?;
        let keeps_files = disk != DiskChoice::Discard;
        Ok(Self {
            cache,
            ledger,
            intakes,
            sinks,
            shared,
            drain,
            offer: options.offer,
            keeps_files,
        })
    }

    /// Offers everything in `plan` and closes the bag; returns when all of it is durable.
    ///
    /// # Errors
    /// A failed disk or storage; accounts that do not add up.
    pub fn run(self, plan: &Plan, clock: &dyn Clock) -> BenchResult<Recorded> {
        let produced = produce(plan, &self.sinks, &self.cache, clock, self.offer)?;
        let recorded = self.close(clock)?;
        Ok(Recorded { produced, ..recorded })
    }

    /// The sinks of the topics, in the order of the channels.
    pub fn sinks(&self) -> &[Arc<dyn Sink>] {
        &self.sinks
    }

    /// Stores the content of the cache and closes the bag; returns when all of it is durable.
    ///
    /// # Errors
    /// A failed disk or storage; accounts that do not add up.
    pub fn close(self, clock: &dyn Clock) -> BenchResult<Recorded> {
        self.cache.close();
        let drain = self
            .drain
            .join()
            .ok_or_else(|| recorder_failed("the drain panicked"))?;
        self.intakes.iter().for_each(|intake| intake.close());
        let splits = self.shared.status().splits;
        let closed = drain.close(clock);
        if let Some(failure) = closed.failure {
            return Err(recorder_failed(failure));
        }
        let ledger = lock(&self.ledger);
        if let Some(fault) = ledger.audit().first() {
            return Err(recorder_failed(format!(
                "the loss ledger does not add up: {fault}"
            )));
        }
        let mut lost_by_stage = BTreeMap::new();
        for topic in &ledger.topics {
            topic
                .missing
                .iter()
                .for_each(|(stage, count)| *lost_by_stage.entry(*stage).or_insert(0) += count);
        }
        let files = if self.keeps_files {
            closed.files
        } else {
            Vec::new()
        };
        Ok(Recorded {
            produced: Produced::default(),
            topics: ledger.topics.clone(),
            stored: ledger.recorded(),
            lost: ledger.lost(),
            lost_by_stage,
            files,
            splits,
        })
    }
}

/// Wraps the recorder's error, which users read as one clause.
fn recorder_failed(reason: impl ToString) -> BenchError {
    BenchError::Recorder {
        reason: reason.to_string(),
    }
}
