//! Measures the write limit of a disk and how near `BlockStream` on `DiskQueue` comes to it, interleaved, as ratios of one run.
#![allow(clippy::print_stdout, reason = "an example prints its figures")]

use holdall_io::{
    block::BlockPoolOptions,
    clock::{Clock, SystemClock},
    disk::DiskError,
    limits,
    os::{DiskMode, OsDisk},
    process::process_cpu_time,
    queue::DiskQueue,
    stream::BlockStream,
};
use std::path::{Path, PathBuf};

/// What is asked for on the command line.
struct Options {
    dir: PathBuf,
    total_bytes: u64,
    rounds: usize,
    block_bytes: usize,
    block_count: usize,
    huge_pages: bool,
    mode: DiskMode,
    split_bytes: u64,
    sweep: bool,
    crc: bool,
    reserve_bytes: Option<u64>,
    appends: Vec<usize>,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let options = parse(std::env::args().skip(1))?;
    println!(
        "memcpy 1 MiB {:.1} GB/s, crc32 {:.1} GB/s",
        limits::measure_memcpy(4 << 30, 1 << 20) / 1e9,
        limits::measure_crc32(8 << 30) / 1e9
    );
    if options.sweep {
        return sweep(&options);
    }
    let mut payload = vec![0u8; 64 << 20];
    limits::fill_with_noise(&mut payload, &mut 0x1234_5678_9abc_def1);
    let mut ratios = vec![Vec::new(); options.appends.len()];
    let mut cpus = ratios.clone();
    let mut before = limit(&options)?;
    for round in 0..options.rounds {
        for (place, &append) in options.appends.iter().enumerate() {
            let (rate, cpu) = stream_write(&options, &payload, append)?;
            let after = limit(&options)?;
            let ratio = rate / f64::midpoint(before, after);
            ratios[place].push(ratio);
            cpus[place].push(cpu);
            println!(
                "round {round} append {append:>8} B: {:>5.0} MB/s durable, {ratio:.3} L (L {:.0}/{:.0}), cpu {cpu:.3} s/GB",
                rate / 1e6,
                before / 1e6,
                after / 1e6
            );
            before = after;
        }
    }
    for ((append, ratios), cpus) in options.appends.iter().zip(ratios).zip(cpus) {
        println!(
            "append {append:>8} B: median {:.3} L, cpu {:.3} s/GB, {} rounds",
            median(ratios),
            median(cpus),
            options.rounds
        );
    }
    Ok(())
}

