//! Names that command lines of both programs have for choices of the libraries, and the colours of their help.

use clap::{
    ValueEnum,
    builder::{PossibleValue, styling},
};
use holdall::record::options::CachePolicy;
use holdall_io::os::DiskMode;
use holdall_transport::registry::transports;
use std::sync::LazyLock;

/// Colours of help and errors.
pub const STYLES: styling::Styles = styling::Styles::styled()
    .header(styling::AnsiColor::Green.on_default().bold())
    .usage(styling::AnsiColor::Green.on_default().bold())
    .literal(styling::AnsiColor::Cyan.on_default())
    .placeholder(styling::AnsiColor::Cyan.on_default());

/// A way to reach live topics (`--transport`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransportName {
    /// The transport with this id.
    Id(&'static str),
    /// Every transport of this build that can be started here.
    Auto,
}

impl ValueEnum for TransportName {
    fn value_variants<'a>() -> &'a [Self] {
        static NAMES: LazyLock<Vec<TransportName>> = LazyLock::new(|| {
            let mut ids: Vec<&str> = transports().iter().map(|entry| entry.id).collect();
            ids.sort_unstable();
            let named = ids.into_iter().map(TransportName::Id);
            named.chain([TransportName::Auto]).collect()
        });
        &NAMES
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(match self {
            Self::Id(id) => {
                let entry = transports().iter().find(|entry| entry.id == *id)?;
                PossibleValue::new(entry.id).help(entry.about)
            }
            Self::Auto => PossibleValue::new("auto")
                .help("Every transport of this build that can be started here; rmw to record only"),
        })
    }
}

/// Policy for a full cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum CachePolicyName {
    /// Drop new messages of topics that use more than their share, so that no topic starves another.
    #[default]
    Fair,
    /// Drop new messages, as rosbag2 does.
    DropNew,
    /// Drop the oldest messages.
    DropOld,
}

impl From<CachePolicyName> for CachePolicy {
    fn from(name: CachePolicyName) -> Self {
        match name {
            CachePolicyName::Fair => Self::Fair,
            CachePolicyName::DropNew => Self::DropNew,
            CachePolicyName::DropOld => Self::DropOld,
        }
    }
}

/// How storage files are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum DiskModeName {
    /// Direct where the file system supports it, else buffered.
    #[default]
    Auto,
    /// Bypass the page cache (`O_DIRECT`); fail where that is not supported.
    Direct,
    /// Through the page cache, with early write-back.
    Buffered,
}

impl From<DiskModeName> for DiskMode {
    fn from(name: DiskModeName) -> Self {
        match name {
            DiskModeName::Auto => Self::Auto,
            DiskModeName::Direct => Self::Direct,
            DiskModeName::Buffered => Self::Buffered,
        }
    }
}
