//! A command line completed from its files: `--profile`, `--params-file`, and ROS 2's own `--ros-args`. Arguments on the command line itself
//! come after those of files and take precedence.

use super::{
    Cli, Verb,
    play::PlayArguments,
    ros_arguments::{RosArguments, Source, given},
};
use crate::resolve::UsageError;
use clap::{ArgMatches, Command, CommandFactory, Parser, parser::ValueSource};
use holdall_io::disk::reason;
use holdall_model::{
    YamlError,
    yaml::{Node, Value, parse},
};
use std::{
    ffi::OsString,
    io,
    path::{Path, PathBuf},
};

/// The verbs that run as nodes, and therefore take `--ros-args`.
const NODES: [&str; 12] = [
    "record",
    "play",
    "preflight",
    "burst",
    "bridge",
    "serve",
    "web",
    "top",
    "hz",
    "bw",
    "delay",
    "echo",
];

/// The verb whose settings a verb has: a trial has those of the recording.
pub(super) fn settings_of(verb: &str) -> &str {
    if verb == "preflight" { "record" } else { verb }
}

/// Profiles of the recorder that are named instead of read.
const BUILT_IN: [(&str, &str); 1] = [(LAKE, include_str!("profiles/lake.yaml"))];
/// The profile whose bags are graded A by `holdall check --profile lake`.
pub const LAKE: &str = "lake";

/// The key of a profile below which single topics have settings.
const PER_TOPIC: &str = "per-topic";

/// The settings of a topic with the flags that they set.
const TOPIC_KEYS: [(&str, &str); 4] = [
    ("qos", "qos-override"),
    ("throttle", "topic-throttle-frequency"),
    ("priority", "topic-priority"),
    ("compression", "topic-compression"),
];

/// Reads a file of settings.
pub(super) type ReadFile<'a> = &'a dyn Fn(&Path) -> io::Result<String>;

/// A command line, and what of it has no effect.
#[derive(Debug)]
pub struct Expanded {
    /// The arguments completed from the files; each flag is a separate argument before the user's.
    pub argv: Vec<OsString>,
    /// One sentence each.
    pub notices: Vec<String>,
}

/// Completes the command line from its files.
///
/// # Errors
/// A file that cannot be read, a key that the verb has no flag for, a value that its flag refuses, an argument that ROS does not know.
pub fn expand(argv: Vec<OsString>, read_file: ReadFile<'_>) -> Result<Expanded, UsageError> {
    let plain = |argv| Expanded {
        argv,
        notices: Vec::new(),
    };
    let verb = argv.get(1).and_then(|verb| verb.to_str());
    let Some(verb) = verb.and_then(|verb| NODES.into_iter().find(|known| *known == verb)) else {
        return Ok(plain(argv));
    };
    let (argv, ros) = RosArguments::take(argv)?;
    // The parse that follows reports what clap refuses.
    let Ok(matches) = Cli::command().try_get_matches_from(&argv) else {
        return Ok(plain(argv));
    };
    let Some((_, matches)) = matches.subcommand() else {
        return Ok(plain(argv));
    };
    let mut notices = Vec::new();
    let of_ros = ros.resolve(verb, given_text(matches, "node_name"), &mut notices);
    let mut flags = Vec::new();
    if let Ok(Some(profile)) = matches.try_get_one::<PathBuf>("profile") {
        flags = of_profile(verb, profile, read_file)?;
    }
    let files = matches.try_get_many::<PathBuf>("params_file").ok().flatten();
    let files = files.into_iter().flatten().cloned().map(Source::File);
    let parameters = files.chain(of_ros.parameters);
    let parameters = given(verb, &of_ros.node, parameters, read_file, &mut notices)?;
    let parameters = parameters.flags(verb, &mut notices)?;
    flags.retain(|flag| parameters.iter().all(|parameter| parameter.name != flag.name));
    flags.extend(parameters);
    flags.retain(|flag| !is_given(matches, verb, &flag.name));
    let flags = flags
        .into_iter()
        .map(Flag::into_arguments)
        .collect::<Vec<_>>()
        .concat();
    let argv = if of_ros.renames {
        without(argv, "--node-name")
    } else {
        argv
    };
    let argv = with(argv, [flags, of_ros.flags].concat());
    Ok(Expanded { argv, notices })
}

