//! The definitions of distributions of ROS 2, as far as they differ from those of Jazzy.

use super::{
    InterfaceSource,
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

    /// Its definition of a message or a service; `None` if it has none, or it is not known.
    pub fn get(self, type_name: &str) -> Option<InterfaceSource> {
        let of_type = spans().get(type_name).map(Vec::as_slice).unwrap_or_default();
        match of_type.iter().find(|entry| self.is_within(entry)) {
            // An entry without a hash says that the type does not exist.
            Some(entry) => (entry.type_hash != "-").then(|| entry.source()),
            None => Bundle::embedded().get(type_name),
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
            // Galactic has no events of services.
            let lookup = |name: &str| distribution.get(name).or_else(|| Bundle::embedded().get(name));
            let definition = Definition::resolve(type_name, lookup).unwrap();
            assert_eq!(definition.type_hash(), entry.type_hash, "{type_name}");
            count += 1;
        }
        assert!(count > 20, "{count}");
        let marks = TEXT.lines().filter(|line| line.starts_with("@@ ")).count();
        assert_eq!(entries(TEXT).count(), marks);
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
        for name in NAMES {
            let trigger = of("jazzy", "std_srvs/srv/Trigger");
            assert!(
                trigger.is_some() && of(name, "std_srvs/srv/Trigger") == trigger,
                "{name}"
            );
            assert_eq!(of(name, "my_msgs/srv/Own"), None);
        }
        assert_eq!(of("humble", "rcl_interfaces/srv/GetLoggerLevels"), None);
        assert!(of("iron", "rcl_interfaces/srv/GetLoggerLevels").is_some());
        assert_eq!(of("foxy", "rosbag2_interfaces/srv/Resume"), None);
        for name in ["galactic", "jazzy", "kilted"] {
            assert_eq!(
                of(name, "rosbag2_interfaces/srv/Resume").as_deref(),
                Some("---\n")
            );
        }
        assert!(
            of("lyrical", "rosbag2_interfaces/srv/Resume").is_some_and(|text| text.contains("resume_time"))
        );
        assert_eq!(Distribution::by_name("noetic"), None);
    }
}
