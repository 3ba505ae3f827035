//! ROS 2's own arguments of nodes (`--ros-args … --`), as launch files give them to every node, and which parameters of a file are a node's.

use super::{
    files::{ReadFile, command_of},
    node_parameters::{Given, Origin, has_prefix_of},
};
use crate::resolve::UsageError;
use holdall_io::disk::reason;
use holdall_model::{
    YamlError,
    topic::NodeName,
    yaml::{Node, Value, parse},
};
use std::{ffi::OsString, path::PathBuf};

/// The key below a node's name.
const PARAMETERS_KEY: &str = "ros__parameters";

/// Flags of rcl that have no effect here: holdall has neither rosout nor the log of rcl.
const SWITCHES: [&str; 6] = [
    "--enable-rosout-logs",
    "--disable-rosout-logs",
    "--enable-stdout-logs",
    "--disable-stdout-logs",
    "--enable-external-lib-logs",
    "--disable-external-lib-logs",
];

/// Parameters that every node has; rosbag2's nodes ignore them, and so does holdall.
const OF_EVERY_NODE: [&str; 3] = ["use_sim_time", "start_type_description_service", "qos_overrides"];

/// Where parameters are.
#[derive(Clone, Debug)]
pub(super) enum Source {
    /// In a file.
    File(PathBuf),
    /// In a rule: `name:=value`, also for a node: `node:name:=value`.
    Rule(String),
}

/// A rule of remapping.
#[derive(Debug)]
struct Remap {
    text: String,
    /// For the node with this name only.
    node: Option<String>,
    old: String,
    new: String,
}

impl Remap {
    fn read(text: String) -> Result<Self, UsageError> {
        let (old, new) = text
            .split_once(":=")
            .filter(|(old, new)| !old.is_empty() && !new.is_empty())
            .ok_or_else(|| bad(&text, "expected old:=new"))?;
        let (node, old) = match old.split_once(':') {
            Some((node, rest)) if !rest.starts_with("//") => (Some(node.to_owned()), rest),
            _ => (None, old),
        };
        if old.starts_with("__") && !["__node", "__name", "__ns"].contains(&old) {
            return Err(bad(&text, "expected __node, __ns or the name of a topic"));
        }
        Ok(Self {
            node,
            old: old.to_owned(),
            new: new.to_owned(),
            text,
        })
    }

    fn is_for(&self, names: [&str; 2]) -> bool {
        self.node.as_deref().is_none_or(|node| names.contains(&node))
    }
}

/// What is between `--ros-args` and `--`.
#[derive(Debug, Default)]
pub(super) struct RosArguments {
    remaps: Vec<Remap>,
    parameters: Vec<Source>,
    /// With the name of a logger, or of all.
    levels: Vec<(Option<String>, String)>,
    enclave: Option<String>,
}

/// What the arguments mean for a verb.
#[derive(Debug)]
pub(super) struct OfRos {
    /// Flags of the verb.
    pub flags: Vec<OsString>,
    /// Whether one of them replaces the name that the user gave to the node.
    pub renames: bool,
    /// The node by the name that it gets.
    pub node: NodeName,
    /// In their order.
    pub parameters: Vec<Source>,
}

fn bad(value: &str, reason: &str) -> UsageError {
    UsageError::BadValue {
        flag: "--ros-args",
        value: value.to_owned(),
        reason: reason.to_owned(),
    }
}

impl RosArguments {
    /// Takes them out of a command line.
    ///
    /// # Errors
    /// The first that no node has.
    pub fn take(argv: Vec<OsString>) -> Result<(Vec<OsString>, Self), UsageError> {
        let mut rest = Vec::new();
        let mut ros = Self::default();
        let mut words = argv.into_iter();
        while let Some(word) = words.next() {
            if word != "--ros-args" {
                rest.push(word);
                continue;
            }
            while let Some(word) = words.next().filter(|word| word != "--") {
                ros.take_one(&word.to_string_lossy(), &mut words)?;
            }
        }
        Ok((rest, ros))
    }

