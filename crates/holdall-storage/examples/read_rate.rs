//! Measures how fast an MCAP file is opened and read, and how much of it is read for one small topic.
//!
//! `cargo run --release -p holdall-storage --example read_rate -- DIR [MEGABYTES] [none|zstd|lz4] [THREADS]`
//! first writes a mixed file, which is kept as `DIR/mixed.mcap` when `KEEP` is set.
#![allow(clippy::print_stdout, reason = "a program for the terminal")]

use holdall_io::{
    block::BlockPoolOptions,
    clock::{Clock, SystemClock},
    os::{DiskMode, OsDisk},
    queue::DiskQueue,
};
use holdall_model::{
    message::PayloadRef,
    time::Timestamp,
    topic::{DefinitionEncoding, MessageDefinition, TopicInfo},
};
use holdall_storage::{
    mcap::{
        McapOptions, McapReader, McapWriter,
        options::{Compression, CompressionLevel},
    },
    reader::{ReadOrder, ReadQuery, StorageReader},
    writer::{ChannelIndex, ChannelInfo, StorageWriter, StoredMessage},
};
use std::{fs, io::Write, path::Path, time::Duration};

type Failure = Box<dyn std::error::Error>;

/// Topics: name, payload bytes, period in milliseconds.
const TOPICS: [(&str, usize, u64); 6] = [
    ("/camera/left", 1 << 20, 33),
    ("/camera/right", 1 << 20, 33),
    ("/lidar", 200_000, 100),
    ("/packets", 10_240, 2),
    ("/imu", 320, 5),
    ("/joint_states", 100, 1),
];

/// Bytes that compress about as well as images.
fn texture(len: usize) -> Vec<u8> {
    let mut state = 88_172_645_463_325_252u64;
    (0..len)
        .map(|n| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            ((n / 9700) as u8).wrapping_add((state & state >> 8 & 7) as u8)
        })
        .collect()
}

fn write(path: &Path, dir: &Path, total: u64, options: McapOptions) -> Result<(u64, Duration), Failure> {
    let clock = SystemClock;
    let start = clock.monotonic();
    let mut q = DiskQueue::new(
        Box::new(OsDisk::open(dir, DiskMode::Auto)?),
        BlockPoolOptions::default(),
    )?;
    let file = q.create_file(path, 0)?;
    let mut writer = Box::new(McapWriter::create(&mut q, file, path, options)?);
    let channels = TOPICS.map(|(name, ..)| ChannelInfo {
        topic: TopicInfo {
            name: name.into(),
            type_name: "std_msgs/msg/UInt8MultiArray".into(),
            serialization_format: "cdr".into(),
            ..TopicInfo::default()
        },
        definition: MessageDefinition {
            encoding: DefinitionEncoding::Ros2Msg,
            text: "uint8[] data\n".into(),
            ..MessageDefinition::default()
        },
    });
    for info in &channels {
        writer.add_channel(&mut q, info)?;
    }
    let payload = texture(8 << 20);
    let (mut bytes, mut millis) = (0u64, 0u64);
    while bytes < total {
        for (channel, (_, size, every)) in (0..).zip(TOPICS) {
            if millis % every == 0 {
                let time =
                    Timestamp::from_nanos(1_700_000_000_000_000_000 + i64::try_from(millis * 1_000_000)?);
                let at = bytes as usize % (payload.len() - size);
                let payload = PayloadRef::Bytes(&payload[at..at + size]);
                let message = StoredMessage {
                    log_time: time,
                    publish_time: time,
                    sequence: 0,
                    payload,
                };
                writer.write(&mut q, ChannelIndex(channel), message)?;
                bytes += size as u64;
            }
        }
        millis += 1;
    }
    writer.finish(&mut q, &[])?;
    q.wait_closed(file)?;
    Ok((bytes, clock.monotonic() - start))
}

