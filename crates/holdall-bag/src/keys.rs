//! Whose keys encrypt a bag, and which keys this process reads with: age and ssh keys (docs/formats/sealed.md).
//!
//! ```no_run
//! use holdall::{RecordOptions, Recorder, Selection, keys, record::Platform};
//! # use holdall_io::os::DiskMode;
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let transports = Vec::new();
//! let seal = keys::seal_for(&["age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p".to_owned()])?;
//! let platform = Platform::sealed(DiskMode::Auto, seal);
//! let recorder = Recorder::start_on(RecordOptions::new("lab", Selection::all()), transports, platform)?;
//! # drop(recorder);
//! // Elsewhere, on the computer with the secret key:
//! keys::add_identity("key.txt".as_ref())?;
//! println!("{}", holdall::Bag::open("lab")?.messages().count());
//! # Ok(())
//! # }
//! ```

#[cfg(feature = "encryption")]
mod age_keys;

pub use holdall_io::sealed::Seal;
use std::{io, path::PathBuf};

/// Longest file of keys.
#[cfg(feature = "encryption")]
const KEYS_BYTES_MAX: u64 = 1 << 20;

/// Why a key cannot be used; the text is one clause.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The text is neither a public key nor a file of public keys.
    #[error(
        "{text:?} is not a recipient: expected age1..., ssh-ed25519 ..., ssh-rsa ..., or a file of these: {reason}"
    )]
    Recipient {
        /// The text.
        text: String,
        /// The cause.
        reason: String,
    },
    /// A file without a secret key that can be used.
    #[error("{}: {reason}", path.display())]
    Identity {
        /// The file.
        path: PathBuf,
        /// The cause.
        reason: String,
    },
    /// Wrapping the key of a bag failed.
    #[error("the key of the bag cannot be encrypted: {0}")]
    Wrap(#[from] io::Error),
    /// A build without encryption.
    #[error("this build of holdall has no encryption: it lacks the feature encryption")]
    NotBuilt,
}

/// A new secret for one bag, encrypted to `recipients`: public keys, or paths of files with one on each line.
///
/// # Errors
/// A recipient that is none; a build without encryption.
#[cfg(feature = "encryption")]
pub fn seal_for(recipients: &[String]) -> Result<Seal, KeyError> {
    age_keys::seal_for(recipients)
}

/// A new secret for one bag, encrypted to `recipients`.
///
/// # Errors
/// Always: this build has no encryption.
#[cfg(not(feature = "encryption"))]
pub fn seal_for(_recipients: &[String]) -> Result<Seal, KeyError> {
    Err(KeyError::NotBuilt)
}

/// Lets this process read what is encrypted to the secret keys in the file at `path`: one of age, or an ssh key without passphrase.
///
/// # Errors
/// A file that cannot be read or has no such key; a build without encryption.
#[cfg(feature = "encryption")]
pub fn add_identity(path: &std::path::Path) -> Result<(), KeyError> {
    age_keys::add_identity(path)
}

/// Lets this process read what is encrypted to the secret keys in a file.
///
/// # Errors
/// Always: this build has no encryption.
#[cfg(not(feature = "encryption"))]
pub fn add_identity(_path: &std::path::Path) -> Result<(), KeyError> {
    Err(KeyError::NotBuilt)
}
