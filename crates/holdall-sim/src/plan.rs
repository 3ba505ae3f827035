//! The plan that a seed gives: the options of the recording, the disk, and the course of events, all decided before anything
//! happens.

use crate::{network::Signs, promote::Asked, ring_day::RINGS};
use holdall::{
    record::options::{CacheOptions, CachePolicy, RecordOptions},
    writer::SplitOptions,
};
use holdall_io::{
    block::BlockPoolOptions,
    disk::Operation,
    sim::{SimDiskOptions, SimRng},
};
use holdall_model::{
    qos::{Durability, QosProfile, Reliability},
    selection::Selection,
};
use holdall_transport::EndProof;
use std::{fmt, path::PathBuf, time::Duration};

/// The errno of a disk that fails.
const EIO: i32 = 5;
/// The errno of a used-up quota.
const EDQUOT: i32 = 122;

/// From this seed on worlds are mostly small. The seeds below were all run, and some are kept as tests.
pub const SMALL_FROM: u64 = 1_000_000;

/// From this seed on most recorders have memory that survives them, as the program has, and many die as a process.
pub const DEATH_FROM: u64 = 2_000_000;

/// From this seed on publishers vanish, some networks announce nothing, and messages are sent after the user has requested the end.
pub const ENDS_FROM: u64 = 1_000_000_000;

/// From this seed on clocks jump in most worlds: the time of day, or simulated time that stamps the messages.
pub const CLOCKS_FROM: u64 = 3_000_000_000;

/// Topics of the simulated system.
pub const TOPICS: [TopicPlan; 5] = [
    TopicPlan::plain("/small", SizeClass::Small),
    TopicPlan::plain("/mixed", SizeClass::Mixed),
    TopicPlan::plain("/large", SizeClass::Large),
    TopicPlan {
        definition: DefinitionPlan::Asked,
        ..TopicPlan::plain("/asked", SizeClass::Small)
    },
    TopicPlan {
        definition: DefinitionPlan::Untold,
        ..TopicPlan::plain("/untold", SizeClass::Small)
    },
];

/// How long payloads of a topic are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizeClass {
    /// All in the writer's first lane.
    Small,
    /// Sizes in all lanes of the writer, lent and not.
    Mixed,
    /// Sizes in the writer's second lane, lent.
    Large,
}

/// The source of a topic's definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefinitionPlan {
    /// The program knows it.
    Bundled,
    /// The publishing node sends it after a while.
    Asked,
    /// No node sends it.
    Untold,
}

/// A topic of the simulated system.
#[derive(Clone, Copy, Debug)]
pub struct TopicPlan {
    /// Full ROS name.
    pub name: &'static str,
    /// How long its payloads are.
    pub sizes: SizeClass,
    /// The source of its definition.
    pub definition: DefinitionPlan,
}

impl TopicPlan {
    const fn plain(name: &'static str, sizes: SizeClass) -> Self {
        Self {
            name,
            sizes,
            definition: DefinitionPlan::Bundled,
        }
    }

    /// A payload's length.
    pub fn len(&self, rng: &mut SimRng) -> usize {
        match self.sizes {
            SizeClass::Small => [16, 40, 300, 1_500][rng.below(4) as usize],
            SizeClass::Mixed => {
                if rng.chance(20_000) {
                    66_000
                } else {
                    [20, 900, 5_000, 9_000][rng.below(4) as usize]
                }
            }
            SizeClass::Large => [8_200, 10_000, 20_000][rng.below(3) as usize],
        }
    }
}

/// The QoS profiles that publishers offer.
pub const OFFERS: [QosProfile; 4] = [
    QosProfile::ROS_DEFAULT,
    QosProfile {
        reliability: Reliability::BestEffort,
        ..QosProfile::ROS_DEFAULT
    },
    QosProfile {
        durability: Durability::TransientLocal,
        depth: 3,
        ..QosProfile::ROS_DEFAULT
    },
    QosProfile {
        reliability: Reliability::BestEffort,
        depth: 1,
        ..QosProfile::ROS_DEFAULT
    },
];

