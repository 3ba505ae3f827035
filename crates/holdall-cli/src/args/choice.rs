//! The arguments that choose messages of bags: shared by the verbs that read inside messages.

use crate::units;
use clap::Args;
use std::{path::PathBuf, time::Duration};

/// Flags that choose messages.
#[derive(Args, Clone, Debug, Default)]
pub struct ChoiceArguments {
    /// Bag directories or single storage files, - for one on standard input; several are merged by time
    #[arg(value_name = "BAG", required = true, help_heading = "Which messages")]
    pub bags: Vec<PathBuf>,

    /// These topics only
    #[arg(short = 't', long, value_name = "TOPIC", num_args = 1.., help_heading = "Which messages")]
    pub topics: Vec<String>,

    /// Topics only whose whole name matches this pattern
    #[arg(short = 'e', long, value_name = "PATTERN", help_heading = "Which messages")]
    pub regex: Option<String>,

    /// Leave out these topics
    #[arg(long, value_name = "TOPIC", num_args = 1.., help_heading = "Which messages")]
    pub exclude_topics: Vec<String>,

    /// Leave out topics whose whole name matches this pattern
    #[arg(short = 'x', long, value_name = "PATTERN", help_heading = "Which messages")]
    pub exclude_regex: Option<String>,

    /// Topics of these types only
    #[arg(long, value_name = "TYPE", num_args = 1.., help_heading = "Which messages")]
    pub topic_types: Vec<String>,

    /// Only messages of this topic for which the expression is true; may be given for several topics
    #[arg(
        short = 'w',
        long = "where",
        value_name = "TOPIC: EXPRESSION",
        help_heading = "Which messages"
    )]
    pub questions: Vec<String>,

    /// Skip messages before this time, in seconds since 1970 (1700000000.25)
    #[arg(long, value_name = "S", value_parser = units::parse_instant, help_heading = "Which messages")]
    pub start: Option<i64>,

    /// Skip messages after this time, in seconds since 1970
    #[arg(long, value_name = "S", value_parser = units::parse_instant, help_heading = "Which messages")]
    pub end: Option<i64>,

    /// Skip the beginning of the bag, in seconds
    #[arg(long, value_name = "S", default_value = "0", value_parser = units::parse_seconds, help_heading = "Which messages")]
    pub start_offset: Duration,

    /// Stop after this many seconds from there
    #[arg(long, value_name = "S", value_parser = units::parse_seconds, help_heading = "Which messages")]
    pub duration: Option<Duration>,

    /// At most this many messages
    #[arg(short = 'n', long, value_name = "N", help_heading = "Which messages")]
    pub count: Option<u64>,
}
