//! Tests of plans of JSON schemas.

use super::*;
use crate::dynamic::text::{JsonVisitor, TextOptions};
use proptest::prelude::*;
use serde_json::{Map, Value as Json, json};

fn plan(schema: &Json) -> JsonPlan {
    JsonPlan::compile("T", &schema.to_string()).unwrap()
}

/// The type's fields with their types.
fn fields(plan: &JsonPlan) -> Vec<String> {
    let plan = plan.plan();
    let fields = plan.root().fields.iter();
    fields
        .map(|field| format!("{} {}", field.type_text(plan), field.name))
        .collect()
}

/// What readers of CDR find in a message.
fn read(plan: &JsonPlan, message: &Json) -> Result<Json, String> {
    let payload = plan
        .encode(message.to_string().as_bytes())
        .map_err(|error| error.to_string())?;
    let mut text = Vec::new();
    let options = TextOptions::default();
    let mut visitor = JsonVisitor::new(plan.plan(), &mut text, &options);
    plan.plan().walk(&payload, &mut visitor).unwrap();
    Ok(serde_json::from_slice(&text).unwrap())
}

#[test]
fn each_property_is_a_field_of_its_type() {
    let plan = plan(&json!({
        "type": "object",
        "required": ["n", "i", "u", "b", "s", "bytes", "list", "in", "many", "any"],
        "properties": {
            "n": {"type": "number"},
            "i": {"type": "integer"},
            "u": {"type": "integer", "format": "uint64"},
            "b": {"type": "boolean"},
            "s": {"type": "string"},
            "bytes": {"type": "string", "contentEncoding": "base64"},
            "list": {"type": "array", "items": {"type": "integer"}},
            "in": {"properties": {"x": {"type": "integer"}}},
            "many": {"type": "array", "items": {"$ref": "#/$defs/a~1b"}},
            "any": {},
            "maybe i": {"type": "integer"},
            "maybe b": {"type": ["null", "boolean"]},
        },
        "$defs": {"a/b": {"type": "object", "required": ["y"], "properties": {"y": {"type": "integer"}}}},
    }));
    // In the order of the schema, where `json!` has them by name.
    assert_eq!(
        fields(&plan),
        [
            "string any",
            "bool b",
            "uint8[] bytes",
            "int64 i",
            "T/in in",
            "int64[] list",
            "T/many[] many",
            "float64 maybe b",
            "float64 maybe i",
            "float64 n",
            "string s",
            "uint64 u",
        ]
    );
    let message = json!({
        "n": 1, "i": 9_007_199_254_740_993_i64, "u": u64::MAX, "b": true, "s": "ä\n", "bytes": "AAEC", "list": [1, 2.0],
        "in": {"x": 3, "more": 1}, "many": [{"y": 1}, {"y": 2}], "any": {"k": [null, "ä"]}, "maybe b": true, "unknown": 5,
    });
    assert_eq!(
        read(&plan, &message).unwrap(),
        json!({
            "n": 1.0, "i": 9_007_199_254_740_993_i64, "u": u64::MAX, "b": true, "s": "ä\n", "bytes": [0, 1, 2], "list": [1, 2],
            "in": {"x": 3.0}, "many": [{"y": 1}, {"y": 2}], "any": "{\"k\":[null,\"ä\"]}", "maybe i": "NaN", "maybe b": 1.0,
        })
    );
}

