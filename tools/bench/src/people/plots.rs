//! The plots of people: answers as stacked bars, and how soon items are closed.

use super::{CohortAnswers, History, ItemKind, Items, PeopleResult, Question, survey::STEPS};
use crate::{
    engine::{Csv, grouped},
    error::BenchResult,
    statistics::{Estimate, Interval},
    suite::report::plots::{
        Bar, Chart, GRID, INK, Plot, WIDTH, colour, failed,
        lines::{self, Axes, Line},
    },
};
use plotters::prelude::*;

/// Colours from disagreement to agreement.
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
/// Position of the middle of the neutral answers.
const MIDDLE: i32 = (LEFT + WIDTH as i32 - RIGHT) / 2;
/// The last day that is drawn.
const DAYS_MAX: f64 = 180.0;

/// All plots that have data.
///
/// # Errors
/// Only because of a bug in this program.
pub(crate) fn plots(result: &PeopleResult) -> BenchResult<Vec<Plot>> {
    let mut plots = Vec::new();
    if !result.questions.is_empty() {
        plots.push(answers(&result.questions)?);
        plots.extend(means(&result.questions)?);
        for question in &result.questions {
            if PUBLISHED_HISTOGRAMS.contains(&question.name.as_str()) {
                plots.push(histogram(question)?);
            }
        }
    }
    for profile in &result.profiles {
        plots.extend(profile.plot()?);
    }
    if !result.items.is_empty() {
        plots.extend(open_and_closed(&result.items)?);
    }
    for (name, kinds, title) in [
        (
            "issues",
            &[ItemKind::Issue, ItemKind::PullRequestListedAsIssue][..],
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
        if items.iter().any(|one| one.kind == kinds[0]) {
            plots.push(closed(name, title, &items)?);
        }
    }
    if !result.histories.is_empty() {
        plots.push(commits(&result.histories)?);
    }
    Ok(plots)
}

/// Questions whose answers were published as histograms (6.2.5).
const PUBLISHED_HISTOGRAMS: [&str; 6] = ["Q4", "Q11", "Q5", "Q13", "Q14", "Q16"];

/// Mean and deviation of each question's answers (6.2.4); thin and grey with the published scale.
fn means(questions: &[Question]) -> BenchResult<Option<Plot>> {
    let columns = "question,cohort,mean,deviation,mean_as_published,deviation_as_published";
    let mut chart = Chart::new(("", 2, 5.0), &columns.split(',').collect::<Vec<_>>());
    let around = |(mean, deviation): (f64, f64)| Estimate {
        interval: Some(Interval {
            low: mean - deviation,
            high: (mean + deviation).min(5.0),
        }),
        ..Estimate::exactly(mean)
    };
    for question in questions {
        for (series, answers) in question.cohorts.iter().enumerate() {
            let figures = [false, true].map(|is_published| answers.mean_and_deviation(is_published));
            let [Some(ours), Some(theirs)] = figures else {
                continue;
            };
            let bar = Bar {
                other: Some(around(theirs)),
                ..Bar::new(&answers.cohort, series, around(ours))
            };
            let (question, cohort) = (&question.name, &answers.cohort);
            chart.add(
                question,
                bar,
                &[question, cohort, &ours.0, &ours.1, &theirs.0, &theirs.1],
            );
        }
    }
    let title = "Mean answer, 1 strongly disagree to 5 strongly agree, and its standard deviation; grey: as published, with strong and weak \
                 answers swapped";
    chart.plot("means", title)
}

/// The answers to one question by cohort.
fn histogram(question: &Question) -> BenchResult<Plot> {
    let mut csv = Csv::of(["cohort", "answer", "count"]);
    let line = |(colour, answers): (usize, &CohortAnswers)| {
        let all = answers.counts.iter().sum::<u64>();
        let point = |(place, count): (usize, &u64)| {
            csv.row(&[&answers.cohort, &NAMES[place], count]);
            (place as f64, 100.0 * *count as f64 / (all as f64).max(1.0))
        };
        Line {
            name: format!("{} ({all})", answers.cohort),
            points: answers.counts.iter().enumerate().map(point).collect(),
            dotted: true,
            colour: Some(colour),
        }
    };
    let lines: Vec<Line> = question.cohorts.iter().enumerate().map(line).collect();
    let axes = Axes {
        places: &NAMES,
        ..Axes::around(&lines, "", "answers, %")
    };
    let svg = lines::draw(&lines, &axes)?;
    Ok(Plot {
        name: format!("answers_{}", question.name),
        title: format!("Answers to {}, in percent of each cohort", question.name),
        svg,
        csv: csv.text(),
    })
}

/// Open and closed items of each repository (4.2.1); as published, pull requests count among the issues, too.
fn open_and_closed(items: &[Items]) -> BenchResult<Option<Plot>> {
    let mut chart = Chart::new(("", 0, 1.0), &["repository", "items", "open", "closed"]);
    chart.parts = ["open", "closed"]
        .into_iter()
        .zip([colour(1), colour(0)])
        .map(|(name, colour)| (name.to_owned(), colour))
        .collect();
    for (repository, items) in grouped(items, |one| &one.repository) {
        let sum = |kinds: &[ItemKind]| {
            let those = items.iter().filter(|one| kinds.contains(&one.kind));
            those.fold([0, 0], |[open, closed], one| {
                [open + one.open, closed + one.closed]
            })
        };
        for (name, kinds) in [
            ("pull requests", &[ItemKind::PullRequest][..]),
            ("issues", &[ItemKind::Issue]),
            (
                "issues as published",
                &[ItemKind::Issue, ItemKind::PullRequestListedAsIssue],
            ),
        ] {
            let [open, closed] = sum(kinds);
            let bar = Bar::stacked(name, &[open as f64, closed as f64]);
            chart.add(repository, bar, &[repository, &name, &open, &closed]);
        }
    }
    chart.plot(
        "items",
        "Pull requests and issues of each repository, open and closed",
    )
}

/// A bar for each question and cohort, around the middle of the neutral answers.
fn answers(questions: &[Question]) -> BenchResult<Plot> {
    let columns = ["question", "cohort"].into_iter().chain(NAMES);
    let mut csv = Csv::of(columns.chain(["not applicable"]));
    let bars: Vec<(&Question, &CohortAnswers)> = questions
        .iter()
        .flat_map(|question| {
            let cohorts = question.cohorts.iter().filter(|answers| answers.cohort != "all");
            cohorts.map(move |answers| (question, answers))
        })
        .collect();
    for (question, answers) in &bars {
        let [a, b, c, d, e] = &answers.counts;
        csv.row(&[
            &question.name,
            &answers.cohort,
            a,
            b,
            c,
            d,
            e,
            &answers.not_applicable,
        ]);
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
        csv: csv.text(),
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

/// The share of items that are closed after some days (4.2.2); grey: as published, open items never closed, and pull requests among the issues.
fn closed(name: &str, title: &str, items: &[&Items]) -> BenchResult<Plot> {
    let mut csv = Csv::of(["repository", "as", "days", "closed_percent"]);
    let mut lines = Vec::new();
    for (colour, (repository, of_one)) in grouped(items, |one| &one.repository).into_iter().enumerate() {
        let published = published_curve(&of_one);
        lines.push(steps(
            &mut csv,
            repository,
            ("published", String::new(), None),
            &published,
        ));
        for one in of_one
            .iter()
            .filter(|one| one.kind != ItemKind::PullRequestListedAsIssue)
        {
            let name = format!("{repository} ({} open, {} closed)", one.open, one.closed);
            let ours = ("Kaplan-Meier", name, Some(colour));
            lines.push(steps(&mut csv, repository, ours, &one.closed_after_days));
        }
    }
    let axes = Axes {
        x: (0.0..DAYS_MAX, "days since it was opened"),
        y: (0.0..100.0, "closed, %"),
        ..Axes::around(&lines, "", "")
    };
    Ok(Plot {
        name: name.to_owned(),
        title: format!("{title} (Kaplan–Meier); grey: as published, open ones never closed"),
        svg: lines::draw(&lines, &axes)?,
        csv: csv.text(),
    })
}

/// The curve of several kinds of items together.
fn published_curve(items: &[&&Items]) -> Vec<(f64, f64)> {
    let all: f64 = items.iter().map(|one| (one.open + one.closed) as f64).sum();
    let mut days: Vec<f64> = items
        .iter()
        .flat_map(|one| one.closed_after_days_as_published.iter().map(|(days, _)| *days))
        .collect();
    days.sort_by(f64::total_cmp);
    let closed = days.iter().zip(1..);
    closed
        .map(|(days, number)| (*days, f64::from(number) / all.max(1.0)))
        .collect()
}

/// A line of steps through shares.
fn steps(
    csv: &mut Csv,
    repository: &str,
    (how, name, colour): (&str, String, Option<usize>),
    curve: &[(f64, f64)],
) -> Line {
    let mut points: Vec<(f64, f64)> = vec![(0.0, 0.0)];
    for (days, share) in curve {
        let percent = 100.0 * share;
        csv.row(&[&repository, &how, days, &percent]);
        if *days <= DAYS_MAX {
            let before = points.last().map_or(0.0, |point| point.1);
            points.extend([(*days, before), (*days, percent)]);
        }
    }
    let last = points.last().map_or(0.0, |point| point.1);
    points.push((DAYS_MAX, last));
    Line {
        name,
        points,
        dotted: false,
        colour,
    }
}

/// Weeks that are drawn as one.
const WEEKS: usize = 4;

/// Commits of every four weeks, by the time since the first one.
fn commits(histories: &[History]) -> BenchResult<Plot> {
    let mut csv = Csv::of(["repository", "week", "commits"]);
    let mut lines = Vec::new();
    for (colour, one) in histories.iter().enumerate() {
        for (week, count) in one.by_week.iter().enumerate() {
            csv.row(&[&one.repository, &week, count]);
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
    let axes = Axes::around(&lines, "weeks since the first commit", "commits of four weeks");
    Ok(Plot {
        name: "commits".to_owned(),
        title: "Commits of every four weeks".to_owned(),
        svg: lines::draw(&lines, &axes)?,
        csv: csv.text(),
    })
}
