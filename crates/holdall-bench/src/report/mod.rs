//! Results as tables and CSV (JSON is serialized from the results themselves).

mod table;

pub(crate) use table::{TABLE_STYLE, cpu_per_gib};
pub use table::{comparison_table, storage_table, write_table};

use crate::write::{Run, WriteReport};

/// One row for each run of `bench write`.
pub(crate) fn write_csv(report: &WriteReport) -> String {
    const COLUMNS: [&str; 16] = [
        "candidate",
        "repetition",
        "size",
        "messages",
        "bytes",
        "lost",
        "elapsed_s",
        "durable_bytes_per_s",
        "messages_per_s",
        "cpu_s_per_gb",
        "rss_max_bytes",
        "limit_before_bytes_per_s",
        "limit_after_bytes_per_s",
        "ratio_to_limit",
        "offer_p99_9_ns",
        "offer_max_ns",
    ];
    let row = |run: &Run| -> [String; 16] {
        let maybe = |value: Option<f64>| value.map(|value| value.to_string()).unwrap_or_default();
        let nanos = |value: Option<u64>| value.map(|value| value.to_string()).unwrap_or_default();
        [
            run.candidate.clone(),
            run.repetition.to_string(),
            report.options.size.clone(),
            run.messages.to_string(),
            run.bytes.to_string(),
            run.lost.to_string(),
            run.elapsed_s.to_string(),
            run.durable_bytes_per_s.to_string(),
            run.messages_per_s.to_string(),
            run.cpu_s_per_gb.to_string(),
            run.usage.rss_max_bytes.to_string(),
            maybe(run.limit_before_bytes_per_s),
            maybe(run.limit_after_bytes_per_s),
            maybe(run.ratio_to_limit),
            nanos(run.offer_latency.map(|latency| latency.p99_9_ns)),
            nanos(run.offer_latency.map(|latency| latency.max_ns)),
        ]
    };
    let runs = report
        .first
        .runs
        .iter()
        .chain(report.others.iter().flat_map(|other| &other.runs));
    csv_text(&COLUMNS, runs.map(row))
}

/// Rows under a header, quoted where needed.
pub(crate) fn csv_text<const N: usize>(
    columns: &[&str; N],
    rows: impl Iterator<Item = [String; N]>,
) -> String {
    let mut writer = csv::Writer::from_writer(Vec::new());
    // Writing into memory does not fail, and all rows have the header's length.
    let _never_fails = writer.write_record(columns).is_ok();
    for row in rows {
        let _never_fails = writer.write_record(&row).is_ok();
    }
    writer
        .into_inner()
        .ok()
        .and_then(|bytes| String::from_utf8(bytes).ok())
        .unwrap_or_default()
}
