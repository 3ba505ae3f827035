//! `holdall help`: the help of a verb, or a page about a topic.

use crate::{
    VerbResult,
    args::{
        help::{self, HelpArguments, PAGES},
        hints::nearest,
    },
    exit::{Failure, Outcome},
    output,
};
use clap::Command;

/// Shows it.
pub fn run(args: &HelpArguments) -> VerbResult {
    if let [word] = args.words.as_slice()
        && let Some((_, page, _)) = PAGES.iter().find(|(name, ..)| name == word)
    {
        output::result(page)?;
        return Ok(Outcome::Done);
    }
    let mut cli = help::command(&["holdall".into(), "--help".into()]);
    cli.build();
    let mut command = &mut cli;
    for word in &args.words {
        command = match command.find_subcommand(word).is_some() {
            true => command.find_subcommand_mut(word).expect("found before"),
            false => return Err(Failure::refused(unknown(word, command))),
        };
    }
    let text = command.render_long_help();
    output::result(&if console::colors_enabled() {
        text.ansi().to_string()
    } else {
        text.to_string()
    })?;
    Ok(Outcome::Done)
}

fn unknown(word: &str, command: &Command) -> String {
    let pages = PAGES.map(|(name, ..)| name);
    let verbs = command.get_subcommands().map(Command::get_name);
    let meant =
        nearest(word, verbs.chain(pages)).map_or_else(String::new, |near| format!("; did you mean {near}?"));
    format!(
        "{word:?} is neither a verb (holdall --help lists them) nor a topic ({}){meant}",
        pages.join(", ")
    )
}
