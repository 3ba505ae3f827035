//! Threads that do the same work side by side, each with its number.

use crate::error::{BenchError, BenchResult};
use std::thread::{self, ScopedJoinHandle};

/// Runs `run` in `count` threads at once, and returns their results.
///
/// # Errors
/// A thread that cannot be started, or that panicked.
pub(crate) fn side_by_side<T: Send>(
    name: &str,
    count: u32,
    run: impl Fn(u32) -> T + Sync,
) -> BenchResult<Vec<T>> {
    let run = &run;
    thread::scope(|scope| {
        let start = |number: u32| {
            let thread = thread::Builder::new().name(format!("{name}-{number}"));
            let thread = thread.spawn_scoped(scope, move || run(number));
            thread.map_err(|source| BenchError::Thread { source })
        };
        let started = (0..count).map(start).collect::<BenchResult<Vec<_>>>()?;
        let join = |thread: ScopedJoinHandle<'_, T>| thread.join().map_err(|_| BenchError::panicked(name));
        started.into_iter().map(join).collect()
    })
}
