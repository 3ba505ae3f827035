//! Reasons to end the wait for the recorder's next step.

use super::{commands::stepped, *};

/// How long a recording waits for its next step that could wait for [`PATIENCE`].
fn waited(world: &World, control: &RecordControl, earliest: Duration) -> Duration {
    let begun = world.clock().monotonic();
    assert!(!control.wait_step(PATIENCE, earliest), "no stop was requested");
    world.clock().monotonic() - begun
}

#[test]
fn a_publisher_that_appears_ends_the_wait() {
    let world = World::new();
    let mut recorder = stepped(&world);
    recorder.step_session();
    let _publisher = world.publisher("/chatter", RELIABLE);
    assert!(waited(&world, &recorder.control(), Duration::ZERO) < PATIENCE);
    recorder.step_session();
    assert_eq!(recorder.control().subscribed_topics(), ["/chatter"]);
}

#[test]
fn changes_of_the_graph_that_follow_each_other_wait_for_one_step() {
    let world = World::new();
    let recorder = stepped(&world);
    let _publishers = [
        world.publisher("/one", RELIABLE),
        world.publisher("/two", RELIABLE),
    ];
    let earliest = world.clock().monotonic() + Duration::from_millis(20);
    assert!(waited(&world, &recorder.control(), earliest) < PATIENCE);
    assert!(world.clock().monotonic() >= earliest);
}

#[test]
fn topics_asked_for_end_the_wait() {
    let world = World::new();
    let mut recorder = stepped(&world);
    let control = recorder.control();
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| control.subscribe_to_topics(&["/none".to_owned()], &[]));
        assert!(waited(&world, &control, Duration::ZERO) < PATIENCE);
        recorder.step_session();
        assert_eq!(asked.join().unwrap().unwrap().unavailable, ["/none"]);
    });
}

#[test]
fn a_limit_that_is_reached_ends_the_wait() {
    let mut world = World::new();
    world.options.limits.messages_max = Some(1);
    let mut recorder = stepped(&world);
    let publisher = world.publisher("/chatter", RELIABLE);
    recorder.step_session();
    // An appearance is news as well.
    waited(&world, &recorder.control(), Duration::ZERO);
    publisher.send(&payload(1, 8));
    while recorder.step_drain() {}
    assert!(waited(&world, &recorder.control(), Duration::ZERO) < PATIENCE);
}
