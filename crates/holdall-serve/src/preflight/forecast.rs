//! From the figures of a trial to a forecast of a recording: where it would lose its first message, for how long the disk lasts, what must change.

use super::figures::{BURST_MS, Measured, TopicFigures};
use holdall_model::units::counted;
use holdall_model::{
    text::{Outside, first_of},
    unheard::NotHeardKind,
    units::{format_byte_rate, format_bytes},
};
use serde::Serialize;
use std::cmp::Ordering;

/// The part of the disk's own rate that a recording writes without a loss: the disk stalls now and then, and what it wrote alone in a quiet moment is
/// more. The first messages were lost at 0.6 to 0.8 of it (docs/preflight.md).
const DISK_SHARE: f64 = 0.7;

/// At this part the disk is certainly full (recordings reached at most 0.91 to 0.94); below it, a trial without losses shows that its load can be recorded.
const DISK_FULL: f64 = 0.9;

/// The part of all processors that can be busy before messages are lost: threads do not share them without gaps.
const PROCESSORS_SHARE: f64 = 0.95;

/// Most load that the recorder's share of processors busy with other programs is taken to carry: nothing beyond that was seen.
const SHARE_MARGIN_MAX: f64 = TIGHT;

/// The part of one processor that a thread can use.
const THREAD_SHARE: f64 = 0.95;

/// Cost of a thread that waits and runs again, relative to two threads that only wake one another, because caches are cold: 14 µs against 2 to
/// 3 µs were measured. At twice the load threads wait as often, not twice as often.
const WAKE_FACTOR: f64 = 6.0;

/// Most of the used time that is attributed to waking; 77 and 82 % were found with the load of the first loss, for a mix and for small messages.
const WAKING_SHARE_MAX: f64 = 0.8;

/// Cost of a message to the recorder, in bytes of payload.
const MESSAGE_AS_BYTES: f64 = 16.0 * 1024.0;

/// Below this margin a recording fits, but tightly (docs/preflight.md has how exact a forecast is).
const TIGHT: f64 = 1.3;

/// A cache that bridges less than this is small: disks stall for longer.
const STALL_S_MIN: f64 = 1.0;

/// Smallest receive buffer that a kernel setting is proposed for, in bursts.
const BUFFER_BURSTS: u64 = 4;

/// Services and topics that one sentence names.
const NAMED_MAX: usize = 4;

/// Whether a recording will lose messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// It will not.
    #[default]
    Fits,
    /// It will not, as long as nothing grows.
    Tight,
    /// It will.
    Loses,
}

/// Kind of a recording's limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitKind {
    /// Rate of the disk.
    Disk,
    /// All processors, with everything that runs.
    Processors,
    /// The processors that the recorder may use.
    OwnProcessors,
    /// The thread that receives.
    ReceivingThread,
    /// The thread that writes.
    WritingThread,
}

/// A bound, and how much of it the present load uses.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Limit {
    /// Which.
    pub kind: LimitKind,
    /// Used now: bytes a second of the disk, else processors.
    pub used: f64,
    /// The part of it that goes into threads that wait and run again, which does not grow with the load.
    pub waking: f64,
    /// The amount available before messages are lost.
    pub available: f64,
    /// How many times the present load it can carry.
    pub margin: f64,
}

/// Cost of a topic.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TopicCost {
    /// Full ROS name.
    pub name: String,
    /// Its part of the bag, 0 to 1.
    pub share_of_bytes: f64,
    /// Its part of the recorder's work, 0 to 1.
    pub share_of_work: f64,
}

/// The kind of a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ProblemKind {
    /// No message came.
    Silence,
    /// Messages were lost in the trial.
    Lost,
    /// A limit is too near.
    Limit,
    /// The disk is full before the time is over.
    DiskFull,
    /// The cache is larger than the memory that is left.
    Memory,
    /// The cache bridges only a short stall of the disk.
    Cache,
    /// A receive buffer is too small.
    ReceiveBuffer,
    /// Publishers cannot send lost messages again.
    Qos,
    /// The processors are slowed down to save power.
    Governor,
    /// The clock is not kept.
    Clock,
    /// A node or publisher cannot be received.
    NotHeard,
    /// Calls of services cannot be recorded.
    Services,
    /// Messages that the bag alone cannot decode.
    Definitions,
}

