//! `holdall bench gate`: counts the costs of a message and compares them with a committed baseline, in
//! figures that do not depend on the machine's speed.
//!
//! Valgrind counts instructions and copies, the workloads' own allocator counts allocations. Only
//! instructions in our code count: libc's differ between systems, and calls of it are counted as copies and
//! allocations.

mod baseline;
mod compare;
mod measure;
mod program;
mod valgrind;

pub use baseline::Baseline;
pub use baseline::Costs;
pub use compare::Figure;
pub use compare::FunctionChange;
pub use compare::Judgement;
pub use compare::{Comparison, GateReport};
pub use measure::measure;
pub use program::{BASELINE_FILE, WorkloadProgram, build, source_tree};
