//! Topics and messages in new definitions, while they are played.

use super::{error::PlayError, options::PlayMigration};
use bytes::Bytes;
use holdall_bag::{decode::Decoders, reader::BagSet};
use holdall_model::{
    dynamic::migrate::{Compared, Comparison, Target},
    topic::TopicInfo,
};
use std::collections::HashMap;

/// The migrations of topics, by name and type in the bag.
#[derive(Default)]
pub(super) struct Migrated(HashMap<(String, String), Comparison>);

impl Migrated {
    /// Gives topics their new types.
    ///
    /// # Errors
    /// Rules that do not fit, and what they have no place for.
    pub fn apply_to<'t>(
        topics: impl Iterator<Item = &'t mut TopicInfo>,
        bags: &BagSet,
        options: Option<&PlayMigration>,
    ) -> Result<Self, PlayError> {
        let mut migrated = Self::default();
        let Some(PlayMigration { folders, rules }) = options else {
            return Ok(migrated);
        };
        let target = Target {
            rules,
            define: &|name| folders.define(name),
        };
        let mut decoders = Decoders::new(bags.clone());
        for topic in topics {
            let old = || Ok(decoders.definition(&topic.type_name, &topic.type_description_hash)?);
            let refused = match target.compare::<PlayError>(&topic.type_name, old)? {
                Compared::Same | Compared::Unknown => continue,
                Compared::Undefined => vec!["no definition of its type is in the bag".to_owned()],
                Compared::Other(comparison) => {
                    let refused = comparison.refused().map(ToString::to_string).collect();
                    let new = &comparison.new;
                    topic.type_description_hash.clone_from(&new.type_description_hash);
                    let old = std::mem::replace(&mut topic.type_name, new.type_name.clone());
                    migrated.0.insert((topic.name.clone(), old), *comparison);
                    refused
                }
            };
            if !refused.is_empty() {
                let reason = format!("{} cannot be migrated: {}", topic.name, refused.join("; "));
                return Err(PlayError::Migration(reason));
            }
        }
        Ok(migrated)
    }

    /// The type and the payload that a message has when it is played.
    ///
    /// # Errors
    /// A message with values that the new definition does not hold, as one sentence.
    pub fn played<'t>(&'t self, topic: &'t TopicInfo, payload: Bytes) -> Result<(&'t str, Bytes), String> {
        let find = || self.0.get(&(topic.name.clone(), topic.type_name.clone()));
        let comparison = (!self.0.is_empty()).then(find).flatten();
        let Some((comparison, migration)) = comparison.and_then(|it| Some((it, it.migration()?))) else {
            return Ok((&topic.type_name, payload));
        };
        let mut out = Vec::new();
        let applied = migration.apply(&payload, &mut out);
        applied.map_err(|error| format!("{}: {error}", topic.name))?;
        Ok((&comparison.new.type_name, out.into()))
    }
}
