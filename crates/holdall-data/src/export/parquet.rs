//! A topic as a table in Apache Parquet, with the columns and the nesting of its type.
//!
//! The columns are those of Arrow's tables (`holdall_bag::table`): the stamps, then structs as groups, or flat with dotted names; arrays and
//! sequences as lists of the standard form (`list.element`), `uint8[]`, `byte[]` and `char[]` as binary values. Numbers keep their width and sign,
//! texts are UTF-8, times are timestamps in nanoseconds, UTC. No value is null. Structs without fields are left out; elements of lists that
//! are such structs hold one number that is 0, because Parquet has no empty groups. Compressed with zstd.
//!
//! Messages are collected as columns (`holdall_model::dynamic::columns`); a row group is made of them one column after another, beside the
//! thread that collects the next one (`beside`).

use super::ExistingFiles;
use super::{
    ExportError, Finished, Sink,
    beside::{Beside, Spare},
    file::PartialFile,
};
use crate::parquet_file::{Levels, Values, group, leaf, list, properties, root, timestamp, write_column};
use holdall_bag::{decode::TimeBase, reader::BagMessage, table::stamp_names};
use holdall_model::{
    dynamic::{
        ElementPlan, FieldPlan, TypePlan,
        columns::{Array, Batch, Column, ColumnBuilder, ColumnOptions},
    },
    interface::Primitive,
};
use parquet::{
    basic::{LogicalType, Type as Physical},
    errors::ParquetError,
    file::writer::{SerializedFileWriter, SerializedRowGroupWriter},
    schema::types::TypePtr,
};
use std::{
    path::{Path, PathBuf},
    rc::Rc,
    sync::Arc,
};

/// Bytes of values that are collected for one row group.
const GROUP_BYTES_MAX: usize = 32 << 20;
/// Most rows of a row group.
const GROUP_ROWS_MAX: usize = 1 << 20;
/// Most columns of a table.
const COLUMNS_MAX: usize = 16_384;
/// The number in structs without fields, as ROS names it.
const NO_FIELD: &str = "structure_needs_at_least_one_member";
/// Bytes of payloads, or rows, after which the bytes of the columns are summed again.
const SUMMED_BYTES: usize = 64 << 10;
const SUMMED_ROWS: usize = 256;

/// Writes one topic.
pub(super) struct ParquetSink {
    path: PathBuf,
    writer: Beside<SerializedFileWriter<PartialFile>>,
    builder: ColumnBuilder,
    /// `None` if that is not the clock.
    header_stamps: Option<Vec<i64>>,
    log_times: Vec<i64>,
    publish_times: Vec<i64>,
    sequences: Vec<i32>,
    /// Payloads since the columns were summed.
    unsummed: (usize, usize),
}

impl ParquetSink {
    pub fn create(
        plan: Arc<TypePlan>,
        path: &Path,
        existing: ExistingFiles,
        time: TimeBase,
        flat: bool,
        spare: &Spare,
    ) -> Result<Self, ExportError> {
        let root_leaves = leaf_counts(&plan)[plan.root_index()];
        let too_many = || ExportError::TooManyColumns {
            type_name: plan.type_name().to_owned(),
            columns_max: COLUMNS_MAX,
        };
        if root_leaves > COLUMNS_MAX {
            return Err(too_many());
        }
        // zstd finds repetitions at less cost than a dictionary for each column.
        let properties = properties(Vec::new()).set_dictionary_enabled(false).build();
        let options = ColumnOptions {
            nested: !flat,
            ..ColumnOptions::default()
        };
        // All fields are wanted, so that none can be unknown.
        let builder = ColumnBuilder::new(Arc::clone(&plan), &options).map_err(|_| too_many())?;
        let names = stamp_names(&plan, time);
        let schema = schema(names, &builder.take_none().columns).map_err(|error| failed(path, error))?;
        let file = PartialFile::create(path, existing)?;
        let writer = SerializedFileWriter::new(file, schema, Arc::new(properties))
            .map_err(|error| failed(path, error))?;
        Ok(Self {
            path: path.to_owned(),
            writer: Beside::new(writer, spare),
            builder,
            header_stamps: (time == TimeBase::HeaderStamp).then(Vec::new),
            log_times: Vec::new(),
            publish_times: Vec::new(),
            sequences: Vec::new(),
            unsummed: (0, 0),
        })
    }

