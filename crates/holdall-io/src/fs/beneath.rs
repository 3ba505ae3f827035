//! Files below one folder, opened name by name, so that neither `..` nor a link leads out of it.

use crate::disk::{DiskError, Operation};
use rustix::fs::{AtFlags, Mode, OFlags, open, openat, statat};
use std::{
    ffi::OsStr,
    fs, io,
    ops::Deref,
    os::fd::{AsRawFd, OwnedFd},
    path::{Component, Path, PathBuf},
    sync::{Arc, PoisonError, RwLock},
};

/// A folder whose content is given to others. Nothing outside it, or reached through a symbolic link, can be opened through it, even if the folder is
/// changed at the same moment.
///
/// While it exists, this holds for the whole process: every function of [`crate::fs`] that reads a path below the folder opens it name by name,
/// so that readers of bags, which know paths only, follow no link either.
#[derive(Debug)]
pub struct Beneath(Arc<Root>);

#[derive(Debug)]
struct Root {
    folder: OwnedFd,
    path: PathBuf,
}

/// The folders of this process whose content is given to others.
static GIVEN: RwLock<Vec<Arc<Root>>> = RwLock::new(Vec::new());

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
    /// When it is not a folder, or cannot be opened.
    pub fn open(path: &Path) -> Result<Self, DiskError> {
        let fail = |source| DiskError::new(path, Operation::Open, source);
        let folder = open(path, DIRECTORY, Mode::empty()).map_err(|error| fail(error.into()))?;
        let path = fs::canonicalize(path).map_err(fail)?;
        let root = Arc::new(Root { folder, path });
        let mut given = GIVEN.write().unwrap_or_else(PoisonError::into_inner);
        given.push(Arc::clone(&root));
        Ok(Self(root))
    }

    /// Path of the folder, without links.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// The full path of the file or folder with this name below the folder.
    ///
    /// # Errors
    /// A name with `..`, an absolute one, or one that passes through a link; or a name that does not
    /// exist.
    pub fn find(&self, relative: &Path) -> Result<PathBuf, DiskError> {
        let fail = |source| DiskError::new(self.path().join(relative), Operation::Inspect, source);
        self.0.pin(relative).map_err(fail)?;
        Ok(self.path().join(relative))
    }

    /// Opens a regular file.
    ///
    /// # Errors
    /// As [`Beneath::find`], and for anything that is not a regular file.
    pub fn open_file(&self, relative: &Path) -> Result<StoredFile, DiskError> {
        let fail = |source| DiskError::new(self.path().join(relative), Operation::Open, source);
        let (parent, name) = self.0.walk(relative).map_err(fail)?;
        // Without NONBLOCK a pipe would be waited for.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let parent = parent.as_ref().unwrap_or(&self.0.folder);
        let opened = openat(parent, name, flags, Mode::empty()).map_err(|error| fail(error.into()))?;
        let file = fs::File::from(opened);
        let about = file.metadata().map_err(fail)?;
        if !about.is_file() {
            return Err(fail(io::Error::new(
                io::ErrorKind::InvalidInput,
                "it is not a regular file",
            )));
        }
        Ok(StoredFile {
            file,
            len_bytes: about.len(),
        })
    }
}

impl Drop for Beneath {
    fn drop(&mut self) {
        let mut given = GIVEN.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = given.iter().position(|root| Arc::ptr_eq(root, &self.0)) {
            given.remove(at);
        }
    }
}

impl Root {
    /// Opens the folders before the last name; `None` if that is in the folder itself.
    fn walk<'a>(&self, relative: &'a Path) -> io::Result<(Option<OwnedFd>, &'a OsStr)> {
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
            let parent = at.as_ref().unwrap_or(&self.folder);
            at = Some(openat(parent, name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty())?);
        }
        Ok((at, last))
    }

    /// Opens the file or folder with this name, unless it is a link.
    fn pin(&self, relative: &Path) -> io::Result<OwnedFd> {
        let (parent, name) = self.walk(relative)?;
        let parent = parent.as_ref().unwrap_or(&self.folder);
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let held = openat(parent, name, flags, Mode::empty())?;
        let about = statat(&held, "", AtFlags::EMPTY_PATH)?;
        if rustix::fs::FileType::from_raw_mode(about.st_mode).is_symlink() {
            return Err(refused());
        }
        Ok(held)
    }
}

/// A path to read from. Below a folder whose content is given to others it leads to a held descriptor; elsewhere it is the
/// original path.
pub(crate) struct Pinned<'a> {
    original: &'a Path,
    held: Option<(PathBuf, Held)>,
}

/// Keeps the descriptor that a path below `/proc` leads to.
enum Held {
    Descriptor(#[expect(dead_code, reason = "open as long as the path is used")] OwnedFd),
    Root(#[expect(dead_code, reason = "open as long as the path is used")] Arc<Root>),
}

impl Deref for Pinned<'_> {
    type Target = Path;

    fn deref(&self) -> &Path {
        self.held.as_ref().map_or(self.original, |(path, _)| path)
    }
}

impl AsRef<Path> for Pinned<'_> {
    fn as_ref(&self) -> &Path {
        self
    }
}

fn path_of(descriptor: &OwnedFd) -> PathBuf {
    format!("/proc/self/fd/{}", descriptor.as_raw_fd()).into()
}

