//! The account of a rescued recording: messages missing according to its log, and messages in the bag and from memory.

use super::{
    Found, RecordedFile,
    catalog::{Catalog, Publisher, Topic},
};
use holdall_model::{
    loss::{
        LossStage,
        ledger::{
            AFTER_ARRIVAL, Interval, Ledger, Loss, MissingFile, PublisherAccount, PublisherIndex,
            TopicAccount,
        },
    },
    topic::{PublisherInfo, TopicId},
};
use holdall_storage::{
    reader::{ReadOrder, ReadQuery},
    writer::ChannelIndex,
};
use std::collections::{BTreeMap, HashMap};

/// Messages by topic's name and publisher's identifier; without one where the bag does not distinguish
/// publishers.
type Counts = HashMap<(String, Option<String>), u64>;

fn counts_of<F: RecordedFile>(files: &[F]) -> Result<Counts, F::Error> {
    let mut counts = Counts::new();
    for file in files {
        for channel in &file.open()?.summary().channels {
            let topic = &channel.info.topic;
            let gid = topic.publisher.as_ref().map(|publisher| publisher.gid.clone());
            *counts.entry((topic.name.clone(), gid)).or_insert(0) += channel.message_count;
        }
    }
    Ok(counts)
}

/// Whether the first file of the recording exists. A process that dies while the ring of files removes the oldest has not logged
/// the removal.
fn has_first<F: RecordedFile>(files: &[F]) -> bool {
    let is_first = |file: &F| {
        let name = file.path().file_name().map(|name| name.to_string_lossy());
        let number = name.as_deref().and_then(|name| name.rsplit_once('_'));
        number.is_some_and(|(_, number)| number == "0" || number.starts_with("0."))
    };
    files.is_empty() || files.iter().any(is_first)
}

/// The messages in memory, by what became of them.
#[derive(Default)]
pub(super) struct Sorted {
    /// The bag gets them.
    pub messages: Vec<Found>,
    /// In the bag, and may have been counted as dropped before: a recorder that was killed while it dropped them had them still.
    pub kept: Vec<(TopicId, PublisherIndex, Option<u64>)>,
    /// In memory by their header only.
    pub lost: Vec<(TopicId, PublisherIndex, Interval)>,
}

/// The account of a bag that has these files and gets the messages of `sorted`; `all` were in memory.
pub(super) fn ledger<F: RecordedFile>(
    catalog: &Catalog,
    all: &[Found],
    files: &[F],
    sorted: &Sorted,
) -> Result<Ledger, F::Error> {
    let mut counts = counts_of(files)?;
    for Found { entry, .. } in &sorted.messages {
        if let Some(topic) = catalog.topics.get(&entry.topic) {
            let place = topic.publisher(entry.publisher.0);
            let gid = place.and_then(|place| topic.publishers[place].gid.clone());
            let gid = gid.filter(|_| !catalog.merge_publishers);
            *counts.entry((topic.info.name.clone(), gid)).or_insert(0) += 1;
        }
    }
    let (mut ledger, mut unfound) = (Ledger::new(), BTreeMap::new());
    for (id, topic) in &catalog.topics {
        if topic.info.name.is_empty() {
            continue;
        }
        let kept = sorted.kept.iter().filter(|(of, ..)| of == id);
        let kept = kept.filter_map(|(_, publisher, sequence)| Some((publisher.0, (*sequence)?)));
        let lost = sorted.lost.iter().filter(|(of, ..)| of == id);
        let lost = lost.map(|(_, publisher, interval)| (publisher.0, *interval));
        let begins = if catalog.merge_publishers || !has_first(files) {
            Vec::new()
        } else {
            begins_of(*id, topic, &sorted.messages, files)?
        };
        let (account, count) = account_of(
            topic,
            kept,
            lost,
            begins,
            &last_numbers(all, *id, topic),
            &mut counts,
        );
        if count > 0 {
            unfound.insert(account.name.clone(), count);
        }
        ledger.topics.push(account);
    }
    if !unfound.is_empty() {
        ledger.missing_files.push(MissingFile::unnamed(unfound));
    }
    if catalog.is_incomplete {
        let last = all.iter().map(|found| found.entry.log_time).max();
        ledger.checkpoint = last.or(Some(holdall_model::time::Timestamp::from_nanos(0)));
    }
    Ok(ledger)
}

/// The highest sequence number of each publisher's messages in memory, by place.
fn last_numbers(all: &[Found], id: TopicId, topic: &Topic) -> BTreeMap<usize, u64> {
    let mut last = BTreeMap::new();
    for Found { entry, .. } in all.iter().filter(|found| found.entry.topic == id) {
        if let (Some(place), Some(number)) = (topic.publisher(entry.publisher.0), entry.sequence) {
            let highest = last.entry(place).or_insert(number);
            *highest = number.max(*highest);
        }
    }
    last
}

/// The number of a message that had been counted as missing and came last: the process may have died before it was stored. What was counted
/// after it may be what the cache dropped to make room for it.
fn last_late(publisher: &Publisher) -> Option<u64> {
    let makes_room =
        |loss: &&Loss| matches!(loss, Loss::Missing(interval) if AFTER_ARRIVAL.contains(&interval.stage));
    match publisher.losses.iter().rev().find(|loss| !makes_room(loss))? {
        Loss::Late(sequence) => Some(*sequence),
        Loss::Missing(_) => None,
    }
}

