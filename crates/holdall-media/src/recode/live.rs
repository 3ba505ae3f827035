//! Gives images and clouds another form while they are recorded: each topic has a thread of its own, which is given up where it is late.
//!
//! The messages that were given away are kept until their new form comes. An encoder that dies, hangs or is too slow costs nothing but
//! the smaller form: its messages come back as they were, in order, and after a pause another one begins with a key frame. Before that a policy may
//! have lowered the quality, or the rate.

use super::{
    How, Rule,
    behind::Behind,
    encoder::Refused,
    worker::{Batch, Job, Shared, Worker, into},
};
use crate::carried::definition;

pub use super::behind::WhenBehind;
use bytes::Bytes;
use holdall_io::{
    clock::{Clock, SystemClock},
    mutex::lock,
};
use holdall_model::{
    loss::ledger::PublisherIndex,
    marker::Marker,
    message::{CacheEntry, Loan},
    recoding::{
        Recoding,
        live::{Given, LiveRecoder, LiveRecoding, Recoded},
    },
    topic::{MessageDefinition, TopicId, TopicInfo},
};
use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, atomic::Ordering, mpsc::TryRecvError},
    thread::JoinHandle,
    time::Duration,
};

/// Time from a key frame to the next, and half of the loss window at most: their messages come back together.
const SPAN_MAX: Duration = Duration::from_secs(1);
/// A message that has waited for this long comes back as it was, or for two and a half loss windows.
const LATE_MIN: Duration = Duration::from_secs(1);
const LATE_MAX: Duration = Duration::from_secs(5);
/// Pauses after an encoder was given up: the first, and the longest.
const PAUSE_MIN: Duration = Duration::from_secs(5);
const PAUSE_MAX: Duration = Duration::from_secs(80);
/// Another publisher takes the place of one that was silent for this long.
const SILENT: Duration = Duration::from_secs(2);
/// Segments of all topics that fit into the memory for them at least.
const SEGMENTS_MIN: usize = 4;
/// Time between two looks for what is waited for.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// Gives messages another form by these rules while they are recorded; the first rule that names a topic counts.
pub fn live(rules: Vec<Rule>, when_behind: WhenBehind) -> LiveRecoding {
    LiveRecoding::new(move |max_loss_window| {
        Box::new(Live {
            rules: rules.clone(),
            pace: Pace::within(max_loss_window, when_behind),
            topics: BTreeMap::new(),
            given: 0,
        })
    })
}

/// How long messages wait.
#[derive(Clone, Copy, Debug)]
struct Pace {
    /// From a key frame to the next.
    span: Duration,
    /// At most.
    late: Duration,
    when_behind: WhenBehind,
}

impl Pace {
    fn within(max_loss_window: Option<Duration>, when_behind: WhenBehind) -> Self {
        let window = max_loss_window.unwrap_or(Duration::MAX);
        let late = (window.saturating_mul(5) / 2).clamp(LATE_MIN, LATE_MAX);
        Self {
            span: SPAN_MAX.min(window / 2),
            // A policy needs time to have an effect.
            late: match when_behind {
                WhenBehind::Raw => late,
                WhenBehind::Quality | WhenBehind::Rate => 2 * late,
            },
            when_behind,
        }
    }
}

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

/// A topic whose messages get another form.
struct Topic {
    info: TopicInfo,
    how: How,
    pace: Pace,
    worker: Option<Worker>,
    /// Encoders that do not work here.
    refused: Refused,
    /// Threads that are ending.
    ending: Vec<JoinHandle<()>>,
    pending: VecDeque<Pending>,
    pending_bytes: usize,
    /// With their numbers.
    ready: VecDeque<(u64, Recoded)>,
    /// Bytes that the thread has since it was to end its segment, and how many a segment may have.
    segment_bytes: usize,
    segment_bytes_max: usize,
    behind: Behind,
    /// Until when messages keep their form.
    paused_until: Option<Duration>,
    pause: Duration,
    /// Whose images are encoded, and when the last of them came.
    publisher: (PublisherIndex, Duration),
    account: Recoding,
}

