//! A recording that waits for events: the last messages stay in memory until an event shows whether they are wanted.

mod conditions;
mod options;
mod ring;
mod status;

pub(super) use conditions::{Conditions, MessageTime};
pub use options::{Trigger, TriggerOptions};
pub(super) use ring::{Ring, RingPayload};
pub use status::{TriggerCount, TriggerStatus};
