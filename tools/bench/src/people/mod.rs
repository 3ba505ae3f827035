//! Answers, work and declarations of people: a survey of users, issues, pull requests and commits of repositories, quality levels. Data come
//! from files; nothing is fetched.

mod history;
mod plots;
mod profile;
mod quality;
mod repository;
mod survey;

use crate::{
    engine,
    error::{BenchError, BenchResult},
    suite::sheet::Sheet,
};
pub use history::History;
pub(crate) use plots::plots;
pub use profile::Profile;
pub use quality::{Declaration, Points};
pub use repository::{ItemKind, Items};
use serde::{Deserialize, Serialize};
use std::{
    fs,
    path::{Path, PathBuf},
};
pub use survey::{CohortAnswers, Comparison, Question};

/// The experiment's short name.
pub const ID: &str = "D8";
/// The result, in the experiment's folder.
pub const RESULT_FILE: &str = "people.json";
/// Ends of the names of files with data.
const SURVEY_END: &str = "survey_counts.csv";
const PROFILE_END: &str = "survey_profile_counts.csv";
const ITEMS_END: &str = "repository_items.csv";
const ISSUES_END: &str = "issues.json";
const PULLS_END: &str = "pulls.json";
const LOG_END: &str = "git_log.txt";
const QUALITY_END: &str = "quality.yaml";

/// Everything that was read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PeopleResult {
    /// The command line.
    pub command: String,
    /// Questions of surveys.
    pub questions: Vec<Question>,
    /// Who answered.
    #[serde(default)]
    pub profiles: Vec<Profile>,
    /// Items of repositories.
    pub items: Vec<Items>,
    /// Commits of repositories.
    #[serde(default)]
    pub histories: Vec<History>,
    /// Declared quality of packages.
    #[serde(default)]
    pub declarations: Vec<Declaration>,
}

