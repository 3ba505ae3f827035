//! Why a bag was not uploaded.

use holdall_bag::{live::LockError, reader::ReadError};
use holdall_io::{disk::DiskError, lock::Holder, remote};
use std::{
    io,
    path::{Path, PathBuf},
};

/// Why a bag was not uploaded; one sentence, with the URL or the path.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UploadError {
    /// The path is not a bag.
    #[error("{} is not a bag that can be uploaded: {reason}", path.display())]
    NotABag {
        /// The path.
        path: PathBuf,
        /// One clause.
        reason: String,
    },
    /// The bag's metadata cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A file of this computer cannot be read, or the journal not be written.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// A request to the service failed.
    #[error("cannot upload to {url}: {source}")]
    Remote {
        /// Where, without secrets.
        url: String,
        /// The cause.
        source: io::Error,
    },
    /// The object exists with other content.
    #[error("{url} already exists with other content ({found}); nothing was overwritten")]
    Exists {
        /// Where.
        url: String,
        /// The existing content, one clause.
        found: String,
    },
    /// The service has other bytes than were sent, twice.
    #[error("{url} was sent twice, and the service has other bytes each time ({found})")]
    Different {
        /// Where.
        url: String,
        /// Its content, one clause.
        found: String,
    },
    /// A file was changed while it was sent.
    #[error("{} was changed while it was uploaded", path.display())]
    Changed {
        /// The file.
        path: PathBuf,
    },
    /// A recording that was not ended.
    #[error("{}: {reason}; the files before it are uploaded, and `holdall repair` completes it", path.display())]
    Unfinished {
        /// The bag or the file.
        path: PathBuf,
        /// One clause.
        reason: String,
    },
    /// Another process uploads the bag to the same place.
    #[error("{} is being uploaded to {url} by {holder}", path.display())]
    Busy {
        /// The bag.
        path: PathBuf,
        /// Where to.
        url: String,
        /// Who.
        holder: Holder,
    },
    /// The bag cannot be removed.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// It was ended from outside.
    #[error("the upload was stopped; the next one continues with it")]
    Stopped,
}

impl UploadError {
    /// The error of a service.
    pub(super) fn remote(url: &str, source: io::Error) -> Self {
        Self::Remote {
            url: remote::clean(Path::new(url)).display().to_string(),
            source,
        }
    }

    /// Whether trying again later may help.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Remote { source, .. } => !matches!(
                source.kind(),
                io::ErrorKind::PermissionDenied | io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported
            ),
            _ => false,
        }
    }
}
