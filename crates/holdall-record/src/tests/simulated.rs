//! Whole recordings in one thread, on a simulated disk and clock, from a seed: every message is in the bag or in the ledger.

use super::*;
use crate::{
    SteppedRecorder,
    cache::CachePolicy,
    options::{Trigger, TriggerOptions},
    status::RecordReport,
};
use holdall_bag::writer::{BagFolder, SplitOptions};
use holdall_io::{
    disk::{DiskError, Operation},
    queue::DiskQueue,
    sim::{SimClock, SimDisk, SimDiskHandle, SimDiskOptions, SimRng},
};
use holdall_model::loss::LossStage;
use std::{collections::BTreeSet, sync::Mutex};

/// A directory that keeps the last text only, and in which no storage file can be opened: the disk has them.
#[derive(Clone, Default)]
struct TextFolder(Arc<Mutex<String>>);

impl BagFolder for TextFolder {
    fn create_new(&self, _: &Path) -> Result<(), DiskError> {
        Ok(())
    }
    fn replace_text(&self, _: &Path, text: &str, _: bool) -> Result<(), DiskError> {
        text.clone_into(&mut self.0.lock().unwrap());
        Ok(())
    }
    fn remove_file(&self, _: &Path) -> Result<(), DiskError> {
        Ok(())
    }
}

/// Choices of a seed besides the course of events.
fn options(rng: &mut SimRng, output: PathBuf) -> RecordOptions {
    let mut world = World::new();
    world.options.output = output;
    let policies = [CachePolicy::DropNew, CachePolicy::DropOld, CachePolicy::Fair];
    world.options.cache = CacheOptions {
        bytes_max: (64 * 1024) << rng.below(5),
        policy: policies[rng.below(3) as usize],
        ..CacheOptions::default()
    };
    world.options.files.split = SplitOptions {
        bytes_max: rng.coin().then(|| 20_000 + rng.below(100_000)),
        duration_max: rng.coin().then(|| Duration::from_millis(20 + rng.below(500))),
        ..SplitOptions::default()
    };
    world.options.start_paused = rng.chance(100_000);
    world.options
}

/// One seeded recording.
struct Sim {
    rng: SimRng,
    clock: SimClock,
    network: MemoryNetwork,
    recorder: SteppedRecorder,
    publishers: Vec<MemoryPublisher>,
    disk: SimDiskHandle,
    folder: TextFolder,
}

impl Sim {
    fn new(seed: u64) -> Self {
        Self::with(seed, |_| {})
    }

    fn with(seed: u64, change: impl FnOnce(&mut RecordOptions)) -> Self {
        let mut rng = SimRng::new(seed);
        let clock = SimClock::default();
        let network = MemoryNetwork::new();
        let disk_options = SimDiskOptions {
            seed,
            stalls_per_million: 20_000,
            stall: Duration::from_millis(200),
            write_bytes_per_second: 1_000_000 << rng.below(10),
            ..SimDiskOptions::default()
        };
        let disk = SimDisk::new(disk_options, clock.clone());
        let handle = disk.handle();
        let blocks = BlockPoolOptions {
            block_bytes: 16 << 10,
            block_count: 4,
            huge_pages: false,
        };
        let shared: Arc<dyn Clock> = Arc::new(clock.clone());
        let transport = MemoryTransport::new(&network, node("recorder"), Arc::clone(&shared));
        let folder = TextFolder::default();
        let mut options = options(&mut rng, PathBuf::from("/sim/bag"));
        change(&mut options);
        let recorder = SteppedRecorder::new(
            options,
            vec![Box::new(transport)],
            shared,
            Box::new(move |_| DiskQueue::new(Box::new(disk), blocks)),
            Box::new(folder.clone()),
        )
        .unwrap();
        Self {
            rng,
            clock,
            network,
            recorder,
            publishers: Vec::new(),
            disk: handle,
            folder,
        }
    }

