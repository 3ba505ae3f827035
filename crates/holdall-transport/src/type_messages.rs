//! The messages of the service `get_type_description`.

use crate::{TypeDescriptionReply, TypeSource};
use holdall_model::{
    cdr::{CdrError, CdrReader, CdrWriter},
    interface::{Field, FieldType, IndividualTypeDescription},
};

/// The payload of a request for a type with its sources.
pub(crate) fn encode_request(type_name: &str, type_hash: &str) -> Vec<u8> {
    let mut writer = CdrWriter::new();
    writer.text(type_name);
    writer.text(type_hash);
    // include_type_sources
    writer.u8(1);
    writer.finish()
}

/// A type and its sources.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Described {
    /// Its name.
    pub type_name: String,
    /// Its own source first, then those of nested types.
    pub sources: Vec<TypeSource>,
    /// Its fields first, then those of nested types.
    pub descriptions: Vec<IndividualTypeDescription>,
}

/// Reads a `GetTypeDescription_Response`: the type, or the node's reason for having none.
pub(crate) fn decode_reply(payload: &[u8]) -> Result<Result<Described, String>, CdrError> {
    let mut reader = CdrReader::new(payload)?;
    let successful = reader.u8()? != 0;
    let reason = reader.text()?.to_owned();
    if !successful {
        return Ok(Err(reason));
    }
    let mut descriptions = Vec::new();
    let type_name = read_description(&mut reader, &mut descriptions)?;
    for _ in 0..reader.sequence_len(8)? {
        read_description(&mut reader, &mut descriptions)?;
    }
    let count = reader.sequence_len(12)?;
    let mut sources = Vec::with_capacity(count);
    for _ in 0..count {
        sources.push(TypeSource {
            type_name: reader.text()?.to_owned(),
            encoding: reader.text()?.to_owned(),
            text: reader.text()?.to_owned(),
        });
    }
    Ok(Ok(Described {
        type_name,
        sources,
        descriptions,
    }))
}

/// Converts a node's answer to a request for the recorder.
pub(crate) fn answer(
    type_name: String,
    type_hash: String,
    outcome: Result<Described, String>,
) -> TypeDescriptionReply {
    let (sources, descriptions) = match outcome {
        Ok(described) => (Ok(described.sources), described.descriptions),
        Err(reason) => (Err(reason), Vec::new()),
    };
    TypeDescriptionReply {
        type_name,
        type_hash,
        sources,
        descriptions,
    }
}

/// Reads an `IndividualTypeDescription`, and keeps it unless a field has a type that ROS 2 does not use;
/// returns the type's name.
fn read_description(
    reader: &mut CdrReader<'_>,
    descriptions: &mut Vec<IndividualTypeDescription>,
) -> Result<String, CdrError> {
    let type_name = reader.text()?.to_owned();
    // A field takes its name, type id, two capacities, nested type and default value: 29 bytes or more.
    let count = reader.sequence_len(29)?;
    let mut fields = Vec::with_capacity(count);
    for _ in 0..count {
        let name = reader.text()?;
        let (type_id, capacity, string_capacity) = (reader.u8()?, reader.u64()?, reader.u64()?);
        let nested = reader.text()?;
        // The default value, which a definition's hash does not cover.
        reader.text()?;
        let field_type = FieldType::from_parts(type_id, capacity, string_capacity, nested);
        fields.extend(field_type.map(|field_type| Field::new(name, field_type)));
    }
    if fields.len() == count {
        descriptions.push(IndividualTypeDescription::new(type_name.as_str(), fields));
    }
    Ok(type_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn description(writer: &mut CdrWriter, name: &str) {
        writer.text(name);
        writer.sequence_len(1);
        writer.text("x");
        writer.u8(6);
        writer.align(8);
        writer.bytes(&[0; 16]);
        writer.text("");
        writer.text("7");
    }

    fn reply() -> Vec<u8> {
        let mut writer = CdrWriter::new();
        writer.u8(1);
        writer.text("");
        description(&mut writer, "a/msg/B");
        writer.sequence_len(2);
        description(&mut writer, "a/msg/C");
        description(&mut writer, "a/msg/D");
        writer.sequence_len(1);
        writer.text("a/msg/B");
        writer.text("msg");
        writer.text("int32 x\n");
        writer.sequence_len(0);
        writer.finish()
    }

    #[test]
    fn a_request_names_the_type_and_its_hash() {
        let request = encode_request("a/msg/B", "RIHS01_");
        assert_eq!(&request[..9], [0, 1, 0, 0, 8, 0, 0, 0, b'a']);
    }

    #[test]
    fn a_reply_has_sources_and_fields() {
        let described = decode_reply(&reply()).unwrap().unwrap();
        assert_eq!(described.type_name, "a/msg/B");
        assert_eq!(described.sources[0].text, "int32 x\n");
        let names: Vec<&str> = described
            .descriptions
            .iter()
            .map(|it| it.type_name.as_str())
            .collect();
        assert_eq!(names, ["a/msg/B", "a/msg/C", "a/msg/D"]);
        let field = &described.descriptions[0].fields[0];
        assert_eq!((field.name.as_str(), field.field_type.type_id()), ("x", 6));
    }

    #[test]
    fn failure_carries_the_reason() {
        let mut writer = CdrWriter::new();
        writer.u8(0);
        writer.text("Type not currently in use by this node");
        let reply = decode_reply(&writer.finish()).unwrap();
        assert_eq!(reply, Err("Type not currently in use by this node".to_owned()));
    }

    #[test]
    fn cut_replies_are_refused() {
        let whole = reply();
        // The sequence at the end, which is not read, takes the last eight bytes with its padding.
        for len in 0..whole.len() - 8 {
            assert!(decode_reply(&whole[..len]).is_err(), "{len} of {}", whole.len());
        }
    }
}
