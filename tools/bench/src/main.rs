//! The program `holdall-bench`, which `holdall bench` runs: parses arguments, measures, and turns the outcome into an exit code.
#![forbid(unsafe_code)]

mod verbs;

use clap::Parser;
use holdall_bench::args;
use holdall_program::{VerbResult, exit, output, panics, terminal};
use std::process::ExitCode;

fn main() -> ExitCode {
    // No thread of the bench may end alone.
    panics::install(None);
    holdall_storage::compression::choose_scratch(|| std::env::var_os("TMPDIR").map(Into::into));
    let cli = match args::Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            output::usage(&error);
            return ExitCode::from(if error.use_stderr() {
                exit::REFUSED
            } else {
                exit::OK
            });
        }
    };
    // The hook has reported the panic to the user already; here it becomes an exit code.
    let result = std::panic::catch_unwind(|| verbs::run(&cli.verb)).unwrap_or(Ok(exit::Outcome::Failed));
    terminal::mode::restore_for_good();
    if let Err(failure) = &result {
        output::complain(failure.sentence());
    }
    terminal::screen::flush();
    match result {
        Ok(_) if panics::happened() => exit::code(&Ok(exit::Outcome::Failed)),
        result => exit::code(&result),
    }
}
