//! Runs `bench write`: candidates in turn, with the limits of the machine measured before, between and after
//! them.

use super::{
    options::{WriteCandidate, WriteOptions},
    report::{CandidateReport, Comparison, OptionsReport, Run, WriteReport},
};
use crate::{
    candidate::{
        RawWriter,
        inline::run_inline,
        leveldb_bare::{self, LeveldbBareWriter},
        mcap_crate::{McapCrateOptions, McapCrateWriter},
        naive::NaiveWriter,
        ours::{DiskChoice, channel_infos},
        pipeline::{Pipeline, PipelineOptions, Recorded},
        sqlite_bare::{SqliteBareWriter, SqlitePreset},
    },
    codec::measure_codec,
    error::{BenchError, BenchResult},
    folder::BenchFolder,
    limits::LimitMeter,
    machine::Machine,
    measure::{Latencies, SchedulingProbe, Usage, UsageMeter},
    verify::{Verified, verify_files},
    workload::Plan,
};
use holdall_io::clock::Clock;
use holdall_storage::mcap::options::STORAGE_ID as MCAP_ID;
use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

/// Bytes that a rival gets at once; databases get the size of a cache flush, because that is one transaction.
const INLINE_BATCH_BYTES: usize = 64 << 10;
const TRANSACTION_BYTES: usize = 10 << 20;

/// Progress of a benchmark.
#[derive(Clone, Debug)]
pub enum Progress {
    /// Limits are being measured.
    Limits,
    /// A candidate is about to run.
    Running {
        /// Its name.
        candidate: String,
        /// Its repetition, from 1.
        repetition: u32,
    },
    /// Its output is being read back.
    Verifying,
}

/// Runs everything, stores the result in the folder and returns it.
///
/// # Errors
/// Options that contradict each other, too little space, a failed candidate, bytes that are not what was
/// offered.
pub fn run(
    options: &WriteOptions,
    clock: &Arc<dyn Clock>,
    on_progress: &mut dyn FnMut(Progress),
) -> BenchResult<WriteReport> {
    check(options)?;
    let plan = Plan::new(options.load.clone())?;
    let folder = BenchFolder::take(&options.out, options.keep)?;
    folder.check_space(options.space_bytes(plan.message_count()))?;
    let mut bench = Bench {
        options,
        plan: &plan,
        folder: &folder,
        clock,
        limits: LimitMeter::of_memory(),
        disk_limit: None,
    };
    on_progress(Progress::Limits);
    if !options.discard {
        bench.limits = LimitMeter::new(folder.scratch(), options.limit_bytes())?;
    }
    let runs = bench.all_runs(on_progress)?;
    let report = bench.report(runs)?;
    let json = serde_json::to_string_pretty(&report).map_err(|error| BenchError::Option {
        option: "--json",
        expected: "a result that JSON can hold".to_owned(),
        found: error.to_string(),
    })?;
    folder.store("write", "json", &json)?;
    folder.store("write", "csv", &crate::report::write_csv(&report))?;
    Ok(report)
}

fn check(options: &WriteOptions) -> BenchResult<()> {
    let refuse = |option, expected: &str, found: String| {
        Err(BenchError::Option {
            option,
            expected: expected.to_owned(),
            found,
        })
    };
    if options.candidates.is_empty() {
        return refuse("--storage", "at least one candidate", "none".to_owned());
    }
    if options.repeat == 0 {
        return refuse("--repeat", "1 or more", "0".to_owned());
    }
    for candidate in &options.candidates {
        match candidate {
            WriteCandidate::Ours(id) | WriteCandidate::OursUnsynced(id) => {
                holdall_storage::storage_by_id(id)?.check_options(&options.storage)?
            }
            WriteCandidate::McapCrate | WriteCandidate::SqliteBare(_) | WriteCandidate::LeveldbBare
                if options.discard =>
            {
                return refuse(
                    "--memory",
                    "candidates that write through our disk layer (mcap, naive)",
                    candidate.to_string(),
                );
            }
            WriteCandidate::LeveldbBare => {
                if let Some(what_to_do) = leveldb_bare::absence() {
                    return Err(BenchError::Absent {
                        program: "leveldb-bare",
                        what_to_do,
                    });
                }
            }
            _ => {}
        }
    }
    Ok(())
}

struct Bench<'a> {
    options: &'a WriteOptions,
    plan: &'a Plan,
    folder: &'a BenchFolder,
    clock: &'a Arc<dyn Clock>,
    limits: LimitMeter,
    /// The newest measurement; absent where no disk is written to.
    disk_limit: Option<f64>,
}

