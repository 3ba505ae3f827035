//! The losses of topics, from the accounts of the bags.

use super::{PlotError, columns::Lane};
use holdall_bag::reader::{BagSet, LossSpan};
use holdall_model::loss::ledger::TopicAccount;

/// Losses of one lane that are drawn.
const LOSSES_MAX: usize = 2000;

/// The losses in the accounts of the bags.
pub(super) fn add_losses(bags: &BagSet, lanes: &mut [Lane]) -> Result<(), PlotError> {
    for bag in bags.bags() {
        let Some(ledger) = bag.any_ledger()? else { continue };
        for account in &ledger.topics {
            if let Some(lane) = lanes.iter_mut().find(|lane| lane.name == account.name) {
                add_losses_of(account, lane);
            }
        }
    }
    Ok(())
}

fn add_losses_of(account: &TopicAccount, lane: &mut Lane) {
    let missing = account.missing.iter().filter(|(stage, _)| stage.is_shortfall());
    lane.lost += missing.map(|(_, count)| count).sum::<u64>();
    let room = LOSSES_MAX.saturating_sub(lane.losses.len());
    lane.losses.extend(LossSpan::of(account).take(room));
    lane.losses.sort_by_key(|loss| loss.from);
}
