//! `holdall upload`: the finished files of a bag into a bucket.

use crate::{
    VerbResult,
    args::upload::{RecordUpload, Schedule, UploadArguments},
    exit::{Failure, Outcome},
    output,
    terminal::{log, progress::Progress},
    units::{format_bytes, plural},
};
use holdall::upload::{
    Allowed, BesideRecording, UploadError, UploadOptions, UploadReport, UploadedFiles, Uploader,
};
use holdall_io::remote;
use jiff::Zoned;
use serde_json::json;
use std::{path::Path, time::Duration};
use tracing::level_filters::LevelFilter;

/// How often a schedule is checked.
const MINUTE: Duration = Duration::from_secs(60);

/// Uploads a bag.
pub fn run(args: &UploadArguments) -> VerbResult {
    log::start(LevelFilter::WARN);
    let url = target(&args.url, &args.bag)?;
    let options = UploadOptions {
        bytes_per_s: args.limit_rate,
        allowed: args.schedule.map_or_else(Allowed::always, allowed),
        overwrites: args.overwrite,
        ..UploadOptions::new(&url)
    };
    let uploader = Uploader::new(&args.bag, options).map_err(|error| failure(error, &args.bag))?;
    let progress = Progress::of_bytes("uploading");
    let mut show = move |_: &str, sent: u64, bytes: u64| progress.show(sent, bytes);
    let sent = uploader.send_bag(&mut show);
    drop(show);
    let mut report = sent.map_err(|error| failure(error, &args.bag))?;
    if let Some(damage) = &report.damage {
        tracing::warn!(
            "{}: the bag is damaged, and was uploaded as it is: {damage}",
            args.bag.display()
        );
    }
    if args.delete_after_verify && report.damage.is_none() {
        if report.unfinished.is_empty() {
            let removed = uploader.remove_sent(&report);
            report.removed = removed.map_err(|error| failure(error, &args.bag))?;
        } else {
            tracing::warn!(
                "{}: it is being recorded; nothing was removed",
                args.bag.display()
            );
        }
    }
    output::result(&if args.json {
        json(&report, &url).to_string()
    } else {
        text(&report, &url)
    })?;
    Ok(match report.damage {
        Some(_) => Outcome::Lost,
        None => Outcome::Done,
    })
}

/// The upload of a recording that has begun, into a folder of its bag's name.
pub(super) fn beside(
    args: &RecordUpload,
    bag: &Path,
    uploaded: Option<&UploadedFiles>,
) -> Result<Option<BesideRecording>, Failure> {
    let (Some(url), Some(uploaded)) = (&args.url, uploaded) else {
        return Ok(None);
    };
    let options = UploadOptions {
        bytes_per_s: args.limit_rate,
        ..UploadOptions::new(target(&url.join(""), bag)?)
    };
    let started = BesideRecording::start(bag, options, uploaded);
    started.map(Some).map_err(|error| failure(error, bag))
}

/// The outcome of the upload of a recording.
pub(super) fn ended(uploaded: Result<UploadReport, UploadError>, is_json: bool) -> Result<(), Failure> {
    match uploaded {
        Ok(report) if !is_json => output::result(&format!(
            "Uploaded:         {}, {}",
            plural(report.files.len() as u64, "file"),
            format_bytes(report.bytes())
        )),
        Ok(_) => Ok(()),
        Err(error) => Err(Failure::failed(format!(
            "the bag is not uploaded as a whole: {error}"
        ))),
    }
}

/// Where the files of a bag go.
pub(super) fn target(url: &Path, bag: &Path) -> Result<String, Failure> {
    if !remote::is_remote(url) {
        return Err(Failure::refused(format!(
            "{}: expected a URL that begins with s3://, gs:// or az://",
            url.display()
        )));
    }
    let is_folder = url.to_str().is_some_and(|url| url.ends_with('/'));
    let clean = remote::clean(url).display().to_string();
    let bag = std::path::absolute(bag).unwrap_or_else(|_| bag.to_owned());
    let name = bag.file_name().map(|name| name.to_string_lossy().into_owned());
    Ok(match name {
        Some(name) if is_folder => format!("{clean}/{name}"),
        _ => clean,
    })
}

pub(super) fn allowed(schedule: Schedule) -> Allowed {
    Allowed::when(move || {
        let now = Zoned::now();
        // Both are below a day.
        let minute = now.hour() as u16 * 60 + now.minute() as u16;
        MINUTE * u32::from(schedule.wait(minute))
    })
}

fn failure(error: UploadError, bag: &Path) -> Failure {
    let is_refused = match &error {
        UploadError::NotABag { .. } | UploadError::Exists { .. } | UploadError::Busy { .. } => true,
        UploadError::Lock(_) => true,
        UploadError::Disk(error) => error.path == bag,
        UploadError::Remote { .. } => false,
        _ => false,
    };
    let sentence = match &error {
        UploadError::Exists { .. } => format!("{error}; choose another URL, or add --overwrite"),
        _ => error.to_string(),
    };
    match &error {
        UploadError::NotABag { path, .. } => Failure::refused(sentence).with_bags_in(path),
        _ if is_refused => Failure::refused(sentence),
        _ => Failure::failed(sentence),
    }
}

/// The outcome for people.
pub(super) fn text(report: &UploadReport, url: &str) -> String {
    let files = plural(report.files.len() as u64, "file");
    let sent = report.sent_bytes();
    let mut line = format!("{url}: {files}, {}", format_bytes(report.bytes()));
    line.push_str(&if sent == 0 && !report.files.is_empty() {
        ", all uploaded already".to_owned()
    } else {
        format!(
            ", {} sent now, each compared with what the service has",
            format_bytes(sent)
        )
    });
    if !report.unfinished.is_empty() {
        let left = plural(report.unfinished.len() as u64, "file");
        line.push_str(&format!("; {left} not finished yet: the bag is being recorded"));
    }
    if report.removed > 0 {
        line.push_str(&format!("; {} removed here", plural(report.removed, "file")));
    }
    line
}

fn json(report: &UploadReport, url: &str) -> serde_json::Value {
    let files: Vec<_> = report
        .files
        .iter()
        .map(|file| json!({"name": file.name, "bytes": file.bytes, "sent_bytes": file.sent_bytes}))
        .collect();
    json!({
        "url": url,
        "files": files,
        "bytes": report.bytes(),
        "sent_bytes": report.sent_bytes(),
        "unfinished": report.unfinished,
        "damage": report.damage,
        "removed": report.removed,
    })
}
