//! One file per verb: from what was typed to what is done and shown.

mod audit;
mod bench;
mod cat;
mod check;
mod completion;
mod diff;
mod export;
mod info;
mod input;
mod play;
mod record;

use crate::{VerbResult, typed::Verb};

/// Does what was typed.
///
/// # Errors
/// Why it could not be done.
pub fn run(verb: Verb) -> VerbResult {
    match verb {
        Verb::Record(arguments) => record::run(&arguments),
        Verb::Play(arguments) => play::run(&arguments),
        Verb::Cat(arguments) => cat::run(&arguments),
        Verb::Diff(arguments) => diff::run(&arguments),
        Verb::Export(arguments) => export::run(&arguments),
        Verb::Info(arguments) => info::run(&arguments),
        Verb::Check(arguments) => check::run(&arguments),
        Verb::Audit(arguments) => audit::run(&arguments),
        Verb::Bench { verb } => bench::run(&verb),
        Verb::Completion { shell } => completion::run(shell),
    }
}
