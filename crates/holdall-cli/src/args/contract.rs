//! The arguments of `holdall contract`.

use clap::{Args, Subcommand};
use std::path::PathBuf;

/// Shown below `-h` and `--help`.
pub const EXAMPLES: &str = "\
Examples:
  holdall contract init good_bag another > robot.yaml       learn rules and bounds from good bags
  holdall contract explain robot.yaml                       each rule as a sentence
  holdall contract test robot.yaml old_bags/*               which rules would have failed in these bags
  holdall contract lint robot.yaml                          what is wrong or doubtful in the file
  holdall contract schema > contract.schema.json            the JSON schema, for editors
  holdall check lab --contract robot.yaml                   judge a bag";

/// What `holdall contract` does.
#[derive(Clone, Debug, Subcommand)]
pub enum ContractWhat {
    /// Learn a contract from good bags
    Init {
        /// Bag directories or single files
        #[arg(value_name = "BAG", required = true)]
        bags: Vec<PathBuf>,
    },
    /// Show each rule as a sentence
    Explain {
        /// The contract
        #[arg(value_name = "FILE")]
        contract: PathBuf,
        /// One JSON object per line
        #[arg(long)]
        json: bool,
    },
    /// Show which rules would have failed in bags
    Test {
        /// The contract
        #[arg(value_name = "FILE")]
        contract: PathBuf,
        /// Bag directories or single files
        #[arg(value_name = "BAG", required = true)]
        bags: Vec<PathBuf>,
        /// One JSON object per line
        #[arg(long)]
        json: bool,
    },
    /// Show what is wrong or doubtful in a contract
    Lint {
        /// The contract
        #[arg(value_name = "FILE")]
        contract: PathBuf,
    },
    /// Write the JSON schema of contracts to standard output
    Schema,
}

/// The contract that judges a bag.
#[derive(Args, Clone, Debug, Default)]
pub struct ContractArgument {
    /// Judge it by the rules in this file; exit code 4 when one fails
    #[arg(long, value_name = "FILE")]
    pub contract: Option<PathBuf>,
}
