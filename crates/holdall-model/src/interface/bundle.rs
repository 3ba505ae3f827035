//! The embedded interface definitions: the common packages of ROS 2 Jazzy.
//!
//! They are used where no node sends its types and no ROS installation is found. As always, use a definition
//! only when its hash equals the announced one: distributions differ.

use super::{Definition, InterfaceError, InterfaceSource, SourceFormat};
use std::{borrow::Cow, collections::BTreeMap, sync::OnceLock};

/// Written by `scripts/bundle-definitions.py`.
const TEXT: &str = include_str!("../../data/definitions.txt");
/// Prefix of an entry.
const MARK: &str = "@@ ";

/// A set of definitions by type name.
#[derive(Clone, Debug)]
pub struct Bundle {
    entries: BTreeMap<&'static str, Entry>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    format: SourceFormat,
    pub type_hash: &'static str,
    text: &'static str,
    /// The first and the last distribution that has it, where that matters.
    pub span: Option<(&'static str, &'static str)>,
}

impl Entry {
    pub fn source(&self) -> InterfaceSource {
        InterfaceSource {
            format: self.format,
            text: Cow::Borrowed(self.text),
        }
    }
}

impl Bundle {
    /// The embedded definitions; the index is made on first use.
    pub fn embedded() -> &'static Self {
        static EMBEDDED: OnceLock<Bundle> = OnceLock::new();
        EMBEDDED.get_or_init(|| Self {
            entries: entries(TEXT).collect(),
        })
    }

    /// The definition file of a type. For types that a service or an action derives, ask for
    /// [`defining_type`](super::defining_type).
    pub fn get(&self, type_name: &str) -> Option<InterfaceSource> {
        self.entries.get(type_name).map(Entry::source)
    }

    /// The RIHS01 hash of a type that has a definition file here, without computing it.
    pub fn type_hash(&self, type_name: &str) -> Option<&'static str> {
        self.entries.get(type_name).map(|entry| entry.type_hash)
    }

    /// The types that have a definition file here, in order.
    pub fn type_names(&self) -> impl ExactSizeIterator<Item = &'static str> + '_ {
        self.entries.keys().copied()
    }

    /// Resolves a type, also one that a service or an action derives, from these definitions alone.
    ///
    /// # Errors
    /// When it or a type that it needs is missing here.
    pub fn define(&self, type_name: &str) -> Result<Definition, InterfaceError> {
        Definition::resolve(type_name, |name| self.get(name))
    }
}

/// The entries of a text after its comment, up to its end or the first that is damaged.
pub(super) fn entries(text: &'static str) -> impl Iterator<Item = (&'static str, Entry)> {
    let mut rest = text;
    while let Some((_, after)) = rest.split_once('\n').filter(|(line, _)| line.starts_with('#')) {
        rest = after;
    }
    std::iter::from_fn(move || {
        let (name, entry, after) = split_entry(rest)?;
        rest = after;
        Some((name, entry))
    })
}

/// The first entry, and the text after it: `@@ <type> <format> <hash> <bytes>`, newline, text, newline.
fn split_entry(text: &'static str) -> Option<(&'static str, Entry, &'static str)> {
    let (head, body) = text.strip_prefix(MARK)?.split_once('\n')?;
    let mut words = head.split(' ');
    let (name, format) = (words.next()?, SourceFormat::from_name(words.next()?)?);
    let (type_hash, bytes) = (words.next()?, words.next()?.parse().ok()?);
    let span = words.next().zip(words.next());
    let (text, rest) = body.split_at_checked(bytes)?;
    Some((
        name,
        Entry {
            format,
            type_hash,
            text,
            span,
        },
        rest.strip_prefix('\n')?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_text_is_read() {
        let marks = TEXT.lines().filter(|line| line.starts_with(MARK)).count();
        assert_eq!(Bundle::embedded().entries.len(), marks);
        assert!(marks > 150);
    }

    #[test]
    fn every_definition_has_the_hash_that_ros_gave_it() {
        let bundle = Bundle::embedded();
        for type_name in bundle.type_names() {
            let definition = bundle.define(type_name).unwrap();
            assert_eq!(
                Some(definition.type_hash().as_str()),
                bundle.type_hash(type_name),
                "{type_name}"
            );
        }
    }

    #[test]
    fn common_types_are_embedded() {
        let bundle = Bundle::embedded();
        for type_name in [
            "std_msgs/msg/String",
            "sensor_msgs/msg/PointCloud2",
            "tf2_msgs/msg/TFMessage",
            "nav_msgs/msg/Odometry",
            "rosgraph_msgs/msg/Clock",
            "rcl_interfaces/msg/ParameterEvent",
            "diagnostic_msgs/msg/DiagnosticArray",
            "visualization_msgs/msg/MarkerArray",
            "std_srvs/srv/Trigger_Event",
            "lifecycle_msgs/srv/ChangeState_Event",
        ] {
            let stored = bundle.define(type_name).unwrap().message_definition();
            assert!(!stored.text.is_empty(), "{type_name}");
        }
        assert!(bundle.define("my_msgs/msg/Own").is_err());
    }

    #[test]
    fn a_damaged_text_ends_the_list() {
        let good = "# head\n@@ a/msg/A msg RIHS01_x 8\nint32 x\n\n@@ a/msg/B msg RIHS01_y 0\n\n";
        assert_eq!(entries(good).count(), 2);
        assert_eq!(entries("@@ a/msg/A msg RIHS01_x 9999\nint32 x\n").count(), 0);
        assert_eq!(entries("@@ a/msg/A\n").count(), 0);
        assert_eq!(entries("").count(), 0);
    }
}
