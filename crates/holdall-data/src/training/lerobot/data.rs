//! Tables of frames: a row for each, a row group for each episode, or several for one with large images.

use super::{Column, Dtype, Item, Kind, OWN_COLUMNS, TrainingError};
use crate::{
    export::{ExistingFiles, PartialFile},
    parquet_file::{
        Levels, Values, leaf, list, optional_group, optional_leaf, properties, root, write_column,
    },
    training::values::Number,
};
use holdall_io::fs;
use parquet::{
    basic::{Compression, LogicalType, Type as Physical},
    data_type::ByteArray,
    errors::ParquetError,
    file::writer::SerializedFileWriter,
    schema::types::{ColumnPath, TypePtr},
};
use serde_json::{Map, Value, json};
use std::{io, path::Path, path::PathBuf, sync::Arc};

/// Bytes of images that are collected for one row group.
const GROUP_BYTES_MAX: usize = 64 << 20;

/// The numbers of a frame that are not features.
pub(super) struct OwnNumbers {
    /// Seconds since the episode's first frame.
    pub timestamp: f64,
    /// Numbers of the frame in its episode, of the episode, of the frame in the dataset, and of the task.
    pub numbers: [i64; 4],
}

/// The rows of a column that were not written yet.
enum Cells {
    Numbers(Vec<Number>),
    Texts(Vec<ByteArray>),
    Images {
        files: Vec<ByteArray>,
        names: Vec<ByteArray>,
    },
}

/// A table that is being written.
pub(super) struct DataFile {
    path: PathBuf,
    writer: SerializedFileWriter<PartialFile>,
    /// The stored columns: all but videos.
    columns: Vec<(usize, Column, Cells)>,
    timestamps: Vec<f32>,
    numbers: [Vec<i64>; 4],
    pending_bytes: usize,
}

impl Cells {
    fn of(column: &Column) -> Self {
        match column.kind {
            Kind::Numbers(_) => Self::Numbers(Vec::new()),
            Kind::Text => Self::Texts(Vec::new()),
            Kind::Images { .. } => Self::Images {
                files: Vec::new(),
                names: Vec::new(),
            },
        }
    }

    /// Appends an item; returns the bytes that it takes.
    fn push(&mut self, item: &Item, frame: i64) -> usize {
        match (self, item) {
            (Self::Numbers(cells), Item::Numbers(numbers)) => {
                cells.extend_from_slice(numbers);
                size_of_val(numbers.as_slice())
            }
            (Self::Texts(cells), Item::Text(text)) => {
                cells.push(ByteArray::from(text.as_bytes().to_vec()));
                text.len()
            }
            (Self::Images { files, names }, Item::Picture(picture)) => {
                files.push(ByteArray::from(picture.bytes.clone()));
                names.push(ByteArray::from(
                    format!("frame-{frame:06}.{}", picture.extension).into_bytes(),
                ));
                picture.bytes.len()
            }
            _ => 0,
        }
    }
}

impl DataFile {
    pub fn create(path: &Path, columns: &[Column]) -> Result<Self, TrainingError> {
        if let Some(folder) = path.parent() {
            fs::create_dirs(folder)?;
        }
        let stored: Vec<(usize, Column, Cells)> = columns
            .iter()
            .enumerate()
            .filter(|(_, column)| !column.is_video)
            .map(|(place, column)| (place, column.clone(), Cells::of(column)))
            .collect();
        let kept: Vec<&Column> = stored.iter().map(|(_, column, _)| column).collect();
        let mut properties =
            properties(vec![("huggingface", hugging_face(&kept).to_string())]).set_dictionary_enabled(false);
        for column in kept.iter().filter(|column| column.is_image()) {
            // PNG and JPEG are compressed.
            let path = ColumnPath::new(vec![column.name.clone(), "bytes".to_owned()]);
            properties = properties.set_column_compression(path, Compression::UNCOMPRESSED);
        }
        let writer = schema(&kept).and_then(|schema| {
            let file = PartialFile::create(path, ExistingFiles::Refuse).map_err(io::Error::other)?;
            SerializedFileWriter::new(file, schema, Arc::new(properties.build()))
        });
        Ok(Self {
            path: path.to_owned(),
            writer: writer.map_err(|error| failed(path, error))?,
            columns: stored,
            timestamps: Vec::new(),
            numbers: Default::default(),
            pending_bytes: 0,
        })
    }

    /// Bytes in complete row groups.
    pub fn bytes(&self) -> u64 {
        self.writer.bytes_written() as u64
    }

    /// Appends a frame.
    pub fn frame(&mut self, own: &OwnNumbers, items: &[Arc<Item>]) -> Result<(), TrainingError> {
        for (place, _, cells) in &mut self.columns {
            self.pending_bytes += cells.push(&items[*place], own.numbers[0]);
        }
        self.timestamps.push(own.timestamp as f32);
        for (column, number) in self.numbers.iter_mut().zip(own.numbers) {
            column.push(number);
        }
        if self.pending_bytes >= GROUP_BYTES_MAX {
            self.end_group()?;
        }
        Ok(())
    }

