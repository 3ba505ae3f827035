//! Help in two lengths: `-h` has on one screen what people need and says where the rest is, `--help` has everything. Pages that `holdall help` has besides.

use clap::{
    Args, Command, CommandFactory,
    builder::{StyledStr, styling::Style},
};
use holdall_program::names::STYLES;
use std::{ffi::OsString, fmt::Write};

/// The verbs by what they are for: heading, those that `-h` explains, those that it names.
const GROUPS: [(&str, &str, &str); 6] = [
    ("Record", "record preflight ps control", ""),
    (
        "Look",
        "info cat plot web audit check",
        "diff list get find catalog contract events regress",
    ),
    (
        "Change",
        "filter convert split merge repair",
        "migrate compress decompress reindex attach decrypt",
    ),
    ("Share", "play export upload serve bridge", "burst"),
    ("Measure", "top echo hz", "bw delay bench"),
    ("More", "", "help man completion"),
];

/// The flags that `-h` of a verb has; all, for a verb that is not named.
const NEEDED: &[(&str, &str)] = &[
    (
        "record",
        "all topics regex output max-bag-size max-bag-duration trigger web",
    ),
    ("preflight", "duration for all topics output json"),
    ("play", "topics rate loop start end clock remap start-paused web"),
    ("burst", "topics num-messages start-offset remap"),
    ("cat", "topics regex where start end count json no-arr"),
    (
        "events",
        "trigger before after labels label-markers write-markers json",
    ),
    ("export", "format topics where start end output"),
    ("plot", "topics output start end"),
    ("diff", "fields decoded summary count json"),
    (
        "convert",
        "output storage compression topics start end max-bag-size",
    ),
    ("merge", "output storage compression max-bag-size"),
    (
        "split",
        "output max-bag-size max-bag-duration max-bag-messages at by",
    ),
    ("filter", "output topics start end where max-rate"),
    ("compress", "output level mode video cloud json"),
    (
        "migrate",
        "output definitions distro old-definitions rules draft-rules",
    ),
    ("bridge", "foxglove foxglove-control topics regex"),
    ("serve", "foxglove topics rate loop play"),
    ("web", "token-file transport"),
    ("top", "regex sort once socket"),
    ("hz", "duration window filter"),
    ("bw", "duration window"),
    ("delay", "duration window"),
    ("echo", "once count field filter json csv no-arr"),
];

/// Pages of `holdall help`: word, text, the verbs whose `-h` names it.
pub const PAGES: [(&str, &str, &str); 7] = [
    (
        "times",
        include_str!("pages/times.txt"),
        "play cat export plot convert filter split",
    ),
    (
        "values",
        include_str!("pages/values.txt"),
        "record cat export filter convert echo top web",
    ),
    ("qos", include_str!("pages/qos.txt"), "record play"),
    (
        "loss",
        include_str!("pages/loss.txt"),
        "record info audit check repair",
    ),
    (
        "markers",
        include_str!("pages/markers.txt"),
        "control events info export filter split",
    ),
    ("triggers", include_str!("pages/triggers.txt"), "record events"),
    (
        "storage",
        include_str!("pages/storage.txt"),
        "record convert compress merge split",
    ),
];

/// Whether a word is in a list.
fn has(list: &str, word: &str) -> bool {
    list.split(' ').any(|one| one == word)
}

/// Examples that `-h` has of each verb.
const EXAMPLES_MAX: usize = 4;

/// All flags of `holdall help`.
#[derive(Args, Clone, Debug)]
pub struct HelpArguments {
    /// A verb, or a topic: times, values, qos, loss, markers, triggers, storage
    #[arg(value_name = "VERB|TOPIC")]
    pub words: Vec<String>,
}

/// The command line as its help has it; short where `-h` asks, or nothing does.
pub fn command(argv: &[OsString]) -> Command {
    let is_short = argv.len() < 2
        || argv
            .iter()
            .take_while(|word| *word != "--")
            .any(|word| word == "-h");
    let cli = super::Cli::command();
    if is_short { short(cli) } else { long(cli) }
}

/// With all verbs in their groups.
fn long(cli: Command) -> Command {
    let groups = groups(&cli, true);
    cli.help_template(
        "{about-with-newline}\n{usage-heading} {usage}\n\n{before-help}Options:\n{options}{after-help}",
    )
    .before_long_help(groups)
}

