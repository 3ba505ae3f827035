//! How late the machine wakes a thread: the floor below which no latency of a program can be told from the machine's own.

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

/// A thread that does nothing but sleep until a point in time and note how much later it ran. While it wants to run it
/// competes as every thread of the program does, so its worst is what a thread of the program has to bear at least.
pub struct SchedulingProbe {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<(Latencies, Duration)>,
}

impl SchedulingProbe {
    /// Begins to watch.
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

    /// Ends, and gives how late each wake-up was and what the watching itself cost in processor time.
    pub fn stop(self) -> (Latencies, Duration) {
        self.stop.store(true, Ordering::Relaxed);
        // The thread does not panic; if it did, there is nothing to tell.
        self.thread.join().unwrap_or_default()
    }
}

fn watch(clock: &dyn Clock, stopped: &AtomicBool) -> (Latencies, Duration) {
    wake_this_thread_exactly();
    let mut late = Latencies::default();
    let mut due = clock.monotonic() + PERIOD;
    // One wake-up is noted in any case, however late the machine lets this thread begin.
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
    fn the_probe_notes_wake_ups_until_it_is_stopped() {
        let probe = SchedulingProbe::start(Arc::new(SystemClock)).unwrap();
        let (late, cpu) = probe.stop();
        assert!(late.summary().is_some_and(|summary| summary.count >= 1));
        assert!(cpu > Duration::ZERO);
    }
}
