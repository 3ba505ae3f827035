//! Tests of the ledger: intervals against a plain set of missing numbers, and accounts that do and do not add up.

use super::*;
use proptest::prelude::*;

const TOPIC: TopicId = TopicId(0);
const PUBLISHER: PublisherIndex = PublisherIndex(0);

fn ledger() -> Ledger {
    let mut ledger = Ledger::new();
    ledger.add_topic("/t");
    ledger.add_publisher(TOPIC, Some(Gid([7; 16])));
    ledger
}

fn gap(first: u64, last: u64) -> Interval {
    Interval::of_sequences(LossStage::Transport, first, last, [None, None])
}

fn missing_sequences(ledger: &Ledger) -> Vec<u64> {
    let intervals = &ledger.topics[0].publishers[0].intervals;
    intervals
        .iter()
        .flat_map(|i| i.first_sequence.unwrap()..=i.last_sequence.unwrap())
        .collect()
}

#[test]
fn neighbours_become_one_interval() {
    let mut ledger = ledger();
    for sequence in 5..1000 {
        let time = Timestamp::from_nanos(sequence as i64);
        ledger.miss(
            TOPIC,
            PUBLISHER,
            Interval::of_message(LossStage::Cache, Some(sequence), time),
        );
    }
    let intervals = &ledger.topics[0].publishers[0].intervals;
    assert_eq!(intervals.len(), 1);
    assert_eq!(
        (intervals[0].first_sequence, intervals[0].last_sequence),
        (Some(5), Some(999))
    );
    assert_eq!(ledger.lost(), 995);
}

#[test]
fn intervals_are_bounded_and_their_count_stays_right() {
    let mut ledger = ledger();
    for sequence in 0..10_000 {
        ledger.miss(TOPIC, PUBLISHER, gap(sequence * 2, sequence * 2));
    }
    let account = &ledger.topics[0].publishers[0];
    assert!(account.intervals.len() <= INTERVALS_MAX);
    assert_eq!(account.missing_total(), 10_000);
    assert!(account.intervals.last().unwrap().merged);
}

#[test]
fn json_text_reads_back_the_same() {
    let mut ledger = ledger();
    ledger.miss(TOPIC, PUBLISHER, gap(3, 9));
    ledger.record(TOPIC, PUBLISHER, 2, 200);
    assert_eq!(Ledger::from_json(&ledger.to_json()).unwrap(), ledger);
}

#[test]
fn a_part_has_the_losses_that_may_lie_in_it() {
    let at = |seconds: i64| Some(Timestamp::from_nanos(seconds * 1_000_000_000));
    let mut ledger = ledger();
    for (first, last, times) in [
        // Before the part, across its beginning, in it, across its end, after it, at a time that is not known.
        (1, 1, [at(1), at(2)]),
        (3, 4, [at(9), at(11)]),
        (6, 8, [at(12), at(13)]),
        (10, 13, [at(19), at(21)]),
        (15, 19, [at(22), None]),
        (21, 26, [None, None]),
        (28, 34, [None, at(3)]),
    ] {
        ledger.miss(
            TOPIC,
            PUBLISHER,
            Interval::of_sequences(LossStage::Transport, first, last, times),
        );
    }
    let faults = ledger.audit();
    ledger.narrow_to(at(10), at(20));
    let missing = &ledger.topics[0].missing;
    assert_eq!(missing[&LossStage::Transport], 2 + 3 + 4 + 6);
    assert_eq!(missing[&LossStage::Policy], 1 + 5 + 7);
    assert_eq!(ledger.audit(), faults, "it adds up as before");
}

#[test]
fn custom_data_is_empty_without_a_loss() {
    let mut ledger = ledger();
    ledger.miss(
        TOPIC,
        PUBLISHER,
        Interval {
            stage: LossStage::Policy,
            ..gap(1, 5)
        },
    );
    assert!(ledger.custom_data().is_empty());
    ledger.miss(TOPIC, PUBLISHER, gap(6, 7));
    assert_eq!(ledger.custom_data()["holdall.lost"], "2");
    assert_eq!(ledger.custom_data()["holdall.lost./t"], "transport=2");
}

#[test]
fn an_account_that_does_not_add_up_is_named() {
    let mut ledger = ledger();
    ledger.publisher_mut(TOPIC, PUBLISHER).unwrap().sent = Some(10);
    ledger.record(TOPIC, PUBLISHER, 8, 0);
    assert_eq!(ledger.audit().len(), 1);
    ledger.miss(TOPIC, PUBLISHER, gap(4, 5));
    assert_eq!(ledger.audit(), Vec::<String>::new());
}

proptest! {
    #[test]
    fn late_messages_leave_exactly_the_others_missing(gaps in prop::collection::vec((1..4u64, 1..6u64), 1..20), late in prop::collection::vec(0..120u64, 0..60)) {
        let mut ledger = ledger();
        let mut model = std::collections::BTreeSet::new();
        let mut next = 0;
        for (skip, len) in gaps {
            next += skip;
            ledger.miss(TOPIC, PUBLISHER, gap(next, next + len - 1));
            model.extend(next..next + len);
            next += len;
        }
        for sequence in late {
            prop_assert_eq!(ledger.arrived_late(TOPIC, PUBLISHER, sequence), model.remove(&sequence));
            prop_assert_eq!(ledger.lost(), model.len() as u64);
        }
        prop_assert_eq!(missing_sequences(&ledger), model.into_iter().collect::<Vec<_>>());
        prop_assert_eq!(ledger.topics[0].publishers[0].missing_total(), ledger.lost());
    }
}

#[test]
fn counts_that_were_lowered_do_not_fit_the_sequence_numbers() {
    let mut ledger = ledger();
    ledger.record(TOPIC, PUBLISHER, 7, 70);
    ledger.miss(TOPIC, PUBLISHER, gap(4, 6));
    ledger.miss(
        TOPIC,
        PUBLISHER,
        Interval::of_unknown(LossStage::NotBelievable, 1),
    );
    let close = |ledger: &mut Ledger, sent| {
        let publisher = &mut ledger.topics[0].publishers[0];
        (publisher.sent, publisher.covered) = (Some(sent), Some([1, 10]));
    };
    close(&mut ledger, 11);
    assert_eq!(ledger.audit(), [""; 0]);
    ledger.topics[0].recorded = 6;
    ledger.topics[0].publishers[0].recorded = 6;
    close(&mut ledger, 10);
    let faults = ledger.audit();
    assert!(
        faults.len() == 1
            && faults[0].contains("has the sequence numbers 1 to 10, but 6 recorded and 4 missing"),
        "{faults:?}"
    );
}

#[test]
fn of_many_restarts_the_first_are_kept_and_the_rest_counted() {
    let mut ledger = Ledger::new();
    for number in 0..1000 {
        ledger.restarted(Restart {
            time: Timestamp::from_nanos(number),
            reason: "stalled".to_owned(),
        });
    }
    assert_eq!(
        (ledger.restarts.len(), ledger.restarts_left_out),
        (RESTARTS_MAX, 744)
    );
    let read = Ledger::from_json(&ledger.checkpoint(Timestamp::from_nanos(7), false).to_json()).unwrap();
    assert_eq!((read.restarts.len(), read.restarts_left_out), (RESTARTS_MAX, 744));
}
