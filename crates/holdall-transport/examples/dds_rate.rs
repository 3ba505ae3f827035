//! Measures the receive path alone: messages lost and processor time, with publishers in a process of their own.
//!
//! `dds_rate [--topics 4] [--bytes 6220856] [--rate-hz 30] [--seconds 10] [--best-effort] [--domain 87]`; rate 0 sends as fast as it can.
//! `--publish` only publishes, beginning with a line on standard input if that is a pipe; `--take` only takes, until standard input ends.
#![allow(clippy::print_stdout, reason = "it prints its result")]

use holdall_io::{
    clock::{Clock, SystemClock, wake_this_thread_exactly},
    process::process_cpu_time,
};
use holdall_model::{
    message::{MessageHeader, Payload},
    qos::{History, QosProfile, Reliability},
    topic::Gid,
    topic::NodeName,
};
use holdall_transport::{
    PublishRequest, Sink, SubscribeRequest, Transport,
    dds::{DdsEnvironment, DdsOptions, DdsTransport},
};
use std::{
    collections::HashMap,
    io::IsTerminal,
    process::{Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

const TYPE: &str = "sensor_msgs/msg/Image";

type Failure = Box<dyn std::error::Error>;

#[derive(Clone, Debug)]
struct Plan {
    topics: u32,
    bytes: usize,
    rate_hz: f64,
    seconds: f64,
    best_effort: bool,
    domain: u32,
    publish: bool,
    take: bool,
}

impl Plan {
    fn from_arguments() -> Result<Self, Failure> {
        let mut plan = Self {
            topics: 4,
            bytes: 6_220_856,
            rate_hz: 30.0,
            seconds: 10.0,
            best_effort: false,
            domain: 87,
            publish: false,
            take: false,
        };
        let mut arguments = std::env::args().skip(1);
        while let Some(argument) = arguments.next() {
            let mut value = || {
                arguments
                    .next()
                    .ok_or_else(|| format!("{argument} needs a value"))
            };
            match argument.as_str() {
                "--topics" => plan.topics = value()?.parse()?,
                "--bytes" => plan.bytes = value()?.parse()?,
                "--rate-hz" => plan.rate_hz = value()?.parse()?,
                "--seconds" => plan.seconds = value()?.parse()?,
                "--domain" => plan.domain = value()?.parse()?,
                "--best-effort" => plan.best_effort = true,
                "--publish" => plan.publish = true,
                "--take" => plan.take = true,
                other => return Err(format!("unknown argument {other}").into()),
            }
        }
        Ok(plan)
    }

    fn qos(&self) -> QosProfile {
        let reliability = if self.best_effort {
            Reliability::BestEffort
        } else {
            Reliability::Reliable
        };
        QosProfile {
            history: History::KeepLast,
            depth: 10,
            reliability,
            ..QosProfile::default()
        }
    }

    fn topic(index: u32) -> String {
        format!("/rate/topic{index}")
    }

    fn transport(&self, node: &str) -> Result<DdsTransport, Failure> {
        let environment = DdsEnvironment {
            automatic_discovery_range: Some("LOCALHOST".to_owned()),
            ..DdsEnvironment::from_process()
        };
        let options = DdsOptions {
            domain_id: Some(self.domain),
            environment,
            ..DdsOptions::for_node(&NodeName::in_root(node))
        };
        Ok(DdsTransport::new(&options, Arc::new(SystemClock))?)
    }
}

/// Counts messages, bytes and gaps; releases every payload at once.
#[derive(Default)]
struct Counter {
    messages: AtomicU64,
    bytes: AtomicU64,
    slices: AtomicU64,
    lost: AtomicU64,
    latency_nanos: AtomicU64,
    latency_nanos_max: AtomicU64,
    last: Mutex<HashMap<Gid, u64>>,
}

impl Sink for Counter {
    fn offer(&self, header: MessageHeader, payload: Payload<'_>) {
        self.messages.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(payload.len() as u64, Ordering::Relaxed);
        if let Payload::Loaned(loan) = &payload {
            let mut slices = 0;
            loan.for_each_slice(&mut |_| slices += 1);
            self.slices.fetch_add(slices, Ordering::Relaxed);
        }
        if let Some(sent) = header.publish_time {
            let nanos = u64::try_from(header.log_time.saturating_since(sent).as_nanos()).unwrap_or(u64::MAX);
            self.latency_nanos.fetch_add(nanos, Ordering::Relaxed);
            self.latency_nanos_max.fetch_max(nanos, Ordering::Relaxed);
        }
        let (Some(publisher), Some(sequence)) = (header.publisher, header.sequence) else {
            return;
        };
        let mut last = self
            .last
            .lock()
            .expect("a sink that panicked has ended the measurement");
        let before = last.insert(publisher, sequence).unwrap_or(sequence - 1);
        self.lost
            .fetch_add(sequence.saturating_sub(before + 1), Ordering::Relaxed);
    }
}

fn publish(plan: &Plan) -> Result<(), Failure> {
    let mut transport = plan.transport("rate_publisher")?;
    let mut publishers = Vec::new();
    for index in 0..plan.topics {
        let request = PublishRequest {
            topic: Plan::topic(index),
            type_name: TYPE.to_owned(),
            type_hash: None,
            qos: plan.qos(),
            ..PublishRequest::default()
        };
        publishers.push(transport.publish(&request)?);
    }
    let mut payload = vec![7; plan.bytes];
    payload[..4].copy_from_slice(&[0, 1, 0, 0]);
    let clock = SystemClock;
    while publishers
        .iter()
        .any(|publisher| publisher.matched_subscriptions() == 0)
    {
        std::thread::park_timeout(Duration::from_millis(5));
    }
    println!("matched");
    wait_for_a_line()?;
    wake_this_thread_exactly();
    let (start, cpu) = (clock.monotonic(), process_cpu_time().total());
    let (mut rounds, mut refused) = (0u32, 0);
    let mut periods = Vec::new();
    let mut last = None;
    while (clock.monotonic() - start).as_secs_f64() < plan.seconds {
        let now = clock.monotonic();
        periods.extend(last.replace(now).map(|last| now - last));
        for publisher in &mut publishers {
            refused += u64::from(publisher.publish(&payload).is_err());
        }
        rounds += 1;
        if plan.rate_hz > 0.0 {
            let due = Duration::from_secs_f64(f64::from(rounds) / plan.rate_hz);
            std::thread::sleep(due.saturating_sub(clock.monotonic() - start));
        }
    }
    let seconds = (clock.monotonic() - start).as_secs_f64();
    for publisher in &mut publishers {
        publisher.wait_for_acked(Duration::from_secs(5));
    }
    let cores = (process_cpu_time().total() - cpu).as_secs_f64() / seconds;
    let sent = u64::from(rounds) * u64::from(plan.topics);
    periods.sort_unstable();
    let p99 = periods.get(periods.len() * 99 / 100).copied().unwrap_or_default();
    println!(
        "sent {sent} (refused {refused}), {:.0} msg/s, {cores:.2} cores, period p99 {} us, max {} us",
        sent as f64 / seconds,
        p99.as_micros(),
        periods.last().copied().unwrap_or_default().as_micros(),
    );
    Ok(())
}

/// Waits for a line on standard input from the process that started this one; does not wait on a terminal.
fn wait_for_a_line() -> Result<(), Failure> {
    let input = std::io::stdin();
    if !input.is_terminal() {
        input.read_line(&mut String::new())?;
    }
    Ok(())
}

fn receive(plan: &Plan) -> Result<(), Failure> {
    let mut transport = plan.transport("rate_recorder")?;
    transport
        .warnings()
        .iter()
        .for_each(|warning| println!("warning: {warning}"));
    let counter = Arc::new(Counter::default());
    let mut subscriptions = Vec::new();
    for index in 0..plan.topics {
        let request = SubscribeRequest {
            topic: Plan::topic(index),
            type_name: TYPE.to_owned(),
            qos: plan.qos(),
        };
        subscriptions.push(transport.subscribe(&request, Arc::clone(&counter) as Arc<dyn Sink>)?);
    }
    if plan.take {
        wait_for_a_line()?;
        let load = |value: &AtomicU64| value.load(Ordering::Relaxed);
        println!(
            "received {}, gaps {}",
            load(&counter.messages),
            load(&counter.lost)
        );
        return Ok(());
    }
    let mut child = Command::new(std::env::current_exe()?)
        .args(std::env::args().skip(1))
        .arg("--publish")
        .stdin(Stdio::null())
        .spawn()?;
    let clock = SystemClock;
    while counter.messages.load(Ordering::Relaxed) == 0 && child.try_wait()?.is_none() {
        std::thread::park_timeout(Duration::from_millis(1));
    }
    let (start, cpu) = (clock.monotonic(), process_cpu_time());
    let mut announced = HashMap::new();
    while child.try_wait()?.is_none() {
        let all = subscriptions
            .iter()
            .flat_map(|subscription| subscription.announced_sequences());
        announced.extend(all);
        std::thread::park_timeout(Duration::from_millis(100));
    }
    let (seconds, now) = ((clock.monotonic() - start).as_secs_f64(), process_cpu_time());
    let (user, system) = (
        (now.user - cpu.user).as_secs_f64(),
        (now.system - cpu.system).as_secs_f64(),
    );
    let last = counter.last.lock().map_err(|_| "a sink panicked")?;
    let tail: u64 = announced
        .iter()
        .map(|(gid, sent)| sent.saturating_sub(*last.get(gid).unwrap_or(&0)))
        .sum();
    let load = |value: &AtomicU64| value.load(Ordering::Relaxed) as f64;
    println!(
        "received {:.0}, gaps {:.0}, tail {tail}, {:.0} msg/s, {:.1} MB/s, {:.2} cores (user {:.2}, kernel {:.2}), \
         {:.0} slices a message, latency mean {:.2} ms max {:.1} ms",
        load(&counter.messages),
        load(&counter.lost),
        load(&counter.messages) / seconds,
        load(&counter.bytes) / seconds / 1e6,
        (user + system) / seconds,
        user / seconds,
        system / seconds,
        load(&counter.slices) / load(&counter.messages).max(1.0),
        load(&counter.latency_nanos) / load(&counter.messages).max(1.0) / 1e6,
        load(&counter.latency_nanos_max) / 1e6,
    );
    Ok(())
}

fn main() -> Result<(), Failure> {
    let plan = Plan::from_arguments()?;
    if plan.publish {
        publish(&plan)
    } else {
        receive(&plan)
    }
}
