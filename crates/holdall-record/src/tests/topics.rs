//! Selection of messages by topic and publisher.

use super::*;
use holdall_model::{
    interface::bundle::Bundle,
    loss::{LossStage, ledger::TopicAccount},
};
use holdall_transport::TypeSource;

fn account<'a>(ledger: &'a Ledger, topic: &str) -> &'a TopicAccount {
    ledger
        .topics
        .iter()
        .find(|account| account.name == topic)
        .unwrap()
}

#[test]
fn every_message_is_recorded_byte_exact_and_in_order() {
    let mut world = World::new();
    let publisher = world.publisher("/chatter", RELIABLE);
    let recording = world.record();
    recording.wait_matched(&publisher);
    let payloads: Vec<Vec<u8>> = (0..1000)
        .map(|number| payload(number, [0, 30, 5_000, 200_000][number % 4]))
        .collect();
    payloads.iter().for_each(|payload| publisher.send(payload));
    let recorded = recording.stop();
    assert_eq!(recorded.payloads("/chatter"), payloads);
    assert_eq!((recorded.lost(), recorded.report.failure.clone()), (0, None));
    let metadata = recorded.metadata();
    assert_eq!(metadata.message_count, 1000);
    assert_eq!(
        metadata.topics_with_message_count[0].topic_metadata.type_name,
        STRING
    );
    assert_eq!(
        metadata.topics_with_message_count[0]
            .topic_metadata
            .offered_qos_profiles,
        [RELIABLE]
    );
    let keys: Vec<_> = metadata.custom_data.keys().collect();
    assert_eq!(keys, ["holdall.loss_window"], "no loss, nothing of the user's");
    assert_eq!(
        account(&recorded.ledger(), "/chatter").publishers[0].recorded,
        1000
    );
}

#[test]
fn stamps_and_sequence_numbers_are_kept() {
    let mut world = World::new();
    let publisher = world.publisher("/chatter", RELIABLE);
    let recording = world.record();
    recording.wait_matched(&publisher);
    publisher.send_at(b"first", Timestamp::from_nanos(77));
    publisher.send_at(b"second", Timestamp::from_nanos(88));
    let read = recording.stop().messages();
    let stamps: Vec<_> = read
        .iter()
        .map(|read| (read.publish_time, read.sequence))
        .collect();
    assert_eq!(stamps, [(77, 1), (88, 2)]);
    assert!(
        read[0].log_time > 1_600_000_000_000_000_000,
        "received by the recorder's clock"
    );
}

#[test]
fn a_late_topic_and_a_late_publisher_are_recorded() {
    let mut world = World::new();
    let first = world.publisher("/a", RELIABLE);
    let recording = world.record();
    recording.wait_matched(&first);
    let second = world.publisher("/b", SENSOR);
    recording.wait_matched(&second);
    let third = world.publisher("/a", RELIABLE);
    for publisher in [&first, &second, &third] {
        publisher.send(&payload(1, 8));
    }
    let recorded = recording.stop();
    assert_eq!(recorded.payloads("/a").len(), 2);
    assert_eq!(recorded.payloads("/b").len(), 1);
}

#[test]
fn mixed_publishers_are_all_recorded_once_with_their_history() {
    let mut world = World::new();
    let sensor = world.publisher("/t", SENSOR);
    let recording = world.record();
    recording.wait_matched(&sensor);
    let latched = world.publisher("/t", LATCHED);
    for number in 0..3 {
        latched.send(&payload(number, 8));
    }
    recording.wait_until("the strong subscription is there", |_| {
        latched.matched_subscriptions() == 2
    });
    for number in 3..100 {
        latched.send(&payload(number, 8));
        sensor.send(&payload(1000 + number, 8));
    }
    let recorded = recording.stop();
    let mut payloads = recorded.payloads("/t");
    payloads.sort();
    let mut expected: Vec<_> = (0..100)
        .chain(1003..1100)
        .map(|number| payload(number, 8))
        .collect();
    expected.sort();
    assert_eq!(payloads, expected);
    assert_eq!(recorded.lost(), 0);
}

#[test]
fn a_weaker_publisher_that_appears_later_is_not_missed() {
    let mut world = World::new();
    let reliable = world.publisher("/t", RELIABLE);
    let recording = world.record();
    recording.wait_matched(&reliable);
    let sensor = world.publisher("/t", SENSOR);
    recording.wait_matched(&sensor);
    sensor.send(&payload(1, 8));
    reliable.send(&payload(2, 8));
    assert_eq!(recording.stop().payloads("/t").len(), 2);
}

