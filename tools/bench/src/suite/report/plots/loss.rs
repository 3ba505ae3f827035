//! Losses over the offered load.

use super::{
    Plot, label,
    lines::{self, Axes, Line},
};
use crate::{
    engine::{Csv, grouped},
    suite::{config::Experiment, table::Row},
};
use holdall_model::units::MIB;

/// A line for each recorder over the loads that were offered; the worst case where several offer the same.
fn lines_of(rows: &[&Row<'_>]) -> (Vec<Line>, Csv) {
    let mut csv = Csv::of(["case", "setting", "offered_bytes_per_s", "lost_percent"]);
    let points = rows.iter().map(|row| {
        let offered = row.median(|run| run.offered_bytes_per_s);
        let lost = 100.0 - row.recorded_percent.median;
        csv.row(&[&row.case, &label(row), &offered, &lost]);
        (label(row), (offered / MIB, lost))
    });
    let each = grouped(points.collect::<Vec<_>>(), |(name, _)| name.clone());
    let mut lines = Vec::new();
    for (colour, (name, members)) in each.into_iter().enumerate() {
        let mut points: Vec<_> = members.into_iter().map(|(_, point)| point).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0).then(b.1.total_cmp(&a.1)));
        points.dedup_by(|later, worst| later.0 == worst.0);
        lines.push(Line {
            name,
            points,
            dotted: true,
            colour: Some(colour),
        });
    }
    (lines, csv)
}

fn plot(rows: &[&Row<'_>], name: String, title: String) -> Plot {
    let (lines, csv) = lines_of(rows);
    let axes = Axes::around(&lines, "offered, MiB/s", "lost, %");
    lines::plot(name, title, (&lines, &axes), csv)
}

/// Loss over load, if any message was lost and more than one load was run.
pub(super) fn against_load(rows: &[Row<'_>]) -> Option<Plot> {
    let all: Vec<&Row<'_>> = rows.iter().collect();
    let (lines, _) = lines_of(&all);
    let has_loss = rows.iter().any(|row| row.recorded_percent.median < 100.0);
    if !has_loss || lines.iter().all(|line| line.points.len() < 2) {
        return None;
    }
    let title = "Messages lost against the offered load (the worst where several cases offer the same)";
    Some(plot(&all, "loss".to_owned(), title.to_owned()))
}

/// A plot for each ladder of the experiment.
pub(super) fn ladders(rows: &[Row<'_>], experiment: Option<&Experiment>) -> Vec<Plot> {
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
