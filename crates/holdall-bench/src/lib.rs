//! Workloads, candidates, measurement and reports: what `holdall bench` runs, and how its figures stay
//! comparable.
#![deny(unsafe_code)]

pub mod candidate;
pub mod codec;
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
pub mod statistics;
pub mod suite;
pub mod verify;
pub mod workload;

pub use error::{BenchError, BenchResult};

/// The table style, where the rooms that are not of the engine look for it.
pub(crate) mod report {
    pub(crate) use crate::engine::TABLE_STYLE;
}
