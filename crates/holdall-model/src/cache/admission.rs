//! Admission to a cache that fills up: the accounts of each topic's bytes, and the rule over them.

use super::{CachePolicy, TopicPriority};
use crate::topic::TopicId;

/// A topic may hold this many times the free budget (dynamic thresholds, Choudhury and Hahne 1998).
///
/// One topic alone may fill 8/9 of the cache, N overflowing topics share 8N/(8N+1) of it equally, and the rest stays free for
/// topics that hold less. `examples/cache_policy.rs` compares values.
const SHARE_OF_FREE: usize = 8;

/// Ratio of shares between high and normal priority, and between normal and low.
const PRIORITY_STEP: usize = 8;

/// Bytes held by each topic, and whether it may hold more.
#[derive(Debug)]
pub struct Admission {
    policy: CachePolicy,
    /// Share of topics of normal priority.
    share_of_free: usize,
    /// The smallest of any topic: a rule that holds for it holds for all.
    least_share: usize,
    /// Shares of topics of other priority.
    shares: Vec<(TopicId, usize)>,
    bytes_max: usize,
    held_bytes: usize,
    topic_held_bytes: Vec<usize>,
}

impl Admission {
    /// Accounts for a cache of `bytes_max` bytes; no topic holds anything.
    pub fn new(policy: CachePolicy, bytes_max: usize) -> Self {
        Self {
            policy,
            share_of_free: SHARE_OF_FREE,
            least_share: SHARE_OF_FREE,
            shares: Vec::new(),
            bytes_max,
            held_bytes: 0,
            topic_held_bytes: Vec::new(),
        }
    }

    /// Sets the size of the cache in bytes.
    pub fn set_bytes_max(&mut self, bytes_max: usize) {
        self.bytes_max = bytes_max;
    }

    /// Takes another share than the default one, to compare.
    pub fn with_share_of_free(mut self, share: usize) -> Self {
        self.share_of_free = share;
        self.least_share = share;
        self
    }

    /// Gives a topic another priority than the normal one.
    pub fn prioritize(&mut self, topic: TopicId, priority: TopicPriority) {
        let share = match priority {
            TopicPriority::Low => (self.share_of_free / PRIORITY_STEP).max(1),
            TopicPriority::Normal => return,
            TopicPriority::High => self.share_of_free.saturating_mul(PRIORITY_STEP),
        };
        self.least_share = self.least_share.min(share);
        self.shares.push((topic, share));
    }

    fn share_of(&self, topic: TopicId) -> usize {
        let given = self.shares.iter().find(|(given, _)| *given == topic);
        given.map_or(self.share_of_free, |(_, share)| *share)
    }

    /// The policy for a full cache.
    #[inline]
    pub fn policy(&self) -> CachePolicy {
        self.policy
    }

    /// Bytes that all topics hold: messages, their overhead and pinned memory of loans.
    #[inline]
    pub fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// Bytes that one topic holds.
    #[inline]
    pub fn topic_held_bytes(&self, topic: TopicId) -> usize {
        self.topic_held_bytes.get(topic.0 as usize).copied().unwrap_or(0)
    }

    /// False if a topic would hold more than its share with a message of `bytes`; a topic that holds
    /// nothing is always let in. `used_bytes` is the memory in use without the message. The free budget is
    /// what remains *after* the message: otherwise one large message takes what small ones of other topics
    /// need.
    #[inline]
    pub fn admits(&self, topic: TopicId, used_bytes: usize, bytes: usize) -> bool {
        if self.policy != CachePolicy::Fair {
            return true;
        }
        let free = self.bytes_max.saturating_sub(used_bytes + bytes);
        // A topic cannot hold more than all together do: while there is room its own account is not read.
        if self.held_bytes + bytes <= free.saturating_mul(self.least_share) {
            return true;
        }
        let held = self.topic_held_bytes(topic);
        held == 0 || held + bytes <= free.saturating_mul(self.share_of(topic))
    }

    /// Puts bytes on a topic's account.
    #[inline]
    pub fn charge(&mut self, topic: TopicId, bytes: usize) {
        let index = topic.0 as usize;
        if index >= self.topic_held_bytes.len() {
            self.topic_held_bytes.resize(index + 1, 0);
        }
        self.topic_held_bytes[index] += bytes;
        self.held_bytes += bytes;
    }

    /// Takes bytes off a topic's account.
    #[inline]
    pub fn credit(&mut self, topic: TopicId, bytes: usize) {
        if let Some(held) = self.topic_held_bytes.get_mut(topic.0 as usize) {
            debug_assert!(*held >= bytes, "topic {} gave back more than it held", topic.0);
            let bytes = bytes.min(*held);
            *held -= bytes;
            self.held_bytes -= bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(admission: &mut Admission, topics: &[u32]) {
        loop {
            let mut stuck = true;
            for &topic in topics {
                if admission.held_bytes() < 100_000
                    && admission.admits(TopicId(topic), admission.held_bytes(), 10)
                {
                    admission.charge(TopicId(topic), 10);
                    stuck = false;
                }
            }
            if stuck {
                return;
            }
        }
    }

    #[test]
    fn one_topic_alone_gets_eight_ninths() {
        let mut admission = Admission::new(CachePolicy::Fair, 100_000);
        fill(&mut admission, &[0]);
        assert!(
            (88_000..90_000).contains(&admission.held_bytes()),
            "{}",
            admission.held_bytes()
        );
    }

    #[test]
    fn overflowing_topics_share_equally_and_leave_room_for_others() {
        let mut admission = Admission::new(CachePolicy::Fair, 100_000);
        fill(&mut admission, &[0, 1, 2, 3]);
        for topic in 0..4 {
            let held = admission.topic_held_bytes(TopicId(topic));
            assert!((24_000..24_500).contains(&held), "topic {topic} holds {held}");
        }
        assert!(
            admission.admits(TopicId(9), 99_000, 10),
            "a topic without anything is let in"
        );
    }

    #[test]
    fn a_topic_of_high_priority_gets_in_where_normal_ones_do_not_and_one_of_low_priority_before_them_not() {
        let mut admission = Admission::new(CachePolicy::Fair, 100_000);
        admission.prioritize(TopicId(1), TopicPriority::High);
        admission.prioritize(TopicId(2), TopicPriority::Low);
        fill(&mut admission, &[2]);
        let low = admission.topic_held_bytes(TopicId(2));
        assert!((49_900..50_100).contains(&low), "{low}");
        fill(&mut admission, &[0, 2]);
        assert_eq!(admission.topic_held_bytes(TopicId(2)), low);
        let normal = admission.topic_held_bytes(TopicId(0));
        assert!((44_000..45_000).contains(&normal), "{normal}");
        // The rest is for the one that matters.
        fill(&mut admission, &[0, 1, 2]);
        let high = admission.topic_held_bytes(TopicId(1));
        assert!((5_300..6_000).contains(&high), "{high}");
        assert_eq!(admission.topic_held_bytes(TopicId(0)), normal);
    }

    #[test]
    fn other_policies_let_everybody_in() {
        let mut admission = Admission::new(CachePolicy::DropNew, 1000);
        admission.charge(TopicId(0), 1000);
        assert!(admission.admits(TopicId(0), 1000, 10));
    }
}
