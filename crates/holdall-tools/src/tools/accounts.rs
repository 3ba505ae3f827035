//! The accounts of the inputs' recordings: the outputs keep the known losses.

use super::{
    ToolError,
    narrowing::{TopicCount, narrow},
    relabel::Relabel,
};
use holdall_bag::{
    reader::{Bag, DAMAGED_KEY, PublisherChoice, damage, is_account_sum},
    writer::{SEALED_KEY, STATE_KEY},
};
use holdall_io::fs;
use holdall_model::{
    contract::{CONTRACT_CUSTOM_KEY, CONTRACT_RECORD},
    loss::ledger::{
        CHECKPOINT_RECORD, LEDGER_CUSTOM_KEY, LEDGER_KEY, LEDGER_RECORD, Ledger, MissingFile,
        PublisherAccount, TopicAccount,
    },
    marker::{MARKER_RECORD, MARKERS_CUSTOM_KEY, Marker},
    metadata::{BagMetadata, MEMORY_KEY},
    recoding::{RECODED_CUSTOM_KEY, RECODED_RECORD, Recoding},
    repeated::{REPEATED_CUSTOM_KEY, REPEATED_RECORD},
    time::Timestamp,
    topic::TopicId,
    unheard::{
        NOT_HEARD_CUSTOM_KEY, UNHEARD_SERVICES_CUSTOM_KEY, names_to_custom_data, not_heard_in,
        not_heard_to_custom_data, unheard_services_in,
    },
};
use holdall_storage::writer::MetadataEntries;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The record with rosbag2's metadata, which is rewritten for each output.
const ROSBAG2_RECORD: &str = "rosbag2";

/// Entries of `custom_data` that each output makes itself.
const OWN_KEYS: [&str; 10] = [
    DAMAGED_KEY,
    STATE_KEY,
    SEALED_KEY,
    MEMORY_KEY,
    LEDGER_CUSTOM_KEY,
    MARKERS_CUSTOM_KEY,
    UNHEARD_SERVICES_CUSTOM_KEY,
    NOT_HEARD_CUSTOM_KEY,
    REPEATED_CUSTOM_KEY,
    RECODED_CUSTOM_KEY,
];

/// Data that the output inherits from the inputs in addition to messages.
#[derive(Clone, Debug, Default)]
pub(super) struct Accounts {
    /// Named text records of other programs.
    records: Vec<(String, MetadataEntries)>,
    /// The merged ledgers; `None` if no input has one.
    ledger: Option<Ledger>,
    /// Number of the inputs' messages by topic, without those of publishers that are not selected.
    counts: BTreeMap<String, InputCount>,
    /// Damage in the inputs' files, one sentence each.
    pub damages: Vec<String>,
    /// Entries for `custom_data`.
    pub custom_data: BTreeMap<String, String>,
    /// The newest distribution that an input names.
    pub ros_distro: Option<String>,
}

/// Messages of a topic in the inputs.
#[derive(Clone, Copy, Debug, Default)]
struct InputCount {
    /// All messages.
    all: u64,
    /// Messages of selected types: a topic name may have several types.
    taken: u64,
}

/// The selection from the inputs.
pub(super) struct Taken<'a> {
    /// Whether a topic is selected, by name and type.
    pub topic: &'a dyn Fn(&str, &str) -> bool,
    /// The selected publishers; `None` for all.
    pub publishers: Option<&'a PublisherChoice>,
    /// True if messages of selected topics and publishers may be left out: by time, rate or expression.
    pub is_partial: bool,
    /// True if fields, frames or definitions of messages are changed.
    pub is_changed: bool,
    /// The first and last selected log time in the output; `None` for the beginning and the end.
    pub span: [Option<Timestamp>; 2],
}

