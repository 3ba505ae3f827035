//! The arguments of `holdall record`: the flags of `ros2 bag record`, same names and meaning, and some extensions.

use super::{
    TransportName, console::ConsoleArguments, known::Known, upload::RecordUpload, viewers::AccessArguments,
};
use crate::{args::compress::CARRIERS, units};
use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};
use holdall::{
    recode,
    record::options::{CachePolicy, OnDiskFull},
    writer::CompressionMode,
};
use holdall_io::{os::DiskMode, thread::RT_PRIORITY_MAX};
use holdall_model::file_class::RingLimit;
use holdall_program::names::{CACHE_POLICIES, DISK_MODES, Words, one_of};
use holdall_storage::{DEFAULT_STORAGE_ID, storages};
use holdall_web::{DEFAULT_WEB, foxglove::DEFAULT_FOXGLOVE, parse_address};
use std::{net::SocketAddr, path::PathBuf, time::Duration};

/// The most messages of a publisher that a file can repeat.
pub const REPEAT_DEPTH_MAX: u32 = 1000;

/// Shown below `-h` and `--help`.
pub const EXAMPLES: &str = "\
Examples:
  holdall record -a                             all topics, services and actions
  holdall record --topics /imu/data /tf -o lab  two topics, into the bag directory lab/
  holdall record -e ^/camera --exclude-topics /camera/depth
                                                topics that begin with /camera, except one
  holdall record -a -b 1GB --max-bag-files 20   a new file each GB, the newest 20 are kept
  holdall record -a --compression-mode file     each file is compressed with zstd when it is closed
  holdall record -a -b 1GB --on-disk-full ring  until stopped: deletes its oldest files when the disk is full
  holdall record -a --max-loss-window 500ms     a power cut takes at most half a second
  holdall record -a --transport zenoh           topics of systems with rmw_zenoh
  holdall record -a --max-recording-duration 10min
                                                ends by itself
  holdall record -a --trigger '/battery: voltage < 11.5' --trigger '/scan silent 2s' --before 30 --after 10
                                                only around events
  holdall record -a --preflight                 tests for five seconds first whether it will fit
  holdall record -a --json > report.json        the final report for programs";

const KEYS: &str = "\
Keys and signals:
  SPACE            pause, resume (on a terminal)
  m                put a marker into the bag (named: holdall control)
  e                start or stop an episode (with task and outcome: holdall control)
  Ctrl-C           end the recording and close the bag (also SIGTERM and SIGHUP)
  Ctrl-C again     after half a second: end now, and report what is abandoned
  SIGUSR1, s       write a snapshot (with --snapshot-mode), record around now (with --trigger)

Sizes are bytes, or 100MiB (powers of 1024), 1GB (powers of 1000).
Spans are in the unit that the flag names, or 5s, 200ms, 2min.";

/// Shown below `--help`.
pub fn after_long_help() -> String {
    format!("{EXAMPLES}\n\n{KEYS}\n\n{}", crate::exit::HELP)
}

fn storage_help() -> String {
    let ids: Vec<&str> = storages().iter().map(|storage| storage.id()).collect();
    format!("Storage of the bag: {}", ids.join(", "))
}

fn preset_help() -> String {
    let presets: Vec<String> = storages()
        .iter()
        .map(|storage| format!("{}: {}", storage.id(), storage.presets().join(", ")))
        .collect();
    format!("Preset of the storage; {}", presets.join("; "))
}

/// What rosbag2's own compression packs.
const COMPRESSION_MODES: Words<CompressionMode> = &[
    ("none", "No compression", CompressionMode::None),
    ("file", "Each file, when it is closed", CompressionMode::File),
    ("message", "Each message", CompressionMode::Message),
];

/// Policy for a full disk.
const ON_DISK_FULL: Words<OnDiskFull> = &[
    (
        "stop",
        "End the recording; everything received until then is in a complete bag",
        OnDiskFull::Stop,
    ),
    (
        "ring",
        "Delete the oldest files of this recording, report and count them, and continue",
        OnDiskFull::Ring,
    ),
];

