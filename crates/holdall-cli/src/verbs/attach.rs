//! `holdall attach` and `holdall get`: files and key-value pairs that a bag stores in addition to its messages.

use super::input;
use crate::{
    VerbResult,
    args::attach::{AttachArguments, GetArguments},
    exit::{Failure, Outcome},
    output, render,
    resolve::attach::{change, target},
    terminal::log,
};
use holdall::{Bag, reader::Attachment, tools::attach};
use holdall_io::{
    clock::{Clock, SystemClock},
    new_file::NewFile,
};
use holdall_model::text::Outside;
use std::{io::Write, path::Path};
use tracing::level_filters::LevelFilter;

/// Changes the attachments of a bag, and lists them.
pub fn attach(args: &AttachArguments) -> VerbResult {
    log::start(LevelFilter::WARN);
    let change = change(args).map_err(Failure::refused)?;
    let mut named = vec![args.bag.clone()];
    named.extend(args.files.iter().cloned());
    let contents = attach::attach(&args.bag, &change, SystemClock.now())
        .map_err(|error| Failure::making(error, &named))?;
    output::result(&if args.json {
        render::attach::json(&contents).to_string()
    } else {
        render::attach::list(&contents)
    })?;
    Ok(Outcome::Done)
}

/// Lists the attachments of a bag, or takes one of them out.
pub fn get(args: &GetArguments) -> VerbResult {
    log::start(LevelFilter::WARN);
    let named = input::resolve(std::slice::from_ref(&args.bag))?;
    let contents = Bag::open(&named.paths[0]).and_then(|bag| bag.attached());
    let contents = contents.map_err(|error| Failure::opening(error, &named.paths))?;
    let Some(name) = &args.name else {
        output::result(&if args.json {
            render::attach::json(&contents).to_string()
        } else {
            render::attach::list(&contents)
        })?;
        return Ok(Outcome::Done);
    };
    // The newest of several.
    if let Some(found) = contents
        .attachments
        .iter()
        .rev()
        .find(|found| found.info.name == *name)
    {
        return take_out(found, args);
    }
    let Some((_, entries)) = contents.metadata.iter().rev().find(|(found, _)| found == name) else {
        return Err(Failure::refused(format!(
            "{}: nothing named {} is attached",
            args.bag.display(),
            Outside(name)
        )));
    };
    let text = serde_json::to_string_pretty(entries).map_err(Failure::failed)?;
    match &args.output {
        Some(path) => write(path, args.overwrite, &mut |file| {
            writeln!(file, "{text}").map_err(Failure::failed)
        })?,
        None => output::result(&text)?,
    }
    Ok(Outcome::Done)
}

fn take_out(found: &Attachment, args: &GetArguments) -> VerbResult {
    let failed = |error| Failure::making(error, std::slice::from_ref(&args.bag));
    if let Some(path) = &args.output {
        write(path, args.overwrite, &mut |file| {
            let mut written = Ok(());
            let read = attach::read_attachment(found, &mut |block| {
                written = file.write_all(block);
                written.is_ok()
            });
            read.map_err(failed)?;
            written.map_err(|error| Failure::failed(format!("{}: {error}", path.display())))
        })?;
        return Ok(Outcome::Done);
    }
    let mut stdout = output::Stream::stdout();
    if stdout.is_terminal() && !is_text(&found.info.media_type) {
        return Err(Failure::refused(format!(
            "{} is {}, not text; -o FILE writes it to a file",
            Outside(&found.info.name),
            Outside(&found.info.media_type)
        )));
    }
    let mut written = Ok(true);
    let read = attach::read_attachment(found, &mut |block| {
        written = if stdout.is_terminal() {
            let text = String::from_utf8_lossy(block);
            stdout.write(output::visible(&text).as_bytes())
        } else {
            stdout.write(block)
        };
        matches!(written, Ok(true))
    });
    read.map_err(failed)?;
    written?;
    stdout.flush()?;
    Ok(Outcome::Done)
}

/// Types that a terminal can show.
fn is_text(media_type: &str) -> bool {
    let texts = ["json", "yaml", "xml", "toml"];
    media_type.starts_with("text/") || texts.iter().any(|text| media_type.ends_with(text))
}

/// Makes a file that appears when it is complete.
fn write(
    path: &Path,
    overwrite: bool,
    fill: &mut dyn FnMut(&mut NewFile) -> Result<(), Failure>,
) -> Result<(), Failure> {
    target(path, overwrite).map_err(Failure::refused)?;
    let mut file = NewFile::beside(path).map_err(Failure::failed)?;
    fill(&mut file)?;
    file.sync().map_err(Failure::failed)?;
    let named = if overwrite {
        file.replace()
    } else {
        file.publish_new()
    };
    named.map_err(Failure::failed)
}
