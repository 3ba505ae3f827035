//! A dataset of `LeRobot`, version 3: `data/` with the frames of many episodes in each table, `videos/`, and `meta/` about them.

mod data;
mod meta;
mod video;

use super::{
    Dataset, Episode, Place, TrainingError, TrainingFormat, TrainingOptions, TrainingReport,
    mapping::Dtype,
    render::Item,
    schema::{Column, Kind},
    stats::Stats,
};
use data::DataFile;
use holdall_media::elementary::Codec;
use meta::{EpisodeRow, VideoPlace};
use std::{path::PathBuf, sync::Arc};
use video::Video;

/// Bytes of a table after which the next episode begins another one: LeRobot's defaults.
const DATA_FILE_MIB: u64 = 100;
/// The same for a video.
const VIDEO_FILE_MIB: u64 = 200;
/// Files in a folder.
const CHUNK_FILES: u64 = 1000;
/// Columns that every dataset has, after the features.
const OWN_COLUMNS: [&str; 5] = ["timestamp", "frame_index", "episode_index", "index", "task_index"];

/// Refuses impossible options before a bag is read.
pub(super) fn check(options: &TrainingOptions) -> Result<(), TrainingError> {
    let has_video = options.mapping.features.values().any(|feature| feature.video);
    if has_video && options.format == TrainingFormat::LeRobot {
        video::codec(&options.mapping.video)?;
    }
    Ok(())
}

/// Whether videos can be encoded with a codec.
pub(super) fn can_encode(codec: Codec) -> bool {
    video::encoder_of(codec).is_ok()
}

/// Which file of many, in which folder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct FileNumber(u64);

impl FileNumber {
    /// The folder's number.
    pub fn chunk(self) -> u64 {
        self.0 / CHUNK_FILES
    }

    /// The file's number in its folder.
    pub fn file(self) -> u64 {
        self.0 % CHUNK_FILES
    }

    /// `chunk-000/file-000`
    fn path(self, extension: &str) -> PathBuf {
        PathBuf::from(format!("chunk-{:03}", self.chunk()))
            .join(format!("file-{:03}.{extension}", self.file()))
    }
}

/// The series of a column in the open episode.
enum Series {
    Numbers(Vec<Vec<f64>>),
    /// Histograms of each channel.
    Images(Vec<Vec<u64>>),
    None,
}

impl Series {
    fn of(column: &Column) -> Self {
        match column.kind {
            Kind::Numbers(count) => Self::Numbers(vec![Vec::new(); count]),
            Kind::Images {
                channels, is_deep, ..
            } => Self::Images(vec![vec![0; if is_deep { 1 << 16 } else { 1 << 8 }]; channels]),
            Kind::Text => Self::None,
        }
    }

    fn add(&mut self, item: &Item) {
        match (self, item) {
            (Self::Numbers(series), Item::Numbers(numbers)) => {
                for (values, number) in series.iter_mut().zip(numbers) {
                    values.push(number.as_f64());
                }
            }
            (Self::Images(histograms), Item::Picture(picture)) => {
                for pixel in picture.sample.chunks_exact(histograms.len()) {
                    for (counts, value) in histograms.iter_mut().zip(pixel) {
                        counts[usize::from(*value)] += 1;
                    }
                }
            }
            _ => {}
        }
    }

    fn stats(self, column: &Column, frames: u64) -> Option<Stats> {
        match self {
            Self::Numbers(series) => Some(Stats::of_numbers(series)),
            Self::Images(histograms) => {
                // Colours become 0 to 1; depth keeps its unit.
                let is_deep = matches!(column.kind, Kind::Images { is_deep: true, .. });
                let divisor = if is_deep { 1.0 } else { 255.0 };
                Some(Stats::of_histograms(&histograms, frames, divisor))
            }
            Self::None => None,
        }
    }
}

/// The dataset.
pub(super) struct LeRobot<'a> {
    place: Place<'a>,
    data: Option<DataFile>,
    data_number: FileNumber,
    /// For each column, its video.
    videos: Vec<Option<Video>>,
    series: Vec<Series>,
    tasks: Vec<String>,
    rows: Vec<EpisodeRow>,
    frames: u64,
}

