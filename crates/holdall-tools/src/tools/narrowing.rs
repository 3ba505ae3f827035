//! Narrows a topic's account to the publishers that are kept, without the others' losses.

use holdall_model::loss::{
    LossStage, UnknownEnds,
    ledger::{PublisherAccount, TopicAccount},
};
use std::collections::BTreeMap;

/// Messages of a topic in one input.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TopicCount {
    /// All messages.
    pub all: u64,
    /// Messages of publishers that are not selected or unknown.
    pub of_others: u64,
    /// Messages of each selected publisher, by identifier; empty when publishers are not selected.
    pub of_wanted: BTreeMap<String, u64>,
}

/// The account of the publishers for which `keeps` is true, with `count` as the topic's messages in the bag.
/// Messages of other publishers count as left out on request; their losses are dropped.
///
/// Values that the account has only for the whole topic are divided by the bag's content: messages that the
/// ring of files removed or an earlier tool left out are those of the kept publishers that were recorded and
/// are not in the bag. For a kept publisher without its own part of the account (folded, or a checkpoint of
/// sums) only the messages are known.
pub(super) fn narrow(
    mut topic: TopicAccount,
    keeps: &dyn Fn(&PublisherAccount) -> bool,
    count: &TopicCount,
) -> TopicAccount {
    let known = topic.publishers.len();
    topic.publishers.retain(keeps);
    if topic.publishers.len() == known && count.of_others == 0 {
        return topic;
    }
    let has_own = |gid: &str| topic.publishers.iter().any(|it| it.gid.as_deref() == Some(gid));
    let (with_own, without_own): (Vec<_>, Vec<_>) = count.of_wanted.iter().partition(|(gid, _)| has_own(gid));
    let sum = |counts: Vec<(&String, &u64)>| -> u64 { counts.into_iter().map(|(_, count)| *count).sum() };
    let (in_bag, without_own) = (sum(with_own), sum(without_own));

    let recorded_of_all = topic.recorded;
    topic.recorded = topic.publishers.iter().map(|it| it.recorded).sum();
    let gone = topic.recorded.saturating_sub(in_bag);
    topic.expired = topic.expired.min(gone);
    topic.left_out = topic.left_out.min(gone - topic.expired);
    let put_in = in_bag.saturating_sub(topic.recorded);
    topic.unaccounted = topic.unaccounted.min(put_in) + without_own;
    topic.left_out_with_publisher += count.of_others;
    // Bytes are known by topic only: the kept publishers' share is by number of messages.
    let share = u128::from(topic.recorded_bytes) * u128::from(topic.recorded);
    topic.recorded_bytes = (share / u128::from(recorded_of_all.max(1))) as u64;
    topic.missing = missing(&topic.publishers);
    (topic.folded, topic.unlisted_ends) = (None, UnknownEnds::default());
    let is_unknown = |it: &PublisherAccount| it.sent.is_none();
    topic.loss_unknown = without_own > 0 || (topic.loss_unknown && topic.publishers.iter().any(is_unknown));
    topic
}

