//! The plots of people: answers as stacked bars, and how soon items are closed.

use super::{CohortAnswers, History, ItemKind, Items, PeopleResult, Question, survey::STEPS};
use crate::{
    error::BenchResult,
    suite::report::plots::{
        GRID, INK, Plot, WIDTH, csv_cell, failed,
        lines::{self, Axes, Line},
    },
};
use plotters::prelude::*;
use std::fmt::Write;

/// From disagreement to agreement.
const COLOURS: [RGBColor; STEPS] = [
    RGBColor(0xCA, 0x52, 0x1F),
    RGBColor(0xF0, 0xB0, 0x88),
    RGBColor(0xBB, 0xBB, 0xBB),
    RGBColor(0x8C, 0xBF, 0xE0),
    RGBColor(0x1F, 0x6F, 0xB2),
];
const NAMES: [&str; STEPS] = [
    "strongly disagree",
    "disagree",
    "neutral",
    "agree",
    "strongly agree",
];
/// Height of a bar with the space below.
const STEP: i32 = 20;
/// Room for the names of the bars, for the numbers of answers, and for the legend.
const LEFT: i32 = 170;
const RIGHT: i32 = 60;
const TOP: i32 = 34;
/// Where the neutral answers have their middle.
const MIDDLE: i32 = (LEFT + WIDTH as i32 - RIGHT) / 2;
/// The last day that is drawn.
const DAYS_MAX: f64 = 180.0;

/// All plots for which there are data.
///
/// # Errors
/// Only by a defect of ours.
pub(crate) fn plots(result: &PeopleResult) -> BenchResult<Vec<Plot>> {
    let mut plots = Vec::new();
    if !result.questions.is_empty() {
        plots.push(answers(&result.questions)?);
    }
    for (name, kinds, title) in [
        (
            "issues",
            &[ItemKind::Issue][..],
            "Issues closed by then, pull requests apart",
        ),
        (
            "pull_requests",
            &[ItemKind::PullRequest],
            "Pull requests closed by then",
        ),
    ] {
        let items: Vec<&Items> = result
            .items
            .iter()
            .filter(|one| kinds.contains(&one.kind))
            .collect();
        if !items.is_empty() {
            plots.push(closed(name, title, &items)?);
        }
    }
    if !result.histories.is_empty() {
        plots.push(commits(&result.histories)?);
    }
    Ok(plots)
}

/// A bar for each question and cohort, around the middle of the neutral answers.
fn answers(questions: &[Question]) -> BenchResult<Plot> {
    let mut csv = format!("question,cohort,{},not applicable\n", NAMES.join(","));
    let bars: Vec<(&Question, &CohortAnswers)> = questions
        .iter()
        .flat_map(|question| {
            let cohorts = question.cohorts.iter().filter(|answers| answers.cohort != "all");
            cohorts.map(move |answers| (question, answers))
        })
        .collect();
    for (question, answers) in &bars {
        let counts = answers.counts.map(|count| count.to_string()).join(",");
        let names = [&question.name, &answers.cohort]
            .map(|name| csv_cell(name))
            .join(",");
        let _never_fails = writeln!(csv, "{names},{counts},{}", answers.not_applicable).is_ok();
    }
    let height = TOP + STEP * i32::try_from(bars.len()).unwrap_or(i32::MAX / STEP / 2) + 8;
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (WIDTH, height.unsigned_abs())).into_drawing_area();
        let text = ("sans-serif", 13).into_font().color(&INK);
        for (place, (name, colour)) in (0_i32..).zip(NAMES.iter().zip(COLOURS)) {
            let at = LEFT + place * 130;
            root.draw(&Rectangle::new([(at, 8), (at + 12, 20)], colour.filled()))
                .map_err(failed)?;
            root.draw(&Text::new(*name, (at + 17, 8), text.clone()))
                .map_err(failed)?;
        }
        root.draw(&PathElement::new(
            vec![(MIDDLE, TOP - 4), (MIDDLE, height - 4)],
            GRID,
        ))
        .map_err(failed)?;
        for (place, (question, answers)) in (0_i32..).zip(&bars) {
            let label = format!("{} {}", question.name, answers.cohort);
            bar(&root, &label, answers, TOP + place * STEP)?;
        }
        root.present().map_err(failed)?;
    }
    Ok(Plot {
        name: "answers".to_owned(),
        title: "Answers of users by cohort, around neutral; right: number of answers".to_owned(),
        svg,
        csv,
    })
}

