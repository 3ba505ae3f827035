//! The files in `meta/`: the features, the tasks, the episodes with their places and statistics, and the statistics of all.

use super::{
    Column, DATA_FILE_MIB, FileNumber, Kind, OWN_COLUMNS, Stats, TrainingError, VIDEO_FILE_MIB, data::failed,
};
use crate::{
    export::{ExistingFiles, PartialFile},
    parquet_file::{Levels, Values, leaf, list, properties, root, write_column},
    training::{Place, write_json},
};
use holdall_io::fs;
use parquet::{
    basic::{LogicalType, Type as Physical},
    data_type::ByteArray,
    errors::ParquetError,
    file::writer::SerializedFileWriter,
    schema::types::TypePtr,
};
use serde_json::{Map, Value, json};
use std::{io, path::Path, sync::Arc};

/// Where an episode is in a video.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct VideoPlace {
    pub number: FileNumber,
    /// Seconds.
    pub from: f64,
    /// Seconds.
    pub to: f64,
}

/// An episode.
pub(super) struct EpisodeRow {
    pub task: String,
    pub frames: u64,
    /// The number of its first frame in the dataset.
    pub first_frame: u64,
    pub data: FileNumber,
    /// One for each column that is a video.
    pub videos: Vec<VideoPlace>,
    /// One for each column, then those that every dataset has.
    pub stats: Vec<Option<Stats>>,
}

/// Everything about a dataset.
pub(super) struct Meta<'a> {
    pub place: &'a Place<'a>,
    pub rows: &'a [EpisodeRow],
    pub tasks: &'a [String],
    /// For each column that is a video, its codec and the format of its pixels.
    pub codecs: &'a [Option<(String, String)>],
}

/// A column of `meta/episodes`.
struct Table {
    fields: Vec<TypePtr>,
    values: Vec<(Values, Levels)>,
    rows: usize,
}

impl Table {
    fn integers(&mut self, name: &str, values: impl Iterator<Item = u64>) -> Result<(), ParquetError> {
        self.fields.push(leaf(name, Physical::INT64, None)?);
        let values = Values::I64(values.map(u64::cast_signed).collect());
        self.values.push((values, Levels::of_rows(self.rows)));
        Ok(())
    }

    fn floats(&mut self, name: &str, values: impl Iterator<Item = f64>) -> Result<(), ParquetError> {
        self.fields.push(leaf(name, Physical::DOUBLE, None)?);
        self.values
            .push((Values::F64(values.collect()), Levels::of_rows(self.rows)));
        Ok(())
    }

    /// Lists of `count` elements, each of them in as many further lists of one as images need.
    fn lists(
        &mut self,
        name: &str,
        count: usize,
        nested: usize,
        (physical, values): (Physical, Values),
    ) -> Result<(), ParquetError> {
        let logical = matches!(values, Values::Bytes(_)).then_some(LogicalType::String);
        let mut element = leaf("element", physical, logical)?;
        let mut levels = Levels::of_rows(self.rows).of_elements(|_| count);
        for _ in 0..nested {
            element = list("element", element)?;
            levels = levels.of_elements(|_| 1);
        }
        self.fields.push(list(name, element)?);
        self.values.push((values, levels));
        Ok(())
    }
}

