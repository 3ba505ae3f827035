//! The tables of a catalog as Parquet files: written all at once, and read back a table at a time.

use super::{
    CatalogError,
    table::{CellType, Cells, ColumnSpec, NO_TEXT, TABLES, Table, TableSpec, Texts},
};
use crate::parquet_file::{self, Levels, Values, write_column};
use bytes::Bytes;
use holdall_io::{fs, new_file::NewFile};
use holdall_model::text::Outside;
use parquet::{
    basic::{LogicalType, Type as Physical},
    column::reader::ColumnReader,
    data_type::ByteArray,
    errors::ParquetError,
    file::{
        reader::{FileReader, SerializedFileReader},
        writer::SerializedFileWriter,
    },
    schema::types::TypePtr,
};
use std::{
    io::{self, BufWriter},
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
};

/// The version of the tables.
pub(super) const VERSION: &str = "3";
/// Keys of the texts about each file.
const VERSION_KEY: &str = "holdall.catalog.version";
const GENERATION_KEY: &str = "holdall.catalog.generation";
/// Longest table that is read.
const TABLE_BYTES_MAX: u64 = 8 << 30;
/// Rows of a row group: engines leave out groups of other bags and times.
const GROUP_ROWS: usize = 128 << 10;
/// Values that are read at a time.
const VALUES_AT_ONCE: usize = 64 << 10;

/// The file of a table.
pub(super) fn path_of(folder: &Path, spec: &TableSpec) -> PathBuf {
    folder.join(format!("{}.parquet", spec.name))
}

/// Writes all tables next to the existing ones, and then renames all of them.
pub(super) fn write_all(
    folder: &Path,
    tables: &[Table; TABLES.len()],
    texts: &Texts,
    generation: &str,
) -> Result<(), CatalogError> {
    let mut written = Vec::with_capacity(TABLES.len());
    for (spec, table) in TABLES.iter().zip(tables) {
        let path = path_of(folder, spec);
        let file = write(&path, spec, table, texts, generation)
            .map_err(|error| CatalogError::write(&path, io::Error::other(error)))?;
        file.sync()?;
        written.push(file);
    }
    for file in &mut written {
        file.replace()?;
    }
    if let Some(last) = written.last() {
        last.sync_folder()?;
    }
    Ok(())
}

fn write(
    path: &Path,
    spec: &TableSpec,
    table: &Table,
    texts: &Texts,
    generation: &str,
) -> Result<NewFile, ParquetError> {
    let fields = spec.columns.iter().map(schema).collect::<Result<_, _>>()?;
    let about = vec![
        (VERSION_KEY, VERSION.to_owned()),
        (GENERATION_KEY, generation.to_owned()),
    ];
    let properties = parquet_file::properties(about).build();
    let file = NewFile::beside(path).map_err(|error| ParquetError::External(Box::new(error)))?;
    let mut writer = SerializedFileWriter::new(
        BufWriter::with_capacity(256 << 10, file),
        parquet_file::root(fields)?,
        Arc::new(properties),
    )?;
    let mut start = 0;
    while start < table.rows() {
        let rows = start..table.rows().min(start + GROUP_ROWS);
        start = rows.end;
        let mut group = writer.next_row_group()?;
        for (column, cells) in spec.columns.iter().zip(&table.columns) {
            let (values, levels) = column_values(column.cell_type, cells, &rows, texts);
            write_column(&mut group, &values, &levels)?;
        }
        group.close()?;
    }
    let buffered = writer.into_inner()?;
    buffered
        .into_inner()
        .map_err(|error| ParquetError::External(Box::new(error.into_error())))
}

fn schema(column: &ColumnSpec) -> Result<TypePtr, ParquetError> {
    let text = Some(LogicalType::String);
    match column.cell_type {
        CellType::Number => parquet_file::optional_leaf(column.name, Physical::INT64, None),
        CellType::Time => {
            parquet_file::optional_leaf(column.name, Physical::INT64, Some(parquet_file::timestamp()))
        }
        CellType::Bool => parquet_file::optional_leaf(column.name, Physical::BOOLEAN, None),
        CellType::Text => parquet_file::optional_leaf(column.name, Physical::BYTE_ARRAY, text),
        CellType::Texts => {
            let element = parquet_file::leaf("element", Physical::BYTE_ARRAY, text)?;
            parquet_file::list(column.name, element)
        }
    }
}

fn column_values(cell_type: CellType, cells: &Cells, rows: &Range<usize>, texts: &Texts) -> (Values, Levels) {
    let bytes = |id: u32| texts.get(id).map(ByteArray::from);
    match cells {
        Cells::Numbers { values, present } => {
            let present = &present[rows.clone()];
            let found = values[rows.clone()]
                .iter()
                .zip(present)
                .filter(|(_, present)| **present);
            let values = match cell_type {
                CellType::Bool => Values::Bool(found.map(|(value, _)| *value != 0).collect()),
                _ => Values::I64(found.map(|(value, _)| *value).collect()),
            };
            (values, Levels::of_present(present))
        }
        Cells::Texts(ids) => {
            let found: Vec<Option<ByteArray>> = ids[rows.clone()].iter().map(|id| bytes(*id)).collect();
            let present: Vec<bool> = found.iter().map(Option::is_some).collect();
            (
                Values::Bytes(found.into_iter().flatten().collect()),
                Levels::of_present(&present),
            )
        }
        Cells::Lists { ends, items } => {
            let first = rows.start.checked_sub(1).map_or(0, |before| ends[before]);
            let mut start = first;
            let mut lengths = Vec::with_capacity(rows.len());
            for end in &ends[rows.clone()] {
                lengths.push(end - start);
                start = *end;
            }
            let values = items[first..start]
                .iter()
                .map(|id| bytes(*id).unwrap_or_default());
            let levels = Levels::of_rows(rows.len()).of_elements(|row| lengths[row]);
            (Values::Bytes(values.collect()), levels)
        }
    }
}

