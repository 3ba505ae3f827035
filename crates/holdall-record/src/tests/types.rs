//! Topics whose publishers have several types: each is recorded with its type, or counted if the storage has no place for it.

use super::*;
use holdall_bag::{
    reader::{Bag, BagAudit, BagSet, MessageFilter},
    rescue::Pointer,
};
use holdall_model::loss::LossStage;
use holdall_tools::tools::{self, Choice, Job, OutputOptions, repair::repair};
use std::collections::BTreeSet;

const HEADER: &str = "std_msgs/msg/Header";

/// Messages by topic and type, as payload lengths, in the order of reading.
fn lengths(bag: &Path) -> BTreeMap<(String, String), Vec<usize>> {
    let mut found: BTreeMap<_, Vec<usize>> = BTreeMap::new();
    let set = BagSet::from(vec![Bag::open(bag).unwrap()]);
    for message in set.messages(&MessageFilter::default()) {
        let message = message.unwrap();
        let key = (message.topic.name.clone(), message.topic.type_name.clone());
        found.entry(key).or_default().push(message.payload.len());
    }
    found
}

fn expected(strings: &[usize], headers: &[usize]) -> BTreeMap<(String, String), Vec<usize>> {
    let of = |type_name: &str, lengths: &[usize]| (("/t".to_owned(), type_name.to_owned()), lengths.to_vec());
    BTreeMap::from([of(STRING, strings), of(HEADER, headers)])
}

/// Records a publisher of each type; the second one comes while the topic is recorded unless `at_once`. Strings have even lengths,
/// headers odd ones.
fn record_two(world: &mut World, at_once: bool) -> (Recording, Vec<usize>, Vec<usize>) {
    let strings = world.publisher("/t", RELIABLE);
    let early = at_once.then(|| world.publisher_of("/t", HEADER, None, RELIABLE));
    let recording = world.record();
    recording.wait_matched(&strings);
    strings.send(&payload(0, 10));
    let headers = early.unwrap_or_else(|| world.publisher_of("/t", HEADER, None, RELIABLE));
    recording.wait_matched(&headers);
    for number in 1..20 {
        headers.send(&payload(number, 2 * number + 11));
        strings.send(&payload(number, 2 * number + 10));
    }
    recording.wait_until("all messages have arrived", |recording| {
        let status = recording.recorder.status();
        status.recorded + status.lost >= 39
    });
    let lengths = |first: usize, odd: usize| (first..20).map(|number| 2 * number + 10 + odd).collect();
    (recording, lengths(0, 0), lengths(1, 1))
}

#[test]
fn two_types_of_one_topic_are_both_recorded() {
    for (at_once, merge_publishers) in [(false, false), (true, false), (false, true)] {
        let mut world = World::new();
        world.options.files.merge_publishers = merge_publishers;
        let (recording, strings, headers) = record_two(&mut world, at_once);
        let recorded = recording.stop();
        assert_eq!(recorded.lost(), 0);
        assert_eq!(
            lengths(&recorded.output),
            expected(&strings, &headers),
            "{at_once}"
        );
        let listed = recorded.metadata().topics_with_message_count;
        let listed: BTreeSet<_> = listed
            .into_iter()
            .map(|topic| (topic.topic_metadata.type_name, topic.message_count))
            .collect();
        assert_eq!(
            listed,
            BTreeSet::from([(STRING.to_owned(), 20), (HEADER.to_owned(), 19)])
        );
        let audit = BagAudit::of(&Bag::open(&recorded.output).unwrap()).unwrap();
        assert_eq!(
            (audit.faults.clone(), audit.shortfall(), audit.recorded()),
            (vec![], 0, 39)
        );
    }
}

#[test]
fn a_publisher_of_another_type_says_so_in_the_ledger() {
    let mut world = World::new();
    let (recording, ..) = record_two(&mut world, false);
    let ledger = recording.stop().ledger();
    let [topic] = ledger.topics.as_slice() else {
        panic!("{ledger:?}")
    };
    let types: Vec<_> = topic
        .publishers
        .iter()
        .map(|it| it.type_name.as_deref())
        .collect();
    assert_eq!(types, [None, Some(HEADER)]);
    assert_eq!(topic.recorded, 39);
}

