//! Which files of a recording are uploaded: shared between the upload and the ring, which removes no others.

use holdall_io::mutex::lock;
use std::{
    collections::HashSet,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

/// The files of a recording that are uploaded; clones share them.
#[derive(Clone, Debug, Default)]
pub struct UploadedFiles(Arc<Mutex<HashSet<PathBuf>>>);

impl UploadedFiles {
    /// Whether a file of the recording is uploaded, and was compared.
    pub fn has(&self, file: &Path) -> bool {
        lock(&self.0).contains(file)
    }

    /// Notes that a file is.
    pub fn add(&self, file: PathBuf) {
        lock(&self.0).insert(file);
    }
}
