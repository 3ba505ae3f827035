//! Reads `contract.yaml`: every error has its line, its field and what was expected.

use super::keys::{COMMON, Field, KEYS, Key, Kind, find};
use crate::{
    dynamic::expression::check_syntax,
    qos::{Durability, History, Reliability},
    quantity::{parse_bytes, parse_hertz, parse_seconds},
    yaml::{self, Node, Value as YamlValue, YamlError},
};
use regex::Regex;
use std::{fmt, time::Duration};

/// The longest contract, in bytes.
pub const CONTRACT_BYTES_MAX: usize = 1 << 20;
/// The most rules of a contract.
const RULES_MAX: usize = 10_000;
/// The most names in a list, and the longest name in bytes.
const NAMES_MAX: usize = 256;
const NAME_BYTES_MAX: usize = 1024;
/// The longest reason, in bytes.
const REASON_BYTES_MAX: usize = 1024;
/// The longest span, rate and count: what is larger is a mistake.
const SPAN_MAX: Duration = Duration::from_secs(366 * 86_400);
const HERTZ_MAX: f64 = 1e6;
/// Windows of rates and drifts.
const WINDOW_MIN: Duration = Duration::from_millis(100);
const WINDOW_MAX: Duration = Duration::from_secs(3600);
const WINDOW_KEYS: [&str; 1] = ["window"];

/// Why a contract cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {}{reason}", if field.is_empty() { String::new() } else { format!("{field}: ") })]
pub struct ContractError {
    /// Line in the text, from 1.
    pub line: usize,
    /// The field with those above it, `topics./scan.rate.min`; empty for the whole text.
    pub field: String,
    /// One clause.
    pub reason: String,
}

/// How bad a violation is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// The recording is not usable.
    #[default]
    Fail,
    /// Worth a look.
    Warn,
}

impl Severity {
    /// Its name in contracts.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Fail => "fail",
            Self::Warn => "warn",
        }
    }
}

/// How much may be wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Tolerance {
    /// So many violations.
    Count(u64),
    /// This share of what was checked.
    Share(f64),
}

/// A value of a rule.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Flag(bool),
    Text(String),
    Names(Vec<String>),
    Span(Duration),
    Number(f64),
    Count(u64),
}

/// The topics of a rule.
#[derive(Clone, Debug)]
pub struct RuleTopic {
    name: String,
    /// `None` for a plain name.
    pattern: Option<Regex>,
}

impl RuleTopic {
    fn new(name: &str) -> Option<Self> {
        let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '/' | '*' | '~');
        if !name.starts_with('/') || name.len() > NAME_BYTES_MAX || !name.chars().all(is_part) {
            return None;
        }
        let pattern = name.contains('*').then(|| {
            let text = regex::escape(name).replace(r"\*\*", ".*").replace(r"\*", "[^/]*");
            Regex::new(&format!("^{text}$")).ok()
        });
        Some(Self {
            name: name.to_owned(),
            pattern: pattern.flatten(),
        })
    }

    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.name
    }

    /// Whether it may be several topics.
    pub fn is_pattern(&self) -> bool {
        self.pattern.is_some()
    }

    /// Whether it names this topic: `*` is any part of a name, `**` any number of parts.
    pub fn matches(&self, name: &str) -> bool {
        match &self.pattern {
            Some(pattern) => pattern.is_match(name),
            None => self.name == name,
        }
    }
}

/// A rule.
#[derive(Clone, Debug)]
pub struct Rule {
    pub(super) key: &'static Key,
    /// Its topics; `None` for the whole bag.
    pub topic: Option<RuleTopic>,
    pub(super) values: Vec<(&'static str, Value)>,
    /// How bad a violation is.
    pub severity: Severity,
    /// Why the rule is, for people.
    pub reason: Option<String>,
    /// How much may be wrong.
    pub tolerance: Tolerance,
    /// Line in the text, from 1.
    pub line: usize,
}

impl Rule {
    /// The name of its kind: `rate`.
    pub fn kind(&self) -> &'static str {
        self.key.name
    }

    fn value(&self, name: &str) -> Option<&Value> {
        self.values
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, value)| value)
    }

    pub(super) fn span(&self, name: &str) -> Option<Duration> {
        match self.value(name) {
            Some(Value::Span(span)) => Some(*span),
            _ => None,
        }
    }

    pub(super) fn number(&self, name: &str) -> Option<f64> {
        match self.value(name) {
            Some(Value::Number(number)) => Some(*number),
            _ => None,
        }
    }

    pub(super) fn count(&self, name: &str) -> Option<u64> {
        match self.value(name) {
            Some(Value::Count(count)) => Some(*count),
            _ => None,
        }
    }

    pub(super) fn text(&self, name: &str) -> Option<&str> {
        match self.value(name) {
            Some(Value::Text(text)) => Some(text),
            _ => None,
        }
    }

    pub(super) fn names(&self, name: &str) -> &[String] {
        match self.value(name) {
            Some(Value::Names(names)) => names,
            _ => &[],
        }
    }

    pub(super) fn flag(&self, name: &str) -> bool {
        matches!(self.value(name), Some(Value::Flag(true)))
    }
}

