//! Control of a running recording, from any thread.

use super::{
    options::RecordOptions,
    receive::session::Parts,
    requests::{SubscribeAnswer, SubscribeError},
    step_wait::Absence,
    write::drain::{RequestedEvent, RingWindow},
};
use holdall_io::{clock::Clock, mutex::lock};
use holdall_model::{
    alarm::Alarm,
    episode::{EpisodeChange, EpisodeError, EpisodeFields, EpisodeState},
    free_space::RingState,
    loss::durability::not_running,
    marker::{MARKERS_MAX, Marker, MarkerNameError},
    time::Timestamp,
    trigger::CopyFault,
};
use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Duration,
};

/// The shortest span without this process that a bag names: below it a busy machine may be the reason.
const ABSENCE_MARKED_MIN: Duration = Duration::from_secs(2);

/// Name of an event that was requested as a snapshot.
const SNAPSHOT_EVENT: &str = "snapshot";

/// Controls a recording. Cheap to clone; does nothing to a recording that has ended.
#[derive(Clone)]
pub struct RecordControl {
    parts: Parts,
    clock: Arc<dyn Clock>,
    mode: ControlledMode,
    directory: PathBuf,
    episodes: Arc<Mutex<EpisodeState>>,
}

/// When arriving messages are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ControlledMode {
    AtOnce,
    WithSnapshots,
    AroundEvents,
}

impl ControlledMode {
    pub(super) fn of(options: &RecordOptions) -> Self {
        match options.triggers {
            Some(_) => Self::AroundEvents,
            None if options.cache.snapshot => Self::WithSnapshots,
            None => Self::AtOnce,
        }
    }
}

/// Why a marker was not made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MarkError {
    /// The name cannot be used.
    #[error(transparent)]
    Name(#[from] MarkerNameError),
    /// Simulation time stamps messages, and has not begun.
    #[error("there is no time for a marker before the first message on /clock")]
    NoTime,
    /// The recording has as many as it may have.
    #[error("the recording has {MARKERS_MAX} markers already, which is the most")]
    TooMany,
    /// The recording has ended.
    #[error("the recording has ended")]
    Ended,
    /// Everything is stored at once.
    #[error("the recording does not wait for events: it stores everything")]
    NoTriggers,
    /// The episode cannot change so.
    #[error(transparent)]
    Episode(#[from] EpisodeError),
    /// What is between the moments of an episode would be left out.
    #[error(
        "the recording waits for events, and leaves out what is between a start and a stop: episodes are for recordings of everything"
    )]
    OnlyEvents,
}

impl RecordControl {
    pub(super) fn new(parts: Parts, clock: Arc<dyn Clock>, mode: ControlledMode, directory: PathBuf) -> Self {
        Self {
            parts,
            clock,
            mode,
            directory,
            episodes: Arc::default(),
        }
    }

    /// Stores nothing that arrives from now on.
    pub fn pause(&self) {
        if !self.parts.gate.set_paused(true) {
            tracing::info!("paused");
        }
    }

    /// Stores messages that arrive from now on.
    pub fn resume(&self) {
        if self.parts.gate.set_paused(false) {
            tracing::info!("resumed");
            self.parts.wait.wake();
        }
    }

    /// Pauses or resumes; returns whether it is paused now.
    pub fn toggle_pause(&self) -> bool {
        let paused = self.parts.gate.toggle_paused();
        tracing::info!("{}", if paused { "paused" } else { "resumed" });
        self.parts.wait.wake();
        paused
    }

    /// Whether it is paused.
    pub fn is_paused(&self) -> bool {
        self.parts.gate.is_paused()
    }

    /// Continues in a new file. Requests that come before it has begun are one.
    pub fn split(&self) {
        self.parts.drain.split();
        self.parts.cache.wake();
    }

    /// Continues in a new file because the current one makes no progress; the ledger records this and the
    /// reason.
    pub fn continue_in_new_file(&self, reason: String) {
        self.parts.drain.restart(reason);
        self.parts.cache.wake();
    }

