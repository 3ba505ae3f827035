//! The processor time of a run over a transport, by recorder, publishers and the rest of the machine, as
//! stacked bars.

use super::{Bar, Chart, Plot, SERIES, label, picture::Colour};
use crate::suite::{result::RunResult, table::Row};

/// The parts of a bar, in order.
const PARTS: [&str; 5] = [
    "recorder",
    "recorder, kernel",
    "publishers",
    "publishers, kernel",
    "rest of the machine",
];

/// Colours of the parts: the kernel's share of each is the lighter one.
const COLOURS: [Colour; 5] = [
    SERIES[0],
    SERIES[4],
    SERIES[5],
    SERIES[1],
    Colour(0x99, 0x99, 0x99),
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
pub(super) fn plot(rows: &[Row<'_>]) -> Option<Plot> {
    let columns: Vec<&str> = ["case", "setting"].into_iter().chain(PARTS).collect();
    let mut chart = Chart::new(("%", 0, 100.0), &columns);
    chart.parts = PARTS.map(str::to_owned).into_iter().zip(COLOURS).collect();
    for (row, percents) in rows.iter().filter_map(|row| Some((row, of_row(row)?))) {
        let [a, b, c, d, e] = percents.map(|percent| format!("{percent:.1}"));
        let name = label(row);
        let bar = Bar::stacked(name.clone(), &percents);
        chart.add(row.case, bar, &[&row.case, &name, &a, &b, &c, &d, &e]);
    }
    chart.plot(
        "time",
        "Where the processor time goes, in percent of one processor",
    )
}
