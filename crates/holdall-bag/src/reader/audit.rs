//! Audits a bag: counts its messages, and compares them with the account that the recording stored.

use super::{bag::Bag, error::ReadError, message::MessageFilter, set::BagSet, state::BagState};
use holdall_model::units;
use holdall_model::{
    loss::{
        LossStage, LossSums,
        ledger::{Ledger, TopicAccount},
    },
    recoding::Recoding,
    time::Timestamp,
};
use std::collections::BTreeMap;

/// The kind of account in a bag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccountKind {
    /// The account of the whole recording.
    Final,
    /// The account of an interrupted recording, from its last checkpoint; later losses are unknown.
    Checkpoint(Timestamp),
    /// None: another recorder wrote the bag.
    Missing,
}

/// One topic of an audited bag.
#[derive(Clone, Debug, Default)]
pub struct TopicAudit {
    /// Full ROS name.
    pub name: String,
    /// Number of messages counted in the bag.
    pub recorded: u64,
    /// Missing messages by stage, including those left out on request.
    pub missing: BTreeMap<LossStage, u64>,
    /// Messages in files that the ring of files removed.
    pub expired: u64,
    /// Copies of its messages that files repeat at their beginnings; none of them is in `recorded`.
    pub repeated: u64,
    /// Its account, if there is one.
    pub account: Option<TopicAccount>,
}

impl TopicAudit {
    /// The sums of the missing messages, as in all reports.
    pub fn sums(&self) -> LossSums {
        LossSums::of(&self.missing)
    }
}

/// The result of an audit.
#[derive(Clone, Debug)]
pub struct BagAudit {
    /// The kind of account in the bag.
    pub account: AccountKind,
    /// The bag's state, as every report has it.
    pub state: BagState,
    /// The log time of the first message, by the metadata.
    pub start: Option<Timestamp>,
    /// The topics in name order.
    pub topics: Vec<TopicAudit>,
    /// Discrepancies, one sentence each.
    pub faults: Vec<String>,
    /// Notices for the user, one sentence each.
    pub notices: Vec<String>,
}

impl BagAudit {
    /// Reads the whole bag and compares.
    ///
    /// # Errors
    /// A storage file that cannot be opened. Damage in a file is a fault in the audit.
    pub fn of(bag: &Bag) -> Result<Self, ReadError> {
        Self::with_progress(bag, &mut |_, _| {})
    }

    /// As [`BagAudit::of`]; calls `progress` with the number of messages that were counted and that of the bag.
    ///
    /// # Errors
    /// As [`BagAudit::of`].
    pub fn with_progress(bag: &Bag, progress: &mut dyn FnMut(u64, u64)) -> Result<Self, ReadError> {
        let ledger = bag.any_ledger()?;
        let account = match &ledger {
            None => AccountKind::Missing,
            Some(ledger) => ledger
                .checkpoint
                .map_or(AccountKind::Final, AccountKind::Checkpoint),
        };
        let mut audit = Self {
            account,
            state: bag.state()?,
            start: bag.metadata().starting_time,
            topics: Vec::new(),
            faults: Vec::new(),
            notices: bag.notices().to_vec(),
        };
        let originals = bag.originals()?;
        let mut counted = audit.count(&originals, progress);
        let repeated = audit.count_repeated(&originals);
        let ledger = ledger.unwrap_or_default();
        if account == AccountKind::Final {
            audit.faults.extend(ledger.audit());
            audit.compare_repeated(&ledger, &repeated);
        }
        for topic in ledger.topics {
            let found = counted.remove(&topic.name).unwrap_or_default();
            audit.compare(topic, found);
        }
        for (name, found) in counted {
            if account == AccountKind::Final {
                let fault = format!(
                    "{name}: the bag has {} that its account does not have",
                    units::counted(found.messages, "message")
                );
                audit.faults.push(fault);
            }
            audit.topics.push(TopicAudit {
                name,
                recorded: found.messages,
                ..TopicAudit::default()
            });
        }
        for topic in &mut audit.topics {
            topic.repeated = repeated.get(&topic.name).copied().unwrap_or(0);
        }
        audit.topics.sort_by(|a, b| a.name.cmp(&b.name));
        audit.check_metadata(bag, repeated.values().sum());
        let recoded = audit.differing_forms(bag);
        audit.notices.extend(recoded);
        Ok(audit)
    }

