//! The arguments of `holdall preflight`: those of `record`, and the length of the trial.

use super::record::RecordArguments;
use crate::units;
use clap::{ArgMatches, Args, Command, FromArgMatches};
use std::{ops::Deref, time::Duration};

/// Shown below `-h` and `--help`.
pub const EXAMPLES: &str = "\
Examples:
  holdall preflight -a                    records into a scratch bag for a minute, and reports whether a recording would fit
  holdall preflight -a --duration 10 --for 2h -o /data/run7
                                          ten seconds, for a recording of two hours to that disk
  holdall preflight --topics /camera /imu --json > preflight.json
  holdall preflight -a --profile robot.yaml
                                          with the settings of holdall record";

/// Shown below `--help`.
pub const NOTES: &str = "\
A trial with the real recorder: its scratch bag is in the folder of the later bag, uses at most three sixteenths of the free space (and 768MiB), and is removed.
Then the disk alone is measured, with at most 512MiB. All flags of holdall record apply; those for the end and for events have no effect.

Exit codes:
  0  it fits
  1  failed
  2  refused before anything was done
  3  messages will be missing: the report says why, and what to change";

/// Flags of `record` that mean nothing here, or something else.
const HIDDEN: [&str; 24] = [
    "max_bag_duration",
    "max_bag_files",
    "max_bag_size",
    "separate",
    "separate_above",
    "ring",
    "lane",
    "max_recording_duration",
    "max_recording_size",
    "max_recording_messages",
    "start_paused",
    "print_profile",
    "preflight",
    "control_socket",
    "metrics_file",
    "on_file_closed",
    "alarm",
    "on_alarm",
    "diagnostics",
    "restart_on_stall",
    "web",
    "foxglove",
    "trigger",
    "disable_keyboard_controls",
];

/// The flags of `record`, without those that mean nothing here.
#[derive(Clone, Debug, Default)]
pub struct RecordFlags(RecordArguments);

impl Deref for RecordFlags {
    type Target = RecordArguments;

    fn deref(&self) -> &RecordArguments {
        &self.0
    }
}

impl FromArgMatches for RecordFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        RecordArguments::from_arg_matches(matches).map(Self)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.0.update_from_arg_matches(matches)
    }
}

impl Args for RecordFlags {
    fn augment_args(command: Command) -> Command {
        let hide = |command: Command, name: &&str| command.mut_arg(*name, |argument| argument.hide(true));
        HIDDEN.iter().fold(RecordArguments::augment_args(command), hide)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

/// All flags of `holdall preflight`.
#[derive(Args, Clone, Debug)]
pub struct PreflightArguments {
    /// Record for this long, in seconds
    #[arg(long, value_name = "S", default_value = "60", value_parser = units::parse_seconds, help_heading = "Trial")]
    pub duration: Duration,

    /// Planned length of the recording, for example 2h, to report whether the disk has room for it
    #[arg(long = "for", value_name = "SPAN", value_parser = units::parse_seconds, help_heading = "Trial")]
    pub planned: Option<Duration>,

    #[command(flatten)]
    pub record: RecordFlags,
}
