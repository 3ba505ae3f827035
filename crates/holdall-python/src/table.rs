//! Topics as columns, for numpy and Arrow.

use crate::{
    error::{detached, table_error},
    ffi_arrow::{self, Field},
    value::{array_interface, type_text},
};
use holdall::table::{Array, Next, ParallelTable, Rows, TableError, TableReader};
use holdall_io::mutex::lock;
use holdall_model::interface::Primitive;
use pyo3::{
    exceptions::{PyTypeError, PyValueError},
    prelude::*,
    types::{PyBytes, PyCapsule, PyDict, PyList},
};
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

/// Rows read between two checks for an interruption by the user (Ctrl-C).
const ROWS_AT_ONCE: usize = 65_536;
/// Time between two such looks while threads read.
const PATIENCE: Duration = Duration::from_millis(50);

/// Begins to read in several threads; `None` if that is not possible.
type Divide = Box<dyn Fn() -> Result<Option<ParallelTable>, TableError> + Send>;

/// A topic that is read as columns, a part at a time.
#[pyclass(frozen, module = "holdall._native")]
pub(crate) struct TableSource {
    reading: Mutex<Reading>,
}

struct Reading {
    /// `None` once an Arrow stream has it.
    reader: Option<TableReader>,
    /// `None` once something was read.
    divide: Option<Divide>,
    /// Messages left out when several threads read: their number, and the first reason.
    skipped: (u64, Option<String>),
}

impl TableSource {
    pub fn new(reader: TableReader, divide: Divide) -> Self {
        Self {
            reading: Mutex::new(Reading {
                reader: Some(reader),
                divide: Some(divide),
                skipped: (0, None),
            }),
        }
    }

    /// All rows that several threads read.
    fn gather(&self, py: Python<'_>, mut table: ParallelTable) -> PyResult<Rows> {
        let empty = || lock(&self.reading).reader.as_ref().map(TableReader::empty);
        let mut rows = empty().ok_or_else(taken)?;
        loop {
            let next = detached(py, || match table.next(Some(PATIENCE)) {
                Next::Rows(Ok(more)) => {
                    match rows.log_times.is_empty() {
                        true => rows = more,
                        false => rows.append(more),
                    }
                    Ok(true)
                }
                Next::Rows(Err(error)) => Err(error),
                Next::Waiting => Ok(true),
                Next::End => Ok(false),
            })?;
            if !next.map_err(|error| table_error(py, &error))? {
                let (count, first) = table.skipped();
                lock(&self.reading).skipped = (count, first.map(str::to_owned));
                return Ok(rows);
            }
            py.check_signals()?;
        }
    }
}

fn taken() -> PyErr {
    PyValueError::new_err("this table was handed out as an Arrow stream")
}

#[pymethods]
impl TableSource {
    /// All rows, or the next `rows_max`.
    #[pyo3(signature = (rows_max=None))]
    fn read(&self, py: Python<'_>, rows_max: Option<usize>) -> PyResult<Table> {
        let divide = lock(&self.reading).divide.take();
        if let (Some(divide), None) = (divide, rows_max) {
            let divided = detached(py, divide)?;
            if let Some(table) = divided.map_err(|error| table_error(py, &error))? {
                let rows = Arc::new(self.gather(py, table)?);
                return Ok(Table { rows });
            }
        }
        let rows_max = rows_max.unwrap_or(usize::MAX);
        let mut at = 0_usize;
        loop {
            at = usize::min(rows_max, at.saturating_add(ROWS_AT_ONCE));
            let filled = detached(py, || {
                let mut reading = lock(&self.reading);
                let reader = reading.reader.as_mut();
                reader.map(|reader| reader.fill(at, usize::MAX))
            })?;
            match filled.ok_or_else(taken)? {
                Ok(true) if at < rows_max => py.check_signals()?,
                Ok(_) => break,
                Err(error) => return Err(table_error(py, &error)),
            }
        }
        let rows = detached(py, || lock(&self.reading).reader.as_mut().map(TableReader::take))?;
        Ok(Table {
            rows: Arc::new(rows.ok_or_else(taken)?),
        })
    }

    /// Messages that were left out because they cannot be decoded, and why the first one cannot.
    #[getter]
    fn skipped(&self) -> (u64, Option<String>) {
        let reading = lock(&self.reading);
        let own = reading.reader.as_ref().map_or((0, None), TableReader::skipped);
        let (count, first) = &reading.skipped;
        (own.0 + count, first.clone().or_else(|| own.1.map(str::to_owned)))
    }

