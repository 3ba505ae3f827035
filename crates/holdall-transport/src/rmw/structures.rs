//! Messages as the structures that nodes publish and take, instead of serialized bytes. For measuring the costs of type supports only. All
//! messages of a publisher have the content of its first one, but each its own number.

use super::{
    ffi::{Shim, TypeSupport},
    ffi_structure::Structure,
    types::parts_of,
};
use std::sync::Arc;

/// Set to 1 by a benchmark for its own workers.
const VARIABLE: &str = "HOLDALL_RMW_STRUCTURES";
/// The type whose content begins with the number, after encapsulation, no dimension, offset and length.
const BYTES_TYPE: &str = "std_msgs/msg/UInt8MultiArray";
const BYTES_NUMBER_AT: usize = 16;
/// Other types that can be measured: they begin with a time stamp, which the number replaces.
const STAMPED_TYPES: [&str; 2] = ["sensor_msgs/msg/PointCloud2", "geometry_msgs/msg/PoseArray"];
const STAMPED_NUMBER_AT: usize = 4;
const NUMBER_BYTES: usize = 8;

/// Whether the user requested structures.
pub(super) fn are_wanted(variable: &dyn Fn(&str) -> Option<String>) -> bool {
    variable(VARIABLE).as_deref() == Some("1")
}

/// The structure of a topic's messages.
pub(super) struct Typed {
    pub structure: Structure,
    number_at: usize,
    is_filled: bool,
}

impl Typed {
    /// An empty one.
    ///
    /// # Errors
    /// One clause about a type whose number has no place, or that is not installed.
    pub(super) fn new(shim: &Arc<Shim>, types: TypeSupport, type_name: &str) -> Result<Self, String> {
        let number_at = number_at(type_name)?;
        let (package, name) = parts_of(type_name).ok_or_else(|| format!("{type_name} is not a ROS type"))?;
        let library = format!("lib{package}__rosidl_generator_c.so");
        Ok(Self {
            structure: Structure::new(shim, types, &library, &name)?,
            number_at,
            is_filled: false,
        })
    }

    /// The number of a serialized message, whose content the structure gets if it has none.
    ///
    /// # Errors
    /// A message that is too short, or none of the type.
    pub(super) fn number_of(&mut self, message: &[u8]) -> Result<u64, String> {
        let number = message.get(self.number_at..).and_then(<[u8]>::first_chunk);
        let number = number.ok_or("a message without a number")?;
        if !self.is_filled {
            self.structure.fill(message)?;
            self.is_filled = true;
        }
        Ok(u64::from_le_bytes(*number))
    }

    /// The beginning of a serialized message, up to its number.
    pub(super) fn beginning(&self, number: u64) -> ([u8; BYTES_NUMBER_AT + NUMBER_BYTES], usize) {
        let mut beginning = [0; BYTES_NUMBER_AT + NUMBER_BYTES];
        let end = self.number_at + NUMBER_BYTES;
        beginning[self.number_at..end].copy_from_slice(&number.to_le_bytes());
        (beginning, end)
    }
}

/// Offset of a message's number once it is serialized.
fn number_at(type_name: &str) -> Result<usize, String> {
    if type_name == BYTES_TYPE {
        return Ok(BYTES_NUMBER_AT);
    }
    if STAMPED_TYPES.contains(&type_name) {
        return Ok(STAMPED_NUMBER_AT);
    }
    Err(format!(
        "{VARIABLE} is set, and {type_name} is none of {BYTES_TYPE}, {}",
        STAMPED_TYPES.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_types_are_handed_over_as_structures() {
        assert!(are_wanted(&|name| (name == VARIABLE).then(|| "1".to_owned())));
        assert!(!are_wanted(&|_| None));
        assert_eq!(number_at(BYTES_TYPE), Ok(16));
        assert_eq!(number_at("sensor_msgs/msg/PointCloud2"), Ok(4));
        assert!(
            number_at("std_msgs/msg/String")
                .unwrap_err()
                .contains("none of std_msgs")
        );
    }
}
