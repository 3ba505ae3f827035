//! Publishers in recorded bags: a channel for each in a file, one topic in the metadata, and their identities.

use super::*;
use crate::receive::intake::PUBLISHERS_KEPT_MAX;
use holdall_bag::reader::{Bag, BagAudit, BagSet, MessageFilter, PublisherChoice, ReadError, TopicPublisher};
use holdall_tools::tools::{self, Choice, Job, OutputOptions};
use std::collections::BTreeSet;

/// Two nodes on `/a`, one of them on `/b` too; each message contains its number, even ones come from the left.
fn record_two(world: &mut World, count: usize) -> Recorded {
    let request = |topic: &str| PublishRequest {
        topic: topic.to_owned(),
        type_name: STRING.to_owned(),
        qos: RELIABLE,
        ..PublishRequest::default()
    };
    let clock = world.clock();
    let left = world.network.publisher(&node("left"), &request("/a"), &clock);
    let right = world.network.publisher(&node("right"), &request("/a"), &clock);
    let other = world.network.publisher(&node("right"), &request("/b"), &clock);
    let recording = world.record();
    for publisher in [&left, &right, &other] {
        recording.wait_matched(publisher);
    }
    for number in 0..count {
        if number % 2 == 0 { &left } else { &right }.send(&payload(number, 8));
    }
    other.send(&payload(7, 8));
    recording.wait_recorded(count as u64 + 1);
    recording.stop()
}

fn messages_by_node(bag: &Bag) -> Vec<(String, Option<String>, u64)> {
    let tell = |it: TopicPublisher| (it.topic, it.publisher.and_then(|who| who.node), it.message_count);
    bag.publishers().unwrap().into_iter().map(tell).collect()
}

fn numbers(set: &BagSet, who: &[&str]) -> Vec<u8> {
    let who: Vec<String> = who.iter().map(|who| (*who).to_owned()).collect();
    let filter = MessageFilter {
        publishers: Some(Arc::new(PublisherChoice::resolve(set, &who).unwrap())),
        ..MessageFilter::default()
    };
    let messages = set.messages(&filter);
    messages.map(|message| message.unwrap().payload[0]).collect()
}

fn bag(recorded: &Recorded) -> Bag {
    Bag::open(&recorded.output).unwrap()
}

#[test]
fn each_publisher_has_a_channel_and_the_topic_is_listed_once() {
    for storage in ["mcap", "sqlite3"] {
        let mut world = World::new();
        world.options.files.storage_id = storage.to_owned();
        let recorded = record_two(&mut world, 10);
        let listed: Vec<_> = recorded
            .metadata()
            .topics_with_message_count
            .into_iter()
            .map(|topic| (topic.topic_metadata.name, topic.message_count))
            .collect();
        assert_eq!(listed, [("/a".to_owned(), 10), ("/b".to_owned(), 1)], "{storage}");
        let bag = bag(&recorded);
        let expected = [
            ("/a".to_owned(), Some("/left".to_owned()), 5),
            ("/a".to_owned(), Some("/right".to_owned()), 5),
            ("/b".to_owned(), Some("/right".to_owned()), 1),
        ];
        let mut found = messages_by_node(&bag);
        found.sort();
        assert_eq!(found, expected, "{storage}");
        let rebuilt = Bag::rebuild(&recorded.output).unwrap();
        let topics = &rebuilt.metadata().topics_with_message_count;
        let counts: BTreeMap<_, _> = topics
            .iter()
            .map(|topic| (topic.topic_metadata.name.as_str(), topic.message_count))
            .collect();
        assert_eq!(counts, [("/a", 10), ("/b", 1)].into(), "{storage}");
    }
}

#[test]
fn independent_readers_see_one_topic_in_order_and_say_who() {
    let mut world = World::new();
    let recorded = record_two(&mut world, 10);
    let expected: Vec<_> = (0..10).map(|number| payload(number, 8)).collect();
    assert_eq!(recorded.payloads("/a"), expected);
    let bytes = fs::read(&recorded.report.files[0]).unwrap();
    let summary = mcap::Summary::read(&bytes).unwrap().unwrap();
    let channels = summary.channels.values().filter(|channel| channel.topic == "/a");
    let about: BTreeSet<_> = channels
        .map(|channel| {
            let text = |key: &str| channel.metadata[key].clone();
            (
                text("holdall.publisher").len(),
                text("holdall.publisher.node"),
                text("holdall.publisher.transport"),
            )
        })
        .collect();
    let expected = ["/left", "/right"].map(|node| (32, node.to_owned(), "memory".to_owned()));
    assert_eq!(about, expected.into());
}

#[test]
fn messages_are_chosen_by_node_and_by_identifier() {
    for storage in ["mcap", "sqlite3"] {
        let mut world = World::new();
        world.options.files.storage_id = storage.to_owned();
        let recorded = record_two(&mut world, 10);
        let set = BagSet::from(vec![bag(&recorded)]);
        assert_eq!(numbers(&set, &["/left"]), [0, 2, 4, 6, 8], "{storage}");
        assert_eq!(numbers(&set, &["right"]), [1, 3, 5, 7, 9, 7], "{storage}");
        let publishers = bag(&recorded).publishers().unwrap();
        let of_b = publishers
            .iter()
            .find(|publisher| publisher.topic == "/b")
            .unwrap();
        let gid = &of_b.publisher.as_ref().unwrap().gid;
        assert_eq!(numbers(&set, &[gid]), [7], "{storage}");
        let error = PublisherChoice::resolve(&set, &["/middle".to_owned()]).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("no publisher /middle, but /left, /right"), "{text}");
    }
}

