//! Parts of a ring that events want in bags: handed over once, and those that are not copied are in state and report.

use super::{
    triggers::{FLOAT, Stepped, float, ms},
    *,
};
use crate::{
    options::{OnDiskFull, PromoteOptions, Trigger},
    status::{CopyFault, EventCopies},
};
use holdall_model::free_space::RingState;

/// Copies that may wait.
const WAITING: u64 = 32;

fn promoting(change: impl FnOnce(&mut RecordOptions)) -> Stepped {
    Stepped::recording(|record| {
        record.promote = Some(PromoteOptions {
            triggers: vec![Trigger::parse("/value: data < 11.5").unwrap()],
            on_contract: false,
            before: ms(200),
            after: ms(200),
        });
        change(record);
    })
}

fn copies(world: &Stepped) -> EventCopies {
    world.recorder.status().triggered.unwrap().copies
}

#[test]
fn copies_that_are_not_made_are_in_state_and_report_whatever_comes_after_them() {
    let mut world = promoting(|_| {});
    let value = world.publisher("/value", FLOAT);
    let events = |world: &mut Stepped, count: usize| {
        for step in 0..10 * count {
            world.clock.advance(ms(100));
            world.send(&value, &float(if step % 10 == 2 { 11.0 } else { 12.0 }));
            world.settle();
        }
    };
    events(&mut world, WAITING as usize + 2);
    let refused = copies(&world);
    assert_eq!((refused.failed, refused.faults.len()), (2, 2));
    let fault = &refused.faults[0];
    assert_eq!(
        fault.to_string(),
        "no copy (/value: data < 11.5): 32 copies wait already"
    );
    assert_eq!(fault.span.until.saturating_since(fault.span.start), ms(400));
    let control = world.recorder.control();
    let taken = control.take_ring_windows();
    assert_eq!(taken.len() as u64, WAITING);
    control.note_copy(None);
    control.note_copy(Some(CopyFault {
        output: Some("ring_event_2".to_owned()),
        is_made: true,
        ..fault.clone()
    }));
    // What is published with later events keeps the account.
    events(&mut world, 1);
    let (recorded, _dir) = world.close();
    let counted = recorded.report.status.triggered.clone().unwrap().copies;
    assert_eq!((counted.whole, counted.incomplete, counted.failed), (1, 1, 2));
    assert!(counted.not_whole() == 3 && !recorded.report.has_loss());
}

#[test]
fn a_copy_knows_what_its_ring_keeps_free_and_what_has_expired() {
    let state = |change: fn(&mut RecordOptions)| promoting(change).recorder.control().ring_state();
    assert_eq!(state(|_| {}), RingState::default());
    let limited = state(|record| record.safety.min_free_space_bytes = Some(5));
    assert_eq!((limited.kept_free_bytes, limited.makes_room), (5, false));
    let ring = state(|record| record.safety.on_disk_full = OnDiskFull::Ring);
    assert_eq!((ring.kept_free_bytes, ring.makes_room), (1 << 30, true));
    let mut world = promoting(|record| {
        record.files.split.bytes_max = Some(60_000);
        record.files.split.files_max = Some(2);
    });
    let other = world.publisher("/other", STRING);
    let mut times = Vec::new();
    for number in 0..500 {
        world.clock.advance(ms(10));
        times.push(world.send(&other, &payload(number, 1000)));
        world.settle();
    }
    let control = world.recorder.control();
    let (recorded, _dir) = world.close();
    let expired = recorded.report.status.topics[0].expired as usize;
    assert!(expired > 100, "{expired}");
    assert_eq!(control.ring_state().expired_until, Some(times[expired - 1]));
}
