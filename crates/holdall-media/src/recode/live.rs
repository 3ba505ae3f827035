//! Gives images another form while they are recorded: each topic has a thread of its own, which is given up where it is late.
//!
//! The messages that were given away are kept until their new form comes. An encoder that dies, hangs or is too slow costs nothing but
//! the smaller form: its messages come back as they were, in order, and after a pause another one begins with a key frame.

use super::{Coder, How, Key, Made, Rule, Sent, depth, image::Frame, video};
use crate::carried::{COMPRESSED_IMAGE, COMPRESSED_VIDEO, definition};
use bytes::Bytes;
use holdall_bag::reader::BagMessage;
use holdall_io::{
    clock::{Clock, SystemClock},
    mutex::lock,
};
use holdall_model::{
    loss::ledger::PublisherIndex,
    message::{CacheEntry, Loan},
    recoding::{
        Recoding,
        live::{Given, LiveRecoder, LiveRecoding, Recoded},
    },
    topic::{MessageDefinition, PublisherInfo, TopicId, TopicInfo},
};
use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Arc, Mutex,
        mpsc::{self, Receiver, SyncSender, TryRecvError},
    },
    thread,
    time::Duration,
};

/// A segment of video ends this long after its first message, so that little waits.
const SEGMENT_MAX: Duration = Duration::from_secs(1);
/// A message that has waited for this long comes back as it was.
const LATE: Duration = Duration::from_secs(5);
/// Pauses after an encoder was given up: the first, and the longest.
const PAUSE_MIN: Duration = Duration::from_secs(5);
const PAUSE_MAX: Duration = Duration::from_secs(80);
/// Another publisher takes the place of one that was silent for this long.
const SILENT: Duration = Duration::from_secs(2);
/// Segments of all topics that fit into the memory for them at least.
const SEGMENTS_MIN: usize = 4;
/// Messages of a topic that wait for its thread.
const JOBS_MAX: usize = 1024;
/// What a thread made and the recorder has not taken.
const BATCHES_MAX: usize = 64;
/// Time between two looks for what is waited for.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// Gives images another form by these rules while they are recorded; the first rule that names a topic counts.
pub fn live(rules: Vec<Rule>) -> LiveRecoding {
    LiveRecoding::new(move || {
        Box::new(Live {
            rules: rules.clone(),
            topics: BTreeMap::new(),
            given: 0,
        })
    })
}

/// A payload: the thread copies it, unless it was taken back before.
type Shared = Arc<Mutex<Option<Box<dyn Loan>>>>;

/// A message that has not come back.
struct Pending {
    number: u64,
    entry: CacheEntry,
    raw: Shared,
    bytes: usize,
    held_bytes: usize,
    received: Duration,
    /// When it was given.
    given: Duration,
}

/// What a thread is to do.
enum Job {
    Message {
        entry: CacheEntry,
        raw: Shared,
        /// It is not of the publisher whose images are encoded.
        is_foreign: bool,
    },
    EndSegment,
}

/// Messages that are made together, in the order of their jobs.
struct Batch {
    made: Vec<(Key, Made)>,
    into: &'static str,
    about: Recoding,
}

/// A topic's thread.
struct Worker {
    jobs: SyncSender<Job>,
    batches: Receiver<Batch>,
}

impl Worker {
    fn start(how: How, topic: TopicInfo, before: Recoding) -> std::io::Result<Self> {
        let (jobs, to_do) = mpsc::sync_channel(JOBS_MAX);
        let (done, batches) = mpsc::sync_channel(BATCHES_MAX);
        let run = move || work(&how, topic, &before, &to_do, &done);
        thread::Builder::new().name("recode".into()).spawn(run)?;
        Ok(Self { jobs, batches })
    }
}

/// A topic whose messages get another form.
struct Topic {
    info: TopicInfo,
    how: How,
    worker: Option<Worker>,
    pending: VecDeque<Pending>,
    pending_bytes: usize,
    /// With their numbers.
    ready: VecDeque<(u64, Recoded)>,
    /// When the first message of the segment came.
    segment: Option<Duration>,
    segment_bytes: usize,
    /// Until when messages keep their form.
    paused_until: Option<Duration>,
    pause: Duration,
    /// Whose images are encoded, and when the last of them came.
    publisher: (PublisherIndex, Duration),
    account: Recoding,
}

