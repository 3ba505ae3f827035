//! `bench tools`: work on whole bags compared with the disk's copying and reading in the same run, and with
//! other programs.

mod measure;
mod report;
mod rivals;

pub use measure::{ToolsBenchOptions, run};
pub use report::ToolRow;
pub use report::ToolsReport;
pub use report::table;
