//! Tips for mistakes of habit: a mistyped verb, `ros2 bag` before it, flags and orders of other programs.

use super::{Cli, export::ExportFormat};
use clap::{
    CommandFactory, Error, ValueEnum,
    builder::StyledStr,
    error::{ContextKind, ContextValue, ErrorKind},
};
use holdall::supervise::control_socket::all_requests;
use holdall_model::text::shell_word;
use holdall_web::parse_address;
use std::{ffi::OsString, path::Path};

/// Letters of a mistyped word for each one that differs.
const LETTERS_PER_FAULT: usize = 3;

/// Flags that people try for the ROS domain.
const DOMAIN_FLAGS: [&str; 5] = ["--domain", "--domain-id", "--domain_id", "--ros-domain-id", "-D"];

/// Letters and words that had another meaning elsewhere: verb, what it was, what it is.
const RENAMED: &[(&str, &str, &str)] = &[
    ("preflight", "-d", "--duration"),
    ("top", "-d", "--duration"),
    ("hz", "-d", "--duration"),
    ("bw", "-d", "--duration"),
    ("delay", "-d", "--duration"),
    ("echo", "-d", "--duration"),
    ("diff", "-s", "--summary"),
    ("cat", "-l", "--truncate-length"),
    ("record", "--duration", "--max-recording-duration"),
    ("record", "--for", "--max-recording-duration"),
    ("filter", "--rate", "--max-rate"),
    ("convert", "--rate", "--max-rate"),
    ("split", "--count", "--max-bag-messages"),
    ("convert", "--count", "--max-bag-messages"),
    ("merge", "--count", "--max-bag-messages"),
    ("filter", "--start-offset", "--start"),
    ("convert", "--start-offset", "--start"),
    ("filter", "--duration", "--end"),
    ("convert", "--duration", "--end"),
    ("filter", "--exclude", "--exclude-topics"),
    ("convert", "--exclude", "--exclude-topics"),
];

/// Words that other tools have for a verb, and the command that does it here.
const ELSEWHERE: &[(&[&str], &str)] = &[
    (
        &["cut", "trim", "crop", "slice", "extract"],
        "filter BAG -o NEW --start 10 --end 20",
    ),
    (&["image", "images", "frames", "video"], "export BAG -f png"),
    (&["csv", "parquet", "dump"], "export BAG -f csv"),
    (&["view", "gui", "show", "open", "browse"], "web FOLDER"),
    (&["ls", "stats", "summary"], "info BAG"),
    (&["validate", "verify", "doctor"], "check BAG"),
    (&["recover", "fix", "salvage"], "repair BAG"),
];

/// Puts tips into an error about arguments, where a better one is known than clap's.
pub fn add(error: &mut Error, argv: &[OsString]) {
    let words: Vec<String> = argv
        .iter()
        .skip(1)
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let verb = words.first().map_or("", String::as_str);
    let tips = match error.kind() {
        ErrorKind::InvalidSubcommand => {
            let tips = of_other_tools(&words);
            let nearest = if tips.is_empty() {
                nearest_verbs(&words)
            } else {
                Vec::new()
            };
            let tips = match tips.is_empty() && nearest.is_empty() {
                true => vec!["holdall -h lists the verbs".to_owned()],
                false => tips,
            };
            error.remove(ContextKind::SuggestedSubcommand);
            if !nearest.is_empty() {
                error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(nearest));
            }
            tips
        }
        ErrorKind::UnknownArgument => {
            let Some(ContextValue::String(argument)) = error.get(ContextKind::InvalidArg) else {
                return;
            };
            let tips = for_argument(verb, argument);
            if !tips.is_empty() {
                error.remove(ContextKind::SuggestedArg);
            }
            tips
        }
        ErrorKind::MissingRequiredArgument if verb == "control" => {
            vec!["for example: holdall control status, or pause, add_marker NAME, stop".to_owned()]
        }
        ErrorKind::MissingRequiredArgument => {
            let swallowed = swallowed(verb, &words);
            if swallowed.is_empty() {
                missing(verb, &words, error)
            } else {
                swallowed
            }
        }
        _ => Vec::new(),
    };
    if !tips.is_empty() {
        let tips = tips.into_iter().map(StyledStr::from).collect();
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tips));
    }
}

