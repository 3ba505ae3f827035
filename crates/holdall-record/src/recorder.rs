//! The recorder: topic -> subscription -> intake -> cache -> drain -> bag, from start to report.

use super::{
    RecordControl, RecordError,
    assembly::{Assembly, Output, RescueMemory, report},
    limits::ReachedLimit,
    options::RecordOptions,
    receive::session::{STEP_INTERVAL, Session},
    status::{RecordReport, RecordStatus},
    view::{RecordObserver, View},
    write::{drain::DrainThread, survival::Survival},
};
use holdall_bag::writer::{BagFolder, OpenDisk, OsFolder, os_disk, sealed_os_disk};
use holdall_io::{
    block::BlockPoolOptions,
    clock::{Clock, SystemClock},
    machine,
    main_memory::available_memory_bytes,
    os::DiskMode,
    sealed::Seal,
    survivor::buffers,
};
use holdall_model::{
    cache::{Backlog, CacheRoom, Release},
    units::format_bytes,
};
use holdall_transport::Transport;
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    path::PathBuf,
    sync::Arc,
    thread::JoinHandle,
    time::Duration,
};

/// Sleep between two steps while messages are moved by hand.
const TICK_BUSY: Duration = Duration::from_millis(1);

/// Time between two polls of how much waits to be written.
const BACKLOG_INTERVAL: Duration = Duration::from_millis(100);

/// How long the end waits for messages that publishers have announced and that have not arrived; where transports announce nothing, for later
/// ones, which show that nothing before is missing.
const CATCH_UP_MAX: Duration = Duration::from_millis(300);

/// How long closing waits for publishers to answer how many messages they have sent: live ones answer within milliseconds.
const ANSWER_MAX: Duration = Duration::from_secs(2);

/// The same where the publisher gives signs of life: a secured one on a busy computer takes seconds for its handshake.
const ANSWER_OF_LIVING_MAX: Duration = Duration::from_secs(10);

/// A living participant is heard this often at least: Fast DDS announces itself every 3 s.
const SIGN_OF_LIFE_MAX: Duration = Duration::from_secs(4);

/// What waits at the end is named from this size on, in bytes: a disk may need seconds for it.
const WORTH_SAYING_BYTES: usize = 64 << 20;

/// Time between two looks for their answers.
const QUESTION_INTERVAL: Duration = Duration::from_millis(5);

/// The environment a recording runs in. The default is the machine itself; tests and programs with special needs replace parts of it.
pub struct Platform {
    /// Stamps messages and paces the threads.
    pub clock: Arc<dyn Clock>,
    /// Opens the disk of the bag's directory.
    pub open_disk: OpenDisk,
    /// Makes the directory and its small files.
    pub folder: Box<dyn BagFolder>,
    /// Memory that survives the process, if it was made before the transports so that it has their first messages too. Otherwise it is
    /// made at the start.
    pub memory: Option<RescueMemory>,
    /// How much memory programs can still have, in bytes; `None` if the system does not show it.
    pub available_memory: fn() -> Option<u64>,
}

impl Default for Platform {
    fn default() -> Self {
        Self {
            clock: Arc::new(SystemClock),
            open_disk: os_disk(DiskMode::Auto, BlockPoolOptions::default()),
            folder: Box::<OsFolder>::default(),
            memory: None,
            available_memory: || available_memory_bytes(&machine::read),
        }
    }
}

impl Platform {
    /// The machine itself, with all files of the bag sealed. Nothing survives the process, because memory is not sealed.
    pub fn sealed(mode: DiskMode, seal: Seal) -> Self {
        Self {
            open_disk: sealed_os_disk(mode, BlockPoolOptions::default(), seal.clone()),
            folder: Box::new(OsFolder::sealed(seal)),
            memory: Some(RescueMemory::none()),
            ..Self::default()
        }
    }
}

/// A running recording.
///
/// ```
/// use holdall::{Bag, RecordOptions, Recorder, Selection, transport::memory::{MemoryNetwork, MemoryTransport}};
/// # use holdall::{transport::{PublishRequest, Publisher}, NodeName};
/// # use std::sync::Arc;
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("lab");
/// # let network = MemoryNetwork::new();
/// # let clock: Arc<dyn holdall::Clock> = Arc::new(holdall::SystemClock);
/// # let node = |name: &str| NodeName { namespace: "/".into(), name: name.into() };
/// # let request = PublishRequest { topic: "/chatter".into(), type_name: "std_msgs/msg/String".into(), ..PublishRequest::default() };
/// # let mut talker = network.publisher(&node("talker"), &request, &clock);
/// let transport = MemoryTransport::new(&network, node("recorder"), clock);
/// let recorder = Recorder::start(RecordOptions::new(&path, Selection::all()), vec![Box::new(transport)])?;
/// # while talker.matched_subscriptions() == 0 { std::thread::yield_now(); }
/// # talker.publish(b"\0\x01\0\0\x03\0\0\0hi\0")?;
/// let report = recorder.stop();
/// assert!(report.failure.is_none());
/// assert_eq!(Bag::open(&path)?.messages().count(), 1);
/// # Ok(())
/// # }
/// ```
pub struct Recorder {
    control: RecordControl,
    view: View,
    directory: PathBuf,
    thread: JoinHandle<RecordReport>,
}

