//! One page for the results of experiments: tables in their published shape, plots with their data and
//! commands. Needs no network.

mod compare;
mod page;
pub(crate) mod plots;
mod storages;
mod summary;

pub use page::html;
pub use storages::Storages;
pub use summary::{PLOTS_MAX, WORDS_MAX, words, write_summary};

use super::{
    config::Experiment,
    experiments,
    result::{ExperimentResult, summary_csv},
    run::EXPERIMENT_FILE,
};
use crate::{
    engine,
    error::{BenchError, BenchResult},
    middleware::{self, Evaluation, EvaluationResult, PublishedEvaluation, RESULT_FILE},
    people::{self, PeopleResult},
};
use holdall_io::fs::write_atomically_unsynced;
use std::{
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
    /// Its path.
    pub folder: PathBuf,
    /// Its content.
    pub result: EvaluationResult,
    /// The experiment with its links, if it is known.
    pub evaluation: Option<Evaluation>,
}

impl LoadedEvaluation {
    /// Its plots, with published figures in grey.
    fn plots(&self, published: Option<&PublishedEvaluation>) -> Vec<plots::Plot> {
        let context = middleware::Context {
            evaluation: self.evaluation.as_ref(),
            published,
        };
        middleware::plots(&self.result, &context)
    }
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
    }
}

/// Reads every experiment in `folder`: the folder of one, or one with several in it.
///
/// # Errors
/// A folder without results, or results that cannot be read.
pub fn load(folder: &Path) -> BenchResult<Results> {
    let mut folders = vec![folder.to_owned()];
    if !folder.is_dir() {
        return Err(no_results(folder));
    }
    let entries = fs::read_dir(folder).map_err(BenchError::io("list", folder))?;
    folders.extend(entries.flatten().map(|entry| entry.path()));
    folders[1..].sort();
    let mut loaded = Results::default();
    for folder in folders {
        loaded.storages.extend(storages::load(&folder)?);
        loaded.evaluations.extend(load_evaluation(&folder)?);
        loaded.people.extend(PeopleResult::load(&folder)?);
        let path = folder.join("results.json");
        if !path.is_file() {
            continue;
        }
        let result: ExperimentResult = engine::load(&path, "the result of an experiment")?;
        loaded.experiments.push(Loaded {
            experiment: experiment_of(&folder, &result),
            result,
            folder,
        });
    }
    let is_empty = loaded.experiments.is_empty() && loaded.storages.is_empty();
    if is_empty && loaded.evaluations.is_empty() && loaded.people.is_empty() {
        return Err(no_results(folder));
    }
    Ok(loaded)
}

fn load_evaluation(folder: &Path) -> BenchResult<Option<LoadedEvaluation>> {
    let path = folder.join(RESULT_FILE);
    if !path.is_file() {
        return Ok(None);
    }
    let result: EvaluationResult = engine::load(&path, "the result of an evaluation")?;
    let text = fs::read_to_string(folder.join(EXPERIMENT_FILE)).ok();
    Ok(Some(LoadedEvaluation {
        evaluation: text
            .and_then(|text| Evaluation::parse(&text).ok())
            .or_else(|| experiments::evaluation_by_id(&result.experiment)),
        result,
        folder: folder.to_owned(),
    }))
}

fn no_results(folder: &Path) -> BenchError {
    BenchError::Option {
        option: "DIR",
        expected: "a folder with results of holdall bench run or storage".to_owned(),
        found: folder.display().to_string(),
    }
}

/// The experiment as it was run; results from before that was stored are looked up by their name.
fn experiment_of(folder: &Path, result: &ExperimentResult) -> Option<Experiment> {
    let text = fs::read_to_string(folder.join(EXPERIMENT_FILE)).ok();
    text.and_then(|text| Experiment::parse(&text).ok())
        .or_else(|| experiments::by_id(&result.experiment))
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
    let mut painter = plots::Painter::new();
    let mut keep_plot = |id: &str, plot: &plots::Plot| {
        let svg = plots::standalone(&plot.svg);
        keep(&format!("{id}_{}.svg", plot.name), svg.as_bytes())?;
        keep(
            &format!("{id}_{}.png", plot.name),
            &painter.png(&svg).map_err(|error| BenchError::Rival {
                library: "resvg",
                path: out.to_owned(),
                reason: error.to_string(),
            })?,
        )?;
        keep(&format!("{id}_{}.csv", plot.name), plot.csv.as_bytes())
    };
    for one in &loaded.experiments {
        let id = file_stem(&one.result.experiment);
        keep(&format!("{id}.csv"), summary_csv(&one.result.runs).as_bytes())?;
        engine::store(&out.join(format!("{id}.json")), &one.result)?;
        let there = other
            .experiments
            .iter()
            .find(|other| other.result.experiment == one.result.experiment);
        let mut drawn = plots::of(one);
        if let Some(there) = there {
            drawn.extend(plots::of_changes(&compare::changes(one, there)));
        }
        for plot in drawn {
            keep_plot(&id, &plot)?;
        }
    }
    for one in &loaded.evaluations {
        let id = file_stem(&one.result.experiment);
        for plot in one.plots(loaded.published.as_ref()) {
            keep_plot(&id, &plot)?;
        }
    }
    for plot in loaded.people.iter().flat_map(people::plots) {
        keep_plot(people::ID, &plot)?;
    }
    for one in &loaded.storages {
        let there = other.storages.iter().find(|other| other.id == one.id);
        let id = file_stem(&one.id);
        for plot in one.plots(there) {
            keep_plot(&id, &plot)?;
        }
    }
    keep("report.html", html(loaded, other).as_bytes())
}

/// Letters, digits, `-` and `_` of a name, so that it stays a file name.
fn file_stem(name: &str) -> String {
    let keep = |c: char| {
        if c.is_ascii_alphanumeric() || c == '-' || c == '_' {
            c
        } else {
            '_'
        }
    };
    name.chars().map(keep).collect()
}
