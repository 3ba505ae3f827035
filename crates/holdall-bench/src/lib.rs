//! Workloads, candidates, measurement and reports: what `holdall bench` runs and how it stays honest.
#![forbid(unsafe_code)]

pub mod candidate;
pub mod error;
pub mod limits;
pub mod measure;
pub mod statistics;
pub mod verify;
pub mod workload;

pub use error::{BenchError, BenchResult};
