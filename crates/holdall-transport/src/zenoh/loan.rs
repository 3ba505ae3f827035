//! Payloads that stay in zenoh's memory: receive buffers of the network, or a publisher's shared memory, which is lent sparingly.

use super::discovery::Graph;
use ::zenoh::{bytes::ZBytes, shm::ShmBuf};
use holdall_io::mutex::lock;
use holdall_model::{
    message::{Loan, Payload},
    topic::Gid,
};
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

/// Payloads of at least this size are lent, smaller ones offered for copying: they share receive buffers with
/// others.
const LOAN_BYTES_MIN: usize = 64 << 10;

/// Size of a receive buffer of the network: each fragment of a payload holds one.
const RECEIVE_BUFFER_BYTES: usize = 64 << 10;

/// Shared memory of one session that is lent at a time, in bytes; one message is lent whatever its size. Half
/// of rmw_zenoh's default pool (48 MiB), so that a slow disk never leaves a publisher without memory:
/// messages beyond it are copied.
const SHARED_LENT_BYTES_MAX: usize = 24 << 20;

/// Lends payloads.
pub(super) struct Lender {
    graph: Arc<Graph>,
    shared: Arc<SharedLoans>,
}

/// Bytes lent of the shared memory of each publisher's session.
#[derive(Default)]
struct SharedLoans {
    lent_bytes: Mutex<HashMap<Arc<str>, usize>>,
    torn_told: AtomicBool,
}

impl Lender {
    /// A lender for the publishers of a graph.
    pub(super) fn new(graph: &Arc<Graph>) -> Self {
        Self {
            graph: Arc::clone(graph),
            shared: Arc::default(),
        }
    }

    /// Passes a payload to `offer`: borrowed where it is small or must be released soon, else as a loan.
    pub(super) fn offer(&self, publisher: Option<Gid>, payload: ZBytes, offer: impl FnOnce(Payload<'_>)) {
        let len = payload.len();
        if len < LOAN_BYTES_MIN {
            return offer(Payload::Borrowed(&payload.to_bytes()));
        }
        if payload.as_shm().is_none() {
            let pinned_bytes = (payload.slices().count() * RECEIVE_BUFFER_BYTES).max(len);
            return offer(Payload::Loaned(Box::new(ReceivedLoan {
                payload,
                len,
                pinned_bytes,
            })));
        }
        match self.shared.take(self.owner(publisher), len) {
            Some(credit) => {
                let loan = SharedLoan { payload, len, credit };
                offer(Payload::Loaned(Box::new(loan)));
            }
            None => offer(Payload::Borrowed(&payload.to_bytes())),
        }
    }

    /// The owner of the memory; publishers without a token count as one owner.
    fn owner(&self, publisher: Option<Gid>) -> Arc<str> {
        publisher
            .and_then(|gid| self.graph.session_of(gid))
            .unwrap_or_else(|| "".into())
    }
}

impl SharedLoans {
    fn take(self: &Arc<Self>, owner: Arc<str>, bytes: usize) -> Option<Credit> {
        let mut lent = lock(&self.lent_bytes);
        let of_owner = lent.entry(Arc::clone(&owner)).or_insert(0);
        if *of_owner > 0 && *of_owner + bytes > SHARED_LENT_BYTES_MAX {
            return None;
        }
        *of_owner += bytes;
        Some(Credit {
            loans: Arc::clone(self),
            owner,
            bytes,
        })
    }
}

/// The right to hold some shared memory; released on drop.
struct Credit {
    loans: Arc<SharedLoans>,
    owner: Arc<str>,
    bytes: usize,
}

impl Drop for Credit {
    fn drop(&mut self) {
        let mut lent = lock(&self.loans.lent_bytes);
        if let Some(of_owner) = lent.get_mut(&self.owner) {
            *of_owner -= self.bytes;
            if *of_owner == 0 {
                lent.remove(&self.owner);
            }
        }
    }
}

/// A payload in receive buffers.
struct ReceivedLoan {
    payload: ZBytes,
    len: usize,
    pinned_bytes: usize,
}

impl Loan for ReceivedLoan {
    fn len(&self) -> usize {
        self.len
    }

    fn pinned_bytes(&self) -> usize {
        self.pinned_bytes
    }

    fn for_each_slice(&self, visit: &mut dyn FnMut(&[u8])) {
        self.payload.slices().for_each(visit);
    }
}

/// A payload in a publisher's shared memory. The mapping outlives the publisher.
struct SharedLoan {
    payload: ZBytes,
    len: usize,
    credit: Credit,
}

impl Loan for SharedLoan {
    fn len(&self) -> usize {
        self.len
    }

    fn pinned_bytes(&self) -> usize {
        self.len
    }

    fn for_each_slice(&self, visit: &mut dyn FnMut(&[u8])) {
        self.payload.slices().for_each(visit);
    }
}

impl Drop for SharedLoan {
    fn drop(&mut self) {
        // zenoh takes memory back from a process that does not answer its watchdog for a tenth of a second.
        if self.payload.as_shm().is_some_and(|shared| !shared.is_valid())
            && !self.credit.loans.torn_told.swap(true, Ordering::Relaxed)
        {
            tracing::warn!(
                "zenoh took shared memory back while a message of {} bytes was waiting in it: this process got no CPU time for too long, \
                 and the message may be damaged; transport/shared_memory/enabled=false in ZENOH_CONFIG_OVERRIDE avoids it",
                self.len
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_memory_of_each_session_is_lent_up_to_its_bound() {
        let loans = Arc::new(SharedLoans::default());
        let take = |owner: &str, bytes| loans.take(owner.into(), bytes);
        let huge = take("a", 2 * SHARED_LENT_BYTES_MAX).expect("one message is always lent");
        assert!(take("a", 1).is_none());
        let other = take("b", SHARED_LENT_BYTES_MAX).unwrap();
        assert!(take("b", 1).is_none());
        drop((huge, other));
        let halves = [
            take("a", SHARED_LENT_BYTES_MAX / 2),
            take("a", SHARED_LENT_BYTES_MAX / 2),
        ];
        assert!(halves.iter().all(Option::is_some) && take("a", 1).is_none());
        drop(halves);
        assert!(loans.lent_bytes.lock().unwrap().is_empty());
    }

    #[test]
    fn small_payloads_are_offered_as_they_lie_and_large_ones_lent() {
        let lender = Lender::new(&Arc::new(Graph::new("me")));
        for (len, lent) in [(0, false), (LOAN_BYTES_MIN - 1, false), (LOAN_BYTES_MIN, true)] {
            let mut offered = None;
            lender.offer(None, vec![7_u8; len].into(), |payload| {
                offered = Some((payload.len(), matches!(payload, Payload::Loaned(_))));
            });
            assert_eq!(offered, Some((len, lent)));
        }
    }
}
