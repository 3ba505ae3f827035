//! How two definitions of a struct differ, field by field.

use std::fmt;

/// One difference between a struct and the one that it becomes.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Difference {
    /// The struct in the old definition.
    pub type_name: String,
    /// The struct that it becomes.
    pub becomes: String,
    /// The path of the field, or the name of the constant.
    pub name: String,
    /// Its old type or value; `None` if it is new.
    pub from: Option<String>,
    /// Its new type or value; `None` if it is gone.
    pub to: Option<String>,
    /// It cannot be carried without a rule.
    pub needs_rule: bool,
    /// It is a constant.
    pub is_constant: bool,
    /// The new field that is probably meant.
    pub probably: Option<String>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let constant = if self.is_constant { "the constant " } else { "" };
        write!(f, "{}: {constant}{}", self.type_name, self.name)?;
        match (&self.from, &self.to) {
            (Some(from), Some(to)) => write!(f, " was {from} and is {to}")?,
            (Some(from), None) => write!(f, " ({from}) has no place")?,
            (None, to) => write!(f, " ({}) is new", to.as_deref().unwrap_or_default())?,
        }
        match &self.probably {
            Some(probably) => write!(f, ", it is probably {probably} now"),
            None => Ok(()),
        }
    }
}

/// Finds the new field that each one without a place probably became: of the same type, with a similar name or as the only one of that type.
pub(super) fn guess_renames(differences: &mut [Difference]) {
    let named = |is_new: bool| {
        let of_kind = differences.iter().filter(move |it| {
            if is_new {
                it.from.is_none()
            } else {
                it.to.is_none()
            }
        });
        let pairs = of_kind.map(|it| (it.name.clone(), it.from.clone().or_else(|| it.to.clone())));
        pairs.collect::<Vec<_>>()
    };
    let (mut added, gone) = (named(true), named(false));
    for difference in differences.iter_mut().filter(|it| it.to.is_none()) {
        let same = |(_, kind): &&(String, Option<String>)| *kind == difference.from;
        let is_only = added.iter().filter(same).count() == 1 && gone.iter().filter(same).count() == 1;
        let mut candidates = added.iter().filter(same);
        let found = candidates.find(|(name, _)| is_only || is_alike(&difference.name, name));
        difference.probably = found.map(|(name, _)| name.clone());
        added.retain(|(name, _)| Some(name) != difference.probably.as_ref());
    }
}

/// Whether one name is within the other, without case and `_`.
fn is_alike(old: &str, new: &str) -> bool {
    let plain = |name: &str| name.replace('_', "").to_ascii_lowercase();
    let (old, new) = (plain(old), plain(new));
    old.contains(&new) || new.contains(&old)
}
