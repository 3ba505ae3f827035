//! The trial: the real recorder for a while, into a scratch bag whose oldest files are removed, and then the disk alone.

use super::{
    arrivals::{Arrivals, Counted},
    figures::{DiskFigures, MachineFigures, Measured, RecorderFigures, TopicFigures, TotalFigures},
};
use holdall_bag::writer::SplitOptions;
use holdall_io::{
    clock::Clock,
    disk::DiskError,
    fs,
    limits::{measure_buffered_write, measure_direct_write},
    machine::{self, ClockState, ProcessorTimes, ThreadTime},
    main_memory::available_memory_bytes,
    process::process_cpu_time,
    scratch::ScratchDirectory,
};
use holdall_model::units::format_bytes;
use holdall_record::{
    Platform, RecordError, Recorder,
    options::{FileOptions, OnDiskFull, RecordOptions, RecordingLimits, SafetyOptions},
    status::{RecordReport, TopicStatus},
};
use holdall_transport::{Transport, registry::is_receiving_thread};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

/// Time between two steps.
const TICK: Duration = Duration::from_millis(50);

/// Discovery and first messages are not part of the figures, which begin when messages come and no topic has been new for [`SETTLED`], at the
/// latest after this.
const SETTLE_MAX: Duration = Duration::from_secs(5);
const SETTLED: Duration = Duration::from_millis(500);

/// Free space that a trial needs.
const FREE_BYTES_MIN: u64 = 64 << 20;

/// A file of the scratch bag has at most this part of the free space: three of them can be there at once.
const FILE_PART: u64 = 16;
const FILE_BYTES: (u64, u64) = (4 << 20, 256 << 20);

/// Newest files that the scratch bag keeps.
const FILES_KEPT: u32 = 2;

/// The disk alone: how often it is measured, for about how long, and with how much at most.
const PROBES: usize = 3;
const PROBE_S: f64 = 0.7;
const PROBE_BYTES: (u64, u64) = (16 << 20, 512 << 20);

/// Direct writes of the probe: bytes of each, and how many are in flight. Buffered ones have the first of them.
const PROBE_BLOCK_BYTES: usize = 4 << 20;
const PROBE_DEPTH: usize = 8;

/// The thread of the recorder that writes.
const WRITING_THREAD: &str = "drain";

/// The recorder's thread that moves messages of transports without threads.
const RECORDING_THREAD: &str = "record";

/// Why a trial gave no figures.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PreflightError {
    /// The recorder could not be started.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The scratch bag failed while it was written: one sentence.
    #[error("the trial ended early: {0}")]
    Ended(String),
    /// The folder or the disk.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// There is no room for a trial.
    #[error("{}: {} are free, a trial needs {}", folder.display(), format_bytes(*available_bytes), format_bytes(FREE_BYTES_MIN))]
    Full {
        /// Where the bag would be.
        folder: PathBuf,
        /// Free bytes there.
        available_bytes: u64,
    },
    /// The caller ended it.
    #[error("the trial was ended before it had measured anything")]
    Interrupted,
}

/// How far a trial is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Progress {
    /// Since the start.
    pub elapsed: Duration,
    /// Of this.
    pub span: Duration,
    /// Topics so far.
    pub topics: usize,
    /// Messages so far.
    pub messages: u64,
    /// Payload bytes so far.
    pub bytes: u64,
    /// The recording is over, and the disk alone is measured.
    pub is_probing: bool,
}

/// Finds the system, and then records for `span` what `options` selects into a scratch bag in the folder of their output, removes it, measures the disk, and returns the figures.
/// Output, splits, limits and events of the options have no effect. `keep_going` is called some twenty times a second; false ends the trial.
///
/// # Errors
/// A recorder that cannot be started or fails; no room; an end by the caller.
pub fn measure(
    options: RecordOptions,
    transports: Vec<Box<dyn Transport>>,
    platform: Platform,
    span: Duration,
    keep_going: &mut dyn FnMut(&Progress) -> bool,
) -> Result<Measured, PreflightError> {
    let folder = existing_folder(&options.output);
    let available_bytes = fs::available_bytes(&folder)?;
    if available_bytes < FREE_BYTES_MIN {
        return Err(PreflightError::Full {
            folder,
            available_bytes,
        });
    }
    let warnings = transports
        .iter()
        .flat_map(|transport| transport.warnings())
        .collect();
    let available_memory = available_memory_bytes(&machine::read).unwrap_or(0);
    let arrivals = Arc::new(Arrivals::default());
    let counted = |transport| Box::new(Counted::new(transport, &arrivals)) as Box<dyn Transport>;
    let transports = transports.into_iter().map(counted).collect();
    let clock = Arc::clone(&platform.clock);
    let scratch = ScratchDirectory::create(&folder)?;
    let trial = Trial {
        recorder: Recorder::start_on(of_trial(options, &scratch, available_bytes), transports, platform)?,
        arrivals: &arrivals,
        clock: &*clock,
        span,
    };
    let mut measured = trial.run(keep_going)?;
    measured.machine.switch_cost_s = machine::switch_cost().as_secs_f64();
    fs::remove_dir_all(&scratch.path().join(BAG))?;
    keep_going(&Progress {
        elapsed: span,
        span,
        is_probing: true,
        ..Progress::default()
    });
    measured.disk = probe(scratch.path(), available_bytes)?;
    measured.disk.folder = folder;
    measured.warnings = warnings;
    measured.machine.available_memory_bytes = available_memory;
    Ok(measured)
}