    fn write_group(&mut self) -> Result<(), ParquetError> {
        self.unsummed = (0, 0);
        if self.log_times.is_empty() {
            return Ok(());
        }
        let headers = self.header_stamps.as_mut().map(std::mem::take);
        let mut stamps: Vec<Values> = headers.into_iter().map(Values::I64).collect();
        stamps.push(Values::I64(std::mem::take(&mut self.log_times)));
        stamps.push(Values::I64(std::mem::take(&mut self.publish_times)));
        stamps.push(Values::I32(std::mem::take(&mut self.sequences)));
        let batch = self.builder.take();
        self.writer.then(|writer| encode_group(writer, stamps, batch))
    }

    /// Whether the row group has its size.
    fn is_full(&mut self, payload_bytes: usize) -> bool {
        let (rows, bytes) = self.unsummed;
        self.unsummed = (rows + 1, bytes + payload_bytes);
        if self.unsummed.0 < SUMMED_ROWS && self.unsummed.1 < SUMMED_BYTES {
            return false;
        }
        self.unsummed = (0, 0);
        self.builder.bytes() >= GROUP_BYTES_MAX || self.builder.rows() >= GROUP_ROWS_MAX
    }
}

impl Sink for ParquetSink {
    fn write(&mut self, message: &BagMessage) -> Result<(), ExportError> {
        self.builder
            .push(&message.payload)
            .map_err(ExportError::message)?;
        if let Some(stamps) = &mut self.header_stamps {
            stamps.push(message.stamp.as_nanos());
        }
        self.log_times.push(message.log_time.as_nanos());
        self.publish_times.push(message.publish_time.as_nanos());
        // Parquet stores unsigned numbers as signed ones, bit by bit.
        self.sequences.push(message.sequence.cast_signed());
        if self.is_full(message.payload.len()) {
            self.write_group().map_err(|error| failed(&self.path, error))?;
        }
        Ok(())
    }

    fn end(&mut self) -> Result<(), ExportError> {
        self.write_group().map_err(|error| failed(&self.path, error))
    }

    fn finish(mut self: Box<Self>) -> Result<Finished, ExportError> {
        self.end()?;
        let writer = self.writer.back();
        let file = writer
            .and_then(SerializedFileWriter::into_inner)
            .map_err(|error| failed(&self.path, error))?;
        Ok(file.finish()?.into())
    }
}

/// Writes a row group: the columns of the stamps, then those of the fields.
fn encode_group(
    writer: &mut SerializedFileWriter<PartialFile>,
    stamps: Vec<Values>,
    Batch { rows, columns }: Batch,
) -> Result<(), ParquetError> {
    let mut group = GroupWriter {
        group: writer.next_row_group()?,
        of_arrays: None,
    };
    let of_rows = Levels::of_rows(rows);
    for values in stamps {
        group.write(&values, &of_rows)?;
    }
    for column in columns {
        group.column(column.array, &of_rows)?;
    }
    group.group.close()?;
    Ok(())
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

/// The values of a column of numbers or booleans.
fn numbers(kind: Primitive, bytes: &[u8]) -> Values {
    macro_rules! each {
        ($type:ty, $into:ty) => {
            bytes
                .as_chunks::<{ size_of::<$type>() }>()
                .0
                .iter()
                .map(|bytes| <$into>::from(<$type>::from_le_bytes(*bytes)))
                .collect()
        };
    }
    match kind {
        Primitive::Boolean => Values::Bool(bytes.iter().map(|value| *value != 0).collect()),
        Primitive::Int8 => Values::I32(each!(i8, i32)),
        Primitive::Uint8 | Primitive::Byte | Primitive::Char => Values::I32(each!(u8, i32)),
        Primitive::Int16 => Values::I32(each!(i16, i32)),
        Primitive::Uint16 | Primitive::Wchar => Values::I32(each!(u16, i32)),
        // Parquet stores unsigned numbers as signed ones, bit by bit.
        Primitive::Int32 | Primitive::Uint32 => Values::I32(each!(i32, i32)),
        Primitive::Int64 | Primitive::Uint64 => Values::I64(each!(i64, i64)),
        Primitive::Float => Values::F32(each!(f32, f32)),
        Primitive::Double | Primitive::LongDouble => Values::F64(each!(f64, f64)),
    }
}

/// Parts of one piece of memory, which they share.
fn parts(bytes: Vec<u8>, ends: impl Iterator<Item = (usize, usize)>) -> Values {
    let whole = bytes::Bytes::from(bytes);
    Values::Bytes(ends.map(|(begin, end)| whole.slice(begin..end).into()).collect())
}

/// Writes the columns of a row group in the order of the schema.
struct GroupWriter<'w> {
    group: SerializedRowGroupWriter<'w, PartialFile>,
    /// The levels of an array of this length in each row: a message has several covariances.
    of_arrays: Option<(usize, Rc<Levels>)>,
}

