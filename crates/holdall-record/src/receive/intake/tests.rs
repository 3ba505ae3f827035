//! Tests of the intake: the outcome of each message, against the truth that the test knows.

use super::*;
use crate::cache::{CacheOptions, Place, Stored};
use crate::receive::discovery::Departure;
use holdall_model::loss::ledger::TopicAccount;
use holdall_transport::EndProof;
use proptest::prelude::*;
use std::collections::BTreeSet;

const A: Gid = Gid([1; 16]);
const B: Gid = Gid([2; 16]);

struct Bench {
    cache: Arc<SharedCache>,
    ledger: Arc<Mutex<Ledger>>,
    gate: Arc<Gate>,
    intake: Arc<Intake>,
    sinks: Vec<Arc<dyn Sink>>,
}

impl Bench {
    fn new() -> Self {
        Self::with(Gate::new(false, false))
    }

    fn with(gate: Gate) -> Self {
        let cache = Arc::new(SharedCache::new(&CacheOptions::default(), Box::new(|_| {})));
        let ledger = Arc::new(Mutex::new(Ledger::new()));
        let topic = ledger.lock().unwrap().add_topic("/t");
        let gate = Arc::new(gate);
        let intake = Arc::new(Intake::new(
            topic,
            Arc::clone(&cache),
            Arc::clone(&ledger),
            Arc::clone(&gate),
        ));
        let sinks = (0..2).map(|number| intake.sink(number)).collect();
        Self {
            cache,
            ledger,
            gate,
            intake,
            sinks,
        }
    }

    fn gone(&self, gid: Gid, departure: Departure, now: Timestamp) -> Option<PastTime> {
        let ago = |time| now.saturating_since(time);
        self.intake.publisher_gone(gid, departure, ago, now)
    }

    fn receive_over(&self, sink: usize, publisher: Option<Gid>, sequence: Option<u64>) {
        self.receive_published(sink, publisher, sequence, None);
    }

    fn receive_published(
        &self,
        sink: usize,
        publisher: Option<Gid>,
        sequence: Option<u64>,
        publish_time: Option<Timestamp>,
    ) {
        let log_time = Timestamp::from_nanos(sequence.unwrap_or(0) as i64);
        let header = MessageHeader {
            publisher,
            sequence,
            publish_time,
            log_time,
        };
        self.sinks[sink].offer(header, Payload::Borrowed(b"payload"));
    }

    fn receive(&self, publisher: Gid, sequence: u64) {
        self.receive_over(0, Some(publisher), Some(sequence));
    }

    /// Takes all stored messages and records them.
    fn record_stored(&self) -> Vec<(u32, Option<u64>)> {
        let mut stored = Vec::new();
        while let Some(segment) = self.cache.try_take() {
            let mut place = Place::default();
            while let Some(Stored { entry, next, .. }) = segment.message(place) {
                self.ledger
                    .lock()
                    .unwrap()
                    .record(entry.topic, entry.publisher, 1, 7);
                stored.push((entry.publisher.0, entry.sequence));
                place = next;
            }
            self.cache.release(segment);
        }
        // All of it is durable at once.
        self.ledger.lock().unwrap().release_places();
        stored
    }

    /// Closes the intake and records the stored messages.
    fn finish(&self) -> (Vec<(u32, Option<u64>)>, TopicAccount) {
        self.intake.close();
        let stored = self.record_stored();
        let ledger = self.ledger.lock().unwrap();
        assert_eq!(ledger.audit(), Vec::<String>::new());
        (stored, ledger.topics[0].clone())
    }
}

fn missing(account: &TopicAccount, stage: LossStage) -> u64 {
    account.missing.get(&stage).copied().unwrap_or(0)
}

#[test]
fn a_gap_is_a_transport_loss_of_its_publisher() {
    let bench = Bench::new();
    for sequence in [4, 5, 9] {
        bench.receive(A, sequence);
    }
    bench.receive(B, 1);
    let (stored, account) = bench.finish();
    assert_eq!(stored.len(), 4);
    assert_eq!(missing(&account, LossStage::Transport), 3);
    let interval = account.publishers[0].intervals[0];
    assert_eq!(
        (interval.first_sequence, interval.last_sequence),
        (Some(6), Some(8))
    );
    assert_eq!(
        account.publishers[0].sent_before, 3,
        "what was sent before the recording is noted, not lost"
    );
    assert_eq!(account.publishers[1].intervals, []);
}

