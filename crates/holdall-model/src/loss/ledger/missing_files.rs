//! Storage files of a recording that are gone, or that have fewer messages than they had, in its account.

use super::{Interval, Ledger, PublisherAccount, TopicAccount};
use crate::{
    loss::{LossStage, total},
    text::Outside,
};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fmt};

/// Files that an account lists; the messages of further ones are in the last entry, which has no name.
const FILES_MAX: usize = 256;

/// A storage file that is gone, or that has lost messages since they were recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissingFile {
    /// Its name in the bag; `None` if only the number of its messages is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// How many of its messages the bag does not have any more.
    pub messages: u64,
    /// How many messages it had.
    pub of: u64,
    /// Missing messages by topic, if no file is named.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub topics: BTreeMap<String, u64>,
}

impl MissingFile {
    /// Messages of files without a name.
    pub fn unnamed(topics: BTreeMap<String, u64>) -> Self {
        let messages = total(topics.values());
        Self {
            file: None,
            messages,
            of: messages,
            topics,
        }
    }

    /// Removes up to `most` messages of a topic from this nameless entry, because their file is known by now; returns
    /// how many.
    fn name(&mut self, topic: &str, most: u64) -> u64 {
        let known = self.topics.get_mut(topic).filter(|_| self.file.is_none());
        let named = known.map_or(0, |known| {
            let named = most.min(*known);
            *known -= named;
            named
        });
        self.messages -= named;
        self.of = self.of.saturating_sub(named);
        named
    }
}

impl fmt::Display for MissingFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.messages == 1 { "" } else { "s" };
        let count = self.messages;
        f.write_str("missing: ")?;
        match &self.file {
            Some(file) if self.messages < self.of => write!(
                f,
                "{count} of {} messages of storage file {}",
                self.of,
                Outside(file)
            ),
            Some(file) => write!(f, "storage file {} with {count} message{plural}", Outside(file)),
            None => write!(f, "{count} message{plural} that no storage file has"),
        }
    }
}

impl Ledger {
    /// Takes note of storage files that are gone, and counts their messages as lost at the storage. `gone` counts these by topic, `left` the messages
    /// that the bag still has, without copies of others. Messages already counted without a file are not counted again. In an account that lists them
    /// as recorded they become missing; an account made from the remaining files gets them in addition.
    pub fn lose_files(
        &mut self,
        files: impl IntoIterator<Item = MissingFile>,
        gone: &BTreeMap<String, u64>,
        left: impl Fn(&str) -> u64,
    ) {
        let known = self.missing_files.len();
        for file in files {
            if self.missing_files.len() < FILES_MAX {
                self.missing_files.push(file);
            } else if let Some(last) = self.missing_files.last_mut() {
                last.file = None;
                last.messages = last.messages.saturating_add(file.messages);
                last.of = last.of.saturating_add(file.of);
            }
        }
        for (name, gone) in gone {
            let unnamed = self.missing_files.iter_mut().take(known);
            let counted: u64 = unnamed.map(|file| file.name(name, *gone)).sum();
            let gone = gone.saturating_sub(counted);
            let place = self.topics.iter().position(|topic| topic.name == *name);
            let place = place.unwrap_or_else(|| self.add_topic(name).0 as usize);
            self.topics[place].lose_stored(gone, left(name));
        }
        self.missing_files.retain(|file| file.messages > 0);
    }

    /// Messages by topic that the account lists as in the bag, beyond the `left` ones that the bag has.
    pub fn more_than(&self, left: impl Fn(&str) -> u64) -> BTreeMap<String, u64> {
        let topics = self.topics.iter().map(|topic| {
            let more = topic.in_bag().saturating_sub(left(&topic.name));
            (topic.name.clone(), more)
        });
        topics.filter(|(_, more)| *more > 0).collect()
    }
}

