//! Parts of the inputs that cannot be read and are not in the output: each place, with its number of messages and their times.

use super::ToolError;
use holdall_bag::reader::{Bag, BagFile, BagSet, ReadError, listing};
use holdall_io::fs;
use holdall_model::time::Timestamp;
use holdall_model::units::counted;
use holdall_storage::{
    StorageError,
    chunks::LeftOutPart,
    reader::{IndexedPart, StorageSummary},
    writer::ChannelIndex,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    path::{Path, PathBuf},
};

/// Key in `custom_data` of a bag that was made of damaged ones: the messages missing from it because they could not be read.
pub(super) const LEFT_OUT_KEY: &str = "holdall.left_out";

/// Places that are listed; the others are counted.
const LISTED_MAX: usize = 1_000;

/// Places that the metadata of the output lists.
const LISTED_IN_BAG_MAX: usize = 20;

/// A place of an input that cannot be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// The file, the place and the damage, one clause.
    pub reason: String,
    /// Number of messages there that were selected, as far as an index has it; `None` if it is not known.
    pub messages: Option<u64>,
    /// The first and the last log time there, by the index.
    pub times: Option<(Timestamp, Timestamp)>,
    /// True if a notice of the bag states it: [`Bag::notices`].
    pub is_noticed: bool,
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.reason)?;
        match (self.messages, self.times) {
            (Some(count), _) => f.write_str(&counted(count, "message"))?,
            (None, _) => write!(f, "an unknown number of messages")?,
        }
        if let Some((first, last)) = self.times {
            write!(f, " of {} to {}", first.to_utc_text(), last.to_utc_text())?;
        }
        f.write_str(" cannot be read")
    }
}

/// All that was left out of an output because it is damaged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeftOutMessages {
    /// The places, the first thousand of them.
    pub places: Vec<LeftOut>,
    /// How many places there are.
    pub place_count: u64,
    /// Number of messages in all; `None` if it is not known.
    pub messages: Option<u64>,
}

impl LeftOutMessages {
    /// True if nothing was left out.
    pub fn is_empty(&self) -> bool {
        self.place_count == 0 && self.messages == Some(0)
    }

    /// How many messages cannot be read, as a clause.
    pub fn clause(&self) -> String {
        match self.messages {
            Some(count) => format!("{} cannot be read", counted(count, "message")),
            None => "damaged parts cannot be read, an unknown number of messages".to_owned(),
        }
    }
}

/// Gathers left-out messages while an output is made.
#[derive(Debug, Default)]
pub(super) struct Damage {
    places: Vec<LeftOut>,
    place_count: u64,
    /// File and offset of each part, which several output files may need.
    known: BTreeSet<(PathBuf, u64)>,
    /// Messages by topic, if known.
    by_topic: BTreeMap<String, u64>,
    /// The first and the last time of places whose messages are of unknown topics; `None` if unknown either.
    of_unknown_topics: Vec<Option<(Timestamp, Timestamp)>>,
    is_unknown: bool,
    /// A file has no end: messages that it had there are in none of its lists.
    is_cut: bool,
}

impl Damage {
    /// Notes the bags' own notices, and removes files that cannot be read at all from the inputs.
    ///
    /// # Errors
    /// There are such files, and they must not be left out.
    pub fn of_inputs(inputs: &mut [Bag], leaves_out_files: bool) -> Result<Self, ToolError> {
        let mut damage = Self::default();
        for bag in inputs {
            let unwritten = unwritten_files(bag)?;
            for notice in bag.damages() {
                if unwritten.iter().any(|file| notice.starts_with(file)) {
                    continue;
                }
                if notice.ends_with("left out") && !leaves_out_files {
                    return Err(ToolError::DamagedFile {
                        notice: notice.to_owned(),
                    });
                }
                damage.is_cut = true;
                damage.add(LeftOut {
                    reason: notice.to_owned(),
                    is_noticed: true,
                    ..LeftOut::default()
                });
            }
            let mut unreadable = BTreeMap::new();
            // One that is packed takes long to open: it is unpacked once, when it is read.
            for file in bag.files().iter().filter(|file| !file.is_packed()) {
                if let Err(error) = file.open()
                    && (error.is_damage() || error.is_no_storage_file())
                {
                    if !leaves_out_files {
                        let notice = error.to_string();
                        return Err(ToolError::DamagedFile { notice });
                    }
                    unreadable.insert(file.path.clone(), error);
                }
            }
            if unreadable.is_empty() {
                continue;
            }
            for (path, error) in &unreadable {
                damage.add_file(bag, path, error);
            }
            let is_readable = |file: &&BagFile| !unreadable.contains_key(&file.path);
            let rest = bag.files().iter().filter(is_readable).cloned().collect();
            *bag = bag.with_files(rest);
        }
        Ok(damage)
    }

