//! A seeded disk and clock: the same seed gives the same run, with every fault that O_DIRECT and fsync allow.

mod clock;
mod disk;
mod file;
mod rng;
mod state;

pub use clock::SimClock;
pub use disk::{SimDisk, SimDiskHandle, SimDiskOptions};
pub use rng::SimRng;
