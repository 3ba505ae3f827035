//! JSON messages as messages of a type that their JSON schema describes: what reads CDR reads them, too.
//!
//! | Schema | Field |
//! |---|---|
//! | `number` | `float64` |
//! | `integer` | `int64` (`uint64` with that `format`) |
//! | `boolean` | `bool` |
//! | `integer`, `boolean` that a message may lack | `float64`, NaN without a value |
//! | `string` | `string`; base64 (`contentEncoding`) is `uint8[]` |
//! | `object` with `properties` | a struct |
//! | `array` of one of these | a sequence |
//! | anything else | a `string` with the JSON of the value |
//!
//! A message may lack what is not `required`, may be null, or is in an object that it may lack. Then texts and lists are empty, numbers NaN.
//! Keys that no property names are left out. Integers without a value are `float64`, so those beyond 2^53 are rounded there.

mod schema;
#[cfg(test)]
mod tests;

use super::{
    DecodeError, EncodeError, TypePlan,
    encode::{Literal, Plain, Plains, Representation, VALUE_BYTES_MAX, Value},
    text::write_json_string,
};
use crate::interface::{
    Arity, Element, Field, FieldType, IndividualTypeDescription, Primitive, TypeDescription,
};
use base64::{Engine, engine::general_purpose::STANDARD};
use schema::{Shape, Slot};
use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

/// Longest schema, in bytes.
const SCHEMA_BYTES_MAX: usize = 1 << 20;
/// Most values of one message: an object that lacks its fields has a value for each of them, too.
const VALUES_MAX: u64 = VALUE_BYTES_MAX / size_of::<Value>() as u64;

/// A JSON schema, ready to encode its messages as CDR.
#[derive(Clone, Debug)]
pub struct JsonPlan {
    plan: Arc<TypePlan>,
    root: Object,
    has_rounded: Arc<AtomicBool>,
}

/// The state of encoding one message.
struct Encoding {
    values_left: u64,
    /// An integer did not fit a double exactly and was rounded.
    has_rounded: bool,
}

/// An object whose properties are fields.
#[derive(Clone, Debug)]
struct Object {
    by_name: HashMap<String, usize>,
    fields: Vec<(String, Place)>,
}

/// The place of a field's values.
#[derive(Clone, Debug)]
struct Place {
    kind: Kind,
    is_optional: bool,
}

#[derive(Clone, Debug)]
enum Kind {
    Number,
    Integer(Primitive),
    Boolean,
    Text,
    Octets,
    Json,
    Object(Object),
    List(Box<Place>),
}

impl JsonPlan {
    /// Compiles the schema of a type's messages.
    ///
    /// # Errors
    /// One clause about the messages: their schema is not JSON, names no properties, or is beyond the bounds.
    pub fn compile(type_name: &str, schema: &str) -> Result<Self, String> {
        if schema.len() > SCHEMA_BYTES_MAX {
            return Err(format!("their schema is longer than {SCHEMA_BYTES_MAX} bytes"));
        }
        let schema = Literal::from_json(schema).map_err(|error| format!("their schema is {error}"))?;
        let fields = schema::read(&schema)?;
        let mut names = HashSet::new();
        check_names(&fields, "", &mut names)?;
        let mut structs = Vec::new();
        let root = object(fields, type_name, &mut structs);
        let (last, nested) = structs.split_last().ok_or("their schema names no properties")?;
        let description = TypeDescription {
            type_description: last,
            referenced_type_descriptions: nested.iter().collect(),
        };
        let plan = TypePlan::without_defaults(&description).map_err(|error| error.to_string())?;
        Ok(Self {
            plan: Arc::new(plan),
            root,
            has_rounded: Arc::default(),
        })
    }

    /// The type of the messages.
    pub fn plan(&self) -> &Arc<TypePlan> {
        &self.plan
    }

    /// Whether an integer of a message was rounded: one that a message may lack is a `float64`.
    pub fn has_rounded(&self) -> bool {
        self.has_rounded.load(Ordering::Relaxed)
    }

    /// A message as CDR of the type.
    ///
    /// # Errors
    /// A text that is not JSON, or a value of another type than its schema's.
    pub fn encode(&self, text: &[u8]) -> Result<Vec<u8>, DecodeError> {
        self.encoded(text)
            .map_err(|error| DecodeError::of_text(error.in_type(self.plan.type_name())))
    }

    fn encoded(&self, text: &[u8]) -> Result<Vec<u8>, EncodeError> {
        let text = std::str::from_utf8(text).map_err(|error| EncodeError::new("UTF-8", error.to_string()))?;
        let literal =
            Literal::from_json(text).map_err(|error| EncodeError::new("a JSON text", error.to_string()))?;
        let mut encoding = Encoding {
            values_left: VALUES_MAX,
            has_rounded: false,
        };
        let value = self.root.value(Some(&literal), &mut encoding)?;
        if encoding.has_rounded {
            self.has_rounded.store(true, Ordering::Relaxed);
        }
        let mut payload = Vec::new();
        self.plan
            .encode(&value, Representation::default(), &mut payload)?;
        Ok(payload)
    }
}