    /// The rows as an Arrow stream, which reads them while it is read.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        drop(requested_schema);
        let (reader, divide) = {
            let mut reading = lock(&self.reading);
            (reading.reader.take().ok_or_else(taken)?, reading.divide.take())
        };
        let schema = batch(reader.empty());
        let divided = match divide {
            Some(divide) => detached(py, divide)?.map_err(|error| table_error(py, &error))?,
            None => None,
        };
        match divided {
            Some(table) => ffi_arrow::stream(py, schema, Parts { table }),
            None => ffi_arrow::stream(py, schema, Batches { reader }),
        }
    }
}

/// The batches of an Arrow stream that several threads read: a span of time each.
struct Parts {
    table: ParallelTable,
}

impl Iterator for Parts {
    type Item = Result<Field, String>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.table.next(None) {
                Next::Rows(Ok(rows)) => return Some(Ok(batch(rows))),
                Next::Rows(Err(error)) => return Some(Err(error.to_string())),
                Next::Waiting => {}
                Next::End => return None,
            }
        }
    }
}

/// The batches of an Arrow stream.
struct Batches {
    reader: TableReader,
}

/// Rows and bytes of a batch.
const BATCH_ROWS_MAX: usize = 1 << 17;
const BATCH_BYTES_MAX: usize = 32 << 20;

impl Iterator for Batches {
    type Item = Result<Field, String>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.reader.next_rows(BATCH_ROWS_MAX, BATCH_BYTES_MAX) {
            Ok(rows) => Some(Ok(batch(rows?))),
            Err(error) => Some(Err(TableError::to_string(&error))),
        }
    }
}

/// Rows as an Arrow struct.
fn batch(rows: Rows) -> Field {
    let count = rows.log_times.len();
    let times = [
        rows.header_stamps.as_ref(),
        Some(&rows.log_times),
        Some(&rows.publish_times),
    ];
    let mut names = rows.stamp_names.iter().cloned();
    let mut name = || names.next().unwrap_or_default();
    let mut fields: Vec<Field> = times
        .into_iter()
        .flatten()
        .map(|nanos| Field::times(name(), nanos))
        .collect();
    fields.push(Field::numbers(name(), &rows.sequences));
    fields.extend(
        rows.batch
            .columns
            .into_iter()
            .map(|column| Field::of(column.name, column.array, count)),
    );
    Field::structure(String::new(), count, fields)
}

/// Rows in memory.
#[pyclass(frozen, module = "holdall._native")]
pub(crate) struct Table {
    rows: Arc<Rows>,
}

#[pymethods]
impl Table {
    fn __len__(&self) -> usize {
        self.rows.log_times.len()
    }

    /// Names of the fields' columns.
    #[getter]
    fn names(&self) -> Vec<String> {
        self.rows
            .batch
            .columns
            .iter()
            .map(|column| column.name.clone())
            .collect()
    }

    /// Names of the columns with the stamps.
    #[getter]
    fn stamp_names(&self) -> Vec<String> {
        self.rows.stamp_names.to_vec()
    }

    /// A field's column by its place.
    fn column(&self, index: usize) -> PyResult<Column> {
        if index >= self.rows.batch.columns.len() {
            return Err(PyValueError::new_err("there is no such column"));
        }
        Ok(Column {
            rows: Arc::clone(&self.rows),
            path: vec![index],
        })
    }

    /// A column of stamps, in the order of their names.
    fn stamps(&self, which: usize) -> Stamps {
        Stamps {
            rows: Arc::clone(&self.rows),
            which,
        }
    }

    /// The rows as an Arrow stream of one batch.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        drop(requested_schema);
        let rows = Rows::clone(&self.rows);
        let empty = batch(rows.clone());
        ffi_arrow::stream(py, empty, std::iter::once(Ok(batch(rows))))
    }
}

/// The stamps of rows, as numpy sees them.
#[pyclass(frozen, module = "holdall._native")]
pub(crate) struct Stamps {
    rows: Arc<Rows>,
    which: usize,
}

#[pymethods]
impl Stamps {
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let times = |nanos: &Vec<i64>| (nanos.as_ptr() as usize, "<i8");
        let rows = &self.rows;
        let headers = rows.header_stamps.as_ref();
        let all = [headers, Some(&rows.log_times), Some(&rows.publish_times)];
        let found = all.into_iter().flatten().map(times).nth(self.which);
        let (address, text) = found.unwrap_or((rows.sequences.as_ptr() as usize, "<u4"));
        let count = rows.log_times.len();
        let interface = array_interface(py, &[], text, &[count])?;
        interface.set_item("data", (address, true))?;
        Ok(interface)
    }
}

