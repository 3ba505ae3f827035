//! The queue of commands to a drain that waits for the disk: its contents, and the decisions that wait outside.

use super::*;
use crate::{SteppedRecorder, write::drain::COMMANDS_MAX};
use holdall_bag::writer::OsFolder;

/// Topics that find no room.
const MORE: usize = 10;

/// A recording whose drain moves only when the test steps it.
pub(super) fn stepped(world: &World) -> SteppedRecorder {
    let transport = MemoryTransport::new(&world.network, node("recorder"), world.clock());
    let blocks = BlockPoolOptions {
        block_bytes: 1 << 20,
        block_count: 6,
        huge_pages: false,
    };
    SteppedRecorder::new(
        world.options.clone(),
        vec![Box::new(transport)],
        world.clock(),
        os_disk(DiskMode::Buffered, blocks),
        Box::<OsFolder>::default(),
    )
    .unwrap()
}

#[test]
fn topics_that_find_no_room_are_recorded_when_the_drain_has_made_some() {
    let world = World::new();
    let mut recorder = stepped(&world);
    let publishers: Vec<MemoryPublisher> = (0..COMMANDS_MAX + MORE)
        .map(|number| world.publisher(&format!("/t{number}"), RELIABLE))
        .collect();
    for _ in 0..3 {
        recorder.step_session();
        assert_eq!(recorder.status().topics.len(), COMMANDS_MAX);
    }
    recorder.step_drain();
    recorder.step_session();
    assert_eq!(recorder.status().topics.len(), COMMANDS_MAX + MORE);
    for publisher in &publishers {
        assert_eq!(publisher.matched_subscriptions(), 1);
    }
    for publisher in &publishers[COMMANDS_MAX - MORE..] {
        publisher.send(&payload(7, 8));
    }
    recorder.step_session();
    let report = recorder.stop();
    assert_eq!((report.status.recorded, report.status.lost), (2 * MORE as u64, 0));
    assert_eq!(report.audit_faults, Vec::<String>::new());
}

#[test]
fn static_topics_without_room_are_subscribed_when_there_is_some() {
    let mut world = World::new();
    let topic = |number| (format!("/t{number}"), STRING.to_owned());
    world.options.discovery.static_topics = (0..COMMANDS_MAX + MORE).map(topic).collect();
    let mut recorder = stepped(&world);
    assert_eq!(recorder.status().topics.len(), COMMANDS_MAX);
    recorder.step_drain();
    recorder.step_session();
    assert_eq!(recorder.status().topics.len(), COMMANDS_MAX + MORE);
}

#[test]
fn requests_for_a_new_file_that_wait_are_one() {
    let world = World::new();
    let mut recorder = stepped(&world);
    for _ in 0..1000 {
        recorder.control().split();
        recorder.control().continue_in_new_file("no progress".to_owned());
    }
    recorder.step_drain();
    recorder.control().split();
    recorder.step_drain();
    let (report, ledger) = recorder.stop_with_ledger();
    assert_eq!(report.files.len(), 3);
    assert_eq!(ledger.restarts.len(), 1);
}
