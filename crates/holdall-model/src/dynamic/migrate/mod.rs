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
    interface::{Definition, bundle::Bundle, defining_type},
    topic::{MessageDefinition, TopicInfo},
};
use compile::Compiler;
use std::{collections::BTreeSet, sync::Arc};

/// Where messages go: definitions by type name, and the rules for what differs.
pub struct Target<'a> {
    /// The rules.
    pub rules: &'a Rules,
    /// The new definition of a type; `None` for one that is not known there, one clause for one that cannot be used.
    pub define: &'a dyn Fn(&str) -> Result<Option<Definition>, String>,
}

/// A type of a bag against new definitions.
#[derive(Clone, Debug)]
pub enum Compared {
    /// Messages stay unchanged; the rules that were used, as places in [`Rules`].
    Same(BTreeSet<usize>),
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
    /// As [`Target::compare`], and a rule for a type that no definition has, or for one of these topics that becomes such a type.
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
        let topics = topics.collect::<Result<Vec<_>, E>>()?;
        let used = topics.iter().flat_map(|(_, compared)| compared.rules());
        for rule in self.rules.own_unused(&used.copied().collect()) {
            let (type_name, becomes) = (rule.type_name(), rule.becomes());
            // A rule may be for other bags, whose types become one that is known.
            if self.has_new(becomes) {
                continue;
            }
            let is_in_bag = has(type_name, &topics, &mut old)?;
            let is_known = is_in_bag || self.has_new(type_name) || old(type_name, "")?.is_some();
            let unknown = if !is_known {
                "this type"
            } else if is_in_bag && becomes != type_name && old(becomes, "")?.is_none() {
                becomes
            } else {
                continue;
            };
            let reason = format!(
                "no definition of {unknown} is in the bag, or among the old and the new ones: \
                 correct its name, or add the definitions that have it"
            );
            return Err(rule.error(reason).into());
        }
        Ok(topics)
    }

    /// Whether a type has a new definition, or one of those that complete them.
    fn has_new(&self, type_name: &str) -> bool {
        let is_known = !matches!((self.define)(type_name), Ok(None));
        is_known || Bundle::embedded().get(defining_type(type_name)).is_some()
    }

    /// Compares a type with the one that it becomes; `old` finds its definition in the bag, if it is needed.
    ///
    /// # Errors
    /// A rule that does not fit the types, a new definition that cannot be used; those of `old`.
    pub fn compare<E: From<RuleError>>(
        &self,
        type_name: &str,
        old: impl FnOnce() -> Result<Option<Definition>, E>,
    ) -> Result<Compared, E> {
        let unusable = |why: String| RuleError(format!("the new definitions cannot be used: {why}"));
        let define = |name: &str| (self.define)(name).map_err(unusable);
        let new = match (define(type_name)?, self.rules.renamed(type_name)) {
            (Some(new), _) => new,
            (None, None) => return Ok(Compared::Unknown),
            (None, Some(rule)) => match define(rule.becomes())? {
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
        let to = TypePlan::compile(&new).map_err(|error| unusable(error.to_string()))?;
        let Ok(from) = TypePlan::compile(&old) else {
            return Ok(Compared::Undefined);
        };
        let [from, to] = [from, to].map(Arc::new);
        let mut compiler = Compiler::new((&old, &from), (&new, &to), self.rules);
        let root = compiler.pair(from.root_index(), to.root_index())?;
        let (pairs, differences, rules) = compiler.finish();
        let [old, new] = [old, new].map(|definition| definition.message_definition());
        let is_same = differences.is_empty() && pairs[root].is_same;
        if is_same
            && (&old.type_name, &old.type_description_hash) == (&new.type_name, &new.type_description_hash)
        {
            return Ok(Compared::Same(rules));
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

/// Whether topics have a type, alone or within another one.
fn has<E>(
    type_name: &str,
    topics: &[(TopicInfo, Compared)],
    old: &mut impl FnMut(&str, &str) -> Result<Option<Definition>, E>,
) -> Result<bool, E> {
    for (topic, _) in topics {
        if topic.type_name == type_name {
            return Ok(true);
        }
        let definition = old(&topic.type_name, &topic.type_description_hash)?;
        let is_within = |definition: Definition| {
            let within = definition.description().referenced_type_descriptions;
            within
                .iter()
                .any(|struct_type| struct_type.type_name == type_name)
        };
        if definition.is_some_and(is_within) {
            return Ok(true);
        }
    }
    Ok(false)
}

impl Compared {
    /// The rules that were used, as places in [`Rules`].
    fn rules(&self) -> impl Iterator<Item = &usize> {
        let rules = match self {
            Self::Same(rules) => Some(rules),
            Self::Other(comparison) => Some(&comparison.rules),
            Self::Unknown | Self::Undefined => None,
        };
        rules.into_iter().flatten()
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