#[test]
fn on_request_all_publishers_of_a_topic_share_one_channel() {
    let mut world = World::new();
    world.options.files.merge_publishers = true;
    let recorded = record_two(&mut world, 4);
    let bytes = fs::read(&recorded.report.files[0]).unwrap();
    let summary = mcap::Summary::read(&bytes).unwrap().unwrap();
    assert_eq!(summary.channels.len(), 2);
    let set = BagSet::from(vec![bag(&recorded)]);
    let error = PublisherChoice::resolve(&set, &["/left".to_owned()]).unwrap_err();
    assert!(matches!(error, ReadError::NoPublishers { .. }), "{error}");
    assert_eq!(
        recorded.ledger().topics[0].publishers.len(),
        2,
        "the ledger still tells"
    );
}

#[test]
fn tools_keep_and_choose_publishers_by_chunks_and_message_by_message() {
    let mut world = World::new();
    let recorded = record_two(&mut world, 10);
    let scratch = tempfile::tempdir().unwrap();
    // A rate goes message by message, and takes all here; SQLite has no chunks.
    let ways: [(&str, Option<&str>, bool); 3] = [
        ("chunks", None, false),
        ("messages", None, true),
        ("sqlite", Some("sqlite3"), false),
    ];
    for (name, storage, by_message) in ways {
        let mut choice = Choice {
            publishers: vec!["/right".to_owned()],
            ..Choice::default()
        };
        if by_message {
            choice.rates = [(String::new(), 1e9)].into();
        }
        let directory = scratch.path().join(name);
        let output = OutputOptions {
            directory: directory.clone(),
            storage_id: storage.map(str::to_owned),
            ..OutputOptions::default()
        };
        let job = Job {
            inputs: vec![bag(&recorded)],
            choice,
            output,
        };
        let written = tools::run(job, &mut |_, _| {}).unwrap();
        assert_eq!(written.messages, 6, "{name}");
        let made = Bag::open(&directory).unwrap();
        let expected = [
            ("/a".to_owned(), Some("/right".to_owned()), 5),
            ("/b".to_owned(), Some("/right".to_owned()), 1),
        ];
        assert_eq!(messages_by_node(&made), expected, "{name}");
        let audit = BagAudit::of(&made).unwrap();
        assert!(audit.faults.is_empty(), "{name}: {:?}", audit.faults);
    }
}

#[test]
fn a_publisher_that_was_lost_whole_can_be_chosen_and_keeps_its_account() {
    let mut world = World::new();
    let request = PublishRequest {
        topic: "/lost".to_owned(),
        type_name: STRING.to_owned(),
        qos: RELIABLE,
        ..PublishRequest::default()
    };
    let lost = world.network.publisher(&node("left"), &request, &world.clock());
    let there = world.publisher("/a", RELIABLE);
    let recording = world.record();
    recording.wait_matched(&lost);
    recording.wait_matched(&there);
    lost.announce();
    lost.lose(3);
    lost.announce();
    there.send(&payload(0, 8));
    recording.wait_recorded(1);
    let recorded = recording.stop();
    assert_eq!(recorded.lost(), 3);
    let scratch = tempfile::tempdir().unwrap();
    let output = OutputOptions {
        directory: scratch.path().join("left"),
        ..OutputOptions::default()
    };
    let choice = Choice {
        publishers: vec!["/left".to_owned()],
        ..Choice::default()
    };
    let inputs = vec![bag(&recorded)];
    let written = tools::run(
        Job {
            inputs,
            choice,
            output,
        },
        &mut |_, _| {},
    )
    .unwrap();
    assert_eq!(written.messages, 0);
    let audit = BagAudit::of(&Bag::open(&written.directory).unwrap()).unwrap();
    assert_eq!((audit.faults.clone(), audit.shortfall()), (Vec::new(), 3));
    assert_eq!(audit.topics[0].name, "/lost");
}

#[test]
fn a_split_recording_lists_publishers_in_each_file() {
    let mut world = World::new();
    world.options.files.split.bytes_max = Some(20_000);
    let publisher = world.publisher("/a", RELIABLE);
    let recording = world.record();
    recording.wait_matched(&publisher);
    for number in 0..40 {
        publisher.send(&payload(number, 2000));
    }
    recording.wait_recorded(40);
    let recorded = recording.stop();
    assert!(recorded.report.files.len() > 2, "{:?}", recorded.report.files);
    for file in &recorded.report.files {
        let messages_by_node = messages_by_node(&Bag::open(file).unwrap());
        assert!(
            matches!(&messages_by_node[..], [(topic, Some(node), 1..)] if topic == "/a" && node == "/talker"),
            "{messages_by_node:?}"
        );
    }
    assert_eq!(
        messages_by_node(&bag(&recorded)),
        [("/a".to_owned(), Some("/talker".to_owned()), 40)]
    );
}

/// A place in the ledger that a publisher has left is taken by the next one: their messages must not end in one channel.
#[test]
fn publishers_that_come_and_go_are_never_taken_for_each_other() {
    let mut world = World::new();
    let recording = world.record();
    let count = PUBLISHERS_KEPT_MAX + 40;
    for number in 0..count {
        let publisher = world.publisher("/a", RELIABLE);
        recording.wait_matched(&publisher);
        publisher.send(&payload(number, 8));
        recording.wait_recorded(number as u64 + 1);
    }
    let recorded = recording.stop();
    let publishers = bag(&recorded).publishers().unwrap();
    assert_eq!(publishers.len(), count);
    assert!(publishers.iter().all(|publisher| publisher.message_count == 1));
}
