//! Messages as the structures that nodes publish and take, instead of serialized bytes: what type supports cost, for measurements only.

use super::ffi_entity::Form;

/// Set to 1 by a benchmark for its own workers.
const VARIABLE: &str = "HOLDALL_RMW_STRUCTURES";
/// The type whose structure the shim knows.
const TYPE: &str = "std_msgs/msg/UInt8MultiArray";
/// Bytes of such a serialized message before its content: encapsulation, no dimension, offset, length.
pub(super) const HEAD_BYTES: usize = 16;

/// What is asked for.
pub(super) fn form(variable: &dyn Fn(&str) -> Option<String>) -> Form {
    if variable(VARIABLE).as_deref() == Some("1") {
        Form::Structures
    } else {
        Form::Bytes
    }
}

/// # Errors
/// One clause about a type that cannot be handed over so.
pub(super) fn check(form: Form, type_name: &str) -> Result<(), String> {
    if form == Form::Bytes || type_name == TYPE {
        return Ok(());
    }
    Err(format!(
        "{VARIABLE} is set, and {type_name} is not {TYPE}, the only type with a known structure"
    ))
}

/// What the serialized message begins with.
pub(super) fn head(content_bytes: usize) -> [u8; HEAD_BYTES] {
    let mut head = [0; HEAD_BYTES];
    head[1] = 1;
    let length = u32::try_from(content_bytes).unwrap_or(u32::MAX);
    head[12..].copy_from_slice(&length.to_le_bytes());
    head
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_known_type_is_handed_over_as_a_structure() {
        let structures = form(&|name| (name == VARIABLE).then(|| "1".to_owned()));
        assert_eq!(structures, Form::Structures);
        assert_eq!(form(&|_| None), Form::Bytes);
        assert!(check(structures, TYPE).is_ok());
        assert!(check(structures, "std_msgs/msg/String").is_err());
        assert!(check(Form::Bytes, "std_msgs/msg/String").is_ok());
        assert_eq!(head(258)[12..], [2, 1, 0, 0]);
    }
}