impl<'a> LeRobot<'a> {
    pub fn create(place: Place<'a>) -> Result<Self, TrainingError> {
        let videos = place.columns.iter().zip(&place.copied).map(|(column, copied)| {
            let video = || Video::new(&place, column, copied.clone());
            column.is_video.then(video).transpose()
        });
        Ok(Self {
            videos: videos.collect::<Result<_, _>>()?,
            data: None,
            data_number: FileNumber::default(),
            series: Vec::new(),
            tasks: Vec::new(),
            rows: Vec::new(),
            frames: 0,
            place,
        })
    }

    fn task_number(&mut self, task: &str) -> u64 {
        let known = self.tasks.iter().position(|known| known == task);
        known.unwrap_or_else(|| {
            self.tasks.push(task.to_owned());
            self.tasks.len() - 1
        }) as u64
    }

    /// Completes the table; the next episode begins another one.
    fn end_data(&mut self) -> Result<(), TrainingError> {
        if let Some(data) = self.data.take() {
            data.finish()?;
            self.data_number.0 += 1;
        }
        Ok(())
    }

    /// Statistics of the columns that every dataset has.
    fn own_stats(&self, episode: &Episode) -> Vec<Stats> {
        let first = self.frames - episode.frames;
        let task = self.tasks.iter().position(|task| *task == episode.task);
        let task = task.unwrap_or_default() as f64;
        let fps = f64::from(self.place.mapping.fps);
        let each = |value: &dyn Fn(f64) -> f64| {
            let numbers = (0..episode.frames).map(|frame| value(frame as f64));
            Stats::of_numbers(vec![numbers.collect()])
        };
        vec![
            each(&|frame| frame / fps),
            each(&|frame| frame),
            each(&|_| episode.episode as f64),
            each(&|frame| first as f64 + frame),
            each(&|_| task),
        ]
    }
}

impl Dataset for LeRobot<'_> {
    fn begin(&mut self, episode: &Episode) -> Result<(), TrainingError> {
        self.task_number(&episode.task);
        self.series = self.place.columns.iter().map(Series::of).collect();
        if self
            .data
            .as_ref()
            .is_some_and(|data| data.bytes() >= DATA_FILE_MIB << 20)
        {
            self.end_data()?;
        }
        if self.data.is_none() {
            let folder = self.place.folder.join("data");
            self.data = Some(DataFile::create(
                &folder.join(self.data_number.path("parquet")),
                &self.place.columns,
            )?);
        }
        for video in self.videos.iter_mut().flatten() {
            video.begin_episode(episode.episode)?;
        }
        Ok(())
    }

    fn frame(&mut self, episode: &Episode, items: &[Arc<Item>]) -> Result<(), TrainingError> {
        for (series, item) in self.series.iter_mut().zip(items) {
            series.add(item);
        }
        for (video, item) in self.videos.iter_mut().zip(items) {
            if let (Some(video), Item::Picture(picture)) = (video, &**item) {
                video.frame(picture)?;
            }
        }
        let task = self.task_number(&episode.task);
        if let Some(data) = &mut self.data {
            let own = data::OwnNumbers {
                timestamp: episode.frames as f64 / f64::from(self.place.mapping.fps),
                numbers: [episode.frames, episode.episode, self.frames, task].map(u64::cast_signed),
            };
            data.frame(&own, items)?;
        }
        self.frames += 1;
        Ok(())
    }

    fn end(&mut self, episode: &Episode) -> Result<(), TrainingError> {
        if let Some(data) = &mut self.data {
            data.end_group()?;
        }
        let series = std::mem::take(&mut self.series);
        let columns = self.place.columns.iter().zip(series);
        let stats = columns.map(|(column, series)| series.stats(column, episode.frames));
        let stats = stats
            .chain(self.own_stats(episode).into_iter().map(Some))
            .collect();
        let videos = self.videos.iter().flatten();
        self.rows.push(EpisodeRow {
            task: episode.task.clone(),
            frames: episode.frames,
            first_frame: self.frames - episode.frames,
            data: self.data_number,
            videos: videos
                .map(|video| video.place_of(episode.frames))
                .collect::<Vec<VideoPlace>>(),
            stats,
        });
        Ok(())
    }

    fn finish(mut self: Box<Self>, _: &TrainingReport) -> Result<(), TrainingError> {
        self.end_data()?;
        let mut codecs = Vec::new();
        for video in std::mem::take(&mut self.videos) {
            codecs.push(video.map(Video::finish).transpose()?);
        }
        let all = meta::Meta {
            place: &self.place,
            rows: &self.rows,
            tasks: &self.tasks,
            codecs: &codecs,
        };
        all.write()
    }
}
