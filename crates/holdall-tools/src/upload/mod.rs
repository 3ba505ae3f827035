//! Sends bags into buckets: finished files only, resumed after a kill at any byte, and compared with the service's content.

mod beside;
mod content;
mod error;
mod files;
mod journal;
mod pace;
mod send;

pub use beside::BesideRecording;
pub use error::UploadError;
pub use holdall_bag::writer::UploadedFiles;
pub use pace::Allowed;

use files::{BagFiles, FileIdentity};
use holdall_bag::live::lock_bag;
use holdall_io::{
    fs,
    mutex::lock,
    remote::{self, Objects},
};
use journal::Journal;
use pace::Pace;
use std::{
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

/// Bytes of a part, unless the file would have too many.
const PART_BYTES: u64 = 8 << 20;

/// Parts that are sent at once.
const PARTS_AT_ONCE: usize = 4;

/// How a bag is sent.
#[derive(Clone)]
pub struct UploadOptions {
    /// Where the bag's files are put, without an end: `s3://bucket/run7`.
    pub url: String,
    /// Most bytes a second, on average over parts.
    pub bytes_per_s: Option<u64>,
    /// When parts may be sent.
    pub allowed: Allowed,
    /// Whether objects are replaced that another upload has made.
    pub overwrites: bool,
    /// Bytes of a part.
    pub part_bytes: u64,
    /// Parts that are sent at once.
    pub parts_at_once: usize,
}

impl UploadOptions {
    /// Sends to `url` as fast as the line is.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            bytes_per_s: None,
            allowed: Allowed::always(),
            overwrites: false,
            part_bytes: PART_BYTES,
            parts_at_once: PARTS_AT_ONCE,
        }
    }
}

/// Report on one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileReport {
    /// Its name in the bag.
    pub name: String,
    /// Its length.
    pub bytes: u64,
    /// Bytes that were sent now; none when the service had it.
    pub sent_bytes: u64,
}

/// Report on an upload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UploadReport {
    /// The files that the service has, each compared with its content there.
    pub files: Vec<FileReport>,
    /// Files that are not finished, because the bag is being recorded.
    pub unfinished: Vec<String>,
    /// What cannot be read of the bag, if its state is damaged: it was sent unchanged.
    pub damage: Option<String>,
    /// Files that were removed here.
    pub removed: u64,
}

impl UploadReport {
    /// Bytes that were sent now.
    pub fn sent_bytes(&self) -> u64 {
        self.files.iter().map(|file| file.sent_bytes).sum()
    }

    /// Bytes of all files that the service has.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }
}

/// An upload of one bag.
///
/// ```no_run
/// use holdall::upload::{UploadOptions, Uploader};
/// # fn main() -> Result<(), holdall::upload::UploadError> {
/// let uploader = Uploader::new("lab", UploadOptions::new("s3://fleet/lab"))?;
/// let report = uploader.send_bag(&mut |_name, _sent, _bytes| {})?;
/// println!("{} files uploaded", report.files.len());
/// # Ok(())
/// # }
/// ```
pub struct Uploader {
    bag: PathBuf,
    options: UploadOptions,
    client: &'static Arc<dyn Objects>,
    journal: Mutex<Journal>,
    pace: Pace,
    stop_flag: Arc<AtomicBool>,
}

/// Receives a file's name, the bytes of it that the service has, and its bytes.
pub type UploadProgress<'a> = &'a mut (dyn FnMut(&str, u64, u64) + Send);

impl Uploader {
    /// Prepares the upload of the bag in a directory; its journal is in there.
    ///
    /// # Errors
    /// No directory, another upload of the same bag to the same place, or a journal that cannot be written.
    pub fn new(bag: impl Into<PathBuf>, options: UploadOptions) -> Result<Self, UploadError> {
        let bag = bag.into();
        let client = remote::client().map_err(|error| UploadError::remote(&options.url, error))?;
        if !fs::about(&bag)?.is_dir() {
            return Err(UploadError::NotABag {
                path: bag,
                reason: "it is not a directory".to_owned(),
            });
        }
        Ok(Self {
            journal: Mutex::new(Journal::open(&bag, &options.url)?),
            pace: Pace::new(options.bytes_per_s, options.allowed.clone()),
            stop_flag: Arc::default(),
            bag,
            options,
            client,
        })
    }

