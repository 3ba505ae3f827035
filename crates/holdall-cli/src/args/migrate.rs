//! The arguments of `holdall migrate`, and those that name new definitions.

use super::known::Known;
use clap::Args;
use std::path::PathBuf;

/// Shown below `-h` and `--help`.
pub const EXAMPLES: &str = "\
Examples:
  holdall check lab --distro kilted                         what differs, field by field; exit code 1 when something does
  holdall migrate lab -o new --definitions ~/ws/src         what is the same is carried, the rest is listed and refused
  holdall migrate lab --definitions ~/ws/src --draft-rules > rules.yaml
  holdall migrate lab -o new --definitions ~/ws/src --rules rules.yaml
  holdall migrate lab -o new --distro kilted --old-definitions foxy --rules ros2
  holdall migrate ros1.bag -o new --distro kilted --rules ros1
  holdall migrate fleet -o fleet-kilted --distro kilted --rules ros2    all bags below that need it, each under its name";

/// Shown below `--help`.
pub const NOTES: &str = include_str!("pages/migrate.txt");

/// The definitions that messages get.
#[derive(Args, Clone, Debug, Default)]
pub struct TargetArguments {
    /// Folders with the new .msg files: packages, a workspace, an installation, or the files alone [default: AMENT_PREFIX_PATH, without --distro]
    #[arg(long = "definitions", value_name = "FOLDER", action = clap::ArgAction::Append, help_heading = "Definitions")]
    pub folders: Vec<PathBuf>,

    /// The new definitions of a distribution of ROS 2, from foxy to lyrical, after those in folders
    #[arg(long, value_name = "NAME", help_heading = "Definitions")]
    pub distro: Option<String>,

    /// The old definitions that the bag lacks: folders, or distributions
    #[arg(long = "old-definitions", value_name = "FOLDER|NAME", action = clap::ArgAction::Append, help_heading = "Definitions")]
    pub from: Vec<PathBuf>,

    /// Rules for what differs: files, or those of holdall, ros1 or ros2; the first that names a type counts
    #[arg(long, value_name = "FILE", action = clap::ArgAction::Append, help_heading = "Definitions")]
    pub rules: Vec<PathBuf>,
}

impl TargetArguments {
    /// True when nothing is named.
    pub fn is_empty(&self) -> bool {
        self.folders.is_empty() && self.distro.is_none() && self.from.is_empty() && self.rules.is_empty()
    }
}

/// All flags of `holdall migrate`.
#[derive(Args, Clone, Debug)]
pub struct MigrateArguments {
    /// Bag directory or single file, - for one on standard input. Of several, and of a folder, the bags below that need it
    #[arg(value_name = "BAG", required = true)]
    pub bags: Vec<PathBuf>,

    /// Bag directory to create; - for one storage file on standard output. Of several bags, the folder for those to create
    #[arg(
        short = 'o',
        long,
        value_name = "PATH",
        required_unless_present = "draft_rules"
    )]
    pub output: Option<PathBuf>,

    /// The definitions.
    #[command(flatten)]
    pub target: TargetArguments,

    /// Write rules to begin with to standard output, and no bag
    #[arg(long, conflicts_with_all = ["output", "dry_run"])]
    pub draft_rules: bool,

    /// Look at the bags as ever, print those that need it with their outputs, and write none
    #[arg(long)]
    pub dry_run: bool,

    /// Storage of the output [default: that of the bag]
    #[arg(short = 's', long, value_name = "ID", value_parser = Known::storages(), hide_possible_values = true)]
    pub storage: Option<String>,

    /// Encrypt the output, as for `holdall record`: a public key (age1..., ssh-ed25519 ..., ssh-rsa ...), or a file of these; may be given several times
    #[arg(long, value_name = "RECIPIENT", action = clap::ArgAction::Append)]
    pub encrypt_to: Vec<String>,

    /// Print a report as one JSON object, of several bags one for each
    #[arg(long)]
    pub json: bool,
}
