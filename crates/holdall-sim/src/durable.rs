//! Judges what a crash took: nothing that was reported durable, and nothing that was received before the loss window.

use crate::{
    aftermath::{Aftermath, Crashed},
    found::FoundBag,
    network::Arrival,
    plan::Plan,
    verdict::{Invariant, Violation},
};
use holdall_model::loss::ledger::TopicAccount;
use std::{collections::BTreeSet, time::Duration};

/// Checks a bag after a crash and a repair.
///
/// # Errors
/// The first message that should have survived.
pub fn judge(plan: &Plan, after: &Aftermath, found: &FoundBag) -> Result<(), Violation> {
    let Some(crashed) = &after.crashed else {
        return Ok(());
    };
    let in_bag: BTreeSet<(usize, u64)> = found
        .messages
        .iter()
        .map(|(message, _)| (message.life, message.sequence))
        .collect();
    for topic in &crashed.ledger.topics {
        judge_topic(plan, after, crashed, topic, &in_bag)?;
    }
    Ok(())
}

fn judge_topic(
    plan: &Plan,
    after: &Aftermath,
    crashed: &Crashed,
    topic: &TopicAccount,
    in_bag: &BTreeSet<(usize, u64)>,
) -> Result<(), Violation> {
    let Some(accepted) = accepted(after, topic) else {
        return Ok(());
    };
    let status = crashed
        .status
        .topics
        .iter()
        .find(|status| status.name == topic.name);
    let durable = status.map_or(0, |status| status.durable);
    // By count and not by place: what came during a pause is in a later file than what came after it.
    let mut expired = topic.expired;
    let settled = settled_before(plan, crashed);
    for (place, (life, sequence, arrival)) in accepted.iter().enumerate() {
        if in_bag.contains(&(*life, *sequence)) {
            continue;
        }
        if expired > 0 {
            expired -= 1;
            continue;
        }
        let name = format!("{}: message {sequence} of publisher {life}", topic.name);
        if (place as u64) < durable {
            let what = format!("{name} is gone, and the first {durable} messages were reported durable");
            return Err(Violation::new(Invariant::Durable, what));
        }
        // Messages held through a pause are recorded later than they arrived.
        if !arrival.paused && settled.is_some_and(|settled| arrival.at < settled) {
            let what = format!(
                "{name} is gone, received {:?} before the end; the window is {:?} and was reported as kept",
                after.ended.saturating_sub(arrival.at),
                crashed.status.durability.window
            );
            return Err(Violation::new(Invariant::Window, what));
        }
    }
    Ok(())
}

/// Messages received before this moment must have survived; `None` when this was not promised, or was reported as not kept.
fn settled_before(plan: &Plan, crashed: &Crashed) -> Option<Duration> {
    let durability = &crashed.status.durability;
    let window = durability.window?;
    // A ring is kept in memory on request; a window that was missed has been reported, and so has a disk that
    // failed.
    if plan.options.cache.snapshot || durability.missed > 0 || crashed.has_failed {
        return None;
    }
    crashed.last_drain.checked_sub(window)
}

/// The messages of a topic that the recorder accepted, in the order of their arrival: those that its ledger
/// does not list as missing. `None` when the ledger does not identify them.
fn accepted(after: &Aftermath, topic: &TopicAccount) -> Option<Vec<(usize, u64, Arrival)>> {
    let mut accepted = Vec::new();
    for (number, life) in after
        .lives
        .iter()
        .enumerate()
        .filter(|(_, life)| life.topic == topic.name)
    {
        let gid = life.gid.to_string();
        let account = topic
            .publishers
            .iter()
            .find(|account| account.gid.as_deref() == Some(&gid));
        let mut missing = Vec::new();
        for interval in account.iter().flat_map(|account| &account.intervals) {
            if interval.merged {
                return None;
            }
            missing.push(interval.first_sequence?..=interval.last_sequence?);
        }
        for (index, sent) in life.sent.iter().enumerate() {
            let sequence = index as u64 + 1;
            if let Some(arrival) = sent.arrival
                && !missing.iter().any(|interval| interval.contains(&sequence))
            {
                accepted.push((number, sequence, arrival));
            }
        }
    }
    accepted.sort_by_key(|(_, _, arrival)| arrival.place);
    Some(accepted)
}
