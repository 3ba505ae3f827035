//! Who answered a survey: counts of answers to questions about the users themselves, by cohort.

use crate::{
    engine::{Csv, grouped},
    error::{BenchError, BenchResult},
    statistics::Estimate,
    suite::report::plots::{
        Bar, Chart, Plot, colour,
        lines::{self, Axes, Line},
    },
};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, path::Path};

/// A text given by at most this many people could identify them: it counts as [`OTHER`].
const ALONE: u64 = 1;
const OTHER: &str = "other";
/// All cohorts together, in the data.
pub(super) const ALL: &str = "all";

#[derive(Deserialize)]
struct Row {
    field: String,
    cohort: String,
    answer: String,
    count: u64,
}

/// A cohort's answers, and how many gave each.
type Counts = (String, Vec<(String, u64)>);

/// A question about the users.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// Its name.
    pub field: String,
    /// Answers by cohort, with their counts: numbers ascending, texts most frequent first.
    pub cohorts: Vec<Counts>,
}

/// Reads counts of answers.
///
/// # Errors
/// A file that cannot be read or has other columns.
pub(super) fn read(path: &Path) -> BenchResult<Vec<Profile>> {
    let broken = |error: csv::Error| BenchError::Verify {
        path: path.to_owned(),
        reason: format!("holds no counts of users: {error}"),
    };
    let rows = csv::Reader::from_path(path).map_err(broken)?.into_deserialize();
    let rows: Vec<Row> = rows.collect::<Result<_, _>>().map_err(broken)?;
    let fields = grouped(rows, |row| row.field.clone());
    Ok(fields
        .into_iter()
        .map(|(field, rows)| profile(field, rows))
        .collect())
}

fn profile(field: String, rows: Vec<Row>) -> Profile {
    let is_number = rows
        .iter()
        .all(|row| row.answer.is_empty() || number(&row.answer).is_some());
    let mut of_all: BTreeMap<String, u64> = BTreeMap::new();
    for row in rows.iter().filter(|row| row.cohort == ALL) {
        *of_all.entry(row.answer.clone()).or_default() += row.count;
    }
    let is_kept = |answer: &str| {
        !answer.is_empty() && (is_number || of_all.get(answer).is_none_or(|count| *count > ALONE))
    };
    let order = |answer: &str| match number(answer) {
        Some(number) if is_number => number,
        // Negative, so that the most frequent comes first and texts that are left out come last.
        _ => -(of_all.get(answer).copied().unwrap_or(0) as f64),
    };
    let cohort = |(cohort, rows): (String, Vec<Row>)| {
        let mut counts: BTreeMap<String, u64> = BTreeMap::new();
        for row in rows
            .into_iter()
            .filter(|row| !(is_number && row.answer.is_empty()))
        {
            let name = if is_kept(&row.answer) {
                row.answer
            } else {
                OTHER.to_owned()
            };
            *counts.entry(name).or_default() += row.count;
        }
        let mut counts: Vec<(String, u64)> = counts.into_iter().collect();
        counts.sort_by(|(a, _), (b, _)| order(a).total_cmp(&order(b)));
        (cohort, counts)
    };
    Profile {
        field,
        cohorts: grouped(rows, |row| row.cohort.clone())
            .into_iter()
            .map(cohort)
            .collect(),
    }
}

fn number(answer: &str) -> Option<f64> {
    answer.parse().ok().filter(|number: &f64| number.is_finite())
}

impl Profile {
    fn is_number(&self) -> bool {
        let mut answers = self.cohorts.iter().flat_map(|(_, counts)| counts);
        answers.all(|(answer, _)| number(answer).is_some())
    }

