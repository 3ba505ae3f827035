//! The resolved command line: combinations checked, files read, defaults filled in; nothing is started here.

pub mod attach;
pub mod choice;
pub mod control;
pub mod names;
pub mod parameters;
pub mod pattern;
pub mod play;
pub mod record;
mod record_storage;
mod record_topics;
pub mod record_triggers;
pub mod static_topics;
pub mod surroundings;
pub mod tools;

use holdall::keys::{self, Seal};
use holdall_io::{disk::reason, remote};
use holdall_model::{
    qos::{QosProfile, parse_qos_overrides},
    topic::NodeName,
};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

/// Errors in a command line; each is one sentence, and the run ends with exit code 2.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum UsageError {
    /// A control socket after the request.
    #[error("the path of a control socket comes first: holdall control {socket} {request}")]
    SocketIsLate {
        /// The socket.
        socket: String,
        /// The request.
        request: String,
    },
    /// Nothing selects topics to record.
    #[error(
        "nothing is selected to record; use -a for everything, or name topics, or one of --all-topics, --all-services, \
         --all-actions, --services, --actions, --topic-types, --regex, --static-topics-path"
    )]
    NothingSelected,
    /// Recipients of an encrypted bag that are none, or a bag that cannot be encrypted.
    #[error("--encrypt-to: {0}")]
    Encryption(String),
    /// A request of `holdall control` that does not exist.
    #[error(
        "{request} is not a request{near}; expected one of {known}, after the path of a control socket if several run"
    )]
    UnknownRequest {
        /// The word as written.
        request: String,
        /// `; did you mean NAME?`, or nothing.
        near: String,
        /// All that are.
        known: String,
    },
    /// A request of `holdall control` without its argument.
    #[error("the request {0} needs an argument")]
    RequestNeedsArgument(String),
    /// A request of `holdall control` with an argument that it has no use for.
    #[error("the request {0} takes no argument")]
    RequestTakesNoArgument(String),
    /// A flag that narrows a broad choice, without one.
    #[error("{flag} excludes from a broad selection; add one of {broad}")]
    ExcludeWithoutBroadChoice {
        /// The flag that was given.
        flag: &'static str,
        /// Flags with which it would have an effect.
        broad: &'static str,
    },
    /// Two flags that exclude each other.
    #[error("{first} and {second} cannot be used together: {reason}")]
    Clash {
        /// One flag.
        first: &'static str,
        /// The other one.
        second: &'static str,
        /// Why.
        reason: &'static str,
    },
    /// A flag that only makes sense with another one.
    #[error("{flag} needs {needs}")]
    Needs {
        /// The flag that was given.
        flag: &'static str,
        /// The missing part.
        needs: &'static str,
    },
    /// A value that cannot be used.
    #[error("{flag} \"{value}\": {reason}")]
    BadValue {
        /// The flag that it was given to.
        flag: &'static str,
        /// The text as written.
        value: String,
        /// Why it cannot be used.
        reason: String,
    },
    /// The bag directory exists already.
    #[error("{}: already exists; nothing was overwritten, choose another name with -o", path.display())]
    OutputExists {
        /// Where the bag should have gone.
        path: PathBuf,
    },
    /// The bag would be made in a bucket.
    #[error(
        "{}: bags are made on this computer; name a folder with -o, and send what is in it with holdall upload",
        path.display()
    )]
    RemoteOutput {
        /// Where the bag should have gone, without secrets.
        path: PathBuf,
    },
    /// No bag to play is named.
    #[error("no bag is named{hint}")]
    NoBag {
        /// Likely mistake; empty or beginning with `; `.
        hint: String,
    },
    /// A file named by a flag cannot be read.
    #[error("{flag} {}: {reason}", path.display())]
    UnreadableFile {
        /// The flag.
        flag: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        reason: String,
    },
    /// The contents of a file named by a flag cannot be used.
    #[error("{flag} {}: {reason}", path.display())]
    BrokenFile {
        /// The flag.
        flag: &'static str,
        /// The file.
        path: PathBuf,
        /// Place in the file, and fault.
        reason: String,
    },
}

/// Reads a small text file that `flag` names.
pub(crate) fn read_file(
    surroundings: &surroundings::Surroundings<'_>,
    flag: &'static str,
    path: &Path,
) -> Result<String, UsageError> {
    (surroundings.read_file)(path).map_err(|error| UsageError::UnreadableFile {
        flag,
        path: path.to_owned(),
        reason: reason(&error),
    })
}

/// The QoS by topic: from the file of `--qos-profile-overrides-path`, and from `--qos-override`, which comes first.
pub(crate) fn qos_overrides(
    path: Option<&Path>,
    single: &[String],
    surroundings: &surroundings::Surroundings<'_>,
) -> Result<BTreeMap<String, QosProfile>, UsageError> {
    const FLAG: &str = "--qos-profile-overrides-path";
    let mut overrides = BTreeMap::new();
    if let Some(path) = path {
        let text = read_file(surroundings, FLAG, path)?;
        overrides = parse_qos_overrides(&text).map_err(|error| UsageError::BrokenFile {
            flag: FLAG,
            path: path.to_owned(),
            reason: error.to_string(),
        })?;
    }
    for text in single {
        let parsed = parse_qos_overrides(text).map_err(|error| UsageError::BadValue {
            flag: "--qos-override",
            value: text.clone(),
            reason: error.to_string(),
        })?;
        overrides.extend(parsed);
    }
    Ok(overrides)
}

/// A new secret for a bag of these recipients.
fn seal_for(recipients: &[String]) -> Result<Seal, UsageError> {
    keys::seal_for(recipients).map_err(|error| UsageError::Encryption(error.to_string()))
}

/// The node of `--node-name`: `recorder`, or `/robot/recorder` with its namespace.
pub fn node(text: &str) -> Result<NodeName, UsageError> {
    use holdall_model::names::{validate_full_name, validate_node_name};
    let (namespace, name) = match text.rsplit_once('/') {
        Some((namespace, name)) if !namespace.is_empty() => (namespace, name),
        Some((_, name)) => ("/", name),
        None => ("/", text),
    };
    let namespace_is_valid = if namespace == "/" {
        Ok(())
    } else {
        validate_full_name(namespace)
    };
    let valid = namespace_is_valid.and_then(|()| validate_node_name(name));
    let node = NodeName {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    };
    valid.map(|()| node).map_err(|error| UsageError::BadValue {
        flag: "--node-name",
        value: text.to_owned(),
        reason: format!("not a valid node name: {}", error.kind),
    })
}

/// Refuses an output that is not on this computer.
///
/// # Errors
/// When it is not.
pub fn refuse_remote(path: &Path) -> Result<(), UsageError> {
    if remote::is_remote(path) {
        let path = remote::clean(path).into_owned();
        return Err(UsageError::RemoteOutput { path });
    }
    Ok(())
}
