//! The options of a playback: every choice a user can make, checked and with its default.

pub use super::{
    requests::{RequestReplay, RequestSource},
    step_rule::{Lockstep, StepAnswer, StepRule},
};
use holdall_bag::{
    definitions::DefinitionFolders,
    reader::{Bag, MessageOrder, Moment},
};
use holdall_model::{dynamic::migrate::Rules, interface::Distribution, qos::QosProfile, time::Timestamp};
use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};

/// The source of `/clock`.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum ClockSource {
    /// No `/clock` is published.
    #[default]
    Off,
    /// At this rate in Hz (`--clock`).
    Rate(f64),
    /// Before each message of these topics (`--clock-topics`).
    Topics(Vec<String>),
    /// Before each message (`--clock-topics-all`).
    AllTopics,
    /// At a rate, and before messages.
    Both {
        /// The rate in Hz.
        hertz: f64,
        /// Before each message of these topics; `None` for all.
        topics: Option<Vec<String>>,
    },
}

impl ClockSource {
    /// The rate in Hz at which `/clock` is published, whatever messages do.
    pub fn rate(&self) -> Option<f64> {
        match self {
            Self::Rate(hertz) | Self::Both { hertz, .. } => Some(*hertz),
            Self::Off | Self::Topics(_) | Self::AllTopics => None,
        }
    }
}

/// Subscriptions that must be there before the first message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerCount {
    /// On this topic, as recorded or as published; `None` for all topics together.
    pub topic: Option<String>,
    /// How many.
    pub count: usize,
}

/// The pace of playback.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pace {
    /// Bag time, at the rate.
    #[default]
    Time,
    /// Reliable subscriptions: each message as soon as those before it are acknowledged so far that none is lost; `/clock` follows. In
    /// lock-step, as soon as those before it are answered.
    Listeners,
}

/// A part of a bag, and when to begin to play it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlayWindow {
    /// Skip this much at the beginning.
    pub start_offset: Duration,
    /// Play this much of bag time; `None` for no limit. Zero is rosbag2's "nothing" unless `until` is later.
    pub duration: Option<Duration>,
    /// Play until this bag time; `None` for no limit. The later of both limits wins.
    pub until: Option<Timestamp>,
    /// Begin at this time of day; at once when it has passed.
    pub start_time: Option<Timestamp>,
}

/// Definitions in which messages are played.
#[derive(Clone, Debug)]
pub struct PlayMigration {
    /// Where they are.
    pub folders: Arc<DefinitionFolders>,
    /// The rules for what differs.
    pub rules: Rules,
    /// The old ones that bags lack.
    pub old: OldDefinitions,
}

/// Definitions that bags may lack.
#[derive(Clone, Debug, Default)]
pub struct OldDefinitions {
    /// Where they are.
    pub folders: DefinitionFolders,
    /// The distribution that has the others; `None` for the one that a bag names.
    pub distribution: Option<Distribution>,
}

impl OldDefinitions {
    /// A bag with the definitions that it lacks.
    pub fn complete(&self, bag: Bag) -> Bag {
        let recorded = || Distribution::by_name(bag.metadata().ros_distro.as_deref()?);
        let distribution = self.distribution.or_else(recorded);
        let folders = self.folders.clone().with_distribution(distribution);
        bag.with_definitions(Arc::new(folders))
    }
}