/// Something that a user should know or change.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Problem {
    /// Its kind.
    pub kind: ProblemKind,
    /// Messages will be missing because of it.
    pub loses: bool,
    /// One sentence.
    pub sentence: String,
    /// The command that changes it, if any.
    pub command: Option<String>,
}

/// The forecast for a recording.
///
/// ```
/// use holdall::preflight::{Answer, Measured, TopicFigures, TotalFigures, forecast};
///
/// let mut measured = Measured::default();
/// measured.topics.push(TopicFigures { name: "/camera".into(), hz: 30.0, bytes_per_s: 180e6, ..TopicFigures::default() });
/// measured.total = TotalFigures { hz: 30.0, bytes_per_s: 180e6, ..TotalFigures::default() };
/// measured.recorder.written_bytes_per_s = 180e6;
/// measured.disk.write_bytes_per_s = vec![1e9 / 7.0];
/// measured.disk.available_bytes = 36_000_000_000;
///
/// let forecast = forecast(&measured, None);
/// assert_eq!(forecast.answer, Answer::Loses);
/// assert!((forecast.margin.unwrap() - 100.0 / 180.0).abs() < 1e-9);
/// assert_eq!(forecast.full_in_s, Some(200.0));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Forecast {
    /// The answer.
    pub answer: Answer,
    /// How many times the present load can be recorded before a message is lost; `None` if nothing came.
    pub margin: Option<f64>,
    /// The bounds, the nearest first.
    pub limits: Vec<Limit>,
    /// Seconds until the disk is full; `None` if nothing came.
    pub full_in_s: Option<f64>,
    /// Bytes that the bag will have after the requested time.
    pub needed_bytes: Option<u64>,
    /// Seconds of a disk that does not write at all that the cache bridges; `None` if nothing came.
    pub bridged_s: Option<f64>,
    /// Costs of topics, the dearest first.
    pub topics: Vec<TopicCost>,
    /// Things to know or to change, the most urgent first.
    pub problems: Vec<Problem>,
}

/// Makes a forecast, for a recording of `for_s` seconds where that is known. Everything is taken to grow together: if all topics sent twice as much,
/// publishers and recorder would use twice of everything.
pub fn forecast(measured: &Measured, for_s: Option<f64>) -> Forecast {
    let mut limits = limits(measured);
    limits.sort_by(|a, b| a.margin.total_cmp(&b.margin));
    let written = written_bytes_per_s(measured);
    let cache = measured.recorder.cache_bytes_max as f64;
    let available = measured.disk.available_bytes as f64;
    let comes = measured.total.bytes_per_s > 0.0;
    let mut all = Forecast {
        answer: Answer::Fits,
        margin: limits.first().map(|limit| limit.margin),
        full_in_s: (written > 0.0).then(|| available / written),
        needed_bytes: for_s.map(|for_s| (written * for_s) as u64),
        bridged_s: comes.then(|| cache / measured.total.bytes_per_s),
        topics: costs(&measured.topics),
        limits,
        problems: Vec::new(),
    };
    let mut problems = Vec::new();
    problems.extend(of_trial(measured));
    problems.extend(all.limits.iter().filter_map(of_limit));
    problems.extend(of_space(measured, &all, for_s));
    problems.extend(of_memory(measured, &all));
    problems.extend(of_receiving(measured));
    problems.extend(of_machine(measured));
    problems.extend(of_graph(measured));
    problems.sort_by_key(|problem| !problem.loses);
    all.problems = problems;
    all.answer = if all.problems.iter().any(|problem| problem.loses) {
        Answer::Loses
    } else if all.margin.is_some_and(|margin| margin < TIGHT) {
        Answer::Tight
    } else {
        Answer::Fits
    };
    all
}

/// Bytes by which the bag grows each second.
fn written_bytes_per_s(measured: &Measured) -> f64 {
    // A disk in memory counts nothing as written.
    let of_payload = measured.total.bytes_per_s + measured.total.hz * 64.0;
    match measured.recorder.written_bytes_per_s {
        written if written > 0.0 => written,
        _ => of_payload,
    }
}

