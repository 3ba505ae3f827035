//! Splits definition texts from bags into the files that they were made of.

use super::{Definition, InterfaceError, InterfaceSource, SourceFormat, defining_type, full_type_name};
use crate::topic::{DefinitionEncoding, MessageDefinition};
use std::collections::BTreeMap;

impl Definition {
    /// Resolves a definition as a bag stores it, to get its fields or to check its hash.
    ///
    /// `lookup` is called for types that the text does not hold: rosbag2 leaves
    /// `service_msgs/msg/ServiceEventInfo` out of the texts of service events. Messages that an action
    /// derives keep their fields but not their hash, because `.msg` texts cannot name types of other kinds.
    ///
    /// # Errors
    /// As for [`Definition::resolve`]; with an unknown encoding, and a `lookup` without the type, the type is
    /// not found.
    pub fn from_stored(
        stored: &MessageDefinition,
        lookup: impl FnMut(&str) -> Option<InterfaceSource>,
    ) -> Result<Self, InterfaceError> {
        Self::from_stored_as(stored, &stored.type_name, lookup)
    }

    /// As [`Definition::from_stored`], for a type that the stored one derives: SQLite bags keep the text of a
    /// service's event under the name of the service.
    /// name of the service.
    ///
    /// # Errors
    /// As for [`Definition::from_stored`].
    pub fn from_stored_as(
        stored: &MessageDefinition,
        type_name: &str,
        mut lookup: impl FnMut(&str) -> Option<InterfaceSource>,
    ) -> Result<Self, InterfaceError> {
        let parts = stored_parts(stored);
        Self::resolve(type_name, |name| {
            let found = parts.get(name).cloned().or_else(|| lookup(name));
            found.or_else(|| by_bare_name(&parts, name).cloned())
        })
    }
}

/// The only part whose type has this name in another package: some programs write `Vector3` for `geometry_msgs/Vector3`.
fn by_bare_name<'a>(
    parts: &'a BTreeMap<String, InterfaceSource>,
    type_name: &str,
) -> Option<&'a InterfaceSource> {
    let (_, bare) = type_name.rsplit_once("/msg/")?;
    let mut same = parts
        .iter()
        .filter(|(name, _)| name.rsplit_once("/msg/").is_some_and(|(_, own)| own == bare));
    let (_, found) = same.next()?;
    same.next().is_none().then_some(found)
}

/// The files in a stored text, by type.
fn stored_parts(stored: &MessageDefinition) -> BTreeMap<String, InterfaceSource> {
    let mut parts = BTreeMap::new();
    let mut next = match stored.encoding {
        DefinitionEncoding::Unknown | DefinitionEncoding::Ros1Msg | DefinitionEncoding::JsonSchema => None,
        _ => Some(first_part(stored)),
    };
    let mut rest = stored.text.as_str();
    while let Some((format, type_name)) = next.take() {
        let (text, following) = split_at_delimiter(rest);
        if let Some((header, after)) = following {
            next = part_header(header);
            rest = after;
        }
        // A text that begins with a delimiter has only parts with a header.
        if !text.is_empty() || !parts.is_empty() || following.is_none() {
            parts.entry(type_name).or_insert_with(|| InterfaceSource {
                format,
                text: text.to_owned().into(),
            });
        }
    }
    parts
}

/// Format and type of the part without a header: rosbag2 stores the text of a service (`---` between its two
/// messages) as the definition of its event, and of an action (two of them) as that of its derived types.
fn first_part(stored: &MessageDefinition) -> (SourceFormat, String) {
    let (text, _) = split_at_delimiter(&stored.text);
    let type_name = full_type_name(&stored.type_name);
    let file = defining_type(&type_name);
    let kind = file.split('/').nth(1).unwrap_or_default();
    match (kind, text.lines().filter(|line| line.trim_end() == "---").count()) {
        ("srv", 1) => (SourceFormat::Srv, file.to_owned()),
        ("action", 2) => (SourceFormat::Action, file.to_owned()),
        _ => (SourceFormat::Msg, type_name.into_owned()),
    }
}