/// Reads a table and its generation.
pub(super) fn read(
    folder: &Path,
    spec: &TableSpec,
    texts: &mut Texts,
) -> Result<(Table, String), CatalogError> {
    let path = path_of(folder, spec);
    let content = fs::read(&path, TABLE_BYTES_MAX)?;
    let damaged = |reason: String| CatalogError::Damaged {
        path: path.clone(),
        reason: Outside(&reason).to_string(),
    };
    let reader =
        SerializedFileReader::new(Bytes::from(content)).map_err(|error| damaged(error.to_string()))?;
    let about = |wanted: &str| {
        let entries = reader.metadata().file_metadata().key_value_metadata()?;
        entries.iter().find(|entry| entry.key == wanted)?.value.clone()
    };
    match about(VERSION_KEY) {
        Some(version) if version == VERSION => {}
        version => {
            return Err(CatalogError::Version {
                path,
                found: version.map(|version| Outside(&version).to_string()),
            });
        }
    }
    let table = columns(&reader, spec, texts).map_err(|error| damaged(error.to_string()))?;
    Ok((table, about(GENERATION_KEY).unwrap_or_default()))
}

fn columns(
    reader: &SerializedFileReader<Bytes>,
    spec: &TableSpec,
    texts: &mut Texts,
) -> Result<Table, ParquetError> {
    let schema = reader.metadata().file_metadata().schema_descr();
    let mut table = Table::new(spec);
    for (column, cells) in spec.columns.iter().zip(&mut table.columns) {
        let is_match = |place: &usize| {
            let parts = schema.column(*place);
            parts
                .path()
                .parts()
                .first()
                .is_some_and(|name| name == column.name)
        };
        let Some(place) = (0..schema.num_columns()).find(is_match) else {
            return Err(ParquetError::General(format!("it has no column {}", column.name)));
        };
        for group in 0..reader.num_row_groups() {
            let rows = usize::try_from(reader.metadata().row_group(group).num_rows()).unwrap_or_default();
            let before = cells.len();
            read_column(
                reader.get_row_group(group)?.get_column_reader(place)?,
                cells,
                texts,
            )?;
            if cells.len() != before + rows {
                let found = cells.len() - before;
                let reason = format!("{} has {found} rows, expected {rows}", column.name);
                return Err(ParquetError::General(reason));
            }
        }
    }
    Ok(table)
}

/// Appends a column of a row group.
fn read_column(reader: ColumnReader, cells: &mut Cells, texts: &mut Texts) -> Result<(), ParquetError> {
    macro_rules! all {
        ($reader:expr, $each:expr) => {{
            let mut reader = $reader;
            loop {
                let (mut values, mut definitions, mut repetitions) = (Vec::new(), Vec::new(), Vec::new());
                let (records, _, levels) = reader.read_records(
                    VALUES_AT_ONCE,
                    Some(&mut definitions),
                    Some(&mut repetitions),
                    &mut values,
                )?;
                if records == 0 && levels == 0 {
                    break;
                }
                #[allow(clippy::redundant_closure_call)]
                $each(values, definitions, repetitions)?;
            }
        }};
    }
    let mut numbers = |found: Vec<i64>, definitions: Vec<i16>, _: Vec<i16>| match cells {
        Cells::Numbers { values, present } => {
            let mut found = found.into_iter();
            for definition in definitions {
                let value = (definition > 0).then(|| found.next()).flatten();
                values.push(value.unwrap_or_default());
                present.push(value.is_some());
            }
            Ok(())
        }
        _ => Err(other_type()),
    };
    match reader {
        ColumnReader::Int64ColumnReader(reader) => all!(reader, numbers),
        ColumnReader::BoolColumnReader(reader) => {
            all!(reader, |found: Vec<bool>,
                          definitions: Vec<i16>,
                          repetitions: Vec<i16>| numbers(
                found.into_iter().map(i64::from).collect(),
                definitions,
                repetitions
            ))
        }
        ColumnReader::ByteArrayColumnReader(reader) => {
            all!(reader, |found: Vec<ByteArray>,
                          definitions: Vec<i16>,
                          repetitions: Vec<i16>| {
                read_texts(&found, &definitions, &repetitions, cells, texts)
            })
        }
        _ => return Err(other_type()),
    }
    Ok(())
}

fn other_type() -> ParquetError {
    ParquetError::General("a column is of another type".to_owned())
}

fn read_texts(
    found: &[ByteArray],
    definitions: &[i16],
    repetitions: &[i16],
    cells: &mut Cells,
    texts: &mut Texts,
) -> Result<(), ParquetError> {
    let mut found = found.iter();
    let mut next = |texts: &mut Texts| -> Result<u32, ParquetError> {
        let bytes = found.next().ok_or_else(other_type)?;
        let text = bytes
            .as_utf8()
            .map_err(|_| ParquetError::General("a text is not UTF-8".to_owned()))?;
        Ok(texts.id(text))
    };
    match cells {
        Cells::Texts(ids) => {
            for definition in definitions {
                ids.push(if *definition > 0 { next(texts)? } else { NO_TEXT });
            }
        }
        Cells::Lists { ends, items } => {
            for (definition, repetition) in definitions.iter().zip(repetitions) {
                if *repetition == 0 {
                    ends.push(items.len());
                }
                if *definition > 0 {
                    items.push(next(texts)?);
                    if let Some(end) = ends.last_mut() {
                        *end = items.len();
                    }
                }
            }
        }
        Cells::Numbers { .. } => return Err(other_type()),
    }
    Ok(())
}
