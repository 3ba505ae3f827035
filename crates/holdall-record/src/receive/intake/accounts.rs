//! Publishers that go and the end of the topic: their accounts are closed, and folded into the topic's sum.

use super::{Intake, IntakeState, PUBLISHERS_KEPT_MAX, PublisherTrack, sequences::ANNOUNCED_MAX};
use holdall_model::loss::LossStage;

impl Intake {
    /// Sums up accounts of publishers that are gone, while there are too many.
    pub(super) fn fold_gone(&self, state: &mut IntakeState) {
        while state.by_gid.len() + state.ended.len() > PUBLISHERS_KEPT_MAX
            && let Some(gid) = state.gone.pop_front()
        {
            if let Some(index) = state.by_gid.remove(&Some(gid)) {
                state.last = None;
                state.other_types.forget(gid);
                self.close_track(&mut state.tracks[index]);
                state.ended.push(index);
            }
        }
        // Messages that are still in the cache keep an account open; it is checked again when the next publisher goes.
        let before = state.ended.len();
        if state.by_gid.len() + before > PUBLISHERS_KEPT_MAX {
            let tracks = &state.tracks;
            let mut ledger = self.ledger();
            state
                .ended
                .retain(|&index| !ledger.fold(self.topic, tracks[index].index));
            state.folded += before - state.ended.len();
        }
    }

    /// Counts what was announced and never arrived as lost at the tail, and writes the sequences into the ledger. Messages that come
    /// later are lost at shutdown.
    pub fn close(&self) {
        let mut state = self.lock();
        if std::mem::replace(&mut state.closed, true) {
            return;
        }
        // A track that a restart has ended is closed already; it is in no map any more.
        let IntakeState { tracks, by_gid, .. } = &mut *state;
        for &index in by_gid.values() {
            self.close_track(&mut tracks[index]);
        }
    }

    pub(super) fn close_track(&self, track: &mut PublisherTrack) {
        if track.sequence.received_count() == 0 {
            self.count_head(track);
        }
        if track.sequence.announces_beyond(ANNOUNCED_MAX) {
            track.sequence.drop_announcements();
            self.not_believed(track, None);
        }
        if let Some(tail) = track.sequence.miss_tail() {
            track.numbered = true;
            let stage = self.unless_paused(LossStage::Tail);
            self.miss(track, stage, tail.first, tail.last, [track.last_time, None]);
        }
        self.write_account(track);
    }

    /// Writes the sums of a publisher into the ledger.
    pub(super) fn write_account(&self, track: &PublisherTrack) {
        let head = track.sequence.head().map_or(0, |head| head.count);
        let wanted_head = track.wanted_head().map_or(0, |head| head.count);
        let arrived = track.sequence.received_count() + track.unclear;
        let sent = [track.sequence.missing_count(), wanted_head, track.not_believable];
        let sent = sent.into_iter().fold(arrived, u64::saturating_add);
        if let Some(account) = self.ledger().publisher_mut(self.topic, track.index) {
            account.received = Some(track.received);
            account.covered = track.covered();
            // A publisher that has only announced its messages is known by that.
            account.sent = (track.numbered || sent > 0).then_some(sent);
            account.sent_before = head - wanted_head;
            account.duplicates = track.duplicates;
            track.write_end(account);
        }
    }
}
