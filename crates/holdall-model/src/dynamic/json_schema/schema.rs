//! Reads from a JSON schema which columns its messages have.

use crate::{dynamic::encode::Literal, interface::Primitive};
use std::collections::BTreeSet;

/// Most fields of a schema, those of nested objects and of each use of a definition included.
pub(super) const FIELDS_MAX: usize = 4096;
/// Deepest nesting of objects that become columns; deeper ones are JSON texts.
const DEPTH_MAX: usize = 16;
/// Most schemas that hold for one value at once: its own, those that it refers to, those of `allOf`.
const PARTS_MAX: usize = 64;
/// Most schemas that are looked at, one that is referred to twice counted twice.
const STEPS_MAX: usize = 1 << 15;
/// Most schemas that are open at once.
const OPEN_MAX: usize = 512;
/// Most alternatives of one value.
const ALTERNATIVES_MAX: usize = 256;
/// Longest name of a property, in bytes.
const NAME_BYTES_MAX: usize = 256;

/// The values that a schema allows, as far as columns can hold them.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Shape {
    Null,
    Number,
    /// `int64` or `uint64`.
    Integer(Primitive),
    Boolean,
    Text,
    /// Bytes as base64.
    Octets,
    /// Anything, kept as JSON.
    Json,
    Object(Vec<(String, Slot)>),
    List(Box<Slot>),
}

/// A place for values of a shape.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Slot {
    pub shape: Shape,
    /// Whether a message may lack it, or have null there.
    pub is_optional: bool,
}

/// The entries of a schema that is an object.
type Part<'s> = &'s [(String, Literal)];

/// Reads the properties of the objects that a schema describes.
pub(super) fn read(schema: &Literal) -> Result<Vec<(String, Slot)>, String> {
    let mut reader = Reader {
        root: schema,
        fields_left: FIELDS_MAX,
        steps_left: STEPS_MAX,
        open: Vec::new(),
    };
    match reader.slot(schema, 0, false)?.shape {
        Shape::Object(fields) => Ok(fields),
        _ => Err("their schema names no properties".to_owned()),
    }
}

struct Reader<'s> {
    root: &'s Literal,
    fields_left: usize,
    steps_left: usize,
    /// The schemas around the current one: one that refers to them has no end.
    open: Vec<Part<'s>>,
}

impl<'s> Reader<'s> {
    /// What holds for a value; objects are nested `depth` deep.
    fn slot(&mut self, schema: &'s Literal, depth: usize, is_optional: bool) -> Result<Slot, String> {
        let anything = Slot {
            shape: Shape::Json,
            is_optional: true,
        };
        let Some(parts) = self.parts(schema)? else {
            return Ok(anything);
        };
        let is_open = |part: &Part<'s>| self.open.iter().any(|open| std::ptr::eq(*open, *part));
        if parts.iter().any(is_open) || depth > DEPTH_MAX || self.open.len() > OPEN_MAX {
            return Ok(anything);
        }
        let (types, may_be_null) = types(&parts);
        let alternatives = self.alternatives(&parts);
        let mut may_be_null = may_be_null;
        for other in &alternatives {
            may_be_null |= self.is_null(other)?;
        }
        let is_optional = is_optional || may_be_null;
        let before = self.open.len();
        self.open.extend(&parts);
        let shape = match types.as_slice() {
            [] if !alternatives.is_empty() => self.union(&alternatives, depth, is_optional),
            [] if may_be_null => Ok(Shape::Null),
            ["object"] => match self.object(&parts, depth, is_optional) {
                Ok(Shape::Json) if !alternatives.is_empty() => self.union(&alternatives, depth, is_optional),
                object => object,
            },
            ["array"] => self.list(&parts, depth),
            types => Ok(scalar(types, &parts)),
        };
        self.open.truncate(before);
        let shape = shape?;
        Ok(Slot {
            // Without a value there is no JSON text, either.
            is_optional: is_optional || matches!(shape, Shape::Json | Shape::Null),
            shape,
        })
    }

