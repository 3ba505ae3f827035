//! The `holdall` command: parses arguments, calls the library, renders the outcome, and turns it into an exit code.
#![forbid(unsafe_code)]

mod args;
mod render;
mod resolve;
mod verbs;

use clap::FromArgMatches;
use exit::Outcome;
pub(crate) use holdall_program::{VerbResult, exit, output, panics, terminal, transport, units};
use resolve::surroundings::read_small_file;
use std::{ffi::OsString, process::ExitCode};

fn main() -> ExitCode {
    panics::install(Some(holdall_web::THREADS));
    holdall_storage::compression::choose_scratch(|| std::env::var_os("TMPDIR").map(Into::into));
    #[cfg(feature = "remote")]
    holdall_remote::install(|| std::env::vars_os().collect());
    let argv: Vec<OsString> = std::env::args_os().collect();
    let expanded = match args::files::expand(argv, &read_small_file) {
        Ok(expanded) => expanded,
        Err(error) => {
            output::fail(&error.to_string());
            return ExitCode::from(exit::REFUSED);
        }
    };
    let parsed = args::help::command(&expanded.argv).try_get_matches_from(&expanded.argv);
    let cli = match parsed.and_then(|matches| args::Cli::from_arg_matches(&matches)) {
        Ok(cli) => cli,
        Err(mut error) => {
            args::hints::add(&mut error, &expanded.argv);
            output::usage(&error);
            return ExitCode::from(if error.use_stderr() {
                exit::REFUSED
            } else {
                exit::OK
            });
        }
    };
    for notice in &expanded.notices {
        output::complain(notice);
    }
    // The hook has reported the panic to the user already; here it becomes an exit code.
    let result =
        std::panic::catch_unwind(|| verbs::run(cli.verb, &cli.identity)).unwrap_or(Ok(Outcome::Failed));
    terminal::mode::restore_for_good();
    if let Err(failure) = &result {
        output::fail(failure.sentence());
    }
    terminal::screen::flush();
    match result {
        Ok(_) if panics::happened() => exit::code(&Ok(Outcome::Failed)),
        result => exit::code(&result),
    }
}
