//! Definitions of message, service and action types: parsed, hashed (RIHS01) and written as bags store them.
//!
//! A [`Definition`] is a type with all its dependencies, resolved from texts that a caller looks up by name:
//! those that a node sent, those below `AMENT_PREFIX_PATH`, those of the embedded [`bundle`].

pub mod bundle;
mod derive;
mod description;
mod distribution;
mod idl;
mod parse;
mod resolve;
mod rihs01;
mod stored;
mod text;

pub use description::{
    Arity, Element, Field, FieldType, IndividualTypeDescription, Primitive, TypeDescription,
};
pub use distribution::Distribution;
pub(crate) use parse::{Constant, MessageSpec, parse_message, primitive};
pub use resolve::Definition;
pub use rihs01::is_rihs01;

use std::borrow::Cow;

/// Longest definition text of one type, in bytes; the longest known is about 20 kB.
pub const SOURCE_BYTES_MAX: usize = 1024 * 1024;
/// Longest total of the texts of one definition, in bytes; the longest known are about 100 kB.
pub(crate) const DEFINITION_BYTES_MAX: usize = 8 * SOURCE_BYTES_MAX;
/// Most types that one definition may depend on.
pub(crate) const TYPES_MAX: usize = 2048;
/// Deepest nesting of types (as in rosbag2).
pub(crate) const NESTING_MAX: usize = 50;

/// How a definition text is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SourceFormat {
    /// `.msg`.
    Msg,
    /// `.srv`: two message texts.
    Srv,
    /// `.action`: three message texts.
    Action,
    /// `.idl`: OMG IDL 4.2, as far as ROS 2 uses it.
    Idl,
}

impl SourceFormat {
    /// File name extension, and name in `type_description_interfaces/msg/TypeSource`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Msg => "msg",
            Self::Srv => "srv",
            Self::Action => "action",
            Self::Idl => "idl",
        }
    }

    /// The format of a name; `None` for other encodings (`dynamic`, `implicit`).
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Msg, Self::Srv, Self::Action, Self::Idl]
            .into_iter()
            .find(|format| format.as_str() == name)
    }
}

/// The text of a definition file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceSource {
    /// How it is written.
    pub format: SourceFormat,
    /// The text as its author wrote it.
    pub text: Cow<'static, str>,
}

/// The default value of a field, as its definition writes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FieldDefault {
    /// After the field's name in a `.msg`, `.srv` or `.action` text.
    Msg(String),
    /// The value of `@default` in an IDL text.
    Idl(String),
}

/// Why a definition cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InterfaceError {
    /// The text breaks the rules of its format.
    #[error("definition of {type_name}, line {line}: {reason}")]
    Syntax {
        /// The type whose text it is.
        type_name: String,
        /// Line in its text, from 1.
        line: usize,
        /// One sentence.
        reason: String,
    },
    /// No definition was found.
    #[error("no definition of {type_name} was found{}", needed_by.as_ref().map(|by| format!(", which {by} needs")).unwrap_or_default())]
    NotFound {
        /// The type.
        type_name: String,
        /// The type with a field of it; `None` when it was requested itself.
        needed_by: Option<String>,
    },
    /// A name that no type has.
    #[error("{type_name:?} is not a type; types look like std_msgs/msg/String")]
    TypeName {
        /// The name as given.
        type_name: String,
    },
    /// A type that contains itself.
    #[error("the definition of {type_name} contains itself")]
    Cycle {
        /// The type.
        type_name: String,
    },
    /// A definition larger than the reader's limits.
    #[error("the definition of {type_name} is too large: more than {limit} {what}")]
    TooLarge {
        /// The type whose definition it is.
        type_name: String,
        /// The quantity that is too large.
        what: &'static str,
        /// The largest number allowed.
        limit: usize,
    },
}

