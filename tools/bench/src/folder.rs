//! The folder of a benchmark: where candidates write, whether a plan fits there, and where results stay.

use crate::{
    disk_limit::DiskLimit,
    error::{BenchError, BenchResult},
};
use holdall_io::{
    disk::Disk,
    fs::write_new,
    os::{DiskMode, OsDisk},
    unfinished::Unfinished,
};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// Space that a plan leaves free for others.
const SPARE_BYTES: u64 = 256 << 20;

/// A folder with nothing but this program's files, and the files being measured while a run lasts.
#[derive(Debug)]
pub(crate) struct BenchFolder {
    path: PathBuf,
    /// Removed at the end with its content.
    scratch: PathBuf,
    keep: bool,
    /// Removes the files being measured when a run is interrupted.
    _unfinished: Option<Unfinished>,
}

impl BenchFolder {
    /// Opens `path`, which must not exist, be empty, or hold nothing but results of earlier runs.
    ///
    /// # Errors
    /// A folder with other content, or that cannot be made.
    pub fn take(path: &Path, keep: bool) -> BenchResult<Self> {
        fs::create_dir_all(path).map_err(BenchError::io("create", path))?;
        let limit = DiskLimit::of_process();
        for entry in fs::read_dir(path).map_err(BenchError::io("list", path))? {
            let name = entry.map_err(BenchError::io("list", path))?.file_name();
            let name = name.to_string_lossy();
            let is_of_disk = limit.is_some() && DiskLimit::has(&name);
            if !is_result(&name) && !is_of_disk {
                return Err(BenchError::NotEmpty {
                    path: path.to_owned(),
                });
            }
        }
        let scratch = limit.map_or(path.to_owned(), |limit| limit.folder).join("files");
        let (unfinished, ()) = Unfinished::make(&scratch, || fs::create_dir(&scratch))
            .map_err(BenchError::io("create", &scratch))?;
        Ok(Self {
            _unfinished: (!keep).then_some(unfinished),
            path: path.to_owned(),
            scratch,
            keep,
        })
    }

    /// The folder that candidates and limits write to.
    pub fn scratch(&self) -> &Path {
        &self.scratch
    }

    /// Refuses a plan that does not fit.
    ///
    /// # Errors
    /// Too little free space.
    pub(crate) fn check_space(&self, needed_bytes: u64) -> BenchResult<()> {
        let disk = OsDisk::open(&self.scratch, DiskMode::Buffered)?;
        let available_bytes = disk.available_bytes(&self.scratch)?;
        let needed_bytes = needed_bytes.saturating_add(SPARE_BYTES);
        if needed_bytes > available_bytes {
            return Err(BenchError::NoSpace {
                path: self.path.clone(),
                needed_bytes,
                available_bytes,
            });
        }
        Ok(())
    }

    /// Removes a bag or file of a candidate, unless everything is kept.
    ///
    /// # Errors
    /// When it cannot be removed.
    pub fn discard(&self, path: &Path) -> BenchResult<()> {
        if self.keep {
            return Ok(());
        }
        remove(path)
    }

    /// Writes a result next to earlier ones: `<stem>-<number>.<extension>` with the first free number.
    /// Returns its path.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn store(&self, stem: &str, extension: &str, text: &str) -> BenchResult<PathBuf> {
        for number in 1..=u32::MAX {
            let path = self.path.join(format!("{stem}-{number}.{extension}"));
            match write_new(&path, &mut text.as_bytes()) {
                Ok(()) => return Ok(path),
                Err(error) if error.is_already_exists() => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(BenchError::NotEmpty {
            path: self.path.clone(),
        })
    }
}

/// Removes a file or a folder with its content, if it exists.
pub(crate) fn remove(path: &Path) -> BenchResult<()> {
    let removed = if path.is_dir() {
        fs::remove_dir_all(path)
    } else {
        fs::remove_file(path)
    };
    match removed {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(BenchError::io("remove", path)(error))
        }
        _ => Ok(()),
    }
}

impl Drop for BenchFolder {
    fn drop(&mut self) {
        if !self.keep && fs::remove_dir_all(&self.scratch).is_err() {
            tracing::warn!("could not remove {}", self.scratch.display());
        }
    }
}

/// `write-3.json`, `storage-1.csv`; and files that a file system creates in its root.
fn is_result(name: &str) -> bool {
    let numbered = |rest: &str| {
        rest.split_once('.').is_some_and(|(number, extension)| {
            !number.is_empty()
                && number.bytes().all(|b| b.is_ascii_digit())
                && matches!(extension, "json" | "csv")
        })
    };
    name == "lost+found"
        || ["write-", "storage-", "tools-", "batches-"]
            .iter()
            .any(|stem| name.strip_prefix(stem).is_some_and(numbered))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_stay_and_everything_else_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("out");
        for number in 1..=2 {
            let folder = BenchFolder::take(&out, false).unwrap();
            fs::write(folder.scratch().join("big"), "x").unwrap();
            let stored = folder.store("write", "json", "{}").unwrap();
            assert_eq!(stored, out.join(format!("write-{number}.json")));
        }
        assert_eq!(fs::read_dir(&out).unwrap().count(), 2);
    }

    #[test]
    fn a_folder_with_other_content_is_refused_unchanged() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("thesis.txt"), "x").unwrap();
        let error = BenchFolder::take(dir.path(), false).unwrap_err();
        assert!(error.is_refusal(), "{error}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_plan_that_does_not_fit_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let folder = BenchFolder::take(&dir.path().join("out"), false).unwrap();
        folder.check_space(1).unwrap();
        assert!(folder.check_space(u64::MAX / 2).unwrap_err().is_refusal());
    }
}
