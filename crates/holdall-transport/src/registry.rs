//! All transports: a new one is its folder and a line here.

use crate::{Transport, TransportError};
use holdall_io::clock::Clock;
use holdall_model::topic::NodeName;
use std::sync::Arc;

/// How to join through a transport.
pub struct OpenOptions<'a> {
    /// The node to show in the graph.
    pub node: &'a NodeName,
    /// The enclave of secured domains (SROS 2) that it belongs to, if the user names one.
    pub enclave: Option<&'a str>,
    /// Environment variables that are set and not empty.
    pub variable: &'a dyn Fn(&str) -> Option<String>,
    /// The clock that stamps arriving messages.
    pub clock: Arc<dyn Clock>,
}

/// Why a transport could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// No transport has this id, or this build lacks it.
    #[error("this build has no transport {0}")]
    Absent(String),
    /// An environment variable has a bad value: one sentence.
    #[error("{0}")]
    Variable(String),
    /// It cannot be started.
    #[error(transparent)]
    Start(#[from] TransportError),
}

/// The functions that a transport's folder offers.
pub struct Backend {
    /// Joins.
    pub open: fn(&OpenOptions<'_>) -> Result<Box<dyn Transport>, OpenError>,
    /// Whether a thread of this name receives its messages.
    pub receives: fn(&str) -> bool,
    /// One sentence about what it needs in addition to this program but is not installed; `None` when nothing is
    /// missing.
    pub missing: fn(&Variables<'_>) -> Option<String>,
}

/// The environment's variables by name.
pub type Variables<'a> = dyn Fn(&str) -> Option<String> + 'a;

/// A transport that users can name.
pub struct Entry {
    /// The id that users and bags use.
    pub id: &'static str,
    /// The systems that it reaches, in one sentence.
    pub about: &'static str,
    /// Values of `RMW_IMPLEMENTATION` that select it; the first transport is selected by all others.
    pub rmw_implementations: &'static [&'static str],
    /// Whether it completes the others: when all transports are requested, it is joined only to receive, and only if its requirements are installed.
    pub completes_others: bool,
    /// `None` if this build lacks it.
    backend: Option<&'static Backend>,
}

macro_rules! transports {
    ($($module:ident $id:tt $rmw:expr, $completes:literal, $about:literal;)*) => {
        /// All transports, in the order in which a topic without an origin prefers them; the first one is the default.
        static TRANSPORTS: &[Entry] = &[$(Entry {
            id: $id,
            about: $about,
            rmw_implementations: &$rmw,
            completes_others: $completes,
            #[cfg(feature = $id)]
            backend: Some(&crate::$module::BACKEND),
            #[cfg(not(feature = $id))]
            backend: None,
        }),*];
    };
}

transports! {
    dds "dds" [], false, "DDS, as most ROS 2 systems do";
    zenoh "zenoh" ["rmw_zenoh_cpp"], false, "Zenoh, as systems with rmw_zenoh do";
    iceoryx2 "iceoryx2" [], false, "Shared memory of this host, through iceoryx2";
    // Other transports reach most of the same nodes.
    rmw "rmw" [], true, "All that the sourced ROS 2 reaches, through its rmw implementation";
}

/// All transports, also those that this build lacks.
pub fn transports() -> &'static [Entry] {
    TRANSPORTS
}

/// The id of the transport that ROS itself would use.
pub fn id_by_rmw(rmw_implementation: Option<&str>) -> &'static str {
    let selects =
        |entry: &&Entry| rmw_implementation.is_some_and(|rmw| entry.rmw_implementations.contains(&rmw));
    TRANSPORTS
        .iter()
        .find(selects)
        .map_or(default_id(), |entry| entry.id)
}

/// The id of the transport that is used unless something selects another.
pub const fn default_id() -> &'static str {
    TRANSPORTS[0].id
}

impl Entry {
    /// Whether this build has it.
    pub fn is_built(&self) -> bool {
        self.backend.is_some()
    }
}

/// Joins through the transport with this id.
///
/// # Errors
/// An id that no transport of this build has; a bad variable; a transport that does not start.
pub fn open(id: &str, options: &OpenOptions<'_>) -> Result<Box<dyn Transport>, OpenError> {
    let entry = TRANSPORTS.iter().find(|entry| entry.id == id);
    let backend = entry.and_then(|entry| entry.backend);
    let backend = backend.ok_or_else(|| OpenError::Absent(id.to_owned()))?;
    (backend.open)(options)
}

/// Why the transport with this id cannot be opened here, without trying it: it is not built, or its requirements are not installed. One
/// sentence.
pub fn missing(id: &str, variable: &dyn Fn(&str) -> Option<String>) -> Option<String> {
    let entry = TRANSPORTS.iter().find(|entry| entry.id == id);
    match entry.and_then(|entry| entry.backend) {
        Some(backend) => (backend.missing)(variable),
        None => Some(OpenError::Absent(id.to_owned()).to_string()),
    }
}

/// Whether a thread of this name receives messages of any transport.
pub fn is_receiving_thread(name: &str) -> bool {
    let mut backends = TRANSPORTS.iter().filter_map(|entry| entry.backend);
    backends.any(|backend| (backend.receives)(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdall_io::clock::SystemClock;

    #[test]
    fn ros_s_own_choice_is_followed() {
        assert_eq!(id_by_rmw(Some("rmw_zenoh_cpp")), "zenoh");
        for name in [None, Some("rmw_fastrtps_cpp"), Some("rmw_cyclonedds_cpp")] {
            assert_eq!(id_by_rmw(name), default_id());
        }
    }

    #[test]
    fn an_id_that_no_transport_has_is_named() {
        let options = OpenOptions {
            node: &NodeName::in_root("node"),
            enclave: None,
            variable: &|_| None,
            clock: Arc::new(SystemClock),
        };
        let error = open("pigeon", &options).err().unwrap();
        assert!(
            matches!(&error, OpenError::Absent(id) if id == "pigeon"),
            "{error}"
        );
        assert_eq!(missing("pigeon", &|_| None), Some(error.to_string()));
        assert!(!is_receiving_thread("main"));
    }
}
