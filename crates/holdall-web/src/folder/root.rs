//! The folder that is served: one of this computer, whose files are opened name by name, or one in a bucket.

use holdall_io::{
    disk::{DiskError, Operation},
    fs::{self, Beneath, StoredFile},
    remote,
};
use std::{
    io,
    path::{Component, Path, PathBuf},
    time::Duration,
};

/// Time between two searches of a folder of this computer, and of one in a bucket, where each is a number of requests that cost.
const SEARCH_INTERVAL: Duration = Duration::from_secs(3);
const REMOTE_INTERVAL: Duration = Duration::from_secs(120);

/// A folder whose bags are given to pages.
#[derive(Debug)]
pub(super) enum Root {
    Here(Beneath),
    /// A URL.
    Remote(PathBuf),
}

impl Root {
    /// Opens the folder.
    pub(super) fn open(path: &Path) -> Result<Self, DiskError> {
        if !remote::is_remote(path) {
            return Beneath::open(path).map(Self::Here);
        }
        fs::list_dir_up_to(path, 1)?;
        Ok(Self::Remote(remote::clean(path).into_owned()))
    }

    /// Its path.
    pub(super) fn path(&self) -> &Path {
        match self {
            Self::Here(beneath) => beneath.path(),
            Self::Remote(path) => path,
        }
    }

    /// Time from one search for bags to the next.
    pub(super) fn search_interval(&self) -> Duration {
        match self {
            Self::Here(_) => SEARCH_INTERVAL,
            Self::Remote(_) => REMOTE_INTERVAL,
        }
    }

    /// The full path of a name below the folder.
    pub(super) fn find(&self, relative: &Path) -> Result<PathBuf, DiskError> {
        match self {
            Self::Here(beneath) => beneath.find(relative),
            Self::Remote(path) => {
                let is_name = |part: Component<'_>| matches!(part, Component::Normal(_));
                if relative.components().all(is_name) {
                    return Ok(path.join(relative));
                }
                let source = io::Error::from(io::ErrorKind::InvalidInput);
                Err(DiskError::new(relative, Operation::Inspect, source))
            }
        }
    }

    /// Opens a stored file to send it; files of buckets are fetched from there.
    pub(super) fn open_file(&self, relative: &Path) -> Result<StoredFile, DiskError> {
        match self {
            Self::Here(beneath) => beneath.open_file(relative),
            Self::Remote(path) => {
                let source = io::Error::new(
                    io::ErrorKind::Unsupported,
                    "files of buckets are downloaded there",
                );
                Err(DiskError::new(path.join(relative), Operation::Open, source))
            }
        }
    }
}
