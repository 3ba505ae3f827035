//! Plays a bag of small messages at fixed rates to a subscription in the same process and prints how exactly they are spaced.
//!
//! `cargo run --release -p holdall --example play_spacing -- [SECONDS]`

#![allow(clippy::print_stdout, reason = "a program for people")]

use hdrhistogram::Histogram;
use holdall::play::{options::PlayOptions, player::Player, status::PlayReport};
use holdall_io::clock::{Clock, SystemClock};
use holdall_model::{
    message::{MessageHeader, Payload},
    qos::QosProfile,
    topic::NodeName,
};
use holdall_transport::{
    Sink, SubscribeRequest, Transport,
    memory::{MemoryNetwork, MemoryTransport},
};
use std::{
    collections::BTreeMap,
    error::Error,
    fs::File,
    io::BufWriter,
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

const TOPIC: &str = "/imu";
const TYPE: &str = "sensor_msgs/msg/Imu";

/// Notes when messages arrive.
#[derive(Default)]
struct Stopwatch(Mutex<Vec<Duration>>);

impl Sink for Stopwatch {
    fn offer(&self, _header: MessageHeader, _payload: Payload<'_>) {
        if let Ok(mut times) = self.0.lock() {
            times.push(SystemClock.monotonic());
        }
    }
}

fn write_bag(path: &Path, hertz: u64, seconds: u64) -> Result<(), Box<dyn Error>> {
    let mut writer = mcap::Writer::new(BufWriter::new(File::create(path)?))?;
    let schema = writer.add_schema(TYPE, "unknown", &[])?;
    let channel = writer.add_channel(schema, TOPIC, "cdr", &BTreeMap::new())?;
    for index in 0..hertz * seconds {
        let log_time = 1_700_000_000_000_000_000 + index * 1_000_000_000 / hertz;
        let header = mcap::records::MessageHeader {
            channel_id: channel,
            sequence: 0,
            log_time,
            publish_time: log_time,
        };
        writer.write_to_known_channel(&header, &[0; 324])?;
    }
    writer.finish()?;
    Ok(())
}

/// Plays the bag; returns the report and how far each spacing is from the recorded one, in nanoseconds.
fn play(path: &Path, hertz: u64, rate: f64) -> Result<(PlayReport, Histogram<u64>), Box<dyn Error>> {
    let network = MemoryNetwork::new();
    let node = |name: &str| NodeName {
        namespace: "/".to_owned(),
        name: name.to_owned(),
    };
    let mut listener = MemoryTransport::new(&network, node("listener"), Arc::new(SystemClock));
    let stopwatch = Arc::new(Stopwatch::default());
    let request = SubscribeRequest {
        topic: TOPIC.to_owned(),
        type_name: TYPE.to_owned(),
        qos: QosProfile::ROS_DEFAULT,
    };
    let subscription = listener.subscribe(&request, Arc::clone(&stopwatch) as Arc<dyn Sink>)?;
    let player = MemoryTransport::new(&network, node("player"), Arc::new(SystemClock));
    let options = PlayOptions {
        inputs: vec![path.to_owned()],
        rate,
        discovery_wait: Duration::ZERO,
        ..PlayOptions::default()
    };
    let report = Player::start(options, vec![Box::new(player)], Arc::new(SystemClock))?.wait();
    drop(subscription);

    let times = stopwatch.0.lock().map_err(|_| "a sink panicked")?;
    let expected = Duration::from_nanos(1_000_000_000 / hertz);
    let mut errors = Histogram::new_with_bounds(1, 3_600_000_000_000, 3)?;
    for pair in times.windows(2) {
        let error = (pair[1] - pair[0]).abs_diff(expected);
        errors.saturating_record(u64::try_from(error.as_nanos())?);
    }
    Ok((report, errors))
}

fn main() -> Result<(), Box<dyn Error>> {
    let seconds = std::env::args().nth(1).map_or(Ok(5), |text| text.parse())?;
    let directory = tempfile::tempdir()?;
    println!(
        "{:>8} {:>9} {:>30} {:>30}",
        "Hz", "messages", "lateness µs p50/p99/max", "spacing error µs p50/p99/max"
    );
    for hertz in [10, 100, 1_000, 10_000] {
        let path = directory.path().join(format!("{hertz}.mcap"));
        write_bag(&path, hertz, seconds)?;
        let (report, errors) = play(&path, hertz, 1.0)?;
        let late = report.status.lateness;
        let micros = |nanos: u64| nanos as f64 / 1e3;
        let three = |values: [u64; 3]| values.map(|nanos| format!("{:.1}", micros(nanos))).join(" / ");
        let late = three([late.p50, late.p99, late.max].map(|time| time.as_nanos() as u64));
        let spacing = three([
            errors.value_at_quantile(0.5),
            errors.value_at_quantile(0.99),
            errors.max(),
        ]);
        println!(
            "{hertz:>8} {:>9} {late:>30} {spacing:>30}",
            report.status.published
        );
    }
    let path = directory.path().join("flat_out.mcap");
    write_bag(&path, 100_000, seconds)?;
    let (report, _) = play(&path, 100_000, 1e6)?;
    let messages = report.status.published;
    println!(
        "flat out: {messages} messages, {:.0} messages/s",
        messages as f64 / report.elapsed.as_secs_f64()
    );
    Ok(())
}
