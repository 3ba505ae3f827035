//! The accounts of the inputs' recordings: what was lost then stays known, whatever is made of the bags.

use super::ToolError;
use crate::{
    reader::BagReader,
    record::ledger::{LEDGER_KEY, LEDGER_RECORD, Ledger, TopicAccount},
    writer::STATE_KEY,
};
use holdall_storage::writer::MetadataEntries;
use std::collections::{BTreeMap, BTreeSet};

/// The record of rosbag2's metadata, which is made anew for each output.
const ROSBAG2_RECORD: &str = "rosbag2";
/// What entries of `custom_data` begin with that tell of losses.
const LOST_KEY: &str = "holdall.lost";

/// What goes from the inputs into the output besides messages.
#[derive(Clone, Debug, Default)]
pub(super) struct Accounts {
    /// Named text records: the ledgers as one, and whatever others have written.
    pub records: Vec<(String, MetadataEntries)>,
    /// Entries for `custom_data`.
    pub custom_data: BTreeMap<String, String>,
    /// The newest distribution that an input names.
    pub ros_distro: String,
}

/// Gathers what the inputs tell. A topic that is not taken takes its account with it: what is left out on request is no loss, and
/// what was lost of it is none of this bag.
pub(super) fn gather(
    bags: &[BagReader],
    takes: &dyn Fn(&str) -> bool,
    more_custom_data: &BTreeMap<String, String>,
) -> Result<Accounts, ToolError> {
    let mut accounts = Accounts::default();
    let mut ledger: Option<Ledger> = None;
    let mut seen = BTreeSet::new();
    for bag in bags {
        let metadata = bag.metadata();
        if !metadata.ros_distro.is_empty() {
            accounts.ros_distro.clone_from(&metadata.ros_distro);
        }
        for (key, value) in &metadata.custom_data {
            if key != STATE_KEY && !key.starts_with(LOST_KEY) {
                accounts
                    .custom_data
                    .entry(key.clone())
                    .or_insert_with(|| value.clone());
            }
        }
        let mut newest = None;
        for file in bag.files() {
            for (name, entries) in &file.open()?.summary().metadata {
                if name == LEDGER_RECORD {
                    newest = Some((file.path.clone(), entries.clone()));
                } else if name != ROSBAG2_RECORD && seen.insert((name.clone(), entries.clone())) {
                    accounts.records.push((name.clone(), entries.clone()));
                }
            }
        }
        // The last file carries the account of the whole recording.
        if let Some((path, entries)) = newest {
            let text = entries.get(LEDGER_KEY).map(String::as_str).unwrap_or_default();
            let found: Ledger = serde_json::from_str(text).map_err(|error| ToolError::Unsupported {
                path,
                reason: format!("its loss ledger cannot be read: {error}"),
            })?;
            add(ledger.get_or_insert_with(Ledger::new), found, takes);
        }
    }
    if let Some(ledger) = ledger {
        accounts.custom_data.extend(ledger.custom_data());
        let text = serde_json::to_string(&ledger).unwrap_or_default();
        let entries = MetadataEntries::from([(LEDGER_KEY.to_owned(), text)]);
        accounts.records.push((LEDGER_RECORD.to_owned(), entries));
    }
    accounts.custom_data.extend(
        more_custom_data
            .iter()
            .map(|(key, value)| (key.clone(), value.clone())),
    );
    Ok(accounts)
}

/// Adds the accounts of one recording to those of others: topics of the same name become one with the publishers of both.
fn add(all: &mut Ledger, one: Ledger, takes: &dyn Fn(&str) -> bool) {
    one.restarts
        .into_iter()
        .for_each(|restart| all.restarted(restart));
    all.restarts_left_out += one.restarts_left_out;
    for topic in one.topics.into_iter().filter(|topic| takes(&topic.name)) {
        match all.topics.iter_mut().find(|known| known.name == topic.name) {
            Some(known) => merge(known, topic),
            None => all.topics.push(topic),
        }
    }
}

fn merge(known: &mut TopicAccount, topic: TopicAccount) {
    known.recorded += topic.recorded;
    known.recorded_bytes += topic.recorded_bytes;
    known.removed += topic.removed;
    for (stage, count) in topic.missing {
        *known.missing.entry(stage).or_default() += count;
    }
    known.loss_unknown |= topic.loss_unknown;
    known.publishers.extend(topic.publishers);
    match (&mut known.folded, topic.folded) {
        (Some(all), Some(one)) => {
            all.publishers += one.publishers;
            all.sent += one.sent;
            all.sent_before += one.sent_before;
            all.received += one.received;
            all.recorded += one.recorded;
            all.duplicates += one.duplicates;
            for (stage, count) in one.missing {
                *all.missing.entry(stage).or_default() += count;
            }
        }
        (all, one) => *all = all.take().or(one),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdall_model::loss::LossStage;

    fn ledger(topics: &[(&str, u64)]) -> Ledger {
        let mut ledger = Ledger::new();
        for (name, lost) in topics {
            ledger.add_topic(name);
            let topic = ledger.topics.last_mut().unwrap();
            topic.recorded = 10;
            topic.missing = [(LossStage::Transport, *lost)].into();
        }
        ledger
    }

    #[test]
    fn accounts_of_the_same_topic_are_added_and_of_topics_left_out_dropped() {
        let mut all = Ledger::new();
        add(&mut all, ledger(&[("/a", 1), ("/b", 2)]), &|name| name != "/b");
        add(&mut all, ledger(&[("/a", 3), ("/c", 4)]), &|name| name != "/b");
        let found: Vec<_> = all
            .topics
            .iter()
            .map(|topic| {
                (
                    topic.name.as_str(),
                    topic.recorded,
                    topic.missing[&LossStage::Transport],
                )
            })
            .collect();
        assert_eq!(found, [("/a", 20, 4), ("/c", 10, 4)]);
    }
}
