//! Measures the way from a transport's thread to the disk: offers per second and how long one offer takes.
//!
//! `cargo run --release -p holdall --example cache_rate -- [--way cache|intake|bag] [--size BYTES] [--messages N] [--producers N]
//! [--topics N] [--out DIR] [--split BYTES]`. Without `--out` the bag's bytes are thrown away.
#![allow(clippy::print_stdout)]

use hdrhistogram::Histogram;
use holdall::{
    internals::{
        BagOptions, BagWriter, CacheEntry, Drain, DrainCommand, DrainOptions, DrainShared, DrainThread, Gate,
        Intake, Offered, SharedCache, Waited,
    },
    record::options::CacheOptions,
    writer::{BagFolder, CompressionOptions, OpenDisk, OsFolder, SplitOptions, os_disk},
};
use holdall_io::{
    block::BlockPoolOptions,
    clock::{Clock, SystemClock},
    disk::DiskError,
    memory::MemoryDisk,
    os::DiskMode,
    process::{process_cpu_time, thread_cpu_time},
    queue::DiskQueue,
};
use holdall_model::{
    loss::ledger::{Ledger, PublisherIndex},
    message::{MessageHeader, Payload},
    topic::{Gid, MessageDefinition, TopicId, TopicInfo},
};
use holdall_storage::{StorageOptions, storage_by_id};
use holdall_transport::Sink;
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

/// One in this many offers is timed: reading the clock twice costs as much as an offer.
const TIMED_EVERY: u64 = 8;

struct Settings {
    way: String,
    size: usize,
    messages: u64,
    producers: usize,
    topics: usize,
    out: Option<PathBuf>,
    split: Option<u64>,
    rate: Option<f64>,
}

fn settings() -> Settings {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let mut given: BTreeMap<String, String> = words
        .chunks_exact(2)
        .map(|pair| (pair[0].clone(), pair[1].clone()))
        .collect();
    let mut number = |name: &str, default: u64| {
        given.remove(name).map_or(default, |text| {
            text.parse().unwrap_or_else(|_| panic!("{name} takes a number"))
        })
    };
    Settings {
        size: number("--size", 100) as usize,
        messages: number("--messages", 20_000_000),
        producers: number("--producers", 1) as usize,
        topics: number("--topics", 1) as usize,
        split: Some(number("--split", 0)).filter(|bytes| *bytes > 0),
        rate: Some(number("--rate", 0) as f64).filter(|rate| *rate > 0.0),
        way: given.remove("--way").unwrap_or_else(|| "bag".to_owned()),
        out: given.remove("--out").map(PathBuf::from),
    }
}

/// Takes a message by its number.
type Offer = Box<dyn Fn(u64, &[u8]) + Send>;

/// One way to store messages.
struct Way {
    cache: Arc<SharedCache>,
    /// By producer and topic: takes a message's number.
    offers: Vec<Vec<Offer>>,
    end: Box<dyn FnOnce() -> String>,
}

fn cache_way(settings: &Settings) -> Way {
    let cache = Arc::new(SharedCache::new(&CacheOptions::default(), Box::new(|_| {})));
    let refused = Arc::new(std::sync::atomic::AtomicU64::new(0));
    let offer = |topic: usize| {
        let (cache, refused) = (Arc::clone(&cache), Arc::clone(&refused));
        let boxed: Offer = Box::new(move |number, payload| {
            let entry = CacheEntry {
                log_time: SystemClock.now(),
                publish_time: None,
                sequence: Some(number),
                topic: TopicId(topic as u32),
                publisher: PublisherIndex(0),
            };
            if cache.offer(entry, Payload::Borrowed(payload)) != Offered::Stored {
                refused.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            }
        });
        boxed
    };
    let offers = (0..settings.producers)
        .map(|producer| {
            (0..settings.topics)
                .map(|topic| offer(producer * settings.topics + topic))
                .collect()
        })
        .collect();
    let taking = Arc::clone(&cache);
    let drain = thread::spawn(move || {
        let mut taken = 0;
        loop {
            match taking.wait(Duration::from_millis(5), Duration::from_millis(100)) {
                Waited::Segment(segment) => {
                    taken += segment.len() as u64;
                    taking.release(segment);
                }
                Waited::Idle => {}
                Waited::Finished => return taken,
            }
        }
    });
    let end = move || {
        let taken = drain.join().expect("the drain does not panic");
        format!(
            "taken {taken}, refused {}",
            refused.load(std::sync::atomic::Ordering::Relaxed)
        )
    };
    Way {
        cache,
        offers,
        end: Box::new(end),
    }
}