/// Something that happens. Publishers are chosen by number, modulo the number of living ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A publisher starts.
    Start {
        /// Place in [`TOPICS`].
        topic: usize,
        /// Place in [`OFFERS`].
        offer: usize,
        /// It has another type than the topic.
        wrong_type: bool,
    },
    /// A publisher ends.
    End(u64),
    /// A publisher ends and starts again with another identifier.
    Restart(u64),
    /// A publisher sends.
    Send {
        /// Which.
        publisher: u64,
        /// How many messages.
        count: u64,
        /// Time between them.
        spacing: Duration,
        /// How many in a million are lost in transit.
        lost: u32,
        /// How many in a million are delayed.
        delayed: u32,
        /// Decides lengths, losses and delays.
        salt: u64,
    },
    /// The link of a publisher is lost: it sends, but nothing arrives any more.
    Cut(u64),
    /// A lost link works again.
    Mend(u64),
    /// A publisher dies without a farewell.
    Kill(u64),
    /// The user requests the end; the bag need not have messages sent from now on. Does nothing if the recording ends otherwise.
    AskEnd,
    /// A publisher announces how much it has sent.
    Announce(u64),
    /// Time passes; the recorder's threads do their work.
    Pass(Duration),
    /// Time passes and the recorder's threads get no processor.
    Starve(Duration),
    /// The time of day is set.
    SetClock(i64),
    /// Simulated time begins, or jumps by this many nanoseconds.
    Simulate(i64),
    /// The user pauses or resumes.
    TogglePause,
    /// The user asks for a new file.
    Split,
    /// The user asks for a snapshot.
    Snapshot,
    /// A node sends the definition of [`DefinitionPlan::Asked`].
    Describe,
    /// The disk does not answer for a while.
    StallDisk(Duration),
    /// The `nth` next operation of this kind fails.
    FailDisk {
        /// The operation that fails.
        operation: Operation,
        /// How many go well before.
        nth: u64,
        /// How it fails.
        errno: i32,
    },
    /// The disk has room for this many bytes from the start on.
    LimitDisk(u64),
    /// The process dies at the moment with this number, counted from here, among those at which a death makes a difference, possibly
    /// within a step. Nothing if the recording does not end by [`Ending::Death`].
    Die(u64),
    /// A user asks for a part of the ring.
    Promote(Asked),
}

/// How a recording ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The user stops it.
    Stop,
    /// The power fails.
    PowerCut,
    /// The process is killed, and had no memory that survives it.
    Kill,
    /// The process dies, and its memory survives.
    Death,
}

/// One seeded recording.
#[derive(Clone)]
pub struct Plan {
    /// The seed that decides everything else.
    pub seed: u64,
    /// The recording.
    pub options: RecordOptions,
    /// The disk.
    pub disk: SimDiskOptions,
    /// Blocks between writer and disk.
    pub block_bytes: usize,
    /// How many of them.
    pub block_count: usize,
    /// Time between two steps of the drain while there is something to write.
    pub drain_interval: Duration,
    /// The events, in order.
    pub events: Vec<Event>,
    /// How it ends.
    pub ending: Ending,
    /// Received messages are in memory that survives the process.
    pub keeps_memory: bool,
    /// The signs that show the ends of publishers, from [`ENDS_FROM`] on.
    pub signs: Option<Signs>,
    /// Clocks jump, all of them so far that it must be said, from [`CLOCKS_FROM`] on.
    pub has_jumps: bool,
    /// Time between two steps of the session, as the recorder's thread takes them.
    pub session_interval: Duration,
}

impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let options = &self.options;
        writeln!(
            f,
            "seed {}, ends by {:?}, memory survives: {}, {:?}",
            self.seed, self.ending, self.keeps_memory, self.signs
        )?;
        writeln!(
            f,
            "preset {:?}, config {:?}, {:?}, {:?}, paused at start: {}, asks for one QoS: {}, simulated time: {}",
            options.files.storage_preset.as_deref().unwrap_or_default(),
            options.files.storage_config,
            options.cache,
            options.files.split,
            options.start_paused,
            !options.discovery.qos_overrides.is_empty(),
            options.use_sim_time,
        )?;
        writeln!(
            f,
            "disk {} B/s, jitter {:?}, blocks {} x {}, drain every {:?}",
            self.disk.write_bytes_per_second,
            self.disk.latency_jitter,
            self.block_count,
            self.block_bytes,
            self.drain_interval
        )?;
        for (number, event) in self.events.iter().enumerate() {
            writeln!(f, "{number:4} {event:?}")?;
        }
        Ok(())
    }
}

