//! The migrations of a bag's topics.

use super::{Compared, Comparison, RuleError, Rules};
use crate::{
    text::Outside,
    topic::{MessageDefinition, TopicInfo},
};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Key of the account of migrations in a bag's `custom_data`: a list as JSON, the oldest first.
const MIGRATIONS_CUSTOM_KEY: &str = "holdall.migrations";

/// The migrations of topics.
#[derive(Clone, Debug, Default)]
pub struct Migrations {
    /// By name of the topic, each with the type in the bag.
    topics: HashMap<String, Vec<(String, Comparison)>>,
    /// The texts of the rules.
    rules: Vec<String>,
    /// The topics that stay unchanged because the new definitions lack their types, one sentence.
    pub unchanged: Option<String>,
    /// The rules that were not used, one sentence for each file.
    pub unused: Vec<String>,
}

impl Migrations {
    /// The migrations of all topics whose messages get another definition.
    ///
    /// # Errors
    /// What cannot be carried without a rule, all of it.
    pub fn compile(compared: Vec<(TopicInfo, Compared)>, rules: &Rules) -> Result<Self, RuleError> {
        let mut topics: HashMap<String, Vec<_>> = HashMap::new();
        let (mut refusals, mut used) = (BTreeSet::new(), BTreeSet::new());
        let mut unknown = BTreeSet::new();
        for (TopicInfo { name, type_name, .. }, compared) in compared {
            used.extend(compared.rules().copied());
            match compared {
                Compared::Same(_) => {}
                Compared::Unknown => {
                    unknown.insert(format!("{} ({})", Outside(&name), Outside(&type_name)));
                }
                Compared::Undefined => {
                    refusals.insert(format!("{name}: no definition of {type_name} is in the bag"));
                }
                Compared::Other(comparison) => {
                    refusals.extend(comparison.refused().map(ToString::to_string));
                    topics.entry(name).or_default().push((type_name, *comparison));
                }
            }
        }
        if !refusals.is_empty() {
            let refusals: Vec<String> = refusals.into_iter().collect();
            let reason = format!(
                "messages cannot be migrated, nothing was done: {}",
                refusals.join("; ")
            );
            return Err(RuleError(reason));
        }
        let unknown: Vec<String> = unknown.into_iter().collect();
        let unchanged = (!unknown.is_empty()).then(|| {
            let unknown = unknown.join(", ");
            format!("unchanged, because the new definitions do not have their types: {unknown}")
        });
        Ok(Self {
            topics,
            rules: rules.texts().to_vec(),
            unchanged,
            unused: rules.unused(&used),
        })
    }

    /// What a user should know, one sentence each.
    pub fn notices(&self) -> impl Iterator<Item = &String> {
        self.unchanged.iter().chain(&self.unused)
    }

    /// True when nothing changes.
    pub fn is_empty(&self) -> bool {
        self.topics.is_empty()
    }

    fn of(&self, topic: &TopicInfo) -> Option<&Comparison> {
        let of_name = self.topics.get(&topic.name)?;
        let its = of_name
            .iter()
            .find(|(type_name, _)| *type_name == topic.type_name);
        its.map(|(_, comparison)| comparison)
    }

    /// Gives a topic its new type; its definition, or `None` if it keeps its own.
    pub fn relabel(&self, topic: &mut TopicInfo) -> Option<&MessageDefinition> {
        let new = &self.of(topic)?.new;
        topic.type_name.clone_from(&new.type_name);
        topic.type_description_hash.clone_from(&new.type_description_hash);
        Some(new)
    }

    /// Writes a payload in its new definition to `out`; `None` if its bytes stay the same, and `out` then has no meaning.
    ///
    /// # Errors
    /// A message of another definition than its topic, or one with values that the new definition does not hold, in one clause.
    pub fn apply(
        &self,
        topic: &TopicInfo,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<&MessageDefinition>, String> {
        let Some(comparison) = self.of(topic) else {
            return Ok(None);
        };
        let (found, expected) = (
            &topic.type_description_hash,
            &comparison.old.type_description_hash,
        );
        if !found.is_empty() && found != expected {
            return Err(format!(
                "its definition has the hash {found}, that of the topic {expected}"
            ));
        }
        let migration = comparison.migration().ok_or("its type needs a rule")?;
        migration.apply(payload, out).map_err(|error| error.to_string())?;
        Ok(Some(&comparison.new))
    }

    /// The entry for a bag's `custom_data`, after the migrations that those of its inputs list; `None` if nothing changes.
    pub fn custom_data<'a>(
        &self,
        inputs: impl Iterator<Item = &'a BTreeMap<String, String>>,
    ) -> Option<(String, String)> {
        if self.is_empty() {
            return None;
        }
        let texts = inputs.filter_map(|entries| entries.get(MIGRATIONS_CUSTOM_KEY));
        let before = texts.filter_map(|text| serde_json::from_str::<Vec<Value>>(text).ok());
        let types = self.topics.values().flatten().map(|(_, it)| {
            let (new_type, new_hash) = (&it.new.type_name, &it.new.type_description_hash);
            let value = json!({"old": it.old, "new_type": new_type, "new_hash": new_hash});
            (&it.old.type_name, value)
        });
        let types: BTreeMap<&String, Value> = types.collect();
        let record = json!({
            "holdall": env!("CARGO_PKG_VERSION"),
            "rules": self.rules,
            "types": types.into_values().collect::<Vec<_>>(),
        });
        let records: Vec<Value> = before.flatten().chain([record]).collect();
        Some((
            MIGRATIONS_CUSTOM_KEY.to_owned(),
            Value::Array(records).to_string(),
        ))
    }
}