impl Recorder {
    /// Makes the bag, subscribes, and records until it is stopped or fails.
    ///
    /// # Errors
    /// An output that exists or cannot be made, a selection or storage that is not valid, a static topic that is refused.
    pub fn start(options: RecordOptions, transports: Vec<Box<dyn Transport>>) -> Result<Self, RecordError> {
        Self::start_on(options, transports, Platform::default())
    }

    /// As [`Recorder::start`], with the caller's clock, disk or folder.
    ///
    /// # Errors
    /// As [`Recorder::start`].
    pub fn start_on(
        options: RecordOptions,
        transports: Vec<Box<dyn Transport>>,
        Platform {
            clock,
            open_disk,
            folder,
            memory,
            available_memory,
        }: Platform,
    ) -> Result<Self, RecordError> {
        let memory = memory.unwrap_or_else(|| RescueMemory::begin(&options));
        super::trim::trim_killed_beside(&options.output);
        let directory = options.output.clone();
        let duration_max = options.limits.duration_max;
        let room = CacheRoom::new(&options.cache);
        let shared_clock = Arc::clone(&clock);
        let output = Output {
            open_disk,
            folder,
            storage: None,
        };
        let assembly = Assembly::new(options, transports, shared_clock, output, memory)?;
        let Assembly {
            session,
            drain,
            control,
            view,
            survival,
        } = assembly;
        if let Some(judging) = &view.parts.judging {
            judging.spawn(Arc::clone(&clock)).map_err(RecordError::Thread)?;
        }
        let drain = DrainThread::spawn(drain, clock).map_err(RecordError::Thread)?;
        let recording = Recording {
            session,
            drain,
            control: control.clone(),
            view: view.clone(),
            survival,
            duration_max,
            room,
            available_memory,
        };
        let run = move || recording.run();
        let thread = std::thread::Builder::new()
            .name("record".to_owned())
            .spawn(run)
            .map_err(RecordError::Thread)?;
        Ok(Self {
            control,
            view,
            directory,
            thread,
        })
    }

    /// The recording's control.
    pub fn control(&self) -> RecordControl {
        self.control.clone()
    }

    /// The memory that survives it, if any.
    #[cfg(test)]
    pub(super) fn region(&self) -> Option<&holdall_io::survivor::Region> {
        self.view.parts.cache.source().region()
    }

    /// The recording's present state.
    pub fn status(&self) -> RecordStatus {
        self.view.status()
    }

    /// Returns the recording's state, from any thread.
    pub fn observer(&self) -> RecordObserver {
        RecordObserver(self.view.clone())
    }

    /// Waits until the recording has ended by itself or by [`RecordControl::stop`]; false if `at_most` ran out before.
    pub fn wait_finished(&self, at_most: Duration) -> bool {
        self.control.wait_finished(at_most)
    }

    /// Ends the recording, unless it has ended already, and returns its report.
    pub fn stop(self) -> RecordReport {
        self.control.stop("stopped");
        let view = self.view;
        self.thread.join().unwrap_or_else(|_| RecordReport {
            status: view.status(),
            bag: self.directory,
            failure: Some(INTERNAL.to_owned()),
            ..RecordReport::default()
        })
    }
}

/// Report of a bug; the sentence about the bug itself is in the log.
const INTERNAL: &str = "the recorder failed for an internal reason; see the log";

/// Runs a part of the recording; false if it panicked.
fn survives(part: impl FnOnce()) -> bool {
    catch_unwind(AssertUnwindSafe(part)).is_ok()
}

/// The recording as its own thread sees it.
struct Recording {
    session: Session,
    drain: DrainThread,
    control: RecordControl,
    view: View,
    survival: Survival,
    duration_max: Option<Duration>,
    /// Set when the cache's size follows the memory that is available.
    room: Option<CacheRoom>,
    available_memory: fn() -> Option<u64>,
}

/// Reports that the recording has ended, also when it ended by a panic.
struct ReportFinished(RecordControl);

impl Drop for ReportFinished {
    fn drop(&mut self) {
        self.0.set_finished();
    }
}

impl Recording {
    fn run(mut self) -> RecordReport {
        let _finished = ReportFinished(self.control.clone());
        let survived = survives(|| {
            self.record_until_stopped();
            self.control.end_episode();
            self.await_definitions();
            self.catch_up();
        });
        // A bug must not cost the bag: messages already received are still stored, and the bag is closed.
        let closed = survives(|| self.session.close());
        let mut report = self.close_bag();
        if !(survived && closed) {
            report.failure.get_or_insert_with(|| INTERNAL.to_owned());
        }
        report
    }

