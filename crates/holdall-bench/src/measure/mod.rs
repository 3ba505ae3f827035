//! Measurement: what a run costs in processor time and memory, and how long offers take.

pub mod cores;
pub mod latency;
pub mod processes;
mod sampling;
pub mod scheduling;
pub mod usage;

pub use cores::{CoreSample, CoreSampler};
pub use latency::{Latencies, LatencySummary};
pub use processes::{ProcessSample, ProcessSampler, ProcessUse, ThreadUse, process_use, written_bytes};
pub use scheduling::SchedulingProbe;
pub use usage::{Usage, UsageMeter};
