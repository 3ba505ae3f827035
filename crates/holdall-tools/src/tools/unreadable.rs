//! Counts of unreadable messages of damaged inputs, by topic, when the damage itself does not show which topics are affected.

use super::left_out::Damage;
use holdall_bag::reader::{Bag, BagFile};
use holdall_model::time::Timestamp;
use holdall_storage::reader::{ReadOrder, ReadQuery};
use std::collections::BTreeMap;

/// Messages of the inputs that cannot be read, by topic. `span` has the first and the last time of those that are selected: what may be of
/// this time counts. Damage of unknown topics is counted by reading the files once more.
pub(super) fn unreadable_by_topic(
    damage: &Damage,
    bags: &[Bag],
    span: (Option<Timestamp>, Option<Timestamp>),
) -> BTreeMap<String, u64> {
    let mut unreadable = damage.by_topic().clone();
    if !damage.is_of_unknown_topics(span) {
        return unreadable;
    }
    let mut unfound = BTreeMap::new();
    for file in bags.iter().flat_map(Bag::files) {
        add_unfound(file, &mut unfound);
    }
    for (topic, count) in unfound {
        let known = unreadable.entry(topic).or_default();
        *known = count.max(*known);
    }
    unreadable.retain(|_, count| *count > 0);
    unreadable
}

/// Adds the messages that a file lists and does not deliver. A file that cannot be opened lists nothing.
fn add_unfound(file: &BagFile, unfound: &mut BTreeMap<String, u64>) {
    let Ok(reader) = file.open() else {
        return;
    };
    let channels = &reader.summary().channels;
    let query = ReadQuery {
        order: ReadOrder::File,
        ..ReadQuery::default()
    };
    let mut found = vec![0; channels.len()];
    for message in reader.messages(&query).into_iter().flatten().flatten() {
        if let Some(count) = found.get_mut(message.channel.0 as usize) {
            *count += 1;
        }
    }
    for (channel, found) in channels.iter().zip(found) {
        *unfound.entry(channel.info.topic.name.clone()).or_default() +=
            channel.message_count.saturating_sub(found);
    }
}
