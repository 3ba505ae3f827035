//! A thread that looks at something five times a second until it is stopped.

use crate::error::{BenchError, BenchResult};
use holdall_io::clock::Clock;
use std::{
    sync::{Arc, mpsc},
    thread::{self, JoinHandle},
    time::Duration,
};

/// The kernel counts in hundredths of a second; shorter looks say nothing.
const INTERVAL: Duration = Duration::from_millis(200);

/// Samples kept at most: an hour. A longer run keeps its beginning.
pub(super) const SAMPLES_MAX: usize = 18_000;

/// Looks again and again.
#[derive(Debug)]
pub(super) struct Sampling<T> {
    stop: mpsc::SyncSender<()>,
    thread: JoinHandle<T>,
}

impl<T: Default + Send + 'static> Sampling<T> {
    /// Begins with what was `seen` before; `look` adds to it, at so many seconds after the beginning.
    ///
    /// # Errors
    /// When no thread can be started.
    pub(super) fn start(
        name: &str,
        clock: Arc<dyn Clock>,
        mut seen: T,
        mut look: impl FnMut(&mut T, f64) + Send + 'static,
    ) -> BenchResult<Self> {
        let (stop, stopped) = mpsc::sync_channel::<()>(1);
        let run = move || {
            let start = clock.monotonic();
            loop {
                // The last look is shorter than the others, so that short runs have one at all.
                let ended = !matches!(
                    stopped.recv_timeout(INTERVAL),
                    Err(mpsc::RecvTimeoutError::Timeout)
                );
                look(&mut seen, clock.monotonic().saturating_sub(start).as_secs_f64());
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

    /// Ends; what was seen.
    pub(super) fn stop(self) -> T {
        drop(self.stop);
        self.thread.join().unwrap_or_default()
    }
}
