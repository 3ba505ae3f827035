//! Measures the counted part of a run: wall-clock time and allocations; valgrind counts the rest.

use crate::Failed;
use holdall_io::clock::{Clock, SystemClock};
use serde::Serialize;
use stats_alloc::{Region, StatsAlloc};
use std::{alloc::System, hint::black_box};

/// The costs of the counted part of a run.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Took {
    /// Allocations, growing of existing ones included.
    pub allocations: u64,
    /// Wall-clock time, in seconds.
    pub elapsed_s: f64,
}

/// Runs `work` and returns its costs.
///
/// # Errors
/// The error of `work`.
pub fn measure(
    allocator: &StatsAlloc<System>,
    mut work: impl FnMut() -> Result<(), Failed>,
) -> Result<Took, Failed> {
    let mut result = Ok(());
    let began = SystemClock.monotonic();
    let region = Region::new(allocator);
    counted_by_callgrind(&mut || result = work());
    let change = region.change();
    let elapsed_s = SystemClock.monotonic().saturating_sub(began).as_secs_f64();
    result.map(|()| Took {
        allocations: (change.allocations + change.reallocations) as u64,
        elapsed_s,
    })
}

/// Callgrind counts from the call of this function until it returns, by its name; see
/// `tools/bench/src/gate/valgrind.rs`.
#[inline(never)]
fn counted_by_callgrind(work: &mut dyn FnMut()) {
    work();
    // Keeps the call above from becoming a jump, which would end the count before it begins.
    black_box(());
}