/// The text before the next delimiter; then the line after it, which names a part, and the rest.
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
        "ACTION" => SourceFormat::Action,
        _ => return None,
    };
    Some((format, full_type_name(name).into_owned()))
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
    fn a_bare_name_is_the_only_part_of_that_name() {
        let line = "=".repeat(80);
        let stored = |parts: &str| MessageDefinition {
            type_name: "a/msg/A".to_owned(),
            encoding: DefinitionEncoding::Ros2Msg,
            text: format!("Vector3 v\nInner i\n{}", parts.replace('#', &line)),
            ..MessageDefinition::default()
        };
        let one = "#\nMSG: geometry_msgs/Vector3\nfloat64 x\n#\nMSG: b/Inner\nVector3 w\n";
        let read = Definition::from_stored(&stored(one), |_| None).unwrap();
        assert_eq!(read.descriptions["a/msg/Vector3"].fields[0].name, "x");
        let two = format!("{one}#\nMSG: other/Vector3\nfloat32 x\n");
        assert!(Definition::from_stored(&stored(&two), |_| None).is_err());
    }

    /// The text as real rosbag2 stores it: in MCAP under the name of the event, in SQLite under that of the service.
    #[test]
    fn the_text_of_a_service_is_the_definition_of_its_event() {
        let delimiter = "=".repeat(80);
        let stored = |type_name: &str| MessageDefinition {
            type_name: type_name.to_owned(),
            encoding: DefinitionEncoding::Ros2Msg,
            text: format!("B b\n---\nbool done\n{delimiter}\nMSG: a/B\nint32 x\n"),
            ..MessageDefinition::default()
        };
        let helped = |name: &str| Bundle::embedded().get(name);
        let read = Definition::from_stored(&stored("a/srv/S_Event"), helped).unwrap();
        let same = Definition::from_stored_as(&stored("a/srv/S"), "a/srv/S_Event", helped).unwrap();
        assert_eq!(read.type_hash(), same.type_hash());
        let fields = &read.descriptions["a/srv/S_Event"].fields;
        assert_eq!(
            fields.iter().map(|field| field.name.as_str()).collect::<Vec<_>>(),
            ["info", "request", "response"]
        );
        assert!(read.descriptions.contains_key("a/msg/B"));
        assert!(Definition::from_stored(&stored("a/srv/S_Request"), |_| None).is_ok());
    }

    #[test]
    fn the_derived_types_of_a_users_action_are_read_from_its_stored_text() {
        let action = |name: &str| {
            let text = match name {
                "a/action/A" => "B goal\n---\nint32 sum\n---\nB step\n",
                "a/msg/B" => "int32 x\n",
                other => return Bundle::embedded().get(other),
            };
            let format = if name == "a/action/A" {
                SourceFormat::Action
            } else {
                SourceFormat::Msg
            };
            Some(InterfaceSource {
                format,
                text: text.into(),
            })
        };
        let not_it = |name: &str| Bundle::embedded().get(name).filter(|_| !name.starts_with("a/"));
        for derived in ["_FeedbackMessage", "_SendGoal_Event", "_GetResult_Event"] {
            let type_name = format!("a/action/A{derived}");
            let made = Definition::resolve(&type_name, action).unwrap();
            let read = Definition::from_stored(&made.message_definition(), not_it).unwrap();
            let fields = |definition: &Definition| definition.descriptions[&type_name].fields.len();
            assert_eq!(fields(&read), fields(&made), "{type_name}");
            let as_file = MessageDefinition {
                type_name: type_name.clone(),
                encoding: DefinitionEncoding::Ros2Msg,
                text: format!(
                    "{}{}\nMSG: a/B\nint32 x\n",
                    action("a/action/A").unwrap().text,
                    "=".repeat(80)
                ),
                ..MessageDefinition::default()
            };
            let read = Definition::from_stored(&as_file, not_it).unwrap();
            assert_eq!(read.type_hash(), made.type_hash(), "{type_name}");
        }
    }

    /// Type names in the form that files of other tools have.
    #[test]
    fn a_name_without_a_kind_is_a_message() {
        let stored = MessageDefinition {
            type_name: "a/A".to_owned(),
            encoding: DefinitionEncoding::Ros2Msg,
            text: format!("B b\n{}\nMSG: a/B\nint32 x\n", "=".repeat(80)),
            ..MessageDefinition::default()
        };
        let read = Definition::from_stored(&stored, |_| None).unwrap();
        assert_eq!(read.type_name(), "a/msg/A");
        assert!(read.descriptions.contains_key("a/msg/B"));
    }

    #[test]
    fn idl_parts_are_split() {
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