impl PeopleResult {
    fn is_empty(&self) -> bool {
        self.questions.is_empty()
            && self.profiles.is_empty()
            && self.items.is_empty()
            && self.histories.is_empty()
            && self.declarations.is_empty()
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

/// Reads the data in a folder, by the ends of the files' names: `survey_counts.csv`, `survey_profile_counts.csv`, `repository_items.csv`, `issues.json` and `pulls.json` (pages of
/// the hosting site's interface), `git_log.txt`, `quality.yaml`; and every folder in it that is a git repository. Stores the result in `out`.
///
/// # Errors
/// A folder without data, a file with other columns, a folder for results that has content.
pub fn run(data: &Path, out: &Path, command: &str) -> BenchResult<PeopleResult> {
    let folder = out.join(ID);
    if folder.exists() {
        return Err(BenchError::NotEmpty { path: folder });
    }
    let entries = fs::read_dir(data).map_err(BenchError::io("list", data))?;
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.sort();
    let ends_with = |path: &Path, end: &str| {
        path.file_name()
            .is_some_and(|name| name.to_string_lossy().ends_with(end))
    };
    let mut result = PeopleResult {
        command: command.to_owned(),
        ..PeopleResult::default()
    };
    let mut pages = Vec::new();
    for file in &files {
        if file.join(".git").exists() {
            result.histories.push(history::of_repository(file)?);
        } else if ends_with(file, LOG_END) {
            result.histories.push(history::of_file(file)?);
        } else if ends_with(file, QUALITY_END) {
            result.declarations.extend(quality::read(file)?);
        } else if ends_with(file, ISSUES_END) || ends_with(file, PULLS_END) {
            pages.push(file.clone());
        } else if ends_with(file, SURVEY_END) {
            result.questions.extend(survey::read(file)?);
        } else if ends_with(file, PROFILE_END) {
            result.profiles.extend(profile::read(file)?);
        } else if ends_with(file, ITEMS_END) {
            result.items.extend(repository::read(file)?);
        }
    }
    if !pages.is_empty() {
        result.items.extend(repository::read_api(&pages)?);
    }
    if result.is_empty() {
        let ends = [
            SURVEY_END,
            PROFILE_END,
            ITEMS_END,
            ISSUES_END,
            PULLS_END,
            LOG_END,
            QUALITY_END,
        ]
        .join(", ");
        return Err(BenchError::Option {
            option: "--data",
            expected: format!("a folder with git repositories, or with files that end in one of {ends}"),
            found: data.display().to_string(),
        });
    }
    fs::create_dir_all(&folder).map_err(BenchError::io("create", &folder))?;
    engine::store(&folder.join(RESULT_FILE), &result)?;
    Ok(result)
}

/// The tables for which there are data.
pub(crate) fn sheets(result: &PeopleResult) -> Vec<Sheet> {
    let mut sheets = Vec::new();
    if !result.questions.is_empty() {
        sheets.push(survey_sheet(&result.questions));
    }
    if !result.items.is_empty() {
        sheets.push(items_sheet(&result.items));
    }
    if !result.histories.is_empty() {
        sheets.push(history::sheet(&result.histories));
    }
    if !result.declarations.is_empty() {
        sheets.push(quality::sheet(&result.declarations));
    }
    sheets
}

/// The tables as text.
pub fn people_table(result: &PeopleResult) -> String {
    let sheets = sheets(result);
    let texts: Vec<String> = sheets
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

fn number(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "–".to_owned(), |value| format!("{value:.digits$}"))
}

fn survey_sheet(questions: &[Question]) -> Sheet {
    let mut rows = Vec::new();
    for question in questions {
        for (place, answers) in question.cohorts.iter().enumerate() {
            // In the row of the first of both.
            let is_first = question.cohorts.iter().position(|one| one.cohort != "all") == Some(place);
            let comparison = question.comparison.filter(|_| is_first);
            let mut row = vec![
                if place == 0 {
                    question.name.clone()
                } else {
                    String::new()
                },
                answers.cohort.clone(),
                answers.counts.iter().sum::<u64>().to_string(),
                number(answers.mean, 2),
                number(answers.mean_as_published, 2),
            ];
            row.push(number(comparison.map(|one| one.effect), 2));
            row.push(number(comparison.map(|one| one.p), 4));
            row.push(number(comparison.map(|one| one.p_holm), 4));
            rows.push(row);
        }
    }
    Sheet {
        title: "What users answered",
        header: vec![
            "question",
            "cohort",
            "answers",
            "mean",
            "as published",
            "effect",
            "p",
            "p, Holm",
        ],
        words: 2,
        rows,
    }
}

fn items_sheet(items: &[Items]) -> Sheet {
    let rows = items.iter().map(|one| {
        let kind = match one.kind {
            ItemKind::Issue => "issue",
            ItemKind::PullRequest => "pull request",
            ItemKind::PullRequestListedAsIssue => "pull request listed as issue",
        };
        vec![
            one.repository.clone(),
            kind.to_owned(),
            one.open.to_string(),
            one.closed.to_string(),
            number(one.median_days, 1),
            number(one.median_days_as_published, 1),
        ]
    });
    Sheet {
        title: "Issues and pull requests",
        header: vec![
            "repository",
            "kind",
            "open",
            "closed",
            "median days",
            "as published",
        ],
        words: 2,
        rows: rows.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks facts about the published data that were found by hand.
    #[test]
    fn the_published_data_give_what_is_known_of_them() {
        let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/tsc-rmw");
        let out = tempfile::tempdir().unwrap();
        let result = run(&data, out.path(), "").unwrap();
        let stored = PeopleResult::load(&out.path().join(ID)).unwrap().unwrap();
        assert_eq!((stored.questions.len(), stored.items.len()), (19, 12));
        let mean = |question: &str, cohort: &str| {
            let question = result.questions.iter().find(|one| one.name == question).unwrap();
            let answers = question.cohorts.iter().find(|one| one.cohort == cohort).unwrap();
            [answers.mean, answers.mean_as_published].map(|mean| (mean.unwrap() * 100.0).round() / 100.0)
        };
        assert_eq!(
            [mean("Q1", "cyclone"), mean("Q1", "fast")],
            [[3.86, 4.0], [4.17, 3.97]]
        );
        assert_eq!([mean("Q18", "cyclone")[0], mean("Q18", "fast")[0]], [4.03, 3.91]);
        let compared = |question: &str| {
            result
                .questions
                .iter()
                .find(|one| one.name == question)
                .unwrap()
                .comparison
                .unwrap()
        };
        let significant: Vec<_> = result
            .questions
            .iter()
            .filter(|question| question.comparison.is_some_and(|one| one.p_holm < 0.05))
            .map(|question| question.name.as_str())
            .collect();
        assert_eq!(significant, ["Q3", "Q4"]);
        assert!((compared("Q3").p - 0.0002).abs() < 0.0001 && (compared("Q4").p - 0.0025).abs() < 0.0005);
        assert!(compared("Q18").p > 0.95, "{:?}", compared("Q18"));
        let mut weak: Vec<_> = result
            .questions
            .iter()
            .filter(|question| {
                question
                    .comparison
                    .is_some_and(|one| one.p < 0.05 && one.p_holm >= 0.05)
            })
            .map(|question| question.name.as_str())
            .collect();
        weak.sort_unstable();
        assert_eq!(weak, ["Q12", "Q14"]);
        let count = |repository: &str, kind: ItemKind| {
            let found = result
                .items
                .iter()
                .find(|one| one.repository == repository && one.kind == kind);
            found.map_or(0, |one| one.open + one.closed)
        };
        for (repository, pull_requests, listed) in [
            ("eclipse-cyclonedds/cyclonedds", 99, 121),
            ("eProsima/Fast-RTPS", 256, 331),
            ("ros2/rmw_cyclonedds", 74, 96),
            ("ros2/rmw_fastrtps", 79, 93),
        ] {
            let as_issue = count(repository, ItemKind::PullRequestListedAsIssue);
            assert_eq!(
                (as_issue, as_issue + count(repository, ItemKind::Issue)),
                (pull_requests, listed)
            );
        }
    }

    #[test]
    fn a_folder_without_data_is_refused() {
        let out = tempfile::tempdir().unwrap();
        let error = run(out.path(), &out.path().join("out"), "")
            .unwrap_err()
            .to_string();
        assert!(error.contains("survey_counts.csv"), "{error}");
    }
}
