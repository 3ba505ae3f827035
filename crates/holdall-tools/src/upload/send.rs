//! Sends one file: whole or in parts, continues an earlier upload, and compares the service's content.

use super::{
    FileReport, UploadError, Uploader,
    content::{bare, hex, is_equal, may_be_md5, md5, part_bytes, tag_of_file, tag_of_parts},
    files::FileIdentity,
    journal::Parts,
};
use holdall_io::{fs::File, mutex::lock, remote::ObjectAbout};
use std::{
    collections::BTreeMap,
    io,
    path::Path,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

/// How often a part is sent that the service does not take for a passing reason; the client has tried several times each time.
const TRIES_MAX: u32 = 5;
/// Before the second try; each further one waits twice as long.
const FIRST_WAIT: Duration = Duration::from_millis(200);

/// Receives the bytes that the service has, and the file's.
type FileProgress<'a> = &'a mut (dyn FnMut(u64, u64) + Send);

/// How an upload of a file ended.
enum Ended {
    /// Complete; the tag that the service should have.
    Sent(String),
    /// The service no longer knows the upload: it was completed, or dropped.
    Unknown,
}

impl Uploader {
    /// Sends a finished file of the bag, unless the service has it.
    ///
    /// # Errors
    /// Something else is in its place, the service cannot be used, or the file changes.
    pub fn send_file(&self, name: &str, progress: FileProgress<'_>) -> Result<FileReport, UploadError> {
        let (path, url) = (self.bag.join(name), self.url_of(name));
        let identity = FileIdentity::of(&path)?;
        let report = |sent_bytes| FileReport {
            name: name.to_owned(),
            bytes: identity.bytes,
            sent_bytes,
        };
        self.refuse_if_stopped()?;
        progress(0, identity.bytes);
        if self.is_uploaded(name, &path, identity)? {
            progress(identity.bytes, identity.bytes);
            return Ok(report(0));
        }
        let sent = AtomicU64::new(0);
        for _ in 0..2 {
            let expected = self.send_once(name, identity, &sent, progress)?;
            let tag = self.compare(&url, &path, &expected)?;
            if FileIdentity::of(&path)? != identity {
                return Err(UploadError::Changed { path });
            }
            if let Ok(tag) = tag {
                lock(&self.journal).set_done(name, identity, tag)?;
                return Ok(report(sent.load(Ordering::Relaxed)));
            }
            tracing::warn!("{url}: the service has other bytes than were sent; they are sent again");
        }
        let found = self.compare(&url, &path, "")?.err().unwrap_or_default();
        Err(UploadError::Different { url, found })
    }

    /// Whether the service has the file; other content in its place is an error.
    fn is_uploaded(&self, name: &str, path: &Path, identity: FileIdentity) -> Result<bool, UploadError> {
        let url = self.url_of(name);
        let about = self
            .client
            .object(&url)
            .map_err(|error| UploadError::remote(&url, error))?;
        let Some(about) = about else {
            return Ok(false);
        };
        let done = lock(&self.journal).done(name);
        if let Some((known, tag)) = &done
            && *known == identity
            && about.len_bytes == identity.bytes
            && about.e_tag == *tag
        {
            return Ok(true);
        }
        if about.len_bytes == identity.bytes {
            let wanted = part_bytes(identity.bytes, self.options.part_bytes);
            let tag = bare(about.e_tag.as_deref().unwrap_or_default());
            if tag_of_file(path, wanted)? == tag || is_equal(&**self.client, &url, path)? {
                lock(&self.journal).set_done(name, identity, about.e_tag)?;
                return Ok(true);
            }
        }
        // A file from this journal may be replaced: metadata.yaml of a bag that was changed since.
        let is_ours = done.is_some_and(|(_, tag)| tag.is_some() && tag == about.e_tag);
        if is_ours || self.options.overwrites {
            return Ok(false);
        }
        Err(UploadError::Exists {
            url,
            found: found(&about),
        })
    }

    /// Sends a file; returns the tag that the service should have for it.
    fn send_once(
        &self,
        name: &str,
        identity: FileIdentity,
        sent: &AtomicU64,
        progress: FileProgress<'_>,
    ) -> Result<String, UploadError> {
        let wanted = part_bytes(identity.bytes, self.options.part_bytes);
        if identity.bytes <= wanted {
            return self.send_whole(name, identity, sent, progress);
        }
        let known = lock(&self.journal).parts(name);
        if let Some(parts) = known {
            if parts.identity == identity {
                match self.send_parts(name, parts.clone(), sent, progress)? {
                    Ended::Sent(tag) => return Ok(tag),
                    // It was completed before a kill, which the comparison finds; or the service has dropped it.
                    Ended::Unknown if self.was_completed(name, &parts)? => {
                        return Ok(expected_tag(&parts));
                    }
                    Ended::Unknown => {}
                }
            } else {
                // Best effort: parts that a service keeps of an upload cost, but harm nothing.
                let _ = self.client.abort_parts(&self.url_of(name), &parts.upload);
            }
        }
        let parts = self.begin(name, identity, wanted)?;
        match self.send_parts(name, parts, sent, progress)? {
            Ended::Sent(tag) => Ok(tag),
            Ended::Unknown => Err(UploadError::remote(
                &self.url_of(name),
                io::Error::other("the service has dropped the upload while it was sent"),
            )),
        }
    }

    fn was_completed(&self, name: &str, parts: &Parts) -> Result<bool, UploadError> {
        let url = self.url_of(name);
        let count = parts.identity.bytes.div_ceil(parts.part_bytes);
        let about = self.client.object(&url);
        let about = about.map_err(|error| UploadError::remote(&url, error))?;
        Ok(parts.sent.len() as u64 == count
            && about.is_some_and(|about| about.len_bytes == parts.identity.bytes))
    }

    fn begin(&self, name: &str, identity: FileIdentity, part_bytes: u64) -> Result<Parts, UploadError> {
        let url = self.url_of(name);
        let upload = self.again(&url, || self.client.begin_parts(&url))?;
        let parts = Parts {
            identity,
            upload,
            part_bytes,
            sent: BTreeMap::new(),
        };
        lock(&self.journal).begun(name, &parts)?;
        Ok(parts)
    }

    fn send_whole(
        &self,
        name: &str,
        identity: FileIdentity,
        sent: &AtomicU64,
        progress: FileProgress<'_>,
    ) -> Result<String, UploadError> {
        let url = self.url_of(name);
        let file = File::open_stored(&self.bag.join(name))?;
        // At most a part.
        let count = usize::try_from(identity.bytes).unwrap_or(usize::MAX);
        let bytes = file.read_bytes_at(0, count)?;
        let tag = hex(&md5(&bytes));
        self.pace.wait(identity.bytes, &self.stop_flag)?;
        self.again(&url, || {
            sent.fetch_add(identity.bytes, Ordering::Relaxed);
            self.client.put(&url, bytes.clone())
        })?;
        progress(identity.bytes, identity.bytes);
        Ok(tag)
    }

    /// Sends the missing parts of a file, several at once, and has them made one object.
    fn send_parts(
        &self,
        name: &str,
        mut parts: Parts,
        sent: &AtomicU64,
        progress: FileProgress<'_>,
    ) -> Result<Ended, UploadError> {
        let url = self.url_of(name);
        let bytes = parts.identity.bytes;
        let count = usize::try_from(bytes.div_ceil(parts.part_bytes)).unwrap_or(usize::MAX);
        let missing: Vec<usize> = (0..count).filter(|part| !parts.sent.contains_key(part)).collect();
        let file = File::open_stored(&self.bag.join(name))?;
        let length = |part: usize| parts.part_bytes.min(bytes - part as u64 * parts.part_bytes);
        let there: u64 = parts.sent.keys().map(|part| length(*part)).sum();
        let state = Mutex::new((there, progress, BTreeMap::new()));
        let (next, fails, failed) = (AtomicUsize::new(0), AtomicBool::new(false), Mutex::new(None));
        std::thread::scope(|scope| {
            for _ in 0..self.options.parts_at_once.clamp(1, missing.len().max(1)) {
                scope.spawn(|| {
                    while !fails.load(Ordering::Relaxed) {
                        let Some(part) = missing.get(next.fetch_add(1, Ordering::Relaxed)) else {
                            return;
                        };
                        let range = (*part as u64 * parts.part_bytes, length(*part));
                        match self.send_part((name, &url), (&parts.upload, *part), &file, range, sent) {
                            Ok(ids) => {
                                let mut state = lock(&state);
                                let (there, progress, ours) = &mut *state;
                                *there += range.1;
                                progress(*there, bytes);
                                ours.insert(*part, ids);
                            }
                            Err(error) => {
                                fails.store(true, Ordering::Relaxed);
                                lock(&failed).get_or_insert(error);
                            }
                        }
                    }
                });
            }
        });
        let failed = failed.into_inner().unwrap_or_default();
        if let Some(error) = failed {
            return if is_unknown(&error) {
                Ok(Ended::Unknown)
            } else {
                Err(error)
            };
        }
        parts.sent.append(&mut lock(&state).2);
        let ids: Vec<String> = parts.sent.values().map(|(id, _)| id.clone()).collect();
        let completed = self.again(&url, || self.client.complete_parts(&url, &parts.upload, &ids));
        match completed {
            Ok(_) => Ok(Ended::Sent(expected_tag(&parts))),
            Err(error) if is_unknown(&error) => {
                // An answer that was lost: the service has completed it.
                Ok(if self.was_completed(name, &parts)? {
                    Ended::Sent(expected_tag(&parts))
                } else {
                    Ended::Unknown
                })
            }
            Err(error) => Err(error),
        }
    }

    /// Sends a part until the service has these bytes.
    fn send_part(
        &self,
        (name, url): (&str, &str),
        (upload, part): (&str, usize),
        file: &File,
        (offset, bytes): (u64, u64),
        sent: &AtomicU64,
    ) -> Result<(String, String), UploadError> {
        // At most some MiB.
        let content = file.read_bytes_at(offset, usize::try_from(bytes).unwrap_or(usize::MAX))?;
        let ours = hex(&md5(&content));
        self.pace.wait(bytes, &self.stop_flag)?;
        let id = self.again(url, || {
            self.refuse_if_stopped().map_err(io::Error::other)?;
            sent.fetch_add(bytes, Ordering::Relaxed);
            let id = self.client.put_part(url, upload, part, content.clone())?;
            let tag = bare(&id);
            if may_be_md5(&tag) && tag != ours {
                let what = "the service received other bytes than were sent";
                return Err(io::Error::new(io::ErrorKind::InvalidData, what));
            }
            Ok(id)
        })?;
        lock(&self.journal).part(name, part, &id, &ours)?;
        Ok((id, ours))
    }

    /// Makes a request again while its failure may pass.
    fn again<T>(&self, url: &str, mut request: impl FnMut() -> io::Result<T>) -> Result<T, UploadError> {
        let mut wait = FIRST_WAIT;
        let mut tried = 1;
        loop {
            let error = match request() {
                Ok(done) => return Ok(done),
                Err(error) => error,
            };
            self.refuse_if_stopped()?;
            let error = UploadError::remote(url, error);
            if tried == TRIES_MAX || !error.is_passing() || is_unknown(&error) {
                return Err(error);
            }
            tracing::debug!("{error}; it is tried again");
            std::thread::sleep(wait);
            wait *= 2;
            tried += 1;
        }
    }

    /// Compares the service's content with a file: by its tag, else byte by byte. Returns its tag, or a clause about the difference.
    fn compare(
        &self,
        url: &str,
        path: &Path,
        expected: &str,
    ) -> Result<Result<Option<String>, String>, UploadError> {
        let about = self.again(url, || self.client.object(url))?;
        let Some(about) = about else {
            return Ok(Err("nothing".to_owned()));
        };
        let tag = bare(about.e_tag.as_deref().unwrap_or_default());
        let is_same = (tag == expected && about.len_bytes == FileIdentity::of(path)?.bytes)
            || is_equal(&**self.client, url, path)?;
        Ok(if is_same {
            Ok(about.e_tag)
        } else {
            Err(found(&about))
        })
    }
}

/// The tag of S3 for the object of these parts.
fn expected_tag(parts: &Parts) -> String {
    tag_of_parts(parts.sent.values().map(|(_, md5)| md5.as_str())).unwrap_or_default()
}

fn is_unknown(error: &UploadError) -> bool {
    matches!(error, UploadError::Remote { source, .. } if source.kind() == io::ErrorKind::NotFound)
}

fn found(about: &ObjectAbout) -> String {
    match &about.e_tag {
        Some(tag) => format!("{} bytes, ETag {}", about.len_bytes, bare(tag)),
        None => format!("{} bytes", about.len_bytes),
    }
}
