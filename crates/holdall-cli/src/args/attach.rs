//! The arguments of `holdall attach` and `holdall get`.

use clap::Args;
use std::path::PathBuf;

/// Shown below `holdall attach --help`.
pub const ATTACH_EXAMPLES: &str = "\
Examples:
  holdall attach lab calibration.yaml map.pgm               files, under their names
  holdall attach lab cam.yaml --name camera/calibration     under another name
  holdall attach lab --metadata run --entry operator=ada --entry weather=rain
  holdall attach lab --remove map.pgm                       removes it again";

/// Shown below `holdall get --help`.
pub const GET_EXAMPLES: &str = "\
Examples:
  holdall get lab                                           what is attached
  holdall get lab calibration.yaml                          its content, to standard output
  holdall get lab map.pgm -o map.pgm                        into a file
  holdall get lab run                                       a metadata record, as JSON";

/// All flags of `holdall attach`.
#[derive(Args, Clone, Debug)]
pub struct AttachArguments {
    /// Bag directory or single MCAP file; it is changed in place, file by file
    #[arg(value_name = "BAG")]
    pub bag: PathBuf,

    /// Files to attach; an attachment of the same name is replaced
    #[arg(value_name = "FILE")]
    pub files: Vec<PathBuf>,

    /// Name of the attachment [default: the file's name]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,

    /// Media type of the attachments [default: from the file extension]
    #[arg(long, value_name = "TYPE")]
    pub media_type: Option<String>,

    /// Store a metadata record with this name and the pairs of --entry; one of the same name is replaced
    #[arg(long, value_name = "NAME", requires = "entry")]
    pub metadata: Option<String>,

    /// A pair of the metadata record; may be given several times
    #[arg(long, value_name = "KEY=VALUE", requires = "metadata")]
    pub entry: Vec<String>,

    /// Remove the attachments and metadata records of this name first; may be given several times
    #[arg(long, value_name = "NAME")]
    pub remove: Vec<String>,

    /// Print what is attached afterwards as one JSON object
    #[arg(long)]
    pub json: bool,
}

/// All flags of `holdall get`.
#[derive(Args, Clone, Debug)]
pub struct GetArguments {
    /// Bag directory or single file, - for one on standard input
    #[arg(value_name = "BAG")]
    pub bag: PathBuf,

    /// Attachment or metadata record; all are listed without it
    #[arg(value_name = "NAME")]
    pub name: Option<String>,

    /// Write it to this new file instead of standard output
    #[arg(short = 'o', long, value_name = "PATH", requires = "name")]
    pub output: Option<PathBuf>,

    /// Replace an existing file
    #[arg(long, requires = "output")]
    pub overwrite: bool,

    /// Print the list as one JSON object
    #[arg(long, conflicts_with = "name")]
    pub json: bool,
}