impl Topic {
    fn new(info: &TopicInfo, how: How, publisher: PublisherIndex, pace: Pace) -> Self {
        let into = into(&how);
        let policy = match how {
            How::Video(_) => pace.when_behind,
            How::Cloud(_) => WhenBehind::Raw,
        };
        Self {
            info: info.as_whole(),
            how,
            pace,
            worker: None,
            refused: Refused::default(),
            ending: Vec::new(),
            pending: VecDeque::new(),
            pending_bytes: 0,
            ready: VecDeque::new(),
            segment_bytes: 0,
            segment_bytes_max: usize::MAX,
            behind: Behind::new(&info.name, policy, pace.span),
            paused_until: None,
            pause: PAUSE_MIN,
            publisher: (publisher, Duration::ZERO),
            account: Recoding {
                topic: info.name.clone(),
                from: info.type_name.clone(),
                into: into.to_owned(),
                ..Recoding::default()
            },
        }
    }

    fn add(&mut self, message: Pending) {
        let now = message.given;
        let entry = message.entry;
        if entry.publisher != self.publisher.0 && now.saturating_sub(self.publisher.1) > SILENT {
            // The first picture of another publisher is a key frame.
            self.end_segment(now);
            self.publisher.0 = entry.publisher;
            self.behind.at(entry.log_time);
            if let How::Video(_) = self.how {
                let what = "images of another publisher".to_owned();
                self.behind.note(what, &mut self.account);
            }
        }
        let is_foreign = entry.publisher != self.publisher.0;
        if !is_foreign {
            self.publisher.1 = now;
        }
        if !is_foreign && self.behind.leaves_out() {
            return self.leave_out(message);
        }
        self.behind.at(entry.log_time);
        let raw = Arc::clone(&message.raw);
        self.pending_bytes += message.held_bytes;
        self.segment_bytes += message.held_bytes;
        self.pending.push_back(message);
        if self.paused_until.is_some_and(|until| now < until) {
            return self.release("its encoder was given up some seconds before");
        }
        if self.paused_until.take().is_some() {
            self.behind.resumed(&mut self.account);
        }
        let job = Job::Message {
            entry,
            raw,
            is_foreign,
        };
        if let Err(reason) = self.send(job) {
            self.give_up(&reason, now);
        }
    }

    /// A message is not recorded, so that the encoder can follow.
    fn leave_out(&mut self, message: Pending) {
        let Some(payload) = lock(&message.raw).take() else {
            return;
        };
        self.account.left_out += 1;
        let left_out = Recoded {
            is_left_out: true,
            ..recoded(&message, payload, None)
        };
        self.ready.push_back((message.number, left_out));
    }

    fn send(&mut self, job: Job) -> Result<(), String> {
        let worker = match &self.worker {
            Some(worker) => worker,
            None => {
                let started = Worker::start(
                    self.how.clone(),
                    self.info.clone(),
                    (self.account.clone(), self.refused.clone()),
                    self.pace.span,
                );
                let started = started.map_err(|error| format!("no thread can be started: {error}"))?;
                self.worker.insert(started)
            }
        };
        let limits = &worker.limits;
        limits.ease.store(self.behind.ease(), Ordering::Relaxed);
        let bytes = self.segment_bytes_max;
        limits.segment_bytes_max.store(bytes, Ordering::Relaxed);
        let sent = worker.jobs.try_send(job);
        sent.map_err(|_| "its encoder is too slow".to_owned())
    }

    /// Ends the segment, so that its messages come back soon.
    fn end_segment(&mut self, now: Duration) {
        if std::mem::take(&mut self.segment_bytes) > 0
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
        let oldest = self.pending.front();
        let waited = oldest.map(|first| now.saturating_sub(first.given));
        let is_full = self.pending_bytes / 3 > self.segment_bytes_max;
        if waited.is_some_and(|waited| waited > self.pace.late) {
            self.give_up("its encoder is too slow", now);
        } else if self.paused_until.is_none() {
            let waited = waited.unwrap_or_default();
            self.behind.check(waited, is_full, now, &mut self.account);
        }
        if self.segment_bytes / 2 > self.segment_bytes_max {
            self.end_segment(now);
        }
    }

