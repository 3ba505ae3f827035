//! Tables for people: every figure next to its ratio to the limit of the same run.

use crate::{
    limits::Limits,
    measure::LatencySummary,
    statistics::{Estimate, Interval},
    storage::{Cell, ComparisonReport, StorageReport},
    write::{CandidateReport, WriteReport},
};
use comfy_table::{CellAlignment, LineStyle, Table, TableStyle};
use holdall_model::units::{GIB, MIB, format_bytes, format_mebibyte_rate as rate};
use std::fmt::Write;

/// A table with a line below the header and no other lines.
pub(crate) const TABLE_STYLE: TableStyle =
    TableStyle::new().header_separator(LineStyle::new('─', '─', '─', '─'));

/// Marks a comparison that its interval does not support.
const UNSUPPORTED: &str = "≈";

/// Processor seconds for each GiB; stored results have them for each 10⁹ bytes.
pub(crate) fn cpu_per_gib(cpu_s_per_gb: f64) -> String {
    format!("{:.3}", cpu_s_per_gb * (GIB / 1e9))
}

/// Messages a second as k or M.
pub(super) fn frequency(per_s: f64) -> String {
    match per_s {
        millions if millions >= 1e6 => format!("{:.2} M/s", millions / 1e6),
        thousands if thousands >= 1e4 => format!("{:.1} k/s", thousands / 1e3),
        few => format!("{few:.0} /s"),
    }
}

/// Nanoseconds in the unit that keeps them short.
pub(super) fn span(nanos: u64) -> String {
    match nanos as f64 {
        ns if ns < 1e3 => format!("{ns:.0} ns"),
        ns if ns < 1e6 => format!("{:.1} µs", ns / 1e3),
        ns if ns < 1e9 => format!("{:.1} ms", ns / 1e6),
        ns => format!("{:.1} s", ns / 1e9),
    }
}

fn ratio(value: Option<f64>, interval: Option<&Interval>) -> String {
    match (value, interval) {
        (Some(value), Some(interval)) => format!("{value:.2} [{:.2}, {:.2}]", interval.low, interval.high),
        (Some(value), None) => format!("{value:.2}"),
        (None, _) => "–".to_owned(),
    }
}

fn row(report: &CandidateReport) -> Vec<String> {
    let latency = |pick: fn(&LatencySummary) -> u64| {
        report
            .offer_latency
            .as_ref()
            .map_or("–".to_owned(), |found| span(pick(found)))
    };
    vec![
        report.candidate.clone(),
        rate(report.durable_bytes_per_s),
        ratio(report.ratio_to_limit, report.intervals.get("ratio_to_limit")),
        ratio(report.ratio_to_buffered, None),
        frequency(report.messages_per_s),
        cpu_per_gib(report.cpu_s_per_gb),
        report.lost.to_string(),
        format!("{} MiB", report.rss_max_bytes >> 20),
        latency(|found| found.p99_9_ns),
        latency(|found| found.max_ns),
    ]
}

