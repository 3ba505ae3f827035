//! Signs of life: links that are lost, publishers that die or announce their end, leases that expire, and answers at
//! the end.

use super::{Life, Network, State};
use holdall_io::clock::Clock;
use holdall_model::{qos::Reliability, time::Timestamp, topic::Gid};
use holdall_transport::{EndProof, GraphEvent, SubscribeRequest};
use std::time::Duration;

/// The signs that a network gives of the ends of its publishers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signs {
    /// Who announces and answers.
    pub proof: EndProof,
    /// How long after its last sign of life a publisher counts as gone.
    pub lease: Duration,
}

impl Life {
    fn is_reliable_to(&self, asked: &SubscribeRequest) -> bool {
        let both = [self.qos.reliability, asked.qos.reliability];
        both == [Reliability::Reliable; 2]
    }

    /// Whether its announcements come to a subscription.
    pub(super) fn announces_to(&self, signs: Option<Signs>, asked: &SubscribeRequest) -> bool {
        let proof = signs.map(|signs| signs.proof);
        let announces = match proof {
            None => true,
            Some(EndProof::OfReliable) => self.is_reliable_to(asked),
            Some(EndProof::LaterMessage | EndProof::OfAll) => false,
        };
        announces && self.matches(asked)
    }

    /// Whether it answers a subscription.
    pub(super) fn answers_to(&self, signs: Option<Signs>, asked: &SubscribeRequest) -> bool {
        let answers = match signs.map(|signs| signs.proof) {
            None | Some(EndProof::LaterMessage) => false,
            Some(EndProof::OfReliable) => self.is_reliable_to(asked),
            Some(EndProof::OfAll) => true,
        };
        answers && self.matches(asked)
    }

    /// Whether the last of its messages has arrived or was announced.
    fn is_last_known(&self) -> bool {
        let arrived = self.sent.iter().rposition(|sent| sent.arrival.is_some());
        let arrived = arrived.map_or(0, |index| index as u64 + 1);
        arrived.max(self.announced_last.unwrap_or_default()) >= self.sent.len() as u64
    }

    fn lose(&mut self, at: (Duration, Timestamp)) {
        self.was_lost = true;
        self.lost.get_or_insert(at);
    }
}

impl State {
    /// Reports the publishers whose leases have expired.
    pub(super) fn expire(&mut self, now: Duration) {
        let Some(signs) = self.signs else { return };
        for life in self.lives.iter_mut().filter(|life| !life.is_expired) {
            if let Some((at, since)) = life.lost
                && now >= at + signs.lease
            {
                life.is_expired = true;
                self.events.push(GraphEvent::PublisherSilent {
                    gid: life.gid,
                    since: Some(since),
                });
            }
        }
    }
}

impl Network {
    fn moment(&self) -> (Duration, Timestamp) {
        (self.clock.monotonic(), self.clock.now())
    }

    /// Ends a publisher. Its farewell does not come where its link is lost; it shows that nothing is missing only where the last message has
    /// arrived or was announced.
    pub fn end(&self, life: usize) {
        let mut state = self.lock();
        let signs = state.signs;
        let life = &mut state.lives[life];
        life.alive = false;
        if life.lost.is_some() {
            return;
        }
        let gid = life.gid;
        let is_known = signs.is_none() || life.is_last_known();
        state.events.push(if is_known {
            GraphEvent::PublisherGone(gid)
        } else {
            GraphEvent::PublisherLeft { gid, cut: None }
        });
    }

    /// A publisher dies without announcing its end. Messages in flight still arrive.
    pub fn kill(&self, life: usize) {
        let moment = self.moment();
        let life = &mut self.lock().lives[life];
        life.alive = false;
        life.lose(moment);
    }

    /// The link of a publisher is lost.
    pub fn cut(&self, life: usize) {
        let moment = self.moment();
        self.lock().lives[life].lose(moment);
    }

    /// The link of a publisher works again; it is rediscovered if it counted as gone.
    pub fn mend(&self, life: usize) {
        let mut state = self.lock();
        let State { lives, events, .. } = &mut *state;
        let life = &mut lives[life];
        life.lost = None;
        if std::mem::take(&mut life.is_expired) {
            events.push(GraphEvent::Publisher(life.info.clone()));
        }
    }

    /// Publishers that live beyond a lost link, by number.
    pub fn cut_off(&self) -> Vec<usize> {
        let state = self.lock();
        let is_cut = |index: &usize| state.lives[*index].alive && state.lives[*index].lost.is_some();
        (0..state.lives.len()).filter(is_cut).collect()
    }

    /// How many messages each publisher has sent, by number.
    pub fn sent_counts(&self) -> Vec<usize> {
        self.lock().lives.iter().map(|life| life.sent.len()).collect()
    }

    /// Whether each publisher would answer the recorder now, by number.
    pub fn answering(&self) -> Vec<bool> {
        let state = self.lock();
        let answers = |life: &Life| {
            let mut requests = state.requests.values();
            requests.any(|request| life.answers_to(state.signs, &request.asked))
        };
        state.lives.iter().map(answers).collect()
    }

    /// The publishers that a subscription reaches answer it.
    pub(super) fn ask(&self, key: u64) {
        let mut state = self.lock();
        let State {
            signs,
            lives,
            requests,
            ..
        } = &mut *state;
        let Some(request) = requests.get_mut(&key) else {
            return;
        };
        for life in lives
            .iter_mut()
            .filter(|life| life.answers_to(*signs, &request.asked))
        {
            // Noted when the recorder reads it.
            life.announced = life.sent.len() as u64;
            request.answered.insert(life.gid);
        }
    }

    pub(super) fn end_proof(&self) -> EndProof {
        let signs = self.lock().signs;
        signs.map_or(EndProof::LaterMessage, |signs| signs.proof)
    }

    pub(super) fn silent_for(&self, publisher: Gid) -> Option<Duration> {
        let state = self.lock();
        state.signs?;
        let life = state.lives.iter().find(|life| life.gid == publisher)?;
        let heard = life
            .lost
            .map_or_else(|| self.clock.monotonic(), |(since, _)| since);
        Some(self.clock.monotonic().saturating_sub(heard))
    }
}
