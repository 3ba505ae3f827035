//! Where the processor time of a run over a transport goes: recorder, publishers and the rest of the machine,
//! as stacked bars.

use super::{INK, SERIES, WIDTH, bars, by_case, csv_cell, failed, label};
use crate::{
    error::BenchResult,
    suite::{result::RunResult, table::Row},
};
use plotters::{prelude::*, style::FontStyle};
use std::fmt::Write;

/// The parts of a bar, in order.
const PARTS: [&str; 5] = [
    "recorder",
    "recorder, kernel",
    "publishers",
    "publishers, kernel",
    "rest of the machine",
];

/// Colours of the parts: the kernel's share of each is the lighter one.
const COLOURS: [RGBColor; 5] = [
    SERIES[0],
    SERIES[4],
    SERIES[5],
    SERIES[1],
    RGBColor(0x99, 0x99, 0x99),
];

/// Percent of one processor for each of [`PARTS`]; `None` without processes.
fn parts(run: &RunResult) -> Option<[f64; 5]> {
    let of = |name: &str| run.processes.iter().find(|one| one.name == name);
    let (recorder, publishers) = (of("recorder")?, of("publishers")?);
    let percent = |seconds: f64| 100.0 * seconds.max(0.0) / run.elapsed_s.max(1e-9);
    let mut last_s = 0.0;
    let mut busy_s = 0.0;
    for sample in &run.cores {
        busy_s += sample.busy.iter().sum::<f64>() * (sample.at_s - last_s);
        last_s = sample.at_s;
    }
    let own = [
        percent(recorder.cpu_s - recorder.cpu_system_s),
        percent(recorder.cpu_system_s),
        percent(publishers.cpu_s - publishers.cpu_system_s),
        percent(publishers.cpu_system_s),
    ];
    // Sampled for longer than the run took: from before its programs existed until after their end.
    let rest = 100.0 * (busy_s - recorder.cpu_s - publishers.cpu_s).max(0.0) / last_s.max(1e-9);
    // Programs of a short run took part of their time before its first message, so their sum could exceed the
    // machine.
    let cores = run
        .cores
        .iter()
        .map(|sample| sample.busy.len())
        .max()
        .unwrap_or(0);
    let left = (100.0 * cores as f64 - own.iter().sum::<f64>()).max(0.0);
    let [a, b, c, d] = own;
    Some([a, b, c, d, rest.min(left)])
}

/// The figures of a row: each part's median; `None` without processes.
fn of_row(row: &Row<'_>) -> Option<[f64; 5]> {
    let runs: Option<Vec<[f64; 5]>> = row.runs.iter().map(|run| parts(run)).collect();
    let runs = runs?;
    let mut medians = [0.0; 5];
    for (part, median) in medians.iter_mut().enumerate() {
        let of_part: Vec<f64> = runs.iter().map(|one| one[part]).collect();
        *median = crate::statistics::median(&of_part)?;
    }
    Some(medians)
}

/// The picture and its data; `None` without processes.
pub(super) fn draw(rows: &[Row<'_>]) -> BenchResult<Option<(String, String)>> {
    let with: Vec<(&Row<'_>, [f64; 5])> = rows.iter().filter_map(|row| Some((row, of_row(row)?))).collect();
    if with.is_empty() {
        return Ok(None);
    }
    let mut csv = format!("case,setting,{}\n", PARTS.map(csv_cell).join(","));
    for (row, percents) in &with {
        let figures = percents.map(|percent| format!("{percent:.1}")).join(",");
        let _never_fails =
            writeln!(csv, "{},{},{figures}", csv_cell(row.case), csv_cell(&label(row))).is_ok();
    }
    Ok(Some((picture(&with)?, csv)))
}

fn picture(with: &[(&Row<'_>, [f64; 5])]) -> BenchResult<String> {
    const LEFT: i32 = 380;
    const STEP: i32 = 24;
    let most = with.iter().map(|(_, percents)| percents.iter().sum::<f64>());
    let most = bars::round_up(most.fold(100.0, f64::max));
    let plain: Vec<&Row<'_>> = with.iter().map(|(row, _)| *row).collect();
    let cases = by_case(&plain);
    let count = |length: usize| i32::try_from(length).unwrap_or(1 << 12);
    let height = 60 + STEP * (count(with.len()) + count(cases.len()));
    let width = f64::from(i32::try_from(WIDTH).unwrap_or(0) - LEFT - 60);
    // A share between 0 and 1, so pixels fit.
    let x = |percent: f64| LEFT + (width * (percent / most).clamp(0.0, 1.0)).round() as i32;
    let text = ("sans-serif", 13).into_font().color(&INK);
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (WIDTH, height.unsigned_abs())).into_drawing_area();
        for ((name, colour), place) in PARTS.iter().zip(COLOURS).zip(0_i32..) {
            let left = 4 + place * 168;
            root.draw(&Rectangle::new([(left, 6), (left + 12, 18)], colour.filled()))
                .map_err(failed)?;
            root.draw(&Text::new(*name, (left + 18, 6), text.clone()))
                .map_err(failed)?;
        }
        for quarter in 0..=4 {
            let value = most * f64::from(quarter) / 4.0;
            let line = PathElement::new(vec![(x(value), 46), (x(value), height - 4)], super::GRID);
            root.draw(&line).map_err(failed)?;
            root.draw(&Text::new(
                format!("{value} %"),
                (x(value) - 14, 28),
                text.clone(),
            ))
            .map_err(failed)?;
        }
        let mut top = 50;
        for (case, members) in cases {
            let bold = ("sans-serif", 13, FontStyle::Bold).into_font().color(&INK);
            root.draw(&Text::new(case, (4, top + 5), bold)).map_err(failed)?;
            top += STEP;
            for index in members {
                let (row, percents) = &with[index];
                root.draw(&Text::new(label(row), (14, top + 2), text.clone()))
                    .map_err(failed)?;
                let mut from = 0.0;
                for (percent, colour) in percents.iter().zip(COLOURS) {
                    let part = [(x(from), top), (x(from + percent), top + 15)];
                    root.draw(&Rectangle::new(part, colour.filled()))
                        .map_err(failed)?;
                    from += percent;
                }
                root.draw(&Text::new(
                    format!("{from:.0}"),
                    (x(most) + 8, top + 2),
                    text.clone(),
                ))
                .map_err(failed)?;
                top += STEP;
            }
        }
        root.present().map_err(failed)?;
    }
    Ok(svg)
}
