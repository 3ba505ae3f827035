//! The last messages of topics before a time: the state that a late subscription to a latched topic would get.

use super::{
    error::ReadError,
    message::{BagMessage, PublisherChoice, before},
    set::BagSet,
};
use crate::reader::bag_file::BagFile;
use holdall_model::{time::Timestamp, topic::TopicInfo};
use holdall_storage::{
    reader::{ReadMessage, ReadOrder, ReadQuery, StorageReader},
    writer::ChannelIndex,
};
use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

/// The first span that is searched, backwards from the time.
const FIRST_SPAN: Duration = Duration::from_secs(1);

/// By how much each span is longer than the one after it. An index leads to the chunks of the wanted topics, so that a span without
/// messages costs next to nothing.
const GROWTH: u32 = 4;

/// Which topics, and how many of the last messages where the publisher is not known; of a known publisher it is one.
pub type LatestWanted = BTreeMap<String, usize>;

/// Who published: topic, type, and the publisher's identifier.
type Key = (String, String, Option<String>);

impl BagSet {
    /// The last messages logged before `time` of the `wanted` topics: one of each publisher, by their stamps.
    ///
    /// Files are searched backwards until each publisher that a file names has one; within a file the chunks of other topics are not
    /// read.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn latest_before(
        &self,
        time: Timestamp,
        wanted: &LatestWanted,
        publishers: Option<&PublisherChoice>,
    ) -> Result<Vec<BagMessage>, ReadError> {
        let mut all = Vec::new();
        for bag in self.bags() {
            let mut found: BTreeMap<Key, VecDeque<BagMessage>> = BTreeMap::new();
            for file in bag.files().iter().rev() {
                let may_have = !file.empty && file.earliest.is_none_or(|earliest| earliest < time);
                if may_have {
                    search_file(file, time, wanted, publishers, &mut found)?;
                }
            }
            let (start, _) = bag.bounds();
            let inside = |message: &BagMessage| start.is_none_or(|start| message.log_time >= start);
            all.extend(found.into_values().flatten().filter(inside));
        }
        all.sort_by_key(|message| message.stamp);
        Ok(all)
    }
}

/// A channel that still lacks messages.
struct Lacking {
    key: Key,
    topic: Arc<TopicInfo>,
    count: usize,
}

/// Adds the last messages of one file, before those of later files.
fn search_file(
    file: &BagFile,
    time: Timestamp,
    wanted: &LatestWanted,
    publishers: Option<&PublisherChoice>,
    found: &mut BTreeMap<Key, VecDeque<BagMessage>>,
) -> Result<(), ReadError> {
    let reader = file.open()?;
    let channels = (0..).map(ChannelIndex).zip(&reader.outline().channels);
    let mut lacking: BTreeMap<u32, Lacking> = BTreeMap::new();
    for (index, channel) in channels {
        let topic = &channel.info.topic;
        let publisher = topic.publisher.as_deref();
        let Some(unknown) = wanted.get(&topic.name) else {
            continue;
        };
        if publishers.is_some_and(|choice| !choice.takes(publisher)) {
            continue;
        }
        let gid = publisher.map(|publisher| publisher.gid.clone());
        let count = if gid.is_some() { 1 } else { *unknown };
        let key = (topic.name.clone(), topic.type_name.clone(), gid);
        if found.get(&key).map_or(0, VecDeque::len) < count {
            let topic = Arc::new(topic.clone());
            lacking.insert(index.0, Lacking { key, topic, count });
        }
    }
    let Some(first) = reader.summary().starting_time.filter(|_| !lacking.is_empty()) else {
        return Ok(());
    };
    let (mut end, mut span) = (before(time, Duration::from_nanos(1)), FIRST_SPAN);
    // Bounded: each span is longer than the one before, until the beginning of the file.
    while !lacking.is_empty() && end >= first {
        let start = before(end, span);
        search_span(&*reader, start, end, &lacking, found)?;
        lacking.retain(|_, channel| found.get(&channel.key).map_or(0, VecDeque::len) < channel.count);
        (end, span) = (
            before(start, Duration::from_nanos(1)),
            span.saturating_mul(GROWTH),
        );
    }
    Ok(())
}

