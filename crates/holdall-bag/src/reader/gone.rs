//! Messages that were in a bag's storage files according to `metadata.yaml`, and are nowhere in the bag now.

use super::{Bag, BagFile, ReadError};
use holdall_model::{
    expired::ExpiredFiles,
    loss::ledger::{Ledger, MissingFile, TopicAccount},
    metadata::{BagMetadata, FileInformation},
    repeated::{BagRepeats, repeats_from_custom_data},
    time::Timestamp,
};
use holdall_storage::{
    compression::unpacked_name,
    reader::{ReadOrder, ReadQuery},
};
use std::{collections::BTreeMap, ffi::OsString, path::Path};

type Counts = BTreeMap<String, u64>;

/// Messages that were in a bag's files when its metadata was written, and are nowhere in the bag now. Copies of messages that files repeat
/// are in none of its counts.
#[derive(Clone, Debug, Default)]
pub struct Gone {
    /// The files that had them, in order.
    files: Vec<GoneFile>,
    /// Their number by topic.
    by_topic: Counts,
    /// Messages by topic that a ring of files has removed, where the recording was cut off.
    expired: Counts,
}

#[derive(Clone, Debug)]
struct GoneFile {
    file: MissingFile,
    /// Log times of the first and the last message that it had.
    span: Option<(Timestamp, Timestamp)>,
}

/// A file that the metadata names.
struct Named {
    name: OsString,
    /// Messages that it had.
    had: u64,
    /// Messages that it has, by topic.
    left: Counts,
}

impl Gone {
    /// Compares metadata that a recorder or a tool has written with a bag that was opened by its files alone. Messages that came back from memory,
    /// in a further file with the same times, are not gone.
    ///
    /// # Errors
    /// A file that was opened before cannot be read now.
    pub(super) fn between(said: &BagMetadata, bag: &Bag) -> Result<Self, ReadError> {
        let mut gone = Self {
            expired: expired_from(said, bag),
            ..Self::default()
        };
        let copies = copies_of(&repeats_from_custom_data(&said.custom_data));
        let copies_left = copies_of(bag.repeats());
        let mut named = Vec::new();
        for about in described(said) {
            let name = name_of(&about.path);
            let count = |copies: &BTreeMap<OsString, Counts>| copies.get(&name).map_or(0, sum);
            let mut left = Counts::new();
            for file in bag.files().iter().filter(|file| is_named(file, &name)) {
                add_counts(&mut left, file)?;
            }
            take(&mut left, copies_left.get(&name));
            let had = about.message_count.saturating_sub(count(&copies));
            let messages = had.saturating_sub(sum(&left));
            named.push(Named { name, had, left });
            if messages > 0 {
                gone.add(about, messages, had);
            }
        }
        if gone.is_none() {
            return Ok(gone);
        }
        let mut by_topic = Counts::new();
        for topic in &said.topics_with_message_count {
            *by_topic.entry(topic.topic_metadata.name.clone()).or_default() += topic.message_count;
        }
        copies
            .values()
            .for_each(|of_file| take(&mut by_topic, Some(of_file)));
        gone.by_topic = by_topic;
        gone.take_left(&named);
        gone.find_again(&named, bag)?;
        Ok(gone)
    }

    fn add(&mut self, about: FileInformation, messages: u64, of: u64) {
        let end = |start: Timestamp| (start, start.saturating_add(about.duration));
        self.files.push(GoneFile {
            span: about.starting_time.map(end),
            file: MissingFile {
                file: Some(about.path).filter(|path| !path.is_empty()),
                messages,
                of,
                ..MissingFile::default()
            },
        });
    }

    /// Whether no file is gone.
    pub fn is_none(&self) -> bool {
        self.files.is_empty()
    }

    fn messages(&self) -> u64 {
        self.files.iter().map(|gone| gone.file.messages).sum()
    }

    /// Updates a checkpoint with the messages that the ring of files has removed since.
    pub(super) fn note_expired(&self, checkpoint: &mut Ledger) {
        for topic in &mut checkpoint.topics {
            let expired = self.expired.get(&topic.name).copied().unwrap_or(0);
            topic.expired = topic.expired.max(expired.min(topic.recorded));
        }
    }

    /// Subtracts the contents of the files from the counts by topic.
    fn take_left(&mut self, named: &[Named]) {
        let (grown, others): (Vec<_>, Vec<_>) = named.iter().partition(|file| sum(&file.left) > file.had);
        others
            .iter()
            .for_each(|file| take(&mut self.by_topic, Some(&file.left)));
        // A file that has grown since already had some of its messages, of unknown topics.
        let mut surplus = sum(&self.by_topic).saturating_sub(self.messages());
        let all = [self.by_topic.clone()];
        for most in grown.into_iter().map(|file| &file.left).chain(&all) {
            for (topic, count) in &mut self.by_topic {
                let had = surplus.min(*count).min(most.get(topic).copied().unwrap_or(0));
                *count -= had;
                surplus -= had;
            }
        }
    }

