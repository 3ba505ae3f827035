//! The messages of the service `get_type_description`, in the two ways that rmw implementations wrap them.

use crate::{TypeDescriptionReply, TypeSource};
use holdall_model::{
    cdr::{CdrError, CdrReader, CdrWriter},
    interface::{Field, FieldType, IndividualTypeDescription},
    topic::Gid,
};

/// Largest answer that is read, in bytes; the sources of a type and all types in it are some hundred
/// kilobytes at most.
pub(crate) const ANSWER_BYTES_MAX: usize = 16 << 20;

/// How requests and replies are wrapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mapping {
    /// The body only; the transport correlates (rmw_fastrtps and others).
    Bare,
    /// The client's identifier and a sequence number before the body (rmw_cyclonedds).
    Header { client: u64 },
}

/// How rmw_cyclonedds names a client: any number that no other client has.
pub(crate) fn client_id(writer: Gid) -> u64 {
    let (mut high, mut low) = ([0; 8], [0; 8]);
    high.copy_from_slice(&writer.0[..8]);
    low.copy_from_slice(&writer.0[8..]);
    u64::from_le_bytes(high) ^ u64::from_le_bytes(low).rotate_left(32)
}

/// The payload of a request for a type with its sources.
pub(crate) fn encode_request(mapping: Mapping, number: u64, type_name: &str, type_hash: &str) -> Vec<u8> {
    let mut writer = CdrWriter::new();
    if let Mapping::Header { client } = mapping {
        writer.bytes(&client.to_le_bytes());
        writer.bytes(&number.to_le_bytes());
    }
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

/// `GetTypeDescription_Response`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    /// The request's number, with [`Mapping::Header`].
    pub number: Option<u64>,
    /// The answer, or the node's reason for having none.
    pub outcome: Result<Described, String>,
}

impl Reply {
    /// Reads a reply; `None` when it is for another client.
    pub(crate) fn decode(mapping: Mapping, payload: &[u8]) -> Result<Option<Self>, CdrError> {
        let mut reader = CdrReader::new(payload)?;
        let mut number = None;
        if let Mapping::Header { client } = mapping {
            let for_client = reader.u64()?;
            number = Some(reader.u64()?);
            if for_client != client {
                return Ok(None);
            }
        }
        let successful = reader.u8()? != 0;
        let reason = reader.text()?.to_owned();
        if !successful {
            return Ok(Some(Self {
                number,
                outcome: Err(reason),
            }));
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
        Ok(Some(Self {
            number,
            outcome: Ok(Described {
                type_name,
                sources,
                descriptions,
            }),
        }))
    }
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

    fn request(mapping: Mapping) -> Vec<u8> {
        encode_request(mapping, 5, "a/msg/B", "RIHS01_")
    }

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

    fn reply(header: Option<(u64, u64)>) -> Vec<u8> {
        let mut writer = CdrWriter::new();
        if let Some((client, number)) = header {
            writer.bytes(&client.to_le_bytes());
            writer.bytes(&number.to_le_bytes());
        }
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
    fn request_is_the_body_or_a_header_and_the_body() {
        let bare = request(Mapping::Bare);
        assert_eq!(&bare[..9], [0, 1, 0, 0, 8, 0, 0, 0, b'a']);
        let wrapped = request(Mapping::Header { client: 3 });
        assert_eq!(wrapped[4..12], 3u64.to_le_bytes());
        assert_eq!(wrapped[12..20], 5u64.to_le_bytes());
        assert_eq!(wrapped[20..], bare[4..]);
    }

    #[test]
    fn both_mappings_are_read() {
        let bare = Reply::decode(Mapping::Bare, &reply(None)).unwrap().unwrap();
        let described = bare.outcome.unwrap();
        assert_eq!((bare.number, described.type_name.as_str()), (None, "a/msg/B"));
        assert_eq!(described.sources[0].text, "int32 x\n");
        let names: Vec<&str> = described
            .descriptions
            .iter()
            .map(|it| it.type_name.as_str())
            .collect();
        assert_eq!(names, ["a/msg/B", "a/msg/C", "a/msg/D"]);
        let field = &described.descriptions[0].fields[0];
        assert_eq!((field.name.as_str(), field.field_type.type_id()), ("x", 6));
        let mapping = Mapping::Header { client: 3 };
        let ours = Reply::decode(mapping, &reply(Some((3, 5)))).unwrap().unwrap();
        assert_eq!((ours.number, ours.outcome), (Some(5), Ok(described)));
        assert_eq!(Reply::decode(mapping, &reply(Some((4, 5)))), Ok(None));
    }

    #[test]
    fn failure_carries_the_reason() {
        let mut writer = CdrWriter::new();
        writer.u8(0);
        writer.text("Type not currently in use by this node");
        let reply = Reply::decode(Mapping::Bare, &writer.finish()).unwrap().unwrap();
        assert_eq!(
            reply.outcome,
            Err("Type not currently in use by this node".to_owned())
        );
    }

    #[test]
    fn cut_replies_are_refused() {
        let whole = reply(None);
        // The sequence at the end, which is not read, takes the last eight bytes with its padding.
        for len in 0..whole.len() - 8 {
            assert!(
                Reply::decode(Mapping::Bare, &whole[..len]).is_err(),
                "{len} of {}",
                whole.len()
            );
        }
    }
}
