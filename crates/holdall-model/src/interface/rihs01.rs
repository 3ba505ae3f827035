//! RIHS01 type hashes (REP-2016): SHA-256 of a type description in one fixed JSON form.

use super::{IndividualTypeDescription, TypeDescription};
use sha2::{Digest, Sha256};
use std::fmt::Write;

/// Prefix of every RIHS01 hash.
pub(crate) const RIHS01_PREFIX: &str = "RIHS01_";

/// Whether a text has the form of a RIHS01 hash: the prefix and 64 lower-case hexadecimal digits.
pub fn is_rihs01(text: &str) -> bool {
    text.strip_prefix(RIHS01_PREFIX).is_some_and(|digits| {
        digits.len() == 64
            && digits
                .bytes()
                .all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
    })
}

/// The hash of a type description.
pub(super) fn hash(description: &TypeDescription<'_>) -> String {
    let mut text = RIHS01_PREFIX.to_owned();
    for byte in Sha256::digest(to_json(description)) {
        write!(text, "{byte:02x}").expect("writing to a String cannot fail");
    }
    text
}

/// The JSON that is hashed: keys in the order of the message definition, `, ` and `: ` between, no default
/// values.
fn to_json(description: &TypeDescription<'_>) -> String {
    let mut json = String::from("{\"type_description\": ");
    write_individual(&mut json, description.type_description);
    json.push_str(", \"referenced_type_descriptions\": [");
    for (index, referenced) in description.referenced_type_descriptions.iter().enumerate() {
        json.push_str(if index == 0 { "" } else { ", " });
        write_individual(&mut json, referenced);
    }
    json.push_str("]}");
    json
}

/// Names hold letters, digits, `_` and `/` only (the parsers check that), so no character needs an escape.
fn write_individual(json: &mut String, description: &IndividualTypeDescription) {
    write!(
        json,
        "{{\"type_name\": \"{}\", \"fields\": [",
        description.type_name
    )
    .expect("writing to a String cannot fail");
    for (index, field) in description.fields.iter().enumerate() {
        write!(
            json,
            "{}{{\"name\": \"{}\", \"type\": {{\"type_id\": {}, \"capacity\": {}, \"string_capacity\": {}, \
             \"nested_type_name\": \"{}\"}}}}",
            if index == 0 { "" } else { ", " },
            field.name,
            field.field_type.type_id(),
            field.field_type.capacity(),
            field.field_type.string_capacity(),
            field.field_type.nested_type_name(),
        )
        .expect("writing to a String cannot fail");
    }
    json.push_str("]}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interface::{Element, Field, FieldType};

    #[test]
    fn the_hashed_json_has_the_form_of_the_standard() {
        let string = FieldType::one(Element::String {
            wide: false,
            length_max: None,
        });
        let individual =
            IndividualTypeDescription::new("std_msgs/msg/String", vec![Field::new("data", string)]);
        let description = TypeDescription {
            type_description: &individual,
            referenced_type_descriptions: Vec::new(),
        };
        assert_eq!(
            to_json(&description),
            "{\"type_description\": {\"type_name\": \"std_msgs/msg/String\", \"fields\": [{\"name\": \"data\", \
             \"type\": {\"type_id\": 17, \"capacity\": 0, \"string_capacity\": 0, \"nested_type_name\": \"\"}}]}, \
             \"referenced_type_descriptions\": []}"
        );
        assert_eq!(
            hash(&description),
            "RIHS01_df668c740482bbd48fb39d76a70dfd4bd59db1288021743503259e948f6b1a18"
        );
    }

    #[test]
    fn the_form_of_a_hash_is_checked() {
        assert!(is_rihs01(
            "RIHS01_df668c740482bbd48fb39d76a70dfd4bd59db1288021743503259e948f6b1a18"
        ));
        assert!(!is_rihs01(
            "RIHS02_df668c740482bbd48fb39d76a70dfd4bd59db1288021743503259e948f6b1a18"
        ));
        assert!(!is_rihs01(
            "RIHS01_DF668c740482bbd48fb39d76a70dfd4bd59db1288021743503259e948f6b1a18"
        ));
        assert!(!is_rihs01("RIHS01_df66"));
        assert!(!is_rihs01(""));
    }
}
