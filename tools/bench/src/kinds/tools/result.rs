//! The result of the kind `tools`, and its table.

use crate::{
    engine::{BOOTSTRAP_SEED, Report, ratio_text},
    sheet::{Column, DASH, Sheet},
    statistics::{Estimate, median},
};
use holdall_model::units::{format_bytes, format_mebibyte_rate};
use serde::{Deserialize, Serialize};

/// One piece of work, done once.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ToolRun {
    /// Seconds.
    pub elapsed_s: f64,
    /// Bytes of the rate: the input for reading, the output for making bags, none where neither is processed
    /// in full.
    pub bytes: u64,
    /// Messages that were processed.
    pub messages: u64,
    /// Mean rate of the limit right before and right after, in bytes a second.
    pub limit_bytes_per_s: Option<f64>,
}

/// One piece of work in all rounds.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ToolRow {
    /// The work.
    pub name: String,
    /// The program.
    pub who: String,
    /// Bytes of the rate, as in [`ToolRun`].
    pub bytes: u64,
    /// Messages that were processed.
    pub messages: u64,
    /// The limit of the ratio: `copy`, `read`, or none.
    pub against: Option<&'static str>,
    /// Median time in seconds.
    pub elapsed_s: f64,
    /// Median rate.
    pub bytes_per_s: f64,
    /// Rate divided by the limit right before and after.
    pub ratio: Option<Estimate>,
    /// Seconds of each round.
    pub samples_s: Vec<f64>,
    /// Mean rate of the limit right before and right after, in each round.
    pub limits_bytes_per_s: Vec<f64>,
}

impl ToolRow {
    /// Combines the runs of one piece of work; `None` without a run.
    pub(super) fn of(
        (name, who): (&str, &str),
        against: Option<&'static str>,
        runs: &[ToolRun],
    ) -> Option<Self> {
        let last = runs.last()?;
        let samples_s: Vec<f64> = runs.iter().map(|run| run.elapsed_s).collect();
        let rates: Vec<f64> = samples_s
            .iter()
            .map(|elapsed| last.bytes as f64 / elapsed)
            .collect();
        let limits_bytes_per_s: Vec<f64> = runs.iter().filter_map(|run| run.limit_bytes_per_s).collect();
        Some(Self {
            name: name.to_owned(),
            who: who.to_owned(),
            bytes: last.bytes,
            messages: last.messages,
            against,
            elapsed_s: median(&samples_s)?,
            bytes_per_s: median(&rates)?,
            ratio: Estimate::of_ratio(&rates, &limits_bytes_per_s, BOOTSTRAP_SEED),
            samples_s,
            limits_bytes_per_s,
        })
    }
}

/// The whole result.
#[derive(Clone, Debug, Serialize)]
pub struct ToolsBody {
    /// All work, in order.
    pub rows: Vec<ToolRow>,
    /// Length of each of the two inputs.
    pub input_bytes: u64,
    /// Rounds.
    pub repeat: u32,
    /// Inputs were dropped from the page cache before each measurement.
    pub cold: bool,
    /// Most memory that the process held, in bytes.
    pub rss_max_bytes: u64,
}

/// The result as text.
pub fn tools_table(report: &Report<ToolsBody>) -> String {
    let body = &report.body;
    let columns: [Column<ToolRow>; 5] = [
        ("work", |row| row.name.clone()),
        ("by", |row| row.who.clone()),
        ("time", |row| format!("{:.3} s", row.elapsed_s)),
        // None where neither input nor output is processed in full.
        ("rate", |row| match row.bytes {
            0 => DASH.to_owned(),
            _ => format_mebibyte_rate(row.bytes_per_s),
        }),
        ("÷ limit", |row| match row.against {
            Some(against) => format!("{} {against}", ratio_text(row.ratio.as_ref(), false)),
            None => DASH.to_owned(),
        }),
    ];
    let sheet = Sheet::of("", 2, &columns, &body.rows);
    format!(
        "{}\ntwo inputs of {}, {} before each measurement, {} rounds, at most {} of memory; limits by cp and a sync, \
         and by a plain read, right before and after each\n",
        sheet.text(),
        format_bytes(body.input_bytes),
        if body.cold { "cold" } else { "warm" },
        body.repeat,
        format_bytes(body.rss_max_bytes)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_over_the_bytes_and_ratios_over_the_limits_of_the_same_round() {
        let run = |elapsed_s, limit| ToolRun {
            elapsed_s,
            bytes: 100,
            messages: 3,
            limit_bytes_per_s: limit,
        };
        let runs = [run(1.0, Some(200.0)), run(2.0, Some(100.0)), run(4.0, Some(50.0))];
        let row = ToolRow::of(("merge", "holdall"), Some("copy"), &runs).unwrap();
        assert_eq!((row.elapsed_s, row.bytes_per_s, row.messages), (2.0, 50.0, 3));
        assert_eq!(row.ratio.unwrap().median, 0.5);
        let alone = ToolRow::of(("copy", "cp"), None, &[run(1.0, None)]).unwrap();
        assert!(alone.ratio.is_none() && alone.bytes_per_s == 100.0);
        assert!(ToolRow::of(("none", "-"), None, &[]).is_none());
    }
}
