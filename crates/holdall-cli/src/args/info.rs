//! The arguments of `holdall info`.

use super::known::Known;
use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// Shown below `-h` and `--help`.
pub const EXAMPLES: &str = "\
Examples:
  holdall info lab                        what it is, its topics, what was lost, and what to do
  holdall info --ros lab                  the lines of `ros2 bag info`, as in a pipe
  holdall info lab/lab_3.mcap             a single storage file
  holdall info -v lab                     reads all messages: bytes of each topic
  holdall info --timeline lab             when each topic has messages, as lanes
  holdall info --json lab | jq .message_count";

/// By what topics are sorted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Sort {
    /// By name.
    #[default]
    Name,
    /// By type.
    Type,
    /// By number of messages.
    Count,
}

/// All flags of `holdall info`.
#[derive(Args, Clone, Debug)]
pub struct InfoArguments {
    /// Bag directory or single storage file, - for one on standard input
    #[arg(value_name = "BAG")]
    pub bag: PathBuf,

    /// Storage of the bag, as for `ros2 bag info`; it is recognized in any case
    #[arg(short = 's', long, value_name = "ID", value_parser = Known::storages(), hide_possible_values = true)]
    pub storage: Option<String>,

    /// Show topic names only
    #[arg(short = 't', long, conflicts_with_all = ["verbose", "json"])]
    pub topic_name: bool,

    /// Read all messages and show how much each topic contributes, and who published what
    #[arg(short = 'v', long)]
    pub verbose: bool,

    /// Read all messages, and draw when each topic has messages and where the markers are
    #[arg(long, conflicts_with_all = ["topic_name", "json"])]
    pub timeline: bool,

    /// Order of topics and services
    #[arg(long, value_name = "KEY", default_value = "name")]
    pub sort: Sort,

    /// Show the lines of `ros2 bag info`, as in a pipe
    #[arg(long, conflicts_with_all = ["topic_name", "json"])]
    pub ros: bool,

    /// One JSON object with the names of rosbag2's metadata
    #[arg(long)]
    pub json: bool,
}
