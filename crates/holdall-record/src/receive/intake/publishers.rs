//! The publishers of one topic: the track of each, by its identity and by its place in the ledger.

use super::{PUBLISHERS_KEPT_MAX, PublisherOrigin, accounts::Accounts, ends::End, latched::HeldLatched};
use holdall_model::{
    loss::{MissingInterval, SequenceTracker, ledger::PublisherIndex},
    message::MessageHeader,
    other_type::OtherTypes,
    time::Timestamp,
    topic::Gid,
};
use smallvec::SmallVec;
use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

/// State of one publisher's sequence. The order of fields keeps the fields that each message needs together: see [`Intake`](super::Intake).
#[derive(Debug, Default)]
#[repr(C)]
pub(super) struct PublisherTrack {
    pub index: PublisherIndex,
    pub origin: Option<PublisherOrigin>,
    pub numbered: bool,
    /// Log time of the last message.
    pub last_time: Option<Timestamp>,
    /// Its time of day; another one when simulated time stamps messages.
    pub last_arrival: Option<Timestamp>,
    /// One bit for each subscription that its messages came over.
    pub subscriptions: u64,
    /// Messages that arrived, duplicates left out.
    pub received: u64,
    /// When the last message was published, by its own clock.
    pub last_published: Option<Timestamp>,
    pub sequence: SequenceTracker,
    pub duplicates: u64,
    /// Stored messages that the tracker could not distinguish from duplicates.
    pub unclear: u64,
    /// Claims of numbers that cannot be believed.
    pub not_believable: u64,
    /// The last number of a message that was not believed; the next one after it is.
    pub last_not_believed: Option<u64>,
    pub end: End,
    pub is_reliable: bool,
    /// When the first message was published, by its own clock.
    pub first_published: Option<Timestamp>,
    /// The latest time at which a message was published, when the last one came that was not the next in order.
    pub published_before: Option<Timestamp>,
    /// The last sign of life of one that went silent.
    pub silent_since: Option<Timestamp>,
    /// The publish time from which on a message shows that nothing before is missing, where the publisher's clock is ahead.
    pub shown_from: Option<Timestamp>,
    /// Whether it is named as not heard.
    pub is_named: bool,
    /// It went silent and was discovered again: the same life, whose transport may send again what it keeps.
    pub came_back: bool,
    /// Set for a publisher that keeps its last messages for late subscriptions.
    pub latched: Option<Box<HeldLatched>>,
}

impl PublisherTrack {
    fn new(index: PublisherIndex, origin: Option<PublisherOrigin>) -> Self {
        Self {
            index,
            origin,
            ..Self::default()
        }
    }

    /// Takes note of a message that is not a duplicate; its publisher's place in the ledger.
    #[inline]
    pub fn note(&mut self, header: &MessageHeader, arrival: Timestamp) -> PublisherIndex {
        self.last_time = Some(header.log_time);
        self.last_arrival = Some(arrival);
        self.last_published = header.publish_time;
        self.received += 1;
        self.index
    }

    /// Messages before the first that was expected, when they were wanted.
    pub fn wanted_head(&self) -> Option<MissingInterval> {
        self.sequence
            .head()
            .filter(|_| self.origin == Some(PublisherOrigin::During))
    }

    /// First and last sequence number that its account is about; `None` if some message has an unclear place.
    pub fn covered(&self) -> Option<[u64; 2]> {
        let head = self.wanted_head().map(|head| (head.first, head.last));
        let (first, last) = match (head, self.sequence.covered()) {
            (Some((first, _)), Some((_, last))) => (first, last),
            (head, covered) => head.or(covered)?,
        };
        (self.unclear == 0).then_some([first, last])
    }
}

/// The publishers of a topic. The order of fields is that of [`Intake`](super::Intake).
#[repr(C)]
pub(super) struct Publishers {
    /// The track of the last message: most topics have one publisher.
    last: Option<(Option<Gid>, usize)>,
    /// By the publisher's place in the ledger. Nearly always one, which is read for each message.
    tracks: SmallVec<[PublisherTrack; 1]>,
    by_gid: HashMap<Option<Gid>, usize>,
    /// Publishers that are gone, the one gone longest first.
    gone: VecDeque<Gid>,
    /// Tracks whose account is closed before the end of the recording.
    ended: Vec<usize>,
    /// Publishers whose accounts were summed up.
    folded: usize,
    /// Publishers of another type than the topic's.
    other_types: OtherTypes,
    accounts: Accounts,
}

impl Publishers {
    pub fn new(accounts: Accounts) -> Self {
        Self {
            last: None,
            tracks: SmallVec::new(),
            by_gid: HashMap::new(),
            gone: VecDeque::new(),
            ended: Vec::new(),
            folded: 0,
            other_types: OtherTypes::default(),
            accounts,
        }
    }

    /// How many were discovered or sent a message.
    pub fn count(&self) -> usize {
        self.by_gid.len() + self.folded
    }

    /// The index of a publisher's track, made when it is new.
    #[inline]
    pub fn index_of(&mut self, gid: &Option<Gid>) -> usize {
        if let Some((last_gid, index)) = self.last
            && last_gid == *gid
        {
            return index;
        }
        self.look_up(gid)
    }

