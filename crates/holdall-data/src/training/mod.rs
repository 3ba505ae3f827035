//! Training data out of bags: frames at a fixed rate, divided into episodes, as datasets of `LeRobot` (version 3) and `WebDataset`.
//!
//! A [`Mapping`] names the features. Messages are read in time order, once more before that where recorded video may be copied, and again where a copy
//! turns out to be impossible; only those that a frame takes are decoded. Memory is bounded by the frames that are made together, an episode's numbers,
//! and a row for each episode.

mod copies;
mod divide;
mod episodes;
mod error;
mod frames;
mod lerobot;
mod mapping;
mod picture;
mod render;
mod run;
mod schema;
mod stats;
mod values;
mod webdataset;

pub use error::TrainingError;
pub use frames::Fit;
pub use mapping::{Divider, Dtype, Episodes, Feature, Mapping, Missing, Sample, VideoOptions};

use crate::export::ExistingFiles;
use copies::{Copied, Copies};
use holdall_bag::{decode::MessageChoice, reader::BagSet};
use holdall_io::{fs, output::remove_dir_all};
use holdall_tools::tools::Staged;
use render::Item;
use run::Run;
use schema::Column;
use serde::Serialize;
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

/// The layout of a dataset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrainingFormat {
    /// `LeRobot` version 3: tables, statistics, images in the tables or videos.
    LeRobot,
    /// `WebDataset`: tar archives with files for each frame.
    WebDataset,
}

/// Contents and place of a dataset.
#[derive(Clone, Debug)]
pub struct TrainingOptions {
    /// The dataset's folder.
    pub folder: PathBuf,
    /// Its layout.
    pub format: TrainingFormat,
    /// Its features and episodes.
    pub mapping: Mapping,
    /// Handling of an existing dataset.
    pub existing: ExistingFiles,
    /// Which messages; its topics and its order are the mapping's.
    pub choice: MessageChoice,
    /// Threads that decode and encode images.
    pub threads: usize,
}

/// An episode of the dataset.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Episode {
    /// Its number.
    pub episode: u64,
    /// The bag that it is from.
    pub bag: PathBuf,
    /// Its task.
    pub task: String,
    /// When its first frame is, in nanoseconds since 1970.
    pub start_ns: i64,
    /// Number of frames.
    pub frames: u64,
}

/// How well a feature could be filled.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FeatureReport {
    /// Its name.
    pub feature: String,
    /// Its topic.
    pub topic: String,
    /// How far its messages are from the frames.
    #[serde(flatten)]
    pub fit: Fit,
    /// Messages that could not be used; the one before was held.
    pub failed: u64,
    /// Why the first of them could not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_failure: Option<String>,
    /// What became of recorded video, where there is some.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub video: Option<VideoReport>,
}

/// Episodes whose recorded video was copied, and others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct VideoReport {
    /// Episodes with the recorded pictures, unchanged.
    pub copied: u64,
    /// Episodes whose pictures were decoded and encoded anew.
    pub encoded: u64,
    /// Why the first of them was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_reason: Option<String>,
}

/// Results of an export.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TrainingReport {
    /// The dataset's folder.
    pub dataset: PathBuf,
    /// Frames per second.
    pub fps: u32,
    /// Number of frames.
    pub frames: u64,
    /// Greatest distance in nanoseconds of a message that fits a frame.
    pub tolerance_ns: i64,
    /// The episodes.
    pub episodes: Vec<Episode>,
    /// Episodes that were left out because they are too short.
    pub short: u64,
    /// Recorded episodes that were left out: discarded, without a known end, or with another outcome.
    pub left_out: u64,
    /// The features.
    pub features: Vec<FeatureReport>,
    /// Damaged parts of the bags, one sentence each.
    pub damaged: Vec<String>,
}

impl TrainingReport {
    /// True if a message could not be read or used.
    pub fn has_failed(&self) -> bool {
        !self.damaged.is_empty() || self.features.iter().any(|feature| feature.failed > 0)
    }
}

/// A dataset that is being written.
trait Dataset {
    /// Begins an episode.
    fn begin(&mut self, episode: &Episode) -> Result<(), TrainingError>;

    /// Appends a frame of the episode: an item for each column.
    fn frame(&mut self, episode: &Episode, items: &[Arc<Item>]) -> Result<(), TrainingError>;

    /// Ends the episode, whose number of frames is known now.
    fn end(&mut self, episode: &Episode) -> Result<(), TrainingError>;

    /// Completes all files and makes them durable.
    fn finish(self: Box<Self>, report: &TrainingReport) -> Result<(), TrainingError>;
}

/// The output of a dataset, and its place.
struct Place<'a> {
    folder: &'a Path,
    mapping: &'a Mapping,
    columns: Vec<Column>,
    /// For each column, its recorded video that is copied.
    copied: Vec<Option<Copied>>,
}

/// Makes a dataset of bags; `progress` is called with the number of messages read so far. The folder appears when the dataset is whole.
///
/// # Errors
/// A mapping that does not fit the bags; not even one frame; an existing folder; a full disk. A message that cannot be decoded is
/// counted in the report.
pub fn export(
    bags: &BagSet,
    options: &TrainingOptions,
    progress: &mut dyn FnMut(u64),
) -> Result<TrainingReport, TrainingError> {
    lerobot::check(options)?;
    make_room(options)?;
    let mut staged = Staged::begin(&options.folder)?;
    let mut copies = Copies::find(bags, options)?;
    if let Some(judge) = copies.judge() {
        let run = Run::new(options, staged.directory(), (&copies, Some(judge)));
        let judged = run.bags(bags, &mut |_| ())?.judged();
        if let Some(judge) = judged {
            copies.settle(judge, lerobot::can_encode);
        }
    }
    let report = loop {
        let run = Run::new(options, staged.directory(), (&copies, None));
        match run.bags(bags, progress).and_then(Run::finish) {
            // One that cannot be decoded shows only now: the dataset is begun again, without copies of this video.
            Err(TrainingError::Copy { feature, reason }) if copies.refuse(&feature, &reason) => {
                drop(staged);
                staged = Staged::begin(&options.folder)?;
            }
            report => break report?,
        }
    };
    staged.publish()?;
    Ok(report)
}

/// Removes the dataset that the new one replaces.
fn make_room(options: &TrainingOptions) -> Result<(), TrainingError> {
    let folder = &options.folder;
    if options.existing == ExistingFiles::Refuse || !fs::exists(folder)? {
        return Ok(());
    }
    if !fs::exists(&folder.join(REPORT_FILE))? {
        return Err(TrainingError::NotADataset { path: folder.clone() });
    }
    Ok(remove_dir_all(folder)?)
}

/// The file with the report, by which a dataset of this program is recognized.
const REPORT_FILE: &str = "holdall.json";

/// Writes a JSON file of a dataset.
fn write_json(path: &Path, value: &impl Serialize) -> Result<(), TrainingError> {
    let text = serde_json::to_vec_pretty(value).map_err(|error| TrainingError::write(path, error))?;
    if let Some(folder) = path.parent() {
        fs::create_dirs(folder)?;
    }
    Ok(fs::write_atomically(path, &text)?)
}