    fn add_file(&mut self, bag: &Bag, path: &Path, error: &ReadError) {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let listed = bag.metadata().files.iter().find(|listed| listed.path == name);
        self.add(LeftOut {
            reason: error.to_string(),
            messages: listed.map(|listed| listed.message_count),
            times: listed.and_then(|listed| {
                let start = listed.starting_time?;
                Some((start, start.saturating_add(listed.duration)))
            }),
            is_noticed: false,
        });
        // Its topics are not known.
        self.is_unknown |= listed.is_none();
    }

    fn add(&mut self, place: LeftOut) {
        self.is_unknown |= place.messages.is_none();
        self.place_count += 1;
        if self.places.len() < LISTED_MAX {
            self.places.push(place);
        }
    }

    /// Notes an error that reading returned in place of messages; `takes` are the selected topics.
    pub fn add_error(&mut self, set: &BagSet, error: &ReadError, takes: &dyn Fn(&str) -> bool) {
        if let ReadError::Storage(StorageError::Unreadable {
            path,
            offset,
            count,
            times,
            ..
        }) = error
        {
            if self.known.insert((path.clone(), *offset)) {
                let is_all = set.topics().iter().all(|topic| takes(&topic.name));
                let times = (Timestamp::from_nanos(times.0), Timestamp::from_nanos(times.1));
                self.add_of_unknown_topics(Some(times));
                self.add(LeftOut {
                    reason: error.to_string(),
                    messages: count.filter(|_| is_all),
                    times: Some(times),
                    is_noticed: false,
                });
            }
            return;
        }
        let part = part_of(set, error);
        if let Some((path, part, _)) = &part
            && !self.known.insert((path.clone(), part.offset))
        {
            return;
        }
        let (times, counts) = match (part, error.topic()) {
            (Some((_, part, topics)), _) => {
                let of_topic = |(channel, count): (ChannelIndex, u64)| {
                    Some((topics.get(channel.0 as usize)?.clone(), count))
                };
                // An error inside of a part affects some of its messages.
                let is_whole = error.place().is_some_and(|(_, offset)| offset == part.offset);
                let counts = part.messages.filter(|_| is_whole);
                (
                    Some(part.times),
                    counts.map(|counts| counts.into_iter().filter_map(of_topic).collect()),
                )
            }
            (None, Some(topic)) => (None, Some(vec![(topic.to_owned(), 1)])),
            (None, None) => (None, None),
        };
        self.add_counted(error.to_string(), times, counts, takes);
    }

    /// Notes a part of a file that was left out while chunks were copied.
    pub fn add_part(&mut self, about: &StorageSummary, part: LeftOutPart, takes: &dyn Fn(&str) -> bool) {
        if !self.known.insert((about.path.clone(), part.offset)) {
            return;
        }
        let name = |channel: ChannelIndex| {
            let channel = about.channels.get(channel.0 as usize)?;
            Some(channel.info.topic.name.clone())
        };
        let counts = part.messages.map(|messages| {
            let named = messages.into_iter();
            named
                .filter_map(|(channel, count)| Some((name(channel)?, count)))
                .collect()
        });
        self.add_counted(part.reason, Some(part.times), counts, takes);
    }

    fn add_counted(
        &mut self,
        reason: String,
        times: Option<(Timestamp, Timestamp)>,
        counts: Option<Vec<(String, u64)>>,
        takes: &dyn Fn(&str) -> bool,
    ) {
        let taken = counts.map(|counts| {
            let taken = counts.into_iter().filter(|(topic, _)| takes(topic));
            taken.collect::<Vec<_>>()
        });
        if taken.is_none() {
            self.add_of_unknown_topics(times);
        }
        let messages = taken
            .as_ref()
            .map(|taken| taken.iter().map(|(_, count)| count).sum());
        if messages == Some(0) {
            return;
        }
        for (topic, count) in taken.into_iter().flatten() {
            *self.by_topic.entry(topic).or_default() += count;
        }
        self.add(LeftOut {
            reason,
            messages,
            times,
            is_noticed: false,
        });
    }

