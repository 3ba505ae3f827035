//! Losses over the offered load.

use super::{
    Plot, csv_cell, label,
    lines::{self, Axes, Line},
};
use crate::{
    error::BenchResult,
    suite::{config::Experiment, table::Row},
};
use holdall_model::units::MIB;
use std::fmt::Write;

/// A line for each recorder over the loads that were offered; the worst case where several offer the same.
fn lines_of(rows: &[&Row<'_>]) -> (Vec<Line>, String) {
    let mut lines: Vec<Line> = Vec::new();
    let mut csv = "case,setting,offered_bytes_per_s,lost_percent\n".to_owned();
    for row in rows {
        let offered = row.median(|run| run.offered_bytes_per_s);
        let lost = 100.0 - row.recorded_percent.median;
        let name = label(row);
        let _never_fails =
            writeln!(csv, "{},{},{offered},{lost}", csv_cell(row.case), csv_cell(&name)).is_ok();
        let colour = Some(lines.len());
        match lines.iter_mut().find(|line| line.name == name) {
            Some(line) => line.points.push((offered / MIB, lost)),
            None => lines.push(Line {
                name,
                points: vec![(offered / MIB, lost)],
                dotted: true,
                colour,
            }),
        }
    }
    for line in &mut lines {
        line.points
            .sort_by(|a, b| a.0.total_cmp(&b.0).then(b.1.total_cmp(&a.1)));
        line.points.dedup_by(|later, worst| later.0 == worst.0);
    }
    (lines, csv)
}

fn plot(rows: &[&Row<'_>], name: String, title: String) -> BenchResult<Plot> {
    let (lines, csv) = lines_of(rows);
    let points = || lines.iter().flat_map(|line| &line.points);
    let most = points().map(|point| point.0).fold(1.0, f64::max) * 1.05;
    let worst = points().map(|point| point.1).fold(1.0, f64::max) * 1.1;
    let axes = Axes {
        x: (0.0..most, "offered, MiB/s"),
        y: (0.0..worst, "lost, %"),
        places: &[],
        borders: &[],
        is_log: false,
    };
    Ok(Plot {
        name,
        title,
        svg: lines::draw(&lines, &axes)?,
        csv,
    })
}

/// Loss over load, where there is a loss and more than one load.
pub(super) fn against_load(rows: &[Row<'_>]) -> BenchResult<Option<Plot>> {
    let all: Vec<&Row<'_>> = rows.iter().collect();
    let (lines, _) = lines_of(&all);
    let has_loss = rows.iter().any(|row| row.recorded_percent.median < 100.0);
    if !has_loss || lines.iter().all(|line| line.points.len() < 2) {
        return Ok(None);
    }
    let title = "Messages lost against the offered load (the worst where several cases offer the same)";
    plot(&all, "loss".to_owned(), title.to_owned()).map(Some)
}

/// A plot for each ladder of the experiment.
pub(super) fn ladders(rows: &[Row<'_>], experiment: Option<&Experiment>) -> BenchResult<Vec<Plot>> {
    let ladder_of = |case: &str| {
        let cases = experiment.map_or(&[][..], |experiment| &experiment.cases);
        cases.iter().find(|one| one.label == case)?.ladder.as_deref()
    };
    let mut names: Vec<&str> = rows.iter().filter_map(|row| ladder_of(row.case)).collect();
    names.dedup();
    let one = |(place, name): (usize, &&str)| {
        let steps: Vec<&Row<'_>> = rows
            .iter()
            .filter(|row| ladder_of(row.case) == Some(*name))
            .collect();
        plot(
            &steps,
            format!("loss_{}", place + 1),
            format!("Messages lost against the offered load: {name}"),
        )
    };
    names.iter().enumerate().map(one).collect()
}
