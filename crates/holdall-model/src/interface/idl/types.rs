//! The types of IDL members: plain ones, strings, sequences, and names of structs and typedefs.

use super::{Parser, lexer::Token};
use crate::interface::{Arity, Element, FieldType, Primitive, is_identifier, parse::positive};

impl<'a> Parser<'a> {
    /// A type that begins with `token`.
    pub(super) fn field_type(&mut self, token: Token<'a>) -> Result<FieldType, String> {
        let Token::Word(word) = token else {
            return Err(format!("expected a type, found {token}"));
        };
        match word {
            "sequence" => self.sequence(),
            "string" | "wstring" => {
                let length_max = if self.accept('<')? {
                    Some(self.size_and_close()?)
                } else {
                    None
                };
                Ok(FieldType::one(Element::String {
                    wide: word == "wstring",
                    length_max,
                }))
            }
            "unsigned" | "long" => self.long_type(word),
            _ => match primitive(word) {
                Some(primitive) => Ok(FieldType::one(Element::Primitive(primitive))),
                None => self.named_type(word),
            },
        }
    }

    fn sequence(&mut self) -> Result<FieldType, String> {
        self.expect('<')?;
        let token = self.some()?;
        if token == Token::Word("sequence") {
            return Err("a sequence of sequences is not supported by ROS 2".to_owned());
        }
        let element = self.field_type(token)?;
        match self.some()? {
            Token::Punctuation('>') => many(element, Arity::UnboundedSequence),
            Token::Punctuation(',') => {
                let size = self.size_and_close()?;
                many(element, Arity::BoundedSequence(size))
            }
            other => Err(format!("expected ',' or '>' in a sequence, found {other}")),
        }
    }

    /// Types of several words: `unsigned short`, `long long`, `long double`, ….
    fn long_type(&mut self, first: &str) -> Result<FieldType, String> {
        let unsigned = first == "unsigned";
        let word = if unsigned { self.name()? } else { first };
        let next = self.peek()?;
        let primitive = match (word, next) {
            ("long", Some(Token::Word("long"))) => {
                self.advance()?;
                if unsigned {
                    Primitive::Uint64
                } else {
                    Primitive::Int64
                }
            }
            ("long", Some(Token::Word("double"))) if !unsigned => {
                self.advance()?;
                Primitive::LongDouble
            }
            ("long", _) if unsigned => Primitive::Uint32,
            ("long", _) => Primitive::Int32,
            ("short", _) => Primitive::Uint16,
            _ => return Err(format!("unsigned {word} is not a type")),
        };
        Ok(FieldType::one(Element::Primitive(primitive)))
    }

    /// A typedef or a struct by its name, which may be scoped: `geometry_msgs::msg::Point`.
    fn named_type(&mut self, first: &'a str) -> Result<FieldType, String> {
        let mut path = vec![first];
        while self.accept(':')? {
            self.expect(':')?;
            path.push(self.name()?);
        }
        if let Some(part) = path.iter().find(|part| !is_identifier(part)) {
            return Err(format!("{part:?} is not a type"));
        }
        let name = path.join("/");
        // The innermost module with that name wins.
        for depth in (0..=self.modules.len()).rev() {
            let scope: String = self.modules[..depth]
                .iter()
                .map(|module| format!("{module}/"))
                .collect();
            let full = format!("{scope}{name}");
            if let Some(field_type) = self.typedefs.get(&full) {
                return Ok(field_type.clone());
            }
            if self.structs.contains_key(&full) {
                return Ok(FieldType::one(Element::Nested(full)));
            }
        }
        let full = if path.len() == 1 { self.scoped(first) } else { name };
        Ok(FieldType::one(Element::Nested(full)))
    }

    /// A number, or the name of a constant with a number.
    pub(super) fn size(&mut self) -> Result<u64, String> {
        let Token::Word(word) = self.some()? else {
            return Err("expected a size".to_owned());
        };
        let constant = (0..=self.modules.len()).rev().find_map(|depth| {
            let scope: String = self.modules[..depth]
                .iter()
                .map(|module| format!("{module}/"))
                .collect();
            self.sizes.get(&format!("{scope}{word}")).copied()
        });
        constant
            .filter(|&size| size > 0)
            .map_or_else(|| positive(word), Ok)
    }

    fn size_and_close(&mut self) -> Result<u64, String> {
        let size = self.size()?;
        self.expect('>')?;
        Ok(size)
    }
}

/// An array or a sequence of a type that is not already one.
pub(super) fn many(field_type: FieldType, arity: Arity) -> Result<FieldType, String> {
    if field_type.arity == Arity::One {
        return Ok(FieldType { arity, ..field_type });
    }
    Err("arrays and sequences of arrays or sequences are not supported by ROS 2".to_owned())
}

fn primitive(word: &str) -> Option<Primitive> {
    Some(match word {
        "boolean" => Primitive::Boolean,
        "octet" => Primitive::Byte,
        "char" => Primitive::Char,
        "wchar" => Primitive::Wchar,
        "short" => Primitive::Int16,
        "int8" => Primitive::Int8,
        "uint8" => Primitive::Uint8,
        "int16" => Primitive::Int16,
        "uint16" => Primitive::Uint16,
        "int32" => Primitive::Int32,
        "uint32" => Primitive::Uint32,
        "int64" => Primitive::Int64,
        "uint64" => Primitive::Uint64,
        "float" => Primitive::Float,
        "double" => Primitive::Double,
        _ => return None,
    })
}