    /// Writes the contents of the ring, or is an event in a recording that waits for events; false if the recording stores everything at once.
    pub fn snapshot(&self) -> bool {
        match self.mode {
            ControlledMode::AtOnce => return false,
            ControlledMode::WithSnapshots => {
                self.parts.drain.snapshot();
                self.parts.cache.wake();
            }
            ControlledMode::AroundEvents => {
                if let Err(error) = self.trigger(SNAPSHOT_EVENT) {
                    tracing::warn!("{error}");
                    return false;
                }
            }
        }
        true
    }

    /// Whether the recording waits for events.
    pub fn waits_for_events(&self) -> bool {
        self.mode == ControlledMode::AroundEvents
    }

    /// Records around the present time, in a recording that waits for events; the marker has this name.
    ///
    /// # Errors
    /// A name that cannot be used, a recording that stores everything at once, that has ended, or too many events at once.
    pub fn trigger(&self, name: &str) -> Result<Marker, MarkError> {
        if !self.waits_for_events() {
            return Err(MarkError::NoTriggers);
        }
        let marker = self.marker_now(name)?;
        let event = RequestedEvent {
            time: marker.time,
            name: marker.name.clone(),
        };
        if !self.parts.drain.trigger(event) {
            return Err(MarkError::TooMany);
        }
        self.parts.cache.wake();
        Ok(marker)
    }

    fn marker_now(&self, name: &str) -> Result<Marker, MarkError> {
        if !self.is_recording() {
            return Err(MarkError::Ended);
        }
        let time = self.parts.gate.time(self.clock.now()).ok_or(MarkError::NoTime)?;
        Ok(Marker::new(time, name)?)
    }

    /// Records topics that appear from now on, and those that appeared since it was stopped.
    pub fn start_discovery(&self) {
        if !self.parts.requests.set_discovers(true) {
            tracing::info!("topics that appear are recorded");
        }
    }

    /// Records no topics that appear from now on; recorded topics continue, also with new publishers.
    pub fn stop_discovery(&self) {
        if self.parts.requests.set_discovers(false) {
            tracing::info!("topics that appear from now on are not recorded");
        }
    }

    /// Whether topics that appear are recorded.
    pub fn is_discovery_running(&self) -> bool {
        self.parts.requests.discovers()
    }

    /// Full names of the recorded topics, in the order in which they were found.
    pub fn subscribed_topics(&self) -> Vec<String> {
        let topics = lock(&self.parts.topics);
        topics.iter().map(|topic| topic.name.clone()).collect()
    }

    /// Records these topics if the graph has them, even if the selection excludes them; `types` is empty or has one entry for each topic,
    /// where an empty string accepts any type. Waits for the answer, at most some seconds.
    ///
    /// # Errors
    /// Too many topics, types that do not fit, or a recording that does not answer in time.
    pub fn subscribe_to_topics(
        &self,
        topics: &[String],
        types: &[String],
    ) -> Result<SubscribeAnswer, SubscribeError> {
        self.parts.requests.subscribe(topics, types)
    }

    /// Puts a named mark into the bag, at the present time; an event in a recording that waits for events.
    ///
    /// # Errors
    /// A name that cannot be used, too many markers, or a recording that has ended or not begun.
    pub fn add_marker(&self, name: &str) -> Result<Marker, MarkError> {
        if self.waits_for_events() {
            return self.trigger(name);
        }
        let marker = self.marker_now(name)?;
        if !self.parts.drain.mark(marker.clone()) {
            return Err(MarkError::TooMany);
        }
        self.parts.cache.wake();
        tracing::info!("marker {:?}", marker.name);
        Ok(marker)
    }

    /// Starts, stops or discards an episode at the present time; `fields` are added to what is known of it.
    ///
    /// # Errors
    /// As [`Self::add_marker`]; a start while one runs, an end while none does, a recording that waits for events.
    pub fn change_episode(&self, change: EpisodeChange, fields: EpisodeFields) -> Result<Marker, MarkError> {
        if self.mode == ControlledMode::AroundEvents {
            return Err(MarkError::OnlyEvents);
        }
        if !self.is_recording() {
            return Err(MarkError::Ended);
        }
        let now = self.parts.gate.time(self.clock.now()).ok_or(MarkError::NoTime)?;
        let mut episodes = lock(&self.episodes);
        let mut changed = episodes.clone();
        let marker = Marker::of_episode(now, changed.change(change, now, fields)?);
        if !self.parts.drain.mark(marker.clone()) {
            return Err(MarkError::TooMany);
        }
        *episodes = changed;
        self.parts.cache.wake();
        tracing::info!("{}", marker.name);
        Ok(marker)
    }

