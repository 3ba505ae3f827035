//! The playback as a state machine: given the time and the commands, it publishes what is due and returns when to call it again.

use super::{
    burst::Bursts,
    clock_topic::ClockTopic,
    control::{Asker, Command, Progress, Reply, Request},
    delivery::Admission,
    options::PlayWindow,
    publications::Publications,
    range::PlayRange,
    read_ahead::{PlayMessage, Poll, Source},
    schedule::Schedule,
    status::PlayPhase,
};
use holdall_io::mutex::lock;
use holdall_model::time::Timestamp;
use std::{
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

/// Time between polls of matched subscriptions, before the first message.
const SETTLE_POLL: Duration = Duration::from_millis(10);

/// Time between polls of what a topic's subscriptions have acknowledged, while its next message waits for
/// that.
const ACKNOWLEDGE_POLL: Duration = Duration::from_millis(1);

/// Discovery counts as done when nothing more has matched for this long. A reader that we see matched may see us a round trip
/// later.
const SETTLE_QUIET: Duration = Duration::from_millis(300);

/// Discovery takes at least this long. Measured between Cyclone DDS and Fast DDS on one host: a reader matches after either
/// 0.1 s or 1.1 s (most often), when the first exchange of endpoints fails and Fast DDS repeats it a second later.
const SETTLE_MIN: Duration = Duration::from_millis(1250);

/// When a playback wants to be stepped again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// At this monotonic time, or at the next signal.
    At(Duration),
    /// When there is a command, or the source has something.
    Signal,
    /// Never.
    Ended,
}

/// What a playback is made of.
pub(super) struct PlaybackParts<S> {
    pub source: S,
    pub publications: Publications,
    pub clock_topic: Option<ClockTopic>,
    /// At rest at the start of the range.
    pub schedule: Schedule,
    pub range: PlayRange,
    pub start_paused: bool,
    /// Stay after the end until there is more to play.
    pub persistent: bool,
    /// Begin no earlier than at this monotonic time.
    pub begin: Option<Duration>,
    /// Longest wait for subscriptions.
    pub discovery_wait: Duration,
}

/// How far discovery has come.
struct Settle {
    since: Duration,
    quiet_since: Duration,
    matched: usize,
}

/// A playback between two steps.
pub(super) struct Playback<S> {
    parts: PlaybackParts<S>,
    progress: Arc<Mutex<Progress>>,
    settle: Option<Settle>,
    phase: PlayPhase,
    head: Option<PlayMessage>,
    bursts: Bursts,
    /// Where a seek went whose first message has not come yet; it is not late, however long reading takes.
    sought: Option<Timestamp>,
    starving: bool,
    stopped: bool,
    began: Option<Duration>,
    failure: Option<String>,
}

/// What is left when a playback has ended.
pub(super) struct Played<S> {
    pub parts: PlaybackParts<S>,
    pub began: Option<Duration>,
    pub stopped: bool,
    pub failure: Option<String>,
}

impl<S: Source> Playback<S> {
    /// A playback that begins with its first step.
    pub fn new(parts: PlaybackParts<S>) -> Self {
        let progress = Progress::new(parts.schedule.clone(), parts.range.start, parts.range.span());
        Self {
            parts,
            progress: Arc::new(Mutex::new(progress)),
            settle: None,
            phase: PlayPhase::Preparing,
            head: None,
            bursts: Bursts::default(),
            sought: None,
            starving: false,
            stopped: false,
            began: None,
            failure: None,
        }
    }

    /// What others may read while this runs.
    pub fn progress(&self) -> Arc<Mutex<Progress>> {
        Arc::clone(&self.progress)
    }

    /// Takes the playback apart after its end.
    pub(crate) fn into_played(self) -> Played<S> {
        Played {
            parts: self.parts,
            began: self.began,
            stopped: self.stopped,
            failure: self.failure,
        }
    }

