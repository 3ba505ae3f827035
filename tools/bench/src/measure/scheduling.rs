//! How late the machine wakes a thread: no latency of a program below this can be distinguished from the
//! machine's own.

use super::latency::Latencies;
use holdall_io::{
    clock::{Clock, wake_this_thread_exactly},
    process::thread_cpu_time,
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

/// Time between two wake-ups of the probe.
const PERIOD: Duration = Duration::from_millis(1);

/// A thread that only sleeps until a point in time and records how much later it ran. When it is due, it
/// competes for a processor as every thread of the program does: its worst is the least that such a thread
/// has to expect.
pub(crate) struct SchedulingProbe {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<(Latencies, Duration)>,
}

impl SchedulingProbe {
    /// Starts the probe.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn start(clock: Arc<dyn Clock>) -> std::io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::Builder::new()
            .name("bench-probe".to_owned())
            .spawn(move || watch(clock.as_ref(), &stopped))?;
        Ok(Self { stop, thread })
    }

    /// Ends; returns how late each wake-up was, and the processor time of the probe itself.
    pub fn stop(self) -> (Latencies, Duration) {
        self.stop.store(true, Ordering::Relaxed);
        // The thread does not panic; if it did, it would give no result.
        self.thread.join().unwrap_or_default()
    }
}

fn watch(clock: &dyn Clock, stopped: &AtomicBool) -> (Latencies, Duration) {
    wake_this_thread_exactly();
    let mut late = Latencies::default();
    let mut due = clock.monotonic() + PERIOD;
    // One wake-up is recorded in any case, even when this thread starts late.
    loop {
        clock.sleep_until(due);
        let now = clock.monotonic();
        late.record(now.saturating_sub(due));
        // A long stall is one stall, not one for each period that it covered.
        due = (due + PERIOD).max(now);
        if stopped.load(Ordering::Relaxed) {
            break;
        }
    }
    (late, thread_cpu_time().total())
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdall_io::clock::SystemClock;

    #[test]
    fn the_probe_records_wake_ups_until_it_is_stopped() {
        let probe = SchedulingProbe::start(Arc::new(SystemClock)).unwrap();
        let (late, cpu) = probe.stop();
        assert!(late.summary().is_some_and(|summary| summary.count >= 1));
        assert!(cpu > Duration::ZERO);
    }
}
