//! The playback as a state machine: given the time and the commands, it publishes due messages and returns when to call it again.

mod gaps;
mod steering;

pub(super) use gaps::Gaps;

use super::{
    burst::Bursts,
    clock_topic::{CLOCK_TOPIC, ClockTopic},
    control::Progress,
    delivery::Admission,
    discovery::{Discovery, SETTLE_POLL},
    fidelity::Planned,
    options::Pace,
    publications::{Publications, Sending},
    range::PlayRange,
    read_ahead::{PlayMessage, Poll, Source},
    schedule::Schedule,
    status::PlayPhase,
    steps::Steps,
};
use holdall_io::mutex::lock;
use holdall_model::time::Timestamp;
use std::{
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

/// Time between polls of what a topic's subscriptions have acknowledged, while its next message waits for
/// that.
const ACKNOWLEDGE_POLL: Duration = Duration::from_millis(1);

/// A message that is later than this is sent as part of a backlog.
const CATCH_UP_MIN: Duration = Duration::from_millis(2);

/// How much faster than planned a backlog is sent.
const CATCH_UP_SPEED: u32 = 4;

/// Messages due within this time are sent at once while catching up: sleeping for less would take longer.
const CATCH_UP_SLACK: Duration = Duration::from_micros(200);

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

/// Parts of a playback.
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
    /// The wait for subscriptions.
    pub discovery: Discovery,
    pub pace: Pace,
    /// Spans without a message that are left out, and those that take no time because a clock jumped.
    pub gaps: Gaps,
    /// What messages wait for.
    pub steps: Steps,
}

/// A playback between two steps.
pub(super) struct Playback<S> {
    parts: PlaybackParts<S>,
    progress: Arc<Mutex<Progress>>,
    phase: PlayPhase,
    head: Option<PlayMessage>,
    bursts: Bursts,
    /// Where a seek went whose first message has not come yet; it is not late, however long reading takes.
    sought: Option<Timestamp>,
    starving: bool,
    /// While a backlog is sent: since when, and when the first of it was due.
    catch_up: Option<(Duration, Duration)>,
    /// The stamp of the last message that was published.
    taken: Timestamp,
    /// The message to play next had to wait for answers.
    is_held: bool,
    /// From where the next message follows: the stamp of the last one that was taken, or the beginning, or where a seek went.
    reached: Timestamp,
    /// The first message of this round: its stamp, and when it was published.
    round_began: Option<(Timestamp, Duration)>,
    stopped: bool,
    began: Option<Duration>,
    failure: Option<String>,
}

