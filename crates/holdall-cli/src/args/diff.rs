//! The arguments of `holdall diff`.

use super::choice::DefinitionArguments;
use clap::Args;
use std::path::PathBuf;

/// Shown below `-h` and `--help`.
pub const EXAMPLES: &str = "\
Examples:
  holdall diff lab lab_copy                 prints nothing, exit code 0: they hold the same
  holdall diff lab lab_copy --fields        with the fields that differ
  holdall diff lab lab_copy --summary       topics, types, QoS and counts only; reads no messages
  holdall diff lab lab_copy --json | jq .topics
  holdall diff lab lab_copy --decoded --tolerance ssim=0.97    what images and clouds show, of a bag with video, too

Exit codes:
  0  the bags hold the same
  1  they differ
  2  they could not be compared";

/// Shown below `--help`.
pub const NOTES: &str = "\
diff compares topics, types, type hashes, offered QoS, counts, and messages by topic, log time and
payload, in whatever files and storages they are. It does not compare publish times and sequence
numbers, because not every storage keeps them. < marks what only the first bag has, > what only the
second has.";

/// All flags of `holdall diff`.
#[derive(Args, Clone, Debug)]
pub struct DiffArguments {
    /// A bag directory or single storage file, - for one on standard input
    #[arg(value_name = "FIRST")]
    pub first: PathBuf,

    /// Another one
    #[arg(value_name = "SECOND")]
    pub second: PathBuf,

    /// Compare metadata only, not messages
    #[arg(long)]
    pub summary: bool,

    /// Show at most this many differing messages
    #[arg(short = 'n', long, value_name = "N", default_value = "10")]
    pub count: usize,

    /// Show the fields that differ between messages of the same topic and time
    #[arg(long, conflicts_with = "summary")]
    pub fields: bool,

    /// Compare what images and clouds show, decoded where they are video or compressed; other topics are left out
    #[arg(long, conflicts_with_all = ["summary", "fields"])]
    pub decoded: bool,

    /// With --decoded: the largest error of a value (0), or psnr=DB or ssim=NUMBER for images of 8 bits; may be given several times
    #[arg(long, value_name = "NUMBER|psnr=DB|ssim=NUMBER", requires = "decoded", action = clap::ArgAction::Append)]
    pub tolerance: Vec<String>,

    /// Places of definitions that the bags lack
    #[command(flatten)]
    pub definitions: DefinitionArguments,

    /// One JSON object
    #[arg(long)]
    pub json: bool,
}