/// The type whose definition file holds `type_name`: services and actions define several types in one file.
///
/// `pkg/srv/X_Event` is defined by `pkg/srv/X`, `pkg/action/X_SendGoal_Request` by `pkg/action/X`; all others by themselves.
pub fn defining_type(type_name: &str) -> &str {
    let kind = type_name.split('/').nth(1).unwrap_or_default();
    match kind {
        "srv" => strip_one(type_name, &["_Request", "_Response", "_Event"]),
        "action" => {
            let service = strip_one(type_name, &["_Request", "_Response", "_Event"]);
            let derived = [
                "_SendGoal",
                "_GetResult",
                "_FeedbackMessage",
                "_Goal",
                "_Result",
                "_Feedback",
            ];
            strip_one(service, &derived)
        }
        _ => type_name,
    }
}

/// The full name of a message that has its short name in `.msg` texts and in other programs' MCAP files:
/// `pkg/msg/X` for `pkg/X`.
pub(crate) fn full_type_name(type_name: &str) -> Cow<'_, str> {
    match type_name.split_once('/') {
        Some((package, name)) if !name.contains('/') => Cow::Owned(format!("{package}/msg/{name}")),
        _ => Cow::Borrowed(type_name),
    }
}

/// The name without the first of the suffixes that it ends with.
fn strip_one<'a>(name: &'a str, suffixes: &[&str]) -> &'a str {
    suffixes
        .iter()
        .find_map(|suffix| name.strip_suffix(suffix))
        .unwrap_or(name)
}

/// Longest name of a type in bytes: 255 minus the bytes that DDS adds.
const TYPE_NAME_BYTES_MAX: usize = 245;

/// Checks the full name of a type such as `std_msgs/msg/String`.
///
/// # Errors
/// A text that does not have the form of a type name, or is longer than DDS allows.
pub fn validate_type_name(type_name: &str) -> Result<(), InterfaceError> {
    let shown = || type_name.chars().take(TYPE_NAME_BYTES_MAX).collect();
    match split_type_name(type_name) {
        Ok(_) if type_name.len() <= TYPE_NAME_BYTES_MAX => Ok(()),
        _ => Err(InterfaceError::TypeName { type_name: shown() }),
    }
}

/// Package, kind (`msg`, `srv`, `action`) and name of a type.
fn split_type_name(type_name: &str) -> Result<(&str, &str, &str), InterfaceError> {
    let mut tokens = type_name.split('/');
    match (tokens.next(), tokens.next(), tokens.next(), tokens.next()) {
        (Some(package), Some(kind), Some(name), None)
            if is_identifier(package) && is_identifier(kind) && is_identifier(name) =>
        {
            Ok((package, kind, name))
        }
        _ => Err(InterfaceError::TypeName {
            type_name: type_name.to_owned(),
        }),
    }
}

/// Letters, digits and `_`, beginning with a letter.
pub(crate) fn is_identifier(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn derived_types_lead_to_the_file_that_defines_them() {
        assert_eq!(defining_type("std_msgs/msg/String"), "std_msgs/msg/String");
        assert_eq!(defining_type("a/msg/Odd_Event"), "a/msg/Odd_Event");
        for suffix in ["", "_Request", "_Response", "_Event"] {
            assert_eq!(defining_type(&format!("a/srv/Add{suffix}")), "a/srv/Add");
        }
        let action = [
            "",
            "_Goal",
            "_Result",
            "_Feedback",
            "_FeedbackMessage",
            "_SendGoal",
            "_GetResult",
        ];
        let services = [
            "_SendGoal_Request",
            "_SendGoal_Event",
            "_GetResult_Response",
            "_GetResult_Event",
        ];
        for suffix in action.into_iter().chain(services) {
            assert_eq!(defining_type(&format!("a/action/Fib{suffix}")), "a/action/Fib");
        }
    }

    #[test]
    fn errors_read_as_sentences() {
        let missing = |needed_by: Option<&str>| InterfaceError::NotFound {
            type_name: "a/msg/B".to_owned(),
            needed_by: needed_by.map(str::to_owned),
        };
        assert_eq!(missing(None).to_string(), "no definition of a/msg/B was found");
        assert_eq!(
            missing(Some("a/msg/C")).to_string(),
            "no definition of a/msg/B was found, which a/msg/C needs"
        );
    }
}
