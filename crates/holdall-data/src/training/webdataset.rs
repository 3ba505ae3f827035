//! A dataset of `WebDataset`: tar archives in which the files of a frame have one stem, `EPISODE_FRAME`.

use super::{
    Dataset, Episode, Place, TrainingError, TrainingReport, mapping::Dtype, render::Item, schema::Column,
    values::Number, write_json,
};
use crate::export::{ExistingFiles, PartialFile};
use holdall_io::fs;
use serde_json::{Map, Value, json};
use std::{path::PathBuf, sync::Arc};

/// Bytes of an archive after which another one begins.
const SHARD_BYTES: u64 = 256 << 20;
/// Bytes of the head of a file in an archive; contents are padded to a multiple of them.
const BLOCK: u64 = 512;

/// The dataset.
pub(super) struct WebDataset<'a> {
    place: Place<'a>,
    archive: Option<(tar::Builder<PartialFile>, PathBuf)>,
    bytes: u64,
    shards: u64,
}

impl<'a> WebDataset<'a> {
    pub fn create(place: Place<'a>) -> Result<Self, TrainingError> {
        if let Some(column) = place.columns.iter().find(|column| column.is_video) {
            return Err(TrainingError::Feature {
                feature: column.name.clone(),
                reason: "WebDataset has images, no video; leave out video".to_owned(),
            });
        }
        fs::create_dirs(place.folder)?;
        Ok(Self {
            place,
            archive: None,
            bytes: 0,
            shards: 0,
        })
    }

    fn archive(&mut self) -> Result<&mut (tar::Builder<PartialFile>, PathBuf), TrainingError> {
        if self.archive.is_none() {
            let path = self.place.folder.join(format!("shard-{:06}.tar", self.shards));
            let file = PartialFile::create(&path, ExistingFiles::Refuse)?;
            self.shards += 1;
            self.archive = Some((tar::Builder::new(file), path));
        }
        self.archive.as_mut().ok_or_else(|| TrainingError::NoFrame {
            reason: "no archive".to_owned(),
        })
    }

    fn end_archive(&mut self) -> Result<(), TrainingError> {
        if let Some((archive, path)) = self.archive.take() {
            let file = archive
                .into_inner()
                .map_err(|error| TrainingError::write(&path, error))?;
            file.finish()?;
            self.bytes = 0;
        }
        Ok(())
    }

    fn append(&mut self, name: &str, content: &[u8]) -> Result<(), TrainingError> {
        let length = content.len() as u64;
        let mut header = tar::Header::new_gnu();
        header.set_size(length);
        header.set_mode(0o644);
        let (archive, path) = self.archive()?;
        archive
            .append_data(&mut header, name, content)
            .map_err(|error| TrainingError::write(path, error))?;
        self.bytes += BLOCK + length.next_multiple_of(BLOCK);
        Ok(())
    }
}

impl Dataset for WebDataset<'_> {
    fn begin(&mut self, _: &Episode) -> Result<(), TrainingError> {
        Ok(())
    }

    fn frame(&mut self, episode: &Episode, items: &[Arc<Item>]) -> Result<(), TrainingError> {
        // All files of a frame are in one archive.
        if self.bytes >= SHARD_BYTES {
            self.end_archive()?;
        }
        let stem = format!("{:06}_{:06}", episode.episode, episode.frames);
        let mut numbers = Map::new();
        for (place, item) in items.iter().enumerate() {
            let column = &self.place.columns[place];
            match &**item {
                Item::Picture(picture) => {
                    let name = format!("{stem}.{}.{}", column.name, picture.extension);
                    self.append(&name, &picture.bytes)?;
                }
                other => {
                    numbers.insert(column.name.clone(), json_of(column, other));
                }
            }
        }
        let fps = f64::from(self.place.mapping.fps);
        numbers.insert("timestamp".to_owned(), json!(episode.frames as f64 / fps));
        numbers.insert("frame_index".to_owned(), json!(episode.frames));
        numbers.insert("episode_index".to_owned(), json!(episode.episode));
        numbers.insert("task".to_owned(), json!(episode.task));
        self.append(
            &format!("{stem}.json"),
            Value::Object(numbers).to_string().as_bytes(),
        )
    }

    fn end(&mut self, _: &Episode) -> Result<(), TrainingError> {
        Ok(())
    }

    fn finish(mut self: Box<Self>, report: &TrainingReport) -> Result<(), TrainingError> {
        self.end_archive()?;
        let features = self.place.columns.iter();
        let features: Map<String, Value> = features
            .map(|column| (column.name.clone(), column.to_json()))
            .collect();
        let about = json!({
            "fps": report.fps,
            "frames": report.frames,
            "episodes": report.episodes.len(),
            "shards": self.shards,
            "features": features,
        });
        write_json(&self.place.folder.join("dataset.json"), &about)
    }
}

/// The values of a column: infinities and NaN, which JSON lacks, become null.
fn json_of(column: &Column, item: &Item) -> Value {
    let number = |number: &Number| match column.dtype {
        Dtype::Int32 | Dtype::Int64 => json!(number.as_i64()),
        Dtype::Bool => json!(number.as_f64() != 0.0),
        // Not more digits than a reader's float has.
        Dtype::Float32 => json!(number.as_f64() as f32),
        Dtype::Float64 | Dtype::String => json!(number.as_f64()),
    };
    match item {
        Item::Numbers(numbers) => numbers.iter().map(number).collect(),
        Item::Text(text) => json!(text),
        Item::Picture(_) => Value::Null,
    }
}
