//! The service `get_type_description` that every ROS 2 node has: describes the types of a node's topics.

use super::answer::{Answer, text_in};
use holdall_model::interface::{Definition, IndividualTypeDescription, SourceFormat};
use serde_json::{Value, json};

/// Name below the node's, and type.
pub(super) const SERVICE: (&str, &str) = (
    "get_type_description",
    "type_description_interfaces/srv/GetTypeDescription",
);

/// Encoding of the source of a type that was not written as text.
const IMPLICIT: &str = "implicit";

/// Answers a request; `find` knows definitions by name and hash.
pub(super) fn answer(request: &Value, find: impl FnOnce(&str, &str) -> Option<Definition>) -> Answer {
    let (type_name, hash) = (text_in(request, "type_name"), text_in(request, "type_hash"));
    let Some(definition) = find(type_name, hash) else {
        // The words of rcl; a recorder asks all its neighbours, which needs no line in the log.
        let reason = format!("{type_name} with the hash {hash} is not known to this node");
        return Answer::Reply(json!({"successful": false, "failure_reason": reason}));
    };
    let described = definition.description();
    let others = described.referenced_type_descriptions.iter();
    let sources = if request["include_type_sources"] == json!(true) {
        sources(&definition)
    } else {
        Vec::new()
    };
    Answer::Reply(json!({
        "successful": true,
        "type_description": {
            "type_description": individual(described.type_description),
            "referenced_type_descriptions": others.map(|other| individual(other)).collect::<Vec<_>>(),
        },
        "type_sources": sources,
    }))
}

fn individual(description: &IndividualTypeDescription) -> Value {
    let fields = description.fields.iter().map(|field| {
        let of = &field.field_type;
        json!({
            "name": field.name,
            "type": {
                "type_id": of.type_id(),
                "capacity": of.capacity(),
                "string_capacity": of.string_capacity(),
                "nested_type_name": of.nested_type_name(),
            },
        })
    });
    json!({"type_name": description.type_name, "fields": fields.collect::<Vec<_>>()})
}

/// The texts, that of the type itself first; types derived by a service or an action have none.
fn sources(definition: &Definition) -> Vec<Value> {
    let is_message = |name: &str| name.split('/').nth(1) == Some("msg");
    // A bag stores a derived type as the text of a message, which it is not.
    let texts = definition
        .sources()
        .filter(|(name, source)| is_message(name) || source.format != SourceFormat::Msg);
    let described = definition.description();
    let names = std::iter::once(described.type_description)
        .chain(described.referenced_type_descriptions)
        .map(|description| description.type_name.as_str());
    let mut texts: Vec<(&str, &str, &str)> = texts
        .map(|(name, source)| (name, source.format.as_str(), &*source.text))
        .collect();
    let implicit: Vec<&str> = names
        .filter(|name| texts.iter().all(|(text, ..)| text != name))
        .collect();
    texts.extend(implicit.into_iter().map(|name| (name, IMPLICIT, "")));
    texts.sort_by_key(|(name, ..)| *name != definition.type_name());
    let source = |(name, encoding, text): &(&str, &str, &str)| json!({"type_name": name, "encoding": encoding, "raw_file_contents": text});
    texts.iter().map(source).collect()
}
