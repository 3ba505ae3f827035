//! All programs of one run: started, started at the same time, and ended.

use super::{
    Bench, Run, Stream,
    peer::Remote,
    programs::{WorkerSpec, free_place, meeting_place},
};
use crate::{
    error::{BenchError, BenchResult},
    measure::{ProcessSample, ProcessSampler, memory_use, process_use},
    middleware::{
        CaseKind, MiddlewareCase, WorkerCost,
        name::MiddlewareKind,
        worker::{Role, WorkerEvent},
    },
    suite::live::child::Program,
};
use holdall_io::link::{ADDRESSES, LinkEnd};
use serde::{Deserialize, Serialize};
use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::Path,
    sync::Arc,
    time::Duration,
};

/// How long a worker may take to join its middleware.
pub(super) const READY_MAX: Duration = Duration::from_secs(30);
/// How long both sides may take to know each other; then the run starts without.
const MATCH_MAX: Duration = Duration::from_secs(10);
/// Time from the order to start to the first message.
pub(super) const LEAD: Duration = Duration::from_millis(100);
/// A publisher may be this late with its last message, blocked by a full link.
const SENT_MAX: Duration = Duration::from_secs(60);
/// The drain ends when nothing has arrived for this long, …
const QUIET: Duration = Duration::from_secs(2);
/// … or after this.
const DRAIN_MAX: Duration = Duration::from_secs(10);
pub(super) const DONE_MAX: Duration = Duration::from_secs(30);

/// The measurements of one stream of a run.
pub(super) struct Sides {
    /// When each side knew the other one, in seconds after both existed.
    pub matched_s: [Option<f64>; 2],
    /// Costs of the publisher and the subscriber.
    pub costs: [WorkerCost; 2],
    /// Samples of both over time.
    pub samples: [Vec<ProcessSample>; 2],
}

/// Resources that a worker has used until now.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Usage {
    cpu_s: f64,
    rss_max_bytes: u64,
    anonymous_bytes: u64,
    virtual_bytes: u64,
}

impl Usage {
    pub(super) fn of(program: &Program) -> Self {
        let used = process_use("", program.id());
        let [anonymous_bytes, virtual_bytes] = memory_use(program.id());
        Self {
            cpu_s: used.cpu_s,
            rss_max_bytes: used.rss_max_bytes,
            anonymous_bytes,
            virtual_bytes,
        }
    }

    /// The costs of a worker from `before` until now.
    fn since(self, before: Self, elapsed_s: f64) -> WorkerCost {
        WorkerCost {
            cpu_s: (self.cpu_s - before.cpu_s).max(0.0),
            elapsed_s,
            rss_max_bytes: self.rss_max_bytes,
            anonymous_bytes: self.anonymous_bytes,
            virtual_bytes: self.virtual_bytes,
        }
    }
}

/// A worker, on this machine or on the other one.
enum Worker<'a> {
    Here(Program),
    There(Remote<'a>),
}

impl Worker<'_> {
    fn wait_for(&self, within: Duration, wanted: WorkerEvent) -> BenchResult<WorkerEvent> {
        match self {
            Self::Here(program) => program.wait_for(within, |line| event(line, wanted)),
            Self::There(remote) => remote.wait_for(within, wanted),
        }
    }

    fn usage(&self) -> BenchResult<Usage> {
        match self {
            Self::Here(program) => Ok(Usage::of(program)),
            Self::There(remote) => remote.usage(),
        }
    }

    /// Orders the start at a time of this machine's monotonic clock.
    fn start(&mut self, at: Duration) -> BenchResult<()> {
        match self {
            Self::Here(program) => program.send(&format!("start {}", at.as_nanos())),
            Self::There(remote) => remote.start(at),
        }
    }

    /// Orders the end; then the records are in `records`.
    fn end(self, records: &Path) -> BenchResult<()> {
        match self {
            Self::Here(mut program) => {
                program.send("end")?;
                program.wait_for(DONE_MAX, |line| event(line, WorkerEvent::Done))?;
                program.finish(DONE_MAX)?;
                Ok(())
            }
            Self::There(remote) => remote.end(records),
        }
    }
}

/// Both workers of a stream; one alone is the publisher.
struct Pair<'a> {
    publisher: Worker<'a>,
    subscriber: Option<Worker<'a>>,
    matched_s: [Option<f64>; 2],
    before: [Option<Usage>; 2],
}

impl<'a> Pair<'a> {
    /// The publisher and the subscriber.
    fn each(&self) -> [Option<&Worker<'a>>; 2] {
        [Some(&self.publisher), self.subscriber.as_ref()]
    }

    /// The measurements of the stream.
    fn sides(&self, sampler: ProcessSampler, elapsed_s: f64) -> BenchResult<Sides> {
        let samples = self.each_second(sampler);
        let after = self.usage()?;
        let mut costs = [WorkerCost::default(); 2];
        for (cost, used) in costs.iter_mut().zip(self.before.into_iter().zip(after)) {
            if let (Some(before), Some(after)) = used {
                *cost = after.since(before, elapsed_s);
            }
        }
        Ok(Sides {
            matched_s: self.matched_s,
            costs,
            samples,
        })
    }

