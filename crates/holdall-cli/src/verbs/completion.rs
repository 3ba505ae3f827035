//! `holdall completion`: the completion script of a shell.

use crate::{VerbResult, args::Cli, exit::Outcome, output};
use clap::CommandFactory;

/// Writes the script to standard output.
pub fn run(shell: clap_complete::Shell) -> VerbResult {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "holdall", &mut script);
    output::result(&String::from_utf8_lossy(&script))?;
    Ok(Outcome::Done)
}