impl Bench<'_> {
    /// Runs every candidate `repeat` times, in rotating order, so that drift and neighbours affect all alike.
    fn all_runs(&mut self, on_progress: &mut dyn FnMut(Progress)) -> BenchResult<Vec<Vec<Run>>> {
        let count = self.options.candidates.len();
        let mut runs = vec![Vec::new(); count];
        self.limits.memory();
        if self
            .options
            .candidates
            .contains(&WriteCandidate::Ours(MCAP_ID.to_owned()))
        {
            let codec = measure_codec(self.plan, &self.options.storage, self.clock.as_ref())?;
            self.limits.set_codec(codec);
        }
        self.measure_disk()?;
        for repetition in 1..=self.options.repeat {
            for turn in 0..count {
                let index = (turn + repetition as usize - 1) % count;
                let candidate = &self.options.candidates[index];
                on_progress(Progress::Running {
                    candidate: candidate.to_string(),
                    repetition,
                });
                runs[index].push(self.one_run(candidate, repetition, on_progress)?);
            }
            on_progress(Progress::Limits);
            self.limits.buffered()?;
        }
        Ok(runs)
    }

    fn measure_disk(&mut self) -> BenchResult<Option<f64>> {
        self.disk_limit = self.limits.disk()?;
        Ok(self.disk_limit)
    }

    fn one_run(
        &mut self,
        candidate: &WriteCandidate,
        repetition: u32,
        on_progress: &mut dyn FnMut(Progress),
    ) -> BenchResult<Run> {
        let place = self.folder.scratch().join(format!("{candidate}_{repetition}"));
        let limit_before = self.disk_limit;
        let probe =
            SchedulingProbe::start(Arc::clone(self.clock)).map_err(|source| BenchError::Thread { source })?;
        let (usage, recorded) = match candidate {
            WriteCandidate::Ours(id) => self.run_ours(id, self.options.max_loss_window, &place)?,
            WriteCandidate::OursUnsynced(id) => self.run_ours(id, None, &place)?,
            _ => self.run_rival(candidate, &place)?,
        };
        let (woken, probe_cpu) = probe.stop();
        let verified = (self.options.verify && repetition == 1 && !recorded.files.is_empty())
            .then(|| {
                on_progress(Progress::Verifying);
                self.verify(&recorded)
            })
            .transpose()?;
        self.folder.discard(&place)?;
        on_progress(Progress::Limits);
        let limit_after = self.measure_disk()?;
        let limits = [limit_before, limit_after];
        let is_inline = !matches!(
            candidate,
            WriteCandidate::Ours(_) | WriteCandidate::OursUnsynced(_)
        );
        let mut run = self.figures(&usage, &recorded, probe_cpu, is_inline, limits);
        run.candidate = candidate.to_string();
        run.repetition = repetition;
        run.scheduling_latency = woken.summary();
        run.verified = verified;
        Ok(run)
    }

    /// A ring of files has removed its first ones on purpose; the rest must still be correct.
    fn verify(&self, recorded: &Recorded) -> BenchResult<Verified> {
        let is_ring = self.options.split.files_max.is_some();
        verify_files(self.plan, &recorded.files, (!is_ring).then_some(recorded.stored))
    }

    fn disk(&self) -> DiskChoice {
        if self.options.discard {
            DiskChoice::Discard
        } else {
            DiskChoice::Os(self.options.disk_mode)
        }
    }

    fn run_ours(
        &self,
        storage_id: &str,
        max_loss_window: Option<Duration>,
        place: &Path,
    ) -> BenchResult<(Usage, Recorded)> {
        let options = PipelineOptions {
            compression: holdall::writer::CompressionOptions::default(),
            meter: None,
            storage_id: storage_id.to_owned(),
            storage: self.options.storage.clone(),
            cache: self.options.cache.clone(),
            split: self.options.split.clone(),
            max_loss_window,
            disk: self.disk(),
            offer: self.options.offer,
        };
        let channels = channel_infos(self.plan.topics());
        let pipeline = Pipeline::new(&channels, place, &options, Arc::clone(self.clock))?;
        let meter = UsageMeter::start(self.clock.as_ref());
        let recorded = pipeline.run(self.plan, self.clock.as_ref())?;
        Ok((meter.stop(), recorded))
    }

    fn run_rival(&self, candidate: &WriteCandidate, place: &Path) -> BenchResult<(Usage, Recorded)> {
        std::fs::create_dir(place).map_err(BenchError::io("create", place))?;
        let (file, writer, batch_bytes) = self.rival(candidate, place)?;
        let meter = UsageMeter::start(self.clock.as_ref());
        let produced = run_inline(self.plan, writer, batch_bytes, self.clock.as_ref())?;
        let usage = meter.stop();
        let files = if self.options.discard {
            Vec::new()
        } else {
            vec![file]
        };
        Ok((
            usage,
            Recorded {
                stored: produced.offered,
                produced,
                files,
                ..Recorded::default()
            },
        ))
    }

    fn rival(
        &self,
        candidate: &WriteCandidate,
        place: &Path,
    ) -> BenchResult<(PathBuf, Box<dyn RawWriter>, usize)> {
        let topics = self.plan.topics();
        let channels = channel_infos(topics);
        let mcap = place.join("rival.mcap");
        let database = place.join("rival.db3");
        Ok(match candidate {
            WriteCandidate::SqliteBare(resilient) => {
                let preset = if *resilient {
                    SqlitePreset::Resilient
                } else {
                    SqlitePreset::Default
                };
                let writer = SqliteBareWriter::create(&database, &channels, preset)?;
                (database, Box::new(writer), TRANSACTION_BYTES)
            }
            WriteCandidate::LeveldbBare => {
                let folder = place.join("rival");
                let writer = LeveldbBareWriter::create(&folder, &channels)?;
                (folder, Box::new(writer), TRANSACTION_BYTES)
            }
            WriteCandidate::Naive => {
                let queue = self.disk().queue(place)?;
                let reserve_bytes = self.options.bag_bytes_max(self.plan.message_count());
                let writer = NaiveWriter::create(queue, &mcap, reserve_bytes, topics)?;
                (mcap, Box::new(writer), INLINE_BATCH_BYTES)
            }
            WriteCandidate::McapCrate | WriteCandidate::Ours(_) | WriteCandidate::OursUnsynced(_) => {
                let writer = McapCrateWriter::create(&mcap, &channels, McapCrateOptions::default())?;
                (mcap, Box::new(writer), INLINE_BATCH_BYTES)
            }
        })
    }

    fn figures(
        &self,
        usage: &Usage,
        recorded: &Recorded,
        probe_cpu: Duration,
        is_inline: bool,
        limits: [Option<f64>; 2],
    ) -> Run {
        let produced = &recorded.produced;
        // Sizes are exact unless messages were lost; then the stored ones count with the mean size.
        let share = recorded.stored as f64 / self.plan.message_count().max(1) as f64;
        let bytes = self.plan.byte_count() as f64 * share;
        let elapsed_s = usage.elapsed_s.max(1e-9);
        let producer_cpu_s = produced.cpu.as_secs_f64();
        let other_cpu_s = probe_cpu.as_secs_f64() + if is_inline { 0.0 } else { producer_cpu_s };
        let recorder_cpu_s = (usage.cpu_s - other_cpu_s).max(0.0);
        let durable_bytes_per_s = bytes / elapsed_s;
        let limit = match limits {
            [Some(before), Some(after)] => Some(f64::midpoint(before, after)),
            _ => None,
        };
        let summary = Latencies::summary;
        Run {
            offered: produced.offered,
            messages: recorded.stored,
            bytes: bytes.round() as u64,
            lost: recorded.lost,
            lost_by_stage: recorded.lost_by_stage.clone(),
            elapsed_s,
            durable_bytes_per_s,
            messages_per_s: recorded.stored as f64 / elapsed_s,
            cpu_s_per_gb: if bytes > 0.0 {
                recorder_cpu_s / (bytes / 1e9)
            } else {
                0.0
            },
            cores: recorder_cpu_s / elapsed_s,
            producer_cpu_s,
            usage: *usage,
            limit_before_bytes_per_s: limits[0],
            limit_after_bytes_per_s: limits[1],
            ratio_to_limit: limit.map(|limit| durable_bytes_per_s / limit),
            offer_latency: summary(&produced.offers),
            send_lateness: summary(&produced.lateness),
            splits: recorded.splits,
            ..Run::default()
        }
    }

    fn report(&self, runs: Vec<Vec<Run>>) -> BenchResult<WriteReport> {
        let limit = self.limits.limits();
        let buffered = limit.buffered_write_bytes_per_s;
        let mut reports = runs
            .into_iter()
            .filter_map(|runs| CandidateReport::of(runs, buffered));
        let Some(first) = reports.next() else {
            return Err(BenchError::Option {
                option: "--storage",
                expected: "a candidate".into(),
                found: "none".into(),
            });
        };
        let others: Vec<_> = reports.collect();
        Ok(WriteReport {
            benchmark: "write",
            comparisons: others
                .iter()
                .filter_map(|other| Comparison::of(&first, other))
                .collect(),
            first,
            limit,
            generator_bytes: self.plan.corpus_bytes(),
            others,
            options: OptionsReport::of(self.options, self.plan.offered_bytes_per_s()),
            machine: Machine::inspect(self.folder.scratch()),
        })
    }
}