    /// Samples of the workers of this machine, thinned to one a second.
    fn each_second(&self, sampler: ProcessSampler) -> [Vec<ProcessSample>; 2] {
        let mut sampled = sampler.stop().into_iter();
        self.each().map(|worker| {
            let used = worker
                .filter(|worker| matches!(worker, Worker::Here(_)))
                .and_then(|_| sampled.next());
            used.map_or_else(Vec::new, |used| thinned(&used.samples))
        })
    }

    fn usage(&self) -> BenchResult<[Option<Usage>; 2]> {
        let [publisher, subscriber] = self.each().map(|worker| worker.map(Worker::usage).transpose());
        Ok([publisher?, subscriber?])
    }
}

impl Bench<'_> {
    /// Starts all workers of a run, waits for their work, and ends them. Returns when the first messages were due, and the measurements of
    /// each stream.
    pub(super) fn drive(
        &self,
        run: &Run<'_>,
        ends: Option<&[LinkEnd; 2]>,
    ) -> BenchResult<(Duration, Vec<Sides>)> {
        let is_idle = run.case.kind == CaseKind::Idle;
        let streams = run.streams(self.evaluation);
        let meet = self.meet(ends.is_some(), 0)?;
        let mut pairs = Vec::new();
        for (place, stream) in streams.iter().enumerate() {
            let own = if place == 0 {
                meet
            } else {
                self.meet(ends.is_some(), place as u16)?
            };
            let start = |side| self.start(run, stream, side, [meet, own], ends);
            let is_one = run.middleware.is_memory() || is_idle;
            let subscriber = if is_one { None } else { Some(start(1)?) };
            pairs.push(Pair {
                publisher: start(0)?,
                subscriber,
                matched_s: [None; 2],
                before: [None; 2],
            });
        }
        if is_idle {
            // The costs of starting are over then.
            self.clock
                .sleep_until(self.clock.monotonic() + self.evaluation.warm_up);
        } else {
            self.await_matches(&mut pairs);
        }
        for pair in &mut pairs {
            pair.before = pair.usage()?;
        }
        let samplers: Vec<ProcessSampler> = pairs
            .iter()
            .map(|pair| self.sample(pair))
            .collect::<BenchResult<_>>()?;
        let start = self.clock.monotonic() + LEAD;
        for pair in &mut pairs {
            for worker in pair.subscriber.iter_mut().chain([&mut pair.publisher]) {
                worker.start(start)?;
            }
        }
        let measured = self.evaluation.warm_up + self.evaluation.duration;
        for pair in &pairs {
            let left = (start + measured + SENT_MAX).saturating_sub(self.clock.monotonic());
            pair.publisher.wait_for(left, WorkerEvent::Sent)?;
        }
        self.drain(run, &pairs, &streams);
        let elapsed_s = (self.clock.monotonic() - start).as_secs_f64();
        let ended = pairs.iter().zip(samplers);
        let sides = ended
            .map(|(pair, sampler)| pair.sides(sampler, elapsed_s))
            .collect::<BenchResult<_>>()?;
        for (pair, stream) in pairs.into_iter().zip(&streams) {
            if let Some(subscriber) = pair.subscriber {
                subscriber.end(&stream.records[1])?;
            }
            pair.publisher.end(&stream.records[0])?;
        }
        Ok((start, sides))
    }

    /// Samples the workers of this machine from now on.
    fn sample(&self, pair: &Pair<'_>) -> BenchResult<ProcessSampler> {
        let here = pair
            .each()
            .into_iter()
            .flatten()
            .filter_map(|worker| match worker {
                Worker::Here(program) => Some((String::new(), program.id())),
                Worker::There(_) => None,
            });
        ProcessSampler::start(here.collect(), Arc::clone(self.clock))
    }

    /// The address where pair `number` of programs meets.
    fn meet(&self, is_linked: bool, number: u16) -> BenchResult<SocketAddr> {
        match &self.peer {
            Some(peer) => Ok(peer.meeting_place(number)),
            None => meeting_place(is_linked, number),
        }
    }

    /// Starts one side of a stream and waits until it can be ordered to start. All meet at the first of two places where they discover each other
    /// with its help, and at the second where a place is for two.
    fn start<'b>(
        &'b self,
        run: &Run<'_>,
        stream: &Stream<'_>,
        side: usize,
        [all, own]: [SocketAddr; 2],
        ends: Option<&[LinkEnd; 2]>,
    ) -> BenchResult<Worker<'b>> {
        let middleware = &run.middleware.sides[side];
        let role = match side {
            _ if run.case.kind == CaseKind::Idle => Role::Idle,
            _ if run.middleware.is_memory() => Role::Both,
            0 => Role::Publisher,
            _ => Role::Subscriber,
        };
        let spec = WorkerSpec {
            topic: stream.topic(),
            count: stream.count,
            meet: if middleware.meets_in_pairs() { own } else { all },
            // An idle node is alone.
            is_met: side == 1 && (stream.place == 0 || middleware.meets_in_pairs()) || role == Role::Idle,
            ..self.spec(run, stream.case, (side, role), ends.is_some(), own)
        };
        let worker = match &self.peer {
            Some(peer) if peer.is_remote(side) => Worker::There(peer.start(&spec)?),
            _ => {
                let mut command = self.site.command(&spec, &stream.records[side])?;
                if let Some(ends) = ends {
                    ends[side].place(&mut command);
                }
                let name = if side == 0 { "publisher" } else { "subscriber" };
                let name = format!("{name} of {}", run.middleware);
                Worker::Here(Program::start(&name, &mut command, self.clock)?)
            }
        };
        worker.wait_for(READY_MAX, WorkerEvent::Ready)?;
        Ok(worker)
    }

    /// A worker for a load, to send one message on the common topic and to meet others at a place of another one.
    pub(super) fn spec(
        &self,
        run: &Run<'_>,
        case: &MiddlewareCase,
        (side, role): (usize, Role),
        is_linked: bool,
        meet: SocketAddr,
    ) -> WorkerSpec {
        WorkerSpec {
            side: run.middleware.sides[side].clone(),
            role,
            topic: "/bench".to_owned(),
            shape: case.shape,
            bytes: case.bytes,
            rate_hz: case.rate_hz,
            count: 1,
            depth: case.depth,
            is_reliable: case.is_reliable,
            others: None,
            own: self.address(side, is_linked),
            meet,
            is_met: false,
            is_local: !is_linked && self.peer.is_none(),
            domain: (!is_linked).then_some(1 + std::process::id() % 100),
        }
    }

    /// The address of one side's end.
    pub(super) fn address(&self, side: usize, is_linked: bool) -> IpAddr {
        match &self.peer {
            Some(peer) => peer.address(side),
            None if is_linked => IpAddr::V4(ADDRESSES[side]),
            None => IpAddr::V4(Ipv4Addr::LOCALHOST),
        }
    }

    fn await_matches(&self, pairs: &mut [Pair<'_>]) {
        let began = self.clock.monotonic();
        for pair in pairs {
            pair.matched_s = pair.each().map(|worker| {
                let left = (began + MATCH_MAX).saturating_sub(self.clock.monotonic());
                worker?.wait_for(left, WorkerEvent::Matched).ok()?;
                Some((self.clock.monotonic() - began).as_secs_f64())
            });
        }
    }

    /// Waits until everything or nothing more arrives.
    fn drain(&self, run: &Run<'_>, pairs: &[Pair<'_>], streams: &[Stream<'_>]) {
        // The kernel repeats a stream's lost packets ever more seldom.
        let quiet = match run.middleware.sides[0].kind {
            MiddlewareKind::Tcp => DRAIN_MAX,
            _ => QUIET,
        };
        let end = self.clock.monotonic() + DRAIN_MAX;
        for (pair, stream) in pairs.iter().zip(streams) {
            let Some(subscriber) = &pair.subscriber else {
                continue;
            };
            let mut received = 0;
            while received < stream.count && self.clock.monotonic() < end {
                match subscriber.wait_for(quiet, WorkerEvent::Received { count: received }) {
                    Ok(WorkerEvent::Received { count }) => received = count,
                    // Quiet; a subscriber that has ended is noticed at the next order.
                    _ => break,
                }
            }
        }
    }
}