/// All flags of `holdall record`.
#[derive(Args, Clone, Debug, Default)]
pub struct RecordArguments {
    #[command(flatten, next_help_heading = "What to record")]
    pub selection: RecordSelection,
    #[command(flatten, next_help_heading = "Discovery")]
    pub discovery: DiscoveryArguments,
    #[command(flatten, next_help_heading = "Bag")]
    pub bag: BagArguments,
    #[command(flatten, next_help_heading = "Compression")]
    pub compression: CompressionArguments,
    #[command(flatten, next_help_heading = "Split")]
    pub split: FileSplitArguments,
    #[command(flatten, next_help_heading = "End")]
    pub end: EndArguments,
    #[command(flatten, next_help_heading = "Safety")]
    pub safety: SafetyArguments,
    #[command(flatten, next_help_heading = "Cache")]
    pub cache: CacheArguments,
    #[command(flatten, next_help_heading = "Events")]
    pub events: EventArguments,
    #[command(flatten, next_help_heading = "While it runs")]
    pub running: RunningArguments,
    #[command(flatten, next_help_heading = "Settings in files")]
    pub files: SettingsArguments,
    #[command(flatten)]
    pub console: ConsoleArguments,
}

/// Which topics, services and actions are recorded.
#[derive(Args, Clone, Debug, Default)]
pub struct RecordSelection {
    /// Topics to record; the same as --topics
    #[arg(value_name = "TOPIC")]
    pub positional_topics: Vec<String>,

    /// Record all topics, services and actions except hidden ones
    #[arg(short = 'a', long)]
    pub all: bool,

    /// Record all topics except hidden ones
    #[arg(long)]
    pub all_topics: bool,

    /// Record the service events of all services
    #[arg(long)]
    pub all_services: bool,

    /// Record all actions except hidden ones: feedback, status, and the events of their services
    #[arg(long)]
    pub all_actions: bool,

    /// Record these topics
    #[arg(long, value_name = "TOPIC", num_args = 1..)]
    pub topics: Vec<String>,

    /// Record the service events of these services
    #[arg(long, value_name = "SERVICE", num_args = 1..)]
    pub services: Vec<String>,

    /// Record these actions: feedback, status, and the events of their services
    #[arg(long, value_name = "ACTION", num_args = 1..)]
    pub actions: Vec<String>,

    /// Record all topics of these types, for example sensor_msgs/msg/Image
    #[arg(long, value_name = "TYPE", num_args = 1..)]
    pub topic_types: Vec<String>,

    /// Record topics, services and actions whose name contains this pattern; -a and the flags --all-... override it
    #[arg(short = 'e', long, value_name = "REGEX")]
    pub regex: Option<String>,

    /// Leave out topics, services and actions whose name contains this pattern
    #[arg(short_alias = 'x', long, alias = "exclude", value_name = "REGEX")]
    pub exclude_regex: Option<String>,

    /// Leave out these topics
    #[arg(long, value_name = "TOPIC", num_args = 1..)]
    pub exclude_topics: Vec<String>,

    /// Leave out these services
    #[arg(long, value_name = "SERVICE", num_args = 1..)]
    pub exclude_services: Vec<String>,

    /// Leave out these actions
    #[arg(long, value_name = "ACTION", num_args = 1..)]
    pub exclude_actions: Vec<String>,

    /// Leave out topics of these types
    #[arg(long, value_name = "TYPE", num_args = 1..)]
    pub exclude_topic_types: Vec<String>,

    /// Also record hidden topics: those with a name part that begins with _
    #[arg(long)]
    pub include_hidden_topics: bool,

    /// Also record topics that have subscriptions but no publisher yet
    #[arg(long)]
    pub include_unpublished_topics: bool,

    /// Leave out topics without a subscription
    #[arg(long)]
    pub ignore_leaf_topics: bool,

    /// Record at most HZ messages a second of these topics; the others are counted as left out, not as lost
    #[arg(long, value_name = "TOPIC=HZ", num_args = 1..)]
    pub topic_throttle_frequency: Vec<String>,
}