impl Plan {
    /// The plan that `seed` gives.
    pub fn new(seed: u64) -> Self {
        if RINGS.contains(&seed) {
            return Self::ring_minutes(seed);
        }
        let mut rng = SimRng::new(seed);
        let options = options(&mut rng);
        let disk = SimDiskOptions {
            seed: rng.next_u64(),
            write_bytes_per_second: 2_000_000 << rng.below(10),
            latency_jitter: Duration::from_micros([50, 900, 20_000][rng.below(3) as usize]),
            stalls_per_million: [0, 0, 5_000][rng.below(3) as usize],
            stall: Duration::from_millis(100 + rng.below(900)),
            sector_bytes: [512, 4096][rng.below(2) as usize],
            ..SimDiskOptions::default()
        };
        let ending = [
            Ending::Stop,
            Ending::Stop,
            Ending::PowerCut,
            Ending::PowerCut,
            Ending::Kill,
        ][rng.below(5) as usize];
        let block_bytes = 4096 << rng.below(5);
        let block_count = 3 + rng.below(6) as usize;
        let drain_interval = Duration::from_millis([1, 5, 20, 80][rng.below(4) as usize]);
        let mut plan = Self {
            seed,
            events: events(&mut rng, options.cache.snapshot),
            options,
            disk,
            block_bytes,
            block_count,
            drain_interval,
            ending,
            keeps_memory: false,
            signs: None,
            has_jumps: false,
            session_interval: Duration::from_millis(10),
        };
        if seed >= SMALL_FROM {
            plan.make_small(&mut rng);
        }
        if seed >= DEATH_FROM {
            plan.make_deadly(&mut rng);
        }
        if seed >= ENDS_FROM {
            plan.make_ends(&mut rng);
        }
        if seed >= CLOCKS_FROM && rng.chance(600_000) {
            plan.has_jumps = true;
            plan.make_clocks(&mut rng);
        }
        plan
    }

    /// Whether nothing is recorded at first.
    pub fn is_shut_at_first(&self) -> bool {
        self.options.start_paused || self.options.use_sim_time
    }

    /// Lets simulated time stamp most recordings, and clocks jump.
    fn make_clocks(&mut self, rng: &mut SimRng) {
        let mut jumps = 0;
        for event in &mut self.events {
            if let Event::SetClock(nanos) = event {
                *nanos = jump(rng, &mut jumps);
            }
        }
        let is_simulated = rng.chance(600_000);
        self.options.use_sim_time = is_simulated;
        for number in 0..1 + rng.below(4) {
            let is_first = number == 0 && is_simulated;
            let places = if is_first { 8 } else { self.events.len() as u64 + 1 };
            let place = rng.below(places.min(self.events.len() as u64 + 1)) as usize;
            let nanos = jump(rng, &mut jumps);
            let event = match is_simulated && (is_first || rng.chance(800_000)) {
                true => Event::Simulate(nanos),
                false => Event::SetClock(nanos),
            };
            self.events.insert(place, event);
        }
    }

    /// Most worlds are short and cheap, so that more of them are seen; the plans of seeds below
    /// [`SMALL_FROM`] are unchanged.
    fn make_small(&mut self, rng: &mut SimRng) {
        if !rng.chance(150_000) {
            self.events.truncate(8 + rng.below(60) as usize);
        }
        if self.options.files.storage_preset.as_deref() == Some("zstd_small") && !rng.chance(100_000) {
            self.options.files.storage_preset = Some("zstd_fast".to_owned());
        }
        // Files that may become long carry checkpoints of their index; long ones would take long.
        if self.options.files.storage_config.is_none() && rng.coin() {
            let bytes = [1, 5_000, 30_000][rng.below(3) as usize];
            self.options.files.storage_config = Some(format!("indexCheckpointSize: {bytes}\n"));
        }
    }

    /// Gives most recorders memory that survives them, and makes many die.
    fn make_deadly(&mut self, rng: &mut SimRng) {
        self.keeps_memory = !rng.chance(100_000);
        if !self.keeps_memory {
            return;
        }
        // With a larger cache more payloads are copied into it; the others are lent.
        self.options.cache.bytes_max <<= rng.below(5);
        if self.ending == Ending::Kill || rng.chance(450_000) {
            self.ending = Ending::Death;
        }
        if self.ending == Ending::Death && rng.chance(700_000) {
            let place = rng.below(self.events.len() as u64 + 1) as usize;
            let points_max = 2 << rng.below(9);
            self.events.insert(place, Event::Die(1 + rng.below(points_max)));
        }
    }

