//! Playing: reader -> read-ahead -> schedule -> publications. Its users see it through `holdall`.
#![forbid(unsafe_code)]

mod answers;
mod burst;
mod clock_topic;
pub mod control;
mod delivery;
mod discovery;
pub mod error;
mod fidelity;
pub mod files;
mod first_form;
mod neighbours;
pub mod options;
mod playback;
#[cfg(test)]
mod playback_tests;
pub mod player;
mod publications;
mod range;
mod read_ahead;
pub mod requests;
pub mod schedule;
pub mod status;
mod step_goals;
mod step_ledger;
mod step_rule;
mod steps;
mod stream;
mod topic_choice;
mod wake;

pub use control::PlayControl;
pub use error::PlayError;
pub use files::ReadSplit;
pub use first_form::{Decoding, FirstForms, Restoring};
pub use options::PlayWindow;
pub use player::Player;
