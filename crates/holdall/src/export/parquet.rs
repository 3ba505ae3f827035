//! A topic as a table in Apache Parquet, with the columns and the nesting of its type.
//!
//! Structs are groups, arrays and sequences are lists of the standard form (`list.element`), `uint8[]`,
//! `byte[]` and `char[]` are binary values, numbers keep their width and sign, texts are UTF-8. The first
//! columns are `log_time` and `publish_time` (timestamps in nanoseconds, UTC) and `sequence`. No value is
//! null. Structs without fields hold one number that is 0, because Parquet has no empty groups. Compressed
//! with zstd.

use super::ExistingFiles;
use super::{ExportError, Sink, file::PartialFile, stamp_names};
use crate::reader::BagMessage;
use holdall_model::{
    dynamic::{ElementPlan, FieldPlan, Primitives, Scalar, StructPlan, TypePlan, Visitor},
    interface::{Arity, Primitive},
};
use parquet::{
    basic::{Compression, LogicalType, Repetition, TimeUnit, Type as Physical, ZstdLevel},
    column::writer::ColumnWriter,
    data_type::ByteArray,
    errors::ParquetError,
    file::{properties::WriterProperties, writer::SerializedFileWriter},
    schema::types::{Type, TypePtr},
};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

/// Bytes of values that are collected for one row group.
const GROUP_BYTES_MAX: usize = 32 << 20;
/// Most rows of a row group.
const GROUP_ROWS_MAX: usize = 1 << 20;
/// Most columns of a table.
const COLUMNS_MAX: usize = 16_384;
/// Number of columns before those of the message.
const STAMPS: usize = 3;

/// Writes one topic.
pub(super) struct ParquetSink {
    plan: Arc<TypePlan>,
    path: PathBuf,
    writer: SerializedFileWriter<PartialFile>,
    table: Table,
    rows: usize,
}

impl ParquetSink {
    pub fn create(plan: Arc<TypePlan>, path: &Path, existing: ExistingFiles) -> Result<Self, ExportError> {
        let mut table = Table {
            columns: Vec::new(),
            leaves: leaf_counts(&plan),
            bytes: 0,
        };
        let root_leaves = table.leaves[plan.root_index()];
        if root_leaves > COLUMNS_MAX {
            return Err(ExportError::TooManyColumns {
                type_name: plan.type_name().to_owned(),
                columns_max: COLUMNS_MAX,
            });
        }
        let schema = schema(&plan, &mut table.columns).map_err(|error| failed(path, error))?;
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::default()))
            // zstd finds repetitions at less cost than a dictionary for each column.
            .set_dictionary_enabled(false)
            .set_created_by(format!("holdall {}", env!("CARGO_PKG_VERSION")))
            .build();
        let file = PartialFile::create(path, existing)?;
        let writer = SerializedFileWriter::new(file, schema, Arc::new(properties))
            .map_err(|error| failed(path, error))?;
        Ok(Self {
            plan,
            path: path.to_owned(),
            writer,
            table,
            rows: 0,
        })
    }

    fn write_group(&mut self) -> Result<(), ParquetError> {
        if self.rows == 0 {
            return Ok(());
        }
        let mut group = self.writer.next_row_group()?;
        for column in &mut self.table.columns {
            let Some(mut writer) = group.next_column()? else {
                break;
            };
            column.write(writer.untyped())?;
            writer.close()?;
            column.clear();
        }
        group.close()?;
        self.rows = 0;
        self.table.bytes = 0;
        Ok(())
    }
}