    fn take_one(&mut self, word: &str, words: &mut impl Iterator<Item = OsString>) -> Result<(), UsageError> {
        // Launch begins each list of arguments with it.
        if word == "--ros-args" || SWITCHES.contains(&word) {
            return Ok(());
        }
        let mut value = || {
            let value = words.next();
            value.ok_or_else(|| bad(word, "expected a value after it"))
        };
        let text = |value: OsString| value.to_string_lossy().into_owned();
        match word {
            "-r" | "--remap" => self.remaps.push(Remap::read(text(value()?))?),
            "-p" | "--param" => self.parameters.push(Source::Rule(text(value()?))),
            "--params-file" => self.parameters.push(Source::File(value()?.into())),
            "-e" | "--enclave" => self.enclave = Some(text(value()?)),
            "--log-level" => {
                let level = text(value()?);
                self.levels.push(match level.rsplit_once(":=") {
                    Some((logger, level)) => (Some(logger.to_owned()), level.to_lowercase()),
                    None => (None, level.to_lowercase()),
                });
            }
            "--log-config-file" | "--log-file-name" => drop(value()?),
            other => {
                return Err(bad(
                    other,
                    "expected -r, -p, -e, --params-file, --log-level or another argument of ROS nodes",
                ));
            }
        }
        Ok(())
    }

    /// What they mean for the node of a verb, which has the `given` name where the user gave one.
    pub fn resolve(self, verb: &str, given: Option<&str>, notices: &mut Vec<String>) -> OfRos {
        let command = command_of(verb);
        let has = |long: &str| {
            command
                .get_arguments()
                .any(|known| known.get_long() == Some(long))
        };
        let original = match given {
            Some(name) => name.to_owned(),
            None => default_node_name(&command),
        };
        let (namespace, original) = match original.rsplit_once('/') {
            Some((namespace, name)) => (namespace, name),
            None => ("", original.as_str()),
        };
        // The first rule that fits counts.
        let renamed = |of: &[&str]| {
            let fits = |rule: &&Remap| of.contains(&rule.old.as_str()) && rule.is_for([original; 2]);
            self.remaps.iter().find(fits).map(|rule| rule.new.as_str())
        };
        let (new_name, new_namespace) = (renamed(&["__node", "__name"]), renamed(&["__ns"]));
        let renames = new_name.or(new_namespace).is_some() && has("node-name");
        let name = new_name.unwrap_or(original);
        let namespace = new_namespace.unwrap_or(namespace).trim_end_matches('/');
        let mut flags: Vec<OsString> = Vec::new();
        if renames {
            let slash = if namespace.is_empty() { "" } else { "/" };
            flags.push(format!("--node-name={namespace}{slash}{name}").into());
        }
        if let Some(enclave) = self.enclave.filter(|_| has("enclave")) {
            flags.push(format!("--enclave={enclave}").into());
        }
        let logger = format!("{namespace}/{name}").trim_matches('/').replace('/', ".");
        let is_ours = |of: &Option<String>| {
            of.as_ref()
                .is_none_or(|of| *of == logger || of.starts_with("rosbag2"))
        };
        let level = self.levels.iter().rev().find(|(of, _)| is_ours(of));
        if let Some((_, level)) = level.filter(|(_, level)| level != "unset" && has("log-level")) {
            flags.push(format!("--log-level={level}").into());
        }
        let topics = self.remaps.iter().filter(|rule| !rule.old.starts_with("__"));
        for rule in topics.filter(|rule| rule.is_for([original, name])) {
            let topic = rule.old.strip_prefix("rostopic://").unwrap_or(&rule.old);
            if has("remap") && !topic.starts_with("rosservice://") {
                flags.push(format!("--remap={topic}:={}", rule.new).into());
            } else {
                notices.push(format!(
                    "{} has no effect: holdall {verb} has topics and services by their own names",
                    rule.text
                ));
            }
        }
        OfRos {
            flags,
            renames,
            node: NodeName {
                namespace: if namespace.is_empty() { "/" } else { namespace }.to_owned(),
                name: name.to_owned(),
            },
            parameters: self.parameters,
        }
    }
}

/// The name of a verb's node where none is given.
fn default_node_name(command: &clap::Command) -> String {
    let argument = command
        .get_arguments()
        .find(|argument| argument.get_long() == Some("node-name"));
    let values = argument.map(clap::Arg::get_default_values).unwrap_or_default();
    let name = values.first().map(|name| name.to_string_lossy().into_owned());
    name.unwrap_or_else(|| "rosbag2_player".to_owned())
}

