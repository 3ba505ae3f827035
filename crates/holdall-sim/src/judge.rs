//! Judges a recording's bag against the truth: first the bag alone, then the account, then the losses of a crash.

use crate::{
    account,
    aftermath::Aftermath,
    found::{self, FoundBag},
    network::{Life, Sent},
    plan::{Ending, Plan, SizeClass, TOPICS},
    verdict::{Invariant, Violation},
};
use holdall::reader::Bag;
use holdall_model::qos::Durability;
use holdall_storage::storage_by_path;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// Checks everything. `scratch` is an empty directory.
///
/// # Errors
/// The first broken invariant.
pub fn judge(plan: &Plan, after: &Aftermath, scratch: &Path) -> Result<(), Violation> {
    if let Some((what, held, allowed)) = after.memory_excess {
        let what = format!("{what} took {held} bytes, more than {allowed}");
        return Err(Violation::new(Invariant::Memory, what));
    }
    if let Some(broken) = after
        .promoter
        .as_ref()
        .and_then(|promoter| promoter.broken.clone())
    {
        return Err(broken);
    }
    let bag = scratch.join("bag");
    write_files(after, &bag).map_err(|error| Violation::new(Invariant::Runs, error.to_string()))?;
    let judged = match plan.ending {
        Ending::Stop => judge_stopped(plan, after, &bag),
        Ending::PowerCut | Ending::Kill => judge_crashed(plan, after, &bag),
        Ending::Death => match &after.death {
            Some(death) => crate::rescue::judge(plan, after, death, &bag),
            None => Err(Violation::new(Invariant::Runs, "the process did not die")),
        },
    };
    judged?;
    let Some(promoter) = &after.promoter else {
        return Ok(());
    };
    let repaired = bag.with_file_name("repaired");
    promoter.judge_end(if repaired.exists() { &repaired } else { &bag }, plan.seed)
}

fn write_files(after: &Aftermath, bag: &Path) -> std::io::Result<()> {
    fs::create_dir(bag)?;
    for (path, content) in &after.files {
        if let Some(name) = path.file_name() {
            fs::write(bag.join(name), content)?;
        }
    }
    Ok(())
}

fn judge_stopped(plan: &Plan, after: &Aftermath, bag: &Path) -> Result<(), Violation> {
    if plan.keeps_memory
        && fs::read_dir(bag.with_file_name("memory")).is_ok_and(|mut left| left.next().is_some())
    {
        return Err(Violation::new(
            Invariant::Sound,
            "memory is left after a clean end",
        ));
    }
    let Some((report, ledger)) = &after.stopped else {
        return Err(Violation::new(Invariant::Runs, "the recorder reported nothing"));
    };
    if let Some(fault) = report.audit_faults.first() {
        return Err(Violation::new(Invariant::Balanced, fault));
    }
    // A disk that is full fails for the metadata too, which does not go through its queue.
    let may_fail = after.disk_failed || plan.breaks_disk();
    if after.disk_failed != report.failure.is_some() && (report.failure.is_none() || !may_fail) {
        let what = match &report.failure {
            Some(failure) => format!("nothing failed, but the report says: {failure}"),
            None => "the disk failed, and the report says nothing".to_owned(),
        };
        return Err(Violation::new(Invariant::Reported, what));
    }
    let found = judge_bag(plan, after, bag)?;
    crate::clocks::judge(plan, after, bag, &found)?;
    if report.failure.is_some() {
        // The file may have no end to hold it.
        return account::judge(plan, after, &found, ledger);
    }
    let in_bag = Bag::open(bag)
        .and_then(|bag| bag.ledger())
        .map_err(|error| Violation::new(Invariant::Accounted, error.to_string()))?;
    match in_bag {
        Some(in_bag) => account::judge(plan, after, &found, &in_bag),
        None => Err(Violation::new(Invariant::Accounted, "the bag has no ledger")),
    }
}

fn judge_crashed(plan: &Plan, after: &Aftermath, bag: &Path) -> Result<(), Violation> {
    crate::repair::opens(bag)?;
    let found = judge_bag(plan, after, bag)?;
    crate::durable::judge(plan, after, &found)?;
    crate::repair::judge(plan, bag, &found)
}

