//! The loads of the MCAP project's comparison of languages (foxglove/mcap, pull request 1611) through holdall's library and the `mcap` crate, one task in
//! each process: a million messages of 100 bytes, and ten seconds of a robot, written without compression, read whole and by topic and time.
//! `scripts/bench-mcap.py` runs it beside the Python readers and prints the table.
//!
//! `cargo run --release -p holdall-bench --example mcap_languages -- holdall|crate write-small|write-robot|read|topic|time|both PATH`

#![allow(clippy::print_stdout, reason = "a program for people")]

use holdall::{
    Bag, Timestamp, Writer,
    reader::{BagSet, MessageFilter},
};
use holdall_io::clock::{Clock, SystemClock};
use holdall_model::topic::MessageDefinition;
use mcap::sans_io::{
    indexed_reader::{IndexedReadEvent, IndexedReader, IndexedReaderOptions},
    summary_reader::{SummaryReadEvent, SummaryReader},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    error::Error,
    fs::{self, File},
    io::{BufWriter, Read, Seek, SeekFrom},
    path::Path,
    sync::Arc,
};

type Done<T> = Result<T, Box<dyn Error>>;

/// Topic, type, shortest and longest payload in bytes, and messages a second.
const ROBOT: [(&str, &str, usize, usize, u64); 5] = [
    ("/imu", "sensor_msgs/msg/Imu", 96, 96, 200),
    ("/odom", "nav_msgs/msg/Odometry", 296, 296, 50),
    ("/tf", "tf2_msgs/msg/TFMessage", 80, 1600, 100),
    ("/lidar", "sensor_msgs/msg/PointCloud2", 230_400, 230_400, 10),
    ("/camera", "sensor_msgs/msg/CompressedImage", 524_288, 524_288, 15),
];
const SMALL: [(&str, &str, usize, usize, u64); 1] = [("/small", "std_msgs/msg/String", 100, 100, 100_000)];
const SECONDS: u64 = 10;
/// What the filtered reads take.
const TOPIC: &str = "/imu";
const FROM_NANOS: u64 = 3_000_000_000;
const UNTIL_NANOS: u64 = 5_000_000_000;

/// Place of its topic, time, and length.
type Planned = (usize, u64, usize);

/// Each message, in the order of time.
fn messages(topics: &[(&str, &str, usize, usize, u64)]) -> Vec<Planned> {
    let mut all = Vec::new();
    for (place, (_, _, least, most, rate)) in topics.iter().enumerate() {
        all.extend((0..rate * SECONDS).map(|number| {
            let spread = (most - least + 1) as u64;
            let len = least + (number * 7919 % spread) as usize;
            (place, number * 1_000_000_000 / rate, len)
        }));
    }
    all.sort_by_key(|(place, time, _)| (*time, *place));
    all
}

fn write(
    library: &str,
    topics: &[(&str, &str, usize, usize, u64)],
    plan: &[Planned],
    path: &Path,
) -> Done<u64> {
    let noise: Vec<u8> = (0..524_288_u32)
        .map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    if library == "holdall" {
        let mut writer = Writer::create(path)?;
        let add = |(name, type_name, ..): &(&str, &str, usize, usize, u64)| {
            let definition = MessageDefinition {
                type_name: (*type_name).to_owned(),
                ..MessageDefinition::default()
            };
            writer.add_defined_topic(name, definition)
        };
        let added = topics.iter().map(add).collect::<Result<Vec<_>, _>>()?;
        for (place, time, len) in plan {
            writer.write(
                added[*place],
                Timestamp::from_nanos(i64::try_from(*time)?),
                &noise[..*len],
            )?;
        }
        writer.close()?;
    } else {
        let mut writer = mcap::WriteOptions::new()
            .compression(None)
            .profile("ros2")
            .create(BufWriter::with_capacity(1 << 20, File::create_new(path)?))?;
        let mut added = Vec::new();
        for (name, type_name, ..) in topics {
            let schema = writer.add_schema(type_name, "ros2msg", b"")?;
            added.push(writer.add_channel(schema, name, "cdr", &BTreeMap::new())?);
        }
        for (sequence, (place, time, len)) in plan.iter().enumerate() {
            let header = mcap::records::MessageHeader {
                channel_id: added[*place],
                sequence: u32::try_from(sequence)?,
                log_time: *time,
                publish_time: *time,
            };
            writer.write_to_known_channel(&header, &noise[..*len])?;
        }
        writer.finish()?;
        drop(writer);
        // holdall's close is durable, too.
        File::open(path)?.sync_all()?;
    }
    Ok(plan.len() as u64)
}

