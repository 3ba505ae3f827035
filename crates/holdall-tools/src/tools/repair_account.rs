//! The account of a repaired bag: of the whole recording if it exists, else rebuilt from the remaining messages and known losses.

use holdall_bag::reader::{Bag, Gone, is_account_sum};
use holdall_model::{
    loss::ledger::{LEDGER_CUSTOM_KEY, Ledger, TopicAccount},
    time::Timestamp,
};
use std::collections::BTreeMap;

/// Removes the sums of an account from a bag's metadata, and the account itself if it gets a new one.
pub(super) fn remove_from(custom_data: &mut BTreeMap<String, String>, has_new: bool) {
    custom_data.retain(|key, _| !(is_account_sum(key) || has_new && key == LEDGER_CUSTOM_KEY));
}

/// The sums that the metadata of a bag gets with this account, or with its own if that is right.
pub(super) fn sums_of(bag: &Bag, account: Option<&Ledger>) -> BTreeMap<String, String> {
    match account {
        Some(account) => account.custom_data(),
        None if bag.has_own_sums().unwrap_or(true) => bag.account_sums(),
        None => bag
            .last_ledger()
            .ok()
            .flatten()
            .map_or_else(BTreeMap::new, |ledger| ledger.custom_data()),
    }
}

/// Adds lost messages to an account that covers everything recorded.
pub(super) fn charge(gone: &Gone, ledger: &mut Ledger) {
    let topics = ledger.topics.iter();
    let left = topics.map(|topic| (topic.name.clone(), topic.in_bag())).collect();
    gone.charge(ledger, &left);
}

/// The account that a bag gets; `None` if it has the right one, or its recorder kept none.
pub(super) fn account_of(bag: &Bag) -> Option<Ledger> {
    match bag.last_ledger().ok().flatten() {
        Some(_) if bag.gone().is_none() => None,
        Some(_) => bag.any_ledger().ok().flatten(),
        None => {
            let checkpoint = bag.kept_ledger().ok().flatten();
            if checkpoint.is_none() && bag.lost_by_metadata().is_none() {
                // Its recorder kept no account: only later losses can be counted.
                return bag.any_ledger().ok().flatten();
            }
            let mut ledger = reconstructed(bag, checkpoint.unwrap_or_default());
            charge(bag.gone(), &mut ledger);
            Some(ledger)
        }
    }
}

/// A ledger of the remaining messages, with the losses known to its last checkpoint and the metadata. It is a checkpoint itself: further
/// losses are unknown, because the recorder was ended before it could log them, or the end of the account is gone.
fn reconstructed(bag: &Bag, known: Ledger) -> Ledger {
    let (metadata, repeated, hidden) = (bag.metadata(), bag.copies_by_topic(), bag.hidden_by_topic());
    let count = |counts: &BTreeMap<String, u64>, name: &str| counts.get(name).copied().unwrap_or(0);
    let mut ledger = Ledger::new();
    let described = bag.lost_by_metadata().unwrap_or_default();
    let mut names: Vec<&String> = Vec::new();
    let topics = metadata.topics_with_message_count.iter();
    let topics = topics.map(|topic| &topic.topic_metadata.name);
    for name in topics.chain(described.keys()) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    ledger.topics = names
        .into_iter()
        .map(|name| {
            let mut account = TopicAccount::default();
            account.name.clone_from(name);
            account.repeated = count(&repeated, name);
            let shown_copies = account.repeated - count(&hidden, name);
            let of_types = metadata.topics_with_message_count.iter();
            let of_types = of_types.filter(|topic| topic.topic_metadata.name == *name);
            let messages: u64 = of_types.map(|topic| topic.message_count).sum();
            account.recorded = messages.saturating_sub(shown_copies);
            if let Some(before) = known.topics.iter().find(|before| before.name == *name) {
                account.missing.clone_from(&before.missing);
                account.loss_unknown = before.loss_unknown;
            }
            for (stage, count) in described.get(name).into_iter().flatten() {
                let known = account.missing.entry(*stage).or_default();
                *known = (*known).max(*count);
            }
            account
        })
        .collect();
    let start = metadata.starting_time.unwrap_or(Timestamp::from_nanos(0));
    ledger.checkpoint = Some(start.saturating_add(metadata.duration));
    ledger.restarts = known.restarts;
    ledger.restarts_left_out = known.restarts_left_out;
    ledger.missing_files = known.missing_files;
    ledger
}