/// Whether a publisher's message is in these files.
fn is_in_files<F: RecordedFile>(
    files: &[F],
    topic: &str,
    publisher: &Publisher,
    sequence: u64,
) -> Result<bool, F::Error> {
    for file in files {
        let reader = file.open()?;
        let channels = reader.summary().channels.iter().enumerate();
        let its = channels.filter(|(_, channel)| {
            let of = &channel.info.topic;
            let is_other = |info: &PublisherInfo| Some(&info.gid) != publisher.gid.as_ref();
            of.name == topic && !of.publisher.as_deref().is_some_and(is_other)
        });
        let query = ReadQuery {
            channels: Some(its.map(|(index, _)| ChannelIndex(index as u32)).collect()),
            order: ReadOrder::File,
            ..ReadQuery::default()
        };
        // Unreadable messages count as missing, and the files have the low 32 bits.
        let mut messages = reader.messages(&query).into_iter().flatten().flatten();
        if messages.any(|message| message.sequence == sequence as u32) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// First sequence numbers of a topic's publishers, by place; none if the log does not have the range of numbers that a publisher's account
/// covers. `in_memory` are the messages that the bag gets, next to those in its files.
fn begins_of<F: RecordedFile>(
    id: TopicId,
    topic: &Topic,
    in_memory: &[Found],
    files: &[F],
) -> Result<Vec<(usize, u64)>, F::Error> {
    let mut begins = Vec::new();
    for (place, publisher) in topic.publishers.iter().enumerate() {
        // The bag keeps one count per identifier, which covers every life of a publisher that has restarted.
        let namesakes = topic.publishers.iter().filter(|other| other.gid == publisher.gid);
        let Some(first) = publisher.first.filter(|_| namesakes.count() == 1) else {
            continue;
        };
        let is_stored = match last_late(publisher) {
            None => true,
            Some(late) => {
                let is_match = |Found { entry, .. }: &Found| {
                    let is_its = topic.publisher(entry.publisher.0) == Some(place);
                    is_its && entry.topic == id && entry.sequence == Some(late)
                };
                in_memory.iter().any(is_match) || is_in_files(files, &topic.info.name, publisher, late)?
            }
        };
        if is_stored {
            begins.push((place, first));
        }
    }
    Ok(begins)
}

/// How many messages the publishers of a topic have sent by their numbers, from the first to the last; `None` if unknown of each.
fn numbered_until(
    account: &TopicAccount,
    begins: &[(usize, u64)],
    last: &BTreeMap<usize, u64>,
) -> Option<u64> {
    let of_each = begins.iter().map(|(place, first)| {
        let missing = account.publishers.get(*place)?.intervals.iter();
        let first = missing
            .filter_map(|interval| interval.first_sequence)
            .fold(*first, u64::min);
        last.get(place)?.checked_sub(first)?.checked_add(1)
    });
    of_each.sum()
}

/// A topic's account, and how many messages are nowhere by the numbers of its publishers: their file is gone.
fn account_of(
    topic: &Topic,
    kept: impl Iterator<Item = (u32, u64)>,
    lost: impl Iterator<Item = (u32, Interval)>,
    begins: Vec<(usize, u64)>,
    last: &BTreeMap<usize, u64>,
    counts: &mut Counts,
) -> (TopicAccount, u64) {
    let mut account = TopicAccount::default();
    account.name.clone_from(&topic.info.name);
    (account.loss_unknown, account.expired) = (topic.loss_unknown, topic.expired);
    for publisher in &topic.publishers {
        let mut known = PublisherAccount {
            gid: publisher.gid.clone(),
            node: publisher.node.clone(),
            host: publisher.host.clone(),
            transport: publisher.transport.clone(),
            type_name: publisher.type_name.clone(),
            end_unknown: publisher.silent_since.is_some(),
            silent_since: publisher.silent_since,
            ..PublisherAccount::default()
        };
        known.recorded = counts
            .remove(&(account.name.clone(), publisher.gid.clone()))
            .unwrap_or(0);
        account.put_in(known, &publisher.losses);
    }
    for (number, sequence) in kept {
        account.find_of(topic.publisher(number), sequence);
    }
    for (number, interval) in lost {
        account.miss_of(topic.publisher(number), interval);
    }
    // Messages in the bag that come from other publishers or are not distinguished, and messages that the ring of files has
    // removed.
    let others = counts.extract_if(|(name, _), _| *name == account.name);
    let others: u64 = others.map(|(_, count)| count).sum();
    let (mut unfound, mut nameless) = (0, Vec::new());
    if others == 0 && account.expired == 0 {
        for (place, first) in begins {
            unfound += account.lose_until(place, first, last.get(&place).copied());
        }
    } else if account.expired == 0 && begins.len() == topic.publishers.len() {
        unfound = numbered_until(&account, &begins, last).map_or(0, |sent| {
            let known = account.publishers.iter().map(PublisherAccount::missing_total);
            let named = account.publishers.iter().map(|publisher| publisher.recorded);
            sent.saturating_sub(known.chain(named).sum::<u64>().saturating_add(others))
        });
        nameless
            .extend((unfound > 0).then(|| Loss::Missing(Interval::of_unknown(LossStage::Storage, unfound))));
    }
    let others = others.saturating_add(account.expired);
    if others > 0 {
        let known = PublisherAccount {
            recorded: others,
            ..PublisherAccount::default()
        };
        account.put_in(known, &nameless);
    }
    account.close();
    (account, unfound)
}