    /// The schemas that hold at once; `None` for one that allows anything, or is not understood.
    fn parts(&mut self, schema: &'s Literal) -> Result<Option<Vec<Part<'s>>>, String> {
        let mut parts: Vec<Part<'s>> = Vec::new();
        let mut waiting = vec![schema];
        while let Some(schema) = waiting.pop() {
            let entries = map(Some(schema));
            if entries.is_empty() {
                continue;
            }
            if parts.len() >= PARTS_MAX {
                return Ok(None);
            }
            let left = self.steps_left.checked_sub(1);
            self.steps_left = left.ok_or_else(|| format!("their schema has more than {STEPS_MAX} parts"))?;
            parts.push(entries);
            if let Some(Literal::List(all)) = entry(entries, "allOf") {
                waiting.extend(all.iter().take(PARTS_MAX).rev());
            }
            if let Some(Literal::Text(reference)) = entry(entries, "$ref") {
                let Some(referred) = self.referred(reference) else {
                    return Ok(None);
                };
                waiting.push(referred);
            }
        }
        Ok((!parts.is_empty()).then_some(parts))
    }

    /// The schema at a place in this one; references to other documents are not followed.
    fn referred(&self, reference: &str) -> Option<&'s Literal> {
        let path = reference.strip_prefix('#')?;
        let mut at = self.root;
        for name in path.split('/').skip(1) {
            let name = name.replace("~1", "/").replace("~0", "~");
            at = match at {
                Literal::Map(entries) => entry(entries, &name)?,
                Literal::List(items) => items.get(name.parse::<usize>().ok()?)?,
                _ => return None,
            };
        }
        (path.is_empty() || path.starts_with('/')).then_some(at)
    }

