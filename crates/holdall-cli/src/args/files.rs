//! A command line with what its files say: `--profile`, `--params-file`, and ROS 2's own `--ros-args`. What is on the command line itself
//! comes after it and counts.

use super::{Cli, node_parameters::PARAMETERS};
use crate::resolve::{UsageError, surroundings::io_reason};
use clap::{ArgMatches, Command, CommandFactory, parser::ValueSource};
use holdall_model::{
    YamlError,
    yaml::{Node, Value, parse},
};
use std::{
    ffi::OsString,
    io,
    path::{Path, PathBuf},
};

/// The verbs whose flags a file may set.
const VERBS: [&str; 2] = ["record", "play"];

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
type ReadFile<'a> = &'a dyn Fn(&Path) -> io::Result<String>;

/// The command line with what its files say, each flag as an argument of its own before the user's.
///
/// # Errors
/// A file that cannot be read, a key that is no flag of the verb, a value that no flag takes, `--ros-args` that the verb has no use for.
pub fn expand(argv: Vec<OsString>, read_file: ReadFile<'_>) -> Result<Vec<OsString>, UsageError> {
    let Some(verb) = argv.get(1).and_then(|verb| verb.to_str()) else {
        return Ok(argv);
    };
    let Some(verb) = VERBS.into_iter().find(|known| *known == verb) else {
        return Ok(argv);
    };
    let (argv, of_ros) = ros_args(verb, argv)?;
    // What clap refuses is reported by the parse that follows.
    let Ok(matches) = Cli::command().try_get_matches_from(&argv) else {
        return Ok(with(argv, of_ros.flags));
    };
    let Some((_, matches)) = matches.subcommand() else {
        return Ok(argv);
    };
    let mut flags = Vec::new();
    let path = |name: &str| matches.try_get_one::<PathBuf>(name).ok().flatten().cloned();
    if let Some(profile) = path("profile") {
        flags.extend(of_file("--profile", verb, &profile, read_file, profile_flags)?);
    }
    let parameters = of_ros.files.iter().map(Into::into);
    for file in path("params_file").into_iter().chain(parameters) {
        flags.extend(of_file("--params-file", verb, &file, read_file, parameter_flags)?);
    }
    let flags = flags
        .into_iter()
        .filter(|flag| !is_given(matches, verb, &flag.name));
    let flags = flags.map(Flag::into_arguments).collect::<Vec<_>>().concat();
    Ok(with(argv, [flags, of_ros.flags].concat()))
}

