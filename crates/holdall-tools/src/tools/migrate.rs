//! Compares the types of bags with other definitions.

use super::ToolError;
use holdall_bag::{decode::Decoders, definitions::DefinitionFolders, reader::BagSet};
use holdall_model::{
    dynamic::migrate::{Compared, Migrations, Rules, Target},
    topic::TopicInfo,
};
use std::sync::Arc;

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
        define: &|name| new.folders.define(name).map_err(|error| error.to_string()),
    };
    target.compare_all(set.topics(), |type_name, hash| {
        Ok(decoders.definition(type_name, hash)?)
    })
}

/// The migrations of all topics.
///
/// # Errors
/// As [`compare`], and what cannot be carried without a rule.
pub fn migrations(set: &BagSet, new: &NewDefinitions) -> Result<Migrations, ToolError> {
    Ok(Migrations::compile(compare(set, new)?, &new.rules)?)
}

/// The same, with a warning for each notice; none if there are no new definitions.
///
/// # Errors
/// As [`compare`], and what cannot be carried without a rule.
pub(super) fn compile(set: &BagSet, new: Option<&NewDefinitions>) -> Result<Migrations, ToolError> {
    let Some(new) = new else {
        return Ok(Migrations::default());
    };
    let migrations = migrations(set, new)?;
    for notice in migrations.notices() {
        tracing::warn!("{notice}");
    }
    Ok(migrations)
}
