//! Why a playback could not start.

use holdall_transport::TransportError;

/// Why a playback could not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlayError {
    /// A choice that makes no sense.
    #[error("{option} must be {expected}, not {found}")]
    Option {
        /// Which choice, in the words of the command line.
        option: &'static str,
        /// Allowed values.
        expected: &'static str,
        /// Its value.
        found: String,
    },
    /// A regular expression that cannot be compiled.
    #[error("cannot use the regular expression {pattern:?}: {reason}")]
    Regex {
        /// As given.
        pattern: String,
        /// One clause.
        reason: String,
    },
    /// A bag cannot be read.
    #[error(transparent)]
    Bag(#[from] holdall_bag::reader::ReadError),
    /// Nothing to play.
    #[error("{}: there is nothing to play: {reason}", bags.join(", "))]
    Nothing {
        /// The inputs.
        bags: Vec<String>,
        /// One clause.
        reason: String,
    },
    /// A topic that the transport cannot carry.
    #[error(
        "cannot play {topic}: its messages are serialized as {found:?}, which the chosen transport cannot publish"
    )]
    SerializationFormat {
        /// Name in the bag.
        topic: String,
        /// The format in the bag's metadata.
        found: String,
    },
    /// Requests that cannot be taken out of the recorded events of a service.
    #[error("the requests of {service} cannot be sent again: {reason}")]
    Requests {
        /// Name of the service.
        service: String,
        /// One clause.
        reason: String,
    },
    /// A rule of lock-step replay that this playback cannot follow.
    #[error("cannot step by {rule}: {reason}")]
    Step {
        /// The rule.
        rule: String,
        /// One clause.
        reason: String,
    },
    /// Rules of a migration that do not fit the types, or what needs one.
    #[error(transparent)]
    Rules(#[from] holdall_model::dynamic::migrate::RuleError),
    /// Video or clouds that are to be decoded and cannot be.
    #[error("{0}")]
    Decoding(String),
    /// The transport refused.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// A thread could not be started.
    #[error("cannot start the playback thread: {0}")]
    Thread(std::io::Error),
}

impl PlayError {
    /// The error for inputs that leave nothing to play.
    pub(super) fn nothing(options: &super::options::PlayOptions, reason: &str) -> Self {
        let bags = options
            .inputs
            .iter()
            .map(|input| input.display().to_string())
            .collect();
        Self::Nothing {
            bags,
            reason: reason.to_owned(),
        }
    }
}
