//! Where the threads of a recording run, and which of them first.

use crate::{exit::Failure, units};
use holdall_io::{clock::Clock, thread};
use holdall_transport::registry::is_receiving_thread;
use std::time::Duration;
use tracing::{info, warn};

/// Restricts this thread and all threads that it starts to these cores; an empty list means all.
pub fn keep_to_cores(cores: &[usize]) -> Result<(), Failure> {
    if cores.is_empty() {
        return Ok(());
    }
    thread::keep_to_cores(cores).map_err(|error| {
        Failure::refused(format!(
            "--cpu-affinity {cores:?}: {error}; lscpu lists the cores"
        ))
    })
}

/// A thread names itself when it first runs; on a busy machine that takes a while.
const THREADS_NAMED_WITHIN: Duration = Duration::from_secs(1);

/// Gives the threads that receive messages real-time priority, if that is requested and allowed: at least
/// one for each transport.
pub fn prefer_receiving(priority: Option<u8>, transports: usize, clock: &dyn Clock) {
    let Some(priority) = priority else { return };
    let deadline = clock.monotonic() + THREADS_NAMED_WITHIN;
    let mut preferred = thread::prefer_threads(priority, is_receiving_thread);
    while matches!(preferred, Ok(count) if count < transports) && clock.monotonic() < deadline {
        clock.sleep_until(clock.monotonic() + Duration::from_millis(5));
        preferred = thread::prefer_threads(priority, is_receiving_thread);
    }
    match preferred {
        Ok(count) => info!(
            "{} at real-time priority {priority}",
            units::plural(count as u64, "receiving thread")
        ),
        Err(error) => warn!(
            "--rt-priority {priority} is not allowed here ({error}); it needs CAP_SYS_NICE or a limit rtprio. Recording without it"
        ),
    }
}
