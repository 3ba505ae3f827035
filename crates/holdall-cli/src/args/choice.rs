//! The arguments that choose messages of bags: shared by the verbs that read inside messages.

use crate::units;
use clap::Args;
use holdall::{decode::TimeBase, reader::Moment};
use holdall_program::names::{Words, one_of};
use std::{path::PathBuf, time::Duration};

/// Places of definitions that a bag lacks.
#[derive(Args, Clone, Debug, Default)]
pub struct DefinitionArguments {
    /// Folders with the .msg files of types that the bag does not define: packages, a workspace, an installation, or the files alone; may be given
    /// several times. After them AMENT_PREFIX_PATH is searched
    #[arg(
        long = "definitions",
        value_name = "FOLDER",
        action = clap::ArgAction::Append,
        help_heading = "Which messages"
    )]
    pub folders: Vec<PathBuf>,
}

/// The clocks of messages.
pub const CLOCKS: Words<TimeBase> = &[
    (
        TimeBase::LogTime.as_str(),
        "When they were received",
        TimeBase::LogTime,
    ),
    (
        TimeBase::PublishTime.as_str(),
        "When they were sent",
        TimeBase::PublishTime,
    ),
    (
        TimeBase::HeaderStamp.as_str(),
        "The stamp in their header; messages without one are left out",
        TimeBase::HeaderStamp,
    ),
];

/// Flags that choose messages.
#[derive(Args, Clone, Debug, Default)]
pub struct ChoiceArguments {
    /// Bag directories or single storage files, - for one on standard input; several are merged by time
    #[arg(value_name = "BAG", required = true, help_heading = "Which messages")]
    pub bags: Vec<PathBuf>,

    /// Only these topics
    #[arg(short = 't', long, value_name = "TOPIC", num_args = 1.., help_heading = "Which messages")]
    pub topics: Vec<String>,

    /// Only topics whose name contains this pattern
    #[arg(short = 'e', long, value_name = "REGEX", help_heading = "Which messages")]
    pub regex: Option<String>,

    /// Leave out these topics
    #[arg(long, value_name = "TOPIC", num_args = 1.., help_heading = "Which messages")]
    pub exclude_topics: Vec<String>,

    /// Leave out topics whose name contains this pattern
    #[arg(short = 'x', long, value_name = "REGEX", help_heading = "Which messages")]
    pub exclude_regex: Option<String>,

    /// Only topics of these types
    #[arg(long, value_name = "TYPE", num_args = 1.., help_heading = "Which messages")]
    pub topic_types: Vec<String>,

    /// Only messages of this topic for which the expression is true, and all messages of topics that are named; may be given for several topics
    #[arg(
        short = 'w',
        long = "where",
        value_name = "TOPIC: EXPRESSION",
        help_heading = "Which messages"
    )]
    pub questions: Vec<String>,

    /// The clock for the order of messages and for the times below: when they were received, when they were sent, or the stamp in their header
    /// [default: log_time]
    #[arg(long, value_name = "CLOCK", value_parser = one_of(CLOCKS), help_heading = "Which messages")]
    pub time: Option<TimeBase>,

    /// Skip messages before this time: seconds after the first message (10), a time (@1700000000.25, 2026-11-25T12:03:11) or marker:NAME
    #[arg(long, value_name = "TIME", value_parser = units::parse_moment, help_heading = "Which messages")]
    pub start: Option<Moment>,

    /// Skip messages after this time, in the format of --start
    #[arg(long, value_name = "TIME", value_parser = units::parse_moment, help_heading = "Which messages")]
    pub end: Option<Moment>,

    /// Skip the beginning of the bag, in seconds
    #[arg(long, value_name = "S", default_value = "0", value_parser = units::parse_seconds, help_heading = "Which messages")]
    pub start_offset: Duration,

    /// Stop after this many seconds from there
    #[arg(long, value_name = "S", value_parser = units::parse_seconds, help_heading = "Which messages")]
    pub duration: Option<Duration>,

    /// Places of definitions that the bag lacks
    #[command(flatten)]
    pub definitions: DefinitionArguments,

    /// At most this many messages
    #[arg(short = 'n', long, value_name = "N", value_parser = units::parse_count, help_heading = "Which messages")]
    pub count: Option<u64>,
}
