//! Workloads, candidates, measurement and reports: what `holdall bench` runs, and how its figures stay
//! comparable.
#![deny(unsafe_code)]

pub mod candidate;
pub mod codec;
pub mod error;
pub mod folder;
pub mod gate;
pub mod limits;
pub mod link;
pub mod machine;
pub mod measure;
pub mod middleware;
pub mod people;
pub mod report;
pub mod statistics;
pub mod storage;
pub mod suite;
pub mod tools;
pub mod verify;
pub mod workload;
pub mod write;

pub use error::{BenchError, BenchResult};