impl Meta<'_> {
    /// Writes all files.
    pub fn write(&self) -> Result<(), TrainingError> {
        let meta = self.place.folder.join("meta");
        let episodes = meta.join("episodes").join(FileNumber::default().path("parquet"));
        if let Some(folder) = episodes.parent() {
            fs::create_dirs(folder)?;
        }
        let table = self.episodes().map_err(|error| failed(&episodes, error))?;
        write_table(&episodes, table, Vec::new())?;
        self.write_tasks(&meta.join("tasks.parquet"))?;
        write_json(&meta.join("stats.json"), &self.stats())?;
        write_json(&meta.join("info.json"), &self.info())
    }

    fn write_tasks(&self, path: &Path) -> Result<(), TrainingError> {
        let mut table = Table {
            fields: Vec::new(),
            values: Vec::new(),
            rows: self.tasks.len(),
        };
        let texts = self
            .tasks
            .iter()
            .map(|task| ByteArray::from(task.as_bytes().to_vec()));
        let text = leaf("task", Physical::BYTE_ARRAY, Some(LogicalType::String));
        let filled = text.and_then(|text| {
            table.integers("task_index", 0..self.tasks.len() as u64)?;
            table.fields.push(text);
            table
                .values
                .push((Values::Bytes(texts.collect()), Levels::of_rows(table.rows)));
            Ok(())
        });
        filled.map_err(|error| failed(path, error))?;
        write_table(path, table, vec![("pandas", pandas().to_string())])
    }

    fn episodes(&self) -> Result<Table, ParquetError> {
        let rows = self.rows;
        let mut table = Table {
            fields: Vec::new(),
            values: Vec::new(),
            rows: rows.len(),
        };
        table.integers("episode_index", 0..rows.len() as u64)?;
        let tasks = rows
            .iter()
            .map(|row| ByteArray::from(row.task.as_bytes().to_vec()));
        table.lists(
            "tasks",
            1,
            0,
            (Physical::BYTE_ARRAY, Values::Bytes(tasks.collect())),
        )?;
        table.integers("length", rows.iter().map(|row| row.frames))?;
        table.integers("data/chunk_index", rows.iter().map(|row| row.data.chunk()))?;
        table.integers("data/file_index", rows.iter().map(|row| row.data.file()))?;
        table.integers("dataset_from_index", rows.iter().map(|row| row.first_frame))?;
        table.integers(
            "dataset_to_index",
            rows.iter().map(|row| row.first_frame + row.frames),
        )?;
        let videos = self.place.columns.iter().filter(|column| column.is_video);
        for (place, column) in videos.enumerate() {
            let each = || rows.iter().map(|row| row.videos[place]);
            let name = |what: &str| format!("videos/{}/{what}", column.name);
            table.integers(&name("chunk_index"), each().map(|video| video.number.chunk()))?;
            table.integers(&name("file_index"), each().map(|video| video.number.file()))?;
            table.floats(&name("from_timestamp"), each().map(|video| video.from))?;
            table.floats(&name("to_timestamp"), each().map(|video| video.to))?;
        }
        for (place, (name, column)) in self.columns().enumerate() {
            self.add_stats(&mut table, place, name, column.is_some_and(Column::is_image))?;
        }
        let zeros = || std::iter::repeat_n(0, rows.len());
        table.integers("meta/episodes/chunk_index", zeros())?;
        table.integers("meta/episodes/file_index", zeros())?;
        Ok(table)
    }

    /// The statistics of a column in each episode.
    fn add_stats(
        &self,
        table: &mut Table,
        place: usize,
        name: &str,
        is_image: bool,
    ) -> Result<(), ParquetError> {
        let stats: Vec<&Stats> = self
            .rows
            .iter()
            .filter_map(|row| row.stats[place].as_ref())
            .collect();
        let Some(first) = stats.first() else {
            return Ok(());
        };
        let nested = if is_image { 2 } else { 0 };
        for (number, (what, values)) in first.named().enumerate() {
            let all = stats.iter().flat_map(|stats| {
                let found = stats.named().nth(number).map(|(_, values)| values);
                found.unwrap_or_default().iter().copied()
            });
            let all = (Physical::DOUBLE, Values::F64(all.collect()));
            table.lists(&format!("stats/{name}/{what}"), values.len(), nested, all)?;
        }
        let counts = stats.iter().map(|stats| stats.count.cast_signed()).collect();
        table.lists(
            &format!("stats/{name}/count"),
            1,
            0,
            (Physical::INT64, Values::I64(counts)),
        )
    }

    /// All columns, in the order of an episode's statistics.
    fn columns(&self) -> impl Iterator<Item = (&str, Option<&Column>)> {
        let features = self.place.columns.iter();
        let features = features.map(|column| (column.name.as_str(), Some(column)));
        features.chain(OWN_COLUMNS.map(|name| (name, None)))
    }

    fn stats(&self) -> Value {
        let mut all = Map::new();
        for (place, (name, column)) in self.columns().enumerate() {
            let mut of_episodes = self.rows.iter().filter_map(|row| row.stats[place].as_ref());
            let Some(mut total) = of_episodes.next().cloned() else {
                continue;
            };
            of_episodes.for_each(|stats| total.add(stats));
            let is_image = column.is_some_and(Column::is_image);
            all.insert(name.to_owned(), total.to_json(is_image));
        }
        Value::Object(all)
    }

    fn info(&self) -> Value {
        let mapping = self.place.mapping;
        let has_video = self.place.columns.iter().any(|column| column.is_video);
        let video_path = "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4";
        json!({
            "codebase_version": "v3.0",
            "robot_type": mapping.robot_type,
            "total_episodes": self.rows.len(),
            "total_frames": self.rows.iter().map(|row| row.frames).sum::<u64>(),
            "total_tasks": self.tasks.len(),
            "chunks_size": super::CHUNK_FILES,
            "data_files_size_in_mb": DATA_FILE_MIB,
            "video_files_size_in_mb": VIDEO_FILE_MIB,
            "fps": mapping.fps,
            "splits": {"train": format!("0:{}", self.rows.len())},
            "data_path": "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet",
            "video_path": has_video.then_some(video_path),
            "features": self.features(),
        })
    }

    fn features(&self) -> Map<String, Value> {
        let mut features = Map::new();
        for (column, codec) in self.place.columns.iter().zip(self.codecs) {
            let mut described = column.to_json();
            match (&column.kind, codec) {
                (Kind::Images { width, height, .. }, Some((codec, pixel_format))) => {
                    described["info"] = json!({
                        "video.height": height,
                        "video.width": width,
                        "video.codec": codec,
                        "video.pix_fmt": pixel_format,
                        "video.fps": self.place.mapping.fps,
                        "video.channels": 3,
                        "has_audio": false,
                        "is_depth_map": false,
                    });
                }
                (Kind::Images { is_deep: true, .. }, None) => {
                    described["info"] = json!({"is_depth_map": true, "depth_unit": "mm"});
                }
                _ => {}
            }
            features.insert(column.name.clone(), described);
        }
        for name in OWN_COLUMNS {
            let dtype = if name == "timestamp" { "float32" } else { "int64" };
            features.insert(
                name.to_owned(),
                json!({"dtype": dtype, "shape": [1], "names": null}),
            );
        }
        features
    }
}

fn write_table(path: &Path, table: Table, about: Vec<(&str, String)>) -> Result<(), TrainingError> {
    let write = || -> Result<PartialFile, ParquetError> {
        let file = PartialFile::create(path, ExistingFiles::Refuse).map_err(io::Error::other)?;
        let properties = Arc::new(properties(about).build());
        let mut writer = SerializedFileWriter::new(file, root(table.fields)?, properties)?;
        let mut group = writer.next_row_group()?;
        for (values, levels) in &table.values {
            write_column(&mut group, values, levels)?;
        }
        group.close()?;
        writer.into_inner()
    };
    write().map_err(|error| failed(path, error))?.finish()?;
    Ok(())
}

/// By this pandas makes the column of tasks the index of the table, which is how LeRobot finds a task by its number.
fn pandas() -> Value {
    let column = |name: &str, pandas: &str, numpy: &str| json!({"name": name, "field_name": name, "pandas_type": pandas, "numpy_type": numpy, "metadata": null});
    json!({
        "index_columns": ["task"],
        "column_indexes": [],
        "columns": [column("task_index", "int64", "int64"), column("task", "unicode", "object")],
        "pandas_version": "2.0.0",
    })
}