impl Sink for ParquetSink {
    fn write(&mut self, message: &BagMessage) -> Result<(), ExportError> {
        let begin = self.table.begin();
        for (column, value) in [
            Scalar::I64(message.log_time.as_nanos()),
            Scalar::I64(message.publish_time.as_nanos()),
            Scalar::U32(message.sequence),
        ]
        .into_iter()
        .enumerate()
        {
            self.table.columns[column].add(value, 0, 0);
        }
        let mut visitor = RowVisitor {
            table: &mut self.table,
            plan: &self.plan,
            next: STAMPS,
            depth: 0,
            repetition: 0,
            lists: Vec::new(),
        };
        if let Err(error) = self.plan.walk(&message.payload, &mut visitor) {
            self.table.roll_back(&begin);
            return Err(ExportError::message(error));
        }
        self.rows += 1;
        if self.table.bytes >= GROUP_BYTES_MAX || self.rows >= GROUP_ROWS_MAX {
            self.write_group().map_err(|error| failed(&self.path, error))?;
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<PathBuf, ExportError> {
        self.write_group().map_err(|error| failed(&self.path, error))?;
        let file = self
            .writer
            .into_inner()
            .map_err(|error| failed(&self.path, error))?;
        file.finish()
    }
}

fn failed(path: &Path, error: ParquetError) -> ExportError {
    ExportError::io("write", path, std::io::Error::other(error))
}

/// Number of columns of each struct of a plan.
fn leaf_counts(plan: &TypePlan) -> Vec<usize> {
    let mut counts: Vec<usize> = Vec::new();
    // Structs follow the structs that they contain.
    for index in 0..plan.structure_count() {
        let structure = plan.structure(index);
        let of_field = |field: &FieldPlan| match field.element {
            ElementPlan::Struct(inner) => counts.get(inner).copied().unwrap_or(1),
            _ => 1,
        };
        let count = if structure.is_empty {
            1
        } else {
            structure
                .fields
                .iter()
                .fold(0_usize, |sum, field| sum.saturating_add(of_field(field)))
        };
        counts.push(count);
    }
    counts
}

/// The values of the current row group.
struct Table {
    columns: Vec<Column>,
    /// Number of columns of each struct of the plan.
    leaves: Vec<usize>,
    /// Approximate bytes of all values.
    bytes: usize,
}

/// The lengths of the columns before a row, to undo a row that cannot be read.
struct Begin {
    lengths: Vec<(usize, usize)>,
    bytes: usize,
}

impl Table {
    fn begin(&self) -> Begin {
        Begin {
            lengths: self
                .columns
                .iter()
                .map(|column| (column.values.len(), column.definitions.len()))
                .collect(),
            bytes: self.bytes,
        }
    }

    fn roll_back(&mut self, begin: &Begin) {
        for (column, (values, levels)) in self.columns.iter_mut().zip(&begin.lengths) {
            column.values.truncate(*values);
            column.definitions.truncate(*levels);
            column.repetitions.truncate(*levels);
        }
        self.bytes = begin.bytes;
    }
}

/// A column: its values, and the position of each in its lists.
struct Column {
    values: Values,
    /// Number of lists around it.
    lists: i16,
    /// For each value or empty list, the number of non-empty lists around it.
    definitions: Vec<i16>,
    /// For each value or empty list, the level of the list that it continues; 0 for a new row.
    repetitions: Vec<i16>,
}

enum Values {
    Bool(Vec<bool>),
    I32(Vec<i32>),
    I64(Vec<i64>),
    F32(Vec<f32>),
    F64(Vec<f64>),
    Bytes(Vec<ByteArray>),
}

impl Values {
    fn len(&self) -> usize {
        match self {
            Self::Bool(values) => values.len(),
            Self::I32(values) => values.len(),
            Self::I64(values) => values.len(),
            Self::F32(values) => values.len(),
            Self::F64(values) => values.len(),
            Self::Bytes(values) => values.len(),
        }
    }

    fn truncate(&mut self, length: usize) {
        match self {
            Self::Bool(values) => values.truncate(length),
            Self::I32(values) => values.truncate(length),
            Self::I64(values) => values.truncate(length),
            Self::F32(values) => values.truncate(length),
            Self::F64(values) => values.truncate(length),
            Self::Bytes(values) => values.truncate(length),
        }
    }

    /// Adds a value of the column's kind; returns its size in bytes.
    #[inline]
    fn push(&mut self, value: Scalar<'_>) -> usize {
        match (self, value) {
            (Self::Bool(values), Scalar::Bool(value)) => values.push(value),
            (Self::I32(values), Scalar::I8(value)) => values.push(value.into()),
            (Self::I32(values), Scalar::U8(value)) => values.push(value.into()),
            (Self::I32(values), Scalar::I16(value)) => values.push(value.into()),
            (Self::I32(values), Scalar::U16(value)) => values.push(value.into()),
            (Self::I32(values), Scalar::I32(value)) => values.push(value),
            // Parquet stores unsigned numbers as signed ones, bit by bit.
            (Self::I32(values), Scalar::U32(value)) => values.push(value as i32),
            (Self::I64(values), Scalar::I64(value)) => values.push(value),
            (Self::I64(values), Scalar::U64(value)) => values.push(value as i64),
            (Self::F32(values), Scalar::F32(value)) => values.push(value),
            (Self::F64(values), Scalar::F64(value)) => values.push(value),
            (Self::Bytes(values), Scalar::Text(text)) => {
                let text = text.to_str().into_owned().into_bytes();
                let length = text.len();
                values.push(text.into());
                return length + size_of::<ByteArray>();
            }
            (Self::Bytes(values), Scalar::Wide(text)) => {
                let text = text.to_text().into_bytes();
                let length = text.len();
                values.push(text.into());
                return length + size_of::<ByteArray>();
            }
            // The column's kind is that of the plan.
            _ => {}
        }
        8
    }
}

impl Column {
    #[inline]
    fn add(&mut self, value: Scalar<'_>, definition: i16, repetition: i16) -> usize {
        self.level(definition, repetition);
        self.values.push(value)
    }

    fn level(&mut self, definition: i16, repetition: i16) {
        if self.lists > 0 {
            self.definitions.push(definition);
            self.repetitions.push(repetition);
        }
    }

    fn clear(&mut self) {
        self.values.truncate(0);
        self.definitions.clear();
        self.repetitions.clear();
    }

    fn write(&self, writer: &mut ColumnWriter<'_>) -> Result<(), ParquetError> {
        let levels = |levels: &'_ Vec<i16>| (self.lists > 0).then(|| levels.clone());
        let (definitions, repetitions) = (levels(&self.definitions), levels(&self.repetitions));
        let (definitions, repetitions) = (definitions.as_deref(), repetitions.as_deref());
        match (&self.values, writer) {
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
            _ => {
                return Err(ParquetError::General(
                    "a column of another type than its values".into(),
                ));
            }
        };
        Ok(())
    }
}

/// The schema of a plan; adds a column for each of its leaves, in order.
fn schema(plan: &TypePlan, columns: &mut Vec<Column>) -> Result<TypePtr, ParquetError> {
    let names = stamp_names(plan);
    let mut fields = Vec::new();
    for name in &names[..2] {
        let logical = LogicalType::timestamp(true, TimeUnit::NANOS);
        fields.push(leaf(name, Physical::INT64, Some(logical))?);
        columns.push(column(Values::I64(Vec::new()), 0));
    }
    fields.push(leaf(
        &names[2],
        Physical::INT32,
        Some(LogicalType::integer(32, false)),
    )?);
    columns.push(column(Values::I32(Vec::new()), 0));
    fields.extend(struct_fields(plan, plan.root(), 0, columns)?);
    let root = Type::group_type_builder("message").with_fields(fields).build()?;
    Ok(Arc::new(root))
}

fn struct_fields(
    plan: &TypePlan,
    structure: &StructPlan,
    lists: i16,
    columns: &mut Vec<Column>,
) -> Result<Vec<TypePtr>, ParquetError> {
    structure
        .fields
        .iter()
        .map(|field| {
            let is_list = field.arity != Arity::One && !is_binary(field);
            if !is_list {
                return element(plan, field, &field.name, lists, columns);
            }
            let inner = element(plan, field, "element", lists + 1, columns)?;
            let repeated = Type::group_type_builder("list")
                .with_repetition(Repetition::REPEATED)
                .with_fields(vec![inner])
                .build()?;
            let list = Type::group_type_builder(&field.name)
                .with_repetition(Repetition::REQUIRED)
                .with_logical_type(Some(LogicalType::List))
                .with_fields(vec![Arc::new(repeated)])
                .build()?;
            Ok(Arc::new(list))
        })
        .collect()
}

fn element(
    plan: &TypePlan,
    field: &FieldPlan,
    name: &str,
    lists: i16,
    columns: &mut Vec<Column>,
) -> Result<TypePtr, ParquetError> {
    let (values, physical, logical) = match field.element {
        ElementPlan::Struct(index) => {
            let fields = struct_fields(plan, plan.structure(index), lists, columns)?;
            let group = Type::group_type_builder(name)
                .with_repetition(Repetition::REQUIRED)
                .with_fields(fields)
                .build()?;
            return Ok(Arc::new(group));
        }
        _ if is_binary(field) => (Values::Bytes(Vec::new()), Physical::BYTE_ARRAY, None),
        ElementPlan::Text { .. } | ElementPlan::WideText { .. } => (
            Values::Bytes(Vec::new()),
            Physical::BYTE_ARRAY,
            Some(LogicalType::String),
        ),
        ElementPlan::Primitive(kind) => number(kind),
    };
    columns.push(column(values, lists));
    leaf(name, physical, logical)
}

fn number(kind: Primitive) -> (Values, Physical, Option<LogicalType>) {
    let narrow = |bits, is_signed| {
        let logical = LogicalType::integer(bits, is_signed);
        (Values::I32(Vec::new()), Physical::INT32, Some(logical))
    };
    let wide = |is_signed| {
        let logical = LogicalType::integer(64, is_signed);
        (Values::I64(Vec::new()), Physical::INT64, Some(logical))
    };
    match kind {
        Primitive::Boolean => (Values::Bool(Vec::new()), Physical::BOOLEAN, None),
        Primitive::Int8 => narrow(8, true),
        Primitive::Uint8 | Primitive::Byte | Primitive::Char => narrow(8, false),
        Primitive::Int16 => narrow(16, true),
        Primitive::Uint16 | Primitive::Wchar => narrow(16, false),
        Primitive::Int32 => narrow(32, true),
        Primitive::Uint32 => narrow(32, false),
        Primitive::Int64 => wide(true),
        Primitive::Uint64 => wide(false),
        Primitive::Float => (Values::F32(Vec::new()), Physical::FLOAT, None),
        Primitive::Double | Primitive::LongDouble => (Values::F64(Vec::new()), Physical::DOUBLE, None),
    }
}

/// Lists of bytes are one value.
fn is_binary(field: &FieldPlan) -> bool {
    field.arity != Arity::One
        && matches!(
            field.element,
            ElementPlan::Primitive(Primitive::Uint8 | Primitive::Byte | Primitive::Char)
        )
}

fn column(values: Values, lists: i16) -> Column {
    Column {
        values,
        lists,
        definitions: Vec::new(),
        repetitions: Vec::new(),
    }
}

fn leaf(name: &str, physical: Physical, logical: Option<LogicalType>) -> Result<TypePtr, ParquetError> {
    let built = Type::primitive_type_builder(name, physical)
        .with_repetition(Repetition::REQUIRED)
        .with_logical_type(logical)
        .build()?;
    Ok(Arc::new(built))
}

/// Adds a message's values to their columns.
struct RowVisitor<'p> {
    table: &'p mut Table,
    plan: &'p TypePlan,
    /// The column of the next value.
    next: usize,
    /// Number of lists around it.
    depth: i16,
    /// Level of the list that the next value continues.
    repetition: i16,
    lists: Vec<OpenList>,
}

/// A list of texts or structs that is being read.
struct OpenList {
    /// Its first column.
    begin: usize,
    end: usize,
    /// Level of the list that its first element continued.
    repetition: i16,
}

impl RowVisitor<'_> {
    fn add(&mut self, value: Scalar<'_>) {
        let column = &mut self.table.columns[self.next];
        self.table.bytes += column.add(value, self.depth, self.repetition);
        self.next += 1;
    }
}

