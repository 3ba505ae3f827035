//! The intake of one topic: checks each publisher's sequence, counts lost and unwanted messages, and offers the rest to the cache.

mod accounts;
mod ends;
mod latched;
mod publishers;
mod sequences;
mod sinks;

use accounts::Accounts;
pub(crate) use ends::PastTime;
use holdall_io::mutex::lock;
use holdall_model::throttle::Throttle;
use latched::keep_back;
use publishers::Publishers;
pub(crate) use sinks::Brought;
use sinks::SubscriptionSink;

use super::gate::{Gate, Passage};
use crate::cache::{CacheEntry, Offered, SharedCache};
use holdall_model::{
    loss::{
        LossStage, Observation,
        ledger::{Interval, Ledger, PublisherIndex},
    },
    message::{MessageHeader, Payload},
    time::Timestamp,
    topic::{Gid, PublisherInfo, TopicId},
};
use holdall_transport::Sink;
use std::sync::{Arc, Mutex, MutexGuard};

/// Publishers of a topic whose accounts are kept one by one; beyond that, those that are gone are summed up.
pub(crate) const PUBLISHERS_KEPT_MAX: usize = 256;

/// Whether a publisher is older than the recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PublisherOrigin {
    /// It is; messages that it sent before are not lost.
    Before,
    /// It appeared while recording: everything that it ever sent is wanted.
    During,
}

/// The bit of a topic's subscription with this number, counted from 0.
pub(super) const fn subscription_bit(number: usize) -> u64 {
    1 << if number < 63 { number } else { 63 }
}

#[repr(C)]
struct IntakeState {
    /// All that arrived.
    received: u64,
    closed: bool,
    /// `throttle` or `stop` is set.
    is_rare: bool,
    publishers: Publishers,
    /// Arrived messages that are none of the topic's, or were there already.
    repeats: u64,
    throttle: Option<Throttle>,
    /// When the recording was asked to end.
    stop: Option<Timestamp>,
}

impl IntakeState {
    /// The stage at which a message of this track is left out before the cache, if it is.
    #[inline]
    fn refusal(&mut self, index: usize, header: &MessageHeader, arrival: Timestamp) -> Option<LossStage> {
        // One test: all are rare.
        if self.closed | self.is_rare {
            self.rare_refusal(index, header, arrival)
        } else {
            None
        }
    }

    #[cold]
    fn rare_refusal(
        &mut self,
        index: usize,
        header: &MessageHeader,
        arrival: Timestamp,
    ) -> Option<LossStage> {
        self.follow_end(index, header, arrival);
        if self.closed {
            return Some(LossStage::Shutdown);
        }
        let time = header.log_time;
        let kept = self.throttle.as_mut().is_none_or(|throttle| throttle.keeps(time));
        (!kept).then_some(LossStage::Policy)
    }
}

/// The path of one topic's messages before the cache.
///
/// With thousands of topics each message's intake is not in the processor's caches, so what it needs is in three consecutive
/// lines, without a pointer between them (seven lines in three pieces before: 10 000 topics cost 29 % against 10).
#[repr(C, align(64))]
pub struct Intake {
    topic: TopicId,
    cache: Arc<SharedCache>,
    gate: Arc<Gate>,
    state: Mutex<IntakeState>,
}

impl Intake {
    /// The intake of `topic`, whose account is open in the ledger.
    pub fn new(topic: TopicId, cache: Arc<SharedCache>, ledger: Arc<Mutex<Ledger>>, gate: Arc<Gate>) -> Self {
        let accounts = Accounts {
            topic,
            ledger,
            gate: Arc::clone(&gate),
        };
        Self {
            topic,
            cache,
            gate,
            state: Mutex::new(IntakeState {
                received: 0,
                closed: false,
                is_rare: false,
                publishers: Publishers::new(accounts),
                repeats: 0,
                throttle: None,
                stop: None,
            }),
        }
    }

    /// Keeps at most `hertz` messages a second.
    pub(crate) fn throttled(self, hertz: f64) -> Self {
        {
            let mut state = self.lock();
            state.throttle = Throttle::new(hertz);
            state.is_rare = state.throttle.is_some();
        }
        self
    }

    /// The sink of one of the topic's subscriptions; `number` is counted from 0 and distinguishes duplicates from restarts.
    pub fn sink(self: &Arc<Self>, number: usize) -> Arc<dyn Sink> {
        self.sink_of(number, Brought::Own)
    }

    /// As [`Intake::sink`], for a subscription that may bring more than messages of the topic that come once.
    pub(crate) fn sink_of(self: &Arc<Self>, number: usize, brought: Brought) -> Arc<dyn Sink> {
        let intake = Arc::clone(self);
        if let (0, Brought::Own) = (number, &brought) {
            return intake;
        }
        // More than 64 subscriptions of one topic share the last bit: at most eight are ever made.
        let bit = subscription_bit(number);
        Arc::new(SubscriptionSink { intake, bit, brought })
    }

    /// Sets that a publisher has another type than the topic, before or after its first message.
    pub(crate) fn publisher_of_type(&self, publisher: Option<Gid>, type_name: &Arc<str>) {
        self.lock().publishers.set_type(publisher, type_name);
    }