/// Checks the invariants of every bag, however its recording ended.
///
/// # Errors
/// The first broken invariant.
pub fn judge_bag(plan: &Plan, after: &Aftermath, bag: &Path) -> Result<FoundBag, Violation> {
    let mut found =
        found::read(bag, plan.leaves_holes()).map_err(|error| Violation::new(Invariant::Opens, error))?;
    if after.stopped.is_some()
        && let Some(damage) = found.damage.first()
        && !after.disk_failed
        && !plan.breaks_disk()
    {
        return Err(Violation::new(Invariant::Sound, damage));
    }
    found::compare_foreign(&found).map_err(|error| Violation::new(Invariant::Foreign, error))?;
    if after.stopped.is_some() && !after.disk_failed && !plan.breaks_disk() {
        crate::repair::check(bag)?;
    }
    if plan.leaves_holes() {
        found.messages.retain(|(message, _)| message.is_whole());
    }
    judge_messages(after, &found)?;
    judge_order(plan, after, &found)?;
    Ok(found)
}

/// The truth about a message, if it was ever sent.
pub fn sent(lives: &[Life], life: usize, sequence: u64) -> Option<(&Life, &Sent)> {
    let life = lives.get(life)?;
    let index = usize::try_from(sequence.checked_sub(1)?).ok()?;
    Some((life, life.sent.get(index)?))
}

fn judge_messages(after: &Aftermath, found: &FoundBag) -> Result<(), Violation> {
    for (number, type_name) in &found.types {
        let life = after.lives.get(*number);
        if let Some(life) = life.filter(|life| life.type_name() != type_name) {
            let what = format!(
                "messages of publisher {number} ({}) are of type {type_name}",
                life.type_name()
            );
            return Err(Violation::new(Invariant::Exact, what));
        }
    }
    let mut seen = BTreeSet::new();
    for (message, topic) in &found.messages {
        let name = format!(
            "message {} of publisher {} ({topic})",
            message.sequence, message.life
        );
        let not_exact = |what: &str| Violation::new(Invariant::Exact, format!("{name} {what}"));
        let Some((life, sent)) = sent(&after.lives, message.life, message.sequence) else {
            return Err(not_exact("was never sent"));
        };
        let Some(arrival) = sent.arrival else {
            return Err(not_exact("never arrived"));
        };
        if life.topic != *topic {
            return Err(not_exact("is on the wrong topic"));
        }
        if message.len != sent.len || !message.is_exact {
            return Err(not_exact("has other bytes than were sent"));
        }
        // Messages that a latched publisher sends during a pause get into the bag when recording continues.
        let was_held = arrival.paused && life.qos.durability == Durability::TransientLocal;
        let arrived = arrival.log_time.as_nanos().unsigned_abs();
        let is_later = was_held && (after.clocks.was_set || message.log_time >= arrived);
        if message.log_time != arrived && !is_later {
            return Err(not_exact("is not stamped with the time of its arrival"));
        }
        if message.publish_time != sent.publish_time.as_nanos().unsigned_abs() {
            return Err(not_exact("is not stamped with the time of its sending"));
        }
        if !message.has_sequence {
            return Err(not_exact("does not carry its sequence number"));
        }
        if !seen.insert((message.life, message.sequence)) {
            return Err(not_exact("occurs twice"));
        }
        if arrival.paused && !was_held {
            return Err(Violation::new(
                Invariant::Paused,
                format!("{name} arrived while the recording was paused"),
            ));
        }
    }
    Ok(())
}

/// Judges the order by log time, which grows with every arrival unless the clock was set, and the order in the file where all
/// messages go into one lane.
fn judge_order(_plan: &Plan, after: &Aftermath, found: &FoundBag) -> Result<(), Violation> {
    let mut last: BTreeMap<(usize, bool), (u64, u64)> = BTreeMap::new();
    // Files of the repair, which may have died and made two; files without any written bytes are removed before.
    let is_written = |(path, bytes): &(&PathBuf, &Vec<u8>)| {
        storage_by_path(path).is_some() && bytes.iter().any(|byte| *byte != 0)
    };
    let from_memory = after
        .death
        .as_ref()
        .map(|_| after.files.iter().filter(is_written).count());
    for (message, topic) in &found.messages {
        let Some((_, sent)) = sent(&after.lives, message.life, message.sequence) else {
            continue;
        };
        let Some(arrival) = sent.arrival else { continue };
        let one_lane = TOPICS
            .iter()
            .any(|plan| plan.name == topic && plan.sizes != SizeClass::Mixed);
        if !one_lane {
            continue;
        }
        // Messages from memory are in a separate file after the others.
        let run = (
            message.life,
            from_memory.is_some_and(|first| message.file >= first),
        );
        if let Some((place, sequence)) = last.insert(run, (arrival.place, message.sequence))
            && place > arrival.place
        {
            let what = format!(
                "{topic}: message {} of publisher {} comes after message {sequence}, which arrived later",
                message.sequence, message.life
            );
            return Err(Violation::new(Invariant::Order, what));
        }
    }
    Ok(())
}