/// How they are found and subscribed to.
#[derive(Args, Clone, Debug, Default)]
pub struct DiscoveryArguments {
    /// Transports to record from; may be given several times
    /// [default: zenoh where RMW_IMPLEMENTATION is rmw_zenoh_cpp, else dds]
    #[arg(
        long,
        value_name = "TRANSPORT",
        action = clap::ArgAction::Append
    )]
    pub transport: Vec<TransportName>,

    /// Record a message once when a bridge brings it over several transports (same bytes within 10 s)
    #[arg(long)]
    pub merge_duplicates: bool,

    /// Discover topics at the start only; topics that appear later are not recorded
    #[arg(long)]
    pub no_discovery: bool,

    /// Time between polls for new topics and publishers, in ms
    #[arg(short = 'p', long, value_name = "MS", default_value = "100", allow_negative_numbers = true, value_parser = units::parse_milliseconds)]
    pub polling_interval: Duration,

    /// YAML file with topics to subscribe before they are discovered: static_topics_and_types_list, a list of [topic, type]
    #[arg(long, value_name = "FILE")]
    pub static_topics_path: Option<PathBuf>,

    /// YAML file with QoS overrides by topic; without one the QoS is adapted to the publishers
    #[arg(long, value_name = "FILE")]
    pub qos_profile_overrides_path: Option<PathBuf>,

    /// QoS override of one topic, as an entry of that file; may be given several times and overrides the file
    #[arg(long, value_name = "TOPIC: {KEY: VALUE, ...}")]
    pub qos_override: Vec<String>,

    /// Name of the recorder's node, also with a namespace: /robot/recorder
    #[arg(long, value_name = "NAME", default_value = "rosbag2_recorder")]
    pub node_name: String,

    /// Enclave of the node in a secured domain (SROS 2); `ROS_SECURITY_ENCLAVE_OVERRIDE` overrides it
    #[arg(long, value_name = "NAME")]
    pub enclave: Option<String>,
}

/// The bag and its storage.
#[derive(Args, Clone, Debug, Default)]
pub struct BagArguments {
    /// Bag directory to create; must not exist [default: rosbag2_<year>_<month>_<day>-<hour>_<minute>_<second>]
    #[arg(short = 'o', long, value_name = "PATH")]
    pub output: Option<PathBuf>,

    #[arg(short = 's', long, value_name = "ID", default_value = DEFAULT_STORAGE_ID, value_parser = Known::storages(), hide_possible_values = true,
        help = storage_help())]
    pub storage: String,

    #[arg(long, value_name = "PRESET", value_parser = Known::presets(), hide_possible_values = true, help = preset_help())]
    pub storage_preset_profile: Option<String>,

    /// How messages are serialized in the bag: cdr, as they arrive
    #[arg(short = 'f', long, value_name = "FORMAT")]
    pub serialization_format: Option<String>,

    /// YAML file with settings of the storage; they override the preset
    #[arg(long, value_name = "FILE")]
    pub storage_config_file: Option<PathBuf>,

    /// How files are written
    #[arg(long, value_name = "MODE", default_value = "auto", value_parser = one_of(DISK_MODES))]
    pub disk_mode: DiskMode,

    /// Encrypt the bag so that only its owner can read it: a public key (age1..., ssh-ed25519 ..., ssh-rsa ...), or a file of these;
    /// may be given several times. MCAP only; nothing survives a recorder that is killed before it is written
    #[arg(long, value_name = "RECIPIENT", action = clap::ArgAction::Append)]
    pub encrypt_to: Vec<String>,

    /// Store all messages of a topic in one channel, as rosbag2 does, instead of in one for each publisher
    #[arg(long)]
    pub merge_publishers: bool,

    /// Store these key=value pairs in metadata.yaml
    #[arg(long, value_name = "KEY=VALUE", num_args = 1..)]
    pub custom_data: Vec<String>,
}

/// What is compressed, and by which threads.
#[derive(Args, Clone, Debug, Default)]
pub struct CompressionArguments {
    /// Compress the bag as rosbag2 does: each file when it is closed, or each message. To compress chunks within MCAP files, use --storage-preset-profile zstd_fast
    #[arg(long, value_name = "MODE", default_value = "none", ignore_case = true, value_parser = one_of(COMPRESSION_MODES))]
    pub compression_mode: CompressionMode,

    /// Format of --compression-mode: zstd
    #[arg(long, value_name = "FORMAT")]
    pub compression_format: Option<String>,