impl Taken<'_> {
    /// Whether it is all of these bags as they were, and they are one recording: what its contract said is true of the output, too.
    fn is_whole(&self, bags: &[Bag]) -> bool {
        let [bag] = bags else { return false };
        let mut topics = bag.metadata().topics_with_message_count.iter();
        let takes_all = topics.all(|topic| {
            let topic = &topic.topic_metadata;
            (self.topic)(&topic.name, &topic.type_name)
        });
        let is_part = self.publishers.is_some() || self.is_partial || self.span != [None; 2];
        takes_all && !is_part && !self.is_changed
    }
}

impl Accounts {
    /// The records that end the output; `written` has its number of messages by topic. A message that is
    /// missing in the output but was not left out on request gets no explanation: the audit of the output
    /// reports it. `repeated` has the number of messages that files repeat, which are not in `written`; `damaged` that of those that could
    /// not be read, as far as an index has it, by the output's names of topics: `None` if all could be read. What could not be read
    /// is lost in the account, too.
    pub fn records(
        &self,
        taken: &Taken<'_>,
        written: &BTreeMap<String, u64>,
        repeated: &BTreeMap<String, u64>,
        damaged: Option<&BTreeMap<String, u64>>,
    ) -> Vec<(String, MetadataEntries)> {
        let mut records = self.records.clone();
        if let Some(ledger) = &self.ledger {
            let mut ledger = ledger.clone();
            for topic in &mut ledger.topics {
                topic.repeated = repeated.get(&topic.name).copied().unwrap_or(0);
                let count = self.counts.get(&topic.name).copied().unwrap_or_default();
                topic.left_out += count.all - count.taken;
                if taken.is_partial {
                    let written = written.get(&topic.name).copied().unwrap_or(0);
                    let damaged = damaged.and_then(|damaged| damaged.get(&topic.name));
                    let damaged = damaged.copied().unwrap_or(0);
                    topic.left_out += count.taken.saturating_sub(written).saturating_sub(damaged);
                }
            }
            for (number, topic) in (0..)
                .map(TopicId)
                .zip(ledger.topics.clone())
                .filter(|_| damaged.is_some())
            {
                let written = written.get(&topic.name).copied().unwrap_or(0);
                ledger.lose_recorded(number, topic.in_bag().saturating_sub(written));
            }
            let entries = MetadataEntries::from([(LEDGER_KEY.to_owned(), ledger.to_json())]);
            records.push((LEDGER_RECORD.to_owned(), entries));
        }
        records
    }

    /// Number of the selected messages that the inputs' files list, by the output's names of topics.
    pub fn taken_by_topic(&self) -> impl Iterator<Item = (&str, u64)> {
        let counts = self.counts.iter();
        counts.map(|(name, count)| (name.as_str(), count.taken))
    }

    fn list_markers(&mut self, markers: Vec<Marker>) {
        if !markers.is_empty() {
            let list = Marker::list_to_json(&markers);
            self.custom_data.insert(MARKERS_CUSTOM_KEY.to_owned(), list);
        }
    }

    /// Gives counts and records the names and times of the output.
    fn relabel(&mut self, relabel: &Relabel) {
        let counts = std::mem::take(&mut self.counts).into_iter();
        self.counts = counts.map(|(name, count)| (relabel.name(&name), count)).collect();
        for (_, entries) in self.records.iter_mut().filter(|(name, _)| name == MARKER_RECORD) {
            if let Some(marker) = Marker::from_entries(entries) {
                *entries = relabel.relabel_marker(marker).entries();
            }
        }
    }

    /// Adds what the metadata of an input has and each output does not make itself.
    fn inherit(&mut self, metadata: &BagMetadata, keeps_contract: bool) {
        if metadata.ros_distro.is_some() {
            self.ros_distro.clone_from(&metadata.ros_distro);
        }
        let is_own = |key: &str| match key {
            CONTRACT_CUSTOM_KEY => !keeps_contract,
            _ => OWN_KEYS.contains(&key) || is_account_sum(key),
        };
        for (key, value) in metadata.custom_data.iter().filter(|(key, _)| !is_own(key)) {
            let entry = self.custom_data.entry(key.clone());
            entry.or_insert_with(|| value.clone());
        }
    }

