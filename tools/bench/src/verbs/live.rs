//! The processes that `holdall bench run` starts in addition to the recorder: publishers, and rivals' writers.

use super::{check_scale, failure};
use crate::{VerbResult, output};
use holdall_bench::{
    args::{LiveArguments, PublishArguments},
    middleware::worker::{WorkerPlan, work},
    suite::{
        config::{ConfigError, ProducerConfig},
        live::{Rival, RivalPlan},
        load::{PublishEvent, PublishPlan, PublishReport, publish as publish_plan},
        run::producer_threads,
    },
};
use holdall_io::clock::{Clock, SystemClock};
use holdall_model::topic::NodeName;
use holdall_program::{
    exit::{Failure, Outcome},
    names::TransportName,
    terminal::log,
    transport,
    units::{format_bytes, plural},
};
use holdall_transport::Transport;
use serde::de::DeserializeOwned;
use std::{
    io::{self, BufRead, Read},
    path::Path,
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

/// Publishes the load of a file and ends, or according to a line of standard input and stays until standard input ends.
pub fn publish(args: &PublishArguments) -> VerbResult {
    log::start(LevelFilter::WARN);
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let load = args
        .params_file
        .as_deref()
        .map(|path| of_file(path, args))
        .transpose()?;
    let mut nodes = (1..=args.nodes)
        .map(|number| join(args.live.transport, &node_name(number), &clock))
        .collect::<Result<Vec<_>, Failure>>()?;
    if args.live.probe {
        return Ok(Outcome::Done);
    }
    if let Some(load) = load {
        let mut report = None;
        let mut keep = |event: &PublishEvent| match event {
            PublishEvent::Ready if load.wait_for_subscriptions => info!("waiting for subscriptions"),
            PublishEvent::Done(done) => report = Some(done.clone()),
            PublishEvent::Ready | PublishEvent::Started => {}
        };
        let sent = publish_plan(&load, &mut nodes, clock.as_ref(), &mut keep).map_err(failure)?;
        drop(sent);
        let report = report.unwrap_or_default();
        output::result(&if args.json {
            serde_json::to_string(&report).map_err(Failure::failed)?
        } else {
            text(&load, &report, args.nodes)
        })?;
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
    let publishers = publish_plan(&plan, &mut nodes, clock.as_ref(), &mut print).map_err(failure)?;
    printed?;
    await_end();
    drop(publishers);
    Ok(Outcome::Done)
}

/// The name of the first node is that of rosbag2_performance_benchmarking.
fn node_name(number: u32) -> String {
    match number {
        1 => PUBLISHER_NODE.to_owned(),
        number => format!("{PUBLISHER_NODE}_{number}"),
    }
}

/// The plan of a producer file.
fn of_file(path: &Path, args: &PublishArguments) -> Result<PublishPlan, Failure> {
    let producers = ConfigError::of_file(path, ProducerConfig::parse).map_err(Failure::refused)?;
    check_scale(args.scale)?;
    let producers = producers.scaled(args.scale);
    let threads = producer_threads(&producers, args.threads);
    Ok(PublishPlan::new(&producers, 1, threads, false))
}

fn text(plan: &PublishPlan, report: &PublishReport, nodes: u32) -> String {
    let sent: u64 = report.sent.iter().sum();
    let groups = plan.groups.iter().zip(&report.message_bytes);
    let bytes: u64 = groups.map(|(group, bytes)| group.messages() * bytes).sum();
    let rate = format_bytes((bytes as f64 / report.elapsed_s.max(1e-9)) as u64);
    let publishers = plural(report.sent.len() as u64, "publisher");
    let mut text = format!(
        "{} of {publishers} ({}), {} in {:.1} s, {rate}/s\n",
        plural(sent, "message"),
        plural(u64::from(nodes), "node"),
        format_bytes(bytes),
        report.elapsed_s,
    );
    let mut add = |what: &str, count: u64| {
        if count > 0 {
            text += &format!("{what}: {}\n", plural(count, "message"));
        }
    };
    add("refused by the transport", report.refused);
    add(
        "sent before their topic had a subscription",
        report.sent_before_match,
    );
    let milliseconds = |ns: u64| ns as f64 / 1e6;
    for (what, times) in [
        ("later than planned", report.lateness),
        ("in the transport's hands", report.offer),
    ] {
        if let Some(times) = times {
            let (half, most) = (milliseconds(times.p50_ns), milliseconds(times.p99_ns));
            text += &format!("{what}: half of them up to {half:.3} ms, 99 % up to {most:.3} ms\n");
        }
    }
    text + &format!("processor time of the publishing threads: {:.2} s", report.cpu_s)
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
pub fn worker(args: &WorkerPlan) -> VerbResult {
    log::start(LevelFilter::WARN);
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    if !(args.rate_hz.is_finite() && args.rate_hz > 0.0) {
        let rate = args.rate_hz;
        return Err(Failure::refused(format!(
            "--rate {rate}: expected a number above 0"
        )));
    }
    let node = format!("bench_{}", args.role.name());
    let open = || match args.transport {
        Some(name) => join(name, &node, &clock).map_err(|failure| match failure {
            Failure::Refused(reason) | Failure::Failed(reason) => io::Error::other(reason),
        }),
        None => Err(io::Error::other("no transport was named")),
    };
    work(args, &open).map_err(Failure::failed)?;
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