/// The scratch bag in its folder.
const BAG: &str = "trial";

/// The options of a recording as those of its trial.
fn of_trial(options: RecordOptions, scratch: &ScratchDirectory, available_bytes: u64) -> RecordOptions {
    let file_bytes = (available_bytes / FILE_PART).clamp(FILE_BYTES.0, FILE_BYTES.1);
    let mut options = RecordOptions {
        output: scratch.path().join(BAG),
        files: FileOptions {
            split: SplitOptions {
                bytes_max: Some(file_bytes),
                files_max: Some(FILES_KEPT),
                ..SplitOptions::default()
            },
            lists_complete_files: false,
            ..options.files
        },
        safety: SafetyOptions {
            on_disk_full: OnDiskFull::Stop,
            min_free_space_bytes: None,
            ..options.safety
        },
        limits: RecordingLimits::default(),
        triggers: None,
        promote: None,
        start_paused: false,
        use_sim_time: false,
        events: None,
        ..options
    };
    options.cache.snapshot = false;
    options
}

/// The folder of the bag, or the nearest existing one above it.
fn existing_folder(output: &Path) -> PathBuf {
    let above = output.ancestors().skip(1);
    let found = above
        .filter(|path| !path.as_os_str().is_empty())
        .find(|path| fs::is_dir(path));
    found.map_or_else(|| PathBuf::from("."), Path::to_owned)
}

/// A trial that runs.
struct Trial<'a> {
    recorder: Recorder,
    arrivals: &'a Arrivals,
    clock: &'a dyn Clock,
    span: Duration,
}

/// Counters that only grow, at one time.
struct Counters {
    at: Duration,
    own: Duration,
    all: ProcessorTimes,
    threads: BTreeMap<u64, ThreadTime>,
    written: Option<u64>,
    dropped: u64,
    lost: BTreeMap<String, [u64; 2]>,
}

