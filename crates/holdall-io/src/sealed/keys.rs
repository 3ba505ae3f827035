//! The keys of sealed files: one for each bag, wrapped for its owners; and the keys that this process can unwrap.

use crate::mutex::lock;
use ring::rand::{SecureRandom, SystemRandom};
use std::{
    collections::VecDeque,
    fmt, io,
    sync::{Arc, Mutex, MutexGuard},
};

/// Length of a file key in bytes.
pub const FILE_KEY_BYTES: usize = 32;

/// A longer wrapped key is refused; each owner takes 100 to 700 bytes of it.
pub const WRAPPED_BYTES_MAX: usize = 60 << 10;

/// Unwrapped keys that are remembered: one for each bag.
const KNOWN_MAX: usize = 64;

/// A secret from which the keys of files are derived.
#[derive(Clone)]
pub struct FileKey(pub(super) [u8; FILE_KEY_BYTES]);

impl FileKey {
    /// The key of these bytes; `None` when they are not [`FILE_KEY_BYTES`].
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    /// Its bytes, to wrap them.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for FileKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FileKey(…)")
    }
}

/// Why a sealed file cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SealedError {
    /// The process has no key at all.
    #[error("it is encrypted, and no key was given")]
    NoKey,
    /// None of the keys fits.
    #[error("it is encrypted, and none of the given keys opens it")]
    WrongKey,
    /// Bytes that differ from the written ones.
    #[error("it is encrypted, and its bytes there are not those that were written")]
    Changed,
}

impl From<SealedError> for io::Error {
    fn from(error: SealedError) -> Self {
        let kind = match error {
            SealedError::NoKey | SealedError::WrongKey => io::ErrorKind::PermissionDenied,
            SealedError::Changed => io::ErrorKind::InvalidData,
        };
        Self::new(kind, error)
    }
}

/// The seal of new files: a secret, and the same secret wrapped for the owners, which goes into each file.
#[derive(Clone, Debug)]
pub struct Seal {
    pub(super) key: FileKey,
    pub(super) wrapped: Arc<[u8]>,
}

impl Seal {
    /// A new secret, which `wrap` encrypts for its owners. This process remembers it, and can read the files.
    ///
    /// # Errors
    /// The error of `wrap`; a system without random numbers; more than [`WRAPPED_BYTES_MAX`] wrapped bytes.
    pub fn generate<E: From<io::Error>>(
        wrap: impl FnOnce(&FileKey) -> Result<Vec<u8>, E>,
    ) -> Result<Self, E> {
        let key = FileKey(random()?);
        let wrapped = wrap(&key)?;
        if wrapped.len() > WRAPPED_BYTES_MAX {
            let what = format!(
                "a key for this many owners has {} bytes, more than {WRAPPED_BYTES_MAX}",
                wrapped.len()
            );
            return Err(E::from(io::Error::new(io::ErrorKind::InvalidInput, what)));
        }
        let seal = Self {
            key,
            wrapped: wrapped.into(),
        };
        ring().remember(&seal);
        Ok(seal)
    }

    /// Whether files of both are of the same bag: all files of one have the same secret, which no other has.
    pub fn is_of_same_bag(&self, other: &Self) -> bool {
        self.key.0 == other.key.0
    }

    /// The whole sealed file that has these bytes.
    ///
    /// # Errors
    /// A system without random numbers.
    pub fn seal_bytes(&self, bytes: &[u8]) -> io::Result<Vec<u8>> {
        super::log::whole_file(self, bytes)
    }
}

/// So many random bytes.
pub(super) fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| io::Error::other("the system gives no random numbers"))?;
    Ok(bytes)
}

/// Unwraps keys; `None` when it cannot.
type Opener = Box<dyn Fn(&[u8]) -> Option<FileKey> + Send>;

/// The keys of this process.
struct KeyRing {
    openers: Vec<Opener>,
    /// Wrapped keys and the seals they unwrap to.
    known: VecDeque<Seal>,
}

static RING: Mutex<KeyRing> = Mutex::new(KeyRing {
    openers: Vec::new(),
    known: VecDeque::new(),
});

fn ring() -> MutexGuard<'static, KeyRing> {
    lock(&RING)
}

impl KeyRing {
    fn remember(&mut self, seal: &Seal) {
        if self.known.len() == KNOWN_MAX {
            self.known.pop_front();
        }
        self.known.push_back(seal.clone());
    }
}

/// Lets this process read the sealed files whose keys `opener` unwraps.
pub fn add_key_opener(opener: impl Fn(&[u8]) -> Option<FileKey> + Send + 'static) {
    ring().openers.push(Box::new(opener));
}

/// The seal with this wrapped key.
pub(super) fn unwrap(wrapped: &[u8]) -> Result<Seal, SealedError> {
    let mut ring = ring();
    if let Some(seal) = ring.known.iter().find(|seal| *seal.wrapped == *wrapped) {
        return Ok(seal.clone());
    }
    let Some(key) = ring.openers.iter().find_map(|open| open(wrapped)) else {
        return Err(if ring.openers.is_empty() {
            SealedError::NoKey
        } else {
            SealedError::WrongKey
        });
    };
    let seal = Seal {
        key,
        wrapped: wrapped.into(),
    };
    ring.remember(&seal);
    Ok(seal)
}
