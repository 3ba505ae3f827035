//! `holdall man`: manual pages from the same source as `--help`.

use crate::{
    VerbResult,
    args::{Cli, tools::ManArguments},
    exit::{Failure, Outcome},
    output,
};
use clap::{Command, CommandFactory};
use std::path::Path;

/// Writes one page to standard output, or all into a directory.
pub fn run(args: &ManArguments) -> VerbResult {
    let mut cli = Cli::command();
    cli.build();
    match &args.dir {
        Some(dir) => {
            holdall_io::fs::create_dirs(dir).map_err(Failure::failed)?;
            write_all(dir, &cli, "holdall")?;
        }
        None => {
            let mut command = &cli;
            let mut name = "holdall".to_owned();
            for verb in &args.verb {
                command = command
                    .find_subcommand(verb)
                    .ok_or_else(|| Failure::refused(format!("{name} has no verb {verb:?}")))?;
                name = format!("{name}-{}", command.get_name());
            }
            output::result(&page(command, &name)?)?;
        }
    }
    Ok(Outcome::Done)
}

/// The page of a command, under its full name.
fn page(command: &Command, name: &str) -> Result<String, Failure> {
    let mut bytes = Vec::new();
    // The name on a page is one word; how it is invoked is in the synopsis.
    clap_mangen::Man::new(command.clone())
        .title(name.to_owned())
        .render(&mut bytes)
        .map_err(Failure::failed)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn write_all(dir: &Path, command: &Command, name: &str) -> Result<(), Failure> {
    let path = dir.join(format!("{name}.1"));
    let text = page(command, name)?;
    holdall_io::fs::write_atomically(&path, text.as_bytes()).map_err(Failure::failed)?;
    for verb in command
        .get_subcommands()
        .filter(|verb| verb.get_name() != "help" && !verb.is_hide_set())
    {
        write_all(dir, verb, &format!("{name}-{}", verb.get_name()))?;
    }
    Ok(())
}