    /// Counts an input's messages and collects other programs' records, and those of its contract if that is kept. Returns the counts by topic.
    fn read_files(
        &mut self,
        bag: &Bag,
        (taken, keeps_contract): (&Taken<'_>, bool),
        seen: &mut BTreeSet<(String, MetadataEntries)>,
    ) -> Result<BTreeMap<String, TopicCount>, ToolError> {
        let mut counts: BTreeMap<String, TopicCount> = BTreeMap::new();
        for file in bag.files() {
            let reader = file.open()?;
            let summary = reader.summary();
            // A torn end is not damage in a file that is being written.
            if bag.writer().is_none() {
                self.damages.extend(damage(summary));
            }
            for channel in &summary.channels {
                let topic = &channel.info.topic;
                let found = counts.entry(topic.name.clone()).or_default();
                found.all += channel.message_count;
                if let Some(wanted) = taken.publishers {
                    match &topic.publisher {
                        Some(publisher) if wanted.takes(Some(publisher)) => {
                            *found.of_wanted.entry(publisher.gid.clone()).or_default() +=
                                channel.message_count;
                        }
                        _ => {
                            found.of_others += channel.message_count;
                            continue;
                        }
                    }
                }
                let count = self.counts.entry(topic.name.clone()).or_default();
                count.all += channel.message_count;
                if (taken.topic)(&topic.name, &topic.type_name) {
                    count.taken += channel.message_count;
                }
            }
            for (name, entries) in &summary.metadata {
                let mut is_ours = [
                    LEDGER_RECORD,
                    CHECKPOINT_RECORD,
                    ROSBAG2_RECORD,
                    REPEATED_RECORD,
                    RECODED_RECORD,
                ]
                .contains(&name.as_str());
                is_ours |= name == CONTRACT_RECORD && !keeps_contract;
                if !is_ours && seen.insert((name.clone(), entries.clone())) {
                    self.records.push((name.clone(), entries.clone()));
                }
            }
        }
        Ok(counts)
    }
}

/// Collects the inputs' accounts. The account of a topic that is not selected is dropped: what is left out on
/// request is not a loss, and the topic's losses do not concern this bag. `takes` is also called for topics
/// of unknown type.
pub(super) fn gather(
    bags: &[Bag],
    taken: &Taken<'_>,
    relabel: &Relabel,
    takes: &dyn Fn(&str) -> bool,
    more_custom_data: &BTreeMap<String, String>,
) -> Result<Accounts, ToolError> {
    let mut accounts = Accounts::default();
    let [from, until] = taken.span;
    let (mut ledger, mut without): (Option<Ledger>, Vec<BTreeMap<String, TopicCount>>) = (None, Vec::new());
    let (mut seen, mut markers, mut unheard) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    let mut not_heard = BTreeSet::new();
    let keeps_contract = relabel.is_idle() && taken.is_whole(bags);
    for bag in bags {
        let metadata = bag.metadata();
        accounts.inherit(metadata, keeps_contract);
        markers.extend(bag.markers()?);
        unheard.extend(unheard_services_in(&metadata.custom_data));
        not_heard.extend(not_heard_in(&metadata.custom_data));
        let counts = accounts.read_files(bag, (taken, keeps_contract), &mut seen)?;
        match bag.any_ledger()?.filter(|ledger| is_of(ledger, bag, &counts)) {
            Some(mut found) => {
                if let Some(wanted) = taken.publishers {
                    narrow_all(&mut found, wanted, &counts);
                }
                add_shown_copies(&mut found, bag, taken.publishers.map(|_| &counts));
                add(ledger.get_or_insert_with(Ledger::new), found, takes);
            }
            None => without.push(counts),
        }
    }
    if let Some(ledger) = &mut ledger {
        for counts in without {
            add_unaccounted(ledger, counts, takes);
        }
        relabel.relabel_ledger(ledger);
        ledger.narrow_to(from, until);
        accounts.custom_data.extend(ledger.custom_data());
    }
    accounts.ledger = ledger;
    accounts.relabel(relabel);
    let is_inside = |marker: &Marker| {
        from.is_none_or(|from| from <= marker.time) && until.is_none_or(|until| marker.time <= until)
    };
    accounts.records.retain(|(name, entries)| {
        name != MARKER_RECORD || Marker::from_entries(entries).is_none_or(|marker| is_inside(&marker))
    });
    accounts.custom_data.extend(recoded(bags, relabel, takes));
    accounts.custom_data.extend(names_to_custom_data(&unheard));
    accounts.custom_data.extend(not_heard_to_custom_data(&not_heard));
    let markers = markers.into_iter().map(|marker| relabel.relabel_marker(marker));
    accounts.list_markers(markers.filter(is_inside).collect());
    accounts.custom_data.extend(
        more_custom_data
            .iter()
            .map(|(key, value)| (key.clone(), value.clone())),
    );
    Ok(accounts)
}

/// What was done to the messages of topics that stay in, of all inputs together.
fn recoded(bags: &[Bag], relabel: &Relabel, takes: &dyn Fn(&str) -> bool) -> Option<(String, String)> {
    let mut all: Vec<Recoding> = Vec::new();
    let found = bags
        .iter()
        .flat_map(|bag| Recoding::list_in(&bag.metadata().custom_data));
    for mut recoding in found.filter(|recoding| takes(&recoding.topic)) {
        recoding.topic = relabel.name(&recoding.topic);
        // Equal ones are those of two parts of a bag, or of messages that are twice in the output.
        all.push(recoding);
    }
    Recoding::list_to_custom_data(&all)
}

/// Messages that the indexes of files have and that cannot be read.
#[derive(Default)]
pub(super) struct Unreadable {
    /// The files with their counts.
    pub files: Vec<MissingFile>,
    /// The same messages by topic.
    pub by_topic: BTreeMap<String, u64>,
}

impl Unreadable {
    /// The files that lack `more` messages of an account, by name if these are the messages that cannot be read.
    fn files_of(&self, more: &BTreeMap<String, u64>) -> Vec<MissingFile> {
        let counted: u64 = self.files.iter().map(|file| file.messages).sum();
        match counted == more.values().sum::<u64>() {
            true => self.files.clone(),
            false => vec![MissingFile::unnamed(more.clone())],
        }
    }
}

/// The account of a bag with its missing storage files and `unreadable` messages: by the metadata that will be replaced, or by the account
/// of the whole recording, which has more messages than the files. `None` if the bag's own account is right.
pub(super) fn corrected(bag: &Bag, unreadable: &Unreadable) -> Result<Option<Ledger>, ToolError> {
    let ledger = match bag.any_ledger()? {
        None if !unreadable.files.is_empty() => Some(bag.account_of_files()),
        known => known,
    };
    let Some(mut ledger) = ledger else {
        return Ok(None);
    };
    let left = bag.originals_by_topic();
    let left = |topic: &str| {
        let gone = unreadable.by_topic.get(topic).copied().unwrap_or(0);
        left.get(topic).copied().unwrap_or(0).saturating_sub(gone)
    };
    let more = ledger.more_than(left);
    if !more.is_empty() && ledger.checkpoint.is_none() {
        ledger.lose_files(unreadable.files_of(&more), &more, left);
    }
    let is_corrected = bag
        .ledger()?
        .is_none_or(|stored| stored.missing_files != ledger.missing_files);
    Ok(Some(ledger).filter(|ledger| is_corrected && !ledger.missing_files.is_empty()))
}

/// Whether a ledger describes these messages: one file of a bag has the account of the whole recording.
fn is_of(ledger: &Ledger, bag: &Bag, counts: &BTreeMap<String, TopicCount>) -> bool {
    let count = |name: &str| counts.get(name).map_or(0, |count| count.all);
    let is_of = fs::is_dir(bag.path())
        || ledger
            .topics
            .iter()
            .all(|topic| topic.in_bag() == count(&topic.name));
    if !is_of {
        tracing::warn!(
            "{}: the account is not copied: it covers the whole recording, of which this is one file",
            bag.path().display()
        );
    }
    is_of
}

/// Narrows the account of a recording to the selected publishers.
fn narrow_all(ledger: &mut Ledger, wanted: &PublisherChoice, counts: &BTreeMap<String, TopicCount>) {
    let keeps = |account: &PublisherAccount| wanted.takes(account.info().as_ref());
    for topic in &mut ledger.topics {
        let count = counts.get(&topic.name).cloned().unwrap_or_default();
        *topic = narrow(std::mem::take(topic), &keeps, &count);
    }
}

/// Adds the accounts of one recording to those of others: topics of the same name are merged, with the
/// publishers of both.
fn add(all: &mut Ledger, one: Ledger, takes: &dyn Fn(&str) -> bool) {
    // The account of an interrupted recording is its last checkpoint, and so is then the sum.
    all.checkpoint = match (all.checkpoint, one.checkpoint) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    };
    one.restarts
        .into_iter()
        .for_each(|restart| all.restarted(restart));
    all.restarts_left_out += one.restarts_left_out;
    all.lose_files(one.missing_files, &BTreeMap::new(), |_| 0);
    let mut places = places(all);
    for topic in one.topics.into_iter().filter(|topic| takes(&topic.name)) {
        match places.get(&topic.name) {
            Some(place) => merge(&mut all.topics[*place], topic),
            None => {
                places.insert(topic.name.clone(), all.topics.len());
                all.topics.push(topic);
            }
        }
    }
}