/// Everything about one playback.
#[derive(Clone, Debug)]
pub struct PlayOptions {
    /// Bag directories or single storage files, merged by time.
    pub inputs: Vec<PathBuf>,
    /// Speed, > 0 (`-r`).
    pub rate: f64,
    /// Start again at the end (`-l`).
    pub repeat: bool,
    /// Wait before the first message of the first round (`-d`).
    pub delay: Duration,
    /// Skip this much at the beginning (`--start-offset`).
    pub start_offset: Duration,
    /// Play this much of bag time (`--playback-duration`).
    pub playback_duration: Option<Duration>,
    /// Play until this bag time (`--playback-until-sec`, `--playback-until-nsec`); the later of both limits wins.
    pub playback_until: Option<Timestamp>,
    /// Begin at this time of the bag (`--start`), instead of `start_offset`.
    pub start: Option<Moment>,
    /// End at this time of the bag (`--end`).
    pub end: Option<Moment>,
    /// Only the episode with this number, from 1 (`--episode`), instead of `start` and `end`.
    pub episode: Option<u64>,
    /// Only these topics (`--topics`); empty for all.
    pub topics: Vec<String>,
    /// Only topics that match wholly (`-e`).
    pub regex: Option<String>,
    /// Not topics that match wholly (`-x`).
    pub exclude_regex: Option<String>,
    /// Not these topics (`--exclude-topics`).
    pub exclude_topics: Vec<String>,
    /// Only messages of these publishers: nodes, beginnings of identifiers, hosts (`--publisher`); empty for all.
    pub publishers: Vec<String>,
    /// New names by recorded name (`-m`).
    pub remap: BTreeMap<String, String>,
    /// QoS to offer instead of the recorded one, by recorded topic.
    pub qos_overrides: BTreeMap<String, QosProfile>,
    /// The source of `/clock`.
    pub clock: ClockSource,
    /// A recorded `/clock` is played instead of what `clock` asks for, where the bag has one (`--prefer-recorded-clock`).
    pub prefer_recorded_clock: bool,
    /// Longer spans without a message take no time (`--skip-empty`).
    pub skip_empty: Option<Duration>,
    /// Begin paused (`-p`).
    pub start_paused: bool,
    /// Messages read ahead of time (`--read-ahead-queue-size`).
    pub read_ahead_messages: usize,
    /// Payload bytes read ahead of time at most; one larger message still passes.
    pub read_ahead_bytes_max: usize,
    /// Longest wait for subscriptions to be found before the first message, so that readers that are already there get it.
    /// Playback begins earlier, about 1.3 s after the start, once something has matched and nothing more does. Zero begins at
    /// once, as rosbag2 does, and loses the first second of the bag to many readers.
    pub discovery_wait: Duration,
    /// Wait for acknowledgements at the end: `Some(ZERO)` waits for ever (`--wait-for-all-acked`).
    pub wait_for_all_acked: Option<Duration>,
    /// Which stamp counts (`--message-order`).
    pub message_order: MessageOrder,
    /// Stay after the end, and after a stop, until asked to play again (`--persistent`).
    pub persistent: bool,
    /// Begin at this time of day, at once when it has passed (`--start-at`).
    pub start_at: Option<Timestamp>,
    /// Publish the last message of each transient-local topic from before the beginning, and before a point that was sought, first.
    pub latched_state: bool,
    /// Recorded requests that are sent again, instead of being published as events.
    pub requests: RequestReplay,
    /// Subscriptions to wait for; `discovery_wait` does not count then.
    pub wait_for_subscribers: Vec<ListenerCount>,
    /// Longest wait for these, after which nothing is played; `None` waits for ever.
    pub subscribers_timeout: Option<Duration>,
    /// One publisher for each recorded publisher, with its QoS.
    pub keep_publishers: bool,
    /// The pace of playback.
    pub pace: Pace,
    /// What answers each message before the next one is published.
    pub lockstep: Lockstep,
    /// Definitions that messages get instead of their own.
    pub migration: Option<PlayMigration>,
    /// Video and compressed clouds are played as what they were made from.
    pub decoding: Option<super::first_form::Decoding>,
}

impl PlayOptions {
    /// The part of the bag that these options play.
    pub fn window(&self) -> PlayWindow {
        PlayWindow {
            start_offset: self.start_offset,
            duration: self.playback_duration,
            until: self.playback_until,
            start_time: self.start_at,
        }
    }
}

impl Default for PlayOptions {
    fn default() -> Self {
        Self {
            inputs: Vec::new(),
            rate: 1.0,
            repeat: false,
            delay: Duration::ZERO,
            start_offset: Duration::ZERO,
            playback_duration: None,
            playback_until: None,
            start: None,
            end: None,
            episode: None,
            topics: Vec::new(),
            regex: None,
            exclude_regex: None,
            exclude_topics: Vec::new(),
            publishers: Vec::new(),
            remap: BTreeMap::new(),
            qos_overrides: BTreeMap::new(),
            clock: ClockSource::default(),
            prefer_recorded_clock: false,
            skip_empty: None,
            start_paused: false,
            read_ahead_messages: 1000,
            read_ahead_bytes_max: 256 * 1024 * 1024,
            discovery_wait: Duration::from_secs(2),
            requests: RequestReplay::default(),
            wait_for_all_acked: None,
            message_order: MessageOrder::default(),
            persistent: false,
            start_at: None,
            latched_state: true,
            wait_for_subscribers: Vec::new(),
            subscribers_timeout: None,
            keep_publishers: false,
            pace: Pace::Time,
            lockstep: Lockstep::default(),
            migration: None,
            decoding: None,
        }
    }
}
