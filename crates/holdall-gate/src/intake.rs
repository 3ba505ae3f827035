//! The recorder after the transport (intake with its ledger, cache, drain and bag writer), driven by one
//! thread.

use crate::{
    Failed,
    measured::{Took, measure},
    payload::{Messages, PERIOD, TOPICS, channels},
};
use holdall::{
    internals::{
        BagOptions, BagWriter, Drain, DrainCommand, DrainOptions, DrainShared, Gate, Intake, SharedCache,
    },
    record::options::CacheOptions,
    writer::{CompressionOptions, OsFolder, SplitOptions},
};
use holdall_io::mutex::lock;
use holdall_io::{
    block::BlockPoolOptions, clock::Clock, memory::MemoryDisk, queue::DiskQueue, sim::SimClock,
};
use holdall_model::loss::ledger::Ledger;
use holdall_storage::{DEFAULT_STORAGE_ID, StorageOptions, storage_by_id};
use holdall_transport::Sink;
use stats_alloc::StatsAlloc;
use std::{
    alloc::System,
    collections::BTreeMap,
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

/// The most that a power cut may lose, the default of `holdall record`.
const LOSS_WINDOW: Duration = Duration::from_secs(2);

/// The drain runs each time this much was offered: a few milliseconds of a fast sensor.
const TURN_BYTES: u64 = 1 << 20;

/// A recorder driven by one thread.
struct Stepped {
    cache: Arc<SharedCache>,
    ledger: Arc<Mutex<Ledger>>,
    sinks: Vec<Arc<dyn Sink>>,
    /// Taken out by the caller that drives it.
    drain: Option<Drain>,
    clock: SimClock,
}

/// Offers messages to a cache that holds them all, as a transport's thread does.
///
/// # Errors
/// A message that the cache refuses: a defect.
pub fn offer(messages: &Messages, count: u64, allocator: &StatsAlloc<System>) -> Result<Took, Failed> {
    let folder = tempfile::tempdir()?;
    let bytes = (messages.bytes().len() + 256) * usize::try_from(TOPICS + count)?;
    let stepped = Stepped::new(folder.path(), bytes * 2)?;
    stepped.offer_first(messages);
    let took = measure(allocator, || {
        stepped.offer_all(messages, count, |_| {});
        Ok(())
    })?;
    // Nothing is written, so only the copies of this part are counted.
    if stepped.cache.held_bytes() < messages.bytes().len() * usize::try_from(TOPICS + count)? {
        return Err("the cache does not hold all offered messages".into());
    }
    stepped.account(0, Ledger::lost)?;
    Ok(took)
}

/// Offers messages and writes the content of the cache, in turns, until the bag is closed.
///
/// # Errors
/// Messages that are not in the bag: a defect.
pub fn record(messages: &Messages, count: u64, allocator: &StatsAlloc<System>) -> Result<Took, Failed> {
    let folder = tempfile::tempdir()?;
    let stepped = Stepped::new(folder.path(), CacheOptions::default().bytes_max)?;
    stepped.offer_first(messages);
    let mut stepped = Some(stepped);
    measure(allocator, || match stepped.take() {
        Some(stepped) => stepped.record_all(messages, count),
        None => Ok(()),
    })
}

impl Stepped {
    fn new(folder: &Path, cache_bytes_max: usize) -> Result<Self, Failed> {
        let bag = BagOptions {
            directory: folder.join("bag"),
            storage: storage_by_id(DEFAULT_STORAGE_ID)?,
            storage_options: StorageOptions {
                index_checkpoints: true,
                ..StorageOptions::default()
            },
            split: SplitOptions::default(),
            compression: CompressionOptions::default(),
            custom_data: BTreeMap::new(),
            ros_distro: None,
            memory: None,
        };
        let open = |_: &Path| DiskQueue::new(Box::new(MemoryDisk::discarding()), BlockPoolOptions::default());
        let bag = BagWriter::create(bag, Box::new(open), Box::<OsFolder>::default())?;
        let ledger = Arc::new(Mutex::new(Ledger::new()));
        let options = CacheOptions {
            bytes_max: cache_bytes_max,
            ..CacheOptions::default()
        };
        // A message that is dropped is missing in the bag, and the count at the end is wrong.
        let cache = Arc::new(SharedCache::new(&options, Box::new(|_| {})));
        let gate = Arc::new(Gate::new(false, false));
        let shared = Arc::new(DrainShared::default());
        let options = DrainOptions {
            max_loss_window: Some(LOSS_WINDOW),
            ..DrainOptions::default()
        };
        let parts = (Arc::clone(&cache), Arc::clone(&ledger), Arc::clone(&shared));
        let drain = Drain::new(bag, parts.0, parts.1, parts.2, options);
        let mut sinks = Vec::new();
        for channel in channels() {
            let id = lock(&ledger).add_topic(&channel.topic.name);
            shared.command(DrainCommand::AddTopic {
                topic: id,
                info: channel.topic,
                definition: Some(channel.definition),
            });
            let parts = (Arc::clone(&cache), Arc::clone(&ledger), Arc::clone(&gate));
            sinks.push(Arc::new(Intake::new(id, parts.0, parts.1, parts.2)).sink(0));
        }
        Ok(Self {
            cache,
            ledger,
            sinks,
            drain: Some(drain),
            clock: SimClock::default(),
        })
    }

    fn offer(&self, messages: &Messages, number: u64) {
        let (header, payload) = messages.offered(number);
        self.sinks[(number % TOPICS) as usize].offer(header, payload);
        self.clock.advance(PERIOD);
    }

    /// The first message of each topic, which makes its publisher known.
    fn offer_first(&self, messages: &Messages) {
        (0..TOPICS).for_each(|number| self.offer(messages, number));
    }

    /// All others; calls `after` after each.
    fn offer_all(&self, messages: &Messages, count: u64, mut after: impl FnMut(u64)) {
        for number in TOPICS..TOPICS + count {
            self.offer(messages, number);
            after(number);
        }
    }

    /// Writes the content of the cache.
    fn turn(&self, drain: &mut Drain) {
        while let Some(segment) = self.cache.try_take() {
            drain.step(Some(segment), self.clock.monotonic());
        }
    }

    fn record_all(mut self, messages: &Messages, count: u64) -> Result<(), Failed> {
        let mut drain = self.drain.take().ok_or("the drain is gone")?;
        let every = (TURN_BYTES / messages.bytes().len().max(1) as u64).max(1);
        self.offer_all(messages, count, |number| {
            if number.is_multiple_of(every) {
                self.turn(&mut drain);
            }
        });
        self.cache.close();
        self.turn(&mut drain);
        drain.finish();
        if let Some(failure) = drain.close(&self.clock).failure {
            return Err(failure.into());
        }
        self.account(TOPICS + count, Ledger::recorded)
    }

    /// Checks that the ledger counts `expected` messages.
    fn account(&self, expected: u64, count: impl Fn(&Ledger) -> u64) -> Result<(), Failed> {
        let found = count(&lock(&self.ledger));
        if found == expected {
            Ok(())
        } else {
            Err(format!("{found} of {expected} messages are accounted for").into())
        }
    }
}
