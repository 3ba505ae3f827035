//! Work on whole bags, one file or folder per verb: inputs never change, outputs appear whole or not at all.

mod accounts;
pub mod attach;
mod bag_copy;
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
mod left_out;
mod narrowing;
mod options;
mod reindex;
mod relabel;
pub mod repair;
mod repair_account;
mod repair_disk;
mod rewrite;
mod salvage;
mod staged;
pub mod yaml;

pub use crate::reader::Moment;
pub use change::FieldChange;
pub use choice::Choice;
pub use error::ToolError;
pub use left_out::{LeftOut, LeftOutMessages};
pub use options::{LatchedMode, OutputOptions, SplitAt};
pub use reindex::{Reindexed, reindex};
pub use relabel::Shift;
pub use rewrite::{Job, Written, run};
pub(crate) use staged::Staged;
