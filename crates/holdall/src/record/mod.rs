//! Recording: topic -> subscription -> cache -> drain -> storage writer.

pub mod cache;
pub mod gate;
pub mod intake;
pub mod ledger;
pub mod options;
pub mod status;