impl Trial<'_> {
    fn run(self, keep_going: &mut dyn FnMut(&Progress) -> bool) -> Result<Measured, PreflightError> {
        self.settle(keep_going)?;
        self.arrivals.reset();
        let before = self.counters();
        let seen = self.wait(before.at, keep_going)?;
        let after = self.counters();
        let span_s = (after.at - before.at).as_secs_f64();
        let topics = self.arrivals.topics(span_s);
        let burst_bytes = self.arrivals.burst_bytes();
        let report = self.recorder.stop();
        if let Some(reason) = &report.failure {
            return Err(PreflightError::Ended(reason.clone()));
        }
        let mut measured = Measured {
            span_s,
            topics: with_status(topics, &report, &before.lost),
            not_heard: report.status.not_heard.iter().cloned().collect(),
            services_without_introspection: report.status.unheard_services.iter().cloned().collect(),
            undefined_topics: undefined(&report),
            recorder: recorder_figures(&before, &after, span_s),
            machine: machine_figures(&before, &after, span_s, seen.late_max),
            ..Measured::default()
        };
        measured.recorder.cache_bytes_max = report.status.cache_bytes_max as u64;
        measured.recorder.cache_bytes_peak = seen.cache_peak;
        measured.total = TotalFigures {
            hz: measured.topics.iter().map(|topic| topic.hz).sum(),
            bytes_per_s: measured.topics.iter().map(|topic| topic.bytes_per_s).sum(),
            burst_bytes,
            ..TotalFigures::default()
        };
        let lost = report
            .status
            .topics
            .iter()
            .map(|topic| lost_since(topic, &before.lost));
        for [in_transit, after_arrival] in lost {
            measured.total.lost_in_transit += in_transit;
            measured.total.lost_after_arrival += after_arrival;
        }
        Ok(measured)
    }

    /// Waits until the system is found.
    fn settle(&self, keep_going: &mut dyn FnMut(&Progress) -> bool) -> Result<(), PreflightError> {
        let began = self.clock.monotonic();
        let settle_max = SETTLE_MAX.min(self.span * 5);
        let (mut topics, mut changed) = (0, began);
        loop {
            self.clock.sleep_until(self.clock.monotonic() + TICK);
            let (now, status) = (self.clock.monotonic(), self.recorder.status());
            if status.topics.len() != topics {
                (topics, changed) = (status.topics.len(), now);
            }
            let progress = Progress {
                span: self.span,
                topics,
                messages: status.recorded,
                bytes: status.recorded_bytes,
                ..Progress::default()
            };
            if !keep_going(&progress) {
                return Err(PreflightError::Interrupted);
            }
            let is_settled = status.recorded > 0 && now - changed >= SETTLED;
            if is_settled || now - began >= settle_max || self.recorder.wait_finished(Duration::ZERO) {
                return Ok(());
            }
        }
    }

    /// Waits until the span is over that began at `began`, which is monotonic.
    fn wait(
        &self,
        began: Duration,
        keep_going: &mut dyn FnMut(&Progress) -> bool,
    ) -> Result<Seen, PreflightError> {
        let mut seen = Seen::default();
        let end = began + self.span;
        loop {
            let now = self.clock.monotonic();
            if now >= end {
                return Ok(seen);
            }
            let next = (now + TICK).min(end);
            self.clock.sleep_until(next);
            seen.late_max = seen.late_max.max(self.clock.monotonic().saturating_sub(next));
            let status = self.recorder.status();
            seen.cache_peak = seen.cache_peak.max(status.cache_bytes as u64);
            let progress = Progress {
                elapsed: self.clock.monotonic().saturating_sub(began),
                span: self.span,
                topics: status.topics.len(),
                messages: status.recorded,
                bytes: status.recorded_bytes,
                is_probing: false,
            };
            if !keep_going(&progress) {
                return Err(PreflightError::Interrupted);
            }
            if self.recorder.wait_finished(Duration::ZERO) {
                return Ok(seen);
            }
        }
    }

    fn counters(&self) -> Counters {
        let status = self.recorder.status();
        let lost = status
            .topics
            .iter()
            .map(|topic| (topic.name.clone(), lost(topic)));
        Counters {
            lost: lost.collect(),
            threads: machine::thread_times()
                .into_iter()
                .map(|thread| (thread.id, thread))
                .collect(),
            written: machine::written_bytes(),
            dropped: machine::dropped_packets(&machine::read),
            own: process_cpu_time().total(),
            all: machine::processor_times(),
            at: self.clock.monotonic(),
        }
    }
}

/// Observations while it runs.
#[derive(Default)]
struct Seen {
    cache_peak: u64,
    late_max: Duration,
}

/// Messages of a topic that are lost: before they arrived, and after.
fn lost(topic: &TopicStatus) -> [u64; 2] {
    let sum = |after_arrival: bool| {
        let lost = topic.lost.iter();
        lost.filter(|(stage, _)| stage.is_shortfall() && stage.is_after_arrival() == after_arrival)
            .map(|(_, count)| count)
            .sum()
    };
    [sum(false), sum(true)]
}

/// The same since the beginning of the figures.
fn lost_since(topic: &TopicStatus, before: &BTreeMap<String, [u64; 2]>) -> [u64; 2] {
    let before = before.get(&topic.name).copied().unwrap_or_default();
    let now = lost(topic);
    [now[0].saturating_sub(before[0]), now[1].saturating_sub(before[1])]
}

fn undefined(report: &RecordReport) -> Vec<(String, String)> {
    let topics = report.undefined.iter();
    topics
        .map(|topic| (topic.name.clone(), topic.type_name.clone()))
        .collect()
}

/// Arrivals, with the recorder's knowledge of each topic.
fn with_status(
    mut arrived: BTreeMap<String, TopicFigures>,
    report: &RecordReport,
    before: &BTreeMap<String, [u64; 2]>,
) -> Vec<TopicFigures> {
    let topic = |status: &TopicStatus| TopicFigures {
        name: status.name.clone(),
        type_name: status.type_name.clone(),
        publishers: status.publishers,
        lost: lost_since(status, before).iter().sum(),
        loss_unknown: status.loss_unknown,
        ..arrived.remove(&status.name).unwrap_or_default()
    };
    let mut all: Vec<TopicFigures> = report.status.topics.iter().map(topic).collect();
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}