    /// Messages that may wait for compression; when more arrive, the oldest is dropped and counted. 0 drops none: messages wait in the cache (rosbag2's default is 1)
    #[arg(long, value_name = "N", default_value = "0", allow_negative_numbers = true)]
    pub compression_queue_size: u32,

    /// Compression threads; 0 for one per processor
    #[arg(long, value_name = "N", default_value = "0", allow_negative_numbers = true)]
    pub compression_threads: u32,

    /// Nice value of the compression threads: -20 (highest priority) to 19 (lowest)
    #[arg(long, value_name = "NICE", default_value = "0", allow_negative_numbers = true, value_parser = clap::value_parser!(i32).range(-20..=19))]
    pub compression_threads_priority: i32,

    /// Compress the chunks of these topics with another codec than --storage-preset-profile and --storage-config-file set (MCAP): none, lz4 or zstd
    ///
    /// "/camera/compressed=none" does not compress images twice; "/points=zstd" compresses one topic only
    #[arg(long, value_name = "TOPIC=CODEC", num_args = 1..)]
    pub topic_compression: Vec<String>,

    /// Encode the images of these topics as video by ffmpeg, what cannot be stays: h264 or h265 with quality=0 (best) to 51 [default: 23], av1 or vp9 with quality=0 to 63 [default: 32], or lossless, also for depth, floats and 16 bits; may be given several times, the first that matches counts
    ///
    /// What cannot be encoded, or not in time, is recorded unchanged; "holdall info" and "holdall audit" have the account. preset=NAME is the encoder's, ultrafast to veryslow; encoder=NAME (h264_nvenc, h264_vaapi, ...) or encoder=hardware is tried first. What snapshots and events write at once is more than an encoder takes: most of it stays images
    #[arg(long, value_name = "TOPICS=CODEC", value_parser = recode::Rule::video, action = clap::ArgAction::Append)]
    pub video: Vec<recode::Rule>,

    /// The messages that carry the video of --video
    #[arg(long = "as", value_name = "MESSAGE", default_value = "foxglove", requires = "video", value_parser = one_of(CARRIERS))]
    pub carrier: recode::Carrier,

    /// What happens while an encoder of --video does not follow; each step is a marker, and it is taken back when the encoder follows again
    #[arg(long, value_name = "POLICY", default_value = "raw", requires = "video", value_parser = one_of(WHEN_BEHIND))]
    pub video_when_behind: recode::WhenBehind,

    /// Give the point clouds of these topics a smaller form: lossless, or cloudini with coordinates as multiples of resolution=METRES [default: 0.001]; may be given several times
    #[arg(long, value_name = "TOPICS=CODEC", value_parser = recode::Rule::cloud, action = clap::ArgAction::Append)]
    pub cloud: Vec<recode::Rule>,
}

/// What happens where an encoder does not follow.
const WHEN_BEHIND: Words<recode::WhenBehind> = &[
    (
        "raw",
        "images are recorded unchanged for some seconds",
        recode::WhenBehind::Raw,
    ),
    (
        "quality",
        "the quality falls, in three steps; then as raw",
        recode::WhenBehind::Quality,
    ),
    (
        "rate",
        "images are left out and counted: each second one, up to 15 of 16; then as raw",
        recode::WhenBehind::Rate,
    ),
];

/// When the next file begins.
#[derive(Args, Clone, Debug, Default)]
pub struct FileSplitArguments {
    /// Split after this many bytes; 0 never
    #[arg(short = 'b', long, value_name = "SIZE", default_value = "0", allow_negative_numbers = true, value_parser = units::parse_bytes)]
    pub max_bag_size: u64,

    /// Split after this many seconds; 0 never
    #[arg(short = 'd', long, value_name = "S", default_value = "0", allow_negative_numbers = true, value_parser = units::parse_seconds)]
    pub max_bag_duration: Duration,

    /// Keep only this many of the newest files and delete older ones; 0 keeps all; needs -b or -d
    #[arg(long, value_name = "N", default_value = "0", allow_negative_numbers = true)]
    pub max_bag_files: u32,

    /// Store topics whose name or type contains this pattern in files of their own, so that the others stay small; may be given several times
    #[arg(long, value_name = "[NAME=]REGEX", num_args = 1..)]
    pub separate: Vec<String>,

