//! Counts of each topic's messages over time, without reading the messages if there is an index; and when messages were lost.

use super::{bag::Bag, bag_file::BagFile, error::ReadError, ros1::SharedReader, set::BagSet};
use holdall_model::{
    loss::{LossStage, ledger::TopicAccount},
    time::Timestamp,
};
use holdall_storage::{
    reader::{ReadOrder, ReadQuery, TimeCells},
    writer::ChannelIndex,
};
use serde::Serialize;
use std::collections::BTreeMap;

/// Messages of each topic over time, in cells of equal length.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OverTime {
    /// First and last log time, the bounds of all cells; `None` for bags without messages.
    pub times: Option<(Timestamp, Timestamp)>,
    /// The counts of each topic that has messages.
    pub by_topic: BTreeMap<String, Vec<u64>>,
    /// False if a file was left out because all of its messages would have to be read, or the caller wanted no more.
    pub is_whole: bool,
    /// The first damage that was met: messages may be missing in the counts.
    pub damage: Option<String>,
}

impl BagSet {
    /// Counts the messages of each topic in `cells` cells. Files without an index are read if they have no more than `read_bytes_max` bytes;
    /// `wanted` gets the number of messages read so far, and returns false to leave out the rest. What is damaged is passed over and named.
    pub fn over_time(
        &self,
        cells: usize,
        read_bytes_max: u64,
        wanted: &mut dyn FnMut(u64) -> bool,
    ) -> OverTime {
        let times = self.log_times();
        let empty = TimeCells::new(times.unwrap_or_default(), cells);
        self.counted(times, &empty, read_bytes_max, wanted)
    }

    /// As [`BagSet::over_time`], of the messages between two times alone.
    pub fn over_part(
        &self,
        (start, end): (Timestamp, Timestamp),
        cells: usize,
        read_bytes_max: u64,
        wanted: &mut dyn FnMut(u64) -> bool,
    ) -> OverTime {
        let part = TimeCells::of_part((start, end), cells);
        let mut found = self.counted(Some((start, end)), &part, read_bytes_max, wanted);
        for counts in found.by_topic.values_mut() {
            *counts = counts.get(1..=cells).map(<[u64]>::to_vec).unwrap_or_default();
        }
        found
    }

    fn counted(
        &self,
        times: Option<(Timestamp, Timestamp)>,
        empty: &TimeCells,
        read_bytes_max: u64,
        wanted: &mut dyn FnMut(u64) -> bool,
    ) -> OverTime {
        let mut found = OverTime {
            times,
            by_topic: BTreeMap::new(),
            is_whole: true,
            damage: None,
        };
        if times.is_none() {
            return found;
        }
        let mut messages = 0;
        let mut note = || {
            messages += 1;
            wanted(messages)
        };
        let files = self
            .bags()
            .iter()
            .flat_map(|bag| bag.files().iter().map(move |file| (bag, file)));
        for (bag, file) in files.filter(|(_, file)| !file.empty) {
            match Counted::of(bag, file, empty, read_bytes_max, &mut note) {
                Ok(counted) => {
                    found.add(&counted);
                    if counted.extent == Extent::Ended {
                        break;
                    }
                }
                Err(error) => _ = found.damage.get_or_insert_with(|| error.to_string()),
            }
        }
        found
    }
}

impl OverTime {
    fn add(&mut self, counted: &Counted) {
        self.is_whole &= counted.extent == Extent::Whole;
        if self.damage.is_none() {
            self.damage.clone_from(&counted.damage);
        }
        for (place, topic) in (0..).zip(&counted.topics) {
            let counts = counted.cells.of(ChannelIndex(place));
            if counts.is_empty() {
                continue;
            }
            let lane = self
                .by_topic
                .entry(topic.clone())
                .or_insert_with(|| vec![0; counts.len()]);
            for (sum, count) in lane.iter_mut().zip(counts) {
                *sum = sum.saturating_add(*count);
            }
        }
    }
}

/// How much of a file was counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extent {
    Whole,
    /// Nothing: it is too long to be read.
    LeftOut,
    /// The messages before the caller wanted no more.
    Ended,
}

/// The messages of one file.
struct Counted {
    /// By channel.
    topics: Vec<String>,
    cells: TimeCells,
    extent: Extent,
    damage: Option<String>,
}