impl Topic {
    fn new(info: &TopicInfo, how: How, publisher: PublisherIndex) -> Self {
        Self {
            info: info.as_whole(),
            how,
            worker: None,
            pending: VecDeque::new(),
            pending_bytes: 0,
            ready: VecDeque::new(),
            segment: None,
            segment_bytes: 0,
            paused_until: None,
            pause: PAUSE_MIN,
            publisher: (publisher, Duration::ZERO),
            account: Recoding {
                topic: info.name.clone(),
                from: info.type_name.clone(),
                into: COMPRESSED_VIDEO.to_owned(),
                ..Recoding::default()
            },
        }
    }

    fn add(&mut self, message: Pending) {
        let now = message.given;
        let entry = message.entry;
        if entry.publisher != self.publisher.0 && now.saturating_sub(self.publisher.1) > SILENT {
            self.publisher.0 = entry.publisher;
        }
        let is_foreign = entry.publisher != self.publisher.0;
        if !is_foreign {
            self.publisher.1 = now;
        }
        let raw = Arc::clone(&message.raw);
        self.pending_bytes += message.held_bytes;
        self.segment_bytes += message.held_bytes;
        self.pending.push_back(message);
        if self.paused_until.is_some_and(|until| now < until) {
            return self.release("its encoder was given up some seconds before");
        }
        self.paused_until = None;
        let job = Job::Message {
            entry,
            raw,
            is_foreign,
        };
        if let Err(reason) = self.send(job) {
            return self.give_up(&reason, now);
        }
        self.segment.get_or_insert(now);
    }

    fn send(&mut self, job: Job) -> Result<(), String> {
        let worker = match &self.worker {
            Some(worker) => worker,
            None => {
                let started = Worker::start(self.how.clone(), self.info.clone(), self.account.clone());
                let started = started.map_err(|error| format!("no thread can be started: {error}"))?;
                self.worker.insert(started)
            }
        };
        let sent = worker.jobs.try_send(job);
        sent.map_err(|_| "its encoder is too slow".to_owned())
    }

    /// Ends the segment, so that its messages come back soon.
    fn end_segment(&mut self, now: Duration) {
        self.segment_bytes = 0;
        if self.segment.take().is_some()
            && let Err(reason) = self.send(Job::EndSegment)
        {
            self.give_up(&reason, now);
        }
    }

    /// Takes what its thread has made.
    fn step(&mut self, now: Duration) {
        while let Some(worker) = &self.worker {
            match worker.batches.try_recv() {
                Ok(batch) => self.take(batch, now),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => self.give_up("its encoder has ended", now),
            }
        }
        let is_late = |first: &Pending| now.saturating_sub(first.given) > LATE;
        if self.pending.front().is_some_and(is_late) {
            self.give_up("its encoder is too slow", now);
        } else if self
            .segment
            .is_some_and(|since| now.saturating_sub(since) >= SEGMENT_MAX)
        {
            self.end_segment(now);
        }
    }

    fn take(&mut self, batch: Batch, now: Duration) {
        let Batch { made, into, about } = batch;
        self.account = Recoding {
            topic: std::mem::take(&mut self.account.topic),
            from: std::mem::take(&mut self.account.from),
            into: into.to_owned(),
            messages: self.account.messages,
            bytes_before: self.account.bytes_before,
            bytes_after: self.account.bytes_after,
            kept: self.account.kept,
            reasons: std::mem::take(&mut self.account.reasons),
            keys: std::mem::take(&mut self.account.keys),
            ..about
        };
        let begin = self.ready.len();
        let mut has_lost = false;
        for (key, made) in made {
            let is_next = |first: &Pending| first.entry.log_time == key.log_time;
            has_lost = !self.pending.front().is_some_and(is_next);
            if has_lost {
                break;
            }
            match made {
                Ok(payload) => {
                    self.pause = PAUSE_MIN;
                    self.recoded(&payload, into);
                }
                Err(reason) => self.keep(&reason),
            }
        }
        // None of them is understood without the first.
        let batch = self.ready.range_mut(begin..);
        let bytes = batch.map(|(_, one)| {
            one.run_bytes = 0;
            one.payload.len()
        });
        let bytes = bytes.sum::<usize>().max(1);
        if let Some((_, first)) = self.ready.get_mut(begin) {
            first.run_bytes = bytes;
        }
        if has_lost {
            self.give_up("its encoder has lost a message", now);
        }
    }

