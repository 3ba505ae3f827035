//! One language: a letter and a word of the command line mean one thing in every verb, and values of one kind are read alike.

use super::Cli;
use clap::{Arg, Command, CommandFactory};
use std::collections::{BTreeMap, BTreeSet};

/// Letters that another program gave to another word: verb, letter, word, and whose they are.
const LETTERS: &[(&str, char, &str, &str)] = &[
    ("play", 'd', "delay", "ros2 bag play"),
    ("record", 'f', "serialization-format", "ros2 bag record"),
    ("preflight", 'f', "serialization-format", "the flags of record"),
    ("echo", 'f', "full-length", "ros2 topic echo"),
    ("echo", 'i', "include-message-info", "ros2 topic echo"),
    ("echo", 'l', "truncate-length", "ros2 topic echo"),
    ("burst", 'n', "num-messages", "ros2 bag burst"),
    ("record", 'p', "polling-interval", "ros2 bag record"),
    ("preflight", 'p', "polling-interval", "the flags of record"),
    ("info", 't', "topic-name", "ros2 bag info"),
    ("hz", 'w', "window", "ros2 topic hz"),
    ("bw", 'w', "window", "ros2 topic bw"),
    ("delay", 'w', "window", "ros2 topic delay"),
];

/// Words whose value has another form in a verb, and why.
const WORDS: &[(&str, &str, &str)] = &[
    ("record", "exclude", "ros2 bag record of Humble: a pattern"),
    ("preflight", "exclude", "the flags of record"),
    (
        "check",
        "profile",
        "the profile of record that has such bags, by its name",
    ),
];

/// What each kind of value accepts and refuses, in whatever verb.
const KINDS: &[(&str, &[&str], &[&str])] = &[
    ("SIZE", &["4096", "100MiB", "1.5GB"], &["", "100M", "x", "1.2.3"]),
    ("S", &["5", "0.5", "200ms", "1.5min", "2h"], &["", "5x", "soon"]),
    (
        "SPAN",
        &["5", "0.5", "200ms", "1.5min", "2h"],
        &["", "-1", "5x", "soon"],
    ),
    ("MS", &["100", "2s"], &["", "5x", "soon"]),
    ("FACTOR", &["2", "0.5"], &["", "0", "-1", "nan", "fast"]),
    (
        "TIME",
        &[
            "10",
            "+1.5",
            "500ms",
            "@1700000000.25",
            "2026-11-25T12:03:11+01:00",
        ],
        &["", "-5", "yesterday", "@x", "10x"],
    ),
    (
        "DATE",
        &["@1700000000.25", "2026-11-25"],
        &["", "10", "yesterday"],
    ),
    (
        "ADDR:PORT",
        &["9000", "127.0.0.1:9000"],
        &["", "robot", "99999999"],
    ),
];

/// All verbs, those below `list` too, with all that a command line adds.
fn verbs() -> Vec<Command> {
    let mut cli = Cli::command();
    cli.build();
    let mut verbs: Vec<Command> = cli.get_subcommands().cloned().collect();
    let below = verbs.iter().flat_map(|verb| verb.get_subcommands().cloned());
    verbs.extend(below.collect::<Vec<_>>());
    verbs.retain(|verb| verb.get_name() != "help");
    verbs
}

fn letters(argument: &Arg) -> impl Iterator<Item = char> {
    let hidden = argument.get_all_short_aliases().into_iter().flatten();
    argument.get_short().into_iter().chain(hidden)
}

fn words(argument: &Arg) -> impl Iterator<Item = String> {
    let hidden = argument.get_all_aliases().into_iter().flatten();
    argument.get_long().into_iter().chain(hidden).map(str::to_owned)
}

/// The name of the value, `-` without one.
fn kind(argument: &Arg) -> String {
    let names = argument.get_value_names().unwrap_or_default();
    let names: Vec<&str> = names.iter().map(|name| name.as_str()).collect();
    if argument.get_action().takes_values() {
        names.join(" ")
    } else {
        "-".to_owned()
    }
}

