//! Judges the ledger: each message that was sent is in the bag or missing at a stage that fits its fate.

use crate::{
    aftermath::Aftermath,
    found::FoundBag,
    network::{Discovered, Life, Sent},
    plan::{Ending, Plan},
    verdict::{Invariant, Violation},
};
use holdall_model::{
    loss::{
        LossStage,
        ledger::{Ledger, PublisherAccount},
    },
    qos::Durability,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// Publishers discovered this soon after the recorder's start existed before it.
const INITIAL_DISCOVERY: Duration = Duration::from_secs(2);

/// Compares the account with the truth, message by message.
///
/// # Errors
/// The first message that is in two places, in none, or at the wrong stage.
pub fn judge(plan: &Plan, after: &Aftermath, found: &FoundBag, ledger: &Ledger) -> Result<(), Violation> {
    let mut in_bag: BTreeMap<usize, BTreeSet<u64>> = BTreeMap::new();
    for (message, _) in &found.messages {
        in_bag.entry(message.life).or_default().insert(message.sequence);
    }
    for topic in &ledger.topics {
        let there = found
            .messages
            .iter()
            .filter(|(_, name)| *name == topic.name)
            .count() as u64;
        // A message with a hole does not count as found, but a repair counts it.
        let has_holes = after.death.is_some() && plan.leaves_holes();
        if there + topic.expired != topic.recorded && !has_holes {
            let what = format!(
                "{}: the bag has {there} messages, the ledger {} recorded and {} expired",
                topic.name, topic.recorded, topic.expired
            );
            return Err(Violation::new(Invariant::Accounted, what));
        }
        let by_stage: u64 = topic.missing.values().sum();
        let by_publisher: u64 = topic.publishers.iter().map(PublisherAccount::missing_total).sum();
        if by_stage != by_publisher {
            let what = format!(
                "{}: {by_stage} missing by stage, {by_publisher} by publisher",
                topic.name
            );
            return Err(Violation::new(Invariant::Accounted, what));
        }
    }
    // A file of a ring is removed right before that is logged.
    let died_inside = after.death.as_ref().is_some_and(|death| death.inside);
    let split = &plan.options.files.split;
    let expired_uncounted = died_inside && (split.files_max.is_some() || split.ring.is_some());
    let none = BTreeSet::new();
    for (number, life) in after.lives.iter().enumerate() {
        let account = account_of(ledger, life);
        let in_bag = in_bag.get(&number).unwrap_or(&none);
        LifeJudge {
            plan,
            after,
            life,
            number,
            in_bag,
            claimed: crate::ends::claimed(plan, after, number, account),
            expired: expired_uncounted
                || ledger
                    .topics
                    .iter()
                    .any(|topic| topic.name == life.topic && topic.expired > 0),
        }
        .judge(account)?;
    }
    crate::ends::judge(plan, after, ledger)
}

/// The account of a publisher.
pub fn account_of<'a>(ledger: &'a Ledger, life: &Life) -> Option<&'a PublisherAccount> {
    let gid = life.gid.to_string();
    let topic = ledger.topics.iter().find(|topic| topic.name == life.topic)?;
    topic
        .publishers
        .iter()
        .find(|account| account.gid.as_deref() == Some(&gid))
}

struct LifeJudge<'a> {
    plan: &'a Plan,
    after: &'a Aftermath,
    life: &'a Life,
    number: usize,
    in_bag: &'a BTreeSet<u64>,
    /// Number of its messages that must be accounted for, if the account claims to know its end.
    claimed: Option<u64>,
    /// Messages of this topic have expired.
    expired: bool,
}

