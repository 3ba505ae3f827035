//! Alarms without a request: losses, publishers whose end is not known, a disk that fills.

use crate::{receive::session::Parts, write::drain::DrainStatus};
use holdall_io::mutex::lock;
use holdall_model::{
    alarm::{AlarmEdge, AlarmKind, AlarmLatch, AlarmList, AlarmSubject},
    loss::{LossSums, UnknownEnds, ledger::TopicAccount},
    time::Timestamp,
    units::{counted, format_bytes},
};
use std::{collections::BTreeMap, time::Duration};

/// An alarm about losses is over when none was added for this long, and one about ends when all are known for this long.
const ACCOUNT_CALM: Duration = Duration::from_secs(10);

/// The forecast of the disk has to be good for this long.
const DISK_CALM: Duration = Duration::from_secs(60);

/// The disk is an alarm when it is full within this time.
const FULL_SOON: Duration = Duration::from_secs(600);

/// Losses of a topic.
#[derive(Debug)]
struct Losses {
    /// The highest count so far: messages that come late make it smaller.
    highest: u64,
    latch: AlarmLatch,
}

/// What a recording's accounts and its disk have shown until now.
#[derive(Debug)]
pub(super) struct WatchedAccounts {
    /// By topic, in the ledger's order; only those that lost something.
    losses: BTreeMap<usize, Losses>,
    /// The same for publishers whose end is not known.
    ends: BTreeMap<usize, AlarmLatch>,
    disk: AlarmLatch,
}

impl Default for WatchedAccounts {
    fn default() -> Self {
        Self {
            losses: BTreeMap::new(),
            ends: BTreeMap::new(),
            disk: AlarmLatch::new(DISK_CALM),
        }
    }
}

/// An alarm that begins or ends, and its text.
type Change<'a> = (AlarmEdge, AlarmSubject<'a>, String);

impl WatchedAccounts {
    /// Reads accounts and disk.
    pub fn step(&mut self, parts: &Parts, list: &mut AlarmList, now: Duration, time: Timestamp) {
        let mut note = |(edge, subject, text): Change<'_>| list.note(edge, &subject, text, time);
        for (index, account) in lock(&parts.ledger).topics.iter().enumerate() {
            self.end(index, account, now).into_iter().for_each(&mut note);
            self.loss(index, account, now).into_iter().for_each(&mut note);
        }
        self.disk(parts.drain.status(), now)
            .into_iter()
            .for_each(&mut note);
    }

    fn end<'a>(&mut self, index: usize, account: &'a TopicAccount, now: Duration) -> Option<Change<'a>> {
        let silent = account.unknown_ends().silent;
        if silent == 0 && !self.ends.contains_key(&index) {
            return None;
        }
        let latch = self.ends.entry(index);
        let latch = latch.or_insert_with(|| AlarmLatch::new(ACCOUNT_CALM));
        let edge = latch.note(silent > 0, now)?;
        let publishers = counted(silent, "publisher");
        let text = format!(
            "{}: {}: {publishers} silent, without a farewell",
            account.name,
            UnknownEnds::SILENT
        );
        // The log has a line for all topics of a computer that has left.
        let subject = AlarmSubject::of_topic(AlarmKind::EndUnknown, &account.name).logged();
        Some((edge, subject, text))
    }

    fn loss<'a>(&mut self, index: usize, account: &'a TopicAccount, now: Duration) -> Option<Change<'a>> {
        let sums = LossSums::of(&account.missing);
        if sums.lost == 0 && !self.losses.contains_key(&index) {
            return None;
        }
        let losses = self.losses.entry(index).or_insert_with(|| Losses {
            highest: 0,
            latch: AlarmLatch::new(ACCOUNT_CALM),
        });
        let is_first = losses.highest == 0;
        let is_more = sums.lost > losses.highest;
        losses.highest = losses.highest.max(sums.lost);
        let edge = losses.latch.note(is_more, now)?;
        let stages: Vec<&str> = sums.by_stage.keys().map(|stage| stage.as_str()).collect();
        let lost = counted(sums.lost, "message");
        let text = format!("{}: {lost} lost ({})", account.name, stages.join(", "));
        let subject = AlarmSubject::of_topic(AlarmKind::Loss, &account.name);
        // The log has the first loss of each stage, with what helps.
        let subject = if is_first { subject.logged() } else { subject };
        Some((edge, subject, text))
    }

    fn disk(&mut self, drain: DrainStatus, now: Duration) -> Option<Change<'static>> {
        let mut subject = AlarmSubject::of_recording(AlarmKind::Disk);
        if drain.failure.is_some() || drain.must_end.is_some() {
            subject = subject.logged();
        }
        let full_in = drain.full_in.filter(|span| *span <= FULL_SOON);
        let forecast = full_in.map(|span| {
            format!(
                "the disk is full in {:.0} s at the present rate: {} are free",
                span.as_secs_f64(),
                format_bytes(drain.available_bytes.unwrap_or(0))
            )
        });
        let text = drain.failure.or(drain.must_end).or(forecast);
        let edge = self.disk.note(text.is_some(), now)?;
        Some((edge, subject, text.unwrap_or_default()))
    }
}
