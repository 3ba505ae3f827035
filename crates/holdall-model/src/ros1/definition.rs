//! Parses the message definitions of ROS 1 connections (one text with a type and all its dependencies) and
//! computes their md5 sums.

use crate::interface::{
    DEFINITION_BYTES_MAX, InterfaceError, NESTING_MAX, Primitive, SOURCE_BYTES_MAX, TYPES_MAX, is_identifier,
    primitive,
};
use md5::{Digest, Md5};
use std::{
    collections::{BTreeMap, HashMap, HashSet, btree_map::Entry},
    fmt::Write,
};

/// Shortest line of `=` that counts as a delimiter; ROS writes 80.
const DELIMITER_BYTES_MIN: usize = 40;

/// A delimiter as ROS writes it.
pub(super) const DELIMITER: &str =
    "================================================================================";

/// The header type, which nested fields may name without its package.
pub(super) const HEADER: &str = "std_msgs/Header";
/// Its name before 2010.
pub(super) const OLD_HEADER: &str = "roslib/Header";

/// The type of a ROS 1 field's value or of its elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ros1Element {
    /// A plain value.
    Primitive(Primitive),
    /// Bytes with a length before them.
    String,
    /// Seconds and nanoseconds, unsigned.
    Time,
    /// Seconds and nanoseconds, signed.
    Duration,
    /// A message, by `pkg/Type`.
    Nested(String),
}

/// How many elements a ROS 1 field holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ros1Arity {
    One,
    Array(u64),
    Sequence,
}

/// A field of a ROS 1 message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ros1Field {
    pub name: String,
    pub element: Ros1Element,
    pub arity: Ros1Arity,
    /// The type as its author wrote it, with `[]`.
    pub written: String,
}

/// A message type of ROS 1.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Ros1Struct {
    pub fields: Vec<Ros1Field>,
    /// Lines `type name=value`, as the md5 sum includes them.
    constants: Vec<String>,
    /// The text in the terms of ROS 2, comments and constants included.
    pub ros2_text: String,
}

/// A ROS 1 message type with all its dependencies.
#[derive(Clone, Debug)]
pub struct Ros1Definition {
    type_name: String,
    pub(super) structs: BTreeMap<String, Ros1Struct>,
}

impl Ros1Definition {
    /// Reads the definition of `type_name` (`pkg/Type`) from the text in a connection header.
    ///
    /// # Errors
    /// A text that breaks the rules, is too large, or does not hold a type that it needs.
    pub fn parse(type_name: &str, text: &str) -> Result<Self, InterfaceError> {
        check_bound(type_name, text.len(), DEFINITION_BYTES_MAX, "bytes")?;
        let mut structs = BTreeMap::new();
        let parts = with_header(parts(type_name, text));
        let names: Vec<String> = parts.iter().map(|(name, _)| name.clone()).collect();
        for (name, part) in parts {
            check_bound(&name, part.len(), SOURCE_BYTES_MAX, "bytes")?;
            check_bound(type_name, structs.len(), TYPES_MAX, "types")?;
            if let Entry::Vacant(place) = structs.entry(name) {
                let parsed = parse_struct(place.key(), &part, &names)?;
                place.insert(parsed);
            }
        }
        let definition = Self {
            type_name: type_name.to_owned(),
            structs,
        };
        definition.check_nested(type_name, &mut Vec::new(), &mut HashSet::new())?;
        Ok(definition)
    }

    /// The type as ROS 1 names it: `pkg/Type`.
    pub fn type_name(&self) -> &str {
        &self.type_name
    }

    /// The md5 sum by which ROS 1 identifies the type, in hexadecimal digits.
    pub fn md5sum(&self) -> String {
        self.md5_of(&self.type_name, &mut HashMap::new())
    }

    fn md5_of(&self, type_name: &str, known: &mut HashMap<String, String>) -> String {
        if let Some(sum) = known.get(type_name) {
            return sum.clone();
        }
        let mut lines = Vec::new();
        if let Some(found) = self.structs.get(type_name) {
            lines.extend(found.constants.iter().cloned());
            for field in &found.fields {
                let of_type = match &field.element {
                    Ros1Element::Nested(nested) => self.md5_of(nested, known),
                    _ => field.written.clone(),
                };
                lines.push(format!("{of_type} {}", field.name));
            }
        }
        let mut sum = String::new();
        for byte in Md5::digest(lines.join("\n").trim()) {
            write!(sum, "{byte:02x}").expect("writing to a String cannot fail");
        }
        known.insert(type_name.to_owned(), sum.clone());
        sum
    }

