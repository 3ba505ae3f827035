//! `holdall bench link`: two programs with an emulated link between them.

use super::show;
use crate::VerbResult;
use holdall_bench::args::link::LinkArguments;
use holdall_bench::link::{self, LinkRunError, check_table, link_table, spec::LinkSpec};
use holdall_io::link::{LinkError, in_user_namespace, is_root};
use holdall_program::{
    exit::{Failure, Outcome},
    terminal::log,
};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    flag,
};
use std::{
    ffi::OsString,
    process::Command,
    sync::{Arc, atomic::AtomicBool},
};
use tracing::level_filters::LevelFilter;

/// Set in the process that is root of its own user namespace.
const INSIDE: &str = "HOLDALL_LINK_USER_NAMESPACE";

/// Runs both programs to their ends, or measures.
pub fn run(args: &LinkArguments) -> VerbResult {
    log::start(LevelFilter::INFO);
    let checked = args
        .spec
        .as_ref()
        .map(|spec| Ok((spec, commands(&args.commands)?)));
    let link = checked.transpose()?;
    if needs_user_namespace() {
        return begin_again();
    }
    match link {
        Some((spec, commands)) => run_programs(args, spec, commands),
        None => check(args),
    }
}

/// How exactly this machine keeps to links.
fn check(args: &LinkArguments) -> VerbResult {
    let checks = link::check(&mut |link| tracing::info!("measuring {link}")).map_err(failure)?;
    show(args.json, &checks, || check_table(&checks))?;
    Ok(if checks.are_kept() {
        Outcome::Done
    } else {
        Outcome::Failed
    })
}

fn failure(error: LinkRunError) -> Failure {
    match error {
        LinkRunError::Link(_) | LinkRunError::Start { .. } => Failure::refused(error),
        other => Failure::failed(other),
    }
}

fn run_programs(args: &LinkArguments, spec: &LinkSpec, commands: [Command; 2]) -> VerbResult {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        flag::register(signal, Arc::clone(&stop)).map_err(Failure::failed)?;
    }
    let report = link::run(spec, commands, &stop).map_err(failure)?;
    show(args.json, &report, || link_table(&report).trim_end().to_owned())?;
    Ok(if report.is_good() {
        Outcome::Done
    } else {
        Outcome::Failed
    })
}

/// The two command lines, which `--` separates.
fn commands(words: &[OsString]) -> Result<[Command; 2], Failure> {
    let parts: Vec<&[OsString]> = words.split(|word| word == "--").collect();
    let command = |part: &[OsString]| {
        let (program, arguments) = part.split_first()?;
        let mut command = Command::new(program);
        command.args(arguments);
        Some(command)
    };
    match parts.as_slice() {
        [a, b] => command(a).zip(command(b)).map(|(a, b)| [a, b]),
        _ => None,
    }
    .ok_or_else(|| Failure::refused("expected two command lines: holdall bench link LINK -- CMD_A -- CMD_B"))
}

/// Whether this process may make namespaces only as root of a user namespace.
pub(super) fn needs_user_namespace() -> bool {
    !is_root() && std::env::var_os(INSIDE).is_none()
}

/// Runs this program again as root of a user namespace.
pub(super) fn begin_again() -> VerbResult {
    let mut command = Command::new(std::env::current_exe().map_err(Failure::failed)?);
    command.args(std::env::args_os().skip(1)).env(INSIDE, "1");
    in_user_namespace(&mut command);
    // Ctrl-C reaches the whole group; the program inside ends then, after its report.
    let ignored = Arc::new(AtomicBool::new(false));
    flag::register(SIGINT, ignored).map_err(Failure::failed)?;
    let status = command
        .status()
        .map_err(|error| Failure::refused(LinkError::Namespace(error)))?;
    match status.code() {
        Some(0) => Ok(Outcome::Done),
        Some(2) => Err(Failure::refused(
            "the link was not made; the reason is in the line above",
        )),
        _ => Ok(Outcome::Failed),
    }
}
