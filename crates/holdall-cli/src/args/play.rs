//! The arguments of `holdall play`: the flags of `ros2 bag play`, same names and meaning.

use super::{
    TransportName, choice::DefinitionArguments, console::ConsoleArguments, viewers::AccessArguments,
};
use crate::units;
use clap::Args;
use holdall::{
    play::options::{ListenerCount, Pace, RequestSource, StepRule},
    reader::{MessageOrder, Moment},
};
use holdall_model::time::Timestamp;
use holdall_program::names::{Words, one_of};
use holdall_web::{DEFAULT_WEB, foxglove::DEFAULT_FOXGLOVE, parse_address};
use std::{net::SocketAddr, path::PathBuf, time::Duration};

/// Shown below `-h` and `--help`.
pub const EXAMPLES: &str = "\
Examples:
  holdall play lab                            play the bag directory lab/
  holdall play lab -r 2 --clock 100           twice as fast, /clock at 100 Hz
  holdall play lab --topics /imu/data /tf     two topics only
  holdall play lab --start 10 --end 20        ten seconds
  holdall play lab --publisher /front/camera  only what this node had published
  holdall play lab -m /scan:=/old/scan        under another name
  holdall play -i front -i rear               two bags, merged by time
  holdall play lab --step-by /scan=/tracks    lock-step: each scan when the last one is tracked";

const KEYS: &str = "\
Keys and signals:
  SPACE       pause, resume (on a terminal)
  →           while paused the next message, else 5 s forward
  ←           5 s back; with shift ← and → are 60 s
  0 … 9       to this tenth of what is played
  [ ]         to the previous marker, to the next one
  ↑ ↓         rate + 0.1, rate - 0.1
  Ctrl-C      end (also SIGTERM and SIGHUP)

Spans are in the unit that the flag names, or 5s, 200ms, 2min.";

/// Shown below `--help`.
pub fn after_long_help() -> String {
    format!("{EXAMPLES}\n\n{KEYS}\n\n{}", crate::exit::HELP)
}

/// Which stamp orders messages.
const MESSAGE_ORDERS: Words<MessageOrder> = &[
    ("received", "When they were received", MessageOrder::Received),
    ("sent", "When they were sent", MessageOrder::Sent),
];

/// What sets the pace.
const PACES: Words<Pace> = &[
    ("time", "Bag time", Pace::Time),
    ("listeners", "Reliable subscriptions", Pace::Listeners),
];

/// Which recorded events are requests.
const REQUEST_SOURCES: Words<RequestSource> = &[
    (
        "service_introspection",
        "What servers received",
        RequestSource::ServiceIntrospection,
    ),
    (
        "client_introspection",
        "What clients sent",
        RequestSource::ClientIntrospection,
    ),
];

/// All flags of `holdall play`.
#[derive(Args, Clone, Debug, Default)]
pub struct PlayArguments {
    /// Bag directories or single storage files to play; several are merged by time
    #[arg(value_name = "BAG", help_heading = "What to play")]
    pub bags: Vec<PathBuf>,

