//! The kind `write`: producers, cache, drain and storage, and rivals in turn with them, compared with the limits of
//! the machine.

mod options;
mod result;

pub use options::WriteCandidate;
pub use result::{CandidateReport, Comparison, WriteBody, WriteRun, write_table};

use crate::{
    args::kinds::WriteArguments,
    candidate::{
        inline::run_inline,
        ours::channel_infos,
        pipeline::{Pipeline, PipelineOptions, Recorded},
        rival::Rival,
    },
    codec::measure_codec,
    engine::{Done, Earlier, Kind, OnProgress, Progress, Report, Session, Task, by_task, run_all},
    error::{BenchError, BenchResult},
    measure::{Latencies, SchedulingProbe, Usage, UsageMeter},
    verify::verify_files,
    workload::Plan,
};
use holdall::record::options::CacheOptions;
use holdall_io::{
    clock::Clock,
    sealed::{FileKey, Seal},
};
use holdall_storage::{StorageOptions, mcap::options::STORAGE_ID as MCAP_ID, storage_by_id};
use std::{path::Path, sync::Arc, time::Duration};

/// Bytes that a rival gets at once; databases get the size of a cache flush, because that is one transaction.
const INLINE_BATCH_BYTES: usize = 64 << 10;
const TRANSACTION_BYTES: usize = 10 << 20;

/// How fast messages are made, recorded and compared, without the disk.
const WORK_BYTES_PER_S: f64 = 1e9;

/// Runs everything, stores the result in the folder and returns it.
///
/// # Errors
/// Options that contradict each other, too little space, a failed candidate, bytes that differ from the
/// offered ones.
pub fn run(
    args: &WriteArguments,
    clock: &Arc<dyn Clock>,
    on_progress: &mut OnProgress<'_>,
) -> BenchResult<Report<WriteBody>> {
    let candidates = args.storage.iter().map(|name| name.parse());
    let candidates: Vec<WriteCandidate> = candidates.collect::<BenchResult<_>>()?;
    let storage = args.storage_options()?;
    check(args, &candidates, &storage)?;
    let plan = Plan::new(args.load()?)?;
    let (folder, tasks, cache) = (&args.shared.folder, candidates.len(), args.cache());
    let options = (plan.load(), &storage, &cache, &args.split());
    let what = format!("write {candidates:?} {options:?}");
    let rounds = (args.shared.keep, args.repeat);
    let mut session = Session::open(folder, rounds, what, tasks, args.space_bytes(&plan))?;
    on_progress(Progress::Limits);
    if !args.shared.memory {
        session.measure_disk(args.limit_bytes(&plan))?;
    }
    session.limits.memory();
    let is_mcap = |one: &WriteCandidate| matches!(one, WriteCandidate::Ours { id, is_synced: true, .. } if id == MCAP_ID);
    if candidates.iter().any(is_mcap) {
        let codec = measure_codec(&plan, &storage, clock.as_ref())?;
        session.limits.set_codec(codec);
    }
    session.limit_around()?;
    let (load, bytes) = (plan.load(), plan.byte_count());
    let message_bytes = bytes as f64 / plan.message_count().max(1) as f64;
    let paced = load
        .rate_hz
        .map(|rate| rate * f64::from(load.producers) * message_bytes);
    let rate = paced.unwrap_or(WORK_BYTES_PER_S).min(WORK_BYTES_PER_S);
    session.announce("write", (args.repeat, tasks), (bytes, rate), on_progress);
    let mut write = Write {
        args,
        candidates,
        storage,
        cache,
        plan,
        clock,
        session,
    };
    let runs = by_task(tasks, run_all(&mut write, on_progress)?);
    let body = write.body(runs)?;
    let csv = Some(body.csv());
    write.session.finish("write", folder, body, csv)
}

