//! Manual pages of a command line, from the same source as its `--help`.

use crate::exit::Failure;
use clap::Command;
use std::path::Path;

/// The page of a command, under its full name.
///
/// # Errors
/// When clap cannot write it.
pub fn page(command: &Command, name: &str) -> Result<String, Failure> {
    let mut bytes = Vec::new();
    // The name on a page is one word; how it is invoked is in the synopsis.
    clap_mangen::Man::new(command.clone())
        .title(name.to_owned())
        .render(&mut bytes)
        .map_err(Failure::failed)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Writes the pages of a command and of all verbs below it into a directory.
///
/// # Errors
/// The first file that cannot be written.
pub fn write_all(dir: &Path, command: &Command, name: &str) -> Result<(), Failure> {
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
