//! `holdall bench gate`: counts what a message costs and compares with a committed baseline, in ratios that no machine's speed moves.
//!
//! Instructions and copies are counted by valgrind, allocations by the workloads' own allocator. Only instructions of our own code
//! count: libc's differ between systems, and what calls it is counted as copies and allocations.

mod baseline;
mod compare;
mod measure;
mod program;
mod valgrind;

pub use baseline::{Baseline, Costs};
pub use compare::{Comparison, Figure, FunctionChange, GateReport, Judgement};
pub use measure::{GateProgress, measure};
pub use program::{BASELINE_FILE, WorkloadProgram, build, source_tree};