    fn add_publisher(&mut self) {
        let qos = [RELIABLE, SENSOR, LATCHED][self.rng.below(3) as usize];
        let request = PublishRequest {
            topic: format!("/t{}", self.rng.below(3)),
            type_name: STRING.to_owned(),
            type_hash: None,
            qos,
            ..PublishRequest::default()
        };
        let clock: Arc<dyn Clock> = Arc::new(self.clock.clone());
        self.publishers
            .push(self.network.publisher(&node("talker"), &request, &clock));
    }

    fn act(&mut self) {
        let publishers = self.publishers.len() as u64;
        let chosen = self.rng.below(publishers.max(1)) as usize;
        match self.rng.below(100) {
            0..2 => self.add_publisher(),
            2 if publishers > 1 => drop(self.publishers.remove(chosen)),
            3..6 if publishers > 0 => self.publishers[chosen].lose(1 + self.rng.below(5)),
            6..8 if publishers > 0 => self.publishers[chosen].announce(),
            8 => drop(self.recorder.control().toggle_pause()),
            9 if self.recorder.control().waits_for_events() => {
                drop(self.recorder.control().trigger("now").ok());
            }
            9 => self.recorder.control().split(),
            10..20 => self.recorder.step_session(),
            20..40 => drop(self.recorder.step_drain()),
            40..50 => self.clock.advance(self.rng.span_below(Duration::from_millis(50))),
            _ if publishers > 0 => {
                let len = [10, 500, 3_000, 20_000][self.rng.below(4) as usize];
                for _ in 0..self.rng.below(10) {
                    self.publishers[chosen].send(&payload(0, len));
                }
            }
            _ => self.add_publisher(),
        }
    }

    fn run(mut self, acts: usize) -> (RecordReport, Vec<Vec<u8>>, Ledger) {
        for _ in 0..acts {
            self.act();
        }
        self.publishers.iter().for_each(MemoryPublisher::announce);
        let report = self.recorder.stop();
        let files: Vec<Vec<u8>> = report
            .files
            .iter()
            .map(|path| self.disk.read(path).unwrap_or_default())
            .collect();
        let ledger = files.last().and_then(|file| ledger_of(file)).unwrap_or_default();
        (report, files, ledger)
    }
}

fn ledger_of(bytes: &[u8]) -> Option<Ledger> {
    let summary = mcap::Summary::read(bytes).ok()??;
    let index = summary
        .metadata_indexes
        .iter()
        .find(|index| index.name == "holdall:loss")?;
    let record = mcap::read::metadata(bytes, index).ok()?;
    Ledger::from_json(&record.metadata["ledger"]).ok()
}

/// Sequence numbers by topic, in the order of the bag.
fn recorded(files: &[Vec<u8>]) -> BTreeMap<String, Vec<u32>> {
    let mut recorded: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    for file in files {
        for message in mcap::MessageStream::new(file).unwrap() {
            let message = message.unwrap();
            recorded
                .entry(message.channel.topic.clone())
                .or_default()
                .push(message.sequence);
        }
    }
    recorded
}

#[test]
fn every_message_of_a_simulated_recording_is_in_the_bag_or_in_the_ledger() {
    let mut losses = 0;
    for seed in 0..16 {
        losses += check_run(seed, Sim::new(seed)).lost();
    }
    assert!(
        losses > 0,
        "no seed lost anything: these recordings were too easy"
    );
}

#[test]
fn every_message_of_a_recording_that_waits_for_events_is_in_the_bag_or_in_the_ledger() {
    let (mut recorded, mut left_out) = (0, 0);
    for seed in 0..24 {
        let ledger = check_run(
            seed,
            Sim::with(seed, |options| options.triggers = Some(events(seed))),
        );
        recorded += ledger.recorded();
        let missing = ledger
            .topics
            .iter()
            .filter_map(|topic| topic.missing.get(&LossStage::Policy));
        left_out += missing.sum::<u64>();
    }
    assert!(
        recorded > 1000 && left_out > 1000,
        "{recorded} recorded, {left_out} left out"
    );
}