/// The answers of a cohort to a question.
fn bar(
    root: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
    label: &str,
    answers: &CohortAnswers,
    top: i32,
) -> BenchResult<()> {
    let text = ("sans-serif", 13).into_font().color(&INK);
    // All answers of a bar are as wide as half of the plot.
    let scale = f64::from(MIDDLE - LEFT);
    root.draw(&Text::new(label, (8, top + 2), text.clone()))
        .map_err(failed)?;
    let all = answers.counts.iter().sum::<u64>();
    let right = 2 * MIDDLE - LEFT;
    root.draw(&Text::new(all.to_string(), (right + 10, top + 2), text))
        .map_err(failed)?;
    if all == 0 {
        return Ok(());
    }
    let share = |count: u64| count as f64 / all as f64;
    let negative = share(answers.counts[0]) + share(answers.counts[1]) + share(answers.counts[2]) / 2.0;
    let mut at = -negative;
    for (count, colour) in answers
        .counts
        .iter()
        .zip(COLOURS)
        .filter(|(count, _)| **count > 0)
    {
        // Shares are between -1 and 1, so pixels fit.
        let ends = [at, at + share(*count)].map(|share| MIDDLE + (share * scale).round() as i32);
        at += share(*count);
        root.draw(&Rectangle::new(
            [(ends[0], top), (ends[1], top + 14)],
            colour.filled(),
        ))
        .map_err(failed)?;
    }
    Ok(())
}

/// The share of items that are closed after some days.
fn closed(name: &str, title: &str, items: &[&Items]) -> BenchResult<Plot> {
    let mut csv = "repository,days,closed_percent\n".to_owned();
    let lines: Vec<Line> = items
        .iter()
        .enumerate()
        .map(|(colour, one)| {
            let mut points: Vec<(f64, f64)> = Vec::new();
            for (days, share) in &one.closed_after_days {
                let percent = 100.0 * share;
                let _never_fails = writeln!(csv, "{},{days},{percent}", csv_cell(&one.repository)).is_ok();
                if *days <= DAYS_MAX {
                    // A step.
                    let before = points.last().map_or(0.0, |point| point.1);
                    points.extend([(*days, before), (*days, percent)]);
                }
            }
            let last = points.last().map_or(0.0, |point| point.1);
            points.push((DAYS_MAX, last));
            Line {
                name: format!("{} ({} open, {} closed)", one.repository, one.open, one.closed),
                points,
                dotted: false,
                colour: Some(colour),
            }
        })
        .collect();
    let axes = Axes {
        x: (0.0..DAYS_MAX, "days since it was opened"),
        y: (0.0..100.0, "closed, %"),
        places: &[],
        borders: &[],
        is_log: false,
    };
    Ok(Plot {
        name: name.to_owned(),
        title: format!("{title} (Kaplan–Meier)"),
        svg: lines::draw(&lines, &axes)?,
        csv,
    })
}

/// Weeks that are drawn as one.
const WEEKS: usize = 4;

/// Commits of every four weeks, by the time since the first one.
fn commits(histories: &[History]) -> BenchResult<Plot> {
    let mut csv = "repository,week,commits\n".to_owned();
    let mut lines = Vec::new();
    for (colour, one) in histories.iter().enumerate() {
        for (week, count) in one.by_week.iter().enumerate() {
            let _never_fails = writeln!(csv, "{},{week},{count}", csv_cell(&one.repository)).is_ok();
        }
        let sums = one.by_week.chunks(WEEKS).map(|weeks| weeks.iter().sum::<u64>());
        let point = |(place, sum): (usize, u64)| ((place * WEEKS) as f64, sum as f64);
        lines.push(Line {
            name: format!(
                "{} ({} commits, {} authors)",
                one.repository, one.commits, one.authors
            ),
            points: sums.enumerate().map(point).collect(),
            dotted: false,
            colour: Some(colour),
        });
    }
    let points = || lines.iter().flat_map(|line| &line.points);
    let axes = Axes {
        x: (
            0.0..points().map(|point| point.0).fold(1.0, f64::max),
            "weeks since the first commit",
        ),
        y: (
            0.0..points().map(|point| point.1).fold(1.0, f64::max) * 1.1,
            "commits of four weeks",
        ),
        places: &[],
        borders: &[],
        is_log: false,
    };
    Ok(Plot {
        name: "commits".to_owned(),
        title: "Commits of every four weeks".to_owned(),
        svg: lines::draw(&lines, &axes)?,
        csv,
    })
}
