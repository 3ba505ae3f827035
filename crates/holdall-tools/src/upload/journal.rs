//! The progress of an upload, a line for each step, in a file in the bag's directory.

use super::{UploadError, files::FileIdentity};
use holdall_io::{
    fs,
    lock::{Locking, WriteLock},
};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

/// The beginning of the names of journals; hidden, so that no reader of bags counts them.
pub(super) const JOURNAL_BEGIN: &str = ".holdall-upload-";

/// Longest journal that is read: 10 000 parts have a megabyte.
const BYTES_MAX: u64 = 256 << 20;

/// One step. Steps of another version of this program that it does not know are ignored.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "step", rename_all = "snake_case")]
enum Step {
    /// The journal's first line.
    Journal { to: String },
    /// An upload in parts was begun.
    Begun {
        file: String,
        bytes: u64,
        modified_ns: i64,
        upload: String,
        part_bytes: u64,
    },
    /// The service has a part.
    Part {
        file: String,
        part: usize,
        id: String,
        md5: String,
    },
    /// The service has the whole file, which was compared.
    Done {
        file: String,
        bytes: u64,
        modified_ns: i64,
        e_tag: Option<String>,
    },
}

/// An upload in parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Parts {
    pub identity: FileIdentity,
    pub upload: String,
    pub part_bytes: u64,
    /// By number: the service's tag for the part, and its MD5.
    pub sent: BTreeMap<usize, (String, String)>,
}

#[derive(Debug, Default)]
struct FileSteps {
    parts: Option<Parts>,
    done: Option<(FileIdentity, Option<String>)>,
}

/// The journal of one bag and one place.
#[derive(Debug)]
pub(super) struct Journal {
    path: PathBuf,
    files: BTreeMap<String, FileSteps>,
    _lock: Option<WriteLock>,
}

impl Journal {
    /// Opens the journal, or begins it.
    pub(super) fn open(bag: &Path, url: &str) -> Result<Self, UploadError> {
        let name = format!("{JOURNAL_BEGIN}{:08x}.jsonl", crc32fast::hash(url.as_bytes()));
        let path = bag.join(name);
        let first = Step::Journal { to: url.to_owned() };
        if !fs::exists(&path)? {
            fs::append(&path, line(&first).as_bytes())?;
        }
        let lock = match WriteLock::try_hold(&path)? {
            Locking::Held(lock) => Some(lock),
            Locking::Impossible => None,
            Locking::Taken(holder) => {
                return Err(UploadError::Busy {
                    path: bag.to_owned(),
                    url: url.to_owned(),
                    holder,
                });
            }
        };
        let text = String::from_utf8_lossy(&fs::read(&path, BYTES_MAX)?).into_owned();
        let mut files = BTreeMap::new();
        let mut is_of_url = false;
        // A line torn by a kill does not count as a step.
        for step in text.lines().filter_map(|line| serde_json::from_str(line).ok()) {
            match step {
                Step::Journal { to } => is_of_url = to == url,
                // The place of another journal has the same number.
                _ if !is_of_url => {}
                step => apply(&mut files, step),
            }
        }
        if !text.is_empty() && !text.ends_with('\n') {
            fs::append(&path, b"\n")?;
        }
        if !is_of_url {
            fs::append(&path, line(&first).as_bytes())?;
        }
        Ok(Self {
            path,
            files,
            _lock: lock,
        })
    }

    fn add(&mut self, step: Step) -> Result<(), UploadError> {
        fs::append(&self.path, line(&step).as_bytes())?;
        apply(&mut self.files, step);
        Ok(())
    }

    /// The parts of a file that were sent without its end.
    pub(super) fn parts(&self, file: &str) -> Option<Parts> {
        self.files.get(file)?.parts.clone()
    }

    /// The state of a file when it was sent, and the service's tag for its content.
    pub(super) fn done(&self, file: &str) -> Option<(FileIdentity, Option<String>)> {
        self.files.get(file)?.done.clone()
    }

    pub(super) fn begun(&mut self, file: &str, parts: &Parts) -> Result<(), UploadError> {
        self.add(Step::Begun {
            file: file.to_owned(),
            bytes: parts.identity.bytes,
            modified_ns: parts.identity.modified_ns,
            upload: parts.upload.clone(),
            part_bytes: parts.part_bytes,
        })
    }

