//! Files below one folder, opened name by name, so that neither `..` nor a link leads out of it.

use crate::disk::{DiskError, Operation};
use rustix::fs::{AtFlags, Mode, OFlags, open, openat, statat};
use std::{
    fs, io,
    os::fd::OwnedFd,
    path::{Component, Path, PathBuf},
};

/// A folder whose content is given to others. What is outside of it, or reached by a symbolic link, cannot be opened through it, also when
/// the folder is changed at the same moment.
#[derive(Debug)]
pub struct Beneath {
    root: OwnedFd,
    path: PathBuf,
}

/// A regular file below a folder, with the bytes that are stored: encrypted ones stay encrypted.
#[derive(Debug)]
pub struct StoredFile {
    file: fs::File,
    len_bytes: u64,
}

impl Beneath {
    /// Opens the folder; links that lead to it are followed.
    ///
    /// # Errors
    /// When it is no folder, or cannot be opened.
    pub fn open(path: &Path) -> Result<Self, DiskError> {
        let fail = |source| DiskError::new(path, Operation::Open, source);
        let root = open(path, DIRECTORY, Mode::empty()).map_err(|error| fail(error.into()))?;
        let path = fs::canonicalize(path).map_err(fail)?;
        Ok(Self { root, path })
    }

    /// Where the folder is, without links.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The full path of what has this name below the folder.
    ///
    /// # Errors
    /// A name with `..`, an absolute one, or one that passes through a link; or nothing has the name.
    pub fn find(&self, relative: &Path) -> Result<PathBuf, DiskError> {
        let fail = |source| DiskError::new(self.path.join(relative), Operation::Inspect, source);
        let (parent, name) = self.walk(relative).map_err(fail)?;
        let parent = parent.as_ref().unwrap_or(&self.root);
        let about = statat(parent, name, AtFlags::SYMLINK_NOFOLLOW).map_err(|error| fail(error.into()))?;
        if rustix::fs::FileType::from_raw_mode(about.st_mode).is_symlink() {
            return Err(fail(refused()));
        }
        Ok(self.path.join(relative))
    }

    /// Opens a regular file.
    ///
    /// # Errors
    /// As [`Beneath::find`], and for anything that is no regular file.
    pub fn open_file(&self, relative: &Path) -> Result<StoredFile, DiskError> {
        let fail = |source| DiskError::new(self.path.join(relative), Operation::Open, source);
        let (parent, name) = self.walk(relative).map_err(fail)?;
        // Without NONBLOCK a pipe would be waited for.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let parent = parent.as_ref().unwrap_or(&self.root);
        let opened = openat(parent, name, flags, Mode::empty()).map_err(|error| fail(error.into()))?;
        let file = fs::File::from(opened);
        let about = file.metadata().map_err(fail)?;
        if !about.is_file() {
            return Err(fail(io::Error::new(
                io::ErrorKind::InvalidInput,
                "it is no regular file",
            )));
        }
        Ok(StoredFile {
            file,
            len_bytes: about.len(),
        })
    }

    /// Opens the folders before the last name; `None` where that is in the folder itself.
    fn walk<'a>(&self, relative: &'a Path) -> io::Result<(Option<OwnedFd>, &'a std::ffi::OsStr)> {
        let mut names = Vec::new();
        for component in relative.components() {
            match component {
                Component::Normal(name) => names.push(name),
                _ => return Err(refused()),
            }
        }
        let last = names.pop().ok_or_else(refused)?;
        let mut at: Option<OwnedFd> = None;
        for name in names {
            let parent = at.as_ref().unwrap_or(&self.root);
            at = Some(openat(parent, name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty())?);
        }
        Ok((at, last))
    }
}

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

fn refused() -> io::Error {
    io::Error::new(
        io::ErrorKind::PermissionDenied,
        "it is a link, or outside of the folder",
    )
}

impl StoredFile {
    /// Its length when it was opened.
    pub fn len_bytes(&self) -> u64 {
        self.len_bytes
    }
}

impl io::Read for StoredFile {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.file.read(into)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{io::Read, os::unix::fs::symlink};

    #[test]
    fn neither_dots_nor_links_lead_out_of_the_folder() {
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("secret"), "secret").unwrap();
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("bags");
        fs::create_dir_all(root.join("lab/inner")).unwrap();
        fs::write(root.join("lab/inner/a.mcap"), "content").unwrap();
        fs::write(folder.path().join("beside"), "secret").unwrap();
        symlink(outside.path(), root.join("out")).unwrap();
        symlink(outside.path().join("secret"), root.join("lab/link")).unwrap();
        symlink("inner", root.join("lab/loop")).unwrap();
        let beneath = Beneath::open(&root).unwrap();
        let mut text = String::new();
        let mut file = beneath.open_file(Path::new("lab/inner/a.mcap")).unwrap();
        assert_eq!(file.len_bytes(), 7);
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "content");
        assert!(beneath.find(Path::new("lab/inner")).is_ok());
        for name in [
            "",
            ".",
            "..",
            "../beside",
            "lab/../../beside",
            "/etc/passwd",
            "out/secret",
            "out",
            "lab/link",
            "lab/loop/a.mcap",
            "lab/none",
        ] {
            assert!(beneath.open_file(Path::new(name)).is_err(), "{name}");
            assert!(beneath.find(Path::new(name)).is_err(), "{name}");
        }
        assert!(
            beneath.open_file(Path::new("lab")).is_err(),
            "a folder is no file"
        );
    }
}
