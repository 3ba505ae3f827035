//! Writing: takes segments from the cache into the bag, keeps the loss window, and knows what is durable.

mod checkpoint;
pub mod drain;
mod journal;
pub mod latched;
mod options;
mod retained;
pub mod survival;
pub(super) mod waiting;

pub use options::{DrainOptions, OnDiskFull, RING_FREE_SPACE_BYTES};
