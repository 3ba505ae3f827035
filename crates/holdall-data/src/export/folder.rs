//! The files of a topic that has one for each message: a folder, in which they are named by their time in nanoseconds.

use super::{ExistingFiles, ExportError, file::PartialFile};
use holdall_io::fs::{self, Kind};
use std::path::{Path, PathBuf};

/// The folder of one topic.
pub(super) struct FilesByTime {
    folder: PathBuf,
    existing: ExistingFiles,
    last: Option<(i64, u32)>,
}

impl FilesByTime {
    /// Makes the folder.
    pub fn create(folder: &Path, existing: ExistingFiles) -> Result<Self, ExportError> {
        fs::create_dirs(folder).map_err(|error| ExportError::io("make", folder, error.into_io()))?;
        holdall_io::new_file::remove_left_over(folder);
        Ok(Self {
            folder: folder.to_owned(),
            existing,
            last: None,
        })
    }

    /// Begins the next file. [`PartialFile::finish_unsynced`] gives it its name, which [`FilesByTime::finish`] makes durable.
    pub fn begin(&mut self, nanos: i64, extension: &str) -> Result<PartialFile, ExportError> {
        let stem = self.stem(nanos);
        PartialFile::create(&self.folder.join(format!("{stem}.{extension}")), self.existing)
    }

    /// The stamp, followed by a number when several files have the same.
    fn stem(&mut self, nanos: i64) -> String {
        let repeated = match self.last {
            Some((last, count)) if last == nanos => count + 1,
            _ => 0,
        };
        self.last = Some((nanos, repeated));
        match repeated {
            0 => nanos.to_string(),
            count => format!("{nanos}_{count}"),
        }
    }

    /// Syncs all files; returns the folder.
    pub fn finish(self) -> Result<PathBuf, ExportError> {
        let listed = fs::list_dir(&self.folder)
            .map_err(|error| ExportError::io("list", &self.folder, error.into_io()))?;
        // Entries made by others may not be files at all.
        let is_file = |path: &Path| fs::about_name(path).is_ok_and(|about| about.kind == Kind::File);
        for entry in listed.iter().filter(|entry| is_file(&entry.path)) {
            fs::make_durable(&entry.path)?;
        }
        fs::sync_dir(&self.folder)
            .map_err(|error| ExportError::io("complete", &self.folder, error.into_io()))?;
        Ok(self.folder)
    }
}