fn read_holdall(path: &Path, is_of_topic: bool, is_of_time: bool) -> Done<(u64, u64)> {
    let set = BagSet::from(vec![Bag::open(path)?]);
    let nanos = |nanos: u64| i64::try_from(nanos).map(Timestamp::from_nanos);
    let filter = MessageFilter {
        topics: is_of_topic.then(|| Arc::new(BTreeSet::from([TOPIC.to_owned()]))),
        from: is_of_time.then(|| nanos(FROM_NANOS)).transpose()?,
        until: is_of_time.then(|| nanos(UNTIL_NANOS - 1)).transpose()?,
        ..MessageFilter::default()
    };
    let (mut count, mut bytes) = (0, 0);
    for message in set.messages(&filter) {
        bytes += message?.payload.len() as u64;
        count += 1;
    }
    Ok((count, bytes))
}

fn read_crate(path: &Path, is_of_topic: bool, is_of_time: bool) -> Done<(u64, u64)> {
    let mut file = File::open(path)?;
    let mut reader = SummaryReader::new();
    while let Some(event) = reader.next_event() {
        match event? {
            SummaryReadEvent::ReadRequest(need) => {
                let read = file.read(reader.insert(need))?;
                reader.notify_read(read);
            }
            SummaryReadEvent::SeekRequest(to) => reader.notify_seeked(file.seek(to)?),
        }
    }
    let summary = reader.finish().ok_or("no summary")?;
    let mut options = IndexedReaderOptions::new();
    if is_of_topic {
        options = options.include_topics([TOPIC]);
    }
    if is_of_time {
        options = options.starting_at(FROM_NANOS).ending_before(UNTIL_NANOS);
    }
    let mut reader = IndexedReader::new_with_options(&summary, options)?;
    let (mut count, mut bytes, mut chunk) = (0, 0, Vec::new());
    while let Some(event) = reader.next_event() {
        match event? {
            IndexedReadEvent::ReadChunkRequest { offset, length } => {
                file.seek(SeekFrom::Start(offset))?;
                chunk.resize(length, 0);
                file.read_exact(&mut chunk)?;
                reader.insert_chunk_record_data(offset, &chunk)?;
            }
            IndexedReadEvent::Message { data, .. } => {
                bytes += data.len() as u64;
                count += 1;
            }
        }
    }
    Ok((count, bytes))
}

/// The most memory that this process had, in bytes.
fn memory_peak() -> Done<u64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kibibytes = line.and_then(|line| line.trim().strip_suffix(" kB"));
    Ok(kibibytes.ok_or("no VmHWM")?.trim().parse::<u64>()? << 10)
}

fn main() -> Done<()> {
    let words: Vec<String> = env::args().skip(1).collect();
    let [library, task, path] = &words[..] else {
        return Err("expected: holdall|crate TASK PATH".into());
    };
    let path = Path::new(path);
    let read = |is_of_topic, is_of_time| match library.as_str() {
        "holdall" => read_holdall(path, is_of_topic, is_of_time),
        _ => read_crate(path, is_of_topic, is_of_time),
    };
    let topics: &[_] = if task == "write-small" { &SMALL } else { &ROBOT };
    let plan = if task.starts_with("write-") {
        messages(topics)
    } else {
        Vec::new()
    };
    let began = SystemClock.monotonic();
    let (count, bytes) = match task.as_str() {
        "write-small" | "write-robot" => (write(library, topics, &plan, path)?, 0),
        "read" => read(false, false)?,
        "topic" => read(true, false)?,
        "time" => read(false, true)?,
        "both" => read(true, true)?,
        other => return Err(format!("no task {other}").into()),
    };
    let seconds = SystemClock.monotonic().saturating_sub(began).as_secs_f64();
    println!(
        "{{\"messages\": {count}, \"bytes\": {bytes}, \"seconds\": {seconds}, \"memory\": {}}}",
        memory_peak()?
    );
    Ok(())
}
