//! Recording: topic -> subscription -> cache -> drain -> storage writer.

mod assembly;
mod backlog;
pub mod cache;
mod checkpoint;
mod control;
pub mod definitions;
pub mod discovery;
pub mod drain;
pub mod durability;
mod error;
pub mod events;
pub mod gate;
pub mod intake;
mod journal;
pub mod ledger;
mod loss_watch;
mod merging;
pub mod options;
mod recorder;
mod retained;
mod session;
mod space;
pub mod status;
mod stepped;
mod subscriptions;
pub mod survival;
#[cfg(test)]
mod tests;
mod view;
mod waiting;

pub use control::RecordControl;
pub use error::RecordError;
pub use recorder::Recorder;
pub use stepped::SteppedRecorder;
pub use view::RecordObserver;