#[test]
fn the_head_of_a_new_publisher_is_lost_whenever_it_is_discovered() {
    for discovered_first in [true, false] {
        let bench = Bench::new();
        let discover = || {
            bench
                .intake
                .publisher_discovered(A, PublisherOrigin::During, None)
        };
        if discovered_first {
            discover();
        }
        bench.receive(A, 4);
        discover();
        let (_, account) = bench.finish();
        assert_eq!(
            missing(&account, LossStage::Head),
            3,
            "discovered first: {discovered_first}"
        );
        assert_eq!(account.publishers[0].sent, Some(4));
    }
}

#[test]
fn what_ran_before_has_no_head_loss() {
    let bench = Bench::new();
    bench
        .intake
        .publisher_discovered(A, PublisherOrigin::Before, None);
    bench.receive(A, 1000);
    let (_, account) = bench.finish();
    assert_eq!(account.lost(), 0);
}

#[test]
fn what_two_subscriptions_bring_is_stored_once() {
    let bench = Bench::new();
    // The weak subscription is fast and loses 3; the strong one brings the history, and 3 by repair.
    for sequence in [2, 4] {
        bench.receive_over(0, Some(A), Some(sequence));
    }
    for sequence in 1..=5 {
        bench.receive_over(1, Some(A), Some(sequence));
    }
    bench.receive_over(0, Some(A), Some(5));
    let (stored, account) = bench.finish();
    let distinct: BTreeSet<_> = stored.iter().collect();
    assert_eq!((stored.len(), distinct.len()), (5, 5));
    assert_eq!(account.lost(), 0);
    assert_eq!(account.publishers[0].duplicates, 3);
}

#[test]
fn a_message_that_only_the_stronger_subscription_brings_is_stored_when_it_comes() {
    let bench = Bench::new();
    // The weaker one is matched first and misses 4; the stronger one brings the history, and 4 when it was sent again.
    for sequence in [3, 5] {
        bench.receive_over(0, Some(A), Some(sequence));
    }
    for sequence in 1..=6 {
        bench.receive_over(1, Some(A), Some(sequence));
    }
    let (stored, account) = bench.finish();
    let sequences: Vec<u64> = stored.iter().filter_map(|(_, sequence)| *sequence).collect();
    // Waiting for it would not give readers another order: they go by log time, which is when a message came.
    assert_eq!(sequences, [3, 5, 1, 2, 4, 6]);
    assert_eq!((account.lost(), account.publishers[0].duplicates), (0, 2));
}

#[test]
fn a_publisher_that_counts_from_one_again_loses_nothing() {
    let bench = Bench::new();
    for sequence in (1..=5).chain(1..=5) {
        bench.receive(A, sequence);
    }
    let (stored, account) = bench.finish();
    assert_eq!(stored.len(), 10);
    assert_eq!(account.lost(), 0);
    assert_eq!(account.publishers.len(), 2);
}

#[test]
fn what_was_announced_and_never_came_is_lost_at_the_tail() {
    let bench = Bench::new();
    bench.receive(A, 1);
    bench.sinks[0].announced(A, 4);
    assert!(!bench.intake.is_caught_up());
    bench.receive(A, 2);
    let (_, account) = bench.finish();
    assert_eq!(missing(&account, LossStage::Tail), 2);
    assert_eq!(account.publishers[0].sent, Some(4));
}

#[test]
fn an_announcement_that_cannot_be_believed_is_counted_once_and_changes_nothing_else() {
    let bench = Bench::new();
    for sequence in 1..=3 {
        bench.receive(A, sequence);
    }
    for _ in 0..5 {
        assert_eq!(bench.intake.announced_sequences(&[(A, 1 << 50)]), [(A, 4)]);
    }
    // The message that the publisher really sends next.
    assert_eq!(bench.intake.announced_sequences(&[(A, 5)]), []);
    bench.receive(A, 4);
    let (_, account) = bench.finish();
    assert_eq!(missing(&account, LossStage::NotBelievable), 1);
    assert_eq!(missing(&account, LossStage::Tail), 1);
}

#[test]
fn a_new_publisher_of_which_nothing_came_is_lost_whole() {
    let bench = Bench::new();
    bench
        .intake
        .publisher_discovered(A, PublisherOrigin::During, None);
    bench.sinks[0].announced(A, 3);
    bench.sinks[0].announced(A, 5);
    let (_, account) = bench.finish();
    assert_eq!(account.lost(), 5);
}

