//! Measures how fast messages are written to an MCAP file by our writer and by the `mcap` crate's.
//!
//! `cargo run --release -p holdall-storage --example write_rate -- [DIR|-] [MEGABYTES] [ROUNDS] [CASE]`; `-`
//! discards the bytes instead of writing them to a disk. Environment: `TOPICS` of each size (10),
//! `OURS_ONLY`.
#![allow(clippy::print_stdout, reason = "a program for the terminal")]

use holdall_io::{
    block::BlockPoolOptions,
    clock::{Clock, SystemClock},
    memory::MemoryDisk,
    os::{DiskMode, OsDisk},
    queue::DiskQueue,
};
use holdall_model::{
    message::PayloadRef,
    time::Timestamp,
    topic::{DefinitionEncoding, MessageDefinition, TopicInfo},
};
use holdall_storage::{
    mcap::{McapOptions, McapWriter},
    writer::{ChannelInfo, StorageWriter, StoredMessage},
};
use std::{
    fs,
    io::{self, BufWriter, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

type Failure = Box<dyn std::error::Error>;

const CASES: [(&str, &[(usize, usize)]); 5] = [
    ("6220800 B", &[(6_220_800, 1)]),
    ("1 MiB", &[(1 << 20, 1)]),
    ("10 KiB", &[(10 << 10, 1)]),
    ("100 B", &[(100, 1)]),
    // 70, 20 and 10 % of the bytes.
    ("mixed 70/20/10", &[(1 << 20, 7), (10 << 10, 205), (100, 10_486)]),
];

/// Payload sizes in the order of sending: each size evenly spread over the round.
fn round_of(case: &[(usize, usize)]) -> Vec<usize> {
    let mut sends: Vec<(u64, usize)> = Vec::new();
    for (size, count) in case {
        sends.extend((0..*count).map(|n| ((n as u64 * 2 + 1) * 1_000_000 / (*count as u64 * 2), *size)));
    }
    sends.sort_unstable();
    sends.into_iter().map(|(_, size)| size).collect()
}

struct Run {
    messages: u64,
    bytes: u64,
    elapsed: Duration,
    cpu: Duration,
}

/// Processor time of this process in user and kernel mode, all threads.
fn cpu() -> Duration {
    let text = fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    let own = text
        .split(' ')
        .next()
        .and_then(|nanos| nanos.parse().ok())
        .map_or(Duration::ZERO, Duration::from_nanos);
    let Ok(tasks) = fs::read_dir("/proc/self/task") else {
        return own;
    };
    tasks
        .flatten()
        .filter_map(|task| fs::read_to_string(task.path().join("schedstat")).ok())
        .filter_map(|text| text.split(' ').next()?.parse().ok().map(Duration::from_nanos))
        .sum()
}

fn channels(count: usize) -> Vec<ChannelInfo> {
    (0..count)
        .map(|n| ChannelInfo {
            topic: TopicInfo {
                name: format!("/topic_{n}"),
                type_name: "std_msgs/msg/UInt8MultiArray".into(),
                serialization_format: "cdr".into(),
                ..TopicInfo::default()
            },
            definition: MessageDefinition {
                encoding: DefinitionEncoding::Ros2Msg,
                text: "uint8[] data\n".into(),
                ..MessageDefinition::default()
            },
        })
        .collect()
}

/// The same messages for every writer: channel, time, payload.
fn for_each_message(
    sizes: &[usize],
    (total, topics): (u64, u32),
    payload: &[u8],
    mut send: impl FnMut(u32, u64, &[u8]) -> Result<(), Failure>,
) -> Result<(u64, u64), Failure> {
    let (mut messages, mut bytes) = (0u64, 0u64);
    while bytes < total {
        for size in sizes {
            // Contiguous, as in a cache.
            let at = bytes as usize % (payload.len() - size + 1);
            // The same number of topics for each size.
            let kind = match size {
                0..=999 => 0,
                1000..=99_999 => 10,
                _ => 20,
            };
            send(
                kind * topics / 10 + messages as u32 % topics,
                messages * 1000,
                &payload[at..at + size],
            )?;
            messages += 1;
            bytes += *size as u64;
        }
    }
    Ok((messages, bytes))
}

fn ours(
    dir: Option<&Path>,
    sizes: &[usize],
    (total, topics): (u64, u32),
    payload: &[u8],
) -> Result<Run, Failure> {
    let path = dir.map_or(PathBuf::from("memory.mcap"), |dir| dir.join("ours.mcap"));
    let (clock, cpu_start) = (SystemClock, cpu());
    let mut q = match dir {
        None => DiskQueue::new(Box::new(MemoryDisk::discarding()), BlockPoolOptions::default())?,
        Some(dir) => DiskQueue::new(
            Box::new(OsDisk::open(dir, DiskMode::Auto)?),
            BlockPoolOptions::default(),
        )?,
    };
    let start = clock.monotonic();
    let file = q.create_file(
        &path,
        if dir.is_some() {
            total + total / 3 + (64 << 20)
        } else {
            0
        },
    )?;
    let mut writer: Box<dyn StorageWriter> =
        Box::new(McapWriter::create(&mut q, file, &path, McapOptions::default())?);
    let indexes: Vec<_> = channels(topics as usize * 3)
        .iter()
        .map(|info| writer.add_channel(&mut q, info))
        .collect::<Result<_, _>>()?;
    let (messages, bytes) = for_each_message(sizes, (total, topics), payload, |channel, time, payload| {
        let time = Timestamp::from_nanos(i64::try_from(time)?);
        let message = StoredMessage {
            log_time: time,
            publish_time: time,
            sequence: 0,
            payload: PayloadRef::Bytes(payload),
        };
        Ok(writer.write(&mut q, indexes[channel as usize], message)?)
    })?;
    writer.finish(&mut q, &[])?;
    q.wait_closed(file)?;
    let run = Run {
        messages,
        bytes,
        elapsed: clock.monotonic() - start,
        cpu: cpu() - cpu_start,
    };
    if dir.is_some() {
        fs::remove_file(path)?;
    }
    Ok(run)
}

/// A file that discards its content.
#[derive(Default)]
struct Nowhere {
    at: u64,
    end: u64,
    block: Vec<u8>,
}

impl Write for Nowhere {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // One copy, as for a real file.
        let count = bytes.len().min(self.block.len());
        self.block[..count].copy_from_slice(&bytes[..count]);
        self.at += count as u64;
        self.end = self.end.max(self.at);
        Ok(count)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for Nowhere {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.at = match to {
            SeekFrom::Start(at) => at,
            SeekFrom::Current(by) => self.at.saturating_add_signed(by),
            SeekFrom::End(by) => self.end.saturating_add_signed(by),
        };
        Ok(self.at)
    }
}

fn reference(
    dir: Option<&Path>,
    sizes: &[usize],
    (total, topics): (u64, u32),
    payload: &[u8],
) -> Result<Run, Failure> {
    let path = dir.map(|dir| dir.join("reference.mcap"));
    let (clock, cpu_start) = (SystemClock, cpu());
    let start = clock.monotonic();
    let (messages, bytes) = match &path {
        None => {
            let sink = Nowhere {
                block: vec![0; 1 << 20],
                ..Nowhere::default()
            };
            reference_to(
                BufWriter::with_capacity(1 << 20, sink),
                sizes,
                (total, topics),
                payload,
            )?
            .0
        }
        Some(path) => {
            let (counts, out) = reference_to(
                BufWriter::with_capacity(1 << 20, fs::File::create(path)?),
                sizes,
                (total, topics),
                payload,
            )?;
            out.into_inner()?.sync_all()?;
            counts
        }
    };
    let run = Run {
        messages,
        bytes,
        elapsed: clock.monotonic() - start,
        cpu: cpu() - cpu_start,
    };
    if let Some(path) = path {
        fs::remove_file(path)?;
    }
    Ok(run)
}

fn reference_to<W: Write + Seek>(
    out: W,
    sizes: &[usize],
    (total, topics): (u64, u32),
    payload: &[u8],
) -> Result<((u64, u64), W), Failure> {
    let mut writer = mcap::WriteOptions::new()
        .compression(None)
        .profile("ros2")
        .create(out)?;
    let schema = writer.add_schema("std_msgs/msg/UInt8MultiArray", "ros2msg", b"uint8[] data\n")?;
    let ids: Vec<u16> = (0..topics * 3)
        .map(|n| {
            writer.add_channel(
                schema,
                &format!("/topic_{n}"),
                "cdr",
                &std::collections::BTreeMap::new(),
            )
        })
        .collect::<Result<_, _>>()?;
    let counts = for_each_message(sizes, (total, topics), payload, |channel, time, payload| {
        let header = mcap::records::MessageHeader {
            channel_id: ids[channel as usize],
            sequence: 0,
            log_time: time,
            publish_time: time,
        };
        Ok(writer.write_to_known_channel(&header, payload)?)
    })?;
    writer.finish()?;
    Ok((counts, writer.into_inner()))
}

fn show(who: &str, case: &str, run: &Run) {
    let seconds = run.elapsed.as_secs_f64();
    let gigabytes = run.bytes as f64 / 1e9;
    println!(
        "{case:<15} {who:<8} {:>8.0} MB/s {:>7.2} M msg/s {:>6.3} CPU s/GB {:>6.2} s",
        gigabytes * 1e3 / seconds,
        run.messages as f64 / 1e6 / seconds,
        run.cpu.as_secs_f64() / gigabytes,
        seconds,
    );
}

fn main() -> Result<(), Failure> {
    let mut args = std::env::args().skip(1);
    let dir = args.next().filter(|dir| dir != "-").map(PathBuf::from);
    let megabytes: u64 = args.next().map_or(Ok(2000), |text| text.parse())?;
    let rounds: u32 = args.next().map_or(Ok(1), |text| text.parse())?;
    let only = args.next();
    let topics = std::env::var("TOPICS").map_or(Ok(10), |text| text.parse())?;
    let mut state = 88_172_645_463_325_252u64;
    let noise: Arc<[u8]> = (0..(64 << 20) / 8)
        .flat_map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()
        })
        .collect();
    for _ in 0..rounds {
        for (name, case) in CASES {
            if only.as_ref().is_some_and(|only| !name.contains(only.as_str())) {
                continue;
            }
            let sizes = round_of(case);
            let total = megabytes * 1_000_000 / if name == "100 B" { 4 } else { 1 };
            let load = (total, topics);
            show("ours", name, &ours(dir.as_deref(), &sizes, load, &noise)?);
            if std::env::var_os("OURS_ONLY").is_none() {
                show("mcap", name, &reference(dir.as_deref(), &sizes, load, &noise)?);
            }
        }
    }
    Ok(())
}