/// Parts that outlive a playback.
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
            taken: parts.range.start,
            reached: parts.range.start,
            round_began: None,
            parts,
            progress: Arc::new(Mutex::new(progress)),
            phase: PlayPhase::Preparing,
            head: None,
            bursts: Bursts::default(),
            sought: None,
            starving: false,
            catch_up: None,
            is_held: false,
            stopped: false,
            began: None,
            failure: None,
        }
    }

    /// What messages wait for.
    pub fn steps(&mut self) -> &mut Steps {
        &mut self.parts.steps
    }

    /// Progress that others may read while this runs.
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

    /// Does the work due at monotonic time `now`, at most one message.
    pub fn step(&mut self, now: Duration) -> Next {
        self.parts.publications.poll_requests();
        let position = match self.parts.pace {
            Pace::Time => self.parts.schedule.position(now),
            // Simulated time must not run ahead of the last message taken.
            Pace::Listeners => self.taken,
        };
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

    /// Whether a message may have been published.
    pub fn has_begun(&self) -> bool {
        self.began.is_some()
    }

    /// While preparing, the schedule rests either way: `start_paused` has the user's choice.
    fn is_paused(&self) -> bool {
        match self.phase {
            PlayPhase::Preparing => self.parts.start_paused,
            PlayPhase::Playing | PlayPhase::Waiting | PlayPhase::Ended => self.parts.schedule.is_paused(),
        }
    }

    /// Ends playing: for good, or until there is more to play.
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

    /// Ends for good, because of this.
    fn fail(&mut self, now: Duration, why: String) -> Next {
        self.failure = Some(why);
        self.parts.persistent = false;
        self.finish(now)
    }

    /// Begins once enough was read ahead and discovery has settled.
    fn prepare(&mut self, now: Duration) -> Next {
        let parts = &mut self.parts;
        let settled_at = match parts.discovery.settled_at(&parts.publications, &parts.steps, now) {
            Ok(settled_at) => settled_at,
            Err(missing) => return self.fail(now, missing),
        };
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
        for requests in self
            .parts
            .publications
            .requests()
            .filter(|requests| !requests.is_ready())
        {
            tracing::warn!(
                "{} has no server: requests to it are not sent until it has one",
                requests.service()
            );
        }
        if self.parts.steps.is_used()
            && let Some(topic) = &mut self.parts.clock_topic
        {
            topic.follow_messages();
        }
        self.phase = PlayPhase::Playing;
        self.began = self.began.or(Some(now));
        if !self.parts.start_paused {
            self.parts.schedule.resume(begin);
        }
        Next::At(now)
    }

    fn play(&mut self, now: Duration) -> Next {
        let (stamp, is_latched) = match self.head_stamp(now) {
            Ok(head) => head,
            Err(next) => return next,
        };
        let next = self.head.as_ref().map(|head| head.publication);
        if let Some(next) = self.held_by_steps(now, next) {
            return next;
        }
        self.leave_step(now, stamp);
        let due = match self.parts.schedule.due(stamp) {
            _ if is_latched => None,
            Some(_) if self.parts.pace == Pace::Listeners => None,
            Some(due) if due > now => {
                self.catch_up = None;
                return Next::At(due);
            }
            Some(due) => match self.catching_up(now, due) {
                Some(later) => return Next::At(later),
                None => Some(due),
            },
            None if self.bursts.is_empty() => return Next::Signal,
            None => None,
        };
        match self.admit_head(now) {
            Admission::Wait => return Next::At(now + ACKNOWLEDGE_POLL),
            Admission::Refuse => self.refuse_head(),
            Admission::Publish if is_latched => self.publish_latched(),
            Admission::Publish => {
                if due.is_none() {
                    self.parts.schedule.jump(now, stamp);
                }
                self.taken = stamp;
                self.round_began.get_or_insert((stamp, now));
                self.publish_head(due.map(|due| Planned { due, sent: now }), now);
                self.bursts.played();
            }
        }
        Next::At(now)
    }

    /// What to wait for before a message of the publication `next`, or before the end; `None` if nothing.
    fn held_by_steps(&mut self, now: Duration, next: Option<usize>) -> Option<Next> {
        let parts = &mut self.parts;
        match parts.steps.holds(next, now, &parts.publications) {
            Ok(None) => None,
            Ok(Some(at)) => {
                self.is_held = true;
                Some(Next::At(at))
            }
            Err(why) => Some(self.fail(now, why)),
        }
    }

    /// After a wait for answers bag time continues from where it should have been: the wait is not late.
    fn leave_step(&mut self, now: Duration, stamp: Timestamp) {
        let is_held = std::mem::take(&mut self.is_held);
        if is_held && self.parts.pace == Pace::Time && self.parts.schedule.position(now) > stamp {
            self.parts.schedule.jump(now, stamp);
            self.forget_spacing();
        }
    }

    /// When a late message may be sent. A backlog is sent faster than planned, but not all at once: a best-effort
    /// subscription with a short queue would lose most of it.
    fn catching_up(&mut self, now: Duration, due: Duration) -> Option<Duration> {
        let late = now.saturating_sub(due);
        let (since, from) = match self.catch_up {
            Some(anchor) if late >= CATCH_UP_MIN => anchor,
            _ if late >= CATCH_UP_MIN => *self.catch_up.insert((now, due)),
            _ => {
                self.catch_up = None;
                return None;
            }
        };
        let at = since.saturating_add(due.saturating_sub(from) / CATCH_UP_SPEED);
        (at > now + CATCH_UP_SLACK).then_some(at)
    }

    /// Restarts the measurements between two messages: bag time has jumped.
    fn forget_spacing(&mut self) {
        self.catch_up = None;
        self.parts.publications.forget_spacing();
    }

    /// The stamp of the message to play next, and whether it is latched state; or what to wait for while there is none.
    fn head_stamp(&mut self, now: Duration) -> Result<(Timestamp, bool), Next> {
        loop {
            if let Some(head) = &self.head {
                return Ok((head.stamp, head.latched));
            }
            match self.parts.source.poll() {
                Poll::Message(message) => {
                    self.starving = false;
                    if let Some(to) = self.sought.take() {
                        self.parts.schedule.jump(now, to);
                        self.reached = to;
                    }
                    if !message.latched {
                        self.cross_gap(now, message.stamp);
                    }
                    self.head = Some(message);
                }
                Poll::RoundEnd => self.begin_round(now),
                Poll::Pending => {
                    let hungry = !self.starving && !self.is_paused() && self.sought.is_none();
                    if hungry {
                        self.starving = true;
                        self.lock_progress().starved += 1;
                    }
                    return Err(Next::Signal);
                }
                Poll::End(failure) => {
                    // The last messages are answered, too.
                    if let Some(next) = self.held_by_steps(now, None) {
                        return Err(next);
                    }
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

    /// Publishes state from before the point where playback begins; it counts as no message of the bag.
    fn publish_latched(&mut self) {
        if let Some(message) = self.head.take() {
            let publications = &mut self.parts.publications;
            let published =
                publications.publish_latched(message.publication, &message.payload, message.stamp);
            let name = publications.published_name(message.publication);
            self.parts
                .steps
                .published_aside(name, message.stamp, &message.payload);
            self.lock_progress().latched += u64::from(published);
        }
    }

    fn publish_head(&mut self, planned: Option<Planned>, now: Duration) {
        let Some(message) = self.head.take() else { return };
        if let Some(topic) = &mut self.parts.clock_topic {
            let steps = &mut self.parts.steps;
            topic.before_message(message.publication, message.stamp, |time| {
                steps.published_aside(CLOCK_TOPIC, time, &[]);
            });
        }
        let publications = &mut self.parts.publications;
        let sending = publications.publish(message.publication, &message.payload, message.stamp);
        let what = (message.publication, message.stamp);
        let steps = &mut self.parts.steps;
        match sending {
            Sending::Nothing => return,
            Sending::Unsent(reason) => {
                steps.unsent(what, reason, now);
                return;
            }
            Sending::Refused => {}
            Sending::Sent => steps.published(what, &message.payload, now, publications),
        }
        let published = sending == Sending::Sent;
        let spacing = planned.and_then(|planned| publications.measure(message.publication, planned));
        let mut progress = self.lock_progress();
        progress.published += u64::from(published);
        progress.published_bytes += message.payload.len() as u64 * u64::from(published);
        progress.refused += u64::from(!published);
        if let Some(planned) = planned {
            progress.lateness.record(planned.lateness());
        }
        if let Some(spacing) = spacing {
            progress.spacing.record(spacing);
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
