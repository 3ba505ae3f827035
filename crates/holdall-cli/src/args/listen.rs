//! The arguments of `holdall top`, `hz`, `bw`, `delay` and `echo`: live topics in a terminal, without ROS.

use super::TransportName;
use crate::units;
use clap::{Args, ValueEnum};
use std::{path::PathBuf, time::Duration};

/// Shown below `-h` and `--help`.
pub const TOP_EXAMPLES: &str = "\
Examples:
  holdall top                             all topics: rate, bandwidth, delay, loss; ← → sort, SPACE holds
  holdall top -e ^/camera --sort bw       topics that begin with /camera, the largest first
  holdall top --once                      one table, after three seconds
  holdall top --socket /run/user/1000/rec.sock
                                          what a running recorder receives, without further subscriptions";

/// Shown below `-h` and `--help`.
pub const HZ_EXAMPLES: &str = "\
Examples:
  holdall hz /imu                         once a second until Ctrl-C
  holdall hz /imu /scan --duration 10     two topics, for ten seconds
  holdall hz /odom --filter 'twist.twist.linear.x > 0.5'
                                          how often the robot reports that it moves";

/// Shown below `-h` and `--help`.
pub const BW_EXAMPLES: &str = "\
Example:
  holdall bw /camera/image_raw";

/// Shown below `-h` and `--help`.
pub const DELAY_EXAMPLES: &str = "\
Example:
  holdall delay /imu                      from the stamp in the header to the arrival here";

/// Shown below `-h` and `--help`.
pub const ECHO_EXAMPLES: &str = "\
Examples:
  holdall echo /chatter                   as YAML
  holdall echo /imu --once --json         one message, as JSON
  holdall echo /odom --field pose.pose.position --filter 'twist.twist.linear.x > 0.5'
  holdall echo /camera/image_raw --no-arr without the pixels
  holdall echo /imu --csv --field linear_acceleration > imu.csv";

/// How topics are found.
#[derive(Args, Clone, Debug)]
pub struct LiveArguments {
    /// End after this span, in seconds
    #[arg(long, value_name = "S", value_parser = units::parse_seconds)]
    pub duration: Option<Duration>,

    /// Transports to discover; may be given several times
    #[arg(long, value_name = "TRANSPORT", action = clap::ArgAction::Append)]
    pub transport: Vec<TransportName>,

    /// The node's name
    #[arg(long, value_name = "NAME", default_value = "holdall_listener")]
    pub node_name: String,

    /// Enclave of the node in a secured domain (SROS 2); `ROS_SECURITY_ENCLAVE_OVERRIDE` overrides it
    #[arg(long, value_name = "NAME")]
    pub enclave: Option<String>,
}

/// Flags of `holdall hz`, `bw` and `delay`.
#[derive(Args, Clone, Debug)]
pub struct MeasureArguments {
    /// Topics to measure
    #[arg(value_name = "TOPIC", required = true)]
    pub topics: Vec<String>,

    /// Number of newest messages to compute the figures from
    #[arg(short = 'w', long, value_name = "N", default_value = "10000", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub window: u32,

    #[command(flatten)]
    pub live: LiveArguments,
}

/// All flags of `holdall hz`.
#[derive(Args, Clone, Debug)]
pub struct HzArguments {
    #[command(flatten)]
    pub measure: MeasureArguments,

    /// Measure only messages for which this is true, as in holdall cat -w; m. before a field is ignored
    #[arg(long, value_name = "EXPRESSION")]
    pub filter: Option<String>,

    /// Accepted for scripts: rates always use wall time
    #[arg(long, hide = true)]
    pub wall_time: bool,
}

/// All flags of `holdall echo`.
#[derive(Args, Clone, Debug)]
pub struct EchoArguments {
    /// Topics to show
    #[arg(value_name = "TOPIC", required = true)]
    pub topics: Vec<String>,

    /// End after this many messages
    #[arg(short = 'n', long, value_name = "N", value_parser = units::parse_count)]
    pub count: Option<u64>,