/// The text that the user gave to a flag.
fn given_text<'a>(matches: &'a ArgMatches, id: &str) -> Option<&'a str> {
    let text = matches.try_get_one::<String>(id).ok().flatten()?;
    (matches.value_source(id) == Some(ValueSource::CommandLine)).then_some(text)
}

/// The arguments of the verb as a profile: every flag that was given, by its long name.
pub fn as_profile(argv: &[OsString]) -> Result<String, clap::Error> {
    // Refused before, where they are none.
    let (argv, ros) = RosArguments::take(argv.to_vec()).unwrap_or_default();
    let flags = ros.resolve("record", None, &mut Vec::new()).flags;
    let matches = Cli::command().try_get_matches_from(with(argv, flags))?;
    let mut text = String::new();
    let Some((verb, matches)) = matches.subcommand() else {
        return Ok(text);
    };
    let command = command_of(verb);
    for argument in command.get_arguments() {
        let id = argument.get_id().as_str();
        let Some(long) = argument
            .get_long()
            .filter(|long| !["profile", "print-profile"].contains(long))
        else {
            continue;
        };
        if matches.value_source(id) != Some(ValueSource::CommandLine) {
            continue;
        }
        if !argument.get_action().takes_values() {
            text.push_str(&format!("{long}: true\n"));
            continue;
        }
        let values = matches.get_raw(id).into_iter().flatten();
        let values: Vec<String> = values.map(|value| quoted(&value.to_string_lossy())).collect();
        match values.as_slice() {
            [value] => text.push_str(&format!("{long}: {value}\n")),
            values => text.push_str(&format!("{long}: [{}]\n", values.join(", "))),
        }
    }
    Ok(text)
}

/// A text in YAML's double quotes.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// A flag with its values, as a file sets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Flag {
    /// Its long name, without dashes.
    pub name: String,
    /// None for a flag without a value.
    pub values: Vec<String>,
}

impl Flag {
    fn into_arguments(self) -> Vec<OsString> {
        if self.values.is_empty() {
            return vec![format!("--{}", self.name).into()];
        }
        let argument = |value: String| format!("--{}={value}", self.name).into();
        self.values.into_iter().map(argument).collect()
    }
}

/// The command line without a flag and its value.
fn without(argv: Vec<OsString>, flag: &str) -> Vec<OsString> {
    let assigned = format!("{flag}=");
    let mut rest = Vec::with_capacity(argv.len());
    let mut words = argv.into_iter();
    while let Some(word) = words.next() {
        if word == "--" {
            rest.push(word);
            rest.extend(words);
            break;
        }
        if word == flag {
            words.next();
        } else if !word.to_string_lossy().starts_with(&assigned) {
            rest.push(word);
        }
    }
    rest
}

/// The command line with arguments after its verb.
fn with(argv: Vec<OsString>, flags: Vec<OsString>) -> Vec<OsString> {
    let (head, rest) = argv.split_at(argv.len().min(2));
    [head, &flags, rest].concat()
}

pub(super) fn command_of(verb: &str) -> Command {
    let mut command = Cli::command();
    command.build();
    command.find_subcommand(verb).cloned().unwrap_or_default()
}

/// Whether the user gave a flag on the command line itself.
fn is_given(matches: &ArgMatches, verb: &str, long: &str) -> bool {
    let command = command_of(verb);
    let argument = command
        .get_arguments()
        .find(|argument| argument.get_long() == Some(long));
    argument.is_some_and(|argument| {
        matches.value_source(argument.get_id().as_str()) == Some(ValueSource::CommandLine)
    })
}

/// The flags of a profile.
fn of_profile(verb: &str, path: &Path, read_file: ReadFile<'_>) -> Result<Vec<Flag>, UsageError> {
    let refused = |reason: String| UsageError::UnreadableFile {
        flag: "--profile",
        path: path.to_owned(),
        reason,
    };
    let built_in = BUILT_IN.iter().find(|(name, _)| path.as_os_str() == *name);
    let text = match built_in.filter(|_| settings_of(verb) == "record") {
        Some((_, text)) => (*text).to_owned(),
        None => read_file(path).map_err(|error| refused(reason(&error)))?,
    };
    let flags = parse(&text).and_then(|node| profile_flags(verb, &node));
    flags.map_err(|error| refused(error.to_string()))
}

