//! The bags that a command line names; `-` is a storage file on standard input.

use crate::{
    args::choice::{ChoiceArguments, DefinitionArguments},
    exit::Failure,
    resolve,
    units::plural,
};
use holdall::{
    decode::MessageChoice,
    definitions::DefinitionFolders,
    reader::{Bag, BagSet, Ros1View},
};
use holdall_io::{
    clock::{Clock, SystemClock},
    fs::write_new,
    remote,
    scratch::ScratchDirectory,
};
use holdall_storage::compression::scratch;
use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};
use tracing::warn;

/// The name of the copy of standard input in messages.
const STANDARD_INPUT: &str = "standard-input";

/// Paths of bags with `-` resolved: standard input is kept in a temporary file as long as this lives. A bag's
/// index is at its end, so it cannot be read before all of it has arrived.
pub struct Named {
    /// In the order of the command line.
    pub paths: Vec<PathBuf>,
    _standard_input: Option<ScratchDirectory>,
}

/// Resolves `-`.
///
/// # Errors
/// `-` more than once; standard input that cannot be kept.
pub fn resolve(paths: &[PathBuf]) -> Result<Named, Failure> {
    let is_standard_input = |path: &PathBuf| path.as_path() == Path::new("-");
    let kept = match paths.iter().filter(|path| is_standard_input(path)).count() {
        0 => None,
        1 => Some(keep_standard_input()?),
        _ => {
            return Err(Failure::refused(
                "- can be named once: there is one standard input",
            ));
        }
    };
    let resolved = paths.iter().map(|path| match &kept {
        Some(kept) if is_standard_input(path) => kept.path().join(STANDARD_INPUT),
        // A URL is shown without its secrets.
        _ => remote::clean(path).into_owned(),
    });
    Ok(Named {
        paths: resolved.collect(),
        _standard_input: kept,
    })
}

/// Bounds a choice by the times of the command line.
///
/// # Errors
/// A time at which the bags have no messages.
pub fn bound(choice: &mut MessageChoice, bags: &BagSet, args: &ChoiceArguments) -> Result<(), Failure> {
    choice
        .bound(bags, args.start.clone(), args.end.clone())
        .map_err(|error| Failure::choosing(error.into()))
}

/// Bags that are open.
pub struct Input {
    /// The bags in the order of the command line.
    pub bags: BagSet,
    _named: Named,
}

/// Opens bags and warns once about their state.
///
/// # Errors
/// The first that cannot be opened.
pub fn open(paths: &[PathBuf], definitions: &DefinitionArguments) -> Result<Input, Failure> {
    let folders = definition_folders(definitions)?;
    let named = resolve(paths)?;
    let bags = BagSet::open_with(&named.paths, Ros1View::AllConverted)
        .map_err(|error| Failure::opening(error, &named.paths))?
        .with_definitions(&folders);
    bags.notices().iter().for_each(|notice| warn!("{notice}"));
    Ok(Input { bags, _named: named })
}

/// Opens bags one by one, for the verbs that create bags from them.
///
/// # Errors
/// The first that cannot be opened.
pub fn open_each(named: &Named, definitions: &DefinitionArguments) -> Result<Vec<Bag>, Failure> {
    let folders = definition_folders(definitions)?;
    let mut bags = Vec::with_capacity(named.paths.len());
    for path in &named.paths {
        let bag = Bag::open(path).map_err(|error| Failure::opening(error, &named.paths))?;
        bag.notices().iter().for_each(|notice| warn!("{notice}"));
        bags.push(bag.with_definitions(Arc::clone(&folders)));
    }
    Ok(bags)
}

/// Where definitions are searched that bags lack.
///
/// # Errors
/// A folder that cannot be read, or has none.
pub fn definition_folders(args: &DefinitionArguments) -> Result<Arc<DefinitionFolders>, Failure> {
    let surroundings = resolve::surroundings::real(SystemClock.now());
    let prefixes = resolve::record::ament_prefixes(&surroundings);
    DefinitionFolders::open(args.folders.clone(), prefixes)
        .map(Arc::new)
        .map_err(|error| Failure::refused(format!("--definitions {error}")))
}

/// Number of messages in bags, by their metadata.
pub fn message_count(bags: &BagSet) -> u64 {
    bags.bags().iter().map(|bag| bag.metadata().message_count).sum()
}

/// The sentence for a choice that leaves nothing of bags that have messages.
pub fn nothing_chosen(bags: &BagSet) -> String {
    format!(
        "nothing is selected: none of {} matches",
        plural(message_count(bags), "message")
    )
}

fn keep_standard_input() -> Result<ScratchDirectory, Failure> {
    let parent = scratch();
    let failed = |error: &dyn std::fmt::Display| {
        Failure::failed(format!(
            "cannot keep standard input in {}: {error}",
            parent.display()
        ))
    };
    let directory = ScratchDirectory::create(&parent).map_err(|error| failed(&error))?;
    let path = directory.path().join(STANDARD_INPUT);
    write_new(&path, &mut io::stdin().lock()).map_err(|error| failed(&error))?;
    // A command line names standard input once.
    holdall_program::standard_input::keep_as(path.display().to_string());
    Ok(directory)
}