/// A contract.
#[derive(Clone, Debug)]
pub struct Contract {
    /// Its name; empty if it has none.
    pub name: String,
    /// As it was written.
    pub text: String,
    /// Its rules, in the order of the text.
    pub rules: Vec<Rule>,
}

impl Contract {
    /// Reads a contract.
    ///
    /// # Errors
    /// The first thing that is wrong, with its line and field.
    pub fn parse(text: &str) -> Result<Self, ContractError> {
        if text.len() > CONTRACT_BYTES_MAX {
            let reason = format!(
                "the text has {} bytes, at most {CONTRACT_BYTES_MAX} are read",
                text.len()
            );
            return Err(ContractError {
                line: 1,
                field: String::new(),
                reason,
            });
        }
        let root = yaml::parse(text).map_err(at_top)?;
        let mut contract = Self {
            name: String::new(),
            text: text.to_owned(),
            rules: Vec::new(),
        };
        let mut is_versioned = false;
        for (name, node) in root.as_map().map_err(at_top)? {
            let at = Path(vec![name]);
            match name.as_str() {
                "version" => {
                    is_versioned = true;
                    if node.as_str().map_err(|error| at.of(error))? != "1" {
                        return Err(at.expected(node, "1, the only version"));
                    }
                }
                "name" => contract.name = at.name(node, NAME_BYTES_MAX)?,
                "topics" => contract.topics(node, &at)?,
                "bag" => contract.rules_of(node, None, &at)?,
                _ => return Err(unknown(node, &at, name, &["version", "name", "topics", "bag"])),
            }
        }
        if !is_versioned {
            return Err(Path(vec!["version"]).error(&root, "is missing; expected version: 1"));
        }
        if contract.rules.is_empty() {
            let reason = "the contract has no rules; expected some below topics or bag";
            return Err(at_top(root.error(reason)));
        }
        Ok(contract)
    }

    fn topics(&mut self, node: &Node, at: &Path<'_>) -> Result<(), ContractError> {
        for (name, node) in node.as_map().map_err(|error| at.of(error))? {
            let at = at.below(name);
            let topic = RuleTopic::new(name).ok_or_else(|| {
                at.error(node, "expected a full topic name, for example /scan, or a pattern, for example /camera/*/image")
            })?;
            self.rules_of(node, Some(&topic), &at)?;
        }
        Ok(())
    }

    fn rules_of(
        &mut self,
        node: &Node,
        topic: Option<&RuleTopic>,
        at: &Path<'_>,
    ) -> Result<(), ContractError> {
        for (name, node) in node.as_map().map_err(|error| at.of(error))? {
            let at = at.below(name);
            let Some(key) = find(name, topic.is_none()) else {
                let of_kind = KEYS.iter().filter(|key| key.is_of_bag == topic.is_none());
                let known: Vec<&str> = of_kind.map(|key| key.name).collect();
                return Err(unknown(node, &at, name, &known));
            };
            let items = match &node.value {
                // A list of names is one value.
                YamlValue::Sequence(items) if key.is_list && !is_list_of_names(key, items) => {
                    items.as_slice()
                }
                _ => std::slice::from_ref(node),
            };
            for item in items {
                if self.rules.len() == RULES_MAX {
                    return Err(at.error(item, format!("more than {RULES_MAX} rules")));
                }
                self.rules.push(rule(key, topic, item, &at)?);
            }
        }
        Ok(())
    }
}

fn is_list_of_names(key: &Key, items: &[Node]) -> bool {
    let short = key
        .short
        .and_then(|short| key.fields.iter().find(|field| field.name == short));
    short.is_some_and(|field| field.kind == Kind::Names)
        && items
            .iter()
            .all(|item| matches!(item.value, YamlValue::Scalar(_)))
}

fn at_top(error: YamlError) -> ContractError {
    ContractError {
        line: error.line,
        field: String::new(),
        reason: error.reason,
    }
}

/// The keys above a value.
struct Path<'a>(Vec<&'a str>);

