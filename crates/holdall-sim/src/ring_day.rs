//! Plans of recordings into rings of which parts are copied: many in a few minutes, or ten thousand in a day.

use crate::{
    plan::{Ending, Event, OFFERS, Plan, TOPICS},
    promote::Asked,
};
use holdall::{
    record::options::{CacheOptions, CachePolicy, RecordOptions},
    writer::SplitOptions,
};
use holdall_io::sim::{SimDiskOptions, SimRng};
use holdall_model::{
    file_class::{FileClasses, RingLimit},
    selection::Selection,
};
use std::{ops::Range, path::PathBuf, time::Duration};

/// Seeds in this range are recordings into rings of some minutes.
pub const RINGS: Range<u64> = 5_000_000_000..6_000_000_000;
/// A day.
pub const DAY: Duration = Duration::from_secs(24 * 3600);
/// Parts of the ring that are copied in a day.
pub const DAY_COPIES: u64 = 10_000;
/// The longest way back of a span that is asked for, and its longest length.
const BACK: Duration = Duration::from_secs(40);
const LENGTH: Duration = Duration::from_secs(20);
/// Sends of messages between two requests.
const SENDS: u32 = 4;

fn options(rng: &mut SimRng) -> RecordOptions {
    let policies = [CachePolicy::DropNew, CachePolicy::DropOld, CachePolicy::Fair];
    let mut options = RecordOptions {
        selection: Selection {
            all_topics: true,
            ..Selection::default()
        },
        output: PathBuf::from("/sim/bag"),
        ..RecordOptions::default()
    };
    options.cache = CacheOptions {
        bytes_max: (128 * 1024) << rng.below(4),
        grows_to: None,
        duration_max: None,
        policy: policies[rng.below(3) as usize],
        snapshot: false,
    };
    let separate = ["/large".to_owned()];
    let kept = ["/asked".to_owned()];
    let classes = FileClasses::new(
        if rng.coin() { &separate } else { &[] },
        if rng.coin() { &kept } else { &[] },
    );
    options.files.split = SplitOptions {
        bytes_max: Some(20_000 + rng.below(40_000)),
        ring: Some(if rng.coin() {
            RingLimit::Bytes(200_000 + rng.below(400_000))
        } else {
            RingLimit::Span(Duration::from_secs(10) + rng.span_below(Duration::from_secs(40)))
        }),
        // Two names without letters that have a meaning.
        classes: classes.unwrap_or_default(),
        ..SplitOptions::default()
    };
    let windows = [2_000, 500, 100];
    options.safety.max_loss_window = Some(Duration::from_millis(windows[rng.below(3) as usize]));
    options.discovery.polling_interval = Duration::from_millis(100);
    options.files.compression.threads = Some(0);
    options
}

fn start(rng: &mut SimRng, topic: usize) -> Event {
    Event::Start {
        topic,
        // None whose messages are kept for later subscriptions: a copy repeats these at its beginning.
        offer: [0, 1, OFFERS.len() - 1][rng.below(3) as usize],
        wrong_type: false,
    }
}

fn send(rng: &mut SimRng) -> Event {
    let is_burst = rng.chance(30_000);
    Event::Send {
        publisher: rng.next_u64(),
        count: 1 + rng.below(if is_burst { 60 } else { 10 }),
        spacing: if is_burst {
            Duration::ZERO
        } else {
            rng.span_below(Duration::from_millis(5))
        },
        lost: [0, 0, 0, 50_000][rng.below(4) as usize],
        delayed: [0, 0, 0, 200_000][rng.below(4) as usize],
        salt: rng.next_u64(),
    }
}

fn ask(rng: &mut SimRng) -> Event {
    let subset = 1 + rng.below((1 << TOPICS.len()) - 1) as u8;
    Event::Promote(Asked {
        back: rng.span_below(BACK),
        length: rng.span_below(LENGTH),
        topics: if rng.coin() { 0 } else { subset },
        salt: rng.next_u64(),
    })
}

impl Plan {
    /// A recording into a ring that takes `length`, and of which `copies` parts are asked for. Most are killed at a random moment, those of less
    /// than an hour at any, the others after the last copies.
    pub fn ring_day(seed: u64, length: Duration, copies: u64) -> Self {
        let mut rng = SimRng::new(seed);
        let options = options(&mut rng);
        let mut events: Vec<Event> = [0, 0, 1, 2, 3, 4].map(|topic| start(&mut rng, topic)).into();
        events.extend([Event::Describe, Event::Pass(Duration::from_millis(600))]);
        let begun = events.len();
        let pause = 2 * length / u32::try_from(copies.max(1)).unwrap_or(u32::MAX) / SENDS;
        for _ in 0..copies {
            for _ in 0..SENDS {
                events.extend([send(&mut rng), Event::Pass(rng.span_below(pause))]);
            }
            events.push(ask(&mut rng));
            match rng.below(200) {
                0 => events.push(Event::Restart(rng.next_u64())),
                1 => events.push(Event::Split),
                2 => events.push(Event::Announce(rng.next_u64())),
                3..6 => events.push(Event::StallDisk(rng.span_below(Duration::from_millis(1_500)))),
                6 => events.push(Event::Starve(rng.span_below(Duration::from_millis(300)))),
                _ => {}
            }
        }
        let is_long = length >= Duration::from_secs(3600);
        let ending = match rng.below(10) {
            _ if is_long => Ending::Death,
            0..6 => Ending::Death,
            6..8 => Ending::Stop,
            8 => Ending::PowerCut,
            _ => Ending::Kill,
        };
        let from = if is_long { events.len() - 20 } else { begun };
        let place = from + rng.below((events.len() - from) as u64) as usize;
        match ending {
            Ending::Death => {
                let points_max = 2 << rng.below(9);
                events.insert(place, Event::Die(1 + rng.below(points_max)));
            }
            Ending::Stop => {}
            Ending::PowerCut | Ending::Kill => events.truncate(place),
        }
        Self {
            seed,
            options,
            disk: SimDiskOptions {
                seed: rng.next_u64(),
                write_bytes_per_second: 2_000_000 << rng.below(10),
                latency_jitter: Duration::from_micros([50, 900, 20_000][rng.below(3) as usize]),
                stalls_per_million: [0, 0, 1_000][rng.below(3) as usize],
                sector_bytes: [512, 4096][rng.below(2) as usize],
                ..SimDiskOptions::default()
            },
            block_bytes: 4096 << rng.below(5),
            block_count: 4 + rng.below(6) as usize,
            drain_interval: Duration::from_millis([5, 20][rng.below(2) as usize]),
            events,
            ending,
            keeps_memory: matches!(ending, Ending::Stop | Ending::Death),
            signs: None,
            has_jumps: false,
            session_interval: Duration::from_millis(50),
        }
    }

    /// A recording of some minutes, as the seeds in [`RINGS`] are.
    pub fn ring_minutes(seed: u64) -> Self {
        let mut rng = SimRng::new(seed ^ 0x4149);
        let copies = 10 + rng.below(40);
        Self::ring_day(seed, Duration::from_secs(9) * copies as u32, copies)
    }

    /// Whether parts of the ring are copied.
    pub fn has_copies(&self) -> bool {
        self.events.iter().any(|event| matches!(event, Event::Promote(_)))
    }
}
