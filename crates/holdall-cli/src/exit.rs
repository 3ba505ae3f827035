//! What a run ended with, and the exit code that says so to a shell.

use std::{fmt, process::ExitCode};

/// Everything was done.
pub const OK: u8 = 0;
/// Something failed while it was being done.
pub const FAILED: u8 = 1;
/// Wrong usage or bad input: refused before anything was done.
pub const REFUSED: u8 = 2;
/// Done, but messages were lost.
pub const LOST: u8 = 3;

/// The table of exit codes as `--help` shows it.
pub const HELP: &str = "\
Exit codes:
  0  done
  1  failed
  2  wrong usage or bad input, refused before anything was done
  3  done, but messages were lost (the report says how many, where and of which topic)";

/// How a run ended when nothing failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Everything was done.
    Done,
    /// Done, but messages were lost.
    Lost,
    /// Two things that were compared are not the same.
    Different,
    /// Ended early for a reason that has been told already.
    Failed,
}

/// Why a run ended otherwise: one sentence for the user.
#[derive(Debug)]
pub enum Failure {
    /// Wrong usage or bad input; nothing was done.
    Refused(String),
    /// Failed on the way.
    Failed(String),
}

impl Failure {
    /// Refuses bad input with the sentence that `reason` gives.
    pub fn refused(reason: impl fmt::Display) -> Self {
        Self::Refused(reason.to_string())
    }

    /// Fails with the sentence that `reason` gives.
    pub fn failed(reason: impl fmt::Display) -> Self {
        Self::Failed(reason.to_string())
    }

    /// The sentence.
    pub fn sentence(&self) -> &str {
        match self {
            Self::Refused(sentence) | Self::Failed(sentence) => sentence,
        }
    }
}

/// The exit code of a run.
pub fn code(result: &Result<Outcome, Failure>) -> ExitCode {
    ExitCode::from(match result {
        Ok(Outcome::Done) => OK,
        Ok(Outcome::Lost) => LOST,
        Ok(Outcome::Different | Outcome::Failed) | Err(Failure::Failed(_)) => FAILED,
        Err(Failure::Refused(_)) => REFUSED,
    })
}
