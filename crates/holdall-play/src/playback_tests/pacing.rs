//! Latched state, required subscriptions, catching up, the pace of listeners, and measurements.

use super::{
    super::options::{ListenerCount, Pace},
    *,
};

fn latched(publication: usize, payload: &'static str) -> PlayMessage {
    PlayMessage {
        stamp: at(-1000),
        publication,
        payload: payload.into(),
        latched: true,
    }
}

#[test]
fn latched_state_comes_first_also_while_paused_and_counts_as_no_message() {
    let mut stage = Stage::new(
        &[(0, 0), (50, 0)],
        PlayOptions {
            start_paused: true,
            ..options()
        },
    );
    stage.run_until(ms(1));
    stage.playback.replace_head(latched(1, "map"));
    stage.run_until(ms(5));
    assert_eq!(stage.on("/b"), pairs(&[(1, "map")]));
    stage.command(Command::Resume);
    stage.run_until(ms(10_000));
    let status = stage.status();
    assert_eq!(
        (status.latched, status.published, status.lateness.count),
        (1, 1, 1)
    );
    assert_eq!(status.lateness.max, Duration::ZERO);
    let reports = stage.playback.into_played().parts.publications.into_reports();
    assert_eq!((reports[1].latched, reports[1].published), (1, 0));
}

#[test]
fn playback_waits_for_the_subscriptions_that_are_required() {
    let options = PlayOptions {
        wait_for_subscribers: vec![ListenerCount {
            topic: Some("/a".to_owned()),
            count: 2,
        }],
        ..options()
    };
    let mut stage = Stage::new(&[(0, 0)], options);
    stage.notebook.matched.store(1, Ordering::SeqCst);
    stage.run_until(ms(60_000));
    assert_eq!(stage.status().phase, PlayPhase::Preparing);
    stage.notebook.matched.store(2, Ordering::SeqCst);
    assert_eq!(stage.run_until(ms(61_000)), Next::Ended);
    assert_eq!(stage.status().published, 1);
}

#[test]
fn required_subscriptions_that_do_not_come_in_time_end_it_with_a_sentence() {
    let options = PlayOptions {
        wait_for_subscribers: vec![ListenerCount {
            topic: None,
            count: 1,
        }],
        subscribers_timeout: Some(ms(500)),
        ..options()
    };
    let mut stage = Stage::new(&[(0, 0)], options);
    assert_eq!(stage.run_until(ms(600)), Next::Ended);
    let failure = stage.playback.into_played().failure.expect("a sentence");
    assert!(
        failure.contains("0.5 s") && failure.contains("0 of 1"),
        "{failure}"
    );
}

#[test]
fn what_has_piled_up_is_sent_faster_than_planned_but_not_at_once() {
    let messages: Vec<_> = (0..300).map(|millis| (millis, 0)).collect();
    let mut stage = Stage::new(&messages, options());
    stage.run_until(ms(100));
    // A late wake-up: 100 ms pass without a step.
    stage.now += ms(100);
    stage.run_until(ms(10_000));
    let sent = stage.on("/a");
    assert_eq!(sent.len(), 300);
    let mut by_time = BTreeMap::<u64, usize>::new();
    for (when, _) in &sent {
        *by_time.entry(*when).or_default() += 1;
    }
    assert!(by_time.values().all(|count| *count <= 6), "{by_time:?}");
    assert_eq!(sent.last(), Some(&(299, "299".to_owned())), "it has caught up");
    assert!(sent[240].0 <= 241, "within 34 ms: {:?}", sent[240]);
}

#[test]
fn listeners_set_the_pace_and_the_clock_follows() {
    let options = PlayOptions {
        pace: Pace::Listeners,
        clock: ClockSource::AllTopics,
        ..options()
    };
    let mut stage = Stage::new(&[(0, 0), (5000, 0), (90_000, 1)], options);
    assert_eq!(stage.run_until(ms(10)), Next::Ended);
    assert_eq!(stage.clock(), [(0, 0), (0, 5000), (0, 90_000)]);
    assert_eq!(stage.status().lateness.count, 0, "nothing was planned");
}

#[test]
fn each_topic_reports_how_exactly_it_was_sent_and_what_had_no_listener() {
    let mut stage = Stage::new(&[(0, 0), (10, 1), (20, 0), (30, 1), (60, 0)], options());
    stage.run_until(ms(35));
    stage.now += ms(26);
    stage.run_until(ms(10_000));
    let reports = stage.playback.into_played().parts.publications.into_reports();
    assert_eq!((reports[0].spacing.count, reports[1].spacing.count), (2, 1));
    assert!(reports[0].spacing.max.abs_diff(ms(1)) < ms(1), "{:?}", reports[0]);
    assert_eq!(reports[1].lateness.max, Duration::ZERO);
    assert_eq!((reports[0].untaken, reports[1].untaken), (3, 2));
}