impl Object {
    /// The struct of an object; of one that a message lacks, all fields lack, too.
    fn value(&self, given: Option<&Literal>, encoding: &mut Encoding) -> Result<Value, EncodeError> {
        let entries = match given {
            Some(Literal::Map(entries)) => entries.as_slice(),
            None => &[],
            Some(other) => return Err(EncodeError::new("an object", other.noun())),
        };
        let mut found = vec![None; self.fields.len()];
        for (name, literal) in entries {
            if let Some(index) = self.by_name.get(name) {
                found[*index] = Some(literal);
            }
        }
        let fields = self.fields.iter().zip(found);
        let values = fields
            .map(|((name, place), given)| place.value(given, encoding).map_err(|error| error.in_field(name)));
        Ok(Value::Struct(values.collect::<Result<_, _>>()?))
    }
}

impl Place {
    fn value(&self, given: Option<&Literal>, encoding: &mut Encoding) -> Result<Value, EncodeError> {
        encoding.values_left = encoding
            .values_left
            .checked_sub(1)
            .ok_or_else(|| EncodeError::new(format!("at most {VALUES_MAX} values"), "more"))?;
        let is_json = matches!(self.kind, Kind::Json);
        let given = given.filter(|literal| is_json || !self.is_optional || **literal != Literal::Null);
        match (&self.kind, given) {
            (Kind::Object(object), Some(_)) => object.value(given, encoding),
            (Kind::Object(object), None) if self.is_optional => object.value(None, encoding),
            (Kind::List(items), _) if given.is_some() || self.is_optional => {
                let given = match given {
                    Some(Literal::List(given)) => given.as_slice(),
                    None => &[],
                    Some(other) => return Err(EncodeError::new("a list", other.noun())),
                };
                items.list(given, encoding)
            }
            (Kind::Text | Kind::Json, None) if self.is_optional => Ok(Value::Text(Vec::new())),
            (Kind::Octets, None) if self.is_optional => Ok(Value::Plains(Plains::new(Primitive::Uint8))),
            (Kind::Text, Some(Literal::Text(text))) => Ok(Value::Text(text.as_str().into())),
            (Kind::Text, Some(other)) => Err(EncodeError::new("a text", other.noun())),
            (Kind::Json, Some(literal)) => {
                let mut text = Vec::new();
                write(literal, &mut text);
                Ok(Value::Text(text))
            }
            (Kind::Octets, Some(literal)) => octets(literal),
            _ => self.plain(given, encoding).map(Value::Plain),
        }
    }

    /// The elements of a list.
    fn list(&self, given: &[Literal], encoding: &mut Encoding) -> Result<Value, EncodeError> {
        let in_item = |index: usize| move |error: EncodeError| error.in_item(index as u64);
        if let Some(kind) = self.primitive() {
            let mut plains = Plains::new(kind);
            for (index, item) in given.iter().enumerate() {
                let given = Some(item).filter(|item| !self.is_optional || **item != Literal::Null);
                let plain = self.plain(given, encoding).map_err(in_item(index))?;
                // All are of its kind.
                let _ = plains.push(plain);
            }
            return Ok(Value::Plains(plains));
        }
        let items = given.iter().enumerate();
        let items = items.map(|(index, item)| self.value(Some(item), encoding).map_err(in_item(index)));
        Ok(Value::List(items.collect::<Result<_, _>>()?))
    }

    /// The kind of plain values that it holds.
    const fn primitive(&self) -> Option<Primitive> {
        match self.kind {
            Kind::Integer(_) | Kind::Boolean if self.is_optional => Some(Primitive::Double),
            Kind::Number => Some(Primitive::Double),
            Kind::Integer(kind) => Some(kind),
            Kind::Boolean => Some(Primitive::Boolean),
            _ => None,
        }
    }

    /// A number or a boolean.
    fn plain(&self, given: Option<&Literal>, encoding: &mut Encoding) -> Result<Plain, EncodeError> {
        let Some(literal) = given else {
            return match self.is_optional {
                true => Ok(f64::NAN.into()),
                false => Err(EncodeError::new("a value", "none")),
            };
        };
        match self.kind {
            Kind::Integer(kind) => {
                let whole = whole(literal);
                let plain = Plain::of_literal(kind, whole.as_ref().unwrap_or(literal))?;
                match (self.is_optional, &whole) {
                    (true, Some(whole)) => {
                        if let Literal::Integer(number) = whole {
                            encoding.has_rounded |= *number as f64 as i128 != *number;
                        }
                        Plain::of_literal(Primitive::Double, whole)
                    }
                    _ => Ok(plain),
                }
            }
            Kind::Boolean => match (literal, self.is_optional) {
                (Literal::Bool(value), true) => Ok(f64::from(u8::from(*value)).into()),
                _ => Plain::of_literal(Primitive::Boolean, literal),
            },
            _ => Plain::of_literal(Primitive::Double, literal),
        }
    }
}