/// Keeps no directory: for disks without files.
struct NoFolder;

impl BagFolder for NoFolder {
    fn create_new(&self, _: &Path) -> Result<(), DiskError> {
        Ok(())
    }
    fn replace_text(&self, _: &Path, _: &str, _: bool) -> Result<(), DiskError> {
        Ok(())
    }
    fn remove_file(&self, _: &Path) -> Result<(), DiskError> {
        Ok(())
    }
}

fn bag(settings: &Settings) -> BagWriter {
    let options = BagOptions {
        directory: settings.out.clone().unwrap_or_else(|| PathBuf::from("nowhere")),
        storage: storage_by_id("mcap").expect("mcap is always there"),
        storage_options: StorageOptions::default(),
        split: SplitOptions {
            bytes_max: settings.split,
            ..SplitOptions::default()
        },
        compression: CompressionOptions::default(),
        custom_data: BTreeMap::new(),
        ros_distro: None,
        memory: None,
    };
    let blocks = BlockPoolOptions::default();
    let (disk, folder): (OpenDisk, Box<dyn BagFolder>) = match settings.out {
        Some(_) => (os_disk(DiskMode::Auto, blocks), Box::<OsFolder>::default()),
        None => {
            let discarding: OpenDisk =
                Box::new(move |_| DiskQueue::new(Box::new(MemoryDisk::discarding()), blocks));
            (discarding, Box::new(NoFolder))
        }
    };
    BagWriter::create(options, disk, folder).unwrap_or_else(|error| panic!("{error}"))
}

fn bag_way(settings: &Settings) -> Way {
    let cache = Arc::new(SharedCache::new(&CacheOptions::default(), Box::new(|_| {})));
    let ledger = Arc::new(Mutex::new(Ledger::new()));
    let gate = Arc::new(Gate::new(false, false));
    let shared = Arc::new(DrainShared::default());
    let drain = Drain::new(
        bag(settings),
        Arc::clone(&cache),
        Arc::clone(&ledger),
        Arc::clone(&shared),
        DrainOptions::default(),
    );
    let offer = |producer: usize, topic: usize| {
        let name = format!("/producer_{producer}/topic_{topic}");
        let id = ledger.lock().expect("no thread panics").add_topic(&name);
        let info = TopicInfo {
            name,
            type_name: "std_msgs/msg/String".to_owned(),
            ..TopicInfo::default()
        };
        shared.command(DrainCommand::AddTopic {
            topic: id,
            info,
            definition: Some(MessageDefinition::default()),
        });
        let intake = Arc::new(Intake::new(
            id,
            Arc::clone(&cache),
            Arc::clone(&ledger),
            Arc::clone(&gate),
        ));
        let sink: Arc<dyn Sink> = intake.sink(0);
        let gid = Gid([producer as u8; 16]);
        let boxed: Offer = Box::new(move |number, payload| {
            let now = SystemClock.now();
            let header = MessageHeader {
                publisher: Some(gid),
                sequence: Some(number + 1),
                publish_time: Some(now),
                log_time: now,
            };
            sink.offer(header, Payload::Borrowed(payload));
        });
        boxed
    };
    let offers = (0..settings.producers)
        .map(|producer| (0..settings.topics).map(|topic| offer(producer, topic)).collect())
        .collect();
    let drain = DrainThread::spawn(drain, Arc::new(SystemClock)).expect("a thread can be had");
    let end = move || {
        let drain = drain.join().expect("the drain does not panic");
        let closed = drain.close(&SystemClock);
        if let Some(failure) = closed.failure {
            panic!("{failure}");
        }
        let ledger = ledger.lock().expect("no thread panics");
        format!(
            "recorded {}, lost {}, {} files",
            ledger.recorded(),
            ledger.lost(),
            closed.files.len()
        )
    };
    Way {
        cache,
        offers,
        end: Box::new(end),
    }
}

