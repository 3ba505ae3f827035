//! The JSON schema of contracts, for editors: made of the table that the parser reads by.

use super::keys::{COMMON, Field, KEYS, Key, Kind};
use serde_json::{Map, Value, json};

fn of_kind(kind: Kind) -> Value {
    let text = json!({"type": ["string", "number"]});
    match kind {
        Kind::Flag => json!({"type": "boolean"}),
        Kind::Text | Kind::Expression => json!({"type": "string"}),
        Kind::Names => {
            json!({"oneOf": [{"type": "string"}, {"type": "array", "minItems": 1, "maxItems": 256, "items": {"type": "string"}}]})
        }
        Kind::Span | Kind::Hertz | Kind::Bytes | Kind::Share => text,
        Kind::Count => json!({"type": "integer", "minimum": 0}),
        Kind::Number => json!({"type": "number", "minimum": 0}),
    }
}

fn property(field: &Field) -> (String, Value) {
    let mut schema = match field.name {
        "severity" => json!({"enum": ["fail", "warn"]}),
        "tolerance" => json!({"type": ["string", "number"]}),
        _ => of_kind(field.kind),
    };
    schema["description"] = field.about.into();
    (field.name.to_owned(), schema)
}

fn rule(key: &Key) -> Value {
    let properties: Map<String, Value> = key.fields.iter().chain(COMMON).map(property).collect();
    let required: Vec<&str> = key
        .fields
        .iter()
        .filter(|field| field.is_required)
        .map(|field| field.name)
        .collect();
    let full = json!({"type": "object", "additionalProperties": false, "properties": properties, "required": required});
    let short = key
        .short
        .and_then(|short| key.fields.iter().find(|field| field.name == short));
    let mut forms = vec![full];
    forms.extend(short.map(|field| of_kind(field.kind)));
    if key.is_list {
        let one = forms.clone();
        forms.push(json!({"type": "array", "items": {"anyOf": one}}));
    }
    json!({"description": key.about, "anyOf": forms})
}

/// The JSON schema of a contract.
pub fn json_schema() -> Value {
    let of = |is_of_bag: bool| -> Map<String, Value> {
        let keys = KEYS.iter().filter(|key| key.is_of_bag == is_of_bag);
        keys.map(|key| (key.name.to_owned(), rule(key))).collect()
    };
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Contract of a recording",
        "type": "object",
        "additionalProperties": false,
        "required": ["version"],
        "anyOf": [{"required": ["topics"]}, {"required": ["bag"]}],
        "properties": {
            "version": {"const": 1},
            "name": {"type": "string", "description": "a name for people"},
            "topics": {
                "type": "object",
                "description": "rules by topic or pattern: * is any part of a name, ** any number of parts",
                "additionalProperties": false,
                "patternProperties": {
                    "^/": {"type": "object", "additionalProperties": false, "properties": of(false)},
                },
            },
            "bag": {"type": "object", "description": "rules for the whole bag", "additionalProperties": false, "properties": of(true)},
        },
    })
}
