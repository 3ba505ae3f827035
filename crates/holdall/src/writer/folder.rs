//! The bag directory: made new, small text files replaced at once, files of a ring removed.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// What a bag needs of the directory besides its storage files.
pub trait BagFolder: Send {
    /// Makes the directory and its parents.
    ///
    /// # Errors
    /// When it exists already or cannot be made.
    fn create_new(&self, directory: &Path) -> Result<(), FolderError>;

    /// Replaces a text file so that it is seen old or new, never in part. `durable` waits until it survives a power cut.
    ///
    /// # Errors
    /// When it cannot be written; the old one is left as it was.
    fn replace_text(&self, path: &Path, text: &str, durable: bool) -> Result<(), FolderError>;

    /// Removes a file; one that is not there is no error.
    ///
    /// # Errors
    /// When it cannot be removed.
    fn remove_file(&self, path: &Path) -> Result<(), FolderError>;
}

/// What could not be done in a bag directory.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {}: {source}", path.display())]
pub struct FolderError {
    /// What was tried: `create`, `write`, `remove`.
    pub action: &'static str,
    /// With what.
    pub path: PathBuf,
    /// Why not.
    pub source: io::Error,
}

impl FolderError {
    fn new(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self { action, path, source }
    }

    /// Whether the disk is full.
    pub fn is_no_space(&self) -> bool {
        matches!(
            self.source.kind(),
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
        )
    }

    /// Whether something was there already.
    pub fn is_already_exists(&self) -> bool {
        self.source.kind() == io::ErrorKind::AlreadyExists
    }
}

/// Directories of the operating system.
#[derive(Clone, Copy, Debug, Default)]
pub struct OsFolder;

impl BagFolder for OsFolder {
    fn create_new(&self, directory: &Path) -> Result<(), FolderError> {
        if let Some(parent) = directory.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            fs::create_dir_all(parent).map_err(FolderError::new("create", parent))?;
        }
        fs::create_dir(directory).map_err(FolderError::new("create", directory))
    }

    fn replace_text(&self, path: &Path, text: &str, durable: bool) -> Result<(), FolderError> {
        let fresh = path.with_extension("yaml.new");
        let written = fs::File::create(&fresh).and_then(|mut file| {
            io::Write::write_all(&mut file, text.as_bytes())?;
            if durable { file.sync_all() } else { Ok(()) }
        });
        written
            .and_then(|()| fs::rename(&fresh, path))
            .inspect_err(|_| drop(fs::remove_file(&fresh)))
            .map_err(FolderError::new("write", path))?;
        match path.parent() {
            Some(parent) if durable => fs::File::open(parent)
                .and_then(|directory| directory.sync_all())
                .map_err(FolderError::new("sync", parent)),
            _ => Ok(()),
        }
    }

    fn remove_file(&self, path: &Path) -> Result<(), FolderError> {
        match fs::remove_file(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other.map_err(FolderError::new("remove", path)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_made_once_and_never_taken_over() {
        let dir = tempfile::tempdir().unwrap();
        let bag = dir.path().join("a/b");
        OsFolder.create_new(&bag).unwrap();
        let error = OsFolder.create_new(&bag).unwrap_err();
        assert!(error.is_already_exists());
        assert!(error.to_string().contains("a/b"), "{error}");
    }

    #[test]
    fn a_text_is_replaced_and_leaves_nothing_behind() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("metadata.yaml");
        for (text, durable) in [("one", false), ("two", true)] {
            OsFolder.replace_text(&path, text, durable).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        OsFolder.remove_file(&path).unwrap();
        OsFolder.remove_file(&path).unwrap();
    }
}
