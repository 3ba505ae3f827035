//! The arguments of `holdall audit`.

use clap::Args;
use std::path::PathBuf;

/// Shown below `-h` and `--help`.
pub const EXAMPLES: &str = "\
Examples:
  holdall audit lab                         reads the whole bag; reports what is lost, and whether the account adds up
  holdall audit lab && rm -r /robot/lab     only when no loss is known
  holdall audit --json lab | jq .lost.by_topic";

const EXIT_CODES: &str = "\
Exit codes:
  0  every message known to be sent is in the bag
  1  the account does not add up, or the bag cannot be read
  2  wrong usage, or a bag without an account: another recorder wrote it
  3  the account adds up, and messages are lost (or the recording was cut off, so that its last losses are not known)";

/// Shown below `--help`.
pub fn after_long_help() -> String {
    format!("{EXAMPLES}\n\n{EXIT_CODES}")
}

/// All flags of `holdall audit`.
#[derive(Args, Clone, Debug)]
pub struct AuditArguments {
    /// Bag directory or single storage file, - for one on standard input
    #[arg(value_name = "BAG")]
    pub bag: PathBuf,

    /// One JSON object, with each publisher's account
    #[arg(long)]
    pub json: bool,
}