impl<'a> Path<'a> {
    fn below(&self, name: &'a str) -> Path<'a> {
        let mut keys = self.0.clone();
        keys.push(name);
        Path(keys)
    }

    fn of(&self, error: YamlError) -> ContractError {
        ContractError {
            field: self.to_string(),
            ..at_top(error)
        }
    }

    fn error(&self, node: &Node, reason: impl Into<String>) -> ContractError {
        self.of(node.error(reason))
    }

    fn expected(&self, node: &Node, wanted: &str) -> ContractError {
        self.of(node.expected(wanted))
    }

    fn name(&self, node: &Node, bytes_max: usize) -> Result<String, ContractError> {
        let text = match &node.value {
            YamlValue::Scalar(text) if !text.is_empty() => text,
            _ => return Err(self.expected(node, "a text")),
        };
        if text.len() > bytes_max {
            return Err(self.error(
                node,
                format!("has {} bytes, at most {bytes_max} are allowed", text.len()),
            ));
        }
        Ok(text.clone())
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A key of a hostile text may be long.
        let keys: Vec<String> = self.0.iter().map(|key| key.chars().take(80).collect()).collect();
        f.write_str(&keys.join("."))
    }
}

/// Refuses an unknown key, with the nearest known one.
fn unknown(node: &Node, at: &Path<'_>, name: &str, known: &[&str]) -> ContractError {
    let near = known.iter().map(|known| (distance(name, known), *known)).min();
    let meant = match near {
        Some((letters, near)) if letters * 3 <= near.len().max(3) => format!("; did you mean {near}?"),
        _ => format!("; the keys are {}", known.join(", ")),
    };
    at.error(node, format!("unknown key{meant}"))
}

/// Letters to add, remove or change to make one word of the other.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, c) in a.chars().take(64).enumerate() {
        let mut before = std::mem::replace(&mut row[0], i + 1);
        for (j, d) in b.iter().enumerate() {
            let changed = before + usize::from(c != *d);
            before = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(before + 1);
        }
    }
    row[b.len()]
}

fn rule(
    key: &'static Key,
    topic: Option<&RuleTopic>,
    node: &Node,
    at: &Path<'_>,
) -> Result<Rule, ContractError> {
    let mut rule = Rule {
        key,
        topic: topic.cloned(),
        values: Vec::new(),
        severity: Severity::Fail,
        reason: None,
        tolerance: Tolerance::Count(0),
        line: node.line,
    };
    match (&node.value, key.short) {
        (YamlValue::Map(entries), _) => {
            for (name, node) in entries {
                let at = at.below(name);
                if !common(&mut rule, name, node, &at)? {
                    let Some(field) = key.fields.iter().find(|field| field.name == name) else {
                        let known: Vec<&str> =
                            key.fields.iter().chain(COMMON).map(|field| field.name).collect();
                        return Err(unknown(node, &at, name, &known));
                    };
                    rule.values.push((field.name, value(field, node, &at)?));
                }
            }
        }
        (_, Some(short)) => {
            if let Some(field) = key.fields.iter().find(|field| field.name == short) {
                rule.values.push((field.name, value(field, node, at)?));
            }
        }
        _ => return Err(at.expected(node, &format!("a map with {}", names_of(key)))),
    }
    if let Some(missing) = key
        .fields
        .iter()
        .find(|field| field.is_required && rule.value(field.name).is_none())
    {
        return Err(at.error(node, format!("{} is missing: {}", missing.name, missing.about)));
    }
    if rule.values.iter().all(|(name, _)| WINDOW_KEYS.contains(name)) {
        return Err(at.error(node, format!("expected one of {}", names_of(key))));
    }
    consistent(&rule, node, at)?;
    Ok(rule)
}

fn names_of(key: &Key) -> String {
    let names: Vec<&str> = key.fields.iter().map(|field| field.name).collect();
    names.join(", ")
}

/// Reads a field that every rule may have; false if it is none of these.
fn common(rule: &mut Rule, name: &str, node: &Node, at: &Path<'_>) -> Result<bool, ContractError> {
    match name {
        "severity" => {
            rule.severity = match node.as_str().map_err(|error| at.of(error))? {
                "fail" => Severity::Fail,
                "warn" => Severity::Warn,
                _ => return Err(at.expected(node, "fail or warn")),
            }
        }
        "reason" => rule.reason = Some(at.name(node, REASON_BYTES_MAX)?),
        "tolerance" => {
            let text = node.as_str().map_err(|error| at.of(error))?.trim();
            rule.tolerance = match text.parse() {
                Ok(count) => Tolerance::Count(count),
                Err(_) => Tolerance::Share(share(text).ok_or_else(|| {
                    at.expected(node, "a number of violations, or a share, for example 1%")
                })?),
            }
        }
        _ => return Ok(false),
    }
    Ok(true)
}

fn share(text: &str) -> Option<f64> {
    let (text, factor) = text.strip_suffix('%').map_or((text, 1.0), |text| (text, 0.01));
    let share = text.trim().parse::<f64>().ok()? * factor;
    (0.0..=1.0).contains(&share).then_some(share)
}

