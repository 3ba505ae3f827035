//! Messages that a storage file repeats at its beginning: the latched state of the time when it begins.

use crate::time::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashSet};

/// The record that marks a file's repeated messages; it is written before them.
pub const REPEATED_RECORD: &str = "holdall:repeated";

/// Key of `custom_data` in `metadata.yaml` that holds the marks of all files by file name, so that messages can be counted without
/// opening every file.
pub const REPEATED_CUSTOM_KEY: &str = "holdall.repeated";

/// The most bytes of a mark: one that is longer is damaged.
const MARK_BYTES_MAX: usize = 64 << 20;

const TIME: &str = "time";
const RECORDING: &str = "recording";
const FILE: &str = "file";
const CHANNELS: &str = "channels";

/// One repeated message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RepeatedMessage {
    /// Number of the message within the recording: the copies of a message have the same.
    pub id: u64,
    /// Number of the file in which the message was recorded; `None` if it was recorded in no file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<u32>,
}

/// The repeated messages of a channel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RepeatedChannel {
    /// Full ROS name of the topic.
    pub topic: String,
    /// ROS type.
    #[serde(rename = "type")]
    pub type_name: String,
    /// Identifier of the publisher, if the file distinguishes publishers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub publisher: Option<String>,
    /// The messages, in their order in the file.
    pub messages: Vec<RepeatedMessage>,
}

/// The messages that one file repeats: for each channel the first ones, logged at `time`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileRepeats {
    /// Identifies the recording, which has several files.
    pub recording: String,
    /// Number of the file within the recording.
    pub file: u32,
    /// Log time of all repeated messages: the beginning of the file.
    pub time: Timestamp,
    /// Marks by channel, each at most once; empty for a file that repeats nothing.
    pub channels: Vec<RepeatedChannel>,
}

impl FileRepeats {
    /// Number of repeated messages of all channels.
    pub fn messages(&self) -> u64 {
        self.channels
            .iter()
            .map(|channel| channel.messages.len() as u64)
            .sum()
    }

    /// All copies of the file.
    pub fn all(&self) -> Copies {
        let channels = self.channels.iter();
        Copies(
            channels
                .map(|channel| vec![true; channel.messages.len()])
                .collect(),
        )
    }

    /// The entries of a [`REPEATED_RECORD`].
    pub fn entries(&self) -> BTreeMap<String, String> {
        BTreeMap::from([
            (RECORDING.to_owned(), self.recording.clone()),
            (FILE.to_owned(), self.file.to_string()),
            (TIME.to_owned(), self.time.as_nanos().to_string()),
            (CHANNELS.to_owned(), serde_json::json!(self.channels).to_string()),
        ])
    }

    /// The marks in a record; `None` when they cannot be understood.
    pub fn from_entries(entries: &BTreeMap<String, String>) -> Option<Self> {
        let channels = entries.get(CHANNELS)?;
        let channels = (channels.len() <= MARK_BYTES_MAX)
            .then(|| serde_json::from_str(channels).ok())
            .flatten()?;
        Some(Self {
            recording: entries.get(RECORDING)?.clone(),
            file: entries.get(FILE)?.parse().ok()?,
            time: Timestamp::from_nanos(entries.get(TIME)?.parse().ok()?),
            channels,
        })
    }
}

/// A choice among the copies of a file: for each channel of its mark, and each of its messages, whether it is chosen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Copies(pub Vec<Vec<bool>>);

impl Copies {
    /// Whether none is chosen.
    pub fn is_none(&self) -> bool {
        self.0.iter().flatten().all(|is_chosen| !is_chosen)
    }

    /// Whether the copy at this place of a channel of the mark is chosen.
    pub fn has(&self, channel: usize, place: usize) -> bool {
        let channel = self.0.get(channel);
        channel.and_then(|messages| messages.get(place)) == Some(&true)
    }

    /// Number of chosen copies of a channel of the mark.
    pub fn of_channel(&self, channel: usize) -> u64 {
        let chosen = self.0.get(channel).into_iter().flatten();
        chosen.filter(|is_chosen| **is_chosen).count() as u64
    }
}

