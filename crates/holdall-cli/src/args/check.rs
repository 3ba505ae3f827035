//! The arguments of `holdall check`.

use clap::Args;
use holdall_program::names::{Words, one_of};
use std::path::PathBuf;

/// Shown below `-h` and `--help`.
pub const EXAMPLES: &str = "\
Examples:
  holdall check lab                       read the whole bag: a verdict for each file, exit code 1 when something is wrong
  holdall check lab/lab_3.mcap            a single storage file
  holdall check lab --contract robot.yaml  the rules of a contract, too: exit code 4 when one fails
  holdall check lab --distro kilted       what differs from the types of a distribution, field by field: exit code 1
  holdall check lab --profile lake        how ready it is for an archive of many: a grade, with reasons
  holdall check --json lab | jq '.files[].findings.list[]'";

/// What bags are judged for in addition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckProfile {
    /// A lake of many bags.
    Lake,
}

const PROFILES: Words<CheckProfile> = &[(
    "lake",
    "An archive of many bags that is searched and streamed",
    CheckProfile::Lake,
)];

/// All flags of `holdall check`.
#[derive(Args, Clone, Debug)]
pub struct CheckArguments {
    /// Bag directories or single storage files, - for one on standard input
    #[arg(value_name = "BAG", required = true)]
    pub bags: Vec<PathBuf>,

    /// The contract that judges them.
    #[command(flatten)]
    pub contract: super::contract::ContractArgument,

    /// The definitions that its types are compared with.
    #[command(flatten)]
    pub target: super::migrate::TargetArguments,

    /// Grade sound bags from A to F for a purpose, with reasons; exit code 4 below B
    #[arg(long, value_name = "PROFILE", value_parser = one_of(PROFILES))]
    pub profile: Option<CheckProfile>,

    /// One JSON object for each bag, one per line
    #[arg(long)]
    pub json: bool,
}