    /// Checks that every type that `type_name` needs is present, and that none contains itself.
    fn check_nested(
        &self,
        type_name: &str,
        path: &mut Vec<String>,
        checked: &mut HashSet<String>,
    ) -> Result<(), InterfaceError> {
        if path.iter().any(|outer| outer == type_name) {
            return Err(InterfaceError::Cycle {
                type_name: type_name.to_owned(),
            });
        }
        check_bound(&self.type_name, path.len(), NESTING_MAX, "levels of nested types")?;
        let Some(found) = self.structs.get(type_name) else {
            return Err(InterfaceError::NotFound {
                type_name: type_name.to_owned(),
                needed_by: path.last().cloned(),
            });
        };
        if !checked.insert(type_name.to_owned()) {
            return Ok(());
        }
        path.push(type_name.to_owned());
        for field in &found.fields {
            if let Ros1Element::Nested(nested) = &field.element {
                self.check_nested(nested, path, checked)?;
            }
        }
        path.pop();
        Ok(())
    }
}

fn check_bound(
    type_name: &str,
    count: usize,
    limit: usize,
    what: &'static str,
) -> Result<(), InterfaceError> {
    if count > limit {
        return Err(InterfaceError::TooLarge {
            type_name: type_name.to_owned(),
            what,
            limit,
        });
    }
    Ok(())
}

/// The texts of all types, that of the type itself first.
fn parts(type_name: &str, text: &str) -> Vec<(String, String)> {
    let mut parts = vec![(type_name.to_owned(), String::new())];
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let is_delimiter =
            line.trim_end().len() >= DELIMITER_BYTES_MIN && line.trim_end().bytes().all(|byte| byte == b'=');
        let next_type = lines
            .peek()
            .and_then(|next| next.trim().strip_prefix("MSG:"))
            .map(|name| name.trim().to_owned());
        match (is_delimiter, next_type) {
            (true, Some(name)) => {
                lines.next();
                parts.push((name, String::new()));
            }
            _ => {
                if let Some((_, part)) = parts.last_mut() {
                    part.push_str(line);
                    part.push('\n');
                }
            }
        }
    }
    parts
}

/// The header's text where only that is missing: all of ROS 1 has the same.
fn with_header(mut parts: Vec<(String, String)>) -> Vec<(String, String)> {
    let has_header = parts.iter().any(|(name, _)| name == HEADER);
    let names_header = |part: &String| {
        part.split_ascii_whitespace()
            .any(|word| word == "Header" || word == HEADER)
    };
    if !has_header && parts.iter().any(|(_, part)| names_header(part)) {
        parts.push((
            HEADER.to_owned(),
            "uint32 seq\ntime stamp\nstring frame_id\n".to_owned(),
        ));
    }
    parts
}

/// A type that a part of `package` names without its package: one of the same package, else the only one of that name.
fn named(package: &str, name: &str, names: &[String]) -> String {
    let own = format!("{package}/{name}");
    let mut same = names
        .iter()
        .filter(|part| part.rsplit_once('/').is_some_and(|(_, last)| last == name));
    match (names.contains(&own), same.next(), same.next()) {
        (false, Some(only), None) => only.clone(),
        _ => own,
    }
}

fn parse_struct(
    type_name: &str,
    text: &str,
    names_of_parts: &[String],
) -> Result<Ros1Struct, InterfaceError> {
    let package = match type_name.split_once('/') {
        Some((package, name)) if is_identifier(package) && is_identifier(name) => package,
        _ => {
            return Err(InterfaceError::TypeName {
                type_name: type_name.to_owned(),
            });
        }
    };
    let mut parsed = Ros1Struct::default();
    let mut names = HashSet::new();
    for (line, number) in text.lines().zip(1..) {
        let known = parsed.fields.len();
        let outcome = parse_line(package, names_of_parts, line, &mut parsed).and_then(|()| {
            match parsed.fields.get(known) {
                Some(field) if !names.insert(field.name.clone()) => {
                    Err(format!("the name {} occurs twice", field.name))
                }
                _ => Ok(()),
            }
        });
        outcome.map_err(|reason| InterfaceError::Syntax {
            type_name: type_name.to_owned(),
            line: number,
            reason,
        })?;
    }
    Ok(parsed)
}

