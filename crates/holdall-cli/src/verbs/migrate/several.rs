//! `holdall migrate` of folders: all bags below are looked at before one is written, and only those that need it are.

use super::{migrate, open};
use crate::{
    VerbResult,
    args::migrate::MigrateArguments,
    exit::{Failure, Outcome},
    output,
    units::plural,
    verbs::input::Named,
};
use holdall::{
    reader::BagSet,
    tools::migrate::{NewDefinitions, migrations},
};
use holdall_io::fs;
use holdall_model::{dynamic::migrate::Migrations, text::OutsidePath};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

/// The bags of a command line that names several, or a folder of them.
pub(super) struct Several {
    paths: Vec<PathBuf>,
    /// What each output is named, below the folder for all.
    names: Vec<PathBuf>,
}

/// The bags, if the command line names more than one, or if one is `enough`.
///
/// # Errors
/// A folder that cannot be searched, or two bags whose outputs would have one name.
pub(super) fn of(named: &Named, enough: bool) -> Result<Option<Several>, Failure> {
    let paths = &named.paths;
    let found = match bags_below(paths) {
        Ok(found) => found,
        // What cannot be searched may be a bag, on a web server for example, and is named better when it is opened.
        Err(_) if paths.len() == 1 => return Ok(None),
        Err(failure) => return Err(failure),
    };
    let is_one = paths.len() == 1 && found.iter().all(|(root, path)| root == path);
    if is_one && !enough {
        return Ok(None);
    }
    if found.is_empty() {
        return Err(Failure::refused("none of these folders has a bag"));
    }
    let mut names: Vec<PathBuf> = match is_one {
        true => vec![PathBuf::new()],
        false => found.iter().map(|(root, path)| name(root, path)).collect(),
    };
    if doubled(&names).is_some() {
        // Bags of one name in different folders.
        let common = common(found.iter().map(|(_, path)| path.as_path()));
        names = found.iter().map(|(_, path)| name(&common, path)).collect();
    }
    if let Some(name) = doubled(&names) {
        return Err(Failure::refused(format!(
            "two bags would be written as {}; migrate them one by one",
            OutsidePath(name)
        )));
    }
    let paths = found.into_iter().map(|(_, path)| path).collect();
    Ok(Some(Several { paths, names }))
}

/// What the output of a bag is named, below the folder for all.
fn name(root: &Path, path: &Path) -> PathBuf {
    let below = path.strip_prefix(root).unwrap_or(path);
    let below = match below.as_os_str().is_empty() || below.is_absolute() {
        true => Path::new(path.file_name().unwrap_or_default()),
        false => below,
    };
    // A file becomes a directory.
    match fs::is_file(path) {
        true => below.with_extension(""),
        false => below.to_owned(),
    }
}

/// A name that two bags have.
fn doubled(names: &[PathBuf]) -> Option<&PathBuf> {
    let mut seen = BTreeSet::new();
    names.iter().find(|name| !seen.insert(*name))
}

/// The folder that has all of these paths.
fn common<'a>(mut paths: impl Iterator<Item = &'a Path>) -> PathBuf {
    let first = paths.next().and_then(Path::parent).unwrap_or(Path::new(""));
    paths.fold(first.to_owned(), |common, path| {
        let both = common.components().zip(path.components());
        both.take_while(|(one, other)| one == other)
            .map(|(one, _)| one)
            .collect()
    })
}

/// The bags below folders, each with what was named.
#[cfg(feature = "parquet")]
fn bags_below(paths: &[PathBuf]) -> Result<Vec<(PathBuf, PathBuf)>, Failure> {
    holdall::catalog::bags_below(paths).map_err(Failure::refused)
}

/// A build without catalogs searches no folders: what is named is a bag.
#[cfg(not(feature = "parquet"))]
fn bags_below(paths: &[PathBuf]) -> Result<Vec<(PathBuf, PathBuf)>, Failure> {
    Ok(paths.iter().map(|path| (path.clone(), path.clone())).collect())
}

