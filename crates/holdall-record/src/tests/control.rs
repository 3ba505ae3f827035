//! The control of a recording: markers, discovery on request, topics on request.

use super::*;
use crate::{MarkError, SubscribeAnswer, SubscribeError};
use holdall_bag::reader::Bag;
use holdall_model::marker::{MARKERS_MAX, MarkerNameError};
use holdall_model::time::Timestamp;
use holdall_tools::tools::{Choice, Job, OutputOptions};
use holdall_transport::{GraphEvent, Sink, SubscribeRequest, Subscription, TransportError};

fn names(bag: &Bag) -> Vec<String> {
    let markers = bag.markers().unwrap();
    markers.into_iter().map(|marker| marker.name).collect()
}

#[test]
fn markers_are_in_the_files_and_in_the_list() {
    for storage in ["mcap", "sqlite3", "leveldb"] {
        let mut world = World::new();
        world.options.files.storage_id = storage.to_owned();
        let publisher = world.publisher("/chatter", RELIABLE);
        let recording = world.record();
        recording.wait_matched(&publisher);
        publisher.send(b"one");
        recording.wait_recorded(1);
        let first = recording.control.add_marker(" door opens ").unwrap();
        recording.control.split();
        publisher.send(b"two");
        recording.wait_recorded(2);
        recording.control.add_marker("door \u{1b}[31mcloses").unwrap();
        let recorded = recording.stop();
        let bag = Bag::open(&recorded.output).unwrap();
        assert_eq!(bag.markers().unwrap()[0], first, "{storage}");
        assert_eq!(names(&bag), ["door opens", "door \u{1b}[31mcloses"], "{storage}");
        assert_eq!(recorded.metadata().message_count, 2);
        // Without the list, each is still in its file.
        fs::remove_file(recorded.output.join("metadata.yaml")).unwrap();
        assert_eq!(names(&Bag::open(&recorded.output).unwrap()).len(), 2, "{storage}");
    }
}

#[test]
fn a_bag_that_was_not_ended_has_its_markers_after_a_repair() {
    let mut world = World::new();
    let recording = world.record();
    for name in ["first", "second"] {
        recording.control.add_marker(name).unwrap();
        let file = recording.recorder.status().current_file;
        recording.control.split();
        recording.wait_until("the next file is there", |recording| {
            recording.recorder.status().current_file != file
        });
    }
    let recorded = recording.stop();
    fs::remove_file(recorded.output.join("metadata.yaml")).unwrap();
    holdall_tools::tools::repair::repair(&recorded.output, None, &mut |_, _| ()).unwrap();
    assert!(recorded.metadata().custom_data.contains_key("holdall.repaired"));
    assert_eq!(names(&Bag::open(&recorded.output).unwrap()), ["first", "second"]);
}

#[test]
fn bags_that_are_made_of_others_have_their_markers() {
    let mark = |name: &str| {
        let mut world = World::new();
        let recording = world.record();
        recording.control.add_marker(name).unwrap();
        (recording.stop().output, world)
    };
    let ((first, _first), (second, _second)) = (mark("first"), mark("second"));
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("merged");
    let job = Job {
        inputs: vec![Bag::open(&second).unwrap(), Bag::open(&first).unwrap()],
        choice: Choice::default(),
        output: OutputOptions {
            directory: directory.clone(),
            ..OutputOptions::default()
        },
    };
    holdall_tools::tools::run(job, &mut |_, _| ()).unwrap();
    assert_eq!(names(&Bag::open(&directory).unwrap()), ["first", "second"]);
}

#[test]
fn a_marker_that_cannot_be_made_is_refused() {
    let mut world = World::new();
    world.options.use_sim_time = true;
    let recording = world.record();
    assert_eq!(recording.control.add_marker("early"), Err(MarkError::NoTime));
    drop(recording.stop());
    let mut world = World::new();
    let recording = world.record();
    let control = recording.control.clone();
    assert_eq!(
        control.add_marker(" "),
        Err(MarkError::Name(MarkerNameError::Empty))
    );
    for number in 0..MARKERS_MAX {
        control.add_marker(&number.to_string()).unwrap();
    }
    assert_eq!(control.add_marker("one more"), Err(MarkError::TooMany));
    let recorded = recording.stop();
    assert_eq!(control.add_marker("late"), Err(MarkError::Ended));
    assert_eq!(names(&Bag::open(&recorded.output).unwrap()).len(), MARKERS_MAX);
}