/// The place of each topic, by its name.
fn places(ledger: &Ledger) -> HashMap<String, usize> {
    let names = ledger.topics.iter().enumerate();
    names.map(|(place, topic)| (topic.name.clone(), place)).collect()
}

/// Counts the copies that are all that a bag has of their messages: the output has them as messages like others. `of_wanted` has the
/// publishers that are selected, where not all are.
fn add_shown_copies(ledger: &mut Ledger, bag: &Bag, of_wanted: Option<&BTreeMap<String, TopicCount>>) {
    let places = places(ledger);
    for (topic, publisher, count) in bag.shown_copies() {
        let is_wanted = of_wanted.is_none_or(|counts| {
            let known = counts.get(&topic).zip(publisher.as_ref());
            known.is_some_and(|(counts, publisher)| counts.of_wanted.contains_key(publisher))
        });
        if let Some(place) = places.get(&topic).filter(|_| is_wanted) {
            ledger.topics[*place].unaccounted += count;
        }
    }
}

/// Adds the messages of a bag without an account to the accounts of the others.
fn add_unaccounted(all: &mut Ledger, counts: BTreeMap<String, TopicCount>, takes: &dyn Fn(&str) -> bool) {
    let places = places(all);
    for (name, count) in counts.into_iter().filter(|(name, _)| takes(name)) {
        let place = places.get(&name).copied();
        let place = place.unwrap_or_else(|| all.add_topic(&name).0 as usize);
        let topic = &mut all.topics[place];
        let wanted = count.all - count.of_others;
        topic.unaccounted += wanted;
        topic.left_out_with_publisher += count.of_others;
        topic.loss_unknown |= wanted > 0;
    }
}

fn merge(known: &mut TopicAccount, topic: TopicAccount) {
    known.recorded += topic.recorded;
    known.recorded_bytes += topic.recorded_bytes;
    known.expired += topic.expired;
    known.left_out += topic.left_out;
    known.left_out_with_publisher += topic.left_out_with_publisher;
    known.unaccounted += topic.unaccounted;
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
