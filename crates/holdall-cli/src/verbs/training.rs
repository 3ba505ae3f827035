//! `holdall export` of training data: datasets of frames in episodes.

use super::{
    export::{default_folder, existing, total},
    input,
};
use crate::units::plural;
use crate::{
    VerbResult,
    args::export::{ExportArguments, ExportFormat},
    exit::{Failure, Outcome},
    output, render,
    resolve::UsageError,
    terminal::progress::Progress,
};
use holdall::{
    decode::MessageChoice,
    training::{self, Mapping, TrainingFormat, TrainingOptions},
};
use holdall_io::fs;
use std::path::Path;
use tracing::warn;

const FLAG: &str = "--mapping";
/// Longest mapping that is read.
const MAPPING_BYTES_MAX: u64 = 1 << 20;

/// Writes a dataset.
pub fn run(args: &ExportArguments, mut choice: MessageChoice) -> VerbResult {
    let Some(path) = &args.mapping else {
        return Err(Failure::refused(format!(
            "-f {} needs {FLAG}, a YAML file with the features; holdall export --help has an example",
            args.format.as_str()
        )));
    };
    let arguments = &args.choice;
    if !arguments.topics.is_empty() || arguments.regex.is_some() || arguments.count.is_some() {
        return Err(Failure::refused(UsageError::Clash {
            first: FLAG,
            second: "--topics, --regex and --count",
            reason: "the topics of training data are those of the mapping, and all of an episode is read",
        }));
    }
    let mut mapping = read(path)?;
    if arguments.time.is_some() {
        mapping = mapping.with_stamp(choice.time).map_err(Failure::refused)?;
    }
    let input = input::open(&arguments.bags, &arguments.definitions)?;
    input::bound(&mut choice, &input.bags, arguments)?;
    let options = TrainingOptions {
        folder: args.output.clone().unwrap_or_else(|| default_folder(args)),
        format: match args.format {
            ExportFormat::Webdataset => TrainingFormat::WebDataset,
            _ => TrainingFormat::LeRobot,
        },
        mapping,
        existing: existing(args),
        choice,
        threads: std::thread::available_parallelism().map_or(1, usize::from),
    };
    let progress = Progress::of_messages("exporting");
    let total = total(&input.bags, None);
    let report = training::export(&input.bags, &options, &mut |read| progress.show(read, total));
    drop(progress);
    let report = report.map_err(Failure::training)?;
    report.damaged.iter().for_each(|damage| warn!("{damage}"));
    for feature in &report.features {
        if let Some(reason) = &feature.first_failure {
            warn!(
                "{}: {} of {} could not be used; the first: {reason}",
                feature.feature,
                plural(feature.failed, "message"),
                feature.topic
            );
        }
    }
    output::result(&if args.json {
        serde_json::to_string_pretty(&report).map_err(Failure::failed)?
    } else {
        render::training::text(&report)
    })?;
    Ok(if report.has_failed() {
        Outcome::Failed
    } else {
        Outcome::Done
    })
}

fn read(path: &Path) -> Result<Mapping, Failure> {
    let broken = |reason: String| {
        Failure::refused(UsageError::BrokenFile {
            flag: FLAG,
            path: path.to_owned(),
            reason,
        })
    };
    let text = fs::read_any_to_string(path, MAPPING_BYTES_MAX).map_err(|error| broken(error.to_string()))?;
    Mapping::parse(&text).map_err(|error| broken(error.to_string()))
}
