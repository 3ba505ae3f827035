//! The arguments of `holdall decrypt`.

use clap::Args;
use std::path::PathBuf;

/// Shown below `-h` and `--help`.
pub const EXAMPLES: &str = "\
Examples:
  holdall decrypt lab -o clear --identity key.txt           key.txt was made by age-keygen
  holdall decrypt lab -o clear --identity ~/.ssh/id_ed25519  the bag was encrypted to this ssh key
  holdall info lab --identity key.txt                        nothing needs to be decrypted to be read";

/// All flags of `holdall decrypt`.
#[derive(Args, Clone, Debug)]
pub struct DecryptArguments {
    /// Bag directory or single storage file
    #[arg(value_name = "BAG")]
    pub bag: PathBuf,

    /// Bag directory or file to create
    #[arg(short = 'o', long, value_name = "PATH")]
    pub output: PathBuf,

    /// One JSON object
    #[arg(long)]
    pub json: bool,
}