#[test]
fn a_letter_stands_for_one_word() {
    let mut meanings: BTreeMap<char, BTreeMap<String, Vec<String>>> = BTreeMap::new();
    let mut unused: BTreeSet<_> = LETTERS
        .iter()
        .map(|(verb, letter, ..)| (*verb, *letter))
        .collect();
    for verb in verbs() {
        for argument in verb.get_arguments() {
            let word = argument.get_long().unwrap_or_default();
            for letter in letters(argument) {
                let is_excepted = LETTERS
                    .iter()
                    .any(|(of, one, named, _)| (*of, *one, *named) == (verb.get_name(), letter, word));
                if is_excepted {
                    unused.retain(|(of, one)| (*of, *one) != (verb.get_name(), letter));
                } else {
                    let of_letter = meanings.entry(letter).or_default();
                    of_letter
                        .entry(word.to_owned())
                        .or_default()
                        .push(verb.get_name().to_owned());
                }
            }
        }
    }
    meanings.retain(|_, words| words.len() > 1);
    assert!(meanings.is_empty(), "letters with several meanings: {meanings:?}");
    assert!(unused.is_empty(), "exceptions that nothing needs: {unused:?}");
}

#[test]
fn a_word_has_one_kind_of_value() {
    let mut kinds: BTreeMap<String, BTreeMap<String, Vec<String>>> = BTreeMap::new();
    for verb in verbs() {
        for argument in verb.get_arguments() {
            for word in words(argument) {
                if WORDS
                    .iter()
                    .any(|(of, excepted, _)| (*of, *excepted) == (verb.get_name(), word.as_str()))
                {
                    continue;
                }
                let of_word = kinds.entry(word).or_default();
                of_word
                    .entry(kind(argument))
                    .or_default()
                    .push(verb.get_name().to_owned());
            }
        }
    }
    kinds.retain(|_, kinds| kinds.len() > 1);
    assert!(kinds.is_empty(), "words with several kinds of value: {kinds:?}");
}

/// The words that several verbs share, with all that their help says of them. Read a change of this list: what a word means is what it means everywhere.
#[test]
fn what_shared_words_mean_is_known() {
    let mut meanings: BTreeMap<String, BTreeMap<String, Vec<String>>> = BTreeMap::new();
    for verb in verbs() {
        for argument in verb.get_arguments() {
            let Some(word) = argument.get_long().filter(|_| argument.get_id() != "help") else {
                continue;
            };
            let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
            let of_word = meanings.entry(format!("--{word}")).or_default();
            of_word.entry(help).or_default().push(verb.get_name().to_owned());
        }
    }
    meanings.retain(|_, meanings| meanings.len() > 1);
    let lines = meanings.iter().flat_map(|(word, meanings)| {
        let each = meanings
            .iter()
            .map(|(help, verbs)| format!("  {}: {help}", verbs.join(" ")));
        [word.clone()].into_iter().chain(each)
    });
    insta::assert_snapshot!(lines.collect::<Vec<_>>().join("\n"));
}

#[test]
fn values_of_a_kind_are_read_alike_by_every_verb() {
    let mut seen = BTreeSet::new();
    for verb in verbs() {
        for argument in verb
            .get_arguments()
            .filter(|argument| argument.get_action().takes_values() && !argument.is_hide_set())
        {
            let kind = kind(argument);
            let Some((name, accepted, refused)) = KINDS.iter().find(|(name, ..)| *name == kind) else {
                continue;
            };
            seen.insert(*name);
            let alone = Arg::new("v")
                .long("v")
                .allow_hyphen_values(true)
                .value_parser(argument.get_value_parser().clone());
            let reads = |text: &str| {
                let command = Command::new("x").arg(alone.clone());
                command
                    .try_get_matches_from(["x".to_owned(), format!("--v={text}")])
                    .is_ok()
            };
            let place = format!("{} {}", verb.get_name(), argument.get_id());
            for text in *accepted {
                assert!(reads(text), "{place} refuses {text:?}");
            }
            for text in *refused {
                assert!(!reads(text), "{place} accepts {text:?}");
            }
        }
    }
    assert_eq!(seen.len(), KINDS.len(), "{seen:?}");
}
