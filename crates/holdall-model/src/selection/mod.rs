//! Which topics a recording takes.

mod filter;
mod validate;

pub use filter::TopicFilter;
pub use validate::{SelectionError, parse_pattern};

/// The choice of topics, as `ros2 bag record` understands it.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// `--all-topics` (or `-a`).
    pub all_topics: bool,
    /// `--all-services` (or `-a`).
    pub all_services: bool,
    /// Exact topic names.
    pub topics: Vec<String>,
    /// Service names; their `/_service_event` topics are taken.
    pub services: Vec<String>,
    /// All topics of these types.
    pub topic_types: Vec<String>,
    /// Search pattern on topic and service names; not looked at when an `all_*` is set.
    pub regex: Option<regex::Regex>,
    /// Topics and services that match are left out.
    pub exclude_regex: Option<regex::Regex>,
    /// Exact topic names to leave out.
    pub exclude_topics: Vec<String>,
    /// Service names to leave out.
    pub exclude_services: Vec<String>,
    /// Types to leave out.
    pub exclude_topic_types: Vec<String>,
    /// Also topics with a name token that begins with `_`.
    pub include_hidden_topics: bool,
    /// Also topics that have only subscriptions.
    pub include_unpublished_topics: bool,
    /// Not topics without a subscription.
    pub ignore_leaf_topics: bool,
}
