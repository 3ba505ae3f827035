//! `holdall cat`: messages as YAML, JSON lines or bytes.

use super::input;
use crate::{
    VerbResult,
    args::cat::{CatArguments, Format},
    exit::{Failure, Outcome},
    output::Stream,
    resolve,
    terminal::log,
};
use holdall::{
    decode::{Decoders, PrintForm, Printer},
    reader::Bag,
};
use holdall_model::dynamic::text::TextOptions;
use tracing::{level_filters::LevelFilter, warn};

/// Text that is gathered before it is written.
const GATHERED_BYTES: usize = 128 * 1024;

/// Shows messages.
pub fn run(args: &CatArguments) -> VerbResult {
    let mut choice = resolve::choice::resolve(&args.choice).map_err(Failure::refused)?;
    log::start(LevelFilter::WARN);
    let input = input::open(&args.choice.bags, &args.choice.definitions)?;
    let bags = &input.bags;
    input::bound(&mut choice, bags, &args.choice)?;
    let mut decoders = Decoders::new(bags.clone());
    let messages = choice.messages(bags, &mut decoders).map_err(Failure::choosing)?;
    let mut printer = Printer::new(decoders, form(args), options(args));
    let mut stream = Stream::stdout();
    let mut out = Vec::with_capacity(2 * GATHERED_BYTES);
    let mut has_failed = false;
    let count = args
        .choice
        .count
        .map_or(usize::MAX, |count| usize::try_from(count).unwrap_or(usize::MAX));
    let mut shown = 0;
    for message in messages {
        if shown == count {
            break;
        }
        match message {
            Ok(message) => {
                shown += 1;
                printer.print(&message, &mut out).map_err(Failure::failed)?;
            }
            Err(error) => {
                has_failed = true;
                warn!("{error}");
            }
        }
        printer.take_notices().iter().for_each(|notice| warn!("{notice}"));
        // A person waits for the first message, a program for many.
        if out.len() >= GATHERED_BYTES || stream.is_terminal() {
            if !stream.write(&out)? {
                return Ok(Outcome::Done);
            }
            out.clear();
        }
    }
    if !stream.write(&out)? || !stream.flush()? {
        return Ok(Outcome::Done);
    }
    if shown == 0 && !has_failed && count > 0 && input::message_count(bags) > 0 {
        return Err(Failure::refused(input::nothing_chosen(bags)));
    }
    let (sentences, undecoded) = printer.close();
    sentences.iter().for_each(|sentence| warn!("{sentence}"));
    // If all wanted messages were shown, missing ones do not matter.
    let is_damaged = shown < count && bags.bags().iter().any(Bag::is_damaged);
    Ok(if has_failed || undecoded || is_damaged {
        Outcome::Failed
    } else {
        Outcome::Done
    })
}

fn form(args: &CatArguments) -> PrintForm {
    match args.format {
        _ if args.raw => PrintForm::Raw,
        Format::Yaml if !args.json => PrintForm::Yaml,
        _ => PrintForm::Json,
    }
}

fn options(args: &CatArguments) -> TextOptions {
    TextOptions {
        length_max: args.truncate_length,
        lists: !args.no_arr,
        strings: !args.no_str,
        base64: args.base64,
        ..TextOptions::default()
    }
}