    /// Store each topic of more than this many bytes a second, since its file began, in files of its own; 0 never
    #[arg(long, value_name = "SIZE", default_value = "0", allow_negative_numbers = true, value_parser = units::parse_bytes)]
    pub separate_above: u64,

    /// Keep only the newest messages, up to a size (200GB) or for a time (3d); older files are deleted, and counted as removed
    ///
    /// holdall promote copies a part of it into a bag, also while it is recorded
    #[arg(long, value_name = "SIZE|SPAN")]
    pub ring: Option<RingLimit>,

    /// With --ring, never delete these topics: keep=/tf,/odom
    #[arg(long, value_name = "keep=TOPICS", requires = "ring")]
    pub lane: Vec<String>,

    /// With --ring, copy what is --before and --after an event into a bag beside it: a trigger (as --trigger), or contract for each rule of --contract
    /// that is broken; may be given several times
    ///
    /// From the event on the ring keeps what is copied; another event within this time extends it. The bags are RING_event_1 and so on
    #[arg(long, value_name = "TRIGGER|contract", action = clap::ArgAction::Append)]
    pub promote_on: Vec<String>,

    /// Repeat the last N messages (1) of each publisher of these topics at the beginning of every new file and snapshot; marked, so that the bag has them once
    #[arg(long, value_name = "TOPIC[=N]", num_args = 1..)]
    pub repeat_transient_local: Vec<String>,

    /// The same for every topic with a transient-local publisher
    #[arg(long, value_name = "N", num_args = 0..=1, default_missing_value = "1", value_parser = clap::value_parser!(u32).range(1..=i64::from(REPEAT_DEPTH_MAX)))]
    pub repeat_all_transient_local: Option<u32>,
}

/// When the recording ends by itself.
#[derive(Args, Clone, Debug, Default)]
pub struct EndArguments {
    /// End the recording after this many seconds, pauses included; 0 never
    #[arg(long, value_name = "S", default_value = "0", allow_negative_numbers = true, value_parser = units::parse_seconds)]
    pub max_recording_duration: Duration,

    /// End the recording before its files have more than this many bytes together; 0 never
    #[arg(long, value_name = "SIZE", default_value = "0", allow_negative_numbers = true, value_parser = units::parse_bytes)]
    pub max_recording_size: u64,

    /// End the recording when the bag has this many messages; 0 never
    #[arg(long, value_name = "N", default_value = "0", allow_negative_numbers = true)]
    pub max_recording_messages: u64,
}

/// What must survive, and what is done when the disk is full.
#[derive(Args, Clone, Debug, Default)]
pub struct SafetyArguments {
    /// Sync so often that a power cut loses at most the last S seconds; 0 syncs at the end only
    #[arg(long, value_name = "S", default_value = "2", allow_negative_numbers = true, value_parser = units::parse_seconds)]
    pub max_loss_window: Duration,

    /// In-memory directory for messages that are not on disk yet, so that `holdall repair` can recover them after the recorder was killed; empty for none
    // clap's own parser of paths refuses the empty one.
    #[arg(long, value_name = "DIR", default_value = "/dev/shm", value_parser = OsStringValueParser::new().map(PathBuf::from))]
    pub rescue_directory: PathBuf,

    /// Treat the disk as full when less than this is free; 0: only when a write fails [default: 0, with --on-disk-full ring 1GiB]
    #[arg(long, value_name = "SIZE", allow_negative_numbers = true, value_parser = units::parse_bytes)]
    pub min_free_space: Option<u64>,

    /// Policy for a full disk; ring needs -b or -d
    #[arg(long, value_name = "POLICY", default_value = "stop", value_parser = one_of(ON_DISK_FULL))]
    pub on_disk_full: OnDiskFull,

    /// Record into a scratch bag for S seconds first (5), and ask before the recording begins when messages will be missing; without a terminal it
    /// begins in any case (see holdall preflight)
    #[arg(long, value_name = "S", num_args = 0..=1, default_missing_value = "5", value_parser = units::parse_seconds)]
    pub preflight: Option<Duration>,
}