fn check(args: &WriteArguments, candidates: &[WriteCandidate], storage: &StorageOptions) -> BenchResult<()> {
    for candidate in candidates {
        match candidate {
            WriteCandidate::Ours { id, .. } => storage_by_id(id)?.check_options(storage)?,
            WriteCandidate::Rival(rival) => {
                if args.shared.memory && !rival.can_discard() {
                    let expected = "candidates that write through our disk layer (mcap, naive)";
                    return Err(BenchError::option("--memory", expected, candidate.to_string()));
                }
                if let Some(what_to_do) = rival.absence() {
                    return Err(BenchError::Absent {
                        program: "leveldb-bare",
                        what_to_do,
                    });
                }
            }
        }
    }
    Ok(())
}

/// A secret that only this process has: to wrap it for an owner takes a millisecond at the start, which is not measured.
fn new_seal() -> BenchResult<Seal> {
    let seal = Seal::generate(|_: &FileKey| Ok::<_, std::io::Error>(b"of a benchmark".to_vec()));
    seal.map_err(BenchError::io("make a key for", Path::new("the bag")))
}

struct Write<'a> {
    args: &'a WriteArguments,
    /// The first is the subject, the others are compared with it.
    candidates: Vec<WriteCandidate>,
    storage: StorageOptions,
    cache: CacheOptions,
    plan: Plan,
    clock: &'a Arc<dyn Clock>,
    session: Session<WriteRun>,
}

impl Kind for Write<'_> {
    type Run = WriteRun;

    fn tasks(&self) -> Vec<Task> {
        let candidates = self.candidates.iter();
        let repeat = self.args.repeat;
        candidates
            .map(|one| Task {
                name: one.to_string(),
                repeat,
            })
            .collect()
    }

    fn earlier(&mut self, task: usize, round: u32, _: &mut OnProgress<'_>) -> BenchResult<Earlier<WriteRun>> {
        Ok(self.session.earlier(task, round))
    }

    fn run(
        &mut self,
        task: usize,
        round: u32,
        on_progress: &mut OnProgress<'_>,
    ) -> BenchResult<Option<WriteRun>> {
        let candidate = &self.candidates[task];
        let place = self
            .session
            .folder
            .scratch()
            .join(format!("{candidate}_{}", round + 1));
        let probe =
            SchedulingProbe::start(Arc::clone(self.clock)).map_err(|source| BenchError::Thread { source })?;
        let (usage, recorded, producers_store) = match candidate {
            WriteCandidate::Ours {
                id,
                is_synced,
                is_encrypted,
            } => self.record(id, *is_synced, *is_encrypted, &place)?,
            WriteCandidate::Rival(rival) => self.store(*rival, &place)?,
        };
        let (woken, probe_cpu) = probe.stop();
        let is_checked = !self.args.shared.no_verify && round == 0 && !recorded.files.is_empty();
        let verified = if is_checked {
            on_progress(Progress::Verifying);
            // A ring of files has removed its first ones on purpose; the rest must still be correct.
            let is_ring = self.args.max_bag_files.is_some();
            Some(verify_files(
                &self.plan,
                &recorded.files,
                (!is_ring).then_some(recorded.stored),
            )?)
        } else {
            None
        };
        self.session.folder.discard(&place)?;
        on_progress(Progress::Limits);
        let limits = self.session.limit_around()?;
        let other_cpu = probe_cpu
            + if producers_store {
                Duration::ZERO
            } else {
                recorded.produced.cpu
            };
        Ok(Some(WriteRun {
            candidate: candidate.to_string(),
            repetition: round + 1,
            scheduling_latency: woken.summary(),
            verified,
            ..self.figures(&usage, &recorded, other_cpu, limits)
        }))
    }

    fn after_round(
        &mut self,
        runs: &mut [Done<WriteRun>],
        on_progress: &mut OnProgress<'_>,
    ) -> BenchResult<()> {
        on_progress(Progress::Limits);
        self.session.limits.buffered()?;
        self.session.keep_round(runs)
    }
}