/// Adds the last messages of a span, before those that are known.
fn search_span(
    reader: &dyn StorageReader,
    start: Timestamp,
    end: Timestamp,
    lacking: &BTreeMap<u32, Lacking>,
    found: &mut BTreeMap<Key, VecDeque<BagMessage>>,
) -> Result<(), ReadError> {
    let messages = reader.messages(&ReadQuery {
        channels: Some(lacking.keys().copied().map(ChannelIndex).collect()),
        start: Some(start),
        end: Some(end),
        order: ReadOrder::LogTime,
        verified: false,
    })?;
    let mut last: BTreeMap<&Key, VecDeque<BagMessage>> = BTreeMap::new();
    for message in messages {
        let message = match message {
            Ok(message) => message,
            // Messages outside the damage are still found.
            Err(error) if error.is_damage() => {
                tracing::warn!("{error}");
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        let Some(channel) = lacking.get(&message.channel.0) else {
            continue;
        };
        let kept = last.entry(&channel.key).or_default();
        kept.push_back(bag_message(message, &channel.topic));
        if kept.len() > channel.count {
            kept.pop_front();
        }
    }
    for (key, mut messages) in last {
        let later = found.remove(key).unwrap_or_default();
        messages.extend(later);
        let count = lacking.values().find(|channel| channel.key == *key);
        let surplus = messages
            .len()
            .saturating_sub(count.map_or(usize::MAX, |channel| channel.count));
        messages.drain(..surplus);
        found.insert(key.clone(), messages);
    }
    Ok(())
}

fn bag_message(message: ReadMessage, topic: &Arc<TopicInfo>) -> BagMessage {
    BagMessage {
        topic: Arc::clone(topic),
        stamp: message.log_time,
        log_time: message.log_time,
        publish_time: message.publish_time,
        sequence: message.sequence,
        payload: message.payload,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::writer::Writer;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_nanos(1_700_000_000_000_000_000 + seconds * 1_000_000_000)
    }

    fn stamps(bags: &BagSet, time: Timestamp, count: usize) -> Vec<(String, i64)> {
        let wanted = ["/map", "/tf_static"].map(|name| (name.to_owned(), count)).into();
        let found = bags.latest_before(time, &wanted, None).expect("readable");
        let second = |stamp: Timestamp| (stamp.as_nanos() - at(0).as_nanos()) / 1_000_000_000;
        found
            .iter()
            .map(|it| (it.topic.name.clone(), second(it.stamp)))
            .collect()
    }

    #[test]
    fn the_last_message_of_each_wanted_topic_before_a_time_is_found_however_long_ago_it_was() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("bag");
        let mut writer = Writer::create(&path).expect("bag");
        let topics = ["/map", "/tf_static", "/scan"].map(|name| writer.add_topic(name, "std_msgs/msg/UInt8"));
        let [map, tf, scan] = topics.map(|topic| topic.expect("topic"));
        for second in 0..500 {
            writer.write(scan, at(second), &[0, 1, 0, 0, 1]).expect("written");
            if [2, 3, 400].contains(&second) {
                writer.write(map, at(second), &[0, 1, 0, 0, 2]).expect("written");
            }
            if second == 1 {
                writer.write(tf, at(second), &[0, 1, 0, 0, 3]).expect("written");
            }
        }
        writer.close().expect("closed");
        let bags = BagSet::open(&[path]).expect("opened");
        let of = |list: &[(&str, i64)]| {
            list.iter()
                .map(|(name, at)| ((*name).to_owned(), *at))
                .collect::<Vec<_>>()
        };
        assert_eq!(stamps(&bags, at(499), 1), of(&[("/tf_static", 1), ("/map", 400)]));
        assert_eq!(stamps(&bags, at(400), 1), of(&[("/tf_static", 1), ("/map", 3)]));
        assert_eq!(
            stamps(&bags, at(400), 2),
            of(&[("/tf_static", 1), ("/map", 2), ("/map", 3)])
        );
        assert_eq!(stamps(&bags, at(1), 1), of(&[]));
    }
}
