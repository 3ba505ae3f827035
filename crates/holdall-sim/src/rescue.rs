//! Judges the remains of a dead process: after `holdall repair` every message that it had received is in the bag, and the account is
//! exact.

use crate::{
    account,
    aftermath::Aftermath,
    death::Death,
    judge::judge_bag,
    network::LOAN_BYTES_MIN,
    plan::{DefinitionPlan, Plan, TOPICS},
    verdict::{Invariant, Violation},
};
use holdall::{
    internals::{POINTER_FILE, SegmentShape},
    reader::{AccountKind, Bag, BagAudit, BagSet, MessageFilter},
    tools::repair::{RepairError, repair},
};
use holdall_io::sim::SimRng;
use holdall_model::topic::DefinitionEncoding;
use holdall_storage::StorageError;
use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs, io,
    path::{Path, PathBuf},
};

/// Payloads of this length and more have their header only in memory that survives, in bytes.
pub fn lent_from(plan: &Plan) -> usize {
    let shape = SegmentShape::for_cache(plan.options.cache.bytes_max);
    (shape.copy_bytes_max() + 1).min(LOAN_BYTES_MIN)
}

fn broken(what: impl Into<String>) -> Violation {
    Violation::new(Invariant::Rescued, what)
}

/// Checks the bag of a dead process, which is in `bag`, before and after its repair.
///
/// # Errors
/// The first broken invariant.
pub fn judge(plan: &Plan, after: &Aftermath, death: &Death, bag: &Path) -> Result<(), Violation> {
    let failed = |error: io::Error| Violation::new(Invariant::Runs, error.to_string());
    let mut rng = SimRng::new(plan.seed ^ 0x0d1e_d000);
    let kept = bag.with_file_name("memory-kept");
    fs::hard_link(&death.memory, &kept).map_err(failed)?;
    let torn = contents(bag).map_err(failed)?;
    let readable = readable(bag)?;
    let repaired = repaired(bag)?;
    judge_repaired(plan, after, &repaired, readable)?;
    let left = [bag.join(POINTER_FILE), death.memory.clone()];
    if repaired != bag {
        return Ok(());
    }
    if let Some(left) = left.iter().find(|path| path.exists()) {
        return Err(broken(format!(
            "{} still exists after the repair",
            left.display()
        )));
    }
    // The repair dies too, anywhere in the file that it makes, and is begun again.
    let made = contents(bag).map_err(failed)?;
    let made = made.into_iter().find(|(name, _)| !torn.contains_key(name));
    if let (Some((name, bytes)), true) = (made, rng.chance(300_000)) {
        fs::remove_dir_all(bag)
            .and_then(|()| fs::create_dir(bag))
            .map_err(failed)?;
        let part = rng.below(bytes.len() as u64) as usize;
        for (name, bytes) in torn
            .iter()
            .map(|(name, bytes)| (name, &bytes[..]))
            .chain([(&name, &bytes[..part])])
        {
            fs::write(bag.join(name), bytes).map_err(failed)?;
        }
        fs::rename(&kept, &death.memory).map_err(failed)?;
        let again = self::repaired(bag).and_then(|again| judge_repaired(plan, after, &again, readable));
        again.map_err(|Violation { invariant, what }| {
            let what =
                format!("{what} (repaired again, when the first repair had made {part} bytes of a file)");
            Violation::new(invariant, what)
        })?;
    }
    Ok(())
}

fn contents(bag: &Path) -> io::Result<BTreeMap<OsString, Vec<u8>>> {
    fs::read_dir(bag)?
        .map(|entry| {
            let entry = entry?;
            Ok((entry.file_name(), fs::read(entry.path())?))
        })
        .collect()
}

/// How many messages a reader finds before the repair; `None` when nothing of the bag opens, because its first file has no beginning.
fn readable(bag: &Path) -> Result<Option<usize>, Violation> {
    let Ok(reader) = Bag::open(bag) else {
        return Ok(None);
    };
    let set = BagSet::from(vec![reader]);
    let mut count = 0;
    for message in set.messages(&MessageFilter::default()) {
        message.map_err(|error| Violation::new(Invariant::Opens, error.to_string()))?;
        count += 1;
    }
    Ok(Some(count))
}

/// Repairs it in place, or as a copy where it must be one.
fn repaired(bag: &Path) -> Result<PathBuf, Violation> {
    match repair(bag, None, &mut |_, _| ()) {
        Ok(report) if report.problem_count > 0 => {
            Err(Violation::new(Invariant::Sound, report.problems.join("; ")))
        }
        Ok(_) => Ok(bag.to_owned()),
        Err(RepairError::Storage(StorageError::NotInPlace { .. })) => {
            let output = bag.with_file_name("repaired");
            repair(bag, Some(&output), &mut |_, _| ())
                .map(|_| output)
                .map_err(|error| Violation::new(Invariant::Repair, format!("as a copy: {error}")))
        }
        Err(error) => Err(Violation::new(Invariant::Repair, error.to_string())),
    }
}

fn judge_repaired(
    plan: &Plan,
    after: &Aftermath,
    bag: &Path,
    readable: Option<usize>,
) -> Result<(), Violation> {
    crate::repair::check(bag)?;
    let mut found = judge_bag(plan, after, bag)?;
    let whole = found.messages.len();
    found.messages.retain(|(message, _)| message.is_whole());
    if let Some(readable) = readable
        && readable != whole
        && !plan.leaves_holes()
    {
        return Err(broken(format!(
            "{readable} messages could be read before the repair, {whole} after it"
        )));
    }
    let opened = Bag::open(bag).map_err(|error| Violation::new(Invariant::Opens, error.to_string()))?;
    judge_definitions(&opened)?;
    let ledger = opened.any_ledger().map_err(|error| broken(error.to_string()))?;
    let Some(ledger) = ledger else {
        return Err(broken("the repaired bag has no account"));
    };
    if after.disk_failed || plan.breaks_disk() {
        // The content of a failed disk is known only at the end of a recording.
        return Ok(());
    }
    account::judge(plan, after, &found, &ledger)?;
    if plan.leaves_holes() {
        return Ok(());
    }
    let audit = BagAudit::of(&opened).map_err(|error| broken(error.to_string()))?;
    if audit.account != AccountKind::Final {
        return Err(broken(format!(
            "the account of the repaired bag is not final: {:?}",
            audit.account
        )));
    }
    match audit.faults.first() {
        Some(fault) => Err(Violation::new(Invariant::Balanced, fault)),
        None => Ok(()),
    }
}

/// Topics with a definition known to the program are decodable after a rescue, too.
fn judge_definitions(bag: &Bag) -> Result<(), Violation> {
    for file in bag.files() {
        let reader = file
            .open()
            .map_err(|error| Violation::new(Invariant::Opens, error.to_string()))?;
        for channel in &reader.summary().channels {
            let topic = &channel.info.topic;
            let is_known = TOPICS
                .iter()
                .any(|known| known.name == topic.name && known.definition == DefinitionPlan::Bundled);
            if is_known && channel.info.definition.encoding == DefinitionEncoding::Unknown {
                return Err(broken(format!("{}: its definition is gone", topic.name)));
            }
        }
    }
    Ok(())
}