impl<'a> Visitor<'a> for RowVisitor<'_> {
    #[inline]
    fn scalar(&mut self, value: Scalar<'a>) {
        self.add(value);
    }

    fn primitives(&mut self, field: &FieldPlan, values: Primitives<'a>) {
        let column = &mut self.table.columns[self.next];
        self.next += 1;
        if is_binary(field) {
            column.level(self.depth, self.repetition);
            if let Values::Bytes(column) = &mut column.values {
                column.push(values.bytes().to_vec().into());
            }
            self.table.bytes += values.len() + size_of::<ByteArray>();
            return;
        }
        if values.is_empty() {
            return column.level(self.depth, self.repetition);
        }
        for (index, value) in values.iter().enumerate() {
            let repetition = if index == 0 {
                self.repetition
            } else {
                self.depth + 1
            };
            self.table.bytes += column.add(value, self.depth + 1, repetition);
        }
    }

    fn begin_struct(&mut self, structure: &StructPlan) {
        if structure.is_empty {
            self.add(Scalar::U8(0));
        }
    }

    fn begin_list(&mut self, field: &FieldPlan, count: u64) {
        let columns = match field.element {
            ElementPlan::Struct(index) => self.table.leaves[index],
            _ => 1,
        };
        let (begin, end) = (self.next, self.next + columns);
        debug_assert!(end <= self.table.columns.len(), "{}", self.plan.type_name());
        if count == 0 {
            for column in &mut self.table.columns[begin..end] {
                column.level(self.depth, self.repetition);
            }
        }
        self.lists.push(OpenList {
            begin,
            end,
            repetition: self.repetition,
        });
        self.depth += 1;
    }

    fn wants_item(&mut self, index: u64) -> bool {
        if let Some(list) = self.lists.last() {
            self.next = list.begin;
            self.repetition = if index == 0 { list.repetition } else { self.depth };
        }
        true
    }

    fn end_list(&mut self, _: &FieldPlan, _: u64) {
        self.depth -= 1;
        if let Some(list) = self.lists.pop() {
            self.next = list.end;
            self.repetition = list.repetition;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::tests::{Bytes, message, plan};
    use parquet::file::reader::{FileReader, SerializedFileReader};

    fn rows(path: &Path) -> Vec<String> {
        let reader = SerializedFileReader::new(std::fs::File::open(path).unwrap()).unwrap();
        let rows = reader.get_row_iter(None).unwrap();
        rows.map(|row| row.unwrap().to_string()).collect()
    }

    #[test]
    fn lists_in_lists_keep_their_shape_and_a_broken_row_leaves_nothing() {
        let plan = plan(&[
            (
                "a/msg/A",
                "B[] many\nuint8[] bytes\nE e\nbool[2] two\nuint64 sequence",
            ),
            ("a/msg/B", "string[] names\nint16 x\nuint8[] raw"),
            ("a/msg/E", ""),
        ]);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.parquet");
        let mut sink = ParquetSink::create(plan, &path, ExistingFiles::Refuse).unwrap();
        let full = Bytes::head()
            .u32(3)
            .u32(2)
            .text("a")
            .text("bc")
            .u16(7)
            .u32(1)
            .u8(9)
            .u32(0)
            .u16(8)
            .u32(0)
            .u32(1)
            .text("")
            .u16(0xffff)
            .u32(0)
            .u32(2)
            .u8(1)
            .u8(2)
            .u8(0)
            .u8(1)
            .u8(0)
            .u64(u64::MAX);
        let empty = Bytes::head().u32(0).u32(0).u8(0).u8(0).u8(1).u64(5);
        sink.write(&message(1, &empty.0)).unwrap();
        let cut = sink.write(&message(2, &full.0[..full.0.len() - 4])).unwrap_err();
        assert!(matches!(cut, ExportError::Message { .. }), "{cut}");
        sink.write(&message(3, &full.0)).unwrap();
        Box::new(sink).finish().unwrap();
        let rows = rows(&path);
        assert_eq!(rows.len(), 2);
        assert!(
            rows[0].contains("many: []") && rows[0].contains("two: [false, true], sequence: 5"),
            "{}",
            rows[0]
        );
        assert!(
            rows[1].contains(
                "many: [{names: [\"a\", \"bc\"], x: 7, raw: [9]}, {names: [], x: 8, raw: []}, {names: [\"\"], x: -1, raw: []}], \
                 bytes: [1, 2], e: {structure_needs_at_least_one_member: 0}, two: [true, false], sequence: 18446744073709551615}"
            ),
            "{}",
            rows[1]
        );
        assert!(rows[1].contains("bag_sequence: 0"), "{}", rows[1]);
    }
}
