//! The arguments of `holdall ps`.

use clap::Args;

/// Shown below `-h` and `--help`.
pub const EXAMPLES: &str = "\
Examples:
  holdall ps                              what records and plays, how much, and what was lost
  holdall ps --json | jq .status.bag
  holdall control status                  asks the only one; holdall control PATH status one of several";

/// All flags of `holdall ps`.
#[derive(Args, Clone, Debug)]
pub struct PsArguments {
    /// One JSON object for each, one per line, with its whole status
    #[arg(long)]
    pub json: bool,
}