fn limits(measured: &Measured) -> Vec<Limit> {
    let recorder = &measured.recorder;
    let machine = &measured.machine;
    let cost = machine.switch_cost_s * WAKE_FACTOR;
    let disk = median(&measured.disk.write_bytes_per_s).unwrap_or(0.0);
    let all = machine.processors as f64 * PROCESSORS_SHARE;
    let mut bounds = vec![
        (
            LimitKind::Disk,
            written_bytes_per_s(measured),
            0.0,
            disk * DISK_SHARE,
        ),
        (
            LimitKind::Processors,
            machine.busy_processors,
            machine.switches_per_s,
            all,
        ),
        (
            LimitKind::ReceivingThread,
            recorder.receiving_thread,
            recorder.receiving_waits_per_s,
            THREAD_SHARE,
        ),
        (
            LimitKind::WritingThread,
            recorder.writing_thread,
            recorder.writing_waits_per_s,
            THREAD_SHARE,
        ),
    ];
    // A recorder that is kept to some of the processors has these only.
    if machine.own_processors < machine.processors {
        let own = machine.own_processors as f64 * PROCESSORS_SHARE;
        bounds.push((LimitKind::OwnProcessors, recorder.processors, 0.0, own));
    }
    let comes = measured.total.hz > 0.0;
    bounds
        .into_iter()
        .filter(|(_, used, _, available)| comes && *used > 0.0 && *available > 0.0)
        .map(|(kind, used, waits_per_s, available)| {
            let waking = (waits_per_s * cost).min(used * WAKING_SHARE_MAX);
            let margin = ((available - waking) / (used - waking)).max(0.0);
            let known = match kind {
                LimitKind::Disk if used < available * DISK_FULL / DISK_SHARE => 1.0,
                LimitKind::Processors => of_share(measured),
                _ => 0.0,
            };
            Limit {
                kind,
                used,
                waking,
                available,
                margin: margin.max(known),
            }
        })
        .collect()
}

/// Load that the recorder's share of the processors carries. Others may keep all of them busy: each thread still gets its turn, and a trial without losses
/// shows that the turns were enough. Its threads ran, and waited for their turns, for a part of the time; at more of the load they do so for more.
fn of_share(measured: &Measured) -> f64 {
    let (total, ready) = (&measured.total, measured.recorder.ready);
    if total.lost_in_transit + total.lost_after_arrival > 0 || ready <= 0.0 {
        return 0.0;
    }
    (THREAD_SHARE / ready).clamp(1.0, SHARE_MARGIN_MAX)
}

/// The middle of the values.
fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        len if len % 2 == 1 => Some(sorted[middle]),
        _ => Some(f64::midpoint(sorted[middle - 1], sorted[middle])),
    }
}

fn costs(topics: &[TopicFigures]) -> Vec<TopicCost> {
    let work = |topic: &TopicFigures| topic.bytes_per_s + topic.hz * MESSAGE_AS_BYTES;
    let all_bytes: f64 = topics.iter().map(|topic| topic.bytes_per_s).sum();
    let all_work: f64 = topics.iter().map(work).sum();
    let share = |part: f64, all: f64| if all > 0.0 { part / all } else { 0.0 };
    let mut costs: Vec<TopicCost> = topics
        .iter()
        .map(|topic| TopicCost {
            name: topic.name.clone(),
            share_of_bytes: share(topic.bytes_per_s, all_bytes),
            share_of_work: share(work(topic), all_work),
        })
        .collect();
    costs.sort_by(|a, b| {
        let order = b.share_of_work.total_cmp(&a.share_of_work);
        order.then_with(|| a.name.cmp(&b.name))
    });
    costs
}

fn problem(kind: ProblemKind, loses: bool, sentence: impl Into<String>) -> Problem {
    Problem {
        kind,
        loses,
        sentence: sentence.into(),
        command: None,
    }
}