/// Shares of one processor that threads had, by what `wanted` selects: that of the busiest, and how often a second it waited.
fn busiest(before: &Counters, after: &Counters, span_s: f64, wanted: impl Fn(&str) -> bool) -> (f64, f64) {
    let none = ThreadTime::default();
    let share = |thread: &ThreadTime| {
        let had = before.threads.get(&thread.id).unwrap_or(&none);
        let busy = thread.busy.saturating_sub(had.busy).as_secs_f64() / span_s;
        (busy, thread.waits.saturating_sub(had.waits) as f64 / span_s)
    };
    let threads = after.threads.values().filter(|thread| wanted(&thread.name));
    threads
        .map(share)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .unwrap_or_default()
}

/// The part of the time for which the thread that waited most for a processor ran or waited for one.
fn ready(before: &Counters, after: &Counters, span_s: f64) -> f64 {
    let none = ThreadTime::default();
    let since = |thread: &ThreadTime| {
        let had = before.threads.get(&thread.id).unwrap_or(&none);
        let queued = thread.queued.saturating_sub(had.queued);
        (queued, thread.busy.saturating_sub(had.busy) + queued)
    };
    let slowest = after.threads.values().map(since).max();
    slowest.map_or(0.0, |(_, ready)| ready.as_secs_f64() / span_s)
}

fn recorder_figures(before: &Counters, after: &Counters, span_s: f64) -> RecorderFigures {
    let receives = |name: &str| is_receiving_thread(name) || name == RECORDING_THREAD;
    let (receiving_thread, receiving_waits_per_s) = busiest(before, after, span_s, receives);
    let (writing_thread, writing_waits_per_s) = busiest(before, after, span_s, |name| name == WRITING_THREAD);
    let written = after.written.zip(before.written);
    RecorderFigures {
        processors: after.own.saturating_sub(before.own).as_secs_f64() / span_s,
        ready: ready(before, after, span_s),
        receiving_thread,
        receiving_waits_per_s,
        writing_thread,
        writing_waits_per_s,
        written_bytes_per_s: written.map_or(0.0, |(after, before)| {
            after.saturating_sub(before) as f64 / span_s
        }),
        ..RecorderFigures::default()
    }
}

fn machine_figures(before: &Counters, after: &Counters, span_s: f64, late_max: Duration) -> MachineFigures {
    let (busy, yielding) = after.all.since(&before.all);
    let (busy, yielding) = (busy.as_secs_f64() / span_s, yielding.as_secs_f64() / span_s);
    MachineFigures {
        processors: machine::processors_of_machine(),
        own_processors: machine::processor_count(),
        // Some kernels sample idle time at ticks; the recorder's own time is exact.
        busy_processors: (busy - yielding).max(after.own.saturating_sub(before.own).as_secs_f64() / span_s),
        switches_per_s: after.all.switches_since(&before.all) as f64 / span_s,
        yielding_processors: yielding,
        governors: machine::governors(&machine::read),
        receive_buffer_bytes_max: machine::receive_buffer_bytes_max(&machine::read),
        dropped_packets: after.dropped.saturating_sub(before.dropped),
        wake_late_max_s: late_max.as_secs_f64(),
        clock_is_synchronised: match machine::clock_state() {
            ClockState::Synchronised { .. } => Some(true),
            ClockState::Free => Some(false),
            ClockState::Unknown => None,
        },
        ..MachineFigures::default()
    }
}

