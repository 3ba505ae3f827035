//! Files that repeat the latched messages of the time when they begin.

use super::*;
use crate::{cache::CachePolicy, options::RepeatOptions};
use holdall_bag::{
    reader::{AccountKind, Bag, BagAudit, BagSet, MessageFilter},
    writer::{CompressionMode, SplitOptions},
};
use holdall_model::repeated::REPEATED_CUSTOM_KEY;
use holdall_tools::tools::{Choice, Job, LatchedMode, OutputOptions, run};
use std::num::NonZeroU32;

const STORAGES: [&str; 3] = ["mcap", "sqlite3", "leveldb"];

fn repeat_all(depth: u32) -> RepeatOptions {
    RepeatOptions {
        topics: BTreeMap::new(),
        all: NonZeroU32::new(depth),
    }
}

/// Topic and payload of all messages that the bag has for a reader.
fn read(path: impl AsRef<Path>) -> Vec<(String, Vec<u8>)> {
    let bag = Bag::open(path).unwrap();
    let messages = bag.messages().map(|message| message.unwrap());
    messages
        .map(|message| (message.topic.name.clone(), message.payload.to_vec()))
        .collect()
}

fn begin_new_file(recording: &Recording) {
    let before = recording.recorder.status().current_file;
    recording.control.split();
    recording.wait_until("a new file has begun", |it| {
        it.recorder.status().current_file != before
    });
}

/// A recording of three files: `/map` is sent in the first and again in the second, `/scan` in all.
fn three_files(world: &mut World) -> (Recorded, Vec<(String, Vec<u8>)>) {
    let map = world.publisher("/map", LATCHED);
    let scan = world.publisher("/scan", RELIABLE);
    let recording = world.record();
    recording.wait_matched(&map);
    recording.wait_matched(&scan);
    let mut sent = Vec::new();
    let mut send = |publisher: &MemoryPublisher, topic: &str, payload: Vec<u8>| {
        publisher.send(&payload);
        sent.push((topic.to_owned(), payload));
        recording.wait_recorded(sent.len() as u64);
    };
    send(&map, "/map", payload(1, 50));
    for file in 0..3 {
        (0..4).for_each(|number| send(&scan, "/scan", payload(10 * file + number, 30)));
        if file == 1 {
            send(&map, "/map", payload(2, 60));
            send(&scan, "/scan", payload(99, 30));
        }
        if file < 2 {
            begin_new_file(&recording);
        }
    }
    (recording.stop(), sent)
}

#[test]
fn every_file_begins_with_the_latched_messages_and_the_bag_has_them_once() {
    for storage in STORAGES {
        for mode in [CompressionMode::None, CompressionMode::Message] {
            let mut world = World::new();
            world.options.files.storage_id = storage.to_owned();
            world.options.files.compression.mode = mode;
            world.options.files.repeat = repeat_all(1);
            let (recorded, sent) = three_files(&mut world);
            let about = format!("{storage}, {mode:?}");
            assert_eq!(recorded.report.files.len(), 3, "{about}");
            assert_eq!(read(&recorded.output), sent, "{about}: all once, in order");
            let first_of = |file: usize| read(&recorded.report.files[file]).into_iter().next().unwrap();
            assert_eq!(first_of(1), ("/map".to_owned(), payload(1, 50)), "{about}");
            assert_eq!(first_of(2), ("/map".to_owned(), payload(2, 60)), "{about}");
            let bag = Bag::open(&recorded.output).unwrap();
            assert_eq!(bag.metadata().message_count, sent.len() as u64, "{about}");
            assert_eq!(bag.hidden_by_topic(), [("/map".to_owned(), 2)].into(), "{about}");
            let stored = recorded.metadata();
            assert_eq!(
                stored.message_count,
                sent.len() as u64 + 2,
                "what other readers find"
            );
            let rebuilt = Bag::rebuild(&recorded.output).unwrap();
            assert_eq!(rebuilt.repeats(), bag.repeats(), "{about}");
            assert_eq!(rebuilt.metadata().message_count, sent.len() as u64, "{about}");
            let audit = BagAudit::of(&bag).unwrap();
            assert_eq!(
                (audit.account, audit.faults),
                (AccountKind::Final, vec![]),
                "{about}"
            );
            let of_map = audit.topics.iter().find(|topic| topic.name == "/map").unwrap();
            assert_eq!((of_map.recorded, of_map.repeated), (2, 2), "{about}");
        }
    }
}

