//! The arguments of `holdall regress`.

use super::TransportName;
use clap::Args;
use std::path::PathBuf;

/// Shown below `-h` and `--help`.
pub const EXAMPLES: &str = "\
Examples:
  holdall regress suite.yaml                         run all cases; results in regress-results/
  holdall regress suite.yaml --case yard             one case
  holdall regress suite.yaml --update-golden         what the last run has recorded is right from now on
  holdall regress suite.yaml --json | jq '.[].problems'

Exit codes:
  0  all cases passed
  1  a case could not be run to its end
  2  the suite was refused before anything was run
  4  all were run, and a case failed: outputs differ, or a condition is not true";

/// Shown below `--help`.
pub const NOTES: &str = "\
Each case starts the software in its own ROS domain, waits until it is ready, plays the bag, records the
outputs, ends the software, and compares the outputs with a golden bag, conditions and a contract. The folder
of results has junit.xml, index.html, and a folder for each case with its outputs and logs. The format of
suites is in docs/regress.md.";

/// All flags of `holdall regress`.
#[derive(Args, Clone, Debug)]
pub struct RegressArguments {
    /// The suite, a YAML file
    #[arg(value_name = "SUITE")]
    pub suite: PathBuf,

    /// Run this case only; may be given several times
    #[arg(long, value_name = "NAME", action = clap::ArgAction::Append)]
    pub case: Vec<String>,

    /// Folder for the results; those of an earlier run are replaced
    #[arg(short = 'o', long, value_name = "PATH", default_value = "regress-results")]
    pub output: PathBuf,

    /// Make the outputs of the last run the golden bags of their cases; runs nothing
    #[arg(long)]
    pub update_golden: bool,

    /// Cases that run at the same time [default: half of the processors]
    #[arg(short = 'j', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=40))]
    pub jobs: Option<u32>,

    /// The first of the ROS domains that are used, one for each case that runs at the same time
    #[arg(long, value_name = "N", default_value = "60", value_parser = clap::value_parser!(u32).range(0..=232))]
    pub first_domain: u32,

    /// Transports to play and record on; may be given several times
    #[arg(long, value_name = "TRANSPORT", action = clap::ArgAction::Append)]
    pub transport: Vec<TransportName>,

    /// One JSON list
    #[arg(long)]
    pub json: bool,

    /// Run the cases in this process, in the domain of the environment (by holdall itself).
    #[arg(long, hide = true)]
    pub run_here: bool,
}