    /// A bag to play; may be given several times; the storage id after it is optional
    #[arg(short = 'i', long, value_names = ["BAG", "STORAGE"], num_args = 1..=2, action = clap::ArgAction::Append,
          help_heading = "What to play")]
    pub input: Vec<PathBuf>,

    /// The bags' storage; it is detected, so this is only checked
    #[arg(short = 's', long, value_name = "ID", help_heading = "What to play")]
    pub storage: Option<String>,

    /// Accepted for scripts of rosbag2: reading needs no settings, but the file must exist
    #[arg(long, value_name = "FILE", help_heading = "What to play")]
    pub storage_config_file: Option<PathBuf>,

    /// Play messages in the definitions of --definitions or --distro, by these rules: a file, or those of holdall, ros1 or ros2 (see holdall migrate)
    #[arg(long, value_name = "FILE", help_heading = "What to play")]
    pub migrate: Option<PathBuf>,

    /// With --migrate: the definitions of a distribution of ROS 2
    #[arg(
        long,
        value_name = "NAME",
        requires = "migrate",
        help_heading = "What to play"
    )]
    pub distro: Option<String>,

    /// With --migrate: the old definitions that the bags lack: a folder, or a distribution; may be given several times
    #[arg(long = "old-definitions", value_name = "FOLDER|NAME", requires = "migrate", action = clap::ArgAction::Append, help_heading = "What to play")]
    pub from: Vec<PathBuf>,

    /// Publish video and compressed clouds as the images and clouds that they were made from; video needs the program ffmpeg
    #[arg(long, help_heading = "What to play")]
    pub decode_video: bool,

    /// Play these topics only
    #[arg(long, value_name = "TOPIC", num_args = 1.., help_heading = "What to play")]
    pub topics: Vec<String>,

    /// Play the recorded events of these services only
    #[arg(long, value_name = "SERVICE", num_args = 1.., help_heading = "What to play")]
    pub services: Vec<String>,

    /// Play only topics whose whole name matches this pattern
    #[arg(short = 'e', long, value_name = "REGEX", help_heading = "What to play")]
    pub regex: Option<String>,

    /// Leave out topics whose whole name matches this pattern
    #[arg(short = 'x', long, value_name = "REGEX", help_heading = "What to play")]
    pub exclude_regex: Option<String>,

    /// Leave out these topics
    #[arg(long, value_name = "TOPIC", num_args = 1.., help_heading = "What to play")]
    pub exclude_topics: Vec<String>,

    /// Leave out the recorded events of these services
    #[arg(long, value_name = "SERVICE", num_args = 1.., help_heading = "What to play")]
    pub exclude_services: Vec<String>,

    /// Play what was recorded of these actions only: feedback, status, and the events of their services
    #[arg(long, value_name = "ACTION", num_args = 1.., help_heading = "What to play")]
    pub actions: Vec<String>,

    /// Leave out what was recorded of these actions
    #[arg(long, value_name = "ACTION", num_args = 1.., help_heading = "What to play")]
    pub exclude_actions: Vec<String>,

    /// Play messages of these publishers only: a node (/ns/name or name), the beginning of an identifier, or a host, as `info -v` lists them
    #[arg(long, value_name = "PUBLISHER", num_args = 1.., help_heading = "What to play")]
    pub publisher: Vec<String>,

    /// Publish topics under other names
    #[arg(short = 'm', long, value_name = "OLD:=NEW", num_args = 1.., help_heading = "What to play")]
    pub remap: Vec<String>,

    /// Transports to publish on; may be given several times
    /// [default: zenoh where RMW_IMPLEMENTATION is rmw_zenoh_cpp, else dds]
    #[arg(
        long,
        value_name = "TRANSPORT",
        action = clap::ArgAction::Append,
        help_heading = "What to play"
    )]
    pub transport: Vec<TransportName>,

    /// YAML file with QoS overrides by topic; without one the recorded QoS is offered
    #[arg(long, value_name = "FILE", help_heading = "What to play")]
    pub qos_profile_overrides_path: Option<PathBuf>,

    /// QoS override of one topic, as an entry of that file; may be given several times and overrides the file
    #[arg(long, value_name = "TOPIC: {KEY: VALUE, ...}", help_heading = "What to play")]
    pub qos_override: Vec<String>,

    /// Send recorded requests of services again, as a client, instead of publishing their events
    #[arg(long, help_heading = "Services and actions")]
    pub publish_service_requests: bool,

    /// Send recorded goals, cancellations and requests of results of actions again, as a client; feedback and status are not published
    #[arg(long, help_heading = "Services and actions")]
    pub send_actions_as_client: bool,

    /// Which events are the requests: those that servers received, or those that clients sent
    #[arg(
        long,
        value_name = "SOURCE",
        default_value = "service_introspection",
        value_parser = one_of(REQUEST_SOURCES),
        help_heading = "Services and actions"
    )]
    pub service_requests_source: RequestSource,

    /// Exit code 3 unless each request was sent and answered
    #[arg(long, help_heading = "Services and actions")]
    pub fail_if_unanswered: bool,

    /// One publisher for each recorded publisher, with the QoS that it had, instead of one for each topic
    #[arg(long, help_heading = "What to play")]
    pub keep_publishers: bool,

    /// Do not first publish the last message of each latched (transient-local) topic from before the beginning or before the target of a seek
    #[arg(long, help_heading = "What to play")]
    pub no_latched_state: bool,

    /// Accepted for scripts of rosbag2; has no effect
    #[arg(long, help_heading = "What to play")]
    pub disable_loan_message: bool,

    /// Speed; 2 is twice as fast
    #[arg(short = 'r', long, value_name = "FACTOR", default_value = "1.0", allow_negative_numbers = true, value_parser = units::parse_factor,
          help_heading = "When")]
    pub rate: f64,

    /// Start again at the end, forever
    #[arg(short = 'l', long, help_heading = "When")]
    pub r#loop: bool,

    /// Wait before the first message, in seconds
    #[arg(short = 'd', long, value_name = "S", default_value = "0", allow_negative_numbers = true, value_parser = units::parse_seconds,
          help_heading = "When")]
    pub delay: Duration,

    /// Begin at this time of the bag: seconds after the first message (10), a time (@1700000000.25, 2026-11-25T12:03:11) or marker:NAME
    #[arg(long, value_name = "TIME", value_parser = units::parse_moment, conflicts_with = "start_offset", help_heading = "When")]
    pub start: Option<Moment>,

    /// End at this time of the bag, in the format of --start
    #[arg(long, value_name = "TIME", value_parser = units::parse_moment, conflicts_with_all = ["playback_duration", "playback_until_sec", "playback_until_nsec"],
          help_heading = "When")]
    pub end: Option<Moment>,

    /// Play this episode of the bag only, by its number in holdall info
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), help_heading = "When",
          conflicts_with_all = ["start", "end", "start_offset", "playback_duration", "playback_until_sec", "playback_until_nsec"])]
    pub episode: Option<u64>,

    /// Skip the beginning of the bag, in seconds
    #[arg(long, value_name = "S", default_value = "0", allow_negative_numbers = true, value_parser = units::parse_seconds, help_heading = "When")]
    pub start_offset: Duration,

    /// Play this much of the bag, in seconds; a negative value plays all
    #[arg(long, value_name = "S", allow_negative_numbers = true, value_parser = parse_endless, help_heading = "When")]
    pub playback_duration: Option<Span>,

    /// Play until this time of the bag, in seconds since 1970; with --playback-duration, the later end counts
    #[arg(
        long,
        value_name = "SEC",
        allow_negative_numbers = true,
        conflicts_with = "playback_until_nsec",
        help_heading = "When"
    )]
    pub playback_until_sec: Option<f64>,

    /// The same in nanoseconds since 1970
    #[arg(long, value_name = "NS", allow_negative_numbers = true, help_heading = "When")]
    pub playback_until_nsec: Option<i64>,

    /// Begin at this time (@1700000000.25, 2026-11-25T12:03:11), so that several machines begin together; at once when it has passed
    #[arg(long, value_name = "DATE", value_parser = parse_time, help_heading = "When")]
    pub start_at: Option<Timestamp>,

    /// Wait for this many subscriptions in all, or on a topic, before the first message
    #[arg(long, value_name = "N|TOPIC=N", num_args = 1.., value_parser = parse_listeners, help_heading = "When")]
    pub wait_for_subscribers: Vec<ListenerCount>,

    /// Longest wait for them, and for what --step-by needs, in seconds, after which nothing is played and the exit code is 1
    #[arg(long, value_name = "S", value_parser = units::parse_seconds, help_heading = "When")]
    pub timeout: Option<Duration>,

    /// Lock-step: publish the next message when the last one is answered: by a message of a topic with its header.stamp or a later one, by COUNT messages, by acknowledgements (ack), or by a service whose requests are sent again ('service /name'); 'action /name' sends a goal when the last one has its result; may be given several times: all count
    #[arg(long, value_name = "[INPUT=]ANSWER[:COUNT]", action = clap::ArgAction::Append, help_heading = "When")]
    pub step_by: Vec<StepRule>,

    /// Messages that may wait for answers at the same time
    #[arg(long, value_name = "N", default_value = "1", requires = "step_by", value_parser = clap::value_parser!(u32).range(1..), help_heading = "When")]
    pub in_flight: u32,

    /// Wait at most this long for an answer, in seconds; a missing one is counted and named, and the exit code is 3
    #[arg(long, value_name = "S", default_value = "10", requires = "step_by", value_parser = units::parse_seconds, help_heading = "When")]
    pub step_timeout: Duration,

    /// What sets the pace: time, or listeners (as fast as reliable keep-all subscriptions acknowledge; with --step-by, as fast as answers come)
    #[arg(long, value_name = "PACE", default_value = "time", value_parser = one_of(PACES), help_heading = "When")]
    pub pace: Pace,

    /// Exit code 3 when a message was sent later than this, in seconds
    #[arg(long, value_name = "S", value_parser = units::parse_seconds, help_heading = "When")]
    pub max_lateness: Option<Duration>,

    /// Leave out spans without a message that are longer than this, in seconds; 1 when no number is given
    #[arg(long, value_name = "S", num_args = 0..=1, default_missing_value = "1", value_parser = units::parse_seconds, help_heading = "When")]
    pub skip_empty: Option<Duration>,

    /// Which stamp sets the order and the spacing of messages
    #[arg(long, value_name = "STAMP", default_value = "received", value_parser = one_of(MESSAGE_ORDERS), help_heading = "When")]
    pub message_order: MessageOrder,

    /// Publish /clock at this rate in Hz, 40 when no number is given; a recorded /clock is left out
    #[arg(long, value_name = "HZ", num_args = 0..=1, allow_negative_numbers = true, default_missing_value = "40", value_parser = units::parse_hertz_above_zero,
          help_heading = "Clock")]
    pub clock: Option<f64>,

    /// Play a recorded /clock where the bag has one, and publish another only where it has none
    #[arg(long, help_heading = "Clock")]
    pub prefer_recorded_clock: bool,

    /// Publish /clock before each message of these topics
    #[arg(long, value_name = "TOPIC", num_args = 1.., conflicts_with = "clock_topics_all", help_heading = "Clock")]
    pub clock_topics: Vec<String>,

    /// Publish /clock before each message
    #[arg(long, help_heading = "Clock")]
    pub clock_topics_all: bool,

    /// Keep running after the end or a request to stop, until asked to play again; Ctrl-C ends it
    #[arg(long, help_heading = "While it runs")]
    pub persistent: bool,

    /// Begin paused
    #[arg(short = 'p', long, help_heading = "While it runs")]
    pub start_paused: bool,

    /// Number of messages to read ahead
    #[arg(long, value_name = "N", default_value = "1000", allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..),
          help_heading = "While it runs")]
    pub read_ahead_queue_size: u32,

    /// At the end wait until all reliable subscriptions have acknowledged everything, at most this many ms; 0 waits forever
    #[arg(long, value_name = "MS", allow_negative_numbers = true, value_parser = units::parse_milliseconds,
          help_heading = "While it runs")]
    pub wait_for_all_acked: Option<Duration>,

    /// Name of the player's node
    #[arg(
        long,
        value_name = "NAME",
        default_value = "rosbag2_player",
        help_heading = "While it runs"
    )]
    pub node_name: String,

    /// Enclave of the node in a secured domain (SROS 2); `ROS_SECURITY_ENCLAVE_OVERRIDE` overrides it
    #[arg(long, value_name = "NAME", help_heading = "While it runs")]
    pub enclave: Option<String>,

    /// How often to redraw the progress bar, in Hz, at most 10; 0 for no bar
    #[arg(
        long,
        value_name = "HZ",
        default_value = "10",
        allow_negative_numbers = true,
        help_heading = "While it runs"
    )]
    pub progress_bar_update_rate: i32,

    /// Accepted for scripts of rosbag2: the bar is always below the log
    #[arg(long, value_name = "N", default_value = "0", help_heading = "While it runs")]
    pub progress_bar_separation_lines: u32,

    /// Serve a dashboard to browsers, by the link that is logged
    #[arg(long, value_name = "ADDR:PORT", num_args = 0..=1, default_missing_value = DEFAULT_WEB, value_parser = parse_address,
          help_heading = "While it runs")]
    pub web: Option<SocketAddr>,

    /// Serve Foxglove, Lichtblick and other viewers over WebSocket, by the link that is logged
    #[arg(long, value_name = "ADDR:PORT", num_args = 0..=1, default_missing_value = DEFAULT_FOXGLOVE, value_parser = parse_address,
          help_heading = "While it runs")]
    pub foxglove: Option<SocketAddr>,

    #[command(flatten, next_help_heading = "While it runs")]
    pub access: AccessArguments,

    /// Places of definitions that the bag lacks, for viewers
    #[command(flatten, next_help_heading = "While it runs")]
    pub definitions: DefinitionArguments,

    /// Publish to viewers only (`holdall serve`).
    #[arg(skip)]
    pub viewers_only: bool,

    /// Offer no services: other nodes cannot pause, seek or stop the playback
    #[arg(long, help_heading = "While it runs")]
    pub no_services: bool,

    /// Accept requests on this local socket, from this user only (see holdall control)
    #[arg(long, value_name = "PATH", help_heading = "While it runs")]
    pub control_socket: Option<PathBuf>,

    /// YAML file with flags by their long names; the command line overrides it
    #[arg(long, value_name = "FILE", help_heading = "Settings in files")]
    pub profile: Option<PathBuf>,

    /// YAML file with node parameters, as rosbag2's composable player has them: play.*, storage.uri
    #[arg(long, value_name = "FILE", action = clap::ArgAction::Append, help_heading = "Settings in files")]
    pub params_file: Vec<PathBuf>,

    #[command(flatten)]
    pub console: ConsoleArguments,
}

/// A span that may be without end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span(pub Option<Duration>);

fn parse_endless(text: &str) -> Result<Span, units::QuantityError> {
    units::parse_seconds_or_endless(text).map(Span)
}

fn parse_time(text: &str) -> Result<Timestamp, String> {
    match units::parse_moment(text) {
        Ok(Moment::At(time)) => Ok(time),
        Ok(Moment::AfterStart(_) | Moment::Marker(_)) => {
            Err("expected a time, for example @1700000000.25 or 2026-11-25T12:03:11".to_owned())
        }
        Err(error) => Err(error.to_string()),
    }
}

fn parse_listeners(text: &str) -> Result<ListenerCount, String> {
    let (topic, count) = match text.rsplit_once('=') {
        Some((topic, count)) => (Some(topic.to_owned()), count),
        None => (None, text),
    };
    match count.parse::<usize>() {
        Ok(count) if count > 0 => Ok(ListenerCount { topic, count }),
        _ => Err("expected a number above 0, or TOPIC=NUMBER".to_owned()),
    }
}