#[test]
fn the_end_of_a_publisher_that_cannot_answer_is_unknown_although_nothing_came() {
    for (proof, is_reliable, is_unknown) in [
        (EndProof::LaterMessage, true, true),
        (EndProof::LaterMessage, false, true),
        (EndProof::OfReliable, false, true),
        (EndProof::OfReliable, true, false),
    ] {
        let bench = Bench::new();
        bench
            .intake
            .publisher_discovered(A, PublisherOrigin::During, None);
        bench.intake.serves(A, proof, is_reliable);
        bench.intake.ends_shown(&bench.intake.ends_asked());
        let (_, account) = bench.finish();
        assert_eq!(account.publishers[0].end_unknown, is_unknown, "{proof:?}");
    }
}

#[test]
fn paused_messages_are_unwanted_and_make_no_gap() {
    let bench = Bench::new();
    bench.receive(A, 1);
    bench.gate.set_paused(true);
    bench.receive(A, 2);
    bench.receive(A, 5);
    bench.gate.set_paused(false);
    bench.receive(A, 6);
    let (stored, account) = bench.finish();
    assert_eq!(stored.len(), 2);
    assert_eq!(account.lost(), 0);
    assert_eq!(missing(&account, LossStage::Policy), 4);
    assert_eq!(
        account.publishers[0].intervals.len(),
        1,
        "one pause, one interval"
    );
}

#[test]
fn nothing_is_stored_before_the_first_clock() {
    let bench = Bench::with(Gate::new(false, true));
    bench.receive(A, 1);
    let (stored, account) = bench.finish();
    assert_eq!((stored.len(), account.lost()), (0, 0));
}

#[test]
fn unnumbered_messages_are_stored_and_their_loss_is_unknown() {
    let bench = Bench::new();
    for _ in 0..3 {
        bench.receive_over(0, None, None);
    }
    let (stored, account) = bench.finish();
    assert_eq!(stored.len(), 3);
    assert!(account.loss_unknown);
    assert_eq!(account.publishers[0].sent, None);
}

#[test]
fn a_message_after_the_end_is_lost_at_shutdown() {
    let bench = Bench::new();
    bench.receive(A, 1);
    bench.cache.close();
    bench.receive(A, 2);
    let (stored, account) = bench.finish();
    assert_eq!(stored.len(), 1);
    assert_eq!(missing(&account, LossStage::Shutdown), 1);
}

#[test]
fn messages_that_come_after_the_intake_was_closed_are_accounted_for() {
    let bench = Bench::new();
    bench.receive(A, 1);
    bench.sinks[0].announced(A, 4);
    bench.receive_over(0, None, None);
    bench.intake.close();
    bench.receive(A, 3);
    bench.receive(A, 7);
    bench.receive_over(0, None, None);
    let (stored, account) = bench.finish();
    assert_eq!(stored.len(), 2);
    let counts: Vec<u64> = [LossStage::Shutdown, LossStage::Tail, LossStage::Transport]
        .map(|stage| missing(&account, stage))
        .to_vec();
    assert_eq!(counts, [3, 2, 2]);
    assert_eq!(account.publishers[0].sent, Some(7));
}

#[test]
fn a_message_that_vanishes_after_the_intake_is_noticed_with_and_without_sequence_numbers() {
    for (publisher, sequence) in [(Some(A), Some(1)), (None, None)] {
        let bench = Bench::new();
        bench.receive_over(0, publisher, sequence);
        bench.intake.close();
        let faults = bench.ledger.lock().unwrap().audit();
        assert_eq!(faults.len(), 1, "{publisher:?}: {faults:?}");
        bench.finish();
    }
}

#[test]
fn publishers_that_come_and_go_for_ever_take_bounded_memory() {
    let bench = Bench::new();
    let count = 3 * PUBLISHERS_KEPT_MAX as u64;
    for number in 0..count {
        let mut gid = Gid([0; 16]);
        gid.0[..8].copy_from_slice(&number.to_be_bytes());
        bench
            .intake
            .publisher_discovered(gid, PublisherOrigin::During, None);
        // Two arrive, the head and one between are lost.
        bench.receive(gid, 2);
        bench.receive(gid, 4);
        bench.record_stored();
        bench.gone(gid, Departure::Farewell, Timestamp::from_nanos(0));
    }
    assert_eq!(bench.intake.publishers() as u64, count);
    let (_, account) = bench.finish();
    // Two of those that were folded rest: their messages might still be taken back.
    assert!(account.publishers.len() <= PUBLISHERS_KEPT_MAX + 3);
    let folded = account.folded.as_ref().unwrap();
    assert!(folded.publishers >= count - PUBLISHERS_KEPT_MAX as u64 - 1);
    assert_eq!(folded.sent, 4 * folded.publishers);
    assert_eq!(
        (
            missing(&account, LossStage::Head),
            missing(&account, LossStage::Transport)
        ),
        (count, count)
    );
    assert_eq!(account.recorded, 2 * count);
}

