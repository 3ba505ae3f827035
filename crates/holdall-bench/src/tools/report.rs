//! The result of `bench tools`.

use crate::{
    machine::Machine,
    statistics::{Estimate, median},
};
use comfy_table::{CellAlignment, Table};
use holdall_model::units::{format_bytes, format_mebibyte_rate};
use serde::Serialize;
use std::fmt::Write;

/// One measured piece of work.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ToolRow {
    /// The work.
    pub name: String,
    /// The program.
    pub who: String,
    /// Bytes of the rate: the input for reading, the output for making bags, none where neither is processed
    /// in full.
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
    /// Computes the medians and ratios from the samples.
    pub(super) fn settle(&mut self, seed: u64) {
        self.elapsed_s = median(&self.samples_s).unwrap_or(0.0);
        let rates: Vec<f64> = self
            .samples_s
            .iter()
            .map(|elapsed| self.bytes as f64 / elapsed)
            .collect();
        self.bytes_per_s = median(&rates).unwrap_or(0.0);
        if self.limits_bytes_per_s.len() == rates.len() && !rates.is_empty() {
            self.ratio = Estimate::of_ratio(&rates, &self.limits_bytes_per_s, seed);
        }
    }

    /// The rate for people; none where neither input nor output is processed in full.
    fn rate(&self) -> String {
        if self.bytes == 0 {
            "-".to_owned()
        } else {
            format_mebibyte_rate(self.bytes_per_s)
        }
    }
}

/// The whole result.
#[derive(Clone, Debug, Serialize)]
pub struct ToolsReport {
    /// `tools`.
    pub benchmark: &'static str,
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
    /// The machine.
    pub machine: Machine,
}

/// The report as text.
pub fn table(report: &ToolsReport) -> String {
    let mut table = Table::new();
    table.set_header(["work", "by", "time", "rate", "÷ limit", "95 %"]);
    for row in &report.rows {
        let ratio = row.ratio.as_ref();
        table.add_row([
            row.name.clone(),
            row.who.clone(),
            format!("{:.3} s", row.elapsed_s),
            row.rate(),
            match (ratio, row.against) {
                (Some(ratio), Some(against)) => format!("{:.2} {against}", ratio.median),
                _ => "-".to_owned(),
            },
            ratio.and_then(|ratio| ratio.interval).map_or_else(
                || "-".to_owned(),
                |interval| format!("{:.2} to {:.2}", interval.low, interval.high),
            ),
        ]);
    }
    for column in table.column_iter_mut().skip(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let mut text = format!("{table}\n");
    let cold = if report.cold { "cold" } else { "warm" };
    let _never_fails = writeln!(
        text,
        "two inputs of {}, {cold} before each measurement, {} rounds, at most {} of memory; limits by cp and a sync, \
         and by a plain read, right before and after each",
        format_bytes(report.input_bytes),
        report.repeat,
        format_bytes(report.rss_max_bytes)
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_without_bytes_has_a_time_and_neither_rate_nor_ratio() {
        let mut row = ToolRow {
            samples_s: vec![0.002, 0.004, 0.003],
            ..ToolRow::default()
        };
        row.settle(1);
        assert_eq!(
            (row.elapsed_s, row.rate().as_str(), row.ratio.is_none()),
            (0.003, "-", true)
        );
        let mut read = ToolRow {
            bytes: 600_000_000,
            samples_s: vec![0.3],
            limits_bytes_per_s: vec![2e9],
            ..ToolRow::default()
        };
        read.settle(1);
        assert_eq!((read.rate().as_str(), read.ratio.is_some()), ("1907 MiB/s", true));
    }
}