/// The result of `bench write` as text.
pub fn write_table(report: &WriteReport) -> String {
    let mut table = Table::new();
    table.load_style(TABLE_STYLE);
    table.set_header([
        "storage",
        "durable",
        "÷ disk limit",
        "÷ buffered",
        "messages",
        "CPU s/GiB",
        "lost",
        "memory",
        "offer p99.9",
        "worst",
    ]);
    for candidate in std::iter::once(&report.first).chain(&report.others) {
        table.add_row(row(candidate));
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let mut text = headline(report);
    // Writing into a string does not fail.
    let _never_fails = writeln!(text, "{table}\n{}", limits(&report.limit)).is_ok();
    for comparison in &report.comparisons {
        let estimate = &comparison.durable_ratio;
        let mark = if comparison.carried { "" } else { UNSUPPORTED };
        let cpu = comparison
            .cpu_ratio
            .as_ref()
            .map(|cpu| format!(", {:.2} × its CPU", cpu.median))
            .unwrap_or_default();
        let times = ratio(Some(estimate.median), estimate.interval.as_ref());
        let _never_fails = writeln!(
            text,
            "{} is {mark}{times} × as fast as {}{cpu}",
            report.first.candidate, comparison.with
        )
        .is_ok();
    }
    if report.comparisons.iter().any(|comparison| !comparison.carried) {
        text.push_str(&format!("{UNSUPPORTED} the interval holds 1, or there are fewer than 3 repetitions: the measurement does not support it\n"));
    }
    if let Some(woken) = &report.first.scheduling_latency {
        let _never_fails = writeln!(
            text,
            "the machine itself woke threads late by {} (p99.9) and {} (worst)",
            span(woken.p99_9_ns),
            span(woken.max_ns)
        )
        .is_ok();
    }
    text
}

/// The result of `bench storage` as text: one table for each size and batch.
pub fn storage_table(report: &StorageReport) -> String {
    let mut text = String::new();
    let same_place = |a: &Cell, b: &Cell| a.messages == b.messages && a.batch_size == b.batch_size;
    for cells in report.cells.chunk_by(same_place) {
        let mut table = Table::new();
        table.load_style(TABLE_STYLE);
        let place = cells.first().map_or_else(String::new, |cell| {
            format!(
                "{} in batches of {}",
                cell.messages,
                crate::storage::batch_label(cell.batch_size)
            )
        });
        table.set_header([
            &place,
            "durable",
            "95 %",
            "÷ disk limit",
            "messages",
            "CPU s/GiB",
            "close",
            "÷ rival",
        ]);
        for cell in cells {
            table.add_row(storage_row(cell));
        }
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        let _never_fails = writeln!(text, "{table}\n").is_ok();
    }
    let _never_fails = writeln!(
        text,
        "{} of {} for each cell, {} rounds, disk {}",
        format_bytes(report.total_bytes),
        report.content,
        report.repeat,
        report.disk
    )
    .is_ok();
    text.push_str(&limits(&report.limit));
    text.push('\n');
    text
}

/// The result of `bench storage --config` as text.
pub fn comparison_table(report: &ComparisonReport) -> String {
    let mut table = Table::new();
    table.load_style(TABLE_STYLE);
    table.set_header([
        report.config.storage_id.as_str(),
        "durable",
        "÷ disk limit",
        "batches",
        "messages",
        "CPU s/GiB",
        "close",
        "mean of batch rates",
    ]);
    for run in &report.runs {
        let limit = run.limit_bytes_per_s.map(|limit| run.bytes_per_s / limit);
        table.add_row([
            format!("run {}", run.run),
            rate(run.bytes_per_s),
            ratio(limit, None),
            run.batches.to_string(),
            run.messages.to_string(),
            cpu_per_gib(run.cpu_s_per_gb),
            format!("{:.1} ms", run.close_s * 1e3),
            rate(run.avg_byte_throughput),
        ]);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let estimate = &report.durable_bytes_per_s;
    let interval = estimate.interval.map_or(String::new(), |found| {
        format!(" [{}, {}]", rate(found.low), rate(found.high))
    });
    format!(
        "{table}\n\nmedian {}{interval}; the last column is the figure that the comparison published: most batches only fill memory\n{}\n",
        rate(estimate.median),
        limits(&report.limit)
    )
}

fn storage_row(cell: &Cell) -> [String; 8] {
    let interval = cell.interval.map_or("–".to_owned(), |found| {
        format!("{:.0}–{:.0}", found.low / MIB, found.high / MIB)
    });
    let short = |estimate: Option<&Estimate>| ratio(estimate.map(|estimate| estimate.median), None);
    let rival = match (&cell.ratio_to_rival, cell.rival) {
        (Some(estimate), Some(rival)) => {
            let carried = estimate.interval.is_some_and(|interval| !interval.contains(1.0));
            format!(
                "{}{:.2} × {rival}",
                if carried { "" } else { UNSUPPORTED },
                estimate.median
            )
        }
        _ => String::new(),
    };
    [
        cell.plugin_config.to_owned(),
        rate(cell.durable_bytes_per_s),
        interval,
        short(cell.ratio_to_limit.as_ref()),
        frequency(cell.messages_per_s),
        cpu_per_gib(cell.cpu_s_per_gb),
        // Never negative, and far below what 64 bits of nanoseconds hold.
        span((cell.close_s * 1e9) as u64),
        rival,
    ]
}

fn headline(report: &WriteReport) -> String {
    let options = &report.options;
    let pace = match (options.rate_hz, options.offered_bytes_per_s) {
        (Some(hz), Some(offered)) => format!("{hz} Hz each, {} offered", rate(offered)),
        _ => "as fast as possible".to_owned(),
    };
    format!(
        "{} × {} of {} bytes on {} topics, {pace}; {} repetitions\n",
        options.producers, options.size, options.content, options.topics, options.repeat
    )
}

fn limits(limit: &Limits) -> String {
    let shown = |value: Option<f64>| value.map_or("–".to_owned(), rate);
    let shape = limit
        .direct_shape
        .map(|shape| format!(" ({} KiB × {})", shape.block_bytes >> 10, shape.depth))
        .unwrap_or_default();
    let mut text = format!(
        "limits of this run: direct write {}{shape}, buffered write {}, memcpy {}, CRC-32 {}",
        shown(limit.direct_write_bytes_per_s),
        shown(limit.buffered_write_bytes_per_s),
        shown(limit.memcpy_bytes_per_s),
        shown(limit.crc32_bytes_per_s)
    );
    if let Some(codec) = &limit.codec {
        text.push_str(&format!(
            "\n{} on one thread: {}, on {} side by side: {}, {:.2} : 1",
            codec.codec,
            rate(codec.bytes_per_s),
            codec.threads,
            rate(codec.all_bytes_per_s),
            codec.compression_ratio
        ));
    }
    if let Some(reason) = &limit.direct_refused {
        text.push_str(&format!("\ndirect writes are not possible here: {reason}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_short_and_carry_their_unit() {
        assert_eq!(cpu_per_gib(0.1), "0.107");
        assert_eq!(
            (frequency(9.6e6), frequency(45_600.0), frequency(30.0)),
            ("9.60 M/s".into(), "45.6 k/s".into(), "30 /s".into())
        );
        assert_eq!(
            (span(850), span(12_340), span(4_000_000), span(2_000_000_000)),
            ("850 ns".into(), "12.3 µs".into(), "4.0 ms".into(), "2.0 s".into())
        );
    }
}