#[test]
fn messages_of_another_type_are_counted_where_the_storage_has_no_place_for_them() {
    for storage in ["sqlite3", "leveldb"] {
        let mut world = World::new();
        world.options.files.storage_id = storage.to_owned();
        let (recording, strings, _) = record_two(&mut world, false);
        let recorded = recording.stop();
        assert_eq!(recorded.lost(), 19, "{storage}");
        let found = lengths(&recorded.output);
        assert_eq!(found.into_values().collect::<Vec<_>>(), [strings], "{storage}");
        let audit = BagAudit::of(&Bag::open(&recorded.output).unwrap()).unwrap();
        assert_eq!(audit.faults, Vec::<String>::new(), "{storage}");
        assert_eq!(
            audit.missing(),
            BTreeMap::from([(LossStage::AnotherType, 19)]),
            "{storage}"
        );
    }
}

#[test]
fn a_type_that_the_selection_leaves_out_is_not_recorded_and_no_loss() {
    let mut world = World::new();
    world.options.selection.exclude_topic_types = vec![HEADER.to_owned()];
    let strings = world.publisher("/t", RELIABLE);
    let headers = world.publisher_of("/t", HEADER, None, RELIABLE);
    let recording = world.record();
    recording.wait_matched(&strings);
    headers.send(&payload(0, 11));
    strings.send(&payload(0, 10));
    let recorded = recording.stop();
    assert_eq!((recorded.lost(), recorded.messages().len()), (0, 1));
}

#[test]
fn both_types_are_rescued_after_a_kill() {
    for merge_publishers in [false, true] {
        let mut world = World::new();
        let memory = tempfile::tempdir().unwrap();
        world.options.safety.rescue_directory = Some(memory.path().to_owned());
        world.options.safety.max_loss_window = None;
        world.options.files.merge_publishers = merge_publishers;
        let (recording, strings, headers) = record_two(&mut world, false);
        // The state that a kill leaves at this moment.
        let bag = memory.path().join("copy");
        fs::create_dir(&bag).unwrap();
        for entry in fs::read_dir(&recording.output).unwrap() {
            let path = entry.unwrap().path();
            fs::copy(&path, bag.join(path.file_name().unwrap())).unwrap();
        }
        let pointer = bag.join(".holdall-rescue.json");
        let mut place: Pointer = serde_json::from_str(&fs::read_to_string(&pointer).unwrap()).unwrap();
        let region = memory.path().join("region");
        fs::copy(&place.path, &region).unwrap();
        super::rescue::become_original(&region, &recording.output, &bag);
        place.path = region;
        fs::write(&pointer, serde_json::to_string(&place).unwrap()).unwrap();
        recording.stop();
        assert_eq!(
            lengths(&bag),
            expected(&strings, &headers),
            "read with the memory"
        );
        repair(&bag, None, &mut |_, _| {}).unwrap();
        assert_eq!(lengths(&bag), expected(&strings, &headers), "repaired");
        let audit = BagAudit::of(&Bag::open(&bag).unwrap()).unwrap();
        assert_eq!((audit.faults.clone(), audit.shortfall()), (vec![], 0));
    }
}

#[test]
fn tools_keep_the_types_of_a_topic() {
    let mut world = World::new();
    let (recording, strings, headers) = record_two(&mut world, false);
    let recorded = recording.stop();
    for (number, by_message) in [false, true].into_iter().enumerate() {
        let made = recorded.output.with_file_name(format!("made{number}"));
        let output = OutputOptions {
            directory: made.clone(),
            ..OutputOptions::default()
        };
        let mut choice = Choice::default();
        if by_message {
            choice.rates = [(String::new(), 1e9)].into();
        }
        let job = Job {
            inputs: vec![Bag::open(&recorded.output).unwrap()],
            choice,
            output,
        };
        tools::run(job, &mut |_, _| {}).unwrap();
        let audit = BagAudit::of(&Bag::open(&made).unwrap()).unwrap();
        assert_eq!((audit.faults.clone(), audit.shortfall()), (vec![], 0));
        assert_eq!(lengths(&made), expected(&strings, &headers), "{by_message}");
    }
}
