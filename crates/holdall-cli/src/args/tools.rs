//! The arguments of the verbs that work on bags.

use super::{choice::DefinitionArguments, known::Known};
use crate::units;
use clap::{Args, Subcommand, ValueEnum};
use holdall::{reader::Moment, tools::Shift, writer::CompressionMode};
use holdall_program::names::{Words, one_of};
use std::{path::PathBuf, time::Duration};

/// Shown below `holdall convert --help`.
pub const CONVERT_EXAMPLES: &str = "\
Examples:
  holdall convert old_sqlite_bag -o new -s mcap             another storage
  holdall convert lab -o lab_zstd --compression zstd        compressed chunks
  holdall convert a b -o both -d 60 --topics /imu /tf       merged, split each minute, two topics
  holdall convert ros1.bag -o ros2                          a ROS 1 bag, its messages as those of ROS 2
  holdall convert -i a -i b sqlite3 -o output_options.yaml  as `ros2 bag convert`: the file names the outputs";

/// Shown below `holdall merge --help`.
pub const MERGE_EXAMPLES: &str = "\
Examples:
  holdall merge robot_a robot_b -o both                     one bag in time order; chunks are copied unchanged
  holdall merge lab/lab_3.mcap lab/lab_4.mcap -o part       single files too";

/// Shown below `holdall split --help`.
pub const SPLIT_EXAMPLES: &str = "\
Examples:
  holdall split lab -o lab_parts -d 60                      files of one minute
  holdall split lab -o lab_parts -b 1GB                     files of at most 1 GB
  holdall split lab -o lab_parts --max-bag-messages 100000  files of 100 000 messages
  holdall split lab -o lab_parts --at 30 90               cut 30 s and 90 s after the first message";

/// Shown below `holdall filter --help`.
pub const FILTER_EXAMPLES: &str = "\
Examples:
  holdall filter lab -o imu --topics /imu /tf               two topics
  holdall filter lab -o cut --start 10 --end 20           ten seconds
  holdall filter lab -o slow --max-rate /camera=1 --max-rate 10
                                                            1 Hz of the camera, 10 Hz of all others
  holdall filter lab -o front --publisher /front/camera     what one node had published
  holdall filter lab -o fast -w '/odom: twist.twist.linear.x > 2'
  holdall filter lab -o new --rename /scan:=/front/scan --frame laser:=front_laser
  holdall filter lab -o new --shift-time -2h
  holdall promote ring -o event --from @1700000000 --to @1700000060    a part of the ring that is being recorded
  holdall filter lab -o new --set '/tf: transforms[*].header.frame_id = \"map\"'";

/// Shown below `holdall reindex --help`.
pub const REINDEX_EXAMPLES: &str = "\
Example:
  holdall reindex lab                                       metadata.yaml from the content of the files";

/// Shown below `holdall list --help`.
pub const LIST_EXAMPLES: &str = "\
Examples:
  holdall list storages
  holdall list topics lab
  holdall list chunks --json lab | jq 'select(.compression == \"\")'";

/// Shown below `holdall man --help`.
pub const MAN_EXAMPLES: &str = "\
Examples:
  holdall man | man -l -                                    read the page of holdall
  holdall man convert | man -l -                            the page of one verb
  holdall man --dir ~/.local/share/man/man1                 write all pages";

/// Which messages go into the output.
#[derive(Args, Clone, Debug, Default)]
pub struct SelectionArguments {
    /// These topics
    #[arg(long, value_name = "TOPIC", num_args = 1.., help_heading = "Which messages")]
    pub topics: Vec<String>,

    /// Topics of these types
    #[arg(long, alias = "types", value_name = "TYPE", num_args = 1.., help_heading = "Which messages")]
    pub topic_types: Vec<String>,

    /// The service events of these services
    #[arg(long, value_name = "SERVICE", num_args = 1.., help_heading = "Which messages")]
    pub services: Vec<String>,

    /// Topics and services whose name contains this pattern
    #[arg(short = 'e', long, value_name = "REGEX", help_heading = "Which messages")]
    pub regex: Option<String>,

    /// Leave out these topics
    #[arg(long, value_name = "TOPIC", num_args = 1.., help_heading = "Which messages")]
    pub exclude_topics: Vec<String>,

