//! Definitions of the types in a bag, for viewers.

use holdall::{BagSet, ReadError};
use holdall_model::{
    interface::bundle::Bundle,
    topic::{DefinitionEncoding, MessageDefinition},
};
use std::collections::BTreeMap;

/// By type.
#[derive(Default)]
pub(super) struct Schemas(BTreeMap<String, Vec<MessageDefinition>>);

impl Schemas {
    /// Those that are stored in bags.
    pub(super) fn of_bags(bags: &BagSet) -> Result<Self, ReadError> {
        let mut schemas = Self::default();
        for bag in bags.bags() {
            for definition in bag.definitions()? {
                if definition.encoding != DefinitionEncoding::Unknown {
                    schemas
                        .0
                        .entry(definition.type_name.clone())
                        .or_default()
                        .push(definition);
                }
            }
        }
        Ok(schemas)
    }

    /// The definition of a type with this hash, else without one; else that of the bundle, when it is the same.
    pub(super) fn find(&self, type_name: &str, hash: &str) -> MessageDefinition {
        let of_type = self.0.get(type_name).map(Vec::as_slice).unwrap_or_default();
        let same = of_type.iter().find(|stored| stored.type_description_hash == hash);
        let any = || {
            of_type
                .iter()
                .find(|stored| stored.type_description_hash.is_empty() || hash.is_empty())
        };
        if let Some(stored) = same.or_else(any) {
            return MessageDefinition {
                type_name: type_name.to_owned(),
                ..stored.clone()
            };
        }
        let bundled = Bundle::embedded().define(type_name).ok();
        let bundled = bundled.filter(|definition| hash.is_empty() || definition.type_hash() == hash);
        bundled.map_or_else(
            || MessageDefinition::unknown(type_name),
            |definition| definition.message_definition(),
        )
    }
}
