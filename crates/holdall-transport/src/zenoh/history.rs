//! Messages sent before the match: queries the caches of transient-local publishers, and remembers which
//! messages have arrived already.

use super::{discovery::LatchedPublisher, session::OpenSession, subscription::Receiver, token::data_key};
use ::zenoh::{
    Wait,
    query::{ConsolidationMode, QueryTarget, Reply, ReplyKeyExpr},
};
use holdall_io::mutex::lock;
use holdall_model::topic::Gid;
use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex},
    time::Duration,
};

/// How long a cache may take to answer; rmw_zenoh waits forever.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// Sequence numbers remembered of each publisher; rmw_zenoh's default depth is 42.
const SEEN_PER_PUBLISHER_MAX: usize = 4096;

/// Publishers remembered; further ones are not distinguished from new ones.
const PUBLISHERS_MAX: usize = 4096;

/// Queries all caches of a subscription's topic.
pub(super) fn ask_all(session: &Arc<OpenSession>, receiver: &Arc<Receiver>) -> ::zenoh::Result<()> {
    ask(session, receiver, "*", "**")
}

/// Queries the caches of one publisher's session.
pub(super) fn ask_one(
    session: &Arc<OpenSession>,
    receiver: &Arc<Receiver>,
    publisher: &LatchedPublisher,
) -> ::zenoh::Result<()> {
    let of_session = &publisher.session;
    ask(session, receiver, of_session, &format!("{of_session}/**"))
}

/// rmw_zenoh has had two kinds of cache: `<key>/@adv/pub/<session>/...` (advanced publisher), and before `<session>/<key>`.
fn ask(
    session: &Arc<OpenSession>,
    receiver: &Arc<Receiver>,
    prefix: &str,
    advanced: &str,
) -> ::zenoh::Result<()> {
    let key = data_key(session.domain_id(), &receiver.topic, &receiver.type_name, None);
    for selector in [format!("{key}/@adv/pub/{advanced}"), format!("{prefix}/{key}")] {
        let taker = Arc::clone(receiver);
        session
            .zenoh()
            .get(selector)
            .target(QueryTarget::All)
            .consolidation(ConsolidationMode::None)
            .accept_replies(ReplyKeyExpr::Any)
            .timeout(ANSWER_TIMEOUT)
            .callback(move |reply: Reply| {
                if let Ok(sample) = reply.into_result() {
                    taker.take(sample);
                }
            })
            .wait()?;
    }
    Ok(())
}

/// The messages of each publisher that have arrived, so that none is delivered both live and from a cache.
#[derive(Default)]
pub(super) struct SeenSequences(Mutex<HashMap<Gid, BTreeSet<u64>>>);

impl SeenSequences {
    /// Notes a message; false when it arrived before.
    pub(super) fn is_new(&self, publisher: Gid, sequence: u64) -> bool {
        let mut publishers = lock(&self.0);
        if publishers.len() >= PUBLISHERS_MAX && !publishers.contains_key(&publisher) {
            publishers.clear();
        }
        let seen = publishers.entry(publisher).or_default();
        if seen.len() >= SEEN_PER_PUBLISHER_MAX {
            // Older than all that is remembered: a cache of that depth has had time to answer.
            if seen.first().is_some_and(|first| sequence < *first) {
                return false;
            }
            seen.pop_first();
        }
        seen.insert(sequence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Gid = Gid([1; 16]);
    const B: Gid = Gid([2; 16]);

    #[test]
    fn each_message_of_a_publisher_comes_once() {
        let seen = SeenSequences::default();
        for sequence in [5, 3, 4] {
            assert!(seen.is_new(A, sequence) && !seen.is_new(A, sequence));
        }
        assert!(seen.is_new(B, 5));
    }

    #[test]
    fn memory_is_bounded_and_what_fell_out_stays_old() {
        let seen = SeenSequences::default();
        let count = 3 * SEEN_PER_PUBLISHER_MAX as u64;
        assert!((0..count).all(|sequence| seen.is_new(A, sequence)));
        assert!(!seen.is_new(A, 0));
        assert_eq!(seen.0.lock().unwrap()[&A].len(), SEEN_PER_PUBLISHER_MAX);
        for number in 0..=PUBLISHERS_MAX as u64 {
            let mut gid = [0; 16];
            gid[..8].copy_from_slice(&number.to_le_bytes());
            assert!(seen.is_new(Gid(gid), 1));
        }
        assert!(seen.0.lock().unwrap().len() <= PUBLISHERS_MAX);
    }
}