impl GroupWriter<'_> {
    fn column(&mut self, array: Array, levels: &Levels) -> Result<(), ParquetError> {
        let place = |offset: i64| usize::try_from(offset).unwrap_or_default();
        match array {
            Array::Plain {
                kind,
                per_row: None,
                bytes,
            } => self.write(&numbers(kind, &bytes), levels),
            Array::Plain {
                kind: Primitive::Uint8,
                per_row: Some(count),
                bytes,
            } => {
                let ends = (0..levels.values).map(|row| (row * count, (row + 1) * count));
                self.write(&parts(bytes, ends), levels)
            }
            Array::Plain {
                kind,
                per_row: Some(count),
                bytes,
            } => {
                let inner = self.of_arrays(count, levels);
                self.write(&numbers(kind, &bytes), &inner)
            }
            Array::Text { offsets, bytes } | Array::Octets { offsets, bytes } => {
                let ends = offsets.windows(2).map(|pair| (place(pair[0]), place(pair[1])));
                self.write(&parts(bytes, ends), levels)
            }
            Array::List { offsets, items } => {
                let inner = levels.of_elements(|value| place(offsets[value + 1] - offsets[value]));
                self.column(*items, &inner)
            }
            Array::Fixed { count, items } => self.column(*items, &levels.of_elements(|_| count)),
            Array::Struct { fields, .. } if fields.is_empty() => {
                self.write(&Values::I32(vec![0; levels.values]), levels)
            }
            Array::Struct { fields, .. } => fields
                .into_iter()
                .try_for_each(|(_, array)| self.column(array, levels)),
        }
    }

    fn of_arrays(&mut self, count: usize, levels: &Levels) -> Rc<Levels> {
        match &self.of_arrays {
            Some((known, inner)) if *known == count && levels.depth == 0 => Rc::clone(inner),
            _ => {
                let inner = Rc::new(levels.of_elements(|_| count));
                if levels.depth == 0 {
                    self.of_arrays = Some((count, Rc::clone(&inner)));
                }
                inner
            }
        }
    }

    fn write(&mut self, values: &Values, levels: &Levels) -> Result<(), ParquetError> {
        write_column(&mut self.group, values, levels)
    }
}

/// The schema of a table with these names of the stamps and these columns.
fn schema(mut names: Vec<String>, columns: &[Column]) -> Result<TypePtr, ParquetError> {
    let sequence = names.pop().unwrap_or_default();
    let mut fields = Vec::new();
    for name in &names {
        fields.push(leaf(name, Physical::INT64, Some(timestamp()))?);
    }
    fields.push(leaf(
        &sequence,
        Physical::INT32,
        Some(LogicalType::integer(32, false)),
    )?);
    for column in columns {
        fields.push(typed(&column.name, &column.array)?);
    }
    root(fields)
}