/// Bytes per second at which one thread compresses the same bytes.
fn codec_alone(compression: Compression, total: u64) -> Result<Option<f64>, Failure> {
    let (clock, bytes) = (SystemClock, texture(8 << 20));
    let (start, rounds) = (clock.monotonic(), (total / bytes.len() as u64).clamp(1, 50));
    for _ in 0..rounds {
        for piece in bytes.chunks(4 << 20) {
            match compression {
                Compression::None => return Ok(None),
                Compression::Zstd => drop(zstd::bulk::compress(piece, CompressionLevel::Default.zstd())?),
                Compression::Lz4 => {
                    let mut encoder = lz4::EncoderBuilder::new().level(0).build(Vec::new())?;
                    encoder.write_all(piece)?;
                    encoder.finish().1?;
                }
            }
        }
    }
    Ok(Some(
        (rounds * bytes.len() as u64) as f64 / (clock.monotonic() - start).as_secs_f64(),
    ))
}

/// Bytes that this process has read from files.
fn read_so_far() -> u64 {
    let text = fs::read_to_string("/proc/self/io").unwrap_or_default();
    text.lines()
        .find_map(|line| line.strip_prefix("rchar: ")?.parse().ok())
        .unwrap_or(0)
}

fn read(path: &Path, what: &str, query: &ReadQuery) -> Result<(), Failure> {
    let clock = SystemClock;
    let (start, before) = (clock.monotonic(), read_so_far());
    let reader = McapReader::open(path)?;
    let (opened, opened_bytes) = (clock.monotonic() - start, read_so_far() - before);
    let (mut messages, mut bytes) = (0u64, 0u64);
    for message in reader.messages(query)? {
        messages += 1;
        bytes += message?.payload.len() as u64;
    }
    let elapsed = (clock.monotonic() - start).as_secs_f64();
    println!(
        "{what:<14} opened in {:.2} ms reading {opened_bytes} B; {messages} messages, {:.0} MB/s, {:.2} M msg/s, {:.2} bytes read for each byte",
        opened.as_secs_f64() * 1e3,
        bytes as f64 / 1e6 / elapsed,
        messages as f64 / 1e6 / elapsed,
        (read_so_far() - before) as f64 / bytes.max(1) as f64,
    );
    Ok(())
}

fn main() -> Result<(), Failure> {
    let mut args = std::env::args().skip(1);
    let dir = args.next().ok_or("a directory is needed")?;
    let dir = Path::new(&dir);
    let megabytes: u64 = args.next().map_or(Ok(1000), |text| text.parse())?;
    let compression = match args.next().as_deref() {
        Some("zstd") => Compression::Zstd,
        Some("lz4") => Compression::Lz4,
        _ => Compression::None,
    };
    let compression_threads = args.next().map_or(Ok(0), |text| text.parse())?;
    let path = dir.join("mixed.mcap");
    let alone = codec_alone(compression, megabytes * 1_000_000)?;
    let options = McapOptions {
        compression,
        compression_threads,
        compression_level: CompressionLevel::Default,
        ..McapOptions::default()
    };
    let (bytes, elapsed) = write(&path, dir, megabytes * 1_000_000, options)?;
    let file_bytes = fs::metadata(&path)?.len();
    println!(
        "written        {:.0} MB/s durable, {:.3} of its size",
        bytes as f64 / 1e6 / elapsed.as_secs_f64(),
        file_bytes as f64 / bytes as f64
    );
    if let Some(alone) = alone {
        let ratio = bytes as f64 / elapsed.as_secs_f64() / alone;
        println!(
            "codec alone    {:.0} MB/s in one thread; written at {ratio:.2} of it",
            alone / 1e6
        );
    }
    for order in [ReadOrder::LogTime, ReadOrder::File] {
        read(
            &path,
            &format!("{order:?}"),
            &ReadQuery {
                order,
                ..ReadQuery::default()
            },
        )?;
    }
    for (channel, (name, ..)) in (0..).zip(TOPICS) {
        read(
            &path,
            name,
            &ReadQuery {
                channels: Some(vec![ChannelIndex(channel)]),
                ..ReadQuery::default()
            },
        )?;
    }
    if std::env::var_os("KEEP").is_none() {
        fs::remove_file(path)?;
    }
    Ok(())
}
