//! The last message of a publisher: shown by an announcement, a farewell or a later message, or not known.

use super::{Intake, IntakeState, publishers::PublisherTrack};
use crate::receive::discovery::Departure;
use holdall_model::{loss::ledger::PublisherAccount, message::MessageHeader, time::Timestamp, topic::Gid};
use holdall_transport::EndProof;
use std::time::Duration;

/// Evidence that no message is missing after the last one that arrived from a publisher.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum End {
    /// Only a later message can.
    #[default]
    Open,
    /// Its answer can.
    Asked,
    /// It is shown.
    Shown,
}

/// How much later than another one a message must have been published to have left after the stop, where the publisher's clock is ahead: no
/// packet is in flight for longer.
const FLIGHT_MAX: Duration = Duration::from_millis(250);

impl PublisherTrack {
    /// A message that was published after the stop shows that nothing of before is missing.
    fn follow_end(&mut self, published: Timestamp, stop: Timestamp, arrival: Timestamp) {
        // One of the same instant may have left before it.
        if published <= stop {
            return;
        }
        // As far as can be seen, its clock agrees with the recorder's.
        if published <= arrival {
            self.end = End::Shown;
            return;
        }
        // A clock that is ahead stamps earlier messages too late. It measures spans as the recorder's does.
        let flight = i64::try_from(FLIGHT_MAX.as_nanos()).unwrap_or(i64::MAX);
        let from = *self
            .shown_from
            .get_or_insert(Timestamp::from_nanos(published.as_nanos().saturating_add(flight)));
        if published >= from {
            self.end = End::Shown;
        }
    }

    /// Whether its end matters: it is not named as a publisher that is not heard at all.
    fn has_end(&self) -> bool {
        !self.is_named || self.received > 0
    }

    /// Whether its last message is unknown when its account is closed.
    fn is_end_unknown(&self) -> bool {
        self.has_end() && self.end != End::Shown
    }

    /// Writes the knowledge about its end into its account.
    pub(super) fn write_end(&self, account: &mut PublisherAccount) {
        account.end_unknown = account.gid.is_some() && self.is_end_unknown();
        account.silent_since = self.silent_since.filter(|_| account.end_unknown);
        account.reliable = self.is_reliable;
    }
}

impl IntakeState {
    /// Notes the evidence of a message about its publisher's end.
    pub(super) fn follow_end(&mut self, index: usize, header: &MessageHeader, arrival: Timestamp) {
        let track = self.publishers.at(index).0;
        if let (Some(stop), Some(published)) = (self.stop, header.publish_time)
            && track.end != End::Shown
        {
            track.follow_end(published, stop, arrival);
        }
    }
}

/// A time of day that has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PastTime {
    /// As the clock showed it then.
    pub time: Timestamp,
    /// How long ago it was: the clock may have been set since.
    pub ago: Duration,
}

impl PastTime {
    /// A time before `now`, since which the clock was not set.
    pub(crate) fn new(time: Timestamp, now: Timestamp) -> Self {
        let ago = now.saturating_since(time);
        Self { time, ago }
    }
}

impl Intake {
    /// Sets that a transport serves a publisher, how the number of its messages is proved, and whether it is received reliably.
    pub(crate) fn serves(&self, gid: Gid, proof: EndProof, is_reliable: bool) {
        let mut state = self.lock();
        let (track, accounts) = state.publishers.of(gid);
        track.is_reliable |= is_reliable;
        let end = match proof {
            EndProof::OfAll => End::Asked,
            EndProof::OfReliable if is_reliable => End::Asked,
            EndProof::OfReliable | EndProof::LaterMessage => End::Open,
        };
        // Where several transports serve it, the one that shows most decides.
        if track.end == End::Shown || end as u8 > track.end as u8 {
            track.end = end;
        }
        if track.silent_since.take().is_some() {
            accounts.lock().set_silent(accounts.topic, track.index, None);
        }
    }