/// Rings of several sizes, most of them too small.
fn events(seed: u64) -> TriggerOptions {
    TriggerOptions {
        triggers: vec![Trigger::parse("/t1 silent 100ms").unwrap()],
        before: Duration::from_millis(100),
        after: Duration::from_millis(60),
        ring_bytes_max: (64 << 10) << (seed % 6),
    }
}

/// Runs it to its end; everything is accounted for.
fn check_run(seed: u64, sim: Sim) -> Ledger {
    let (report, files, ledger) = sim.run(600);
    assert!(report.failure.is_none(), "seed {seed}: {:?}", report.failure);
    assert_eq!(report.audit_faults, Vec::<String>::new(), "seed {seed}");
    assert_eq!(
        ledger.audit(),
        Vec::<String>::new(),
        "seed {seed}: the ledger in the bag"
    );
    let recorded = recorded(&files);
    for topic in &ledger.topics {
        let mut in_bag = recorded.get(&topic.name).cloned().unwrap_or_default();
        let count = in_bag.len() as u64;
        // Each period begins with the latched messages of before.
        assert_eq!(
            count,
            topic.recorded + topic.repeated,
            "seed {seed}, {}",
            topic.name
        );
        in_bag.sort_unstable();
        in_bag.dedup();
        check_sequences(seed, topic, Some(&in_bag));
    }
    ledger
}

/// With one publisher on the topic its sequence numbers show exactly which messages are where.
fn check_sequences(seed: u64, topic: &holdall_model::loss::ledger::TopicAccount, in_bag: Option<&Vec<u32>>) {
    let [publisher] = topic.publishers.as_slice() else {
        return;
    };
    let Some(sent) = publisher.sent else { return };
    let mut all: Vec<u64> = in_bag
        .into_iter()
        .flatten()
        .map(|&sequence| u64::from(sequence))
        .collect();
    for interval in &publisher.intervals {
        assert!(!interval.merged, "seed {seed}: too many intervals for this check");
        all.extend(interval.first_sequence.unwrap()..=interval.last_sequence.unwrap());
    }
    all.sort_unstable();
    let distinct: BTreeSet<u64> = all.iter().copied().collect();
    assert_eq!(
        distinct.len(),
        all.len(),
        "seed {seed}, {}: in two places",
        topic.name
    );
    assert_eq!(all.len() as u64, sent, "seed {seed}, {}", topic.name);
    if let (Some(first), Some(last)) = (all.first(), all.last()) {
        assert_eq!(
            last - first + 1,
            sent,
            "seed {seed}, {}: nothing between is unaccounted for",
            topic.name
        );
    }
}

#[test]
fn the_same_seed_gives_the_same_bag() {
    let bytes = |seed| Sim::new(seed).run(400).1;
    assert_eq!(bytes(7), bytes(7));
    assert_ne!(bytes(7), bytes(8));
}

#[test]
fn a_failing_disk_leaves_accounts_that_add_up() {
    let mut failures = 0;
    for seed in 0..24 {
        // Every other one waits for events.
        let sim = Sim::with(seed / 2, |options| {
            options.triggers = (seed % 2 == 1).then(|| events(seed));
        });
        let operation = [Operation::Write, Operation::Sync, Operation::Close][(seed / 2) as usize % 3];
        sim.disk.fail_nth(operation, seed / 2 % 4, 5);
        let folder = sim.folder.clone();
        let (report, ..) = sim.run(300);
        assert_eq!(report.audit_faults, Vec::<String>::new(), "seed {seed}");
        let metadata = BagMetadata::from_yaml(&folder.0.lock().unwrap()).unwrap();
        for file in &metadata.files {
            let is_empty = file.message_count == 0;
            assert_eq!(file.starting_time.is_none(), is_empty, "seed {seed}: {file:?}");
        }
        failures += usize::from(report.failure.is_some());
    }
    assert!(failures > 3, "the disk failed {failures} times only");
}

