//! An emulated link between two programs: rate, delay, loss, outages, between two network namespaces that this process makes. It needs
//! neither netem nor another program, and it loses the packets of a wire: fragments of datagrams, segments of TCP.

mod check;
pub mod counters;
mod forward;
pub mod model;
pub mod spec;
mod table;

pub use check::{LinkChecks, check, check_table};
use counters::{Amount, DirectionCounters};
use forward::{Forwarded, forward};
use holdall_io::{
    clock::{Clock, SystemClock},
    link::{self, KernelCounters, LinkEnd, LinkError, Netem, Qdisc, Shaper},
};
use model::ETHERNET_BYTES;
use rustix::process::{Pid, Signal, kill_process};
use serde::Serialize;
use spec::{Backend, Bottleneck, LinkSpec};
use std::{
    collections::BTreeMap,
    io,
    os::unix::process::ExitStatusExt,
    process::{Child, Command, ExitStatus},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};
pub use table::link_table;

/// Why a link could not be run.
#[derive(Debug, thiserror::Error)]
pub enum LinkRunError {
    /// The system does not allow it.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// A program that cannot be started.
    #[error("cannot start {program} on the link: {source}")]
    Start {
        /// Its name.
        program: String,
        /// The system's answer.
        source: io::Error,
    },
    /// The thread that forwards packets.
    #[error("cannot forward packets: {0}")]
    Forward(io::Error),
}

/// How a program on one end ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ProgramEnd {
    /// Its name.
    pub program: String,
    /// Its exit code; `None` after a signal.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
}

impl ProgramEnd {
    /// Whether it ended with code 0.
    pub fn is_good(&self) -> bool {
        self.code == Some(0)
    }
}

/// The kernel's counters of one end.
#[derive(Clone, Debug, Serialize)]
pub struct KernelReport {
    /// Packets that the end gave to the link.
    pub sent_packets: u64,
    /// Packets that its device dropped because they were not read in time.
    pub sent_dropped: u64,
    /// Counters of `/proc/net/snmp`.
    pub protocols: BTreeMap<String, u64>,
    /// Memory of incomplete datagrams, in bytes.
    pub fragment_memory_bytes: u64,
}

impl From<KernelCounters> for KernelReport {
    fn from(counters: KernelCounters) -> Self {
        Self {
            sent_packets: counters.sent_packets,
            sent_dropped: counters.sent_dropped,
            protocols: counters.protocols.into_iter().collect(),
            fragment_memory_bytes: counters.fragment_memory_bytes,
        }
    }
}

/// How punctual the link was: packets delivered later than planned.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Lateness {
    /// Half of the packets were not later, in microseconds.
    pub p50_us: f64,
    /// 99 of 100 packets were not later.
    pub p99_us: f64,
    /// The latest.
    pub max_us: f64,
}

/// The traffic on a link.
#[derive(Debug, Serialize)]
pub struct Carried {
    /// How long it existed, in seconds.
    pub elapsed_s: f64,
    /// Counters from A to B.
    pub a_to_b: DirectionCounters,
    /// Counters from B to A.
    pub b_to_a: DirectionCounters,
    /// The kernel's side of A and of B.
    pub kernel: [KernelReport; 2],
    /// Whether in both directions every packet that entered arrived, was dropped for a reason, or was on the way at the end, and the kernel
    /// gave at least as many to the link as entered.
    pub balances: bool,
    /// How punctual it was.
    pub lateness: Lateness,
    /// The forwarding thread ran before all ordinary ones.
    pub has_real_time_priority: bool,
    /// Cores that the forwarding thread used.
    pub cores: f64,
}

/// The traffic on the link between two programs.
#[derive(Debug, Serialize)]
pub struct LinkReport {
    /// The link.
    pub spec: LinkSpec,
    /// How the two programs ended.
    pub programs: [ProgramEnd; 2],
    /// The traffic on it.
    #[serde(flatten)]
    pub carried: Carried,
}

impl LinkReport {
    /// Whether both programs ended with code 0.
    pub fn is_good(&self) -> bool {
        self.programs.iter().all(ProgramEnd::is_good)
    }
}