    /// Lets publishers vanish, and time go by between the request to end and the end.
    fn make_ends(&mut self, rng: &mut SimRng) {
        let proofs = [
            EndProof::OfReliable,
            EndProof::OfReliable,
            EndProof::LaterMessage,
            EndProof::OfAll,
        ];
        self.signs = Some(Signs {
            proof: proofs[rng.below(4) as usize],
            lease: Duration::from_millis([30, 300, 2_000, 20_000][rng.below(4) as usize]),
        });
        for _ in 0..rng.below(6) {
            let place = rng.below(self.events.len() as u64 + 1) as usize;
            let publisher = rng.next_u64();
            let event = [Event::Cut, Event::Cut, Event::Mend, Event::Kill, Event::End][rng.below(5) as usize];
            self.events.insert(place, event(publisher));
        }
        if self.ending != Ending::Stop || rng.chance(300_000) {
            return;
        }
        self.events.push(Event::AskEnd);
        for _ in 0..rng.below(12) {
            let event = match rng.below(20) {
                0 => Event::Cut(rng.next_u64()),
                1 => Event::Kill(rng.next_u64()),
                2 => Event::Mend(rng.next_u64()),
                3 => Event::End(rng.next_u64()),
                4 => Event::Announce(rng.next_u64()),
                5..10 => pass(rng),
                _ => send(rng),
            };
            self.events.push(event);
        }
    }

    /// The same with these events only, by number.
    #[must_use]
    pub fn only(&self, events: &[usize]) -> Self {
        let mut plan = self.clone();
        plan.events = events
            .iter()
            .filter_map(|&number| self.events.get(number).copied())
            .collect();
        plan
    }

    /// The blocks between writer and disk.
    pub fn blocks(&self) -> BlockPoolOptions {
        BlockPoolOptions {
            block_bytes: self.block_bytes,
            block_count: self.block_count,
            huge_pages: false,
        }
    }

    /// Whether messages may have holes that no reader can detect: a file without chunks has no checksums,
    /// and a crash loses sectors.
    pub fn leaves_holes(&self) -> bool {
        self.ending != Ending::Stop && self.options.files.storage_preset.as_deref() == Some("fastwrite")
    }

    /// Whether the disk is to fail or to fill up.
    pub fn breaks_disk(&self) -> bool {
        let breaks = |event: &Event| matches!(event, Event::FailDisk { .. } | Event::LimitDisk(_));
        self.events.iter().any(breaks)
    }
}

fn options(rng: &mut SimRng) -> RecordOptions {
    let policies = [CachePolicy::DropNew, CachePolicy::DropOld, CachePolicy::Fair];
    let snapshot = rng.chance(80_000);
    let presets = ["", "", "", "", "fastwrite", "zstd_fast", "zstd_small"];
    let configs = [
        None,
        None,
        Some("chunkSize: 3000\n"),
        Some("compression: Lz4\nchunkSize: 20000\n"),
        Some("noMessageIndex: true\n"),
        Some("noSummary: true\n"),
        Some("enableDataCRC: true\nchunkSize: 100000\n"),
    ];
    let mut options = RecordOptions {
        selection: Selection {
            all_topics: true,
            ..Selection::default()
        },
        output: PathBuf::from("/sim/bag"),
        ..RecordOptions::default()
    };
    // Each plan takes its random numbers in this order, so that a seed stays the same world.
    options.files.storage_preset = Some(presets[rng.below(presets.len() as u64) as usize].to_owned())
        .filter(|preset| !preset.is_empty());
    options.files.storage_config = configs[rng.below(configs.len() as u64) as usize].map(str::to_owned);
    options.cache = CacheOptions {
        bytes_max: (64 * 1024) << rng.below(4),
        grows_to: None,
        duration_max: rng
            .chance(100_000)
            .then(|| Duration::from_millis(50 + rng.below(2_000))),
        policy: policies[rng.below(3) as usize],
        snapshot,
    };
    options.files.split = SplitOptions {
        bytes_max: rng.chance(400_000).then(|| 10_000 + rng.below(100_000)),
        duration_max: rng
            .chance(300_000)
            .then(|| Duration::from_millis(50 + rng.below(1_500))),
        files_max: rng.chance(250_000).then(|| 1 + rng.below(4) as u32),
        ..SplitOptions::default()
    };
    options.safety.max_loss_window = [Some(2_000), Some(2_000), Some(500), Some(100), None]
        [rng.below(5) as usize]
        .map(Duration::from_millis);
    options.start_paused = rng.chance(50_000);
    options.discovery.polling_interval = Duration::from_millis([10, 100, 400][rng.below(3) as usize]);
    // No threads in here: one seed, one course of events.
    options.files.compression.threads = Some(0);
    if rng.chance(80_000) {
        // A user that requests QoS which not all publishers offer.
        for topic in TOPICS {
            options
                .discovery
                .qos_overrides
                .insert(topic.name.to_owned(), QosProfile::ROS_DEFAULT);
        }
    }
    options
}

