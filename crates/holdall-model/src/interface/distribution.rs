//! The definitions of distributions of ROS 2, as far as they differ from those of Jazzy.

use super::{
    InterfaceSource, SourceFormat,
    bundle::{Bundle, Entry, entries},
};
use std::{collections::HashMap, sync::OnceLock};

/// Written by `scripts/bundle-definitions.py`.
const TEXT: &str = include_str!("../../data/distributions.txt");

/// Names of distributions, the oldest first.
const NAMES: [&str; 7] = ["foxy", "galactic", "humble", "iron", "jazzy", "kilted", "lyrical"];

/// A distribution of ROS 2.
///
/// ```
/// use holdall_model::interface::Distribution;
///
/// let humble = Distribution::by_name("humble").unwrap();
/// let text = humble.get("sensor_msgs/msg/Range").unwrap().text;
/// assert!(!text.contains("variance"));
/// assert!(humble.get("nav_msgs/msg/Goals").is_none());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Distribution(usize);

impl Distribution {
    /// The names, the oldest first.
    pub const NAMES: [&'static str; 7] = NAMES;

    /// The distribution of this name.
    pub fn by_name(name: &str) -> Option<Self> {
        NAMES.iter().position(|known| *known == name).map(Self)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        NAMES[self.0]
    }

    /// Its definition of a message; `None` if it has none, or it is not known: services and actions are known of Jazzy alone.
    pub fn get(self, type_name: &str) -> Option<InterfaceSource> {
        let bundle = Bundle::embedded();
        if self.name() == "jazzy" {
            return bundle.get(type_name);
        }
        let of_type = spans().get(type_name).map(Vec::as_slice).unwrap_or_default();
        match of_type.iter().find(|entry| self.is_within(entry)) {
            // An entry without a hash says that the type does not exist.
            Some(entry) => (entry.type_hash != "-").then(|| entry.source()),
            None => bundle
                .get(type_name)
                .filter(|source| source.format == SourceFormat::Msg),
        }
    }

    fn is_within(self, entry: &Entry) -> bool {
        let place = |name: &str| NAMES.iter().position(|known| *known == name);
        let bounds = entry
            .span
            .and_then(|(first, last)| Some((place(first)?, place(last)?)));
        bounds.is_some_and(|(first, last)| (first..=last).contains(&self.0))
    }
}

/// The entries by type.
fn spans() -> &'static HashMap<&'static str, Vec<Entry>> {
    static SPANS: OnceLock<HashMap<&'static str, Vec<Entry>>> = OnceLock::new();
    SPANS.get_or_init(|| {
        let mut spans: HashMap<_, Vec<Entry>> = HashMap::new();
        for (type_name, entry) in entries(TEXT) {
            spans.entry(type_name).or_default().push(entry);
        }
        spans
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interface::Definition;

    #[test]
    fn every_definition_has_the_hash_that_rosbags_gave_it() {
        let mut count = 0;
        for (type_name, entry) in entries(TEXT).filter(|(_, entry)| entry.type_hash != "-") {
            let distribution = Distribution::by_name(entry.span.unwrap().0).unwrap();
            let definition = Definition::resolve(type_name, |name| distribution.get(name)).unwrap();
            assert_eq!(definition.type_hash(), entry.type_hash, "{type_name}");
            count += 1;
        }
        assert!(count > 10, "{count}");
    }

    #[test]
    fn distributions_have_what_they_had() {
        let of = |name: &str, type_name: &str| {
            let text = Distribution::by_name(name).unwrap().get(type_name);
            text.map(|source| source.text.into_owned())
        };
        assert!(of("foxy", "visualization_msgs/msg/Marker").is_some_and(|text| !text.contains("mesh_file")));
        assert!(of("humble", "visualization_msgs/msg/Marker").is_some_and(|text| text.contains("mesh_file")));
        assert_eq!(of("iron", "geometry_msgs/msg/VelocityStamped"), None);
        assert!(of("kilted", "nav_msgs/msg/Goals").is_some());
        assert_eq!(of("humble", "std_srvs/srv/Trigger"), None);
        assert!(of("jazzy", "std_srvs/srv/Trigger").is_some());
        assert_eq!(Distribution::by_name("noetic"), None);
    }
}
