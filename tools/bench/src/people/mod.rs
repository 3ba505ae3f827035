//! Answers, work and declarations of people: a survey of users, issues, pull requests and commits of repositories, quality levels. Data come
//! from files; nothing is fetched.

mod quality;

use crate::{
    chart::Chart,
    engine,
    error::{BenchError, BenchResult},
    sheet::Sheet,
};
pub use quality::{Declaration, Points, Remark};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// The experiment's short name.
pub const ID: &str = "D8";
/// The result, in the experiment's folder.
pub const RESULT_FILE: &str = "people.json";
/// Reads all but declarations of quality.
const READER: &str = include_str!("../../people/read.py");
const QUALITY_END: &str = "quality.yaml";

/// Everything that was read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PeopleResult {
    /// The command line.
    #[serde(default)]
    pub command: String,
    /// Declared quality of packages.
    #[serde(default)]
    pub declarations: Vec<Declaration>,
    /// How the figures are shown.
    #[serde(default)]
    tables: Vec<Sheet>,
    #[serde(default)]
    pub(crate) charts: Vec<Chart>,
    /// The figures: `questions`, `profiles`, `items` and `histories`.
    #[serde(flatten)]
    pub figures: Map<String, Value>,
}

impl PeopleResult {
    /// The tables for which there are data.
    pub(crate) fn sheets(&self) -> Vec<Sheet> {
        let declared = (!self.declarations.is_empty()).then(|| quality::sheet(&self.declarations));
        let remarks = quality::remarks(&self.declarations);
        let tables = self.tables.iter().cloned();
        tables.chain(declared).chain(remarks).collect()
    }

    fn is_empty(&self) -> bool {
        let mut figures = self.figures.values();
        self.declarations.is_empty() && figures.all(|list| list.as_array().is_none_or(Vec::is_empty))
    }

    /// Reads a stored one; `None` if it does not exist.
    ///
    /// # Errors
    /// A file that is something else.
    pub(crate) fn load(folder: &Path) -> BenchResult<Option<Self>> {
        let path = folder.join(RESULT_FILE);
        path.is_file()
            .then(|| engine::load(&path, "the result of D8"))
            .transpose()
    }
}

/// Reads the data in a folder with this Python (else `python3`), by the ends of the files' names: `survey_counts.csv`, `survey_questions.csv`, `survey_profile_counts.csv`,
/// `repository_items.csv`, `issues.json` and `pulls.json` (pages of the hosting site's interface), `git_log.txt`, `quality.yaml`; and every folder in it
/// that is a git repository. Stores the result in `out`.
///
/// # Errors
/// A folder without data, a file with other columns, a folder for results that has content, a missing Python.
pub fn run(data: &Path, out: &Path, command: &str, python: Option<&Path>) -> BenchResult<PeopleResult> {
    let folder = out.join(ID);
    if folder.exists() {
        return Err(BenchError::NotEmpty { path: folder });
    }
    let mut result = read(data, python.unwrap_or(Path::new("python3")))?;
    command.clone_into(&mut result.command);
    let entries = fs::read_dir(data).map_err(BenchError::io("list", data))?;
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.sort();
    for file in files {
        if file.to_string_lossy().ends_with(QUALITY_END) {
            result.declarations.extend(quality::read(&file)?);
        }
    }
    if result.is_empty() {
        let expected = format!(
            "a folder with git repositories, or with files that end in one of survey_counts.csv, survey_profile_counts.csv, \
             repository_items.csv, issues.json, pulls.json, git_log.txt, {QUALITY_END}"
        );
        return Err(BenchError::option("--data", expected, data.display().to_string()));
    }
    fs::create_dir_all(&folder).map_err(BenchError::io("create", &folder))?;
    engine::store(&folder.join(RESULT_FILE), &result)?;
    Ok(result)
}

fn read(data: &Path, python: &Path) -> BenchResult<PeopleResult> {
    let failed = |reason: String| BenchError::program(python.display(), reason);
    let output = Command::new(python)
        .args(["-c", READER])
        .arg(data)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| {
            failed(format!(
                "cannot be started: {error}; name a Python by --python FILE"
            ))
        })?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        return Err(failed(
            text.lines().last().unwrap_or("no reason printed").to_owned(),
        ));
    }
    serde_json::from_slice(&output.stdout)
        .map_err(|error| failed(format!("printed something else than the result of D8: {error}")))
}

/// The tables as text.
pub fn people_table(result: &PeopleResult) -> String {
    let texts: Vec<String> = result
        .sheets()
        .iter()
        .map(|sheet| format!("{}\n{}", sheet.title, sheet.text()))
        .collect();
    format!("{}\n\n{WORDS}", texts.join("\n\n"))
}

/// The explanations of words in the tables.
pub(crate) const WORDS: &str = "Mean: 1 strongly disagree to 5 strongly agree; as published: with the scale of the published report, which swaps \
     strong and weak answers. p: Mann–Whitney between both cohorts; Holm: corrected for the number of questions. Effect: how much more likely the \
     first cohort's answer is the higher one. Median days: Kaplan–Meier, in which an open item counts as long as it was watched; as published: an \
     open item counts as closed after 180 days. Of half: so many authors made half of the commits.";
