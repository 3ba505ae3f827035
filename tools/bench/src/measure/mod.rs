//! Measurement of a run's processor time and memory, and of the duration of offers.

pub mod cores;
pub mod latency;
pub mod processes;
mod sampling;
pub mod scheduling;
mod side_by_side;
pub mod usage;

pub use cores::CoreSample;
pub(crate) use cores::CoreSampler;
pub use latency::Latencies;
pub use latency::LatencySummary;
pub use processes::ProcessSample;
pub use processes::ProcessUse;
pub use processes::ThreadUse;
pub use processes::written_bytes;
pub(crate) use processes::{ProcessSampler, memory_use, process_use};
pub(crate) use scheduling::SchedulingProbe;
pub(crate) use side_by_side::side_by_side;
pub use usage::Usage;
pub(crate) use usage::UsageMeter;