    fn add_of_unknown_topics(&mut self, times: Option<(Timestamp, Timestamp)>) {
        if self.of_unknown_topics.len() < LISTED_MAX {
            self.of_unknown_topics.push(times);
        } else if let Some(last) = self.of_unknown_topics.last_mut() {
            *last = None;
        }
    }

    /// Whether messages of unknown topics cannot be read that may be within this span.
    pub fn is_of_unknown_topics(&self, (start, end): (Option<Timestamp>, Option<Timestamp>)) -> bool {
        let is_within = |(first, last): (Timestamp, Timestamp)| {
            start.is_none_or(|start| start <= last) && end.is_none_or(|end| first <= end)
        };
        self.of_unknown_topics
            .iter()
            .any(|times| times.is_none_or(is_within))
    }

    /// Messages that cannot be read by topic, as far as an index has them.
    pub fn by_topic(&self) -> &BTreeMap<String, u64> {
        &self.by_topic
    }

    /// The entry in the metadata of the output.
    pub fn custom_data(&self) -> BTreeMap<String, String> {
        let listed: Vec<String> = self
            .places
            .iter()
            .take(LISTED_IN_BAG_MAX)
            .map(LeftOut::to_string)
            .collect();
        let more = match self.place_count - listed.len() as u64 {
            0 => String::new(),
            more => format!("; and {more} more"),
        };
        let text = (!listed.is_empty()).then(|| format!("{}{more}", listed.join("; ")));
        text.map(|text| (LEFT_OUT_KEY.to_owned(), text))
            .into_iter()
            .collect()
    }

    /// The first place.
    pub fn first(&self) -> Option<&LeftOut> {
        self.places.first()
    }

    /// Notes damage in a file, unless a notice of the bag states it.
    pub fn add_file_damage(&mut self, sentence: &str) {
        if !self.places.iter().any(|place| place.reason == sentence) {
            self.is_cut = true;
            self.add(LeftOut {
                reason: sentence.to_owned(),
                ..LeftOut::default()
            });
        }
    }

    /// The end. `missing` is the number of messages that the inputs list and the output does not have, and whether `metadata.yaml` has more than
    /// the files list; `None` if less was selected.
    pub fn finish(mut self, missing: Option<(u64, bool)>) -> LeftOutMessages {
        if let Some((missing, _)) = missing.filter(|(missing, _)| *missing > 0 && self.place_count == 0) {
            self.add(LeftOut {
                reason: "the files list more messages than they have".to_owned(),
                messages: Some(missing),
                ..LeftOut::default()
            });
        }
        let counted: u64 = self.places.iter().filter_map(|place| place.messages).sum();
        let messages = match missing {
            _ if self.place_count == 0 => Some(0),
            // Messages after a cut are listed in the metadata only.
            Some((missing, is_listed)) if is_listed || !self.is_cut => Some(missing.max(counted)),
            _ if self.is_unknown || self.place_count > self.places.len() as u64 => None,
            _ => Some(counted),
        };
        LeftOutMessages {
            places: self.places,
            place_count: self.place_count,
            messages,
        }
    }
}

/// The files of a bag's directory that are still empty: they lack nothing.
fn unwritten_files(bag: &Bag) -> Result<Vec<String>, ToolError> {
    let mut unwritten = Vec::new();
    if bag.damages().any(|notice| notice.ends_with("left out")) && fs::is_dir(bag.path()) {
        for file in listing::storage_files(bag.path())? {
            if fs::is_unwritten(&file)? {
                unwritten.push(file.display().to_string());
            }
        }
    }
    Ok(unwritten)
}

/// The part of a file that an error is about, with the names of the file's topics by channel.
fn part_of(set: &BagSet, error: &ReadError) -> Option<(PathBuf, IndexedPart, Vec<String>)> {
    let (path, offset) = error.place()?;
    let mut files = set.bags().iter().flat_map(Bag::files);
    let file = files.find(|file| file.path == path)?;
    let reader = file.open().ok()?;
    let part = reader.part_at(offset)?;
    let channels = reader.outline().channels.iter();
    let topics = channels.map(|channel| channel.info.topic.name.clone()).collect();
    Some((path.to_owned(), part, topics))
}