#[test]
fn types_are_found_where_schemas_have_them() {
    let cases = [
        (json!({"enum": ["a", "b"]}), "string"),
        (json!({"enum": [1, 2, null]}), "float64"),
        (json!({"const": 3}), "int64"),
        (json!({"enum": [1, "a"]}), "string"),
        (json!({"type": ["integer", "number"]}), "float64"),
        (json!({"type": ["integer", "string"]}), "string"),
        (
            json!({"oneOf": [{"const": 0, "title": "A"}, {"const": 1}]}),
            "int64",
        ),
        (
            json!({"anyOf": [{"type": "integer"}, {"type": "null"}]}),
            "float64",
        ),
        (json!({"anyOf": [{"type": "string"}, {"type": "null"}]}), "string"),
        (
            json!({"anyOf": [{"type": "integer"}, {"type": "number"}]}),
            "float64",
        ),
        (
            json!({"allOf": [{"$ref": "#/definitions/I"}], "description": "x"}),
            "int64",
        ),
        (json!({"$ref": "#/definitions/I"}), "int64"),
        (json!({"$ref": "#/definitions/none"}), "string"),
        (json!({"$ref": "https://example.com/x"}), "string"),
        (json!({"$ref": "#"}), "string"),
        (json!({"$ref": "#/definitions/Self"}), "string"),
        (json!({"type": "integer", "nullable": true}), "float64"),
        (json!({"items": {"type": "boolean"}}), "bool[]"),
        (json!({"items": {"type": ["boolean", "null"]}}), "float64[]"),
        (
            json!({"type": "array", "items": {"type": "array", "items": {"type": "number"}}}),
            "string",
        ),
        (json!({"type": "array", "items": [{"type": "number"}]}), "string"),
        (
            json!({"type": "array", "prefixItems": [{}], "items": {"type": "number"}}),
            "string",
        ),
        (json!({"type": "array"}), "string"),
        (json!({"type": "object"}), "string"),
        (
            json!({"type": "object", "additionalProperties": {"type": "number"}}),
            "string",
        ),
        (
            json!({"type": "object", "anyOf": [{"properties": {"x": {}}}, {"type": "null"}]}),
            "T/p",
        ),
        (json!(true), "string"),
    ];
    for (schema, expected) in cases {
        let whole = json!({
            "$ref": "#/definitions/Root",
            "definitions": {
                "Root": {"type": "object", "required": ["p"], "properties": {"p": schema}},
                "I": {"type": "integer"},
                "Self": {"$ref": "#/definitions/Self"},
            },
        });
        assert_eq!(fields(&plan(&whole)), [format!("{expected} p")], "{schema}");
    }
}

