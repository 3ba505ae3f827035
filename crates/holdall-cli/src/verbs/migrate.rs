//! `holdall migrate`: a bag with the messages of other definitions.

mod several;

use super::{convert, input};
use crate::{
    VerbResult,
    args::{
        migrate::{MigrateArguments, TargetArguments},
        play::PlayArguments,
        tools::{DivisionArguments, OutputArguments},
    },
    exit::{Failure, Outcome},
    output,
    resolve::{self, UsageError, record::ament_prefixes},
    terminal::log,
};
use holdall::{
    definitions::DefinitionFolders,
    play::options::{OldDefinitions, PlayMigration},
    reader::{Bag, BagSet},
    tools::{
        Choice, OutputOptions,
        migrate::{NewDefinitions, compare},
    },
};
use holdall_io::clock::{Clock, SystemClock};
use holdall_model::{
    dynamic::migrate::{Compared, Rules, draft},
    interface::Distribution,
};
use several::Several;
use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::Arc,
};
use tracing::level_filters::LevelFilter;

/// Migrates a bag, or drafts the rules for it.
pub fn run(args: &MigrateArguments) -> VerbResult {
    log::start(LevelFilter::WARN);
    let new = target(&args.target)?;
    let named = input::resolve(&args.bags)?;
    let many = several::of(&named, args.dry_run)?;
    let paths = many.as_ref().map_or(named.paths.as_slice(), Several::paths);
    let Some(directory) = &args.output else {
        return write_draft(open(paths, &args.target)?, &new);
    };
    match &many {
        None => migrate(open(paths, &args.target)?, directory, args, new),
        Some(several) => several.migrate(directory, args, &new),
    }
}

/// Opens bags, with the old definitions that they lack.
fn open(paths: &[PathBuf], target: &TargetArguments) -> Result<Vec<Bag>, Failure> {
    let bags = paths.iter().map(|path| {
        let bag = Bag::open(path).map_err(|error| Failure::opening(error, paths))?;
        bag.notices().iter().for_each(|notice| tracing::warn!("{notice}"));
        with_old(bag, target)
    });
    bags.collect()
}

fn migrate(bags: Vec<Bag>, directory: &Path, args: &MigrateArguments, new: NewDefinitions) -> VerbResult {
    let how = OutputArguments {
        storage: args.storage.clone(),
        encrypt_to: args.encrypt_to.clone(),
        ..OutputArguments::default()
    };
    let surroundings = resolve::surroundings::real(SystemClock.now());
    let output = resolve::tools::output(directory, &how, &DivisionArguments::default(), &surroundings);
    let output = OutputOptions {
        migration: Some(new),
        ..output.map_err(Failure::refused)?
    };
    convert::make(bags, Choice::default(), output, "migrating", args.json)
}

fn write_draft(bags: Vec<Bag>, new: &NewDefinitions) -> VerbResult {
    let topics = compare(&BagSet::from(bags), new).map_err(|error| Failure::making(error, &[]))?;
    let comparisons = topics.iter().filter_map(|(_, compared)| match compared {
        Compared::Other(comparison) => Some(&**comparison),
        _ => None,
    });
    let unknown = topics
        .iter()
        .filter(|(_, compared)| matches!(compared, Compared::Unknown));
    let unknown: BTreeSet<&str> = unknown.map(|(topic, _)| topic.type_name.as_str()).collect();
    output::result(draft(comparisons, unknown.into_iter()).trim_end())?;
    Ok(Outcome::Done)
}

fn distribution(path: &Path) -> Option<Distribution> {
    path.to_str().and_then(Distribution::by_name)
}

/// A bag with the old definitions that it lacks.
///
/// # Errors
/// A folder that has no definitions.
pub fn with_old(bag: Bag, args: &TargetArguments) -> Result<Bag, Failure> {
    Ok(old(&args.from)?.complete(bag))
}

/// The old definitions that a command line names.
fn old(from: &[PathBuf]) -> Result<OldDefinitions, Failure> {
    let named = from.iter().find_map(|path| distribution(path));
    let folders = from.iter().filter(|path| distribution(path).is_none());
    let folders = DefinitionFolders::open(folders.cloned().collect(), Vec::new())
        .map_err(|error| Failure::refused(format!("--old-definitions {error}")))?;
    Ok(OldDefinitions {
        folders,
        distribution: named,
    })
}

/// The new definitions, and the rules.
///
/// # Errors
/// A folder without definitions, an unknown distribution, a fault in the rules; nothing that is named.
pub fn target(args: &TargetArguments) -> Result<NewDefinitions, Failure> {
    let distribution = args.distro.as_deref().map(|name| {
        Distribution::by_name(name).ok_or_else(|| {
            Failure::refused(UsageError::BadValue {
                flag: "--distro",
                value: name.to_owned(),
                reason: format!("expected one of {}", Distribution::NAMES.join(", ")),
            })
        })
    });
    let distribution = distribution.transpose()?;
    let surroundings = resolve::surroundings::real(SystemClock.now());
    let prefixes = match (args.folders.is_empty(), distribution) {
        (true, None) => ament_prefixes(&surroundings),
        _ => Vec::new(),
    };
    let folders = DefinitionFolders::open(args.folders.clone(), prefixes)
        .map_err(|error| Failure::refused(format!("--definitions {error}")))?
        .with_distribution(distribution);
    if folders.is_empty() {
        let reason = "no new definitions: name a folder (--definitions) or a distribution (--distro), or source a ROS installation";
        return Err(Failure::refused(reason));
    }
    let mut rules = Rules::default();
    for path in &args.rules {
        let name = path.display().to_string();
        let text = match Rules::shipped(&name) {
            Some(text) => text.to_owned(),
            None => resolve::read_file(&surroundings, "--rules", path).map_err(Failure::refused)?,
        };
        rules = rules.then(Rules::parse(&name, &text).map_err(Failure::refused)?);
    }
    Ok(NewDefinitions {
        folders: Arc::new(folders),
        rules,
    })
}

/// The definitions in which a bag is played, if the command line has rules for that.
///
/// # Errors
/// As [`target`].
pub fn of_playback(args: &PlayArguments) -> Result<Option<PlayMigration>, Failure> {
    let Some(rules) = &args.migrate else {
        return Ok(None);
    };
    let NewDefinitions { folders, rules } = target(&TargetArguments {
        folders: args.definitions.folders.clone(),
        distro: args.distro.clone(),
        rules: vec![rules.clone()],
        from: Vec::new(),
    })?;
    let old = old(&args.from)?;
    Ok(Some(PlayMigration { folders, rules, old }))
}