/// The arguments of the verb as a profile: every flag that was given, by its long name.
pub fn as_profile(argv: &[OsString]) -> Result<String, clap::Error> {
    let matches = Cli::command().try_get_matches_from(argv)?;
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
struct Flag {
    /// Its long name, without dashes.
    name: String,
    /// None for a flag without a value.
    values: Vec<String>,
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

/// The command line with arguments after its verb.
fn with(argv: Vec<OsString>, flags: Vec<OsString>) -> Vec<OsString> {
    let (head, rest) = argv.split_at(2);
    [head, &flags, rest].concat()
}

fn command_of(verb: &str) -> Command {
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

fn of_file(
    flag: &'static str,
    verb: &str,
    path: &Path,
    read_file: ReadFile<'_>,
    flags: fn(&str, &Node) -> Result<Vec<Flag>, YamlError>,
) -> Result<Vec<Flag>, UsageError> {
    let text = read_file(path).map_err(|error| UsageError::UnreadableFile {
        flag,
        path: path.to_owned(),
        reason: io_reason(&error),
    })?;
    let read = parse(&text).and_then(|node| flags(verb, &node));
    read.map_err(|error| UsageError::UnreadableFile {
        flag,
        path: path.to_owned(),
        reason: error.to_string(),
    })
}

/// What a profile says: flags by their long names, at the top or below the verb's name.
fn profile_flags(verb: &str, node: &Node) -> Result<Vec<Flag>, YamlError> {
    let command = command_of(verb);
    let node = node.get(verb).unwrap_or(node);
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
                return Err(value.error(format!("{topic}: {verb} has no {key} of single topics")));
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

/// What a file of node parameters says for this verb; parameters of other programs are passed over.
fn parameter_flags(verb: &str, node: &Node) -> Result<Vec<Flag>, YamlError> {
    const KEY: &str = "ros__parameters";
    let command = command_of(verb);
    let mut flags = Vec::new();
    for (name, of_node) in node.as_map()? {
        // With a namespace there is one level more.
        let of_nodes: Vec<&Node> = match of_node.get(KEY) {
            Some(parameters) => vec![parameters],
            None => {
                let inside = of_node.as_map()?.iter();
                inside.filter_map(|(_, node)| node.get(KEY)).collect()
            }
        };
        if of_nodes.is_empty() {
            return Err(of_node.error(format!("{name} has no {KEY}")));
        }
        for parameters in of_nodes {
            collect(&command, verb, "", parameters, &mut flags)?;
        }
    }
    Ok(flags)
}

/// Parameters below a prefix, whether their names are nested or have dots.
fn collect(
    command: &Command,
    verb: &str,
    prefix: &str,
    node: &Node,
    flags: &mut Vec<Flag>,
) -> Result<(), YamlError> {
    for (key, value) in node.as_map()? {
        let name = format!("{prefix}{key}");
        let known = PARAMETERS
            .iter()
            .find(|(of_verb, parameter, _)| *of_verb == verb && *parameter == name);
        match (known, &value.value) {
            // A span has two parts.
            (Some((_, _, long)), Value::Map(_)) => {
                let part = |key: &str| value.get(key).map_or(Ok(0), Node::as_number::<i64>);
                let seconds = part("sec")?;
                let millis = seconds
                    .saturating_mul(1000)
                    .saturating_add(part("nsec")? / 1_000_000);
                flags.push(Flag {
                    name: (*long).to_owned(),
                    values: vec![if seconds < 0 {
                        "-1".to_owned()
                    } else {
                        format!("{millis}ms")
                    }],
                });
            }
            (Some((_, _, long)), Value::Scalar(text)) if is_off(long, text) => {}
            (Some((_, _, long)), _) => flags.extend(flag(command, verb, (*long).to_owned(), value)?),
            (None, Value::Map(_)) => collect(command, verb, &format!("{name}."), value, flags)?,
            // As ROS 2 nodes do with parameters that they do not declare.
            (None, _) => tracing::debug!("line {}: {verb} has no parameter {name}", value.line),
        }
    }
    Ok(())
}

/// Whether a parameter switches something off that a flag can only switch on: rosbag2's own defaults.
fn is_off(long: &str, text: &str) -> bool {
    let number = text.parse::<f64>();
    match long {
        "clock" => number.is_ok_and(|hertz| hertz <= 0.0),
        "wait-for-all-acked" => number.is_ok_and(|millis| millis < 0.0),
        _ => false,
    }
}

/// A key as a flag of the verb; `None` for one that is switched off or has nothing.
fn flag(command: &Command, verb: &str, name: String, node: &Node) -> Result<Option<Flag>, YamlError> {
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

/// What `--ros-args` says.
#[derive(Debug, Default)]
struct OfRos {
    /// As flags of the verb.
    flags: Vec<OsString>,
    /// Files of node parameters.
    files: Vec<OsString>,
    /// What replaces the node's name and its namespace.
    name: Option<String>,
    namespace: Option<String>,
}

/// Takes `--ros-args … --` out of a command line.
fn ros_args(verb: &'static str, argv: Vec<OsString>) -> Result<(Vec<OsString>, OfRos), UsageError> {
    let mut rest = Vec::new();
    let mut of_ros = OfRos::default();
    let mut words = argv.into_iter();
    while let Some(word) = words.next() {
        if word != "--ros-args" {
            rest.push(word);
            continue;
        }
        while let Some(word) = words.next().filter(|word| word != "--") {
            let word = word.to_string_lossy().into_owned();
            let mut value = || {
                let value = words.next().map(|value| value.to_string_lossy().into_owned());
                value.ok_or_else(|| bad(&word, "expected a value after it"))
            };
            match word.as_str() {
                "-r" | "--remap" => remap(verb, &value()?, &mut of_ros)?,
                "-p" | "--param" => parameter(verb, &value()?, &mut of_ros.flags)?,
                "--params-file" => of_ros.files.push(value()?.into()),
                "--log-level" => of_ros
                    .flags
                    .push(format!("--log-level={}", value()?.to_lowercase()).into()),
                "-e" | "--enclave" => of_ros.flags.push(format!("--enclave={}", value()?).into()),
                // These have no effect of their own: there is no rcl.
                "--log-config-file" | "--log-file-name" => drop(value()?),
                other if other.starts_with("--enable-") || other.starts_with("--disable-") => {}
                other => return Err(bad(other, "expected -r, -p, -e, --params-file or --log-level")),
            }
        }
    }
    if of_ros.name.is_some() || of_ros.namespace.is_some() {
        let namespace = of_ros.namespace.as_deref().unwrap_or_default();
        let name = of_ros.name.clone().unwrap_or_else(|| default_node_name(verb));
        let full = match namespace.trim_end_matches('/') {
            "" => name,
            namespace => format!("{namespace}/{name}"),
        };
        of_ros.flags.push(format!("--node-name={full}").into());
    }
    Ok((rest, of_ros))
}

/// The name of a verb's node where none is given.
fn default_node_name(verb: &str) -> String {
    let command = command_of(verb);
    let argument = command
        .get_arguments()
        .find(|argument| argument.get_long() == Some("node-name"));
    let values = argument.map(clap::Arg::get_default_values).unwrap_or_default();
    let name = values.first().map(|name| name.to_string_lossy().into_owned());
    name.unwrap_or_default()
}

fn bad(value: &str, reason: &str) -> UsageError {
    UsageError::BadValue {
        flag: "--ros-args",
        value: value.to_owned(),
        reason: reason.to_owned(),
    }
}

fn remap(verb: &str, rule: &str, of_ros: &mut OfRos) -> Result<(), UsageError> {
    let (old, new) = rule
        .split_once(":=")
        .ok_or_else(|| bad(rule, "expected old:=new"))?;
    match old.rsplit(':').next().unwrap_or(old) {
        "__node" | "__name" => of_ros.name = Some(new.to_owned()),
        "__ns" => of_ros.namespace = Some(new.to_owned()),
        _ if verb == "play" && !old.starts_with("__") => of_ros.flags.push(format!("--remap={rule}").into()),
        _ => {
            return Err(bad(
                rule,
                "only the node's name (__node:=name) and namespace (__ns:=/robot), and topics of `play`, can be remapped",
            ));
        }
    }
    Ok(())
}

fn parameter(verb: &str, rule: &str, flags: &mut Vec<OsString>) -> Result<(), UsageError> {
    let (name, text) = rule
        .split_once(":=")
        .ok_or_else(|| bad(rule, "expected name:=value"))?;
    let Some((_, _, long)) = PARAMETERS
        .iter()
        .find(|(of_verb, parameter, _)| *of_verb == verb && *parameter == name)
    else {
        return Err(bad(rule, "there is no such parameter"));
    };
    let set = parse(text).and_then(|node| flag(&command_of(verb), verb, (*long).to_owned(), &node));
    let set = set.map_err(|error| bad(rule, &error.to_string()))?;
    flags.extend(set.into_iter().flat_map(Flag::into_arguments));
    Ok(())
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
        Ok(expanded.join(" ".as_ref()).into_string().unwrap())
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
        assert!(error.contains("play has no throttle of single topics"), "{error}");
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

    #[test]
    fn parameters_of_composable_nodes_are_flags() {
        let file = "/**:\n  rosbag2_recorder:\n    ros__parameters:\n      use_sim_time: true\n      record:\n        all_topics: true\n        \
            regex: \"\"\n        topic_polling_interval: {sec: 0, nsec: 10000000}\n      storage:\n        uri: lab\n        \
            max_bagfile_size: 2147483646\n        custom_data: [k=v, a=b]\n      other: 1\n";
        assert_eq!(
            expanded("holdall record --params-file f", file).unwrap(),
            "holdall record --use-sim-time --all-topics --polling-interval=10ms --output=lab --max-bag-size=2147483646 --custom-data=k=v \
             --custom-data=a=b --params-file f"
        );
        let dotted = "recorder:\n  ros__parameters:\n    record.all_topics: true\n    storage.uri: lab\n";
        assert_eq!(
            expanded("holdall record --ros-args --params-file f", dotted).unwrap(),
            "holdall record --all-topics --output=lab"
        );
        let player = "player:\n  ros__parameters:\n    play:\n      clock_publish_frequency: 0.0\n      wait_acked_timeout: -1\n      \
            playback_duration: {sec: -1, nsec: 0}\n      start_offset: {sec: 1, nsec: 500000000}\n      loop: true\n    storage.uri: lab\n";
        assert_eq!(
            expanded("holdall play --params-file f", player).unwrap(),
            "holdall play --playback-duration=-1 --start-offset=1500ms --loop --input=lab --params-file f"
        );
        let refused = expanded("holdall record --params-file f", "a: {b: {c: 1}}").unwrap_err();
        assert!(refused.contains("a has no ros__parameters"), "{refused}");
    }

    #[test]
    fn ros_args_are_flags() {
        let line = "holdall record --ros-args -r __node:=rec -p use_sim_time:=true -p record.topics:=[/a,/b] --log-level WARN -- -o lab";
        assert_eq!(
            expanded(line, "").unwrap(),
            "holdall record --use-sim-time --topics=/a --topics=/b --log-level=warn --node-name=rec -o lab"
        );
        assert_eq!(
            expanded("holdall record -a --ros-args -r __ns:=/robot", "").unwrap(),
            "holdall record --node-name=/robot/rosbag2_recorder -a"
        );
        assert_eq!(
            expanded("holdall record -a --ros-args --enclave /robot/recorder", "").unwrap(),
            "holdall record --enclave=/robot/recorder -a"
        );
        assert_eq!(
            expanded("holdall play lab --ros-args -r /a:=/b", "").unwrap(),
            "holdall play --remap=/a:=/b lab"
        );
        for line in [
            "-r /a:=/b",
            "-r x",
            "-p flying:=1",
            "-p use_sim_time:=maybe",
            "-r",
            "--what",
        ] {
            let refused = expanded(&format!("holdall record --ros-args {line}"), "").unwrap_err();
            assert!(refused.contains("--ros-args"), "{refused}");
        }
    }

    #[test]
    fn every_parameter_sets_a_flag_that_exists() {
        for (verb, parameter, long) in PARAMETERS {
            let command = command_of(verb);
            let is_there = command
                .get_arguments()
                .any(|argument| argument.get_long() == Some(long));
            assert!(is_there, "{parameter} of {verb}: --{long}");
        }
    }
}
