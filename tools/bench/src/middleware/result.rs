//! Results of an evaluation, as its folder holds them.

use super::{Account, Middleware};
use crate::{link::Carried, machine::Machine, measure::ProcessSample};
use serde::{Deserialize, Serialize};

/// The file with all runs, in the experiment's folder.
pub const RESULT_FILE: &str = "evaluation.json";

/// The costs of one side of a run, from its start to the end of the drain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkerCost {
    /// Processor time in seconds.
    pub cpu_s: f64,
    /// Duration of the measurement in seconds.
    pub elapsed_s: f64,
    /// Highest resident memory in bytes.
    pub rss_max_bytes: u64,
    /// Resident memory at the end that belongs to no file, in bytes.
    #[serde(default)]
    pub anonymous_bytes: u64,
    /// Address space at the end, in bytes.
    #[serde(default)]
    pub virtual_bytes: u64,
}

impl WorkerCost {
    /// Cores in use on average.
    pub fn cores(&self) -> f64 {
        self.cpu_s / self.elapsed_s.max(1e-9)
    }
}

/// Traffic on the link, discovery included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WireUse {
    /// IP bytes that the publisher's end sent.
    pub forward_bytes: u64,
    /// Their packets.
    pub forward_packets: u64,
    /// IP bytes that the subscriber's end sent.
    pub back_bytes: u64,
    /// Their packets.
    pub back_packets: u64,
    /// Packets that are a part of a larger datagram, both ways.
    pub fragments: u64,
    /// Packets to many, both ways.
    pub multicast: u64,
    /// DATA and DATA_FRAG submessages that were sent again.
    pub rtps_repairs: u64,
    /// TCP segments that were sent again.
    pub tcp_retransmissions: u64,
    /// Packets lost at random, both ways.
    pub lost: u64,
    /// Packets dropped by a full queue, both ways.
    pub queue_dropped: u64,
    /// Every packet is accounted for.
    pub balances: bool,
    /// 99 of 100 packets were not delivered later than planned by more than this, in microseconds.
    pub lateness_p99_us: f64,
    /// Cores that the link itself used.
    pub cores: f64,
}

impl From<&Carried> for WireUse {
    fn from(carried: &Carried) -> Self {
        let ways = [&carried.a_to_b, &carried.b_to_a];
        Self {
            forward_bytes: carried.a_to_b.entered.bytes,
            forward_packets: carried.a_to_b.entered.packets,
            back_bytes: carried.b_to_a.entered.bytes,
            back_packets: carried.b_to_a.entered.packets,
            fragments: ways.iter().map(|way| way.fragments).sum(),
            multicast: ways.iter().map(|way| way.multicast).sum(),
            rtps_repairs: ways.iter().map(|way| way.rtps_repairs).sum(),
            tcp_retransmissions: ways.iter().map(|way| way.tcp_retransmissions).sum(),
            lost: ways.iter().map(|way| way.dropped.loss.packets).sum(),
            queue_dropped: ways.iter().map(|way| way.dropped.queue.packets).sum(),
            balances: carried.balances,
            lateness_p99_us: carried.lateness.p99_us,
            cores: carried.cores,
        }
    }
}

/// How long nodes took to know each other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Discovery {
    /// How many there were.
    pub nodes: u32,
    /// When each knew all of the other half, in seconds after the common start, ascending. Those that never did are missing.
    pub known_s: Vec<f64>,
}

impl Discovery {
    /// When the last node knew all others; `None` when not all did.
    pub fn complete_s(&self) -> Option<f64> {
        let is_complete = self.known_s.len() == self.nodes as usize;
        self.known_s.last().copied().filter(|_| is_complete)
    }

    /// The share of nodes that knew all others, in percent.
    pub fn complete_percent(&self) -> f64 {
        100.0 * self.known_s.len() as f64 / f64::from(self.nodes.max(1))
    }
}

/// The clock of another machine, against this one's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClockOffset {
    /// How much it is ahead, in nanoseconds.
    pub offset_ns: i64,
    /// The offset is not further off than this, in microseconds: half of the shortest round trip.
    pub error_us: f64,
    /// How much it has changed from before the run until after it, in microseconds.
    pub drift_us: f64,
}

