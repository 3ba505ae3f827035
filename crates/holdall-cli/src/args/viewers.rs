//! The arguments of `holdall bridge` and `holdall serve`: live topics, and bags, for viewers.

use super::{LogLevel, TransportName, console::ConsoleArguments, play::PlayArguments};
use clap::Args;
use holdall_web::{foxglove::DEFAULT_FOXGLOVE, parse_address};
use std::{net::SocketAddr, path::PathBuf};

/// Shown below `-h` and `--help`.
pub const BRIDGE_EXAMPLES: &str = "\
Examples:
  holdall bridge                           all topics, on ws://127.0.0.1:8765
  holdall bridge --foxglove 0.0.0.0:8765   for other machines, by the link with a token
  holdall bridge -e ^/camera               topics that begin with /camera";

/// Shown below `-h` and `--help`.
pub const SERVE_EXAMPLES: &str = "\
Examples:
  holdall serve lab                        a bag on ws://127.0.0.1:8765; the viewer's timeline plays and seeks
  holdall serve lab --topics /tf /scan     two of its topics";

/// All flags of `holdall bridge`.
#[derive(Args, Clone, Debug)]
pub struct BridgeArguments {
    /// Where viewers connect
    #[arg(long, value_name = "ADDR:PORT", default_value = DEFAULT_FOXGLOVE, value_parser = parse_address)]
    pub foxglove: SocketAddr,

    /// Show these topics only
    #[arg(long, value_name = "TOPIC", num_args = 1..)]
    pub topics: Vec<String>,

    /// Show topics whose name this expression finds
    #[arg(short = 'e', long, value_name = "REGEX")]
    pub regex: Option<String>,

    /// Leave out topics whose name this expression finds
    #[arg(long, value_name = "REGEX")]
    pub exclude_regex: Option<String>,

    /// Show hidden topics too
    #[arg(long)]
    pub include_hidden_topics: bool,

    /// Transports to discover; may be given several times
    #[arg(long, value_name = "TRANSPORT", action = clap::ArgAction::Append)]
    pub transport: Vec<TransportName>,

    /// The node's name
    #[arg(long, value_name = "NAME", default_value = "holdall_bridge")]
    pub node_name: String,

    /// Enclave of the node in a secured domain (SROS 2); `ROS_SECURITY_ENCLAVE_OVERRIDE` comes before it
    #[arg(long, value_name = "NAME")]
    pub enclave: Option<String>,

    /// Lowest severity to log
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    pub log_level: LogLevel,
}

/// All flags of `holdall serve`.
#[derive(Args, Clone, Debug)]
pub struct ServeArguments {
    /// Bag directories or single storage files
    #[arg(value_name = "BAG", required = true)]
    pub bags: Vec<PathBuf>,

    /// Where viewers connect
    #[arg(long, value_name = "ADDR:PORT", default_value = DEFAULT_FOXGLOVE, value_parser = parse_address)]
    pub foxglove: SocketAddr,

    /// Show these topics only
    #[arg(long, value_name = "TOPIC", num_args = 1..)]
    pub topics: Vec<String>,

    /// Speed at the beginning
    #[arg(short = 'r', long, value_name = "X", default_value = "1.0")]
    pub rate: f64,

    /// Begin again at the end
    #[arg(short = 'l', long = "loop")]
    pub r#loop: bool,

    /// Play at once; otherwise a viewer or SPACE does
    #[arg(long)]
    pub play: bool,

    #[command(flatten)]
    pub console: ConsoleArguments,
}

impl ServeArguments {
    /// The same as a playback that stays, and has viewers only.
    pub fn as_play(&self) -> PlayArguments {
        PlayArguments {
            bags: self.bags.clone(),
            topics: self.topics.clone(),
            rate: self.rate,
            r#loop: self.r#loop,
            start_paused: !self.play,
            persistent: true,
            foxglove: Some(self.foxglove),
            viewers_only: true,
            console: self.console.clone(),
            node_name: "rosbag2_player".to_owned(),
            read_ahead_queue_size: 1000,
            progress_bar_update_rate: 10,
            ..PlayArguments::default()
        }
    }
}
