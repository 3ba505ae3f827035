//! Writes a definition with its dependencies as one text, as rosbag2 stores it
//! (`docs/message_definition_encoding.md`).

use super::{
    Arity, Definition, Element, Field, FieldType, IndividualTypeDescription, SourceFormat, defining_type,
    description::EMPTY_STRUCT_MEMBER,
};
use crate::topic::{DefinitionEncoding, MessageDefinition};
use std::{borrow::Cow, collections::BTreeMap, collections::BTreeSet};

impl Definition {
    /// The definition as bags store it, with the type's hash.
    ///
    /// - Types whose dependencies all have `.msg` files: their texts, as rosbag2 stores them.
    /// - Types whose dependencies all have `.idl` files: `ros2idl`.
    /// - Events of a service: the service's text after a line `SRV: pkg/srv/X`, as rosbag2 stores them;
    ///   generated from the fields of request and response where there is no `.srv` file.
    /// - All others (types that an action derives, mixed files): `.msg` texts, generated from the description
    ///   where there is no `.msg` file. rosbag2 stores nothing for these. When an IDL type cannot be written
    ///   as `.msg` (`wchar`, `long double`), the text is empty and its encoding unknown.
    pub fn message_definition(&self) -> MessageDefinition {
        let (encoding, text) = match self.stored_text() {
            Some(stored) => stored,
            None => (DefinitionEncoding::Unknown, String::new()),
        };
        MessageDefinition {
            type_name: self.type_name().to_owned(),
            encoding,
            text,
            type_description_hash: self.type_hash(),
        }
    }

    fn stored_text(&self) -> Option<(DefinitionEncoding, String)> {
        let has_idl = |type_name: &String| {
            let source = self.sources.get(defining_type(type_name));
            source.is_some_and(|source| source.format == SourceFormat::Idl)
        };
        if self.descriptions.keys().all(has_idl) {
            return Some((DefinitionEncoding::Ros2Idl, self.idl_text()));
        }
        if let Some(text) = self.service_event_text() {
            return Some((DefinitionEncoding::Ros2Msg, text));
        }
        let mut text = String::new();
        self.append_msg(&mut text, self.type_name(), &mut BTreeSet::new())?;
        Some((DefinitionEncoding::Ros2Msg, text))
    }

    /// A service's own text and the messages in its request and response.
    fn service_event_text(&self) -> Option<String> {
        let service = crate::names::service_of_event_type(self.type_name())?;
        let parts = [format!("{service}_Request"), format!("{service}_Response")];
        let mut text = delimiter("SRV", service);
        match self.sources.get(service) {
            Some(source) if source.format == SourceFormat::Srv => text.push_str(&source.text),
            // An action's text, or IDL.
            Some(_) => return None,
            None if defining_type(service) != service => return None,
            None => {
                text.push_str(&msg_text(self.descriptions.get(&parts[0])?)?);
                text.push_str("---\n");
                text.push_str(&msg_text(self.descriptions.get(&parts[1])?)?);
            }
        }
        let names = parts.iter().filter_map(|part| self.descriptions.get(part));
        let nested = names
            .flat_map(IndividualTypeDescription::nested_type_names)
            .collect();
        self.append_dependencies(&mut text, nested, &mut BTreeSet::new())?;
        Some(text)
    }

    /// Appends a type's text and those of its dependencies that are not `seen` yet: depth first, in the order
    /// of names.
    fn append_msg<'a>(
        &'a self,
        text: &mut String,
        type_name: &'a str,
        seen: &mut BTreeSet<&'a str>,
    ) -> Option<()> {
        let description = self.descriptions.get(type_name)?;
        match self
            .sources
            .get(type_name)
            .filter(|source| source.format == SourceFormat::Msg)
        {
            Some(source) => text.push_str(&source.text),
            None => text.push_str(&msg_text(description)?),
        }
        self.append_dependencies(text, description.nested_type_names().collect(), seen)
    }

    fn append_dependencies<'a>(
        &'a self,
        text: &mut String,
        nested: Vec<&'a str>,
        seen: &mut BTreeSet<&'a str>,
    ) -> Option<()> {
        let by_short_name: BTreeMap<_, _> = nested.into_iter().map(|name| (short_name(name), name)).collect();
        for (short_name, type_name) in by_short_name {
            if seen.insert(type_name) {
                text.push('\n');
                text.push_str(&delimiter("MSG", &short_name));
                self.append_msg(text, type_name, seen)?;
            }
        }
        Some(())
    }

    /// The files of all types, that of the type itself first: depth first, in the order of names.
    fn idl_text(&self) -> String {
        let mut text = String::new();
        self.append_idl(&mut text, self.type_name(), &mut BTreeSet::new());
        text
    }

    fn append_idl<'a>(&'a self, text: &mut String, type_name: &'a str, seen: &mut BTreeSet<&'a str>) {
        let file = defining_type(type_name);
        let (Some(source), true) = (self.sources.get(file), seen.insert(file)) else {
            return;
        };
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(&delimiter("IDL", file));
        text.push_str(&source.text);
        let of_file = self
            .descriptions
            .values()
            .filter(|other| defining_type(&other.type_name) == file);
        let nested: BTreeSet<&str> = of_file.flat_map(|other| other.nested_type_names()).collect();
        for name in nested {
            self.append_idl(text, name, seen);
        }
    }
}

/// The two lines that begin a part.
fn delimiter(kind: &str, name: &str) -> String {
    format!("{}\n{kind}: {name}\n", "=".repeat(80))
}

/// A type's name in `.msg` texts: `std_msgs/Header`.
fn short_name(type_name: &str) -> Cow<'_, str> {
    match type_name.split_once('/').zip(type_name.rsplit_once('/')) {
        Some(((package, _), (_, name))) => Cow::Owned(format!("{package}/{name}")),
        None => Cow::Borrowed(type_name),
    }
}

/// A `.msg` text that defines the same struct, without comments; `None` when `.msg` has no name for one of
/// its types.
fn msg_text(description: &IndividualTypeDescription) -> Option<String> {
    let mut text = String::new();
    for Field { name, field_type } in &description.fields {
        if name != EMPTY_STRUCT_MEMBER {
            text.push_str(&format!("{} {name}\n", msg_type(field_type)?));
        }
    }
    Some(text)
}

fn msg_type(field_type: &FieldType) -> Option<String> {
    let element = match &field_type.element {
        Element::Primitive(primitive) => primitive.msg_name()?.to_owned(),
        Element::Nested(type_name) => short_name(type_name).into_owned(),
        Element::String { wide, length_max } => {
            let name = if *wide { "wstring" } else { "string" };
            length_max.map_or_else(|| name.to_owned(), |length| format!("{name}<={length}"))
        }
    };
    Some(match field_type.arity {
        Arity::One => element,
        Arity::Array(count) => format!("{element}[{count}]"),
        Arity::BoundedSequence(count) => format!("{element}[<={count}]"),
        Arity::UnboundedSequence => format!("{element}[]"),
    })
}