    /// End with exit code 1 when no message is shown within this span, in seconds
    #[arg(long, value_name = "S", value_parser = units::parse_seconds)]
    pub timeout: Option<Duration>,

    /// One JSON object for each message
    #[arg(long)]
    pub json: bool,

    /// Write all values of a message on one line with commas between them, lists element by element, texts in quotes where necessary
    #[arg(long, conflicts_with = "json")]
    pub csv: bool,

    /// YAML on one line for each message
    #[arg(long, conflicts_with_all = ["json", "csv"])]
    pub flow_style: bool,

    /// Show before each message when it was sent and received, in nanoseconds since 1970, and its publisher's number for it
    #[arg(short = 'i', long, conflicts_with = "raw")]
    pub include_message_info: bool,

    /// Show type and length of lists instead of their elements
    #[arg(long)]
    pub no_arr: bool,

    /// Show the length of texts instead of their characters
    #[arg(long)]
    pub no_str: bool,

    /// End after one message
    #[arg(long, conflicts_with = "count")]
    pub once: bool,

    /// Show this field only: pose.position.x, ranges[0]
    #[arg(long, value_name = "FIELD", conflicts_with = "raw")]
    pub field: Option<String>,

    /// Show only messages for which this is true, as in holdall cat -w; m. before a field is ignored
    #[arg(long, value_name = "EXPRESSION")]
    pub filter: Option<String>,

    /// Write the serialized bytes
    #[arg(long, conflicts_with_all = ["json", "csv", "flow_style", "truncate_length", "no_arr", "no_str"])]
    pub raw: bool,

    /// Cut lists and texts after this many elements
    #[arg(short = 'l', long, value_name = "N")]
    pub truncate_length: Option<usize>,

    /// Accepted for scripts: without --truncate-length nothing is cut
    #[arg(short = 'f', long, conflicts_with = "truncate_length")]
    pub full_length: bool,

    #[command(flatten)]
    pub qos: QosArguments,

    #[command(flatten)]
    pub live: LiveArguments,
}

/// Flags of `ros2 topic echo` that have no effect here, because each publisher is received with the QoS that it offers.
#[derive(Args, Clone, Debug)]
pub struct QosArguments {
    /// Accepted for scripts; each publisher is received with the QoS that it offers
    #[arg(long, value_name = "NAME", hide = true)]
    pub qos_profile: Option<String>,

    /// The same
    #[arg(long, value_name = "N", hide = true, allow_negative_numbers = true)]
    pub qos_depth: Option<i64>,

    /// The same
    #[arg(long, value_name = "POLICY", hide = true)]
    pub qos_history: Option<String>,

    /// The same
    #[arg(long, value_name = "POLICY", hide = true)]
    pub qos_reliability: Option<String>,

    /// The same
    #[arg(long, value_name = "POLICY", hide = true)]
    pub qos_durability: Option<String>,

    /// The same
    #[arg(long, value_name = "POLICY", hide = true)]
    pub qos_liveliness: Option<String>,

    /// The same
    #[arg(long, value_name = "S", hide = true)]
    pub qos_liveliness_lease_duration_seconds: Option<String>,
}

/// What the table of `holdall top` is sorted by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum SortName {
    /// The name.
    #[default]
    Name,
    /// Messages a second, the most first.
    Hz,
    /// Bytes a second, the most first.
    Bw,
    /// Lost messages, the most first.
    Lost,
    /// Delay, the longest first.
    Delay,
}

/// All flags of `holdall top`.
#[derive(Args, Clone, Debug)]
pub struct TopArguments {
    /// Show what the recorder with this --control-socket receives
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,

    /// Show only topics whose name contains this pattern
    #[arg(short = 'e', long, value_name = "REGEX")]
    pub regex: Option<String>,

    /// Show hidden topics too
    #[arg(long)]
    pub include_hidden_topics: bool,

    /// Sort by this column
    #[arg(long, value_name = "KEY", default_value = "name")]
    pub sort: SortName,

    /// Write one table to standard output, after three seconds or --duration
    #[arg(long)]
    pub once: bool,

    #[command(flatten)]
    pub live: LiveArguments,
}