#[test]
fn topics_that_appear_while_discovery_is_stopped_come_when_it_starts() {
    let mut world = World::new();
    let first = world.publisher("/first", RELIABLE);
    let recording = world.record();
    recording.wait_matched(&first);
    assert!(recording.control.is_discovery_running());
    recording.control.stop_discovery();
    assert!(!recording.control.is_discovery_running());
    let second = world.publisher("/second", RELIABLE);
    // The first topic's next publisher is followed, so the graph was polled.
    let other = world.publisher("/first", RELIABLE);
    recording.wait_matched(&other);
    assert_eq!(second.matched_subscriptions(), 0);
    assert_eq!(recording.control.subscribed_topics(), ["/first"]);
    recording.control.start_discovery();
    recording.wait_matched(&second);
    assert_eq!(recording.control.subscribed_topics(), ["/first", "/second"]);
    assert!(recording.control.is_recording());
    let (control, recorded) = (recording.control.clone(), recording.stop());
    assert!(!control.is_recording());
    assert_eq!(control.directory(), recorded.output);
}

#[test]
fn topics_are_recorded_on_request_whatever_the_selection_says() {
    let mut world = World::new();
    world.options.selection = Selection {
        topics: vec!["/chosen".to_owned()],
        ..Selection::default()
    };
    let chosen = world.publisher("/chosen", RELIABLE);
    let wanted = world.publisher("/wanted", RELIABLE);
    let recording = world.record();
    recording.wait_matched(&chosen);
    let ask = |topics: &[&str], types: &[&str]| {
        let texts = |list: &[&str]| list.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
        recording
            .control
            .subscribe_to_topics(&texts(topics), &texts(types))
    };
    let of_other_type = ask(&["/wanted"], &["std_msgs/msg/Bool"]).unwrap();
    assert_eq!(of_other_type.unavailable, ["/wanted"]);
    assert_eq!(
        ask(&["wanted", "/chosen", "/absent"], &[STRING, "", ""]).unwrap(),
        SubscribeAnswer {
            subscribed: vec!["/wanted".to_owned(), "/chosen".to_owned()],
            unavailable: vec!["/absent".to_owned()],
        }
    );
    assert_eq!(
        ask(&["/a"], &["b", "c"]),
        Err(SubscribeError::Types { topics: 1, types: 2 })
    );
    recording.wait_matched(&wanted);
    wanted.send(b"now");
    assert_eq!(recording.stop().payloads("/wanted"), [b"now"]);
}

/// A transport that accepts no subscription to `/refused`.
struct Refusing(MemoryTransport);

impl Transport for Refusing {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn end_proof(&self) -> holdall_transport::EndProof {
        self.0.end_proof()
    }

    fn poll_graph(&mut self, events: &mut Vec<GraphEvent>) -> Result<(), TransportError> {
        self.0.poll_graph(events)
    }

    fn subscribe(
        &mut self,
        request: &SubscribeRequest,
        sink: Arc<dyn Sink>,
    ) -> Result<Box<dyn Subscription>, TransportError> {
        if request.topic == "/refused" {
            return Err(TransportError::Topic {
                topic: request.topic.clone(),
                reason: "no readers are left".to_owned(),
            });
        }
        self.0.subscribe(request, sink)
    }

    fn publish(&mut self, request: &PublishRequest) -> Result<Box<dyn Publisher>, TransportError> {
        self.0.publish(request)
    }

    fn now(&self) -> Timestamp {
        self.0.now()
    }
}

#[test]
fn a_topic_that_no_transport_accepts_is_not_called_subscribed() {
    let mut world = World::new();
    world.options.selection = Selection {
        topics: vec!["/chosen".to_owned()],
        ..Selection::default()
    };
    let chosen = world.publisher("/chosen", RELIABLE);
    let _refused = world.publisher("/refused", RELIABLE);
    let _wanted = world.publisher("/wanted", RELIABLE);
    let transport = MemoryTransport::new(&world.network, node("recorder"), world.clock());
    let recording = world.record_over(vec![Box::new(Refusing(transport))]).unwrap();
    recording.wait_matched(&chosen);
    let topics = ["/refused".to_owned(), "/wanted".to_owned()];
    let answer = recording.control.subscribe_to_topics(&topics, &[]).unwrap();
    assert_eq!(answer.subscribed, ["/wanted"]);
    assert_eq!(answer.unavailable, ["/refused"]);
}