    /// Leave out topics of these types
    #[arg(long, value_name = "TYPE", num_args = 1.., help_heading = "Which messages")]
    pub exclude_topic_types: Vec<String>,

    /// Leave out the service events of these services
    #[arg(long, value_name = "SERVICE", num_args = 1.., help_heading = "Which messages")]
    pub exclude_services: Vec<String>,

    /// Leave out topics and services whose name contains this pattern
    #[arg(short = 'x', long, value_name = "REGEX", help_heading = "Which messages")]
    pub exclude_regex: Option<String>,

    /// Messages of these publishers: a node (/ns/name or name), the beginning of an identifier, or a host, as `info -v` lists them
    #[arg(long, value_name = "PUBLISHER", num_args = 1.., help_heading = "Which messages")]
    pub publisher: Vec<String>,

    /// Skip messages before this time: seconds after the first message (10), a time (@1700000000.25, 2026-11-25T12:03:11) or marker:NAME
    #[arg(long, alias = "from", value_name = "TIME", value_parser = units::parse_moment, help_heading = "Which messages")]
    pub start: Option<Moment>,

    /// Skip messages after this time, in the format of --start
    #[arg(long, alias = "to", value_name = "TIME", value_parser = units::parse_moment, help_heading = "Which messages")]
    pub end: Option<Moment>,

    /// Keep at most this many messages a second of one topic, or of each topic that has no other limit
    #[arg(long = "max-rate", value_name = "[TOPIC=]HZ", help_heading = "Which messages")]
    pub rates: Vec<String>,

    /// Only messages of this topic for which the expression is true; may be given for several topics
    #[arg(
        short = 'w',
        long = "where",
        value_name = "TOPIC: EXPRESSION",
        help_heading = "Which messages"
    )]
    pub questions: Vec<String>,
}

/// How chunks of MCAP files are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Codec {
    /// No compression.
    None,
    /// Fast, lower ratio.
    Lz4,
    /// Slower, higher ratio.
    Zstd,
}

/// How much effort compression takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Level {
    /// zstd -5, lz4 fast.
    Fastest,
    /// zstd -3.
    Fast,
    /// zstd 1.
    Default,
    /// zstd 5, lz4 high compression.
    Slow,
    /// zstd 19, lz4 highest compression.
    Slowest,
}

/// What rosbag2's own compression packs.
const PACK_MODES: Words<CompressionMode> = &[
    ("none", "No compression", CompressionMode::None),
    ("file", "Each storage file", CompressionMode::File),
    ("message", "Each message", CompressionMode::Message),
];

/// Where the output goes and how it is written.
#[derive(Args, Clone, Debug, Default)]
pub struct OutputArguments {
    /// Storage of the output [default: that of the inputs]
    #[arg(short = 's', long, value_name = "ID", help_heading = "Output", value_parser = Known::storages(), hide_possible_values = true)]
    pub storage: Option<String>,

    /// Preset of the storage, as for `holdall record`
    #[arg(long, value_name = "PRESET", help_heading = "Output", value_parser = Known::presets(), hide_possible_values = true)]
    pub storage_preset_profile: Option<String>,

    /// YAML file with settings of the storage; they override the preset
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub storage_config_file: Option<PathBuf>,

    /// How chunks of an MCAP output are compressed [default: as in the inputs]
    #[arg(long, value_name = "CODEC", help_heading = "Output")]
    pub compression: Option<Codec>,

    /// Compression level
    #[arg(long, value_name = "LEVEL", requires = "compression", help_heading = "Output")]
    pub level: Option<Level>,

    /// rosbag2's own compression (zstd) around the storage
    #[arg(long, value_name = "MODE", value_parser = one_of(PACK_MODES), help_heading = "Output")]
    pub compression_mode: Option<CompressionMode>,

    /// Do not repeat the latched messages (/tf_static, /map) at the beginning of a file that begins after the first message
    #[arg(long, help_heading = "Output")]
    pub no_latched_state: bool,

    /// Store these key=value pairs in custom_data of metadata.yaml
    #[arg(long, value_name = "KEY=VALUE", num_args = 1.., help_heading = "Output")]
    pub custom_data: Vec<String>,

    /// Places of definitions that the inputs lack
    #[command(flatten)]
    pub definitions: DefinitionArguments,