/// Prints what would be migrated, and where to.
fn list(needed: &[(&PathBuf, PathBuf)], json: bool) -> VerbResult {
    for (path, place) in needed {
        output::result(&match json {
            true => serde_json::json!({"bag": path, "output": place}).to_string(),
            false => format!("{} would become {}", OutsidePath(path), OutsidePath(place)),
        })?;
    }
    Ok(Outcome::Done)
}

/// Warns of topics that stay in skipped bags and, if there is `no_other` bag, of unused rules: each sentence once.
fn warn_of_skipped(skipped: &[(&PathBuf, Migrations)], no_other: bool) {
    let mut bags: BTreeMap<&String, Vec<&PathBuf>> = BTreeMap::new();
    for (path, found) in skipped {
        // The rules are for the others.
        let unused = found.unused.iter().filter(|_| no_other);
        for sentence in found.unchanged.iter().chain(unused) {
            bags.entry(sentence).or_default().push(path);
        }
    }
    for (sentence, paths) in bags {
        let others = match paths.len() - 1 {
            0 => String::new(),
            others => format!(" and {}", plural(others as u64, "other bag")),
        };
        tracing::warn!("{}{others}: {sentence}", OutsidePath(paths[0]));
    }
}

impl Several {
    /// All bags.
    pub fn paths(&self) -> &[PathBuf] {
        &self.paths
    }

    /// Migrates those that need it.
    ///
    /// # Errors
    /// Bags that cannot be read or migrated, all of them, and outputs that exist: nothing is written then.
    pub fn migrate(&self, folder: &Path, args: &MigrateArguments, new: &NewDefinitions) -> VerbResult {
        if folder == Path::new("-") {
            return Err(Failure::refused("one bag can be written to standard output"));
        }
        let (mut needed, mut skipped) = (Vec::new(), Vec::new());
        let mut refused = 0;
        for (path, name) in self.paths.iter().zip(&self.names) {
            // Without a separator at its end for the only bag.
            let place: PathBuf = folder.components().chain(name.components()).collect();
            match migrations_of(path, &place, args, new) {
                Ok(found) if found.is_empty() => skipped.push((path, found)),
                Ok(_) => needed.push((path, place)),
                Err(reason) => {
                    refused += 1;
                    output::complain(&format!("{}: {reason}", OutsidePath(path)));
                }
            }
        }
        if refused > 0 {
            return Err(Failure::refused(format!(
                "nothing was written: {refused} of {} cannot be migrated",
                plural(self.paths.len() as u64, "bag")
            )));
        }
        warn_of_skipped(&skipped, needed.is_empty());
        if args.dry_run {
            return list(&needed, args.json);
        }
        let (mut outcome, mut written) = (Outcome::Done, 0);
        for (path, place) in &needed {
            let above = place.parent().map_or(Ok(()), fs::create_dirs);
            let bags = above
                .map_err(Failure::failed)
                .and_then(|()| open(std::slice::from_ref(*path), &args.target));
            match bags.and_then(|bags| migrate(bags, place, args, new.clone())) {
                Ok(one) => {
                    written += 1;
                    outcome = outcome.or_worse(one);
                }
                Err(failure) => {
                    output::complain(&format!("{}: {}", OutsidePath(path), failure.sentence()));
                    outcome = outcome.or_worse(Outcome::Failed);
                }
            }
        }
        if !args.json {
            output::result(&format!(
                "{written} of {} migrated; {} without other definitions",
                plural(self.paths.len() as u64, "bag"),
                skipped.len()
            ))?;
        }
        Ok(outcome)
    }
}

/// The migrations of a bag, none if it has no messages that get another definition; what keeps it from being migrated, one sentence.
fn migrations_of(
    path: &PathBuf,
    place: &Path,
    args: &MigrateArguments,
    new: &NewDefinitions,
) -> Result<Migrations, String> {
    let bags = open(std::slice::from_ref(path), &args.target);
    let bags = BagSet::from(bags.map_err(|failure| failure.sentence().to_owned())?);
    let found = migrations(&bags, new).map_err(|error| error.to_string())?;
    if !found.is_empty() && fs::exists(place).map_err(|error| error.to_string())? {
        return Err(format!("{} exists and was left unchanged", OutsidePath(place)));
    }
    Ok(found)
}