/// The means of the samples of each second.
fn thinned(samples: &[ProcessSample]) -> Vec<ProcessSample> {
    let seconds = samples.chunk_by(|a, b| a.at_s.floor() == b.at_s.floor());
    let mean = |second: &[ProcessSample]| ProcessSample {
        at_s: second[0].at_s.floor(),
        busy: second.iter().map(|sample| sample.busy).sum::<f64>() / second.len() as f64,
        rss_bytes: second.iter().map(|sample| sample.rss_bytes).max().unwrap_or(0),
    };
    seconds.map(mean).collect()
}

/// The event of a line, if it is this one; a count has to be higher.
pub(super) fn event(line: &str, wanted: WorkerEvent) -> Option<WorkerEvent> {
    let found = WorkerEvent::read(line)?;
    let is_wanted = match (found, wanted) {
        (WorkerEvent::Received { count }, WorkerEvent::Received { count: than }) => count > than,
        (found, wanted) => found == wanted,
    };
    is_wanted.then_some(found)
}

/// A free port at the address `own`, where a worker of another machine can connect.
pub(super) fn free_port(own: IpAddr) -> BenchResult<u16> {
    free_place(own).map(|place| place.port())
}

/// A worker that failed in a way that is not its own.
pub(super) fn broken(reason: impl Into<String>) -> BenchError {
    BenchError::program("the other machine", reason.into())
}