/// These publishers' missing messages, by stage.
fn missing(publishers: &[PublisherAccount]) -> BTreeMap<LossStage, u64> {
    let mut missing = BTreeMap::new();
    for interval in publishers.iter().flat_map(|publisher| &publisher.intervals) {
        *missing.entry(interval.stage).or_default() += interval.count;
    }
    missing
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdall_model::loss::ledger::{FoldedPublishers, Interval};

    fn publisher(gid: &str, recorded: u64, lost: u64) -> PublisherAccount {
        let lost_ones =
            Interval::of_sequences(LossStage::Transport, recorded + 1, recorded + lost, [None; 2]);
        PublisherAccount {
            gid: Some(gid.to_owned()),
            sent: Some(recorded + lost),
            received: Some(recorded),
            covered: Some([1, recorded + lost]),
            recorded,
            intervals: (lost > 0).then_some(lost_ones).into_iter().collect(),
            ..PublisherAccount::default()
        }
    }

    fn topic(publishers: Vec<PublisherAccount>) -> TopicAccount {
        let mut topic = TopicAccount::default();
        topic.name = "/shared".to_owned();
        topic.recorded = publishers.iter().map(|it| it.recorded).sum();
        topic.recorded_bytes = 100 * topic.recorded;
        topic.missing = missing(&publishers);
        topic.publishers = publishers;
        topic
    }

    fn count(of_wanted: &[(&str, u64)], of_others: u64) -> TopicCount {
        let of_wanted: BTreeMap<_, _> = of_wanted.iter().map(|(gid, n)| ((*gid).to_owned(), *n)).collect();
        TopicCount {
            all: of_wanted.values().sum::<u64>() + of_others,
            of_others,
            of_wanted,
        }
    }

    /// Publishers that have left, whose messages were all recorded.
    fn folded(publishers: u64, messages: u64) -> FoldedPublishers {
        FoldedPublishers {
            publishers,
            sent: messages,
            received: messages,
            recorded: messages,
            ..Default::default()
        }
    }

    fn keeps_left(account: &PublisherAccount) -> bool {
        account.gid.as_deref() == Some("left")
    }

    #[test]
    fn losses_of_other_publishers_are_dropped_and_their_messages_are_left_out() {
        let all = topic(vec![publisher("left", 20, 3), publisher("right", 30, 7)]);
        let kept = narrow(all, &keeps_left, &count(&[("left", 20)], 30));
        assert_eq!(
            (kept.recorded, kept.in_bag(), kept.left_out_with_publisher),
            (20, 20, 30)
        );
        assert_eq!(
            (kept.recorded_bytes, kept.missing[&LossStage::Transport]),
            (2000, 3)
        );
        assert_eq!(kept.publishers, [publisher("left", 20, 3)]);
    }

    #[test]
    fn a_publisher_whose_messages_were_all_lost_keeps_its_account() {
        let all = topic(vec![publisher("left", 0, 3), publisher("right", 30, 0)]);
        let kept = narrow(all, &keeps_left, &count(&[], 30));
        assert_eq!((kept.recorded, kept.in_bag()), (0, 0));
        assert_eq!(kept.missing[&LossStage::Transport], 3);
    }

    #[test]
    fn an_account_of_kept_publishers_only_is_unchanged() {
        let mut all = topic(vec![publisher("left", 20, 3)]);
        all.folded = Some(folded(1, 4));
        all.recorded += 4;
        let kept = narrow(all.clone(), &keeps_left, &count(&[("left", 20), ("gone", 4)], 0));
        assert_eq!(kept, all);
    }

    #[test]
    fn a_kept_publisher_without_its_own_account_keeps_only_its_messages() {
        let mut all = topic(vec![publisher("left", 20, 0), publisher("right", 30, 0)]);
        all.folded = Some(folded(2, 9));
        all.recorded += 9;
        let keeps =
            |account: &PublisherAccount| keeps_left(account) || account.gid.as_deref() == Some("gone");
        let kept = narrow(all, &keeps, &count(&[("left", 20), ("gone", 5)], 34));
        assert_eq!((kept.recorded, kept.unaccounted, kept.in_bag()), (20, 5, 25));
        assert!(kept.loss_unknown && kept.folded.is_none());
    }

    #[test]
    fn expired_and_left_out_messages_are_divided_by_the_content_of_the_bag() {
        let mut all = topic(vec![publisher("left", 20, 0), publisher("right", 30, 0)]);
        (all.expired, all.left_out) = (10, 15);
        // 25 of 50 messages are in the bag, 8 of them the kept publisher's: so 12 of its messages are gone.
        let kept = narrow(all, &keeps_left, &count(&[("left", 8)], 17));
        assert_eq!((kept.expired, kept.left_out, kept.in_bag()), (10, 2, 8));
    }

    #[test]
    fn a_message_that_is_missing_without_a_reason_stays_missing() {
        let all = topic(vec![publisher("left", 20, 0), publisher("right", 30, 0)]);
        let kept = narrow(all, &keeps_left, &count(&[("left", 19)], 30));
        assert_eq!(kept.in_bag(), 20, "the audit finds 19 and says so");
    }
}
