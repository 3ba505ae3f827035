//! Bags as they are named on the command line; `-` is a storage file on standard input.

use crate::exit::Failure;
use holdall::reader::{BagSet, Ros1View};
use std::{
    io,
    path::{Path, PathBuf},
};
use tempfile::NamedTempFile;
use tracing::warn;

/// Bags that are open. What came from standard input is kept in a temporary file as long as this lives: a bag's index stands at its
/// end, so it cannot be read before it is there.
pub struct Input {
    /// The bags in the order of the command line.
    pub bags: BagSet,
    _standard_input: Option<NamedTempFile>,
}

/// Opens bags and tells once what a user should know about their state.
///
/// # Errors
/// The first that cannot be opened.
pub fn open(paths: &[PathBuf]) -> Result<Input, Failure> {
    let is_standard_input = |path: &&PathBuf| path.as_path() == Path::new("-");
    let kept = match paths.iter().filter(is_standard_input).count() {
        0 => None,
        1 => Some(keep_standard_input()?),
        _ => {
            return Err(Failure::refused(
                "- can be named once: there is one standard input",
            ));
        }
    };
    let opened: Vec<&Path> = paths
        .iter()
        .map(|path| match &kept {
            Some(kept) if is_standard_input(&path) => kept.path(),
            _ => path.as_path(),
        })
        .collect();
    let bags = BagSet::open_with(&opened, Ros1View::AllConverted).map_err(Failure::failed)?;
    bags.notices().iter().for_each(|notice| warn!("{notice}"));
    Ok(Input {
        bags,
        _standard_input: kept,
    })
}

fn keep_standard_input() -> Result<NamedTempFile, Failure> {
    let failed = |error: io::Error| {
        Failure::failed(format!(
            "cannot keep standard input in {}: {error}",
            std::env::temp_dir().display()
        ))
    };
    let mut file = tempfile::Builder::new()
        .prefix("holdall-")
        .tempfile()
        .map_err(failed)?;
    io::copy(&mut io::stdin().lock(), &mut file).map_err(failed)?;
    Ok(file)
}
