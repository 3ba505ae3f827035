//! Latched messages that come while nothing is recorded: those that a late subscription would get come into the bag when recording continues.

use super::{Intake, publishers::PublisherTrack};
use crate::{cache::Offered, receive::gate::Gate};
use holdall_model::{
    loss::{LossStage, ledger::Interval},
    message::{MessageHeader, Payload},
    qos::{History, QosProfile},
    time::Timestamp,
    topic::Gid,
};
use std::collections::VecDeque;

/// The most messages of one publisher that are held.
const HELD_MAX: usize = 64;

/// The last messages of a latched publisher that came while nothing was recorded. They count as left out until they are recorded.
#[derive(Debug)]
pub(super) struct HeldLatched {
    /// How many the publisher keeps for late subscriptions.
    depth: usize,
    messages: VecDeque<(MessageHeader, Box<[u8]>)>,
    /// Number of the publisher's messages when the last one came.
    received: u64,
}

/// Keeps a message of a latched publisher that is left out now.
#[cold]
#[inline(never)]
pub(super) fn keep_back(
    track: &mut PublisherTrack,
    gate: &Gate,
    header: &MessageHeader,
    payload: Option<Payload<'_>>,
) {
    // Only numbered messages can be counted as recorded later.
    let held = track.latched.as_mut().filter(|_| header.sequence.is_some());
    let Some((held, payload)) = held.zip(payload) else {
        return;
    };
    let bytes = payload.to_vec();
    // Messages were recorded in between: the held ones would come after them, in the wrong order, and stay left out.
    let kept = if track.received > held.received + 1 {
        0
    } else {
        held.depth - 1
    };
    while held.messages.len() > kept
        && let Some((_, oldest)) = held.messages.pop_front()
    {
        gate.release_held(oldest.len());
    }
    if gate.reserve_held(bytes.len()) {
        held.messages.push_back((*header, bytes.into()));
    }
    held.received = track.received;
}

impl Intake {
    /// Holds the last messages of a publisher that come while nothing is recorded; `qos` is its offer, transient-local.
    pub(crate) fn hold_latched(&self, publisher: Gid, qos: &QosProfile) {
        // Where the depth is not announced, most have one.
        let depth = match qos.history {
            History::KeepLast => usize::try_from(qos.depth).unwrap_or(HELD_MAX).clamp(1, HELD_MAX),
            _ => 1,
        };
        let mut state = self.lock();
        let held = &mut state.publishers.of(publisher).0.latched;
        match held {
            Some(held) => held.depth = depth,
            None => {
                *held = Some(Box::new(HeldLatched {
                    depth,
                    messages: VecDeque::new(),
                    received: 0,
                }));
            }
        }
    }

    /// Records the held messages, at `now` on the clock that stamps messages: recording continues.
    pub(crate) fn record_held(&self, now: Timestamp) {
        let mut state = self.lock();
        let closed = state.closed;
        for index in state.publishers.open_indexes() {
            let (track, accounts) = state.publishers.at(index);
            let Some(held) = &mut track.latched else { continue };
            let is_last = track.received == held.received;
            let messages = std::mem::take(&mut held.messages);
            messages
                .iter()
                .for_each(|(_, bytes)| self.gate.release_held(bytes.len()));
            // After a newer one they would be in the wrong order: they stay left out.
            if closed || !is_last {
                continue;
            }
            for (mut header, bytes) in messages {
                let is_left_out = header.sequence.filter(|sequence| {
                    accounts
                        .lock()
                        .is_left_out(accounts.topic, track.index, *sequence)
                });
                let Some(sequence) = is_left_out else { continue };
                header.log_time = now;
                let stage = match self.offer(track.index, &header, Payload::Borrowed(&bytes)) {
                    Offered::Stored => None,
                    Offered::Full => Some(LossStage::Cache),
                    Offered::Closed => Some(LossStage::Shutdown),
                };
                // Only now, so that a process that dies here has it in memory or in its account: a rescue takes it out of the account.
                let mut ledger = accounts.lock();
                if let Some(stage) = stage {
                    let interval = Interval::of_message(stage, header.sequence, now);
                    ledger.miss(accounts.topic, track.index, interval);
                }
                ledger.wanted_after_all(accounts.topic, track.index, sequence);
            }
        }
    }
}
