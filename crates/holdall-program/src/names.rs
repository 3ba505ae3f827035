//! Names that command lines of both programs have for choices of the libraries, and the colours of their help.

use clap::{
    ValueEnum,
    builder::{PossibleValue, PossibleValuesParser, TypedValueParser, styling},
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

/// A choice of the library on a command line: the words for it, each with its help and its value.
pub type Words<T> = &'static [(&'static str, &'static str, T)];

/// Accepts one of the words.
pub fn one_of<T: Copy + Send + Sync>(words: Words<T>) -> impl TypedValueParser<Value = T> {
    let shown = words
        .iter()
        .map(|(word, help, _)| PossibleValue::new(word).help(help));
    PossibleValuesParser::new(shown).try_map(|given| {
        let mut words = words.iter();
        let found = words.find(|(word, ..)| word.eq_ignore_ascii_case(&given));
        found
            .map(|(.., value)| *value)
            .ok_or("it is not one of the words")
    })
}

/// Policies for a full cache.
pub const CACHE_POLICIES: Words<CachePolicy> = &[
    (
        "fair",
        "Drop new messages of topics that use more than their share, so that no topic starves another",
        CachePolicy::Fair,
    ),
    (
        "drop-new",
        "Drop new messages, as rosbag2 does",
        CachePolicy::DropNew,
    ),
    ("drop-old", "Drop the oldest messages", CachePolicy::DropOld),
];

/// How storage files are written.
pub const DISK_MODES: Words<DiskMode> = &[
    (
        "auto",
        "Direct where the file system supports it, else buffered",
        DiskMode::Auto,
    ),
    (
        "direct",
        "Bypass the page cache (`O_DIRECT`); fail where that is not supported",
        DiskMode::Direct,
    ),
    (
        "buffered",
        "Through the page cache, with early write-back",
        DiskMode::Buffered,
    ),
];