    /// Encrypt the output, as for `holdall record`: a public key (age1..., ssh-ed25519 ..., ssh-rsa ...), or a file of these; may be given several times
    #[arg(long, value_name = "RECIPIENT", action = clap::ArgAction::Append, help_heading = "Output")]
    pub encrypt_to: Vec<String>,

    /// Print a report as one JSON object
    #[arg(long, help_heading = "Output")]
    pub json: bool,
}

/// Changes to messages while they are copied.
#[derive(Args, Clone, Debug, Default)]
pub struct ChangeArguments {
    /// Give this field of a topic's messages another value, written as JSON; elements of lists as [0], [-1] or [*] for all; may be given several times
    #[arg(
        long = "set",
        value_name = "TOPIC: FIELD = VALUE",
        help_heading = "What is changed"
    )]
    pub changes: Vec<String>,

    /// Give a topic, a service or an action another name; may be given several times
    #[arg(long, value_name = "OLD:=NEW", num_args = 1.., help_heading = "What is changed")]
    pub rename: Vec<String>,

    /// Give a coordinate frame another name, in every frame_id and child_frame_id; may be given several times
    #[arg(long, value_name = "OLD:=NEW", num_args = 1.., help_heading = "What is changed")]
    pub frame: Vec<String>,

    /// Move the stamps of all messages by this many seconds, or 90min, -2h; stamps within messages stay unchanged
    #[arg(long, value_name = "S", default_value = "0", allow_hyphen_values = true, value_parser = units::parse_shift, help_heading = "What is changed")]
    pub shift_time: Shift,
}

/// Where the output continues in a new file.
#[derive(Args, Clone, Debug, Default)]
pub struct DivisionArguments {
    /// Split after this many bytes
    #[arg(short = 'b', long, value_name = "SIZE", value_parser = units::parse_bytes, help_heading = "Files")]
    pub max_bag_size: Option<u64>,

    /// Split after this span, in seconds
    #[arg(short = 'd', long, value_name = "S", value_parser = units::parse_seconds, help_heading = "Files")]
    pub max_bag_duration: Option<Duration>,

    /// Split after this many messages
    #[arg(long = "max-bag-messages", value_name = "N", value_parser = clap::value_parser!(u64).range(1..), help_heading = "Files")]
    pub count: Option<u64>,

    /// Split at these times: seconds after the first message (10), times (@1700000000.25, 2026-11-25T12:03:11) or marker:NAME
    #[arg(long, value_name = "TIME", num_args = 1.., value_parser = units::parse_moment, help_heading = "Files")]
    pub at: Vec<Moment>,

    /// Split where episodes start and end: each is a file, and so is what is between them
    #[arg(long, value_name = "WHAT", value_parser = ["episode"], help_heading = "Files")]
    pub by: Option<String>,
}

/// All flags of `holdall convert`.
#[derive(Args, Clone, Debug, Default)]
pub struct ConvertArguments {
    /// Bag directories or single files, - for one on standard input; several are merged by time
    #[arg(value_name = "BAG")]
    pub bags: Vec<PathBuf>,

    /// A bag to read, as for `ros2 bag convert`; the storage id after it is optional
    #[arg(short = 'i', long = "input", value_names = ["BAG", "STORAGE"], num_args = 1..=2, action = clap::ArgAction::Append)]
    pub input: Vec<String>,

    /// YAML file that lists bags to read under input_bags
    #[arg(long, value_name = "FILE")]
    pub input_options: Option<PathBuf>,

    /// Bag directory to create, or rosbag2's YAML file that lists the bags to create under output_bags; - for one storage file on standard output
    #[arg(short = 'o', long = "output", alias = "output-options", value_name = "PATH")]
    pub output: PathBuf,

    /// How it is written.
    #[command(flatten)]
    pub how: OutputArguments,

    /// When it is divided.
    #[command(flatten)]
    pub division: DivisionArguments,

    /// Which messages.
    #[command(flatten)]
    pub selection: SelectionArguments,

    /// What is changed in them.
    #[command(flatten)]
    pub change: ChangeArguments,
}