    /// Where the bag has other messages than were given another form: one sentence each. What has expired is counted elsewhere.
    fn differing_forms(&self, bag: &Bag) -> Vec<String> {
        let mut recoded = Recoding::list_in(&bag.metadata().custom_data);
        recoded.retain(|recoding| {
            let mut topics = self.topics.iter();
            topics.all(|topic| topic.name != recoding.topic || topic.expired == 0)
        });
        let copies = bag.shown_copies();
        Recoding::differences(&recoded, |name, kind| {
            let topics = bag.metadata().topics_with_message_count.iter();
            let counts = topics.filter(|topic| {
                let info = &topic.topic_metadata;
                info.name == name && info.type_name == kind
            });
            let count: u64 = counts.map(|topic| topic.message_count).sum();
            // Its account does not count pictures from before its beginning.
            let copies = copies.iter().filter(|(topic, ..)| topic == name);
            count.saturating_sub(copies.map(|(.., copies)| copies).sum())
        })
    }

    /// True if the bag has an account that adds up.
    pub fn is_balanced(&self) -> bool {
        self.account != AccountKind::Missing && self.faults.is_empty()
    }

    /// Number of messages counted in the bag.
    pub fn recorded(&self) -> u64 {
        self.topics.iter().map(|topic| topic.recorded).sum()
    }

    /// Missing messages by stage, over all topics.
    pub fn missing(&self) -> BTreeMap<LossStage, u64> {
        let mut sums = BTreeMap::new();
        for (stage, count) in self.topics.iter().flat_map(|topic| &topic.missing) {
            *sums.entry(*stage).or_insert(0) += count;
        }
        sums
    }

    /// The sums of the whole bag's missing messages, as in all reports.
    pub fn sums(&self) -> LossSums {
        LossSums::of_all(self.topics.iter().map(|topic| &topic.missing))
    }

    /// Messages that the recording should have and has not.
    pub fn shortfall(&self) -> u64 {
        self.sums().lost
    }

    /// Counts all messages by topic.
    fn count(&mut self, bag: &Bag, progress: &mut dyn FnMut(u64, u64)) -> BTreeMap<String, Found> {
        let mut counted: BTreeMap<String, Found> = BTreeMap::new();
        let total = bag.metadata().message_count;
        let messages = BagSet::from(vec![bag.clone()]).messages(&MessageFilter::default());
        for (done, message) in (1..).zip(messages) {
            progress(done, total);
            match message {
                Ok(message) => match counted.get_mut(&message.topic.name) {
                    Some(found) => found.add(message.sequence),
                    None => counted
                        .entry(message.topic.name.clone())
                        .or_default()
                        .add(message.sequence),
                },
                Err(error) => {
                    self.state.set_damaged();
                    self.faults.push(error.to_string());
                }
            }
        }
        counted
    }

    /// Counts the repeated messages of a bag by topic, and compares them with the marks of its files.
    fn count_repeated(&mut self, bag: &Bag) -> BTreeMap<String, u64> {
        let mut counted: BTreeMap<String, u64> = BTreeMap::new();
        for file in bag.files().iter().filter(|file| file.hidden.is_some()) {
            match file.repeated() {
                Ok(messages) => messages.iter().for_each(|message| {
                    *counted.entry(message.topic.name.clone()).or_insert(0) += 1;
                }),
                Err(error) => self.faults.push(error.to_string()),
            }
        }
        let (listed, found) = (
            bag.copies_by_topic().values().sum::<u64>(),
            counted.values().sum::<u64>(),
        );
        if listed != found {
            self.faults.push(format!(
                "the bag's files are marked to repeat {listed} messages, but {found} were found"
            ));
        }
        counted
    }

    /// Compares the account's count of repeated messages.
    fn compare_repeated(&mut self, ledger: &Ledger, counted: &BTreeMap<String, u64>) {
        for topic in &ledger.topics {
            let found = counted.get(&topic.name).copied().unwrap_or(0);
            if topic.repeated != found {
                self.faults.push(format!(
                    "{}: its account has {} repeated messages, but {found} were found",
                    topic.name, topic.repeated
                ));
            }
        }
    }