/// Makes the link, runs a program on each end, and reports once both have ended. A has the address 10.99.0.1, B 10.99.0.2.
///
/// `stop` becomes true when the user wants the programs to end: they get SIGTERM.
///
/// # Errors
/// A system that does not allow namespaces, and a program that cannot be started.
pub fn run(spec: &LinkSpec, commands: [Command; 2], stop: &AtomicBool) -> Result<LinkReport, LinkRunError> {
    let (programs, carried) = carry(spec, |ends| run_programs(ends, commands, stop))?;
    Ok(LinkReport {
        spec: spec.clone(),
        programs: programs?,
        carried,
    })
}

/// Makes a link and ends it.
///
/// # Errors
/// A system that does not allow links.
pub(crate) fn probe() -> Result<(), LinkRunError> {
    let spec = LinkSpec::default();
    let _ends = link::create(spec.mtu, qdisc(&spec))?;
    Ok(())
}

/// Makes the link and carries packets while `work` runs, on this thread.
///
/// # Errors
/// A system that does not allow namespaces, or a device that fails.
pub(crate) fn carry<T>(
    spec: &LinkSpec,
    work: impl FnOnce(&[LinkEnd; 2]) -> T,
) -> Result<(T, Carried), LinkRunError> {
    let ends = link::create(spec.mtu, qdisc(spec))?;
    let of_model = spec.of_model();
    let has_ended = AtomicBool::new(false);
    thread::scope(|scope| {
        let forwarding = thread::Builder::new()
            .name("link".to_owned())
            .spawn_scoped(scope, || forward(&ends, &of_model, &has_ended))
            .map_err(LinkRunError::Forward)?;
        let done = work(&ends);
        has_ended.store(true, Ordering::Release);
        let forwarded = forwarding
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("the thread panicked")))
            .map_err(LinkRunError::Forward)?;
        Ok((done, carried(&ends, forwarded).map_err(LinkRunError::Forward)?))
    })
}

/// The queue in front of the sender's device.
fn qdisc(spec: &LinkSpec) -> Option<Qdisc> {
    let bytes_per_s = spec.rate_bits_per_s.map(|bits| bits / 8);
    if spec.backend == Backend::Netem {
        return Some(Qdisc::Netem(netem(spec, bytes_per_s)));
    }
    let bytes_per_s = bytes_per_s.filter(|_| spec.bottleneck == Bottleneck::Nic)?;
    Some(Qdisc::Shaper(Shaper {
        bytes_per_s,
        overhead_bytes: ETHERNET_BYTES as u16,
        queue_bytes: u32::try_from((bytes_per_s as f64 * spec.queue.as_secs_f64()) as u64)
            .unwrap_or(u32::MAX)
            .max(2 * u32::from(spec.mtu)),
    }))
}

/// The same link for the kernel: its queue counts packets, and holds those that are delayed, too.
fn netem(spec: &LinkSpec, bytes_per_s: Option<u64>) -> Netem {
    /// Packets that may be delayed at a time without a rate.
    const PACKETS_MAX: u32 = 1_000_000;
    let packets = |bytes_per_s| bytes_per_s as f64 * spec.longest().as_secs_f64() / f64::from(spec.mtu);
    Netem {
        rate: bytes_per_s.map(|bytes_per_s| (bytes_per_s, ETHERNET_BYTES as u16)),
        limit_packets: bytes_per_s.map_or(PACKETS_MAX, |bytes| (packets(bytes).round() as u32).max(2)),
        delay: spec.delay,
        jitter: spec.jitter,
        loss: spec.loss.chances(),
        reorder: spec.reorder,
        seed: spec.seed,
    }
}

/// Time between two checks whether programs have ended.
const POLL: Duration = Duration::from_millis(5);
/// A program that has not ended this long after SIGTERM is killed.
const TERM_MAX: Duration = Duration::from_secs(10);

/// A program on one end; killed when dropped before its end.
struct Placed {
    name: String,
    child: Child,
    status: Option<ExitStatus>,
}

impl Placed {
    fn start(end: &LinkEnd, mut command: Command) -> Result<Self, LinkRunError> {
        let name = command.get_program().to_string_lossy().into_owned();
        end.place(&mut command);
        match command.spawn() {
            Ok(child) => Ok(Self {
                name,
                child,
                status: None,
            }),
            Err(source) => Err(LinkRunError::Start {
                program: name,
                source,
            }),
        }
    }