    /// Texts as parts of a bar for each cohort, numbers as a line for each cohort.
    ///
    /// # Errors
    /// Only because of a bug in this program.
    pub(super) fn plot(&self) -> BenchResult<Option<Plot>> {
        let name = format!("profile_{}", self.field);
        let title = self.field.replace('_', " ");
        if self.is_number() {
            let title = format!("Users by {title}, in percent of each cohort");
            return self.histogram(name, title).map(Some);
        }
        let mut answers: Vec<&str> = Vec::new();
        for (answer, _) in self.cohorts.iter().flat_map(|(_, counts)| counts) {
            if !answers.contains(&answer.as_str()) {
                answers.push(answer);
            }
        }
        let columns = ["cohort", "users"].into_iter().chain(answers.iter().copied());
        let mut chart = Chart::new(("%", 0, 100.0), &columns.collect::<Vec<_>>());
        chart.parts = answers
            .iter()
            .zip(0..)
            .map(|(name, place)| ((*name).to_owned(), colour(place)))
            .collect();
        for (cohort, counts) in &self.cohorts {
            let all: u64 = counts.iter().map(|(_, count)| count).sum();
            let count = |answer: &&str| {
                counts
                    .iter()
                    .find(|(known, _)| known == answer)
                    .map_or(0, |found| found.1)
            };
            let counts: Vec<u64> = answers.iter().map(count).collect();
            let shares: Vec<f64> = counts
                .iter()
                .map(|count| 100.0 * *count as f64 / (all as f64).max(1.0))
                .collect();
            let bar = Bar {
                estimate: Some(Estimate::exactly(100.0)),
                ..Bar::stacked(format!("{cohort} ({all})"), &shares)
            };
            let names: [&dyn std::fmt::Display; 2] = [cohort, &all];
            let figures = counts.iter().map(|count| count as &dyn std::fmt::Display);
            chart.add(&title, bar, &names.into_iter().chain(figures).collect::<Vec<_>>());
        }
        chart.plot(name, format!("Users by {title}, in percent of each cohort"))
    }

    fn histogram(&self, name: String, title: String) -> BenchResult<Plot> {
        let mut csv = Csv::of(["cohort", "answer", "users"]);
        let line = |(colour, (cohort, counts)): (usize, &Counts)| {
            let all: u64 = counts.iter().map(|(_, count)| count).sum();
            let point = |(answer, count): &(String, u64)| {
                csv.row(&[cohort, answer, count]);
                (
                    number(answer).unwrap_or(0.0),
                    100.0 * *count as f64 / (all as f64).max(1.0),
                )
            };
            Line {
                name: format!("{cohort} ({all})"),
                points: counts.iter().map(point).collect(),
                dotted: true,
                colour: Some(colour),
            }
        };
        let lines: Vec<Line> = self.cohorts.iter().enumerate().map(line).collect();
        let svg = lines::draw(&lines, &Axes::around(&lines, "answer", "users, %"))?;
        let csv = csv.text();
        Ok(Plot {
            name,
            title,
            svg,
            csv,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_one_person_are_not_kept_and_numbers_are_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("profile_counts.csv");
        let text = "field,cohort,answer,count\nversion,all,Foxy,70\nversion,all,Rolling,1\nversion,all,,1\nversion,fast,Rolling,1\n\
                    years,all,10,2\nyears,all,2.5,1\nyears,all,,4\n";
        std::fs::write(&path, text).unwrap();
        let profiles = read(&path).unwrap();
        let counts = |profile: usize, cohort: usize| {
            let counts = &profiles[profile].cohorts[cohort].1;
            counts
                .iter()
                .map(|(answer, count)| format!("{answer} {count}"))
                .collect::<Vec<_>>()
        };
        assert_eq!(counts(0, 0), ["Foxy 70", "other 2"]);
        assert_eq!(counts(0, 1), ["other 1"]);
        assert_eq!(counts(1, 0), ["2.5 1", "10 2"]);
        let plot = profiles[0].plot().unwrap().unwrap();
        assert!(
            plot.svg.contains("fast (1)") && !plot.svg.contains("Rolling") && !plot.csv.contains("Rolling")
        );
        assert!(profiles[1].plot().unwrap().unwrap().csv.contains("all,2.5,1"));
        std::fs::write(&path, "field,cohort,answer\na,b,c\n").unwrap();
        assert!(
            read(&path)
                .unwrap_err()
                .to_string()
                .contains("no counts of users")
        );
    }
}