    fn record_until_stopped(&mut self) {
        let (mut backlog, mut next_check) = (Backlog::default(), Duration::ZERO);
        loop {
            let now = self.view.clock.monotonic();
            let moved = self.session.step(now);
            if now >= next_check {
                next_check = now + BACKLOG_INTERVAL;
                self.set_cache_size(now);
                match backlog.note(self.view.parts.cache.held_bytes(), now) {
                    Release::Nothing => {}
                    Release::Unused => buffers::free_unused_buffers(),
                    Release::Idle => self.view.parts.cache.free_idle(),
                }
            }
            if self.view.parts.drain.has_failed() {
                self.control.stop("the bag cannot be written");
            }
            if self.view.parts.drain.must_end() {
                self.control.stop("too little space is left");
            }
            self.check_limits(now);
            if let Some(failure) = self.session.failure() {
                self.control.stop(failure);
            }
            let at_most = if moved > 0 {
                TICK_BUSY
            } else {
                self.session.until_next_step(now).min(self.until_limit(now))
            };
            if self.control.wait_step(at_most, now + at_most.min(STEP_INTERVAL)) {
                break;
            }
        }
        if let Some(reason) = self.control.stop_reason() {
            tracing::info!("ending the recording: {reason}");
        }
        let waits = self.view.parts.cache.held_bytes();
        if waits >= WORTH_SAYING_BYTES {
            tracing::info!(
                "{} that wait for the disk are written first",
                format_bytes(waits as u64)
            );
        }
    }

    /// Lets the cache grow and shrink with the memory that is available.
    fn set_cache_size(&mut self, now: Duration) {
        let cache = &self.view.parts.cache;
        let limit = self
            .room
            .as_mut()
            .and_then(|room| room.look(now, cache.memory_bytes(), self.available_memory));
        if let Some(limit) = limit {
            cache.set_bytes_max(limit);
        }
    }

    /// Time until the recording has run for as long as was requested.
    fn until_limit(&self, now: Duration) -> Duration {
        let end = self
            .duration_max
            .map(|span| self.view.started.saturating_add(span));
        end.map_or(Duration::MAX, |end| end.saturating_sub(now))
    }

    /// Ends the recording when it has all requested messages.
    fn check_limits(&self, now: Duration) {
        let drain = &self.view.parts.drain;
        let over = |span: &Duration| now.saturating_sub(self.view.started) >= *span;
        if let Some(span) = self.duration_max.filter(over) {
            drain.reach(ReachedLimit::Duration(span));
        }
        if let Some(limit) = drain.reached() {
            self.control.stop(limit.to_string());
        }
    }

    /// Waits shortly for definitions that were requested just before the end.
    fn await_definitions(&mut self) {
        let clock = Arc::clone(&self.view.clock);
        while self.session.awaits_definitions(clock.monotonic()) {
            self.session.pump();
            clock.sleep_until(clock.monotonic() + TICK_BUSY);
        }
    }

    /// Waits shortly for messages that were sent before the end and are still in flight.
    fn catch_up(&mut self) {
        let clock = Arc::clone(&self.view.clock);
        let begun = clock.monotonic();
        let (mut caught_up_by, mut next_question) = (begun + CATCH_UP_MAX, begun);
        self.session.poll_announcements();
        self.session.note_stop();
        loop {
            let now = clock.monotonic();
            if now >= next_question {
                next_question = now + QUESTION_INTERVAL;
                if self.session.ask_ends() {
                    // Messages that the answer shows to be missing may still come.
                    caught_up_by = now + CATCH_UP_MAX;
                }
            }
            let silence_max = now.saturating_sub(begun).max(SIGN_OF_LIFE_MAX);
            let may_come = !self.session.is_caught_up() && now < caught_up_by
                || self.session.awaits_later_message() && now < begun + CATCH_UP_MAX
                || self.session.awaits_answer() && now < begun + ANSWER_MAX
                || self.session.awaits_answer_of_living(silence_max) && now < begun + ANSWER_OF_LIVING_MAX;
            if !may_come {
                break;
            }
            self.session.pump();
            clock.sleep_until(clock.monotonic() + TICK_BUSY);
        }
        self.session.pump();
        self.session.ask_ends();
        self.session.end_questions();
    }

    fn close_bag(self) -> RecordReport {
        let Self {
            mut session,
            drain,
            view,
            survival,
            ..
        } = self;
        view.parts.cache.close();
        let Some(drain) = drain.join() else {
            let failure = Some("the writing thread failed for an internal reason; see the log".to_owned());
            return RecordReport {
                status: view.status(),
                failure,
                ..RecordReport::default()
            };
        };
        let closed = drain.close(&*view.clock);
        survival.end(&closed.directory);
        let mut report = report(closed, &view);
        session.publish_end();
        report.failure = report.failure.or_else(|| session.lost_transports());
        // The bag is closed: how its transports end takes nothing from the report.
        if !survives(|| drop(session)) {
            tracing::error!("a transport failed while it was shut down; the bag is complete");
        }
        report
    }
}
