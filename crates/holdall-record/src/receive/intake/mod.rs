//! The intake of one topic: checks each publisher's sequence, counts lost and unwanted messages, and offers the rest to the cache.

mod accounts;
mod ends;
mod first_inline;
mod latched;
mod other_type;
mod sequences;
mod sinks;
mod throttle;

use ends::End;
pub(crate) use ends::PastTime;
use first_inline::FirstInline;
use holdall_io::mutex::lock;
use latched::HeldLatched;
use other_type::OtherTypes;
use sinks::{MergingSink, SubscriptionSink};
use throttle::Throttle;

use super::{
    gate::{Gate, Passage},
    merging::Merging,
};
use crate::cache::{CacheEntry, Offered, SharedCache};
use holdall_model::{
    loss::{
        LossStage, MissingInterval, Observation, SequenceTracker,
        ledger::{Interval, Ledger, PublisherIndex},
    },
    message::{MessageHeader, Payload},
    time::Timestamp,
    topic::{Gid, PublisherInfo, TopicId},
};
use holdall_transport::Sink;
use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard},
};

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

/// State of one publisher's sequence. The order of fields keeps the fields that each message needs together: see [`Intake`].
#[derive(Debug)]
#[repr(C)]
struct PublisherTrack {
    index: PublisherIndex,
    origin: Option<PublisherOrigin>,
    numbered: bool,
    /// Log time of the last message.
    last_time: Option<Timestamp>,
    /// Its time of day; another one when simulated time stamps messages.
    last_arrival: Option<Timestamp>,
    /// One bit for each subscription that its messages came over.
    subscriptions: u64,
    /// Messages that arrived, duplicates left out.
    received: u64,
    /// When the last message was published, by its own clock.
    last_published: Option<Timestamp>,
    sequence: SequenceTracker,
    duplicates: u64,
    /// Stored messages that the tracker could not distinguish from duplicates.
    unclear: u64,
    /// Claims of numbers that cannot be believed.
    not_believable: u64,
    /// The last number of a message that was not believed; the next one after it is.
    last_not_believed: Option<u64>,
    end: End,
    is_reliable: bool,
    /// When the first message was published, by its own clock.
    first_published: Option<Timestamp>,
    /// The latest time at which a message was published, when the last one came that was not the next in order.
    published_before: Option<Timestamp>,
    /// The last sign of life of one that went silent.
    silent_since: Option<Timestamp>,
    /// The publish time from which on a message shows that nothing before is missing, where the publisher's clock is ahead.
    shown_from: Option<Timestamp>,
    /// Whether it is named as not heard.
    is_named: bool,
    /// It went silent and was discovered again: the same life, whose transport may send again what it keeps.
    came_back: bool,
    /// Set for a publisher that keeps its last messages for late subscriptions.
    latched: Option<Box<HeldLatched>>,
}

impl PublisherTrack {
    fn new(index: PublisherIndex, origin: Option<PublisherOrigin>) -> Self {
        Self {
            index,
            origin,
            sequence: SequenceTracker::new(),
            last_time: None,
            last_arrival: None,
            subscriptions: 0,
            numbered: false,
            received: 0,
            last_published: None,
            first_published: None,
            published_before: None,
            duplicates: 0,
            unclear: 0,
            not_believable: 0,
            last_not_believed: None,
            end: End::default(),
            is_reliable: false,
            silent_since: None,
            shown_from: None,
            is_named: false,
            came_back: false,
            latched: None,
        }
    }

    /// Takes note of a message that is not a duplicate; its publisher's place in the ledger.
    #[inline]
    fn note(&mut self, header: &MessageHeader, arrival: Timestamp) -> PublisherIndex {
        self.last_time = Some(header.log_time);
        self.last_arrival = Some(arrival);
        self.last_published = header.publish_time;
        self.received += 1;
        self.index
    }

    /// Messages before the first that was expected, when they were wanted.
    fn wanted_head(&self) -> Option<MissingInterval> {
        self.sequence
            .head()
            .filter(|_| self.origin == Some(PublisherOrigin::During))
    }

    /// First and last sequence number that its account is about; `None` if some message has an unclear place.
    fn covered(&self) -> Option<[u64; 2]> {
        let head = self.wanted_head().map(|head| (head.first, head.last));
        let (first, last) = match (head, self.sequence.covered()) {
            (Some((first, _)), Some((_, last))) => (first, last),
            (head, covered) => head.or(covered)?,
        };
        (self.unclear == 0).then_some([first, last])
    }
}

#[derive(Default)]
#[repr(C)]
struct IntakeState {
    /// All that arrived.
    received: u64,
    closed: bool,
    /// `throttle` or `stop` is set.
    is_rare: bool,
    /// The track of the last message: most topics have one publisher.
    last: Option<(Option<Gid>, usize)>,
    /// By the publisher's place in the ledger.
    tracks: FirstInline<PublisherTrack>,
    by_gid: HashMap<Option<Gid>, usize>,
    /// Publishers that are gone, the one gone longest first.
    gone: VecDeque<Gid>,
    /// Tracks whose account is closed before the end of the recording.
    ended: Vec<usize>,
    /// Publishers whose accounts were summed up.
    folded: usize,
    /// Arrived messages that are none of the topic's, or were there already.
    repeats: u64,
    /// Publishers of another type than the topic's.
    other_types: OtherTypes,
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
    ledger: Arc<Mutex<Ledger>>,
}

