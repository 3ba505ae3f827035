//! Makes two recordings and runs all work on them in rounds, with the disk's own copying and reading around
//! it.

use super::{
    report::{ToolRow, ToolsReport},
    rivals,
};
use crate::{
    candidate::ours::{TYPE_NAME, TYPE_TEXT},
    error::{BenchError, BenchResult},
    folder::BenchFolder,
    machine::Machine,
    measure::UsageMeter,
    write::Progress,
};
use holdall::{
    internals::{BagOptions, BagWriter},
    reader::Bag,
    tools::{self, Choice, Job, Moment, OutputOptions},
    writer::{CompressionOptions, OsFolder, SplitOptions, WriteError, os_disk},
};
use holdall_io::{
    block::BlockPoolOptions,
    clock::Clock,
    fs::{File, forget_cached},
    os::DiskMode,
};
use holdall_model::{
    message::PayloadRef,
    selection::Selection,
    time::Timestamp,
    topic::{DefinitionEncoding, MessageDefinition, TopicInfo},
};
use holdall_storage::{
    StorageOptions, storage_by_id,
    writer::{ChannelInfo, StoredMessage},
};
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

/// Sizes of messages: an image, and the small messages that accompany it.
const IMAGE_BYTES: usize = 1 << 20;
const SMALL_BYTES: usize = 1000;
/// Small messages for each image.
const SMALL_PER_IMAGE: u64 = 50;
/// Log time between two images, and of the first message.
const IMAGE_PERIOD_NANOS: i64 = 33_000_000;
const START_NANOS: i64 = 1_700_000_000_000_000_000;
/// Bytes that the plain read takes at a time.
const READ_BYTES: usize = 1 << 20;

/// Options of `bench tools`.
#[derive(Clone, Debug)]
pub struct ToolsBenchOptions {
    /// Length of each of the two inputs.
    pub input_bytes: u64,
    /// Rounds.
    pub repeat: u32,
    /// Drop inputs from the page cache before each measurement.
    pub cold: bool,
    /// The folder for files and results.
    pub out: PathBuf,
    /// A Python with pip `mcap` and `rosbags`; `None` for `python3`.
    pub python: Option<PathBuf>,
    /// The same seed gives the same payloads.
    pub seed: u64,
}

/// Runs the benchmark.
///
/// # Errors
/// Too little space, a failed disk, work that fails.
pub fn run(
    options: &ToolsBenchOptions,
    clock: &dyn Clock,
    on_progress: &mut dyn FnMut(Progress),
) -> BenchResult<ToolsReport> {
    let folder = BenchFolder::take(&options.out, false)?;
    let usage = UsageMeter::start(clock);
    // Two inputs, the largest output, and the copy for the limit.
    folder.check_space(options.input_bytes.saturating_mul(5))?;
    let scratch = folder.scratch().to_owned();
    let inputs = [0u64, 1].map(|number| scratch.join(format!("input_{number}")));
    for (number, input) in (0i64..).zip(&inputs) {
        write_input(input, number, options).map_err(|error| failed(input, &error))?;
    }
    let mut bench = Bench {
        options,
        clock,
        scratch,
        inputs,
        rows: Vec::new(),
        last_limit: None,
    };
    for round in 0..options.repeat {
        on_progress(Progress::Running {
            candidate: "tools".to_owned(),
            repetition: round + 1,
        });
        bench.round()?;
        bench.rivals()?;
    }
    let mut rows = bench.rows;
    rows.iter_mut().for_each(|row| row.settle(options.seed));
    let report = ToolsReport {
        benchmark: "tools",
        rows,
        input_bytes: options.input_bytes,
        repeat: options.repeat,
        cold: options.cold,
        rss_max_bytes: usage.stop().rss_max_bytes,
        machine: Machine::inspect(folder.scratch()),
    };
    for input in &bench.inputs {
        folder.discard(input)?;
    }
    folder.store(
        "tools",
        "json",
        &serde_json::to_string_pretty(&report).unwrap_or_default(),
    )?;
    Ok(report)
}

