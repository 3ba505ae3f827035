//! The arguments of programs that run until they are ended: keys, log, report.

use super::LogLevel;
use clap::Args;

/// Flags for what a running verb reads from the terminal and writes to it.
#[derive(Args, Clone, Debug, Default)]
pub struct ConsoleArguments {
    /// Disable keyboard controls
    #[arg(long, help_heading = "While it runs")]
    pub disable_keyboard_controls: bool,

    /// Lowest severity to log
    #[arg(
        long,
        value_name = "LEVEL",
        default_value = "info",
        help_heading = "While it runs"
    )]
    pub log_level: LogLevel,

    /// Show a table of all topics at the end
    #[arg(short = 'v', long, help_heading = "While it runs")]
    pub verbose: bool,

    /// Write the final report to standard output as one JSON object
    #[arg(long, help_heading = "While it runs")]
    pub json: bool,
}
