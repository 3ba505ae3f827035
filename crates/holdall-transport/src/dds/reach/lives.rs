//! How a publisher left: it announced that, or its participant stayed silent until its lease ended.

use crate::GraphEvent;
use holdall_model::{time::Timestamp, topic::Gid};
use std::collections::HashMap;

/// When a participant was heard last, and when its lease ends if it is not heard again: elapsed time in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::dds) struct LeaseState {
    /// Its last packet.
    pub heard: i64,
    /// From then on it counts as gone.
    pub end: i64,
}

/// The leases of participants, as they were seen last.
#[derive(Default)]
pub(in crate::dds) struct Lives(HashMap<Gid, LeaseState>);

/// What is known about a publisher that is gone.
#[derive(Clone, Copy)]
pub(in crate::dds) struct Parting {
    /// Its participant still exists.
    pub is_alive: bool,
    /// No packet can be lost; else its last messages may be, with their HEARTBEAT.
    pub is_sure: bool,
    /// Since when the network is lost that it sends by: elapsed time in nanoseconds.
    pub cut: Option<i64>,
}

/// The time of day of a moment, from two clocks that were read together.
pub(in crate::dds) fn time_of(moment: i64, elapsed: i64, now: Timestamp) -> Timestamp {
    let ago = elapsed.saturating_sub(moment).max(0);
    Timestamp::from_nanos(now.as_nanos().saturating_sub(ago))
}

impl Lives {
    /// Notes a participant's lease.
    pub(in crate::dds) fn note(&mut self, participant: Gid, lease: LeaseState) {
        self.0.insert(participant, lease);
    }

    /// The lease of a participant as it was seen last.
    pub(in crate::dds) fn of(&self, participant: Gid) -> Option<LeaseState> {
        self.0.get(&participant).copied()
    }

    /// Reads all leases again; those of participants that are gone stay as they were.
    pub(in crate::dds) fn poll(&mut self, lease_of: impl Fn(Gid) -> Option<LeaseState>) {
        for (participant, lease) in &mut self.0 {
            if let Some(now) = lease_of(*participant) {
                *lease = now;
            }
        }
    }

    /// Forgets the participants that are not kept.
    pub(in crate::dds) fn keep(&mut self, keeps: impl Fn(Gid) -> bool) {
        self.0.retain(|participant, _| keeps(*participant));
    }

    /// The event for a publisher that is gone. It left with a farewell if its participant still exists, or left before its lease could
    /// have ended. The times are of this moment.
    pub(in crate::dds) fn gone(
        &self,
        publisher: Gid,
        participant: Gid,
        how: Parting,
        (elapsed, now): (i64, Timestamp),
    ) -> GraphEvent {
        let lease = self.of(participant);
        if how.is_alive || lease.is_some_and(|lease| elapsed < lease.end) {
            return if how.is_sure {
                GraphEvent::PublisherGone(publisher)
            } else {
                GraphEvent::PublisherLeft {
                    gid: publisher,
                    cut: how.cut.map(|cut| time_of(cut, elapsed, now)),
                }
            };
        }
        GraphEvent::PublisherSilent {
            gid: publisher,
            since: lease.map(|lease| time_of(lease.heard, elapsed, now)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SURE: Parting = Parting {
        is_alive: false,
        is_sure: true,
        cut: None,
    };

    #[test]
    fn a_publisher_that_goes_before_its_lease_ends_has_said_farewell() {
        let (publisher, participant) = (Gid([1; 16]), Gid([2; 16]));
        let mut lives = Lives::default();
        lives.note(participant, LeaseState { heard: 100, end: 120 });
        let now = |elapsed| (elapsed, Timestamp::from_nanos(1000 + elapsed));
        let farewell = GraphEvent::PublisherGone(publisher);
        assert_eq!(lives.gone(publisher, participant, SURE, now(119)), farewell);
        let left = |cut| GraphEvent::PublisherLeft { gid: publisher, cut };
        let not_sure = |cut| {
            lives.gone(
                publisher,
                participant,
                Parting {
                    is_sure: false,
                    cut,
                    ..SURE
                },
                now(119),
            )
        };
        assert_eq!(not_sure(None), left(None));
        assert_eq!(not_sure(Some(110)), left(Some(Timestamp::from_nanos(1110))));
        // The participant lives on without the publisher.
        assert_eq!(
            lives.gone(
                publisher,
                participant,
                Parting {
                    is_alive: true,
                    ..SURE
                },
                now(500)
            ),
            farewell
        );
        let silent = |since| GraphEvent::PublisherSilent {
            gid: publisher,
            since,
        };
        assert_eq!(
            lives.gone(publisher, participant, SURE, now(120)),
            silent(Some(Timestamp::from_nanos(1100)))
        );
        lives.poll(|_| Some(LeaseState { heard: 130, end: 150 }));
        assert_eq!(lives.gone(publisher, participant, SURE, now(149)), farewell);
        lives.poll(|_| None);
        assert_eq!(
            lives.gone(publisher, participant, SURE, now(160)),
            silent(Some(Timestamp::from_nanos(1130)))
        );
        // Nothing is known about one that was never seen.
        lives.keep(|_| false);
        assert_eq!(lives.gone(publisher, participant, SURE, now(160)), silent(None));
    }
}