fn write_input(path: &Path, number: i64, options: &ToolsBenchOptions) -> Result<(), WriteError> {
    let bag = BagOptions {
        directory: path.to_owned(),
        storage: storage_by_id("mcap")?,
        storage_options: StorageOptions::default(),
        split: SplitOptions::default(),
        compression: CompressionOptions::default(),
        custom_data: BTreeMap::new(),
        ros_distro: None,
    };
    let disk = os_disk(DiskMode::Auto, BlockPoolOptions::default());
    let mut bag = BagWriter::create(bag, disk, Box::<OsFolder>::default())?;
    let topics = ["/image", "/imu"].map(|name| {
        bag.add_topic(ChannelInfo {
            topic: TopicInfo {
                name: name.to_owned(),
                type_name: TYPE_NAME.to_owned(),
                serialization_format: "cdr".to_owned(),
                ..TopicInfo::default()
            },
            definition: MessageDefinition {
                type_name: TYPE_NAME.to_owned(),
                encoding: DefinitionEncoding::Ros2Msg,
                text: TYPE_TEXT.to_owned(),
                ..MessageDefinition::default()
            },
        })
    });
    let [image, small] = topics;
    let (image, small) = (image?, small?);
    let mut random = fastrand::Rng::with_seed(options.seed + number.unsigned_abs());
    let mut payload = vec![0; IMAGE_BYTES];
    random.fill(&mut payload);
    let per_image = IMAGE_BYTES as u64 + SMALL_PER_IMAGE * SMALL_BYTES as u64;
    let images = (options.input_bytes / per_image).max(8);
    let begin = START_NANOS + number * images as i64 * IMAGE_PERIOD_NANOS;
    for place in 0..images as i64 {
        let time = begin + place * IMAGE_PERIOD_NANOS;
        payload[..8].copy_from_slice(&place.to_le_bytes());
        bag.write(image, stored(time, &payload))?;
        for step in 1..=SMALL_PER_IMAGE as i64 {
            let time = time + step * (IMAGE_PERIOD_NANOS / (SMALL_PER_IMAGE as i64 + 1));
            bag.write(small, stored(time, &payload[..SMALL_BYTES]))?;
        }
        bag.step()?;
    }
    let closed = bag.close(Vec::new(), None, |_| BTreeMap::new());
    closed.failure.map_or(Ok(()), Err)
}

fn stored(nanos: i64, payload: &[u8]) -> StoredMessage<'_> {
    StoredMessage {
        log_time: Timestamp::from_nanos(nanos),
        publish_time: Timestamp::from_nanos(nanos),
        sequence: 0,
        payload: PayloadRef::Bytes(payload),
    }
}

struct Bench<'a> {
    options: &'a ToolsBenchOptions,
    clock: &'a dyn Clock,
    scratch: PathBuf,
    inputs: [PathBuf; 2],
    rows: Vec<ToolRow>,
    /// The limit that was measured last, and its rate, while no work came after it.
    last_limit: Option<(Limit, f64)>,
}

/// The limit that work is compared with.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Limit {
    /// `cp` of one input and a sync of the copy.
    Copy,
    /// A read of one input from front to end.
    Read,
}

impl Limit {
    fn name(self) -> &'static str {
        match self {
            Self::Copy => "copy",
            Self::Read => "read",
        }
    }
}

/// One piece of work: what, by which program, and how much.
struct Work<'a> {
    name: &'a str,
    who: &'a str,
    bytes: u64,
    messages: u64,
}

