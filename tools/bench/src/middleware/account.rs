//! The fate of every planned message, computed from the records of both sides.

use super::worker::{ReceivedRecord, SentRecord};
use crate::measure::Latencies;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Deadlines of the curve, in milliseconds after a message was due.
pub(crate) const DEADLINES_MS: [f64; 10] = [
    1.0, 3.0, 10.0, 33.0, 100.0, 333.0, 1000.0, 3333.0, 10_000.0, 33_333.0,
];
/// Silence up to the end of a run that counts as a stall.
const STALL: Duration = Duration::from_secs(3);

/// The plan of a run, needed in addition to the records.
#[derive(Clone, Copy, Debug)]
pub struct Planned {
    /// Messages, those of the warm-up included.
    pub count: u64,
    /// Messages a second.
    pub rate_hz: f64,
    /// When the first was due, in nanoseconds of the monotonic clock.
    pub start: u64,
    /// Messages due before this are not counted.
    pub warm_up: Duration,
    /// A reliable writer resends lost messages, unless its history was overwritten.
    pub is_reliable: bool,
}

/// Percentiles of a time in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Times {
    /// Half were not longer.
    pub p50_ms: f64,
    /// 99 of 100 were not longer.
    pub p99_ms: f64,
    /// The longest.
    pub max_ms: f64,
}

impl Times {
    fn of(latencies: &Latencies) -> Option<Self> {
        let ms = |nanos: u64| nanos as f64 / 1e6;
        latencies.summary().map(|summary| Self {
            p50_ms: ms(summary.p50_ns),
            p99_ms: ms(summary.p99_ns),
            max_ms: ms(summary.max_ns),
        })
    }
}

/// The fate of the planned messages; `planned` is the sum of the next seven.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Account {
    /// Messages that were due in the measured time.
    pub planned: u64,
    /// The publisher was still busy with earlier ones when its time was over.
    pub not_sent: u64,
    /// `publish` returned an error.
    pub refused: u64,
    /// Sent while the publisher knew no subscription, and not received.
    pub before_match: u64,
    /// Lost between others by a reliable writer: overwritten in its history before they had arrived.
    pub history: u64,
    /// Lost between others without repair.
    pub transport: u64,
    /// Nothing after them was received either.
    pub tail: u64,
    /// Arrived, each counted once.
    pub received: u64,
    /// Arrived more than once.
    pub duplicates: u64,
    /// Arrived after a later one.
    pub reordered: u64,
    /// Messages that `publish` took each second of the measured time, on average.
    pub sent_per_s: f64,
    /// Messages that arrived each second of the measured time, on average.
    pub received_per_s: f64,
    /// Share of planned messages that arrived within [`DEADLINES_MS`] after they were due.
    pub delivered: Vec<f64>,
    /// Times from the due time of a message to its arrival, for those that arrived.
    pub from_due: Option<Times>,
    /// Times from before `publish` to the arrival, for those that arrived, as other evaluations count.
    pub from_publish: Option<Times>,
    /// Mean over the seconds with arrivals of their mean `from_publish`, in milliseconds: "effective latency" of the published report.
    pub effective_latency_ms: Option<f64>,
    /// How long `publish` took.
    pub publish: Option<Times>,
    /// How much later than due `publish` was called.
    pub lateness: Option<Times>,
    /// Messages sent in each second from the first due one, warm-up included.
    pub sent_each_s: Vec<u64>,
    /// Messages that arrived in each of these seconds.
    pub received_each_s: Vec<u64>,
    /// Their mean time from before `publish` to the arrival in milliseconds; `None` if none arrived.
    #[serde(default)]
    pub latency_each_s_ms: Vec<Option<f64>>,
    /// Longest time without an arrival, in seconds.
    pub silence_longest_s: f64,
    /// When the last message arrived, in seconds, if it was three seconds or more before the end.
    pub stalled_at_s: Option<f64>,
    /// Histogram of `from_due`: microseconds to three digits, and how many.
    pub histogram_us: Vec<(u64, u64)>,
}

impl Account {
    /// Messages that were planned and are accounted for.
    pub fn accounted(&self) -> u64 {
        self.not_sent
            + self.refused
            + self.before_match
            + self.history
            + self.transport
            + self.tail
            + self.received
    }

    /// Planned messages that did not arrive, in percent.
    pub fn lost_percent(&self) -> f64 {
        100.0 * (self.planned - self.received.min(self.planned)) as f64 / (self.planned as f64).max(1.0)
    }
}