/// Chooses the copies of messages that these files have in another place: in the file in which the message was recorded, or as a copy in
/// an earlier file. Other copies are the only ones left of their messages.
pub fn elsewhere<'a>(files: impl IntoIterator<Item = &'a FileRepeats>) -> Vec<Copies> {
    let files: Vec<&FileRepeats> = files.into_iter().collect();
    let there: HashSet<(&str, u32)> = files.iter().map(|it| (it.recording.as_str(), it.file)).collect();
    let mut in_order: Vec<usize> = (0..files.len()).collect();
    in_order.sort_by_key(|index| files[*index].file);
    let mut copied: HashSet<(&str, u64)> = HashSet::new();
    let mut chosen = vec![Copies::default(); files.len()];
    for index in in_order {
        let file = files[index];
        let mut is_elsewhere = |message: &RepeatedMessage| {
            let recorded = message.file.filter(|number| *number != file.file);
            let is_recorded = recorded.is_some_and(|number| there.contains(&(&file.recording, number)));
            is_recorded || !copied.insert((&file.recording, message.id))
        };
        let channels = file.channels.iter();
        chosen[index] = Copies(
            channels
                .map(|channel| channel.messages.iter().map(&mut is_elsewhere).collect())
                .collect(),
        );
    }
    chosen
}

/// The marks of a bag's files, by their names relative to the bag.
pub type BagRepeats = BTreeMap<String, FileRepeats>;

/// The entry of `custom_data`; none if no file has a mark.
pub fn repeats_to_custom_data(repeats: &BagRepeats) -> Option<(String, String)> {
    let has_some = !repeats.is_empty();
    has_some.then(|| {
        (
            REPEATED_CUSTOM_KEY.to_owned(),
            serde_json::json!(repeats).to_string(),
        )
    })
}

/// The marks in `custom_data`; empty if the entry is absent or damaged.
pub fn repeats_from_custom_data(custom_data: &BTreeMap<String, String>) -> BagRepeats {
    let text = custom_data.get(REPEATED_CUSTOM_KEY);
    let text = text.filter(|text| text.len() <= MARK_BYTES_MAX);
    text.and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repeats() -> FileRepeats {
        let channel =
            |topic: &str, publisher: Option<&str>, messages: &[(u64, Option<u32>)]| RepeatedChannel {
                topic: topic.to_owned(),
                type_name: "std_msgs/msg/String".to_owned(),
                publisher: publisher.map(str::to_owned),
                messages: messages
                    .iter()
                    .map(|(id, file)| RepeatedMessage { id: *id, file: *file })
                    .collect(),
            };
        FileRepeats {
            recording: "lab@7".to_owned(),
            file: 1,
            time: Timestamp::from_nanos(1_700_000_000_000_000_001),
            channels: vec![
                channel("/map", None, &[(0, Some(0))]),
                channel("/\"tf\"", Some("01.02"), &[(1, None), (2, Some(0)), (4, None)]),
            ],
        }
    }

    #[test]
    fn marks_survive_their_texts() {
        let file = repeats();
        assert_eq!(file.messages(), 4);
        assert_eq!(FileRepeats::from_entries(&file.entries()), Some(file.clone()));
        let bag = BagRepeats::from([("lab_1.mcap".to_owned(), file)]);
        let custom_data = repeats_to_custom_data(&bag).into_iter().collect();
        assert_eq!(repeats_from_custom_data(&custom_data), bag);
        assert_eq!(repeats_to_custom_data(&BagRepeats::new()), None);
    }

    #[test]
    fn what_is_no_mark_marks_nothing() {
        for (key, text) in [
            ("time", "x"),
            ("file", "-1"),
            ("channels", "["),
            ("channels", "[{}]"),
        ] {
            let mut entries = repeats().entries();
            entries.insert(key.to_owned(), text.to_owned());
            assert_eq!(FileRepeats::from_entries(&entries), None, "{key}: {text}");
            entries.remove(key);
            assert_eq!(FileRepeats::from_entries(&entries), None, "no {key}");
        }
        let damaged = BTreeMap::from([(REPEATED_CUSTOM_KEY.to_owned(), "{\"a\": 1}".to_owned())]);
        assert!(repeats_from_custom_data(&damaged).is_empty());
    }

    #[test]
    fn a_copy_is_elsewhere_where_its_message_or_an_earlier_copy_is() {
        let first = FileRepeats {
            file: 0,
            channels: Vec::new(),
            ..repeats()
        };
        let (second, third) = (repeats(), FileRepeats { file: 2, ..repeats() });
        let only = |chosen: [bool; 4]| Copies(vec![chosen[..1].to_vec(), chosen[1..].to_vec()]);
        let none = Copies::default();
        assert_eq!(
            elsewhere([&third, &first, &second]),
            [only([true; 4]), none, only([true, false, true, false])]
        );
        assert_eq!(
            elsewhere([&second, &third]),
            [only([false; 4]), only([true; 4])],
            "the file of the messages is gone"
        );
        let other = FileRepeats {
            recording: "lab@8".to_owned(),
            ..third
        };
        assert!(elsewhere([&second, &other]).iter().all(Copies::is_none));
        assert_eq!(other.all().of_channel(1), 3);
    }
}