    fn take(&mut self, batch: Batch, now: Duration) {
        let Batch {
            made,
            into,
            about,
            changes,
            gave_up,
        } = batch;
        self.account = Recoding {
            topic: std::mem::take(&mut self.account.topic),
            from: std::mem::take(&mut self.account.from),
            into: into.to_owned(),
            messages: self.account.messages,
            bytes_before: self.account.bytes_before,
            bytes_after: self.account.bytes_after,
            kept: self.account.kept,
            left_out: self.account.left_out,
            steps: std::mem::take(&mut self.account.steps),
            reasons: std::mem::take(&mut self.account.reasons),
            keys: std::mem::take(&mut self.account.keys),
            ..about
        };
        for change in changes {
            self.behind.note(change.what, &mut self.account);
        }
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
        self.segment_bytes = self.pending_bytes;
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
        } else if let Some(reason) = gave_up {
            self.give_up(&reason, now);
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
        self.ready
            .push_back((message.number, recoded(&message, payload, into)));
    }

    /// All messages come back as they were.
    fn release(&mut self, reason: &str) {
        self.segment_bytes = 0;
        while !self.pending.is_empty() {
            self.keep(reason);
        }
    }

    fn give_up(&mut self, reason: &str, now: Duration) {
        self.ending.retain(|thread| !thread.is_finished());
        if let Some(worker) = self.worker.take() {
            self.ending.push(worker.stop());
            self.behind.gave_up(reason, &mut self.account);
        }
        self.release(reason);
        self.paused_until = Some(now + self.pause);
        self.pause = (2 * self.pause).min(PAUSE_MAX);
    }
}

impl Drop for Topic {
    fn drop(&mut self) {
        let worker = self.worker.take().map(Worker::stop);
        // Their programs must not run longer than this one.
        for thread in self.ending.drain(..).chain(worker) {
            let _ = thread.join();
        }
    }
}

fn recoded(message: &Pending, payload: Box<dyn Loan>, into: Option<&'static str>) -> Recoded {
    Recoded {
        entry: message.entry,
        run_bytes: payload.len().max(1),
        payload,
        into,
        is_left_out: false,
        bytes: message.bytes,
        held_bytes: message.held_bytes,
    }
}