    /// Does what is due at monotonic time `now`, at most one message.
    pub fn step(&mut self, now: Duration) -> Next {
        let position = self.parts.schedule.position(now);
        let next = match self.phase {
            PlayPhase::Ended => return Next::Ended,
            PlayPhase::Preparing => self.prepare(now),
            PlayPhase::Playing => self.play(now),
            PlayPhase::Waiting => Next::Signal,
        };
        let tick = self
            .parts
            .clock_topic
            .as_mut()
            .and_then(|topic| topic.tick(now, position));
        self.show();
        match (next, tick) {
            (Next::At(at), Some(tick)) => Next::At(at.min(tick)),
            (Next::Signal, Some(tick)) => Next::At(tick),
            (next, _) => next,
        }
    }

    /// Does what a user asks for.
    #[cfg(test)]
    pub fn command(&mut self, now: Duration, command: Command) {
        self.carry_out(now, command.into());
    }

    /// Does what a user asks for and answers.
    pub fn carry_out(&mut self, now: Duration, Request { command, asker }: Request) {
        let reply = match command {
            Command::Pause => self.pause(now),
            Command::Resume => self.resume(now),
            Command::Toggle if self.is_paused() => self.resume(now),
            Command::Toggle => self.pause(now),
            Command::Burst(count) => return self.burst(count, asker),
            Command::Rate(rate) if self.parts.schedule.set_rate(now, rate) => Reply::Done,
            Command::Rate(_) => Reply::Refused,
            Command::Seek(to) => self.seek(now, to),
            Command::Play(window, begin) => self.play_again(&window, begin),
            Command::Stop => self.stop(now, false),
            Command::Quit => self.stop(now, true),
        };
        self.show();
        if let Some(asker) = asker {
            asker.answer(reply);
        }
    }

    /// Ends what is played before its end.
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

    /// Before it begins, the schedule rests whatever the user wants.
    fn is_paused(&self) -> bool {
        match self.phase {
            PlayPhase::Preparing => self.parts.start_paused,
            PlayPhase::Playing | PlayPhase::Waiting | PlayPhase::Ended => self.parts.schedule.is_paused(),
        }
    }

    fn pause(&mut self, now: Duration) -> Reply {
        self.parts.start_paused = true;
        self.parts.schedule.pause(now);
        Reply::Done
    }

