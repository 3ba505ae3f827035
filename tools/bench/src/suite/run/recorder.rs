//! One run: the load through one recorder into one bag, measured.

use super::{affinity::Pinned, bare, folder_bytes};
use crate::{
    candidate::{
        buffered::StoredCounts,
        metered::{DiskResult, SharedDiskCounts, counted},
        ours::DiskChoice,
        pipeline::{Pipeline, PipelineOptions},
        producers::OfferOptions,
    },
    error::{BenchError, BenchResult},
    measure::{CoreSampler, LatencySummary, SchedulingProbe, UsageMeter, written_bytes},
    suite::{
        config::{BenchmarkConfig, ProducerConfig, RecorderKind, Setting, Transport},
        load::{Publishers, Sent, channels, generate},
        result::{Cost, RunResult, TopicResult},
    },
};
use holdall::{
    internals::DEFAULT_LOSS_WINDOW,
    record::options::CacheOptions,
    writer::{CompressionMode, CompressionOptions, SplitOptions},
};
use holdall_io::{clock::Clock, os::DiskMode};
use holdall_model::loss::LossStage;
use holdall_transport::Sink;
use std::{collections::BTreeMap, fs, num::NonZeroU32, path::Path, sync::Arc};

/// The bag's folder within that of its run.
pub const BAG: &str = "bag";

/// Everything that a run needs.
pub struct Run<'a> {
    /// The load.
    pub producers: &'a ProducerConfig,
    /// The benchmark as configured.
    pub benchmark: &'a BenchmarkConfig,
    /// The setting.
    pub setting: &'a Setting,
    /// Folder in which the bag is made, as [`BAG`].
    pub folder: &'a Path,
    /// Its repetition, from 0.
    pub repetition: u32,
    /// Threads that publish.
    pub threads: u32,
    /// The clock.
    pub clock: &'a Arc<dyn Clock>,
}

/// Recorded and lost messages by topic.
struct Stored {
    recorded: Vec<u64>,
    lost: Vec<BTreeMap<LossStage, u64>>,
    splits: u64,
    write: Option<LatencySummary>,
    disk: Option<DiskResult>,
}

