//! Judges the ends of publishers in the account: known only if nothing after the end is missing, and known if the publisher answers.

use crate::{
    account::account_of,
    aftermath::Aftermath,
    network::Life,
    plan::Plan,
    verdict::{Invariant, Violation},
};
use holdall_model::loss::ledger::{Ledger, PublisherAccount};

/// Longest time between a publisher's last sign of life and a later message, in nanoseconds: delays in transit, and waits for the processor.
const LATE_MAX: i64 = 500_000_000;

/// The ends of publishers, as they know them.
pub struct ExpectedEnds {
    /// Number of messages that each had sent when the user requested the end, by publisher number; later ones are not
    /// counted.
    pub sent: Vec<usize>,
    /// Whether each would have answered at the end, by publisher number.
    pub answering: Vec<bool>,
}

/// Number of messages of a publisher that must be accounted for, if the account claims to know its end.
pub fn claimed(
    plan: &Plan,
    after: &Aftermath,
    number: usize,
    account: Option<&PublisherAccount>,
) -> Option<u64> {
    plan.signs?;
    let ends = after.ends.as_ref()?;
    let life = after.lives.get(number)?;
    let claims = account.is_some_and(|account| !account.end_unknown);
    (claims && life.was_matched).then(|| ends.sent.get(number).map_or(0, |count| *count as u64))
}

/// Judges each publisher's end in the account.
///
/// # Errors
/// The first publisher that is called silent but was never lost, is not heard any more but not called
/// silent, or answered but has an unknown end.
pub fn judge(plan: &Plan, after: &Aftermath, ledger: &Ledger) -> Result<(), Violation> {
    let Some(ends) = after.ends.as_ref().filter(|_| plan.signs.is_some()) else {
        return Ok(());
    };
    for (number, life) in after.lives.iter().enumerate() {
        let Some(account) = account_of(ledger, life) else {
            continue;
        };
        let answers = ends.answering.get(number) == Some(&true);
        if let Err(what) = judge_one(life, account, answers, after.clocks.was_set) {
            let what = format!("publisher {number} ({}): {what}", life.topic);
            return Err(Violation::new(Invariant::Ends, what));
        }
    }
    Ok(())
}

fn judge_one(life: &Life, account: &PublisherAccount, answers: bool, clock_set: bool) -> Result<(), String> {
    if answers && account.end_unknown {
        return Err("it answered, and its end is called unknown".to_owned());
    }
    if life.is_expired && account.end_unknown && account.silent_since.is_none() {
        return Err("it is not heard any more, and is not called silent".to_owned());
    }
    let Some(since) = account.silent_since else {
        return Ok(());
    };
    if !account.end_unknown {
        return Err("it is called silent, and its end is called known".to_owned());
    }
    // A publisher that no request fits does not answer.
    if !life.was_matched {
        return Ok(());
    }
    let Some((at, lost)) = life.lost else {
        return Err(format!(
            "it is called silent since {} ns, and was there",
            since.as_nanos()
        ));
    };
    // Messages in flight arrive after it.
    let arrivals = life.sent.iter().filter_map(|sent| sent.arrival);
    let last = arrivals.map(|arrival| arrival.at.saturating_sub(at)).max();
    let in_flight = last.map_or(0, |last| i64::try_from(last.as_nanos()).unwrap_or(i64::MAX));
    if !clock_set && since.as_nanos() > lost.as_nanos() + in_flight + LATE_MAX {
        return Err(format!(
            "it is called silent since {} ns, and was lost at {} ns",
            since.as_nanos(),
            lost.as_nanos()
        ));
    }
    Ok(())
}
