//! Supervises a recording: detects stalls, reports to a service manager and to monitoring, and serves control
//! requests.

mod alarm_command;
#[cfg(test)]
mod command_tests;
pub mod control_socket;
mod file_command;
mod line_command;
pub mod metrics;
mod past;
mod progress;
pub mod promotions;
mod ring_part;
pub mod running;
mod service_manager;

pub use alarm_command::AlarmCommand;
pub use file_command::FileCommand;
pub use past::RecordingPast;
pub(crate) use progress::{ProgressChange, ProgressWatch};
pub use service_manager::ServiceManager;

use holdall_io::clock::Clock;
use holdall_io::range_lock::Waiting;
use holdall_model::units::counted;
use holdall_record::{RecordControl, RecordObserver, status::RecordStatus};
use holdall_tools::upload::{BesideRecording, UploadError, UploadReport};
use line_command::LineCommand;
use promotions::Promotions;
use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

/// Time between two writes of the metrics file, and between two status reports to the service manager.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// How long the end waits for the commands that run for the last files and alarms; those that take longer continue on their own.
const COMMANDS_END_MAX: Duration = Duration::from_secs(30);

/// Time between two checks for commands that have ended, at the end.
const COMMANDS_POLL: Duration = Duration::from_millis(20);

/// Shows other threads whether the recording is stalled.
#[derive(Clone, Debug, Default)]
pub struct StallFlag(Arc<AtomicBool>);

impl StallFlag {
    /// True while no progress is made.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    fn set(&self, stalled: bool) {
        self.0.store(stalled, Ordering::Relaxed);
    }
}

/// Everything that supervises a recording, driven by the thread that polls its status.
pub struct Supervision {
    progress: ProgressWatch,
    stalled: StallFlag,
    past: RecordingPast,
    service_manager: Option<ServiceManager>,
    metrics_file: Option<PathBuf>,
    restart_on_stall: bool,
    snapshot_mode: bool,
    next_report: Duration,
    metrics_failed: bool,
    file_command: Option<FileCommand>,
    alarm_command: Option<AlarmCommand>,
    upload: Option<BesideRecording>,
    promotions: Promotions,
    /// Set where events promote parts of the ring.
    promoting: Option<RecordObserver>,
}

impl Supervision {
    /// Only watches progress. `snapshot_mode`: messages become durable only on request.
    pub fn new(snapshot_mode: bool) -> Self {
        Self {
            progress: ProgressWatch::default(),
            stalled: StallFlag::default(),
            past: RecordingPast::default(),
            service_manager: None,
            metrics_file: None,
            restart_on_stall: false,
            snapshot_mode,
            next_report: Duration::ZERO,
            metrics_failed: false,
            file_command: None,
            alarm_command: None,
            upload: None,
            promotions: Promotions::default(),
            promoting: None,
        }
    }

    /// Continues in a new file when no progress is made.
    pub fn with_restart_on_stall(mut self, restart: bool) -> Self {
        self.restart_on_stall = restart;
        self
    }

    /// Keeps OpenMetrics text in a file.
    pub fn with_metrics_file(mut self, path: Option<PathBuf>) -> Self {
        self.metrics_file = path;
        self
    }

    /// Reports the state to a service manager.
    pub fn with_service_manager(mut self, manager: Option<ServiceManager>) -> Self {
        self.service_manager = manager;
        self
    }

    /// Runs a command for each file that is complete. The recording must list them.
    pub fn with_file_command(mut self, command: Option<FileCommand>) -> Self {
        self.file_command = command;
        self
    }

    /// Runs a command for each alarm.
    pub fn with_alarm_command(mut self, command: Option<AlarmCommand>) -> Self {
        self.alarm_command = command;
        self
    }

    /// Uploads each file that is complete. The recording must list them.
    pub fn set_upload(&mut self, upload: Option<BesideRecording>) {
        self.upload = upload;
    }

    /// Copies the parts of its ring that events want. The recording must list them.
    pub fn set_promoting(&mut self, observer: Option<RecordObserver>) {
        self.promoting = observer;
    }

    /// Sends the rest of a recording that has ended; `None` if it is not uploaded. See [`BesideRecording::finish`].
    pub fn finish_upload(
        &mut self,
        pause: impl FnMut(Duration) -> bool,
    ) -> Option<Result<UploadReport, UploadError>> {
        self.upload.take().map(|upload| upload.finish(pause))
    }

    /// Shows whether the recording is stalled.
    pub fn stall_flag(&self) -> StallFlag {
        self.stalled.clone()
    }

    /// Figures and events of the whole recording.
    pub fn past(&self) -> RecordingPast {
        self.past.clone()
    }

    /// The parts of the recording that are copied on request.
    pub fn promotions(&self) -> Promotions {
        self.promotions.clone()
    }

    /// Waits until all copies of a recording that has ended are made, or until `pause`, which waits for the span that it is given, returns true: then
    /// those that are not are ended.
    pub fn await_promotions(&self, mut pause: impl FnMut(Duration) -> bool) {
        if !self.promotions.is_idle() {
            tracing::info!("copying parts of the recording; Ctrl-C ends it");
        }
        while !self.promotions.is_idle() {
            if pause(COMMANDS_POLL) {
                self.promotions.end();
            }
        }
    }