/// Measures the disk alone, with files of bounded size that are removed at once.
fn probe(dir: &Path, available_bytes: u64) -> Result<DiskFigures, DiskError> {
    let first = PROBE_BYTES.0;
    let refused = match measure_direct_write(dir, first, PROBE_BLOCK_BYTES, PROBE_DEPTH) {
        Err(error) if error.is_no_space() => return Err(error),
        Err(error) => Some(error.to_string()),
        Ok(_) => None,
    };
    let once = |bytes| match refused {
        None => measure_direct_write(dir, bytes, PROBE_BLOCK_BYTES, PROBE_DEPTH),
        Some(_) => measure_buffered_write(dir, bytes, PROBE_BLOCK_BYTES),
    };
    let most = (available_bytes / 8).clamp(first, PROBE_BYTES.1);
    let probe_bytes = ((once(first)? * PROBE_S) as u64).clamp(first, most);
    let rates = (0..PROBES).map(|_| once(probe_bytes)).collect::<Result<_, _>>()?;
    Ok(DiskFigures {
        available_bytes,
        write_bytes_per_s: rates,
        probe_bytes,
        direct_refused: refused,
        ..DiskFigures::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preflight::{Answer, forecast};
    use holdall_io::clock::SystemClock;
    use holdall_model::{selection::Selection, topic::NodeName};
    use holdall_transport::{
        PublishRequest, Publisher,
        memory::{MemoryNetwork, MemoryTransport},
    };

    fn request(topic: &str) -> PublishRequest {
        PublishRequest {
            topic: topic.to_owned(),
            type_name: "std_msgs/msg/String".to_owned(),
            ..PublishRequest::default()
        }
    }

    /// A trial of these milliseconds on a network where each topic sends a message of `bytes` at each step; what stays in the folder, and the result.
    fn trial(folder: &Path, bytes: usize, millis: u64) -> Result<Measured, PreflightError> {
        let network = MemoryNetwork::new();
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let node = NodeName::in_root("talker");
        let mut talkers: Vec<_> = ["/a", "/b"]
            .map(|topic| network.publisher(&node, &request(topic), &clock))
            .into();
        let transport = MemoryTransport::new(&network, NodeName::in_root("recorder"), Arc::clone(&clock));
        let options = RecordOptions::new(folder.join("not/there/yet"), Selection::all());
        let payload = vec![0; bytes];
        measure(
            options,
            vec![Box::new(transport)],
            Platform::default(),
            Duration::from_millis(millis),
            &mut |_| {
                talkers
                    .iter_mut()
                    .for_each(|talker| talker.publish(&payload).unwrap());
                true
            },
        )
    }

    #[test]
    fn a_trial_measures_what_came_and_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let measured = trial(folder.path(), 1000, 600).unwrap();
        assert_eq!(measured.topics.len(), 2);
        for topic in &measured.topics {
            assert_eq!(
                (topic.type_name.as_str(), topic.publishers),
                ("std_msgs/msg/String", 1)
            );
            assert!(
                topic.messages > 0 && topic.bytes == topic.messages * 1000,
                "{topic:?}"
            );
            assert!((topic.hz - topic.messages as f64 / measured.span_s).abs() < 1e-9);
            assert_eq!((topic.bytes_max, topic.lost), (1000, 0));
        }
        assert_eq!(
            measured.total.lost_in_transit + measured.total.lost_after_arrival,
            0
        );
        assert!(measured.disk.write_bytes_per_s.len() == PROBES && measured.disk.available_bytes > 0);
        assert!(measured.recorder.processors > 0.0 && measured.machine.processors > 0);
        assert_eq!(measured.disk.folder, folder.path());
        let left = std::fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(left, 0, "the scratch bag and the probe are removed");
        // The JSON form is enough for the same forecast.
        let text = serde_json::to_string(&measured).unwrap();
        let again: Measured = serde_json::from_str(&text).unwrap();
        let (one, other) = (forecast(&measured, Some(60.0)), forecast(&again, Some(60.0)));
        assert_eq!(one.topics.len(), 2);
        assert_eq!(one.answer, other.answer);
    }

    #[test]
    fn a_trial_that_is_ended_gives_no_figures_and_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let network = MemoryNetwork::new();
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let transport = MemoryTransport::new(&network, NodeName::in_root("recorder"), clock);
        let options = RecordOptions::new(folder.path().join("lab"), Selection::all());
        let ended = measure(
            options,
            vec![Box::new(transport)],
            Platform::default(),
            Duration::from_secs(60),
            &mut |_| false,
        );
        assert!(matches!(ended, Err(PreflightError::Interrupted)), "{ended:?}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn silence_is_measured_too() {
        let folder = tempfile::tempdir().unwrap();
        let network = MemoryNetwork::new();
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let transport = MemoryTransport::new(&network, NodeName::in_root("recorder"), clock);
        let options = RecordOptions::new(folder.path().join("lab"), Selection::all());
        let span = Duration::from_millis(100);
        let measured = measure(
            options,
            vec![Box::new(transport)],
            Platform::default(),
            span,
            &mut |_| true,
        )
        .unwrap();
        assert!(measured.topics.is_empty());
        assert_eq!(forecast(&measured, None).answer, Answer::Loses);
    }
}
