//! One page for the results of experiments: tables in their published shape, plots with their data and
//! commands. Needs no network.

mod compare;
mod page;
mod plots;
mod section;
mod storages;
mod summary;

pub use compare::worse;
use section::Section;
pub use storages::Storages;
pub use summary::{PLOTS_MAX, WORDS_MAX, words, write_summary};

use super::{
    config::Experiment,
    experiments,
    result::{ExperimentResult, summary_csv},
    run::{EXPERIMENT_FILE, RESULTS},
};
use crate::{
    engine::{self, distinct, grouped},
    error::{BenchError, BenchResult},
    machine::Machine,
    middleware::{Evaluation, EvaluationResult, PublishedEvaluation, RESULT_FILE},
    people::PeopleResult,
};
use holdall::plot::Painter;
use holdall_io::fs::write_atomically_unsynced;
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

/// A result folder that was read.
pub struct Loaded {
    /// Its path.
    pub folder: PathBuf,
    /// Its content.
    pub result: ExperimentResult,
    /// The experiment with its ladders and published figures, if it is known.
    pub experiment: Option<Experiment>,
}

/// An evaluation of middlewares that was read.
pub struct LoadedEvaluation {
    /// Its content.
    pub result: EvaluationResult,
    /// The experiment with its links, if it is known.
    pub evaluation: Option<Evaluation>,
}

/// Everything on one page.
#[derive(Default)]
pub struct Results {
    /// Experiments with a recorder.
    pub experiments: Vec<Loaded>,
    /// Storages alone.
    pub storages: Vec<Storages>,
    /// Middlewares.
    pub evaluations: Vec<LoadedEvaluation>,
    /// Answers of users, items of repositories.
    pub people: Vec<PeopleResult>,
    /// What each experiment says of the published claim, one sentence by its name: `verdict.txt` in its folder, written by people.
    pub verdicts: BTreeMap<String, String>,
    /// Published figures of middlewares.
    pub published: Option<PublishedEvaluation>,
}

impl Results {
    /// Adds those of another folder.
    pub fn append(&mut self, mut other: Self) {
        self.experiments.append(&mut other.experiments);
        self.storages.append(&mut other.storages);
        self.evaluations.append(&mut other.evaluations);
        self.people.append(&mut other.people);
        self.verdicts.append(&mut other.verdicts);
    }

    /// The commands of the results, without their folders.
    fn commands(&self) -> Vec<&str> {
        let experiments = self.experiments.iter().map(|one| &one.result);
        let experiments = experiments.flat_map(|one| one.earlier.iter().chain([&one.command]));
        let evaluations = self.evaluations.iter().map(|one| &one.result);
        let evaluations = evaluations.flat_map(|one| one.earlier.iter().chain([&one.command]));
        let storages = self.storages.iter().map(|one| &one.result.command);
        let all = experiments.chain(evaluations).chain(storages);
        distinct(all.map(String::as_str))
    }

    /// Each machine, and the experiments that it ran.
    fn machines(&self) -> Vec<(String, String)> {
        let experiments = self.experiments.iter().map(|one| &one.result);
        let experiments = experiments.map(|ran| (&ran.machine, ran.experiment.as_str()));
        let evaluations = self.evaluations.iter().map(|one| &one.result);
        let evaluations = evaluations.map(|ran| (&ran.machine, ran.experiment.as_str()));
        let storages = self.storages.iter();
        let storages = storages.map(|one| (&one.result.machine, one.id.as_str()));
        by_machine(experiments.chain(evaluations).chain(storages))
    }

    /// The sections of the page; `other` are results to compare with.
    fn sections(&self, other: &Self) -> Vec<Section> {
        let experiment = |one: &Loaded| {
            let mut others = other.experiments.iter();
            one.section(others.find(|other| other.result.experiment == one.result.experiment))
        };
        let storages = |one: &Storages| one.section(other.storages.iter().find(|other| other.id == one.id));
        let evaluation = |one: &LoadedEvaluation| one.section(self.published.as_ref());
        let sections = self.experiments.iter().map(experiment);
        sections
            .chain(self.evaluations.iter().map(evaluation))
            .chain(self.people.iter().map(Section::of_people))
            .chain(self.storages.iter().map(storages))
            .collect()
    }
}

/// Each machine as text, with the names of what it ran.
fn by_machine<'r>(ran: impl Iterator<Item = (&'r Machine, &'r str)>) -> Vec<(String, String)> {
    let machines = grouped(ran, |(machine, _)| machine.to_string()).into_iter();
    let names = |ran: Vec<(&Machine, &'r str)>| ran.into_iter().map(|(_, name)| name).collect::<Vec<_>>();
    machines
        .map(|(machine, ran)| (machine, names(ran).join(", ")))
        .collect()
}

