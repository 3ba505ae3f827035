//! The arguments of `holdall catalog` and `holdall find`.

use clap::Args;
use std::path::PathBuf;

/// Shown below `-h` and `--help`.
pub const CATALOG_EXAMPLES: &str = "\
Examples:
  holdall catalog runs -o catalog            tables about all bags below runs/: topics, losses, markers, chunks
  holdall catalog runs -o catalog            again: reads only new and changed bags
  holdall catalog s3://fleet/runs -o catalog bags in a bucket: one listing, then the ends of files
  holdall find 'topic = \"/lidar\" and lost > 0' catalog
  duckdb -c \"select bag, lost from 'catalog/bags.parquet' where lost > 0\"";

/// Shown below `--help`.
pub const CATALOG_NOTES: &str = "\
Tables:
  bags, files, topics, publishers, losses, markers, labels and chunks, as Parquet. They are replaced
  when all of them are complete. Messages are not read, only the metadata and the summary at the end
  of each file. A bag that cannot be read is in the table bags with its state and the reason.

  The catalog keeps bags below other folders than those that are named. It drops a bag below a named
  folder that no longer exists. docs/fleet.md describes the columns and shows queries.";

/// Shown below `-h` and `--help`.
pub const FIND_EXAMPLES: &str = "\
Examples:
  holdall find 'topic = \"/lidar\" and lost > 0 and start > 2026-11-01'
  holdall find 'marker =~ \"crash\"' catalog --table
  holdall find 'duration > 3600 and size > 1e9' | xargs holdall info
  holdall find 'key = \"robot\" and value = \"r2\"' --json";

/// Shown below `--help`.
pub fn find_notes() -> String {
    format!(
        "\
Expressions:
  a and b   a or b   not a   ( )     = != < <= > >=     =~ !~ (regular expression)     + - * / %
  12  1e9   \"text\"  'text'   true   2026-11-01   2026-11-01T12:30:05.5 (UTC)
  A bag is found when the expression is true for one of its topics, publishers, losses, markers and
  labels together. A comparison with a value that is not known is false.

Columns:
{}",
        holdall::catalog::FIND_COLUMNS
    )
}

/// All flags of `holdall catalog`.
#[derive(Args, Clone, Debug)]
pub struct CatalogArguments {
    /// Folders with bags at any depth, bag directories, or single storage files
    #[arg(value_name = "ROOT", required = true)]
    pub roots: Vec<PathBuf>,

    /// Folder of the tables
    #[arg(short = 'o', long, value_name = "PATH", default_value = "catalog")]
    pub output: PathBuf,

    /// Write the report to standard output as one JSON object
    #[arg(long)]
    pub json: bool,
}

/// All flags of `holdall find`.
#[derive(Args, Clone, Debug)]
pub struct FindArguments {
    /// What must be true of a bag
    #[arg(value_name = "EXPRESSION")]
    pub expression: String,

    /// Folder of the catalog
    #[arg(value_name = "CATALOG", default_value = "catalog")]
    pub catalog: PathBuf,

    /// Show a table with what the expression names, instead of paths
    #[arg(long)]
    pub table: bool,

    /// One JSON object for each bag (or topic of one), one per line
    #[arg(long, conflicts_with = "table")]
    pub json: bool,
}