/// The folder that gives a path to others, and the path's rest.
fn given(path: &Path) -> Option<(Arc<Root>, &Path)> {
    let given = GIVEN.read().unwrap_or_else(PoisonError::into_inner);
    let inside = |root: &Arc<Root>| Some((Arc::clone(root), path.strip_prefix(&root.path).ok()?));
    // The innermost of them: the caller that gave it has followed the links above it.
    given
        .iter()
        .filter_map(inside)
        .min_by_key(|(_, rest)| rest.as_os_str().len())
}

/// Whether a path is below a folder whose content is given to others: an open by its name alone may follow a link.
pub fn is_given(path: &Path) -> bool {
    given(path).is_some()
}

/// The file to read at `path`: a link below a folder whose content is given to others is refused.
///
/// # Errors
/// A name with `..`, a link, or nothing has the name.
pub(crate) fn pinned(path: &Path) -> io::Result<Pinned<'_>> {
    let held = match given(path) {
        None => None,
        Some((root, rest)) if rest.as_os_str().is_empty() => Some((path_of(&root.folder), Held::Root(root))),
        Some((root, rest)) => {
            let held = root.pin(rest)?;
            Some((path_of(&held), Held::Descriptor(held)))
        }
    };
    Ok(Pinned { original: path, held })
}

/// The same for a name itself, which may be a link: only its folder is held.
///
/// # Errors
/// As [`pinned`], for the folder.
pub(crate) fn pinned_name(path: &Path) -> io::Result<Pinned<'_>> {
    let held = match given(path) {
        Some((root, rest)) if !rest.as_os_str().is_empty() => {
            let (parent, name) = root.walk(rest)?;
            Some(match parent {
                Some(parent) => (path_of(&parent).join(name), Held::Descriptor(parent)),
                None => (path_of(&root.folder).join(name), Held::Root(root)),
            })
        }
        _ => None,
    };
    Ok(Pinned { original: path, held })
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

    #[test]
    fn what_reads_a_path_below_a_given_folder_follows_no_link() {
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("secret"), "secret").unwrap();
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("lab/a")).unwrap();
        fs::write(folder.path().join("lab/a/plain"), "plain").unwrap();
        symlink(outside.path(), folder.path().join("lab/out")).unwrap();
        symlink(outside.path().join("secret"), folder.path().join("lab/link")).unwrap();
        let read = |path: &Path| crate::fs::read_to_string(path, 100);
        let root = folder.path().canonicalize().unwrap();
        let links = ["lab/link", "lab/out/secret", "lab/a/../link"].map(|name| root.join(name));
        for link in &links {
            assert_eq!(
                read(link).unwrap(),
                "secret",
                "a folder that is not given has its links"
            );
        }
        let given = Beneath::open(folder.path()).unwrap();
        assert!(is_given(&root.join("lab")) && !is_given(outside.path()));
        for link in &links {
            assert!(read(link).is_err(), "{}", link.display());
            assert!(crate::fs::about(link).is_err() && !crate::fs::is_file(link) && !crate::fs::is_dir(link));
            assert!(crate::fs::file_len(link).is_err() && crate::fs::modified_ns(link).is_err());
            assert!(crate::lock::writer_of(link).is_err());
        }
        assert!(crate::fs::list_dir(&root.join("lab/out")).is_err());
        assert!(crate::fs::is_link(&root.join("lab/link")) && !crate::fs::is_link(&root.join("lab/a")));
        assert_eq!(read(&root.join("lab/a/plain")).unwrap(), "plain");
        let entries = crate::fs::list_dir(&root.join("lab")).unwrap();
        let entries: Vec<_> = entries
            .iter()
            .map(|entry| (entry.path.clone(), entry.is_dir))
            .collect();
        assert_eq!(
            entries,
            [("a", true), ("link", false), ("out", false)]
                .map(|(name, is_dir)| (root.join("lab").join(name), is_dir))
        );
        assert_eq!(crate::fs::list_dir(&root).unwrap()[0].path, root.join("lab"));
        drop(given);
        assert_eq!(read(&links[0]).unwrap(), "secret");
    }

    #[test]
    fn a_file_that_is_swapped_for_a_link_again_and_again_never_leads_out() {
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("a"), "secret").unwrap();
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let given = Beneath::open(&root).unwrap();
        for name in ["lab", "other"] {
            fs::create_dir(root.join(name)).unwrap();
            fs::write(root.join(name).join("a"), "inside").unwrap();
        }
        // The file, and the folder that it is in.
        symlink(outside.path(), root.join("folder-link")).unwrap();
        symlink(outside.path().join("a"), root.join("file-link")).unwrap();
        let swaps = [("lab", "folder-link"), ("other/a", "file-link")];
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    for (name, link) in swaps {
                        let flags = rustix::fs::RenameFlags::EXCHANGE;
                        let cwd = rustix::fs::CWD;
                        rustix::fs::renameat_with(cwd, root.join(name), cwd, root.join(link), flags).unwrap();
                    }
                }
            });
            let (mut inside, mut refused) = (0, 0);
            while inside < 200 || refused < 200 {
                for name in ["lab/a", "other/a"] {
                    match crate::fs::read_to_string(&root.join(name), 100) {
                        Ok(text) => {
                            assert_eq!(text, "inside");
                            inside += 1;
                        }
                        Err(_) => refused += 1,
                    }
                }
            }
            done.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        drop(given);
    }
}
