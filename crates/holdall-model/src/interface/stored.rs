//! Reads definition texts out of bags back into the files they were made of.

use super::{Definition, InterfaceError, InterfaceSource, SourceFormat};
use crate::topic::{DefinitionEncoding, MessageDefinition};
use std::collections::BTreeMap;

impl Definition {
    /// Resolves a definition as a bag stores it, to know its fields or to check its hash.
    ///
    /// `lookup` is asked for what the text does not hold: rosbag2 leaves `service_msgs/msg/ServiceEventInfo` out of the texts of
    /// service events. Messages that an action derives keep their fields, and not their hash, because `.msg` texts cannot name
    /// types of other kinds.
    ///
    /// # Errors
    /// As for [`Definition::resolve`]; for an unknown encoding and no help from `lookup`, the type is not found.
    pub fn from_stored(
        stored: &MessageDefinition,
        mut lookup: impl FnMut(&str) -> Option<InterfaceSource>,
    ) -> Result<Self, InterfaceError> {
        let mut parts = stored_parts(stored);
        Self::resolve(&stored.type_name, |name| {
            parts.remove(name).or_else(|| lookup(name))
        })
    }
}

/// The files in a stored text, by type.
fn stored_parts(stored: &MessageDefinition) -> BTreeMap<String, InterfaceSource> {
    let mut parts = BTreeMap::new();
    let mut next = match stored.encoding {
        DefinitionEncoding::Unknown | DefinitionEncoding::Ros1Msg => None,
        _ => Some((SourceFormat::Msg, stored.type_name.clone())),
    };
    let mut rest = stored.text.as_str();
    while let Some((format, type_name)) = next.take() {
        let (text, following) = split_at_delimiter(rest);
        if let Some((header, after)) = following {
            next = part_header(header);
            rest = after;
        }
        // A text that begins with a delimiter has no part without one.
        if !text.is_empty() || parts.contains_key(&stored.type_name) || following.is_none() {
            parts.entry(type_name).or_insert_with(|| InterfaceSource {
                format,
                text: text.to_owned().into(),
            });
        }
    }
    parts
}

/// What stands before the next delimiter, and after it the line that names a part and all that follows.
fn split_at_delimiter(text: &str) -> (&str, Option<(&str, &str)>) {
    let line = "=".repeat(80);
    let mut begin = 0;
    while let Some(found) = text[begin..].find(&line) {
        let at = begin + found;
        let after = &text[at + line.len()..];
        let starts_line = at == 0 || text.as_bytes()[at - 1] == b'\n';
        if let (true, Some(after)) = (starts_line, after.strip_prefix('\n')) {
            let before = &text[..at];
            let (header, rest) = after.split_once('\n').unwrap_or((after, ""));
            return (before.strip_suffix('\n').unwrap_or(before), Some((header, rest)));
        }
        begin = at + line.len();
    }
    (text, None)
}

/// Format and full type name of a part: `MSG: std_msgs/Header`, `IDL: pkg/msg/X`, `SRV: pkg/srv/X`.
fn part_header(header: &str) -> Option<(SourceFormat, String)> {
    let (kind, name) = header.trim_end().split_once(": ")?;
    let format = match kind {
        "MSG" => SourceFormat::Msg,
        "IDL" => SourceFormat::Idl,
        "SRV" => SourceFormat::Srv,
        _ => return None,
    };
    let full = match name.split_once('/') {
        Some((package, rest)) if !rest.contains('/') => format!("{package}/msg/{rest}"),
        _ => name.to_owned(),
    };
    Some((format, full))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interface::bundle::Bundle;
    use proptest::prelude::*;

    #[test]
    fn stored_texts_hold_all_that_their_hashes_need() {
        let bundle = Bundle::embedded();
        for type_name in bundle.type_names().filter(|name| name.contains("/msg/")) {
            let stored = bundle.define(type_name).unwrap().message_definition();
            let read = Definition::from_stored(&stored, |_| None).unwrap();
            assert_eq!(read.type_hash(), stored.type_description_hash, "{type_name}");
            assert_eq!(read.message_definition(), stored);
        }
    }

    #[test]
    fn service_events_need_the_message_that_rosbag2_leaves_out() {
        let bundle = Bundle::embedded();
        for type_name in bundle.type_names().filter(|name| name.contains("/srv/")) {
            let stored = bundle
                .define(&format!("{type_name}_Event"))
                .unwrap()
                .message_definition();
            assert!(Definition::from_stored(&stored, |_| None).is_err());
            let helped = |name: &str| bundle.get(name).filter(|_| !name.contains("/srv/"));
            let read = Definition::from_stored(&stored, helped).unwrap();
            assert_eq!(read.type_hash(), stored.type_description_hash, "{type_name}");
            assert_eq!(read.message_definition(), stored);
        }
    }

    #[test]
    fn idl_parts_are_told_apart() {
        let idl = |name: &str, member: &str| {
            format!("module a {{ module msg {{ struct {name} {{ {member} }}; }}; }};\n")
        };
        let definition = Definition::resolve("a/msg/A", |name| {
            let text = if name == "a/msg/A" {
                idl("A", "a::msg::B b;")
            } else {
                idl("B", "double x;")
            };
            Some(InterfaceSource {
                format: SourceFormat::Idl,
                text: text.into(),
            })
        })
        .unwrap();
        let stored = definition.message_definition();
        assert_eq!(stored.encoding, DefinitionEncoding::Ros2Idl);
        let read = Definition::from_stored(&stored, |_| None).unwrap();
        assert_eq!(read.message_definition(), stored);
    }

    #[test]
    fn an_unknown_definition_is_not_found() {
        let stored = MessageDefinition {
            type_name: "a/msg/A".to_owned(),
            ..MessageDefinition::default()
        };
        assert!(matches!(
            Definition::from_stored(&stored, |_| None),
            Err(InterfaceError::NotFound { .. })
        ));
    }

    proptest! {
        #[test]
        fn no_stored_text_panics(parts in prop::collection::vec("(={80}\\n)?(MSG: |SRV: |IDL: )?[a-zA-Z/ \\n]{0,20}\\n?", 0..6)) {
            for encoding in [DefinitionEncoding::Ros2Msg, DefinitionEncoding::Ros2Idl] {
                let stored = MessageDefinition {
                    type_name: "a/msg/A".to_owned(), encoding, text: parts.concat(), ..MessageDefinition::default()
                };
                let _ = Definition::from_stored(&stored, |_| None);
            }
        }
    }
}