#[test]
fn a_step_of_the_clock_moves_no_deadline_and_loses_nothing() {
    for hours in [-1, 1] {
        let window = Duration::from_secs(2);
        let mut sim = Sim::with(3, |options| {
            options.cache = CacheOptions::default();
            options.files.split = SplitOptions::default();
            options.start_paused = false;
            options.safety.max_loss_window = Some(window);
        });
        let clock: Arc<dyn Clock> = Arc::new(sim.clock.clone());
        let request = PublishRequest {
            topic: "/t".to_owned(),
            type_name: STRING.to_owned(),
            qos: RELIABLE,
            ..PublishRequest::default()
        };
        let publisher = sim.network.publisher(&node("talker"), &request, &clock);
        sim.recorder.step_session();
        for number in 0..1000 {
            if number == 500 {
                sim.clock.set_by(hours * 3_600_000_000_000);
            }
            publisher.send(&payload(number, 100));
            sim.recorder.step_session();
            while sim.recorder.step_drain() {}
            sim.clock.advance(Duration::from_millis(10));
        }
        let durability = sim.recorder.status().durability;
        assert!(durability.durable >= 800, "{hours} h: {durability:?}");
        assert_eq!(durability.missed, 0, "{hours} h: {durability:?}");
        let disk = sim.disk.clone();
        let (report, ledger) = sim.recorder.stop_with_ledger();
        assert_eq!((report.failure, ledger.lost()), (None, 0), "{hours} h");
        let files: Vec<Vec<u8>> = report.files.iter().filter_map(|path| disk.read(path)).collect();
        let expected: Vec<u32> = (1..=1000).collect();
        assert_eq!(recorded(&files)["/t"], expected, "{hours} h: as they came");
    }
}

#[test]
fn publishers_that_were_summed_up_keep_an_account_that_adds_up_when_the_disk_fails() {
    let (mut folded, mut lost_of_folded) = (0, 0);
    for seed in 0..9 {
        let mut sim = Sim::with(seed, |options| {
            // Some wait for events, which come all the time.
            options.triggers = (seed >= 6).then(|| TriggerOptions {
                ring_bytes_max: 1 << 20,
                ..events(seed)
            });
            options.cache = CacheOptions::default();
            options.files.split = SplitOptions::default();
            options.start_paused = false;
            // With a window messages become durable in between, without one none do before the end.
            options.safety.max_loss_window = (seed % 2 == 0).then_some(Duration::from_millis(500));
        });
        let clock: Arc<dyn Clock> = Arc::new(sim.clock.clone());
        let request = PublishRequest {
            topic: "/t".to_owned(),
            type_name: STRING.to_owned(),
            qos: RELIABLE,
            ..PublishRequest::default()
        };
        let count = 1000;
        for number in 0..count {
            let publisher = sim.network.publisher(&node("talker"), &request, &clock);
            sim.recorder.step_session();
            for _ in 0..2 {
                publisher.send(&payload(number, 2_000));
            }
            if number % 10 == 0 {
                drop(sim.recorder.control().trigger("now"));
            }
            while sim.recorder.step_drain() {}
            drop(publisher);
            sim.clock.advance(Duration::from_millis(5));
            if number == count - 100 {
                sim.disk.fail_nth(Operation::Write, seed, 5);
            }
        }
        let (report, ledger) = sim.recorder.stop_with_ledger();
        assert!(report.failure.is_some(), "seed {seed}");
        assert_eq!(report.audit_faults, Vec::<String>::new(), "seed {seed}");
        let topic = &ledger.topics[0];
        assert_eq!(topic.recorded + topic.lost(), 2 * count as u64, "seed {seed}");
        let all = topic.folded.as_ref().unwrap();
        folded += all.publishers;
        lost_of_folded += all.missing.get(&LossStage::Storage).copied().unwrap_or(0);
    }
    assert!(
        folded > 0 && lost_of_folded > 0,
        "{folded} folded, {lost_of_folded} lost"
    );
}