    /// Sets the facts that discovery knows about a publisher, before or after its first message.
    pub(crate) fn publisher_discovered(&self, gid: Gid, origin: PublisherOrigin, who: Option<PublisherInfo>) {
        let mut state = self.lock();
        state.publishers.is_discovered(gid);
        let (track, accounts) = state.publishers.of(gid);
        track.came_back |= track.silent_since.is_some();
        if let Some(who) = who {
            accounts
                .lock()
                .describe_publisher(accounts.topic, track.index, who);
        }
        if track.origin.is_none() {
            track.origin = Some(origin);
            if track.sequence.received_count() > 0 {
                accounts.count_head(track);
            }
        }
    }

    /// Messages received so far, unwanted and duplicate ones included.
    pub fn received(&self) -> u64 {
        self.lock().received
    }

    /// Messages of the topic that publishers have sent and that arrived, each once.
    pub(crate) fn messages(&self) -> u64 {
        let state = self.lock();
        state.received - state.repeats
    }

    /// Publishers that were discovered or sent a message.
    pub fn publishers(&self) -> usize {
        self.lock().publishers.count()
    }

    /// True if all that publishers announced has arrived.
    pub(crate) fn is_caught_up(&self) -> bool {
        let state = self.lock();
        let mut open = state.publishers.open();
        open.all(|(_, track)| track.sequence.tail().is_none())
    }

    /// The bits of all subscriptions that messages of a publisher came over.
    pub(super) fn subscriptions_of(&self, gid: Gid) -> u64 {
        let mut state = self.lock();
        let known = state.publishers.known(gid);
        known.map_or(0, |(track, _)| track.subscriptions)
    }

    fn lock(&self) -> MutexGuard<'_, IntakeState> {
        lock(&self.state)
    }

    /// Counts what was announced and never arrived as lost at the tail, and writes the sequences into the ledger. Messages that come
    /// later are lost at shutdown.
    pub fn close(&self) {
        let mut state = self.lock();
        if !std::mem::replace(&mut state.closed, true) {
            state.publishers.close();
        }
    }

    /// Takes a message of subscription `bit`, or instead of its payload the stage at which it is left out. The topic's lock is held until the cache has
    /// it, so that order is kept.
    fn take(&self, bit: u64, mut header: MessageHeader, payload: Result<Payload<'_>, LossStage>) {
        let mut state = self.lock();
        state.received += 1;
        let arrival = header.log_time;
        let passage = self.gate.passage(&mut header.log_time);
        let mut index = state.publishers.index_of(&header.publisher);
        let publisher = match header.sequence {
            Some(sequence) => {
                let track = state.publishers.at(index).0;
                match track.follow(bit, sequence, header.log_time) {
                    Observation::InOrder => track.note(&header, arrival),
                    other => {
                        let followed = state
                            .publishers
                            .follow_exception(index, other, sequence, &header, passage);
                        let Some(followed) = followed else {
                            state.repeats += 1;
                            return;
                        };
                        index = followed;
                        state.publishers.at(index).0.note(&header, arrival)
                    }
                }
            }
            None => {
                let is_first = state.received == 1;
                let (track, accounts) = state.publishers.at(index);
                if is_first {
                    accounts.set_loss_unknown();
                }
                track.note(&header, arrival)
            }
        };
        let stage = match (passage, payload) {
            (Passage::Open, Ok(payload)) => match state.refusal(index, &header, arrival) {
                Some(stage) => stage,
                None => match self.offer(publisher, &header, payload) {
                    Offered::Stored => return,
                    Offered::Full => LossStage::Cache,
                    Offered::Closed => LossStage::Shutdown,
                },
            },
            (Passage::Open, Err(stage)) => {
                state.repeats += 1;
                state.follow_end(index, &header, arrival);
                stage
            }
            (Passage::Shut, payload) => {
                state.repeats += u64::from(payload.is_err());
                keep_back(state.publishers.at(index).0, &self.gate, &header, payload.ok());
                state.follow_end(index, &header, arrival);
                LossStage::Policy
            }
        };
        let interval = Interval::of_message(stage, header.sequence, header.log_time);
        let is_closed = state.closed;
        let (track, accounts) = state.publishers.at(index);
        accounts.add(publisher, interval);
        if is_closed {
            accounts.write(track);
        }
    }

    fn offer(&self, publisher: PublisherIndex, header: &MessageHeader, payload: Payload<'_>) -> Offered {
        let entry = CacheEntry {
            log_time: header.log_time,
            publish_time: header.publish_time,
            sequence: header.sequence,
            topic: self.topic,
            publisher,
        };
        self.cache.offer(entry, payload)
    }
}

/// The first subscription's sink: the intake itself, without a layer between.
impl Sink for Intake {
    fn offer(&self, header: MessageHeader, payload: Payload<'_>) {
        self.take(1, header, Ok(payload));
    }

    fn announced(&self, publisher: Gid, last_sequence: u64) {
        self.announce(publisher, last_sequence);
    }
}

#[cfg(test)]
mod tests;
