//! rosbag2's file compression: separate threads pack closed storage files while the recording continues.

use crate::writer::CompressionOptions;
use holdall_io::mutex::lock;
use holdall_io::process::set_thread_nice;
use holdall_storage::{
    StorageResult,
    compression::{pack_file, packed_name},
};
use std::{
    io,
    path::PathBuf,
    sync::{
        Arc, Mutex,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread::JoinHandle,
};

/// A file that was packed, or was not.
pub(super) struct PackedFile {
    /// The file before it was packed.
    pub plain: PathBuf,
    /// Whether the packed one is whole and durable. The plain one is still there.
    pub result: StorageResult<()>,
}

/// Closed files that may wait; with more the writer waits, and messages in the cache. A file usually has
/// hundreds of megabytes, so the disk is full long before.
const WAITING_FILES_MAX: usize = 4096;

/// Packs files in the order in which they are given.
pub(super) struct FilePacker {
    jobs: Option<SyncSender<PathBuf>>,
    done: Receiver<PackedFile>,
    threads: Vec<JoinHandle<()>>,
}

impl FilePacker {
    /// Starts the threads.
    ///
    /// # Errors
    /// When the system gives none.
    pub fn start(options: &CompressionOptions) -> io::Result<Self> {
        let (jobs, waiting) = sync_channel::<PathBuf>(WAITING_FILES_MAX);
        // All that waited may be done before the writer polls.
        let (finished, done) = sync_channel(2 * WAITING_FILES_MAX);
        let waiting = Arc::new(Mutex::new(waiting));
        let mut threads = Vec::new();
        for _ in 0..options.thread_count().max(1) {
            let (waiting, finished) = (Arc::clone(&waiting), finished.clone());
            let nice = options.threads_nice;
            threads.push(
                std::thread::Builder::new()
                    .name("pack-file".to_owned())
                    .spawn(move || {
                        be_nice(nice);
                        // The lock is held while waiting for a job, not while at work.
                        while let Ok(plain) = { lock(&waiting).recv() } {
                            let result = pack_file(&plain, &packed_name(&plain));
                            if finished.send(PackedFile { plain, result }).is_err() {
                                return;
                            }
                        }
                    })?,
            );
        }
        Ok(Self {
            jobs: Some(jobs),
            done,
            threads,
        })
    }

    /// Packs a closed file when a thread is free.
    pub fn submit(&self, plain: PathBuf) {
        if let Some(jobs) = &self.jobs {
            // The threads end after the sender only.
            let _ = jobs.send(plain);
        }
    }

    /// A file that is done; with `wait`, waits for one, which must have been submitted.
    pub(crate) fn take_done(&self, wait: bool) -> Option<PackedFile> {
        if wait {
            self.done.recv().ok()
        } else {
            self.done.try_recv().ok()
        }
    }
}

impl Drop for FilePacker {
    fn drop(&mut self) {
        self.jobs = None;
        for thread in self.threads.drain(..) {
            // A panic of the thread was printed when it happened.
            let _ = thread.join();
        }
    }
}

/// A thread whose niceness cannot be set works nevertheless.
pub(super) fn be_nice(nice: i32) {
    if nice != 0
        && let Err(error) = set_thread_nice(nice)
    {
        tracing::warn!("cannot set the nice value {nice} of a compression thread: {error}");
    }
}
