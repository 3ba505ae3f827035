//! How the reading of many bags is divided, and the reading of one part.

use crate::{
    error::{Details, detached, exception, read_error, table_error},
    table::TableSource,
};
use holdall::{
    Bag, BagSet, Timestamp,
    catalog::{Catalog, PlanOptions},
    decode::{Decoders, MessageChoice},
    table::{ColumnOptions, TableOptions, TableReader},
};
use pyo3::prelude::*;
use std::path::{Path, PathBuf};

/// The tasks of reading topics of bags, or of the bags of a catalog, as JSON.
#[pyfunction]
#[pyo3(signature = (paths, topics, start, end, task_bytes, tasks))]
pub(crate) fn plan(
    py: Python<'_>,
    paths: Vec<PathBuf>,
    topics: Vec<String>,
    start: Option<i64>,
    end: Option<i64>,
    task_bytes: u64,
    tasks: Option<u64>,
) -> PyResult<String> {
    let options = PlanOptions {
        topics,
        from: start,
        until: end,
        task_bytes,
        tasks,
    };
    let planned = detached(py, || {
        let mut catalog = match &paths[..] {
            [only] if Catalog::is_one(only) => Catalog::open(only)?,
            _ => Catalog::of_bags(&paths)?,
        };
        catalog.plan(&options)
    })?;
    let planned =
        planned.map_err(|error| exception(py, "BagError", &error.to_string(), Details::default()))?;
    serde_json::to_string(&planned)
        .map_err(|error| exception(py, "InternalError", &error.to_string(), Details::default()))
}

/// One topic of a range of time of a storage file, as columns.
#[pyfunction]
#[pyo3(signature = (bag, file, topic, fields, start, end, nested))]
#[expect(
    clippy::too_many_arguments,
    reason = "they are the keywords of one call in Python"
)]
pub(crate) fn part(
    py: Python<'_>,
    bag: PathBuf,
    file: usize,
    topic: &str,
    fields: Vec<String>,
    start: Option<i64>,
    end: Option<i64>,
    nested: bool,
) -> PyResult<TableSource> {
    let opened = detached(py, || Bag::open(Path::new(&bag)))?;
    let set = BagSet::from(vec![
        opened.map_err(|error| read_error(py, &error))?.with_file(file),
    ]);
    let choice = MessageChoice {
        from: start.map(Timestamp::from_nanos),
        until: end.map(Timestamp::from_nanos),
        ..MessageChoice::default()
    };
    let options = TableOptions {
        columns: ColumnOptions {
            fields,
            nested,
            ..ColumnOptions::default()
        },
        ..TableOptions::default()
    };
    let reader = detached(py, || {
        TableReader::open(&set, &mut Decoders::new(set.clone()), topic, choice, &options)
    })?;
    let reader = reader.map_err(|error| table_error(py, &error))?;
    // An engine runs a task on each core itself.
    Ok(TableSource::new(reader, Box::new(|| Ok(None))))
}