    // Apart, so that it takes no registers from the usual way.
    #[inline(never)]
    fn look_up(&mut self, gid: &Option<Gid>) -> usize {
        let index = match self.by_gid.get(gid) {
            Some(&index) => index,
            None => self.add(*gid, None),
        };
        self.last = Some((*gid, index));
        index
    }

    /// The track with this index and its account.
    #[inline]
    pub fn at(&mut self, index: usize) -> (&mut PublisherTrack, &Accounts) {
        (&mut self.tracks[index], &self.accounts)
    }

    /// A publisher's track, made when it is new.
    pub fn of(&mut self, gid: Gid) -> (&mut PublisherTrack, &Accounts) {
        let index = self.index_of(&Some(gid));
        self.at(index)
    }

    /// The track of a publisher that is known.
    pub fn known(&mut self, gid: Gid) -> Option<(&mut PublisherTrack, &Accounts)> {
        let index = *self.by_gid.get(&Some(gid))?;
        Some(self.at(index))
    }

    /// Those whose accounts are open.
    pub fn open(&self) -> impl Iterator<Item = (Option<Gid>, &PublisherTrack)> {
        self.by_gid
            .iter()
            .map(|(gid, index)| (*gid, &self.tracks[*index]))
    }

    /// Their indexes in the order of the ledger.
    pub fn open_indexes(&self) -> Vec<usize> {
        let mut indexes: Vec<usize> = self.by_gid.values().copied().collect();
        indexes.sort_unstable();
        indexes
    }

    #[cold]
    fn add(&mut self, gid: Option<Gid>, origin: Option<PublisherOrigin>) -> usize {
        let accounts = &self.accounts;
        let index = accounts.lock().add_publisher(accounts.topic, gid);
        let track = PublisherTrack::new(index, origin);
        let place = index.0 as usize;
        match self.tracks.get_mut(place) {
            // Its publisher was folded.
            Some(vacant) => *vacant = track,
            None => self.tracks.push(track),
        }
        self.by_gid.insert(gid, place);
        if let Some(type_name) = self.other_types.of(gid) {
            accounts.set_type(index, type_name);
        }
        place
    }

    pub fn set_type(&mut self, publisher: Option<Gid>, type_name: &Arc<str>) {
        if !self.other_types.add(publisher, type_name) {
            return;
        }
        // A new track is given its type when it is made.
        if let Some(place) = self.by_gid.get(&publisher) {
            self.accounts.set_type(self.tracks[*place].index, type_name);
        }
    }

    /// Begins another life of a publisher, whose numbers begin again.
    pub fn begin_again(&mut self, index: usize, sequence: u64, published: Option<Timestamp>) -> usize {
        let ended = &mut self.tracks[index];
        self.accounts.close(ended);
        let (subscriptions, end, is_reliable) = (ended.subscriptions, ended.end, ended.is_reliable);
        let gid = self
            .by_gid
            .iter()
            .find_map(|(gid, known)| (*known == index).then_some(*gid))
            .flatten();
        self.ended.push(index);
        let next = self.add(gid, Some(PublisherOrigin::Before));
        self.last = None;
        let track = &mut self.tracks[next];
        track.sequence.observe(sequence);
        self.accounts.begins_at(track, Some(sequence));
        (track.subscriptions, track.numbered) = (subscriptions, true);
        (track.end, track.is_reliable) = (end, is_reliable);
        track.first_published = published;
        next
    }

    pub fn is_gone(&self, gid: Gid) -> bool {
        self.gone.contains(&gid)
    }

    /// A publisher that was gone may be there again.
    pub fn is_discovered(&mut self, gid: Gid) {
        self.gone.retain(|gone| *gone != gid);
    }

    /// A publisher is gone. Sums up accounts of those that are, while there are too many.
    pub fn leave(&mut self, gid: Gid) {
        if self.is_gone(gid) {
            return;
        }
        self.gone.push_back(gid);
        while self.by_gid.len() + self.ended.len() > PUBLISHERS_KEPT_MAX
            && let Some(gid) = self.gone.pop_front()
        {
            if let Some(index) = self.by_gid.remove(&Some(gid)) {
                self.last = None;
                self.other_types.forget(gid);
                self.accounts.close(&mut self.tracks[index]);
                self.ended.push(index);
            }
        }
        // Messages that are still in the cache keep an account open; it is checked again when the next publisher goes.
        let before = self.ended.len();
        if self.by_gid.len() + before > PUBLISHERS_KEPT_MAX {
            let (tracks, topic) = (&self.tracks, self.accounts.topic);
            let mut ledger = self.accounts.lock();
            self.ended
                .retain(|&index| !ledger.fold(topic, tracks[index].index));
            self.folded += before - self.ended.len();
        }
    }

    /// Closes the accounts that are open: a track that a restart has ended is closed already, and is in no map any more.
    pub fn close(&mut self) {
        for &index in self.by_gid.values() {
            self.accounts.close(&mut self.tracks[index]);
        }
    }
}