/// Gives messages another form while they are recorded.
struct Live {
    rules: Vec<Rule>,
    pace: Pace,
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
        let segment_bytes_max = room_bytes / SEGMENTS_MIN / self.topics.len().max(1);
        for topic in self.topics.values_mut() {
            topic.segment_bytes_max = segment_bytes_max;
            topic.step(now);
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
        let known =
            known.or_insert_with(|| Topic::new(topic, rule.how().clone(), entry.publisher, self.pace));
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

    fn oldest(&self) -> Option<(&str, Duration)> {
        let first = |topic: &'_ Topic| topic.pending.front().map(|message| message.received);
        let all = self.topics.values();
        all.filter_map(|topic| Some((topic.info.name.as_str(), first(topic)?)))
            .min_by_key(|(_, received)| *received)
    }

    fn take_markers(&mut self) -> Vec<Marker> {
        let topics = self.topics.values_mut();
        topics.flat_map(|topic| topic.behind.take_markers()).collect()
    }

    fn given(&self) -> u64 {
        self.given
    }

    fn back(&self) -> u64 {
        let first = |topic: &Topic| {
            // Those that are left out are ready before those that came before them.
            let ready = topic.ready.iter().map(|(number, _)| *number);
            ready
                .chain(topic.pending.front().map(|message| message.number))
                .min()
        };
        self.topics.values().filter_map(first).min().unwrap_or(self.given)
    }

    fn account(&self) -> Vec<Recoding> {
        self.topics.values().map(|topic| topic.account.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ffmpeg::Stop;
    use crate::recode::{
        Key, Made,
        worker::{BATCHES_MAX, JOBS_MAX},
    };
    use holdall_model::{message::PayloadRef, time::Timestamp};
    use std::{
        sync::mpsc::{self, Receiver, SyncSender},
        thread,
    };

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
    fn topic(policy: WhenBehind) -> (Topic, SyncSender<Batch>, Receiver<Job>) {
        let How::Video(options) = Rule::video("/camera=h264").unwrap().how().clone() else {
            panic!()
        };
        let pace = Pace::within(None, policy);
        let mut topic = Topic::new(
            &TopicInfo::default(),
            How::Video(options),
            PublisherIndex(0),
            pace,
        );
        let ((jobs, to_do), (done, batches)) =
            (mpsc::sync_channel(JOBS_MAX), mpsc::sync_channel(BATCHES_MAX));
        topic.worker = Some(Worker {
            jobs,
            batches,
            stop: Stop::default(),
            limits: Arc::default(),
            thread: thread::spawn(|| {}),
        });
        (topic, done, to_do)
    }

    fn batch(made: impl IntoIterator<Item = (u64, Made)>) -> Batch {
        let key = |number: u64| Key {
            log_time: Timestamp::from_nanos(number as i64),
            publish_time: Timestamp::from_nanos(number as i64),
            sequence: number as u32,
            bytes: 10,
            stamp: Timestamp::from_nanos(number as i64),
        };
        Batch {
            made: made
                .into_iter()
                .map(|(number, made)| (key(number), made))
                .collect(),
            into: crate::carried::COMPRESSED_VIDEO,
            about: Recoding::default(),
            changes: Vec::new(),
            gave_up: None,
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
        let (mut topic, done, to_do) = topic(WhenBehind::Raw);
        for number in 0..4 {
            topic.add(pending(number, Duration::ZERO));
        }
        topic.segment_bytes_max = 10;
        topic.step(Duration::ZERO);
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
        topic.step(Duration::ZERO);
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
        for fault in ["hangs", "ends", "skips", "gives up"] {
            let (mut topic, done, to_do) = topic(WhenBehind::Raw);
            for number in 0..3 {
                topic.add(pending(number, now));
            }
            match fault {
                "hangs" => topic.step(now + LATE_MAX + Duration::from_millis(1)),
                "ends" => {
                    drop((done, to_do));
                    topic.step(now);
                }
                "skips" => {
                    done.send(batch([(2, Ok(Bytes::from_static(b"x")))])).unwrap();
                    topic.step(now);
                }
                _ => {
                    let mut last = batch([(0, Err("it died".to_owned()))]);
                    last.gave_up = Some("it died, 3 times in a row".to_owned());
                    done.send(last).unwrap();
                    topic.step(now);
                    assert_eq!(topic.account.reasons["it died, 3 times in a row"], 2);
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
    #[test]
    fn behind_by_rate_images_are_left_out_at_once_until_it_follows_again() {
        let (mut topic, done, _to_do) = topic(WhenBehind::Rate);
        for number in 0..3 {
            topic.add(pending(number, Duration::ZERO));
        }
        let late = Duration::from_secs(3);
        topic.step(late);
        for number in 3..7 {
            topic.add(pending(number, late));
        }
        let out: Vec<(u64, bool)> = topic
            .ready
            .iter()
            .map(|(number, one)| (*number, one.is_left_out))
            .collect();
        assert_eq!(out, [(3, true), (5, true)]);
        assert_eq!((topic.account.left_out, topic.account.steps.len()), (2, 1));
        assert_eq!(topic.behind.take_markers().len(), 1);
        let made = [0, 1, 2, 4, 6].map(|number| (number, Ok(Bytes::from_static(b"x"))));
        done.send(batch(made)).unwrap();
        topic.step(late);
        assert_eq!(topic.account.messages, 5);
        topic.step(late + Duration::from_secs(20));
        topic.step(late + Duration::from_secs(40));
        topic.add(pending(7, late + Duration::from_secs(40)));
        assert_eq!((topic.account.left_out, topic.account.steps.len()), (2, 2));
    }

    #[test]
    fn messages_come_back_within_the_loss_window_where_that_is_possible() {
        let pace = |millis| {
            let window = Some(Duration::from_millis(millis));
            let pace = Pace::within(window, WhenBehind::Raw);
            (pace.span.as_millis(), pace.late.as_millis())
        };
        assert_eq!(pace(2000), (1000, 5000));
        assert_eq!(pace(500), (250, 1250));
        assert_eq!(pace(50), (25, 1000));
        let never = Pace::within(None, WhenBehind::Rate);
        assert_eq!((never.span, never.late), (SPAN_MAX, 2 * LATE_MAX));
    }
}