    pub(super) fn part(&mut self, file: &str, part: usize, id: &str, md5: &str) -> Result<(), UploadError> {
        self.add(Step::Part {
            file: file.to_owned(),
            part,
            id: id.to_owned(),
            md5: md5.to_owned(),
        })
    }

    pub(super) fn set_done(
        &mut self,
        file: &str,
        identity: FileIdentity,
        e_tag: Option<String>,
    ) -> Result<(), UploadError> {
        self.add(Step::Done {
            file: file.to_owned(),
            bytes: identity.bytes,
            modified_ns: identity.modified_ns,
            e_tag,
        })
    }

    /// Removes it.
    pub(super) fn remove(&mut self) -> Result<(), UploadError> {
        self.files.clear();
        Ok(fs::remove_file(&self.path)?)
    }
}

fn line(step: &Step) -> String {
    // Texts and numbers always become JSON.
    format!("{}\n", serde_json::to_string(step).unwrap_or_default())
}

fn apply(files: &mut BTreeMap<String, FileSteps>, step: Step) {
    match step {
        Step::Journal { .. } => {}
        Step::Begun {
            file,
            bytes,
            modified_ns,
            upload,
            part_bytes,
        } => {
            files.entry(file).or_default().parts = Some(Parts {
                identity: FileIdentity { bytes, modified_ns },
                upload,
                part_bytes,
                sent: BTreeMap::new(),
            });
        }
        Step::Part { file, part, id, md5 } => {
            if let Some(parts) = files.get_mut(&file).and_then(|steps| steps.parts.as_mut()) {
                parts.sent.insert(part, (id, md5));
            }
        }
        Step::Done {
            file,
            bytes,
            modified_ns,
            e_tag,
        } => {
            let steps = files.entry(file).or_default();
            steps.done = Some((FileIdentity { bytes, modified_ns }, e_tag));
            steps.parts = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity() -> FileIdentity {
        FileIdentity {
            bytes: 20,
            modified_ns: 7,
        }
    }

    fn parts() -> Parts {
        Parts {
            identity: identity(),
            upload: "id".to_owned(),
            part_bytes: 10,
            sent: BTreeMap::new(),
        }
    }

    #[test]
    fn a_journal_that_was_cut_at_any_byte_has_the_steps_before() {
        let folder = tempfile::tempdir().unwrap();
        let mut journal = Journal::open(folder.path(), "s3://b/run").unwrap();
        journal.begun("a.mcap", &parts()).unwrap();
        journal.part("a.mcap", 1, "e1", "m1").unwrap();
        journal.part("a.mcap", 0, "e0", "m0").unwrap();
        journal
            .set_done("a.mcap", identity(), Some("e".to_owned()))
            .unwrap();
        let (path, whole) = (journal.path.clone(), std::fs::read(&journal.path).unwrap());
        drop(journal);
        let mut seen = 0;
        for cut in 0..=whole.len() {
            std::fs::write(&path, &whole[..cut]).unwrap();
            let mut journal = Journal::open(folder.path(), "s3://b/run").unwrap();
            let known = journal.parts("a.mcap").map_or(0, |parts| 1 + parts.sent.len());
            seen = seen.max(known);
            let is_done = journal.done("a.mcap").is_some();
            assert!(!is_done || cut + 1 >= whole.len());
            // Steps added after a cut are read again.
            journal.set_done("b.mcap", identity(), None).unwrap();
            drop(journal);
            let journal = Journal::open(folder.path(), "s3://b/run").unwrap();
            assert!(journal.done("b.mcap").is_some(), "{cut}");
        }
        assert_eq!(seen, 3);
    }

    #[test]
    fn one_upload_of_a_bag_to_a_place_runs_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let _first = Journal::open(folder.path(), "s3://b/run").unwrap();
        let second = Journal::open(folder.path(), "s3://b/run");
        assert!(matches!(second, Err(UploadError::Busy { .. })));
        assert!(Journal::open(folder.path(), "s3://b/other").is_ok());
    }
}
