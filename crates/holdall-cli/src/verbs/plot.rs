//! `holdall plot`: a bag as a picture.

use super::input;
use crate::{
    VerbResult,
    args::plot::PlotArguments,
    exit::{Failure, Outcome},
    output,
    terminal::{log, progress::Progress},
    units::plural,
};
use holdall::plot::{Picture, PlotError, PlotOptions, Wanted, collect};
use holdall_io::{fs, mutex::lock};
use holdall_model::text::OutsidePath;
use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
};
use tracing::{level_filters::LevelFilter, warn};

/// File format of a picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Page,
    Svg,
    Png,
}

/// Draws bags.
pub fn run(args: &PlotArguments) -> VerbResult {
    let form = form_of(&args.output)?;
    if !args.overwrite && fs::exists(&args.output).map_err(Failure::failed)? {
        let path = OutsidePath(&args.output);
        return Err(Failure::refused(format!(
            "{path} exists already; --overwrite replaces it"
        )));
    }
    let wanted = args.wanted.iter().map(|text| {
        text.parse::<Wanted>()
            .map_err(|error| Failure::refused(format!("-t {text}: {error}")))
    });
    let wanted = wanted.collect::<Result<Vec<_>, _>>()?;
    log::start(LevelFilter::WARN);
    let input = input::open(&args.bags, &args.definitions)?;
    let options = PlotOptions {
        wanted,
        start: args.start.clone(),
        end: args.end.clone(),
        start_offset: args.start_offset,
        duration: args.duration,
        time: args.time.unwrap_or_default(),
        title: title(&args.bags),
    };
    let total: u64 = input
        .bags
        .bags()
        .iter()
        .map(|bag| bag.metadata().message_count)
        .sum();
    let progress = Mutex::new(Progress::of_messages("drawing"));
    let most = AtomicU64::new(0);
    let picture = collect(&input.bags, &options, &|read| {
        let most = most.fetch_max(read, Ordering::Relaxed).max(read);
        lock(&progress).show(most, total);
    })
    .map_err(|error| failure(error, &args.bags))?;
    drop(progress);
    let sentences = picture.notices.iter().chain(&picture.remarks);
    sentences.for_each(|sentence| warn!("{sentence}"));
    let bytes = drawn(&picture, form)?;
    let written = if args.overwrite {
        fs::write_atomically(&args.output, &bytes)
    } else {
        fs::write_new(&args.output, &mut bytes.as_slice())
    };
    written.map_err(Failure::failed)?;
    output::result(&format!(
        "{}: {} of {}{}",
        OutsidePath(&args.output),
        plural(picture.messages, "message"),
        plural(picture.lanes.len() as u64, "topic"),
        match picture.left_out {
            0 => String::new(),
            more => format!(
                "; {} with fewer messages have no lane",
                plural(more as u64, "topic")
            ),
        }
    ))?;
    // A damaged part is not in the picture.
    Ok(if picture.notices.is_empty() {
        Outcome::Done
    } else {
        Outcome::Failed
    })
}

fn form_of(path: &Path) -> Result<Form, Failure> {
    let ending = path.extension().and_then(OsStr::to_str).unwrap_or_default();
    match ending.to_ascii_lowercase().as_str() {
        "html" | "htm" => Ok(Form::Page),
        "svg" => Ok(Form::Svg),
        "png" if cfg!(feature = "pictures") => Ok(Form::Png),
        "png" => Err(Failure::refused(
            "this build of holdall draws no PNG; build it with --features pictures, or use .svg or .html",
        )),
        _ => Err(Failure::refused(format!(
            "-o {}: a picture is .html, .svg or .png",
            OutsidePath(path)
        ))),
    }
}

fn drawn(picture: &Picture, form: Form) -> Result<Vec<u8>, Failure> {
    match form {
        Form::Page => Ok(picture.page().into_bytes()),
        Form::Svg => Ok(picture.svg().into_bytes()),
        #[cfg(feature = "pictures")]
        Form::Png => picture.png().map_err(Failure::failed),
        #[cfg(not(feature = "pictures"))]
        Form::Png => Err(Failure::refused("this build of holdall draws no PNG")),
    }
}

fn title(bags: &[PathBuf]) -> String {
    let name = |path: &PathBuf| {
        path.file_name().map_or_else(
            || path.display().to_string(),
            |name| name.to_string_lossy().into_owned(),
        )
    };
    bags.iter().map(name).collect::<Vec<_>>().join(", ")
}

fn failure(error: PlotError, bags: &[PathBuf]) -> Failure {
    match error {
        PlotError::Bag(error) => Failure::opening(error, bags),
        PlotError::Choice(error) => Failure::choosing(error),
        error => Failure::refused(error),
    }
}
