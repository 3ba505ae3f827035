//! Recordings that end by themselves, and topics with a limited number of messages a second.

use super::*;
use crate::{options::RecordingLimits, status::ReachedLimit};
use holdall_bag::writer::SplitOptions;

/// Ends by itself, with everything accounted for and nothing lost.
fn ended(recording: Recording) -> Recorded {
    recording.wait_until("the recording has ended", |recording| {
        recording.recorder.wait_finished(Duration::ZERO)
    });
    let recorded = recording.stop();
    assert_eq!(recorded.report.failure, None);
    assert!(!recorded.report.has_loss(), "{:?}", recorded.report.status.topics);
    recorded
}

#[test]
fn a_recording_ends_with_the_last_message_that_was_requested() {
    let mut world = World::new();
    world.options.limits.messages_max = Some(5);
    let publisher = world.publisher("/chatter", RELIABLE);
    let recording = world.record();
    recording.wait_matched(&publisher);
    for number in 0..20 {
        publisher.send(&payload(number, 100));
    }
    let control = recording.control.clone();
    let recorded = ended(recording);
    assert_eq!(recorded.report.ended_by, Some(ReachedLimit::Messages(5)));
    assert_eq!(
        control.stop_reason().as_deref(),
        Some("it has the requested 5 messages")
    );
    let wanted: Vec<Vec<u8>> = (0..5).map(|number| payload(number, 100)).collect();
    assert_eq!(recorded.payloads("/chatter"), wanted);
    let topic = &recorded.report.status.topics[0];
    assert_eq!((topic.received, topic.left_out), (20, 15));
}

#[test]
fn a_recording_ends_before_its_files_exceed_the_size() {
    for split in [None, Some(40_000)] {
        let mut world = World::new();
        let bytes_max = 100_000;
        world.options.limits.bytes_max = Some(bytes_max);
        world.options.files.split = SplitOptions {
            bytes_max: split,
            ..SplitOptions::default()
        };
        let publisher = world.publisher("/chatter", RELIABLE);
        let recording = world.record();
        recording.wait_matched(&publisher);
        for number in 0..300 {
            publisher.send(&payload(number, 1000));
        }
        let recorded = ended(recording);
        assert_eq!(recorded.report.ended_by, Some(ReachedLimit::Bytes(bytes_max)));
        let lengths = recorded
            .report
            .files
            .iter()
            .map(|file| fs::metadata(file).unwrap().len());
        let bytes: u64 = lengths.sum();
        assert_eq!(recorded.report.files.len() > 1, split.is_some());
        assert!(
            (70_000..=bytes_max + 4_000).contains(&bytes),
            "{bytes}, split {split:?}"
        );
    }
}

#[test]
fn a_recording_ends_after_its_span() {
    let mut world = World::new();
    let span = Duration::from_secs(3600);
    world.options.limits = RecordingLimits {
        duration_max: Some(span),
        ..RecordingLimits::default()
    };
    let publisher = world.publisher("/chatter", RELIABLE);
    let recording = world.record();
    recording.wait_matched(&publisher);
    publisher.send(b"one");
    recording.wait_recorded(1);
    assert!(recording.control.is_recording());
    world.clock.advance(span);
    let recorded = ended(recording);
    assert_eq!(recorded.report.ended_by, Some(ReachedLimit::Duration(span)));
    assert_eq!(recorded.payloads("/chatter"), [b"one"]);
}

#[test]
fn a_recording_that_is_stopped_was_not_ended_by_a_limit() {
    let mut world = World::new();
    world.options.limits.messages_max = Some(5);
    let recorded = world.record().stop();
    assert_eq!(recorded.report.ended_by, None);
}

#[test]
fn of_a_throttled_topic_some_messages_are_left_out_on_request() {
    let mut world = World::new();
    world.options.throttles = [("/fast".to_owned(), 0.001)].into();
    let (fast, other) = (
        world.publisher("/fast", RELIABLE),
        world.publisher("/other", RELIABLE),
    );
    let recording = world.record();
    recording.wait_matched(&fast);
    recording.wait_matched(&other);
    for number in 0..10 {
        fast.send(&payload(number, 8));
        other.send(&payload(number, 8));
    }
    world.clock.advance(Duration::from_secs(1001));
    fast.send(&payload(10, 8));
    recording.wait_recorded(12);
    let recorded = recording.stop();
    assert_eq!(recorded.payloads("/fast"), [payload(0, 8), payload(10, 8)]);
    assert_eq!(recorded.payloads("/other").len(), 10);
    let topics = &recorded.report.status.topics;
    let fast = topics.iter().find(|topic| topic.name == "/fast").unwrap();
    assert_eq!((fast.received, fast.recorded, fast.left_out), (11, 2, 9));
    assert!(fast.lost.is_empty() && !recorded.report.has_loss());
}