fn events(rng: &mut SimRng, snapshot: bool) -> Vec<Event> {
    let breaks_disk = rng.chance(250_000);
    let sets_clock = rng.chance(200_000);
    let count = 20 + rng.below(180);
    let mut events: Vec<Event> = (0..1 + rng.below(4)).map(|_| start(rng)).collect();
    events.push(Event::Pass(rng.span_below(Duration::from_millis(600))));
    for _ in 0..count {
        let event = match rng.below(1000) {
            0..30 => start(rng),
            30..45 => Event::End(rng.next_u64()),
            45..60 => Event::Restart(rng.next_u64()),
            60..100 => Event::Announce(rng.next_u64()),
            100..330 => pass(rng),
            330..345 => Event::Pass(rng.span_below(Duration::from_secs(4))),
            345..370 => Event::Starve(rng.span_below(Duration::from_millis(300))),
            370..385 if sets_clock => Event::SetClock(set_by(rng)),
            385..405 => Event::TogglePause,
            405..420 => Event::Split,
            420..450 if snapshot => Event::Snapshot,
            450..470 => Event::Describe,
            470..490 => Event::StallDisk(rng.span_below(Duration::from_millis(1_500))),
            490..500 if breaks_disk => break_disk(rng),
            _ => send(rng),
        };
        events.push(event);
    }
    if breaks_disk {
        let place = rng.below(events.len() as u64) as usize;
        events.insert(place, break_disk(rng));
    }
    events
}

fn pass(rng: &mut SimRng) -> Event {
    let span_max = [5, 60, 700][rng.below(3) as usize];
    Event::Pass(rng.span_below(Duration::from_millis(span_max)))
}

fn start(rng: &mut SimRng) -> Event {
    // Small topics more often than large ones.
    let topic = [0, 0, 0, 1, 1, 2, 3, 4][rng.below(8) as usize];
    Event::Start {
        topic,
        offer: rng.below(OFFERS.len() as u64) as usize,
        wrong_type: rng.chance(30_000),
    }
}

fn send(rng: &mut SimRng) -> Event {
    let burst = rng.chance(150_000);
    Event::Send {
        publisher: rng.next_u64(),
        count: 1 + rng.below(if burst { 60 } else { 8 }),
        spacing: if burst {
            Duration::ZERO
        } else {
            rng.span_below(Duration::from_millis(5))
        },
        lost: [0, 0, 50_000, 300_000, 1_000_000][rng.below(5) as usize],
        delayed: [0, 0, 0, 200_000][rng.below(4) as usize],
        salt: rng.next_u64(),
    }
}

fn set_by(rng: &mut SimRng) -> i64 {
    let span_max = [1_000_000, 1_000_000_000, 3_600_000_000_000][rng.below(3) as usize];
    let span = rng.below(span_max) as i64;
    if rng.coin() { span } else { -span }
}

/// How far a clock jumps, in nanoseconds: at least ten seconds, also several jumps together. A message that waits for its definition is written
/// up to two seconds after it was stamped, and small steps in between leave open which time was meant.
fn jump(rng: &mut SimRng, before: &mut u32) -> i64 {
    let seconds = 10 * 3_i64.pow((*before).min(13));
    *before += 1;
    let span = seconds * 1_000_000_000 + rng.below(100_000_000) as i64;
    if rng.coin() { span } else { -span }
}

fn break_disk(rng: &mut SimRng) -> Event {
    if rng.chance(300_000) {
        return Event::LimitDisk(rng.below(300_000));
    }
    let operations = [
        Operation::Write,
        Operation::Write,
        Operation::Sync,
        Operation::Close,
        Operation::Create,
    ];
    Event::FailDisk {
        operation: operations[rng.below(operations.len() as u64) as usize],
        nth: rng.below(8),
        errno: [EIO, EIO, EDQUOT][rng.below(3) as usize],
    }
}
