//! Separates the messages that a file repeats at its beginning from those that were recorded into it.

use crate::{
    error::StorageResult,
    reader::{ChannelSummary, IndexedPart, Messages, ReadMessage, ReadQuery, StorageReader, StorageSummary},
    writer::ChannelIndex,
};
use holdall_model::{
    repeated::{Copies, FileRepeats, REPEATED_RECORD, RepeatedChannel},
    time::Timestamp,
};
use std::{
    collections::HashMap,
    sync::{Arc, OnceLock},
};

/// The mark of a file; `None` if it has none.
pub fn repeats_of(reader: &dyn StorageReader) -> Option<FileRepeats> {
    FileRepeats::from_entries(reader.outline().last_metadata(REPEATED_RECORD)?)
}

/// The reader without all messages that its file repeats; the reader itself if it repeats none.
pub fn originals(inner: Arc<dyn StorageReader>) -> Arc<dyn StorageReader> {
    match repeats_of(&*inner) {
        None => inner,
        Some(repeats) => {
            let all = repeats.all();
            without_copies(inner, repeats, all)
        }
    }
}

/// The reader without these copies, by its file's mark.
pub fn without_copies(
    inner: Arc<dyn StorageReader>,
    repeats: FileRepeats,
    hidden: Copies,
) -> Arc<dyn StorageReader> {
    if hidden.is_none() {
        return inner;
    }
    Arc::new(OriginalsReader {
        outline: without(inner.outline(), &repeats, &hidden),
        inner,
        repeats,
        hidden,
        summary: OnceLock::new(),
    })
}

/// The messages that a file repeats, in its order.
///
/// # Errors
/// A file that cannot be read.
pub fn repeated_messages(reader: &dyn StorageReader) -> StorageResult<Vec<ReadMessage>> {
    let Some(repeats) = repeats_of(reader) else {
        return Ok(Vec::new());
    };
    let mut marked = Marked::new(reader.outline(), &repeats);
    let messages = reader.messages(&ReadQuery {
        start: Some(repeats.time),
        end: Some(repeats.time),
        ..ReadQuery::default()
    })?;
    let mut found = Vec::new();
    for message in messages {
        if marked.is_done() {
            break;
        }
        let message = message?;
        if marked.next(message.channel, message.log_time).is_some() {
            found.push(message);
        }
    }
    Ok(found)
}

/// Finds the repeated messages among those of a file.
struct Marked {
    time: Timestamp,
    /// The place of each channel in `left`; `None` for one that repeats nothing.
    places: Vec<Option<usize>>,
    /// How many there are, and how many were found.
    counts: Vec<(usize, usize)>,
}

impl Marked {
    fn new(outline: &StorageSummary, repeats: &FileRepeats) -> Self {
        let marks = repeats.channels.iter().enumerate();
        let marks: HashMap<_, usize> = marks.map(|(place, mark)| (key_of_mark(mark), place)).collect();
        let channels = outline.channels.iter();
        Self {
            time: repeats.time,
            places: channels
                .map(|channel| marks.get(&key_of(channel)).copied())
                .collect(),
            counts: repeats
                .channels
                .iter()
                .map(|channel| (channel.messages.len(), 0))
                .collect(),
        }
    }

    fn is_done(&self) -> bool {
        self.counts.iter().all(|(all, found)| all == found)
    }

    /// Identifies the next message in the file's order as a copy, by its mark and its number among that mark's copies; `None` if
    /// it is not a copy.
    fn next(&mut self, channel: ChannelIndex, log_time: Timestamp) -> Option<(usize, usize)> {
        if log_time != self.time {
            return None;
        }
        let place = self.places.get(channel.0 as usize).copied().flatten()?;
        let (all, found) = &mut self.counts[place];
        if found == all {
            return None;
        }
        *found += 1;
        Some((place, *found - 1))
    }
}

type Key<'a> = (&'a str, &'a str, Option<&'a str>);

fn key_of_mark(mark: &RepeatedChannel) -> Key<'_> {
    (&mark.topic, &mark.type_name, mark.publisher.as_deref())
}

fn key_of(channel: &ChannelSummary) -> Key<'_> {
    let topic = &channel.info.topic;
    let publisher = topic.publisher.as_ref().map(|publisher| publisher.gid.as_str());
    (&topic.name, &topic.type_name, publisher)
}

/// The summary of the remaining messages. Unknown counts stay zero.
fn without(summary: &StorageSummary, repeats: &FileRepeats, hidden: &Copies) -> StorageSummary {
    let mut rest = summary.clone();
    let mut left: HashMap<Key<'_>, u64> = HashMap::new();
    for (place, mark) in repeats.channels.iter().enumerate() {
        *left.entry(key_of_mark(mark)).or_insert(0) += hidden.of_channel(place);
    }
    for (channel, stored) in rest.channels.iter_mut().zip(&summary.channels) {
        if let Some(left) = left.get_mut(&key_of(stored)) {
            let taken = (*left).min(channel.message_count);
            channel.message_count -= taken;
            *left -= taken;
        }
    }
    if summary.message_count > 0 {
        rest.message_count = rest.channels.iter().map(|channel| channel.message_count).sum();
        if rest.message_count == 0 {
            (rest.starting_time, rest.ending_time) = (None, None);
        }
    }
    rest
}

/// A file without copies of messages.
struct OriginalsReader {
    inner: Arc<dyn StorageReader>,
    repeats: FileRepeats,
    hidden: Copies,
    outline: StorageSummary,
    summary: OnceLock<StorageSummary>,
}

impl StorageReader for OriginalsReader {
    fn summary(&self) -> &StorageSummary {
        self.summary
            .get_or_init(|| without(self.inner.summary(), &self.repeats, &self.hidden))
    }

    fn outline(&self) -> &StorageSummary {
        &self.outline
    }

    fn messages(&self, query: &ReadQuery) -> StorageResult<Messages> {
        let mut marked = Marked::new(self.inner.outline(), &self.repeats);
        let messages = self.inner.messages(query)?;
        let hidden = self.hidden.clone();
        let is_shown = move |message: &StorageResult<ReadMessage>| {
            let message = message.as_ref().ok();
            let copy = message.and_then(|message| marked.next(message.channel, message.log_time));
            !copy.is_some_and(|(channel, place)| hidden.has(channel, place))
        };
        Ok(Box::new(messages.filter(is_shown)))
    }

    fn part_at(&self, offset: u64) -> Option<IndexedPart> {
        self.inner.part_at(offset)
    }
}