    fn recoded(&mut self, payload: &Bytes, into: &'static str) {
        let Some(message) = self.pending.pop_front() else {
            return;
        };
        self.account.messages += 1;
        self.account.bytes_before += message.bytes as u64;
        self.account.bytes_after += payload.len() as u64;
        self.account.note_key(payload, message.entry.log_time);
        let payload = Box::<[u8]>::from(&payload[..]);
        self.put(message, Box::new(payload), Some(into));
    }

    /// The oldest message comes back as it was.
    fn keep(&mut self, reason: &str) {
        let Some(message) = self.pending.pop_front() else {
            return;
        };
        let listed = self.account.reasons.len();
        self.account.keep(reason);
        if self.account.reasons.len() > listed {
            let topic = &self.info.name;
            tracing::warn!("{topic}: recorded without another form: {reason}");
        }
        // The thread only copies it.
        let raw = lock(&message.raw).take();
        if let Some(raw) = raw {
            self.put(message, raw, None);
        }
    }

    fn put(&mut self, message: Pending, payload: Box<dyn Loan>, into: Option<&'static str>) {
        self.pending_bytes = self.pending_bytes.saturating_sub(message.held_bytes);
        let recoded = Recoded {
            entry: message.entry,
            run_bytes: payload.len().max(1),
            payload,
            into,
            bytes: message.bytes,
            held_bytes: message.held_bytes,
        };
        self.ready.push_back((message.number, recoded));
    }

    /// All messages come back as they were.
    fn release(&mut self, reason: &str) {
        self.segment = None;
        while !self.pending.is_empty() {
            self.keep(reason);
        }
    }

    fn give_up(&mut self, reason: &str, now: Duration) {
        self.worker = None;
        self.release(reason);
        self.paused_until = Some(now + self.pause);
        self.pause = (2 * self.pause).min(PAUSE_MAX);
    }
}

/// Gives images another form while they are recorded.
struct Live {
    rules: Vec<Rule>,
    topics: BTreeMap<TopicId, Topic>,
    given: u64,
}

impl Live {
    fn next(&mut self) -> Option<Recoded> {
        let mut topics = self.topics.values_mut();
        let (_, ready) = topics.find_map(|topic| topic.ready.pop_front())?;
        Some(ready)
    }

    fn step(&mut self, room_bytes: usize, now: Duration) {
        for topic in self.topics.values_mut() {
            topic.step(now);
        }
        let segment_bytes_max = room_bytes / SEGMENTS_MIN / self.topics.len().max(1);
        for topic in self.topics.values_mut() {
            if topic.segment_bytes > segment_bytes_max {
                topic.end_segment(now);
            }
        }
        let pending: usize = self.topics.values().map(|topic| topic.pending_bytes).sum();
        if pending > room_bytes
            && let Some(largest) = self.topics.values_mut().max_by_key(|topic| topic.pending_bytes)
        {
            largest.give_up("its encoder is too slow", now);
        }
    }
}

impl LiveRecoder for Live {
    fn takes(&self, topic: &TopicInfo) -> bool {
        self.rules.iter().any(|rule| rule.takes(topic))
    }

    fn definition(&self, into: &str) -> MessageDefinition {
        definition(into)
    }