impl Intake {
    /// The intake of `topic`, whose account is open in the ledger.
    pub fn new(topic: TopicId, cache: Arc<SharedCache>, ledger: Arc<Mutex<Ledger>>, gate: Arc<Gate>) -> Self {
        Self {
            topic,
            cache,
            ledger,
            gate,
            state: Mutex::default(),
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
        if number == 0 {
            return Arc::clone(self) as Arc<dyn Sink>;
        }
        // More than 64 subscriptions of one topic share the last bit: at most eight are ever made.
        Arc::new(SubscriptionSink {
            intake: Arc::clone(self),
            bit: subscription_bit(number),
        })
    }

    /// As [`Intake::sink`], for a subscription of `transport`: a message that another transport has brought is left out, and counted
    /// at stage `policy`.
    pub(crate) fn merging_sink(
        self: &Arc<Self>,
        number: usize,
        transport: usize,
        merging: &Arc<Merging>,
    ) -> Arc<dyn Sink> {
        Arc::new(MergingSink {
            intake: Arc::clone(self),
            bit: subscription_bit(number),
            transport,
            merging: Arc::clone(merging),
        })
    }

    /// Sets the facts that discovery knows about a publisher, before or after its first message.
    pub(crate) fn publisher_discovered(&self, gid: Gid, origin: PublisherOrigin, who: Option<PublisherInfo>) {
        let mut state = self.lock();
        state.gone.retain(|gone| *gone != gid);
        let index = self.track(&mut state, Some(gid));
        let track = &mut state.tracks[index];
        track.came_back |= track.silent_since.is_some();
        if let Some(who) = who {
            self.ledger().describe_publisher(self.topic, track.index, who);
        }
        if track.origin.is_none() {
            track.origin = Some(origin);
            if track.sequence.received_count() > 0 {
                self.count_head(track);
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
        let state = self.lock();
        state.by_gid.len() + state.folded
    }

    /// True if all that publishers announced has arrived.
    pub(crate) fn is_caught_up(&self) -> bool {
        let state = self.lock();
        state
            .by_gid
            .values()
            .all(|&index| state.tracks[index].sequence.tail().is_none())
    }

    /// The bits of all subscriptions that messages of a publisher came over.
    pub(super) fn subscriptions_of(&self, gid: Gid) -> u64 {
        let state = self.lock();
        let index = state.by_gid.get(&Some(gid));
        index.map_or(0, |index| state.tracks[*index].subscriptions)
    }

    fn lock(&self) -> MutexGuard<'_, IntakeState> {
        lock(&self.state)
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        lock(&self.ledger)
    }

    fn miss(
        &self,
        track: &PublisherTrack,
        stage: LossStage,
        first: u64,
        last: u64,
        times: [Option<Timestamp>; 2],
    ) {
        let interval = Interval::of_sequences(stage, first, last, times);
        self.ledger().miss(self.topic, track.index, interval);
    }

    fn unless_paused(&self, stage: LossStage) -> LossStage {
        if self.gate.is_paused() {
            LossStage::Policy
        } else {
            stage
        }
    }

    /// The index of a publisher's track, made when it is new.
    #[inline]
    fn track(&self, state: &mut IntakeState, gid: Option<Gid>) -> usize {
        if let Some((last_gid, index)) = state.last
            && last_gid == gid
        {
            return index;
        }
        let index = match state.by_gid.get(&gid) {
            Some(&index) => index,
            None => self.add_track(state, gid, None),
        };
        state.last = Some((gid, index));
        index
    }

    #[cold]
    fn add_track(&self, state: &mut IntakeState, gid: Option<Gid>, origin: Option<PublisherOrigin>) -> usize {
        let index = self.ledger().add_publisher(self.topic, gid);
        let track = PublisherTrack::new(index, origin);
        let place = index.0 as usize;
        match state.tracks.get_mut(place) {
            // Its publisher was folded.
            Some(vacant) => *vacant = track,
            None => state.tracks.push(track),
        }
        state.by_gid.insert(gid, place);
        if let Some(type_name) = state.other_types.of(gid) {
            self.ledger().set_publisher_type(self.topic, index, type_name);
        }
        place
    }

    /// Takes a message of subscription `bit`. The topic's lock is held until the cache has it, so that order is kept.
    #[inline]
    fn receive(&self, bit: u64, header: MessageHeader, payload: Payload<'_>) {
        self.take(bit, header, Ok(payload));
    }

    /// Takes a message, or instead of its payload the stage at which it is left out.
    fn take(&self, bit: u64, mut header: MessageHeader, payload: Result<Payload<'_>, LossStage>) {
        let mut state = self.lock();
        state.received += 1;
        let arrival = header.log_time;
        let passage = self.gate.passage(&mut header.log_time);
        let mut index = self.track(&mut state, header.publisher);
        let publisher = match header.sequence {
            Some(sequence) => {
                let track = &mut state.tracks[index];
                match track.follow(bit, sequence, header.log_time) {
                    Observation::InOrder => track.note(&header, arrival),
                    other => {
                        let followed =
                            self.follow_exception(&mut state, index, other, sequence, &header, passage);
                        let Some(followed) = followed else { return };
                        index = followed;
                        state.tracks[index].note(&header, arrival)
                    }
                }
            }
            None => {
                self.set_loss_unknown(&state);
                state.tracks[index].note(&header, arrival)
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
                self.keep_back(&mut state.tracks[index], &header, payload.ok());
                state.follow_end(index, &header, arrival);
                LossStage::Policy
            }
        };
        let interval = Interval::of_message(stage, header.sequence, header.log_time);
        self.ledger().miss(self.topic, publisher, interval);
        if state.closed {
            self.write_account(&state.tracks[index]);
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
        self.receive(1, header, payload);
    }

    fn announced(&self, publisher: Gid, last_sequence: u64) {
        self.announce(publisher, last_sequence);
    }
}

#[cfg(test)]
mod tests;