#[test]
fn pieces_that_are_read_together_have_their_messages_once() {
    let mut world = World::new();
    world.options.files.repeat = repeat_all(1);
    let (recorded, sent) = three_files(&mut world);
    let set = BagSet::open(&recorded.report.files).unwrap();
    let messages = set
        .messages(&MessageFilter::default())
        .map(|message| message.unwrap());
    let found: Vec<_> = messages
        .map(|message| (message.topic.name.clone(), message.payload.to_vec()))
        .collect();
    assert_eq!(found, sent);
    let later = BagSet::open(&recorded.report.files[1..]).unwrap();
    let first = later.messages(&MessageFilter::default()).next().unwrap().unwrap();
    assert_eq!(first.payload, payload(1, 50), "the first of them has the state");
}

#[test]
fn copies_of_one_recording_stand_for_no_message_of_another() {
    let (mut one, mut other) = (World::new(), World::new());
    one.options.files.repeat = repeat_all(1);
    other.options.files.repeat = repeat_all(1);
    let (one, _) = three_files(&mut one);
    let (other, _) = three_files(&mut other);
    let set = BagSet::open(&[one.report.files[1].clone(), other.report.files[2].clone()]).unwrap();
    let messages = set
        .messages(&MessageFilter::default())
        .map(|message| message.unwrap());
    let mut maps: Vec<_> = messages
        .filter(|message| message.topic.name == "/map")
        .map(|message| message.payload.to_vec())
        .collect();
    maps.sort();
    let mut wanted = vec![payload(1, 50), payload(2, 60), payload(2, 60)];
    wanted.sort();
    assert_eq!(maps, wanted, "the second of the first is no copy");
}

#[test]
fn metadata_without_marks_shows_all_that_the_files_hold() {
    let mut world = World::new();
    world.options.files.repeat = repeat_all(1);
    let (recorded, sent) = three_files(&mut world);
    let path = recorded.output.join("metadata.yaml");
    let text = std::fs::read_to_string(&path).unwrap();
    let kept = text.lines().filter(|line| !line.contains(REPEATED_CUSTOM_KEY));
    std::fs::write(&path, kept.collect::<Vec<_>>().join("\n")).unwrap();
    let bag = Bag::open(&recorded.output).unwrap();
    let shown = read(&recorded.output).len() as u64;
    assert_eq!(
        (shown, bag.metadata().message_count),
        (sent.len() as u64 + 2, shown)
    );
    let audit = BagAudit::of(&bag).unwrap();
    assert_eq!(audit.faults, Vec::<String>::new());
    assert_eq!(audit.recorded(), sent.len() as u64);
}

#[test]
fn without_the_option_nothing_is_repeated() {
    let mut world = World::new();
    let (recorded, sent) = three_files(&mut world);
    assert_eq!(recorded.messages().len(), sent.len());
    assert!(!recorded.metadata().custom_data.contains_key(REPEATED_CUSTOM_KEY));
}

#[test]
fn a_named_topic_is_repeated_as_deep_as_requested() {
    let mut world = World::new();
    world.options.files.repeat.topics = [("/map".to_owned(), NonZeroU32::new(3).unwrap())].into();
    let (map, other) = (
        world.publisher("/map", LATCHED),
        world.publisher("/other", LATCHED),
    );
    let recording = world.record();
    recording.wait_matched(&map);
    recording.wait_matched(&other);
    (0..5).for_each(|number| map.send(&payload(number, 20)));
    other.send(&payload(7, 20));
    recording.wait_recorded(6);
    begin_new_file(&recording);
    other.send(&payload(8, 20));
    let recorded = recording.stop();
    let second: Vec<_> = read_messages(&recorded.report.files[1]);
    let payloads: Vec<_> = second.iter().map(|read| read.payload.clone()).collect();
    assert_eq!(payloads, [2, 3, 4, 8].map(|number| payload(number, 20)));
    let first_files = read_messages(&recorded.report.files[0]);
    for (copy, original) in second[..3].iter().zip(&first_files[2..5]) {
        assert_eq!(copy.log_time, second[3].log_time, "the beginning of the file");
        assert_eq!(
            (copy.publish_time, copy.sequence),
            (original.publish_time, original.sequence)
        );
    }
}