    fn give(&mut self, topic: &TopicInfo, message: Given) {
        let Some(rule) = self.rules.iter().find(|rule| rule.takes(topic)) else {
            return;
        };
        let Given {
            entry,
            payload,
            held_bytes,
            received,
        } = message;
        let pending = Pending {
            number: self.given,
            entry,
            bytes: payload.len(),
            raw: Arc::new(Mutex::new(Some(payload))),
            held_bytes,
            received,
            given: SystemClock.monotonic(),
        };
        self.given += 1;
        let known = self.topics.entry(entry.topic);
        let known = known.or_insert_with(|| Topic::new(topic, rule.how().clone(), entry.publisher));
        known.add(pending);
    }

    fn take_back(&mut self, room_bytes: usize, is_end: bool) -> Option<Recoded> {
        if let Some(ready) = self.next() {
            return Some(ready);
        }
        let now = SystemClock.monotonic();
        if is_end {
            self.topics.values_mut().for_each(|topic| topic.end_segment(now));
        }
        self.step(room_bytes, now);
        let ready = self.next();
        if is_end && ready.is_none() && self.back() < self.given {
            SystemClock.sleep_until(now + LOOK_AGAIN);
        }
        ready
    }

    fn oldest(&self) -> Option<Duration> {
        let first = |topic: &Topic| topic.pending.front().map(|message| message.received);
        self.topics.values().filter_map(first).min()
    }

    fn given(&self) -> u64 {
        self.given
    }

    fn back(&self) -> u64 {
        let first = |topic: &Topic| {
            let ready = topic.ready.front().map(|(number, _)| *number);
            ready.or_else(|| Some(topic.pending.front()?.number))
        };
        self.topics.values().filter_map(first).min().unwrap_or(self.given)
    }

