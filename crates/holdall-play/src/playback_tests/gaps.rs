//! Spans without a message, clocks that jumped while the bag was recorded, and rounds that have no time.

use super::*;
use holdall_model::time_line::{ClockJump, StampClock};

const HOUR_MS: i64 = 3_600_000;

fn jump(from: i64, to: i64) -> ClockJump {
    ClockJump {
        clock: StampClock::Wall,
        from: at(from),
        to: at(to),
    }
}

#[test]
fn a_gap_takes_its_time_unless_it_is_to_be_left_out() {
    let messages = [(0, 0), (500, 0), (3 * HOUR_MS, 0), (3 * HOUR_MS + 400, 0)];
    let mut stage = Stage::new(&messages, options());
    assert!(matches!(stage.run_until(ms(60_000)), Next::At(_)));
    assert_eq!(stage.status().published, 2);
    let options = PlayOptions {
        skip_empty: Some(ms(1000)),
        ..options()
    };
    let mut stage = Stage::new(&messages, options);
    assert_eq!(stage.run_until(ms(60_000)), Next::Ended);
    let times: Vec<u64> = stage.on("/a").iter().map(|(when, _)| *when).collect();
    assert_eq!(times, [0, 500, 500, 900]);
}

#[test]
fn a_jump_of_the_clock_takes_no_time_and_what_lies_beside_it_does() {
    let messages = [(0, 0), (100, 0), (HOUR_MS + 350, 0), (HOUR_MS + 400, 0)];
    let mut stage = Stage::new(&messages, options());
    stage.playback.set_jumps(vec![jump(200, HOUR_MS + 200)]);
    assert_eq!(stage.run_until(ms(60_000)), Next::Ended);
    let times: Vec<u64> = stage.on("/a").iter().map(|(when, _)| *when).collect();
    assert_eq!(times, [0, 100, 350, 400]);
}

#[test]
fn where_the_clock_was_set_back_the_second_run_follows_the_first() {
    // The bag's first time is that of the second run.
    let messages = [(HOUR_MS, 0), (HOUR_MS + 100, 0), (20, 0), (120, 0)];
    let mut stage = Stage::new(&messages, options());
    stage.playback.set_jumps(vec![jump(HOUR_MS + 120, 10)]);
    assert_eq!(stage.run_until(ms(60_000)), Next::Ended);
    let times: Vec<u64> = stage.on("/a").iter().map(|(when, _)| *when).collect();
    assert_eq!(times, [0, 100, 100, 200]);
}

#[test]
fn a_round_without_time_is_played_once_a_second() {
    let options = PlayOptions {
        repeat: true,
        ..options()
    };
    let mut stage = Stage::new(&[(0, 0), (5, 0)], options);
    stage.run_until(ms(3500));
    let times: Vec<u64> = stage.on("/a").iter().map(|(when, _)| *when).collect();
    assert_eq!(times, [0, 5, 1000, 1005, 2000, 2005, 3000, 3005]);
}
