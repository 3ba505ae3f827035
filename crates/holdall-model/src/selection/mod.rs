//! Which topics are recorded.

mod filter;
mod validate;
mod whole;

pub use filter::TopicFilter;
pub use validate::{PatternError, SelectionError, SelectionPart, parse_pattern};
pub use whole::WholePattern;

/// The selection of topics, with the options of `ros2 bag record`.
///
/// ```
/// use holdall_model::selection::Selection;
///
/// let all_but_images = Selection {
///     exclude_topic_types: vec!["sensor_msgs/msg/Image".to_owned()],
///     ..Selection::all()
/// };
/// assert!(all_but_images.validate().is_ok());
/// let nothing_to_exclude_from = Selection {
///     exclude_topics: vec!["/rosout".to_owned()],
///     ..Selection::of_topics(["/odom"])
/// };
/// assert!(nothing_to_exclude_from.validate().is_err());
/// ```
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// `--all-topics` (or `-a`).
    pub all_topics: bool,
    /// `--all-services` (or `-a`).
    pub all_services: bool,
    /// `--all-actions` (or `-a`).
    pub all_actions: bool,
    /// Exact topic names.
    pub topics: Vec<String>,
    /// Service names; their `/_service_event` topics are recorded.
    pub services: Vec<String>,
    /// Action names; their feedback, status and service events are recorded.
    pub actions: Vec<String>,
    /// All topics of these types.
    pub topic_types: Vec<String>,
    /// Search pattern on topic, service and action names; ignored when an `all_*` is set.
    pub regex: Option<regex::Regex>,
    /// Topics, services and actions that match are excluded.
    pub exclude_regex: Option<regex::Regex>,
    /// Exact topic names to exclude.
    pub exclude_topics: Vec<String>,
    /// Service names to exclude.
    pub exclude_services: Vec<String>,
    /// Action names to exclude.
    pub exclude_actions: Vec<String>,
    /// Types to exclude.
    pub exclude_topic_types: Vec<String>,
    /// Also topics with a name token that begins with `_`.
    pub include_hidden_topics: bool,
    /// Also topics that have only subscriptions.
    pub include_unpublished_topics: bool,
    /// Exclude topics without a subscription.
    pub ignore_leaf_topics: bool,
}

impl Selection {
    /// Every topic, service and action that discovery finds (`--all`), hidden topics excepted.
    #[must_use]
    pub fn all() -> Self {
        Self {
            all_topics: true,
            all_services: true,
            all_actions: true,
            ..Self::default()
        }
    }

    /// The topics with these names.
    #[must_use]
    pub fn of_topics<N: Into<String>>(names: impl IntoIterator<Item = N>) -> Self {
        Self {
            topics: names.into_iter().map(Into::into).collect(),
            ..Self::default()
        }
    }
}