impl Counted {
    fn of(
        bag: &Bag,
        file: &BagFile,
        empty: &TimeCells,
        read_bytes_max: u64,
        note: &mut dyn FnMut() -> bool,
    ) -> Result<Self, ReadError> {
        let mut counted = Self {
            topics: Vec::new(),
            cells: empty.clone(),
            extent: Extent::LeftOut,
            damage: None,
        };
        // A packed file must be unpacked, and the bounds of a part of a bag are in no index.
        let must_read = file.is_packed() || bag.bounds() != (None, None);
        let may_read = file.bytes <= read_bytes_max;
        if must_read && !may_read {
            return Ok(counted);
        }
        let reader = file.open()?;
        let channels = reader.outline().channels.iter();
        counted.topics = channels.map(|channel| channel.info.topic.name.clone()).collect();
        if !must_read {
            match reader.count_over_time(&mut counted.cells) {
                Ok(true) => {
                    counted.extent = Extent::Whole;
                    return Ok(counted);
                }
                Ok(false) => {}
                Err(error) => {
                    counted.damage = Some(error.to_string());
                    counted.cells = empty.clone();
                }
            }
        }
        if may_read {
            counted.read(bag, &reader, note)?;
        }
        Ok(counted)
    }

    /// Counts messages by reading them, and notes the first damage.
    fn read(
        &mut self,
        bag: &Bag,
        reader: &SharedReader,
        note: &mut dyn FnMut() -> bool,
    ) -> Result<(), ReadError> {
        let (start, end) = bag.bounds();
        let query = ReadQuery {
            channels: None,
            start,
            end,
            order: ReadOrder::File,
            verified: false,
        };
        for message in reader.messages(&query)? {
            match message {
                Ok(message) => {
                    let cell = self.cells.cell(message.log_time);
                    self.cells.add(message.channel, cell, 1);
                }
                Err(error) => _ = self.damage.get_or_insert_with(|| error.to_string()),
            }
            if !note() {
                self.extent = Extent::Ended;
                return Ok(());
            }
        }
        self.extent = Extent::Whole;
        Ok(())
    }
}

/// Messages that were lost between two times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LossSpan {
    /// Its beginning.
    pub from: Timestamp,
    /// Its end, not earlier.
    pub until: Timestamp,
    /// Lost messages.
    pub count: u64,
    /// How they were lost.
    pub stage: LossStage,
}