/// Adds the definition in a line.
fn parse_line(package: &str, names: &[String], line: &str, parsed: &mut Ros1Struct) -> Result<(), String> {
    let (code, comment) = line.split_once('#').map_or((line, None), |(c, r)| (c, Some(r)));
    let code = code.trim();
    if code.is_empty() {
        if let Some(comment) = comment {
            parsed.ros2_text.push('#');
            parsed.ros2_text.push_str(comment.trim_end());
        }
        parsed.ros2_text.push('\n');
        return Ok(());
    }
    let (type_text, rest) = code
        .split_once(char::is_whitespace)
        .ok_or_else(|| format!("{code:?} has no name"))?;
    if code.contains('=') {
        return constant(line, type_text, rest, parsed);
    }
    let name = rest.trim();
    if !is_identifier(name) {
        return Err(format!("{name:?} is not a name"));
    }
    let (element, arity) = field_type(package, names, type_text)?;
    let comment = comment.map_or_else(String::new, |comment| format!("  #{}", comment.trim_end()));
    let _ = writeln!(
        parsed.ros2_text,
        "{} {name}{comment}",
        ros2_type(type_text, &element, arity)
    );
    parsed.fields.push(Ros1Field {
        name: name.to_owned(),
        element,
        arity,
        written: type_text.to_owned(),
    });
    Ok(())
}

fn constant(line: &str, type_text: &str, rest: &str, parsed: &mut Ros1Struct) -> Result<(), String> {
    if primitive(type_text).is_none() && type_text != "string" {
        return Err(format!("a constant cannot be of type {type_text}"));
    }
    // A string's value reaches to the end of the line, including what looks like a comment.
    let (name, value) = if type_text == "string" {
        let all = line.trim_start().split_once(char::is_whitespace);
        all.and_then(|(_, rest)| rest.split_once('='))
    } else {
        rest.split_once('=')
    }
    .ok_or_else(|| format!("{rest:?} has no value"))?;
    let (name, value) = (name.trim(), value.trim());
    if !is_identifier(name) {
        return Err(format!("{name:?} is not a name"));
    }
    parsed.constants.push(format!("{type_text} {name}={value}"));
    // ROS 2 has other rules for quotes and comments in text: an ambiguous value is kept as a comment.
    let _ = match type_text {
        "string" if value.contains(['"', '\'', '#', '\\']) => {
            writeln!(parsed.ros2_text, "# string {name}={value}")
        }
        "string" => writeln!(parsed.ros2_text, "string {name}=\"{value}\""),
        _ => writeln!(parsed.ros2_text, "{} {name}={value}", ros2_primitive(type_text)),
    };
    Ok(())
}

fn field_type(package: &str, names: &[String], text: &str) -> Result<(Ros1Element, Ros1Arity), String> {
    let (element, arity) = match text.strip_suffix(']').map(|rest| rest.rsplit_once('[')) {
        None => (text, Ros1Arity::One),
        Some(None) => return Err(format!("{text:?} ends with ']' and has no '['")),
        Some(Some((element, ""))) => (element, Ros1Arity::Sequence),
        Some(Some((element, size))) => {
            let size = size
                .trim()
                .parse()
                .map_err(|_| format!("{size:?} is not a size; sizes are whole numbers"))?;
            (element, Ros1Arity::Array(size))
        }
    };
    let element = match element {
        "string" => Ros1Element::String,
        "time" => Ros1Element::Time,
        "duration" => Ros1Element::Duration,
        "Header" => Ros1Element::Nested(HEADER.to_owned()),
        other => match (primitive(other), other.split_once('/')) {
            (Some(primitive), _) => Ros1Element::Primitive(primitive),
            (None, Some((package, name))) if is_identifier(package) && is_identifier(name) => {
                Ros1Element::Nested(other.to_owned())
            }
            (None, None) if is_identifier(other) => Ros1Element::Nested(named(package, other, names)),
            _ => return Err(format!("{other:?} is not a type")),
        },
    };
    Ok((element, arity))
}

/// The type of a field in ROS 2's notation.
fn ros2_type(written: &str, element: &Ros1Element, arity: Ros1Arity) -> String {
    let bare = written.split('[').next().unwrap_or(written);
    let element = match element {
        Ros1Element::Time => "builtin_interfaces/Time",
        Ros1Element::Duration => "builtin_interfaces/Duration",
        Ros1Element::Nested(name) => super::ros2_short_name(name),
        Ros1Element::Primitive(_) | Ros1Element::String => ros2_primitive(bare),
    };
    match arity {
        Ros1Arity::One => element.to_owned(),
        Ros1Arity::Array(count) => format!("{element}[{count}]"),
        Ros1Arity::Sequence => format!("{element}[]"),
    }
}

/// A `byte` is signed in ROS 1, and not in ROS 2.
fn ros2_primitive(text: &str) -> &str {
    if text == "byte" { "int8" } else { text }
}
