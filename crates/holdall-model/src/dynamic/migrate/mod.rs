//! Messages of one definition as messages of another: fields carried by name, by rules, or refused before anything is written.
//!
//! [`Target::compare`] lists how two definitions differ and what rules settle; [`Comparison::migration`] re-encodes payloads once all is settled.
//! Every conversion is exact, or a rule says `lossy: true`.

mod compile;
mod difference;
mod draft;
mod fields;
mod fit;
mod rules;
mod run;
mod topics;

#[cfg(test)]
mod tests;

pub use difference::Difference;
pub use draft::draft;
pub use rules::{RuleError, Rules};
pub use run::Migration;
pub use topics::Migrations;

use super::TypePlan;
use crate::{
    interface::Definition,
    topic::{MessageDefinition, TopicInfo},
};
use compile::Compiler;
use std::{collections::BTreeSet, sync::Arc};

/// Where messages go: definitions by type name, and the rules for what differs.
pub struct Target<'a> {
    /// The rules.
    pub rules: &'a Rules,
    /// The new definition of a type; `None` for one that is not known there.
    pub define: &'a dyn Fn(&str) -> Option<Definition>,
}

/// A type of a bag against new definitions.
#[derive(Clone, Debug)]
pub enum Compared {
    /// Messages stay unchanged.
    Same,
    /// The new definitions have no such type.
    Unknown,
    /// The bag has no definition of it.
    Undefined,
    /// It has another definition.
    Other(Box<Comparison>),
}

/// How a type of a bag differs from its new definition.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// The definition in the bag.
    pub old: MessageDefinition,
    /// The new one, of another type where a rule says so.
    pub new: MessageDefinition,
    /// What differs and no rule settles.
    pub differences: Vec<Difference>,
    /// The rules that were used, as places in [`Rules`].
    pub rules: BTreeSet<usize>,
    migration: Migration,
}

impl Target<'_> {
    /// Compares the types of topics, in their order; `old` finds the definition of a type and a hash in the bag.
    ///
    /// # Errors
    /// As [`Target::compare`].
    pub fn compare_all<E: From<RuleError>>(
        &self,
        topics: impl IntoIterator<Item = TopicInfo>,
        mut old: impl FnMut(&str, &str) -> Result<Option<Definition>, E>,
    ) -> Result<Vec<(TopicInfo, Compared)>, E> {
        let topics = topics.into_iter().map(|topic| {
            let old = || old(&topic.type_name, &topic.type_description_hash);
            let compared = self.compare(&topic.type_name, old)?;
            Ok((topic, compared))
        });
        topics.collect()
    }

    /// Compares a type with the one that it becomes; `old` finds its definition in the bag, if it is needed.
    ///
    /// # Errors
    /// A rule that does not fit the types; those of `old`.
    pub fn compare<E: From<RuleError>>(
        &self,
        type_name: &str,
        old: impl FnOnce() -> Result<Option<Definition>, E>,
    ) -> Result<Compared, E> {
        let new = match ((self.define)(type_name), self.rules.renamed(type_name)) {
            (Some(new), _) => new,
            (None, None) => return Ok(Compared::Unknown),
            (None, Some(rule)) => match (self.define)(rule.becomes()) {
                Some(new) => new,
                // They also name packages that not all have.
                None if rule.is_shipped() => return Ok(Compared::Unknown),
                None => {
                    let reason = format!("the new definitions have no {}", rule.becomes());
                    return Err(rule.error(reason).into());
                }
            },
        };
        let Some(old) = old()? else {
            return Ok(Compared::Undefined);
        };
        let [from, to] = [&old, &new].map(|definition| TypePlan::compile(definition).map(Arc::new));
        let (Ok(from), Ok(to)) = (from, to) else {
            return Ok(Compared::Undefined);
        };
        let mut compiler = Compiler::new((&old, &from), (&new, &to), self.rules);
        let root = compiler.pair(from.root_index(), to.root_index())?;
        let (pairs, differences, rules) = compiler.finish();
        let [old, new] = [old, new].map(|definition| definition.message_definition());
        let is_same = differences.is_empty() && pairs[root].is_same;
        if is_same
            && (&old.type_name, &old.type_description_hash) == (&new.type_name, &new.type_description_hash)
        {
            return Ok(Compared::Same);
        }
        Ok(Compared::Other(Box::new(Comparison {
            old,
            new,
            differences,
            rules,
            migration: Migration::new((from, to), pairs, root),
        })))
    }
}

impl Comparison {
    /// What cannot be carried without a rule.
    pub fn refused(&self) -> impl Iterator<Item = &Difference> {
        self.differences.iter().filter(|difference| difference.needs_rule)
    }

    /// Re-encodes messages; `None` while something is refused.
    pub fn migration(&self) -> Option<&Migration> {
        self.refused().next().is_none().then_some(&self.migration)
    }
}