#[test]
fn a_gone_publisher_is_not_folded_while_messages_of_it_wait() {
    let bench = Bench::new();
    let gid = |number: usize| {
        let mut gid = Gid([0; 16]);
        gid.0[..8].copy_from_slice(&(number as u64).to_be_bytes());
        gid
    };
    for number in 0..2 * PUBLISHERS_KEPT_MAX {
        bench.receive(gid(number), 1);
        bench.gone(gid(number), Departure::Farewell, Timestamp::from_nanos(0));
    }
    assert_eq!(bench.ledger.lock().unwrap().topics[0].folded, None);
    bench.record_stored();
    bench.receive(gid(9999), 1);
    bench.gone(gid(9999), Departure::Farewell, Timestamp::from_nanos(0));
    let (_, account) = bench.finish();
    assert!(account.folded.unwrap().publishers >= PUBLISHERS_KEPT_MAX as u64);
}

/// The fate of one message in transit to two subscriptions.
#[derive(Clone, Copy, Debug)]
enum Way {
    Lost,
    First,
    Second,
    Both,
    /// Over the second one, after this many others.
    LateBy(usize),
}

fn ways() -> impl Strategy<Value = Vec<(Way, bool)>> {
    let way = prop_oneof![
        2 => Just(Way::Lost),
        6 => Just(Way::First),
        2 => Just(Way::Second),
        4 => Just(Way::Both),
        2 => (1..5usize).prop_map(Way::LateBy),
    ];
    prop::collection::vec((way, prop::bool::weighted(0.05)), 1..120)
}

proptest! {
    #[test]
    fn every_message_is_stored_once_or_accounted_for(ways in ways(), during in any::<bool>()) {
        let bench = Bench::new();
        let origin = if during { PublisherOrigin::During } else { PublisherOrigin::Before };
        bench.intake.publisher_discovered(A, origin, None);
        // Both subscriptions are known, so that a duplicate is distinguished from a restart.
        let mut deliveries: Vec<(usize, usize, u64, bool)> = Vec::new();
        let mut paused = false;
        for (at, (way, toggle)) in ways.iter().enumerate() {
            let sequence = at as u64 + 1;
            paused ^= toggle;
            match way {
                Way::Lost => {}
                Way::First => deliveries.push((at, 0, sequence, paused)),
                Way::Second => deliveries.push((at, 1, sequence, paused)),
                Way::Both => {
                    deliveries.push((at, 0, sequence, paused));
                    deliveries.push((at, 1, sequence, paused));
                }
                Way::LateBy(by) => deliveries.push((at + by, 1, sequence, paused)),
            }
        }
        deliveries.sort_by_key(|delivery| delivery.0);
        let mut wanted = BTreeSet::new();
        let mut arrived = BTreeSet::new();
        for (_, sink, sequence, paused) in deliveries {
            bench.gate.set_paused(paused);
            bench.receive_over(sink, Some(A), Some(sequence));
            if arrived.insert(sequence) && !paused {
                wanted.insert(sequence);
            }
        }
        bench.gate.set_paused(false);
        let (stored, account) = bench.finish();
        let sequences: Vec<u64> = stored.iter().filter_map(|(_, sequence)| *sequence).collect();
        let distinct: BTreeSet<u64> = sequences.iter().copied().collect();
        prop_assert_eq!(sequences.len(), distinct.len(), "stored twice");
        prop_assert_eq!(&distinct, &wanted);
        if let (Some(first), Some(last)) = (arrived.first(), arrived.last()) {
            let from = if during { 1 } else { *first };
            let span = last - from + 1;
            prop_assert_eq!(account.publishers[0].sent, Some(span));
            prop_assert_eq!(account.publishers[0].missing_total(), span - wanted.len() as u64);
        }
    }
}

#[test]
fn a_farewell_over_another_network_than_the_last_message_leaves_the_end_unknown() {
    let time = Timestamp::from_nanos;
    for (cut, is_silent) in [(None, false), (Some(6), false), (Some(7), true), (Some(9), true)] {
        let bench = Bench::new();
        bench.receive(A, 7);
        bench.intake.serves(A, EndProof::OfReliable, true);
        let departure = Departure::Left { cut: cut.map(time) };
        let since = bench.gone(A, departure, time(20));
        let (_, account) = bench.finish();
        let account = &account.publishers[0];
        assert!(account.end_unknown && account.reliable);
        // Since the last message.
        let expected = is_silent.then_some(time(7));
        let since = since.map(|since| since.time);
        assert_eq!((since, account.silent_since), (expected, expected), "{cut:?}");
    }
}

