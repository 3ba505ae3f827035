//! Measures the SQLite3 storage, with pages that are built and with SQLite's engine, against a bare loop of prepared inserts, one
//! transaction per batch.
//!
//! `cargo run --release -p holdall-storage --example sqlite_rate -- DIR [MEGABYTES] [ROUNDS]`
#![allow(clippy::print_stdout, reason = "a program for the terminal")]

use holdall_io::{
    block::BlockPoolOptions,
    clock::{Clock, SystemClock},
    os::{DiskMode, OsDisk},
    queue::DiskQueue,
};
use holdall_model::{message::PayloadRef, time::Timestamp};
use holdall_storage::{
    StorageOptions,
    sqlite3::format::CREATE_TABLES,
    storage_by_id,
    writer::{ChannelInfo, StoredMessage},
};
use rusqlite::{Connection, params};
use std::{fs, path::Path};

type Failure = Box<dyn std::error::Error>;

/// A pragma that changes nothing, with which the engine writes.
const BY_ENGINE: &str = "write: {pragmas: [temp_store = DEFAULT]}";

/// One transaction.
const BATCH_BYTES: usize = 4 << 20;

fn batches(size: usize, total: usize) -> (usize, usize) {
    let in_batch = (BATCH_BYTES / size).max(1);
    (total / size / in_batch, in_batch)
}

/// How long a run took, and how much processor time, in seconds.
#[derive(Clone, Copy)]
struct Took(f64, f64);

impl Took {
    fn since(start: (f64, f64)) -> Self {
        let now = Self::now();
        Self(now.0 - start.0, now.1 - start.1)
    }

    fn now() -> (f64, f64) {
        let busy = holdall_io::process::process_cpu_time().total();
        (SystemClock.monotonic().as_secs_f64(), busy.as_secs_f64())
    }
}

/// `config`: of the storage, in addition to the preset.
fn ours(
    dir: &Path,
    (preset, config): (&str, Option<&str>),
    size: usize,
    total: usize,
    payload: &[u8],
) -> Result<Took, Failure> {
    let path = dir.join("ours.db3");
    let mut q = DiskQueue::new(
        Box::new(OsDisk::open(dir, DiskMode::Auto)?),
        BlockPoolOptions::default(),
    )?;
    let start = Took::now();
    let file = q.create_file(&path, 0)?;
    let options = StorageOptions {
        preset: Some(preset.to_owned()).filter(|preset| !preset.is_empty()),
        config: config.map(str::to_owned),
        ..StorageOptions::default()
    };
    let mut writer = storage_by_id("sqlite3")?.create_writer(&mut q, file, &path, &options)?;
    let channel = writer.add_channel(&mut q, &ChannelInfo::default())?;
    let (count, in_batch) = batches(size, total);
    for batch in 0..count {
        for n in 0..in_batch {
            let number = batch * in_batch + n;
            let at = number * size % (payload.len() - size);
            let time = Timestamp::from_nanos(number as i64 * 1000);
            let payload = PayloadRef::Bytes(&payload[at..at + size]);
            writer.write(
                &mut q,
                channel,
                StoredMessage {
                    log_time: time,
                    publish_time: time,
                    sequence: 0,
                    payload,
                },
            )?;
            writer.step(&mut q)?;
        }
    }
    writer.finish(&mut q, &[])?;
    q.wait_closed(file)?;
    let elapsed = Took::since(start);
    fs::remove_file(path)?;
    Ok(elapsed)
}

fn bare(dir: &Path, preset: &str, size: usize, total: usize, payload: &[u8]) -> Result<Took, Failure> {
    let path = dir.join("bare.db3");
    let start = Took::now();
    let connection = Connection::open(&path)?;
    // rosbag2's own presets.
    let pragmas = match preset {
        "resilient" => ["journal_mode = WAL", "synchronous = NORMAL"],
        _ => ["journal_mode = MEMORY", "synchronous = OFF"],
    };
    for pragma in pragmas {
        connection
            .query_row(&format!("PRAGMA {pragma}"), [], |_| Ok(()))
            .or_else(|error| match error {
                rusqlite::Error::QueryReturnedNoRows => Ok(()),
                other => Err(other),
            })?;
    }
    CREATE_TABLES
        .iter()
        .try_for_each(|table| connection.execute_batch(table))?;
    let mut insert =
        connection.prepare("INSERT INTO messages (timestamp, topic_id, data) VALUES (?1, ?2, ?3)")?;
    let (count, in_batch) = batches(size, total);
    for batch in 0..count {
        connection.execute_batch("BEGIN TRANSACTION")?;
        for n in 0..in_batch {
            let number = batch * in_batch + n;
            let at = number * size % (payload.len() - size);
            insert.execute(params![number as i64 * 1000, 1, &payload[at..at + size]])?;
        }
        connection.execute_batch("COMMIT")?;
    }
    drop(insert);
    connection.close().map_err(|(_, error)| error)?;
    fs::File::open(&path)?.sync_all()?;
    let elapsed = Took::since(start);
    fs::remove_file(path)?;
    Ok(elapsed)
}

fn main() -> Result<(), Failure> {
    let mut args = std::env::args().skip(1);
    let dir = args.next().ok_or("a directory is needed")?;
    let megabytes: usize = args.next().map_or(Ok(500), |text| text.parse())?;
    let rounds: usize = args.next().map_or(Ok(2), |text| text.parse())?;
    let payload: Vec<u8> = (0..64usize << 20).map(|n| (n ^ (n >> 7)) as u8).collect();
    for preset in ["", "none", "resilient"] {
        for size in [6_220_800, 1 << 20, 10 << 10, 100] {
            let total = megabytes * 1_000_000 / if size == 100 { 5 } else { 1 };
            let dir = Path::new(&dir);
            let mut runs: [Vec<Took>; 3] = Default::default();
            for _ in 0..rounds {
                runs[0].push(ours(dir, (preset, None), size, total, &payload)?);
                runs[1].push(ours(dir, (preset, Some(BY_ENGINE)), size, total, &payload)?);
                runs[2].push(bare(dir, preset, size, total, &payload)?);
            }
            let gigabytes = total as f64 / 1e9;
            for (name, took) in ["built", "engine", "bare loop"].iter().zip(&runs) {
                let list = |of: fn(&Took, f64) -> String| {
                    let texts: Vec<String> = took.iter().map(|took| of(took, gigabytes)).collect();
                    texts.join(" ")
                };
                println!(
                    "{preset:<10} {size:>8} B  {name:<10} MB/s {}   CPU s/GB {}",
                    list(|took, gigabytes| format!("{:.0}", gigabytes * 1e3 / took.0)),
                    list(|took, gigabytes| format!("{:.2}", took.1 / gigabytes)),
                );
            }
        }
    }
    Ok(())
}