#[test]
fn a_message_of_another_type_is_one_clear_error() {
    let plan = plan(&json!({
        "type": "object",
        "required": ["i", "in"],
        "properties": {
            "i": {"type": "integer"},
            "n": {"type": "number"},
            "b": {"type": "boolean"},
            "s": {"type": "string"},
            "list": {"type": "array", "items": {"type": "integer"}},
            "in": {"type": "object", "required": ["x"], "properties": {"x": {"type": "string"}}},
            "bytes": {"type": "string", "contentEncoding": "base64"},
        },
    }));
    let good = json!({"i": 1, "in": {"x": ""}});
    assert_eq!(read(&plan, &good).unwrap()["n"], "NaN");
    let cases = [
        ("i", json!("1"), "T i: expected a whole number in"),
        ("i", json!(1.5), "T i: expected a whole number in"),
        ("i", json!(null), "T i: expected a whole number in"),
        ("n", json!("x"), "T n: expected a number, found \"x\""),
        ("b", json!(1), "T b: expected true or false, found 1"),
        ("s", json!(1), "T s: expected a text, found 1"),
        ("list", json!([1, "a"]), "T list[1]: expected a whole number in"),
        ("list", json!(1), "T list: expected a list, found 1"),
        ("in", json!({}), "T in.x: expected a value, found none"),
        ("in", json!([]), "T in: expected an object, found a list of 0"),
        (
            "bytes",
            json!("?"),
            "T bytes: expected a text of base64, found \"?\"",
        ),
    ];
    for (name, value, expected) in cases {
        let mut message = good.clone();
        message[name] = value;
        let error = read(&plan, &message).unwrap_err();
        assert!(error.starts_with(expected), "{error}");
    }
    for (text, expected) in [
        (&b"[1]"[..], "T: expected an object, found a list of 1"),
        (b"{", "T: expected a JSON text, found not JSON: EOF"),
        (b"\xff", "T: expected UTF-8, found"),
        (b"{\"in\": {\"x\": \"\"}}", "T i: expected a value, found none"),
    ] {
        let error = plan.encode(text).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
}

#[test]
fn schemas_without_columns_and_beyond_the_bounds_are_refused() {
    let wide = |levels: usize| {
        let mut definitions = Map::new();
        for level in 0..levels {
            let next = json!({"$ref": format!("#/$defs/d{}", level + 1)});
            definitions.insert(format!("d{level}"), json!({"properties": {"a": next, "b": next}}));
        }
        definitions.insert(format!("d{levels}"), json!({"type": "number"}));
        json!({"$ref": "#/$defs/d0", "$defs": definitions})
    };
    let unions = {
        let mut definitions = Map::new();
        for level in 0..100 {
            let next = json!({"$ref": format!("#/$defs/d{}", level + 1)});
            definitions.insert(format!("d{level}"), json!({"anyOf": [next, next]}));
        }
        definitions.insert("d100".to_owned(), json!({"type": "number"}));
        json!({"properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": definitions})
    };
    let mut chain = Map::new();
    for level in 0..5000 {
        let next = json!({"$ref": format!("#/$defs/d{}", level + 1)});
        chain.insert(format!("d{level}"), json!({"anyOf": [next]}));
    }
    let chain = json!({"properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": chain});
    assert_eq!(fields(&plan(&chain)), ["string a"]);
    let cases = [
        (json!({}), "names no properties"),
        (json!({"type": "object"}), "names no properties"),
        (
            json!({"type": "array", "items": {"type": "number"}}),
            "names no properties",
        ),
        (
            json!({"oneOf": [{"properties": {"a": {}}}, {"properties": {"b": {}}}]}),
            "names no properties",
        ),
        (wide(12), "more than 4096 fields"),
        (unions, "more than 32768 parts"),
        (
            json!({"properties": {"a.b": {}, "a": {"properties": {"b": {}}}}}),
            "two columns named \"a.b\"",
        ),
        (
            json!({"properties": {"x".repeat(300): {}}}),
            "longer than 256 bytes",
        ),
    ];
    for (schema, expected) in cases {
        let error = JsonPlan::compile("T", &schema.to_string()).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
    for text in ["", "{", "nonsense"] {
        let error = JsonPlan::compile("T", text).unwrap_err();
        assert!(error.starts_with("their schema is not JSON"), "{error}");
    }
}

#[test]
fn a_schema_that_contains_itself_ends_in_json() {
    let node = json!({
        "type": "object",
        "required": ["value"],
        "properties": {
            "value": {"type": "integer"},
            "children": {"type": "array", "items": {"$ref": "#"}},
        },
    });
    let plan = plan(&node);
    assert_eq!(fields(&plan), ["string children", "int64 value"]);
    let message = json!({"value": 1, "children": [{"value": 2}]});
    assert_eq!(
        read(&plan, &message).unwrap(),
        json!({"value": 1, "children": "[{\"value\":2}]"})
    );
}

/// A schema, a value of it, and the content of its field then.
fn described(depth: u32) -> BoxedStrategy<(Json, Json, Json)> {
    // serde_json rounds most others.
    let number = any::<i32>().prop_map(|number| {
        let number = f64::from(number) / 8.0;
        (json!({"type": "number"}), json!(number), json!(number))
    });
    let leaf = prop_oneof![
        number,
        any::<i64>().prop_map(|number| (json!({"type": "integer"}), json!(number), json!(number))),
        any::<bool>().prop_map(|value| (json!({"type": "boolean"}), json!(value), json!(value))),
        ".{0,6}".prop_map(|text| (json!({"type": "string"}), json!(text), json!(text))),
        "[a-zäß \"\n]{0,6}".prop_map(|text| {
            let value = json!({"k": [text, 1]});
            (json!({}), value.clone(), json!(value.to_string()))
        }),
        prop::collection::vec(any::<i64>(), 0..4).prop_map(|list| {
            let schema = json!({"type": "array", "items": {"type": "integer"}});
            (schema, json!(list), json!(list))
        }),
    ];
    if depth == 0 {
        return leaf.boxed();
    }
    prop_oneof![3 => leaf, 1 => object_of(depth - 1)].boxed()
}

fn object_of(depth: u32) -> BoxedStrategy<(Json, Json, Json)> {
    let properties = prop::collection::btree_map("[a-z -]{1,4}", described(depth), 1..5);
    properties
        .prop_map(|properties| {
            let (mut schemas, mut values, mut held) = (Map::new(), Map::new(), Map::new());
            let required: Vec<String> = properties.keys().cloned().collect();
            for (name, (schema, value, holds)) in properties {
                schemas.insert(name.clone(), schema);
                values.insert(name.clone(), value);
                held.insert(name, holds);
            }
            values.insert("not in the schema".to_owned(), json!(1));
            let schema = json!({"type": "object", "properties": schemas, "required": required});
            (schema, Json::Object(values), Json::Object(held))
        })
        .boxed()
}

proptest! {
    #[test]
    fn fields_hold_what_the_message_has((schema, message, held) in object_of(3)) {
        prop_assert_eq!(read(&plan(&schema), &message).unwrap(), held, "{}", schema);
    }

    #[test]
    fn any_schema_and_any_message_end(schema in "[{}\\[\\]:,\"a-z$#/]{0,40}", message in ".{0,30}") {
        if let Ok(plan) = JsonPlan::compile("T", &schema) {
            let _ = plan.encode(message.as_bytes());
        }
    }
}
