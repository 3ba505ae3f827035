//! A thread that samples something five times a second until it is stopped.

use crate::error::{BenchError, BenchResult};
use holdall_io::clock::Clock;
use std::{
    sync::{Arc, mpsc},
    thread::{self, JoinHandle},
    time::Duration,
};

/// The kernel counts in hundredths of a second, so shorter periods carry no information.
const INTERVAL: Duration = Duration::from_millis(200);

/// Most samples: an hour. A longer run keeps its beginning.
pub(super) const SAMPLES_MAX: usize = 18_000;

/// The sampling thread.
#[derive(Debug)]
pub(super) struct Sampling<T> {
    stop: mpsc::SyncSender<()>,
    thread: JoinHandle<T>,
}

impl<T: Default + Send + 'static> Sampling<T> {
    /// Starts with `seen`, to which each call of `sample` adds; it gets the seconds since the start.
    ///
    /// # Errors
    /// When no thread can be started.
    pub(super) fn start(
        name: &str,
        clock: Arc<dyn Clock>,
        mut seen: T,
        mut sample: impl FnMut(&mut T, f64) + Send + 'static,
    ) -> BenchResult<Self> {
        let (stop, stopped) = mpsc::sync_channel::<()>(1);
        let run = move || {
            let start = clock.monotonic();
            loop {
                // The last period is shorter than the others, so that short runs have at least one sample.
                let ended = !matches!(
                    stopped.recv_timeout(INTERVAL),
                    Err(mpsc::RecvTimeoutError::Timeout)
                );
                sample(&mut seen, clock.monotonic().saturating_sub(start).as_secs_f64());
                if ended {
                    return seen;
                }
            }
        };
        let thread = thread::Builder::new()
            .name(name.to_owned())
            .spawn(run)
            .map_err(|source| BenchError::Thread { source })?;
        Ok(Self { stop, thread })
    }

    /// Ends and returns the samples.
    pub(super) fn stop(self) -> T {
        drop(self.stop);
        self.thread.join().unwrap_or_default()
    }
}
