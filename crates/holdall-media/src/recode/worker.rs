//! The thread of a topic that is recorded: it has the encoder, and gives back what that made.

use super::{Coder, How, Key, Made, Sent, cloud, encoder::Refused, still, video};
use crate::{carried::COMPRESSED_IMAGE, cloud::COMPRESSED_CLOUD, ffmpeg::Stop};
use bytes::Bytes;
use holdall_bag::reader::BagMessage;
use holdall_io::mutex::lock;
use holdall_model::{
    message::{CacheEntry, Loan},
    recoding::{Recoding, Step},
    topic::{PublisherInfo, TopicInfo},
};
use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU8, AtomicUsize, Ordering},
        mpsc::{self, Receiver, RecvTimeoutError, SyncSender},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

/// Messages of a topic that wait for its thread.
pub(super) const JOBS_MAX: usize = 1024;
/// What a thread made and the recorder has not taken.
pub(super) const BATCHES_MAX: usize = 64;

/// A payload: the thread copies it, unless it was taken back before.
pub(super) type Shared = Arc<Mutex<Option<Box<dyn Loan>>>>;

/// What a thread is to do.
pub(super) enum Job {
    Message {
        entry: CacheEntry,
        raw: Shared,
        /// It is not of the publisher whose images are encoded.
        is_foreign: bool,
    },
    EndSegment,
}

/// Messages that are made together, in the order of their jobs.
pub(super) struct Batch {
    pub made: Vec<(Key, Made)>,
    pub into: &'static str,
    pub about: Recoding,
    /// What was changed by itself.
    pub changes: Vec<Step>,
    /// Why no more is encoded.
    pub gave_up: Option<String>,
}

/// A topic's thread.
pub(super) struct Worker {
    pub jobs: SyncSender<Job>,
    pub batches: Receiver<Batch>,
    pub stop: Stop,
    pub limits: Arc<Limits>,
    pub thread: JoinHandle<()>,
}

/// What a thread is to keep to, also for the messages that it has already.
#[derive(Default)]
pub(super) struct Limits {
    pub ease: AtomicU8,
    pub segment_bytes_max: AtomicUsize,
}

impl Worker {
    pub fn start(
        how: How,
        topic: TopicInfo,
        (before, refused): (Recoding, Refused),
        span: Duration,
    ) -> std::io::Result<Self> {
        let (jobs, to_do) = mpsc::sync_channel(JOBS_MAX);
        let (done, batches) = mpsc::sync_channel(BATCHES_MAX);
        let (stop, limits) = (Stop::default(), Arc::<Limits>::default());
        let work = Work {
            how,
            topic: Arc::new(topic),
            before,
            refused,
            span,
            stop: stop.clone(),
            limits: Arc::clone(&limits),
        };
        let run = move || work.run(&to_do, &done);
        let thread = thread::Builder::new().name("recode".into()).spawn(run)?;
        Ok(Self {
            jobs,
            batches,
            stop,
            limits,
            thread,
        })
    }

    /// Ends it and its programs, soon.
    pub fn stop(self) -> JoinHandle<()> {
        self.stop.stop();
        self.thread
    }
}

/// A copy of the bytes; `None` if the message has come back.
fn copy(raw: &Shared) -> Option<Bytes> {
    let raw = lock(raw);
    let payload = raw.as_ref()?;
    let mut bytes = Vec::with_capacity(payload.len());
    payload.for_each_slice(&mut |slice| bytes.extend_from_slice(slice));
    Some(bytes.into())
}

/// The type that messages get.
pub(super) fn into(how: &How) -> &'static str {
    match how {
        How::Video(options) => options.carrier.type_name(),
        How::Cloud(_) => COMPRESSED_CLOUD,
    }
}

/// The thread of a topic.
struct Work {
    how: How,
    topic: Arc<TopicInfo>,
    before: Recoding,
    refused: Refused,
    span: Duration,
    stop: Stop,
    limits: Arc<Limits>,
}

impl Work {
    fn run(self, jobs: &Receiver<Job>, done: &SyncSender<Batch>) {
        let foreign = Arc::new(TopicInfo {
            publisher: Some(Box::new(PublisherInfo::default())),
            ..TopicInfo::clone(&self.topic)
        });
        let mut coder: Option<(Box<dyn Coder>, &'static str)> = None;
        while !self.stop.is_stopped() {
            // Images that come no more are not waited for.
            let job = match jobs.recv_timeout(self.span / 2) {
                Ok(job) => job,
                Err(RecvTimeoutError::Timeout) => Job::EndSegment,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            let mut made = Vec::new();
            let mut send = |key, one| {
                made.push((key, one));
                true
            };
            let mut sent = Sent {
                to: &mut send,
                is_over: false,
            };
            match job {
                Job::Message {
                    entry,
                    raw,
                    is_foreign,
                } => {
                    let Some(payload) = copy(&raw) else { return };
                    let message = BagMessage {
                        topic: Arc::clone(if is_foreign { &foreign } else { &self.topic }),
                        stamp: entry.log_time,
                        log_time: entry.log_time,
                        publish_time: entry.publish_time.unwrap_or(entry.log_time),
                        sequence: entry.sequence.unwrap_or(0) as u32,
                        payload,
                    };
                    if coder.is_none() {
                        coder = self.begin(&message);
                    }
                    match &mut coder {
                        Some((coder, _)) => {
                            let limits = &self.limits;
                            let bytes = limits.segment_bytes_max.load(Ordering::Relaxed);
                            coder.set_limits(limits.ease.load(Ordering::Relaxed), bytes);
                            coder.take(&message, &mut sent);
                        }
                        None => sent.send(Key::of(&message), Err("it is not an image".to_owned())),
                    }
                }
                Job::EndSegment => {
                    if let Some((coder, _)) = &mut coder {
                        coder.end(&mut sent);
                    }
                }
            }
            if made.is_empty() {
                continue;
            }
            if done.send(self.batch(made, coder.as_mut())).is_err() {
                return;
            }
        }
    }

    /// What was made, and what its coder says of it.
    fn batch(&self, made: Vec<(Key, Made)>, coder: Option<&mut (Box<dyn Coder>, &'static str)>) -> Batch {
        let mut batch = Batch {
            made,
            into: into(&self.how),
            about: self.before.clone(),
            changes: Vec::new(),
            gave_up: None,
        };
        if let Some((coder, into)) = coder {
            batch.into = *into;
            coder.describe(&mut batch.about);
            batch.changes = coder.take_changes();
            batch.gave_up = coder.gave_up().map(str::to_owned);
        }
        batch
    }

    /// What encodes the messages that begin with this one; `None` while it is not known, because that depends on their pixels.
    fn begin(&self, first: &BagMessage) -> Option<(Box<dyn Coder>, &'static str)> {
        let into = into(&self.how);
        let options = match &self.how {
            How::Video(options) => options,
            How::Cloud(options) => {
                let encoder = cloud::Encoder::after(*options, &self.before);
                return Some((Box::new(encoder), into));
            }
        };
        if options.quality.is_none() && still::is_needed(first)? {
            return Some((Box::new(still::Encoder::after(&self.before)), COMPRESSED_IMAGE));
        }
        let encoder = video::Encoder::new(options.clone(), &self.stop);
        let encoder = encoder.live_after(&self.before, self.span, &self.refused);
        Some((Box::new(encoder), into))
    }
}