/// The flags of a profile by their long names, at the top or below the verb's name.
fn profile_flags(verb: &str, node: &Node) -> Result<Vec<Flag>, YamlError> {
    let command = command_of(verb);
    let node = node.get(settings_of(verb)).unwrap_or(node);
    if matches!(node.value, Value::Null) {
        return Ok(Vec::new());
    }
    let mut flags = Vec::new();
    for (key, value) in node.as_map()? {
        let name = key.replace('_', "-");
        if name == PER_TOPIC {
            flags.extend(topic_flags(&command, verb, value)?);
        } else {
            flags.extend(flag(&command, verb, name, value)?);
        }
    }
    Ok(flags)
}

/// The arguments of `holdall play` for a bag with these flags, as a profile has them.
///
/// # Errors
/// What is wrong, one sentence.
pub fn play_arguments(flags: &Node, bag: &Path) -> Result<Box<PlayArguments>, String> {
    let flags = profile_flags("play", flags).map_err(|error| error.to_string())?;
    let words = [OsString::from("holdall"), "play".into(), bag.into()];
    let words = words
        .into_iter()
        .chain(flags.into_iter().flat_map(Flag::into_arguments));
    let cli = Cli::try_parse_from(words).map_err(|error| {
        let text = error.to_string();
        let first = text.lines().next().unwrap_or_default();
        first.trim_start_matches("error: ").to_owned()
    })?;
    match cli.verb {
        Verb::Play(arguments) => Ok(arguments),
        _ => Err("another verb was named".to_owned()),
    }
}

/// The settings of single topics: `/camera: {throttle: 2, priority: low, qos: {reliability: best_effort}}`.
fn topic_flags(command: &Command, verb: &str, node: &Node) -> Result<Vec<Flag>, YamlError> {
    let mut flags = Vec::new();
    for (topic, settings) in node.as_map()? {
        for (key, value) in settings.as_map()? {
            let Some((_, long)) = TOPIC_KEYS.iter().find(|(known, _)| known == key) else {
                let known = TOPIC_KEYS.map(|(known, _)| known).join(", ");
                return Err(value.error(format!("{topic}: expected one of {known}, found {key}")));
            };
            if !command
                .get_arguments()
                .any(|argument| argument.get_long() == Some(long))
            {
                return Err(value.error(format!("{topic}: {verb} has no {key} for single topics")));
            }
            let text = match value.value {
                Value::Map(_) => format!("{topic}: {}", flow(value)),
                _ => format!("{topic}={}", value.as_str()?),
            };
            flags.push(Flag {
                name: (*long).to_owned(),
                values: vec![text],
            });
        }
    }
    Ok(flags)
}

/// A value as YAML in one line.
fn flow(node: &Node) -> String {
    match &node.value {
        Value::Null => "~".to_owned(),
        Value::Scalar(text) => quoted(text),
        Value::Sequence(items) => format!("[{}]", items.iter().map(flow).collect::<Vec<_>>().join(", ")),
        Value::Map(entries) => {
            let entry = |(key, value): &(String, Node)| format!("{}: {}", quoted(key), flow(value));
            format!("{{{}}}", entries.iter().map(entry).collect::<Vec<_>>().join(", "))
        }
    }
}

