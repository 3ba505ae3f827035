//! The content of a bag: its messages as our own reader finds them, compared with those that a foreign reader finds in the
//! same files.

use crate::payload;
use holdall_storage::{
    reader::{FileCondition, ReadOrder, ReadQuery},
    storage_by_path,
};
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

/// A message of the bag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its publisher's number in the truth.
    pub life: usize,
    /// Its number, from 1.
    pub sequence: u64,
    /// Nanoseconds.
    pub log_time: u64,
    /// Nanoseconds.
    pub publish_time: u64,
    /// Payload length in bytes.
    pub len: usize,
    /// Place of its file in the bag.
    pub file: usize,
    /// Its payload equals the sent one.
    pub is_exact: bool,
    /// The low half of its sequence number is in the file as well.
    pub has_sequence: bool,
}

impl Found {
    /// Whether a message has no hole. A hole in the name of a short payload makes another name, for which its
    /// bytes may be right; the header of its record, which is before the hole, has the true number then. No
    /// message has number 0.
    pub fn is_whole(&self) -> bool {
        self.is_exact && self.has_sequence && self.sequence > 0
    }
}

/// All messages of a bag in the order of its files.
#[derive(Debug, Default)]
pub struct FoundBag {
    /// The messages with their topics.
    pub messages: Vec<(Found, String)>,
    /// Under which types each publisher's messages are.
    pub types: BTreeSet<(usize, String)>,
    /// Storage files in order.
    pub files: Vec<PathBuf>,
    /// Files that are not whole, by their place.
    pub torn: Vec<usize>,
    /// A sentence for each of them.
    pub damage: Vec<String>,
    /// Skip messages that do not name their publisher.
    pub passes_over: bool,
}

/// The storage files of a directory in the order of their numbers.
pub fn storage_files(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(directory) else {
        return Vec::new();
    };
    let mut files: Vec<(u32, PathBuf)> = entries
        .flatten()
        .filter_map(|entry| {
            let path = entry.path();
            let number = path.file_stem()?.to_str()?.rsplit_once('_')?.1.parse().ok()?;
            storage_by_path(&path).map(|_| (number, path))
        })
        .collect();
    files.sort();
    files.into_iter().map(|(_, path)| path).collect()
}

/// Reads a bag's files in their order. With `passes_over` a message may have lost the bytes that name its
/// publisher.
///
/// # Errors
/// One sentence when a message cannot be read.
pub fn read(directory: &Path, passes_over: bool) -> Result<FoundBag, String> {
    let mut bag = FoundBag {
        files: storage_files(directory),
        passes_over,
        ..FoundBag::default()
    };
    for (number, path) in bag.files.iter().enumerate() {
        let storage = storage_by_path(path).ok_or("no storage has this extension")?;
        let reader = match storage.open_reader(path) {
            Ok(reader) => reader,
            Err(error) => {
                bag.damage.push(error.to_string());
                bag.torn.push(number);
                continue;
            }
        };
        let summary = reader.summary();
        if let FileCondition::Damaged { offset, reason } = &summary.condition {
            bag.damage
                .push(format!("{} at byte {offset}: {reason}", path.display()));
            bag.torn.push(number);
        }
        let query = ReadQuery {
            order: ReadOrder::File,
            ..ReadQuery::default()
        };
        for message in reader.messages(&query).map_err(|error| error.to_string())? {
            let message = message.map_err(|error| error.to_string())?;
            let info = &summary.channels[message.channel.0 as usize].info.topic;
            let topic = &info.name;
            let times = [message.log_time, message.publish_time].map(|time| time.as_nanos().unsigned_abs());
            match found(number, &message.payload, times, message.sequence) {
                Some(found) => {
                    // The bytes of a hole name another publisher.
                    if !passes_over || found.is_whole() {
                        bag.types.insert((found.life, info.type_name.clone()));
                    }
                    bag.messages.push((found, topic.clone()));
                }
                None if passes_over => {}
                None => {
                    return Err(format!(
                        "{}: a payload that was never sent on {topic}",
                        path.display()
                    ));
                }
            }
        }
    }
    Ok(bag)
}

/// Reads the files that are whole with the `mcap` crate, which must find the same messages in the same order.
///
/// # Errors
/// One sentence when it does not.
pub fn compare_foreign(bag: &FoundBag) -> Result<(), String> {
    for (number, path) in bag
        .files
        .iter()
        .enumerate()
        .filter(|(number, _)| !bag.torn.contains(number))
    {
        let shown = path.file_name().unwrap_or_default().display();
        let bytes = fs::read(path).map_err(|error| format!("{shown}: {error}"))?;
        let mut own = bag.messages.iter().filter(|(found, _)| found.file == number);
        let stream = mcap::MessageStream::new(&bytes).map_err(|error| format!("{shown}: {error}"))?;
        for message in stream {
            let message = message.map_err(|error| format!("{shown}: {error}"))?;
            if bag.passes_over && payload::name(&message.data).is_none() {
                continue;
            }
            let Some((found, topic)) = own.next() else {
                return Err(format!(
                    "{shown}: the foreign reader finds more messages than holdall's"
                ));
            };
            let same = message.channel.topic == *topic
                && message.log_time == found.log_time
                && message.publish_time == found.publish_time
                && message.data.len() == found.len
                && payload::name(&message.data) == Some((found.life, found.sequence));
            if !same {
                return Err(format!(
                    "{shown}: the foreign reader finds other messages than holdall's"
                ));
            }
        }
        if own.next().is_some() {
            return Err(format!(
                "{shown}: the foreign reader finds fewer messages than holdall's"
            ));
        }
    }
    Ok(())
}

fn found(file: usize, payload: &[u8], times: [u64; 2], low_sequence: u32) -> Option<Found> {
    let (life, sequence) = payload::name(payload)?;
    Some(Found {
        life,
        sequence,
        log_time: times[0],
        publish_time: times[1],
        len: payload.len(),
        file,
        is_exact: *payload == *payload::of(life, sequence, payload.len()),
        has_sequence: low_sequence == sequence as u32,
    })
}
