//! Whether a folder has changed, from the kernel.

use crate::disk::{DiskError, Operation};
use rustix::{
    fs::inotify::{CreateFlags, ReadFlags, Reader, WatchFlags, add_watch, init},
    io::Errno,
};
use std::{fmt, mem::MaybeUninit, os::fd::OwnedFd, path::Path};

/// Bytes of events that are read at once: a hundred names of usual length.
const EVENT_BYTES: usize = 4096;

/// Changes that matter when listing a folder or reading its small files.
const CHANGES: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MOVE)
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::CLOSE_WRITE)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF);

/// Watches the entries of a folder, not those of folders in it.
pub struct FolderWatch {
    events: OwnedFd,
}

/// Changes that a [`FolderWatch`] has seen since the last look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FolderNews {
    /// Nothing.
    Nothing,
    /// An entry was created, removed, renamed, written and closed, or given other permissions.
    Changed,
    /// The folder itself was removed or renamed: the watch will see nothing more.
    Gone,
}

impl FolderWatch {
    /// Begins to watch.
    ///
    /// # Errors
    /// The folder does not exist, or the user has too many watches (`fs.inotify.max_user_watches`).
    pub fn open(folder: &Path) -> Result<Self, DiskError> {
        let open = || {
            let events = init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
            add_watch(&events, folder, CHANGES | WatchFlags::ONLYDIR)?;
            Ok(Self { events })
        };
        open().map_err(|errno: Errno| DiskError::new(folder, Operation::Inspect, errno.into()))
    }

    /// Changes since the last call, or since the watch began. Never waits.
    pub fn look(&mut self) -> FolderNews {
        let mut buffer = [MaybeUninit::uninit(); EVENT_BYTES];
        let mut events = Reader::new(&self.events, &mut buffer);
        let mut seen = FolderNews::Nothing;
        loop {
            match events.next() {
                Ok(event) => {
                    let is_gone = ReadFlags::DELETE_SELF | ReadFlags::MOVE_SELF | ReadFlags::IGNORED;
                    if event.events().intersects(is_gone) {
                        return FolderNews::Gone;
                    }
                    seen = FolderNews::Changed;
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return seen,
                Err(_) => return FolderNews::Gone,
            }
        }
    }
}

impl fmt::Debug for FolderWatch {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("FolderWatch")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn changes_of_entries_are_seen_once() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("watched");
        fs::create_dir(&folder).unwrap();
        let mut watch = FolderWatch::open(&folder).unwrap();
        assert_eq!(watch.look(), FolderNews::Nothing);
        fs::write(folder.join("a"), "1").unwrap();
        assert_eq!(watch.look(), FolderNews::Changed);
        assert_eq!(watch.look(), FolderNews::Nothing);
        fs::rename(folder.join("a"), folder.join("b")).unwrap();
        assert_eq!(watch.look(), FolderNews::Changed);
        let mut permissions = fs::metadata(folder.join("b")).unwrap().permissions();
        permissions.set_readonly(true);
        fs::set_permissions(folder.join("b"), permissions).unwrap();
        assert_eq!(watch.look(), FolderNews::Changed);
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(watch.look(), FolderNews::Gone);
    }

    #[test]
    fn a_folder_that_is_not_there_is_an_error() {
        let root = tempfile::tempdir().unwrap();
        let missing = root.path().join("missing");
        let error = FolderWatch::open(&missing).unwrap_err().to_string();
        assert!(error.contains("missing"), "{error}");
    }
}
