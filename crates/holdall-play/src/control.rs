//! Controls a running playback from other threads: requests with answers, and snapshots.

use super::{
    files::{FileLog, ReadSplit},
    options::PlayWindow,
    schedule::{Schedule, is_rate_valid},
    status::{LatenessMeter, PlayPhase, PlayStatus},
    wake::Wake,
};
use holdall_io::clock::Clock;
use holdall_io::mutex::lock;
use holdall_model::time::Timestamp;
use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex,
        mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    },
    time::Duration,
};

/// Requests that may wait; a keyboard that repeats can never fill memory.
const REQUESTS_MAX: usize = 1024;

/// Longest wait for an answer. The playing thread answers between two messages; this long it is stuck in a transport.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// A user's command to a running playback.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Command {
    Pause,
    Resume,
    Toggle,
    /// Play this many messages at once, while paused; `None` for all remaining ones.
    Burst(Option<u64>),
    Rate(f64),
    Seek(Timestamp),
    /// Play this part of the bag, beginning at this monotonic time at the earliest.
    Play(PlayWindow, Option<Duration>),
    /// End as at the end of the bag: still wait for acknowledgements of messages already sent.
    Finish,
    /// End playing.
    Stop,
    /// End the playback for good.
    Quit,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    Done,
    Refused,
    /// This many messages were played at once.
    Played(u64),
}

/// Where the answer to a command goes; dropped without an answer when the playback ends.
#[derive(Debug)]
pub(super) struct Asker(SyncSender<Reply>);

impl Asker {
    /// An asker, and the channel for its answer.
    pub fn new() -> (Self, Receiver<Reply>) {
        let (sender, answer) = sync_channel(1);
        (Self(sender), answer)
    }

    /// Answers; it is not an error if the asker has stopped waiting.
    pub fn answer(self, reply: Reply) {
        let _ = self.0.try_send(reply);
    }
}

/// A command, and the asker to answer.
#[derive(Debug)]
pub(super) struct Request {
    pub command: Command,
    pub asker: Option<Asker>,
}

impl From<Command> for Request {
    fn from(command: Command) -> Self {
        Self { command, asker: None }
    }
}

/// State that the playing thread shows to others, renewed after each step.
#[derive(Debug)]
pub(super) struct Progress {
    pub phase: PlayPhase,
    pub paused: bool,
    pub schedule: Schedule,
    pub start: Timestamp,
    pub duration: Duration,
    pub round: u64,
    pub published: u64,
    pub refused: u64,
    pub starved: u64,
    pub lateness: LatenessMeter,
    pub spacing: LatenessMeter,
    pub published_bytes: u64,
    pub latched: u64,
}

impl Progress {
    /// Playback of a range of bag time, before its first step.
    pub fn new(schedule: Schedule, start: Timestamp, duration: Duration) -> Self {
        Self {
            phase: PlayPhase::Preparing,
            paused: false,
            schedule,
            start,
            duration,
            round: 1,
            published: 0,
            refused: 0,
            starved: 0,
            lateness: LatenessMeter::new(),
            spacing: LatenessMeter::new(),
            published_bytes: 0,
            latched: 0,
        }
    }

    /// The snapshot for users.
    pub fn status(&self, now: Duration) -> PlayStatus {
        PlayStatus {
            phase: self.phase,
            position: self.schedule.position(now),
            start: self.start,
            duration: self.duration,
            rate: self.schedule.rate(),
            paused: self.paused,
            round: self.round,
            published: self.published,
            refused: self.refused,
            starved: self.starved,
            lateness: self.lateness.summary(),
            spacing: self.spacing.summary(),
            published_bytes: self.published_bytes,
            latched: self.latched,
        }
    }
}

/// Requests in their order, until the playback ends.
#[derive(Debug, Default)]
struct Queue {
    requests: VecDeque<Request>,
    /// A stop was requested since the last call of [`Shared::next_request`].
    is_stop_asked: bool,
    is_closed: bool,
}

/// State shared by the playing thread and its controls.
pub(super) struct Shared {
    queue: Mutex<Queue>,
    pub progress: Arc<Mutex<Progress>>,
    pub files: Arc<FileLog>,
    pub wake: Arc<Wake>,
    pub clock: Arc<dyn Clock>,
}

impl Shared {
    /// Shared state of a playback with this progress.
    pub fn new(
        progress: Arc<Mutex<Progress>>,
        files: Arc<FileLog>,
        wake: Arc<Wake>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self {
            queue: Mutex::default(),
            progress,
            files,
            wake,
            clock,
        }
    }

    /// Takes the next request.
    pub(crate) fn next_request(&self) -> Option<Request> {
        let mut queue = lock(&self.queue);
        let next = queue.requests.pop_front();
        if next.is_none() {
            queue.is_stop_asked = false;
        }
        next
    }

    /// True if a stop waits to be taken, or came after the end.
    pub(crate) fn is_stop_asked(&self) -> bool {
        lock(&self.queue).is_stop_asked
    }

