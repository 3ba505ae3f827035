//! The arguments of `holdall plot`.

use super::choice::{CLOCKS, DefinitionArguments};
use crate::units;
use clap::Args;
use holdall::{decode::TimeBase, reader::Moment};
use holdall_program::names::one_of;
use std::{path::PathBuf, time::Duration};

/// Shown below `-h` and `--help`.
pub const EXAMPLES: &str = "\
Examples:
  holdall plot lab -o lab.html            a page: all topics, losses, periods and sizes over time, with zoom
  holdall plot lab -t /imu.linear_acceleration.z -t '/odom: abs(twist.twist.linear.x)' -o speed.svg
                                          two values over time, and their topics
  holdall plot lab -t /camera/image_raw -o camera.png
                                          one topic
  holdall plot lab --start 60 --end 70 -o ten-seconds.html";

/// All flags of `holdall plot`.
#[derive(Args, Clone, Debug)]
pub struct PlotArguments {
    /// Bag directories or single storage files, - for one on standard input
    #[arg(value_name = "BAG", required = true)]
    pub bags: Vec<PathBuf>,

    /// Draw this topic, or a value of its messages: /imu.linear_acceleration.z, '/imu: abs(linear_acceleration.z) - 9.81' (as in holdall cat -w);
    /// may be given several times [default: all topics]
    #[arg(short = 't', long = "topics", alias = "topic", value_name = "TOPIC", num_args = 1..)]
    pub wanted: Vec<String>,

    /// The picture: .html, .svg or .png
    #[arg(short = 'o', long, value_name = "PATH")]
    pub output: PathBuf,

    /// The clock of the horizontal axis: when messages were received, when they were sent, or the stamp in their header
    #[arg(long, value_name = "CLOCK", value_parser = one_of(CLOCKS))]
    pub time: Option<TimeBase>,

    /// Begin at this time: seconds after the first message (10), a time (@1700000000.25, 2026-11-25T12:03:11) or marker:NAME
    #[arg(long, value_name = "TIME", value_parser = units::parse_moment, conflicts_with = "start_offset")]
    pub start: Option<Moment>,

    /// End at this time, in the format of --start
    #[arg(long, value_name = "TIME", value_parser = units::parse_moment, conflicts_with = "duration")]
    pub end: Option<Moment>,

    /// Leave out the first S seconds
    #[arg(long, value_name = "S", default_value = "0", value_parser = units::parse_seconds)]
    pub start_offset: Duration,

    /// Draw this many seconds
    #[arg(long, value_name = "S", value_parser = units::parse_seconds)]
    pub duration: Option<Duration>,

    /// Places of definitions that the bag lacks
    #[command(flatten)]
    pub definitions: DefinitionArguments,

    /// Overwrite an existing file
    #[arg(long)]
    pub overwrite: bool,
}
