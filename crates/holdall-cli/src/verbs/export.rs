//! `holdall export`: messages as tables, images and point clouds.

use super::input;
use crate::{
    VerbResult,
    args::export::{ExportArguments, ExportFormat},
    exit::{Failure, Outcome},
    output, render, resolve,
    terminal::{log, progress::Progress},
};
use holdall::{
    decode::Decoders,
    export::{CloudFormat, ExistingFiles, ExportKind, ExportOptions, Exporter, ImageFormat},
    reader::{Bag, BagSet},
};
use holdall_io::remote;
use std::path::PathBuf;
use tracing::{level_filters::LevelFilter, warn};

/// Writes tables, images or clouds.
pub fn run(args: &ExportArguments) -> VerbResult {
    let mut choice = resolve::choice::resolve(&args.choice).map_err(Failure::refused)?;
    let output = args.output.as_deref();
    output
        .map_or(Ok(()), resolve::refuse_remote)
        .map_err(Failure::refused)?;
    log::start(LevelFilter::WARN);
    refuse_flat(args)?;
    let Some(kind) = kind(args) else {
        #[cfg(feature = "parquet")]
        return super::training::run(args, choice);
        #[cfg(not(feature = "parquet"))]
        return Err(Failure::failed("training data needs the feature parquet"));
    };
    refuse_mapping(args)?;
    let input = input::open(&args.choice.bags, &args.choice.definitions)?;
    let bags = &input.bags;
    input::bound(&mut choice, bags, &args.choice)?;
    let mut decoders = Decoders::new(bags.clone());
    let messages = choice.messages_of_each(bags, &mut decoders);
    let messages = messages.map_err(Failure::choosing)?;
    let progress = Progress::of_messages("exporting");
    let total = total(bags, args.choice.count);
    let options = ExportOptions {
        folder: args.output.clone().unwrap_or_else(|| default_folder(args)),
        kind,
        existing: existing(args),
        time: choice.time,
    };
    let mut exporter = Exporter::new(options, decoders).map_err(Failure::exporting)?;
    let count = args.choice.count.unwrap_or(u64::MAX);
    let (mut taken, mut unreadable) = (0, 0_u64);
    for message in messages {
        if taken == count {
            break;
        }
        match message {
            Ok(message) => {
                taken += 1;
                exporter.write(&message).map_err(Failure::exporting)?;
            }
            Err(error) => {
                unreadable += 1;
                warn!("{error}");
            }
        }
        progress.show(taken, total);
    }
    let report = exporter.finish().map_err(Failure::exporting)?;
    drop(progress);
    report.notices.iter().for_each(|notice| warn!("{notice}"));
    for topic in &report.json_topics {
        warn!("{}", render::export::json_topic(topic));
    }
    if report.exported.is_empty() && unreadable == 0 && total > 0 {
        return Err(nothing(kind, taken > 0, bags));
    }
    output::result(&if args.json {
        serde_json::to_string_pretty(&report).map_err(Failure::failed)?
    } else {
        render::export::text(&report)
    })?;
    let is_damaged = bags.bags().iter().any(Bag::is_damaged);
    Ok(if unreadable > 0 || is_damaged || report.has_failed() {
        Outcome::Failed
    } else {
        Outcome::Done
    })
}

/// The output; `None` for training data.
const fn kind(args: &ExportArguments) -> Option<ExportKind> {
    Some(match args.format {
        ExportFormat::Csv => ExportKind::Csv,
        ExportFormat::Parquet => ExportKind::Parquet { flat: args.flat },
        ExportFormat::Png => ExportKind::Images(ImageFormat::Png),
        ExportFormat::Jpeg => ExportKind::Images(ImageFormat::Jpeg(args.quality)),
        ExportFormat::Mp4 => ExportKind::Mp4,
        ExportFormat::Pcd => ExportKind::Clouds(CloudFormat::Pcd),
        ExportFormat::Ply => ExportKind::Clouds(CloudFormat::Ply),
        #[cfg(feature = "parquet")]
        ExportFormat::Lerobot | ExportFormat::Webdataset => return None,
    })
}

/// Only training data has features.
fn refuse_mapping(args: &ExportArguments) -> Result<(), Failure> {
    let clash = || {
        Failure::refused(resolve::UsageError::Clash {
            first: "--mapping",
            second: "--format",
            reason: "a mapping is for training data",
        })
    };
    args.mapping.as_ref().map_or(Ok(()), |_| Err(clash()))
}

/// Only Parquet has nested columns.
fn refuse_flat(args: &ExportArguments) -> Result<(), Failure> {
    if args.flat && args.format != ExportFormat::Parquet {
        return Err(Failure::refused(resolve::UsageError::Clash {
            first: "--flat",
            second: "--format",
            reason: "only Parquet has nested columns; use -f parquet",
        }));
    }
    Ok(())
}

/// Why nothing was written.
fn nothing(kind: ExportKind, is_chosen: bool, bags: &BagSet) -> Failure {
    Failure::refused(if is_chosen {
        let what = match kind {
            ExportKind::Images(_) => "images",
            ExportKind::Mp4 => "video",
            ExportKind::Clouds(_) => "point clouds",
            ExportKind::Csv | ExportKind::Parquet { .. } => "messages that a table can hold",
        };
        format!("nothing was written: no chosen topic has {what}")
    } else {
        input::nothing_chosen(bags)
    })
}

/// Handling of existing files.
pub(super) fn existing(args: &ExportArguments) -> ExistingFiles {
    if args.overwrite {
        ExistingFiles::Replace
    } else {
        ExistingFiles::Refuse
    }
}

/// `lab` and `csv` give `lab_csv`, in the current folder.
pub(super) fn default_folder(args: &ExportArguments) -> PathBuf {
    let stem = args
        .choice
        .bags
        .first()
        .and_then(|bag| Some(remote::clean(bag).file_stem()?.to_string_lossy().into_owned()));
    let stem = stem.unwrap_or_else(|| "export".to_owned());
    PathBuf::from(format!("{stem}_{}", args.format.as_str()))
}

/// Messages to read; a filter makes it end early.
pub(super) fn total(bags: &BagSet, count: Option<u64>) -> u64 {
    let all = input::message_count(bags);
    count.map_or(all, |count| count.min(all))
}
