//! The types of publishers whose type is not their topic's.

use crate::topic::Gid;
use std::{collections::HashMap, sync::Arc};

/// By publisher: the type. Nearly always empty, so it takes one word.
#[derive(Default)]
#[expect(
    clippy::box_collection,
    reason = "a word in the line of each topic that the receive path reads, instead of six"
)]
pub struct OtherTypes(Option<Box<HashMap<Option<Gid>, Arc<str>>>>);

impl OtherTypes {
    /// A publisher's type, if it is not the topic's.
    #[inline]
    pub fn of(&self, publisher: Option<Gid>) -> Option<&str> {
        Some(&**self.0.as_ref()?.get(&publisher)?)
    }

    /// Forgets a publisher that is gone.
    pub fn forget(&mut self, publisher: Gid) {
        if let Some(types) = &mut self.0 {
            types.remove(&Some(publisher));
        }
    }

    /// Remembers a publisher's type; false if it is known.
    pub fn add(&mut self, publisher: Option<Gid>, type_name: &Arc<str>) -> bool {
        if self.of(publisher) == Some(&**type_name) {
            return false;
        }
        let types = self.0.get_or_insert_default();
        types.insert(publisher, Arc::clone(type_name));
        true
    }
}
