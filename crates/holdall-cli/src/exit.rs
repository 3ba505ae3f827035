//! The outcome of a run, and its exit code.

use std::{fmt, process::ExitCode};

/// Everything was done.
pub const OK: u8 = 0;
/// Something failed during the work.
pub const FAILED: u8 = 1;
/// Wrong usage or bad input: refused before anything was done.
pub const REFUSED: u8 = 2;
/// Done, but messages were lost.
pub const LOST: u8 = 3;

/// The table of exit codes in `--help`.
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
    /// Ended early for a reason that has been logged already.
    Failed,
}

/// Why a run failed: one sentence for the user.
#[derive(Debug)]
pub enum Failure {
    /// Wrong usage or bad input; nothing was done.
    Refused(String),
    /// Failed during the work.
    Failed(String),
}

impl Failure {
    /// Refuses bad input with the sentence in `reason`.
    pub fn refused(reason: impl fmt::Display) -> Self {
        Self::Refused(reason.to_string())
    }

    /// Fails with the sentence in `reason`.
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