    /// Takes what files have of the same time that are not in the metadata, or had less then: a rescue may give the name of a file in which
    /// nothing was written.
    fn find_again(&mut self, named: &[Named], bag: &Bag) -> Result<(), ReadError> {
        for file in bag.files() {
            let mut as_described = named.iter().filter(|named| sum(&named.left) <= named.had);
            if as_described.any(|named| is_named(file, &named.name)) {
                continue;
            }
            let reader = file.open()?;
            let channels = &reader.summary().channels;
            let query = ReadQuery {
                order: ReadOrder::File,
                ..ReadQuery::default()
            };
            // Unreadable messages count as missing.
            for message in reader.messages(&query).into_iter().flatten().flatten() {
                if let Some(channel) = channels.get(message.channel.0 as usize) {
                    self.take_one(&channel.info.topic.name, message.log_time);
                }
            }
        }
        self.files.retain(|gone| gone.file.messages > 0);
        Ok(())
    }

    fn take_one(&mut self, topic: &str, time: Timestamp) {
        let is_of = |gone: &&mut GoneFile| {
            let is_within = |(start, end): (Timestamp, Timestamp)| start <= time && time <= end;
            gone.file.messages > 0 && gone.span.is_some_and(is_within)
        };
        let count = self.by_topic.get_mut(topic).filter(|count| **count > 0);
        if let Some((count, gone)) = count.zip(self.files.iter_mut().find(is_of)) {
            *count -= 1;
            gone.file.messages -= 1;
        }
    }

    /// One sentence for each file.
    pub(super) fn notices(&self, bag: &Path) -> impl Iterator<Item = String> {
        self.files
            .iter()
            .map(move |gone| format!("{}: {}", bag.display(), gone.file))
    }

    /// Puts the files and their messages into an account, unless it has them. `left` has the messages of the bag by topic, without copies.
    pub fn charge(&self, ledger: &mut Ledger, left: &Counts) {
        let mut files = self.files.iter().map(|gone| &gone.file);
        // A repair that was broken off may have put them in.
        if files.all(|file| ledger.missing_files.contains(file)) {
            return;
        }
        let files = self.files.iter().map(|gone| gone.file.clone());
        let by_topic = self.by_topic.clone().into_iter().filter(|(_, count)| *count > 0);
        ledger.lose_files(files, &by_topic.collect(), |topic| {
            left.get(topic).copied().unwrap_or(0)
        });
    }
}

impl Bag {
    /// Messages by topic, without copies.
    pub fn originals_by_topic(&self) -> BTreeMap<String, u64> {
        let mut counts = Counts::new();
        for topic in &self.stored_metadata().topics_with_message_count {
            *counts.entry(topic.topic_metadata.name.clone()).or_default() += topic.message_count;
        }
        take(&mut counts, Some(&self.copies_by_topic()));
        counts
    }

    /// An account for a bag that has none, made of its files and of the messages known to be gone.
    pub fn account_of_files(&self) -> Ledger {
        let (mut ledger, mut left) = (Ledger::new(), self.originals_by_topic());
        for gone in self.gone().by_topic.keys() {
            left.entry(gone.clone()).or_default();
        }
        for (name, recorded) in left {
            let mut account = TopicAccount::default();
            (account.name, account.recorded, account.loss_unknown) = (name, recorded, true);
            ledger.topics.push(account);
        }
        ledger
    }
}

/// The files that metadata describes; one without a name for all of them where it has no counts by file.
fn described(said: &BagMetadata) -> Vec<FileInformation> {
    match said.files.is_empty() {
        false => said.files.clone(),
        true => vec![FileInformation {
            path: String::new(),
            message_count: said.message_count,
            starting_time: said.starting_time,
            duration: said.duration,
        }],
    }
}

/// Messages by topic that a ring of files has removed from a bag.
fn expired_from(said: &BagMetadata, bag: &Bag) -> Counts {
    let has = |name: &str| bag.files().iter().any(|file| is_named(file, &name_of(name)));
    let expired = ExpiredFiles::of(&said.custom_data);
    expired.map_or_else(Counts::new, |expired| expired.by_topic(has))
}

/// By which a file is known, packed or not.
fn name_of(path: &str) -> OsString {
    let path = unpacked_name(Path::new(path));
    path.file_name().unwrap_or(path.as_os_str()).to_owned()
}

fn is_named(file: &BagFile, name: &OsString) -> bool {
    name.is_empty() || unpacked_name(&file.path).file_name() == Some(name)
}

fn sum(counts: &Counts) -> u64 {
    counts.values().sum()
}

fn take(from: &mut Counts, counts: Option<&Counts>) {
    for (topic, count) in counts.into_iter().flatten() {
        if let Some(left) = from.get_mut(topic) {
            *left = left.saturating_sub(*count);
        }
    }
}

/// Adds the messages of a file by topic, with all copies.
fn add_counts(counts: &mut Counts, file: &BagFile) -> Result<(), ReadError> {
    for channel in &file.open_whole()?.summary().channels {
        *counts.entry(channel.info.topic.name.clone()).or_default() += channel.message_count;
    }
    Ok(())
}

/// Copies by file and topic.
fn copies_of(repeats: &BagRepeats) -> BTreeMap<OsString, Counts> {
    let mut copies: BTreeMap<OsString, Counts> = BTreeMap::new();
    for (name, file) in repeats {
        let of_file = copies.entry(name_of(name)).or_default();
        for channel in &file.channels {
            *of_file.entry(channel.topic.clone()).or_default() += channel.messages.len() as u64;
        }
    }
    copies
}