impl TopicAccount {
    fn lose_stored(&mut self, gone: u64, left: u64) {
        let counted = self.in_bag().saturating_sub(left);
        self.take_back(counted);
        let more = gone.saturating_sub(counted);
        if more == 0 {
            return;
        }
        let missing = self.missing.entry(LossStage::Storage).or_insert(0);
        *missing = missing.saturating_add(more);
        if self.publishers.is_empty() && self.folded.is_none() {
            return;
        }
        // It is not known whose messages these were, and so neither which numbers the other publishers have.
        for publisher in &mut self.publishers {
            publisher.covered = None;
        }
        self.publishers.push(PublisherAccount {
            sent: (!self.loss_unknown).then_some(more),
            received: Some(more),
            intervals: vec![Interval::of_unknown(LossStage::Storage, more)],
            ..PublisherAccount::default()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, messages: u64, of: u64) -> MissingFile {
        MissingFile {
            file: Some(name.to_owned()),
            messages,
            of,
            ..MissingFile::default()
        }
    }

    /// An account of 100 messages of one publisher, all of them recorded.
    fn ledger(recorded: u64) -> Ledger {
        let mut ledger = Ledger::new();
        ledger.add_topic("/a");
        let publisher = PublisherAccount {
            gid: Some("0a".to_owned()),
            recorded,
            ..PublisherAccount::default()
        };
        let account = &mut ledger.topics[0];
        account.put_in(publisher, &[]);
        account.cover(0, 1);
        account.close();
        ledger
    }

    #[test]
    fn messages_of_files_that_are_gone_are_lost_whether_the_account_had_them_or_not() {
        // The account of the whole recording, and one that was made from the 70 that are left.
        for recorded in [100, 70] {
            let mut ledger = ledger(recorded);
            let gone = BTreeMap::from([("/a".to_owned(), 30), ("/b".to_owned(), 5)]);
            ledger.lose_files([file("bag_0.db3", 35, 35)], &gone, |name| match name {
                "/a" => 70,
                _ => 0,
            });
            assert_eq!((ledger.lost(), ledger.recorded()), (35, 70), "{recorded}");
            assert_eq!(ledger.audit(), [""; 0], "{recorded}");
            assert!(
                ledger
                    .more_than(|name| if name == "/a" { 70 } else { 0 })
                    .is_empty()
            );
            let read = Ledger::from_json(&ledger.to_json()).unwrap();
            assert_eq!(read.missing_files, ledger.missing_files);
        }
    }

    #[test]
    fn messages_that_were_counted_without_a_file_are_not_counted_again_with_one() {
        let mut ledger = ledger(70);
        let gone = |count| BTreeMap::from([("/a".to_owned(), count)]);
        ledger.lose_files([MissingFile::unnamed(gone(30))], &gone(30), |_| 70);
        ledger.lose_files([file("bag_0.db3", 20, 20)], &gone(20), |_| 70);
        let listed: Vec<u64> = ledger.missing_files.iter().map(|file| file.messages).collect();
        assert_eq!((ledger.lost(), listed), (30, vec![10, 20]));
        ledger.lose_files([file("bag_1.db3", 15, 15)], &gone(15), |_| 70);
        let listed: Vec<u64> = ledger.missing_files.iter().map(|file| file.messages).collect();
        assert_eq!(
            (ledger.lost(), listed, ledger.audit()),
            (35, vec![20, 15], vec![])
        );
    }

    #[test]
    fn each_file_is_named_with_its_messages_and_of_many_the_last_are_summed_up() {
        let words = |file: MissingFile| file.to_string();
        assert_eq!(
            words(file("bag_0.db3", 302, 302)),
            "missing: storage file bag_0.db3 with 302 messages"
        );
        assert_eq!(
            words(file("bag_0.mcap", 554, 1202)),
            "missing: 554 of 1202 messages of storage file bag_0.mcap"
        );
        let mut ledger = Ledger::new();
        ledger.lose_files((0..1000).map(|_| file("x", 1, 1)), &BTreeMap::new(), |_| 0);
        let last = ledger.missing_files.last().cloned().unwrap();
        assert_eq!((ledger.missing_files.len(), last.messages), (FILES_MAX, 745));
        assert_eq!(words(last), "missing: 745 messages that no storage file has");
    }
}