fn value(field: &Field, node: &Node, at: &Path<'_>) -> Result<Value, ContractError> {
    let expected = |wanted: &str| at.expected(node, wanted);
    let text = || node.as_str().map_err(|error| at.of(error));
    Ok(match field.kind {
        Kind::Flag => Value::Flag(node.as_bool().map_err(|error| at.of(error))?),
        Kind::Text => Value::Text(at.name(node, NAME_BYTES_MAX)?),
        Kind::Names => Value::Names(match &node.value {
            YamlValue::Sequence(items) if items.len() <= NAMES_MAX && !items.is_empty() => items
                .iter()
                .map(|item| at.name(item, NAME_BYTES_MAX))
                .collect::<Result<_, _>>()?,
            YamlValue::Scalar(_) => vec![at.name(node, NAME_BYTES_MAX)?],
            _ => return Err(expected(&format!("a name, or a list of 1 to {NAMES_MAX} names"))),
        }),
        Kind::Span => {
            let wanted = if field.name == "window" {
                "a span from 100ms to 1h, for example 5s"
            } else {
                "a span, for example 500ms"
            };
            let is_in = |span: &Duration| match field.name {
                "window" => (WINDOW_MIN..=WINDOW_MAX).contains(span),
                _ => *span <= SPAN_MAX,
            };
            Value::Span(
                parse_seconds(text()?)
                    .ok()
                    .filter(is_in)
                    .ok_or_else(|| expected(wanted))?,
            )
        }
        Kind::Hertz => {
            let hertz = parse_hertz(text()?).ok().filter(|hertz| *hertz <= HERTZ_MAX);
            Value::Number(hertz.ok_or_else(|| expected("a rate, for example 10 or 0.5Hz"))?)
        }
        Kind::Count => Value::Count(text()?.parse().map_err(|_| expected("a whole number"))?),
        Kind::Bytes => Value::Count(parse_bytes(text()?).map_err(|_| expected("a size, for example 1MiB"))?),
        Kind::Share => Value::Number(
            share(text()?).ok_or_else(|| expected("a share from 0 to 1, or in percent, for example 1%"))?,
        ),
        Kind::Number => {
            let number: Option<f64> = text()?
                .parse()
                .ok()
                .filter(|number: &f64| number.is_finite() && *number >= 0.0);
            Value::Number(number.ok_or_else(|| expected("a number, 0 or more"))?)
        }
        Kind::Expression => {
            let text = text()?;
            check_syntax(text).map_err(|error| at.error(node, error.to_string()))?;
            Value::Text(text.to_owned())
        }
    })
}

/// Refuses values that contradict each other, and words that have no meaning.
fn consistent(rule: &Rule, node: &Node, at: &Path<'_>) -> Result<(), ContractError> {
    let is_reversed = match (rule.value("min"), rule.value("max")) {
        (Some(Value::Span(min)), Some(Value::Span(max))) => min > max,
        (Some(Value::Count(min)), Some(Value::Count(max))) => min > max,
        (Some(Value::Number(min)), Some(Value::Number(max))) => min > max,
        _ => false,
    };
    if is_reversed {
        return Err(at.error(node, "min is more than max"));
    }
    if let (Some(least), Some(most)) = (rule.count("success_min"), rule.count("max"))
        && least > most
    {
        return Err(at.error(node, "success_min is more than max"));
    }
    let one_of = |name: &str, known: &[&str]| match rule.text(name) {
        Some(text) if !known.contains(&text) => Err(at.error(
            node,
            format!("{name}: expected {}, found {text:?}", known.join(" or ")),
        )),
        _ => Ok(()),
    };
    match rule.kind() {
        "stamps" => one_of("order", &["monotonic", "strict"])?,
        "qos" => {
            one_of(
                "reliability",
                &[Reliability::Reliable.as_str(), Reliability::BestEffort.as_str()],
            )?;
            one_of(
                "durability",
                &[Durability::Volatile.as_str(), Durability::TransientLocal.as_str()],
            )?;
            one_of(
                "history",
                &[History::KeepLast.as_str(), History::KeepAll.as_str()],
            )?;
        }
        "frozen" if rule.count("messages") < Some(2) => {
            return Err(at.error(node, "expected 2 messages or more"));
        }
        "tf" if rule.names("connected").len() < 2 => {
            return Err(at.error(node, "expected two frames or more"));
        }
        "tf" if rule.names("topics").iter().any(|name| !name.starts_with('/')) => {
            return Err(at.error(node, "topics: expected full topic names, for example /robot1/tf"));
        }
        "skew" if rule.names("topics").len() != 2 => {
            return Err(at.error(node, "expected two topics"));
        }
        _ => {}
    }
    Ok(())
}