    fn account(&self) -> Vec<Recoding> {
        self.topics.values().map(|topic| topic.account.clone()).collect()
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

/// The thread of a topic.
fn work(how: &How, topic: TopicInfo, before: &Recoding, jobs: &Receiver<Job>, done: &SyncSender<Batch>) {
    let foreign = Arc::new(TopicInfo {
        publisher: Some(Box::new(PublisherInfo::default())),
        ..topic.clone()
    });
    let own = Arc::new(topic);
    let mut coder: Option<(Box<dyn Coder>, &'static str)> = None;
    for job in jobs {
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
                    topic: Arc::clone(if is_foreign { &foreign } else { &own }),
                    stamp: entry.log_time,
                    log_time: entry.log_time,
                    publish_time: entry.publish_time.unwrap_or(entry.log_time),
                    sequence: entry.sequence.unwrap_or(0) as u32,
                    payload,
                };
                if coder.is_none() {
                    coder = begin(how, &message, before);
                }
                match &mut coder {
                    Some((coder, _)) => coder.take(&message, &mut sent),
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
        let mut about = before.clone();
        if let Some((coder, _)) = &coder {
            coder.describe(&mut about);
        }
        let into = coder.as_ref().map_or(COMPRESSED_VIDEO, |(_, into)| into);
        if done.send(Batch { made, into, about }).is_err() {
            return;
        }
    }
}

/// What encodes the messages that begin with this one; `None` while it is not known, because that depends on their pixels.
fn begin(how: &How, first: &BagMessage, before: &Recoding) -> Option<(Box<dyn Coder>, &'static str)> {
    let How::Video(options) = how else {
        return None;
    };
    let is_deep = || Frame::read(first).map(|frame| frame.pixels.is_deep);
    if options.quality.is_none() && is_deep().ok()? {
        return Some((Box::new(depth::Encoder::after(before)), COMPRESSED_IMAGE));
    }
    let into = options.carrier.type_name();
    let encoder = video::Encoder::new(options.clone()).after(before);
    Some((Box::new(encoder), into))
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdall_model::{message::PayloadRef, time::Timestamp};

    fn pending(number: u64, now: Duration) -> Pending {
        let payload: Box<dyn Loan> = Box::new(Box::<[u8]>::from([number as u8; 10]));
        Pending {
            number,
            entry: CacheEntry {
                log_time: Timestamp::from_nanos(number as i64),
                publish_time: None,
                sequence: Some(number),
                topic: TopicId(0),
                publisher: PublisherIndex(0),
            },
            raw: Arc::new(Mutex::new(Some(payload))),
            bytes: 10,
            held_bytes: 10,
            received: now,
            given: now,
        }
    }

    /// A topic whose thread does nothing.
    fn topic() -> (Topic, SyncSender<Batch>, Receiver<Job>) {
        let How::Video(options) = Rule::video("/camera=h264").unwrap().how().clone() else {
            panic!()
        };
        let mut topic = Topic::new(&TopicInfo::default(), How::Video(options), PublisherIndex(0));
        let ((jobs, to_do), (done, batches)) =
            (mpsc::sync_channel(JOBS_MAX), mpsc::sync_channel(BATCHES_MAX));
        topic.worker = Some(Worker { jobs, batches });
        (topic, done, to_do)
    }

    fn batch(made: impl IntoIterator<Item = (u64, Made)>) -> Batch {
        let key = |number: u64| Key {
            log_time: Timestamp::from_nanos(number as i64),
            publish_time: Timestamp::from_nanos(number as i64),
            sequence: number as u32,
            bytes: 10,
        };
        Batch {
            made: made
                .into_iter()
                .map(|(number, made)| (key(number), made))
                .collect(),
            into: COMPRESSED_VIDEO,
            about: Recoding::default(),
        }
    }

    /// What came back: number, whether it has another form, bytes of the run, first byte.
    fn back(topic: &mut Topic) -> Vec<(u64, bool, usize, u8)> {
        let mut seen = Vec::new();
        for (number, one) in topic.ready.drain(..) {
            let mut first = 0;
            PayloadRef::Loan(&*one.payload).for_each_slice(&mut |slice: &[u8]| first = slice[0]);
            seen.push((number, one.into.is_some(), one.run_bytes, first));
        }
        seen
    }

    #[test]
    fn a_segment_comes_back_as_one_run_in_order() {
        let (mut topic, done, to_do) = topic();
        for number in 0..4 {
            topic.add(pending(number, Duration::ZERO));
        }
        topic.step(SEGMENT_MAX);
        assert_eq!(
            to_do
                .try_iter()
                .filter(|job| matches!(job, Job::EndSegment))
                .count(),
            1
        );
        let made = |number: u64| match number {
            1 => Err("it is small".to_owned()),
            _ => Ok(Bytes::from(vec![100 + number as u8; 3])),
        };
        done.send(batch((0..3).map(|number| (number, made(number)))))
            .unwrap();
        topic.step(SEGMENT_MAX);
        assert_eq!(
            back(&mut topic),
            [(0, true, 16, 100), (1, false, 0, 1), (2, true, 0, 102)]
        );
        assert_eq!((topic.pending.len(), topic.pending_bytes), (1, 10));
        let account = &topic.account;
        assert_eq!(
            (account.messages, account.bytes_before, account.bytes_after),
            (2, 20, 6)
        );
        assert_eq!((account.kept, account.reasons["it is small"]), (1, 1));
    }

    #[test]
    fn what_a_lost_encoder_had_comes_back_as_it_was() {
        let now = Duration::from_secs(10);
        for fault in ["hangs", "ends", "lies"] {
            let (mut topic, done, to_do) = topic();
            for number in 0..3 {
                topic.add(pending(number, now));
            }
            match fault {
                "hangs" => topic.step(now + LATE + Duration::from_millis(1)),
                "ends" => {
                    drop((done, to_do));
                    topic.step(now);
                }
                _ => {
                    done.send(batch([(2, Ok(Bytes::from_static(b"x")))])).unwrap();
                    topic.step(now);
                }
            }
            let all: Vec<_> = (0..3).map(|number| (number, false, 10, number as u8)).collect();
            assert_eq!(back(&mut topic), all, "{fault}");
            assert!(topic.worker.is_none() && topic.account.kept == 3);
            // The next ones do not wait.
            topic.add(pending(3, now));
            assert_eq!(back(&mut topic).len(), 1);
            topic.add(pending(4, now + PAUSE_MAX));
            assert!(
                topic.worker.is_some() && topic.pending.len() == 1,
                "another one is tried"
            );
        }
    }
}
