//! The kind `tools`: merge, split, filter, convert, check and reindex, compared with the disk's copying and reading,
//! and with other programs' reading.

mod result;
mod rivals;

pub use result::{ToolRow, ToolRun, ToolsBody, tools_table};

use crate::{
    args::kinds::ToolsArguments,
    candidate::{
        RawWriter,
        ours::{DiskChoice, OurWriter, Transactions, channel_infos},
        raw::in_batches,
    },
    engine::{
        Done, Earlier, FIRST_STAMP_NANOS, Kind, OnProgress, Progress, Report, Session, Task, by_task, run_all,
    },
    error::{BenchError, BenchResult},
    measure::UsageMeter,
    workload::{Content, Load, Plan, SizeClass, SizeMix},
};
use holdall::{
    reader::Bag,
    tools::{self, Choice, Job, Moment, OutputOptions},
};
use holdall_io::{clock::Clock, fs::forget_cached, os::DiskMode};
use holdall_model::selection::Selection;
use holdall_storage::StorageOptions;
use std::{
    fmt, fs, io,
    path::{Path, PathBuf},
};

/// Sizes of messages: an image, and the small messages that accompany it.
const IMAGE_BYTES: usize = 1 << 20;
const SMALL_BYTES: usize = 1000;
/// Small messages for each image.
const SMALL_PER_IMAGE: u32 = 50;
/// Log time between two messages: an image each 33 ms.
const PERIOD_NANOS: u64 = 33_000_000 / (SMALL_PER_IMAGE as u64 + 1);
/// The inputs have at least this many bytes.
const INPUT_BYTES_MIN: u64 = 8 << 20;

/// How fast work is on average, with copies of its input before and after it.
const WORK_BYTES_PER_S: f64 = 300e6;

/// The limit that work is compared with.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Limit {
    /// `cp` of one input and a sync of the copy.
    Copy,
    /// A read of one input from front to end.
    Read,
}

/// One piece of work.
#[derive(Clone, Copy)]
enum Work {
    Alone(Limit),
    Merge,
    Split,
    FilterTime,
    FilterTopic,
    Convert,
    Check,
    Reindex,
    ReadCrate,
    ReadPip(&'static str),
}

const READ_ALL: &str = "read of all messages";

/// The work, the program that does it, and the limit it is compared with.
const WORKS: [(Work, &str, &str, Option<Limit>); 12] = [
    (Work::Alone(Limit::Copy), "copy of one input", "cp + sync", None),
    (Work::Alone(Limit::Read), "read of one input", "plain read", None),
    (Work::Merge, "merge of both inputs", "holdall", Some(Limit::Copy)),
    (
        Work::Split,
        "split into 4 files by span",
        "holdall",
        Some(Limit::Copy),
    ),
    (
        Work::FilterTime,
        "filter by time (3/4)",
        "holdall",
        Some(Limit::Copy),
    ),
    (
        Work::FilterTopic,
        "filter by topic (1 MiB)",
        "holdall",
        Some(Limit::Copy),
    ),
    (Work::Convert, "convert to sqlite3", "holdall", Some(Limit::Copy)),
    (Work::Check, "check", "holdall", Some(Limit::Read)),
    // Only the summary at the end of the file is read: a rate over the file's bytes, or its ratio to a full read, would
    // mean nothing.
    (Work::Reindex, "reindex (metadata.yaml)", "holdall", None),
    (Work::ReadCrate, READ_ALL, "mcap crate", Some(Limit::Read)),
    (Work::ReadPip("mcap"), READ_ALL, "pip mcap", Some(Limit::Read)),
    (
        Work::ReadPip("rosbags"),
        READ_ALL,
        "pip rosbags",
        Some(Limit::Read),
    ),
];

/// Makes two recordings and runs all work on them in rounds.
///
/// # Errors
/// Too little space, a failed disk, work that fails.
pub fn run(
    args: &ToolsArguments,
    clock: &dyn Clock,
    on_progress: &mut OnProgress<'_>,
) -> BenchResult<Report<ToolsBody>> {
    let folder = &args.folder;
    let what = format!("tools {} {} {}", args.size, !args.warm, folder.seed);
    // Two inputs, the largest output, and the copy for the limit.
    let space_bytes = args.size.max(INPUT_BYTES_MIN).saturating_mul(5);
    let session = Session::open(folder, (false, args.repeat), what, WORKS.len(), space_bytes)?;
    let usage = UsageMeter::start(clock);
    let inputs = [0, 1].map(|number| session.folder.scratch().join(format!("input_{number}")));
    for (number, input) in (0..).zip(&inputs) {
        write_input(input, number, args)?;
    }
    let bytes = (args.size.max(INPUT_BYTES_MIN), WORK_BYTES_PER_S);
    session.announce("tools", (args.repeat, WORKS.len()), bytes, on_progress);
    let mut bench = Tools {
        args,
        clock,
        session,
        inputs,
        last_limit: None,
    };
    let runs = by_task(WORKS.len(), run_all(&mut bench, on_progress)?);
    let row = |((_, name, who, limit), runs): (&(Work, &str, &str, Option<Limit>), &Vec<ToolRun>)| {
        let against = limit.map(|limit| if limit == Limit::Copy { "copy" } else { "read" });
        ToolRow::of((name, who), against, runs)
    };
    let body = ToolsBody {
        rows: WORKS.iter().zip(&runs).filter_map(row).collect(),
        input_bytes: args.size,
        repeat: args.repeat,
        cold: !args.warm,
        rss_max_bytes: usage.stop().rss_max_bytes,
    };
    bench.session.finish("tools", folder, body, None)
}

/// A bag of images with small messages between them; the second begins where the first ends.
fn write_input(directory: &Path, number: u64, args: &ToolsArguments) -> BenchResult<()> {
    let image = SizeClass {
        bytes: IMAGE_BYTES,
        per_cycle: 1,
    };
    let small = SizeClass {
        bytes: SMALL_BYTES,
        per_cycle: SMALL_PER_IMAGE,
    };
    let plan = Plan::new(Load {
        mix: SizeMix::interleaved(vec![image, small]),
        content: Content::Entropy(8.0),
        total_bytes: args.size.max(INPUT_BYTES_MIN),
        producers: 1,
        topics: 2,
        rate_hz: None,
        seed: args.folder.seed + number,
    })?;
    fs::create_dir(directory).map_err(BenchError::io("create", directory))?;
    let queue = DiskChoice::Os(DiskMode::Auto).queue(directory)?;
    let channels = channel_infos(plan.topics());
    let file = file(directory);
    let storage = StorageOptions::default();
    let ours = OurWriter::create(
        queue,
        &file,
        plan.byte_count(),
        &channels,
        ("mcap", &storage),
        Transactions::Own,
    )?;
    let mut writer: Box<dyn RawWriter> = Box::new(ours);
    let begin = FIRST_STAMP_NANOS + number * plan.message_count() * PERIOD_NANOS;
    let messages = plan.raw_messages(begin, PERIOD_NANOS);
    in_batches(messages, IMAGE_BYTES as u64, &mut |batch, _| {
        writer.write_batch(batch)
    })?;
    writer.close()?;
    tools::reindex(directory, &mut |_, _| ()).map_err(failed(directory))?;
    Ok(())
}

/// The only file of an input.
fn file(input: &Path) -> PathBuf {
    let name = input.file_name().unwrap_or_default().to_string_lossy();
    input.join(format!("{name}_0.mcap"))
}

struct Tools<'a> {
    args: &'a ToolsArguments,
    clock: &'a dyn Clock,
    session: Session<ToolRun>,
    inputs: [PathBuf; 2],
    /// The limit that was measured last, and its rate, while no work came after it.
    last_limit: Option<(Limit, f64)>,
}

