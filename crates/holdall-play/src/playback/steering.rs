//! Commands of users to a playback: pause, seek, single messages, another part of the bag, the end.

use super::{
    super::{
        control::{Asker, Command, Reply, Request},
        discovery::Discovery,
        options::PlayWindow,
        range::PlayRange,
        read_ahead::Source,
        schedule::Schedule,
        status::PlayPhase,
    },
    Playback,
};
use holdall_model::time::Timestamp;
use std::time::Duration;

impl<S: Source> Playback<S> {
    /// Carries out a user's command.
    #[cfg(test)]
    pub fn command(&mut self, now: Duration, command: Command) {
        self.execute(now, command.into());
    }

    /// Carries out a user's command and answers.
    pub fn execute(&mut self, now: Duration, Request { command, asker }: Request) {
        let reply = match command {
            Command::Pause => self.pause(now),
            Command::Resume => self.resume(now),
            Command::Toggle if self.is_paused() => self.resume(now),
            Command::Toggle => self.pause(now),
            Command::Burst(count) => return self.burst(count, asker),
            Command::Rate(rate) => self.set_rate(now, rate),
            Command::Seek(to) => self.seek(now, to),
            Command::Play(window, begin) => self.play_again(&window, begin),
            Command::Finish => self.end_here(now),
            Command::Stop => self.stop(now, false),
            Command::Quit => self.stop(now, true),
        };
        self.show();
        if let Some(asker) = asker {
            asker.answer(reply);
        }
    }

    /// Ends for good as at the end of the bag.
    fn end_here(&mut self, now: Duration) -> Reply {
        self.parts.persistent = false;
        self.finish(now);
        Reply::Done
    }

    /// Ends playing before its end.
    fn stop(&mut self, now: Duration, for_good: bool) -> Reply {
        match self.phase {
            PlayPhase::Ended => return Reply::Refused,
            // A playback that has played all is not cut short.
            PlayPhase::Waiting => {}
            PlayPhase::Preparing | PlayPhase::Playing => self.stopped = true,
        }
        self.parts.persistent &= !for_good;
        self.finish(now);
        Reply::Done
    }

    fn pause(&mut self, now: Duration) -> Reply {
        self.parts.start_paused = true;
        self.parts.schedule.pause(now);
        self.forget_spacing();
        Reply::Done
    }

    fn resume(&mut self, now: Duration) -> Reply {
        self.parts.start_paused = false;
        self.bursts.end();
        self.forget_spacing();
        if self.phase == PlayPhase::Playing {
            self.parts.schedule.resume(now);
        }
        Reply::Done
    }

    fn set_rate(&mut self, now: Duration, rate: f64) -> Reply {
        self.forget_spacing();
        match self.parts.schedule.set_rate(now, rate) {
            true => Reply::Done,
            false => Reply::Refused,
        }
    }

    fn seek(&mut self, now: Duration, to: Timestamp) -> Reply {
        let range = self.parts.range;
        if to > range.end || self.phase == PlayPhase::Waiting {
            tracing::warn!(
                "cannot seek to {} ns: {}",
                to.as_nanos(),
                match self.phase {
                    PlayPhase::Waiting => "nothing is being played",
                    _ => "it is after the end of what is played",
                }
            );
            return Reply::Refused;
        }
        let to = to.max(range.start);
        self.parts.source.seek(to);
        self.parts.steps.forget();
        self.parts.schedule.jump(now, to);
        self.head = None;
        self.bursts.end();
        self.forget_spacing();
        self.starving = false;
        self.sought = Some(to);
        Reply::Done
    }

    /// Plays `window`, unless something is being played.
    fn play_again(&mut self, window: &PlayWindow, begin: Option<Duration>) -> Reply {
        if self.phase != PlayPhase::Waiting {
            tracing::warn!("the request to play is refused: the bag is being played already");
            return Reply::Refused;
        }
        let bounds = (self.parts.range.first, self.parts.range.last);
        if window.duration == Some(Duration::ZERO) && window.until.is_none_or(|until| until <= bounds.0) {
            tracing::info!("the request to play asks for no time of the bag: negative times play all of it");
            return Reply::Done;
        }
        let range = match PlayRange::of(bounds, window) {
            Ok(range) => range,
            Err(reason) if window.until.is_some_and(|until| until < bounds.0) => {
                tracing::info!("the request to play asks for nothing: {reason}");
                return Reply::Done;
            }
            Err(reason) => {
                tracing::warn!("the request to play is refused: {reason}");
                return Reply::Refused;
            }
        };
        self.parts.range = range;
        (self.reached, self.round_began) = (range.start, None);
        self.parts.begin = begin;
        self.parts.discovery = Discovery::default();
        self.parts.source.play(range.start, range.until);
        self.parts.steps.forget();
        self.parts.schedule = Schedule::paused(range.start, self.parts.schedule.rate(), Duration::ZERO);
        (self.phase, self.starving, self.sought) = (PlayPhase::Preparing, false, None);
        let mut progress = self.lock_progress();
        (progress.start, progress.duration, progress.round) = (range.start, range.span(), 1);
        Reply::Done
    }

    /// Takes a burst; its answer comes when it was played.
    fn burst(&mut self, left: Option<u64>, asker: Option<Asker>) {
        let is_possible = self.is_paused() && self.phase != PlayPhase::Waiting;
        self.bursts.add(if is_possible { left } else { Some(0) }, asker);
    }
}