/// All flags of `holdall merge`.
#[derive(Args, Clone, Debug)]
pub struct MergeArguments {
    /// Bag directories or single files, - for one on standard input
    #[arg(value_name = "BAG", required = true)]
    pub bags: Vec<PathBuf>,

    /// Bag directory to create; - for one storage file on standard output
    #[arg(short = 'o', long, value_name = "PATH")]
    pub output: PathBuf,

    /// How it is written.
    #[command(flatten)]
    pub how: OutputArguments,

    /// When it is divided.
    #[command(flatten)]
    pub division: DivisionArguments,
}

/// All flags of `holdall split`.
#[derive(Args, Clone, Debug)]
pub struct SplitArguments {
    /// Bag directories or single files, - for one on standard input
    #[arg(value_name = "BAG", required = true)]
    pub bags: Vec<PathBuf>,

    /// Bag directory to create; - for one storage file on standard output
    #[arg(short = 'o', long, value_name = "PATH")]
    pub output: PathBuf,

    /// When it is divided.
    #[command(flatten)]
    pub division: DivisionArguments,

    /// How it is written.
    #[command(flatten)]
    pub how: OutputArguments,
}

/// All flags of `holdall filter`.
#[derive(Args, Clone, Debug)]
pub struct FilterArguments {
    /// Bag directories or single files, - for one on standard input
    #[arg(value_name = "BAG", required = true)]
    pub bags: Vec<PathBuf>,

    /// Bag directory to create; - for one storage file on standard output
    #[arg(short = 'o', long, value_name = "PATH")]
    pub output: PathBuf,

    /// Which messages.
    #[command(flatten)]
    pub selection: SelectionArguments,

    /// What is changed in them.
    #[command(flatten)]
    pub change: ChangeArguments,

    /// How it is written.
    #[command(flatten)]
    pub how: OutputArguments,
}

/// All flags of `holdall reindex`.
#[derive(Args, Clone, Debug)]
pub struct ReindexArguments {
    /// Bag directories
    #[arg(value_name = "BAG", required = true)]
    pub bags: Vec<PathBuf>,

    /// Storage of the bags, as for `ros2 bag reindex`; it is recognized in any case
    #[arg(short = 's', long, value_name = "ID", value_parser = Known::storages(), hide_possible_values = true)]
    pub storage: Option<String>,

    /// One JSON object for each bag
    #[arg(long)]
    pub json: bool,
}

/// What `holdall list` lists.
#[derive(Clone, Debug, Subcommand)]
pub enum ListWhat {
    /// The storages, with their presets
    #[command(alias = "storage")]
    Storages {
        /// One JSON object per line
        #[arg(long)]
        json: bool,
        /// As for `ros2 bag list`; each line has everything in any case
        #[arg(short = 'v', long)]
        verbose: bool,
    },
    /// The codecs that bags can be compressed with
    #[command(alias = "codec", alias = "compressor", alias = "decompressor")]
    Codecs {
        /// One JSON object per line
        #[arg(long)]
        json: bool,
        /// As for `ros2 bag list`; each line has everything in any case
        #[arg(short = 'v', long)]
        verbose: bool,
    },
    /// The serialization formats that can be converted into each other
    #[command(alias = "converter")]
    Converters {
        /// One JSON object per line
        #[arg(long)]
        json: bool,
        /// As for `ros2 bag list`; each line has everything in any case
        #[arg(short = 'v', long)]
        verbose: bool,
    },
    /// The topics of bags
    Topics {
        /// Bag directories or single files, - for one on standard input
        #[arg(value_name = "BAG", required = true)]
        bags: Vec<PathBuf>,
        /// One JSON object per line
        #[arg(long)]
        json: bool,
    },
    /// The chunks of MCAP bags: place, size, codec, times
    Chunks {
        /// Bag directories or single files, - for one on standard input
        #[arg(value_name = "BAG", required = true)]
        bags: Vec<PathBuf>,
        /// One JSON object per line
        #[arg(long)]
        json: bool,
    },
}

/// All flags of `holdall man`.
#[derive(Args, Clone, Debug)]
pub struct ManArguments {
    /// The verb; without one, the page of holdall itself
    #[arg(value_name = "VERB", num_args = 0.., conflicts_with = "dir")]
    pub verb: Vec<String>,

    /// Write the pages of holdall and all verbs into this directory
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
}