/// Silence and losses.
fn of_trial(measured: &Measured) -> Vec<Problem> {
    let mut found = Vec::new();
    if measured.total.hz <= 0.0 {
        let sentence = "no message came: there is nothing to forecast from";
        found.push(problem(ProblemKind::Silence, true, sentence));
    }
    let total = &measured.total;
    if total.lost_after_arrival > 0 {
        let sentence = format!(
            "{} arrived in the trial and could not be stored",
            counted(total.lost_after_arrival, "message")
        );
        found.push(problem(ProblemKind::Lost, true, sentence));
    }
    if total.lost_in_transit > 0 {
        let losers = measured.topics.iter().filter(|topic| topic.lost > 0);
        let sentence = format!(
            "{} did not arrive in the trial, on {}",
            counted(total.lost_in_transit, "message"),
            first_of(losers.map(|topic| topic.name.as_str()), NAMED_MAX)
        );
        found.push(problem(ProblemKind::Lost, true, sentence));
    }
    found
}

/// A limit that the load exceeds, or nearly does.
fn of_limit(limit: &Limit) -> Option<Problem> {
    let rate = |bytes: f64| format_byte_rate(bytes);
    let sentence = match limit.kind {
        LimitKind::Disk => format!(
            "the disk can write {}, and {} come",
            rate(limit.available / DISK_SHARE),
            rate(limit.used)
        ),
        LimitKind::Processors if limit.used > limit.available && limit.margin >= 1.0 => format!(
            "{:.1} processors are busy; the recorder's share of them was enough in the trial, and may not be for more",
            limit.used
        ),
        LimitKind::Processors => format!(
            "{:.1} processors are busy, and messages are lost from {:.1} on",
            limit.used, limit.available
        ),
        LimitKind::OwnProcessors => format!(
            "the recorder uses {:.1} of the processors that it may use, and messages are lost from {:.1} on",
            limit.used, limit.available
        ),
        LimitKind::ReceivingThread => format!(
            "the thread that receives is busy for {:.0} % of the time",
            limit.used * 100.0
        ),
        LimitKind::WritingThread => format!(
            "the thread that writes is busy for {:.0} % of the time",
            limit.used * 100.0
        ),
    };
    (limit.margin < TIGHT).then(|| problem(ProblemKind::Limit, limit.margin < 1.0, sentence))
}

fn of_space(measured: &Measured, all: &Forecast, for_s: Option<f64>) -> Option<Problem> {
    let (needed, for_s, full_in_s) = (all.needed_bytes?, for_s?, all.full_in_s?);
    let sentence = format!(
        "the bag will need {}, and {} are free",
        format_bytes(needed),
        format_bytes(measured.disk.available_bytes)
    );
    (full_in_s < for_s).then(|| problem(ProblemKind::DiskFull, true, sentence))
}

fn of_memory(measured: &Measured, all: &Forecast) -> Vec<Problem> {
    let mut found = Vec::new();
    let (cache, memory) = (
        measured.recorder.cache_bytes_max,
        measured.machine.available_memory_bytes,
    );
    if memory > 0 && cache > memory {
        let sentence = format!(
            "the cache may hold {}, and {} of memory are left",
            format_bytes(cache),
            format_bytes(memory)
        );
        found.push(problem(ProblemKind::Memory, false, sentence));
    }
    if let Some(bridged) = all
        .bridged_s
        .filter(|bridged| cache > 0 && *bridged < STALL_S_MIN)
    {
        let sentence = format!(
            "the cache of {} bridges a stall of the disk of {bridged:.1} s only",
            format_bytes(cache)
        );
        found.push(problem(ProblemKind::Cache, false, sentence));
    }
    found
}