fn short(cli: Command) -> Command {
    let groups = groups(&cli, false);
    let names: Vec<String> = cli
        .get_subcommands()
        .map(|verb| verb.get_name().to_owned())
        .collect();
    let cli = names
        .into_iter()
        .fold(cli, |cli, name| cli.mut_subcommand(name, short_verb))
        .mut_arg("identity", |identity| identity.hide(true));
    cli.help_template("{about-with-newline}\n{usage-heading} {usage}\n\n{before-help}")
        .before_help(format!(
            "{}\n\nholdall VERB -h · holdall --help (environment, exit codes)\nholdall help {}",
            groups.ansi(),
            PAGES.map(|(name, ..)| name).join("|")
        ))
}

/// The verbs with what they do, by group.
fn groups(cli: &Command, all: bool) -> StyledStr {
    let mut text = String::new();
    let (header, literal) = (STYLES.get_header(), STYLES.get_literal());
    for (heading, first, further) in GROUPS {
        let there = |list: &'static str| {
            list.split_whitespace()
                .filter(|name| cli.find_subcommand(name).is_some())
        };
        let further: Vec<&str> = there(further).collect();
        let named = match (all || further.is_empty(), first.is_empty()) {
            (true, _) => String::new(),
            (false, true) => format!(" {}", further.join(", ")),
            (false, false) => format!(" (also {})", further.join(", ")),
        };
        // The width of a line is counted with what colours it.
        let header = if all { *header } else { Style::new() };
        let _ = writeln!(text, "{header}{heading}{header:#}{named}");
        let further = if all { further } else { Vec::new() };
        for name in there(first).chain(further) {
            let about = cli.find_subcommand(name).and_then(Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(text, "  {literal}{name:<10}{literal:#}  {about}");
        }
        if all {
            text.push('\n');
        }
    }
    StyledStr::from(text.trim_end().to_owned())
}

/// The verb with the flags that people need, without headings, and with some examples.
fn short_verb(mut verb: Command) -> Command {
    let name = verb.get_name().to_owned();
    let needed = NEEDED
        .iter()
        .find(|(named, _)| *named == name)
        .map(|(_, flags)| *flags);
    let flags: Vec<(String, String)> = verb
        .get_opts()
        .chain(
            verb.get_arguments()
                .filter(|argument| !argument.get_action().takes_values()),
        )
        .filter_map(|flag| Some((flag.get_id().to_string(), flag.get_long()?.to_owned())))
        .filter(|(id, _)| id != "help")
        .collect();
    let mut left_out = 0;
    for (id, long) in flags {
        let is_needed = needed.is_none_or(|needed| has(needed, &long));
        verb = verb.mut_arg(id, |flag| {
            left_out += usize::from(!is_needed && !flag.is_hide_set());
            let is_hidden = flag.is_hide_set() || !is_needed;
            flag.hide(is_hidden).help_heading(None)
        });
    }
    let examples = verb.get_after_help().map(ToString::to_string).unwrap_or_default();
    let mut text = first_examples(&examples);
    let pages = PAGES.iter().filter(|(.., verbs)| has(verbs, &name));
    let pages: Vec<&str> = pages.map(|(page, ..)| *page).collect();
    let mut more = Vec::new();
    if left_out > 0 {
        more.push(format!("{left_out} more flags: holdall {name} --help"));
    }
    if !pages.is_empty() {
        more.push(format!("holdall help {}", pages.join("|")));
    }
    if !more.is_empty() {
        let _ = write!(text, "\n\n{}", more.join(" · "));
    }
    verb.after_help(text)
}

