//! One run: the load through one recorder into one bag, measured.

use super::{affinity::Pinned, is_resilient};
use crate::{
    candidate::{
        RawWriter,
        mcap_crate::{McapCrateOptions, McapCrateWriter},
        ours::DiskChoice,
        pipeline::{Pipeline, PipelineOptions},
        producers::OfferOptions,
        sqlite_bare::{SqliteBareWriter, SqlitePreset},
        synchronous::Synchronous,
    },
    error::{BenchError, BenchResult},
    measure::{CoreSampler, SchedulingProbe, UsageMeter},
    suite::{
        config::{BenchmarkConfig, ProducerConfig, RecorderKind, Setting, Transport},
        load::{Publishers, Sent, generate},
        result::{GroupResult, RunLimits, RunResult},
    },
};
use holdall::record::{
    durability::DEFAULT_LOSS_WINDOW,
    options::{CacheOptions, SplitOptions},
};
use holdall_io::{clock::Clock, os::DiskMode};
use holdall_model::{loss::LossStage, topic::TopicInfo};
use holdall_storage::{StorageOptions, writer::ChannelInfo};
use holdall_transport::Sink;
use std::{collections::BTreeMap, fs, path::Path, sync::Arc};

/// The bag's folder within that of its run.
pub const BAG: &str = "bag";

/// One thread offers this many messages a second without sweat; more get a second one.
const MESSAGES_PER_THREAD_AND_S: f64 = 200_000.0;

/// All that a run needs.
pub struct Run<'a> {
    /// The load.
    pub publishers: &'a Publishers,
    /// As it was configured.
    pub producers: &'a ProducerConfig,
    /// How it is recorded.
    pub benchmark: &'a BenchmarkConfig,
    /// With which settings.
    pub setting: &'a Setting,
    /// Where the bag goes.
    pub folder: &'a Path,
    /// Threads that publish, where the command line says so.
    pub threads: Option<u32>,
    /// The time.
    pub clock: &'a Arc<dyn Clock>,
}

/// What is in the bag and what is not, by topic.
struct Stored {
    recorded: Vec<u64>,
    lost: Vec<BTreeMap<LossStage, u64>>,
    splits: u64,
}