/// Accounts for a run.
pub fn account(planned: Planned, sent: &[SentRecord], received: &[ReceivedRecord]) -> Account {
    let period_ns = 1e9 / planned.rate_hz;
    let due = |number: u64| planned.start + (number as f64 * period_ns) as u64;
    let warm_up_ns = u64::try_from(planned.warm_up.as_nanos()).unwrap_or(u64::MAX);
    let begin = planned.start + warm_up_ns;
    let end = due(planned.count);
    let mut arrived: Vec<Option<u64>> = vec![None; usize::try_from(planned.count).unwrap_or(usize::MAX)];
    let mut account = Account::default();
    let mut newest: Option<u64> = None;
    for record in received {
        let Some(place) = usize::try_from(record.number)
            .ok()
            .and_then(|number| arrived.get_mut(number))
        else {
            continue;
        };
        if place.is_some() {
            account.duplicates += 1;
            continue;
        }
        *place = Some(record.at);
        account.reordered += u64::from(newest.is_some_and(|newest| record.number < newest));
        newest = newest.max(Some(record.number));
    }
    classify(&mut account, planned, sent, &arrived, newest, begin, due);
    let (mut from_due, mut from_publish) = (Latencies::default(), Latencies::default());
    let (mut publish, mut lateness) = (Latencies::default(), Latencies::default());
    let mut within = [0_u64; DEADLINES_MS.len()];
    for (number, at) in (0_u64..)
        .zip(&arrived)
        .filter(|(number, _)| due(*number) >= begin)
    {
        let record = usize::try_from(number).ok().and_then(|number| sent.get(number));
        if let Some(record) = record {
            publish.record(Duration::from_nanos(record.after.saturating_sub(record.before)));
            lateness.record(Duration::from_nanos(record.before.saturating_sub(record.due)));
        }
        if let (Some(at), Some(record)) = (at, record) {
            let latency = Duration::from_nanos(at.saturating_sub(record.due));
            from_due.record(latency);
            from_publish.record(Duration::from_nanos(at.saturating_sub(record.before)));
            for (count, deadline) in within.iter_mut().zip(DEADLINES_MS) {
                *count += u64::from(latency.as_secs_f64() * 1e3 <= deadline);
            }
        }
    }
    let whole = (account.planned as f64).max(1.0);
    account.delivered = within.iter().map(|count| *count as f64 / whole).collect();
    account.from_due = Times::of(&from_due);
    account.from_publish = Times::of(&from_publish);
    account.publish = Times::of(&publish);
    account.lateness = Times::of(&lateness);
    account.histogram_us = from_due.pairs_us();
    over_time(&mut account, planned, sent, received, [begin, end]);
    account
}

/// Finds the one reason of every planned message.
fn classify(
    account: &mut Account,
    planned: Planned,
    sent: &[SentRecord],
    arrived: &[Option<u64>],
    newest: Option<u64>,
    begin: u64,
    due: impl Fn(u64) -> u64,
) {
    for (number, at) in (0_u64..).zip(arrived).filter(|(number, _)| due(*number) >= begin) {
        account.planned += 1;
        let record = usize::try_from(number).ok().and_then(|number| sent.get(number));
        let stage = match record {
            _ if at.is_some() => &mut account.received,
            None => &mut account.not_sent,
            Some(record) if !record.is_accepted => &mut account.refused,
            Some(record) if !record.is_matched => &mut account.before_match,
            Some(_) if newest.is_none_or(|newest| number > newest) => &mut account.tail,
            Some(_) if planned.is_reliable => &mut account.history,
            Some(_) => &mut account.transport,
        };
        *stage += 1;
    }
}

/// Rates, each second, and silence.
fn over_time(
    account: &mut Account,
    planned: Planned,
    sent: &[SentRecord],
    received: &[ReceivedRecord],
    [begin, end]: [u64; 2],
) {
    let duration_s = Duration::from_nanos(end.saturating_sub(begin))
        .as_secs_f64()
        .max(1e-9);
    // Whole seconds only: a part of one does not give a rate.
    let seconds = Duration::from_nanos(end - planned.start).as_secs() as usize;
    account.sent_each_s = vec![0; seconds];
    account.received_each_s = vec![0; seconds];
    let second = |at: u64| (at.saturating_sub(planned.start) / 1_000_000_000) as usize;
    let is_measured = |at: u64| (begin..end).contains(&at);
    let taken = || sent.iter().filter(|record| record.is_accepted);
    for record in taken() {
        if let Some(count) = account.sent_each_s.get_mut(second(record.before)) {
            *count += 1;
        }
    }
    account.sent_per_s = taken().filter(|record| is_measured(record.before)).count() as f64 / duration_s;
    // All messages, and the measured ones among them.
    let mut each: Vec<[(f64, u64); 2]> = vec![[(0.0, 0); 2]; seconds];
    let mut last = begin;
    for record in received {
        let place = second(record.at);
        if let Some(count) = account.received_each_s.get_mut(place) {
            *count += 1;
        }
        let publisher = usize::try_from(record.number)
            .ok()
            .and_then(|number| sent.get(number));
        if let (Some(sums), Some(publisher)) = (each.get_mut(place), publisher) {
            for sum in sums.iter_mut().take(1 + usize::from(is_measured(record.at))) {
                sum.0 += record.at.saturating_sub(publisher.before) as f64 / 1e6;
                sum.1 += 1;
            }
        }
        if is_measured(record.at) {
            account.silence_longest_s = account.silence_longest_s.max(seconds_between(last, record.at));
            last = last.max(record.at);
        }
    }
    account.silence_longest_s = account.silence_longest_s.max(seconds_between(last, end));
    let of_measured = received.iter().filter(|record| is_measured(record.at)).count();
    account.received_per_s = of_measured as f64 / duration_s;
    let is_stalled = seconds_between(last, end) >= STALL.as_secs_f64();
    account.stalled_at_s = is_stalled.then(|| seconds_between(planned.start, last));
    let mean = |(sum, count): (f64, u64)| (count > 0).then(|| sum / count as f64);
    account.latency_each_s_ms = each.iter().map(|[all, _]| mean(*all)).collect();
    let means: Vec<f64> = each.iter().filter_map(|[_, measured]| mean(*measured)).collect();
    account.effective_latency_ms =
        (!means.is_empty()).then(|| means.iter().sum::<f64>() / means.len() as f64);
}

