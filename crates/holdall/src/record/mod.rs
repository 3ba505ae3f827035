//! Recording: topic -> subscription -> cache -> drain -> storage writer.

pub mod options;
pub mod status;
