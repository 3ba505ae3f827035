//! The arguments of `holdall events`.

use super::choice::DefinitionArguments;
use crate::units;
use clap::Args;
use std::{path::PathBuf, time::Duration};

/// Shown below `-h` and `--help`.
pub const EXAMPLES: &str = "\
Examples:
  holdall events lab --trigger '/battery: voltage < 11.5'       what record --trigger would have caught
  holdall events runs/* --trigger '/scan silent 2s' --before 10 --after 5 --json
  holdall events lab --trigger '/imu: abs(linear_acceleration.z) > 15' --label-markers 'crash.*'
                                                                precision and recall against markers
  holdall events lab --trigger '/odom rate < 5' --labels known.txt --write-markers";

/// Shown below `--help`.
pub const NOTES: &str = "\
An event is right when what is kept for it has a label, and a label is found when it is kept for an event: precision and recall are the shares
of those. --labels takes a file with one label a line, a time or a span and a name, times as those of --start of holdall cat:

  12.5 door opens
  2026-11-25T12:03:11..2026-11-25T12:03:15 crash

A topic's last silence is seen as far as the bag has messages of other topics. Pauses of the recorder are not known here.";

/// All flags of `holdall events`.
#[derive(Args, Clone, Debug)]
pub struct EventsArguments {
    /// Bag directories or single storage files, - for one on standard input; each is a recording of its own
    #[arg(value_name = "BAG", required = true)]
    pub bags: Vec<PathBuf>,

    /// The events: those of holdall record --trigger; may be given several times
    #[arg(long, value_name = "EXPRESSION", action = clap::ArgAction::Append, required = true)]
    pub trigger: Vec<String>,

    /// How long a recorder keeps before an event, in seconds [default: 30]
    #[arg(long, value_name = "S", allow_negative_numbers = true, value_parser = units::parse_seconds)]
    pub before: Option<Duration>,

    /// How long it records after an event, in seconds [default: 10]
    #[arg(long, value_name = "S", allow_negative_numbers = true, value_parser = units::parse_seconds)]
    pub after: Option<Duration>,

    /// What is known to have happened, one label a line: precision and recall
    #[arg(long, value_name = "FILE")]
    pub labels: Option<PathBuf>,

    /// The bag's markers with such names are labels: a pattern for the whole name
    #[arg(long, value_name = "REGEX")]
    pub label_markers: Option<String>,

    /// Write the events into metadata.yaml as markers, as a recorder would have; no storage file changes
    #[arg(long)]
    pub write_markers: bool,

    /// One JSON object for each bag, one per line
    #[arg(long)]
    pub json: bool,

    /// Places of definitions that the bag lacks
    #[command(flatten)]
    pub definitions: DefinitionArguments,
}
