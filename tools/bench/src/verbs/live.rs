//! The processes that `holdall bench run` starts in addition to the recorder: publishers, and rivals' writers.

use super::failure;
use crate::{
    VerbResult,
    args::worker::{LiveArguments, WorkerArguments, WorkerReliability, WorkerRole},
    output,
};
use holdall_bench::{
    middleware::worker::{Carrier, Role, WorkerPlan, work},
    suite::{
        live::{Rival, RivalPlan},
        load::{PublishEvent, PublishPlan, publish as publish_plan},
    },
};
use holdall_io::clock::{Clock, SystemClock};
use holdall_model::topic::NodeName;
use holdall_program::{
    exit::{Failure, Outcome},
    names::TransportName,
    terminal::log,
    transport,
};
use holdall_transport::Transport;
use serde::de::DeserializeOwned;
use std::{
    io::{self, BufRead, Read},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};
use tracing::{info, level_filters::LevelFilter};

/// The node of the publishers; the topics are named after it.
const PUBLISHER_NODE: &str = "rosbag2_performance_benchmarking_node";

/// A rival's node.
const RIVAL_NODE: &str = "benchmark_rival";

/// Time between two polls when nothing has arrived, for transports that have to be polled.
const LOOK_AGAIN: Duration = Duration::from_micros(500);

/// Publishes according to a line of standard input; stays until standard input ends.
pub fn publish(args: &LiveArguments) -> VerbResult {
    log::start(LevelFilter::WARN);
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let mut transport = join(args.transport, PUBLISHER_NODE, &clock)?;
    if args.probe {
        return Ok(Outcome::Done);
    }
    let plan: PublishPlan = plan()?;
    let mut printed = Ok(());
    let mut print = |event: &PublishEvent| {
        printed = serde_json::to_string(event)
            .map_err(Failure::failed)
            .and_then(|line| output::result(&line));
    };
    // Held until no subscription needs a message sent again.
    let publishers = publish_plan(&plan, transport.as_mut(), clock.as_ref(), &mut print).map_err(failure)?;
    printed?;
    await_end();
    drop(publishers);
    Ok(Outcome::Done)
}

/// Records according to a line of standard input until standard input ends.
pub fn rival(args: &LiveArguments) -> VerbResult {
    log::start(LevelFilter::INFO);
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let mut transport = join(args.transport, RIVAL_NODE, &clock)?;
    let plan: RivalPlan = plan()?;
    let mut rival = Rival::start(&plan, transport.as_mut(), &clock).map_err(failure)?;
    info!("Listening for topics...");
    let ended = Arc::new(AtomicBool::new(false));
    let ending = Arc::clone(&ended);
    thread::Builder::new()
        .name("rival-stdin".to_owned())
        .spawn(move || {
            await_end();
            ending.store(true, Ordering::Release);
        })
        .map_err(|error| Failure::failed(format!("could not start a thread: {error}")))?;
    while !ended.load(Ordering::Acquire) {
        transport.poll_graph(&mut Vec::new()).map_err(Failure::failed)?;
        if rival.pump() == 0 {
            clock.sleep_until(clock.monotonic() + LOOK_AGAIN);
        }
    }
    let report = rival.close().map_err(failure)?;
    output::result(&serde_json::to_string(&report).map_err(Failure::failed)?)?;
    Ok(Outcome::Done)
}

/// One side of a run over a middleware, until standard input asks for its end.
pub fn worker(args: &WorkerArguments) -> VerbResult {
    log::start(LevelFilter::WARN);
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let carrier = match (args.udp, args.tcp, args.transport) {
        (Some(address), ..) => Carrier::Udp(address),
        (_, Some(address), _) => Carrier::Tcp(address),
        (_, _, Some(_)) => Carrier::Transport,
        _ => Carrier::Memory,
    };
    let (role, node) = match args.role {
        WorkerRole::Publisher => (Role::Publisher, "bench_publisher"),
        WorkerRole::Subscriber => (Role::Subscriber, "bench_subscriber"),
        WorkerRole::Idle => (Role::Idle, "bench_idle"),
        WorkerRole::Both => (Role::Both, "bench_both"),
    };
    if !(args.rate.is_finite() && args.rate > 0.0) {
        return Err(Failure::refused(format!(
            "--rate {}: expected a number above 0",
            args.rate
        )));
    }
    let plan = WorkerPlan {
        role,
        carrier,
        topic: args.topic.clone(),
        others: args.nodes,
        shape: args.message,
        bytes: usize::try_from(args.bytes).map_err(Failure::refused)?,
        rate_hz: args.rate,
        count: args.count,
        is_reliable: args.reliability == WorkerReliability::Reliable,
        depth: args.depth,
        records: args.records.clone(),
    };
    let open = || match args.transport {
        Some(name) => join(name, node, &clock).map_err(|failure| match failure {
            Failure::Refused(reason) | Failure::Failed(reason) => io::Error::other(reason),
        }),
        None => Err(io::Error::other("no transport was named")),
    };
    work(&plan, &open).map_err(Failure::failed)?;
    Ok(Outcome::Done)
}

fn join(name: TransportName, node: &str, clock: &Arc<dyn Clock>) -> Result<Box<dyn Transport>, Failure> {
    let mut joined = transport::join(
        &[name],
        &NodeName::in_root(node),
        None,
        clock,
        transport::Purpose::Other,
    )?;
    if joined.is_empty() {
        return Err(Failure::refused("--transport: none could be joined"));
    }
    Ok(joined.remove(0))
}

/// The plan on the first line of standard input.
fn plan<T: DeserializeOwned>() -> Result<T, Failure> {
    /// Thousands of topics stay far below this.
    const PLAN_BYTES_MAX: u64 = 64 << 20;
    let mut line = String::new();
    let mut stdin = io::stdin().lock().take(PLAN_BYTES_MAX);
    stdin
        .read_line(&mut line)
        .map_err(|error| Failure::failed(format!("cannot read standard input: {error}")))?;
    serde_json::from_str(&line).map_err(|error| {
        Failure::refused(format!(
            "standard input holds no plan ({error}); holdall bench run starts this by itself"
        ))
    })
}

/// Waits until standard input ends.
fn await_end() {
    // An error ends it, too.
    let _ended = io::copy(&mut io::stdin().lock(), &mut io::sink()).is_err();
}