/// The parameters of a node, from these places.
///
/// # Errors
/// A file that cannot be read or is of several nodes, a rule that is none.
pub(super) fn given(
    verb: &str,
    node: &NodeName,
    sources: impl Iterator<Item = Source>,
    read_file: ReadFile<'_>,
    notices: &mut Vec<String>,
) -> Result<Given, UsageError> {
    let mut given = Given::default();
    for source in sources {
        match source {
            Source::File(path) => {
                let text = read_file(&path).map_err(|error| UsageError::UnreadableFile {
                    flag: "--params-file",
                    path: path.clone(),
                    reason: reason(&error),
                })?;
                let origin = Origin::File(path);
                let read = parse(&text).and_then(|file| {
                    for parameters in parameters_of(verb, node, &file)? {
                        given.add(verb, "", parameters, &origin)?;
                    }
                    Ok(())
                });
                read.map_err(|error| origin.error(&error))?;
            }
            Source::Rule(rule) => {
                let (name, text) = rule
                    .split_once(":=")
                    .filter(|(name, _)| !name.is_empty())
                    .ok_or_else(|| bad(&rule, "expected name:=value"))?;
                let name = match name.split_once(':') {
                    Some((of, name)) if of == node.name => name,
                    Some(_) => continue,
                    None => name,
                };
                let first = name.split('.').next().unwrap_or(name);
                if !has_prefix_of(verb, name) && !OF_EVERY_NODE.contains(&first) {
                    notices.push(format!("{verb} has no parameter {name}: {rule} has no effect"));
                }
                let origin = Origin::Rule(rule.clone());
                let added = parse(text).and_then(|value| given.add(verb, name, &value, &origin));
                added.map_err(|error| origin.error(&error))?;
            }
        }
    }
    Ok(given)
}

/// The parameters in a file that are the node's: below its name or a pattern of it, else below the only other name.
fn parameters_of<'a>(verb: &str, node: &NodeName, file: &'a Node) -> Result<Vec<&'a Node>, YamlError> {
    let mut sections = Vec::new();
    find_sections("", file, &mut sections)?;
    let full_name = node.to_string();
    let is_pattern = |name: &str| name.rsplit('/').next().is_some_and(|last| last.contains('*'));
    let is_mine = |name: &str| matches(name, &full_name);
    if !sections
        .iter()
        .any(|(name, _)| is_mine(name) && !is_pattern(name))
    {
        // A file that was written for a node of another name.
        let is_of_verb = |parameters: &Node| {
            let mut names = Given::default();
            let origin = Origin::Rule(String::new());
            let read = names.add(verb, "", parameters, &origin);
            read.is_ok()
                && names
                    .names()
                    .any(|name| has_prefix_of(verb, name) && !name.starts_with("storage."))
        };
        let others = || sections.iter().filter(|(name, _)| !is_pattern(name));
        let for_verb: Vec<_> = others()
            .filter(|(_, parameters)| is_of_verb(parameters))
            .collect();
        let candidates = if for_verb.is_empty() {
            others().collect()
        } else {
            for_verb
        };
        let names: Vec<&str> = candidates.iter().map(|(name, _)| name.as_str()).collect();
        if let Some(other) = names.iter().find(|name| **name != names[0]) {
            return Err(candidates[0].1.error(format!(
                "the node is called {full_name}, and the file is for {} and {other}; name the node as one of them",
                names[0]
            )));
        }
        let chosen = names.first().copied().unwrap_or_default().to_owned();
        let is_chosen = |name: &str| (is_pattern(name) && is_mine(name)) || name == chosen;
        return Ok(sections
            .into_iter()
            .filter(|(name, _)| is_chosen(name))
            .map(|(_, node)| node)
            .collect());
    }
    let mine = sections.into_iter().filter(|(name, _)| is_mine(name));
    Ok(mine.map(|(_, node)| node).collect())
}

/// All parameters of a file with the names of their nodes. The parser bounds the depth.
fn find_sections<'a>(
    above: &str,
    node: &'a Node,
    sections: &mut Vec<(String, &'a Node)>,
) -> Result<(), YamlError> {
    for (key, value) in node.as_map()? {
        let name = format!("{above}/{}", key.trim_matches('/'));
        match &value.value {
            _ if key == PARAMETERS_KEY => {
                let of = if above.is_empty() { "/**" } else { above };
                sections.push((of.to_owned(), value));
            }
            Value::Map(_) => find_sections(&name, value, sections)?,
            Value::Null => {}
            _ => return Err(value.error(format!("{name} has no {PARAMETERS_KEY}"))),
        }
    }
    Ok(())
}

/// Whether a name is a pattern's: `*` is one token of it, `**` any number of them.
fn matches(pattern: &str, name: &str) -> bool {
    let name: Vec<&str> = name.trim_matches('/').split('/').collect();
    // Which beginnings of the name the pattern has matched so far, by their number of tokens.
    let mut matched = vec![false; name.len() + 1];
    matched[0] = true;
    for token in pattern.trim_matches('/').split('/') {
        if token == "**" {
            let first = matched.iter().position(|is| *is).unwrap_or(matched.len());
            matched[first..].fill(true);
            continue;
        }
        for at in (0..name.len()).rev() {
            matched[at + 1] = matched[at] && (token == "*" || token == name[at]);
        }
        matched[0] = false;
    }
    matched[name.len()]
}
