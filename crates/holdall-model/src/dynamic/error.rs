//! Why a definition cannot be used, why a payload cannot be decoded, and why a value cannot be encoded.

use crate::interface::InterfaceError;
use std::fmt;

/// Why a definition cannot be compiled to a plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// The definition is not complete.
    #[error(transparent)]
    Interface(#[from] InterfaceError),
    /// A struct that contains one that the definition does not have.
    #[error("the definition of {type_name} does not define {nested}")]
    Nested {
        /// The type that contains it.
        type_name: String,
        /// The missing type.
        nested: String,
    },
    /// A struct that contains itself.
    #[error("the definition of {type_name} contains itself")]
    Cycle {
        /// The type.
        type_name: String,
    },
}

/// Methods that the errors about a field share.
macro_rules! about_a_field {
    ($error:ident) => {
        impl $error {
            /// The expected value or type.
            pub fn expected(&self) -> &str {
                &self.0.expected
            }

            /// The value or type found.
            pub fn found(&self) -> &str {
                &self.0.found
            }

            /// Adds the field's name to the path.
            #[must_use]
            pub fn in_field(mut self, name: &str) -> Self {
                prepend_field(&mut self.0.path, name);
                self
            }

            /// Adds the element's index to the path.
            #[must_use]
            pub fn in_item(mut self, index: u64) -> Self {
                prepend_item(&mut self.0.path, index);
                self
            }

            /// Sets the type's name.
            #[must_use]
            pub fn in_type(mut self, type_name: &str) -> Self {
                type_name.clone_into(&mut self.0.type_name);
                self
            }
        }

        impl fmt::Debug for $error {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }
    };
}

about_a_field!(DecodeError);
about_a_field!(EncodeError);

/// Why a payload cannot be decoded: where, in which field, what was expected and what was found.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
pub struct DecodeError(Box<Fault>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Fault {
    type_name: String,
    path: String,
    /// `None` in a text, where the path names it.
    offset: Option<usize>,
    expected: String,
    found: String,
}

impl DecodeError {
    pub(super) fn new(offset: usize, expected: impl Into<String>, found: impl Into<String>) -> Self {
        Self(Box::new(Fault {
            type_name: String::new(),
            path: String::new(),
            offset: Some(offset),
            expected: expected.into(),
            found: found.into(),
        }))
    }

    /// An error about a message that is a text.
    pub(super) fn of_text(error: EncodeError) -> Self {
        let Misfit {
            type_name,
            path,
            expected,
            found,
        } = *error.0;
        Self(Box::new(Fault {
            type_name,
            path,
            offset: None,
            expected,
            found,
        }))
    }

    /// The field that could not be read, for example `poses[3].position.x`; empty for the message's head.
    pub fn field(&self) -> &str {
        &self.0.path
    }

    /// Bytes from the beginning of the payload; 0 for a message that is a text.
    pub fn offset(&self) -> usize {
        self.0.offset.unwrap_or_default()
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Fault {
            type_name,
            path,
            offset,
            expected,
            found,
        } = &*self.0;
        write!(f, "{type_name}")?;
        if !path.is_empty() {
            write!(f, " {path}")?;
        }
        if let Some(offset) = offset {
            write!(f, " at byte {offset}")?;
        }
        write!(f, ": expected {expected}, found {found}")
    }
}

/// Why a value is not a message of a type: in which field, what was expected and what was found.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
pub struct EncodeError(Box<Misfit>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Misfit {
    type_name: String,
    path: String,
    expected: String,
    found: String,
}

impl EncodeError {
    /// A value that differs from the expected one.
    pub fn new(expected: impl Into<String>, found: impl Into<String>) -> Self {
        Self(Box::new(Misfit {
            type_name: String::new(),
            path: String::new(),
            expected: expected.into(),
            found: found.into(),
        }))
    }

    /// The message's type.
    pub fn type_name(&self) -> &str {
        &self.0.type_name
    }

    /// The field that the value does not fit, for example `header.stamp.sec`; empty for the whole message.
    pub fn field(&self) -> &str {
        &self.0.path
    }
}

impl fmt::Display for EncodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Misfit {
            type_name,
            path,
            expected,
            found,
        } = &*self.0;
        let place = [type_name.as_str(), path].join(" ");
        match place.trim() {
            "" => {}
            place => write!(f, "{place}: ")?,
        }
        write!(f, "expected {expected}, found {found}")
    }
}

/// Puts a field's name before the path inside it.
fn prepend_field(path: &mut String, name: &str) {
    if !path.is_empty() && !path.starts_with('[') {
        path.insert(0, '.');
    }
    path.insert_str(0, name);
}

/// Puts an element's index before the path inside it.
fn prepend_item(path: &mut String, index: u64) {
    prepend_field(path, &format!("[{index}]"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_reads_as_in_a_program() {
        let error = DecodeError::new(12, "4 bytes", "2")
            .in_field("x")
            .in_item(3)
            .in_field("points")
            .in_type("a/msg/B");
        assert_eq!(
            error.to_string(),
            "a/msg/B points[3].x at byte 12: expected 4 bytes, found 2"
        );
        assert_eq!((error.field(), error.offset()), ("points[3].x", 12));
        let error = DecodeError::new(0, "a head of 4 bytes", "1 byte").in_type("a/msg/B");
        assert_eq!(
            error.to_string(),
            "a/msg/B at byte 0: expected a head of 4 bytes, found 1 byte"
        );
    }
}
