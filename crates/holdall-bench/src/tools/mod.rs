//! `bench tools`: work on whole bags against what the same disk copies and reads in the same run, and against other programs.

mod measure;
mod report;
mod rivals;

pub use measure::{ToolsBenchOptions, run};
pub use report::{ToolRow, ToolsReport, table};