impl Bench {
    /// A message of A whose publish time is `published`.
    fn receive_of(&self, sequence: u64, published: i64) {
        self.receive_published(0, Some(A), Some(sequence), Some(Timestamp::from_nanos(published)));
    }

    /// A went silent after its last message.
    fn lose(&self) {
        let time = Timestamp::from_nanos;
        self.intake.serves(A, EndProof::OfReliable, true);
        self.gone(A, Departure::Silent(Some(time(15))), time(20));
    }

    fn find(&self) {
        self.intake.publisher_discovered(A, PublisherOrigin::During, None);
        self.intake.serves(A, EndProof::OfReliable, true);
    }
}

#[test]
fn what_a_publisher_sends_again_after_it_was_silent_is_stored_once() {
    let bench = Bench::new();
    (1..=3).for_each(|number| bench.receive_of(number, number as i64));
    bench.lose();
    // Its messages may come before it is discovered again.
    bench.receive_of(2, 2);
    bench.find();
    (3..=5).for_each(|number| bench.receive_of(number, number as i64));
    let (stored, account) = bench.finish();
    assert_eq!(
        (stored.len(), account.publishers.len(), account.lost()),
        (5, 1, 0)
    );
}

/// What came first was not what it published first: another subscription, or a best-effort one, brought older messages later.
#[test]
fn what_it_sends_again_is_stored_once_also_where_older_messages_came_later() {
    for first in [&[6, 1, 2, 3, 4, 5][..], &[2, 1, 3, 4, 5, 6]] {
        let bench = Bench::new();
        for number in first {
            let published = Some(Timestamp::from_nanos(100 + *number));
            bench.receive_published(
                usize::from(*number < first[0]),
                Some(A),
                Some(*number as u64),
                published,
            );
        }
        bench.lose();
        bench.find();
        (1..=7).for_each(|number| bench.receive_of(number, 100 + number as i64));
        let (stored, account) = bench.finish();
        assert_eq!(
            (stored.len(), account.publishers.len(), account.lost()),
            (7, 1, 0),
            "{first:?}"
        );
    }
}

#[test]
fn another_life_of_a_publisher_that_was_silent_is_stored_whole() {
    // Later, or earlier where its computer has begun without a clock.
    for (is_found_first, begin) in [(false, 30), (true, 30), (false, -1000), (true, -1000)] {
        let bench = Bench::new();
        (1..=3).for_each(|number| bench.receive_of(number, number as i64));
        bench.lose();
        if is_found_first {
            bench.find();
        }
        (1..=5).for_each(|number| bench.receive_of(number, begin + number as i64));
        let (stored, account) = bench.finish();
        let case = (is_found_first, begin);
        assert_eq!((stored.len(), account.publishers.len()), (8, 2), "{case:?}");
    }
}

/// The recorder came late to the first life, so that the second one begins with numbers that it has not seen.
#[test]
fn another_life_that_begins_below_the_first_one_is_stored_whole() {
    for (is_found_first, begin) in [(false, 3000), (true, 3000), (false, -1000), (true, -1000)] {
        let bench = Bench::new();
        (50..=60).for_each(|number| bench.receive_of(number, number as i64));
        bench.lose();
        if is_found_first {
            bench.find();
        }
        (1..=70).for_each(|number| bench.receive_of(number, begin + number as i64));
        let (stored, _) = bench.finish();
        assert_eq!(stored.len(), 11 + 70, "{:?}", (is_found_first, begin));
    }
}

#[test]
fn another_life_that_comes_over_two_subscriptions_is_stored_once() {
    let bench = Bench::new();
    for life in [0, 30] {
        for number in 1..=4 {
            for sink in 0..2 {
                let published = Some(Timestamp::from_nanos(life + number));
                bench.receive_published(sink, Some(A), Some(number as u64), published);
            }
        }
    }
    assert_eq!((bench.intake.received(), bench.intake.messages()), (16, 8));
    let (stored, account) = bench.finish();
    assert_eq!(
        (stored.len(), account.publishers.len(), account.lost()),
        (8, 2, 0)
    );
}

#[test]
fn a_publisher_is_silent_since_its_last_message_or_its_last_sign_of_life() {
    let time = Timestamp::from_nanos;
    let bench = Bench::new();
    for (gid, expected) in [(A, 7), (B, 15)] {
        bench.intake.serves(gid, EndProof::OfReliable, true);
        if gid == A {
            bench.receive(A, 7);
        }
        let departure = Departure::Silent(Some(time(15)));
        let since = bench.gone(gid, departure, time(20));
        assert_eq!(since, Some(PastTime::new(time(expected), time(20))));
    }
}