impl Run<'_> {
    /// Sends, records, closes, and tells what was found; experiment, case, repetition and limits are the caller's.
    ///
    /// # Errors
    /// A failed disk or storage; settings that there are not.
    pub fn run(&self) -> BenchResult<RunResult> {
        let bag = self.folder.join(BAG);
        // What an interrupted run has left.
        super::remove_bag(&bag)?;
        // Every thread of the recorder inherits this; the producers' threads choose for themselves.
        let _pinned = Pinned::to("recorder_cpu_affinity", &self.benchmark.recorder_cpu_affinity)?;
        let probe =
            SchedulingProbe::start(Arc::clone(self.clock)).map_err(|source| BenchError::Thread { source })?;
        let cores = CoreSampler::start(Arc::clone(self.clock))?;
        let meter = UsageMeter::start(self.clock.as_ref());
        let (sent, stored) = match self.setting.recorder {
            RecorderKind::Holdall => self.through_cache(&bag)?,
            RecorderKind::Synchronous => self.synchronously(&bag)?,
        };
        let usage = meter.stop();
        let (woken, probe_cpu) = probe.stop();
        let mut result = self.figures(&sent, &stored);
        let aside_s = sent.cpu.as_secs_f64() + probe_cpu.as_secs_f64();
        result.elapsed_s = usage.elapsed_s;
        result.close_s = (usage.elapsed_s - sent.elapsed.as_secs_f64()).max(0.0);
        result.durable_bytes_per_s = result.recorded_bytes as f64 / usage.elapsed_s.max(1e-9);
        result.recorder_cpu_s = (usage.cpu_s - aside_s).max(0.0);
        result.producer_cpu_s = sent.cpu.as_secs_f64();
        result.rss_max_bytes = usage.rss_max_bytes;
        result.wake_up = woken.summary();
        result.cores = cores.stop();
        result.bag_bytes = folder_bytes(&bag);
        Ok(result)
    }

    fn through_cache(&self, bag: &Path) -> BenchResult<(Sent, Stored)> {
        let options = PipelineOptions {
            storage_id: self.setting.storage_id.clone(),
            storage: self.storage_options()?,
            cache: CacheOptions {
                bytes_max: usize::try_from(self.setting.max_cache_size_bytes).unwrap_or(usize::MAX),
                ..CacheOptions::default()
            },
            split: SplitOptions {
                bytes_max: self.setting.max_bag_size_bytes,
                ..SplitOptions::default()
            },
            max_loss_window: Some(DEFAULT_LOSS_WINDOW),
            disk: DiskChoice::Os(DiskMode::Auto),
            offer: OfferOptions::default(),
        };
        let pipeline = Pipeline::new(&self.channels(), bag, &options, Arc::clone(self.clock))?;
        let sent = self.send(pipeline.sinks())?;
        let closed = pipeline.close(self.clock.as_ref())?;
        let stored = Stored {
            recorded: closed.topics.iter().map(|topic| topic.recorded).collect(),
            lost: closed.topics.into_iter().map(|topic| topic.missing).collect(),
            splits: closed.splits,
        };
        Ok((sent, stored))
    }

    fn synchronously(&self, bag: &Path) -> BenchResult<(Sent, Stored)> {
        fs::create_dir_all(bag).map_err(BenchError::io("create", bag))?;
        let depths: Vec<u64> = (0..self.publishers.publishers.len())
            .map(|index| self.publishers.group_of(index).config.qos.depth)
            .collect();
        let writer = self.bare_writer(bag)?;
        let recorder = Synchronous::start(writer, &depths, self.setting.max_cache_size_bytes)?;
        let sent = self.send(recorder.sinks())?;
        let counts = recorder.close()?;
        let lost = |count: u64| {
            (count > 0)
                .then_some((LossStage::Transport, count))
                .into_iter()
                .collect()
        };
        let stored = Stored {
            recorded: counts.stored,
            lost: counts.lost.into_iter().map(lost).collect(),
            splits: 0,
        };
        Ok((sent, stored))
    }

    fn bare_writer(&self, bag: &Path) -> BenchResult<Box<dyn RawWriter>> {
        let channels = self.channels();
        if self.setting.storage_id == "sqlite3" {
            let preset = if is_resilient(self.setting) {
                SqlitePreset::Resilient
            } else {
                SqlitePreset::Default
            };
            return Ok(Box::new(SqliteBareWriter::create(
                &bag.join("bag_0.db3"),
                &channels,
                preset,
            )?));
        }
        let options = McapCrateOptions::default();
        Ok(Box::new(McapCrateWriter::create(
            &bag.join("bag_0.mcap"),
            &channels,
            options,
        )?))
    }

    fn send(&self, sinks: &[Arc<dyn Sink>]) -> BenchResult<Sent> {
        let messages_per_s: f64 = self
            .producers
            .groups
            .iter()
            .map(|group| group.rate_hz * f64::from(group.publishers_count))
            .sum();
        let threads = self
            .threads
            .or(self.producers.number_of_threads.map(|threads| threads.min(8)))
            .unwrap_or(if messages_per_s > MESSAGES_PER_THREAD_AND_S {
                2
            } else {
                1
            });
        let _pinned = Pinned::to("producers_cpu_affinity", &self.benchmark.producers_cpu_affinity)?;
        generate(self.publishers, sinks, threads, self.clock.as_ref())
    }

    fn storage_options(&self) -> BenchResult<StorageOptions> {
        let config = match &self.setting.storage_config_file {
            None => None,
            Some(name) => Some(fs::read_to_string(name).map_err(BenchError::io("read", name))?),
        };
        Ok(StorageOptions {
            preset: self.setting.storage_preset_profile.clone().unwrap_or_default(),
            config,
            ..StorageOptions::default()
        })
    }

    fn channels(&self) -> Vec<ChannelInfo> {
        let of = |index: usize| {
            let publisher = &self.publishers.publishers[index];
            let group = self.publishers.group_of(index);
            let definition = group.definition.clone();
            ChannelInfo {
                topic: TopicInfo {
                    name: publisher.topic.clone(),
                    type_name: group.config.msg_type.clone(),
                    serialization_format: "cdr".to_owned(),
                    offered_qos_profiles: vec![group.config.qos],
                    type_description_hash: definition.type_description_hash.clone(),
                },
                definition,
            }
        };
        (0..self.publishers.publishers.len()).map(of).collect()
    }

    fn figures(&self, sent: &Sent, stored: &Stored) -> RunResult {
        let mut groups: Vec<GroupResult> = self
            .publishers
            .groups
            .iter()
            .map(|group| GroupResult {
                name: group.config.name.clone(),
                publishers: group.config.publishers_count,
                message_bytes: group.config.msg_size_bytes as u64,
                rate_hz: group.config.rate_hz,
                ..GroupResult::default()
            })
            .collect();
        let (mut recorded_bytes, mut sent_bytes) = (0, 0);
        let mut lost_all: BTreeMap<LossStage, u64> = BTreeMap::new();
        for (index, publisher) in self.publishers.publishers.iter().enumerate() {
            let group = &mut groups[publisher.group];
            let message_bytes = self.publishers.groups[publisher.group].frame.message_bytes() as u64;
            group.sent += sent.messages[index];
            group.recorded += stored.recorded[index];
            sent_bytes += sent.messages[index] * message_bytes;
            recorded_bytes += stored.recorded[index] * message_bytes;
            for (stage, count) in &stored.lost[index] {
                *group.lost.entry(*stage).or_insert(0) += count;
                *lost_all.entry(*stage).or_insert(0) += count;
            }
        }
        RunResult {
            experiment: String::new(),
            case: String::new(),
            repetition: 0,
            transport: Transport::None,
            setting: self.setting.clone(),
            sent: groups.iter().map(|group| group.sent).sum(),
            recorded: groups.iter().map(|group| group.recorded).sum(),
            groups,
            recorded_bytes,
            sent_bytes,
            lost: lost_all,
            elapsed_s: 0.0,
            close_s: 0.0,
            durable_bytes_per_s: 0.0,
            offered_bytes_per_s: self.producers.bytes_per_s(),
            recorder_cpu_s: 0.0,
            producer_cpu_s: 0.0,
            rss_max_bytes: 0,
            generator_bytes: self.publishers.corpus_bytes(),
            bag_bytes: 0,
            splits: stored.splits,
            offer: sent.offers.summary(),
            lateness: sent.lateness.summary(),
            wake_up: None,
            cores: Vec::new(),
            limits: RunLimits::default(),
        }
    }
}

/// Length of all files in a folder, which has no folders in it.
fn folder_bytes(path: &Path) -> u64 {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.metadata().ok())
        .map(|about| about.len())
        .sum()
}