/// Reads every experiment in `folder`: the folder of one, or one with several in it.
///
/// # Errors
/// A folder without results, or results that cannot be read.
pub fn load(folder: &Path) -> BenchResult<Results> {
    let none = || {
        let found = folder.display().to_string();
        BenchError::option(
            "DIR",
            "a folder with results of holdall bench run or storage",
            found,
        )
    };
    let mut folders = vec![folder.to_owned()];
    if !folder.is_dir() {
        return Err(none());
    }
    let entries = fs::read_dir(folder).map_err(BenchError::io("list", folder))?;
    folders.extend(entries.flatten().map(|entry| entry.path()));
    folders[1..]
        .sort_by_cached_key(|folder| in_order(&folder.file_name().unwrap_or_default().to_string_lossy()));
    let mut loaded = Results::default();
    for folder in folders {
        let text = fs::read_to_string(folder.join(EXPERIMENT_FILE)).unwrap_or_default();
        if let (Ok(verdict), Some(name)) =
            (fs::read_to_string(folder.join("verdict.txt")), folder.file_name())
        {
            let name = name.to_string_lossy().into_owned();
            loaded
                .verdicts
                .insert(name, verdict.trim().replace(['|', '\n'], " "));
        }
        loaded.storages.extend(storages::load(&folder)?);
        loaded.people.extend(PeopleResult::load(&folder)?);
        // The experiment as it was run; results from before that was stored are looked up by their name.
        let path = folder.join(RESULT_FILE);
        if path.is_file() {
            let result: EvaluationResult = engine::load(&path, "the result of an evaluation")?;
            let evaluation = Evaluation::parse(&text).ok();
            loaded.evaluations.push(LoadedEvaluation {
                evaluation: evaluation.or_else(|| experiments::evaluation_by_id(&result.experiment)),
                result,
            });
        }
        let path = folder.join(RESULTS);
        if path.is_file() {
            let result: ExperimentResult = engine::load(&path, "the result of an experiment")?;
            let experiment = Experiment::parse(&text).ok();
            let experiment = experiment.or_else(|| experiments::by_id(&result.experiment));
            loaded.experiments.push(Loaded {
                experiment: experiment.map(|experiment| experiment.scaled(result.scale)),
                result,
                folder,
            });
        }
    }
    let is_empty = loaded.machines().is_empty() && loaded.people.is_empty();
    if is_empty { Err(none()) } else { Ok(loaded) }
}

/// Before the number in a name, and the number: A10 comes after A9.
fn in_order(name: &str) -> (String, u32, String) {
    let end = name.find(|one: char| one.is_ascii_digit()).unwrap_or(name.len());
    let digits = name[end..]
        .chars()
        .take_while(char::is_ascii_digit)
        .collect::<String>();
    (
        name[..end].to_owned(),
        digits.parse().unwrap_or(0),
        name.to_owned(),
    )
}

/// Writes `report.html`, and next to it each plot as SVG and PNG and its data as CSV and JSON. Returns the
/// page's path.
///
/// # Errors
/// A folder that cannot be written.
pub fn write(loaded: &Results, other: &Results, out: &Path) -> BenchResult<PathBuf> {
    fs::create_dir_all(out).map_err(BenchError::io("create", out))?;
    let keep = |name: &str, content: &[u8]| {
        let path = out.join(name);
        write_atomically_unsynced(&path, content)?;
        Ok::<_, BenchError>(path)
    };
    let mut painter = Painter::new();
    let sections = loaded.sections(other);
    for section in &sections {
        for chart in &section.charts {
            let (stem, svg) = (
                format!("{}_{}", file_stem(&section.id), chart.name),
                chart.standalone(),
            );
            let png = painter.png(&svg).map_err(BenchError::rival("resvg", out))?;
            keep(&format!("{stem}.svg"), svg.as_bytes())?;
            keep(&format!("{stem}.png"), &png)?;
            keep(&format!("{stem}.csv"), chart.csv().as_bytes())?;
        }
    }
    for Loaded { result, .. } in &loaded.experiments {
        let id = file_stem(&result.experiment);
        keep(&format!("{id}.csv"), summary_csv(&result.runs).as_bytes())?;
        engine::store(&out.join(format!("{id}.json")), result)?;
    }
    keep("report.html", page::html(loaded, &sections).as_bytes())
}

/// Letters, digits, `-` and `_` of a name, so that it stays a file name.
fn file_stem(name: &str) -> String {
    let is_kept = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    name.chars().map(|c| if is_kept(&c) { c } else { '_' }).collect()
}
