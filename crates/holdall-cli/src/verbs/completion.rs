//! `holdall completion`: the completion script of a shell, and the topics that it asks for.

use crate::{
    VerbResult,
    args::help,
    exit::Outcome,
    output, resolve,
    transport::{self, Purpose},
};
use clap::{Arg, Command};
use clap_complete::Shell;
use holdall::reader::{BagSet, Ros1View};
use holdall_io::clock::{Clock, SystemClock};
use holdall_model::text::one_line;
use holdall_transport::GraphEvent;
use std::{collections::BTreeSet, path::PathBuf, sync::Arc, time::Duration};

/// How long the live graph is looked at: a person waits for it.
const LOOK: Duration = Duration::from_millis(1200);

/// Time between two looks.
const POLL: Duration = Duration::from_millis(50);

/// Verbs whose topics are live.
const LIVE: [&str; 8] = [
    "record",
    "preflight",
    "bridge",
    "top",
    "hz",
    "bw",
    "delay",
    "echo",
];

/// Writes the script to standard output, or the topics that `words` may continue with.
pub fn run(shell: Option<Shell>, words: Option<&[String]>) -> VerbResult {
    if let Some(words) = words {
        let topics = topics(words)
            .into_iter()
            .map(|topic| one_line(&topic).into_owned());
        output::result(&topics.collect::<Vec<_>>().join("\n"))?;
        return Ok(Outcome::Done);
    }
    let mut cli = help::command(&["holdall".into(), "--help".into()]);
    let mut script = Vec::new();
    let shell = shell.unwrap_or(Shell::Bash);
    clap_complete::generate(shell, &mut cli, "holdall", &mut script);
    let script = String::from_utf8_lossy(&script);
    output::result(&match shell {
        Shell::Bash => format!("{script}\n{}", bash(&cli)),
        Shell::Zsh => zsh(&script),
        Shell::Fish => format!("{script}\n{}", fish(&cli)),
        _ => script.into_owned(),
    })?;
    Ok(Outcome::Done)
}

/// Verb and argument, for each argument whose value is a topic.
fn of_topics(cli: &Command) -> Vec<(&Command, &Arg)> {
    let is_topic = |argument: &&Arg| {
        let names = argument.get_value_names().unwrap_or_default();
        names.iter().any(|name| name.as_str() == "TOPIC") && !argument.is_hide_set()
    };
    let verbs = cli.get_subcommands();
    verbs
        .flat_map(|verb| {
            verb.get_arguments()
                .filter(is_topic)
                .map(move |argument| (verb, argument))
        })
        .collect()
}

/// Asks for topics after the flags that take them, and where a verb has them as plain words; all else is as before.
fn bash(cli: &Command) -> String {
    let of_topics = of_topics(cli);
    let plain = of_topics.iter().filter(|(_, argument)| argument.is_positional());
    let plain: Vec<&str> = plain.map(|(verb, _)| verb.get_name()).collect();
    include_str!("topics.bash").replace("VERBS", &plain.join("|"))
}

/// Also for plain words, whose help names no value.
fn zsh(script: &str) -> String {
    let asked = script.lines().map(|line| match line.contains("::topics -- ") {
        true => line.replace(":_default' \\", ":_holdall_topics' \\"),
        false => line.replace(":TOPIC:_default", ":TOPIC:_holdall_topics"),
    });
    let asked: Vec<String> = asked.collect();
    asked.join("\n").replacen(
        "\n_holdall() {",
        &format!("\n{}_holdall() {{", include_str!("topics.zsh")),
        1,
    )
}

fn fish(cli: &Command) -> String {
    let lines = of_topics(cli).into_iter().map(|(verb, argument)| {
        let letter = argument.get_short().map_or_else(String::new, |letter| format!("-s {letter} "));
        let word = argument.get_long().map_or_else(String::new, |word| format!("-l {word} -r "));
        format!(
            "complete -c holdall -n '__fish_holdall_using_subcommand {}' {letter}{word}-f -a '(holdall completion --words (commandline -opc)[2..] 2>/dev/null)'",
            verb.get_name()
        )
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Names that shells can take apart, expand or run have no place in what they complete: bags and nodes of others choose them.
fn is_plain(name: &str) -> bool {
    name.bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'/' | b'_'))
}

/// Topics of the bag among the words, else, for verbs that listen, those of the live graph.
fn topics(words: &[String]) -> BTreeSet<String> {
    let mut names = all_topics(words);
    names.retain(|name| is_plain(name));
    names
}

fn all_topics(words: &[String]) -> BTreeSet<String> {
    let verb = words.first().map(String::as_str).unwrap_or_default();
    if LIVE.contains(&verb) {
        return live();
    }
    let bags = words
        .iter()
        .skip(1)
        .map(PathBuf::from)
        .filter(|path| holdall_io::fs::exists(path).unwrap_or(false));
    let bags: Vec<PathBuf> = bags.collect();
    match BagSet::open_with(&bags, Ros1View::AsStored) {
        Ok(bags) => bags.topics().into_iter().map(|topic| topic.name).collect(),
        Err(_) => BTreeSet::new(),
    }
}

/// What is published now; nothing where the live topics cannot be joined.
fn live() -> BTreeSet<String> {
    let mut topics = BTreeSet::new();
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let Ok(node) = resolve::node("holdall_completion") else {
        return topics;
    };
    let Ok(mut transports) = transport::join(&[], &node, None, &clock, Purpose::Other) else {
        return topics;
    };
    let end = clock.monotonic() + LOOK;
    while clock.monotonic() < end {
        for transport in &mut transports {
            let mut events = Vec::new();
            if transport.poll_graph(&mut events).is_err() {
                return topics;
            }
            topics.extend(events.into_iter().filter_map(|event| match event {
                GraphEvent::Publisher(publisher) => Some(publisher.topic),
                _ => None,
            }));
        }
        clock.sleep_until(clock.monotonic() + POLL);
    }
    topics
}