/// How messages wait for the disk.
#[derive(Args, Clone, Debug, Default)]
pub struct CacheArguments {
    /// Memory for messages that wait for the disk; 0 uses the least possible, or only the limit of --max-cache-duration [default: a
    /// quarter of the memory that is available, which changes; at least a sixteenth of all, 100MiB to 512MiB, while others can have as much;
    /// 100MiB with --snapshot-mode]
    #[arg(long, value_name = "SIZE", allow_negative_numbers = true, value_parser = units::parse_bytes)]
    pub max_cache_size: Option<u64>,

    /// Longest time that messages may wait in the cache, in seconds; 0 limits by size only
    #[arg(long, value_name = "S", default_value = "0", allow_negative_numbers = true, value_parser = units::parse_seconds)]
    pub max_cache_duration: Duration,

    /// Policy for a full cache
    #[arg(long, value_name = "POLICY", default_value = "fair", value_parser = one_of(CACHE_POLICIES))]
    pub cache_policy: CachePolicy,

    /// Let these topics hold more (high) or less (low) of a full cache than others, with --cache-policy fair
    #[arg(long, value_name = "TOPIC=PRIORITY", num_args = 1..)]
    pub topic_priority: Vec<String>,

    /// Keep the newest messages in the cache and write them only when a snapshot is requested
    #[arg(long)]
    pub snapshot_mode: bool,
}

/// Events around which is recorded.
#[derive(Args, Clone, Debug, Default)]
pub struct EventArguments {
    /// Record only around events: when this becomes true; may be given several times
    ///
    /// "/battery: voltage < 11.5 && status.code == 3" (fields, as in holdall cat -w), "/scan silent 2s" or "/scan rate < 5". A marker, a snapshot,
    /// holdall control trigger and SIGUSR1 are events, too. Each event is a file of the bag, with a marker; other messages are counted as left out
    #[arg(long, value_name = "EXPRESSION", action = clap::ArgAction::Append)]
    pub trigger: Vec<String>,

    /// Start an episode when this becomes true, and stop it when it becomes false: "/mode: data == 'auto'"
    #[arg(long, value_name = "TOPIC: EXPRESSION")]
    pub episode_when: Option<String>,

    /// Record this long before an event, in seconds [default: 30]
    ///
    /// These messages wait in memory, in at most three quarters of --max-cache-size. With --before or --after but without --trigger (and --promote-on), events come on request only
    #[arg(long, value_name = "S", allow_negative_numbers = true, value_parser = units::parse_seconds)]
    pub before: Option<Duration>,

    /// Record this long after an event, in seconds; another event within this time extends it [default: 10]
    #[arg(long, value_name = "S", allow_negative_numbers = true, value_parser = units::parse_seconds)]
    pub after: Option<Duration>,
}

/// The running recorder, and what it offers to others.
#[derive(Args, Clone, Debug, Default)]
pub struct RunningArguments {
    /// Begin paused
    #[arg(long)]
    pub start_paused: bool,

    /// Stamp messages with the time of /clock; nothing is recorded before its first message
    #[arg(long)]
    pub use_sim_time: bool,