    fn alternatives(&self, parts: &[Part<'s>]) -> Vec<&'s Literal> {
        let keys = ["anyOf", "oneOf"].iter();
        let lists = keys.flat_map(|key| parts.iter().filter_map(|part| entry(part, key)));
        let found = lists.filter_map(|list| match list {
            Literal::List(items) => Some(items),
            _ => None,
        });
        found.flatten().take(ALTERNATIVES_MAX).collect()
    }

    /// Whether a schema allows null and nothing else.
    fn is_null(&mut self, schema: &'s Literal) -> Result<bool, String> {
        let parts = self.parts(schema)?;
        Ok(parts.is_some_and(|parts| matches!(types(&parts), (types, true) if types.is_empty())))
    }

    /// One of several: columns can hold it where all are plain values of one kind.
    fn union(
        &mut self,
        alternatives: &[&'s Literal],
        depth: usize,
        is_optional: bool,
    ) -> Result<Shape, String> {
        let mut union = Shape::Null;
        for schema in alternatives {
            let slot = self.slot(schema, depth, is_optional)?;
            union = match (union, slot.shape) {
                (one, Shape::Null) | (Shape::Null, one) => one,
                (Shape::Number, Shape::Integer(_)) | (Shape::Integer(_), Shape::Number) => Shape::Number,
                (one, other) if one == other && !matches!(one, Shape::Object(_)) => one,
                _ => return Ok(Shape::Json),
            };
        }
        Ok(union)
    }

    fn object(&mut self, parts: &[Part<'s>], depth: usize, is_optional: bool) -> Result<Shape, String> {
        let required: BTreeSet<&str> = parts
            .iter()
            .flat_map(|part| texts(entry(part, "required")))
            .collect();
        let mut known = BTreeSet::new();
        let mut fields = Vec::new();
        for (name, schema) in parts.iter().flat_map(|part| map(entry(part, "properties"))) {
            if !known.insert(name.as_str()) {
                continue;
            }
            if name.len() > NAME_BYTES_MAX {
                return Err(format!(
                    "their schema has a property whose name is longer than {NAME_BYTES_MAX} bytes"
                ));
            }
            let Some(left) = self.fields_left.checked_sub(1) else {
                return Err(format!("their schema has more than {FIELDS_MAX} fields"));
            };
            self.fields_left = left;
            let is_optional = is_optional || !required.contains(name.as_str());
            let mut slot = self.slot(schema, depth + 1, is_optional)?;
            if slot.shape == Shape::Null {
                slot.shape = Shape::Json;
            }
            fields.push((name.clone(), slot));
        }
        Ok(match fields.is_empty() {
            true => Shape::Json,
            false => Shape::Object(fields),
        })
    }

    /// A list of values of one shape; lists of lists are JSON.
    fn list(&mut self, parts: &[Part<'s>], depth: usize) -> Result<Shape, String> {
        if parts.iter().any(|part| entry(part, "prefixItems").is_some()) {
            return Ok(Shape::Json);
        }
        let Some(items) = parts.iter().find_map(|part| entry(part, "items")) else {
            return Ok(Shape::Json);
        };
        let items = self.slot(items, depth + 1, false)?;
        Ok(match items.shape {
            Shape::Null | Shape::Json | Shape::Octets | Shape::List(_) => Shape::Json,
            _ => Shape::List(Box::new(items)),
        })
    }
}

/// The types of values but null, in alphabetical order, and whether null is one.
fn types<'s>(parts: &[Part<'s>]) -> (Vec<&'s str>, bool) {
    let find = |key: &str| parts.iter().find_map(|part| entry(part, key));
    let mut types: BTreeSet<&str> = match find("type") {
        Some(Literal::Text(one)) => [one.as_str()].into(),
        several @ Some(Literal::List(_)) => texts(several).collect(),
        _ if find("properties").is_some() => ["object"].into(),
        _ if find("items").is_some() || find("prefixItems").is_some() => ["array"].into(),
        _ => match (find("const"), find("enum")) {
            (Some(value), _) => [type_of(value)].into(),
            (None, Some(Literal::List(values))) => values.iter().map(type_of).collect(),
            _ => BTreeSet::new(),
        },
    };
    let may_be_null = types.remove("null") | (find("nullable") == Some(&Literal::Bool(true)));
    if types.contains("number") {
        types.remove("integer");
    }
    (types.into_iter().collect(), may_be_null)
}

fn scalar(types: &[&str], parts: &[Part<'_>]) -> Shape {
    let has = |key: &str, wanted: &str| {
        let found = parts.iter().find_map(|part| entry(part, key));
        matches!(found, Some(Literal::Text(found)) if found.eq_ignore_ascii_case(wanted))
    };
    match types {
        ["string"] if has("contentEncoding", "base64") => Shape::Octets,
        ["string"] => Shape::Text,
        ["integer"] if has("format", "uint64") => Shape::Integer(Primitive::Uint64),
        ["integer"] => Shape::Integer(Primitive::Int64),
        ["number"] => Shape::Number,
        ["boolean"] => Shape::Boolean,
        _ => Shape::Json,
    }
}

const fn type_of(value: &Literal) -> &'static str {
    match value {
        Literal::Null => "null",
        Literal::Bool(_) => "boolean",
        Literal::Integer(_) => "integer",
        Literal::Float(_) | Literal::Decimal(_) => "number",
        Literal::Text(_) | Literal::Scalar(_) => "string",
        Literal::List(_) => "array",
        Literal::Map(_) => "object",
    }
}

fn entry<'s>(entries: Part<'s>, key: &str) -> Option<&'s Literal> {
    entries
        .iter()
        .find(|(name, _)| name == key)
        .map(|(_, value)| value)
}

fn map(value: Option<&Literal>) -> Part<'_> {
    match value {
        Some(Literal::Map(entries)) => entries,
        _ => &[],
    }
}

fn texts(value: Option<&Literal>) -> impl Iterator<Item = &str> {
    let items = match value {
        Some(Literal::List(items)) => items.as_slice(),
        _ => &[],
    };
    items.iter().filter_map(|item| match item {
        Literal::Text(text) => Some(text.as_str()),
        _ => None,
    })
}