impl Write<'_> {
    fn record(
        &self,
        id: &str,
        is_synced: bool,
        is_encrypted: bool,
        place: &Path,
    ) -> BenchResult<(Usage, Recorded, bool)> {
        let window = self.args.max_loss_window;
        let options = PipelineOptions {
            compression: holdall::writer::CompressionOptions::default(),
            meter: None,
            storage_id: id.to_owned(),
            storage: self.storage.clone(),
            cache: self.cache.clone(),
            split: self.args.split(),
            max_loss_window: (is_synced && !window.is_zero()).then_some(window),
            disk: self.args.shared.disk(),
            seal: is_encrypted.then(new_seal).transpose()?,
            offer: self.args.offer(),
        };
        let channels = channel_infos(self.plan.topics());
        let pipeline = Pipeline::new(&channels, place, &options, Arc::clone(self.clock))?;
        let meter = UsageMeter::start(self.clock.as_ref());
        let recorded = pipeline.run(&self.plan, self.clock.as_ref())?;
        Ok((meter.stop(), recorded, false))
    }

    fn store(&self, rival: Rival, place: &Path) -> BenchResult<(Usage, Recorded, bool)> {
        std::fs::create_dir(place).map_err(BenchError::io("create", place))?;
        let file = place.join("rival").with_extension(rival.extension());
        let batch_bytes = match rival {
            Rival::SqliteBare(_) | Rival::LeveldbBare => TRANSACTION_BYTES,
            _ => INLINE_BATCH_BYTES,
        };
        let channels = channel_infos(self.plan.topics());
        let reserve_bytes = self.args.bag_bytes_max(&self.plan);
        let disk = self.args.shared.disk();
        let writer = rival.create(&file, &channels, &self.storage, reserve_bytes, disk)?;
        let meter = UsageMeter::start(self.clock.as_ref());
        let produced = run_inline(&self.plan, writer, batch_bytes, self.clock.as_ref())?;
        let usage = meter.stop();
        let is_kept = !self.args.shared.memory;
        let recorded = Recorded {
            stored: produced.offered,
            produced,
            files: is_kept.then_some(file).into_iter().collect(),
            ..Recorded::default()
        };
        Ok((usage, recorded, true))
    }

    fn figures(
        &self,
        usage: &Usage,
        recorded: &Recorded,
        other_cpu: Duration,
        limits: [Option<f64>; 2],
    ) -> WriteRun {
        let produced = &recorded.produced;
        // Sizes are exact unless messages were lost; then the stored ones count with the mean size.
        let share = recorded.stored as f64 / self.plan.message_count().max(1) as f64;
        let bytes = self.plan.byte_count() as f64 * share;
        let elapsed_s = usage.elapsed_s.max(1e-9);
        let recorder_cpu_s = (usage.cpu_s - other_cpu.as_secs_f64()).max(0.0);
        let durable_bytes_per_s = bytes / elapsed_s;
        let limit = limits[0]
            .zip(limits[1])
            .map(|(before, after)| f64::midpoint(before, after));
        let summary = Latencies::summary;
        WriteRun {
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
            producer_cpu_s: produced.cpu.as_secs_f64(),
            usage: *usage,
            limit_before_bytes_per_s: limits[0],
            limit_after_bytes_per_s: limits[1],
            ratio_to_limit: limit.map(|limit| durable_bytes_per_s / limit),
            offer_latency: summary(&produced.offers),
            send_lateness: summary(&produced.lateness),
            splits: recorded.splits,
            ..WriteRun::default()
        }
    }

    fn body(&self, runs: Vec<Vec<WriteRun>>) -> BenchResult<WriteBody> {
        let buffered = self.session.limits.limits().buffered_write_bytes_per_s;
        let reports = runs
            .into_iter()
            .filter_map(|runs| CandidateReport::of(runs, buffered));
        let mut others: Vec<_> = reports.collect();
        if others.is_empty() {
            return Err(BenchError::option("--storage", "a candidate", "none"));
        }
        let first = others.remove(0);
        let compared = others.iter().filter_map(|other| Comparison::of(&first, other));
        Ok(WriteBody {
            comparisons: compared.collect(),
            generator_bytes: self.plan.corpus_bytes(),
            options: self.options_json(),
            first,
            others,
        })
    }
}