/// A key as a flag of the verb; `None` for one that is switched off or has nothing.
pub(super) fn flag(
    command: &Command,
    verb: &str,
    name: String,
    node: &Node,
) -> Result<Option<Flag>, YamlError> {
    let Some(argument) = command
        .get_arguments()
        .find(|argument| argument.get_long() == Some(&name))
    else {
        return Err(node.error(format!("{verb} has no flag --{name}")));
    };
    if !argument.get_action().takes_values() {
        let is_set = node.as_bool()?;
        let values = Vec::new();
        return Ok(is_set.then_some(Flag { name, values }));
    }
    let values = match &node.value {
        Value::Null => return Ok(None),
        // rosbag2's own defaults of texts.
        Value::Scalar(text) if text.is_empty() => return Ok(None),
        Value::Scalar(text) => vec![text.clone()],
        Value::Sequence(items) => {
            let texts = items.iter().map(|item| item.as_str().map(str::to_owned));
            texts.collect::<Result<Vec<_>, _>>()?
        }
        Value::Map(entries) => {
            let pair = |(key, value): &(String, Node)| Ok(format!("{key}={}", value.as_str()?));
            entries.iter().map(pair).collect::<Result<Vec<_>, YamlError>>()?
        }
    };
    Ok((!values.is_empty()).then_some(Flag { name, values }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(Into::into).collect()
    }

    fn expanded(line: &str, file: &str) -> Result<String, String> {
        let read = |_: &Path| Ok(file.to_owned());
        let expanded = expand(words(line), &read).map_err(|error| error.to_string())?;
        Ok(expanded.argv.join(" ".as_ref()).into_string().unwrap())
    }

    #[test]
    fn a_profile_has_settings_of_single_topics() {
        let profile = "record:\n  topics: [/a]\n  per-topic:\n    /a: {throttle: 2.5, priority: low, compression: zstd}\n    /b:\n      qos: {reliability: best_effort, deadline: {sec: 1, nsec: 0}}\n";
        assert_eq!(
            expanded("holdall record --profile p", profile).unwrap(),
            "holdall record --topics=/a --topic-throttle-frequency=/a=2.5 --topic-priority=/a=low \
             --topic-compression=/a=zstd --qos-override=/b: {\"reliability\": \"best_effort\", \"deadline\": {\"sec\": \"1\", \"nsec\": \"0\"}} --profile p"
        );
        let written =
            "/b: {\"reliability\": \"best_effort\", \"deadline\": {\"sec\": \"1\", \"nsec\": \"0\"}}";
        let read = holdall_model::qos::parse_qos_overrides(written).unwrap();
        assert_eq!(
            read["/b"].reliability,
            holdall_model::qos::Reliability::BestEffort
        );
        for (wrong, reason) in [
            (
                "per-topic: {/a: {speed: 2}}",
                "line 1: /a: expected one of qos, throttle, priority, compression, found speed",
            ),
            ("per-topic: {/a: 2}", "line 1"),
        ] {
            let error = expanded("holdall record --profile p", wrong).unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
        let error = expanded("holdall play bag --profile p", "per-topic: {/a: {throttle: 2}}").unwrap_err();
        assert!(
            error.contains("play has no throttle for single topics"),
            "{error}"
        );
    }

    #[test]
    fn a_profile_sets_flags_that_the_command_line_does_not() {
        let profile = "record:\n  all: true\n  no-discovery: false\n  max_bag_size: 1GB\n  exclude-topics: [/a, /b]\n  node-name: one\n";
        assert_eq!(
            expanded("holdall record --profile p --node-name two", profile).unwrap(),
            "holdall record --all --max-bag-size=1GB --exclude-topics=/a --exclude-topics=/b --profile p --node-name two"
        );
        assert_eq!(
            expanded("holdall info --profile p", profile).unwrap(),
            "holdall info --profile p"
        );
        assert_eq!(
            expanded("holdall record --profile p", "").unwrap(),
            "holdall record --profile p"
        );
    }

    #[test]
    fn a_built_in_profile_is_named_and_needs_no_file() {
        let line = expanded("holdall record -a --profile lake -d 30", "no: file").unwrap();
        assert!(
            line.starts_with("holdall record --storage-preset-profile=zstd_fast "),
            "{line}"
        );
        assert!(
            line.contains(" --separate=media=")
                && line.contains(" --separate-above=1MB ")
                && line.ends_with(" -a --profile lake -d 30"),
            "{line}"
        );
        assert!(expanded("holdall play bag --profile lake", "no: file").is_err());
    }

    #[test]
    fn a_profile_that_is_none_is_refused_with_its_line() {
        for (profile, reason) in [
            ("all: true\nflying: 1\n", "line 2: record has no flag --flying"),
            ("- all\n", "line 1"),
            ("all: [1]\n", "line 1"),
            ("all: *x\n", "line 1"),
        ] {
            let refused = expanded("holdall record --profile p", profile).unwrap_err();
            assert!(
                refused.contains(reason) && refused.contains("--profile"),
                "{refused}"
            );
        }
    }

    #[test]
    fn what_was_given_is_a_profile() {
        let line = "holdall record -a --exclude-topics /a /b -b 5 --max-cache-size 0";
        let profile = as_profile(&words(line)).unwrap();
        assert_eq!(
            profile,
            "all: true\nexclude-topics: [\"/a\", \"/b\"]\nmax-bag-size: \"5\"\nmax-cache-size: \"0\"\n"
        );
        assert_eq!(
            expanded("holdall record --profile p", &profile).unwrap(),
            "holdall record --all --exclude-topics=/a --exclude-topics=/b --max-bag-size=5 --max-cache-size=0 --profile p"
        );
    }
}
