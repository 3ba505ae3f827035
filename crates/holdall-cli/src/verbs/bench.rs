//! `holdall bench`: the program `holdall-bench`, where it is installed.

use crate::{VerbResult, args::bench::BenchArguments, exit::Failure};
use std::{
    env,
    ffi::OsString,
    io::ErrorKind,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::Command,
};

/// The program's name.
const PROGRAM: &str = "holdall-bench";

/// Replaces this program by `holdall-bench`: its process, environment, signals and exit code are those of the bench.
pub fn run(args: &BenchArguments) -> VerbResult {
    let program = beside(env::current_exe().ok().as_deref()).unwrap_or_else(|| PROGRAM.into());
    // Returns only if that fails.
    let error = Command::new(&program).args(words(args.arguments.len())).exec();
    Err(if error.kind() == ErrorKind::NotFound {
        Failure::refused(
            "holdall bench needs the program holdall-bench, which is neither beside holdall nor in PATH: `make install-bench` in holdall's source tree installs it",
        )
    } else {
        Failure::failed(format!(
            "{}: {}",
            program.display(),
            holdall_io::disk::reason(&error)
        ))
    })
}

/// The last words of the command line, of which clap has found this many, with the `--` before them that clap takes for itself.
fn words(parsed: usize) -> Vec<OsString> {
    let mut words: Vec<OsString> = env::args_os().collect();
    let mut first = words.len().saturating_sub(parsed);
    if first > 0 && words[first - 1] == "--" {
        first -= 1;
    }
    words.split_off(first)
}

/// `holdall-bench` in the folder of this program, so that both have the same version.
fn beside(holdall: Option<&Path>) -> Option<PathBuf> {
    let beside = holdall?.parent()?.join(PROGRAM);
    beside.is_file().then_some(beside)
}