#[test]
fn a_restarted_publisher_is_another_one_and_loses_nothing() {
    let mut world = World::new();
    world.options.discovery.polling_interval = Duration::from_millis(1);
    let mut publisher = world.publisher("/t", RELIABLE);
    let recording = world.record();
    for life in 0..3 {
        recording.wait_matched(&publisher);
        for number in 0..10 {
            publisher.send(&payload(life * 10 + number, 8));
        }
        drop(publisher);
        publisher = world.publisher("/t", RELIABLE);
    }
    let recorded = recording.stop();
    assert_eq!(
        recorded.payloads("/t"),
        (0..30).map(|number| payload(number, 8)).collect::<Vec<_>>()
    );
    assert_eq!(recorded.lost(), 0);
    assert!(account(&recorded.ledger(), "/t").publishers.len() >= 3);
}

#[test]
fn gaps_head_and_tail_are_counted_and_listed_in_the_bag() {
    let mut world = World::new();
    let old = world.publisher("/t", RELIABLE);
    let recording = world.record();
    recording.wait_matched(&old);
    world.end_initial_discovery();
    old.send(&payload(1, 8));
    old.lose(5);
    old.send(&payload(2, 8));
    let new = world.publisher("/t", RELIABLE);
    new.lose(2);
    recording.wait_matched(&new);
    new.send(&payload(3, 8));
    // Its messages may arrive before the graph shows it; when it appeared is known then.
    recording.wait_until("the new publisher is discovered", |recording| {
        let lost = &recording.recorder.status().topics[0].lost;
        lost.contains_key(&LossStage::Head)
    });
    new.lose(4);
    new.announce();
    let recorded = recording.stop();
    assert!(recorded.report.has_loss());
    let missing = account(&recorded.ledger(), "/t").missing.clone();
    let expected = [
        (LossStage::Head, 2),
        (LossStage::Transport, 5),
        (LossStage::Tail, 4),
    ];
    assert_eq!(missing, BTreeMap::from(expected));
    assert_eq!(recorded.report.status.topics[0].lost, missing);
    assert_eq!(
        recorded.metadata().custom_data["holdall.lost"],
        "9",
        "sent while not matched is not a loss"
    );
}

#[test]
fn a_pause_leaves_out_and_loses_nothing() {
    let mut world = World::new();
    world.options.start_paused = true;
    let publisher = world.publisher("/t", RELIABLE);
    let recording = world.record();
    recording.wait_matched(&publisher);
    assert!(recording.control.is_paused());
    publisher.send(&payload(0, 8));
    recording.control.resume();
    publisher.send(&payload(1, 8));
    assert!(recording.control.toggle_pause());
    publisher.send(&payload(2, 8));
    assert!(!recording.control.toggle_pause());
    publisher.send(&payload(3, 8));
    let recorded = recording.stop();
    assert_eq!(recorded.payloads("/t"), [payload(1, 8), payload(3, 8)]);
    assert_eq!(recorded.lost(), 0);
}

#[test]
fn simulation_time_stamps_messages_from_the_first_clock_on() {
    let mut world = World::new();
    world.options.use_sim_time = true;
    let clock = world.publisher_of("/clock", "rosgraph_msgs/msg/Clock", None, SENSOR);
    let publisher = world.publisher("/t", RELIABLE);
    let recording = world.record();
    recording.wait_matched(&publisher);
    recording.wait_matched(&clock);
    publisher.send(&payload(0, 8));
    clock.send(&[0, 1, 0, 0, 9, 0, 0, 0, 5, 0, 0, 0]);
    publisher.send(&payload(1, 8));
    let recorded = recording.stop();
    let read: Vec<_> = recorded
        .messages()
        .into_iter()
        .filter(|read| read.topic == "/t")
        .collect();
    assert_eq!(read.len(), 1);
    assert_eq!(
        (read[0].log_time, &read[0].payload),
        (9_000_000_005, &payload(1, 8))
    );
    assert_eq!(recorded.lost(), 0);
}