fn seconds_between(from: u64, to: u64) -> f64 {
    Duration::from_nanos(to.saturating_sub(from)).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PLANNED: Planned = Planned {
        count: 40,
        rate_hz: 10.0,
        start: 1_000_000_000,
        warm_up: Duration::from_secs(1),
        is_reliable: true,
    };

    fn sent(number: u64) -> SentRecord {
        let due = PLANNED.start + number * 100_000_000;
        SentRecord {
            due,
            before: due + 1_000_000,
            after: due + 3_000_000,
            is_accepted: true,
            is_matched: true,
        }
    }

    fn arrives(number: u64) -> ReceivedRecord {
        ReceivedRecord {
            number,
            at: sent(number).due + 50_000_000,
        }
    }

    #[test]
    fn each_loss_has_its_stage() {
        let mut records: Vec<_> = (0..36).map(sent).collect();
        records[12].is_accepted = false;
        records[13].is_matched = false;
        let received: Vec<_> = (0..30)
            .filter(|number| ![12, 13, 14].contains(number))
            .map(arrives)
            .collect();
        let found = account(PLANNED, &records, &received);
        assert_eq!((found.planned, found.received), (30, 17));
        let stages = [
            found.not_sent,
            found.refused,
            found.before_match,
            found.history,
            found.transport,
            found.tail,
        ];
        assert_eq!(stages, [4, 1, 1, 1, 0, 6]);
        let best_effort = Planned {
            is_reliable: false,
            ..PLANNED
        };
        let lost = account(best_effort, &records, &received);
        assert_eq!((lost.history, lost.transport), (0, 1));
        assert!((found.lost_percent() - 100.0 * 13.0 / 30.0).abs() < 1e-9);
    }

    #[test]
    fn latency_counts_from_when_a_message_was_due() {
        let records: Vec<_> = (0..40).map(sent).collect();
        let received: Vec<_> = (0..40).map(arrives).collect();
        let found = account(PLANNED, &records, &received);
        let near = |found: f64, expected: f64| (found - expected).abs() <= expected * 0.002;
        assert!(near(found.from_due.unwrap().p50_ms, 50.0));
        assert!(near(found.from_publish.unwrap().p50_ms, 49.0));
        assert!(near(found.effective_latency_ms.unwrap(), 49.0));
        assert!(near(found.publish.unwrap().max_ms, 2.0));
        assert!(near(found.lateness.unwrap().max_ms, 1.0));
        let curve: Vec<_> = DEADLINES_MS
            .into_iter()
            .zip(found.delivered)
            .map(|(at, share)| (at >= 50.0) == (share > 0.99))
            .collect();
        assert!(curve.iter().all(|is_right| *is_right));
        assert_eq!((found.sent_per_s, found.received_per_s), (10.0, 10.0));
        assert_eq!(found.received_each_s, [10, 10, 10, 10]);
        assert_eq!(found.stalled_at_s, None);
        assert_eq!(found.histogram_us.iter().map(|(_, count)| count).sum::<u64>(), 30);
    }

    #[test]
    fn silence_to_the_end_is_a_stall() {
        let records: Vec<_> = (0..40).map(sent).collect();
        let found = account(PLANNED, &records, &[arrives(2), arrives(1), arrives(2)]);
        assert_eq!((found.duplicates, found.reordered), (1, 1));
        assert_eq!((found.silence_longest_s, found.stalled_at_s), (3.0, Some(1.0)));
        assert_eq!(found.received, 0);
    }

    proptest! {
        #[test]
        fn the_account_balances(
            count in 1_u64..100,
            sent_count in 0_usize..100,
            flags in prop::collection::vec((any::<bool>(), any::<bool>()), 100),
            numbers in prop::collection::vec(0_u64..120, 0..200),
            is_reliable: bool,
        ) {
            let planned = Planned { count, is_reliable, ..PLANNED };
            let records: Vec<_> = (0..count).map(sent).zip(flags).map(|(record, (is_accepted, is_matched))| SentRecord {
                is_accepted,
                is_matched,
                ..record
            }).take(sent_count).collect();
            let received: Vec<_> = numbers.iter().map(|number| arrives(*number)).collect();
            let found = account(planned, &records, &received);
            prop_assert_eq!(found.planned, found.accounted());
            prop_assert_eq!(found.planned, count.saturating_sub(10));
            prop_assert!(found.delivered.is_sorted());
        }
    }
}