    /// Set to end the upload after the parts in flight.
    pub fn stop_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.stop_flag)
    }

    fn refuse_if_stopped(&self) -> Result<(), UploadError> {
        if self.stop_flag.load(Ordering::Relaxed) {
            return Err(UploadError::Stopped);
        }
        Ok(())
    }

    fn url_of(&self, name: &str) -> String {
        format!("{}/{name}", self.options.url)
    }

    /// Sends the finished files of the bag; `metadata.yaml` last, so that a bag that has it is whole.
    ///
    /// # Errors
    /// The first file that cannot be sent; those before it stay, and the next call continues with it. A bag whose recording was not ended, after
    /// its finished files were sent.
    pub fn send_bag(&self, progress: UploadProgress<'_>) -> Result<UploadReport, UploadError> {
        let files = BagFiles::of(&self.bag)?;
        let mut report = UploadReport::default();
        for name in &files.finished {
            let sent = self.send_file(name, &mut |sent, bytes| progress(name, sent, bytes))?;
            report.files.push(sent);
        }
        report.files.extend(self.sent_and_removed(&files)?);
        report.unfinished = files.unfinished;
        report.damage = files.damage;
        match files.torn {
            Some((path, reason)) => Err(UploadError::Unfinished {
                path,
                reason: reason.to_owned(),
            }),
            None => Ok(report),
        }
    }

    /// Files that an earlier upload has sent and that no longer exist locally: the service must still have them.
    fn sent_and_removed(&self, files: &BagFiles) -> Result<Vec<FileReport>, UploadError> {
        let mut found = Vec::new();
        for name in &files.missing {
            let known = lock(&self.journal).done(name);
            let missing = || UploadError::NotABag {
                path: self.bag.clone(),
                reason: format!("its file {name:?} is missing, and was not uploaded"),
            };
            let (identity, e_tag) = known.ok_or_else(missing)?;
            let url = self.url_of(name);
            let there = self
                .client
                .object(&url)
                .map_err(|error| UploadError::remote(&url, error))?;
            let is_match =
                there.is_some_and(|about| about.len_bytes == identity.bytes && about.e_tag == e_tag);
            if !is_match {
                return Err(missing());
            }
            found.push(FileReport {
                name: name.clone(),
                bytes: identity.bytes,
                sent_bytes: 0,
            });
        }
        Ok(found)
    }

    /// Whether a file of the bag was sent and compared, and has not changed since.
    pub fn has_sent(&self, name: &str) -> bool {
        let known = lock(&self.journal).done(name);
        known.is_some_and(|(identity, _)| FileIdentity::of(&self.bag.join(name)).ok() == Some(identity))
    }

    /// Removes the files of a bag that was sent as a whole: the storage files, `metadata.yaml`, the journal, and the directory when nothing
    /// else is in it. Returns how many files.
    ///
    /// # Errors
    /// A bag that is being recorded, a file that was not sent, or that cannot be removed; files that were removed stay removed.
    pub fn remove_sent(&self, report: &UploadReport) -> Result<u64, UploadError> {
        let _lock = lock_bag(&self.bag)?;
        let here: Vec<&str> = report
            .files
            .iter()
            .map(|file| file.name.as_str())
            .filter(|name| fs::exists(&self.bag.join(name)).unwrap_or(true))
            .collect();
        let mut sent = Vec::new();
        for name in &here {
            let path = self.bag.join(name);
            // Before it is compared: a file that gets its name then is another one.
            let numbers = fs::file_numbers(&path)?;
            if fs::is_link(&path) || !self.has_sent(name) {
                return Err(UploadError::Changed { path });
            }
            sent.push((path, numbers));
        }
        for (path, numbers) in sent {
            if !fs::remove_that_file(&path, numbers)? {
                return Err(UploadError::Changed { path });
            }
        }
        lock(&self.journal).remove()?;
        files::remove_empty_dirs(&self.bag)?;
        Ok(here.len() as u64)
    }

    /// The bag's directory.
    pub fn bag(&self) -> &Path {
        &self.bag
    }
}