/// A column of rows in memory, or a part of one.
#[pyclass(frozen, module = "holdall._native")]
pub(crate) struct Column {
    rows: Arc<Rows>,
    /// Its place among the columns, then among the parts of each level.
    path: Vec<usize>,
}

impl Column {
    fn array(&self) -> Option<&Array> {
        let (first, rest) = self.path.split_first()?;
        let mut array = &self.rows.batch.columns.get(*first)?.array;
        for place in rest {
            array = match array {
                Array::List { items, .. } | Array::Fixed { items, .. } => items,
                Array::Struct { fields, .. } => &fields.get(*place)?.1,
                _ => return None,
            };
        }
        Some(array)
    }

    fn found(&self) -> PyResult<&Array> {
        self.array()
            .ok_or_else(|| PyTypeError::new_err("there is no such part of the column"))
    }

    fn inner(&self, place: usize) -> Self {
        Self {
            rows: Arc::clone(&self.rows),
            path: self.path.iter().copied().chain([place]).collect(),
        }
    }
}

fn plain_interface<'py>(
    py: Python<'py>,
    kind: Primitive,
    per_row: Option<usize>,
    bytes: &[u8],
) -> PyResult<Bound<'py, PyDict>> {
    let text = type_text(kind, true).ok_or_else(|| PyTypeError::new_err("numpy has no such number"))?;
    let size: usize = text[2..].parse().unwrap_or(1);
    let values = bytes.len() / size;
    match per_row {
        None => array_interface(py, bytes, &text, &[values]),
        Some(per_row) => array_interface(py, bytes, &text, &[values / per_row.max(1), per_row]),
    }
}

#[pymethods]
impl Column {
    /// `plain`, `text`, `octets`, `list`, `fixed` or `struct`.
    #[getter]
    fn kind(&self) -> PyResult<&'static str> {
        Ok(match self.found()? {
            Array::Plain { .. } => "plain",
            Array::Text { .. } => "text",
            Array::Octets { .. } => "octets",
            Array::List { .. } => "list",
            Array::Fixed { .. } => "fixed",
            Array::Struct { .. } => "struct",
        })
    }

    /// numpy's description of the numbers; of the bytes of all texts or octets.
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        match self.found()? {
            Array::Plain { kind, per_row, bytes } => plain_interface(py, *kind, *per_row, bytes),
            Array::Text { bytes, .. } | Array::Octets { bytes, .. } => {
                array_interface(py, bytes, "<u1", &[bytes.len()])
            }
            _ => Err(PyTypeError::new_err(
                "only numbers, texts and octets are one piece of memory",
            )),
        }
    }

    /// Offset of each list, and the end of the last one.
    #[getter]
    fn offsets<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        match self.found()? {
            Array::Text { offsets, .. } | Array::Octets { offsets, .. } | Array::List { offsets, .. } => {
                PyList::new(py, offsets)
            }
            _ => Err(PyTypeError::new_err("the column has no lists")),
        }
    }

    /// Elements of each array.
    #[getter]
    fn count(&self) -> PyResult<usize> {
        match self.found()? {
            Array::Fixed { count, .. } => Ok(*count),
            _ => Err(PyTypeError::new_err("the column has no arrays")),
        }
    }

    /// The elements of all lists.
    #[getter]
    fn items(&self) -> PyResult<Self> {
        match self.found()? {
            Array::List { .. } | Array::Fixed { .. } => Ok(self.inner(0)),
            _ => Err(PyTypeError::new_err("the column has no lists")),
        }
    }

    /// The fields of structs with their columns.
    #[getter]
    fn fields(&self) -> PyResult<Vec<(String, Self)>> {
        match self.found()? {
            Array::Struct { fields, .. } => Ok(fields
                .iter()
                .enumerate()
                .map(|(place, (name, _))| (name.clone(), self.inner(place)))
                .collect()),
            _ => Err(PyTypeError::new_err("the column has no structs")),
        }
    }

    /// Texts as `str`, octets as `bytes`.
    fn texts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let list = PyList::empty(py);
        match self.found()? {
            Array::Text { offsets, bytes } => {
                for range in ranges(offsets) {
                    list.append(String::from_utf8_lossy(&bytes[range]))?;
                }
            }
            Array::Octets { offsets, bytes } => {
                for range in ranges(offsets) {
                    list.append(PyBytes::new(py, &bytes[range]))?;
                }
            }
            _ => return Err(PyTypeError::new_err("the column has no texts")),
        }
        Ok(list)
    }
}

fn ranges(offsets: &[i64]) -> impl Iterator<Item = std::ops::Range<usize>> {
    let place = |offset: i64| usize::try_from(offset).unwrap_or_default();
    offsets.windows(2).map(move |pair| place(pair[0])..place(pair[1]))
}