/// The one of these names that differs least from a mistyped word, by little.
pub fn nearest<'a>(word: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let distances = names.map(|name| (strsim::osa_distance(name, word), name));
    let (distance, name) = distances.min_by_key(|(distance, _)| *distance)?;
    (distance * LETTERS_PER_FAULT <= word.len()).then_some(name)
}

/// The verbs that differ least from the first word, or, where it has verbs of its own, those of it from the second; by little.
fn nearest_verbs(words: &[String]) -> Vec<String> {
    let cli = Cli::command();
    let verb = words.first().map_or("", String::as_str);
    let of = cli.find_subcommand(verb).filter(|verb| verb.has_subcommands());
    let word = of.map_or(verb, |_| words.get(1).map_or("", String::as_str));
    let verbs = of
        .unwrap_or(&cli)
        .get_subcommands()
        .filter(|verb| !verb.is_hide_set());
    let mut near: Vec<(usize, String)> = verbs
        .map(|verb| {
            (
                strsim::osa_distance(word, verb.get_name()),
                verb.get_name().to_owned(),
            )
        })
        .filter(|(distance, _)| distance * LETTERS_PER_FAULT <= word.len())
        .collect();
    near.sort();
    let least = near.first().map_or(0, |(distance, _)| *distance);
    near.into_iter()
        .take_while(|(distance, _)| *distance == least)
        .map(|(_, name)| name)
        .collect()
}

/// For `holdall bag record` and `holdall ros2 bag record`.
fn of_other_tools(words: &[String]) -> Vec<String> {
    let verb = words.first().map_or("", String::as_str);
    if let Some((_, command)) = ELSEWHERE.iter().find(|(names, _)| names.contains(&verb)) {
        return vec![format!("here it is: holdall {command}")];
    }
    if all_requests().contains(&verb) {
        let line: Vec<_> = words.iter().map(|word| shell_word(word)).collect();
        return vec![format!(
            "to ask a running recording or playback: holdall control {}",
            line.join(" ")
        )];
    }
    let left = match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["ros2", "bag", ..] => 2,
        ["ros2" | "bag", ..] => 1,
        _ => return Vec::new(),
    };
    let habit = words[..left].join(" ");
    let rest = words.get(left).map_or("record", String::as_str);
    vec![format!("leave out '{habit}': holdall {rest} …")]
}

fn for_argument(verb: &str, argument: &str) -> Vec<String> {
    let flag = argument.split('=').next().unwrap_or_default();
    if DOMAIN_FLAGS.contains(&flag) {
        return vec![format!(
            "the ROS domain is a variable of the environment: ROS_DOMAIN_ID=5 holdall {verb} …"
        )];
    }
    let is_address = parse_address(argument).is_ok();
    let address = if is_address { argument } else { "9000" };
    if let Some((_, _, now)) = RENAMED.iter().find(|(of, old, _)| *of == verb && *old == flag) {
        return vec![format!("{flag} of {verb} is {now}")];
    }
    match verb {
        "web" if is_address || flag == "--port" => {
            vec![format!("the address is a plain word: holdall web {address}")]
        }
        "bridge" | "serve" if is_address || flag == "--port" => {
            vec![format!(
                "the address for viewers is a flag: holdall {verb} --foxglove {address}"
            )]
        }
        _ => Vec::new(),
    }
}

/// The command line with what it lacks.
fn missing(verb: &str, words: &[String], error: &Error) -> Vec<String> {
    let Some(ContextValue::Strings(lacks)) = error.get(ContextKind::InvalidArg) else {
        return Vec::new();
    };
    let added = lacks.iter().map(|argument| match argument.as_str() {
        "--output <PATH>" => "-o NEW".to_owned(),
        "--format <FORMAT>" => format!("-f {}", format_of(words)),
        argument => argument
            .trim_end_matches("...")
            .trim_matches(['<', '>'])
            .to_owned(),
    });
    let line: Vec<String> = std::iter::once(verb.to_owned())
        .chain(words.iter().skip(1).map(|word| shell_word(word).into_owned()))
        .chain(added)
        .collect();
    vec![format!("holdall {}", line.join(" "))]
}