/// The type of a column or a part of one.
fn typed(name: &str, array: &Array) -> Result<TypePtr, ParquetError> {
    let of_number = |name: &str, kind| {
        let (physical, logical) = number(kind);
        leaf(name, physical, logical)
    };
    match array {
        Array::Plain {
            kind, per_row: None, ..
        } => of_number(name, *kind),
        Array::Octets { .. }
        | Array::Plain {
            kind: Primitive::Uint8,
            ..
        } => leaf(name, Physical::BYTE_ARRAY, None),
        Array::Plain { kind, .. } => list(name, of_number("element", *kind)?),
        Array::Text { .. } => leaf(name, Physical::BYTE_ARRAY, Some(LogicalType::String)),
        Array::List { items, .. } | Array::Fixed { items, .. } => list(name, typed("element", items)?),
        Array::Struct { fields, .. } if fields.is_empty() => {
            group(name, vec![of_number(NO_FIELD, Primitive::Uint8)?])
        }
        Array::Struct { fields, .. } => {
            let fields = fields.iter().map(|(name, array)| typed(name, array));
            group(name, fields.collect::<Result<_, _>>()?)
        }
    }
}

fn number(kind: Primitive) -> (Physical, Option<LogicalType>) {
    let narrow = |bits, is_signed| {
        let logical = LogicalType::integer(bits, is_signed);
        (Physical::INT32, Some(logical))
    };
    let wide = |is_signed| {
        let logical = LogicalType::integer(64, is_signed);
        (Physical::INT64, Some(logical))
    };
    match kind {
        Primitive::Boolean => (Physical::BOOLEAN, None),
        Primitive::Int8 => narrow(8, true),
        Primitive::Uint8 | Primitive::Byte | Primitive::Char => narrow(8, false),
        Primitive::Int16 => narrow(16, true),
        Primitive::Uint16 | Primitive::Wchar => narrow(16, false),
        Primitive::Int32 => narrow(32, true),
        Primitive::Uint32 => narrow(32, false),
        Primitive::Int64 => wide(true),
        Primitive::Uint64 => wide(false),
        Primitive::Float => (Physical::FLOAT, None),
        Primitive::Double | Primitive::LongDouble => (Physical::DOUBLE, None),
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

    fn sink(plan: Arc<TypePlan>, path: &Path, spare: &Spare) -> ParquetSink {
        ParquetSink::create(plan, path, ExistingFiles::Refuse, TimeBase::LogTime, false, spare).unwrap()
    }

    #[test]
    fn a_file_is_the_same_whether_threads_encode_it_or_not() {
        let plan = plan(&[("a/msg/A", "uint32 x\nstring s\nuint8[] raw")]);
        let folder = tempfile::tempdir().unwrap();
        let mut files = [0, 1, 2].map(|threads| {
            let path = folder.path().join(format!("{threads}.parquet"));
            (sink(Arc::clone(&plan), &path, &Spare::of(threads)), path)
        });
        for number in 0..3_000_u32 {
            let payload = Bytes::head().u32(number).text("s").u32(1).u8(7);
            for (sink, _) in &mut files {
                sink.write(&message(i64::from(number), &payload.0)).unwrap();
                if number % 500 == 499 {
                    sink.write_group().unwrap();
                }
            }
        }
        let bytes = files.map(|(sink, path)| {
            Box::new(sink).finish().unwrap();
            let found = rows(&path);
            assert_eq!(found.len(), 3_000);
            for (number, row) in found.iter().enumerate() {
                assert!(row.contains(&format!("x: {number}, s: \"s\"")), "{row}");
            }
            std::fs::read(&path).unwrap()
        });
        assert!(bytes[0] == bytes[1] && bytes[0] == bytes[2]);
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
        let mut sink = sink(plan, &path, &Spare::of(1));
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
                 bytes: [1, 2], two: [true, false], sequence: 18446744073709551615}"
            ),
            "{}",
            rows[1]
        );
        assert!(rows[1].contains("bag_sequence: 0"), "{}", rows[1]);
    }
}