    fn resume(&mut self, now: Duration) -> Reply {
        self.parts.start_paused = false;
        self.bursts.end();
        if self.phase == PlayPhase::Playing {
            self.parts.schedule.resume(now);
        }
        Reply::Done
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
        self.parts.schedule.jump(now, to);
        self.head = None;
        self.bursts.end();
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
        self.parts.begin = begin;
        self.parts.discovery_wait = Duration::ZERO;
        self.parts.source.play(range.start, range.until);
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

    /// Ends what is played: for good, or until there is more to play.
    fn finish(&mut self, now: Duration) -> Next {
        self.bursts.end();
        (self.head, self.sought) = (None, None);
        if self.parts.persistent {
            self.parts.schedule.pause(now);
            self.phase = PlayPhase::Waiting;
            Next::Signal
        } else {
            self.phase = PlayPhase::Ended;
            Next::Ended
        }
    }

    /// Begins once enough was read ahead and discovery has settled.
    fn prepare(&mut self, now: Duration) -> Next {
        let settled_at = self.settled_at(now);
        let filled = self.parts.source.is_filled();
        if settled_at > now {
            return Next::At(settled_at.min(now + SETTLE_POLL));
        }
        if !filled {
            return Next::Signal;
        }
        // Machines that begin together count from the same time, whichever of them woke later.
        let begin = self.parts.begin.unwrap_or(now);
        if begin > now {
            return Next::At(begin);
        }
        self.parts.begin = None;
        self.phase = PlayPhase::Playing;
        self.began = self.began.or(Some(now));
        if !self.parts.start_paused {
            self.parts.schedule.resume(begin);
        }
        Next::At(now)
    }

    /// When discovery counts as settled if nothing more happens.
    fn settled_at(&mut self, now: Duration) -> Duration {
        if self.parts.discovery_wait.is_zero() {
            return now;
        }
        let matched = self.parts.publications.matched_subscriptions();
        let settle = self.settle.get_or_insert(Settle {
            since: now,
            quiet_since: now,
            matched,
        });
        if matched != settle.matched {
            (settle.matched, settle.quiet_since) = (matched, now);
        }
        let latest = settle.since.saturating_add(self.parts.discovery_wait);
        if matched == 0 {
            return latest;
        }
        let quiet = settle.quiet_since.saturating_add(SETTLE_QUIET);
        latest.min(quiet.max(settle.since.saturating_add(SETTLE_MIN)))
    }

    fn play(&mut self, now: Duration) -> Next {
        let stamp = match self.head_stamp(now) {
            Ok(stamp) => stamp,
            Err(next) => return next,
        };
        match self.parts.schedule.due(stamp) {
            Some(due) if due > now => Next::At(due),
            Some(due) => match self.admit_head(now) {
                Admission::Wait => Next::At(now + ACKNOWLEDGE_POLL),
                Admission::Publish => {
                    self.publish_head(Some(now.saturating_sub(due)));
                    Next::At(now)
                }
                Admission::Refuse => {
                    self.refuse_head();
                    Next::At(now)
                }
            },
            None if self.bursts.is_empty() => Next::Signal,
            None => match self.admit_head(now) {
                Admission::Wait => Next::At(now + ACKNOWLEDGE_POLL),
                Admission::Publish => {
                    self.parts.schedule.jump(now, stamp);
                    self.publish_head(None);
                    self.bursts.played();
                    Next::At(now)
                }
                Admission::Refuse => {
                    self.refuse_head();
                    Next::At(now)
                }
            },
        }
    }

    /// The stamp of the message to play next; or what to wait for while there is none.
    fn head_stamp(&mut self, now: Duration) -> Result<Timestamp, Next> {
        loop {
            if let Some(head) = &self.head {
                return Ok(head.stamp);
            }
            match self.parts.source.poll() {
                Poll::Message(message) => {
                    self.starving = false;
                    if let Some(to) = self.sought.take() {
                        self.parts.schedule.jump(now, to);
                    }
                    self.head = Some(message);
                }
                Poll::RoundEnd => {
                    self.parts.schedule.jump(now, self.parts.range.start);
                    self.lock_progress().round += 1;
                }
                Poll::Pending => {
                    let hungry = !self.starving && !self.is_paused() && self.sought.is_none();
                    if hungry {
                        self.starving = true;
                        self.lock_progress().starved += 1;
                    }
                    return Err(Next::Signal);
                }
                Poll::End(failure) => {
                    self.sought = None;
                    self.bursts.end();
                    self.failure = failure;
                    if self.is_paused() {
                        // The user may still want to seek back.
                        return Err(Next::Signal);
                    }
                    return Err(self.finish(now));
                }
            }
        }
    }

    /// Whether the message to play next can be published without losing one that a subscription still lacks.
    fn admit_head(&mut self, now: Duration) -> Admission {
        let publications = &mut self.parts.publications;
        self.head.as_ref().map_or(Admission::Publish, |head| {
            publications.admit(head.publication, head.payload.len(), now)
        })
    }

    fn refuse_head(&mut self) {
        if let Some(head) = self.head.take() {
            self.parts.publications.refuse(head.publication);
            self.lock_progress().refused += 1;
        }
    }

    fn publish_head(&mut self, lateness: Option<Duration>) {
        let Some(message) = self.head.take() else { return };
        if let Some(topic) = &mut self.parts.clock_topic {
            topic.before_message(message.publication, message.stamp);
        }
        let published = self
            .parts
            .publications
            .publish(message.publication, &message.payload);
        let mut progress = self.lock_progress();
        progress.published += u64::from(published);
        progress.refused += u64::from(!published);
        if let Some(lateness) = lateness {
            progress.lateness.record(lateness);
        }
    }

    /// Puts another message in the place of the next one.
    #[cfg(test)]
    pub(crate) fn replace_head(&mut self, message: PlayMessage) {
        self.head = Some(message);
    }

    fn show(&self) {
        let mut progress = self.lock_progress();
        progress.phase = self.phase;
        progress.paused = self.is_paused();
        progress.schedule.clone_from(&self.parts.schedule);
    }

    fn lock_progress(&self) -> MutexGuard<'_, Progress> {
        lock(&self.progress)
    }
}
