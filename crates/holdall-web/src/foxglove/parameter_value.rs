//! Values of parameters: `rcl_interfaces/msg/ParameterValue` and the viewers' form.

use serde_json::{Number, Value, json};

/// `rcl_interfaces/msg/ParameterType`, with the field that has the value.
const FIELDS: [&str; 10] = [
    "",
    "bool_value",
    "integer_value",
    "double_value",
    "string_value",
    "byte_array_value",
    "bool_array_value",
    "integer_array_value",
    "double_array_value",
    "string_array_value",
];

const BOOL: u64 = 1;
const INTEGER: u64 = 2;
const DOUBLE: u64 = 3;
const TEXT: u64 = 4;
const BYTES: u64 = 5;
const BOOLS: u64 = 6;
const INTEGERS: u64 = 7;
const DOUBLES: u64 = 8;
const TEXTS: u64 = 9;

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// A parameter for viewers.
pub(super) fn of_ros(name: &str, value: &Value) -> Value {
    let kind = value["type"].as_u64().unwrap_or(0);
    let field = FIELDS
        .get(usize::try_from(kind).unwrap_or(0))
        .copied()
        .unwrap_or_default();
    let content = value.get(field).cloned().unwrap_or(Value::Null);
    match kind {
        DOUBLE => json!({"name": name, "value": content, "type": "float64"}),
        DOUBLES => json!({"name": name, "value": content, "type": "float64_array"}),
        BYTES => json!({"name": name, "value": to_base64(&content), "type": "byte_array"}),
        _ => json!({"name": name, "value": content}),
    }
}

/// A value of a viewer as ROS has it: of the type `kind` that the viewer states, else of the type that the parameter is known to have where it
/// fits, else of the value's own. The reason when there is none.
pub(super) fn to_ros(value: &Value, kind: Option<&str>, known: Option<u64>) -> Result<Value, String> {
    let of = |kind: u64, content: Value| {
        let mut value = json!({"type": kind});
        value[FIELDS[usize::try_from(kind).unwrap_or(0)]] = content;
        Ok(value)
    };
    let is_double = kind == Some("float64") || known == Some(DOUBLE);
    match value {
        // Without a value a parameter is removed.
        Value::Null => Ok(json!({"type": 0})),
        Value::Bool(_) => of(BOOL, value.clone()),
        Value::Number(number) if is_double || !number.is_i64() => of(DOUBLE, double(number)?),
        Value::Number(_) => of(INTEGER, value.clone()),
        Value::String(text) if kind == Some("byte_array") => of(BYTES, from_base64(text)?),
        Value::String(_) => of(TEXT, value.clone()),
        Value::Array(list) => {
            let are_doubles = kind == Some("float64_array") || known == Some(DOUBLES);
            let numbers = list.iter().filter_map(Value::as_number).count() == list.len();
            let integers = list.iter().all(Value::is_i64);
            match known {
                Some(known @ BYTES..=TEXTS) if list.is_empty() => of(known, value.clone()),
                _ if list.iter().all(Value::is_string) => of(TEXTS, value.clone()),
                _ if list.iter().all(Value::is_boolean) => of(BOOLS, value.clone()),
                _ if integers && !are_doubles => of(INTEGERS, value.clone()),
                _ if numbers => {
                    let doubles = list.iter().filter_map(Value::as_number).map(double);
                    of(DOUBLES, Value::Array(doubles.collect::<Result<_, _>>()?))
                }
                _ => Err("a list has values of one type".to_owned()),
            }
        }
        Value::Object(_) => Err("a parameter cannot be an object".to_owned()),
    }
}

/// Written with a decimal point, even if it is whole.
fn double(number: &Number) -> Result<Value, String> {
    let value = number.as_f64().and_then(Number::from_f64);
    value
        .map(Value::Number)
        .ok_or_else(|| format!("{number} is not a 64-bit number"))
}

fn to_base64(bytes: &Value) -> String {
    let bytes: Vec<u8> = bytes
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|byte| u8::try_from(byte.as_u64()?).ok())
        .collect();
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let mut word = [0; 3];
        word[..three.len()].copy_from_slice(three);
        let word = u32::from_be_bytes([0, word[0], word[1], word[2]]);
        for place in 0..4 {
            let digit = BASE64[(word >> (18 - 6 * place)) as usize & 63];
            text.push(if place <= three.len() {
                char::from(digit)
            } else {
                '='
            });
        }
    }
    text
}

fn from_base64(text: &str) -> Result<Value, String> {
    let wrong = || "bytes are written in base64".to_owned();
    let (mut word, mut bits, mut bytes) = (0_u32, 0, Vec::new());
    for letter in text.trim_end_matches('=').bytes() {
        let digit = BASE64
            .iter()
            .position(|known| *known == letter)
            .ok_or_else(wrong)?;
        word = word << 6 | digit as u32;
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push((word >> bits) as u8);
        }
    }
    Ok(json!(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_back_as_they_were() {
        for value in [
            json!({"type": 1, "bool_value": true}),
            json!({"type": 2, "integer_value": -5}),
            json!({"type": 3, "double_value": 2.0}),
            json!({"type": 4, "string_value": "x"}),
            json!({"type": 5, "byte_array_value": [0, 1, 254, 255]}),
            json!({"type": 6, "bool_array_value": [true, false]}),
            json!({"type": 7, "integer_array_value": [1, 2]}),
            json!({"type": 8, "double_array_value": [1.0, 2.5]}),
            json!({"type": 9, "string_array_value": ["a"]}),
            json!({"type": 7, "integer_array_value": []}),
        ] {
            let shown = of_ros("/n.p", &value);
            let back = to_ros(&shown["value"], shown["type"].as_str(), value["type"].as_u64());
            assert_eq!(back, Ok(value), "{shown}");
        }
        assert_eq!(
            of_ros("/n.p", &json!({"type": 0})),
            json!({"name": "/n.p", "value": null})
        );
    }

    #[test]
    fn what_a_viewer_writes_gets_the_type_that_it_fits() {
        let kind = |value: Value, kind, known| to_ros(&value, kind, known).map(|value| value["type"].clone());
        assert_eq!(kind(json!(5), None, None), Ok(json!(2)));
        assert_eq!(kind(json!(5), None, Some(3)), Ok(json!(3)));
        assert_eq!(kind(json!(5), Some("float64"), None), Ok(json!(3)));
        assert_eq!(kind(json!(5.5), None, Some(2)), Ok(json!(3)));
        assert_eq!(kind(json!([1, 2.5]), None, None), Ok(json!(8)));
        assert_eq!(kind(json!("AAE="), Some("byte_array"), None), Ok(json!(5)));
        assert!(kind(json!([1, "a"]), None, None).is_err());
        assert!(kind(json!({}), None, None).is_err());
        assert!(kind(json!("*"), Some("byte_array"), None).is_err());
    }
}
