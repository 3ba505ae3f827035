//! Services of rosbag2 in older distributions: layouts whose clients are answered, too.
//!
//! A client reads a reply in its own layout only: Fast DDS drops a longer one, and a shorter one cannot be read.

use holdall_model::interface::{
    self, Definition, InterfaceError, InterfaceSource, SourceFormat, bundle::Bundle,
};
use std::borrow::Cow;

/// Distributions of ROS 2 whose interfaces differ, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Distribution {
    /// Kilted and all before it.
    Kilted,
    /// All after Kilted.
    Lyrical,
}

impl Distribution {
    /// A distribution by its name, as `ROS_DISTRO` has it; one that is not known is a later one.
    pub fn from_name(name: &str) -> Self {
        // Names of distributions begin with the next letter of the alphabet each.
        match name.bytes().next().map(|byte| byte.to_ascii_lowercase()) {
            Some(b'a'..=b'k') => Self::Kilted,
            _ => Self::Lyrical,
        }
    }
}

/// A former layout of a service.
#[derive(Clone, Copy, Debug)]
pub(super) struct FormerLayout {
    pub type_name: &'static str,
    /// The last distribution that has it; `None` for one that was in sources of Rolling only.
    pub until: Option<Distribution>,
    /// `None` for the text of the distribution.
    text: Option<&'static str>,
}

const OUTCOME: &str = "---\nint32 return_code\nstring error_string\n";

/// All layouts that differ from those in the embedded definitions, the newest of a service first.
pub(super) const FORMER_LAYOUTS: [FormerLayout; 7] = [
    FormerLayout {
        type_name: "rosbag2_interfaces/srv/Record",
        until: Some(Distribution::Kilted),
        text: None,
    },
    FormerLayout {
        type_name: "rosbag2_interfaces/srv/Resume",
        until: None,
        text: Some("builtin_interfaces/Time resume_time\n---\n"),
    },
    FormerLayout {
        type_name: "rosbag2_interfaces/srv/Resume",
        until: None,
        text: Some(OUTCOME),
    },
    FormerLayout {
        type_name: "rosbag2_interfaces/srv/Resume",
        until: Some(Distribution::Kilted),
        text: None,
    },
    FormerLayout {
        type_name: "rosbag2_interfaces/srv/SplitBagfile",
        until: None,
        text: Some(OUTCOME),
    },
    FormerLayout {
        type_name: "rosbag2_interfaces/srv/SplitBagfile",
        until: Some(Distribution::Kilted),
        text: None,
    },
    FormerLayout {
        type_name: "rosbag2_interfaces/srv/Stop",
        until: Some(Distribution::Kilted),
        text: None,
    },
];

impl FormerLayout {
    /// The definition of the service's type or of a part of it, such as `rosbag2_interfaces/srv/Stop_Response`.
    ///
    /// # Errors
    /// When a type that it needs is not embedded.
    pub fn define(&self, type_name: &str) -> Result<Definition, InterfaceError> {
        Definition::resolve(type_name, |name| {
            if name != self.type_name {
                return Bundle::embedded().get(name);
            }
            let Some(text) = self.text else {
                return interface::Distribution::by_name("kilted")?.get(name);
            };
            Some(InterfaceSource {
                format: SourceFormat::Srv,
                text: Cow::Borrowed(text),
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distributions_are_known_by_their_initial() {
        for name in ["humble", "iron", "jazzy", "kilted", "foxy"] {
            assert_eq!(Distribution::from_name(name), Distribution::Kilted, "{name}");
        }
        for name in ["lyrical", "rolling", "Rolling", ""] {
            assert_eq!(Distribution::from_name(name), Distribution::Lyrical, "{name}");
        }
    }

    #[test]
    fn hashes_of_former_layouts_are_those_of_rosidl() {
        // Values that rosidl_generator_type_description 4.6.6 computes from the texts of rosbag2_interfaces 0.26.5 and of 0.26.10.
        let hash = |service: &str, part: &str| {
            let type_name = format!("rosbag2_interfaces/srv/{service}");
            let is_last = |layout: &&FormerLayout| layout.type_name == type_name && layout.until.is_some();
            let layout = FORMER_LAYOUTS.iter().find(is_last).unwrap();
            layout.define(&format!("{type_name}{part}")).unwrap().type_hash()
        };
        for (service, part, expected) in [
            (
                "Resume",
                "",
                "RIHS01_fb4a116a8bdfc09c4c9f48df3b295d1f546053b4bb145bcbd4c92e7eef9896b8",
            ),
            (
                "Resume",
                "_Request",
                "RIHS01_fb988aa8fefd54ec0e79a58a51aa06101e0bcb1668dc38bbc0b4e02d6df274d9",
            ),
            (
                "Resume",
                "_Response",
                "RIHS01_9df430ac47b3d942f08c1603418243b6457bef5ede37593d75d8d40edc543381",
            ),
            (
                "SplitBagfile",
                "",
                "RIHS01_7e617148bb4bcd1feffcffea546caf0c23de6a1f94201625a4167f73bc8cea15",
            ),
            (
                "SplitBagfile",
                "_Request",
                "RIHS01_9918ae60556a6e2acce55c52f4755aa0d52ac69300aa7dac283b56008f271bdc",
            ),
            (
                "SplitBagfile",
                "_Response",
                "RIHS01_a3da7835052da434e306631df08cc3efb919f82610f23d9b382795a464a23867",
            ),
            (
                "Stop",
                "",
                "RIHS01_668ca94eac65895275ec6d59de0206e522deebe199d9978ffc5ddbaa84a3401e",
            ),
            (
                "Stop",
                "_Request",
                "RIHS01_2ba13fee320757e55d4c44f1de0a13e6bb4511968a2aec7f015436e1e137674e",
            ),
            (
                "Stop",
                "_Response",
                "RIHS01_a5fb4f19fae6b772ca835ee2b5a814b5fa2e8b65d2a3670157028420f89fbdc8",
            ),
            (
                "Record",
                "",
                "RIHS01_2283a262504c239b723984ce0ef94acf2eecfe156b21461f2cacbbf0219e898a",
            ),
            (
                "Record",
                "_Request",
                "RIHS01_fa04135023c2daf7b8b382839b8aff24690cbf8448f6f36b8059ac2c91261636",
            ),
            (
                "Record",
                "_Response",
                "RIHS01_7fcd82e86a46c0f0ee3927b80053c528194e620132a714bfcd207124fc4ae623",
            ),
        ] {
            assert_eq!(hash(service, part), expected, "{service}{part}");
        }
    }
}