impl LifeJudge<'_> {
    fn judge(&self, account: Option<&PublisherAccount>) -> Result<(), Violation> {
        let none = PublisherAccount::default();
        let account = account.unwrap_or(&none);
        let broken = |what: String| {
            let what = format!("publisher {} ({}): {what}", self.number, self.life.topic);
            Err(Violation::new(Invariant::Accounted, what))
        };
        let mut ledger: BTreeMap<u64, LossStage> = BTreeMap::new();
        let mut by_number = 0;
        for interval in &account.intervals {
            let (Some(first), Some(last)) = (interval.first_sequence, interval.last_sequence) else {
                by_number += interval.count;
                continue;
            };
            if interval.merged || last - first + 1 != interval.count {
                by_number += interval.count;
                continue;
            }
            for sequence in first..=last {
                if ledger.insert(sequence, interval.stage).is_some() {
                    return broken(format!("message {sequence} is missing twice"));
                }
            }
        }
        let mut unexplained = 0;
        for (index, sent) in self.life.sent.iter().enumerate() {
            let sequence = index as u64 + 1;
            let stage = ledger.remove(&sequence);
            if self.was_being_offered(sequence) {
                continue;
            }
            let recorded = self.in_bag.contains(&sequence);
            match (recorded, stage) {
                (true, Some(stage)) => {
                    let stage = stage.as_str();
                    return broken(format!("message {sequence} is in the bag and missing at {stage}"));
                }
                (true, None) => {}
                (false, Some(stage)) => {
                    if !self.allowed(sequence, sent).contains(&stage) {
                        return broken(format!(
                            "message {sequence} is missing at {}, expected one of {:?}",
                            stage.as_str(),
                            self.allowed(sequence, sent)
                        ));
                    }
                }
                (false, None) => {
                    let must = self.must_be_in_ledger(sequence, sent);
                    unexplained += u64::from(must);
                    if by_number == 0 && !self.expired && (must || self.is_claimed(sequence)) {
                        return Err(self.unaccounted(sequence, sent, must));
                    }
                }
            }
        }
        if let Some((sequence, stage)) = ledger.pop_first() {
            let stage = stage.as_str();
            return broken(format!(
                "message {sequence} was never sent, but is missing at {stage}"
            ));
        }
        if by_number > unexplained || (by_number < unexplained && !self.expired) {
            return broken(format!(
                "{unexplained} messages are in no interval, the ledger has {by_number} without sequence number"
            ));
        }
        Ok(())
    }

    /// Whether a process died while it was being given this message, or one that alone shows that this one is missing: the next one that
    /// arrived, or, of those sent before the first that arrived, the one before.
    fn was_being_offered(&self, sequence: u64) -> bool {
        let Some((life, offered)) = self.after.death.as_ref().and_then(|death| death.offered) else {
            return false;
        };
        let place = (offered - 1).min(self.life.sent.len() as u64) as usize;
        let (before, from) = self.life.sent.split_at(place);
        let last = before.iter().rposition(|sent| sent.arrival.is_some());
        let next = from.iter().skip(1).position(|sent| sent.arrival.is_some());
        let shows = if sequence <= offered {
            last.is_none_or(|last| sequence > last as u64 + 1)
        } else {
            last.is_none() && next.is_some_and(|next| sequence <= offered + next as u64)
        };
        life == self.number && shows
    }

    /// Announced messages are counted only at the end of the recording, which a dying process does not reach.
    fn counts_announced(&self) -> bool {
        self.plan.ending != Ending::Death
    }

    /// Origin as the recorder can know it: it appeared while recording.
    fn came_during(&self) -> bool {
        match self.life.discovered {
            Discovered::At(at) => {
                self.life.made_during || at.saturating_sub(self.after.started) >= INITIAL_DISCOVERY
            }
            Discovered::Never => false,
        }
    }

    /// First and last sequence number that the recorder can know, in addition to the messages sent before
    /// its start.
    fn covered(&self, counts_announced: bool) -> Option<(u64, u64)> {
        let mut arrived: Vec<(u64, u64)> = self
            .life
            .sent
            .iter()
            .enumerate()
            .filter_map(|(index, sent)| Some((sent.arrival?.place, index as u64 + 1)))
            .collect();
        arrived.sort_unstable();
        let announced = self.life.announced_last.filter(|_| counts_announced);
        let Some(&(_, first_arrived)) = arrived.first() else {
            let before = self.life.announced_before?;
            return Some((before + 1, announced?));
        };
        let mut begin = first_arrived;
        if let Some(before) = self.life.announced_before
            && before + 1 < first_arrived
        {
            begin = before + 1;
        }
        for (_, sequence) in &arrived {
            begin = begin.min(*sequence);
        }
        let last_arrived = arrived.iter().map(|(_, sequence)| *sequence).max()?;
        Some((
            begin,
            announced.map_or(last_arrived, |announced| announced.max(last_arrived)),
        ))
    }

    /// The violation for a message that is neither in the bag nor in the ledger, although it `must` be or the account
    /// claims to know of it.
    fn unaccounted(&self, sequence: u64, sent: &Sent, must: bool) -> Violation {
        let was_received = self.after.death.is_some() && sent.arrival.is_some();
        let (invariant, why) = match (must, was_received) {
            (true, true) => (Invariant::Rescued, ""),
            (true, false) => (Invariant::Accounted, ""),
            (false, _) => (Invariant::Ends, ", and its end is said to be known"),
        };
        let (number, topic) = (self.number, &self.life.topic);
        let what = format!(
            "publisher {number} ({topic}): message {sequence} is neither in the bag nor in the ledger ({sent:?}){why}"
        );
        Violation::new(invariant, what)
    }

    /// Whether the account claims to know all messages up to this one.
    fn is_claimed(&self, sequence: u64) -> bool {
        let begin = self.covered(true).map_or(1, |(begin, _)| begin);
        self.claimed
            .is_some_and(|last| (begin..=last).contains(&sequence))
    }

    /// Whether a message that is not in the bag must be in the ledger.
    fn must_be_in_ledger(&self, sequence: u64, sent: &Sent) -> bool {
        self.belongs_in_ledger(sequence, sent, self.counts_announced())
    }

    /// Whether a message that is not in the bag is one of those that the ledger is about.
    fn belongs_in_ledger(&self, sequence: u64, sent: &Sent, counts_announced: bool) -> bool {
        if sent.arrival.is_some() {
            // With a hole it is in the bag, as far as can be known without its payload.
            let has_hole = self.after.death.is_some() && self.plan.leaves_holes();
            return !has_hole || sent.len < crate::rescue::lent_from(self.plan);
        }
        let covered = self.covered(counts_announced);
        // The head is counted within the step that discovers the publisher.
        let has_head = self.came_during()
            && (counts_announced || !self.after.death.as_ref().is_some_and(|death| death.inside));
        covered
            .is_some_and(|(begin, end)| (begin..=end).contains(&sequence) || (sequence < begin && has_head))
    }

    /// Stages at which a message may be missing.
    fn allowed(&self, sequence: u64, sent: &Sent) -> Vec<LossStage> {
        if let Some(arrival) = sent.arrival {
            if arrival.paused && self.life.qos.durability != Durability::TransientLocal {
                return vec![LossStage::Policy];
            }
            let mut stages = vec![LossStage::Cache];
            if arrival.paused {
                // It was held until recording continued.
                stages.extend([LossStage::Policy, LossStage::Shutdown]);
            }
            // A full disk fails for metadata.yaml too, which does not go through its queue.
            let stopped = self.after.stopped.as_ref();
            if self.after.disk_failed || stopped.is_some_and(|(report, _)| report.failure.is_some()) {
                stages.push(LossStage::Storage);
            }
            if self.plan.options.cache.snapshot {
                stages.push(LossStage::Policy);
            }
            // Only the headers of these are in memory.
            if self.after.death.is_some() && sent.len >= crate::rescue::lent_from(self.plan) {
                stages.push(LossStage::Storage);
            }
            return stages;
        }
        if !self.belongs_in_ledger(sequence, sent, true) {
            return Vec::new();
        }
        let mut stages = Vec::new();
        let (open, paused) = self.gate_since(sent.at);
        let last_arrived = self.life.sent.iter().rposition(|sent| sent.arrival.is_some());
        let is_tail = last_arrived.is_none_or(|last| sequence > last as u64 + 1);
        let first_arrived = self
            .life
            .sent
            .iter()
            .filter_map(|sent| sent.arrival)
            .min_by_key(|arrival| arrival.place);
        let is_head = self.came_during()
            && first_arrived.is_none_or(|first| {
                let place = self
                    .life
                    .sent
                    .iter()
                    .position(|sent| sent.arrival.is_some_and(|arrival| arrival.place == first.place));
                place.is_none_or(|place| sequence < place as u64 + 1)
            });
        if open {
            stages.push(if is_tail {
                LossStage::Tail
            } else {
                LossStage::Transport
            });
            if is_head {
                stages.push(LossStage::Head);
            }
        }
        if paused {
            stages.push(LossStage::Policy);
        }
        stages
    }

    /// Whether the recording was open, and whether it was paused, at some time since `at`.
    fn gate_since(&self, at: Duration) -> (bool, bool) {
        let pauses = &self.after.pauses;
        let before = pauses.iter().rev().find(|(since, _)| *since <= at);
        let during = pauses.iter().filter(|(since, _)| *since > at);
        let states: Vec<bool> = before
            .into_iter()
            .chain(during)
            .map(|(_, paused)| *paused)
            .collect();
        (
            states.iter().any(|paused| !paused) || states.is_empty(),
            states.iter().any(|paused| *paused),
        )
    }
}
