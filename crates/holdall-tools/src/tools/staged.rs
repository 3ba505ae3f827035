//! A tool's output in progress: in a directory next to its destination, renamed when complete and durable.

use super::ToolError;
use holdall_io::{
    disk::DiskError,
    fs,
    lock::{Locking, WriteLock, writer_of},
    output::{publish_dir, remove_dir_all},
    unfinished::Unfinished,
};
use std::{
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
};

/// Suffix of the directories in which outputs are made.
const SUFFIX: &str = "partial";

/// An output in progress; dropping it removes the files made so far.
#[derive(Debug)]
pub struct Staged {
    place: PathBuf,
    /// Contains the bag under its final name, so that its files are named after it.
    around: PathBuf,
    directory: PathBuf,
    /// Shows others that it is not left over, in other containers, too, which do not see this process.
    _lock: Option<WriteLock>,
    _unfinished: Unfinished,
}

impl Staged {
    /// Creates the directory next to `place`, and removes those of killed runs.
    pub fn begin(place: &Path) -> Result<Self, ToolError> {
        let name =
            place
                .file_name()
                .filter(|name| !name.is_empty())
                .ok_or_else(|| ToolError::OutputName {
                    path: place.to_owned(),
                })?;
        if fs::exists(place)? {
            return Err(ToolError::OutputExists {
                path: place.to_owned(),
            });
        }
        remove_left_over(place, name);
        let around = place.with_file_name(staging_name(name, &std::process::id().to_string()));
        remove_dir_all(&around)?;
        let unfinished = Unfinished::new(&around);
        fs::create_dir_new(&around)?;
        let lock = match WriteLock::try_hold(&around)? {
            Locking::Held(lock) => Some(lock),
            Locking::Taken(_) | Locking::Impossible => None,
        };
        Ok(Self {
            _lock: lock,
            place: place.to_owned(),
            directory: around.join(name),
            _unfinished: unfinished,
            around,
        })
    }

    /// The directory to make the bag in; it does not exist yet.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Gives the finished bag its final name. All its files must be durable.
    pub fn publish(self) -> Result<PathBuf, ToolError> {
        publish_dir(&self.directory, &self.place).map_err(|error| {
            if error.is_already_exists() {
                ToolError::OutputExists {
                    path: self.place.clone(),
                }
            } else {
                error.into()
            }
        })?;
        Ok(self.place.clone())
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        // Best effort; the next run to the same destination removes the rest.
        drop(remove_dir_all(&self.around));
    }
}

/// `.name.<process>.partial`
fn staging_name(name: &OsStr, process: &str) -> OsString {
    let mut staging = OsString::from(".");
    staging.push(name);
    staging.push(format!(".{process}.{SUFFIX}"));
    staging
}

/// Removes the directories of runs to the same destination whose process has ended. Best effort.
fn remove_left_over(place: &Path, name: &OsStr) {
    let parent = place.parent().filter(|parent| !parent.as_os_str().is_empty());
    let Ok(entries) = fs::list_dir(parent.unwrap_or(Path::new("."))) else {
        return;
    };
    let (Some(name), suffix) = (name.to_str(), format!(".{SUFFIX}")) else {
        return;
    };
    for entry in entries.into_iter().filter(|entry| entry.is_dir) {
        let found = entry.path.file_name().and_then(OsStr::to_str).unwrap_or_default();
        let process = found
            .strip_prefix('.')
            .and_then(|rest| rest.strip_prefix(name))
            .and_then(|rest| rest.strip_prefix('.'))
            .and_then(|rest| rest.strip_suffix(&suffix))
            .and_then(|process| process.parse::<u32>().ok());
        if let Some(process) = process
            && !Path::new(&format!("/proc/{process}")).exists()
            && !fs::is_link(&entry.path)
            && writer_of(&entry.path).is_ok_and(|writer| writer.is_none())
        {
            let removed: Result<(), DiskError> = remove_dir_all(&entry.path);
            if let Err(error) = removed {
                tracing::warn!("cannot remove what a killed run left: {error}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_output_appears_whole_or_not_at_all() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("bag");
        let staged = Staged::begin(&place).unwrap();
        fs::create_dir_new(staged.directory()).unwrap();
        assert!(!place.exists());
        drop(staged);
        assert_eq!(fs::list_dir(dir.path()).unwrap(), []);
        let staged = Staged::begin(&place).unwrap();
        fs::create_dir_new(staged.directory()).unwrap();
        assert_eq!(staged.publish().unwrap(), place);
        assert_eq!(fs::list_dir(dir.path()).unwrap().len(), 1);
        assert!(matches!(
            Staged::begin(&place),
            Err(ToolError::OutputExists { .. })
        ));
    }

    #[test]
    fn what_a_killed_run_has_left_is_removed_by_the_next_one() {
        let dir = tempfile::tempdir().unwrap();
        // No process has the largest number.
        let left = dir.path().join(".bag.4294967295.partial/bag");
        let of_other = dir.path().join(".bagage.4294967295.partial/bag");
        fs::create_dir_new(&left).unwrap();
        fs::create_dir_new(&of_other).unwrap();
        drop(Staged::begin(&dir.path().join("bag")).unwrap());
        assert!(!left.exists() && of_other.exists());
    }
}
