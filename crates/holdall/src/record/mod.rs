//! Recording: topic -> subscription -> cache -> drain -> storage writer.

pub mod cache;
pub mod options;
pub mod status;