/// The heading and the first examples, with the lines that belong to them.
fn first_examples(text: &str) -> String {
    let mut count = 0;
    let lines = text.lines().take_while(|line| {
        count += usize::from(line.starts_with("  holdall"));
        count <= EXAMPLES_MAX && !line.is_empty()
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines of a screen.
    const SCREEN: usize = 40;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(Into::into).collect()
    }

    fn short_help(line: &str) -> String {
        let command = command(&words(line)).term_width(80);
        command
            .try_get_matches_from(words(line))
            .unwrap_err()
            .render()
            .to_string()
    }

    fn verbs() -> Vec<String> {
        let cli = super::super::Cli::command();
        cli.get_subcommands()
            .map(|verb| verb.get_name().to_owned())
            .filter(|verb| verb != "bench")
            .collect()
    }

    #[test]
    fn short_help_fits_on_a_screen() {
        let mut all = vec![("holdall".to_owned(), short_help("holdall -h"))];
        all.extend(
            verbs()
                .into_iter()
                .map(|verb| (verb.clone(), short_help(&format!("holdall {verb} -h")))),
        );
        let too_long: Vec<_> = all
            .iter()
            .map(|(verb, text)| (verb, text.lines().count()))
            .filter(|(_, lines)| *lines > SCREEN)
            .collect();
        assert!(too_long.is_empty(), "{too_long:?}");
        for (name, text) in &all {
            assert!(text.contains("Usage:"), "{name}: {text}");
        }
        insta::assert_snapshot!(format!(
            "{}\n\n{}",
            all[0].1,
            all.iter().find(|(verb, _)| verb == "record").unwrap().1
        ));
    }

    #[test]
    fn every_verb_is_in_one_group_and_every_needed_flag_exists() {
        let mut grouped: Vec<&str> = GROUPS
            .iter()
            .flat_map(|(_, first, further)| first.split_whitespace().chain(further.split_whitespace()))
            .collect();
        let mut all = verbs();
        all.push("bench".to_owned());
        grouped.retain(|name| all.iter().any(|verb| verb == name));
        grouped.sort_unstable();
        all.sort_unstable();
        assert_eq!(grouped, all);
        let cli = super::super::Cli::command();
        for (verb, flags) in NEEDED {
            let Some(command) = cli.find_subcommand(verb) else {
                continue;
            };
            for flag in flags.split(' ') {
                assert!(
                    command
                        .get_arguments()
                        .any(|argument| argument.get_long() == Some(flag)),
                    "{verb} --{flag}"
                );
            }
        }
    }

    #[test]
    fn pages_fit_on_a_screen() {
        for (name, page, verbs) in PAGES {
            assert!(
                page.lines().count() <= SCREEN && page.lines().all(|line| line.chars().count() <= 90),
                "{name}"
            );
            let cli = super::super::Cli::command();
            assert!(
                verbs.split(' ').all(|verb| cli.find_subcommand(verb).is_some()),
                "{name}"
            );
        }
    }

    /// The command lines in a text, as a shell divides them; without what follows a pipe, and without words of explanation.
    fn examples(text: &str) -> Vec<Vec<String>> {
        let lines = text.lines().filter_map(|line| line.strip_prefix("  holdall "));
        lines
            .map(|line| {
                let (mut found, mut word, mut quote) = (Vec::new(), String::new(), None);
                let mut spaces = 0;
                for c in line.chars() {
                    match (quote, c) {
                        (Some(open), c) if c == open => quote = None,
                        (None, '\'' | '"') => quote = Some(c),
                        (None, ' ') => {
                            spaces += 1;
                            if !word.is_empty() || spaces == 1 {
                                found.push(std::mem::take(&mut word));
                            }
                            if spaces > 1 {
                                break;
                            }
                            continue;
                        }
                        (_, c) => word.push(c),
                    }
                    spaces = 0;
                }
                found.push(word);
                found.retain(|word| !word.is_empty());
                let end = found
                    .iter()
                    .position(|word| ["|", "&&", "&", ">"].contains(&word.as_str()));
                found.truncate(end.unwrap_or(found.len()));
                found
            })
            .collect()
    }

    #[test]
    fn every_example_is_a_command_line() {
        let cli = super::super::Cli::command();
        let helps = cli
            .get_subcommands()
            .filter(|verb| verb.get_name() != "bench")
            .map(|verb| {
                let text = |text: Option<&StyledStr>| text.map(ToString::to_string).unwrap_or_default();
                format!(
                    "{}\n{}",
                    text(verb.get_after_help()),
                    text(verb.get_after_long_help())
                )
            });
        let mut count = 0;
        for text in helps
            .chain(PAGES.map(|(_, page, _)| page.to_owned()))
            .chain([super::super::EXAMPLES.to_owned()])
        {
            for example in examples(&text) {
                count += 1;
                let line = std::iter::once("holdall".to_owned()).chain(example.iter().cloned());
                let parsed = super::super::Cli::command()
                    .disable_help_subcommand(true)
                    .try_get_matches_from(line);
                if let Err(error) = parsed {
                    panic!("{example:?}: {error}");
                }
            }
        }
        assert!(count > 120, "{count}");
    }
}
