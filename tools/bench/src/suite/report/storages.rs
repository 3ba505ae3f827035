//! Results of the kind `storage` on the page: bars for each message size.

use crate::{
    chart::{Bars, Chart, row},
    engine::{Report, load as load_json},
    error::BenchResult,
    kinds::storage::{Cell, StorageBody, batch_label},
    statistics::{Estimate, Interval},
};
use holdall_model::units::MIB;
use serde_json::Value;
use std::{
    fs,
    path::{Path, PathBuf},
};

/// The result of one folder.
pub struct Storages {
    /// Name of the folder.
    pub id: String,
    /// The file that it was read from.
    pub path: PathBuf,
    /// The result.
    pub result: Report<StorageBody>,
}

/// Durable rate in MiB/s.
fn rate_of(cell: &Cell) -> Estimate {
    Estimate {
        median: cell.durable_bytes_per_s / MIB,
        interval: cell.interval.map(|ends| Interval {
            low: ends.low / MIB,
            high: ends.high / MIB,
        }),
        repetitions: 1,
    }
}

/// Whether both are of the same size, batch and configuration.
pub(super) fn is_place_of(a: &Cell, b: &Cell) -> bool {
    (&a.messages, a.batch_size, &a.plugin_config) == (&b.messages, b.batch_size, &b.plugin_config)
}

/// Reads the newest result in `folder`; `None` if none exists.
///
/// # Errors
/// A result that cannot be read.
pub fn load(folder: &Path) -> BenchResult<Option<Storages>> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let number = |path: &Path| {
        let name = path.file_name()?.to_str()?;
        name.strip_prefix("storage-")?
            .strip_suffix(".json")?
            .parse::<u32>()
            .ok()
    };
    let newest = entries
        .map(|entry| entry.path())
        .filter_map(|path| Some((number(&path)?, path)))
        .max();
    let Some((_, path)) = newest else {
        return Ok(None);
    };
    let result = load_json(&path, "a result of storages")?;
    let name = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    let id = name.file_name().map_or_else(
        || "storage".to_owned(),
        |name| name.to_string_lossy().into_owned(),
    );
    Ok(Some(Storages { id, path, result }))
}

impl Storages {
    /// A plot of bars for each message size, since their rates differ by a factor of ten; bars of
    /// `other` are below this result's.
    pub(super) fn charts(&self, other: Option<&Self>) -> Vec<Chart> {
        let sizes = self.result.body.cells.chunk_by(|a, b| a.messages == b.messages);
        sizes.filter_map(|cells| of_size(cells, other)).collect()
    }
}

fn of_size(cells: &[Cell], other: Option<&Storages>) -> Option<Chart> {
    let header = "messages,batch,configuration,bytes_per_s,low,high,bytes_per_s_compared";
    let mut csv = vec![header.split(',').map(Value::from).collect()];
    let mut bars = Bars::new("MiB/s", 0, 1.0);
    for cell in cells {
        let there = other.map_or(&[][..], |other| &other.result.body.cells);
        let there = there.iter().find(|there| is_place_of(there, cell));
        let (batch, rate) = (batch_label(cell.batch_size), cell.durable_bytes_per_s);
        let (low, high) = cell.interval.map_or((rate, rate), |ends| (ends.low, ends.high));
        let compared = there.map_or(String::new(), |there| there.durable_bytes_per_s.to_string());
        let (size, name) = (&cell.messages, &cell.plugin_config);
        csv.push(row(&[size, &batch, name, &rate, &low, &high, &compared]));
        let group = format!("batches of {batch}");
        let series = usize::from(is_rival(&cell.plugin_config));
        bars.add(
            (&group, &cell.plugin_config),
            series,
            Some(&rate_of(cell)),
            there.map(rate_of).as_ref(),
        );
    }
    let size = &cells[0].messages;
    let grey = if other.is_some() { ", grey: compared" } else { "" };
    let title = format!(
        "Messages of {size}: durable MiB/s, close and sync included; blue: ours, orange: others{grey}"
    );
    let chart = bars.chart(&format!("storages_{size}"), &title, [""; 4])?;
    Some(chart.with_data(csv))
}

/// Whether a configuration is another library's, or the bare loop.
fn is_rival(configuration: &str) -> bool {
    ["mcap_crate", "sqlite_bare", "leveldb_bare", "naive", "generator"]
        .iter()
        .any(|name| configuration.starts_with(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESULT: &str = r#"{"benchmark": "storage", "limit": {"direct_write_bytes_per_s": 2e9, "buffered_write_bytes_per_s": null,
        "memcpy_bytes_per_s": 1e10}, "content": "random", "total_bytes": 1000000, "repeat": 3, "machine": {"cores": 2, "processor": "p",
        "kernel": "k", "file_system": "ext4", "memory_bytes": 1, "holdall": "0"}, "cells": [
        {"messages": "100B", "batch_size": 1024, "plugin_config": "mcap_default", "durable_bytes_per_s": 1.5e9,
         "interval": {"low": 1e9, "high": 2e9}, "messages_per_s": 1.5e7, "cpu_s_per_gb": 0.1, "close_s": 0.25,
         "ratio_to_limit": {"median": 0.75, "interval": {"low": 0.5, "high": 1.0}, "repetitions": 3},
         "ratio_to_rival": {"median": 3.0, "interval": null, "repetitions": 3}, "rival": "mcap_crate"},
        {"messages": "100B", "batch_size": 1024, "plugin_config": "mcap_crate", "durable_bytes_per_s": 5e8,
         "interval": null, "messages_per_s": 5e6, "cpu_s_per_gb": 0.4, "close_s": 0.25,
         "ratio_to_limit": null, "ratio_to_rival": null, "rival": null}]}"#;

    #[test]
    fn the_newest_result_of_a_folder_is_read_and_each_cell_has_its_row_and_its_bar() {
        let directory = tempfile::tempdir().unwrap();
        let folder = directory.path().join("B1");
        fs::create_dir(&folder).unwrap();
        assert!(load(&folder).unwrap().is_none());
        fs::write(folder.join("storage-2.json"), "{}").unwrap();
        assert!(load(&folder).is_err());
        fs::write(folder.join("storage-10.json"), RESULT).unwrap();
        let storages = load(&folder).unwrap().unwrap();
        assert_eq!(storages.id, "B1");
        let rows = crate::kinds::storage::sheet(&storages.result.body.cells).rows;
        assert_eq!(
            [&rows[0][3], &rows[0][4], &rows[0][8]],
            [
                "1431 MiB/s [954, 1907]",
                "0.75 [0.50, 1.00]",
                "≈3.00 × mcap_crate"
            ]
        );
        let charts = storages.charts(Some(&storages));
        assert_eq!(charts.len(), 1);
        let csv = charts[0].csv();
        let lines: Vec<&str> = csv.lines().collect();
        assert_eq!(lines.len(), 3);
        assert_eq!(
            lines[..2],
            [
                "messages,batch,configuration,bytes_per_s,low,high,bytes_per_s_compared",
                "100B,1KiB,mcap_default,1500000000,1000000000,2000000000,1500000000"
            ]
        );
        let svg = charts[0].svg();
        assert!(svg.contains("batches of 1KiB") && svg.contains("1431"));
        assert_eq!(svg.matches("#AAAAAA").count(), 2, "what it is compared with");
    }
}