#[test]
fn static_topics_are_subscribed_before_anybody_publishes() {
    let mut world = World::new();
    world.options.selection = Selection::default();
    world.options.discovery.static_topics = vec![("/t".to_owned(), STRING.to_owned())];
    let recording = world.record();
    let publisher = world.publisher("/t", RELIABLE);
    assert_eq!(publisher.matched_subscriptions(), 1);
    publisher.send(&payload(0, 8));
    let weak = world.publisher("/t", SENSOR);
    recording.wait_matched(&weak);
    weak.send(&payload(1, 8));
    assert_eq!(recording.stop().payloads("/t").len(), 2);
}

#[test]
fn after_one_poll_no_new_topic_is_recorded() {
    let mut world = World::new();
    world.options.discovery.no_discovery = true;
    let first = world.publisher("/a", RELIABLE);
    let recording = world.record();
    recording.wait_matched(&first);
    world.end_initial_discovery();
    first.send(&payload(0, 8));
    recording.wait_recorded(1);
    let second = world.publisher("/b", RELIABLE);
    let third = world.publisher("/a", SENSOR);
    recording.wait_matched(&third);
    second.send(&payload(1, 8));
    third.send(&payload(2, 8));
    let recorded = recording.stop();
    assert_eq!(recorded.payloads("/a").len(), 2);
    assert_eq!(recorded.payloads("/b").len(), 0);
}

#[test]
fn a_qos_override_is_asked_for_whatever_publishers_offer() {
    let mut world = World::new();
    world
        .options
        .discovery
        .qos_overrides
        .insert("/t".to_owned(), SENSOR);
    let latched = world.publisher("/t", LATCHED);
    latched.send(&payload(0, 8));
    let recording = world.record();
    recording.wait_matched(&latched);
    latched.send(&payload(1, 8));
    assert_eq!(
        recording.stop().payloads("/t"),
        [payload(1, 8)],
        "no history was asked for"
    );
}

/// The definition and schema name in the bag.
fn schema(recorded: &Recorded, topic: &str) -> (String, String, String) {
    let bytes = fs::read(&recorded.report.files[0]).unwrap();
    let summary = mcap::Summary::read(&bytes).unwrap().unwrap();
    let channel = summary
        .channels
        .values()
        .find(|channel| channel.topic == topic)
        .unwrap();
    let schema = channel.schema.as_ref().unwrap();
    let text = String::from_utf8(schema.data.to_vec()).unwrap();
    (schema.name.clone(), schema.encoding.clone(), text)
}

#[test]
fn common_types_are_defined_by_the_program_itself() {
    let mut world = World::new();
    let hash = Bundle::embedded().type_hash(STRING).unwrap();
    let publisher = world.publisher_of("/t", STRING, Some(hash), RELIABLE);
    let recording = world.record();
    recording.wait_matched(&publisher);
    publisher.send(&payload(0, 8));
    let recorded = recording.stop();
    let (name, encoding, text) = schema(&recorded, "/t");
    assert_eq!((name.as_str(), encoding.as_str()), (STRING, "ros2msg"));
    assert!(text.contains("string data"), "{text}");
    assert_eq!(
        recorded.metadata().topics_with_message_count[0]
            .topic_metadata
            .type_description_hash,
        hash
    );
}

const OWN_TYPE: &str = "own_msgs/msg/Thing";
const OWN_TEXT: &str = "int32 number\n";

pub fn own_hash() -> String {
    let source = holdall_model::interface::InterfaceSource {
        format: holdall_model::interface::SourceFormat::Msg,
        text: OWN_TEXT.into(),
    };
    holdall_model::interface::Definition::resolve(OWN_TYPE, |_| Some(source.clone()))
        .unwrap()
        .type_hash()
}

#[test]
fn an_unknown_type_is_asked_from_its_node_and_its_messages_wait() {
    let mut world = World::new();
    let publisher = world.publisher_of("/t", OWN_TYPE, Some(&own_hash()), RELIABLE);
    let recording = world.record();
    recording.wait_matched(&publisher);
    let other = world.publisher("/other", RELIABLE);
    recording.wait_matched(&other);
    publisher.send(&payload(0, 8));
    publisher.send(&payload(1, 100_000));
    other.send(&payload(2, 8));
    recording.wait_recorded(1);
    assert_eq!(
        recording.recorder.status().recorded,
        1,
        "the other topic does not wait"
    );
    let source = TypeSource {
        type_name: OWN_TYPE.to_owned(),
        encoding: "msg".to_owned(),
        text: OWN_TEXT.to_owned(),
    };
    world
        .network
        .describe(&node("talker"), OWN_TYPE, Ok(vec![source]));
    recording.wait_recorded(3);
    publisher.send(&payload(3, 8));
    let recorded = recording.stop();
    assert_eq!(
        recorded.payloads("/t"),
        [payload(0, 8), payload(1, 100_000), payload(3, 8)]
    );
    assert_eq!(
        schema(&recorded, "/t"),
        (OWN_TYPE.to_owned(), "ros2msg".to_owned(), OWN_TEXT.to_owned())
    );
}