impl ClockOffset {
    /// The offset of a run, from a measurement before and one after it.
    pub(crate) fn until(self, after: Self) -> Self {
        Self {
            offset_ns: self.offset_ns,
            error_us: self.error_us.max(after.error_us),
            drift_us: after.offset_ns.saturating_sub(self.offset_ns) as f64 / 1e3,
        }
    }

    /// A latency between both machines may be wrong by this, in microseconds.
    pub fn uncertainty_us(&self) -> f64 {
        self.error_us + self.drift_us.abs()
    }
}

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MiddlewareRun {
    /// The case's label.
    pub case: String,
    /// The link's label.
    pub link: String,
    /// The middleware.
    pub middleware: Middleware,
    /// Number of the repetition, from 0.
    pub repetition: u32,
    /// Why the figures of this run mean nothing: the machine did not keep to the link or the schedule.
    pub invalid: Option<String>,
    /// Content of a message in bytes.
    pub message_bytes: u64,
    /// When the publisher and the subscriber knew each other, in seconds after both existed; `None`: never, or too late.
    pub matched_s: [Option<f64>; 2],
    /// The fate of every message.
    pub account: Account,
    /// Cost of the publisher.
    pub publisher: WorkerCost,
    /// Cost of the subscriber.
    pub subscriber: WorkerCost,
    /// Traffic on the link; `None` on one host.
    pub wire: Option<WireUse>,
    /// Result of nodes that only discover each other.
    #[serde(default)]
    pub discovery: Option<Discovery>,
    /// Clock of the other machine, for runs on two.
    #[serde(default)]
    pub clock: Option<ClockOffset>,
    /// Processor and memory of the publisher and the subscriber about once a second from the start; empty for programs of another machine.
    #[serde(default)]
    pub samples: [Vec<ProcessSample>; 2],
    /// The concurrent load, whose packets are counted in `wire`, too.
    #[serde(default)]
    pub beside: Option<String>,
}

impl MiddlewareRun {
    /// What was found, in one clause.
    pub(crate) fn sentence(&self) -> String {
        if let Some(discovery) = &self.discovery {
            return match discovery.complete_s() {
                Some(seconds) => format!("all {} nodes after {seconds:.2} s", discovery.nodes),
                None => format!("{} of {} nodes", discovery.known_s.len(), discovery.nodes),
            };
        }
        let account = &self.account;
        let (sent, received, lost) = (account.sent_per_s, account.received_per_s, account.lost_percent());
        let invalid = self.invalid.as_ref();
        let invalid = invalid.map_or(String::new(), |invalid| format!("; invalid: {invalid}"));
        format!("{sent:.1} sent and {received:.1} received each second, {lost:.1} % lost{invalid}")
    }

    /// Bytes on the link, both ways, for each byte of content that arrived.
    pub fn wire_overhead(&self) -> Option<f64> {
        // The shares of two loads are not known.
        let wire = self.wire.filter(|_| self.beside.is_none())?;
        let delivered = (self.account.received_each_s.iter().sum::<u64>() * self.message_bytes) as f64;
        (delivered > 0.0).then(|| (wire.forward_bytes + wire.back_bytes) as f64 / delivered)
    }
}

/// A middleware that was not run here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AbsentMiddleware {
    /// Its name, with the link where that is the reason.
    pub middleware: String,
    /// The reason: one sentence.
    pub reason: String,
}

/// All runs of an evaluation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EvaluationResult {
    /// The experiment's short name.
    pub experiment: String,
    /// Its purpose.
    pub title: String,
    /// The publication it follows.
    pub source: Option<String>,
    /// The factor on the duration.
    pub scale: f64,
    /// Measured seconds of each run.
    pub duration_s: f64,
    /// Seconds before that are not counted.
    pub warm_up_s: f64,
    /// The command that ran it.
    pub command: String,
    /// Those that ran a part of it before and that `--resume` kept.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier: Vec<String>,
    /// The machine.
    pub machine: Machine,
    /// The one with the other side of each run, as it describes itself; `None` on one machine, and in results of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other_machine: Option<Machine>,
    /// Every run in order.
    pub runs: Vec<MiddlewareRun>,
    /// Middlewares that are not installed.
    pub absent: Vec<AbsentMiddleware>,
    /// The versions and settings in use, by middleware.
    pub settings: Vec<(String, String)>,
}