/// Receive buffers, and publishers that cannot send again.
fn of_receiving(measured: &Measured) -> Vec<Problem> {
    let mut found: Vec<Problem> = measured
        .warnings
        .iter()
        .map(|warning| Problem {
            command: command_in(warning),
            ..problem(ProblemKind::ReceiveBuffer, false, warning.clone())
        })
        .collect();
    let dropped = measured.machine.dropped_packets;
    if dropped > 0 {
        let wanted = measured.total.burst_bytes.saturating_mul(BUFFER_BURSTS);
        let wanted = wanted.next_power_of_two().clamp(4 << 20, 1 << 30);
        let is_small = measured
            .machine
            .receive_buffer_bytes_max
            .is_some_and(|max| max < wanted);
        let sentence = format!(
            "the kernel dropped {dropped} UDP packets because a receive buffer was full; up to {} came within {BURST_MS} ms",
            format_bytes(measured.total.burst_bytes)
        );
        found.push(Problem {
            command: is_small.then(|| format!("sudo sysctl -w net.core.rmem_max={wanted}")),
            ..problem(ProblemKind::ReceiveBuffer, false, sentence)
        });
    }
    for topic in measured.topics.iter().filter(|topic| topic.lost > 0) {
        let name = Outside(&topic.name);
        let change = match (topic.is_reliable, topic.depth) {
            (false, _) => {
                format!("{name}: its publisher does not send again what is lost; let it offer `reliable`")
            }
            (true, Some(depth)) => {
                let wanted = (topic.hz.ceil() as u64).max(depth.saturating_mul(2));
                format!(
                    "{name}: its publisher keeps the last {depth} messages only; let it keep {wanted} (a second of them)"
                )
            }
            (true, None) => {
                let wanted = topic.hz.ceil() as u64;
                format!(
                    "{name}: its publisher could not send them again; let it keep the last {wanted} messages (a second of them)"
                )
            }
        };
        found.push(problem(ProblemKind::Qos, false, change));
    }
    found
}

/// The command that a warning ends with.
fn command_in(warning: &str) -> Option<String> {
    let at = warning.find("sudo ")?;
    Some(warning[at..].trim_end_matches('.').to_owned())
}

fn of_machine(measured: &Measured) -> Vec<Problem> {
    let mut found = Vec::new();
    let slow: Vec<&str> = measured
        .machine
        .governors
        .iter()
        .map(String::as_str)
        .filter(|name| *name != "performance")
        .collect();
    if !slow.is_empty() {
        let sentence = format!(
            "the processors may be slowed down to save power (governor {})",
            slow.join(", ")
        );
        found.push(Problem {
            command: Some(
                "echo performance | sudo tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor"
                    .to_owned(),
            ),
            ..problem(ProblemKind::Governor, false, sentence)
        });
    }
    if measured.machine.clock_is_synchronised == Some(false) {
        let sentence = "nothing keeps the clock: stamps of several machines will not fit together";
        found.push(Problem {
            command: Some("sudo timedatectl set-ntp true".to_owned()),
            ..problem(ProblemKind::Clock, false, sentence)
        });
    }
    found
}

/// Messages that will be missing from the bag, or unreadable.
fn of_graph(measured: &Measured) -> Vec<Problem> {
    let mut found: Vec<Problem> = measured
        .not_heard
        .iter()
        .map(|one| {
            // A whole participant may have nothing that is wanted.
            let loses = !matches!(
                one.kind,
                NotHeardKind::NoUdp | NotHeardKind::DiscoveryServer | NotHeardKind::Secured
            );
            problem(
                ProblemKind::NotHeard,
                loses,
                format!("not heard: {}", Outside(&one.to_string())),
            )
        })
        .collect();
    let services = &measured.services_without_introspection;
    if !services.is_empty() {
        let sentence = format!(
            "the calls of {} are not published, so they will not be in the bag: {}",
            counted(services.len() as u64, "service"),
            first_of(services.iter().map(String::as_str), NAMED_MAX)
        );
        found.push(problem(ProblemKind::Services, false, sentence));
    }
    let undefined = &measured.undefined_topics;
    if !undefined.is_empty() {
        let sentence = format!(
            "no definition was found for the types of {}; the bag alone cannot decode {}",
            counted(undefined.len() as u64, "topic"),
            first_of(undefined.iter().map(|(name, _)| name.as_str()), NAMED_MAX)
        );
        found.push(problem(ProblemKind::Definitions, false, sentence));
    }
    found
}

/// The order in which a table lists topics: the dearest first.
pub fn by_cost(forecast: &Forecast, a: &TopicFigures, b: &TopicFigures) -> Ordering {
    let place = |topic: &TopicFigures| {
        let places = forecast.topics.iter();
        places
            .clone()
            .position(|cost| cost.name == topic.name)
            .unwrap_or(usize::MAX)
    };
    place(a).cmp(&place(b))
}

#[cfg(test)]
#[path = "forecast_tests.rs"]
mod tests;