#[test]
fn the_ring_of_files_takes_its_copies_with_it() {
    for storage in STORAGES {
        let mut world = World::new();
        world.options.files.storage_id = storage.to_owned();
        world.options.files.repeat = repeat_all(1);
        world.options.files.split = SplitOptions {
            bytes_max: Some(200_000),
            files_max: Some(3),
            ..SplitOptions::default()
        };
        let (map, scan) = (
            world.publisher("/map", LATCHED),
            world.publisher("/scan", RELIABLE),
        );
        let recording = world.record();
        recording.wait_matched(&map);
        recording.wait_matched(&scan);
        map.send(&payload(1, 100));
        recording.wait_recorded(1);
        for number in 0..400 {
            scan.send(&payload(number, 5000));
            recording.wait_recorded(2 + number as u64);
        }
        let recorded = recording.stop();
        assert!(recorded.report.files.len() <= 3, "{storage}");
        for file in &recorded.report.files {
            let first = read(file).into_iter().next().unwrap();
            assert_eq!(
                first,
                ("/map".to_owned(), payload(1, 100)),
                "{storage}: {}",
                file.display()
            );
        }
        let bag = Bag::open(&recorded.output).unwrap();
        let audit = BagAudit::of(&bag).unwrap();
        assert_eq!(audit.faults, Vec::<String>::new(), "{storage}");
        let of_map = audit.topics.iter().find(|topic| topic.name == "/map").unwrap();
        let files = recorded.report.files.len() as u64;
        assert_eq!(
            (of_map.recorded, of_map.expired, of_map.repeated),
            (0, 1, files),
            "{storage}"
        );
        let of_map: Vec<_> = read(&recorded.output)
            .into_iter()
            .filter(|(topic, _)| topic == "/map")
            .collect();
        assert_eq!(
            of_map,
            [("/map".to_owned(), payload(1, 100))],
            "{storage}: its file is gone, a copy is left"
        );
        let rebuilt = Bag::rebuild(&recorded.output).unwrap();
        assert_eq!(rebuilt.metadata().message_count, bag.metadata().message_count);
        let shown = read(&recorded.output).len() as u64;
        assert_eq!(bag.metadata().message_count, shown, "{storage}");
        let copy = recorded.output.with_file_name("copy");
        let job = Job {
            inputs: vec![Bag::open(&recorded.output).unwrap()],
            choice: Choice::default(),
            output: OutputOptions {
                directory: copy.clone(),
                ..OutputOptions::default()
            },
        };
        run(job, &mut |_, _| {}).unwrap();
        assert_eq!(read(&copy), read(&recorded.output), "{storage}");
        let audit = BagAudit::of(&Bag::open(&copy).unwrap()).unwrap();
        assert_eq!(audit.faults, Vec::<String>::new(), "{storage}");
    }
}

#[test]
fn a_snapshot_begins_with_the_state_that_its_ring_has_dropped() {
    let mut world = World::new();
    world.options.files.repeat = repeat_all(1);
    world.options.cache = CacheOptions {
        bytes_max: 1 << 20,
        snapshot: true,
        policy: CachePolicy::DropOld,
        ..CacheOptions::default()
    };
    let (map, scan) = (
        world.publisher("/map", LATCHED),
        world.publisher("/scan", RELIABLE),
    );
    let recording = world.record();
    recording.wait_matched(&map);
    recording.wait_matched(&scan);
    map.send(&payload(1, 100));
    (0..3000).for_each(|number| scan.send(&payload(number, 2000)));
    assert!(recording.control.snapshot());
    recording.wait_until("the snapshot is written", |it| it.recorder.status().recorded > 0);
    let recorded = recording.stop();
    let bag = Bag::open(&recorded.output).unwrap();
    assert_eq!(bag.copies_by_topic(), [("/map".to_owned(), 1)].into());
    assert!(bag.hidden_by_topic().is_empty(), "the message is nowhere else");
    let last = read_messages(recorded.report.files.last().unwrap());
    assert_eq!(
        (last[0].topic.as_str(), &last[0].payload),
        ("/map", &payload(1, 100))
    );
    assert_eq!(BagAudit::of(&bag).unwrap().faults, Vec::<String>::new());
}

/// A bag of one file: `/map` is sent first and in the middle, `/scan` all the time.
fn one_file(world: &mut World) -> (Recorded, Vec<(String, Vec<u8>)>) {
    let map = world.publisher("/map", LATCHED);
    let scan = world.publisher("/scan", RELIABLE);
    let recording = world.record();
    recording.wait_matched(&map);
    recording.wait_matched(&scan);
    let mut sent = Vec::new();
    for number in 0..40 {
        let (publisher, topic, payload) = match number {
            0 | 20 => (&map, "/map", payload(number + 100, 50)),
            _ => (&scan, "/scan", payload(number, 30)),
        };
        publisher.send(&payload);
        sent.push((topic.to_owned(), payload));
        recording.wait_recorded(sent.len() as u64);
    }
    (recording.stop(), sent)
}