/// Waits while the cache is half full, so that as much is offered as can be written.
fn wait_for_room(cache: &SharedCache) {
    while cache.held_bytes() > cache.bytes_max() / 2 {
        thread::sleep(Duration::from_micros(100));
    }
}

fn produce(
    cache: &SharedCache,
    offers: &[Offer],
    messages: u64,
    size: usize,
    rate: Option<f64>,
) -> (Histogram<u64>, Duration) {
    let payload = vec![0x42; size];
    let mut histogram = Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("the bounds are allowed");
    let started = SystemClock.monotonic();
    for number in 0..messages {
        if let Some(rate) = rate {
            SystemClock.sleep_until(started + Duration::from_secs_f64(number as f64 / rate));
        } else if number % (1 + 65_536 / size as u64).min(256) == 0 {
            wait_for_room(cache);
        }
        let topic = number as usize % offers.len();
        let sequence = number / offers.len() as u64;
        if rate.is_some() || number % TIMED_EVERY == 0 {
            let before = SystemClock.monotonic();
            offers[topic](sequence, &payload);
            histogram.saturating_record((SystemClock.monotonic() - before).as_nanos() as u64);
        } else {
            offers[topic](sequence, &payload);
        }
    }
    (histogram, thread_cpu_time().total())
}

fn main() {
    let settings = settings();
    let Way { cache, offers, end } = match settings.way.as_str() {
        "cache" => cache_way(&settings),
        _ => bag_way(&settings),
    };
    let per_producer = settings.messages / settings.producers as u64;
    let started = SystemClock.monotonic();
    let (size, rate) = (settings.size, settings.rate);
    let threads: Vec<_> = offers
        .into_iter()
        .map(|offers| {
            let cache = Arc::clone(&cache);
            thread::spawn(move || produce(&cache, &offers, per_producer, size, rate))
        })
        .collect();
    let mut histogram: Histogram<u64> =
        Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("the bounds are allowed");
    let mut producing = Duration::ZERO;
    for thread in threads {
        let (own, cpu) = thread.join().expect("producers do not panic");
        producing += cpu;
        histogram.add(own).expect("all histograms are alike");
    }
    let offered = SystemClock.monotonic() - started;
    cache.close();
    let outcome = end();
    let total = SystemClock.monotonic() - started;
    let count = (per_producer * settings.producers as u64) as f64;
    println!(
        "{} way, {} producer(s), {} topic(s) each, {size} B: {:.2} M offers/s ({:.0} ns each), {:.2} M msg/s to the end, {:.2} GB/s",
        settings.way,
        settings.producers,
        settings.topics,
        count / offered.as_secs_f64() / 1e6,
        offered.as_secs_f64() * 1e9 / count * settings.producers as f64,
        count / total.as_secs_f64() / 1e6,
        count * size as f64 / total.as_secs_f64() / 1e9,
    );
    let behind = process_cpu_time().total().saturating_sub(producing);
    println!(
        "  processor time a message: producers {:.1} ns, behind them {:.1} ns ({:.3} s/GB)",
        producing.as_secs_f64() * 1e9 / count,
        behind.as_secs_f64() * 1e9 / count,
        behind.as_secs_f64() * 1e9 / count / size as f64,
    );
    println!("  {outcome}; cache memory {} MiB", cache.memory_bytes() >> 20);
    println!(
        "  offer ns (clock included): p50 {} p99 {} p99.9 {} p99.99 {} max {}",
        histogram.value_at_quantile(0.5),
        histogram.value_at_quantile(0.99),
        histogram.value_at_quantile(0.999),
        histogram.value_at_quantile(0.9999),
        histogram.max()
    );
}
