//! Receiving: follows the graph, subscribes, checks sequences, and offers wanted messages to the cache.

mod covered;
pub mod definitions;
pub mod discovery;
pub mod gate;
pub mod intake;
mod loss_watch;
mod merging;
mod services;
pub(super) mod session;
mod subscriptions;