impl Run<'_> {
    /// Sends, records, closes, and returns the figures; the caller sets experiment, case, repetition and
    /// limits.
    ///
    /// # Errors
    /// A failed disk or storage; settings that do not exist.
    pub fn run(&self) -> BenchResult<RunResult> {
        let bag = self.folder.join(BAG);
        let publishers = Publishers::new(self.producers, u64::from(self.repetition) + 1)?;
        // Leftovers of an interrupted run.
        crate::folder::remove(&bag)?;
        // Every thread of the recorder inherits this; the producers' threads set their own.
        let _pinned = Pinned::to("recorder_cpu_affinity", &self.benchmark.recorder_cpu_affinity)?;
        let probe =
            SchedulingProbe::start(Arc::clone(self.clock)).map_err(|source| BenchError::Thread { source })?;
        let cores = CoreSampler::start(Arc::clone(self.clock))?;
        let meter = UsageMeter::start(self.clock.as_ref());
        let written_before = written_bytes("self");
        let (sent, stored) = match self.setting.recorder {
            RecorderKind::Holdall => self.through_cache(&bag, &publishers)?,
            _ => self.through_buffer(&bag, &publishers)?,
        };
        let usage = meter.stop();
        let written = written_bytes("self").zip(written_before);
        let (woken, probe_cpu) = probe.stop();
        let mut result = self.figures(&publishers, &sent, &stored);
        let other_cpu_s = sent.cpu.as_secs_f64() + probe_cpu.as_secs_f64();
        let close_s = (usage.elapsed_s - sent.elapsed.as_secs_f64()).max(0.0);
        result.set_times(usage.elapsed_s, close_s);
        let written = written.map(|(after, before)| after.saturating_sub(before));
        result.cost = Cost {
            recorder_cpu_s: (usage.cpu_s - other_cpu_s).max(0.0),
            producer_cpu_s: sent.cpu.as_secs_f64(),
            rss_max_bytes: usage.rss_max_bytes,
            generator_bytes: publishers.corpus_bytes(),
            bag_bytes: folder_bytes(&bag),
            written_bytes: written.filter(|bytes| *bytes > 0),
            splits: stored.splits,
        };
        result.around.wake_up = woken.summary();
        result.around.cores = cores.stop();
        Ok(result)
    }

    fn through_cache(&self, bag: &Path, publishers: &Publishers) -> BenchResult<(Sent, Stored)> {
        let counts = SharedDiskCounts::default();
        let options = PipelineOptions {
            storage_id: self.setting.storage_id.clone(),
            storage: self.setting.storage_options()?,
            cache: CacheOptions {
                bytes_max: usize::try_from(self.setting.max_cache_size_bytes).unwrap_or(usize::MAX),
                ..CacheOptions::default()
            },
            split: SplitOptions {
                bytes_max: self.setting.max_bag_size_bytes,
                ..SplitOptions::default()
            },
            compression: self.compression(),
            meter: Some(Arc::clone(&counts)),
            max_loss_window: Some(DEFAULT_LOSS_WINDOW),
            disk: DiskChoice::Os(DiskMode::Auto),
            seal: None,
            offer: OfferOptions::default(),
        };
        let pipeline = Pipeline::new(&channels(self.producers)?, bag, &options, Arc::clone(self.clock))?;
        let sent = self.send(publishers, pipeline.sinks())?;
        let closed = pipeline.close(self.clock.as_ref())?;
        let stored = Stored {
            recorded: closed.topics.iter().map(|topic| topic.recorded).collect(),
            lost: closed.topics.into_iter().map(|topic| topic.missing).collect(),
            splits: closed.splits,
            write: None,
            // SQLite and LevelDB also write files outside the queue.
            disk: (self.setting.storage_id == "mcap").then(|| counted(&counts)),
        };
        Ok((sent, stored))
    }

    /// rosbag2's own compression, by message as in its launch file.
    fn compression(&self) -> CompressionOptions {
        if self.setting.compression.is_none() {
            return CompressionOptions::default();
        }
        let threads = usize::try_from(self.setting.compression_threads).unwrap_or(usize::MAX);
        CompressionOptions {
            mode: CompressionMode::Message,
            queue_max: NonZeroU32::new(self.setting.compression_queue_size),
            threads: (threads > 0).then_some(threads),
            threads_nice: 0,
        }
    }

    fn through_buffer(&self, bag: &Path, publishers: &Publishers) -> BenchResult<(Sent, Stored)> {
        fs::create_dir_all(bag).map_err(BenchError::io("create", bag))?;
        let buffer = bare::start(self.setting, bag, &channels(self.producers)?, self.clock)?;
        let sent = self.send(publishers, buffer.sinks())?;
        let StoredCounts { stored, lost, writes } = buffer.close()?;
        let stage = match self.setting.recorder {
            // Its only queues are the subscriptions'.
            RecorderKind::Synchronous => LossStage::Transport,
            _ => LossStage::Cache,
        };
        let by_stage = |count: u64| (count > 0).then_some((stage, count)).into_iter().collect();
        let stored = Stored {
            recorded: stored,
            lost: lost.into_iter().map(by_stage).collect(),
            splits: 0,
            write: writes.summary(),
            disk: None,
        };
        Ok((sent, stored))
    }

    fn send(&self, publishers: &Publishers, sinks: &[Arc<dyn Sink>]) -> BenchResult<Sent> {
        let _pinned = Pinned::to("producers_cpu_affinity", &self.benchmark.producers_cpu_affinity)?;
        generate(publishers, sinks, self.threads, true, self.clock.as_ref())
    }

    fn figures(&self, publishers: &Publishers, sent: &Sent, stored: &Stored) -> RunResult {
        let mut result = RunResult::new(Transport::None, self.setting, self.producers);
        for (index, publisher) in publishers.publishers.iter().enumerate() {
            let message_bytes = publishers.groups[publisher.group].frame.message_bytes() as u64;
            let topic = TopicResult {
                topic: publisher.topic.clone(),
                sent: sent.messages[index],
                recorded: stored.recorded[index],
                lost: stored.lost[index].clone(),
            };
            result.counts.add(publisher.group, message_bytes, topic);
        }
        result.times.sending_s = sent.elapsed.as_secs_f64();
        result.work.offer = sent.offers.summary();
        result.work.write = stored.write;
        result.work.disk = stored.disk;
        result.around.lateness = sent.lateness.summary();
        result
    }
}