    /// Notes that a publisher is gone. Its account stays unchanged, unless the topic has very many. `now` is the time of day, and `ago` is the span since
    /// such a time. Returns since when one is silent whose farewell is missing, or came after its network was lost: its last message, or its last sign of
    /// life, or `now` where neither is known.
    pub(crate) fn publisher_gone(
        &self,
        gid: Gid,
        departure: Departure,
        ago: impl FnOnce(Timestamp) -> Duration,
        now: Timestamp,
    ) -> Option<PastTime> {
        let mut state = self.lock();
        let (track, accounts) = state.publishers.known(gid)?;
        let last = track.last_arrival.map(|time| PastTime { time, ago: ago(time) });
        let mut silent_since = None;
        match departure {
            Departure::Farewell if track.end == End::Asked => track.end = End::Shown,
            Departure::Farewell => {}
            // A message after the stop has shown it.
            Departure::Silent(_) | Departure::Left { .. } if track.end == End::Shown => {}
            // It cannot answer any more.
            Departure::Left { cut }
                if cut.is_none_or(|cut| last.is_some_and(|last| last.ago < now.saturating_since(cut))) =>
            {
                track.end = End::Open;
            }
            Departure::Silent(heard) | Departure::Left { cut: heard } => {
                let heard = PastTime::new(heard.unwrap_or(now), now);
                let since = last.unwrap_or(heard);
                accounts.set_silent(track, since.time);
                silent_since = Some(since);
            }
        }
        state.publishers.leave(gid);
        silent_since
    }

    /// The recording was asked to end at `now`: a message that was sent later shows that all earlier ones are known.
    pub(crate) fn note_stop(&self, now: Timestamp) {
        let mut state = self.lock();
        if state.publishers.open().any(|(_, track)| track.end != End::Shown) {
            state.stop.get_or_insert(now);
            state.is_rare = true;
        }
    }

    /// Notes that a publisher is reported as not heard: until a message of it arrives, that is more precise than an unknown end.
    pub(crate) fn not_heard(&self, gid: Gid) {
        let mut state = self.lock();
        if let Some((track, _)) = state.publishers.known(gid) {
            track.is_named = true;
        }
    }

    /// Publishers that are still there and whose end is not shown.
    pub(crate) fn ends_open(&self) -> Vec<Gid> {
        self.ends_not_shown(|_| true)
    }

    /// Those of them that can answer.
    pub(crate) fn ends_asked(&self) -> Vec<Gid> {
        self.ends_not_shown(|track| track.end == End::Asked)
    }

    /// Whether publishers that have sent something can show their end by a later message only.
    pub(crate) fn awaits_later_message(&self) -> bool {
        !self
            .ends_not_shown(|track| track.end != End::Asked && track.received > 0)
            .is_empty()
    }

    fn ends_not_shown(&self, wants: impl Fn(&PublisherTrack) -> bool) -> Vec<Gid> {
        let state = self.lock();
        let known = state
            .publishers
            .open()
            .filter_map(|(gid, track)| Some((gid?, track)));
        known
            .filter(|(_, track)| track.end != End::Shown && track.has_end())
            .filter(|(gid, track)| !state.publishers.is_gone(*gid) && wants(track))
            .map(|(gid, _)| gid)
            .collect()
    }

    /// Notes that publishers have shown their last messages.
    pub(crate) fn ends_shown(&self, gids: &[Gid]) {
        let mut state = self.lock();
        for gid in gids {
            if let Some((track, _)) = state.publishers.known(*gid) {
                track.end = End::Shown;
            }
        }
    }

    /// Notes that a publisher which can answer did not. Returns since when it is silent: its last message, the span `ago` of which says how long that
    /// is, or `heard`.
    pub(crate) fn not_answered(
        &self,
        gid: Gid,
        ago: impl FnOnce(Timestamp) -> Duration,
        heard: impl FnOnce() -> PastTime,
    ) -> Option<PastTime> {
        let mut state = self.lock();
        let (track, accounts) = state.publishers.known(gid)?;
        let last = track.last_arrival.map(|time| PastTime { time, ago: ago(time) });
        let since = last.unwrap_or_else(heard);
        accounts.set_silent(track, since.time);
        Some(since)
    }
}