    /// Writes the collected frames as a row group.
    pub fn end_group(&mut self) -> Result<(), TrainingError> {
        self.write_group().map_err(|error| failed(&self.path, error))
    }

    fn write_group(&mut self) -> Result<(), ParquetError> {
        let rows = self.timestamps.len();
        if rows == 0 {
            return Ok(());
        }
        self.pending_bytes = 0;
        let of_rows = Levels::of_rows(rows);
        let mut group = self.writer.next_row_group()?;
        for (_, column, cells) in &mut self.columns {
            let filled = std::mem::replace(cells, Cells::of(column));
            match (filled, &column.kind) {
                (Cells::Numbers(numbers), Kind::Numbers(count)) => {
                    let values = values(column.dtype, &numbers);
                    let levels = (*count > 1).then(|| of_rows.of_elements(|_| *count));
                    write_column(&mut group, &values, levels.as_ref().unwrap_or(&of_rows))?;
                }
                (Cells::Images { files, names }, _) => {
                    let levels = Levels::all_present(rows, 2);
                    write_column(&mut group, &Values::Bytes(files), &levels)?;
                    write_column(&mut group, &Values::Bytes(names), &levels)?;
                }
                (Cells::Texts(texts), _) => write_column(&mut group, &Values::Bytes(texts), &of_rows)?,
                (Cells::Numbers(_), _) => {}
            }
        }
        let timestamps = std::mem::take(&mut self.timestamps);
        write_column(&mut group, &Values::F32(timestamps), &of_rows)?;
        for numbers in &mut self.numbers {
            write_column(&mut group, &Values::I64(std::mem::take(numbers)), &of_rows)?;
        }
        group.close().map(drop)
    }

    /// Writes the rest and makes the file durable.
    pub fn finish(mut self) -> Result<(), TrainingError> {
        self.end_group()?;
        let path = self.path;
        let file = self.writer.into_inner().map_err(|error| failed(&path, error))?;
        file.finish()?;
        Ok(())
    }
}

pub(super) fn failed(path: &Path, error: ParquetError) -> TrainingError {
    TrainingError::write(path, io::Error::other(error))
}

fn values(dtype: Dtype, numbers: &[Number]) -> Values {
    let floats = || numbers.iter().map(|number| number.as_f64());
    let integers = || numbers.iter().map(|number| number.as_i64());
    match dtype {
        Dtype::Float32 | Dtype::String => Values::F32(floats().map(|value| value as f32).collect()),
        Dtype::Float64 => Values::F64(floats().collect()),
        Dtype::Int64 => Values::I64(integers().collect()),
        Dtype::Int32 => Values::I32(integers().map(|value| value as i32).collect()),
        Dtype::Bool => Values::Bool(floats().map(|value| value != 0.0).collect()),
    }
}

fn schema(columns: &[&Column]) -> Result<TypePtr, ParquetError> {
    let text = || Some(LogicalType::String);
    let mut fields = Vec::new();
    for column in columns {
        let name = column.name.as_str();
        let physical = match column.dtype {
            Dtype::Float32 | Dtype::String => Physical::FLOAT,
            Dtype::Float64 => Physical::DOUBLE,
            Dtype::Int64 => Physical::INT64,
            Dtype::Int32 => Physical::INT32,
            Dtype::Bool => Physical::BOOLEAN,
        };
        fields.push(match column.kind {
            Kind::Numbers(1) => leaf(name, physical, None)?,
            Kind::Numbers(_) => list(name, leaf("element", physical, None)?)?,
            Kind::Text => leaf(name, Physical::BYTE_ARRAY, text())?,
            Kind::Images { .. } => {
                // As the library `datasets` declares an image; otherwise it does not take the column for one.
                let file = optional_leaf("bytes", Physical::BYTE_ARRAY, None)?;
                let path = optional_leaf("path", Physical::BYTE_ARRAY, text())?;
                optional_group(name, vec![file, path])?
            }
        });
    }
    for name in OWN_COLUMNS {
        let is_time = name == "timestamp";
        fields.push(leaf(
            name,
            if is_time { Physical::FLOAT } else { Physical::INT64 },
            None,
        )?);
    }
    root(fields)
}

/// The types of the columns for the library `datasets`.
fn hugging_face(columns: &[&Column]) -> Value {
    let value = |dtype: &str| json!({"dtype": dtype, "_type": "Value"});
    let mut features = Map::new();
    for column in columns {
        let number = value(&column.dtype.to_string());
        let described = match column.kind {
            Kind::Images { .. } => json!({"_type": "Image"}),
            Kind::Numbers(count) if count > 1 => {
                json!({"feature": number, "length": count, "_type": "Sequence"})
            }
            _ => number,
        };
        features.insert(column.name.clone(), described);
    }
    for name in OWN_COLUMNS {
        let dtype = if name == "timestamp" { "float32" } else { "int64" };
        features.insert(name.to_owned(), value(dtype));
    }
    json!({"info": {"features": features}})
}
