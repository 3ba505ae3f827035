//! The arguments of `holdall bridge`, `holdall serve` and `holdall web`: live topics, and bags, for viewers and browsers.

use super::{
    LogLevel, TransportName, choice::DefinitionArguments, console::ConsoleArguments, play::PlayArguments,
};
use clap::Args;
use holdall_web::{ViewerOrigin, foxglove::DEFAULT_FOXGLOVE, parse_address};
use std::{net::SocketAddr, path::PathBuf};

/// Shown below `-h` and `--help`.
pub const BRIDGE_EXAMPLES: &str = "\
Examples:
  holdall bridge                           all topics, on port 8765; the log has the link
  holdall bridge --foxglove 0.0.0.0:8765   for other machines
  holdall bridge --foxglove-control        viewers may also publish, call services and set parameters
  holdall bridge -e ^/camera               topics that begin with /camera";

/// Shown below `-h` and `--help`.
pub const SERVE_EXAMPLES: &str = "\
Examples:
  holdall serve lab                        a bag on port 8765; the viewer's timeline plays and seeks
  holdall serve lab --topics /tf /scan     two of its topics";

/// Shown below `-h` and `--help`.
pub const WEB_EXAMPLES: &str = "\
Examples:
  holdall web                            the bags of this folder, on port 8890; the log has the link
  holdall web /data/bags 0.0.0.0:8890    for other machines
  holdall web 9000 /data/bags            on another port; either comes first";

/// Access to the ports for browsers and viewers.
#[derive(Args, Clone, Debug, Default)]
pub struct AccessArguments {
    /// Keep the token of the links in this file, for Prometheus and bookmarks
    ///
    /// Every link has a token, and requests without it are refused: a new token at each start, or the one in this file. The file is created
    /// when it does not exist; only this user may be able to read it.
    #[arg(long, value_name = "PATH")]
    pub token_file: Option<PathBuf>,

    /// Let pages of this origin connect as viewers; may be given several times
    ///
    /// Foxglove's own page, the desktop programs of Foxglove and Lichtblick, and other programs do not need this. For a Lichtblick that you serve
    /// yourself: http://localhost:8080
    #[arg(long, value_name = "ORIGIN", action = clap::ArgAction::Append)]
    pub foxglove_origin: Vec<ViewerOrigin>,
}

/// All flags of `holdall web`.
#[derive(Args, Clone, Debug)]
pub struct WebArguments {
    /// Folder of bags, also in a bucket (s3://bucket/bags) [default: this one], and where browsers connect, by the link that is logged [default: 127.0.0.1:8890], in either order
    #[arg(value_name = "PATH|ADDR:PORT", num_args = 0..=2)]
    pub place: Vec<PathBuf>,

    /// Where viewers connect while the page plays a bag
    #[arg(long, value_name = "ADDR:PORT", default_value = DEFAULT_FOXGLOVE, value_parser = parse_address)]
    pub foxglove: SocketAddr,

    #[command(flatten)]
    pub access: AccessArguments,

    /// Transports that the page plays bags over and listens to; may be given several times
    #[arg(long, value_name = "TRANSPORT", action = clap::ArgAction::Append)]
    pub transport: Vec<TransportName>,

    /// Let the page rename, label, delete and upload bags
    #[arg(long)]
    pub allow_changes: bool,

    /// Lowest severity to log
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    pub log_level: LogLevel,
}

/// All flags of `holdall bridge`.
#[derive(Args, Clone, Debug)]
pub struct BridgeArguments {
    /// Where viewers connect
    #[arg(long, value_name = "ADDR:PORT", default_value = DEFAULT_FOXGLOVE, value_parser = parse_address)]
    pub foxglove: SocketAddr,

    #[command(flatten)]
    pub access: AccessArguments,

    /// Let viewers publish, call services, read and set parameters
    #[arg(long)]
    pub foxglove_control: bool,

    /// Let viewers fetch meshes and images of the packages in AMENT_PREFIX_PATH (package://arm/meshes/hand.dae), for a robot's description
    #[arg(long)]
    pub foxglove_assets: bool,

    /// Show viewers the time of /clock, as nodes with use_sim_time do
    #[arg(long)]
    pub use_sim_time: bool,

    /// Show these topics only
    #[arg(long, value_name = "TOPIC", num_args = 1..)]
    pub topics: Vec<String>,

    /// Show only topics whose name contains this pattern
    #[arg(short = 'e', long, value_name = "REGEX")]
    pub regex: Option<String>,

    /// Leave out topics whose name contains this pattern
    #[arg(short = 'x', long, value_name = "REGEX")]
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

    /// Enclave of the node in a secured domain (SROS 2); `ROS_SECURITY_ENCLAVE_OVERRIDE` overrides it
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

    #[command(flatten)]
    pub access: AccessArguments,

    /// Places of definitions that the bags lack
    #[command(flatten)]
    pub definitions: DefinitionArguments,

    /// Show these topics only
    #[arg(long, value_name = "TOPIC", num_args = 1..)]
    pub topics: Vec<String>,

    /// Speed at the beginning
    #[arg(short = 'r', long, value_name = "FACTOR", default_value = "1.0", value_parser = crate::units::parse_factor)]
    pub rate: f64,

    /// Begin again at the end
    #[arg(short = 'l', long = "loop")]
    pub r#loop: bool,

    /// Play at once; otherwise a viewer or SPACE starts it
    #[arg(long)]
    pub play: bool,

    #[command(flatten)]
    pub console: ConsoleArguments,
}

impl ServeArguments {
    /// The same as a playback that stays, and has viewers only.
    pub fn as_play(&self) -> PlayArguments {
        PlayArguments {
            topics: self.topics.clone(),
            rate: self.rate,
            r#loop: self.r#loop,
            start_paused: !self.play,
            foxglove: Some(self.foxglove),
            access: self.access.clone(),
            definitions: self.definitions.clone(),
            viewers_only: true,
            console: self.console.clone(),
            ..lasting(self.bags.clone())
        }
    }
}

/// A playback that stays after its end, so that it can be played again.
pub fn lasting(bags: Vec<PathBuf>) -> PlayArguments {
    PlayArguments {
        bags,
        rate: 1.0,
        persistent: true,
        node_name: "rosbag2_player".to_owned(),
        read_ahead_queue_size: 1000,
        progress_bar_update_rate: 10,
        ..PlayArguments::default()
    }
}