#[test]
fn a_type_that_no_node_defines_is_recorded() {
    let mut world = World::new();
    let silent = world.publisher_of("/silent", OWN_TYPE, Some(&own_hash()), RELIABLE);
    let unhashed = world.publisher_of("/unhashed", OWN_TYPE, None, RELIABLE);
    let recording = world.record();
    recording.wait_matched(&silent);
    recording.wait_matched(&unhashed);
    silent.send(&payload(0, 8));
    unhashed.send(&payload(1, 8));
    recording.wait_recorded(1);
    world.clock.advance(Duration::from_secs(3));
    recording.wait_recorded(2);
    let recorded = recording.stop();
    assert_eq!(recorded.payloads("/silent"), [payload(0, 8)]);
    assert_eq!(
        schema(&recorded, "/silent").1,
        "",
        "MCAP's word for no schema; pip rosbags opens no bag with `unknown`"
    );
    assert_eq!(schema(&recorded, "/unhashed").2, "");
    let undefined: Vec<_> = recorded
        .report
        .undefined
        .iter()
        .map(|it| it.name.as_str())
        .collect();
    assert_eq!(undefined, ["/silent", "/unhashed"]);
    let bag = holdall_bag::reader::Bag::open(&recorded.report.bag).unwrap();
    assert_eq!(bag.undefined_topics().unwrap(), recorded.report.undefined);
}

/// A recording whose definition comes when the topic's messages wait no longer.
fn defined_late(storage: &str, has_more: bool) -> (World, Recorded) {
    let mut world = World::new();
    world.options.files.storage_id = storage.to_owned();
    let publisher = world.publisher_of("/t", OWN_TYPE, Some(&own_hash()), RELIABLE);
    let recording = world.record();
    recording.wait_matched(&publisher);
    publisher.send(&payload(0, 8));
    let give_up = || {
        world.clock.advance(Duration::from_secs(3));
        recording.wait_recorded(1);
    };
    give_up();
    let source = TypeSource {
        type_name: OWN_TYPE.to_owned(),
        encoding: "msg".to_owned(),
        text: OWN_TEXT.to_owned(),
    };
    world
        .network
        .describe(&node("talker"), OWN_TYPE, Ok(vec![source]));
    recording.wait_until("the definition is asked for and known", |_| {
        world.network.open_questions() == 0
    });
    if has_more {
        publisher.send(&payload(1, 8));
        recording.wait_recorded(2);
    }
    let recorded = recording.stop();
    (world, recorded)
}

#[test]
fn a_definition_that_comes_late_gets_into_the_current_file() {
    for storage in ["mcap", "sqlite3"] {
        for has_more in [true, false] {
            let (_world, recorded) = defined_late(storage, has_more);
            assert_eq!(recorded.report.undefined, [], "{storage}");
            let bag = holdall_bag::reader::Bag::open(&recorded.report.bag).unwrap();
            let definitions = bag.definitions().unwrap();
            let own: Vec<_> = definitions.iter().filter(|it| it.type_name == OWN_TYPE).collect();
            assert_eq!(own.len(), 1, "{storage}");
            assert_eq!(own[0].text, OWN_TEXT, "{storage}, {has_more}");
            assert_eq!(bag.undefined_topics().unwrap(), [], "{storage}");
            assert_eq!(bag.metadata().message_count, if has_more { 2 } else { 1 });
            assert_eq!(bag.metadata().topics_with_message_count.len(), 1);
        }
    }
}

#[test]
fn messages_that_wait_for_a_definition_at_the_end_are_kept() {
    let mut world = World::new();
    let publisher = world.publisher_of("/t", OWN_TYPE, Some(&own_hash()), RELIABLE);
    let recording = world.record();
    recording.wait_matched(&publisher);
    publisher.send(&payload(0, 8));
    assert_eq!(recording.stop().payloads("/t"), [payload(0, 8)]);
}
