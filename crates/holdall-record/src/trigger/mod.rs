//! A recording that waits for events: the last messages stay in memory until an event shows whether they are wanted.

mod conditions;
mod episodes;
mod ring;

pub(super) use conditions::{Conditions, MessageTime, warn_of_absent_topics};
pub(super) use episodes::Episodes;
pub use holdall_model::trigger::{
    CopyFault, EventCopies, Trigger, TriggerCount, TriggerOptions, TriggerStatus,
};
pub(super) use ring::{Ring, RingPayload};