/// The format that the name of the output asks for.
fn format_of(words: &[String]) -> &'static str {
    let mut outputs = words
        .windows(2)
        .filter(|pair| ["-o", "--output"].contains(&pair[0].as_str()));
    let extension = outputs
        .next()
        .and_then(|pair| Path::new(&pair[1]).extension()?.to_str());
    let names = |format: &&ExportFormat| extension == Some(format.as_str());
    match extension {
        Some("jpg") => ExportFormat::Jpeg,
        _ => *ExportFormat::value_variants()
            .iter()
            .find(names)
            .unwrap_or(&ExportFormat::Csv),
    }
    .as_str()
}

/// Whether a flag takes all words after it.
fn takes_several(verb: &str, flag: &str) -> bool {
    let command = Cli::command();
    let arguments = command
        .find_subcommand(verb)
        .into_iter()
        .flat_map(clap::Command::get_arguments);
    let is_it = |argument: &&clap::Arg| {
        let letter = argument.get_short().map(|letter| format!("-{letter}"));
        let word = argument.get_long().map(|word| format!("--{word}"));
        letter.as_deref() == Some(flag) || word.as_deref() == Some(flag)
    };
    let mut several = arguments
        .filter(is_it)
        .filter_map(|argument| argument.get_num_args());
    several.any(|range| range.max_values() > 1)
}

/// A flag with several values before the bag took the bag for one of them.
fn swallowed(verb: &str, words: &[String]) -> Vec<String> {
    let flag = words.iter().rev().skip(1).find(|word| word.starts_with('-'));
    match (flag, words.last()) {
        (Some(flag), Some(last)) if !last.starts_with('-') && takes_several(verb, flag) => {
            vec![format!(
                "{flag} takes all words after it; name the bag first: holdall {verb} BAG {flag} …"
            )]
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    fn said(words: &[&str]) -> String {
        let argv: Vec<OsString> = std::iter::once("holdall")
            .chain(words.iter().copied())
            .map(Into::into)
            .collect();
        let mut error = Cli::try_parse_from(&argv).unwrap_err();
        add(&mut error, &argv);
        error.render().to_string()
    }

    #[test]
    fn mistakes_of_habit_have_one_tip() {
        for (words, tip) in [
            (&["recrod"][..], "tip: a similar subcommand exists: 'record'"),
            (&["pllay", "lab"], "tip: a similar subcommand exists: 'play'"),
            (
                &["cut", "lab"],
                "tip: here it is: holdall filter BAG -o NEW --start 10 --end 20",
            ),
            (&["list", "topisc"], "tip: a similar subcommand exists: 'topics'"),
            (&["bag", "record"], "tip: leave out 'bag': holdall record …"),
            (
                &["ros2", "bag", "play"],
                "tip: leave out 'ros2 bag': holdall play …",
            ),
            (&["record", "--domain", "5"], "ROS_DOMAIN_ID=5 holdall record …"),
            (
                &["play", "lab", "--domain-id=5"],
                "ROS_DOMAIN_ID=5 holdall play …",
            ),
            (&["web", "--port", "9000"], "holdall web 9000"),
            (&["hz", "/imu", "-d", "10"], "-d of hz is --duration"),
            (
                &["filter", "lab", "-o", "x", "--rate", "5"],
                "--rate of filter is --max-rate",
            ),
            (
                &["record", "/imu", "--duration", "10"],
                "--duration of record is --max-recording-duration",
            ),
            (&["pause"], "holdall control pause"),
            (&["add_marker", "door"], "holdall control add_marker door"),
            (
                &["export", "lab", "-n", "1", "-o", "q.png"],
                "tip: holdall export lab -n 1 -o q.png -f png",
            ),
            (&["export", "lab", "-o", "t/q.jpg"], "-f jpeg"),
            (&["export", "lab"], "-f csv"),
            (&["bridge", "8765"], "holdall bridge --foxglove 8765"),
        ] {
            let said = said(words);
            assert!(
                said.contains(tip) && said.matches("tip:").count() == 1,
                "{words:?}: {said}"
            );
        }
        assert!(said(&["control"]).contains("tip: for example: holdall control status"));
        assert!(said(&["cat", "-t", "/tf", "lab"]).contains("name the bag first: holdall cat BAG -t …"));
        assert!(said(&["frobnicate"]).contains("tip: holdall -h lists the verbs"));
        assert!(said(&["filter", "lab"]).contains("tip: holdall filter lab -o NEW"));
        assert!(said(&["info"]).contains("tip: holdall info BAG"));
    }
}
