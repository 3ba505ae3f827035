//! Compares the types of a bag with other definitions, and re-encodes its messages by rules.

use super::ToolError;
use holdall_bag::{
    decode::Decoders,
    definitions::DefinitionFolders,
    reader::{Bag, BagMessage, BagSet},
};
use holdall_model::{
    dynamic::migrate::{Compared, Comparison, Rules, Target},
    topic::{MessageDefinition, TopicInfo},
};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// Key of the account of migrations in a bag's `custom_data`: a list as JSON, the oldest first.
const MIGRATIONS_CUSTOM_KEY: &str = "holdall.migrations";

/// The definitions that messages get, and the rules for what differs.
#[derive(Clone, Debug, Default)]
pub struct NewDefinitions {
    /// Where they are.
    pub folders: Arc<DefinitionFolders>,
    /// The rules.
    pub rules: Rules,
}

/// Compares the types of all topics, in the order of the bags.
///
/// # Errors
/// A rule that does not fit, a file that cannot be read.
pub fn compare(set: &BagSet, new: &NewDefinitions) -> Result<Vec<(TopicInfo, Compared)>, ToolError> {
    let mut decoders = Decoders::new(set.clone());
    let target = Target {
        rules: &new.rules,
        define: &|name| new.folders.define(name),
    };
    let topics = set.topics().into_iter().map(|topic| {
        let old = || Ok(decoders.definition(&topic.type_name, &topic.type_description_hash)?);
        let compared = target.compare::<ToolError>(&topic.type_name, old)?;
        Ok((topic, compared))
    });
    topics.collect()
}

/// The migrations of a bag's topics, by name and type.
#[derive(Default)]
pub(super) struct Migrations(BTreeMap<(String, String), Comparison>);

impl Migrations {
    /// Compiles the migrations of all topics.
    ///
    /// # Errors
    /// What cannot be carried without a rule, all of it.
    pub fn compile(set: &BagSet, new: Option<&NewDefinitions>) -> Result<Self, ToolError> {
        let mut migrations = Self::default();
        let Some(new) = new else {
            return Ok(migrations);
        };
        let (mut refusals, mut used) = (BTreeSet::new(), BTreeSet::new());
        for (topic, compared) in compare(set, new)? {
            match compared {
                Compared::Same | Compared::Unknown => {}
                Compared::Undefined => {
                    let TopicInfo { name, type_name, .. } = topic;
                    refusals.insert(format!("{name}: no definition of {type_name} is in the bag"));
                }
                Compared::Other(comparison) => {
                    refusals.extend(comparison.refused().map(ToString::to_string));
                    used.extend(&comparison.rules);
                    migrations.0.insert((topic.name, topic.type_name), *comparison);
                }
            }
        }
        if !refusals.is_empty() {
            return Err(ToolError::NotCarried {
                refusals: refusals.into_iter().collect(),
            });
        }
        new.rules
            .unused(&used)
            .iter()
            .for_each(|sentence| tracing::warn!("{sentence}"));
        Ok(migrations)
    }

    /// True when nothing changes.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a topic's messages are migrated.
    pub fn takes(&self, key: &(String, String)) -> bool {
        self.0.contains_key(key)
    }

    /// The definition that a topic gets; `None` if it keeps its own.
    pub fn definition(&self, topic: &TopicInfo) -> Option<&MessageDefinition> {
        let key = (topic.name.clone(), topic.type_name.clone());
        self.0.get(&key).map(|comparison| &comparison.new)
    }

    /// Re-encodes a message into `out`.
    ///
    /// # Errors
    /// A message of another definition than its topic, or one with values that the new definition does not hold.
    pub fn apply(
        &self,
        key: &(String, String),
        message: &BagMessage,
        out: &mut Vec<u8>,
    ) -> Result<(), ToolError> {
        let comparison = self.0.get(key);
        let Some((comparison, migration)) =
            comparison.and_then(|comparison| Some((comparison, comparison.migration()?)))
        else {
            return Ok(());
        };
        let (hash, expected) = (
            &message.topic.type_description_hash,
            &comparison.old.type_description_hash,
        );
        let applied = if hash.is_empty() || hash == expected {
            let applied = migration.apply(&message.payload, out);
            applied.map_err(|error| error.to_string())
        } else {
            Err(format!(
                "its definition has the hash {hash}, that of the topic {expected}"
            ))
        };
        applied.map_err(|reason| ToolError::Migrate {
            topic: message.topic.name.clone(),
            log_time: message.log_time.as_nanos(),
            reason,
        })
    }

    /// The entry for the output's `custom_data`, after the migrations that the inputs list.
    pub fn custom_data(&self, bags: &[Bag], new: Option<&NewDefinitions>) -> Option<(String, String)> {
        let new = new.filter(|_| !self.is_empty())?;
        let listed = bags
            .iter()
            .filter_map(|bag| bag.metadata().custom_data.get(MIGRATIONS_CUSTOM_KEY));
        let listed = listed.filter_map(|text| serde_json::from_str::<Vec<Value>>(text).ok());
        let types: BTreeMap<&str, Value> = self
            .0
            .values()
            .map(|it| {
                let (new_type, new_hash) = (&it.new.type_name, &it.new.type_description_hash);
                let value = json!({"old": it.old, "new_type": new_type, "new_hash": new_hash});
                (it.old.type_name.as_str(), value)
            })
            .collect();
        let record = json!({
            "holdall": env!("CARGO_PKG_VERSION"),
            "rules": new.rules.texts(),
            "types": types.into_values().collect::<Vec<_>>(),
        });
        let records: Vec<Value> = listed.flatten().chain([record]).collect();
        Some((
            MIGRATIONS_CUSTOM_KEY.to_owned(),
            Value::Array(records).to_string(),
        ))
    }
}
