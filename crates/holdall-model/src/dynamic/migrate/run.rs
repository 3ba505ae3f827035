//! Re-encodes payloads by a compiled migration.

use super::{
    compile::{Carry, Compute, Fill, Pair},
    fit::{self, Conversion},
};
use crate::dynamic::{
    EncodeError, TypePlan,
    edit::EditError,
    encode::{Representation, Value},
};
use std::sync::Arc;

/// More bytes than this after the last field are not padding.
const PADDING_BYTES_MAX: usize = 7;

/// A compiled migration of the messages of one type.
#[derive(Clone, Debug)]
pub struct Migration {
    old: Arc<TypePlan>,
    new: Arc<TypePlan>,
    pairs: Vec<Pair>,
    root: usize,
}

impl Migration {
    pub(super) fn new((old, new): (Arc<TypePlan>, Arc<TypePlan>), pairs: Vec<Pair>, root: usize) -> Self {
        Self {
            old,
            new,
            pairs,
            root,
        }
    }

    /// Writes the payload of the new type to `out`, which is overwritten, in the byte order of the old one. It reads back as the value that was
    /// written, or the message is refused.
    ///
    /// # Errors
    /// A payload that does not fit the old type, and a value that the new one does not hold. The content of `out` is then undefined.
    pub fn apply(&self, payload: &[u8], out: &mut Vec<u8>) -> Result<(), EditError> {
        let decoded = self.old.decode(payload)?;
        if decoded.bytes_left > PADDING_BYTES_MAX {
            return Err(EditError::Longer {
                type_name: self.old.type_name().to_owned(),
                bytes: decoded.bytes_left,
            });
        }
        let in_type = |error: EncodeError| error.in_type(self.new.type_name());
        let value = self
            .structure(self.root, decoded.value, Some(payload))
            .map_err(in_type)?;
        self.new.encode(&value, decoded.representation, out)?;
        if self.new.decode(out)?.value != value {
            return Err(in_type(EncodeError::new("a message that reads back", "another")).into());
        }
        Ok(())
    }

    /// A struct; `payload` has it alone, if it is known.
    fn structure(&self, pair: usize, value: Value, payload: Option<&[u8]>) -> Result<Value, EncodeError> {
        let pair = &self.pairs[pair];
        let mut alone = Vec::new();
        if pair.has_calculations && payload.is_none() {
            pair.old.encode(&value, Representation::default(), &mut alone)?;
        }
        match value {
            Value::Struct(mut fields) if !pair.is_same => {
                self.fills(&pair.fills, &mut fields, payload.unwrap_or(&alone))
            }
            value => Ok(value),
        }
    }

    fn fills(
        &self,
        fills: &[(String, Fill)],
        fields: &mut [Value],
        payload: &[u8],
    ) -> Result<Value, EncodeError> {
        let values = fills.iter().map(|(name, fill)| {
            let value = match fill {
                Fill::Value(value) => Ok(value.clone()),
                Fill::Struct(fills) => self.fills(fills, fields, payload),
                Fill::Carry(carry) => taken(fields, carry)
                    .ok_or_else(|| EncodeError::new("a field of the old type", "none"))
                    .and_then(|value| self.carried(carry.conversion, value)),
                Fill::Compute(compute) => self.computed(compute, payload),
            };
            value.map_err(|error| error.in_field(name))
        });
        Ok(Value::Struct(values.collect::<Result<_, _>>()?))
    }

    fn carried(&self, conversion: Conversion, value: Value) -> Result<Value, EncodeError> {
        match (conversion, value) {
            (Conversion::Pair(pair), Value::List(items)) => {
                let items = items.into_iter().map(|item| self.structure(pair, item, None));
                Ok(Value::List(items.collect::<Result<_, _>>()?))
            }
            (Conversion::Pair(pair), value) => self.structure(pair, value, None),
            (conversion, value) => fit::convert(conversion, value),
        }
    }

    fn computed(&self, compute: &Compute, payload: &[u8]) -> Result<Value, EncodeError> {
        // The payload was decoded before, whole.
        let literals = compute.values.of(payload);
        let literals = literals.map_err(|error| EncodeError::new(error.expected(), error.found()))?;
        match (&compute.map, literals.as_slice()) {
            (Some(map), [one]) => map.get(one).cloned().ok_or_else(|| {
                EncodeError::new("a value that the map of its rule has, or otherwise", one.noun())
            }),
            (Some(_), many) => Err(EncodeError::new("one value for its map", many.len().to_string())),
            (None, _) => fit::of_literals(&self.new, &compute.field, literals, compute.is_lossy),
        }
    }
}

/// A field of the old struct, moved out where nothing else takes it.
fn taken(fields: &mut [Value], carry: &Carry) -> Option<Value> {
    let (first, rest) = carry.places.split_first()?;
    let mut value = fields.get_mut(*first)?;
    for place in rest {
        let Value::Struct(inner) = value else { return None };
        value = inner.get_mut(*place)?;
    }
    Some(if carry.is_moved {
        std::mem::replace(value, Value::List(Vec::new()))
    } else {
        value.clone()
    })
}