    /// Whether something waits for each check: a service manager, a command, or an upload.
    pub fn is_waited_for(&self) -> bool {
        let has_command = self.commands().next().is_some();
        self.service_manager.is_some() || has_command || self.upload.is_some() || self.promoting.is_some()
    }

    /// Reports that the recording runs.
    pub fn ready(&mut self) {
        if let Some(manager) = &mut self.service_manager {
            manager.ready();
        }
    }

    /// Reports that the recording is stopping.
    pub fn stopping(&mut self) {
        if let Some(manager) = &mut self.service_manager {
            manager.stopping();
        }
    }

    /// Checks the status; called several times a second, also while the bag is being closed. `now` is
    /// monotonic.
    pub fn check(&mut self, status: &RecordStatus, control: &RecordControl, now: Duration) {
        // Waits for locks of other programs are logged where they happen.
        let watched = !(status.paused || self.snapshot_mode || Waiting::is_any());
        match self.progress.check(status, watched, now) {
            Some(ProgressChange::Stalled(span)) => {
                let reason = format!(
                    "messages arrive, but none has become durable in {} for {:.1} s: the disk does not accept writes",
                    status.current_file.display(),
                    span.as_secs_f64()
                );
                tracing::error!("no progress: {reason}");
                if self.restart_on_stall {
                    control.continue_in_new_file(reason);
                }
            }
            Some(ProgressChange::Resumed(span)) => {
                tracing::warn!("progress resumed after {:.1} s", span.as_secs_f64());
            }
            None => {}
        }
        self.stalled.set(self.progress.is_stalled());
        self.past.note(status, self.progress.is_stalled(), now);
        self.step_commands(control, now);
        if let Some(manager) = &mut self.service_manager
            && !self.progress.is_stalled()
        {
            manager.alive(now);
        }
        if now >= self.next_report {
            self.next_report = now + REPORT_INTERVAL;
            self.report(status);
        }
    }

    fn step_commands(&mut self, control: &RecordControl, now: Duration) {
        let has_room = self.file_command.as_ref().is_none_or(|it| it.0.has_room());
        if has_room && (self.file_command.is_some() || self.upload.is_some()) {
            let files = control.take_complete_files();
            if let Some(upload) = &self.upload {
                upload.add(files.iter().cloned());
            }
            if let Some(command) = &mut self.file_command {
                command.add(files);
            }
        }
        if let Some(command) = self.alarm_command.as_mut().filter(|it| it.0.has_room()) {
            command.add(control.directory(), control.take_alarm_changes());
        }
        if let Some(observer) = &self.promoting {
            for window in control.take_ring_windows() {
                let begun = self
                    .promotions
                    .begin_window(window, control.clone(), observer.clone());
                self.past.note_event("promote", &begun);
            }
        }
        for command in [
            self.file_command.as_mut().map(|it| &mut it.0),
            self.alarm_command.as_mut().map(|it| &mut it.0),
        ] {
            command.into_iter().for_each(|command| command.step(now));
        }
    }

    fn commands(&self) -> impl Iterator<Item = &LineCommand> {
        let of_files = self.file_command.as_ref().map(|it| &it.0);
        let of_alarms = self.alarm_command.as_ref().map(|it| &it.0);
        of_files.into_iter().chain(of_alarms)
    }

    /// Waits until all commands have ended, also those for the last files and alarms of a recording that has ended; at most some time, or until
    /// `pause`, which waits for the span that it is given, returns true.
    pub fn await_commands(
        &mut self,
        control: &RecordControl,
        clock: &dyn Clock,
        mut pause: impl FnMut(Duration) -> bool,
    ) {
        let deadline = clock.monotonic() + COMMANDS_END_MAX;
        let mut is_waiting = false;
        loop {
            let now = clock.monotonic();
            self.step_commands(control, now);
            if self.commands().all(LineCommand::is_idle) {
                return;
            }
            if !std::mem::replace(&mut is_waiting, true) {
                let seconds = COMMANDS_END_MAX.as_secs();
                tracing::info!("waiting for the commands that still run, at most {seconds} s");
            }
            if now >= deadline || pause(COMMANDS_POLL) {
                return self.commands().for_each(LineCommand::report_unfinished);
            }
        }
    }

    /// Notes that a wait of `planned` took `took`. If it took much longer, the process was stopped, which is
    /// not a stall of the disk.
    pub fn waited(&mut self, planned: Duration, took: Duration) {
        let late = took.saturating_sub(planned);
        if late >= holdall_record::STOPPED_MIN {
            self.progress.leave_out(late);
        }
    }

    /// Writes the last metrics; returns the longest stall.
    pub fn finish(&mut self, status: &RecordStatus) -> Option<Duration> {
        self.report(status);
        self.progress.longest_stall()
    }

    fn report(&mut self, status: &RecordStatus) {
        if let Some(manager) = &mut self.service_manager {
            let lost = status.shortfall();
            manager.status(&format!(
                "{} recorded, {lost} lost",
                counted(status.recorded, "message")
            ));
        }
        let Some(path) = &self.metrics_file else {
            return;
        };
        let text = metrics::open_metrics(status, self.progress.is_stalled());
        match metrics::replace_file(path, &text) {
            Ok(()) => self.metrics_failed = false,
            Err(error) if !self.metrics_failed => {
                self.metrics_failed = true;
                tracing::warn!("cannot write the metrics to {}: {error}", path.display());
            }
            Err(_) => {}
        }
    }
}
