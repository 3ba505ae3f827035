//! Uploads the finished files of a recording while it runs: a thread that never delays the recorder.

use super::{UploadError, UploadOptions, UploadReport, Uploader};
use holdall_bag::writer::UploadedFiles;
use holdall_io::{
    clock::{Clock, SystemClock},
    fs,
    mutex::lock,
};
use std::{
    collections::VecDeque,
    path::{Path, PathBuf},
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

/// Time between two tries while the service cannot be used.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// How long the end waits while nothing more is sent.
const NO_PROGRESS_MAX: Duration = Duration::from_secs(60);

/// Time between two checks at the end.
const POLL: Duration = Duration::from_millis(50);

#[derive(Debug, Default)]
struct Shared {
    waiting: Mutex<VecDeque<PathBuf>>,
    woken: Condvar,
    is_ended: AtomicBool,
    stop_flag: Arc<AtomicBool>,
    sent_bytes: AtomicU64,
    uploaded: UploadedFiles,
    outcome: Mutex<Option<Result<UploadReport, UploadError>>>,
}

/// The upload of a recording that runs.
#[derive(Debug)]
pub struct BesideRecording {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl BesideRecording {
    /// Begins; `options` name where the files of the bag go, whose directory exists.
    ///
    /// # Errors
    /// As [`Uploader::new`]; when no thread can be started.
    pub fn start(bag: &Path, options: UploadOptions, uploaded: &UploadedFiles) -> Result<Self, UploadError> {
        let uploader = Uploader::new(bag, options)?;
        let shared = Arc::new(Shared {
            stop_flag: uploader.stop_flag(),
            uploaded: uploaded.clone(),
            ..Shared::default()
        });
        let url = uploader.options.url.clone();
        let of_thread = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("holdall-upload".to_owned())
            .spawn(move || of_thread.run(&uploader))
            .map_err(|error| UploadError::remote(&url, error))?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    /// Adds files that are complete.
    pub fn add(&self, files: impl IntoIterator<Item = PathBuf>) {
        lock(&self.shared.waiting).extend(files);
        self.shared.woken.notify_all();
    }

    /// After the recording has ended: sends the rest, `metadata.yaml` last. Waits until everything is uploaded, nothing more is sent for a minute, or
    /// `pause`, which waits for the span that it is given, returns true.
    ///
    /// # Errors
    /// Why the upload is incomplete.
    pub fn finish(mut self, mut pause: impl FnMut(Duration) -> bool) -> Result<UploadReport, UploadError> {
        self.shared.is_ended.store(true, Ordering::Relaxed);
        self.shared.woken.notify_all();
        let mut sent = 0;
        let mut since = SystemClock.monotonic();
        while self.thread.as_ref().is_some_and(|thread| !thread.is_finished()) {
            let now = SystemClock.monotonic();
            let sent_now = self.shared.sent_bytes.load(Ordering::Relaxed);
            if sent_now != sent {
                (sent, since) = (sent_now, now);
            }
            if now.saturating_sub(since) >= NO_PROGRESS_MAX || pause(POLL) {
                self.shared.stop_flag.store(true, Ordering::Relaxed);
                self.shared.woken.notify_all();
                return lock(&self.shared.outcome)
                    .take()
                    .unwrap_or(Err(UploadError::Stopped));
            }
        }
        if let Some(thread) = self.thread.take() {
            // A panic has been reported by its hook.
            let _ = thread.join();
        }
        lock(&self.shared.outcome)
            .take()
            .unwrap_or(Err(UploadError::Stopped))
    }
}

impl Shared {
    fn run(&self, uploader: &Uploader) {
        let mut progress = |_: &str, _: u64, _: u64| {
            self.sent_bytes.fetch_add(1, Ordering::Relaxed);
        };
        while let Some(file) = self.next() {
            let name = file
                .file_name()
                .and_then(|name| name.to_str())
                .unwrap_or_default();
            let sent = uploader.send_file(name, &mut |sent, bytes| progress(name, sent, bytes));
            match sent {
                Ok(_) => {
                    tracing::info!("{} is uploaded", file.display());
                    self.uploaded.add(file);
                }
                Err(UploadError::Stopped) => return,
                // By a limit on the number of files: those after it must not wait for it.
                Err(_) if !fs::exists(&file).unwrap_or(true) => {
                    tracing::warn!("{} was removed before it was uploaded", file.display());
                }
                Err(error) => {
                    tracing::warn!("{error}; it is tried again");
                    lock(&self.waiting).push_front(file);
                    self.wait(RETRY_AFTER);
                }
            }
        }
        loop {
            let sent = uploader.send_bag(&mut progress);
            let again = matches!(&sent, Err(error) if error.is_passing());
            if let Err(error) = &sent
                && again
            {
                tracing::warn!("{error}; it is tried again");
            }
            *lock(&self.outcome) = Some(sent);
            if !again || self.stop_flag.load(Ordering::Relaxed) {
                return;
            }
            self.wait(RETRY_AFTER);
        }
    }

    /// The next file; `None` if the recording has ended.
    fn next(&self) -> Option<PathBuf> {
        let mut waiting = lock(&self.waiting);
        loop {
            if self.is_ended.load(Ordering::Relaxed) {
                return None;
            }
            if let Some(file) = waiting.pop_front() {
                return Some(file);
            }
            let woken = self.woken.wait_timeout(waiting, RETRY_AFTER);
            waiting = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Waits; ends early when the recording ends. Files that are added do not end it: a service that refuses one file would get a request for
    /// each check of the recording.
    fn wait(&self, span: Duration) {
        let until = SystemClock.monotonic() + span;
        if self.is_ended.load(Ordering::Relaxed) {
            while SystemClock.monotonic() < until && !self.stop_flag.load(Ordering::Relaxed) {
                std::thread::sleep(POLL);
            }
            return;
        }
        let mut waiting = lock(&self.waiting);
        while !self.is_ended.load(Ordering::Relaxed) {
            let left = until.saturating_sub(SystemClock.monotonic());
            if left.is_zero() {
                return;
            }
            let woken = self.woken.wait_timeout(waiting, left);
            waiting = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