impl Kind for Tools<'_> {
    type Run = ToolRun;

    fn tasks(&self) -> Vec<Task> {
        let repeat = self.args.repeat;
        let task = |(_, name, who, _): &(Work, &str, &str, Option<Limit>)| Task {
            name: format!("{name}, {who}"),
            repeat,
        };
        WORKS.iter().map(task).collect()
    }

    fn earlier(&mut self, task: usize, round: u32, _: &mut OnProgress<'_>) -> BenchResult<Earlier<ToolRun>> {
        Ok(self.session.earlier(task, round))
    }

    /// Times work with its limit measured right before and right after it: a disk that others use, or that
    /// still writes earlier output, differs a second later.
    fn run(&mut self, task: usize, _: u32, on_progress: &mut OnProgress<'_>) -> BenchResult<Option<ToolRun>> {
        let (work, _, _, limit) = WORKS[task];
        let before = match (limit, self.last_limit.take()) {
            (Some(limit), Some((last, rate))) if last == limit => Some(rate),
            (Some(limit), _) => Some(self.limit(limit)?.1),
            (None, _) => None,
        };
        self.prepare()?;
        let mut run = match self.work(work) {
            Err(error @ BenchError::Program { .. }) => {
                on_progress(Progress::Skipped(format!("not run: {error}")));
                return Ok(None);
            }
            other => other?,
        };
        if let Some((limit, before)) = limit.zip(before) {
            let (_, after) = self.limit(limit)?;
            self.last_limit = Some((limit, after));
            run.limit_bytes_per_s = Some(f64::midpoint(before, after));
        }
        Ok(Some(run))
    }

    fn after_round(&mut self, runs: &mut [Done<ToolRun>], _: &mut OnProgress<'_>) -> BenchResult<()> {
        self.session.keep_round(runs)
    }
}