/// A whole number, also one with a point or an exponent: `5.0` is an integer of JSON schemas.
fn whole(literal: &Literal) -> Option<Literal> {
    match literal {
        Literal::Integer(number) => Some(Literal::Integer(*number)),
        Literal::Decimal(text) => {
            let number: f64 = text.parse().ok()?;
            // Beyond, a double is not the number of the text.
            let is_exact = number.fract() == 0.0 && number.abs() <= (1_u64 << f64::MANTISSA_DIGITS) as f64;
            is_exact.then_some(Literal::Integer(number as i128))
        }
        _ => None,
    }
}

fn octets(literal: &Literal) -> Result<Value, EncodeError> {
    let bytes = match literal {
        Literal::Text(text) => STANDARD.decode(text).ok(),
        _ => None,
    };
    let plains = bytes.and_then(|bytes| Plains::of_bytes(Primitive::Uint8, bytes));
    plains
        .map(Value::Plains)
        .ok_or_else(|| EncodeError::new("a text of base64", literal.noun()))
}

/// Writes a value as JSON without blanks; as deep as it was read.
fn write(literal: &Literal, out: &mut Vec<u8>) {
    match literal {
        Literal::Null => out.extend_from_slice(b"null"),
        Literal::Bool(value) => out.extend_from_slice(if *value { b"true" } else { b"false" }),
        Literal::Integer(number) => out.extend_from_slice(number.to_string().as_bytes()),
        Literal::Float(number) => out.extend_from_slice(number.to_string().as_bytes()),
        Literal::Decimal(text) => out.extend_from_slice(text.as_bytes()),
        Literal::Text(text) | Literal::Scalar(text) => write_json_string(out, text),
        Literal::List(items) => {
            out.push(b'[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                write(item, out);
            }
            out.push(b']');
        }
        Literal::Map(entries) => {
            out.push(b'{');
            for (index, (name, value)) in entries.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                write_json_string(out, name);
                out.push(b':');
                write(value, out);
            }
            out.push(b'}');
        }
    }
}

/// Refuses two columns of one name: `a.b`, and `b` in `a`.
fn check_names(fields: &[(String, Slot)], prefix: &str, names: &mut HashSet<String>) -> Result<(), String> {
    for (name, slot) in fields {
        let name = format!("{prefix}{name}");
        match &slot.shape {
            Shape::Object(fields) => check_names(fields, &format!("{name}."), names)?,
            _ if names.contains(&name) => {
                return Err(format!("their schema has two columns named {name:?}"));
            }
            _ => {
                names.insert(name);
            }
        }
    }
    Ok(())
}

/// The places of an object's properties; its struct is added after those that it contains.
fn object(
    fields: Vec<(String, Slot)>,
    type_name: &str,
    structs: &mut Vec<IndividualTypeDescription>,
) -> Object {
    let mut described = Vec::new();
    let mut by_name = HashMap::new();
    let mut places = Vec::new();
    for (index, (name, slot)) in fields.into_iter().enumerate() {
        let (place, field_type) = place(slot, &format!("{type_name}/{name}"), structs);
        described.push(Field::new(name.as_str(), field_type));
        by_name.insert(name.clone(), index);
        places.push((name, place));
    }
    structs.push(IndividualTypeDescription::new(type_name, described));
    Object {
        by_name,
        fields: places,
    }
}

fn place(slot: Slot, type_name: &str, structs: &mut Vec<IndividualTypeDescription>) -> (Place, FieldType) {
    let text = Element::String {
        wide: false,
        length_max: None,
    };
    let (kind, element) = match slot.shape {
        Shape::Object(fields) => {
            let object = object(fields, type_name, structs);
            (Kind::Object(object), Element::Nested(type_name.into()))
        }
        Shape::List(items) => {
            let (items, field_type) = place(*items, type_name, structs);
            let sequence = FieldType {
                arity: Arity::UnboundedSequence,
                ..field_type
            };
            let kind = Kind::List(Box::new(items));
            let is_optional = slot.is_optional;
            return (Place { kind, is_optional }, sequence);
        }
        Shape::Octets => (Kind::Octets, Element::Primitive(Primitive::Uint8)),
        Shape::Text => (Kind::Text, text),
        Shape::Json | Shape::Null => (Kind::Json, text),
        Shape::Number => (Kind::Number, Element::Primitive(Primitive::Double)),
        Shape::Integer(kind) => (Kind::Integer(kind), Element::Primitive(kind)),
        Shape::Boolean => (Kind::Boolean, Element::Primitive(Primitive::Boolean)),
    };
    let place = Place {
        kind,
        is_optional: slot.is_optional,
    };
    let element = place.primitive().map_or(element, Element::Primitive);
    let arity = match place.kind {
        Kind::Octets => Arity::UnboundedSequence,
        _ => Arity::One,
    };
    (place, FieldType { element, arity })
}
