//! Work on whole bags, one file or folder per verb: inputs never change, outputs appear whole or not at all.

mod accounts;
pub mod attach;
mod beyond;
mod change;
pub mod check;
mod choice;
mod copy;
mod cuts;
pub mod decrypt;
mod description;
mod error;
mod in_place;
mod latched;
mod narrowing;
mod options;
mod reindex;
mod relabel;
pub mod repair;
mod rewrite;
mod staged;
pub mod yaml;

pub use change::FieldChange;
pub use choice::{Choice, Moment};
pub use error::ToolError;
pub use options::{LatchedMode, OutputOptions, SplitAt};
pub use reindex::{Reindexed, reindex};
pub use relabel::Shift;
pub use rewrite::{Job, Written, run};
pub(crate) use staged::Staged;