impl Tools<'_> {
    /// Drops the inputs from the page cache, so that they look as if not written just now.
    fn prepare(&self) -> BenchResult<()> {
        for path in self.inputs.iter().map(|input| file(input)) {
            if !self.args.warm {
                forget_cached(&path)?;
            } else {
                rivals::read_plain(&path)?;
            }
        }
        Ok(())
    }

    fn timed(&self, work: impl FnOnce() -> BenchResult<(u64, u64)>) -> BenchResult<ToolRun> {
        let start = self.clock.monotonic();
        let (bytes, messages) = work()?;
        let elapsed_s = (self.clock.monotonic() - start).as_secs_f64();
        Ok(ToolRun {
            elapsed_s,
            bytes,
            messages,
            limit_bytes_per_s: None,
        })
    }

    /// The disk's own copying or reading: seconds and bytes per second.
    fn limit(&self, limit: Limit) -> BenchResult<(f64, f64)> {
        let (input, copy) = (file(&self.inputs[0]), self.session.folder.scratch().join("copy"));
        self.prepare()?;
        let bytes = fs::metadata(&input)
            .map_err(BenchError::io("inspect", &input))?
            .len();
        let start = self.clock.monotonic();
        match limit {
            Limit::Copy => rivals::copy_with_cp(&input, &copy)?,
            Limit::Read => rivals::read_plain(&input)?,
        }
        let elapsed_s = (self.clock.monotonic() - start).as_secs_f64();
        crate::folder::remove(&copy)?;
        Ok((elapsed_s, bytes as f64 / elapsed_s))
    }

    /// Does it once.
    fn work(&self, work: Work) -> BenchResult<ToolRun> {
        let input = &self.inputs[0];
        let (first, mut choice, mut output) =
            (vec![input.clone()], Choice::default(), OutputOptions::default());
        let span = |share: f64| {
            let bag = Bag::open(input).map_err(failed(input))?;
            Ok::<_, BenchError>(bag.metadata().duration.mul_f64(share))
        };
        match work {
            Work::Alone(limit) => {
                let (elapsed_s, rate) = self.limit(limit)?;
                let bytes = (elapsed_s * rate).round() as u64;
                Ok(ToolRun {
                    elapsed_s,
                    bytes,
                    messages: 0,
                    limit_bytes_per_s: None,
                })
            }
            Work::Merge => self.make(self.inputs.to_vec(), choice, output),
            Work::Split => {
                output.split.duration_max = Some(span(0.26)?);
                self.make(first, choice, output)
            }
            Work::FilterTime => {
                let eighth = span(0.125)?;
                choice.start = Some(Moment::AfterStart(eighth));
                choice.end = Some(Moment::AfterStart(eighth * 7));
                self.make(first, choice, output)
            }
            Work::FilterTopic => {
                choice.selection = Selection {
                    topics: vec!["/bench/topic_0".to_owned()],
                    ..Selection::default()
                };
                self.make(first, choice, output)
            }
            Work::Convert => {
                output.storage_id = Some("sqlite3".to_owned());
                self.make(first, choice, output)
            }
            Work::Check => self.timed(|| {
                let found = tools::check::check(input, &mut |_, _| ()).map_err(failed(input))?;
                if let Some(problem) = found.findings().next().filter(|_| !found.is_sound()) {
                    return Err(failed(input)(problem));
                }
                let files = || found.files.iter();
                let messages = files().map(|file| file.message_count).sum();
                Ok((files().map(|file| file.file_bytes).sum(), messages))
            }),
            Work::Reindex => {
                crate::folder::remove(&input.join("metadata.yaml"))?;
                self.timed(|| {
                    let done = tools::reindex(input, &mut |_, _| ()).map_err(failed(input))?;
                    Ok((0, done.messages))
                })
            }
            Work::ReadCrate => self.timed(|| {
                let path = file(input);
                let bytes = fs::metadata(&path)
                    .map_err(BenchError::io("inspect", &path))?
                    .len();
                Ok((bytes, rivals::read_with_mcap_crate(&path)?))
            }),
            Work::ReadPip(package) => rivals::read_with_pip(&self.args.python, package, input, &file(input)),
        }
    }

    fn make(&self, inputs: Vec<PathBuf>, choice: Choice, mut output: OutputOptions) -> BenchResult<ToolRun> {
        let directory = self.session.folder.scratch().join("made");
        output.directory.clone_from(&directory);
        let run = self.timed(|| {
            let open = |path: &PathBuf| Bag::open(path).map_err(failed(path));
            let inputs = inputs.iter().map(open).collect::<BenchResult<_>>()?;
            let job = Job {
                inputs,
                choice,
                output,
            };
            let written = tools::run(job, &mut |_, _| ()).map_err(failed(&directory))?;
            Ok((written.bytes, written.messages))
        })?;
        crate::folder::remove(&directory)?;
        Ok(run)
    }
}

fn failed<E: fmt::Display>(path: &Path) -> impl FnOnce(E) -> BenchError + '_ {
    move |error| BenchError::io("work on", path)(io::Error::other(error.to_string()))
}