    /// Publish losses on events/rosbag2_messages_lost at most this often, in Hz; 0 never
    ///
    /// By default once a second, as soon as another node has the type; Jazzy lacks it
    #[arg(
        long,
        alias = "stats_max_publishing_rate",
        value_name = "HZ",
        allow_negative_numbers = true,
        value_parser = units::parse_hertz
    )]
    pub stats_max_publishing_rate: Option<f64>,

    /// Serve a dashboard to browsers, by the link that is logged
    #[arg(long, value_name = "ADDR:PORT", num_args = 0..=1, default_missing_value = DEFAULT_WEB, value_parser = parse_address)]
    pub web: Option<SocketAddr>,

    /// Serve Foxglove, Lichtblick and other viewers over WebSocket, by the link that is logged
    #[arg(long, value_name = "ADDR:PORT", num_args = 0..=1, default_missing_value = DEFAULT_FOXGLOVE, value_parser = parse_address)]
    pub foxglove: Option<SocketAddr>,

    /// Let viewers publish, call services, read and set parameters
    #[arg(long, requires = "foxglove")]
    pub foxglove_control: bool,

    /// Let viewers fetch meshes and images of the packages in AMENT_PREFIX_PATH
    #[arg(long, requires = "foxglove")]
    pub foxglove_assets: bool,

    #[command(flatten)]
    pub access: AccessArguments,

    /// Offer no services: other nodes cannot pause or stop the recording, or begin the next bag
    #[arg(long)]
    pub no_services: bool,

    /// Let the service `record` create bags anywhere, not only in the folder of the first one
    #[arg(long, conflicts_with = "no_services")]
    pub allow_paths: bool,

    /// Accept requests on this local socket, from this user only (see holdall control)
    #[arg(long, value_name = "PATH")]
    pub control_socket: Option<PathBuf>,

    /// Write the counters to this file each second, as OpenMetrics text
    #[arg(long, value_name = "PATH")]
    pub metrics_file: Option<PathBuf>,

    /// Run this command for each file of the bag that is complete; {} is the file's path
    ///
    /// The command is a line for sh. HOLDALL_FILE also holds the path, and HOLDALL_BAG the bag's directory. Up to four commands run at a time while
    /// the recording continues; the end of the recording waits for them, up to 30 s
    #[arg(long, value_name = "CMD")]
    pub on_file_closed: Option<String>,

    /// Watch a topic: "/scan silent 2s" or "/scan rate < 5"; may be given several times
    ///
    /// An alarm is a line of the log and a marker in the bag, and is counted in metrics and in the report. Losses, a disk that is full within ten
    /// minutes, and publishers that go silent without a farewell are alarms in any case
    #[arg(long, value_name = "EXPRESSION", action = clap::ArgAction::Append)]
    pub alarm: Vec<String>,

    /// Judge the recording by the rules in this file while it runs; exit code 4 when one fails and nothing is lost
    ///
    /// A broken rule is an alarm. The verdict is in the report and the bag, and that of `holdall check BAG --contract FILE`
    #[arg(long, value_name = "FILE")]
    pub contract: Option<PathBuf>,

    /// Run this command for each alarm, when it begins and when it ends; {} is its text
    ///
    /// The command is a line for sh. HOLDALL_ALARM_KIND (silent, rate, loss, disk, end_unknown, contract), HOLDALL_ALARM_STATE (begin, end),
    /// HOLDALL_ALARM_TOPIC, HOLDALL_ALARM_TEXT, HOLDALL_ALARM_SINCE (ns) and HOLDALL_BAG hold the rest. Commands run as those of --on-file-closed
    #[arg(long, value_name = "CMD")]
    pub on_alarm: Option<String>,

    /// Publish the state of the recording on /diagnostics, once a second
    #[arg(long)]
    pub diagnostics: bool,

    /// Where its files are uploaded.
    #[command(flatten)]
    pub upload: RecordUpload,

    /// Continue in a new file when messages arrive but nothing becomes durable for 2 s (or twice the loss window)
    #[arg(long)]
    pub restart_on_stall: bool,

    /// Run on these processor cores only, for example 2,3
    #[arg(long, value_name = "CORES", value_delimiter = ',')]
    pub cpu_affinity: Vec<usize>,

    /// Run the receiving threads with this real-time priority (SCHED_FIFO), 1 to 99; needs CAP_SYS_NICE
    #[arg(long, value_name = "PRIORITY", value_parser = clap::value_parser!(u8).range(1..=i64::from(RT_PRIORITY_MAX)))]
    pub rt_priority: Option<u8>,
}

/// Flags and parameters that are read from files.
#[derive(Args, Clone, Debug, Default)]
pub struct SettingsArguments {
    /// YAML file with flags by their long names; the command line overrides it (holdall record --print-profile writes one). lake: for bags that
    /// holdall check --profile lake grades A
    #[arg(long, value_name = "FILE")]
    pub profile: Option<PathBuf>,

    /// Write the other flags of this command line as a profile, and end
    #[arg(long)]
    pub print_profile: bool,

    /// YAML file with node parameters, as rosbag2's composable recorder has them: record.*, storage.*, use_sim_time
    #[arg(long, value_name = "FILE", action = clap::ArgAction::Append)]
    pub params_file: Vec<PathBuf>,
}
