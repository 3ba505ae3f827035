//! Requests and their answers, and a playback that plays again.

use super::{super::options::PlayWindow, *};

#[test]
fn each_command_is_answered_with_what_it_did() {
    let options = PlayOptions {
        start_paused: true,
        ..options()
    };
    let mut stage = Stage::new(&[(0, 0), (50, 0), (100, 0)], options);
    stage.run_until(ms(1));
    let two = stage.ask(Command::Burst(Some(2)));
    assert!(two.try_recv().is_err(), "nothing was played yet");
    let rest = stage.ask(Command::Burst(None));
    stage.run_until(ms(2));
    assert_eq!(
        (two.try_recv(), rest.try_recv()),
        (Ok(Reply::Played(2)), Ok(Reply::Played(1)))
    );
    assert_eq!(stage.ask(Command::Rate(-1.0)).try_recv(), Ok(Reply::Refused));
    assert_eq!(stage.ask(Command::Seek(at(-5))).try_recv(), Ok(Reply::Done));
    assert_eq!(stage.ask(Command::Resume).try_recv(), Ok(Reply::Done));
    assert_eq!(
        stage.ask(Command::Burst(Some(1))).try_recv(),
        Ok(Reply::Played(0))
    );
    let whole = PlayWindow::default();
    assert_eq!(
        stage.ask(Command::Play(whole, None)).try_recv(),
        Ok(Reply::Refused),
        "it is playing"
    );
    assert_eq!(stage.ask(Command::Stop).try_recv(), Ok(Reply::Done));
}

#[test]
fn a_persistent_playback_plays_again_what_it_is_asked_for() {
    let options = PlayOptions {
        persistent: true,
        ..options()
    };
    let mut stage = Stage::new(&[(0, 0), (50, 0), (100, 0), (150, 0)], options);
    assert_eq!(stage.run_until(ms(1000)), Next::Signal);
    assert_eq!(stage.status().phase, PlayPhase::Waiting);
    assert_eq!(stage.ask(Command::Seek(at(0))).try_recv(), Ok(Reply::Refused));
    let window = |offset, duration| PlayWindow {
        start_offset: ms(offset),
        duration,
        ..PlayWindow::default()
    };
    let nothing = Command::Play(window(0, Some(Duration::ZERO)), None);
    assert_eq!(stage.ask(nothing).try_recv(), Ok(Reply::Done));
    assert_eq!(stage.status().phase, PlayPhase::Waiting, "zeros play nothing");
    let beyond = Command::Play(window(9000, None), None);
    assert_eq!(stage.ask(beyond).try_recv(), Ok(Reply::Refused));
    let part = Command::Play(window(50, Some(ms(50))), Some(ms(2100)));
    assert_eq!(stage.ask(part).try_recv(), Ok(Reply::Done));
    assert_eq!(stage.run_until(ms(2000)), Next::Signal);
    let again = &stage.on("/a")[4..];
    assert_eq!(again, pairs(&[(1100, "50"), (1150, "100")]));
    stage.command(Command::Quit);
    assert_eq!(stage.run_until(ms(2000)), Next::Ended);
    assert!(!stage.playback.into_played().stopped, "all was played");
}
