//! The parts of `holdall bench`: workloads, candidates, measurements that stay comparable, and
//! reports.
#![deny(unsafe_code)]

pub mod args;
pub mod candidate;
mod chart;
pub mod codec;
pub mod disk_limit;
pub mod engine;
pub mod error;
pub mod folder;
pub mod gate;
pub mod kinds;
pub mod limits;
pub mod link;
pub mod machine;
pub mod measure;
pub mod middleware;
pub mod people;
pub mod sheet;
pub mod statistics;
pub mod suite;
pub mod verify;
pub mod workload;

pub use error::{BenchError, BenchResult};
