//! Counts of each topic's messages over time, without reading the messages if there is an index.

use super::{bag::Bag, bag_file::BagFile, error::ReadError, set::BagSet};
use holdall_model::time::Timestamp;
use holdall_storage::{
    reader::{ReadOrder, ReadQuery, TimeCells},
    writer::ChannelIndex,
};
use std::collections::BTreeMap;

/// Messages of each topic over time, in cells of equal length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OverTime {
    /// First and last log time, the bounds of all cells; `None` for bags without messages.
    pub times: Option<(Timestamp, Timestamp)>,
    /// The counts of each topic that has messages.
    pub by_topic: BTreeMap<String, Vec<u64>>,
    /// False if a file was left out because all of its messages would have to be read.
    pub is_whole: bool,
}

impl BagSet {
    /// Counts the messages of each topic in `cells` cells. Files without an index are read if they have no more than `read_bytes_max` bytes.
    ///
    /// # Errors
    /// A file that cannot be read. Damaged parts are passed over.
    pub fn over_time(&self, cells: usize, read_bytes_max: u64) -> Result<OverTime, ReadError> {
        let times = self.log_times();
        let mut found = OverTime {
            times,
            by_topic: BTreeMap::new(),
            is_whole: true,
        };
        let Some(times) = times else {
            return Ok(found);
        };
        for (bag, file) in self
            .bags()
            .iter()
            .flat_map(|bag| bag.files().iter().map(move |file| (bag, file)))
            .filter(|(_, file)| !file.empty)
        {
            // A packed file must be unpacked, and the bounds of a part of a bag are in no index.
            let must_read = file.is_packed() || bag.bounds() != (None, None);
            if must_read && file.bytes > read_bytes_max {
                found.is_whole = false;
                continue;
            }
            let mut counted = TimeCells::new(times, cells);
            let reader = file.open()?;
            if must_read || !reader.count_over_time(&mut counted)? {
                if file.bytes > read_bytes_max {
                    found.is_whole = false;
                    continue;
                }
                read(bag, file, &mut counted)?;
            }
            for (place, channel) in (0..).zip(&reader.outline().channels) {
                let counts = counted.of(ChannelIndex(place));
                if counts.is_empty() {
                    continue;
                }
                let lane = found
                    .by_topic
                    .entry(channel.info.topic.name.clone())
                    .or_insert_with(|| vec![0; counts.len()]);
                for (sum, count) in lane.iter_mut().zip(counts) {
                    *sum = sum.saturating_add(*count);
                }
            }
        }
        Ok(found)
    }
}

/// Counts messages by reading them.
fn read(bag: &Bag, file: &BagFile, cells: &mut TimeCells) -> Result<(), ReadError> {
    let (start, end) = bag.bounds();
    let query = ReadQuery {
        channels: None,
        start,
        end,
        order: ReadOrder::File,
        verified: false,
    };
    for message in file.open()?.messages(&query)?.flatten() {
        cells.add(message.channel, cells.cell(message.log_time), 1);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Writer, writer::SplitOptions};
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
            let found = bags.over_time(10, u64::MAX).unwrap();
            assert!(found.is_whole);
            assert_eq!(found.by_topic["/regular"], [10; 10], "{storage}");
            assert_eq!(
                found.by_topic["/early"],
                [10, 10, 0, 0, 0, 0, 0, 0, 0, 0],
                "{storage}"
            );
            let unread = bags.over_time(10, 0).unwrap();
            assert_eq!(unread.is_whole, storage == "mcap", "only one has an index");
        }
    }
}
