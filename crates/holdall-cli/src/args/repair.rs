//! The arguments of `holdall repair`.

use clap::Args;
use std::path::PathBuf;

/// Shown below `-h` and `--help`.
pub const EXAMPLES: &str = "\
Examples:
  holdall repair lab                      completes a bag whose recorder was killed: index, ledger, metadata.yaml
  holdall repair lab/lab_3.mcap           a single storage file
  holdall repair lab -o lab_repaired      leaves the bag unchanged and repairs a copy";

/// Shown below `--help`.
pub const NOTES: &str = "\
holdall reads a torn bag without repair; other programs open it faster, or open it at all, when it is complete. A repair writes only after
the readable data, and marks the rest: when it is interrupted, everything that could be read before still can, and it can be run again.
The losses at the end are known while the recorder's memory still exists; else the bag records that they are not. With -o, the readable
part of a damaged bag is saved, too. The result is read whole and checked, as by `holdall check`. A bag that is being recorded is refused.

Exit code 3 when something could not be saved or a storage file is gone, 1 when a problem remains that a repair cannot fix; each is listed.";

/// All flags of `holdall repair`.
#[derive(Args, Clone, Debug)]
pub struct RepairArguments {
    /// Bag directory or single storage file
    #[arg(value_name = "BAG")]
    pub bag: PathBuf,

    /// Repair a copy in this new bag and leave the original unchanged
    #[arg(short = 'o', long, value_name = "PATH")]
    pub output: Option<PathBuf>,

    /// One JSON object
    #[arg(long)]
    pub json: bool,
}