impl Bench<'_> {
    fn file(&self, number: usize) -> PathBuf {
        self.inputs[number].join(format!("input_{number}_0.mcap"))
    }

    /// Drops the inputs from the page cache, as for a user who has not just written them.
    fn prepare(&self) -> BenchResult<()> {
        for number in [0, 1] {
            let path = self.file(number);
            if self.options.cold {
                forget_cached(&path)?;
            } else {
                read_plain(&path)?;
            }
        }
        Ok(())
    }

    fn timed<T>(&self, work: impl FnOnce() -> BenchResult<T>) -> BenchResult<(T, f64)> {
        let start = self.clock.monotonic();
        let done = work()?;
        Ok((done, (self.clock.monotonic() - start).as_secs_f64()))
    }

    fn add(&mut self, work: &Work<'_>, elapsed_s: f64, limit: Option<(Limit, f64)>) {
        let known = self
            .rows
            .iter()
            .position(|row| row.name == work.name && row.who == work.who);
        let place = known.unwrap_or_else(|| {
            self.rows.push(ToolRow {
                name: work.name.to_owned(),
                who: work.who.to_owned(),
                against: limit.map(|(limit, _)| limit.name()),
                ..ToolRow::default()
            });
            self.rows.len() - 1
        });
        let row = &mut self.rows[place];
        (row.bytes, row.messages) = (work.bytes, work.messages);
        row.samples_s.push(elapsed_s);
        row.limits_bytes_per_s.extend(limit.map(|(_, rate)| rate));
    }

    /// Times `work` with its limit measured right before and right after it: a disk that others use, or that
    /// still writes earlier output, differs a second later. The limit's rate is the mean of both. `clean_up`
    /// runs before the second one.
    fn with_limit<T>(
        &mut self,
        limit: Limit,
        work: impl FnOnce() -> BenchResult<T>,
        clean_up: impl FnOnce() -> BenchResult<()>,
    ) -> BenchResult<(T, f64, f64)> {
        let before = match self.last_limit.take() {
            Some((last, rate)) if last == limit => rate,
            _ => self.limit(limit)?,
        };
        self.prepare()?;
        let (done, elapsed_s) = self.timed(work)?;
        clean_up()?;
        let after = self.limit(limit)?;
        self.last_limit = Some((limit, after));
        Ok((done, elapsed_s, f64::midpoint(before, after)))
    }

    /// What the disk copies or reads by itself, in bytes per second.
    fn limit(&mut self, limit: Limit) -> BenchResult<f64> {
        let (input, copy) = (self.file(0), self.scratch.join("copy"));
        let bytes = fs::metadata(&input)
            .map_err(BenchError::io("inspect", &input))?
            .len();
        self.prepare()?;
        let (name, who, elapsed_s) = match limit {
            Limit::Copy => {
                let ((), elapsed_s) = self.timed(|| rivals::copy_with_cp(&input, &copy))?;
                fs::remove_file(&copy).map_err(BenchError::io("remove", &copy))?;
                ("copy of one input", "cp + sync", elapsed_s)
            }
            Limit::Read => {
                let (_, elapsed_s) = self.timed(|| read_plain(&input))?;
                ("read of one input", "plain read", elapsed_s)
            }
        };
        let work = Work {
            name,
            who,
            bytes,
            messages: 0,
        };
        self.add(&work, elapsed_s, None);
        Ok(bytes as f64 / elapsed_s)
    }

    fn round(&mut self) -> BenchResult<()> {
        let first = vec![self.inputs[0].clone()];
        let both = self.inputs.to_vec();
        let none = || (Choice::default(), OutputOptions::default());
        self.make("merge of both inputs", both.clone(), none())?;
        let span = |share: f64| {
            let bag = Bag::open(&self.inputs[0]).map_err(|error| failed(&self.inputs[0], &error))?;
            Ok::<_, BenchError>(bag.metadata().duration.mul_f64(share))
        };
        let (quarter, eighth) = (span(0.26)?, span(0.125)?);
        let mut output = OutputOptions::default();
        output.split.duration_max = Some(quarter);
        self.make(
            "split into 4 files by span",
            first.clone(),
            (Choice::default(), output),
        )?;
        let by_time = Choice {
            start: Some(Moment::AfterStart(eighth)),
            end: Some(Moment::AfterStart(eighth * 7)),
            ..Choice::default()
        };
        self.make(
            "filter by time (3/4)",
            first.clone(),
            (by_time, OutputOptions::default()),
        )?;
        let by_topic = Choice {
            selection: Selection {
                topics: vec!["/image".to_owned()],
                ..Selection::default()
            },
            ..Choice::default()
        };
        self.make(
            "filter by topic (/image)",
            first.clone(),
            (by_topic, OutputOptions::default()),
        )?;
        let sqlite = OutputOptions {
            storage_id: Some("sqlite3".to_owned()),
            ..OutputOptions::default()
        };
        self.make("convert to sqlite3", first, (Choice::default(), sqlite))?;
        self.check()?;
        self.reindex()
    }

    fn make(&mut self, name: &str, inputs: Vec<PathBuf>, what: (Choice, OutputOptions)) -> BenchResult<()> {
        let directory = self.scratch.join("made");
        let (choice, mut output) = what;
        output.directory.clone_from(&directory);
        let work = || {
            let inputs = inputs
                .iter()
                .map(|path| Bag::open(path).map_err(|error| failed(path, &error)))
                .collect::<BenchResult<_>>()?;
            let job = Job {
                inputs,
                choice,
                output,
            };
            tools::run(job, &mut |_, _| ()).map_err(|error| failed(&directory, &error))
        };
        let remove = || fs::remove_dir_all(&directory).map_err(BenchError::io("remove", &directory));
        let (written, elapsed_s, rate) = self.with_limit(Limit::Copy, work, remove)?;
        self.add_ours(
            name,
            (written.bytes, written.messages),
            elapsed_s,
            (Limit::Copy, rate),
        );
        Ok(())
    }

    fn add_ours(&mut self, name: &str, (bytes, messages): (u64, u64), elapsed_s: f64, limit: (Limit, f64)) {
        let work = Work {
            name,
            who: "holdall",
            bytes,
            messages,
        };
        self.add(&work, elapsed_s, Some(limit));
    }

    fn check(&mut self) -> BenchResult<()> {
        let input = self.inputs[0].clone();
        let work = || tools::check::check(&input, &mut |_, _| ()).map_err(|error| failed(&input, &error));
        let (found, elapsed_s, rate) = self.with_limit(Limit::Read, work, || Ok(()))?;
        if let Some(problem) = found.findings().next().filter(|_| !found.is_sound()) {
            return Err(failed(&input, problem));
        }
        let bytes = found.files.iter().map(|file| file.file_bytes).sum();
        let messages = found.files.iter().map(|file| file.message_count).sum();
        self.add_ours("check", (bytes, messages), elapsed_s, (Limit::Read, rate));
        Ok(())
    }

    fn reindex(&mut self) -> BenchResult<()> {
        let input = self.inputs[0].clone();
        let metadata = input.join("metadata.yaml");
        fs::remove_file(&metadata).map_err(BenchError::io("remove", &metadata))?;
        let work = || tools::reindex(&input, &mut |_, _| ()).map_err(|error| failed(&input, &error));
        self.prepare()?;
        let (done, elapsed_s) = self.timed(work)?;
        // Only the summary at the end of the file is read: a rate over the file's bytes, or its ratio to a
        // full read, would mean nothing.
        let work = Work {
            name: "reindex (metadata.yaml)",
            who: "holdall",
            bytes: 0,
            messages: done.messages,
        };
        self.add(&work, elapsed_s, None);
        Ok(())
    }

    /// How long other programs take to read all messages, without decoding them.
    fn rivals(&mut self) -> BenchResult<()> {
        let (file, bag) = (self.file(0), self.inputs[0].clone());
        let bytes = fs::metadata(&file)
            .map_err(BenchError::io("inspect", &file))?
            .len();
        let name = "read of all messages";
        let work = || rivals::read_with_mcap_crate(&file);
        let (messages, elapsed_s, rate) = self.with_limit(Limit::Read, work, || Ok(()))?;
        let work = Work {
            name,
            who: "mcap crate",
            bytes,
            messages,
        };
        self.add(&work, elapsed_s, Some((Limit::Read, rate)));
        let python = rivals::python(self.options.python.as_deref());
        for (package, path) in [("mcap", &file), ("rosbags", &bag)] {
            let work = || rivals::read_with_pip(&python, package, path);
            let (read, _, rate) = self.with_limit(Limit::Read, work, || Ok(()))?;
            if let Some(read) = read {
                let work = Work {
                    name,
                    who: &format!("pip {package}"),
                    bytes,
                    messages: read.messages,
                };
                // Without the interpreter's start.
                self.add(&work, read.elapsed_s, Some((Limit::Read, rate)));
            }
        }
        Ok(())
    }
}

fn failed(path: &Path, error: &dyn std::fmt::Display) -> BenchError {
    BenchError::io("work on", path)(std::io::Error::other(error.to_string()))
}

/// Reads a file from front to end; returns its length.
fn read_plain(path: &Path) -> BenchResult<u64> {
    let file = File::open(path)?;
    file.expect_sequential_reads();
    let (mut buffer, mut at) = (vec![0; READ_BYTES], 0);
    loop {
        let read = file.read_at(&mut buffer, at)?;
        if read == 0 {
            return Ok(at);
        }
        at += read as u64;
    }
}