    fn has_ended(&mut self) -> bool {
        if self.status.is_none() {
            self.status = self.child.try_wait().ok().flatten();
        }
        self.status.is_some()
    }

    fn signal(&self, signal: Signal) {
        if self.status.is_none() {
            // One that has ended needs no signal.
            let _gone = kill_process(Pid::from_child(&self.child), signal).is_err();
        }
    }
}

impl Drop for Placed {
    fn drop(&mut self) {
        if !self.has_ended() {
            self.signal(Signal::KILL);
            let _ended = self.child.wait();
        }
    }
}

/// Runs both programs to their ends.
fn run_programs(
    ends: &[LinkEnd; 2],
    commands: [Command; 2],
    stop: &AtomicBool,
) -> Result<[ProgramEnd; 2], LinkRunError> {
    let [a, b] = commands;
    // B first: it mostly waits for A.
    let b = Placed::start(&ends[1], b)?;
    let mut programs = [Placed::start(&ends[0], a)?, b];
    let clock = SystemClock;
    let mut killed_at = None;
    while !programs.iter_mut().all(Placed::has_ended) {
        let now = clock.monotonic();
        match killed_at {
            None if stop.load(Ordering::Acquire) => {
                programs.iter().for_each(|program| program.signal(Signal::TERM));
                killed_at = Some(now + TERM_MAX);
            }
            Some(at) if now >= at => programs.iter().for_each(|program| program.signal(Signal::KILL)),
            _ => {}
        }
        clock.sleep_until(now + POLL);
    }
    Ok(programs.map(|program| ProgramEnd {
        program: program.name.clone(),
        code: program.status.and_then(|status| status.code()),
        signal: program.status.and_then(|status| status.signal()),
    }))
}

fn carried(ends: &[LinkEnd; 2], forwarded: Forwarded) -> io::Result<Carried> {
    let kernel = [ends[0].kernel_counters()?, ends[1].kernel_counters()?];
    let Forwarded {
        directions,
        lateness,
        is_punctual,
        elapsed,
        cpu,
    } = forwarded;
    let balances = directions.iter().zip(&kernel).all(|(direction, kernel)| {
        let Amount { packets, .. } = direction.entered;
        // Packets sent after the link ended are not read.
        packets == direction.arrived.packets + direction.dropped.packets() + direction.under_way
            && kernel.sent_packets >= packets
    });
    let micros = |quantile: f64| lateness.value_at_quantile(quantile) as f64 / 1e3;
    let [a_to_b, b_to_a] = directions;
    Ok(Carried {
        elapsed_s: elapsed.as_secs_f64(),
        a_to_b,
        b_to_a,
        kernel: kernel.map(KernelReport::from),
        balances,
        lateness: Lateness {
            p50_us: micros(0.5),
            p99_us: micros(0.99),
            max_us: micros(1.0),
        },
        has_real_time_priority: is_punctual,
        cores: cpu.as_secs_f64() / elapsed.as_secs_f64().max(1e-9),
    })
}

#[cfg(test)]
mod tests {
    use super::{spec::Loss, *};

    #[test]
    fn netem_is_asked_for_the_same_link_and_nothing_is_left_for_the_model() {
        let text = "rate=54Mb/s,loss=20%/burst=4,delay=10ms±2ms,queue=188ms,reorder=1%,seed=9,backend=netem";
        let spec: LinkSpec = text.parse().unwrap();
        let Some(Qdisc::Netem(netem)) = qdisc(&spec) else {
            panic!("no netem");
        };
        assert_eq!(netem.rate, Some((6_750_000, 14)));
        // As many packets of the largest size as the rate and the delay hold: 0.2 s of them.
        assert_eq!(netem.limit_packets, 900);
        assert_eq!((netem.delay, netem.jitter), (spec.delay, spec.jitter));
        assert_eq!(netem.loss, (0.0625, Some(0.25)));
        assert_eq!((netem.reorder, netem.seed), (0.01, 9));
        let left = spec.of_model();
        assert_eq!(
            (left.rate_bits_per_s, left.loss, left.delay),
            (None, Loss::default(), Duration::ZERO)
        );
        assert_eq!(left.longest(), spec.longest());
    }
}
