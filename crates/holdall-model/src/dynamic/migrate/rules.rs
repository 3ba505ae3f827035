//! Rules of migrations as YAML: where the fields of new types come from (`holdall migrate --help` has the form).

use crate::{dynamic::StructPlan, yaml};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

/// The rules that come with holdall, by name.
const SHIPPED: [(&str, &str); 2] = [
    ("ros1", include_str!("../../../data/migrate-ros1.yaml")),
    ("ros2", include_str!("../../../data/migrate-ros2.yaml")),
];

/// Why messages cannot be migrated: a fault in rules with its file and line, or what needs a rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct RuleError(pub(super) String);

/// Rules of one or several files; the first that fits counts.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    rules: Vec<Rule>,
    texts: Vec<String>,
}

/// What becomes of one struct.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Rule {
    #[serde(rename = "type")]
    type_name: String,
    becomes: Option<String>,
    /// It counts only for a struct that has these fields and becomes one that has not.
    #[serde(default)]
    when: Vec<String>,
    /// It counts only for a struct that has none of these fields.
    #[serde(default)]
    unless: Vec<String>,
    /// By path of the new field.
    #[serde(default)]
    pub fields: BTreeMap<String, Source>,
    #[serde(default)]
    pub drop: Vec<String>,
    #[serde(default)]
    pub lossy: bool,
    #[serde(default)]
    pub keep_constants: bool,
    #[serde(skip)]
    file: String,
    #[serde(skip)]
    line: usize,
}

/// Where a new field comes from.
#[derive(Clone, Debug, Deserialize)]
#[serde(
    untagged,
    deny_unknown_fields,
    expecting = "expected an expression, or from with map and otherwise, or value"
)]
pub(super) enum Source {
    /// A field, or a calculation on fields.
    From(String),
    /// The same for all messages.
    Value { value: String },
    /// New values by those of an expression.
    Mapped {
        from: String,
        map: BTreeMap<String, String>,
        otherwise: Option<String>,
    },
}

impl Rule {
    pub fn type_name(&self) -> &str {
        &self.type_name
    }

    pub fn becomes(&self) -> &str {
        self.becomes.as_deref().unwrap_or(&self.type_name)
    }

    /// Whether it comes with holdall.
    pub fn is_shipped(&self) -> bool {
        Rules::shipped(&self.file).is_some()
    }

    pub fn error(&self, reason: impl std::fmt::Display) -> RuleError {
        let Self {
            file,
            line,
            type_name,
            ..
        } = self;
        RuleError(format!("{file}, line {line}: {type_name}: {reason}"))
    }
}

impl Rules {
    /// Reads a text; `file` names it in errors.
    ///
    /// # Errors
    /// The first fault.
    pub fn parse(file: &str, text: &str) -> Result<Self, RuleError> {
        let read = || {
            let root = yaml::parse(text)?;
            let [(key, list)] = root.as_map()? else {
                return Err(root.expected("a list of rules under the key rules"));
            };
            if key != "rules" {
                return Err(list.error(format!("expected the key rules, found {key:?}")));
            }
            let rules = list.as_sequence()?.iter().map(|node| {
                Ok(Rule {
                    file: file.to_owned(),
                    line: node.line,
                    ..yaml::read_node(node)?
                })
            });
            Ok(Self {
                rules: rules.collect::<Result<_, yaml::YamlError>>()?,
                texts: vec![text.to_owned()],
            })
        };
        read().map_err(|error| RuleError(format!("{file}, {error}")))
    }

    /// The rules that come with holdall under this name.
    pub fn shipped(name: &str) -> Option<&'static str> {
        let found = SHIPPED.iter().find(|(known, _)| *known == name);
        found.map(|(_, text)| *text)
    }

    /// Adds rules, which count where none of these fits.
    #[must_use]
    pub fn then(mut self, others: Self) -> Self {
        self.rules.extend(others.rules);
        self.texts.extend(others.texts);
        self
    }

    /// The texts that were read.
    pub(super) fn texts(&self) -> &[String] {
        &self.texts
    }

    /// The rules that do not come with holdall and are not among those that were used.
    pub(super) fn own_unused(&self, used: &BTreeSet<usize>) -> impl Iterator<Item = &Rule> {
        let rules = self.rules.iter().enumerate();
        let unused = rules.filter(move |(place, rule)| !used.contains(place) && !rule.is_shipped());
        unused.map(|(_, rule)| rule)
    }

    /// A sentence for each file with rules that were not used. It names them, but for a file that comes with holdall: that one is named where it has no other.
    pub(super) fn unused(&self, used: &BTreeSet<usize>) -> Vec<String> {
        let mut sentences = Vec::new();
        let own: Vec<&Rule> = self.own_unused(used).collect();
        for rules in own.chunk_by(|one, other| one.file == other.file) {
            let named = rules
                .iter()
                .map(|rule| format!("{} (line {})", rule.type_name, rule.line));
            let named = named.collect::<Vec<_>>().join(", ");
            sentences.push(format!(
                "{}: no topic has what these rules are for: {named}",
                rules[0].file
            ));
        }
        let mut files: Vec<&Rule> = self.rules.iter().filter(|rule| rule.is_shipped()).collect();
        files.dedup_by(|one, other| one.file == other.file);
        files.retain(|rule| !used.iter().any(|place| self.rules[*place].file == rule.file));
        let sentence =
            |rule: &Rule| format!("{}: none of its rules names a type that is migrated", rule.file);
        sentences.extend(files.into_iter().map(sentence));
        sentences
    }

    pub(super) fn of_pair(&self, old: &StructPlan, new: &StructPlan) -> Option<(usize, &Rule)> {
        let goes = |name: &String| old.field(name).is_some() && new.field(name).is_none();
        let is_of = |rule: &Rule| rule.type_name == old.type_name && rule.becomes() == new.type_name;
        let fits = |rule: &Rule| {
            rule.when.iter().all(goes) && rule.unless.iter().all(|name| old.field(name).is_none())
        };
        let mut rules = self.rules.iter().enumerate();
        rules.find(|(_, rule)| is_of(rule) && fits(rule))
    }

    /// The first rule that gives a type another name.
    pub(super) fn renamed(&self, old: &str) -> Option<&Rule> {
        let mut rules = self.rules.iter();
        rules.find(|rule| rule.type_name == old && rule.becomes() != old)
    }
}