    /// The episode that runs: when it started, and its fields.
    pub fn episode(&self) -> Option<(Timestamp, EpisodeFields)> {
        let episodes = lock(&self.episodes);
        episodes.open().map(|(start, fields)| (start, fields.clone()))
    }

    /// The episodes, which a condition changes, too.
    pub(super) fn episodes(&self) -> Arc<Mutex<EpisodeState>> {
        Arc::clone(&self.episodes)
    }

    /// Stops the episode that runs when the recording ends; one of `--episode-when` after the last message.
    pub(super) fn end_episode(&self) {
        let Some(now) = self.parts.gate.time(self.clock.now()) else {
            return;
        };
        if let Some(event) = lock(&self.episodes).end(now) {
            self.parts.drain.mark(Marker::of_episode(now, event));
        }
    }

    /// Files that are whole, durable and under their last name since the last call, in order; the last ones when the recording has ended.
    /// Only where [`lists_complete_files`](super::options::FileOptions::lists_complete_files) is set.
    pub fn take_complete_files(&self) -> Vec<PathBuf> {
        self.parts.drain.take_complete()
    }

    /// Alarms that began or ended since the last call, in order; the first ones, where nothing takes them.
    pub fn take_alarm_changes(&self) -> Vec<Alarm> {
        self.parts.alarms.take_changes()
    }

    /// Parts of the ring that events want in bags, once they are over, since the last call; the last one when the recording has ended. Only where
    /// [`promote`](RecordOptions::promote) is set.
    pub fn take_ring_windows(&self) -> Vec<RingWindow> {
        self.parts.drain.take_ring_windows()
    }

    /// What a copy of a part of the ring needs to know of it.
    pub fn ring_state(&self) -> RingState {
        self.parts.drain.status().ring
    }

    /// Takes note of how the copy of a [part of the ring](Self::take_ring_windows) ended, for state and report; without a fault it is whole.
    pub fn note_copy(&self, fault: Option<CopyFault>) {
        self.parts.drain.note_copy(fault);
    }

    /// The bag's directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// True until an end was requested or came.
    pub fn is_recording(&self) -> bool {
        self.parts.wait.is_recording()
    }

    /// Ends the recording; everything received is still stored. `reason` goes to the log; the first one counts.
    pub fn stop(&self, reason: impl Into<String>) {
        self.parts.wait.stop(reason.into());
    }

    /// Why it should end, once a stop was requested.
    pub fn stop_reason(&self) -> Option<String> {
        self.parts.wait.stop_reason()
    }

    /// A long span without this process is a warning and a marker: what was sent meanwhile came late, in a burst, or was lost.
    fn mark_absence(&self, span: Duration) {
        if span < ABSENCE_MARKED_MIN {
            return;
        }
        let name = not_running(span);
        tracing::warn!("{name}");
        if let Ok(marker) = self.marker_now(&name) {
            self.parts.drain.mark(marker);
        }
    }

    /// Waits for the next step: `at_most` this long, less if there is news, but not before `earliest` (monotonic time).
    /// True if the recording should end.
    pub(super) fn wait_step(&self, at_most: Duration, earliest: Duration) -> bool {
        let wait = &self.parts.wait;
        let began = self.clock.monotonic();
        let has_news = wait.wait_news(at_most);
        let now = self.clock.monotonic();
        if let Some(absence) = Absence::of_wait(began, at_most, now) {
            wait.note_absence(absence);
            self.mark_absence(absence.span);
        }
        let early = if has_news {
            earliest.saturating_sub(now)
        } else {
            Duration::ZERO
        };
        wait.wait_stop(early)
    }

    /// Waits until it has ended; false if `at_most` ran out before.
    pub fn wait_finished(&self, at_most: Duration) -> bool {
        self.parts.wait.wait_finished(at_most)
    }

    pub(super) fn set_finished(&self) {
        self.parts.wait.set_finished();
    }
}
