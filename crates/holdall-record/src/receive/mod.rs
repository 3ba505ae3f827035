//! Receiving: follows the graph, subscribes, checks sequences, and offers wanted messages to the cache.

mod covered;
pub mod definitions;
pub mod gate;
pub mod intake;
mod loss_watch;
mod merging;
pub(super) mod session;
mod subscriptions;

use holdall_discovery::{decisions as discovery, services};
