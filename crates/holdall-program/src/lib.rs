//! What holdall's programs have in common: outcomes and exit codes, log lines, the terminal, units, and names on command lines.
#![forbid(unsafe_code)]

pub mod exit;
pub mod hint;
pub mod line;
pub mod man;
pub mod names;
pub mod output;
pub mod panics;
pub mod rate;
pub mod settings;
pub mod standard_input;
pub mod terminal;
pub mod transport;
pub mod units;

/// The outcome of a verb, or why it failed.
pub type VerbResult = Result<exit::Outcome, exit::Failure>;
