//! One file per verb: from its arguments to its work and its output.

mod attach;
mod audit;
mod bench;
mod cat;
#[cfg(feature = "parquet")]
mod catalog;
mod check;
mod completion;
mod contract;
mod control;
mod convert;
mod decrypt;
mod diff;
mod echo_form;
mod events;
mod export;
mod folder;
mod help;
mod info;
pub(crate) mod input;
mod list;
mod listen;
mod live_topics;
mod man;
mod migrate;
mod play;
mod player_node;
mod plot;
mod preflight;
mod record;
mod record_live;
mod record_threads;
mod recorder_node;
mod regress;
mod reindex;
mod repair;
#[cfg(feature = "parquet")]
mod training;
mod upload;
mod viewers;
pub mod web;

use crate::{VerbResult, args::Verb, exit::Failure, terminal::signals};
use std::path::PathBuf;

/// Whether the verb itself decides what signals to end do.
fn handles_signals(verb: &Verb) -> bool {
    match verb {
        Verb::Record(_)
        | Verb::Preflight(_)
        | Verb::Play(_)
        | Verb::Regress(_)
        | Verb::Burst(_)
        | Verb::Bridge(_)
        | Verb::Serve(_)
        | Verb::Web(_)
        | Verb::Top(_)
        | Verb::Hz(_)
        | Verb::Bw(_)
        | Verb::Delay(_)
        | Verb::Echo(_)
        // Another program takes this one's place.
        | Verb::Bench(_) => true,
        _ => false,
    }
}

/// Runs the verb of a command line, with the secret keys in these files.
///
/// # Errors
/// Why it failed.
pub fn run(verb: Verb, identities: &[PathBuf]) -> VerbResult {
    for path in identities {
        holdall::keys::add_identity(path).map_err(Failure::refused)?;
    }
    if !handles_signals(&verb) {
        signals::remove_unfinished_at_end();
    }
    match verb {
        Verb::Record(arguments) => record::run(&arguments),
        Verb::Preflight(arguments) => preflight::run(&arguments),
        Verb::Play(arguments) => play::run(&arguments),
        Verb::Burst(arguments) => play::burst(&arguments),
        Verb::Cat(arguments) => cat::run(&arguments),
        Verb::Diff(arguments) => diff::run(&arguments),
        Verb::Regress(arguments) => regress::run(&arguments),
        Verb::Export(arguments) => export::run(&arguments),
        Verb::Plot(arguments) => plot::run(&arguments),
        Verb::Info(arguments) => info::run(&arguments),
        Verb::Repair(arguments) => repair::run(&arguments),
        Verb::Check(arguments) => check::run(&arguments),
        Verb::Contract { what } => contract::run(&what),
        Verb::Events(arguments) => events::run(&arguments),
        Verb::Audit(arguments) => audit::run(&arguments),
        Verb::Convert(arguments) => convert::convert(&arguments),
        Verb::Merge(arguments) => convert::merge(&arguments),
        Verb::Split(arguments) => convert::split(&arguments),
        Verb::Filter(arguments) => convert::filter(&arguments),
        Verb::Migrate(arguments) => migrate::run(&arguments),
        Verb::Compress(arguments) => convert::compress(&arguments),
        Verb::Decompress(arguments) => convert::decompress(&arguments),
        Verb::Decrypt(arguments) => decrypt::run(&arguments),
        Verb::Attach(arguments) => attach::attach(&arguments),
        Verb::Get(arguments) => attach::get(&arguments),
        Verb::Reindex(arguments) => reindex::run(&arguments),
        Verb::Upload(arguments) => upload::run(&arguments),
        #[cfg(feature = "parquet")]
        Verb::Catalog(arguments) => catalog::catalog(&arguments),
        #[cfg(feature = "parquet")]
        Verb::Find(arguments) => catalog::find(&arguments),
        Verb::List { what } => list::run(&what),
        Verb::Man(arguments) => man::run(&arguments),
        Verb::Bridge(arguments) => viewers::bridge(&arguments),
        Verb::Serve(arguments) => play::serve(&arguments),
        Verb::Web(arguments) => folder::run(&arguments),
        Verb::Top(arguments) => listen::top(&arguments),
        Verb::Hz(arguments) => listen::hz(&arguments),
        Verb::Bw(arguments) => listen::bw(&arguments),
        Verb::Delay(arguments) => listen::delay(&arguments),
        Verb::Echo(arguments) => listen::echo(&arguments),
        Verb::Control(arguments) => control::run(&arguments),
        Verb::Ps(arguments) => control::list(&arguments),
        Verb::Help(arguments) => help::run(&arguments),
        Verb::Bench(arguments) => bench::run(&arguments),
        Verb::Completion { shell, words } => completion::run(shell, words.as_deref()),
    }
}
