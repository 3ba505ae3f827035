//! Columns of Parquet files: their values, the levels of their lists, and the parts of a schema that every table shares.

use parquet::{
    basic::{Compression, LogicalType, Repetition, TimeUnit, Type as Physical, ZstdLevel},
    column::writer::ColumnWriter,
    data_type::ByteArray,
    errors::ParquetError,
    file::{
        metadata::KeyValue,
        properties::{WriterProperties, WriterPropertiesBuilder},
        writer::SerializedRowGroupWriter,
    },
    schema::types::{Type, TypePtr},
};
use std::{io::Write, sync::Arc};

/// The values of a column.
pub(crate) enum Values {
    Bool(Vec<bool>),
    I32(Vec<i32>),
    I64(Vec<i64>),
    F32(Vec<f32>),
    F64(Vec<f64>),
    Bytes(Vec<ByteArray>),
}

/// Where the values of a column are in their lists.
pub(crate) struct Levels {
    /// Number of lists around them; 1 if some values are missing.
    pub depth: i16,
    /// Number of values.
    pub values: usize,
    /// For each value or empty list, the number of non-empty lists around it.
    definitions: Vec<i16>,
    /// For each value or empty list, the level of the list that it continues; 0 for a new row.
    repetitions: Vec<i16>,
}

impl Levels {
    pub fn of_rows(rows: usize) -> Self {
        Self {
            depth: 0,
            values: rows,
            definitions: vec![0; rows],
            repetitions: vec![0; rows],
        }
    }

    /// Rows that may lack a value.
    pub fn of_present(present: &[bool]) -> Self {
        Self {
            depth: 1,
            values: present.iter().filter(|present| **present).count(),
            definitions: present.iter().map(|present| i16::from(*present)).collect(),
            repetitions: vec![0; present.len()],
        }
    }

    /// Rows that all have a value, in a column that allows missing ones, as do `depth` - 1 groups around it.
    pub fn all_present(rows: usize, depth: i16) -> Self {
        Self {
            depth,
            values: rows,
            definitions: vec![depth; rows],
            repetitions: vec![0; rows],
        }
    }

    /// The levels of the elements of lists that are these values; `count` is the length of each.
    pub fn of_elements(&self, mut count: impl FnMut(usize) -> usize) -> Self {
        let mut inner = Self {
            depth: self.depth + 1,
            values: 0,
            definitions: Vec::with_capacity(self.definitions.len()),
            repetitions: Vec::with_capacity(self.definitions.len()),
        };
        let mut value = 0;
        for (definition, repetition) in self.definitions.iter().zip(&self.repetitions) {
            let mut elements = 0;
            if *definition == self.depth {
                elements = count(value);
                value += 1;
            }
            if elements == 0 {
                inner.definitions.push(*definition);
                inner.repetitions.push(*repetition);
                continue;
            }
            inner.values += elements;
            let end = inner.definitions.len() + elements;
            inner.definitions.resize(end, inner.depth);
            inner.repetitions.push(*repetition);
            inner.repetitions.resize(end, inner.depth);
        }
        inner
    }
}

/// Writes the next column of a row group.
pub(crate) fn write_column<W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    values: &Values,
    levels: &Levels,
) -> Result<(), ParquetError> {
    let other = || ParquetError::General("a column of another type than its values".into());
    let mut column = group.next_column()?.ok_or_else(other)?;
    let is_listed = levels.depth > 0;
    let definitions = is_listed.then_some(&levels.definitions[..]);
    let repetitions = is_listed.then_some(&levels.repetitions[..]);
    match (values, column.untyped()) {
        (Values::Bool(values), ColumnWriter::BoolColumnWriter(writer)) => {
            writer.write_batch(values, definitions, repetitions)?
        }
        (Values::I32(values), ColumnWriter::Int32ColumnWriter(writer)) => {
            writer.write_batch(values, definitions, repetitions)?
        }
        (Values::I64(values), ColumnWriter::Int64ColumnWriter(writer)) => {
            writer.write_batch(values, definitions, repetitions)?
        }
        (Values::F32(values), ColumnWriter::FloatColumnWriter(writer)) => {
            writer.write_batch(values, definitions, repetitions)?
        }
        (Values::F64(values), ColumnWriter::DoubleColumnWriter(writer)) => {
            writer.write_batch(values, definitions, repetitions)?
        }
        (Values::Bytes(values), ColumnWriter::ByteArrayColumnWriter(writer)) => {
            writer.write_batch(values, definitions, repetitions)?
        }
        _ => return Err(other()),
    };
    column.close()
}

