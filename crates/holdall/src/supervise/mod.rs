//! Watches a recording from beside it: whether it makes progress, what a service manager and monitoring are told, what is asked of it.

pub mod control_socket;
pub mod metrics;
mod progress;
mod service_manager;

pub use progress::{ProgressChange, ProgressWatch};
pub use service_manager::ServiceManager;

use crate::record::{RecordControl, status::RecordStatus};
use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

/// Time between two writes of the metrics file, and between two states told to the service manager.
const TELL_INTERVAL: Duration = Duration::from_secs(1);

/// A wait that ends so late was slept through; a busy machine delays it by less.
const SLEPT_THROUGH_MIN: Duration = Duration::from_millis(500);

/// Says to other threads whether progress is being made.
#[derive(Clone, Debug, Default)]
pub struct StallFlag(Arc<AtomicBool>);

impl StallFlag {
    /// No progress is being made.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    fn set(&self, stalled: bool) {
        self.0.store(stalled, Ordering::Relaxed);
    }
}

/// Everything that is done beside a recording, driven by whoever looks at its status.
pub struct Supervision {
    progress: ProgressWatch,
    stalled: StallFlag,
    service_manager: Option<ServiceManager>,
    metrics_file: Option<PathBuf>,
    restart_on_stall: bool,
    snapshot_mode: bool,
    next_tell: Duration,
    metrics_failed: bool,
}

impl Supervision {
    /// Nothing but the watch over progress. `snapshot_mode`: messages become durable only when somebody asks for it.
    pub fn new(snapshot_mode: bool) -> Self {
        Self {
            progress: ProgressWatch::default(),
            stalled: StallFlag::default(),
            service_manager: None,
            metrics_file: None,
            restart_on_stall: false,
            snapshot_mode,
            next_tell: Duration::ZERO,
            metrics_failed: false,
        }
    }

    /// Goes on in a new file when no progress is made.
    pub fn with_restart_on_stall(mut self, restart: bool) -> Self {
        self.restart_on_stall = restart;
        self
    }

    /// Keeps OpenMetrics text in a file.
    pub fn with_metrics_file(mut self, path: Option<PathBuf>) -> Self {
        self.metrics_file = path;
        self
    }

    /// Tells a service manager how it goes.
    pub fn with_service_manager(mut self, manager: Option<ServiceManager>) -> Self {
        self.service_manager = manager;
        self
    }

    /// Follows whether progress is being made.
    pub fn stall_flag(&self) -> StallFlag {
        self.stalled.clone()
    }

    /// Tells that the recording runs.
    pub fn ready(&mut self) {
        if let Some(manager) = &mut self.service_manager {
            manager.ready();
        }
    }

    /// Tells that the recording is being ended.
    pub fn stopping(&mut self) {
        if let Some(manager) = &mut self.service_manager {
            manager.stopping();
        }
    }

    /// Takes a look; to be called some times a second, also while the bag is being closed. `now` is monotonic.
    pub fn look(&mut self, status: &RecordStatus, control: &RecordControl, now: Duration) {
        let watched = !(status.paused || self.snapshot_mode);
        match self.progress.look(status, watched, now) {
            Some(ProgressChange::Stalled(span)) => {
                let reason = format!(
                    "messages arrive, and for {:.1} s nothing of them has become durable in {}: the disk does not take what is written",
                    span.as_secs_f64(),
                    status.current_file.display()
                );
                tracing::error!("no progress: {reason}");
                if self.restart_on_stall {
                    control.go_on_in_new_file(reason);
                }
            }
            Some(ProgressChange::GoesOn(span)) => {
                tracing::warn!("there is progress again after {:.1} s", span.as_secs_f64());
            }
            None => {}
        }
        self.stalled.set(self.progress.is_stalled());
        if let Some(manager) = &mut self.service_manager
            && !self.progress.is_stalled()
        {
            manager.alive(now);
        }
        if now >= self.next_tell {
            self.next_tell = now + TELL_INTERVAL;
            self.tell(status);
        }
    }

    /// Notes that a wait of `meant` took `took`. One that took much longer was slept through: the process was stopped, and no disk is to blame.
    pub fn waited(&mut self, meant: Duration, took: Duration) {
        let late = took.saturating_sub(meant);
        if late >= SLEPT_THROUGH_MIN {
            self.progress.leave_out(late);
        }
    }

    /// Writes the last metrics and tells the longest time without progress, when it was too long.
    pub fn finish(&mut self, status: &RecordStatus) -> Option<Duration> {
        self.tell(status);
        self.progress.longest_stall()
    }

    fn tell(&mut self, status: &RecordStatus) {
        if let Some(manager) = &mut self.service_manager {
            let lost = status.shortfall();
            manager.status(&format!("{} messages recorded, {lost} lost", status.recorded));
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