impl LossSpan {
    /// When messages of a topic were lost, as far as its account has their times.
    pub fn of(account: &TopicAccount) -> impl Iterator<Item = Self> {
        let publishers = account.publishers.iter();
        let intervals = publishers.flat_map(|publisher| &publisher.intervals);
        intervals
            .filter(|interval| interval.stage.is_shortfall())
            .filter_map(|interval| {
                let from = interval.first_time.or(interval.last_time)?;
                Some(Self {
                    from,
                    until: interval.last_time.unwrap_or(from).max(from),
                    count: interval.count,
                    stage: interval.stage,
                })
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Writer, writer::SplitOptions};
    use holdall_model::metadata::BagMetadata;
    use std::path::Path;

    fn write(path: &Path, storage: &str) {
        let mut writer = Writer::create_with(path, storage, SplitOptions::default()).unwrap();
        let regular = writer.add_topic("/regular", "std_msgs/msg/UInt8").unwrap();
        let early = writer.add_topic("/early", "std_msgs/msg/UInt8").unwrap();
        for number in 0..100 {
            let time = Timestamp::from_nanos(1_000 + number * 10);
            writer.write(regular, time, &[0, 1, 0, 0, 7]).unwrap();
            if number < 20 {
                writer.write(early, time, &[0, 1, 0, 0, 7]).unwrap();
            }
        }
        writer.close().unwrap();
    }

    #[test]
    fn counts_are_the_same_by_an_index_and_by_reading() {
        for storage in ["mcap", "sqlite3"] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("bag");
            write(&path, storage);
            let bags = BagSet::open(&[path]).unwrap();
            let found = bags.over_time(10, u64::MAX, &mut |_| true);
            assert!(found.is_whole);
            assert_eq!(found.by_topic["/regular"], [10; 10], "{storage}");
            assert_eq!(
                found.by_topic["/early"],
                [10, 10, 0, 0, 0, 0, 0, 0, 0, 0],
                "{storage}"
            );
            assert_eq!(found.damage, None);
            let part = [1_200, 1_299].map(Timestamp::from_nanos);
            let part = bags.over_part((part[0], part[1]), 3, u64::MAX, &mut |_| true);
            assert_eq!(part.by_topic["/regular"], [4, 3, 3], "{storage}");
            assert_eq!(part.by_topic["/early"], [0; 3], "{storage}");
            for (start, end, count) in [
                (1_000, 1_990, 100),
                (1_000, 1_000, 1),
                (1_003, 1_009, 0),
                (1_003, 1_010, 1),
            ] {
                let times = (Timestamp::from_nanos(start), Timestamp::from_nanos(end));
                let part = bags.over_part(times, 1200, u64::MAX, &mut |_| true);
                let found: u64 = part.by_topic["/regular"].iter().sum();
                assert_eq!(found, count, "{storage} {start} to {end}");
            }
            let unread = bags.over_time(10, 0, &mut |_| true);
            assert_eq!(unread.is_whole, storage == "mcap", "only one has an index");
            let ended = bags.over_time(10, u64::MAX, &mut |read| read < 50);
            assert_eq!(ended.is_whole, storage == "mcap", "nothing is read of an index");
        }
    }

    #[test]
    fn damage_in_a_file_that_must_be_read_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bag");
        let mut writer = Writer::create_with(&path, "sqlite3", SplitOptions::default()).unwrap();
        let topic = writer.add_topic("/a", "std_msgs/msg/String").unwrap();
        for number in 0..2000 {
            writer
                .write(topic, Timestamp::from_nanos(number), &[7; 100])
                .unwrap();
        }
        writer.close().unwrap();
        let file = path.join("bag_0.db3");
        let mut content = std::fs::read(&file).unwrap();
        let middle = content.len() / 2 / 4096 * 4096;
        content[middle..middle + 4096].fill(0);
        std::fs::write(&file, content).unwrap();
        let found = BagSet::open(&[path])
            .unwrap()
            .over_time(10, u64::MAX, &mut |_| true);
        let counted: u64 = found.by_topic["/a"].iter().sum();
        assert!((1..2000).contains(&counted), "{counted}");
        assert!(found.damage.is_some_and(|damage| damage.contains("bag_0.db3")));
    }

    #[test]
    fn damage_that_the_bag_is_known_for_hides_none_that_is_met() {
        let folder = tempfile::tempdir().unwrap();
        let paths = ["marked", "broken"].map(|name| folder.path().join(name));
        for path in &paths {
            write(path, "mcap");
        }
        let file = paths[0].join("metadata.yaml");
        let mut metadata = BagMetadata::from_yaml(&std::fs::read_to_string(&file).unwrap()).unwrap();
        let mark = (
            crate::reader::DAMAGED_KEY.to_owned(),
            "a schema is damaged".to_owned(),
        );
        metadata.custom_data.extend([mark]);
        std::fs::write(&file, metadata.to_yaml()).unwrap();
        let marked = BagSet::open(&paths[..1]).unwrap();
        assert!(marked.bags()[0].damage().is_some());
        let found = marked.over_time(3, u64::MAX, &mut |_| true);
        assert_eq!(
            (found.is_whole, found.damage),
            (true, None),
            "all lanes are complete"
        );
        let both = BagSet::open(&paths).unwrap();
        std::fs::write(paths[1].join("broken_0.mcap"), "no bag").unwrap();
        let found = both.over_time(3, u64::MAX, &mut |_| true);
        assert!(
            found
                .damage
                .is_some_and(|damage| damage.contains("broken_0.mcap"))
        );
    }

    #[test]
    fn a_file_that_cannot_be_opened_is_passed_over_and_named() {
        let folder = tempfile::tempdir().unwrap();
        let paths = ["first", "second", "third"].map(|name| folder.path().join(name));
        for path in &paths {
            write(path, "mcap");
        }
        let bags = BagSet::open(&paths).unwrap();
        std::fs::write(paths[1].join("second_0.mcap"), "no bag").unwrap();
        let found = bags.over_time(3, u64::MAX, &mut |_| true);
        assert_eq!(found.by_topic["/regular"].iter().sum::<u64>(), 200);
        assert!(
            found
                .damage
                .is_some_and(|damage| damage.contains("second_0.mcap"))
        );
    }
}
