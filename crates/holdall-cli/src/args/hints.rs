//! Tips for mistakes of habit: a mistyped verb, `ros2 bag` before it, flags and orders of other programs.

use super::Cli;
use crate::verbs::web::running_folder;
use clap::{
    CommandFactory, Error,
    builder::StyledStr,
    error::{ContextKind, ContextValue, ErrorKind},
};
use holdall::supervise::control_socket::all_requests;
use holdall_web::parse_address;
use std::ffi::OsString;

/// Letters of a mistyped verb for each one that differs.
const LETTERS_PER_FAULT: usize = 3;

/// Most sockets that are named.
const SOCKETS_MAX: usize = 5;

/// Flags that people try for the ROS domain.
const DOMAIN_FLAGS: [&str; 5] = ["--domain", "--domain-id", "--domain_id", "--ros-domain-id", "-D"];

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
            let tips = without_ros2(&words);
            let nearest = if tips.is_empty() {
                nearest_verbs(verb)
            } else {
                Vec::new()
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
            for_argument(verb, argument)
        }
        ErrorKind::MissingRequiredArgument if verb == "control" => for_control(&words[1..]),
        _ => Vec::new(),
    };
    if !tips.is_empty() {
        let tips = tips.into_iter().map(StyledStr::from).collect();
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tips));
    }
}

/// The verbs that differ least from a word, and by little.
fn nearest_verbs(word: &str) -> Vec<String> {
    let command = Cli::command();
    let verbs = command.get_subcommands().filter(|verb| !verb.is_hide_set());
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
fn without_ros2(words: &[String]) -> Vec<String> {
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
    match verb {
        "web" if is_address || flag == "--port" => {
            vec![format!(
                "folder and address come in this order: holdall web . {address}"
            )]
        }
        "bridge" | "serve" if is_address || flag == "--port" => {
            vec![format!(
                "the address for viewers is a flag: holdall {verb} --foxglove {address}"
            )]
        }
        _ => Vec::new(),
    }
}

/// For a request without the socket before it: the sockets that listen now.
fn for_control(words: &[String]) -> Vec<String> {
    let request = match words {
        [] => "status",
        [word] if all_requests().contains(&word.as_str()) => word,
        _ => return Vec::new(),
    };
    let running = running_folder().list();
    if running.is_empty() {
        return vec![format!(
            "the path of a socket comes first: holdall control PATH {request}; no recording or playback of this user runs now"
        )];
    }
    let tip = |running: &holdall::supervise::running::Running| {
        let (socket, kind, process) = (running.socket.display(), running.kind.as_str(), running.process);
        format!("for the {kind} of process {process}: holdall control {socket} {request}")
    };
    running.iter().take(SOCKETS_MAX).map(tip).collect()
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
            (&["web", "--port", "9000"], "holdall web . 9000"),
            (&["bridge", "8765"], "holdall bridge --foxglove 8765"),
        ] {
            let said = said(words);
            assert!(
                said.contains(tip) && said.matches("tip:").count() == 1,
                "{words:?}: {said}"
            );
        }
        assert!(said(&["control", "pause"]).contains("pause"));
        assert!(!said(&["frobnicate"]).contains("tip:"));
    }
}