    /// Refuses all requests from now on, also those that wait.
    pub(crate) fn close(&self) {
        let mut queue = lock(&self.queue);
        queue.is_closed = true;
        queue.requests.clear();
    }

    /// The snapshot for users.
    pub fn status(&self) -> PlayStatus {
        lock(&self.progress).status(self.clock.monotonic())
    }

    /// False if the playback has ended, or too many requests wait.
    fn push(&self, request: Request) -> bool {
        let is_stop = matches!(request.command, Command::Stop | Command::Quit);
        let mut queue = lock(&self.queue);
        queue.is_stop_asked |= is_stop;
        let taken = !queue.is_closed && (queue.requests.len() < REQUESTS_MAX || is_stop);
        if taken {
            queue.requests.push_back(request);
        }
        drop(queue);
        self.wake.notify();
        taken
    }
}

/// Steers a running playback; clones steer the same one.
///
/// Each call waits until the playback has done what is asked, at most five seconds, and returns whether it was done. After the end of the
/// playback all calls return at once and nothing is done.
#[derive(Clone)]
pub struct PlayControl {
    pub(super) shared: Arc<Shared>,
}

impl PlayControl {
    /// Stops bag time.
    pub fn pause(&self) -> bool {
        self.ask(Command::Pause)
    }

    /// Lets bag time move on.
    pub fn resume(&self) -> bool {
        self.ask(Command::Resume)
    }

    /// Pauses or resumes, whichever it is time for.
    pub fn toggle(&self) -> bool {
        self.ask(Command::Toggle)
    }

    /// True while bag time does not advance because of a pause.
    pub fn is_paused(&self) -> bool {
        lock(&self.shared.progress).paused
    }

    /// The speed.
    pub fn rate(&self) -> f64 {
        lock(&self.shared.progress).schedule.rate()
    }

    /// Changes the speed from now on; false, and nothing done, when `rate` is not a sensible number above zero.
    pub fn set_rate(&self, rate: f64) -> bool {
        is_rate_valid(rate) && self.ask(Command::Rate(rate))
    }

    /// Plays a part of the bag; false if something is being played already, or the part begins after the bag's end.
    ///
    /// Only a playback that stays after its end ([`PlayOptions::persistent`](super::options::PlayOptions::persistent)) can play again.
    pub fn play(&self, window: PlayWindow) -> bool {
        let clock = &self.shared.clock;
        let begin = window.start_time.map(|at| monotonic_of(at, &**clock));
        self.ask(Command::Play(window, begin))
    }

    /// Plays the next message at once and sets bag time to its stamp; false if the playback is not paused, or at its end.
    pub fn play_next(&self) -> bool {
        self.burst(Some(1)) == 1
    }

    /// Plays the next `count` messages at once, all that are left for `None`, and sets bag time to the last one's stamp; returns how many
    /// were played: none when the playback is not paused. Waits until they are, or until the playback ends or is moved.
    pub fn burst(&self, count: Option<u64>) -> u64 {
        let answer = self.send(Command::Burst(count));
        match answer.and_then(|answer| answer.recv().ok()) {
            Some(Reply::Played(count)) => count,
            _ => 0,
        }
    }

    /// Continues with the first message at or after `to`; a time before the range that is played is its beginning. False, and nothing
    /// done, when `to` is after its end or nothing is being played.
    pub fn seek(&self, to: Timestamp) -> bool {
        self.ask(Command::Seek(to))
    }

    /// Ends what is played; a playback that stays after its end can play again.
    pub fn stop(&self) -> bool {
        self.ask(Command::Stop)
    }

    /// Ends the playback for good as if it had come to its end: acknowledgements are still waited for.
    pub fn finish(&self) -> bool {
        self.ask(Command::Finish)
    }

    /// Ends the playback for good, without waiting for it.
    pub fn quit(&self) {
        self.shared.push(Command::Quit.into());
    }

    /// A snapshot of the playback.
    pub fn status(&self) -> PlayStatus {
        self.shared.status()
    }

    /// Calls `hook` each time that the next storage file of a bag is read, also for those of the past; one hook at a time. It is called on
    /// the thread that reads the bag and must return soon.
    pub fn on_read_split(&self, hook: impl FnMut(&ReadSplit) + Send + 'static) {
        self.shared.files.set_hook(Box::new(hook));
    }

    /// Sends a command and waits for its answer.
    fn ask(&self, command: Command) -> bool {
        let Some(answer) = self.send(command) else {
            return false;
        };
        match answer.recv_timeout(ANSWER_MAX) {
            Ok(reply) => reply != Reply::Refused,
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => false,
        }
    }

    fn send(&self, command: Command) -> Option<Receiver<Reply>> {
        let (asker, answer) = Asker::new();
        let asker = Some(asker);
        self.shared.push(Request { command, asker }).then_some(answer)
    }
}

/// The monotonic time at which the clock will show `at`; a time of the past is now.
pub(super) fn monotonic_of(at: Timestamp, clock: &dyn Clock) -> Duration {
    clock.monotonic().saturating_add(at.saturating_since(clock.now()))
}