/// Properties common to all files of this program, and texts about this one by key.
pub(crate) fn properties(about: Vec<(&str, String)>) -> WriterPropertiesBuilder {
    let about: Vec<KeyValue> = about
        .into_iter()
        .map(|(key, value)| KeyValue::new(key.to_owned(), value))
        .collect();
    WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_created_by(format!("holdall {}", env!("CARGO_PKG_VERSION")))
        .set_key_value_metadata((!about.is_empty()).then_some(about))
}

/// A column of plain values, all of them present.
pub(crate) fn leaf(
    name: &str,
    physical: Physical,
    logical: Option<LogicalType>,
) -> Result<TypePtr, ParquetError> {
    repeated_leaf(name, physical, logical, Repetition::REQUIRED)
}

/// A column of plain values, some of them missing.
pub(crate) fn optional_leaf(
    name: &str,
    physical: Physical,
    logical: Option<LogicalType>,
) -> Result<TypePtr, ParquetError> {
    repeated_leaf(name, physical, logical, Repetition::OPTIONAL)
}

fn repeated_leaf(
    name: &str,
    physical: Physical,
    logical: Option<LogicalType>,
    repetition: Repetition,
) -> Result<TypePtr, ParquetError> {
    let leaf = Type::primitive_type_builder(name, physical)
        .with_repetition(repetition)
        .with_logical_type(logical)
        .build()?;
    Ok(Arc::new(leaf))
}

/// A column of lists of `element`, in the standard form.
pub(crate) fn list(name: &str, element: TypePtr) -> Result<TypePtr, ParquetError> {
    let repeated = Type::group_type_builder("list")
        .with_repetition(Repetition::REPEATED)
        .with_fields(vec![element])
        .build()?;
    let list = Type::group_type_builder(name)
        .with_repetition(Repetition::REQUIRED)
        .with_logical_type(Some(LogicalType::List))
        .with_fields(vec![Arc::new(repeated)])
        .build()?;
    Ok(Arc::new(list))
}

/// A group of columns.
pub(crate) fn group(name: &str, fields: Vec<TypePtr>) -> Result<TypePtr, ParquetError> {
    repeated_group(name, fields, Repetition::REQUIRED)
}

/// A group of columns that may be missing.
pub(crate) fn optional_group(name: &str, fields: Vec<TypePtr>) -> Result<TypePtr, ParquetError> {
    repeated_group(name, fields, Repetition::OPTIONAL)
}

fn repeated_group(name: &str, fields: Vec<TypePtr>, repetition: Repetition) -> Result<TypePtr, ParquetError> {
    let group = Type::group_type_builder(name)
        .with_repetition(repetition)
        .with_fields(fields)
        .build()?;
    Ok(Arc::new(group))
}

/// The schema of a file with these columns.
pub(crate) fn root(fields: Vec<TypePtr>) -> Result<TypePtr, ParquetError> {
    let root = Type::group_type_builder("message").with_fields(fields).build()?;
    Ok(Arc::new(root))
}

/// Points in time in nanoseconds, UTC.
pub(crate) fn timestamp() -> LogicalType {
    LogicalType::timestamp(true, TimeUnit::NANOS)
}