fn made(
    input: &Path,
    output: &Path,
    storage: &str,
    change: impl FnOnce(&mut Job),
) -> holdall_tools::tools::Written {
    let mut job = Job {
        inputs: vec![Bag::open(input).unwrap()],
        choice: Choice::default(),
        output: OutputOptions {
            directory: output.to_owned(),
            storage_id: Some(storage.to_owned()),
            latched: LatchedMode::Repeat,
            ..OutputOptions::default()
        },
    };
    change(&mut job);
    run(job, &mut |_, _| {}).unwrap()
}

#[track_caller]
fn assert_balanced(path: &Path) {
    let audit = BagAudit::of(&Bag::open(path).unwrap()).unwrap();
    assert_eq!(audit.faults, Vec::<String>::new());
    assert_eq!(audit.account, AccountKind::Final);
}

#[test]
fn what_tools_split_has_the_latched_messages_in_each_file_and_each_message_once() {
    let mut world = World::new();
    let (recorded, sent) = one_file(&mut world);
    let bag = Bag::open(&recorded.output).unwrap();
    let times: Vec<Timestamp> = bag.messages().map(|message| message.unwrap().log_time).collect();
    for storage in STORAGES {
        // Chunks are copied for MCAP in the first case, and messages in all others.
        for (case, is_by_count) in [("at", false), ("count", true)] {
            let output = recorded.output.with_file_name(format!("{storage}_{case}"));
            let written = made(&recorded.output, &output, storage, |job| {
                if is_by_count {
                    job.output.split.count_max = Some(10);
                } else {
                    job.output.split.times = [10, 20, 30].map(|at| times[at]).to_vec();
                }
            });
            let about = format!("{storage}, {case}");
            assert_eq!((written.files.len(), written.messages), (4, 40), "{about}");
            assert_eq!(read(&output), sent, "{about}: all once, in order");
            let maps = written.files.iter().map(|file| {
                let of_file = read(file).into_iter();
                let maps = of_file.filter(|(topic, _)| topic == "/map");
                maps.map(|(_, payload)| payload).collect::<Vec<_>>()
            });
            let maps: Vec<_> = maps.collect();
            let (first, second) = (payload(100, 50), payload(120, 50));
            // The third begins with a map of its own; the older one precedes it where the messages are read.
            let third = if storage == "mcap" && !is_by_count {
                vec![second.clone()]
            } else {
                vec![first.clone(), second.clone()]
            };
            assert_eq!(
                maps,
                [vec![first.clone()], vec![first], third, vec![second]],
                "{about}"
            );
            for file in &written.files {
                assert_eq!(read(file)[0].0, "/map", "{about}: {}", file.display());
            }
            assert_balanced(&output);
            let rebuilt = Bag::rebuild(&output).unwrap();
            assert_eq!(rebuilt.metadata().message_count, 40, "{about}");
            let again = output.with_extension("again");
            made(&output, &again, storage, |_| {});
            assert_eq!(read(&again), sent, "{about}: one file again");
            assert_balanced(&again);
        }
    }
}

#[test]
fn what_begins_later_begins_with_the_latched_messages_of_then() {
    let mut world = World::new();
    let (recorded, sent) = one_file(&mut world);
    let bag = Bag::open(&recorded.output).unwrap();
    let from = bag.messages().nth(10).unwrap().unwrap().log_time;
    for storage in STORAGES {
        for is_by_message in [false, true] {
            let output = recorded
                .output
                .with_file_name(format!("from_{storage}_{is_by_message}"));
            let written = made(&recorded.output, &output, storage, |job| {
                job.choice.start = Some(holdall_tools::tools::Moment::At(from));
                if is_by_message {
                    job.choice.rates.insert("/none".to_owned(), 1.0);
                }
            });
            let about = format!("{storage}, {is_by_message}");
            let found = read(&output);
            assert_eq!(written.messages, 30, "{about}");
            assert_eq!(found[0], ("/map".to_owned(), payload(100, 50)), "{about}");
            assert_eq!(found[1..], sent[10..], "{about}");
            assert_balanced(&output);
            let bag = Bag::open(&output).unwrap();
            assert_eq!(bag.copies_by_topic(), [("/map".to_owned(), 1)].into(), "{about}");
            let without = output.with_extension("without");
            made(&recorded.output, &without, storage, |job| {
                job.choice.start = Some(holdall_tools::tools::Moment::At(from));
                job.output.latched = LatchedMode::Leave;
            });
            assert_eq!(read(&without), sent[10..], "{about}: as rosbag2");
        }
    }
}