fn parse(mut args: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut options = Options {
        dir: PathBuf::from("."),
        total_bytes: 8_000_000_000,
        rounds: 3,
        block_bytes: holdall_io::block::BLOCK_BYTES_DEFAULT,
        block_count: holdall_io::block::BLOCK_COUNT_DEFAULT,
        huge_pages: true,
        mode: DiskMode::Auto,
        split_bytes: 0,
        sweep: false,
        crc: false,
        reserve_bytes: None,
        appends: vec![6_220_800, 1 << 20, 10 << 10],
    };
    let number = |args: &mut dyn Iterator<Item = String>| -> Result<f64, String> {
        args.next()
            .ok_or("a number is missing")?
            .parse()
            .map_err(|e| format!("{e}"))
    };
    while let Some(flag) = args.next() {
        match flag.as_str() {
            "--dir" => options.dir = PathBuf::from(args.next().ok_or("--dir needs a folder")?),
            "--total" => options.total_bytes = number(&mut args)? as u64,
            "--rounds" => options.rounds = number(&mut args)? as usize,
            "--block-bytes" => options.block_bytes = number(&mut args)? as usize,
            "--block-count" => options.block_count = number(&mut args)? as usize,
            "--split" => options.split_bytes = number(&mut args)? as u64,
            "--append" => options.appends = vec![number(&mut args)? as usize],
            "--no-huge-pages" => options.huge_pages = false,
            "--reserve" => options.reserve_bytes = Some(number(&mut args)? as u64),
            "--buffered" => options.mode = DiskMode::Buffered,
            "--crc" => options.crc = true,
            "--sweep" => options.sweep = true,
            other => return Err(format!("unknown flag {other}")),
        }
    }
    Ok(options)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// The limit that belongs to the mode.
fn limit(options: &Options) -> Result<f64, DiskError> {
    if options.mode == DiskMode::Buffered {
        return limits::measure_buffered_write(&options.dir, options.total_bytes, 1 << 20);
    }
    limits::measure_direct_write(&options.dir, options.total_bytes, 4 << 20, 8)
}

fn sweep(options: &Options) -> Result<(), Box<dyn std::error::Error>> {
    for round in 0..options.rounds {
        for block_bytes in [256 << 10, 1 << 20, 2 << 20, 4 << 20, 8 << 20] {
            for depth in [2, 4, 8, 16, 32] {
                let cpu = process_cpu_time().total();
                let rate =
                    limits::measure_direct_write(&options.dir, options.total_bytes, block_bytes, depth)?;
                let cpu = (process_cpu_time().total() - cpu).as_secs_f64() / options.total_bytes as f64 * 1e9;
                println!(
                    "round {round} block {:>4} KiB depth {depth:>2}: {:>5.0} MB/s, cpu {cpu:.3} s/GB",
                    block_bytes >> 10,
                    rate / 1e6
                );
            }
        }
        let buffered = limits::measure_buffered_write(&options.dir, options.total_bytes, 1 << 20)?;
        println!("round {round} buffered and sync: {:.0} MB/s", buffered / 1e6);
    }
    Ok(())
}

/// Durable bytes per second and processor seconds per GB of appends of one size.
fn stream_write(options: &Options, payload: &[u8], append: usize) -> Result<(f64, f64), DiskError> {
    let pool = BlockPoolOptions {
        block_bytes: options.block_bytes,
        block_count: options.block_count,
        huge_pages: options.huge_pages,
    };
    let mut q = DiskQueue::new(Box::new(OsDisk::open(&options.dir, options.mode)?), pool)?;
    let cpu = process_cpu_time().total();
    let start = SystemClock.monotonic();
    let mut paths = Vec::new();
    let mut files = Vec::new();
    let split = if options.split_bytes == 0 {
        u64::MAX
    } else {
        options.split_bytes
    };
    let reserve = options
        .reserve_bytes
        .unwrap_or(options.total_bytes.min(split) + (64 << 20));
    let mut next_path = |dir: &Path| {
        let path = dir.join(format!(
            "holdall-limit-{}-{}.bin",
            std::process::id(),
            paths.len()
        ));
        paths.push(path.clone());
        path
    };
    let mut stream = BlockStream::new(q.create_file(&next_path(&options.dir), reserve)?);
    let mut ahead = None;
    let mut written = 0;
    let mut worst = std::time::Duration::ZERO;
    let mut crc = crc32fast::Hasher::new();
    while written < options.total_bytes {
        let from = (written / append as u64 * 4096) as usize % (payload.len() - append);
        for step in payload[from..from + append].chunks(16 << 10) {
            if options.crc {
                crc.update(step);
            }
            let before = SystemClock.monotonic();
            stream.append(&mut q, step)?;
            worst = worst.max(SystemClock.monotonic() - before);
        }
        written += append as u64;
        if stream.position() > split / 2 && ahead.is_none() && split != u64::MAX {
            ahead = Some(q.create_file_ahead(&next_path(&options.dir), reserve));
        }
        if stream.position() >= split
            && let Some(next) = ahead.take()
        {
            let old = std::mem::replace(&mut stream, BlockStream::new(next));
            files.push(old.file());
            old.finish(&mut q)?;
        }
    }
    std::hint::black_box(crc.finalize());
    files.push(stream.file());
    stream.finish(&mut q)?;
    if let Some(unused) = ahead {
        files.push(unused);
        q.close_file(unused, 0)?;
    }
    for file in files {
        q.wait_closed(file)?;
    }
    let elapsed = (SystemClock.monotonic() - start).as_secs_f64();
    let cpu = (process_cpu_time().total() - cpu).as_secs_f64();
    for path in &paths {
        std::fs::remove_file(path)
            .map_err(|e| DiskError::new(path, holdall_io::disk::Operation::Remove, e))?;
    }
    println!("  longest append {:.1} ms", worst.as_secs_f64() * 1e3);
    Ok((written as f64 / elapsed, cpu / written as f64 * 1e9))
}