    /// Compares a topic's account with its messages.
    fn compare(&mut self, account: TopicAccount, found: Found) {
        let mut missing = account.missing.clone();
        let accounted = account.in_bag();
        if self.account == AccountKind::Final {
            if accounted != found.messages {
                self.faults.push(format!(
                    "{}: its account has {} in the bag, the bag has {}",
                    account.name,
                    units::counted(accounted, "message"),
                    found.messages
                ));
            } else if let Some(expected) = Fingerprint::of(&account)
                && found.is_numbered(&expected)
                && expected.sum != found.fingerprint
            {
                self.faults.push(format!(
                    "{}: the sequence numbers of its {accounted} messages do not match its account",
                    account.name
                ));
            }
        } else if accounted > found.messages {
            // The account was written after these messages were given to the disk, but the recording ended
            // before they were durable.
            *missing.entry(LossStage::Storage).or_insert(0) += accounted - found.messages;
        }
        let left_out = account.left_out_by_tools();
        if left_out > 0 {
            *missing.entry(LossStage::Policy).or_insert(0) += left_out;
        }
        self.topics.push(TopicAudit {
            name: account.name.clone(),
            recorded: found.messages,
            missing,
            expired: account.expired,
            repeated: 0,
            account: Some(account),
        });
    }

    /// Other programs use the number of messages in `metadata.yaml`.
    fn check_metadata(&mut self, bag: &Bag, repeated: u64) {
        let hidden: u64 = bag.hidden_by_topic().values().sum();
        let (listed, counted) = (bag.metadata().message_count + hidden, self.recorded() + repeated);
        if listed != counted {
            self.faults.push(format!(
                "the bag's metadata lists {listed} messages, but it has {counted}"
            ));
        }
    }
}

/// A topic's messages in the bag.
#[derive(Clone, Copy, Debug, Default)]
struct Found {
    messages: u64,
    fingerprint: u64,
    highest_sequence: u32,
    /// Messages whose number is 0.
    zeros: u64,
}

impl Found {
    fn add(&mut self, sequence: u32) {
        self.messages += 1;
        self.fingerprint = self.fingerprint.wrapping_add(scatter(sequence));
        self.highest_sequence = self.highest_sequence.max(sequence);
        self.zeros += u64::from(sequence == 0);
    }

    /// Whether all its messages have their numbers. Storages that do not store them, and other recorders, use 0; a bag may have messages
    /// of both kinds, from several bags, or from the memory of a killed recorder and from its files.
    const fn is_numbered(&self, expected: &Fingerprint) -> bool {
        self.highest_sequence > 0 && self.zeros <= expected.zeros
    }
}

/// The fingerprint of the sequence numbers that a topic's messages must have.
struct Fingerprint {
    /// A sum that is independent of their order, so that messages of many publishers on one topic are compared in constant memory.
    sum: u64,
    /// How many of them are 0.
    zeros: u64,
}

impl Fingerprint {
    /// `None` if the account does not have each number.
    fn of(account: &TopicAccount) -> Option<Self> {
        let is_changed = account.expired > 0 || account.left_out > 0 || account.unaccounted > 0;
        if is_changed || account.folded.is_some() || account.publishers.is_empty() {
            return None;
        }
        let (mut sum, mut zeros) = (0u64, 0u64);
        for publisher in &account.publishers {
            if publisher.sent.is_none() {
                sum = sum.wrapping_add(scatter(0).wrapping_mul(publisher.recorded));
                zeros = zeros.saturating_add(publisher.recorded);
                continue;
            }
            if publisher.sent == Some(0) {
                continue;
            }
            for [first, last] in publisher.recorded_ranges()? {
                // At most as many as are in the bag; otherwise the comparison of counts has failed before.
                if last - first >= publisher.recorded {
                    return None;
                }
                for sequence in first..=last {
                    sum = sum.wrapping_add(scatter(sequence as u32));
                    zeros += u64::from(sequence as u32 == 0);
                }
            }
        }
        Some(Self { sum, zeros })
    }
}

/// Spreads a number over 64 bits (the finalizer of SplitMix64), so that sums of different sets differ.
const fn scatter(sequence: u32) -> u64 {
    let mut bits = (sequence as u64).wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}
