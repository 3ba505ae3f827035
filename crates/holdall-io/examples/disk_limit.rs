//! Measures the write limit of a disk and how near `BlockStream` on `DiskQueue` comes to it, interleaved, as ratios of one run.
#![allow(clippy::print_stdout, reason = "an example prints its figures")]

use holdall_io::{
    block::BlockPoolOptions,
    clock::{Clock, SystemClock},
    disk::{DiskError, FileId},
    fs, limits,
    os::{DiskMode, OsDisk},
    process::process_cpu_time,
    queue::DiskQueue,
    stream::BlockStream,
};
use std::{path::PathBuf, time::Duration};

/// The command line's settings.
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
    sync_every_bytes: u64,
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
        split_bytes: u64::MAX,
        sweep: false,
        crc: false,
        sync_every_bytes: 0,
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
            "--sync-every" => options.sync_every_bytes = number(&mut args)? as u64,
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

/// The limit for the mode.
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

/// Files written one after the other, the next one made before it is needed.
struct Run<'a> {
    options: &'a Options,
    q: DiskQueue,
    stream: Option<BlockStream>,
    next: Option<FileId>,
    files: Vec<FileId>,
    paths: Vec<PathBuf>,
}

impl Run<'_> {
    fn new_path(&mut self) -> PathBuf {
        let name = format!("holdall-limit-{}-{}.bin", std::process::id(), self.paths.len());
        let path = self.options.dir.join(name);
        self.paths.push(path.clone());
        path
    }

    fn make_ahead(&mut self) {
        let path = self.new_path();
        let reserve = self
            .options
            .reserve_bytes
            .unwrap_or(self.options.total_bytes.min(self.options.split_bytes));
        let file = self.q.create_file_ahead(&path, reserve);
        self.files.push(file);
        self.next = Some(file);
    }

    /// Continues in the next file.
    fn split(&mut self) -> Result<(), DiskError> {
        let old = std::mem::replace(&mut self.stream, self.next.take().map(BlockStream::new));
        old.map_or(Ok(0), |old| old.finish(&mut self.q)).map(drop)
    }

    /// Appends in steps of 16 KiB; returns the longest time that one took.
    fn append(
        &mut self,
        bytes: &[u8],
        mut crc: Option<&mut crc32fast::Hasher>,
    ) -> Result<Duration, DiskError> {
        let mut longest = Duration::ZERO;
        let Some(stream) = &mut self.stream else {
            return Ok(longest);
        };
        for step in bytes.chunks(16 << 10) {
            if let Some(crc) = &mut crc {
                crc.update(step);
            }
            let start = SystemClock.monotonic();
            stream.append(&mut self.q, step)?;
            longest = longest.max(SystemClock.monotonic() - start);
        }
        let (position, before) = (stream.position(), stream.position() - bytes.len() as u64);
        let every = self.options.sync_every_bytes;
        if every > 0 && position / every > before / every {
            stream.flush_tail(&mut self.q)?;
            self.q.sync(stream.file())?;
        }
        let split = self.options.split_bytes;
        if split != u64::MAX && position > split / 2 && self.next.is_none() {
            self.make_ahead();
        }
        if position >= split {
            self.split()?;
        }
        Ok(longest)
    }

    fn finish(mut self) -> Result<(), DiskError> {
        if let Some(stream) = self.stream.take() {
            stream.finish(&mut self.q)?;
        }
        if let Some(unused) = self.next {
            self.q.close_file(unused, 0)?;
        }
        for file in self.files {
            self.q.wait_closed(file)?;
        }
        Ok(())
    }
}

/// Durable bytes per second and processor seconds per GB of appends of one size.
fn stream_write(options: &Options, payload: &[u8], append: usize) -> Result<(f64, f64), DiskError> {
    let pool = BlockPoolOptions {
        block_bytes: options.block_bytes,
        block_count: options.block_count,
        huge_pages: options.huge_pages,
    };
    let q = DiskQueue::new(Box::new(OsDisk::open(&options.dir, options.mode)?), pool)?;
    let mut run = Run {
        options,
        q,
        stream: None,
        next: None,
        files: Vec::new(),
        paths: Vec::new(),
    };
    let cpu = process_cpu_time().total();
    let start = SystemClock.monotonic();
    run.make_ahead();
    run.split()?;
    let (mut written, mut longest) = (0, Duration::ZERO);
    let mut crc = crc32fast::Hasher::new();
    while written < options.total_bytes {
        let from = (written / append as u64 * 4096) as usize % (payload.len() - append);
        let bytes = &payload[from..from + append];
        longest = longest.max(run.append(bytes, options.crc.then_some(&mut crc))?);
        written += append as u64;
    }
    std::hint::black_box(crc.finalize());
    let paths = run.paths.clone();
    run.finish()?;
    let elapsed = (SystemClock.monotonic() - start).as_secs_f64();
    let cpu = (process_cpu_time().total() - cpu).as_secs_f64();
    for path in &paths {
        fs::remove_file(path)?;
    }
    println!("  longest append of 16 KiB {:.1} ms", longest.as_secs_f64() * 1e3);
    Ok((written as f64 / elapsed, cpu / written as f64 * 1e9))
}
